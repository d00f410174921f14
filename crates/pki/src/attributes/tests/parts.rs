//! Attribute certificates of parts that `pki` does not write, with right signatures.

use super::*;

/// The parts of an attribute certificate, in DER.
struct Parts {
    version: Vec<u8>,
    holder: Vec<u8>,
    issuer: Vec<u8>,
    /// The algorithm that is signed.
    algorithm: Vec<u8>,
    attributes: Vec<u8>,
    /// In front of the extensions.
    unique_id: Vec<u8>,
    extensions: Vec<Vec<u8>>,
}

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let len = u16::try_from(content.len()).unwrap().to_be_bytes();
    match content.len() {
        0..128 => [&[tag, len[1]][..], &content].concat(),
        128..256 => [&[tag, 0x81, len[1]][..], &content].concat(),
        _ => [&[tag, 0x82, len[0], len[1]][..], &content].concat(),
    }
}

const ECDSA_SHA256: &[u8] = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
const RSA_SHA256: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00";
const GROUP: &[u8] = b"\x06\x08\x2b\x06\x01\x05\x05\x07\x0a\x04";
/// The attribute `role`.
const ROLE: &[u8] = b"\x06\x03\x55\x04\x48";
const NO_REV_AVAIL: &[u8] = b"\x30\x09\x06\x03\x55\x1d\x38\x04\x02\x05\x00";
const TARGETS: &[u8] = b"\x06\x03\x55\x1d\x37";
const CRITICAL: &[u8] = b"\x01\x01\xff";

fn directory_names(name: &DistinguishedName) -> Vec<u8> {
    tlv(0x30, &[&tlv(0xa4, &[name.der()])])
}

fn dns(name: &str) -> Vec<u8> {
    tlv(0x82, &[name.as_bytes()])
}

/// IssuerSerial of a certificate, behind this tag.
fn base(tag: u8, certificate: &Certificate) -> Vec<u8> {
    let parsed = x509_cert::Certificate::from_der(certificate.der()).unwrap();
    let serial = parsed.tbs_certificate.serial_number.to_der().unwrap();
    tlv(tag, &[&directory_names(certificate.issuer()), &serial])
}

fn group_attribute(values: &[&[u8]]) -> Vec<u8> {
    let syntax = tlv(0x30, &[&tlv(0x30, values)]);
    tlv(0x30, &[GROUP, &tlv(0x31, &[&syntax])])
}

fn extension(id: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if critical { CRITICAL } else { &[] };
    tlv(0x30, &[id, critical, &tlv(4, &[value])])
}

fn targets(lists: &[&[&[u8]]]) -> Vec<u8> {
    let lists: Vec<Vec<u8>> = lists.iter().map(|list| tlv(0x30, list)).collect();
    let lists: Vec<&[u8]> = lists.iter().map(Vec::as_slice).collect();
    extension(TARGETS, true, &tlv(0x30, &lists))
}

impl Parts {
    fn new() -> Self {
        let authority = load(file!("attributes/aa.pem"));
        let issuer = directory_names(authority.subject());
        Self {
            version: vec![2, 1, 1],
            holder: base(0xa0, &moon()),
            issuer: tlv(0xa0, &[&issuer]),
            algorithm: ECDSA_SHA256.to_vec(),
            attributes: group_attribute(&[b"\x0c\x08Research"]),
            unique_id: Vec::new(),
            extensions: vec![NO_REV_AVAIL.to_vec()],
        }
    }

    fn der(&self) -> Vec<u8> {
        let times = b"\x18\x0f20260101000000Z\x18\x0f20660101000000Z";
        let extensions: Vec<&[u8]> = self.extensions.iter().map(Vec::as_slice).collect();
        let extensions = match extensions.is_empty() {
            true => Vec::new(),
            false => tlv(0x30, &extensions),
        };
        let content = tlv(
            0x30,
            &[
                &self.version,
                &tlv(0x30, &[&self.holder]),
                &self.issuer,
                &self.algorithm,
                b"\x02\x01\x07",
                &tlv(0x30, &[times]),
                &tlv(0x30, &[&self.attributes]),
                &self.unique_id,
                &extensions,
            ],
        );
        let key = PrivateKeyDer::from_pem_slice(file!("attributes/aa.key")).unwrap();
        let key =
            EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, key.secret_der());
        let signature = key.unwrap().sign(&SystemRandom::new(), &content).unwrap();
        let signature = tlv(3, &[&[0], signature.as_ref()]);
        tlv(0x30, &[&content, ECDSA_SHA256, &signature])
    }
}

/// The outcome with one change.
fn changed(change: impl FnOnce(&mut Parts)) -> Result<Vec<GroupName>, AttributeError> {
    let mut parts = Parts::new();
    change(&mut parts);
    let attributes = AttributeCertificate::from_der(&parts.der())?;
    match prove(&store(), &[&attributes], &["Research"]) {
        Ok(proved) => Ok(proved),
        Err(mut error) => match error.refused.pop() {
            Some(why) => Err(why),
            None => Ok(Vec::new()),
        },
    }
}

