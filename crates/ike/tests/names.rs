//! Host names in place of addresses. The endpoint asks for them, and never waits for the answer.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::common::script::Script;
use crate::common::*;
use esplanade_ike::config::{AddressMatch, Connection, Demand, EndAction, HostName, StartAction};
use esplanade_ike::status::ConfiguredState;
use esplanade_ike::{CommandError, DownReason, Event, Refusal, TrafficSelector};
use esplanade_testkit::net::Conditions;

const NAME: &str = "sun.example";
const ELSEWHERE: &str = "203.0.113.9";

fn name(text: &str) -> AddressMatch {
    AddressMatch::Name(HostName::new(text))
}

/// A knows B by its name. `change` makes the connection of A differ further.
fn by_name(change: impl FnOnce(&mut Connection)) -> Pair {
    Pair::with(|a, _| {
        a.remote_addrs = vec![name(NAME)];
        change(a);
    })
}

fn starts(a: &mut Connection) {
    a.keyingtries = 0;
    change_children(a, |child| child.start_action = StartAction::Start);
}

/// The names that the endpoint has asked for since the last call, question by question.
fn questions(side: &mut Side) -> Vec<Vec<String>> {
    let events = std::mem::take(&mut side.events).into_iter();
    let names = events.filter_map(|event| match event {
        Event::NamesNeeded(names) => Some(names),
        _ => None,
    });
    names.collect()
}

/// Answers for a name, as the gateway does.
fn answer(pair: &mut Pair, config: &mut esplanade_ike::Config, found: Result<&[&str], &str>) {
    let addresses = found.map(|found| found.iter().map(|one| one.parse().unwrap()).collect());
    let known = HostName {
        name: NAME.to_owned(),
        addresses: addresses.map_err(str::to_owned),
    };
    if config.set_names(|name| (name == NAME).then_some(&known)) {
        pair.a.endpoint.set_config(config.clone());
    }
    let names = BTreeSet::from([NAME.to_owned()]);
    pair.a.endpoint.names_looked_up(pair.now, &names);
    pair.flush();
}

/// The pair, and the configuration of A as its gateway has it.
fn with_config(change: impl Fn(&mut Connection)) -> (Pair, esplanade_ike::Config) {
    let mut a = default_configs().0;
    a.remote_addrs = vec![name(NAME)];
    change(&mut a);
    (by_name(change), config(a))
}

fn failures(side: &Side) -> Vec<(DownReason, Option<Duration>)> {
    let failed = side.events.iter().filter_map(|event| match event {
        Event::ConnectFailed {
            reason, retry_in, ..
        } => Some((reason.clone(), *retry_in)),
        _ => None,
    });
    failed.collect()
}

fn no_address(why: &str) -> DownReason {
    DownReason::NoAddress {
        name: NAME.to_owned(),
        why: why.to_owned(),
    }
}

#[test]
fn an_attempt_waits_for_the_name_and_goes_to_its_address() {
    let (mut pair, mut config) = with_config(|_| {});
    pair.initiate();
    assert_eq!(questions(&mut pair.a), [[NAME]]);
    // Whatever else asks for the child meanwhile joins the attempt.
    pair.initiate();
    pair.run(Duration::from_secs(60));
    assert!(pair.a.sent.is_empty() && questions(&mut pair.a).is_empty());
    answer(&mut pair, &mut config, Ok(&[B]));
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    // A child over the IKE SA that is up needs no look-up.
    pair.initiate();
    assert!(questions(&mut pair.a).is_empty());
    pair.assert_clean_end();
}

#[test]
fn every_attempt_asks_again_and_finds_a_peer_that_has_moved() {
    let (mut pair, mut config) = with_config(starts);
    pair.a.endpoint.start(pair.now);
    pair.flush();
    assert_eq!(questions(&mut pair.a), [[NAME]]);
    // Nobody is there.
    pair.b.dead = true;
    answer(&mut pair, &mut config, Ok(&[ELSEWHERE]));
    pair.run(Duration::from_secs(200));
    assert!(
        pair.a
            .sent
            .iter()
            .all(|sent| sent.remote.ip() == host(ELSEWHERE))
    );
    pair.b.dead = false;
    assert_eq!(failures(&pair.a)[0].0, DownReason::Timeout);
    assert_eq!(questions(&mut pair.a), [[NAME]]);
    answer(&mut pair, &mut config, Ok(&[B]));
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    assert_eq!(pair.a.endpoint.status()[0].remote.ip(), host(B));
}

