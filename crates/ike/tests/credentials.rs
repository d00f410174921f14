//! CERT and CERTREQ payloads: who asks, who sends, which of several credentials signs, and keys without certificates.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::script::{Script, error_of};
use crate::common::wiretap::sent_by;
use crate::common::*;
use esplanade_ike::auth::{CredentialError, PeerAuthError};
use esplanade_ike::config::{
    Connection, Credential, Fragmentation, Identity, LocalMethod, RemoteMethod, SendCert,
};
use esplanade_ike::failure::AuthFailure;
use esplanade_ike::suite::Role;
use esplanade_ike::wire::{Cert, CertEncoding, ExchangeType, Id, IdType, NotifyType, Payload};
use esplanade_ike::{Config, Event};
use esplanade_pki::{Authorities, Certificate, FileError, PathError, PublicKey, RevocationPolicy};
use esplanade_testkit::certificate_file as file;
use esplanade_testkit::net::Conditions;

/// 2026-06-01.
const NOW: Duration = Duration::from_secs(1_780_272_000);

fn load(pem: &[u8]) -> Vec<Certificate> {
    Certificate::from_file_content(pem).unwrap()
}

/// A certificate of `vectors/paths/revocation.json`. The leaf is moon's too, below an intermediate authority.
fn other(label: &str) -> Certificate {
    let base64 = other_vectors()["certificates"][label]
        .as_str()
        .unwrap()
        .to_owned();
    let pem = format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n");
    load(pem.as_bytes()).remove(0)
}

fn other_vectors() -> serde_json::Value {
    serde_json::from_str(include_str!("../../../vectors/paths/revocation.json")).unwrap()
}

fn credential(key: &[u8], chain: Vec<Certificate>) -> Credential {
    Credential::new(key, chain).unwrap()
}

/// Moon's credential below the root of `vectors/ike/certs`.
fn first() -> Credential {
    let own = credential(file!("moon-ecdsa256.key"), load(file!("moon-ecdsa256.pem")));
    own.with_authorities(&load(file!("root.pem")))
}

/// Moon's credential below the other root. Only the leaf comes from the file of the certificate.
fn second() -> Credential {
    let key = other_vectors()["leaf_key"].as_str().unwrap().to_owned();
    let own = credential(key.as_bytes(), vec![other("leaf")]);
    own.with_authorities(&[other("root"), other("ca")])
}

fn raw(key: &[u8], certificate: &[u8]) -> Credential {
    let public = load(certificate).remove(0).public_key().clone();
    Credential::without_certificate(key, public).unwrap()
}

fn trusts(authorities: &[Certificate], pinned: Vec<Certificate>) -> RemoteMethod {
    RemoteMethod::Certificate {
        authorities: Arc::new(Authorities::named(authorities, &[]).unwrap()),
        pinned,
        rules: Arc::default(),
        revocation: RevocationPolicy::Relaxed,
    }
}

fn knows(keys: &[&[u8]]) -> RemoteMethod {
    let key = |pem: &&[u8]| load(pem).remove(0).public_key().clone();
    RemoteMethod::PublicKey {
        keys: keys.iter().map(key).collect(),
        signatures: "pubkey".parse().unwrap(),
    }
}

/// A signs with one of these, and B checks it.
fn pair(
    own: Vec<Credential>,
    method: RemoteMethod,
    change: impl Fn(&mut Connection, &mut Connection),
) -> Pair {
    let (mut a, mut b) = default_configs();
    a.local.id = id("moon.example.org");
    a.local.method = LocalMethod::Signature(own.into_iter().map(Arc::new).collect());
    b.remote.id = id("moon.example.org");
    b.remote.method = method;
    change(&mut a, &mut b);
    let traced = |connection| Config {
        trace_messages: true,
        key_log: true,
        ..config(connection)
    };
    let mut pair = Pair::new(traced(a), traced(b), Conditions::PERFECT, 1);
    for side in [&mut pair.a, &mut pair.b] {
        let clock = SystemTime::UNIX_EPOCH + NOW;
        side.endpoint.set_wall_clock(pair.start, clock);
    }
    pair
}

/// The outcome for one of the initiators.
struct Outcome {
    /// B's reason to refuse A.
    refused: Option<String>,
    /// The payloads of the message in which A proves who it is.
    proof: Vec<String>,
    /// The payloads of the message that asks A.
    asked: Vec<String>,
}

