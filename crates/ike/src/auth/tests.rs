//! Certificates and signatures of `vectors/ike`, and identities as text.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;

use esplanade_pki::{
    Authorities, Certificate, FileError, KeyPurposes, PathError, PublicKey, Revocation,
    RevocationPolicy, RevocationStore, Scheme, UnixTime,
};
use esplanade_testkit::certificate_file as file;

use super::*;
use crate::wire::{Auth, AuthMethod, Cert, CertEncoding, HashAlgorithm, Id, IdType};

mod attributes;
mod hash_and_url;
mod ml_dsa;

/// 2026-06-01.
const NOW: u64 = 1_780_272_000;

static NOTHING_KNOWN: LazyLock<RevocationStore> = LazyLock::new(RevocationStore::default);

fn relaxed() -> Revocation<'static> {
    Revocation {
        policy: RevocationPolicy::Relaxed,
        store: &NOTHING_KNOWN,
        asked: true,
    }
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(NOW))
}

fn load(pem: &[u8]) -> Certificate {
    let [certificate] = <[_; 1]>::try_from(Certificate::from_file_content(pem).unwrap()).unwrap();
    certificate
}

fn authorities() -> Authorities {
    Authorities::new(&[load(file!("root.pem"))]).unwrap()
}

fn payload(pem: &[u8]) -> Cert {
    Cert {
        encoding: CertEncoding::X509_SIGNATURE,
        data: load(pem).der().to_vec(),
    }
}

fn moon() -> Identity {
    Identity::Fqdn("moon.example.org".into())
}

fn sent(pems: &[&[u8]]) -> PeerCertificates {
    let payloads: Vec<_> = pems.iter().map(|pem| payload(pem)).collect();
    PeerCertificates::new(&payloads.iter().collect::<Vec<_>>())
}

fn verify_by(
    rules: &CertificateRules,
    pems: &[&[u8]],
    identity: &Identity,
) -> Result<VerifiedPeer, PeerAuthError> {
    sent(pems).verify(&authorities(), identity, now(), rules, &relaxed())
}

fn verify(pems: &[&[u8]], identity: &Identity) -> Result<VerifiedPeer, PeerAuthError> {
    verify_by(&CertificateRules::default(), pems, identity)
}

fn moon_file(name: &str) -> &'static [u8] {
    match name {
        "moon-rsa" => file!("moon-rsa.pem"),
        "moon-ecdsa256" => file!("moon-ecdsa256.pem"),
        "moon-ecdsa384" => file!("moon-ecdsa384.pem"),
        "moon-ecdsa521" => file!("moon-ecdsa521.pem"),
        "moon-ed25519" => file!("moon-ed25519.pem"),
        other => panic!("unknown certificate {other}"),
    }
}

const CREDENTIALS: &[(&str, &[u8])] = &[
    ("moon-rsa", file!("moon-rsa.key")),
    ("moon-rsa", file!("moon-rsa-pkcs1.key")),
    ("moon-ecdsa256", file!("moon-ecdsa256.key")),
    ("moon-ecdsa256", file!("moon-ecdsa256-sec1.key")),
    ("moon-ecdsa384", file!("moon-ecdsa384.key")),
    ("moon-ecdsa521", file!("moon-ecdsa521.key")),
    ("moon-ed25519", file!("moon-ed25519.key")),
];

fn credential(name: &str, key: &[u8]) -> Credential {
    Credential::new(key, vec![load(moon_file(name))]).unwrap()
}

/// The identifiers of RFC 7427 appendix A and RFC 8420 appendix A, written out once more.
fn identifier(scheme: &str) -> Vec<u8> {
    let pss = |hash: u8, salt: u8| {
        format!(
            "304106092a864886f70d01010a3034a00f300d060960864801650304020{hash}0500\
             a11c301a06092a864886f70d010108300d060960864801650304020{hash}0500a2030201{salt:02x}"
        )
    };
    let text = match scheme {
        "pkcs1-sha256" => "300d06092a864886f70d01010b0500".to_owned(),
        "pkcs1-sha384" => "300d06092a864886f70d01010c0500".to_owned(),
        "pkcs1-sha512" => "300d06092a864886f70d01010d0500".to_owned(),
        "pss-sha256" => pss(1, 32),
        "pss-sha384" => pss(2, 48),
        "pss-sha512" => pss(3, 64),
        "ecdsa-sha256" => "300a06082a8648ce3d040302".to_owned(),
        "ecdsa-sha384" => "300a06082a8648ce3d040303".to_owned(),
        "ecdsa-sha512" => "300a06082a8648ce3d040304".to_owned(),
        "ed25519" => "300506032b6570".to_owned(),
        other => panic!("unknown scheme {other}"),
    };
    hex::decode(text).unwrap()
}

