//! Connections that the configuration loses while peers of theirs, or of others, are on their way.

use std::sync::Arc;
use std::time::Duration;

use crate::common::script::{Script, error_of};
use crate::common::*;
use esplanade_ike::config::AddressMatch;
use esplanade_ike::wire::ExchangeType;

/// The gateway takes the first connection for its own in IKE_SA_INIT, and the peer means the second.
#[test]
fn a_peer_of_another_connection_goes_on() {
    let (mut side, now) = b_with(|config| {
        change_connection(config, |connection| {
            connection.remote_addrs = vec![AddressMatch::Any];
        });
        let mut other = (*config.connections[0]).clone();
        other.name = "other".to_owned();
        other.remote.id = id("other.example");
        config.connections.insert(0, Arc::new(other));
    });
    let mut script = Script::new();
    let payloads = script.init_payloads();
    script.init(&mut side, now, payloads).unwrap();
    side.endpoint.withdraw(now, "other", None);
    let payloads = script.auth_payloads(b"a shared secret");
    let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(error_of(&answer.expect("a response")), None);
    assert!(side.endpoint.is_established("site", None));
}
/// A rekey takes as long as the peer likes. The old SA sends no more, and the new SA is never used.
#[test]
fn a_child_sa_ends_at_once_while_it_is_rekeyed() {
    for both in [false, true] {
        let mut pair = Pair::established();
        pair.a
            .endpoint
            .rekey(pair.now, "site", Some("net"))
            .unwrap();
        if both {
            pair.b
                .endpoint
                .rekey(pair.now, "site", Some("net"))
                .unwrap();
        }
        pair.flush();
        let installed = pair.a.installed.len();
        pair.a.endpoint.withdraw(pair.now, "site", Some("net"));
        pair.flush();
        assert!(pair.a.children.is_empty());
        pair.run(Duration::from_secs(60));
        pair.assert_agreed(1, 0);
        assert_eq!(pair.a.installed.len(), installed);
        pair.assert_clean_end();
    }
}

/// The peer has replaced its child SA, and keeps the old one as long as it likes.
#[test]
fn a_replaced_child_sa_ends_with_its_child() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::established(&mut side, now);
    let rekey = Script::rekey_child_payloads();
    let answer = script.exchange(&mut side, now, ExchangeType::CREATE_CHILD_SA, &rekey);
    assert_eq!(error_of(&answer.expect("a response")), None);
    assert_eq!(side.endpoint.status()[0].children.len(), 2);
    side.endpoint.withdraw(now, "site", Some("net"));
    // It sends no more, whether the peer answers or not.
    assert!(side.endpoint.status()[0].children.is_empty());
    for _ in 0..3 {
        for sent in Script::take(&mut side) {
            script.answer(&mut side, now, &sent, &[]);
        }
    }
    assert!(side.endpoint.status()[0].children.is_empty());
}
