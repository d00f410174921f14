//! Seeds for attribute certificates: those of `vectors`, and one that the target signs.

use std::io::Result;
use std::path::Path;

use esplanade_fuzz::auth::{AUTHORITY, der};
use esplanade_pki::DistinguishedName;
use esplanade_pki::attributes::AttributeCertificate;

use super::others::{Seeds, put};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../../vectors/ike/", $name)).as_slice()
    };
}

pub fn write(corpus: &Path) -> Result<()> {
    put(corpus, "attributes", seeds())
}

/// Attribute certificates behind their length.
fn seed(all: &[Vec<u8>]) -> Vec<u8> {
    let one = |der: &Vec<u8>| [&(der.len() as u16).to_be_bytes()[..], der].concat();
    all.iter().map(one).collect::<Vec<_>>().concat()
}

fn seeds() -> Seeds {
    let read = |pem| {
        let read = AttributeCertificate::from_file_content(pem).expect("a good file");
        read.der().to_vec()
    };
    vec![
        (
            "two",
            seed(&[
                read(file!("attributes/sales.pem")),
                read(file!("attributes/research.pem")),
            ]),
        ),
        ("rsa-pss", seed(&[read(file!("attributes/pss.pem"))])),
        ("expired", seed(&[read(file!("attributes/expired.pem"))])),
        ("pem", [b"\n", file!("attributes/research.pem")].concat()),
        ("signed-here", seed(&[signed_here()])),
    ]
}

/// An attribute certificate with all parts that are read, without a signature.
fn signed_here() -> Vec<u8> {
    let ed25519 = b"\x30\x05\x06\x03\x2b\x65\x70";
    let issuer = DistinguishedName::parse(AUTHORITY).expect("a name");
    let names = |name: &[u8]| der(0x30, &[&der(0xa4, &[name])]);
    let dns = |name: &[u8]| der(0x82, &[name]);
    // SHA-256 of moon-ecdsa256.pem in DER.
    let digest = b"\xdf\x75\xf9\x76\x8c\x47\x3f\x1e\x5e\xef\x92\x93\x06\x02\x90\x0d\
        \xd7\x23\x9c\xc1\xd1\x8c\xd4\x1f\x02\x94\x9c\x13\xd0\x00\x19\xac";
    let algorithm = b"\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01";
    let holder = der(
        0x30,
        &[
            &der(0xa1, &[&dns(b"moon.example.org")]),
            &der(
                0xa2,
                &[b"\x0a\x01\x01", algorithm, &der(3, &[b"\0", digest])],
            ),
        ],
    );
    let groups: &[&[u8]] = &[
        b"\x04\x06octets",
        b"\x06\x03\x55\x04\x03",
        b"\x0c\x08Research",
    ];
    let syntax = der(0x30, &[&der(0xa0, &[&dns(b"x")]), &der(0x30, groups)]);
    let attribute = |id: &[u8], value: &[u8]| der(0x30, &[id, &der(0x31, &[value])]);
    let targets = der(
        0x30,
        &[&der(0x30, &[&der(0xa0, &[&dns(b"gw.example.org")])])],
    );
    let extension = |id: &[u8], critical: &[u8], value: &[u8]| {
        der(
            0x30,
            &[&der(6, &[b"\x55\x1d", id]), critical, &der(4, &[value])],
        )
    };
    let content = der(
        0x30,
        &[
            b"\x02\x01\x01",
            &holder,
            &der(0xa0, &[&names(issuer.der())]),
            ed25519,
            b"\x02\x01\x05",
            &der(0x30, &[b"\x18\x0f20260101000000Z\x18\x0f20660101000000Z"]),
            &der(
                0x30,
                &[
                    &attribute(b"\x06\x08\x2b\x06\x01\x05\x05\x07\x0a\x04", &syntax),
                    &attribute(b"\x06\x03\x55\x04\x48", b"\x30\x00"),
                ],
            ),
            &der(
                0x30,
                &[
                    &extension(b"\x37", b"\x01\x01\xff", &targets),
                    &extension(b"\x38", b"", b"\x05\x00"),
                    &extension(b"\x23", b"", b"\x30\x00"),
                ],
            ),
        ],
    );
    der(0x30, &[&content, ed25519, &der(3, &[&[0; 65]])])
}