fn digital_signature(identifier: &[u8], value: &[u8]) -> Auth {
    let len = u8::try_from(identifier.len()).unwrap();
    Auth {
        method: AuthMethod::DIGITAL_SIGNATURE,
        data: [&[len], identifier, value].concat(),
    }
}

// RFC 7296 R2
#[test]
fn verifies_known_signatures() {
    let file: Value =
        serde_json::from_str(include_str!("../../../../vectors/ike/signatures.json")).unwrap();
    let hex = |value: &Value| hex::decode(value.as_str().unwrap()).unwrap();
    let octets = hex(&file["octets"]);
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 20);
    for case in cases {
        let peer = verify(&[moon_file(case["certificate"].as_str().unwrap())], &moon()).unwrap();
        let scheme = case["scheme"].as_str().unwrap();
        let value = hex(&case["value"]);
        let auth = match scheme.starts_with("method1-") {
            true => Auth {
                method: AuthMethod::RSA_SIGNATURE,
                data: value.clone(),
            },
            false => digital_signature(&identifier(scheme), &value),
        };
        let legacy = scheme == "method1-sha1";
        assert_eq!(peer.check_auth(&auth, &octets, legacy), Ok(()), "{case}");

        let bad = Err(PeerAuthError::BadSignature);
        assert_eq!(
            peer.check_auth(&auth, &octets[1..], false),
            bad,
            "other octets"
        );
        let mut changed = auth.clone();
        *changed.data.last_mut().unwrap() ^= 1;
        assert_eq!(
            peer.check_auth(&changed, &octets, false),
            bad,
            "other signature"
        );
        let mut short = auth.clone();
        short.data.pop();
        assert_eq!(
            peer.check_auth(&short, &octets, false),
            bad,
            "short signature"
        );
        // The same value under every other scheme's name.
        for other in [
            "pkcs1-sha256",
            "pkcs1-sha384",
            "pkcs1-sha512",
            "pss-sha256",
            "pss-sha384",
            "pss-sha512",
            "ecdsa-sha256",
            "ecdsa-sha384",
            "ecdsa-sha512",
            "ed25519",
        ] {
            if other != scheme && auth.method == AuthMethod::DIGITAL_SIGNATURE {
                let auth = digital_signature(&identifier(other), &value);
                let refused = peer.check_auth(&auth, &octets, false).unwrap_err();
                assert!(
                    matches!(
                        refused,
                        PeerAuthError::BadSignature | PeerAuthError::KeyType(_)
                    ),
                    "{other}: {refused}"
                );
            }
        }
    }
}

#[test]
fn pss_without_hash_parameters_is_the_same_scheme() {
    let with = identifier("pss-sha256");
    let text = hex::encode(&with)
        .replace("300d0609", "300b0609")
        .replace("04020105", "040201\0");
    let without = text
        .replace("\x0000", "")
        .replacen("3041", "303d", 1)
        .replacen("3034a00f", "3030a00d", 1)
        .replacen("a11c301a", "a11a3018", 1);
    let without = hex::decode(without).unwrap();
    assert_eq!(
        Scheme::from_identifier(&without),
        Scheme::from_identifier(&with)
    );
    assert!(Scheme::from_identifier(&with).is_ok());
}

