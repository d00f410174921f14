//! ML-DSA (FIPS 204): a chain with three sizes of keys, and the examples of RFC 9881.

use serde_json::Value;

use esplanade_testkit::certificate_file as file;

use super::*;

const KEYS: &[(&str, &[u8], &[u8])] = &[
    (
        "mldsa44",
        file!("moon-mldsa44.pem"),
        file!("moon-mldsa44.key"),
    ),
    (
        "mldsa65",
        file!("moon-mldsa65.pem"),
        file!("moon-mldsa65.key"),
    ),
    (
        "mldsa87",
        file!("moon-mldsa87.pem"),
        file!("moon-mldsa87.key"),
    ),
];

/// The identifiers of RFC 9881 §2, written out once more.
fn identifier_of(scheme: &str) -> Vec<u8> {
    let last = match scheme {
        "mldsa44" => "11",
        "mldsa65" => "12",
        "mldsa87" => "13",
        other => panic!("unknown scheme {other}"),
    };
    hex::decode(format!("300b06096086480165030403{last}")).unwrap()
}

fn verified(certificate: &[u8]) -> VerifiedPeer {
    let authorities = Authorities::new(&[load(file!("ml-dsa-root.pem"))]).unwrap();
    let pems = [certificate, file!("ml-dsa-intermediate.pem")];
    let rules: SchemeRules = "mldsa65-identity-mldsa87-identity-ike:pubkey-identity"
        .parse()
        .unwrap();
    let rules = CertificateRules {
        signatures: rules,
        ..Default::default()
    };
    let peer = sent(&pems).verify(&authorities, &moon(), now(), &rules, &relaxed());
    peer.unwrap()
}

fn vectors(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn known_signatures_below_a_chain() {
    let file = vectors(include_str!("../../../../../vectors/ike/ml-dsa.json"));
    let hex = |value: &Value| hex::decode(value.as_str().unwrap()).unwrap();
    let octets = hex(&file["octets"]);
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), KEYS.len());
    let bad = Err(PeerAuthError::BadSignature);
    for (case, (scheme, certificate, _)) in cases.iter().zip(KEYS) {
        assert_eq!(case["scheme"], *scheme);
        let peer = verified(certificate);
        let value = hex(&case["value"]);
        let auth = digital_signature(&identifier_of(scheme), &value);
        assert_eq!(peer.check_auth(&auth, &octets, false), Ok(()), "{scheme}");
        assert_eq!(peer.check_auth(&auth, &octets[1..], false), bad);
        for changed in 0..3 {
            let mut value = value.clone();
            match changed {
                0 => value[100] ^= 1,
                1 => drop(value.pop()),
                _ => value.push(0),
            }
            let auth = digital_signature(&identifier_of(scheme), &value);
            assert_eq!(peer.check_auth(&auth, &octets, false), bad);
        }
        for (other, ..) in KEYS.iter().filter(|(other, ..)| other != scheme) {
            let auth = digital_signature(&identifier_of(other), &value);
            let refused = peer.check_auth(&auth, &octets, false).unwrap_err();
            assert!(matches!(refused, PeerAuthError::KeyType(_)), "{refused}");
        }
    }
}

#[test]
fn our_keys_sign_for_peers_that_list_identity() {
    for (scheme, certificate, key) in KEYS {
        let credential = Credential::new(key, vec![load(certificate)]).unwrap();
        let auth = credential.sign(SIGNATURE_HASHES, b"octets", false).unwrap();
        let start = [&[13], identifier_of(scheme).as_slice()].concat();
        assert!(auth.data.starts_with(&start), "{scheme}");
        let peer = verified(certificate);
        assert_eq!(peer.check_auth(&auth, b"octets", false), Ok(()));
        for announced in [&[][..], &[HashAlgorithm::SHA2_512]] {
            let error = credential.sign(announced, b"octets", true).unwrap_err();
            assert!(matches!(error, CredentialError::NoCommonHash { .. }));
        }
        let of_another_size: SchemeRules = match *scheme {
            "mldsa44" => "mldsa65-identity",
            _ => "mldsa44-identity",
        }
        .parse()
        .unwrap();
        assert!(credential.with_signatures(&of_another_size).is_err());
    }
}

#[test]
fn private_keys_have_each_form_of_rfc_9881() {
    let file = vectors(include_str!(
        "../../../../../vectors/ike/ml-dsa-rfc9881.json"
    ));
    let text = |value: &Value| value.as_str().unwrap().as_bytes().to_vec();
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 3);
    for case in cases {
        let certificate = load(&text(&case["certificate"]));
        let public = PublicKey::from_file_content(&text(&case["public"])).unwrap();
        let path = Authorities::new(std::slice::from_ref(&certificate));
        assert!(path.is_ok());
        for form in ["seed", "expanded", "both"] {
            let key = text(&case["private"][form]);
            let credential = Credential::new(&key, vec![certificate.clone()]).unwrap();
            let auth = credential.sign(SIGNATURE_HASHES, b"octets", false).unwrap();
            assert_eq!(
                check_auth(&public, &auth, b"octets", false),
                Ok(()),
                "{form}"
            );
            assert!(Credential::without_certificate(&key, public.clone()).is_ok());
        }
    }
    let certificate = load(&text(&cases[0]["certificate"]));
    for key in file["inconsistent"].as_array().unwrap() {
        let refused = Credential::new(&text(key), vec![certificate.clone()]).unwrap_err();
        assert!(matches!(refused, CredentialError::PrivateKey(_)));
    }
}
