//! Answers of OCSP responders in CERT payloads (RFC 4806).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::*;
use esplanade_ike::config::{Credential, LocalMethod, OcspInIke, RemoteMethod};
use esplanade_ike::{Config, Event};
use esplanade_pki::{
    Authorities, Certificate, Crl, OcspAnswer, OcspError, RevocationPolicy, RevocationStore,
    StatusSource,
};
use esplanade_testkit::net::Conditions;

const REQUEST: OcspInIke = OcspInIke {
    request: true,
    reply: false,
};

fn vectors() -> serde_json::Value {
    serde_json::from_str(include_str!("../../../vectors/paths/ocsp.json")).unwrap()
}

fn now() -> Duration {
    Duration::from_secs(vectors()["now"].as_u64().unwrap())
}

fn pem(kind: &str, label: &str) -> Vec<u8> {
    let file = vectors();
    let base64 = file[kind][label].as_str().unwrap();
    let word = match kind {
        "crls" => "X509 CRL",
        // What is inside is not a certificate if it is an answer.
        _ => "CERTIFICATE",
    };
    format!("-----BEGIN {word}-----\n{base64}\n-----END {word}-----\n").into_bytes()
}

fn answer_der(label: &str) -> Vec<u8> {
    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject;
    let der = CertificateDer::from_pem_slice(&pem("answers", label));
    der.unwrap().to_vec()
}

fn answer(label: &str) -> OcspAnswer {
    OcspAnswer::from_der(&answer_der(label)).unwrap()
}

/// The time at which a responder made its answer, in another second. The signature does not cover that one.
fn at_another_second(mut der: Vec<u8>) -> Vec<u8> {
    // A GeneralizedTime has 15 bytes.
    let time = der.windows(2).position(|tag| tag == [0x18, 15]).unwrap();
    let second = &mut der[time + 2 + 13];
    assert!(second.is_ascii_digit());
    *second ^= 1;
    der
}

/// Its last byte changed. It ends with the signature, or with that of a certificate.
fn with_another_end(mut der: Vec<u8>) -> Vec<u8> {
    *der.last_mut().unwrap() ^= 1;
    der
}

fn load(labels: &[&str]) -> Vec<Certificate> {
    let files = labels.iter().map(|label| pem("certificates", label));
    Certificate::from_file_content(&files.collect::<Vec<_>>().concat()).unwrap()
}

/// A has the leaf's certificate. B demands its status, and knows the CRL of the root alone.
fn pair(asks: OcspInIke, answers: OcspInIke) -> Pair {
    let file = vectors();
    let key = file["leaf_key"].as_str().unwrap().as_bytes();
    let credential = Credential::new(key, load(&["leaf", "ca"])).unwrap();
    let credential = credential.with_authorities(&load(&["root"]));
    let (mut a, mut b) = default_configs();
    a.local.id = id("moon.example.org");
    a.local.method = LocalMethod::Signature(vec![Arc::new(credential)]);
    a.ocsp = answers;
    b.remote.id = id("moon.example.org");
    b.remote.method = RemoteMethod::Certificate {
        authorities: Arc::new(Authorities::new(&load(&["root"])).unwrap()),
        pinned: vec![],
        rules: Arc::default(),
        revocation: RevocationPolicy::Strict,
    };
    b.ocsp = asks;
    let (mut a, mut b) = (config(a), config(b));
    let crls = Crl::from_file_content(&pem("crls", "root")).unwrap();
    b.revocation = Arc::new(RevocationStore::new(
        crls.into_iter().map(Arc::new).collect(),
    ));
    let mut fetches = RevocationStore::default();
    fetches.set_fetches();
    a.revocation = Arc::new(fetches);
    pair_of(a, b)
}

fn pair_of(a: Config, b: Config) -> Pair {
    let mut pair = Pair::new(a, b, Conditions::PERFECT, 1);
    for side in [&mut pair.a, &mut pair.b] {
        side.endpoint
            .set_wall_clock(pair.start, SystemTime::UNIX_EPOCH + now());
    }
    pair
}

fn asked(side: &Side) -> Vec<StatusSource> {
    let asked = side.events.iter().filter_map(|event| match event {
        Event::StatusNeeded(sources) => Some(sources.clone()),
        _ => None,
    });
    asked.flatten().collect()
}