#[test]
fn signs_with_every_key_for_every_announcement() {
    let octets = b"what both sides saw";
    for (name, key) in CREDENTIALS {
        let credential = credential(name, key);
        let peer = verify(&[moon_file(name)], &moon()).unwrap();
        let auth = credential.sign(SIGNATURE_HASHES, octets, false).unwrap();
        assert_eq!(auth.method, AuthMethod::DIGITAL_SIGNATURE);
        assert_eq!(peer.check_auth(&auth, octets, false), Ok(()), "{name}");
        for hash in SIGNATURE_HASHES {
            match credential.sign(&[*hash], octets, false) {
                Ok(auth) => assert_eq!(peer.check_auth(&auth, octets, false), Ok(())),
                Err(error) => assert_eq!(
                    error,
                    CredentialError::NoCommonHash {
                        announced: vec![*hash]
                    }
                ),
            }
        }
        assert!(
            credential
                .sign(&[HashAlgorithm::SHA1], octets, false)
                .is_err()
        );
    }
}

// RFC 7296 R239
#[test]
fn one_signature_a_key_for_peers_that_announce_nothing() {
    for (name, key) in CREDENTIALS {
        let credential = credential(name, key);
        let peer = verify(&[moon_file(name)], &moon()).unwrap();
        let method = match *name {
            "moon-rsa" => AuthMethod::RSA_SIGNATURE,
            "moon-ecdsa256" => AuthMethod::ECDSA_SHA2_256_P256,
            "moon-ecdsa384" => AuthMethod::ECDSA_SHA2_384_P384,
            "moon-ecdsa521" => AuthMethod::ECDSA_SHA2_512_P521,
            _ => {
                for announced in [&[][..], &[HashAlgorithm::SHA2_256]] {
                    let error = credential.sign(announced, b"octets", true).unwrap_err();
                    assert!(matches!(error, CredentialError::NoCommonHash { .. }));
                }
                continue;
            }
        };
        let auth = credential.sign(&[], b"octets", true).unwrap();
        assert_eq!(auth.method, method);
        assert_eq!(peer.check_auth(&auth, b"octets", true), Ok(()));
        let other = peer.check_auth(&auth, b"other", true);
        assert_eq!(other, Err(PeerAuthError::BadSignature));
        let (signed, checked) = match method {
            AuthMethod::RSA_SIGNATURE => (Err(CredentialError::Sha1), Err(PeerAuthError::Sha1)),
            _ => (Ok(()), Ok(())),
        };
        let sign = credential.sign(&[], b"octets", false);
        assert_eq!(sign.map(|_| ()), signed, "{name}");
        assert_eq!(peer.check_auth(&auth, b"octets", false), checked, "{name}");
    }
}

#[test]
fn malformed_and_foreign_auth_payloads_are_told_apart() {
    let rsa = verify(&[file!("moon-rsa.pem")], &moon()).unwrap();
    let check = |method, data: &[u8]| {
        let data = data.to_vec();
        rsa.check_auth(&Auth { method, data }, b"octets", false)
            .unwrap_err()
    };
    let digital = AuthMethod::DIGITAL_SIGNATURE;
    assert_eq!(check(digital, &[]), PeerAuthError::SignatureSyntax);
    assert_eq!(check(digital, &[15, 0x30]), PeerAuthError::SignatureSyntax);
    let longer = [identifier("pkcs1-sha256"), vec![0]].concat();
    let longer = digital_signature(&longer, &[0; 256]).data;
    let malformed = PeerAuthError::SignatureAlgorithm("(malformed)".into());
    assert_eq!(check(digital, &longer), malformed);
    let sha1 = hex::decode("0f300d06092a864886f70d0101050500").unwrap();
    assert_eq!(
        check(digital, &sha1),
        PeerAuthError::SignatureAlgorithm("1.2.840.113549.1.1.5".into())
    );
    assert_eq!(
        check(AuthMethod::RSA_SIGNATURE, &[0; 256]),
        PeerAuthError::BadSignature
    );
    assert_eq!(
        check(AuthMethod::SHARED_KEY, &[0; 32]),
        PeerAuthError::Method(AuthMethod::SHARED_KEY)
    );
    assert_eq!(
        check(AuthMethod::ECDSA_SHA2_256_P256, &[0; 64]),
        PeerAuthError::KeyType("RSA".into())
    );
    let foreign = verify(&[file!("secp256k1.pem")], &moon()).unwrap();
    let auth = digital_signature(&identifier("ecdsa-sha512"), &[0; 100]);
    assert!(matches!(
        foreign.check_auth(&auth, b"octets", false),
        Err(PeerAuthError::KeyType(_))
    ));
}

