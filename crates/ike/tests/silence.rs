//! Silent peers: ESP that is lost while IKE passes, and attempts that get no answer.

use std::time::Duration;

use crate::common::*;
use esplanade_ike::config::{Connection, EndAction, Unique};
use esplanade_ike::event::{Attempt, OneWayChange, Silence};
use esplanade_ike::status::{ConfiguredState, OneWay, UdpTrial};
use esplanade_ike::wire::{ExchangeType, Header};
use esplanade_ike::{ChildSaId, DownReason, Event};
use esplanade_testkit::net::Datagram;

const SECOND: Duration = Duration::from_secs(1);

fn established(more: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let mut pair = Pair::with(|a, b| {
        for connection in [&mut *a, &mut *b] {
            connection.dpd_delay = 30 * SECOND;
            connection.dpd_by_traffic = true;
            connection.dpd_timeout = 10 * SECOND;
        }
        more(a, b);
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair
}

/// The child SA that A sends on.
fn newest(pair: &Pair) -> ChildSaId {
    *pair.a.children.keys().next_back().unwrap()
}

/// A sends for some seconds. The path takes IKE, and no ESP.
fn send_in_vain(pair: &mut Pair, seconds: u32) {
    for _ in 0..2 * seconds {
        let child = newest(pair);
        pair.a.endpoint.note_outbound_traffic(pair.now, child);
        pair.flush();
        pair.run(SECOND / 2);
    }
}

fn receive(pair: &mut Pair) {
    let child = newest(pair);
    pair.a.endpoint.note_inbound_traffic(pair.now, child);
    pair.flush();
    pair.run(SECOND / 2);
}

/// What A has told of one-way traffic since the last call.
fn told(pair: &mut Pair) -> Vec<OneWayChange> {
    let events = std::mem::take(&mut pair.a.events).into_iter();
    let changes = events.filter_map(|event| match event {
        Event::OneWay(told) => {
            assert_eq!((&*told.connection, &*told.name), ("site", "net"));
            Some(told.change)
        }
        _ => None,
    });
    changes.collect()
}

fn began(change: &OneWayChange) -> (OneWay, bool) {
    match change {
        OneWayChange::Began(one_way) => (*one_way, one_way.udp_trial == UdpTrial::Wanted),
        other => panic!("{other:?}"),
    }
}

/// The one-way traffic of the newest child SA of A, as its status has it.
fn shown(pair: &Pair) -> Option<OneWay> {
    let status = pair.a.endpoint.status_around(newest(pair)).unwrap();
    let mut children = status.children.iter();
    children
        .find(|child| child.id == newest(pair))
        .unwrap()
        .one_way
}

#[test]
fn esp_that_is_lost_while_ike_passes_is_told_once_and_when_it_ends() {
    // With UDP from the beginning nothing else can be tried.
    let mut pair = established(|a, _| a.encap = true);
    assert_eq!(shown(&pair), None);
    send_in_vain(&mut pair, 9);
    assert_eq!((told(&mut pair), shown(&pair)), (vec![], None));
    send_in_vain(&mut pair, 60);
    let (one_way, tries_udp) = began(&told(&mut pair)[..1][0]);
    assert!(!one_way.by_nature && !one_way.answered_before && !tries_udp);
    assert_eq!(shown(&pair), Some(one_way));
    send_in_vain(&mut pair, 60);
    assert_eq!(told(&mut pair), [], "told once");
    receive(&mut pair);
    let ended = told(&mut pair);
    assert!(
        matches!(ended[..], [OneWayChange::Ended { by_udp: false, lasted }] if lasted > 100 * SECOND),
        "{ended:?}"
    );
    assert_eq!(shown(&pair), None);
    pair.assert_agreed(1, 1);
}

#[test]
fn a_peer_that_does_not_answer_ike_either_is_dead_and_not_one_way() {
    let mut pair = established(|_, _| {});
    pair.b.dead = true;
    for _ in 0..120 {
        if pair.a.children.is_empty() {
            break;
        }
        send_in_vain(&mut pair, 1);
    }
    assert!(pair.a.children.is_empty());
    let down = |event: &Event| {
        matches!(
            event,
            Event::IkeSaDown {
                reason: DownReason::Timeout,
                ..
            }
        )
    };
    assert!(pair.a.events.iter().any(down));
    assert_eq!(told(&mut pair), []);
}

#[test]
fn a_rekey_neither_hides_one_way_traffic_nor_tells_it_again() {
    let mut pair = established(|a, _| a.encap = true);
    send_in_vain(&mut pair, 15);
    let (one_way, _) = began(&told(&mut pair)[0]);
    for child in [Some("net"), None] {
        let before = newest(&pair);
        pair.a.endpoint.rekey(pair.now, "site", child).unwrap();
        pair.flush();
        send_in_vain(&mut pair, 20);
        assert_eq!(newest(&pair) == before, child.is_none());
        assert_eq!((told(&mut pair), shown(&pair)), (vec![], Some(one_way)));
    }
    let id = *pair.a.up.last().unwrap();
    pair.a.endpoint.reauthenticate_ike_sa(pair.now, id).unwrap();
    pair.flush();
    send_in_vain(&mut pair, 20);
    assert_eq!((told(&mut pair), shown(&pair)), (vec![], Some(one_way)));
    assert_eq!(pair.a.up.len(), 1);
}

#[test]
fn a_peer_that_has_answered_before_may_be_silent_for_longer() {
    let mut pair = established(|_, _| {});
    receive(&mut pair);
    send_in_vain(&mut pair, 29);
    assert_eq!(told(&mut pair), []);
    send_in_vain(&mut pair, 10);
    let changes = told(&mut pair);
    let (one_way, tries_udp) = began(&changes[0]);
    assert!(one_way.answered_before && changes.len() == 1);
    assert!(!tries_udp, "ESP has passed");
    receive(&mut pair);
    told(&mut pair);
    send_in_vain(&mut pair, 60);
    assert_eq!(told(&mut pair), [], "as long a silence was no fault");
}

#[test]
fn traffic_that_may_need_no_answer_is_a_hint_and_nothing_is_tried() {
    let mut pair = established(|a, b| {
        udp_alone(a);
        udp_alone(b);
    });
    send_in_vain(&mut pair, 60);
    let changes = told(&mut pair);
    let (one_way, tries_udp) = began(&changes[0]);
    assert!(one_way.by_nature && !tries_udp && changes.len() == 1);
    assert_eq!(pair.a.installed.len(), 1);
}

#[test]
fn a_peer_that_answers_on_another_sa_of_the_child_answers() {
    // Both ends begin at once, and both IKE SAs stay.
    let mut pair = Pair::with(|a, b| {
        for connection in [a, b] {
            connection.encap = true;
            connection.unique = Unique::Never;
            connection.dpd_delay = 30 * SECOND;
            connection.dpd_by_traffic = true;
        }
    });
    pair.a.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(2, 2);
    let [first, second] = [0, 1].map(|n| *pair.a.children.keys().nth(n).unwrap());
    for _ in 0..120 {
        pair.a.endpoint.note_inbound_traffic(pair.now, first);
        pair.run(SECOND / 4);
        pair.a.endpoint.note_outbound_traffic(pair.now, second);
        pair.flush();
        pair.run(SECOND / 4);
    }
    assert_eq!(told(&mut pair), []);
}

#[test]
fn dummy_packets_need_no_answer() {
    let mut pair = established(|a, _| change_children(a, |child| child.sends_dummies = true));
    send_in_vain(&mut pair, 20);
    let (one_way, tries_udp) = began(&told(&mut pair)[0]);
    assert!(one_way.by_nature && !tries_udp);
}

#[test]
fn one_way_traffic_that_pauses_is_over_in_the_end() {
    let mut pair = established(|a, _| a.encap = true);
    send_in_vain(&mut pair, 15);
    pair.run(200 * SECOND);
    assert!(shown(&pair).is_some());
    told(&mut pair);
    pair.run(200 * SECOND);
    assert_eq!(told(&mut pair), [OneWayChange::Paused]);
    assert_eq!(shown(&pair), None);
}

// RFC 7296 R169
#[test]
fn esp_goes_in_udp_where_that_helps() {
    let mut pair = established(|_, _| {});
    send_in_vain(&mut pair, 12);
    let (one_way, tries_udp) = began(&told(&mut pair)[0]);
    assert!(tries_udp && !one_way.by_nature);
    let in_udp = |pair: &Pair| pair.a.children.get(&newest(pair)).unwrap().0.udp_encap;
    assert!(in_udp(&pair));
    receive(&mut pair);
    let ended = told(&mut pair);
    assert!(
        matches!(ended[..], [OneWayChange::Ended { by_udp: true, .. }]),
        "{ended:?}"
    );
    pair.run(60 * SECOND);
    pair.assert_agreed(1, 1);
    // Rekeys and reauthentications stay with it.
    let id = *pair.a.up.last().unwrap();
    pair.a.endpoint.reauthenticate_ike_sa(pair.now, id).unwrap();
    pair.run(60 * SECOND);
    assert!(in_udp(&pair));
    pair.assert_agreed(1, 1);
}

#[test]
fn udp_that_does_not_help_is_left_again_and_not_tried_twice() {
    let mut pair = established(|_, _| {});
    send_in_vain(&mut pair, 300);
    let changes = told(&mut pair);
    assert!(began(&changes[0]).1);
    assert_eq!(changes[1..], [OneWayChange::UdpInVain]);
    assert_eq!(shown(&pair).unwrap().udp_trial, UdpTrial::Failed);
    let of_child: Vec<_> = pair.a.installed.iter().map(|sa| sa.udp_encap).collect();
    assert_eq!(of_child, [false, true, false]);
    pair.assert_agreed(1, 1);
}

/// The SA of this child that A sends on.
fn newest_of(pair: &Pair, name: &str) -> ChildSaId {
    let mut children = pair.a.children.iter().rev();
    let found = children.find(|(_, (installed, _))| installed.name == name);
    *found.unwrap().0
}

fn in_udp(pair: &Pair, name: &str) -> bool {
    let (installed, _) = &pair.a.children[&newest_of(pair, name)];
    installed.udp_encap
}

/// Without the trial's outcome the next silence would undo what lets ESP pass.
#[test]
fn a_trial_that_pauses_has_helped_if_a_packet_comes_later() {
    let mut pair = established(|_, _| {});
    send_in_vain(&mut pair, 12);
    assert!(began(&told(&mut pair)[0]).1);
    pair.run(400 * SECOND);
    assert_eq!(told(&mut pair), [OneWayChange::Paused]);
    receive(&mut pair);
    send_in_vain(&mut pair, 60);
    let changes = told(&mut pair);
    assert_eq!((changes.len(), began(&changes[0]).1), (1, false));
    assert_eq!(shown(&pair).unwrap().udp_trial, UdpTrial::Helped);
    assert!(in_udp(&pair, "net"));
}

#[test]
fn a_trial_that_helps_one_child_is_not_in_vain_for_another() {
    let mut pair = Pair::with(|a, b| {
        a.dpd_delay = 30 * SECOND;
        a.dpd_by_traffic = true;
        let nets = ["10.8.0.0-10.8.0.255", "10.9.0.0-10.9.0.255"];
        a.children.push(child("other", nets[0], nets[1]).into());
        b.children.push(child("other", nets[1], nets[0]).into());
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 2);
    let send = |pair: &mut Pair, seconds: u32| {
        for _ in 0..2 * seconds {
            let child = newest_of(pair, "net");
            pair.a.endpoint.note_outbound_traffic(pair.now, child);
            pair.flush();
            pair.run(SECOND / 2);
        }
    };
    send(&mut pair, 13);
    assert!(began(&told(&mut pair)[0]).1);
    let other = newest_of(&pair, "other");
    pair.a.endpoint.note_inbound_traffic(pair.now, other);
    send(&mut pair, 60);
    assert_eq!(told(&mut pair), []);
    assert!(in_udp(&pair, "net") && in_udp(&pair, "other"));
}

/// An attacker who keeps new IKE SAs from coming up.
fn without_init(datagram: &mut Datagram) {
    let marker = if datagram.to.port() == 4500 { 4 } else { 0 };
    let header = Header::decode(&datagram.payload[marker..]);
    if header.is_ok_and(|header| header.exchange == ExchangeType::IKE_SA_INIT) {
        datagram.payload.clear();
    }
}

#[test]
fn a_trial_that_cannot_begin_is_over() {
    let mut pair = established(|a, _| a.reauth_time = 7200 * SECOND);
    pair.attacker = Some(Box::new(without_init));
    send_in_vain(&mut pair, 12);
    assert!(began(&told(&mut pair)[0]).1);
    assert_eq!(shown(&pair).unwrap().udp_trial, UdpTrial::Wanted);
    send_in_vain(&mut pair, 300);
    assert_eq!(shown(&pair).unwrap().udp_trial, UdpTrial::Untried);
    // Later traffic has a trial of its own.
    pair.attacker = None;
    pair.run(400 * SECOND);
    assert_eq!(told(&mut pair), [OneWayChange::Paused]);
    send_in_vain(&mut pair, 12);
    assert!(began(&told(&mut pair)[0]).1);
    assert!(in_udp(&pair, "net"));
}

/// A connection whose peer is silent until another IKE SA is tried, which does not come up.
fn reached_out() -> Pair {
    let mut pair = established(|a, _| {
        a.dpd_timeout = 60 * SECOND;
        change_children(a, |child| child.dpd_action = EndAction::Start);
    });
    pair.attacker = Some(Box::new(without_init));
    pair.b.dead = true;
    send_in_vain(&mut pair, 14);
    assert_eq!(pair.a.endpoint.status().len(), 2, "another IKE SA is tried");
    pair.b.dead = false;
    pair
}

/// The administrator waits for the outcome.
#[test]
fn a_reauthentication_does_not_end_because_the_peer_is_heard() {
    let mut pair = reached_out();
    let id = *pair.a.up.last().unwrap();
    pair.a.endpoint.reauthenticate_ike_sa(pair.now, id).unwrap();
    receive(&mut pair);
    pair.attacker = None;
    pair.run(60 * SECOND);
    let again =
        |event: &Event| matches!(event, Event::IkeSaReauthenticated { old, .. } if *old == id);
    assert!(pair.a.events.iter().any(again));
    pair.assert_agreed(1, 1);
}

/// An IKE SA that was tried beside this one, since its peer seemed to be gone, is no trial and hinders none.
#[test]
fn a_peer_that_was_silent_for_a_while_has_its_trial() {
    let mut pair = reached_out();
    send_in_vain(&mut pair, 10);
    pair.attacker = None;
    send_in_vain(&mut pair, 30);
    let changes = told(&mut pair);
    assert!(began(&changes[0]).1, "{changes:?}");
    assert_eq!(changes[1..], [OneWayChange::UdpInVain]);
}

#[test]
fn no_trial_is_made_where_esp_passes_again() {
    let mut pair = established(|_, _| {});
    pair.attacker = Some(Box::new(without_init));
    send_in_vain(&mut pair, 12);
    assert!(began(&told(&mut pair)[0]).1);
    receive(&mut pair);
    pair.run(300 * SECOND);
    pair.attacker = None;
    let id = *pair.a.up.last().unwrap();
    pair.a.endpoint.reauthenticate_ike_sa(pair.now, id).unwrap();
    pair.run(60 * SECOND);
    assert_eq!(pair.a.installed.len(), 2);
    assert!(!in_udp(&pair, "net"));
}

/// The attempt to bring up the child, as the status of A has it.
fn attempt(pair: &Pair) -> Option<Attempt> {
    let configured = pair.a.endpoint.configured();
    assert_eq!(configured[0].state, ConfiguredState::Connecting);
    configured[0].attempt.clone()
}

fn unanswered(pair: &Pair) -> Vec<&Attempt> {
    let events = pair.a.events.iter().filter_map(|event| match event {
        Event::Unanswered(attempt) => Some(&**attempt),
        _ => None,
    });
    events.collect()
}

#[test]
fn an_attempt_that_nobody_answers_is_shown_at_once_and_told_after_two_retransmissions() {
    let mut pair = Pair::with(|_, _| {});
    pair.b.dead = true;
    pair.initiate();
    pair.run(SECOND);
    assert_eq!(attempt(&pair).unwrap().unanswered, 1);
    pair.run(6 * SECOND);
    let shown = attempt(&pair).unwrap();
    assert_eq!((shown.unanswered, shown.since), (2, pair.start));
    assert_eq!(shown.seen(), format!("nothing has come from {B}"));
    assert!(
        shown.remedy().contains("UDP port 500"),
        "{}",
        shown.remedy()
    );
    assert!(unanswered(&pair).is_empty());
    pair.run(6 * SECOND);
    let told = unanswered(&pair);
    assert_eq!((told.len(), told[0].unanswered), (1, 3));
    pair.run(100 * SECOND);
    assert_eq!(unanswered(&pair).len(), 1);
}

#[test]
fn a_lost_ike_auth_names_the_port_that_it_goes_to() {
    for (encap, port) in [(true, "UDP port 4500"), (false, "large UDP datagrams")] {
        let mut pair = Pair::with(|a, _| a.encap = encap);
        pair.attacker = Some(Box::new(|datagram| {
            let marker = if datagram.to.port() == 4500 { 4 } else { 0 };
            let header = Header::decode(&datagram.payload[marker..]).unwrap();
            if header.exchange == ExchangeType::IKE_AUTH {
                datagram.payload.clear();
            }
        }));
        pair.initiate();
        pair.run(13 * SECOND);
        let told = unanswered(&pair);
        let silence = Silence::AfterInit {
            in_fragments: false,
        };
        assert_eq!((told.len(), &told[0].silence), (1, &silence));
        let seen = format!("{B} has answered IKE_SA_INIT, and does not answer IKE_AUTH");
        assert_eq!(told[0].seen(), seen);
        assert!(told[0].remedy().contains(port), "{}", told[0].remedy());
    }
}
