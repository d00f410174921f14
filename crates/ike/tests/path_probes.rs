//! Paths that lose long packets in silence: probes find how long packets may be, and harm no IKE SA.

use std::collections::HashSet;
use std::time::Duration;

use crate::common::script::Script;
use crate::common::*;
use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_ike::config::{AddressMatch, Connection, Fragmentation};
use esplanade_ike::event::PathFound;
use esplanade_ike::wire::{ExchangeType, Header, Message, Notify, NotifyType, Payload};
use esplanade_ike::{DownReason, Event};
use esplanade_testkit::net::{Conditions, Rng};

const SECOND: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(500);
/// The time between two rounds.
const ROUND: Duration = Duration::from_secs(600);
const LINK: u16 = 1500;

fn pair(change: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let mut pair = Pair::with(change);
    pair.a.longest_packet = Some(LINK);
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair
}

fn send_for(pair: &mut Pair, time: Duration) {
    let until = pair.now + time;
    while pair.now < until {
        if let Some(child) = pair.a.children.keys().next() {
            let (child, now) = (*child, pair.now);
            pair.a.endpoint.note_outbound_traffic(now, child);
            pair.a.endpoint.note_inbound_traffic(now, child);
            pair.flush();
        }
        pair.run(LOOK);
    }
}

fn found(side: &Side) -> Vec<PathFound> {
    let found = side.events.iter().filter_map(|event| match event {
        Event::PathProbed { found, .. } => Some(*found),
        _ => None,
    });
    found.collect()
}

/// The sizes of the packets of the probes that were sent.
fn probes(side: &Side) -> Vec<usize> {
    let probes = side.sent.iter().filter(|sent| sent.path_probe);
    probes
        .map(|sent| IPV4_AND_UDP + sent.payload.len())
        .collect()
}

fn narrow(mtu: u16, lost: u16) -> PathFound {
    PathFound::Narrow { mtu, lost }
}

