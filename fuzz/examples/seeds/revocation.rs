//! Seeds for CRLs of the authority whose key is known.

use std::io::Result;
use std::path::Path;

use esplanade_fuzz::auth::{AUTHORITY, der, issuer, signed};
use esplanade_pki::DistinguishedName;

use super::others::put;

const ED25519: &[u8] = b"\x30\x05\x06\x03\x2b\x65\x70";
/// An extension or entry: its identifier, whether it is critical, its value.
type Extension<'a> = (&'a [u8], bool, &'a [u8]);

const CRL_NUMBER: Extension<'_> = (b"\x55\x1d\x14", false, b"\x02\x01\x05");
const NEXT_NUMBER: Extension<'_> = (b"\x55\x1d\x14", false, b"\x02\x01\x06");
const BASE: Extension<'_> = (b"\x55\x1d\x1b", true, b"\x02\x01\x05");
const SOME_REASONS: Extension<'_> = (b"\x55\x1d\x1c", true, b"\x30\x04\x83\x02\x01\x66");
const OTHER_REASONS: Extension<'_> = (b"\x55\x1d\x1c", true, b"\x30\x05\x83\x03\x07\x19\x80");
const RELATIVE_POINT: Extension<'_> = (
    b"\x55\x1d\x1c",
    true,
    b"\x30\x11\xa0\x0c\xa1\x0a\x30\x08\x06\x03\x55\x04\x03\x0c\x01p\x84\x01\xff",
);
const UNKNOWN: Extension<'_> = (b"\x2a\x03\x04", true, b"\x05\x00");
const HOLD: Extension<'_> = (b"\x55\x1d\x15", false, b"\x0a\x01\x06");
const REMOVE: Extension<'_> = (b"\x55\x1d\x15", false, b"\x0a\x01\x08");
const OTHER_ISSUER: Extension<'_> = (
    b"\x55\x1d\x1d",
    true,
    b"\x30\x12\xa4\x10\x30\x0e\x31\x0c\x30\x0a\x06\x03\x55\x04\x03\x0c\x03abc",
);

/// SHA-1 of the authority's name and of its key.
const NAME_HASH: &[u8] =
    b"\xa8\x52\x68\xcd\x43\x8e\xab\xe4\xb7\x54\x51\x11\x86\x23\x03\x74\x72\xb5\xc7\xe0";
const KEY_HASH: &[u8] =
    b"\xfb\xb5\x5d\x70\xd4\x88\x31\x62\xe0\x38\xb7\x6a\xa0\x6f\x2d\x30\xfc\xc9\x5f\x1b";

fn extensions(list: &[Extension<'_>]) -> Vec<u8> {
    let list = list.iter().map(|(id, critical, value)| {
        let critical: &[u8] = if *critical { b"\x01\x01\xff" } else { b"" };
        der(0x30, &[&der(6, &[id]), critical, &der(4, &[value])])
    });
    der(0x30, &[&list.collect::<Vec<_>>().concat()])
}

/// A CRL with an entry for each list of extensions. Their serial number is 1, as the peer's.
fn crl(own: &[Extension<'_>], entries: &[&[Extension<'_>]]) -> Vec<u8> {
    let issuer_name = DistinguishedName::parse(AUTHORITY).expect("a name");
    let entry = |list: &&[Extension<'_>]| {
        let list = match list.is_empty() {
            true => Vec::new(),
            false => extensions(list),
        };
        der(0x30, &[b"\x02\x01\x01\x17\x0d260501000000Z", &list])
    };
    let entries: Vec<_> = entries.iter().map(entry).collect();
    let list = match entries.is_empty() {
        true => Vec::new(),
        false => der(0x30, &[&entries.concat()]),
    };
    let own = der(0xa0, &[&extensions(own)]);
    let parts: [&[u8]; 6] = [
        b"\x02\x01\x01",
        ED25519,
        issuer_name.der(),
        b"\x17\x0d260531000000Z\x17\x0d260701000000Z",
        &list,
        &own,
    ];
    signed(&issuer(), &der(0x30, &parts)).expect("an Ed25519 key")
}

