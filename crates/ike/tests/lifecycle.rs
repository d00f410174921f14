//! The life of children: late networks, silent and restarted peers, and commands.

use std::net::IpAddr;
use std::time::Duration;

use crate::common::script::{Script, error_of};
use crate::common::*;
use esplanade_ike::config::{AddressMatch, Child, Connection, EndAction, StartAction, Unique};
use esplanade_ike::status::{ConfiguredState, IkeSaState};
use esplanade_ike::wire::{Delete, ExchangeType, Id, IdType, Payload, ProtocolId};
use esplanade_ike::{ChildFailure, CommandError, DownReason, Event, IkeSaId};
use esplanade_testkit::net::Conditions;

const SECOND: Duration = Duration::from_secs(1);

/// A has `start_action = start`.
fn starting(more: impl FnOnce(&mut Connection, &mut Connection)) -> Pair {
    Pair::with(|a, b| {
        change_children(a, |child| child.start_action = StartAction::Start);
        more(a, b);
    })
}

fn start(pair: &mut Pair) {
    pair.a.endpoint.start(pair.now);
    pair.flush();
}

fn failures(side: &Side) -> Vec<(&DownReason, Option<Duration>)> {
    let failure = |event| match event {
        &Event::ConnectFailed {
            ref reason,
            retry_in,
            ..
        } => Some((reason, retry_in)),
        _ => None,
    };
    side.events.iter().filter_map(failure).collect()
}

fn own_address(side: &Side) -> Option<IpAddr> {
    Some(side.address)
}

fn set_address(side: &Side, address: Option<IpAddr>) {
    *side.routes.0.lock().unwrap() = address;
}

#[test]
fn what_starts_waits_for_a_late_network() {
    // An attempt that cannot be sent does not count as an attempt.
    for (tries, fixed) in [(1, false), (0, false), (3, true)] {
        let mut pair = starting(|a, _| {
            a.keyingtries = tries;
            if !fixed {
                a.local_addrs.clear();
            }
        });
        let address = own_address(&pair.a);
        set_address(&pair.a, None);
        start(&mut pair);
        pair.run(600 * SECOND);
        assert!(pair.a.sent.is_empty());
        let [(DownReason::NoRoute, Some(_))] = failures(&pair.a)[..] else {
            panic!("told once: {:?}", failures(&pair.a))
        };
        set_address(&pair.a, address);
        pair.run(30 * SECOND);
        pair.assert_agreed(1, 1);
        pair.assert_clean_end();
    }
}

#[test]
fn a_command_says_that_there_is_no_way() {
    let mut pair = Pair::with(|_, _| {});
    let address = own_address(&pair.a);
    set_address(&pair.a, None);
    let result = pair.a.endpoint.initiate(pair.now, "site", None);
    assert_eq!(result, Err(CommandError::NoRoute("site".to_owned())));
    set_address(&pair.a, address);
    pair.run(600 * SECOND);
    assert!(pair.a.sent.is_empty(), "nobody waits for it any more");
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
}

#[test]
fn each_attempt_leaves_from_the_address_of_its_time() {
    let mut pair = starting(|a, _| {
        a.local_addrs.clear();
        a.keyingtries = 0;
    });
    // The address of the first attempt leads nowhere.
    let old = "192.0.2.77".parse().unwrap();
    set_address(&pair.a, Some(old));
    let new = std::mem::replace(&mut pair.a.address, old);
    pair.b.dead = true;
    start(&mut pair);
    pair.run(10 * SECOND);
    assert!(!pair.a.sent.is_empty());
    set_address(&pair.a, Some(new));
    while failures(&pair.a).is_empty() {
        pair.run(SECOND);
    }
    (pair.a.address, pair.b.dead) = (new, false);
    pair.run(20 * SECOND);
    pair.assert_agreed(1, 1);
}