impl Outcome {
    fn certs(&self) -> usize {
        self.proof.iter().filter(|name| *name == "CERT").count()
    }

    fn certreqs(&self) -> usize {
        self.asked.iter().filter(|name| *name == "CERTREQ").count()
    }
}

fn outcome(mut pair: Pair, initiator_is_a: bool) -> Outcome {
    let side = match initiator_is_a {
        true => &mut pair.a,
        false => &mut pair.b,
    };
    side.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(Duration::from_secs(1));
    let refused = pair.b.events.iter().find_map(|event| match event {
        Event::Refused(refused) => Some(refused.why.clone()),
        Event::ConnectFailed { reason, .. } => Some(reason.to_string()),
        _ => None,
    });
    let payloads = |exchange: &str, response: bool| {
        let named = |event: &Event| match event {
            Event::Message(m) if m.exchange == exchange && m.response == response => {
                Some(m.payloads.split(' ').map(str::to_owned).collect())
            }
            _ => None,
        };
        pair.b.events.iter().find_map(named).unwrap_or_default()
    };
    let outcome = Outcome {
        proof: payloads("IKE_AUTH", !initiator_is_a),
        asked: match initiator_is_a {
            true => payloads("IKE_SA_INIT", true),
            false => payloads("IKE_AUTH", false),
        },
        refused,
    };
    if outcome.refused.is_none() {
        pair.assert_agreed(1, 1);
    }
    pair.assert_clean_end();
    outcome
}

fn both_ways(
    own: impl Fn() -> Vec<Credential>,
    method: impl Fn() -> RemoteMethod,
    change: impl Fn(&mut Connection, &mut Connection),
    check: impl Fn(Outcome),
) {
    for initiator_is_a in [true, false] {
        check(outcome(pair(own(), method(), &change), initiator_is_a));
    }
}

// RFC 7296 R233
#[test]
fn certificates_are_sent_to_those_who_ask() {
    let root = || load(file!("root.pem"));
    for (send_cert, asks, certs) in [
        (SendCert::IfAsked, true, 1),
        (SendCert::IfAsked, false, 0),
        (SendCert::Always, true, 1),
        (SendCert::Always, false, 1),
        (SendCert::Never, true, 0),
        (SendCert::Never, false, 0),
    ] {
        let change = |a: &mut Connection, b: &mut Connection| {
            a.send_cert = send_cert;
            b.send_certreq = asks;
        };
        both_ways(
            || vec![first()],
            || trusts(&root(), vec![]),
            change,
            |outcome| {
                assert_eq!(outcome.certreqs(), usize::from(asks), "{send_cert:?}");
                assert_eq!(outcome.certs(), certs, "{send_cert:?}");
                let missing = |why: &String| why.contains("no X.509 certificate received");
                assert_eq!(outcome.refused.as_ref().is_some_and(missing), certs == 0);
            },
        );
    }
}

fn cert(label: &str) -> Payload {
    Payload::Cert(Cert {
        encoding: CertEncoding::X509_SIGNATURE,
        data: other(label).der().to_vec(),
    })
}

// RFC 7296 R1
#[test]
fn the_certificate_of_the_key_is_sent_before_its_authority() {
    for by_a in [true, false] {
        let root = trusts(&[other("root")], vec![]);
        let whole = |a: &mut Connection, _: &mut Connection| a.fragmentation = Fragmentation::No;
        let mut pair = pair(vec![second()], root, whole);
        let side = if by_a { &mut pair.a } else { &mut pair.b };
        side.endpoint.initiate(pair.now, "site", None).unwrap();
        pair.flush();
        pair.run(Duration::from_secs(1));
        pair.assert_agreed(1, 1);
        let mut sent = sent_by(&pair, &pair.a).into_iter();
        let proof = sent.find(|sent| sent.message.header.exchange == ExchangeType::IKE_AUTH);
        let mut payloads = proof.unwrap().message.payloads;
        payloads.retain(|payload| matches!(payload, Payload::Cert(_)));
        assert_eq!(payloads, ["leaf", "ca"].map(cert));
    }
}