pub fn write(corpus: &Path) -> Result<()> {
    let seed = |crls: &[Vec<u8>]| {
        let framed = crls
            .iter()
            .map(|crl| [&(crl.len() as u16).to_be_bytes(), &crl[..]].concat());
        framed.collect::<Vec<_>>().concat()
    };
    let good = || crl(&[CRL_NUMBER], &[]);
    let seeds = vec![
        ("file", good()),
        ("good", seed(&[good()])),
        ("hold", seed(&[crl(&[CRL_NUMBER], &[&[HOLD]])])),
        (
            "delta-removes",
            seed(&[
                crl(&[CRL_NUMBER], &[&[HOLD]]),
                crl(&[NEXT_NUMBER, BASE], &[&[REMOVE]]),
            ]),
        ),
        (
            "delta-lists",
            seed(&[good(), crl(&[NEXT_NUMBER, BASE], &[&[]])]),
        ),
        (
            "reasons",
            seed(&[
                crl(&[CRL_NUMBER, SOME_REASONS], &[]),
                crl(&[CRL_NUMBER, OTHER_REASONS], &[]),
            ]),
        ),
        (
            "relative-point",
            seed(&[crl(&[CRL_NUMBER, RELATIVE_POINT], &[&[OTHER_ISSUER, HOLD]])]),
        ),
        ("unknown", seed(&[crl(&[UNKNOWN], &[&[UNKNOWN]])])),
        ("unknown-entry", seed(&[crl(&[CRL_NUMBER], &[&[UNKNOWN]])])),
    ];
    put(corpus, "revocation", seeds)
}

/// A CertID of the peer: SHA-1, the hash of the authority's name, that of its key, and the serial number.
fn certificate_id() -> Vec<u8> {
    let algorithm = der(0x30, &[b"\x06\x05\x2b\x0e\x03\x02\x1a\x05\x00"]);
    der(
        0x30,
        &[
            &algorithm,
            &der(4, &[NAME_HASH]),
            &der(4, &[KEY_HASH]),
            b"\x02\x01\x01",
        ],
    )
}

/// The data that a responder signs, with one answer about the peer.
fn response_data(status: &[u8], this_update: &[u8], next_update: Option<&[u8]>) -> Vec<u8> {
    let time = |text: &[u8]| der(0x18, &[text]);
    let next = next_update.map_or_else(Vec::new, |text| der(0xa0, &[&time(text)]));
    let single = der(
        0x30,
        &[&certificate_id(), status, &time(this_update), &next],
    );
    let responder = der(0xa2, &[&der(4, &[KEY_HASH])]);
    let produced = time(this_update);
    der(0x30, &[&responder, &produced, &der(0x30, &[&single])])
}

pub fn write_ocsp(corpus: &Path) -> Result<()> {
    let seed = |pieces: &[Vec<u8>]| {
        let framed = pieces
            .iter()
            .map(|piece| [&(piece.len() as u16).to_be_bytes(), &piece[..]].concat());
        framed.collect::<Vec<_>>().concat()
    };
    let (early, late) = (b"20260531000000Z".as_slice(), b"20260531235500Z".as_slice());
    let end = Some(b"20260701000000Z".as_slice());
    let revoked = der(
        0xa1,
        &[&der(0x18, &[b"20260501000000Z"]), b"\xa0\x03\x0a\x01\x06"],
    );
    let (good, unknown) = (b"\x80\x00".as_slice(), b"\x82\x00".as_slice());
    let seeds = vec![
        ("good", seed(&[response_data(good, early, end)])),
        ("revoked", seed(&[response_data(&revoked, early, end)])),
        (
            "revoked-since",
            seed(&[
                response_data(good, early, end),
                response_data(&revoked, late, end),
            ]),
        ),
        ("unknown", seed(&[response_data(unknown, early, end)])),
        ("no-end", seed(&[response_data(good, late, None)])),
        ("refused", seed(&[b"\x30\x03\x0a\x01\x03".to_vec()])),
    ];
    put(corpus, "ocsp", seeds)
}