#[test]
fn private_keys_must_belong_to_the_certificate() {
    let other = load(file!("sun.pem"));
    assert!(matches!(
        Credential::new(file!("moon-ecdsa256.key"), vec![other]),
        Err(CredentialError::Mismatch { .. })
    ));
    let rsa = load(file!("moon-rsa.pem"));
    assert!(matches!(
        Credential::new(file!("moon-ed25519.key"), vec![rsa.clone()]),
        Err(CredentialError::PrivateKey(_))
    ));
    assert!(matches!(
        Credential::new(file!("moon-rsa.pem"), vec![rsa.clone()]),
        Err(CredentialError::NoPrivateKey)
    ));
    assert!(matches!(
        Credential::new(b"", vec![rsa]),
        Err(CredentialError::NoPrivateKey)
    ));
    assert!(matches!(
        Credential::new(file!("moon-rsa.key"), Vec::new()),
        Err(CredentialError::File(FileError::NoCertificate))
    ));
    assert!(matches!(
        Credential::new(file!("moon-rsa.key"), vec![load(file!("secp256k1.pem"))]),
        Err(CredentialError::File(FileError::KeyType(_)))
    ));
}

// RFC 7296 R1, R234
#[test]
fn paths_are_checked() {
    let sun = Identity::Fqdn("sun.example.org".into());
    let error = |pems: &[&[u8]]| verify(pems, &moon()).unwrap_err();
    assert!(verify(&[file!("sun.pem"), file!("intermediate.pem")], &sun).is_ok());
    assert_eq!(
        verify(&[file!("sun.pem")], &sun).unwrap_err(),
        PathError::UnknownIssuer.into()
    );
    assert_eq!(error(&[]), PeerAuthError::NoCertificate);
    // The message has more certificates than are read. Certificates that are not needed do no harm.
    let many = [file!("moon-rsa.pem"); 100];
    assert!(verify(&many, &moon()).is_ok());
    let expired = error(&[file!("expired.pem")]);
    assert!(matches!(
        expired,
        PeerAuthError::Path(PathError::Expired { .. })
    ));
    let told = expired.to_string();
    assert!(
        told.contains("\"C=CH, O=Esplanade Test, CN=expired\" expired ")
            && told.contains(" days ago, at 2020-01-02T00:00:00Z: is this machine's clock right?"),
        "{told}"
    );
    assert!(matches!(
        error(&[file!("not-yet.pem")]),
        PeerAuthError::Path(PathError::NotYetValid { .. })
    ));
    assert_eq!(error(&[file!("ca-as-peer.pem")]), PeerAuthError::Authority);
    let other = Authorities::new(&[load(file!("other-root.pem"))]).unwrap();
    let rules = CertificateRules::default();
    assert_eq!(
        sent(&[file!("moon-rsa.pem")])
            .verify(&other, &moon(), now(), &rules, &relaxed())
            .unwrap_err(),
        PathError::UnknownIssuer.into()
    );
    let none = Authorities::new(&[]).unwrap();
    assert!(
        sent(&[file!("root.pem")])
            .verify(&none, &moon(), now(), &rules, &relaxed())
            .is_err()
    );
}

#[test]
fn every_truncated_certificate_is_refused() {
    let whole = payload(file!("moon-ecdsa256.pem"));
    for len in 0..whole.data.len() {
        let cut = Cert {
            encoding: CertEncoding::X509_SIGNATURE,
            data: whole.data[..len].to_vec(),
        };
        let mut cut = PeerCertificates::new(&[&cut]);
        let rules = CertificateRules::default();
        let refused = cut
            .verify(&authorities(), &moon(), now(), &rules, &relaxed())
            .unwrap_err();
        assert!(
            matches!(refused, PeerAuthError::Path(PathError::Malformed(_))),
            "{refused}"
        );
    }
}