// RFC 7296 R1
#[test]
fn the_key_of_the_first_certificate_must_have_signed() {
    for (labels, accepted) in [(["leaf", "ca"], true), (["ca", "leaf"], false)] {
        let (mut side, now) = b_with(|config| {
            change_connection(config, |b| {
                b.remote.id = id("moon.example.org");
                b.remote.method = trusts(&[other("root")], vec![]);
            });
        });
        let clock = SystemTime::UNIX_EPOCH + NOW;
        side.endpoint.set_wall_clock(now, clock);
        let mut script = Script::new();
        script.id = Id::new(IdType::FQDN, b"moon.example.org".to_vec());
        let payloads = script.init_payloads();
        let answer = script.init(&mut side, now, payloads).unwrap();
        let hashes = answer.notification(NotifyType::SIGNATURE_HASH_ALGORITHMS);
        let hashes = hashes.unwrap().as_signature_hashes();
        let octets = script.signed_octets(Role::Initiator, &script.id);
        let mut payloads = vec![Payload::IdI(script.id.clone())];
        payloads.extend(labels.map(cert));
        let auth = second().sign(&hashes, &octets, false);
        payloads.push(Payload::Auth(auth.unwrap()));
        payloads.extend(Script::child_payloads());
        let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
        let error = error_of(&answer.unwrap());
        let refused = (!accepted).then_some(NotifyType::AUTHENTICATION_FAILED);
        assert_eq!(error, refused, "{labels:?}");
    }
}

/// The peer sends no certificate, and the configuration has it.
#[test]
fn a_certificate_that_is_configured_need_not_be_sent() {
    let never = |a: &mut Connection, _: &mut Connection| a.send_cert = SendCert::Never;
    let root = || load(file!("root.pem"));
    let own = || vec![first()];
    let pinned = || {
        [
            load(file!("moon-rsa.pem")),
            load(file!("moon-ecdsa256.pem")),
        ]
        .concat()
    };
    let good = |outcome: Outcome| assert_eq!((outcome.refused.clone(), outcome.certs()), (None, 0));
    both_ways(own, || trusts(&root(), pinned()), never, good);
    let why = |text: &'static str| {
        move |outcome: Outcome| {
            let why = outcome.refused.unwrap_or_default();
            assert!(why.contains(text), "{why}");
        }
    };
    let wrong_key = || trusts(&root(), load(file!("moon-ed25519.pem")));
    both_ways(own, wrong_key, never, why("does not suit the Ed25519 key"));
    let other_root = || trusts(&load(file!("other-root.pem")), pinned());
    both_ways(own, other_root, never, why("no trusted authority issued"));
    let other_name = || trusts(&root(), load(file!("sun.pem")));
    both_ways(own, other_name, never, why("no X.509 certificate received"));
    let expired = || trusts(&root(), load(file!("expired.pem")));
    let expired_key = |outcome: Outcome| assert!(outcome.refused.is_some());
    both_ways(own, expired, never, expired_key);
    // The intermediate authority comes from the configuration too.
    let chain = || trusts(&[other("root")], vec![other("leaf"), other("ca")]);
    both_ways(|| vec![second()], chain, never, good);
}

// RFC 7296 R234, R238
#[test]
fn the_request_chooses_among_several_certificates() {
    let roots = [
        load(file!("root.pem")),
        vec![other("root")],
        vec![other("ca")],
    ];
    for (root, certs) in roots.iter().zip([1, 2, 2]) {
        for reversed in [false, true] {
            let own = || {
                let mut own = vec![first(), second()];
                own[..].rotate_left(usize::from(reversed));
                own
            };
            both_ways(
                own,
                || trusts(root, vec![]),
                |_, _| {},
                |outcome| {
                    assert_eq!(outcome.refused, None);
                    assert_eq!(outcome.certs(), certs);
                },
            );
        }
    }
}

/// The path needs the last one.
// RFC 7296 R234
#[test]
fn four_certificates_are_sent_and_accepted() {
    let key = other_vectors()["leaf_key"].as_str().unwrap().to_owned();
    let own = || {
        let foreign = [file!("root.pem"), file!("other-root.pem")]
            .map(load)
            .concat();
        let chain = [vec![other("leaf")], foreign, vec![other("ca")]].concat();
        let own = credential(key.as_bytes(), chain);
        vec![own.with_authorities(&[other("root")])]
    };
    both_ways(
        own,
        || trusts(&[other("root")], vec![]),
        |_, _| {},
        |outcome| {
            assert_eq!(outcome.refused, None);
            assert_eq!(outcome.certs(), 4);
        },
    );
}

