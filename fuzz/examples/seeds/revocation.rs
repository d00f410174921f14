//! Seeds for CRLs of the authority whose key is known.

use std::io::Result;
use std::path::Path;

use esplanade_fuzz::auth::{AUTHORITY, der, issuer, signed};
use esplanade_ike::auth::DistinguishedName;

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
