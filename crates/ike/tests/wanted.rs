//! Children that are to be up at all times, and what ends them.

use std::time::Duration;

use crate::common::script::Script;
use crate::common::*;
use esplanade_ike::config::{Connection, EndAction, StartAction};
use esplanade_ike::status::ConfiguredState;
use esplanade_ike::wire::{ExchangeType, Header, Notify, NotifyType, Payload};
use esplanade_ike::{DownReason, Event};

const SECOND: Duration = Duration::from_secs(1);

/// A has `start_action = start` unless the caller changes that, and the child is up.
fn started(more: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    let mut pair = Pair::with(|a, b| {
        a.keyingtries = 0;
        change_children(a, |child| child.start_action = StartAction::Start);
        more(a, b);
    });
    pair.a.endpoint.start(pair.now);
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair
}

/// B ends all its SAs as a gateway that stops, and begins without any state.
fn restart(pair: &mut Pair, after: Duration) {
    pair.b.endpoint.terminate_all(pair.now);
    pair.flush();
    pair.run(SECOND / 10);
    assert!(pair.a.children.is_empty());
    pair.b.dead = true;
    pair.run(after);
    pair.b = Side::new("b", B, config(default_configs().1), pair.now, 77);
}

/// The state of A's child, and whether it is wanted.
fn look(pair: &Pair) -> (ConfiguredState, bool) {
    let configured = pair.a.endpoint.configured();
    (configured[0].state, configured[0].wanted)
}

#[test]
fn what_starts_comes_back_when_the_peer_stops_in_good_order() {
    for away in [0, 2, 60, 900] {
        let mut pair = started(|_, _| {});
        restart(&mut pair, away * SECOND);
        assert!(look(&pair).1, "{away} s");
        pair.run(if away > 60 { 600 } else { 60 } * SECOND);
        pair.assert_agreed(1, 1);
        assert_eq!(look(&pair), (ConfiguredState::Up, true));
        pair.assert_clean_end();
    }
}

#[test]
fn what_starts_comes_back_when_the_peer_closes_it() {
    for child in [None, Some("net")] {
        let mut pair = started(|_, _| {});
        let (now, endpoint) = (pair.now, &mut pair.b.endpoint);
        endpoint.terminate(now, "site", child).unwrap();
        pair.flush();
        pair.run(10 * SECOND);
        pair.assert_agreed(1, 1);
        // A command of ours still means down.
        let (now, endpoint) = (pair.now, &mut pair.a.endpoint);
        endpoint.terminate(now, "site", child).unwrap();
        pair.flush();
        pair.run(900 * SECOND);
        assert!(pair.a.children.is_empty());
        assert_eq!(look(&pair), (ConfiguredState::Closed, false));
    }
}

#[test]
fn what_is_wanted_once_stays_closed_when_the_peer_closes_it() {
    let mut pair = Pair::with(|_, _| {});
    pair.initiate();
    pair.run(SECOND);
    pair.b.endpoint.terminate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(900 * SECOND);
    pair.assert_agreed(0, 0);
    assert_eq!(look(&pair), (ConfiguredState::Down, false));
}

/// Nobody uses the child, so that it is closed. It is not wanted until somebody asks for it.
#[test]
fn an_idle_child_that_starts_rests_until_it_is_asked_for() {
    let idle = |a: &mut Connection| change_children(a, |child| child.inactivity = 30 * SECOND);
    let mut pair = started(|a, _| idle(a));
    pair.run(900 * SECOND);
    pair.assert_agreed(1, 0);
    assert_eq!(look(&pair), (ConfiguredState::Down, false));
    pair.initiate();
    pair.run(SECOND);
    assert_eq!(look(&pair), (ConfiguredState::Up, true));
    // The end of the IKE SA is no end by silence.
    restart(&mut pair, 2 * SECOND);
    pair.run(20 * SECOND);
    pair.assert_agreed(1, 1);
}

/// The old IKE SA ends while an attempt to authenticate again is under way, which then fails.
#[test]
fn a_child_comes_back_when_its_attempt_outlives_the_old_ike_sa_and_fails() {
    for start_action in [StartAction::None, StartAction::Start] {
        let mut pair = started(|a, _| {
            (a.dpd_delay, a.dpd_timeout) = (30 * SECOND, 10 * SECOND);
            a.dpd_by_traffic = true;
            change_children(a, |child| {
                child.start_action = start_action;
                child.dpd_action = EndAction::Start;
            });
        });
        pair.b.dead = true;
        for _ in 0..60 {
            if let Some(child) = pair.a.children.keys().next() {
                let (now, endpoint) = (pair.now, &mut pair.a.endpoint);
                endpoint.note_outbound_traffic(now, *child);
            }
            pair.flush();
            pair.run(SECOND);
        }
        assert!(pair.a.children.is_empty(), "the old IKE SA has timed out");
        pair.run(600 * SECOND);
        pair.b.dead = false;
        pair.run(400 * SECOND);
        pair.assert_agreed(1, 1);
    }
}

/// The attempt fails while the old IKE SA is kept for its last response.
#[test]
fn a_child_comes_back_when_the_peer_ends_the_old_ike_sa_and_the_new_one_fails() {
    let mut pair = started(|a, _| {
        (a.retransmission.tries, a.retransmission.timeout) = (1, SECOND);
    });
    pair.attacker = Some(Box::new(|datagram| {
        let header = Header::decode(&datagram.payload).unwrap();
        if header.exchange == ExchangeType::IKE_SA_INIT {
            datagram.payload.clear();
        }
    }));
    let ike_sa = *pair.a.up.first().unwrap();
    let (now, endpoint) = (pair.now, &mut pair.a.endpoint);
    endpoint.reauthenticate_ike_sa(now, ike_sa).unwrap();
    pair.flush();
    pair.b.endpoint.terminate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(10 * SECOND);
    assert!(pair.a.children.is_empty());
    pair.attacker = None;
    pair.run(60 * SECOND);
    pair.assert_agreed(1, 1);
}

/// The peer says how long the authentication holds (RFC 4478), and does not answer then.
#[test]
fn the_peers_authenticate_again_before_the_lifetime_that_one_of_them_tells() {
    for (lifetime, within) in [(3600_u32, 3050..3241), (90, 22..46), (1, 5..6)] {
        let (mut side, start) = b_with(|_| {});
        let mut script = Script::established(&mut side, start);
        let data = lifetime.to_be_bytes().to_vec();
        let told = [Payload::Notify(Notify::new(
            NotifyType::AUTH_LIFETIME,
            data,
        ))];
        script.exchange(&mut side, start, ExchangeType::INFORMATIONAL, &told);
        let expired = |event: &Event| matches!(event, Event::IkeSaDown { reason, .. } if *reason == DownReason::Expired);
        let (mut now, mut again) = (start, None);
        while !side.events.iter().any(expired) {
            now = side.endpoint.poll_timeout().unwrap();
            side.endpoint.handle_timeout(now);
            let sent = Script::take(&mut side);
            let mut headers = sent.iter().filter_map(|sent| Header::decode(sent).ok());
            if headers.any(|header| header.exchange == ExchangeType::IKE_SA_INIT) {
                again.get_or_insert((now - start).as_secs());
            }
        }
        let ended = (now - start).as_secs();
        assert!(within.contains(&again.unwrap()), "{lifetime}: {again:?}");
        assert_eq!(ended, u64::from(lifetime.max(10)));
    }
}