#[test]
fn without_a_request_that_fits_the_first_certificate_is_sent() {
    for asks in [true, false] {
        let unfit = |a: &mut Connection, b: &mut Connection| {
            a.send_cert = SendCert::Always;
            b.send_certreq = asks;
        };
        let unknown = || trusts(&load(file!("other-root.pem")), vec![]);
        both_ways(
            || vec![second(), first()],
            unknown,
            unfit,
            |outcome| {
                assert!(outcome.refused.is_some());
                assert_eq!(outcome.certs(), 2, "the leaf and its authority");
            },
        );
    }
}

// RFC 7296 R236
#[test]
fn keys_without_certificates() {
    let keys = [
        (file!("moon-ecdsa256.key"), file!("moon-ecdsa256.pem")),
        (file!("moon-ed25519.key"), file!("moon-ed25519.pem")),
        (file!("moon-rsa.key"), file!("moon-rsa.pem")),
    ];
    for (key, certificate) in keys {
        for (asks, certs) in [(true, 1), (false, 0)] {
            let change = |_: &mut Connection, b: &mut Connection| b.send_certreq = asks;
            both_ways(
                || vec![raw(key, certificate)],
                || knows(&[file!("sun.pem"), certificate]),
                change,
                |outcome| {
                    assert_eq!(outcome.refused, None);
                    assert_eq!((outcome.certs(), outcome.certreqs()), (certs, certs));
                },
            );
        }
    }
}

#[test]
fn another_key_or_name_is_refused() {
    let own = || vec![raw(file!("moon-ecdsa256.key"), file!("moon-ecdsa256.pem"))];
    let refused = |expected: PeerAuthError| {
        move |outcome: Outcome| {
            let why = outcome.refused.unwrap_or_default();
            assert!(why.ends_with(&expected.to_string()), "{why}");
        }
    };
    let nothing = |_: &mut Connection, _: &mut Connection| {};
    let silent = |_: &mut Connection, b: &mut Connection| b.send_certreq = false;
    let sun = || knows(&[file!("sun.pem")]);
    both_ways(own, sun, nothing, refused(PeerAuthError::UnknownKey));
    both_ways(own, sun, silent, refused(PeerAuthError::BadSignature));
    let other_id = |a: &mut Connection, _: &mut Connection| a.local.id = id("mars.example.org");
    let moon = || knows(&[file!("moon-ecdsa256.pem")]);
    both_ways(own, moon, other_id, |outcome| {
        assert!(outcome.refused.is_some())
    });
    // Somebody who is not called by name is called by the key.
    let any = |_: &mut Connection, b: &mut Connection| b.remote.id = Identity::Any;
    both_ways(
        own,
        moon,
        any,
        refused(PeerAuthError::NotKeyIdentity(id("moon.example.org"))),
    );
    // Under a pattern each holder of a key could call itself by the name of another.
    let pattern = |_: &mut Connection, b: &mut Connection| b.remote.id = id("*.example.org");
    both_ways(
        own,
        moon,
        pattern,
        refused(PeerAuthError::NotKeyIdentity(id("moon.example.org"))),
    );
    let by_key = |a: &mut Connection, b: &mut Connection| {
        a.local.id = Identity::Any;
        b.remote.id = Identity::Any;
    };
    both_ways(own, moon, by_key, |outcome| {
        assert_eq!(outcome.refused, None)
    });
    let weak = || RemoteMethod::PublicKey {
        keys: vec![load(file!("moon-ecdsa256.pem"))[0].public_key().clone()],
        signatures: "ecdsa-sha384".parse().unwrap(),
    };
    both_ways(own, weak, nothing, refused(PeerAuthError::Scheme));
}

/// The holder of a certificate with a key that is configured may prove the key.
#[test]
fn a_certificate_with_the_key_proves_the_key() {
    let moon = || knows(&[file!("moon-ecdsa256.pem")]);
    let always = |a: &mut Connection, _: &mut Connection| a.send_cert = SendCert::Always;
    both_ways(
        || vec![first()],
        moon,
        always,
        |outcome| {
            assert_eq!((outcome.refused.clone(), outcome.certs()), (None, 1));
        },
    );
}

/// Guesses at keys have a bound for one message, over all connections.
#[test]
fn few_keys_are_tried() {
    let own = || vec![raw(file!("moon-ecdsa256.key"), file!("moon-ecdsa256.pem"))];
    let many = |others: usize| {
        let mut keys = vec![file!("sun.pem"); others];
        keys.push(file!("moon-ecdsa256.pem"));
        knows(&keys)
    };
    let silent = |_: &mut Connection, b: &mut Connection| b.send_certreq = false;
    let good = outcome(pair(own(), many(15), silent), true);
    assert_eq!(good.refused, None);
    let bad = outcome(pair(own(), many(16), silent), true).refused;
    assert_eq!(bad, Some(PeerAuthError::TooManyKeys.to_string()));
    // The key that is sent says which one is meant.
    let asked = outcome(pair(own(), many(16), |_, _| {}), true);
    assert_eq!(asked.refused, None);
}

