//! One end authenticates with a certificate, the other with a pre-shared key.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::*;
use esplanade_ike::auth::{PeerAuthError, PeerCertificates};
use esplanade_ike::config::{
    AddressMatch, CertificateRules, Connection, Credential, LocalMethod, RemoteMethod,
};
use esplanade_ike::failure::AuthFailure;
use esplanade_ike::wire::{Cert, CertEncoding};
use esplanade_ike::{Config, DownReason, Event, Refusal};
use esplanade_pki::{
    Authorities, Certificate, Crl, CrlError, PathError, Revocation, RevocationPolicy,
    RevocationStore, StatusSource, UnixTime,
};
use esplanade_testkit::certificate_file as file;

/// 2026-06-01.
const NOW: Duration = Duration::from_secs(1_780_272_000);

fn load(pem: &[u8]) -> Vec<Certificate> {
    Certificate::from_file_content(pem).unwrap()
}

/// A has the credential, and B trusts the authority.
fn pair(key: &[u8], certificate: &[u8], authority: &[u8]) -> Pair {
    let credential = Arc::new(Credential::new(key, load(certificate)).unwrap());
    let authorities = Arc::new(Authorities::new(&load(authority)).unwrap());
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

// RFC 7296 R130, R233, R238
#[test]
fn every_kind_of_key() {
    for (key, certificate) in [
        (file!("moon-rsa.key"), file!("moon-rsa.pem")),
        (file!("moon-ecdsa256.key"), file!("moon-ecdsa256.pem")),
        (file!("moon-ecdsa384.key"), file!("moon-ecdsa384.pem")),
        (file!("moon-ecdsa521.key"), file!("moon-ecdsa521.pem")),
        (file!("moon-ed25519.key"), file!("moon-ed25519.pem")),
    ] {
        for initiator_is_a in [true, false] {
            let mut pair = pair(key, certificate, file!("root.pem"));
            let side = if initiator_is_a {
                &mut pair.a
            } else {
                &mut pair.b
            };
            side.endpoint.initiate(pair.now, "site", None).unwrap();
            pair.flush();
            pair.run(Duration::from_secs(1));
            pair.assert_agreed(1, 1);
            pair.assert_clean_end();
        }
    }
}

#[test]
fn chains_with_ml_dsa_keys_come_in_fragments() {
    for (key, certificate) in [
        (file!("moon-mldsa44.key"), file!("moon-mldsa44.pem")),
        (file!("moon-mldsa65.key"), file!("moon-mldsa65.pem")),
        (file!("moon-mldsa87.key"), file!("moon-mldsa87.pem")),
    ] {
        for initiator_is_a in [true, false] {
            let chain = [certificate, file!("ml-dsa-intermediate.pem")].concat();
            let mut pair = pair(key, &chain, file!("ml-dsa-root.pem"));
            let side = if initiator_is_a {
                &mut pair.a
            } else {
                &mut pair.b
            };
            side.endpoint.initiate(pair.now, "site", None).unwrap();
            pair.flush();
            pair.run(Duration::from_secs(1));
            pair.assert_agreed(1, 1);
            assert!(pair.b.endpoint.counters().fragments_received > 8);
            pair.assert_clean_end();
        }
    }
}

/// A proves itself by the method that is B's.
#[test]
fn the_method_of_the_other_end_is_refused() {
    let key = (file!("moon-ecdsa256.key"), file!("moon-ecdsa256.pem"));
    let unchanged = || pair(key.0, key.1, file!("root.pem"));
    let mut psk_for_certificate = unchanged();
    let mut certificate_for_psk = unchanged();
    let mut a = config(default_configs().0);
    change_connection(&mut a, |a| a.local.id = id("moon.example.org"));
    psk_for_certificate.a.endpoint.set_config(a);
    let mut b = config(default_configs().1);
    change_connection(&mut b, |b| b.remote.id = id("moon.example.org"));
    certificate_for_psk.b.endpoint.set_config(b);
    for (mut pair, why) in [
        (psk_for_certificate, "SHARED_KEY"),
        (certificate_for_psk, "instead of a pre-shared key"),
    ] {
        pair.initiate();
        pair.run(Duration::from_secs(1));
        pair.assert_agreed(0, 0);
        let told = pair.b.events.iter().find_map(|event| match event {
            Event::Refused(refused) => Some(refused.why.clone()),
            _ => None,
        });
        let told = told.expect("told");
        assert!(told.contains(why), "{told}");
        pair.assert_clean_end();
    }
}

// RFC 7296 R2, R153
#[test]
fn a_stranger_is_refused_by_either_role() {
    let key = (file!("moon-ecdsa256.key"), file!("moon-ecdsa256.pem"));
    let mut first = pair(key.0, key.1, file!("other-root.pem"));
    first.initiate();
    first.run(Duration::from_secs(1));
    assert_eq!(first.b.refused(Refusal::AuthenticationFailed), 1);
    assert!(matches!(first.b.events[..], [Event::Refused(_)]));
    first.assert_clean_end();

    let mut second = pair(key.0, key.1, file!("other-root.pem"));
    second
        .b
        .endpoint
        .initiate(second.now, "site", None)
        .unwrap();
    second.flush();
    second.run(Duration::from_secs(1));
    let failed = |e: &Event| {
        matches!(
            e,
            Event::ConnectFailed {
                reason: DownReason::AuthenticationFailed(_),
                ..
            }
        )
    };
    assert!(second.b.events.iter().any(failed));
    let told = |e: &Event| {
        matches!(
            e,
            Event::IkeSaDown {
                reason: DownReason::AuthenticationFailed(AuthFailure::RejectedByPeer),
                ..
            }
        )
    };
    assert!(
        second.a.events.iter().any(told),
        "the responder hears of it (RFC 7296 section 2.21.2)"
    );
    second.assert_clean_end();
}

/// A file of `vectors/paths/revocation.json`.
fn revocation_file(kind: &str, label: &str) -> Vec<u8> {
    let text = include_str!("../../../vectors/paths/revocation.json");
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    let base64 = file[kind][label].as_str().unwrap();
    let word = match kind {
        "crls" => "X509 CRL",
        _ => "CERTIFICATE",
    };
    format!("-----BEGIN {word}-----\n{base64}\n-----END {word}-----\n").into_bytes()
}

fn store(labels: &[&str]) -> Arc<RevocationStore> {
    let crls = labels.iter().flat_map(|label| {
        let file = revocation_file("crls", label);
        Crl::from_file_content(&file).unwrap()
    });
    Arc::new(RevocationStore::new(crls.map(Arc::new).collect()))
}

/// The configuration of B, which trusts the root and has these CRLs.
fn judge(crls: &[&str], policy: RevocationPolicy) -> Config {
    let (_, mut b) = default_configs();
    let root = revocation_file("certificates", "root");
    b.remote.id = id("*.example.org");
    b.remote.method = RemoteMethod::Certificate {
        authorities: Arc::new(Authorities::new(&load(&root)).unwrap()),
        pinned: vec![],
        rules: Arc::default(),
        revocation: policy,
    };
    let mut config = config(b);
    config.revocation = store(crls);
    config
}

/// A has a certificate below an intermediate authority.
fn revocable(crls: &[&str], policy: RevocationPolicy) -> Pair {
    revocable_leaf("leaf", crls, policy)
}

fn revocable_leaf(leaf: &str, crls: &[&str], policy: RevocationPolicy) -> Pair {
    let text = include_str!("../../../vectors/paths/revocation.json");
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    let key = file["leaf_key"].as_str().unwrap();
    let chain = [leaf, "ca"].map(|label| revocation_file("certificates", label));
    let root = revocation_file("certificates", "root");
    let mut pair = pair(key.as_bytes(), &chain.concat(), &root);
    pair.b.endpoint.set_config(judge(crls, policy));
    pair
}

fn refusal_of(pair: &Pair) -> Option<String> {
    pair.b.events.iter().find_map(|event| match event {
        Event::Refused(refused) => Some(refused.why.clone()),
        Event::ConnectFailed { reason, .. } | Event::ReauthenticationFailed { reason, .. } => {
            Some(reason.to_string())
        }
        _ => None,
    })
}

/// The reason why B refuses A, if it does.
fn refusal(mut pair: Pair, initiator_is_a: bool) -> Option<String> {
    let side = match initiator_is_a {
        true => &mut pair.a,
        false => &mut pair.b,
    };
    side.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(Duration::from_secs(1));
    let why = refusal_of(&pair);
    if why.is_none() {
        pair.assert_agreed(1, 1);
    }
    pair.assert_clean_end();
    why
}

// RFC 5280 R13
#[test]
fn a_revoked_certificate_is_refused_by_either_role() {
    use RevocationPolicy::{IfUri, Relaxed, Strict};
    for initiator_is_a in [true, false] {
        for policy in [Relaxed, IfUri, Strict] {
            let good = revocable(&["root", "empty"], policy);
            assert_eq!(refusal(good, initiator_is_a), None);
            let leaf = refusal(revocable(&["root", "lists"], policy), initiator_is_a);
            let said = "certificate \"O=Example, CN=leaf\" (serial number 1234) was revoked at \
                        2026-05-30T00:00:00Z: keyCompromise";
            assert!(leaf.is_some_and(|why| why.contains(said)));
            let authority = refusal(revocable(&["root-lists-ca"], policy), initiator_is_a);
            assert!(authority.is_some_and(|why| why.contains("CN=ca\" (serial number 22) was")));
        }
        let stale = |policy| refusal(revocable(&["root", "stale"], policy), initiator_is_a);
        assert_eq!(stale(Relaxed), None);
        assert!(stale(Strict).is_some_and(|why| why.contains("is not current")));
        let none = |policy| refusal(revocable(&[], policy), initiator_is_a);
        assert_eq!(none(IfUri), None);
        assert!(none(Strict).is_some_and(|why| why.contains("there is no CRL")));
    }
}

#[test]
fn new_crls_count_from_the_next_authentication_on() {
    let mut pair = revocable(&["root", "empty"], RevocationPolicy::Relaxed);
    pair.initiate();
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    let new = judge(&["root", "lists"], RevocationPolicy::Relaxed);
    pair.b.endpoint.set_config(new);
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    pair.a.endpoint.terminate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(Duration::from_secs(1));
    pair.initiate();
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.b.refused(Refusal::AuthenticationFailed), 1);
    pair.assert_clean_end();
}