#[test]
fn extended_key_usage_follows_rfc_4945() {
    for accepted in [
        file!("eku-ike.pem"),
        file!("eku-any.pem"),
        file!("eku-intermediate.pem"),
        file!("moon-rsa.pem"),
    ] {
        assert!(verify(&[accepted], &moon()).is_ok());
    }
    let by = |purposes| {
        let rules = CertificateRules {
            purposes,
            ..CertificateRules::default()
        };
        verify_by(&rules, &[file!("eku-server.pem")], &moon()).map(|_| ())
    };
    assert_eq!(by(KeyPurposes::IkeOrTls), Ok(()));
    assert_eq!(by(KeyPurposes::Any), Ok(()));
    assert_eq!(
        by(KeyPurposes::Ike),
        Err(PathError::ExtendedKeyUsage.into())
    );
    assert!(!load(file!("eku-server.pem")).is_for(KeyPurposes::Ike));
    assert!(load(file!("eku-ike.pem")).is_for(KeyPurposes::Ike));
    assert!(load(file!("moon-rsa.pem")).is_for(KeyPurposes::Ike));
}

#[test]
fn keys_and_signatures_are_those_that_are_demanded() {
    let by = |text: &str, pems: &[&[u8]]| {
        let rules = CertificateRules {
            signatures: text.parse().unwrap(),
            ..CertificateRules::default()
        };
        verify_by(&rules, pems, &moon()).map(|_| ())
    };
    let (rsa, ecdsa) = (file!("moon-rsa.pem"), file!("moon-ecdsa256.pem"));
    for (text, pem, accepted) in [
        ("pubkey-sha256", rsa, true),
        ("pubkey-sha384", rsa, false),
        ("ecdsa-sha256", rsa, true),
        ("rsa-sha256", rsa, false),
        ("rsa/pss-sha256", rsa, false),
        ("ecdsa-256", ecdsa, true),
        ("ecdsa-384", ecdsa, false),
        ("rsa-2048", rsa, false),
        ("rsa-2048-ecdsa-256", rsa, true),
        ("rsa-3072-ecdsa-256", rsa, false),
        ("ike:pubkey-sha384", rsa, true),
    ] {
        match by(text, &[pem]) {
            Ok(()) => assert!(accepted, "{text}"),
            Err(PeerAuthError::Path(PathError::Invalid(_))) => assert!(!accepted, "{text}"),
            Err(error) => panic!("{text}: {error}"),
        }
    }
    // The signature of the peer itself.
    let peer = verify(&[rsa], &moon()).unwrap();
    let credential = |rules: &str| {
        let credential = Credential::new(file!("moon-rsa.key"), vec![load(rsa)]).unwrap();
        credential.with_signatures(&rules.parse().unwrap())
    };
    for (ours, theirs, accepted) in [
        ("pubkey", "ike:rsa/pss-sha256", true),
        ("pubkey", "ike:rsa/pss-sha384", false),
        ("rsa-sha384", "rsa-sha384", true),
        ("rsa-sha384", "rsa/pss-sha384", false),
        ("ike:rsa/pss-sha512-sha384", "ike:rsa/pss-sha512", true),
        ("ike:rsa/pss-sha512-sha384", "ike:pubkey-sha384", false),
    ] {
        let auth = credential(ours)
            .unwrap()
            .sign(SIGNATURE_HASHES, b"octets", false);
        let auth = auth.unwrap();
        assert_eq!(peer.check_auth(&auth, b"octets", false), Ok(()), "{ours}");
        let checked = check_scheme(&auth, &theirs.parse().unwrap());
        let expected = if accepted {
            Ok(())
        } else {
            Err(PeerAuthError::Scheme)
        };
        assert_eq!(checked, expected, "{ours} {theirs}");
    }
    let sha512 = credential("rsa-sha512").unwrap();
    let refused = sha512.sign(&[HashAlgorithm::SHA2_256], b"octets", false);
    assert!(matches!(refused, Err(CredentialError::NoCommonHash { .. })));
    assert!(matches!(
        credential("ecdsa-sha256"),
        Err(CredentialError::Scheme(_))
    ));
}

