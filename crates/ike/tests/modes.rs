//! Child SAs other than one ESP tunnel: transport mode, AH, selectors of packets, several SAs with the same
//! selectors, TFC padding, closing of idle SAs.

use std::sync::Arc;
use std::time::Duration;

use crate::common::script::{Script, error_of};
use crate::common::wiretap::{sent_by, tapped};
use crate::common::*;
use esplanade_crypto::iana::Integrity;
use esplanade_ike::config::{Child, Childless, Config, Connection, Demand, Mode, Selector};
use esplanade_ike::failure::{ConfigurationFault, Shortage, TransportFault};
use esplanade_ike::wire::{
    Delete, ExchangeType, Message, Notify, NotifyType, Payload, ProtocolId, TrafficSelector,
};
use esplanade_ike::{ChildFailure, DownReason, Event, Refusal};
use esplanade_testkit::net::Conditions;

const SECOND: Duration = Duration::from_secs(1);

fn transport(child: &mut Child) {
    child.mode = Mode::Transport;
    child.local_ts = vec![Selector::DYNAMIC];
    child.remote_ts = vec![Selector::DYNAMIC];
}

fn failures(side: &Side) -> Vec<&ChildFailure> {
    let events = side.events.iter();
    events
        .filter_map(|event| match event {
            Event::ChildFailed { reason, .. } => Some(reason),
            _ => None,
        })
        .collect()
}

fn modes(side: &Side) -> Vec<Mode> {
    side.children.values().map(|(sa, _)| sa.mode).collect()
}

fn host(address: &str) -> Vec<TrafficSelector> {
    let address = address.parse().unwrap();
    vec![TrafficSelector::addresses(address, address)]
}

/// A could not propose its child, so that the IKE SA was given up.
#[track_caller]
fn assert_cannot_propose(pair: &Pair, failure: ChildFailure) {
    let expected = DownReason::Configuration(ConfigurationFault::Child(Box::new(failure)));
    let failed =
        |e: &Event| matches!(e, Event::ConnectFailed { reason, .. } if *reason == expected);
    assert!(pair.a.events.iter().any(failed), "{:?}", pair.a.events);
}

