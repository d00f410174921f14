//! The verdicts of OpenSSL on generated paths, and those of NIST on PKITS.

mod anchors;
mod limits;
mod peers_answers;

use std::slice;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_json::Value;

use super::*;
use crate::revocation::{AuthoritySources, Crl, OcspAnswer, RevocationPolicy, RevocationStore};
use crate::rules::KeyPurposes;

fn der(file: &Value, kind: &str, label: &Value) -> Vec<u8> {
    let text = &file[kind][label.as_str().unwrap()];
    let text = text.as_str().unwrap();
    // The label says nothing about what is inside.
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    CertificateDer::from_pem_slice(pem.as_bytes())
        .unwrap()
        .to_vec()
}

/// The vectors say what is trusted, also where it is not self-signed.
fn one_anchor(root: &[u8]) -> Anchors {
    Anchors::named(std::iter::once(root), std::iter::empty()).unwrap()
}

/// A file with CRLs wants a CRL for every certificate.
fn check(text: &str) -> usize {
    let file: Value = serde_json::from_str(text).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(file["now"].as_u64().unwrap()));
    let der = |label: &Value| der(&file, "certificates", label);
    let policy = match file.get("crls") {
        Some(_) => RevocationPolicy::Strict,
        None => RevocationPolicy::Relaxed,
    };
    let rules = PathRules {
        purposes: KeyPurposes::Ike,
        ..PathRules::default()
    };
    let cases = file["cases"].as_array().unwrap();
    let wrong: Vec<_> = cases
        .iter()
        .filter_map(|case| {
            let chain: Vec<_> = case["chain"].as_array().unwrap().iter().map(der).collect();
            let chain: Vec<_> = chain.iter().map(AsRef::as_ref).collect();
            let root = der(&case["root"]);
            let anchors = one_anchor(&root);
            let labels = case
                .get("crls")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            // A CRL that cannot be read is as good as none.
            let crls =
                labels.filter_map(|label| Crl::from_der(&self::der(&file, "crls", label)).ok());
            let crls = &RevocationStore::new(crls.map(Arc::new).collect());
            let chain = Chain::new(chain[0], &chain[1..], Vec::new());
            let revocation = Revocation {
                policy,
                store: crls,
                asked: true,
            };
            let result =
                chain.and_then(|mut chain| anchors.verify(&mut chain, now, &rules, &revocation));
            let published = case.get("nist").unwrap_or(&case["openssl"]);
            let valid = case.get("valid").unwrap_or(published);
            (valid.as_bool() != Some(result.is_ok()))
                .then(|| format!("{}: {result:?}, {}", case["name"], case["openssl_says"]))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    cases.len()
}

// RFC 5280 R2, R11, R12, R14, R15, R16, R17, R18, R19, R20
#[test]
fn paths_are_judged_as_openssl_does() {
    let count = check(include_str!("../../../../vectors/paths/openssl.json"));
    assert!(count > 200);
}

// RFC 5280 R2, R11, R12, R14, R15, R16, R17, R18, R19, R20
#[test]
fn paths_are_judged_as_nist_does() {
    let count = check(include_str!("../../../../vectors/paths/pkits.json"));
    assert!(count > 100);
}

#[test]
fn rsa_signatures_with_each_hash_are_judged_as_openssl_does() {
    let count = check(include_str!("../../../../vectors/paths/hashes.json"));
    assert_eq!(count, 14);
}

// RFC 5280 R1, R3, R4, R5, R7, R8, R9, R10, R13, R21, R22, R23, R24, R25, R26, R27, R28, R29, R30, R31, R32
#[test]
fn crls_are_judged_as_nist_does() {
    let count = check(include_str!("../../../../vectors/paths/pkits-crls.json"));
    assert_eq!(count, 70);
}

// RFC 5280 R5, R7, R8, R9, R13, R21, R23, R24, R25, R26, R27, R28, R29, R30, R31, R32
#[test]
fn policies_say_what_crls_are_needed() {
    let file: Value =
        serde_json::from_str(include_str!("../../../../vectors/paths/revocation.json")).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(file["now"].as_u64().unwrap()));
    let labels = |case: &Value, key: &str| -> Vec<Value> {
        let list = case.get(key).and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    };
    let root = der(&file, "certificates", &"root".into());
    let anchors = one_anchor(&root);
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 51);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let crls = labels(case, "crls");
        let crls = crls.iter().map(|label| der(&file, "crls", label));
        let crls = crls.map(|der| Arc::new(Crl::from_der(&der).unwrap()));
        let mut crls = RevocationStore::new(crls.collect());
        let chain = labels(case, "chain");
        let chain: Vec<_> = (chain.iter())
            .map(|label| der(&file, "certificates", label))
            .collect();
        let chain: Vec<_> = chain.iter().map(Vec::as_slice).collect();
        for authority in labels(case, "expects") {
            let authority = der(&file, "certificates", &authority);
            crls.expect(AuthoritySources {
                authority: Parsed::from_der(&authority).unwrap().subject,
                crls: Vec::new(),
                responders: Vec::new(),
            });
        }
        for (key, policy) in [
            ("strict", RevocationPolicy::Strict),
            ("ifuri", RevocationPolicy::IfUri),
            ("relaxed", RevocationPolicy::Relaxed),
        ] {
            let revocation = Revocation {
                policy,
                store: &crls,
                asked: true,
            };
            let mut chain = Chain::new(chain[0], &chain[1..], Vec::new()).unwrap();
            let rules = PathRules::default();
            let result = anchors.verify(&mut chain, now, &rules, &revocation);
            assert_eq!(
                case[key].as_bool(),
                Some(result.is_ok()),
                "{name}: {key}: {result:?}"
            );
            let Err(refusal) = result else { continue };
            let is_revoked = matches!(refusal, PathError::Revoked { .. });
            assert_eq!(
                is_revoked,
                case["relaxed"] == false,
                "{name}: {key}: {refusal}"
            );
            let says = case.get("says").and_then(Value::as_str).unwrap_or_default();
            assert!(refusal.to_string().contains(says), "{name}: {refusal}");
        }
    }
}