#[test]
fn a_name_without_an_address_is_asked_for_until_it_has_one() {
    let (mut pair, mut config) = with_config(starts);
    pair.a.endpoint.start(pair.now);
    pair.flush();
    for _ in 0..5 {
        assert_eq!(questions(&mut pair.a).len(), 1);
        answer(&mut pair, &mut config, Err("no such host"));
        let listed = pair.a.endpoint.configured();
        assert_eq!(listed[0].state, ConfiguredState::Waiting);
        let why = &listed[0].failure.as_ref().unwrap().why;
        assert_eq!(why, "the name sun.example has no address: no such host");
        pair.run(Duration::from_secs(26));
    }
    // The log has the first failure of a row.
    let failed = failures(&pair.a);
    assert!(failed.is_empty(), "{failed:?}");
    answer(&mut pair, &mut config, Ok(&[B]));
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    assert_eq!(pair.a.endpoint.configured()[0].failure, None);
}

#[test]
fn a_command_hears_of_a_name_without_an_address_and_is_not_repeated() {
    let (mut pair, mut config) = with_config(|_| {});
    for _ in 0..2 {
        pair.initiate();
        answer(&mut pair, &mut config, Err("no such host"));
        assert_eq!(failures(&pair.a), [(no_address("no such host"), None)]);
        assert_eq!(questions(&mut pair.a), [[NAME]]);
        pair.run(Duration::from_secs(600));
        assert!(questions(&mut pair.a).is_empty() && pair.a.sent.is_empty());
    }
    let listed = pair.a.endpoint.configured();
    let none = CommandError::NoAddress {
        name: NAME.to_owned(),
        why: "no such host".to_owned(),
    };
    assert_eq!(listed[0].failure.as_ref().unwrap().why, none.to_string());
}

#[test]
fn traffic_is_told_once_that_a_name_has_no_address() {
    let (mut pair, mut config) = with_config(|_| {});
    let ends = ["10.1.0.2", "10.2.0.2"].map(|one| TrafficSelector {
        protocol: 17,
        start_port: 5000,
        end_port: 5000,
        start: host(one),
        end: host(one),
    });
    let packet = Demand {
        packet: ends.into(),
        selectors: ends.into(),
    };
    for round in 0..3 {
        let asked = pair.a.endpoint.acquire(pair.now, "site", "net", &packet);
        asked.unwrap();
        pair.flush();
        answer(&mut pair, &mut config, Err("no such host"));
        let told = failures(&pair.a).len();
        assert_eq!(told, usize::from(round == 0));
        assert_eq!(questions(&mut pair.a).len(), 1);
        pair.run(Duration::from_millis(500));
    }
    pair.a
        .endpoint
        .acquire(pair.now, "site", "net", &packet)
        .unwrap();
    answer(&mut pair, &mut config, Ok(&[B]));
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
}

#[test]
fn names_stand_beside_addresses() {
    // The address counts while the name has none.
    let (mut pair, mut config) = with_config(|a| {
        a.remote_addrs.push(AddressMatch::Host(host(B)));
        a.remote_addrs.push(AddressMatch::Any);
    });
    pair.initiate();
    answer(&mut pair, &mut config, Err("no such host"));
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);

    // Both have their places in the order.
    let (mut pair, mut config) = with_config(|a| {
        a.remote_addrs.push(AddressMatch::Host(host(ELSEWHERE)));
    });
    pair.initiate();
    answer(&mut pair, &mut config, Ok(&[B, ELSEWHERE]));
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
}

#[test]
fn a_local_name_is_the_source() {
    let (mut pair, mut config) = with_config(|a| {
        a.local_addrs = vec![name(NAME)];
        a.remote_addrs = vec![AddressMatch::Host(host(B))];
    });
    pair.initiate();
    answer(&mut pair, &mut config, Err("no such host"));
    assert_eq!(failures(&pair.a), [(no_address("no such host"), None)]);
    pair.initiate();
    answer(&mut pair, &mut config, Ok(&[ELSEWHERE, A]));
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    assert_eq!(pair.a.endpoint.status()[0].local.ip(), host(A));
}

#[test]
fn what_is_closed_or_withdrawn_does_not_come_back_with_the_answer() {
    type End = fn(&mut Pair);
    let ends: [End; 3] = [
        |pair| {
            let ended = pair.a.endpoint.terminate(pair.now, "site", Some("net"));
            assert_eq!(ended, Ok(1));
        },
        |pair| pair.a.endpoint.withdraw(pair.now, "site", None),
        |pair| assert_eq!(pair.a.endpoint.terminate_all(pair.now), 0),
    ];
    for end in ends {
        let (mut pair, mut config) = with_config(|_| {});
        pair.initiate();
        end(&mut pair);
        answer(&mut pair, &mut config, Ok(&[B]));
        pair.run(Duration::from_secs(60));
        assert!(pair.a.sent.is_empty());
    }
}