#[test]
fn an_authority_of_the_path_and_its_policies_are_those_that_are_demanded() {
    let under = |name: &str, pems: &[&[u8]]| {
        let rules = CertificateRules {
            authority: Some(name.parse().unwrap()),
            ..CertificateRules::default()
        };
        verify_by(&rules, pems, &moon()).is_ok()
    };
    assert!(under(
        "C=CH, O=Esplanade Test, CN=Root",
        &[file!("moon-rsa.pem")]
    ));
    assert!(under(
        "C=CH, O=Esplanade Test, CN=*",
        &[file!("moon-rsa.pem")]
    ));
    assert!(!under(
        "C=CH, O=Esplanade Test, CN=Intermediate",
        &[file!("moon-rsa.pem")]
    ));
    assert!(!under(
        "C=CH, O=Esplanade Test, CN=moon rsa",
        &[file!("moon-rsa.pem")]
    ));
    assert!(under("%any", &[file!("moon-rsa.pem")]));
    assert!(!under("keyid:Root", &[file!("moon-rsa.pem")]));
    let rules = CertificateRules {
        policies: vec!["1.2.3.4".parse().unwrap()],
        ..CertificateRules::default()
    };
    let refused = verify_by(&rules, &[file!("moon-rsa.pem")], &moon()).unwrap_err();
    let why = refused.to_string();
    assert!(why.contains("does not have the policy 1.2.3.4"), "{why}");
}

// RFC 4301 R26, R105
#[test]
fn certificates_prove_only_their_own_identities() {
    let moon_cert = file!("moon-ecdsa256.pem");
    for good in [
        "moon.example.org",
        "MOON.example.org",
        "moon@example.org",
        "192.0.2.1",
        "2001:db8::1",
        "C=CH, O=Esplanade Test, CN=moon ecdsa256",
        "/C=ch/O=esplanade  test/CN=Moon ECDSA256",
    ] {
        let identity: Identity = good.parse().unwrap();
        assert!(verify(&[moon_cert], &identity).is_ok(), "{good}");
    }
    for bad in [
        "sun.example.org",
        "example.org",
        "*.example.org",
        "fqdn:192.0.2.1",
        "fqdn:moon@example.org",
        "sun@example.org",
        "192.0.2.2",
        "C=CH, O=Esplanade Test, CN=moon",
        "C=CH, O=Esplanade Test, CN=*",
        "CN=moon ecdsa256, O=Esplanade Test, C=CH",
        "CN=moon ecdsa256",
        "%any",
    ] {
        let identity: Identity = bad.parse().unwrap();
        assert!(
            matches!(
                verify(&[moon_cert], &identity),
                Err(PeerAuthError::IdentityMismatch { .. })
            ),
            "{bad}"
        );
    }
    assert_eq!(
        verify(&[moon_cert], &Identity::KeyId(vec![1])).unwrap_err(),
        PeerAuthError::IdentityType(IdType::KEY_ID)
    );
}

// RFC 7296 R237
#[test]
fn certificate_requests_name_the_authority() {
    let request = certreq(&authorities());
    let expected = include_str!("../../../../vectors/ike/certs/root.sha1");
    assert_eq!(hex::encode(&request.data), expected.trim());
    let other = Authorities::new(&[load(file!("other-root.pem"))]).unwrap();
    assert_ne!(certreq(&other), request);
}

// RFC 4301 R26; RFC 7296 R230
#[test]
fn identities_are_read_and_printed_as_in_swanctl() {
    for (text, kind, shown) in [
        ("moon.example.org", IdType::FQDN, "moon.example.org"),
        ("@moon", IdType::FQDN, "moon"),
        ("fqdn:10.0.0.1", IdType::FQDN, "fqdn:10.0.0.1"),
        ("moon@example.org", IdType::RFC822_ADDR, "moon@example.org"),
        ("@@moon", IdType::RFC822_ADDR, "email:moon"),
        ("email:moon", IdType::RFC822_ADDR, "email:moon"),
        ("10.0.0.1", IdType::IPV4_ADDR, "10.0.0.1"),
        ("2001:DB8::1", IdType::IPV6_ADDR, "2001:db8::1"),
        ("ipv6:::1", IdType::IPV6_ADDR, "::1"),
        ("@#4d6F6f6e", IdType::KEY_ID, "@#4d6f6f6e"),
        ("keyid:Moon", IdType::KEY_ID, "@#4d6f6f6e"),
        (
            "C=CH, O=x, CN=y z",
            IdType::DER_ASN1_DN,
            "C=CH, O=x, CN=y z",
        ),
        (
            r#"CN="a, b", OU=c\,d"#,
            IdType::DER_ASN1_DN,
            r"CN=a\, b, OU=c\,d",
        ),
        ("1.2.3.4=x", IdType::DER_ASN1_DN, "1.2.3.4=x"),
    ] {
        let identity: Identity = text.parse().unwrap();
        assert_eq!(identity.to_string(), shown, "{text}");
        assert_eq!(shown.parse(), Ok(identity.clone()), "{text}");
        let payload = identity.to_payload().unwrap();
        assert_eq!(payload.kind, kind, "{text}");
        assert_eq!(Identity::from_payload(&payload), Ok(identity), "{text}");
    }
    assert_eq!("%any".parse(), Ok(Identity::Any));
    assert_eq!(Identity::Any.to_payload(), None);
    for bad in [
        "a b", "@", "@#xyz", "@#abc", "CN=", "XX=1", "=x", "ipv4:::1", "CN=\"x",
    ] {
        let Err(IdentityError::Text(text, _)) = bad.parse::<Identity>() else {
            panic!("{bad}")
        };
        assert_eq!(text, bad);
    }
}