// RFC 7296 R11, R22, R176
#[test]
fn transport_mode_is_asked_for_agreed_and_kept() {
    let mut pair = Pair::with(|a, b| {
        change_children(a, transport);
        change_children(b, transport);
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let rekey = |pair: &mut Pair, by_a: bool| {
        let side = if by_a { &mut pair.a } else { &mut pair.b };
        assert_eq!(side.endpoint.rekey(pair.now, "site", Some("net")), Ok(1));
        pair.flush();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
    };
    rekey(&mut pair, true);
    rekey(&mut pair, false);
    for side in [&pair.a, &pair.b] {
        assert_eq!(side.installed.len(), 3);
        assert!(side.installed.iter().all(|sa| sa.mode == Mode::Transport));
    }
    let (sa, _) = pair.a.children.values().next().unwrap();
    assert_eq!((&sa.local_ts, &sa.remote_ts), (&host(A), &host(B)));
    pair.assert_clean_end();
}

// RFC 4301 R5; RFC 7296 R176
#[test]
fn transport_mode_is_for_the_gateways_own_packets() {
    // Wider selectors are narrowed to the two hosts.
    let mut pair = Pair::with(|a, b| {
        let wide = |child: &mut Child| {
            child.mode = Mode::Transport;
            child.local_ts = vec![subnet("0.0.0.0-255.255.255.255")];
            child.remote_ts = child.local_ts.clone();
        };
        change_children(a, wide);
        change_children(b, wide);
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let (sa, _) = pair.b.children.values().next().unwrap();
    assert_eq!((&sa.local_ts, &sa.remote_ts), (&host(B), &host(A)));

    // The selectors of the networks behind the gateways do not include the gateways.
    let mut pair = Pair::with(|a, _| change_children(a, |child| child.mode = Mode::Transport));
    pair.initiate();
    pair.run(SECOND);
    assert!(pair.a.children.is_empty());
    assert_cannot_propose(
        &pair,
        ChildFailure::Transport(TransportFault::SelectorsWithoutGateways),
    );
}

/// RFC 7296 §1.3.1: a responder that declines transport mode answers with a tunnel, and the initiator may delete it.
// RFC 7296 R12
#[test]
fn a_declined_transport_mode_is_deleted_by_who_asked() {
    let mut pair = Pair::with(|a, b| {
        change_children(a, transport);
        change_children(b, |child| {
            transport(child);
            child.mode = Mode::Tunnel;
        });
    });
    pair.initiate();
    pair.run(SECOND);
    assert_eq!(
        failures(&pair.a),
        [&ChildFailure::Transport(TransportFault::DeclinedByPeer)]
    );
    assert_eq!(pair.b.installed.len(), 1, "the tunnel");
    assert_eq!(pair.b.installed[0].mode, Mode::Tunnel);
    pair.assert_agreed(1, 0);

    // In the other direction there is no mode that both accept.
    pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    assert!(matches!(
        failures(&pair.b)[..],
        [ChildFailure::NoProposalChosen { .. }]
    ));
    assert_eq!(pair.a.refused(Refusal::NoProposalChosen), 1);
    pair.assert_agreed(1, 0);
    pair.assert_clean_end();
}

#[test]
fn a_request_for_transport_mode_prefers_the_child_that_has_it() {
    let mut pair = Pair::with(|a, b| {
        let both = |connection: &mut Connection| {
            let mut tunnel = (*connection.children[0]).clone();
            transport(&mut tunnel);
            let host = Child {
                name: "host".into(),
                ..tunnel.clone()
            };
            tunnel.mode = Mode::Tunnel;
            connection.children = vec![tunnel.into(), host.into()];
        };
        both(a);
        both(b);
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 2);
    assert_eq!(modes(&pair.a), [Mode::Tunnel, Mode::Transport]);
    assert_eq!(modes(&pair.b), [Mode::Tunnel, Mode::Transport]);
    pair.assert_clean_end();
}

#[test]
fn transport_mode_does_not_pass_a_nat_but_a_feigned_one() {
    let both = |encap| {
        move |a: &mut Connection, b: &mut Connection| {
            a.encap = encap;
            change_children(a, transport);
            change_children(b, transport);
        }
    };
    let mut pair = Pair::with(both(true));
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(modes(&pair.b), [Mode::Transport]);
    assert!(pair.a.installed[0].udp_encap);
    pair.assert_clean_end();

    let mut pair = Pair::with(both(false));
    pair.nat = Some(("203.0.113.9".parse().unwrap(), 10_000));
    pair.b.endpoint.set_config({
        let (_, mut b) = default_configs();
        b.remote_addrs.clear();
        change_children(&mut b, transport);
        config(b)
    });
    pair.initiate();
    pair.run(SECOND);
    assert!(pair.a.children.is_empty() && pair.b.children.is_empty());
    assert_cannot_propose(&pair, ChildFailure::Transport(TransportFault::Nat));
}

fn ah(child: &mut Child) {
    let proposal = &mut child.esp_proposals[0];
    proposal.encryption.clear();
    proposal.integrity = vec![Integrity::HmacSha2_256_128];
}

// RFC 4302 R11; RFC 7296 R92
#[test]
fn ah_is_negotiated_rekeyed_and_deleted() {
    let mut pair = Pair::with(|a, b| {
        change_children(a, ah);
        change_children(b, ah);
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let (sa, _) = pair.a.children.values().next().unwrap();
    assert_eq!(sa.esp.transform.protocol(), esplanade_crypto::Protocol::Ah);
    assert_eq!(sa.key_in.len(), 32);
    pair.b
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(pair.a.installed.len(), 2);
    pair.a
        .endpoint
        .terminate(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 0);
    pair.assert_clean_end();
}

// RFC 7296 R6, R15, R152
#[test]
fn ah_and_esp_do_not_meet() {
    let mut pair = Pair::with(|a, _| change_children(a, ah));
    pair.initiate();
    pair.run(SECOND);
    assert!(matches!(
        failures(&pair.a)[..],
        [ChildFailure::NoProposalChosen { .. }]
    ));
    pair.assert_agreed(1, 0);
}

#[test]
fn ah_passes_no_nat() {
    let mut pair = Pair::with(|a, b| {
        a.encap = true;
        change_children(a, ah);
        change_children(b, ah);
    });
    pair.initiate();
    pair.run(SECOND);
    assert_cannot_propose(&pair, ChildFailure::AhThroughNat);
}

/// A peer's AH SPI can equal one of its ESP SPIs. The protocol tells them apart.
// RFC 7296 R21, R28, R29, R183, R188, R242
#[test]
fn deletes_and_rekeys_name_the_protocol() {
    let (_, b) = default_configs();
    let now = std::time::Instant::now();
    let mut side = Side::new("b", B, config(b), now, 3);
    let mut script = Script::established(&mut side, now);
    let spi = 0x4444;
    let mut informational = |protocol| {
        let delete = Payload::Delete(Delete {
            protocol,
            spis: vec![spi],
        });
        script
            .exchange(&mut side, now, ExchangeType::INFORMATIONAL, &[delete])
            .unwrap()
    };
    assert!(informational(ProtocolId::AH).payloads.is_empty());
    assert_eq!(informational(ProtocolId::ESP).payloads.len(), 1);

    let mut side = Side::new("b", B, config(default_configs().1), now, 3);
    let mut script = Script::established(&mut side, now);
    let notify = Notify::about_child(NotifyType::REKEY_SA, ProtocolId::AH, spi);
    let mut payloads = vec![Payload::Notify(notify), Payload::Nonce(vec![7; 32])];
    payloads.extend(Script::child_payloads());
    let answer = script
        .exchange(&mut side, now, ExchangeType::CREATE_CHILD_SA, &payloads)
        .unwrap();
    assert_eq!(error_of(&answer), Some(NotifyType::CHILD_SA_NOT_FOUND));
    let about = answer.notification(NotifyType::CHILD_SA_NOT_FOUND).unwrap();
    assert_eq!(about.protocol, ProtocolId::AH);
}

fn demand(port: u16) -> Demand {
    let host = |address: &str, port: u16| {
        let address = address.parse().unwrap();
        TrafficSelector {
            protocol: 6,
            start_port: port,
            end_port: port,
            start: address,
            end: address,
        }
    };
    let any = |from: &str, to: &str| {
        TrafficSelector::addresses(from.parse().unwrap(), to.parse().unwrap())
    };
    Demand {
        packet: (host("10.1.0.7", port), host("10.2.0.9", 80)),
        selectors: (
            host("10.1.0.7", port),
            TrafficSelector {
                protocol: 6,
                ..any("10.2.0.0", "10.2.255.255")
            },
        ),
    }
}

/// A packet from this port has no SA.
fn ask_for(pair: &mut Pair, port: u16) {
    let demand = demand(port);
    let endpoint = &mut pair.a.endpoint;
    endpoint.acquire(pair.now, "site", "net", &demand).unwrap();
    pair.flush();
    pair.run(SECOND);
}

/// The IKE SA begins without a child, or with it. Packets ask before and while it comes up.
#[test]
fn packets_that_ask_before_the_first_has_its_sa_make_no_more() {
    for childless in [Childless::Allow, Childless::Prefer] {
        let mut pair = Pair::with(|a, _| a.childless = childless);
        for port in 1..=20 {
            let endpoint = &mut pair.a.endpoint;
            let _ = endpoint.acquire(pair.now, "site", "net", &demand(port));
            pair.flush();
            if port > 10 {
                pair.step(pair.now + SECOND);
            }
        }
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        assert_eq!(pair.a.installed.len(), 1);
        pair.assert_clean_end();
    }
}

// RFC 7296 R114
#[test]
fn a_responder_that_takes_single_pairs_is_asked_for_the_packet_alone() {
    let (mut side, now) = b_with(|config| {
        change_connection(config, |connection| {
            let other = child("other", "10.1.0.0-10.1.255.255", "10.2.0.0-10.2.255.255");
            connection.children.push(other.into());
        });
    });
    let mut script = Script::established(&mut side, now);
    let demand = demand(4000);
    side.endpoint
        .acquire(now, "site", "other", &demand)
        .unwrap();
    let mut requests = Script::take(&mut side);
    let selectors = |message: &Message| {
        let found = message.payloads.iter().filter_map(|payload| match payload {
            Payload::TsI(selectors) | Payload::TsR(selectors) => Some(selectors.clone()),
            _ => None,
        });
        found.collect::<Vec<_>>()
    };
    let first = requests.pop().unwrap();
    assert!(
        selectors(&script.open(&first))
            .iter()
            .all(|side| side.len() == 2)
    );
    let refused = [Payload::Notify(Notify::new(
        NotifyType::SINGLE_PAIR_REQUIRED,
        vec![],
    ))];
    let mut requests = script.answer(&mut side, now, &first, &refused);
    let second = requests.pop().unwrap();
    let (local, remote) = demand.packet;
    assert_eq!(selectors(&script.open(&second)), [[local], [remote]]);
    // It asks once. A peer that repeats the error is believed.
    assert!(script.answer(&mut side, now, &second, &refused).is_empty());
    let failed =
        |event: &Event| matches!(event, Event::ChildFailed { child, .. } if child == "other");
    assert_eq!(side.events.iter().filter(|event| failed(event)).count(), 1);
}

/// RFC 7296 §2.9.
// RFC 7296 R109, R111
#[test]
fn the_packet_that_asks_comes_first() {
    let mut pair = Pair::with(|_, _| {});
    ask_for(&mut pair, 1111);
    pair.assert_agreed(1, 1);
    let (sa, _) = pair.a.children.values().next().unwrap();
    let whole =
        TrafficSelector::addresses("10.1.0.0".parse().unwrap(), "10.1.255.255".parse().unwrap());
    assert_eq!(sa.local_ts, [whole], "the responder grants all of it");

    // A responder that grants less keeps the selector of the packet.
    let mut pair = Pair::with(|_, b| {
        change_children(b, |child| {
            let narrow = |from: &str| Selector {
                protocol: 6,
                ..subnet(from)
            };
            child.local_ts = vec![narrow("10.2.0.9-10.2.0.9")];
            child.remote_ts = vec![narrow("10.1.0.7-10.1.0.7")];
        });
    });
    let asked = demand(1111);
    pair.a
        .endpoint
        .acquire(pair.now, "site", "net", &asked)
        .unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let (sa, _) = pair.a.children.values().next().unwrap();
    let covers = |list: &[TrafficSelector], ts: &TrafficSelector| {
        list.iter().any(|own| {
            own.start <= ts.start && ts.end <= own.end && own.start_port <= ts.start_port
        })
    };
    assert!(covers(&sa.local_ts, &asked.packet.0) && covers(&sa.remote_ts, &asked.packet.1));
}

// RFC 7296 R118
#[test]
fn the_packet_that_asked_is_not_in_a_rekey() {
    let mut pair = tapped(|_, _| {});
    ask_for(&mut pair, 1111);
    for by_a in [true, false] {
        let side = if by_a { &mut pair.a } else { &mut pair.b };
        side.endpoint.rekey(pair.now, "site", Some("net")).unwrap();
        pair.flush();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
    }
    let offered = |side, exchange| {
        let mut sent = sent_by(&pair, side).into_iter().map(|sent| sent.message);
        let is_it =
            |message: &Message| message.header.exchange == exchange && !message.header.response;
        let payloads = sent.find(is_it).unwrap().payloads.into_iter();
        let lens = payloads.filter_map(|payload| match payload {
            Payload::TsI(selectors) | Payload::TsR(selectors) => Some(selectors.len()),
            _ => None,
        });
        lens.collect::<Vec<_>>()
    };
    assert_eq!(offered(&pair.a, ExchangeType::IKE_AUTH), [2, 2]);
    for side in [&pair.a, &pair.b] {
        assert_eq!(offered(side, ExchangeType::CREATE_CHILD_SA), [1, 1]);
    }
}

// RFC 7296 R96, R116, R117
#[test]
fn flows_of_one_child_have_an_sa_each() {
    let mut pair = Pair::with(|a, _| change_children(a, |child| child.from_packet = true));
    for port in [1111, 2222, 2222] {
        ask_for(&mut pair, port);
    }
    pair.assert_agreed(1, 2);
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(2 * SECOND);
    pair.assert_agreed(1, 2);
    let mut ports: Vec<_> = pair
        .b
        .children
        .values()
        .map(|(sa, _)| {
            let [remote] = sa.remote_ts[..] else {
                panic!("{:?}", sa.remote_ts)
            };
            assert_eq!((remote.start, remote.protocol), (remote.end, 6));
            remote.start_port
        })
        .collect();
    ports.sort_unstable();
    assert_eq!(ports, [1111, 2222], "also after a rekey");
    assert!(
        pair.a
            .endpoint
            .initiate(pair.now, "site", Some("net"))
            .is_err(),
        "without a packet there are no selectors"
    );
    pair.assert_clean_end();
}

#[test]
fn flows_make_no_more_sas_than_the_limit() {
    let mut pair = Pair::with(|a, _| change_children(a, |child| child.from_packet = true));
    let mut few = {
        let (mut a, _) = default_configs();
        change_children(&mut a, |child| child.from_packet = true);
        config(a)
    };
    few.limits.children_per_sa_max = 2;
    pair.a.endpoint.set_config(few);
    for port in [1111, 2222, 3333] {
        ask_for(&mut pair, port);
    }
    pair.assert_agreed(1, 2);
    assert!(
        matches!(
            failures(&pair.a)[..],
            [ChildFailure::Resources(Shortage::ChildSas)]
        ),
        "{:?}",
        failures(&pair.a)
    );
    pair.assert_clean_end();
}

#[test]
fn a_child_that_cannot_be_proposed_keeps_no_other_one_down() {
    let mut pair = Pair::with(|a, _| {
        let mut hosts = (*a.children[0]).clone();
        hosts.name = "hosts".into();
        hosts.mode = Mode::Transport;
        a.children.insert(0, hosts.into());
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert!(
        matches!(
            failures(&pair.a)[..],
            [ChildFailure::Transport(
                TransportFault::SelectorsWithoutGateways
            )]
        ),
        "{:?}",
        failures(&pair.a)
    );
    pair.assert_clean_end();
}

/// A datagram from a false address can move a peer that claims to be behind a NAT. `dynamic` and transport mode mean
/// its address in IKE_SA_INIT. Otherwise it could get anybody's traffic.
#[test]
fn who_moves_gets_no_other_hosts_traffic() {
    let victim: std::net::IpAddr = "203.0.113.9".parse().unwrap();
    for mode in [Mode::Tunnel, Mode::Transport] {
        let mut pair = Pair::with(|a, b| {
            a.encap = true;
            let more = |connection: &mut Connection| {
                let mut own = (*connection.children[0]).clone();
                transport(&mut own);
                own.mode = mode;
                own.name = "own".into();
                connection.children.push(own.into());
            };
            more(a);
            more(b);
            b.remote_addrs.clear();
            let own = Arc::make_mut(&mut a.children[1]);
            own.local_ts = vec![subnet("203.0.113.9-203.0.113.9")];
            own.mode = Mode::Tunnel;
        });
        let start = |pair: &mut Pair, child| {
            pair.a
                .endpoint
                .initiate(pair.now, "site", Some(child))
                .unwrap();
            pair.flush();
            pair.run(SECOND);
        };
        start(&mut pair, "net");
        pair.assert_agreed(1, 1);
        pair.nat = Some((victim, 10_000));
        start(&mut pair, "own");
        assert_eq!(pair.b.installed.len(), 1, "{mode:?}");
        let refused = failures(&pair.a);
        assert!(
            matches!(refused[..], [ChildFailure::TsUnacceptable { .. }]),
            "{mode:?}"
        );
        // The peer has moved nevertheless.
        let moved =
            |e: &Event| matches!(e, Event::PeerMoved { remote, .. } if remote.ip() == victim);
        assert!(pair.b.events.iter().any(moved));
    }
}

/// SAs for classes of traffic (RFC 4301 §4.1). Their selectors cannot tell the responder which SA is for which class.
// RFC 4301 R3; RFC 7296 R100
#[test]
fn children_with_the_same_selectors_find_each_other() {
    let mut pair = Pair::with(|a, b| {
        for connection in [a, b] {
            let voice = Child {
                name: "voice".into(),
                ..(*connection.children[0]).clone()
            };
            connection.children.push(voice.into());
        }
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 2);
    let mut names: Vec<_> = pair.b.children.values().map(|(sa, _)| &sa.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["net", "voice"]);
    for name in ["net", "voice"] {
        let spis = |side: &Side| {
            let of = side.children.values().find(|(sa, _)| sa.name == name);
            of.map(|(sa, _)| (sa.spi_in, sa.spi_out)).unwrap()
        };
        let (there, back) = (spis(&pair.a), spis(&pair.b));
        assert_eq!(there, (back.1, back.0), "{name}");
    }
    pair.assert_clean_end();
}

/// RFC 7296 §1.3.1. We accept TFC padding ourselves.
// RFC 4303 R63; RFC 7296 R13
#[test]
fn a_peer_may_refuse_tfc_padding() {
    let now = std::time::Instant::now();
    let mut side = Side::new("b", B, config(default_configs().1), now, 3);
    let mut script = Script::established(&mut side, now);
    let no_tfc = Notify::new(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED, vec![]);
    let mut payloads = vec![Payload::Notify(no_tfc), Payload::Nonce(vec![7; 32])];
    payloads.extend(Script::child_payloads());
    let answer: Message = script
        .exchange(&mut side, now, ExchangeType::CREATE_CHILD_SA, &payloads)
        .unwrap();
    assert_eq!(error_of(&answer), None);
    assert!(
        answer
            .notification(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED)
            .is_none()
    );
    let tfc: Vec<_> = side
        .events
        .iter()
        .filter_map(|event| match event {
            Event::ChildSaInstalled(sa) => Some(sa.tfc),
            _ => None,
        })
        .collect();
    assert_eq!(tfc, [true, false]);
}

/// RFC 7296 §1.3.1: only if both ends ask for it, and again in each rekey.
// RFC 4301 R52; RFC 7296 R14, R22
#[test]
fn later_fragments_are_agreed_upon() {
    let wants = |child: &mut Child| child.non_first_fragments = true;
    for (of_a, of_b) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut pair = Pair::with(|a, b| {
            of_a.then(|| change_children(a, wants));
            of_b.then(|| change_children(b, wants));
        });
        pair.initiate();
        pair.run(SECOND);
        for by_a in [true, false] {
            let side = if by_a { &mut pair.a } else { &mut pair.b };
            assert_eq!(side.endpoint.rekey(pair.now, "site", Some("net")), Ok(1));
            pair.flush();
            pair.run(SECOND);
        }
        pair.assert_agreed(1, 1);
        for side in [&pair.a, &pair.b] {
            let agreed = side.installed.iter().map(|sa| sa.non_first_fragments);
            assert_eq!(agreed.collect::<Vec<_>>(), [of_a && of_b; 3]);
        }
        pair.assert_clean_end();
    }
}

// RFC 7296 R69
#[test]
fn an_idle_child_is_closed() {
    let (mut a, b) = default_configs();
    change_children(&mut a, |child| {
        child.inactivity = Duration::from_secs(30);
        child.lifetime.rekey_time = Duration::from_secs(20);
        child.lifetime.rand_time = Duration::ZERO;
    });
    let mut pair = Pair::new(config(a), config(b), Conditions::PERFECT, 1);
    pair.initiate();
    // Traffic in any direction, on any of the SAs, keeps the child open.
    for inbound in [true, false] {
        pair.run(25 * SECOND);
        let (child, _) = pair.a.children.iter().next_back().unwrap();
        let (child, endpoint) = (*child, &mut pair.a.endpoint);
        match inbound {
            true => endpoint.note_inbound_traffic(pair.now, child),
            false => endpoint.note_outbound_traffic(pair.now, child),
        }
        pair.flush();
    }
    pair.run(29 * SECOND);
    pair.assert_agreed(1, 1);
    assert!(pair.a.installed.len() > 3, "rekeys are no traffic");
    pair.a.sees_traffic = true;
    pair.run(3 * SECOND);
    pair.assert_agreed(1, 1);
    let asked = |pair: &Pair| {
        let events = pair.a.events.iter();
        let asked = events.filter(|e| matches!(e, Event::ChildSaIdle { .. }));
        asked.count()
    };
    assert_eq!(asked(&pair), 1, "the data plane has the last word");
    pair.a.sees_traffic = false;
    pair.run(25 * SECOND);
    pair.assert_agreed(1, 1);
    pair.run(5 * SECOND);
    pair.assert_agreed(1, 0);
    let inactive = |e: &Event| matches!(e, Event::ChildSaDeleted(d) if d.reason == DownReason::Inactive && !d.replaced);
    assert_eq!(pair.a.events.iter().filter(|e| inactive(e)).count(), 1);
    pair.assert_clean_end();
}

/// One of two children is idle, or the only one.
#[test]
fn an_idle_ike_sa_ends_with_its_only_child_where_that_is_configured() {
    for (closes, second, left) in [
        (false, false, (1, 0)),
        (true, false, (0, 0)),
        (true, true, (1, 1)),
    ] {
        let (mut a, mut b) = default_configs();
        change_children(&mut a, |child| child.inactivity = Duration::from_secs(30));
        if second {
            let (own, peers) = ("10.3.0.0-10.3.255.255", "10.4.0.0-10.4.255.255");
            a.children.push(child("second", own, peers).into());
            b.children.push(child("second", peers, own).into());
        }
        let a = Config {
            inactivity_close_ike: closes,
            ..config(a)
        };
        let mut pair = Pair::new(a, config(b), Conditions::PERFECT, 1);
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(1, 1 + usize::from(second));
        pair.run(60 * SECOND);
        pair.assert_agreed(left.0, left.1);
        let inactive = |event: &&Event| {
            matches!(
                event,
                Event::IkeSaDown {
                    reason: DownReason::Inactive,
                    ..
                }
            )
        };
        assert_eq!(pair.a.events.iter().filter(inactive).count(), 1 - left.0);
        pair.assert_clean_end();
    }
}

/// The peer refuses each attempt at once, and traffic asks again and again.
#[test]
fn traffic_shortens_no_pause_after_a_failure_below_half_a_minute() {
    let mut pair = Pair::with(|a, b| {
        a.keyingtries = 0;
        b.remote.id = id("somebody.example");
    });
    for _ in 0..300 {
        ask_for(&mut pair, 7);
    }
    let failed = |event: &&Event| matches!(event, Event::ConnectFailed { .. });
    let attempts = pair.a.events.iter().filter(failed).count();
    assert!((8..=13).contains(&attempts), "{attempts}");
}
