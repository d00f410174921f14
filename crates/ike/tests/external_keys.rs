//! A private key that is kept elsewhere signs later, or not at all.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use crate::common::*;
use aws_lc_rs::signature::Ed25519KeyPair;
use esplanade_ike::auth::{CredentialError, ExternalKey, SigningMechanism, SigningRequest};
use esplanade_ike::config::{Credential, LocalMethod, RemoteMethod};
use esplanade_ike::wire::HashAlgorithm;
use esplanade_ike::{DownReason, Event};
use esplanade_pki::{Authorities, Certificate, RevocationPolicy};
use esplanade_testkit::certificate_file as file;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

/// 2026-06-01.
const NOW: Duration = Duration::from_secs(1_780_272_000);

/// A key that signs when it is told to.
#[derive(Debug)]
struct SlowKey {
    pair: Ed25519KeyPair,
    answers: Mutex<Poll<Result<(), String>>>,
}

impl SlowKey {
    fn new(pair: Ed25519KeyPair) -> Arc<Self> {
        let answers = Mutex::new(Poll::Pending);
        Arc::new(Self { pair, answers })
    }

    fn of_moon() -> Arc<Self> {
        let key = PrivateKeyDer::from_pem_slice(file!("moon-ed25519.key")).unwrap();
        Self::new(Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_der()).unwrap())
    }

    fn set(&self, answer: Result<(), &str>) {
        *self.answers.lock().unwrap() = Poll::Ready(answer.map_err(str::to_owned));
    }
}

impl ExternalKey for SlowKey {
    fn poll_sign(&self, request: &SigningRequest) -> Poll<Result<Vec<u8>, String>> {
        assert_eq!(request.mechanism, SigningMechanism::Ed25519);
        let answer = self.answers.lock().unwrap().clone();
        answer.map(|result| result.map(|()| self.pair.sign(&request.input).as_ref().to_vec()))
    }
}

/// A has the certificate, and one of the keys. B trusts the authority.
fn pair(keys: Vec<Arc<SlowKey>>) -> Pair {
    let load = |pem: &[u8]| Certificate::from_file_content(pem).unwrap();
    let keys = keys.into_iter().map(|key| key as Arc<dyn ExternalKey>);
    let chain = load(file!("moon-ed25519.pem"));
    let credential = Arc::new(Credential::external(chain, keys.collect()).unwrap());
    let authorities = Arc::new(Authorities::new(&load(file!("root.pem"))).unwrap());
    let mut pair = Pair::with(|a, b| {
        a.local.id = id("moon.example.org");
        a.local.method = LocalMethod::Signature(vec![credential]);
        b.remote.id = id("*.example.org");
        b.remote.method = RemoteMethod::Certificate {
            authorities,
            pinned: vec![],
            rules: Arc::default(),
            revocation: RevocationPolicy::Relaxed,
        };
    });
    for side in [&mut pair.a, &mut pair.b] {
        side.endpoint
            .set_wall_clock(pair.start, SystemTime::UNIX_EPOCH + NOW);
    }
    pair
}

fn initiate(pair: &mut Pair, by_a: bool) {
    let side = if by_a { &mut pair.a } else { &mut pair.b };
    side.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(Duration::from_secs(1));
}

fn signatures_made(pair: &mut Pair) {
    pair.a.endpoint.signatures_made(pair.now);
    pair.flush();
    pair.run(Duration::from_secs(1));
}

fn failure(side: &Side) -> Option<String> {
    side.events.iter().find_map(|event| match event {
        Event::ConnectFailed { reason, .. } => Some(reason.to_string()),
        Event::Refused(refused) => Some(refused.why.clone()),
        _ => None,
    })
}

#[test]
fn ike_auth_waits_for_the_signature() {
    for by_a in [true, false] {
        let key = SlowKey::of_moon();
        let mut pair = pair(vec![key.clone()]);
        initiate(&mut pair, by_a);
        signatures_made(&mut pair);
        assert_eq!(pair.a.endpoint.status().len(), 1, "it is on its way");
        assert!(pair.a.up.is_empty() && failure(&pair.a).is_none());
        key.set(Ok(()));
        signatures_made(&mut pair);
        pair.assert_agreed(1, 1);
        pair.assert_clean_end();
    }
}

#[test]
fn a_token_that_does_not_sign_is_told_of() {
    for by_a in [true, false] {
        let key = SlowKey::of_moon();
        let mut pair = pair(vec![key.clone()]);
        initiate(&mut pair, by_a);
        key.set(Err("the token is gone"));
        signatures_made(&mut pair);
        let why = failure(&pair.a).unwrap();
        let gone = CredentialError::External("the token is gone".to_owned());
        assert!(why.ends_with(&gone.to_string()), "{why}");
        assert!(pair.a.child_spis().is_empty());
    }
}

#[test]
fn the_key_of_the_certificate_is_found() {
    let other = SlowKey::new(Ed25519KeyPair::generate().unwrap());
    other.set(Ok(()));
    let mut alone = pair(vec![other.clone()]);
    initiate(&mut alone, true);
    let why = failure(&alone.a).unwrap();
    let other_key = CredentialError::OtherKey.to_string();
    assert!(why.ends_with(&other_key), "{why}");
    let key = SlowKey::of_moon();
    key.set(Ok(()));
    let mut pair = pair(vec![other, key]);
    initiate(&mut pair, true);
    pair.assert_agreed(1, 1);
}

#[test]
fn what_a_key_elsewhere_cannot_sign_is_named() {
    let load = |pem: &[u8]| Certificate::from_file_content(pem).unwrap();
    let key = || SlowKey::of_moon() as Arc<dyn ExternalKey>;
    let ml_dsa = Credential::external(load(file!("moon-mldsa65.pem")), vec![key()]);
    let unsupported = CredentialError::ExternalKeyType("ML-DSA-65".to_owned());
    assert_eq!(ml_dsa.unwrap_err(), unsupported);
    let rsa = Credential::external(load(file!("moon-rsa.pem")), vec![key()]).unwrap();
    let sign = |legacy| rsa.sign(&[], b"octets", legacy).unwrap_err();
    assert_eq!(sign(true), CredentialError::ExternalSha1);
    assert_eq!(sign(false), CredentialError::Sha1);
    let slow = Credential::external(load(file!("moon-ed25519.pem")), vec![key()]).unwrap();
    let awaited = slow.sign(&[HashAlgorithm::IDENTITY], b"octets", false);
    assert_eq!(awaited.unwrap_err(), CredentialError::SignatureAwaited);
}

#[test]
fn a_command_ends_an_sa_that_waits_for_its_signature() {
    let key = SlowKey::of_moon();
    let mut pair = pair(vec![key.clone()]);
    initiate(&mut pair, true);
    pair.a.endpoint.terminate(pair.now, "site", None).unwrap();
    pair.flush();
    key.set(Ok(()));
    signatures_made(&mut pair);
    assert!(pair.a.endpoint.status().is_empty());
    assert!(pair.a.events.iter().all(|event| !matches!(
        event,
        Event::ConnectFailed { reason, .. } if *reason != DownReason::Terminated
    )));
}
