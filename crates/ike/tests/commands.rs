//! Commands and attempts that come to nothing, each with its reason: nothing to do it with, or no room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use esplanade_crypto::iana::Group;
use esplanade_ike::config::{AddressMatch, Config, Connection, Demand, StartAction, Unique};
use esplanade_ike::failure::{ConfigurationFault, Shortage};
use esplanade_ike::suite::{
    ActiveKeyExchange, DhError, DiffieHellman, KeyExchange, KeyExchangeAnswer,
};
use esplanade_ike::wire::TrafficSelector;
use esplanade_ike::{ChildFailure, CommandError, DownReason, Event};
use esplanade_testkit::net::Conditions;

const SECOND: Duration = Duration::from_secs(1);

/// The default pair with other configurations.
fn configured(change: impl FnOnce(&mut Config, &mut Config)) -> Pair {
    let (a, b) = default_configs();
    let (mut a, mut b) = (config(a), config(b));
    change(&mut a, &mut b);
    Pair::new(a, b, Conditions::PERFECT, 1)
}

fn of_a(change: impl FnOnce(&mut Connection)) -> Pair {
    Pair::with(|a, _| change(a))
}

fn initiate(pair: &mut Pair, child: Option<&str>) -> Result<(), CommandError> {
    let result = pair.a.endpoint.initiate(pair.now, "site", child);
    pair.flush();
    pair.run(SECOND);
    result
}

fn connect_failures(side: &Side) -> Vec<DownReason> {
    let failed = side.events.iter().filter_map(|event| match event {
        Event::ConnectFailed { reason, .. } | Event::ReauthenticationFailed { reason, .. } => {
            Some(reason.clone())
        }
        _ => None,
    });
    failed.collect()
}