#[test]
fn crls_that_are_not_whole_are_refused() {
    let file: Value =
        serde_json::from_str(include_str!("../../../../vectors/paths/revocation.json")).unwrap();
    let whole = der(&file, "crls", &"lists".into());
    assert_eq!(Crl::from_der(&whole).unwrap().entries(), 201);
    for len in 0..whole.len() {
        assert!(Crl::from_der(&whole[..len]).is_err(), "{len} bytes");
    }
}

/// A file of `vectors/paths`, and its time.
fn file(text: &str) -> (Value, UnixTime) {
    let file: Value = serde_json::from_str(text).unwrap();
    let now = Duration::from_secs(file["now"].as_u64().unwrap());
    (file, UnixTime::since_unix_epoch(now))
}

fn ocsp_file() -> (Value, UnixTime) {
    file(include_str!("../../../../vectors/paths/ocsp.json"))
}

fn revocation_file() -> (Value, UnixTime) {
    file(include_str!("../../../../vectors/paths/revocation.json"))
}

fn openssl_file() -> (Value, UnixTime) {
    file(include_str!("../../../../vectors/paths/openssl.json"))
}

fn ders(file: &Value, kind: &str, labels: &[&str]) -> Vec<Vec<u8>> {
    let all = labels.iter().map(|label| der(file, kind, &(*label).into()));
    all.collect()
}

fn chain_of(ders: &[Vec<u8>], answers: Vec<OcspAnswer>) -> Chain {
    let others: Vec<&[u8]> = ders[1..].iter().map(Vec::as_slice).collect();
    Chain::new(&ders[0], &others, answers).unwrap()
}

fn store_of(file: &Value, labels: &[&str]) -> RevocationStore {
    let crls = ders(file, "crls", labels).into_iter();
    let crls = crls.map(|der| Arc::new(Crl::from_der(&der).unwrap()));
    RevocationStore::new(crls.collect())
}

/// Returns the store and the chain of a case of `ocsp.json`. The peer sends the answers, or the gateway has them.
fn ocsp_case(file: &Value, case: &Value, sent: bool) -> (RevocationStore, Chain) {
    let labels = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    let crls = labels("crls").into_iter();
    let crls = crls.map(|label| Arc::new(Crl::from_der(&der(file, "crls", &label)).unwrap()));
    let mut store = RevocationStore::new(crls.collect());
    if let Some(trusted) = case.get("trusts") {
        let trusted = der(file, "certificates", trusted);
        store.trust_responder(&trusted).unwrap();
    }
    let answers = labels("answers").into_iter();
    let mut answers: Vec<_> = answers
        .map(|label| OcspAnswer::from_der(&der(file, "answers", &label)).unwrap())
        .collect();
    if !sent {
        answers
            .drain(..)
            .for_each(|answer| store.add_answer(Arc::new(answer)));
    }
    let chain: Vec<_> = ["leaf", "ca"]
        .map(|label| der(file, "certificates", &label.into()))
        .into();
    (store, Chain::new(&chain[0], &[&chain[1]], answers).unwrap())
}

#[test]
fn answers_of_responders_count() {
    let file: Value =
        serde_json::from_str(include_str!("../../../../vectors/paths/ocsp.json")).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(file["now"].as_u64().unwrap()));
    let root = der(&file, "certificates", &"root".into());
    let anchors = one_anchor(&root);
    let cases = file["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 37);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        for (key, policy) in [
            ("strict", RevocationPolicy::Strict),
            ("relaxed", RevocationPolicy::Relaxed),
        ] {
            for sent in [true, false] {
                let (store, mut chain) = ocsp_case(&file, case, sent);
                let revocation = Revocation {
                    policy,
                    store: &store,
                    asked: true,
                };
                let rules = PathRules::default();
                let result = anchors.verify(&mut chain, now, &rules, &revocation);
                let of_peer = case.get("sent").filter(|_| sent && key == "strict");
                assert_eq!(
                    of_peer.unwrap_or(&case[key]).as_bool(),
                    Some(result.is_ok()),
                    "{name}: {key}: {result:?}"
                );
                let Err(refusal) = result else { continue };
                let says = case.get("says").and_then(Value::as_str).unwrap_or_default();
                assert!(refusal.to_string().contains(says), "{name}: {refusal}");
            }
        }
    }
}