/// Either end authenticates again when A's certificate is revoked. The end with the certificate does not get a new IKE
/// SA. The other end finds that, and ends the old one at once: it holds by the same certificate, also if a rekey has made
/// it.
// RFC 7296 R263; RFC 5280 R13
#[test]
fn reauthentication_finds_a_certificate_that_was_revoked_meanwhile() {
    for by_a in [true, false] {
        let judge = |crls: &[&str]| {
            let mut config = judge(crls, RevocationPolicy::Relaxed);
            change_connection(&mut config, |connection| {
                if !by_a {
                    connection.reauth_time = Duration::from_secs(100);
                    connection.over_time = Duration::from_secs(50);
                }
            });
            config
        };
        let mut pair = revocable(&["root", "empty"], RevocationPolicy::Relaxed);
        pair.b.endpoint.set_config(judge(&["root", "empty"]));
        pair.initiate();
        pair.run(Duration::from_secs(1));
        let again = |pair: &mut Pair| {
            let id = pair.a.endpoint.status()[0].id;
            if by_a {
                pair.a.endpoint.reauthenticate_ike_sa(pair.now, id).unwrap();
                pair.flush();
            }
            pair.run(Duration::from_secs(102));
        };
        again(&mut pair);
        pair.assert_agreed(1, 1);
        assert_eq!(refusal_of(&pair), None);
        let id = pair.a.endpoint.status()[0].id;
        pair.a.endpoint.rekey_ike_sa(pair.now, id).unwrap();
        pair.flush();
        pair.run(Duration::from_secs(1));
        pair.assert_agreed(1, 1);
        pair.b.endpoint.set_config(judge(&["root", "lists"]));
        again(&mut pair);
        assert!(refusal_of(&pair).is_some_and(|why| why.contains("was revoked at")));
        assert!(pair.a.ike_sas().is_empty() && pair.b.ike_sas().is_empty());
        assert!(pair.a.children.is_empty() && pair.b.children.is_empty());
        pair.assert_clean_end();
    }
}