fn accepted(change: impl FnOnce(&mut Parts)) -> bool {
    match changed(change) {
        Ok(proved) => !proved.is_empty(),
        Err(AttributeError::Signature { .. }) => panic!("the parts are signed wrongly"),
        Err(_) => false,
    }
}

fn malformed(change: impl FnOnce(&mut Parts)) -> String {
    match changed(change) {
        Err(AttributeError::Malformed(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_parts_are_right() {
    assert!(accepted(|_| {}));
}

#[test]
fn the_version_is_2_and_the_issuer_a_v2_form() {
    assert!(malformed(|parts| parts.version[2] = 0).contains("version"));
    assert!(malformed(|parts| parts.version[2] = 2).contains("version"));
    assert!(malformed(|parts| parts.version.clear()).contains("version"));
    let name = Parts::new().issuer[2..].to_vec();
    assert!(malformed(|parts| parts.issuer = name.clone()).contains("v2Form"));
    let certificate = base(0xa0, &moon());
    malformed(|parts| parts.issuer = tlv(0xa0, &[&name, &certificate]));
    malformed(|parts| parts.issuer = tlv(0xa0, &[&certificate]));
    malformed(|parts| parts.issuer = tlv(0xa0, &[&tlv(0x30, &[&dns("aa.example.org")])]));
    malformed(|parts| parts.issuer = tlv(0xa0, &[&tlv(0x30, &[&name[2..], &name[2..]])]));
    malformed(|parts| parts.issuer = tlv(0xa0, &[&tlv(0x30, &[b"\xa4\x02\x30\x00"])]));
    assert!(malformed(|parts| parts.algorithm = RSA_SHA256.to_vec()).contains("two signature"));
}

#[test]
fn every_name_of_the_holder_fits() {
    let moon = moon();
    let subject = || tlv(0xa1, &[&tlv(0xa4, &[moon.subject().der()])]);
    let named = |name: &str| tlv(0xa1, &[&dns(name)]);
    let hashed = |kind: u8, id: u8, hash: &[u8]| {
        let algorithm = [
            b"\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02".as_slice(),
            &[id],
        ];
        let hash = tlv(3, &[&[0], hash]);
        tlv(0xa2, &[&[10, 1, kind], &algorithm.concat(), &hash])
    };
    let (certificate, key) = (moon.der(), moon.public_key().der());
    let of = |object| digest(&SHA256, object).as_ref().to_vec();
    let own = base(0xa0, &moon);
    let sun = base(0xa0, &load(file!("certs/sun.pem")));
    for (holder, fits) in [
        (vec![own.clone(), subject()], true),
        (vec![subject()], true),
        (vec![named("moon.example.org")], true),
        (vec![hashed(1, 1, &of(certificate))], true),
        (vec![hashed(0, 1, &of(key))], true),
        (vec![hashed(0, 3, digest(&SHA512, key).as_ref())], true),
        (
            vec![
                own.clone(),
                named("moon.example.org"),
                hashed(0, 1, &of(key)),
            ],
            true,
        ),
        (vec![sun.clone()], false),
        (vec![own.clone(), named("sun.example.org")], false),
        (vec![sun, subject()], false),
        (vec![hashed(1, 1, &of(key))], false),
        (vec![hashed(0, 1, &of(certificate))], false),
        (vec![own.clone(), hashed(0, 1, &of(certificate))], false),
    ] {
        let holder = holder.concat();
        assert_eq!(
            accepted(|parts| parts.holder = holder.clone()),
            fits,
            "{holder:02x?}"
        );
    }
    let names = tlv(0xa1, &[&dns("moon.example.org"), &dns("sun.example.org")]);
    assert!(!accepted(|parts| parts.holder = names));
    for holder in [
        Vec::new(),
        [own.clone(), own.clone()].concat(),
        [subject(), own.clone()].concat(),
        tlv(0xa1, &[]),
        tlv(0xa3, &[]),
        // A URI, and SHA-1.
        tlv(0xa1, &[&tlv(0x86, &[b"moon"])]),
        tlv(
            0xa2,
            &[b"\x0a\x01\x00\x30\x07\x06\x05\x2b\x0e\x03\x02\x1a\x03\x01\x00"],
        ),
        hashed(2, 1, &of(key)),
        // With an issuerUID.
        tlv(0xa0, &[&own[2..], b"\x03\x02\x00\x00"]),
    ] {
        malformed(|parts| parts.holder = holder);
    }
}

#[test]
fn targets_are_obeyed() {
    let name = |name: &str| tlv(0xa0, &[&dns(name)]);
    let (ours, other) = (name("gw.example.org"), name("other.example.org"));
    let group = tlv(0xa1, &[&dns("gw.example.org")]);
    let with = |list: Vec<u8>| changed(|parts| parts.extensions.push(list));
    let research = Ok(groups(&["Research"]));
    assert_eq!(with(targets(&[&[&ours]])), research);
    assert_eq!(with(targets(&[&[&other, &ours]])), research);
    assert_eq!(with(targets(&[&[&other], &[&group, &ours]])), research);
    let refused = Err(AttributeError::OtherTarget);
    assert_eq!(with(targets(&[&[&other]])), refused);
    assert_eq!(with(targets(&[&[&group]])), refused);
    assert_eq!(with(targets(&[])), refused);
    let many = vec![other.as_slice(); 65];
    assert!(matches!(
        with(targets(&[&many])),
        Err(AttributeError::Malformed(_))
    ));
}

#[test]
fn extensions_that_matter_are_known() {
    // auditIdentity and acProxying.
    for last in [4, 10] {
        let id = [b"\x06\x08\x2b\x06\x01\x05\x05\x07\x01".as_slice(), &[last]].concat();
        let told = AttributeError::CriticalExtension(format!("1.3.6.1.5.5.7.1.{last}"));
        let with = |critical| {
            changed(|parts| parts.extensions.push(extension(&id, critical, b"\x04\x00")))
        };
        assert_eq!(with(true), Err(told));
        assert_eq!(with(false), Ok(groups(&["Research"])));
    }
    assert_eq!(
        changed(|parts| parts.extensions.clear()),
        Err(AttributeError::Revocable)
    );
    let twice = malformed(|parts| parts.extensions.push(NO_REV_AVAIL.to_vec()));
    assert!(twice.contains("2.5.29.56 twice"), "{twice}");
    assert!(accepted(|parts| parts.unique_id = vec![3, 2, 0, 0]));
    malformed(|parts| parts.unique_id = vec![5, 0]);
    malformed(|parts| parts.unique_id = tlv(0x30, &[]));
    let key = |content: &[u8]| extension(b"\x06\x03\x55\x1d\x23", false, &tlv(0x30, &[content]));
    assert!(accepted(|parts| parts.extensions.push(key(b""))));
    assert!(!accepted(|parts| parts
        .extensions
        .push(key(b"\x80\x01\x00"))));
}

#[test]
fn groups_are_octets_oids_or_strings() {
    let read = |attributes: Vec<u8>| {
        let mut parts = Parts::new();
        parts.attributes = attributes;
        AttributeCertificate::from_der(&parts.der()).map(|read| read.groups().to_vec())
    };
    let values: &[&[u8]] = &[
        b"\x04\x01o",
        b"\x06\x03\x55\x04\x03",
        b"\x0c\x02\xc3\xa9",
        b"\x04\x01\xff",
    ];
    assert_eq!(
        read(group_attribute(values)),
        Ok(groups(&["o", "2.5.4.3", "é"]))
    );
    let role = tlv(
        0x30,
        &[ROLE, &tlv(0x31, &[&tlv(0x30, &[b"\xa1\x02\x81\x00"])])],
    );
    let both = [role.as_slice(), &group_attribute(&[b"\x0c\x01a"])].concat();
    assert_eq!(read(both), Ok(groups(&["a"])));
    assert_eq!(read(role), Ok(vec![]));
    let by_authority = tlv(
        0x30,
        &[&tlv(0xa0, &[&dns("x")]), &tlv(0x30, &[b"\x0c\x01a"])],
    );
    let by_authority = tlv(0x30, &[GROUP, &tlv(0x31, &[&by_authority])]);
    assert_eq!(read(by_authority), Ok(groups(&["a"])));
    let many = |number| group_attribute(&vec![b"\x0c\x01a".as_slice(); number]);
    assert_eq!(read(many(512)).map(|read| read.len()), Ok(512));
    let long = tlv(0x0c, &[&[b'a'; 257]]);
    for bad in [
        many(513),
        group_attribute(&[&long]),
        group_attribute(&[b"\x0c\x01\xff"]),
        group_attribute(&[b"\x13\x01a"]),
        group_attribute(&[b"\x06\x01\xff"]),
        tlv(0x30, &[GROUP, b"\x30\x00"]),
        tlv(0x30, &[GROUP]),
        many(3).split_off(1),
    ] {
        assert!(
            matches!(read(bad.clone()), Err(AttributeError::Malformed(_))),
            "{bad:02x?}"
        );
    }
    // The decoder would sort the names of a SET in a time that grows with the square of their number.
    let name = b"\x30\x08\x06\x03\x55\x04\x03\x0c\x01a".repeat(33);
    let name = tlv(0x30, &[&tlv(0x31, &[&name])]);
    let names = tlv(0x30, &[&tlv(0xa4, &[&name])]);
    let why = malformed(|parts| parts.issuer = tlv(0xa0, &[&names]));
    assert_eq!(why, "a set has more than 32 elements");
    let hidden = targets(&[&[&tlv(0xa0, &[&tlv(0xa4, &[&name])])]]);
    let why = malformed(|parts| parts.extensions.push(hidden));
    assert_eq!(why, "a set has more than 32 elements");
    let octets = vec![0x61; 17 << 10];
    let why = malformed(|parts| {
        parts
            .extensions
            .push(extension(b"\x06\x03\x55\x1d\x01", false, &octets))
    });
    assert_eq!(why, "it is too long");
}
