//! Peers with several addresses, of which not all lead to an IKE SA.

use std::net::IpAddr;
use std::time::Duration;

use crate::common::*;
use esplanade_ike::config::{AddressMatch, StartAction};
use esplanade_ike::wire::{ExchangeType, Header};
use esplanade_ike::{DownReason, Event};
use esplanade_testkit::net::Datagram;

const SECOND: Duration = Duration::from_secs(1);
const DEAD: [&str; 2] = ["203.0.113.8", "203.0.113.9"];

fn host(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A knows B by these addresses. Nobody receives at those in [`DEAD`].
fn pair(addresses: &[&str], tries: u32) -> Pair {
    let mut pair = Pair::with(|a, _| {
        let hosts = addresses.iter().map(|one| AddressMatch::Host(host(one)));
        (a.remote_addrs, a.keyingtries) = (hosts.collect(), tries);
        change_children(a, |child| child.start_action = StartAction::Start);
    });
    pair.attacker = Some(Box::new(|datagram: &mut Datagram| {
        if DEAD.map(host).contains(&datagram.to.ip()) {
            datagram.payload.clear();
        }
    }));
    pair
}

/// The addresses that A has tried, in this order.
fn tried(side: &Side) -> Vec<IpAddr> {
    let inits = side.sent.iter().filter(|sent| {
        let header = Header::decode(&sent.payload);
        header.is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT)
    });
    let mut remotes: Vec<_> = inits.map(|sent| sent.remote.ip()).collect();
    remotes.dedup();
    remotes
}

/// The outcomes of whole attempts: the reason, and whether there is another attempt.
fn failures(side: &Side) -> Vec<(&DownReason, bool)> {
    let failed = side.events.iter().filter_map(|event| match event {
        Event::ConnectFailed {
            reason, retry_in, ..
        } => Some((reason, retry_in.is_some())),
        _ => None,
    });
    failed.collect()
}

#[test]
fn the_next_address_is_tried_when_one_does_not_answer() {
    for (addresses, within) in [(vec![DEAD[0], B], 6), (vec![DEAD[0], DEAD[1], B], 11)] {
        let mut pair = pair(&addresses, 1);
        pair.initiate();
        pair.run(within * SECOND);
        pair.assert_agreed(1, 1);
        let expected: Vec<_> = addresses.iter().map(|one| host(one)).collect();
        assert_eq!(tried(&pair.a), expected);
        assert!(failures(&pair.a).is_empty());
        // The first address may be back.
        pair.a.sent.clear();
        pair.b.endpoint.terminate(pair.now, "site", None).unwrap();
        pair.flush();
        pair.run(within * SECOND);
        pair.assert_agreed(1, 1);
        assert_eq!(tried(&pair.a)[0], host(DEAD[0]));
        pair.assert_clean_end();
    }
}

#[test]
fn an_address_where_the_peer_is_another_one_is_passed_over() {
    let mut pair = pair(&[B, DEAD[0]], 0);
    let mut stranger = default_configs().1;
    stranger.local.id = id("c.example");
    pair.b = Side::new("b", B, config(stranger), pair.now, 77);
    pair.initiate();
    pair.run(SECOND);
    assert_eq!(tried(&pair.a), [B, DEAD[0]].map(host));
    assert!(failures(&pair.a).is_empty());
}

#[test]
fn an_attempt_has_failed_when_all_addresses_have() {
    let mut pair = pair(&DEAD, 3);
    pair.a.endpoint.start(pair.now);
    pair.flush();
    pair.run(600 * SECOND);
    let [first, second] = DEAD.map(host);
    let expected = [first, second, first, second, first, second];
    assert_eq!(tried(&pair.a), expected);
    let timeout = &DownReason::Timeout;
    let expected = [(timeout, true), (timeout, true), (timeout, false)];
    assert_eq!(failures(&pair.a), expected);
}

#[test]
fn a_single_address_has_as_long_as_retransmissions_last() {
    let mut pair = pair(&[DEAD[0]], 1);
    pair.initiate();
    pair.run(130 * SECOND);
    assert!(failures(&pair.a).is_empty());
    pair.run(40 * SECOND);
    assert_eq!(failures(&pair.a), [(&DownReason::Timeout, false)]);
}