/// A's certificate names a CRL that B can have fetched. B knows the CRL of the root.
fn fetching(policy: RevocationPolicy) -> Pair {
    let mut pair = revocable_leaf("leaf-crl", &["root"], policy);
    let mut config = judge(&["root"], policy);
    let mut store = RevocationStore::clone(&config.revocation);
    store.set_fetches();
    config.revocation = Arc::new(store);
    pair.b.endpoint.set_config(config);
    pair
}

/// The places that B has been told to ask, in the order of the events.
fn asked(pair: &Pair) -> Vec<&[StatusSource]> {
    let asked = pair.b.events.iter().filter_map(|event| match event {
        Event::StatusNeeded(sources) => Some(sources.as_slice()),
        _ => None,
    });
    asked.collect()
}

/// All places that B awaits have been asked, and these CRLs came of it.
fn fetched(pair: &mut Pair, crls: &[&str]) {
    let mut fetched = RevocationStore::clone(&store(crls));
    fetched.set_fetches();
    for source in asked(pair).concat() {
        fetched.note_tried(source);
    }
    pair.b.endpoint.set_revocation(pair.now, Arc::new(fetched));
    pair.flush();
}

/// What waits so is no refusal yet.
#[test]
fn a_path_whose_status_can_be_fetched_names_the_places_to_ask() {
    let policy = RevocationPolicy::IfUri;
    let authorities = Authorities::new(&load(&revocation_file("certificates", "root"))).unwrap();
    let payload = |label: &str| Cert {
        encoding: CertEncoding::X509_SIGNATURE,
        data: load(&revocation_file("certificates", label))[0]
            .der()
            .to_vec(),
    };
    let sent = ["leaf-crl", "ca"].map(payload);
    let mut store = RevocationStore::clone(&store(&["root"]));
    let check = |store: &RevocationStore| {
        let revocation = Revocation {
            policy,
            store,
            asked: false,
        };
        let (rules, identity) = (CertificateRules::default(), id("moon.example.org"));
        let now = UnixTime::since_unix_epoch(NOW);
        let mut sent = PeerCertificates::new(&sent.each_ref());
        let peer = sent.verify(&authorities, &identity, now, &rules, &revocation);
        peer.and_then(|peer| peer.check_status())
    };
    // Nobody fetches.
    let Err(PeerAuthError::Path(PathError::UnknownStatus { subject, .. })) = check(&store) else {
        panic!("{:?}", check(&store))
    };
    assert_eq!(subject, "O=Example, CN=leaf");
    store.set_fetches();
    let places = ["ca.crl", "delta.crl"].map(|file| StatusSource::Crl {
        uri: format!("http://crl.example.org/{file}"),
    });
    let needed = PeerAuthError::StatusNeeded(places.into());
    assert_eq!(check(&store), Err(needed));
}