#[test]
fn a_live_sa_outlasts_another_address_of_its_name() {
    let (mut pair, mut config) = with_config(|a| {
        starts(a);
        // Only the address says who the peer is.
        a.remote.id = id("%any");
        a.dpd_delay = Duration::from_secs(30);
        change_children(a, |child| child.dpd_action = EndAction::Start);
    });
    pair.a.endpoint.start(pair.now);
    pair.flush();
    answer(&mut pair, &mut config, Ok(&[B]));
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    answer(&mut pair, &mut config, Ok(&[ELSEWHERE]));
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(Duration::from_secs(60));
    pair.assert_agreed(1, 1);
    let listed = pair.a.endpoint.configured();
    assert_eq!(listed[0].state, ConfiguredState::Up);
    questions(&mut pair.a);
    // The peer is gone. The next attempt goes to where it is by then.
    pair.b.dead = true;
    pair.run(Duration::from_secs(300));
    assert_eq!(questions(&mut pair.a), [[NAME]]);
    let elsewhere = pair
        .a
        .sent
        .iter()
        .any(|sent| sent.remote.ip() == host(ELSEWHERE));
    assert!(!elsewhere);
    answer(&mut pair, &mut config, Ok(&[ELSEWHERE]));
    let last = pair.a.sent.last().unwrap();
    assert_eq!(last.remote.ip(), host(ELSEWHERE));
}

#[test]
fn a_name_is_as_exact_as_an_address() {
    let known = |addresses: &[&str]| {
        AddressMatch::Name(HostName {
            name: NAME.to_owned(),
            addresses: Ok(addresses.iter().map(|one| host(one)).collect()),
        })
    };
    let (a, mut site) = default_configs();
    let mut wide = site.clone();
    wide.name = "wide".to_owned();
    wide.remote_addrs = vec![AddressMatch::Range(host("192.0.2.0"), host("192.0.2.3"))];
    site.remote_addrs = vec![known(&[ELSEWHERE, A])];
    let mut b = config(wide);
    b.connections.push(site.into());
    let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    let status = pair.b.endpoint.status();
    assert_eq!(status[0].connection.as_deref(), Some("site"));
}

#[test]
fn a_peer_at_a_new_address_has_the_names_looked_up() {
    let (mut b, now) = b_with(|b| {
        change_connection(b, |b| b.remote_addrs = vec![name(NAME)]);
    });
    let mut configured = default_configs().1;
    configured.remote_addrs = vec![name(NAME)];
    let mut configured = config(configured);
    let mut script = Script::new();
    let payloads = script.init_payloads();
    assert!(script.init(&mut b, now, payloads.clone()).is_none());
    assert_eq!(b.refused(Refusal::NamesUnknown), 1);
    let asked = |b: &mut Side| {
        let mut events = Vec::new();
        while let Some(event) = b.endpoint.poll_event() {
            events.push(event);
        }
        b.events.extend(events);
        questions(b)
    };
    assert_eq!(asked(&mut b), [[NAME]]);
    // Until there is an answer nothing is refused, and nothing is asked twice.
    assert!(script.init(&mut b, now, payloads.clone()).is_none());
    assert!(asked(&mut b).is_empty());
    let tell = |b: &mut Side, configured: &mut esplanade_ike::Config, address: &str| {
        let known = HostName {
            name: NAME.to_owned(),
            addresses: Ok(vec![host(address)]),
        };
        configured.set_names(|_| Some(&known));
        b.endpoint.set_config(configured.clone());
        let names = BTreeSet::from([NAME.to_owned()]);
        b.endpoint.names_looked_up(now, &names);
    };
    // The peer is nobody whom a name stands for: it is refused, as others are.
    tell(&mut b, &mut configured, ELSEWHERE);
    assert!(script.init(&mut b, now, payloads.clone()).is_some());
    assert_eq!(b.refused(Refusal::NoConnection), 1);
    assert!(asked(&mut b).is_empty(), "strangers ask seldom");
    let later = now + Duration::from_secs(10);
    assert!(script.init(&mut b, later, payloads.clone()).is_none());
    assert_eq!(asked(&mut b), [[NAME]]);
    tell(&mut b, &mut configured, A);
    assert!(script.init(&mut b, later, payloads).is_some());
    assert_eq!(b.refused(Refusal::NoConnection), 1);
}

#[test]
fn a_name_that_is_not_looked_up_stands_for_nobody() {
    let nobody = name(NAME);
    assert!(!nobody.matches(host(A)) && nobody.hosts().is_empty());
    let (mut pair, _) = with_config(|_| {});
    pair.a.endpoint.names_looked_up(pair.now, &BTreeSet::new());
    let unknown = pair.a.endpoint.initiate(pair.now, "other", None);
    assert_eq!(unknown, Err(CommandError::NoConnection("other".to_owned())));
}

fn host(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A command waits for the outcome.
#[test]
fn an_attempt_that_ends_before_its_name_is_looked_up_is_told() {
    for (reload, child) in [(false, None), (false, Some("net")), (true, None)] {
        let mut pair = by_name(|_| {});
        pair.initiate();
        match reload {
            false => {
                let ended = pair.a.endpoint.terminate(pair.now, "site", child);
                assert_eq!(ended, Ok(1));
            }
            true => pair.a.endpoint.withdraw(pair.now, "site", child),
        }
        pair.flush();
        assert_eq!(failures(&pair.a), [(DownReason::Terminated, None)]);
    }
}