/// The responder has been asked on behalf of A, and this came of it.
fn fetched(pair: &mut Pair, answer: Option<OcspAnswer>) {
    let mut store = RevocationStore::default();
    store.set_fetches();
    for source in asked(&pair.a) {
        store.note_tried(source);
    }
    if let Some(answer) = answer {
        store.add_answer(Arc::new(answer));
    }
    pair.a.endpoint.set_revocation(pair.now, Arc::new(store));
    pair.flush();
}

fn initiate(pair: &mut Pair, by_a: bool) {
    let side = if by_a { &mut pair.a } else { &mut pair.b };
    side.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(Duration::from_secs(1));
}

#[test]
fn answers_are_checked_and_those_that_refuse_are_named() {
    let error = |der: &[u8]| OcspAnswer::from_der(der).err();
    let long = vec![0x30; OcspAnswer::LEN_MAX + 1];
    // The second one is successful, and has nothing more.
    for der in [&b"\x30\x00"[..], b"\x30\x03\x0a\x01\x00", &long] {
        assert!(matches!(error(der), Some(OcspError::Malformed(_))));
    }
    let later = OcspError::Refused("tryLater");
    assert_eq!(error(b"\x30\x03\x0a\x01\x03"), Some(later));
}

#[test]
fn a_responder_sends_what_it_fetches_while_the_peer_waits() {
    for (label, up) in [(Some("good"), true), (Some("lists"), false), (None, false)] {
        let mut pair = pair(REQUEST, OcspInIke::default());
        initiate(&mut pair, false);
        let uris: Vec<_> = asked(&pair.a)
            .iter()
            .map(|source| source.uri().to_owned())
            .collect();
        assert_eq!(uris, ["http://ocsp.example.org/"]);
        assert!(pair.a.up.is_empty(), "the peer waits");
        fetched(&mut pair, label.map(answer));
        pair.run(Duration::from_secs(1));
        match up {
            true => pair.assert_agreed(1, 1),
            false => assert!(pair.b.up.is_empty(), "{label:?}"),
        }
        pair.assert_clean_end();
    }
}

#[test]
fn an_initiator_has_an_answer_the_second_time() {
    let mut pair = pair(REQUEST, OcspInIke::default());
    initiate(&mut pair, true);
    assert!(pair.a.up.is_empty(), "it does not wait");
    assert_eq!(asked(&pair.a).len(), 1);
    fetched(&mut pair, Some(answer("good")));
    initiate(&mut pair, true);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

#[test]
fn answers_go_only_to_peers_that_ask_and_only_if_configured() {
    let never = OcspInIke {
        request: false,
        reply: false,
    };
    for (asks, answers) in [(never, OcspInIke::default()), (REQUEST, never)] {
        for by_a in [true, false] {
            let mut pair = pair(asks, answers);
            fetched(&mut pair, Some(answer("good")));
            initiate(&mut pair, by_a);
            assert!(pair.b.up.is_empty());
            assert!(asked(&pair.a).is_empty());
            pair.assert_clean_end();
        }
    }
}

/// RFC 6960 §3.2: the issuer's key has signed the answer, or the key of a responder that the issuer's key has certified.
#[test]
fn an_answer_that_another_key_signed_does_not_count() {
    type Change = fn(Vec<u8>) -> Vec<u8>;
    let cases: [(&str, Change, bool); 6] = [
        ("good", |der| der, true),
        ("good", at_another_second, false),
        ("good", with_another_end, false),
        ("delegated", |der| der, true),
        ("delegated", at_another_second, false),
        ("delegated", with_another_end, false),
    ];
    for (number, (label, change, up)) in cases.into_iter().enumerate() {
        for by_a in [true, false] {
            let mut pair = pair(REQUEST, OcspInIke::default());
            let der = change(answer_der(label));
            fetched(&mut pair, Some(OcspAnswer::from_der(&der).unwrap()));
            initiate(&mut pair, by_a);
            match up {
                true => pair.assert_agreed(1, 1),
                false => assert!(pair.b.up.is_empty(), "case {number}"),
            }
            pair.assert_clean_end();
        }
    }
}