#[test]
fn files_of_crls_are_checked() {
    let error = |file: &[u8]| Crl::from_file_content(file).err();
    assert_eq!(error(b"nothing"), Some(CrlError::NoCrl));
    let whole = revocation_file("crls", "root");
    let cut = &whole[..whole.len() / 2];
    assert!(matches!(error(cut), Some(CrlError::Pem(_))));
    let empty = b"-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n";
    for file in [&empty[..], b"\x30\x00"] {
        assert!(matches!(error(file), Some(CrlError::Malformed(_))));
        assert!(matches!(Crl::reduce(file), Err(CrlError::Malformed(_))));
    }
    assert_eq!(Crl::reduce(b"nothing"), Err(CrlError::NoCrl));
}

#[test]
fn a_proof_waits_for_what_is_fetched() {
    use RevocationPolicy::{IfUri, Relaxed, Strict};
    // The CRL of the root names a delta CRL, and so do the others.
    let places = ["ca.crl", "delta.crl"].map(|file| StatusSource::Crl {
        uri: format!("http://crl.example.org/{file}"),
    });
    let no_delta = "is to be completed by a delta CRL";
    for initiator_is_a in [true, false] {
        for (policy, crls, refused) in [
            (Strict, &["root", "empty"][..], Some(no_delta)),
            (Relaxed, &["root", "empty"], None),
            (Relaxed, &["root", "empty", "delta"], None),
            (
                Relaxed,
                &["root", "empty", "delta-lists"],
                Some("was revoked at"),
            ),
            (Relaxed, &["root", "lists"], Some("was revoked at")),
            (Relaxed, &["root"], None),
            (IfUri, &["root"], Some("there is no CRL")),
        ] {
            let mut pair = fetching(policy);
            let side = match initiator_is_a {
                true => &mut pair.a,
                false => &mut pair.b,
            };
            side.endpoint.initiate(pair.now, "site", None).unwrap();
            pair.flush();
            // Long enough for some retransmissions, which change nothing.
            pair.run(Duration::from_secs(15));
            assert_eq!(asked(&pair), [&places], "{policy:?}: once");
            assert!(pair.b.up.is_empty() && pair.b.children.is_empty());
            assert_eq!(pair.b.refused(Refusal::AuthenticationFailed), 0);
            fetched(&mut pair, crls);
            pair.run(Duration::from_secs(1));
            let why = refusal_of(&pair);
            match refused {
                None => pair.assert_agreed(1, 1),
                Some(said) => assert!(why.is_some_and(|why| why.contains(said))),
            }
            pair.assert_clean_end();
        }
    }
}

