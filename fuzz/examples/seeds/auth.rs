//! Seeds for identities, certificates and signatures. ECDSA and PSS draw random numbers, so those signatures differ
//! in every run.

use std::io::Result;
use std::path::Path;

use esplanade_fuzz::auth::{AUTHORITY, OCTETS, certificate, der, issue, issuer};
use esplanade_ike::auth::{Credential, Identity, SIGNATURE_HASHES};

use super::others::{Seeds, put};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../../vectors/ike/certs/", $name)).as_slice()
    };
}

pub fn write(corpus: &Path) -> Result<()> {
    put(corpus, "identity", identities())?;
    put(corpus, "certificates", certificates())?;
    put(corpus, "auth_signature", signatures())
}

/// An identity as a peer sends it, then one as a configuration has it.
fn identities() -> Seeds {
    let seed = |presented: &str, configured: &str| {
        let presented: Identity = presented.parse().expect("an identity");
        let payload = presented.to_payload().expect("not a pattern for all");
        let len = u8::try_from(payload.data.len()).expect("short");
        [
            &[payload.kind.0, len],
            &payload.data[..],
            configured.as_bytes(),
        ]
        .concat()
    };
    // The set has O=a and CN=* in one RDN. The second attribute's value is a number.
    let set = b"\x30\x23\x31\x16\x30\x08\x06\x03\x55\x04\x03\x0c\x01*\x30\x0a\x06\x03\x55\x04\x0a\x1e\x03\x00a,\
        \x31\x09\x30\x07\x06\x02\x2a\x03\x02\x01\x05";
    vec![
        ("domain", seed("gw.example", "*.Example.")),
        ("email", seed("carol@example.org", "@@*@example.org")),
        (
            "name",
            seed(
                "C=CH, O=\"Example, Inc\", CN=moon",
                "/c=ch/O=Example\\, inc/CN=*",
            ),
        ),
        (
            "name-of-sets",
            [
                &[9, set.len() as u8],
                &set[..],
                b"CN=a+O=#1e020061, 1.2.3=\\0a",
            ]
            .concat(),
        ),
        ("key-id", seed("@#0102", "keyid:0x01:02")),
    ]
}

/// The identity to prove, then certificates behind their length.
fn certificates() -> Seeds {
    let seed = |identity: u8, certificates: &[&[u8]]| {
        let mut bytes = vec![identity];
        for certificate in certificates {
            bytes.extend((certificate.len() as u16).to_be_bytes());
            bytes.extend(*certificate);
        }
        bytes
    };
    let of = |pem| certificate(pem).der().to_vec();
    let (sun, intermediate) = (of(file!("sun.pem")), of(file!("intermediate.pem")));
    let by = issuer();
    // A path of two certificates below the authority whose key signs the input.
    let authority = issue(
        &by,
        AUTHORITY,
        "CN=between",
        &extensions(&[
            (b"\x55\x1d\x13", true, b"\x30\x06\x01\x01\xff\x02\x01\x00"),
            (b"\x55\x1d\x0f", true, b"\x03\x02\x01\x06"),
            // The constraints allow names below example.org only, and any policy.
            (
                b"\x55\x1d\x1e",
                true,
                b"\x30\x11\xa0\x0f\x30\x0d\x82\x0bexample.org",
            ),
            (
                b"\x55\x1d\x20",
                false,
                b"\x30\x08\x30\x06\x06\x04\x55\x1d\x20\x00",
            ),
            (b"\x55\x1d\x24", true, b"\x30\x03\x80\x01\x00"),
        ]),
    );
    let peer = issue(
        &by,
        "CN=between",
        "CN=moon",
        &extensions(&[
            (b"\x55\x1d\x11", false, b"\x30\x12\x82\x10moon.example.org"),
            (b"\x55\x1d\x0f", true, b"\x03\x02\x07\x80"),
            (
                b"\x55\x1d\x25",
                false,
                b"\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x11",
            ),
            (
                b"\x55\x1d\x20",
                false,
                b"\x30\x08\x30\x06\x06\x04\x55\x1d\x20\x00",
            ),
        ]),
    );
    vec![
        ("moon", seed(0, &[&of(file!("moon-ed25519.pem"))])),
        ("chain", seed(4, &[&sun, &intermediate])),
        (
            "signed-here",
            seed(0, &[&unsigned(peer), &unsigned(authority)]),
        ),
        ("pem", [b"\n", file!("moon-ecdsa256.pem")].concat()),
    ]
}

/// Removes the signature of a certificate. The target adds signatures, and it takes a signature in the input for a
/// forgery.
fn unsigned(mut certificate: Vec<u8>) -> Vec<u8> {
    let signature = certificate.len() - 64;
    certificate[signature..].fill(0);
    certificate
}

/// Encodes extensions: identifier, whether critical, and value.
fn extensions(all: &[(&[u8], bool, &[u8])]) -> Vec<u8> {
    let one = |&(id, critical, value): &(&[u8], bool, &[u8])| {
        let critical: &[u8] = if critical { b"\x01\x01\xff" } else { b"" };
        der(0x30, &[&der(6, &[id]), critical, &der(4, &[value])])
    };
    all.iter().map(one).collect::<Vec<_>>().concat()
}

/// The peer, the method, and the data of the AUTH payload. The seeds `rsa-sha256` (method 1) and `rsa-pkcs1` (method
/// 14) are not made here, because no key of ours signs so. Their value is the output of `openssl dgst -sha256 -sign`
/// for [`OCTETS`].
fn signatures() -> Seeds {
    let seed = |peer: u8, announced: &[_], pem: &[u8], key: &[u8]| {
        let credential = Credential::new(key, vec![certificate(pem)]).expect("a pair");
        let auth = credential
            .sign(announced, OCTETS, true)
            .expect("a signature");
        [&[peer, auth.method.0], &auth.data[..]].concat()
    };
    let all = SIGNATURE_HASHES;
    let (rsa, rsa_key) = (file!("moon-rsa.pem"), file!("moon-rsa.key"));
    let (p256, p256_key) = (file!("moon-ecdsa256.pem"), file!("moon-ecdsa256.key"));
    let (p384, p384_key) = (file!("moon-ecdsa384.pem"), file!("moon-ecdsa384.key"));
    let (p521, p521_key) = (file!("moon-ecdsa521.pem"), file!("moon-ecdsa521.key"));
    let (ed25519, ed25519_key) = (file!("moon-ed25519.pem"), file!("moon-ed25519.key"));
    vec![
        ("rsa-pss", seed(0, all, rsa, rsa_key)),
        ("rsa-sha1", seed(0, &[], rsa, rsa_key)),
        ("ecdsa", seed(2, all, p384, p384_key)),
        ("ecdsa-p521", seed(4, all, p521, p521_key)),
        ("ecdsa-fixed", seed(1, &[], p256, p256_key)),
        ("ecdsa-fixed-p521", seed(4, &[], p521, p521_key)),
        ("ed25519", seed(3, all, ed25519, ed25519_key)),
        // The algorithm is unknown to everybody.
        (
            "unknown",
            [
                &[4, 14, 10][..],
                b"\x30\x08\x06\x06\x2a\x81\x00\x86\x8d\x1f",
                b"sig",
            ]
            .concat(),
        ),
    ]
}