fn child_failures(side: &Side) -> Vec<ChildFailure> {
    let failed = side.events.iter().filter_map(|event| match event {
        Event::ChildFailed { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    failed.collect()
}

fn downs(side: &Side) -> Vec<DownReason> {
    let downs = side.events.iter().filter_map(|event| match event {
        Event::IkeSaDown { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    downs.collect()
}

fn site() -> String {
    "site".to_owned()
}

/// A packet between the two networks.
fn packet() -> Demand {
    let host = |address: &str| {
        let address = address.parse().unwrap();
        TrafficSelector::addresses(address, address)
    };
    let ends = (host("10.1.0.7"), host("10.2.0.9"));
    Demand {
        packet: ends,
        selectors: ends,
    }
}

#[test]
fn what_is_not_configured_cannot_be_established() {
    let mut pair = of_a(|_| {});
    let other = "other".to_owned();
    let result = pair.a.endpoint.initiate(pair.now, "other", None);
    assert_eq!(result, Err(CommandError::NoConnection(other.clone())));
    let result = initiate(&mut pair, Some("other"));
    assert_eq!(result, Err(CommandError::NoChild(site(), other)));
    let mut pair = of_a(|a| a.remote_addrs = vec![AddressMatch::Any]);
    let result = initiate(&mut pair, None);
    assert_eq!(result, Err(CommandError::NoRemoteAddress(site())));
    let mut pair = of_a(|a| change_children(a, |child| child.from_packet = true));
    let result = initiate(&mut pair, Some("net"));
    assert_eq!(result, Err(CommandError::NeedsPacket("net".to_owned())));
    assert!(pair.a.sent.is_empty());
}

#[test]
fn traffic_does_not_open_what_a_command_has_closed() {
    let mut pair = of_a(|a| change_children(a, |child| child.start_action = StartAction::Start));
    initiate(&mut pair, None).unwrap();
    pair.assert_agreed(1, 1);
    let (now, packet) = (pair.now, packet());
    let endpoint = &mut pair.a.endpoint;
    assert_eq!(endpoint.acquire(now, "site", "net", &packet), Ok(()));
    assert!(!endpoint.is_closed_to_traffic("site", "net"));
    assert_eq!(endpoint.terminate(now, "site", Some("net")), Ok(1));
    assert!(endpoint.is_closed_to_traffic("site", "net"));
    let closed = Err(CommandError::Closed("net".to_owned()));
    assert_eq!(endpoint.acquire(now, "site", "net", &packet), closed);
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 0);
}

/// Only the initiator behind the NAT can reach the other end.
#[test]
fn who_is_behind_a_nat_authenticates_again_itself() {
    let mut pair = Pair::with(|_, b| {
        b.remote_addrs = vec![AddressMatch::Any];
        b.reauth_time = 100 * SECOND;
    });
    pair.nat = Some(("203.0.113.9".parse().unwrap(), 1000));
    initiate(&mut pair, None).unwrap();
    pair.assert_agreed(1, 1);
    let ike_sa = pair.b.endpoint.status()[0].id;
    let result = pair.b.endpoint.reauthenticate_ike_sa(pair.now, ike_sa);
    assert_eq!(result, Err(CommandError::BehindNat(site())));
    assert_eq!(connect_failures(&pair.b), []);
    pair.run(100 * SECOND);
    assert_eq!(connect_failures(&pair.b)[..1], [DownReason::BehindNat]);
    pair.assert_agreed(1, 1);
}

#[test]
fn an_attempt_above_a_limit_is_not_begun() {
    let mut pair = configured(|a, _| a.limits.ike_sas_max = 0);
    let result = initiate(&mut pair, None);
    assert_eq!(result, Err(CommandError::Limit(Shortage::IkeSas)));
    assert!(pair.a.sent.is_empty());
    let mut pair = configured(|a, _| {
        a.limits.queued_tasks_max = 0;
        change_connection(a, |a| {
            let second = child("second", "10.3.0.0-10.3.255.255", "10.4.0.0-10.4.255.255");
            a.children.push(second.into());
        });
    });
    initiate(&mut pair, Some("net")).unwrap();
    pair.assert_agreed(1, 1);
    let result = initiate(&mut pair, Some("second"));
    assert_eq!(result, Err(CommandError::Limit(Shortage::QueuedTasks)));
    pair.assert_agreed(1, 1);
}

/// No key pair can be made while this is set.
#[derive(Clone, Default)]
struct NoKeyPairs(Arc<AtomicBool>);

impl KeyExchange for NoKeyPairs {
    fn start(&self, method: Group) -> Result<Arc<dyn ActiveKeyExchange>, DhError> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(DhError::Generate(method)),
            false => DiffieHellman.start(method),
        }
    }

    fn check(&self, method: Group, initiator: &[u8]) -> Result<(), DhError> {
        DiffieHellman.check(method, initiator)
    }

    fn answer(&self, method: Group, initiator: &[u8]) -> Result<KeyExchangeAnswer, DhError> {
        DiffieHellman.answer(method, initiator)
    }
}

#[test]
fn without_a_key_pair_there_is_neither_an_ike_sa_nor_a_child() {
    let shortage = Shortage::KeyExchange;
    let second = |connection: &mut Connection, own: &str, peers: &str| {
        let mut second = child("second", own, peers);
        second.esp_proposals[0].groups = vec![Group::Curve25519];
        connection.children.push(second.into());
    };
    let (own, peers) = ("10.3.0.0-10.3.255.255", "10.4.0.0-10.4.255.255");
    let (mut a, mut b) = default_configs();
    second(&mut a, own, peers);
    second(&mut b, peers, own);
    let none = NoKeyPairs::default();
    let mut pair = Pair::new(config(a.clone()), config(b), Conditions::PERFECT, 1);
    pair.a = Side::with_host("a", A, config(a), pair.now, 2, |host| {
        host.key_exchange = Arc::new(none.clone());
    });
    none.0.store(true, Ordering::Relaxed);
    initiate(&mut pair, Some("net")).unwrap();
    assert_eq!(connect_failures(&pair.a), [DownReason::Resources(shortage)]);
    assert!(pair.a.sent.is_empty());
    none.0.store(false, Ordering::Relaxed);
    initiate(&mut pair, Some("net")).unwrap();
    pair.assert_agreed(1, 1);
    none.0.store(true, Ordering::Relaxed);
    initiate(&mut pair, Some("second")).unwrap();
    assert_eq!(child_failures(&pair.a), [ChildFailure::Resources(shortage)]);
    pair.assert_agreed(1, 1);
}

#[test]
fn without_an_spi_there_is_no_child() {
    let mut pair = of_a(|_| {});
    pair.a.spis.0.lock().unwrap().limit = Some(0);
    initiate(&mut pair, None).unwrap();
    let reason = DownReason::Resources(Shortage::Spi);
    assert_eq!(connect_failures(&pair.a), [reason]);
    let failure = ChildFailure::Resources(Shortage::Spi);
    assert_eq!(child_failures(&pair.a), [failure]);
    pair.assert_agreed(0, 0);
}

/// A proposal counts its transforms in one byte.
#[test]
fn what_no_message_can_hold_is_not_proposed() {
    let mut pair = of_a(|a| {
        let cipher = a.proposals[0].encryption[0];
        a.proposals[0].encryption = vec![cipher; 300];
    });
    initiate(&mut pair, None).unwrap();
    let [DownReason::Configuration(ConfigurationFault::CannotPropose(error))] =
        connect_failures(&pair.a)[..]
    else {
        panic!("{:?}", connect_failures(&pair.a))
    };
    assert!(error.to_string().contains("transforms"), "{error}");
    assert!(pair.a.sent.is_empty());
    let mut pair = of_a(|a| {
        change_children(a, |child| {
            let proposal = &mut child.esp_proposals[0];
            proposal.encryption = vec![proposal.encryption[0]; 300];
        });
    });
    initiate(&mut pair, None).unwrap();
    let reason = DownReason::Resources(Shortage::Message);
    assert_eq!(connect_failures(&pair.a), [reason]);
    assert_eq!(pair.a.sent.len(), 1, "IKE_SA_INIT alone");
}

/// Both ends initiate at once. One of the two IKE SAs is redundant.
#[test]
fn an_ike_sa_that_another_one_replaces_says_so() {
    let mut pair = Pair::with(|a, b| (a.unique, b.unique) = (Unique::Replace, Unique::Replace));
    pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
    initiate(&mut pair, None).unwrap();
    pair.run(30 * SECOND);
    pair.assert_agreed(1, 1);
    let ended = [downs(&pair.a), downs(&pair.b)].concat();
    let [one, other] = &ended[..] else {
        panic!("{ended:?}")
    };
    let mut reasons = [one.to_string(), other.to_string()];
    let mut expected = [DownReason::Superseded, DownReason::PeerDeleted].map(|one| one.to_string());
    reasons.sort();
    expected.sort();
    assert_eq!(reasons, expected);
}