#[test]
fn other_news_do_not_decide() {
    let mut pair = fetching(RevocationPolicy::Relaxed);
    pair.initiate();
    pair.run(Duration::from_secs(1));
    let mut unrelated = RevocationStore::clone(&store(&["root"]));
    unrelated.set_fetches();
    let unrelated = Arc::new(unrelated);
    for _ in 0..3 {
        pair.b.endpoint.set_revocation(pair.now, unrelated.clone());
        pair.flush();
        pair.run(Duration::from_secs(1));
        assert!(pair.b.up.is_empty());
    }
    // A place is named again each time: whoever asks them may have forgotten it.
    let places = asked(&pair);
    assert_eq!(places.len(), 4);
    assert!(places.iter().all(|place| *place == places[0]));
    fetched(&mut pair, &["root", "lists"]);
    pair.run(Duration::from_secs(1));
    assert!(refusal_of(&pair).is_some_and(|why| why.contains("was revoked")));
    pair.assert_clean_end();
}

#[test]
fn a_held_proof_ends_with_its_half_open_sa() {
    for initiator_is_a in [true, false] {
        let mut pair = fetching(RevocationPolicy::Relaxed);
        let side = match initiator_is_a {
            true => &mut pair.a,
            false => &mut pair.b,
        };
        side.endpoint.initiate(pair.now, "site", None).unwrap();
        pair.flush();
        // Nobody fetches.
        pair.run(Duration::from_secs(900));
        assert!(pair.b.up.is_empty());
        assert!(pair.b.endpoint.status().is_empty());
        fetched(&mut pair, &["root", "empty"]);
        pair.assert_clean_end();
    }
}