#[test]
fn places_are_asked_in_order() {
    let file: Value =
        serde_json::from_str(include_str!("../../../../vectors/paths/ocsp.json")).unwrap();
    let now = file["now"].as_u64().unwrap();
    let root = der(&file, "certificates", &"root".into());
    let anchors = one_anchor(&root);
    let case = serde_json::json!({"answers": [], "crls": ["root"]});
    let (mut store, mut chain) = ocsp_case(&file, &case, true);
    let mut needed = |store: &RevocationStore, at: u64, policy| {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(at));
        let rules = PathRules::default();
        anchors.verify(
            &mut chain,
            at,
            &rules,
            &Revocation {
                policy,
                store,
                asked: true,
            },
        )
    };
    let strict = RevocationPolicy::Strict;
    assert!(needed(&store, now, strict).is_err(), "nobody fetches");
    store.set_fetches();
    let relaxed = needed(&store, now, RevocationPolicy::Relaxed).unwrap();
    let first = needed(&store, now, strict).unwrap();
    assert_eq!(first, relaxed, "each policy asks");
    let ocsp = StatusSource::Ocsp {
        uri: "http://ocsp.example.org/".to_owned(),
        request: der(&file, "requests", &"leaf".into()),
    };
    assert_eq!(first, slice::from_ref(&ocsp));
    store.note_tried(ocsp.clone());
    let crl = StatusSource::Crl {
        uri: "http://crl.example.org/ca.crl".to_owned(),
    };
    assert_eq!(needed(&store, now, strict).unwrap(), slice::from_ref(&crl));
    store.note_tried(crl.clone());
    assert!(needed(&store, now, strict).is_err());
    assert_eq!(needed(&store, now, RevocationPolicy::Relaxed), Ok(vec![]));
    let mut again = store.clone();
    again.set_tried(Arc::default());
    assert_eq!(needed(&again, now, strict).unwrap(), [ocsp], "again");
    let configured = AuthoritySources {
        authority: Parsed::from_der(&der(&file, "certificates", &"ca".into()))
            .unwrap()
            .subject,
        crls: vec!["http://other.example.org/".to_owned(), crl.uri().to_owned()],
        responders: vec!["https://ocsp.example.org/".to_owned()],
    };
    store.expect(configured);
    let other = StatusSource::Crl {
        uri: "http://other.example.org/".to_owned(),
    };
    assert_eq!(needed(&store, now, strict).unwrap(), [other]);
    let answer = OcspAnswer::from_der(&der(&file, "answers", &"good".into())).unwrap();
    store.add_answer(Arc::new(answer));
    assert_eq!(needed(&store, now, strict), Ok(vec![]));
}

#[test]
fn our_own_status_is_asked_for_and_sent() {
    let file: Value =
        serde_json::from_str(include_str!("../../../../vectors/paths/ocsp.json")).unwrap();
    let now = file["now"].as_u64().unwrap();
    let path = ["leaf", "ca", "root"].map(|label| der(&file, "certificates", &label.into()));
    let own = OwnStatus::new(path.iter().map(Vec::as_slice));
    let answer = |label: &str| der(&file, "answers", &label.into());
    let mut store = RevocationStore::default();
    store.set_fetches();
    let asked = own.sources(&store, now);
    assert_eq!(asked.len(), 1, "the authority above names no responder");
    assert_eq!(asked[0].uri(), "http://ocsp.example.org/");
    for useless in ["unknown", "stale", "about-other"] {
        let useless = OcspAnswer::from_der(&answer(useless)).unwrap();
        store.add_answer(Arc::new(useless));
    }
    assert_eq!(own.sources(&store, now), asked);
    assert!(own.answers(&store, now).is_empty());
    for label in ["good", "good-newest", "good-older"] {
        let good = OcspAnswer::from_der(&answer(label)).unwrap();
        store.add_answer(Arc::new(good));
    }
    assert!(own.sources(&store, now).is_empty());
    assert_eq!(own.answers(&store, now), [answer("good-newest")]);
    store.note_tried(asked[0].clone());
    assert!(OwnStatus::default().answers(&store, now).is_empty());
}

#[test]
fn answers_that_are_not_whole_are_refused() {
    let file: Value =
        serde_json::from_str(include_str!("../../../../vectors/paths/ocsp.json")).unwrap();
    let whole = der(&file, "answers", &"delegated".into());
    for len in 0..whole.len() {
        assert!(OcspAnswer::from_der(&whole[..len]).is_err(), "{len} bytes");
    }
    let refused = OcspAnswer::from_der(&[0x30, 3, 0x0a, 1, 3]).unwrap_err();
    assert_eq!(refused.to_string(), "the OCSP responder answers tryLater");
}