// RFC 7296 R236
#[test]
fn public_keys_are_read_in_pem_and_der() {
    let key = load(file!("moon-rsa.pem")).remove(0).public_key().clone();
    assert_eq!(PublicKey::from_file_content(key.der()).unwrap(), key);
    let error = |file: &[u8]| PublicKey::from_file_content(file).unwrap_err();
    for none in [&b""[..], file!("moon-rsa.pem"), file!("moon-rsa.key")] {
        assert_eq!(error(none), FileError::NoPublicKey);
    }
    for malformed in [
        &b"\x30\x00"[..],
        &key.der()[..key.der().len() - 1],
        b"-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n",
    ] {
        assert!(matches!(error(malformed), FileError::PublicKey(_)));
    }
    let foreign = load(file!("secp256k1.pem"))[0].public_key().clone();
    assert!(matches!(error(foreign.der()), FileError::KeyType(_)));
    assert!(
        raw(file!("moon-rsa.key"), file!("moon-rsa.pem"))
            .chain()
            .is_empty()
    );
    let other = Credential::without_certificate(file!("moon-ed25519.key"), key);
    assert!(matches!(other, Err(CredentialError::PrivateKey(_))));
}

/// The configuration vouches for a certificate of an unknown issuer.
#[test]
fn a_certificate_that_is_configured_needs_no_authority() {
    let method = |demanded: bool, revocation: RevocationPolicy, pinned: &[u8]| {
        let mut method = trusts(&[], load(pinned));
        if let RemoteMethod::Certificate {
            rules,
            revocation: policy,
            ..
        } = &mut method
        {
            Arc::make_mut(rules).known_need_no_path = !demanded;
            *policy = revocation;
        }
        method
    };
    use RevocationPolicy::{IfUri, Relaxed, Strict};
    let moon = file!("moon-ecdsa256.pem");
    let unknown = PathError::UnknownStatus {
        subject: load(moon)[0].subject().to_string(),
        why: "its issuer is not known".to_owned(),
    };
    let no_issuer = PathError::UnknownIssuer.to_string();
    for (demanded, revocation, pinned, expected) in [
        (false, Relaxed, moon, None),
        (false, IfUri, moon, None),
        (false, Strict, moon, Some(unknown.to_string())),
        (true, Relaxed, moon, Some(no_issuer)),
        (false, Relaxed, file!("moon-rsa.pem"), Some(String::new())),
        (false, Relaxed, file!("sun.pem"), Some(String::new())),
    ] {
        for send_cert in [SendCert::Always, SendCert::Never] {
            both_ways(
                || vec![first()],
                || method(demanded, revocation, pinned),
                |a, _| a.send_cert = send_cert,
                |outcome| match (&expected, outcome.refused) {
                    (None, None) => {}
                    (Some(text), Some(why)) if why.contains(text) => {}
                    (_, why) => panic!("{why:?} in place of {expected:?}"),
                },
            );
        }
    }
    let moon = || method(false, Relaxed, moon);
    let other_id = |a: &mut Connection, _: &mut Connection| a.local.id = id("mars.example.org");
    let refused = |outcome: Outcome| assert!(outcome.refused.is_some());
    both_ways(|| vec![first()], moon, other_id, refused);
}

/// It has a certificate with our identity, below an authority that we trust.
#[test]
fn a_certificate_with_our_own_identity_is_refused() {
    for own in [true, false] {
        let mut pair = pair(
            vec![first()],
            trusts(&load(file!("root.pem")), vec![]),
            |a, b| {
                if own {
                    b.local.id = id("moon.example.org");
                    a.remote.id = id("moon.example.org");
                }
            },
        );
        pair.initiate();
        pair.run(Duration::from_secs(1));
        let accepted = usize::from(!own);
        pair.assert_agreed(accepted, accepted);
        let told = pair.b.events.iter().find_map(|event| match event {
            Event::Refused(refused) => Some(refused.why.clone()),
            _ => None,
        });
        let why = AuthFailure::OwnIdentity(Box::new(id("moon.example.org")));
        assert_eq!(told, own.then(|| why.to_string()));
    }
}