fn downs(side: &Side) -> Vec<&DownReason> {
    let reasons = side.events.iter().filter_map(|event| match event {
        Event::IkeSaDown { reason, .. } => Some(reason),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn a_path_that_takes_all_costs_one_probe_in_ten_minutes_of_traffic() {
    let mut pair = pair(|_, _| {});
    pair.run(3600 * SECOND);
    assert_eq!(probes(&pair.a), [0; 0], "the tunnel is idle");
    send_for(&mut pair, 2 * SECOND);
    assert_eq!(probes(&pair.a), [1500]);
    assert_eq!(found(&pair.a), [PathFound::Whole]);
    send_for(&mut pair, ROUND - 10 * SECOND);
    assert_eq!(probes(&pair.a).len(), 1);
    send_for(&mut pair, 20 * SECOND);
    assert_eq!(probes(&pair.a).len(), 2);
    pair.run(3600 * SECOND);
    assert_eq!(probes(&pair.a).len(), 2);
    assert_eq!(probes(&pair.b), [0; 0], "it sends nothing");
    pair.assert_agreed(1, 1);
    pair.a.longest_packet = None;
    pair.assert_clean_end();
}

#[test]
fn a_narrow_path_is_found_in_seconds() {
    for (mtu, expected, lost) in [
        (1499, 1492, 1500),
        (1400, 1400, 1420),
        (1399, 1380, 1400),
        (1300, 1300, 1320),
        (1279, 1200, 1280),
        (1200, 1200, 1280),
    ] {
        let mut pair = pair(|_, _| {});
        pair.path_mtu = Some(mtu);
        send_for(&mut pair, 7 * SECOND);
        assert_eq!(
            found(&pair.a),
            [narrow(expected, lost)],
            "{mtu}: data can go on"
        );
        send_for(&mut pair, 100 * SECOND);
        assert_eq!(found(&pair.a), [narrow(expected, lost)], "{mtu}");
        pair.assert_agreed(1, 1);
        assert_eq!(downs(&pair.a), [&DownReason::Timeout; 0]);
        // The long form of a message is sent once.
        let all: Vec<_> = pair.a.sent.iter().filter(|sent| sent.path_probe).collect();
        let once: HashSet<_> = all.iter().map(|sent| &sent.payload).collect();
        assert_eq!(all.len(), once.len());
        assert!(all.len() <= 24, "{}", all.len());
        let counters = pair.a.endpoint.counters();
        assert_eq!(counters.path_probes_sent, all.len() as u64);
        let lost = probes(&pair.a).into_iter().filter(|len| *len > mtu);
        assert_eq!(counters.path_probes_lost, lost.count() as u64);
        pair.a.longest_packet = None;
        pair.assert_clean_end();
    }
}

#[test]
fn a_short_outage_of_long_packets_is_no_narrow_path() {
    let mut pair = pair(|_, _| {});
    pair.path_mtu = Some(1400);
    send_for(&mut pair, 4 * SECOND);
    assert_eq!(probes(&pair.a), [1500, 1500, 1500]);
    pair.path_mtu = None;
    send_for(&mut pair, 4 * SECOND);
    assert_eq!(probes(&pair.a)[3..5], [1200, 1280]);
    assert_eq!(found(&pair.a), [PathFound::Whole]);
}

#[test]
fn a_jumbo_path_may_be_narrow_too() {
    let mut pair = pair(|_, _| {});
    pair.a.longest_packet = Some(9216);
    pair.path_mtu = Some(9000);
    send_for(&mut pair, 10 * SECOND);
    // Some peers take no longer messages.
    assert_eq!(probes(&pair.a), [9000]);
    pair.path_mtu = Some(1500);
    send_for(&mut pair, ROUND + 10 * SECOND);
    assert_eq!(found(&pair.a), [PathFound::Whole, narrow(1500, 2002)]);
    pair.assert_agreed(1, 1);
}

#[test]
fn a_path_that_has_become_wide_again_is_found_in_ten_minutes_and_a_narrower_one_too() {
    let mut pair = pair(|_, _| {});
    pair.path_mtu = Some(1400);
    send_for(&mut pair, 20 * SECOND);
    assert_eq!(found(&pair.a), [narrow(1400, 1420)]);
    for mtu in [Some(1300), Some(1420), None] {
        pair.path_mtu = mtu;
        send_for(&mut pair, ROUND + 20 * SECOND);
    }
    let all = [
        narrow(1400, 1420),
        narrow(1300, 1320),
        narrow(1420, 1440),
        PathFound::Whole,
    ];
    assert_eq!(found(&pair.a), all);
    pair.assert_agreed(1, 1);
}

#[test]
fn what_icmp_tells_ends_the_search() {
    let mut pair = pair(|_, _| {});
    pair.path_mtu = Some(1400);
    send_for(&mut pair, LOOK);
    assert_eq!(probes(&pair.a), [1500]);
    // The router's error has come.
    pair.a.longest_packet = Some(1400);
    send_for(&mut pair, 20 * SECOND);
    assert_eq!(probes(&pair.a), [1500, 1400]);
    assert_eq!(found(&pair.a), [PathFound::Whole]);
    // What probes found does not count beside it.
    pair.path_mtu = Some(1380);
    send_for(&mut pair, ROUND);
    assert_eq!(found(&pair.a)[1..], [narrow(1380, 1400)]);
    pair.a.longest_packet = Some(1200);
    send_for(&mut pair, ROUND);
    assert_eq!(found(&pair.a)[2..], [PathFound::Whole]);
}

#[test]
fn a_peer_that_takes_no_fragments_of_messages_is_probed_too() {
    let mut pair = pair(|a, b| {
        a.fragmentation = Fragmentation::No;
        b.fragmentation = Fragmentation::No;
    });
    pair.path_mtu = Some(1400);
    send_for(&mut pair, 100 * SECOND);
    assert_eq!(found(&pair.a), [narrow(1400, 1420)]);
    assert_eq!(downs(&pair.a).len(), 0);
    pair.assert_agreed(1, 1);
}

#[test]
fn probes_can_be_switched_off() {
    let mut pair = pair(|a, _| a.path_mtu_probe = false);
    send_for(&mut pair, 100 * SECOND);
    assert_eq!(probes(&pair.a), [0; 0]);
}

/// RFC 7296 §2.1: the long request is repeated as it is. The peer here ignores other requests with its message ID.
#[test]
fn a_lost_answer_is_made_good() {
    let mut pair = pair(|_, _| {});
    pair.b.dead = true;
    send_for(&mut pair, LOOK);
    assert_eq!(probes(&pair.a), [1500]);
    pair.b.dead = false;
    // The request arrives now, and its answer is lost.
    let probe = pair.a.sent.last().unwrap().clone();
    let (to, from) = (probe.remote, probe.local);
    let now = pair.now;
    pair.b
        .endpoint
        .handle_datagram(now, to, from, &probe.payload);
    while pair.b.endpoint.poll_transmit().is_some() {}
    pair.run(10 * SECOND);
    let again = pair
        .a
        .sent
        .iter()
        .filter(|sent| sent.payload == probe.payload);
    let flags: Vec<_> = again.map(|sent| sent.path_probe).collect();
    assert_eq!(flags, [true, false]);
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.run(10 * SECOND);
    assert_eq!(downs(&pair.a).len(), 0);
    pair.assert_agreed(1, 1);
}

#[test]
fn packets_that_may_be_fragmented_are_not_probed_for() {
    let mut pair = pair(|_, _| {});
    pair.a.longest_packet = None;
    send_for(&mut pair, 10 * SECOND);
    let due = |event: &&Event| matches!(event, Event::PathProbeDue { .. });
    let asked = pair.a.events.iter().filter(due);
    let ids: Vec<_> = asked
        .map(|event| match event {
            Event::PathProbeDue { ike_sa, .. } => *ike_sa,
            _ => unreachable!(),
        })
        .collect();
    assert_eq!(ids.len(), 1, "asked once");
    pair.a.endpoint.probe_path(pair.now, ids[0], None);
    pair.flush();
    send_for(&mut pair, 10 * SECOND);
    assert_eq!(probes(&pair.a), [0; 0]);
    assert_eq!(found(&pair.a), []);
}

/// B answers everything but probes, and what goes in their place.
fn b_is_dead_to_probes(pair: &mut Pair) {
    let mut ignored = HashSet::new();
    pair.attacker = Some(Box::new(move |datagram| {
        let Ok(header) = Header::decode(&datagram.payload) else {
            return;
        };
        let request = (header.initiator_spi, header.message_id);
        if datagram.payload.len() > 1000 {
            ignored.insert(request);
        }
        if ignored.contains(&request) && !header.response {
            datagram.payload.clear();
        }
    }));
}

#[test]
fn a_peer_with_which_a_probe_ends_the_ike_sa_gets_no_other() {
    let mut pair = pair(|a, _| {
        a.dpd_delay = Duration::ZERO;
        let start = esplanade_ike::config::EndAction::Start;
        change_children(a, |child| child.dpd_action = start);
    });
    b_is_dead_to_probes(&mut pair);
    send_for(&mut pair, 400 * SECOND);
    assert_eq!(downs(&pair.a), [&DownReason::Timeout]);
    assert_eq!(found(&pair.a), [PathFound::Refused]);
    assert_eq!(pair.a.ike_sas().len(), 1, "it is up again");
    send_for(&mut pair, 10 * ROUND);
    assert_eq!(probes(&pair.a).len(), 1);
    assert_eq!(downs(&pair.a).len(), 1);
}

#[test]
fn a_path_that_takes_no_probe_of_any_size_stays_as_it_is() {
    let mut pair = pair(|_, _| {});
    pair.path_mtu = Some(1100);
    send_for(&mut pair, 60 * SECOND);
    assert_eq!(found(&pair.a), [PathFound::Nothing]);
    assert_eq!(probes(&pair.a), [1500, 1500, 1500, 1200, 1200, 1200]);
    pair.assert_agreed(1, 1);
    send_for(&mut pair, ROUND / 2);
    assert_eq!(probes(&pair.a).len(), 6);
}

#[test]
fn an_answer_with_an_error_ends_the_probes() {
    // A scripted initiator: here B is the gateway that probes.
    let (mut b, now) = b_with(|_| {});
    b.longest_packet = Some(LINK);
    let mut script = Script::new();
    let mut payloads = script.init_payloads();
    let takes_fragments = Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, vec![]);
    payloads.push(Payload::Notify(takes_fragments));
    script.init(&mut b, now, payloads).unwrap();
    let payloads = script.auth_payloads(b"a shared secret");
    let auth = ExchangeType::IKE_AUTH;
    script.exchange(&mut b, now, auth, &payloads).unwrap();
    let installed = b.events.iter().find_map(|event| match event {
        Event::ChildSaInstalled(child) => Some(child.child),
        _ => None,
    });
    let child = installed.unwrap();
    b.endpoint.note_inbound_traffic(now, child);
    b.endpoint.note_outbound_traffic(now, child);
    let sent = drain(&mut b, now);
    let probe = sent.iter().find(|sent| sent.path_probe).unwrap();
    let request = script.open(&probe.payload);
    let notify = request.notifications().next().unwrap();
    assert!(
        !notify.kind.is_error() && notify.kind.0 >= 40_960,
        "{:?}",
        notify.kind
    );
    assert_eq!(request.payloads.len(), 1);
    let header = Header {
        response: true,
        from_initiator: true,
        ..request.header
    };
    let error = Notify::new(NotifyType::NO_ADDITIONAL_SAS, vec![]);
    let answer = script.seal(&header, &[Payload::Notify(error)]);
    b.endpoint
        .handle_datagram(now, script.remote, script.local, &answer);
    drain(&mut b, now);
    assert_eq!(found(&b), [PathFound::Refused]);
    for minutes in 1..100 {
        let later = now + 60 * minutes * SECOND;
        b.endpoint.note_inbound_traffic(later, child);
        b.endpoint.note_outbound_traffic(later, child);
        let sent = drain(&mut b, later);
        assert!(!sent.iter().any(|sent| sent.path_probe));
    }
    assert_eq!(downs(&b).len(), 0);
}

fn drain(side: &mut Side, now: std::time::Instant) -> Vec<esplanade_ike::Transmit> {
    side.take_events(now, Duration::ZERO);
    std::iter::from_fn(|| side.endpoint.poll_transmit()).collect()
}

#[test]
fn a_peer_that_moves_is_probed_anew() {
    let outside = |last: u8| std::net::IpAddr::from([203, 0, 113, last]);
    let mut pair = Pair::with(|a, b| {
        b.remote_addrs = vec![AddressMatch::Any];
        (a.path_mtu_probe, b.path_mtu_probe) = (false, true);
    });
    pair.nat = Some((outside(9), 1000));
    pair.b.longest_packet = Some(LINK);
    pair.path_mtu = Some(1400);
    pair.initiate();
    pair.run(SECOND);
    let traffic = |pair: &mut Pair, time| {
        let until = pair.now + time;
        while pair.now < until {
            let (child, now) = (*pair.b.children.keys().next().unwrap(), pair.now);
            pair.b.endpoint.note_outbound_traffic(now, child);
            pair.flush();
            pair.run(LOOK);
        }
    };
    traffic(&mut pair, 20 * SECOND);
    assert_eq!(found(&pair.b), [narrow(1400, 1420)]);
    pair.nat = Some((outside(9), 2000));
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    traffic(&mut pair, 20 * SECOND);
    assert_eq!(found(&pair.b).len(), 1, "another port is the same path");
    pair.nat = Some((outside(10), 1000));
    pair.path_mtu = Some(1380);
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    traffic(&mut pair, 20 * SECOND);
    assert_eq!(found(&pair.b)[1..], [narrow(1380, 1400)]);
}

#[test]
fn a_block_cipher_makes_probes_a_little_shorter() {
    let mut pair = pair(|a, b| {
        for end in [a, b] {
            end.proposals[0].encryption = vec![(Encryption::AesCbc, 256)];
            end.proposals[0].integrity = vec![Integrity::HmacSha2_256_128];
        }
    });
    pair.path_mtu = Some(1400);
    send_for(&mut pair, 20 * SECOND);
    let sent = probes(&pair.a);
    assert!(sent[0] <= 1500 && sent[0] > 1484, "{sent:?}");
    let found = found(&pair.a);
    assert!(
        matches!(found[..], [PathFound::Narrow { mtu, lost: 1420 }] if mtu <= 1400 && mtu > 1384),
        "{found:?}"
    );
}

#[test]
fn what_is_to_be_sent_does_not_wait_for_a_probe() {
    let mut pair = pair(|_, _| {});
    pair.path_mtu = Some(1400);
    send_for(&mut pair, LOOK);
    assert_eq!(probes(&pair.a), [1500]);
    let before = pair.now;
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(200 * SECOND / 1000);
    let rekeyed = pair.a.events.iter().filter(
        |event| matches!(event, Event::ChildSaInstalled(new) if new.rekeyed_from.is_some()),
    );
    assert_eq!(rekeyed.count(), 1, "after {:?}", pair.now - before);
    // That answer says nothing about the path: three more are lost.
    send_for(&mut pair, 20 * SECOND);
    assert_eq!(probes(&pair.a)[..5], [1500, 1500, 1500, 1500, 1200]);
    assert_eq!(found(&pair.a), [narrow(1400, 1420)]);
    pair.assert_agreed(1, 1);
}

#[test]
fn a_dead_peer_is_found_as_fast_as_without_probes() {
    let mut pair = pair(|a, _| {
        a.dpd_delay = 30 * SECOND;
        a.dpd_by_traffic = true;
        a.dpd_timeout = 10 * SECOND;
    });
    pair.b.dead = true;
    let begin = pair.now;
    while downs(&pair.a).is_empty() && pair.now < begin + 100 * SECOND {
        if let Some(child) = pair.a.children.keys().next() {
            let (child, now) = (*child, pair.now);
            pair.a.endpoint.note_outbound_traffic(now, child);
            pair.flush();
        }
        pair.run(LOOK);
    }
    assert_eq!(downs(&pair.a), [&DownReason::Timeout]);
    assert!(pair.now - begin < 43 * SECOND, "{:?}", pair.now - begin);
}

/// Whatever a network loses, delays and repeats: the IKE SA lives, and what is found is true of the path.
#[test]
fn a_bad_network_costs_time_only() {
    let mut rng = Rng::new(8899);
    for seed in 0..30 {
        let (a, b) = default_configs();
        let conditions = Conditions {
            loss: 0.1,
            duplication: 0.2,
            corruption: 0.0,
            delay: Duration::from_millis(5)..Duration::from_millis(300),
        };
        let mut pair = Pair::new(config(a), config(b), conditions, seed);
        (pair.a.longest_packet, pair.b.longest_packet) = (Some(LINK), Some(LINK));
        pair.initiate();
        pair.run(60 * SECOND);
        pair.assert_agreed(1, 1);
        let mtu = 1280 + rng.below(221) as usize;
        pair.path_mtu = Some(mtu);
        send_for(&mut pair, 2 * ROUND);
        pair.run(60 * SECOND);
        pair.assert_agreed(1, 1);
        assert_eq!(downs(&pair.a).len() + downs(&pair.b).len(), 0);
        for found in found(&pair.a) {
            match found {
                PathFound::Narrow { mtu: found, .. } => assert!(usize::from(found) <= mtu),
                PathFound::Whole => assert_eq!(mtu, 1500),
                PathFound::Nothing => {}
                PathFound::Refused => panic!("nobody refuses"),
            }
        }
    }
}

/// Nobody without the keys can confirm a size, or have one counted as lost.
#[test]
fn what_nobody_has_authenticated_finds_nothing() {
    let mut pair = pair(|_, _| {});
    pair.attacker = Some(Box::new(|datagram| {
        let header = Header::decode(&datagram.payload).ok();
        if let Some(header) = header.filter(|header| header.response) {
            // An answer of the attacker's own.
            let payloads = vec![];
            datagram.payload = Message { header, payloads }.encode().unwrap();
        }
    }));
    send_for(&mut pair, 100 * SECOND);
    assert_eq!(found(&pair.a), []);
}