// RFC 7296 R231
#[test]
fn malformed_identity_payloads_are_refused() {
    for (kind, data) in [
        (IdType::IPV4_ADDR, &[1, 2, 3][..]),
        (IdType::IPV6_ADDR, &[0; 4]),
        (IdType::FQDN, b""),
        (IdType::FQDN, b"moon\0.example.org"),
        (IdType::FQDN, b"moon\nexample"),
        (IdType::RFC822_ADDR, b"\xff@example.org"),
        (IdType::DER_ASN1_DN, b"\x30\x05"),
        (IdType::DER_ASN1_DN, b""),
        (IdType::KEY_ID, b""),
    ] {
        let id = Id::new(kind, data.to_vec());
        assert_eq!(
            Identity::from_payload(&id),
            Err(IdentityError::Malformed(kind)),
            "{data:?}"
        );
    }
    let null = Id::new(IdType::NULL, Vec::new());
    assert_eq!(
        Identity::from_payload(&null),
        Err(IdentityError::Type(IdType::NULL))
    );
}

// RFC 4301 R26, R102, R104; RFC 7296 R230
#[test]
fn patterns_accept_what_they_cover() {
    for (pattern, presented, accepted, precision) in [
        ("%any", "moon.example.org", true, 0),
        ("*.example.org", "moon.example.org", true, 1),
        ("*.example.org", ".example.org", false, 1),
        ("*.example.org", "example.org", false, 1),
        ("*@example.org", "moon@example.org", true, 1),
        ("*@example.org", "moon.example.org", false, 1),
        ("moon.example.org", "Moon.Example.org", true, 2),
        ("moon.example.org", "@@moon.example.org", false, 2),
        ("C=CH, CN=*", "C=CH, CN=moon", true, 1),
        ("C=CH, CN=*", "C=CH, O=x, CN=moon", false, 1),
        ("C=CH, CN=moon", "C=CH, CN=sun", false, 2),
        ("10.0.0.1", "10.0.0.1", true, 2),
        ("10.0.0.1", "10.0.0.2", false, 2),
        ("moon", "%any", false, 2),
        ("@#0102", "@#0102", true, 2),
        ("@#01", "@#0102", false, 2),
        ("@#0102", "@#01", false, 2),
    ] {
        let pattern: Identity = pattern.parse().unwrap();
        let presented: Identity = presented.parse().unwrap();
        assert_eq!(
            pattern.accepts(&presented),
            accepted,
            "{pattern} {presented}"
        );
        assert_eq!(pattern.precision(), precision, "{pattern}");
    }
}

/// RFC 4945 §5.1.3.2.
#[test]
fn a_key_that_may_not_sign_proves_nothing() {
    let authorities = Authorities::new(&[load(file!("usage-root.pem"))]).unwrap();
    let rules = CertificateRules::default();
    let verify = |pem| sent(&[pem]).verify(&authorities, &moon(), now(), &rules, &relaxed());
    assert!(verify(file!("usage-digital-signature.pem")).is_ok());
    assert!(verify(file!("usage-content-commitment.pem")).is_ok());
    assert_eq!(
        verify(file!("usage-key-encipherment.pem")).unwrap_err(),
        PeerAuthError::KeyUsage
    );
}