/// Somebody who saw the request sends it again from another address, while B asks for the status of the certificate.
#[test]
fn a_copy_of_a_held_request_moves_nobody() {
    let outside = |host| IpAddr::from([203, 0, 113, host]);
    let mut pair = fetching(RevocationPolicy::Relaxed);
    let mut judge = judge(&["root"], RevocationPolicy::Relaxed);
    change_connection(&mut judge, |b| b.remote_addrs = vec![AddressMatch::Any]);
    let mut fetches = RevocationStore::clone(&judge.revocation);
    fetches.set_fetches();
    judge.revocation = Arc::new(fetches);
    pair.b.endpoint.set_config(judge);
    pair.nat = Some((outside(9), 1000));
    pair.initiate();
    pair.run(Duration::from_secs(1));
    assert_eq!(asked(&pair).len(), 1, "it is held");
    let request = pair.a.sent.last().cloned().expect("the request");
    let thief = SocketAddr::new(outside(66), 4500);
    let own = request.remote;
    let payload = &request.payload;
    pair.b
        .endpoint
        .handle_datagram(pair.now, own, thief, payload);
    pair.flush();
    fetched(&mut pair, &["root", "empty"]);
    pair.run(Duration::from_secs(1));
    let status = pair.b.endpoint.status();
    let remotes: Vec<_> = status.iter().map(|sa| sa.remote).collect();
    assert_eq!(remotes, [SocketAddr::new(outside(9), 5500)]);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

/// The first connection finds that A's certificate is revoked. The second one takes the certificate's key as it is.
#[test]
fn no_other_connection_takes_a_peer_that_is_revoked() {
    for (crl, refused) in [("lists", true), ("stale", false)] {
        let mut pair = revocable(&[], RevocationPolicy::Relaxed);
        let mut judge = judge(&["root", crl], RevocationPolicy::Strict);
        let first = judge.connections[0].clone();
        let mut second = Connection::clone(&first);
        second.name = "second".to_owned();
        // Connections that name the key come first among those that are else alike.
        second.remote_addrs = vec![AddressMatch::Any];
        let leaf = load(&revocation_file("certificates", "leaf"));
        second.remote.method = RemoteMethod::PublicKey {
            keys: vec![leaf[0].public_key().clone()],
            signatures: Default::default(),
        };
        second.remote.id = id("moon.example.org");
        judge.connections = vec![first, Arc::new(second)];
        pair.b.endpoint.set_config(judge);
        pair.initiate();
        pair.run(Duration::from_secs(1));
        let why = refusal_of(&pair);
        assert_eq!(why.is_some(), refused, "{crl}: {why:?}");
        if refused {
            assert!(why.is_some_and(|why| why.contains("was revoked at")));
        }
        pair.assert_clean_end();
    }
}

#[test]
fn nothing_is_fetched_for_a_peer_that_is_refused_anyway() {
    let mut pair = fetching(RevocationPolicy::Strict);
    let mut config = judge(&["root"], RevocationPolicy::Strict);
    let mut fetches = RevocationStore::clone(&config.revocation);
    fetches.set_fetches();
    config.revocation = Arc::new(fetches);
    change_connection(&mut config, |connection| {
        if let RemoteMethod::Certificate { pinned, .. } = &mut connection.remote.method {
            *pinned = load(file!("moon-ecdsa256.pem"));
        }
    });
    pair.b.endpoint.set_config(config);
    pair.initiate();
    pair.run(Duration::from_secs(1));
    assert!(asked(&pair).is_empty());
    assert_eq!(pair.b.refused(Refusal::AuthenticationFailed), 1);
    pair.assert_clean_end();
}