#[test]
fn what_starts_comes_back_after_a_failure() {
    let mut pair = starting(|a, _| {
        a.keyingtries = 0;
        a.dpd_delay = 10 * SECOND;
    });
    pair.b.dead = true;
    start(&mut pair);
    pair.run(900 * SECOND);
    assert!(failures(&pair.a).len() >= 3, "{:?}", failures(&pair.a));
    pair.b.dead = false;
    pair.run(400 * SECOND);
    pair.assert_agreed(1, 1);
    // The child has no `dpd_action`, and is wanted still.
    pair.b.dead = true;
    pair.run(300 * SECOND);
    assert!(pair.a.children.is_empty());
    pair.b.dead = false;
    pair.run(400 * SECOND);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

#[test]
fn a_number_of_attempts_is_kept() {
    let mut pair = starting(|a, _| a.keyingtries = 3);
    pair.b.dead = true;
    start(&mut pair);
    pair.run(7200 * SECOND);
    let tried: Vec<_> = (failures(&pair.a).iter())
        .map(|(_, retry)| retry.is_some())
        .collect();
    assert_eq!(tried, [true, true, false]);
    pair.b.dead = false;
    start(&mut pair);
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
}

// RFC 7296 R15
#[test]
fn a_child_that_was_refused_is_tried_again() {
    let two = |(a, b): (&str, &str)| child("two", a, b);
    let nets = ("10.3.0.0-10.3.0.255", "10.4.0.0-10.4.0.255");
    let mut pair = starting(|a, b| {
        a.keyingtries = 0;
        let mut second = two(nets);
        second.start_action = StartAction::Start;
        a.children.push(second.into());
        b.children.push(two(("10.9.0.0-10.9.0.255", nets.0)).into());
    });
    start(&mut pair);
    pair.run(60 * SECOND);
    let refused = |event: &&Event| matches!(event, Event::ChildFailed { reason: ChildFailure::TsUnacceptable { .. }, child, .. } if child == "two");
    let times = pair.a.events.iter().filter(refused).count();
    assert!((2..10).contains(&times), "with a growing pause: {times}");
    pair.assert_agreed(1, 1);
    // The other end is repaired.
    let (_, mut b) = default_configs();
    b.children.push(two((nets.1, nets.0)).into());
    pair.b.endpoint.withdraw(pair.now, "site", None);
    pair.b.endpoint.set_config(config(b));
    pair.flush();
    pair.run(SECOND);
    start(&mut pair);
    pair.run(5 * SECOND);
    pair.assert_agreed(1, 2);
    pair.assert_clean_end();
}

#[test]
fn what_a_command_closes_stays_closed() {
    let mut pair = starting(|a, _| {
        a.keyingtries = 0;
        a.dpd_delay = 10 * SECOND;
        change_children(a, |child| {
            (child.dpd_action, child.close_action) = (EndAction::Start, EndAction::Start);
        });
    });
    start(&mut pair);
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    for child in [Some("net"), None] {
        assert_eq!(
            pair.a.endpoint.terminate(pair.now, "site", child),
            Ok(1),
            "{child:?}"
        );
        pair.flush();
        pair.run(60 * SECOND);
        // A reload checks what is to be up.
        start(&mut pair);
        pair.run(900 * SECOND);
        assert!(pair.a.children.is_empty() && pair.b.children.is_empty());
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
    }
    // The peer's delete counts again.
    pair.b
        .endpoint
        .terminate(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(10 * SECOND);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

#[test]
fn a_command_stops_what_waits_for_its_next_attempt() {
    let mut pair = starting(|a, _| a.keyingtries = 0);
    pair.b.dead = true;
    start(&mut pair);
    while failures(&pair.a).is_empty() {
        pair.run(SECOND);
    }
    assert!(pair.a.endpoint.status().is_empty());
    assert_eq!(pair.a.endpoint.terminate(pair.now, "site", None), Ok(1));
    assert_eq!(pair.a.endpoint.terminate(pair.now, "site", None), Ok(0));
    assert_eq!(pair.a.endpoint.poll_timeout(), None);
}

#[test]
fn what_is_not_wanted_any_more_is_not_tried_again() {
    let mut pair = starting(|a, _| a.keyingtries = 0);
    pair.b.dead = true;
    start(&mut pair);
    while failures(&pair.a).is_empty() {
        pair.run(SECOND);
    }
    assert_eq!(look(&pair).0, ConfiguredState::Waiting);
    let sent = pair.a.sent.len();
    // The child stays, and its `start_action` goes.
    pair.a.endpoint.set_config(config(default_configs().0));
    start(&mut pair);
    assert_eq!(look(&pair).0, ConfiguredState::Down);
    assert_eq!(pair.a.endpoint.poll_timeout(), None);
    pair.b.dead = false;
    pair.run(900 * SECOND);
    assert_eq!(pair.a.sent.len(), sent);
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    pair.assert_clean_end();
}

/// A calls B, and lets others call it over the same connection.
fn with_callers(more: impl FnOnce(&mut Connection)) -> Pair {
    starting(|a, _| {
        a.remote_addrs.push(AddressMatch::Any);
        a.remote.id = id("*.example");
        a.keyingtries = 0;
        change_children(a, |child| child.overlap = true);
        more(a);
    })
}

/// The IKE SA of another peer, with the same child.
fn call_a(pair: &mut Pair) -> (Script, IkeSaId) {
    let mut script = Script::new();
    script.local = "203.0.113.5:500".parse().unwrap();
    script.remote = format!("{A}:500").parse().unwrap();
    script.id = Id::new(IdType::FQDN, b"c.example".to_vec());
    let payloads = script.init_payloads();
    script.init(&mut pair.a, pair.now, payloads).unwrap();
    let mut payloads = script.auth_payloads(b"a shared secret");
    for payload in &mut payloads {
        *payload = match std::mem::replace(payload, Payload::Nonce(vec![])) {
            Payload::TsI(ours) => Payload::TsR(ours),
            Payload::TsR(theirs) => Payload::TsI(theirs),
            other => other,
        };
    }
    let exchange = ExchangeType::IKE_AUTH;
    let answer = script.exchange(&mut pair.a, pair.now, exchange, &payloads);
    assert_eq!(error_of(&answer.unwrap()), None);
    let sas = pair.a.endpoint.status();
    let own = sas.iter().find(|sa| sa.remote == script.local).unwrap();
    assert_eq!(own.children.len(), 1);
    (script, own.id)
}

#[test]
fn another_peer_of_the_connection_is_not_the_one_that_is_called() {
    let mut pair = with_callers(|_| {});
    call_a(&mut pair);
    start(&mut pair);
    assert_eq!(look(&pair).0, ConfiguredState::Connecting);
    pair.run(SECOND);
    assert_eq!(look(&pair).0, ConfiguredState::Up);
    let with_b = |pair: &Pair| {
        let sas = pair.a.endpoint.status();
        let children = sas
            .into_iter()
            .filter(|sa| sa.remote.ip() == pair.b.address);
        children.map(|sa| sa.children.len()).sum::<usize>()
    };
    assert_eq!((with_b(&pair), pair.b.children.len()), (1, 1));
    // The other peer's SA comes while B cannot be reached.
    let mut pair = with_callers(|_| {});
    pair.b.dead = true;
    start(&mut pair);
    pair.run(30 * SECOND);
    call_a(&mut pair);
    pair.run(300 * SECOND);
    assert!(failures(&pair.a).iter().all(|(_, retry)| retry.is_some()));
    pair.b.dead = false;
    pair.run(400 * SECOND);
    assert_eq!((with_b(&pair), pair.b.children.len()), (1, 1));
}

#[test]
fn the_end_of_another_peers_sa_is_no_end_of_the_goal() {
    for by_command in [false, true] {
        let mut pair = with_callers(|a| a.dpd_delay = 10 * SECOND);
        start(&mut pair);
        pair.run(SECOND);
        let (mut script, sa) = call_a(&mut pair);
        if by_command {
            pair.a.endpoint.terminate_ike_sa(pair.now, sa).unwrap();
            Script::take(&mut pair.a);
        } else {
            let delete = Delete {
                protocol: ProtocolId::IKE,
                spis: vec![],
            };
            let delete = [Payload::Delete(delete)];
            let exchange = ExchangeType::INFORMATIONAL;
            script.exchange(&mut pair.a, pair.now, exchange, &delete);
        }
        // A child that is to be up is not given up because the peer is silent.
        pair.b.dead = true;
        pair.run(300 * SECOND);
        assert!(pair.a.children.is_empty());
        pair.b.dead = false;
        pair.run(400 * SECOND);
        assert_eq!(pair.a.children.len(), 1, "by command: {by_command}");
    }
}

#[test]
fn what_does_not_last_is_tried_more_and_more_seldom() {
    for close_action in [EndAction::Clear, EndAction::Start] {
        deleted_again_and_again(close_action);
    }
}

fn deleted_again_and_again(close_action: EndAction) {
    let mut pair = starting(|a, _| {
        a.keyingtries = 0;
        change_children(a, |child| child.close_action = close_action);
    });
    start(&mut pair);
    for _ in 0..3600 {
        pair.run(SECOND);
        // The peer deletes the child again and again.
        let _ = pair.b.endpoint.terminate(pair.now, "site", Some("net"));
        pair.flush();
    }
    let times = pair.a.installed.len();
    assert!((10..30).contains(&times), "{times} times in an hour");
}

fn assert_down(side: &Side, case: &str) {
    assert!(side.children.is_empty(), "{case}: {:?}", side.children);
    for sa in side.endpoint.status() {
        assert_eq!(sa.state, IkeSaState::Deleting, "{case}");
        assert!(sa.children.is_empty(), "{case}");
    }
}

/// In every phase of an IKE SA, `down` closes this end at once.
#[test]
fn a_silent_peer_holds_no_command_up() {
    type Prepare = fn(&mut Pair);
    let cases: [(&str, Prepare); 6] = [
        ("idle", |_| {}),
        ("liveness", |pair| pair.run(10 * SECOND)),
        ("our rekey of the IKE SA", |pair| {
            pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
        }),
        ("our rekey of the child SA", |pair| {
            let rekey = pair.a.endpoint.rekey(pair.now, "site", Some("net"));
            rekey.unwrap();
        }),
        ("a delete of the child SA", |pair| {
            let down = pair.a.endpoint.terminate(pair.now, "site", Some("net"));
            down.unwrap();
        }),
        ("an answer of the peer to our rekey", |pair| {
            pair.b.dead = false;
            pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
            pair.flush();
            pair.run(SECOND);
            pair.b.dead = true;
        }),
    ];
    for (case, prepare) in cases {
        let mut pair = Pair::with(|a, _| a.dpd_delay = 5 * SECOND);
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        pair.b.dead = true;
        prepare(&mut pair);
        pair.flush();
        pair.a.endpoint.terminate(pair.now, "site", None).unwrap();
        pair.flush();
        assert_down(&pair.a, case);
        // The peer gets the delete when it is back in time.
        pair.run(3 * SECOND);
        assert_down(&pair.a, case);
        pair.b.dead = false;
        pair.run(300 * SECOND);
        pair.assert_agreed(0, 0);
        let ends = |event: &&Event| matches!(event, Event::IkeSaDown { reason, .. } if *reason == DownReason::Terminated);
        assert_eq!(pair.a.events.iter().filter(ends).count(), 1, "{case}");
        pair.assert_clean_end();
    }
}

#[test]
fn a_command_ends_an_attempt_that_the_peer_does_not_answer() {
    let mut pair = Pair::with(|_, _| {});
    pair.initiate();
    while pair.a.sent.len() < 2 {
        pair.step(pair.now + SECOND);
    }
    pair.b.dead = true;
    assert_eq!(pair.a.endpoint.status()[0].state, IkeSaState::Connecting);
    pair.a.endpoint.terminate(pair.now, "site", None).unwrap();
    assert_down(&pair.a, "IKE_AUTH is out");
    pair.run(300 * SECOND);
    assert!(pair.a.endpoint.status().is_empty());
    assert_eq!(failures(&pair.a), [(&DownReason::Terminated, None)]);
}

#[test]
fn an_sa_that_the_peer_has_rekeyed_is_closed_at_once() {
    let mut pair = Pair::with(|_, _| {});
    let mut script = Script::established(&mut pair.b, pair.now);
    script.rekey_ike(&mut pair.b, pair.now);
    assert_eq!(pair.b.endpoint.status().len(), 2, "the old one lingers");
    pair.b.endpoint.terminate(pair.now, "site", None).unwrap();
    let states: Vec<_> = (pair.b.endpoint.status().iter())
        .map(|sa| sa.state)
        .collect();
    assert_eq!(states, [IkeSaState::Deleting; 2]);
}

/// The peer is silent, and one exchange about the child is under way.
#[test]
fn one_child_is_closed_at_once_too() {
    for busy in [false, true] {
        let mut pair = Pair::with(|a, _| a.dpd_delay = 5 * SECOND);
        pair.initiate();
        pair.run(SECOND);
        pair.b.dead = true;
        if busy {
            pair.run(10 * SECOND);
        }
        let down = pair.a.endpoint.terminate(pair.now, "site", Some("net"));
        assert_eq!(down, Ok(1));
        pair.flush();
        assert!(pair.a.children.is_empty());
        pair.b.dead = false;
        pair.run(60 * SECOND);
        pair.assert_agreed(1, 0);
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        pair.assert_clean_end();
    }
}

/// A has initiated. B forgets everything, and initiates itself with INITIAL_CONTACT.
// RFC 7296 R62
#[test]
fn initial_contact_counts_however_young_the_forgotten_sa_is() {
    for wait in [SECOND / 10, 3 * SECOND, 29 * SECOND] {
        let mut pair = Pair::established();
        pair.run(wait);
        let (_, b) = default_configs();
        pair.b = Side::new("b", B, config(b), pair.now, 99);
        pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
        pair.flush();
        pair.run(2 * SECOND);
        pair.assert_agreed(1, 1);
        let forgotten = |event: &Event| matches!(event, Event::IkeSaDown { reason, .. } if *reason == DownReason::InitialContact);
        assert!(pair.a.events.iter().any(forgotten));
        // No other SA is left.
        pair.b.endpoint.terminate(pair.now, "site", None).unwrap();
        pair.flush();
        pair.run(2 * SECOND);
        pair.assert_agreed(0, 0);
        pair.assert_clean_end();
    }
}

/// Both ends initiate within the time that a message travels. Neither has forgotten anything, so that one SA at least
/// stays.
// RFC 7296 R64
#[test]
fn initiations_that_cross_are_no_restarts() {
    for unique in [Unique::No, Unique::Keep, Unique::Replace] {
        for apart_ms in 0..60 {
            let (mut a, mut b) = default_configs();
            (a.unique, b.unique) = (unique, unique);
            let conditions = Conditions {
                delay: Duration::from_millis(5)..Duration::from_millis(25),
                ..Conditions::PERFECT
            };
            let mut pair = Pair::new(config(a), config(b), conditions, apart_ms);
            pair.initiate();
            pair.run(Duration::from_millis(apart_ms));
            pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
            pair.flush();
            pair.run(10 * SECOND);
            pair.assert_same();
            assert!(!pair.a.ike_sas().is_empty(), "{unique:?}, {apart_ms} ms");
            assert!(!pair.a.children.is_empty(), "{unique:?}, {apart_ms} ms");
            let forgotten = |event: &Event| matches!(event, Event::IkeSaDown { reason, .. } if *reason == DownReason::InitialContact);
            assert!(!pair.a.events.iter().any(forgotten));
            assert!(!pair.b.events.iter().any(forgotten));
        }
    }
}

/// Two more networks, as A or B has them.
fn second(of_a: bool) -> Child {
    let (a, b) = ("10.3.0.0-10.3.0.255", "10.4.0.0-10.4.0.255");
    match of_a {
        true => child("two", a, b),
        false => child("two", b, a),
    }
}

#[test]
fn children_come_and_go_under_an_ike_sa_that_stays() {
    let mut pair = starting(|_, _| {});
    start(&mut pair);
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let (ike_sas, first) = (pair.a.ike_sas(), pair.a.child_spis());
    let (mut a, mut b) = default_configs();
    a.children.push(second(true).into());
    b.children.push(second(false).into());
    change_children(&mut a, |child| child.start_action = StartAction::Start);
    pair.b.endpoint.set_config(config(b.clone()));
    pair.a.endpoint.set_config(config(a.clone()));
    start(&mut pair);
    pair.run(SECOND);
    pair.assert_agreed(1, 2);
    assert_eq!(pair.a.ike_sas(), ike_sas);
    assert!(pair.a.child_spis().is_superset(&first));

    // The first one is withdrawn, the second one stays.
    a.children.remove(0);
    b.children.remove(0);
    pair.a.endpoint.withdraw(pair.now, "site", Some("net"));
    pair.a.endpoint.set_config(config(a));
    pair.b.endpoint.set_config(config(b));
    start(&mut pair);
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(pair.a.ike_sas(), ike_sas);
    assert!(pair.a.child_spis().is_disjoint(&first));
    pair.assert_clean_end();
}

/// In every phase a closed child does not come up.
#[test]
fn a_child_is_closed_while_it_is_on_its_way() {
    for name in ["net", "two"] {
        for sent in 1..=3 {
            let mut pair = Pair::with(|a, b| {
                a.children.push(second(true).into());
                b.children.push(second(false).into());
            });
            pair.initiate();
            while pair.a.sent.len() < sent {
                pair.step(pair.now + SECOND);
            }
            let down = pair.a.endpoint.terminate(pair.now, "site", Some(name));
            assert!(down.is_ok_and(|concerned| concerned > 0));
            pair.flush();
            pair.run(10 * SECOND);
            let case = format!("{name} after {sent} requests");
            pair.assert_same();
            let left = pair
                .a
                .children
                .values()
                .map(|(child, _)| child.name.as_str());
            let other = if name == "net" { "two" } else { "net" };
            assert_eq!(left.collect::<Vec<_>>(), [other], "{case}");
            pair.assert_clean_end();
        }
    }
    let mut pair = Pair::with(|_, _| {});
    pair.initiate();
    let down = pair.a.endpoint.terminate(pair.now, "site", Some("net"));
    assert_eq!(down, Ok(1));
    assert!(
        pair.a.endpoint.status().is_empty(),
        "nobody needs the IKE SA"
    );
}

/// The state of A's first child, the time until its next attempt, and why it is down.
fn look(pair: &Pair) -> (ConfiguredState, Option<Duration>, Option<String>) {
    let configured = pair.a.endpoint.configured();
    let child = &configured[0];
    assert_eq!(
        (child.connection.as_str(), child.child.as_str()),
        ("site", "net")
    );
    let wait = child.next_at.map(|at| at - pair.now);
    (
        child.state,
        wait,
        child.failure.clone().map(|failure| failure.why),
    )
}

#[test]
fn a_child_that_is_down_tells_why_and_what_comes_next() {
    let mut pair = starting(|a, _| a.keyingtries = 0);
    assert_eq!(look(&pair), (ConfiguredState::Down, None, None));
    let address = own_address(&pair.a);
    set_address(&pair.a, None);
    start(&mut pair);
    let (state, wait, why) = look(&pair);
    assert_eq!(state, ConfiguredState::Waiting);
    assert!(wait.is_some_and(|wait| wait <= 2 * SECOND));
    assert!(why.is_some_and(|why| why.contains("no route")));

    set_address(&pair.a, address);
    pair.b.dead = true;
    pair.run(30 * SECOND);
    assert_eq!(look(&pair).0, ConfiguredState::Connecting);
    while look(&pair).0 == ConfiguredState::Connecting {
        pair.run(SECOND);
    }
    let (state, wait, why) = look(&pair);
    assert_eq!(state, ConfiguredState::Waiting);
    assert!(wait.is_some_and(|wait| wait <= 10 * SECOND));
    assert_eq!(why.as_deref(), Some("the peer does not answer"));

    pair.b.dead = false;
    pair.run(20 * SECOND);
    assert_eq!(look(&pair), (ConfiguredState::Up, None, None));
    pair.b.endpoint.terminate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    let why = Some("deleted by the peer".to_owned());
    let (state, _, _) = look(&pair);
    assert_eq!(state, ConfiguredState::Up, "it is to be up");
    pair.a.endpoint.set_config(config(default_configs().0));
    pair.b.endpoint.terminate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    assert_eq!(look(&pair), (ConfiguredState::Down, None, why));
    pair.initiate();
    pair.run(SECOND);
    pair.a.endpoint.terminate(pair.now, "site", None).unwrap();
    pair.flush();
    assert_eq!(look(&pair).0, ConfiguredState::Closed);
}

#[test]
fn a_refusal_stays_known_when_nothing_is_tried_any_more() {
    let mut pair = Pair::with(|a, _| a.local.id = id("mallory.example"));
    pair.initiate();
    pair.run(SECOND);
    let (state, wait, why) = look(&pair);
    assert_eq!((state, wait), (ConfiguredState::Down, None));
    assert!(why.is_some_and(|why| why.contains("AUTHENTICATION_FAILED")));
}

/// Both ends have `start_action = start`. One of the two IKE SAs stays, and the child is still wanted.
#[test]
fn both_ends_that_start_at_once_end_with_one_ike_sa() {
    for seed in 0..12 {
        let (mut a, mut b) = default_configs();
        for connection in [&mut a, &mut b] {
            connection.keyingtries = 0;
            connection.dpd_delay = 10 * SECOND;
            change_children(connection, |child| child.start_action = StartAction::Start);
        }
        let mut pair = Pair::new(config(a), config(b), Conditions::PERFECT, seed);
        let delay = Duration::from_millis(20);
        pair.network.conditions.delay = delay..2 * delay;
        // Either end is first, by no time or by nearly one round trip.
        let wait = delay * (seed as u32 / 2 % 3);
        let start = |side: &mut Side, now| side.endpoint.start(now);
        match seed % 2 == 0 {
            true => start(&mut pair.a, pair.now),
            false => start(&mut pair.b, pair.now),
        }
        pair.flush();
        pair.run(wait);
        start(&mut pair.a, pair.now);
        start(&mut pair.b, pair.now);
        pair.flush();
        pair.run(5 * SECOND);
        pair.assert_agreed(1, 1);
        pair.run(600 * SECOND);
        pair.assert_agreed(1, 1);
        pair.b.dead = true;
        pair.run(300 * SECOND);
        assert!(pair.a.children.is_empty());
        pair.b.dead = false;
        pair.run(400 * SECOND);
        pair.assert_agreed(1, 1);
        pair.assert_clean_end();
    }
}

/// The first request of one end was lost, and comes again when the other end's IKE SA is up. That end leaves both IKE SAs
/// as they are.
#[test]
fn a_request_that_comes_late_ends_with_one_ike_sa_too() {
    let mut pair = Pair::with(|_, b| b.unique = Unique::Never);
    pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.network.clear();
    pair.initiate();
    pair.run(20 * SECOND);
    pair.assert_agreed(1, 1);
}

/// The IKE SA that stays is rekeyed before the other one is deleted.
#[test]
fn a_rekey_of_the_ike_sa_that_stays_leaves_one_too() {
    for seed in 0..4 {
        let (mut a, mut b) = default_configs();
        (a.unique, b.unique) = (Unique::Replace, Unique::Replace);
        let mut pair = Pair::new(config(a), config(b), Conditions::PERFECT, seed);
        pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
        pair.flush();
        pair.network.clear();
        pair.initiate();
        let sas = |pair: &Pair| [&pair.a, &pair.b].map(|side| side.endpoint.status().len());
        while sas(&pair) != [2, 2] {
            pair.run(SECOND / 10);
        }
        let rekeying = match seed % 2 == 0 {
            true => &mut pair.a,
            false => &mut pair.b,
        };
        rekeying.endpoint.rekey(pair.now, "site", None).unwrap();
        pair.flush();
        pair.run(20 * SECOND);
        pair.assert_agreed(1, 1);
    }
}
