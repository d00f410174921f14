//! Rekeys, and the deletes that end what they replace: the requests on an old IKE SA, crossing deletes, what a new child
//! SA keeps of the old one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::script::{Script, error_of};
use crate::common::wiretap::{sent_by, tapped};
use crate::common::*;
use esplanade_crypto::iana::Encryption;
use esplanade_ike::config::{Connection, Lifetime};
use esplanade_ike::failure::{ChildResponseFault, Shortage};
use esplanade_ike::status::ChildSaState;
use esplanade_ike::wire::{
    Delete, ExchangeType, Header, Message, Notify, NotifyType, Payload, Proposal, ProtocolId,
    TrafficSelector,
};
use esplanade_ike::{ChildFailure, CommandError, DownReason, Event, Refusal};

const SECOND: Duration = Duration::from_secs(1);

/// A second child, which nobody has asked for yet.
fn with_two_children(a: &mut Connection, b: &mut Connection) {
    let (own, peers) = ("fd01::-fd01::ffff", "fd02::-fd02::ffff");
    a.children.push(child("v6", own, peers).into());
    b.children.push(child("v6", peers, own).into());
}

/// The messages of one end on the first IKE SA.
fn on_first_sa(pair: &Pair, side: &Side) -> Vec<Message> {
    let sent = sent_by(pair, side).into_iter().map(|sent| sent.message);
    let spi = Header::decode(&pair.a.sent[0].payload)
        .unwrap()
        .initiator_spi;
    sent.filter(|message| message.header.initiator_spi == spi)
        .collect()
}

fn deletes_ike(message: &Message) -> bool {
    let expected = Delete {
        protocol: ProtocolId::IKE,
        spis: vec![],
    };
    message.payloads == [Payload::Delete(expected)]
}

/// An SPI that one end has offered for a new SA, and the nonce with it.
struct Offered {
    spi: u64,
    nonce: Vec<u8>,
}

/// What an end offers first among these messages: in its own request to rekey, or in its response.
fn offered(sent: &[Message], response: bool) -> Offered {
    let mut found = (None, None);
    for message in sent {
        if message.header.response != response || found != (None, None) {
            continue;
        }
        for payload in &message.payloads {
            match payload {
                Payload::Sa(proposals) => found.0 = Some(number(&proposals[0].spi)),
                Payload::Nonce(nonce) => found.1 = Some(nonce.clone()),
                _ => {}
            }
        }
    }
    let (Some(spi), Some(nonce)) = found else {
        panic!("both ends rekey")
    };
    Offered { spi, nonce }
}

fn number(spi: &[u8]) -> u64 {
    spi.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Says whether a request deletes the IKE SA or the child SA that its sender has made under this SPI.
fn deletes_own(message: &Message, spi: u64) -> bool {
    let of_child = |payload: &Payload| match payload {
        Payload::Delete(delete) => delete.spis.iter().any(|one| u64::from(*one) == spi),
        _ => false,
    };
    let of_ike = deletes_ike(message) && message.header.initiator_spi == spi;
    !message.header.response && (of_ike || message.payloads.iter().any(of_child))
}

/// RFC 7296 §2.8.1, §2.8.2: of the two new SAs the one is redundant that was made with the lowest of the four nonces. The
/// end that has made it deletes it.
// RFC 7296 R105, R106
#[test]
fn the_lowest_nonce_loses_when_both_ends_rekey() {
    for child in [None, Some("net")] {
        let mut pair = tapped(|_, _| {});
        pair.initiate();
        pair.run(SECOND);
        let mut losers = BTreeSet::new();
        for _ in 0..8 {
            let before = [pair.a.sent.len(), pair.b.sent.len()];
            for side in [&mut pair.a, &mut pair.b] {
                side.endpoint.rekey(pair.now, "site", child).unwrap();
            }
            pair.flush();
            pair.run(60 * SECOND);
            pair.assert_agreed(1, 1);
            let mut ends = [(&pair.a, before[0]), (&pair.b, before[1])].map(|(side, before)| {
                let sent = sent_by(&pair, side).split_off(before);
                let sent: Vec<_> = sent.into_iter().map(|sent| sent.message).collect();
                let (request, response) = (offered(&sent, false), offered(&sent, true));
                (side, sent, request, response)
            });
            let lowest_of = |end: usize| Ord::min(&ends[end].2.nonce, &ends[1 - end].3.nonce);
            losers.insert(lowest_of(0) < lowest_of(1));
            if lowest_of(0) < lowest_of(1) {
                ends.reverse();
            }
            let [
                (winner, _, request, _),
                (_, sent_by_loser, redundant, response),
            ] = ends;
            let spis: Vec<_> = match child {
                None => winner.ike_sas().into_iter().collect(),
                Some(_) => {
                    let spis = winner.child_spis().into_iter();
                    spis.map(|(own, peers)| (own.into(), peers.into()))
                        .collect()
                }
            };
            assert_eq!(spis, [(request.spi, response.spi)], "{child:?}");
            let deleted = |message: &Message| deletes_own(message, redundant.spi);
            assert!(sent_by_loser.iter().any(deleted), "{child:?}");
        }
        assert_eq!(losers.len(), 2, "each end has lost once");
    }
}

/// An end asks for another child, when its own rekey of the IKE SA is under way, or when it has answered the peer's.
// RFC 7296 R18, R98
#[test]
fn the_delete_is_all_that_follows_on_a_rekeyed_ike_sa() {
    for asked_by_a in [true, false] {
        let mut pair = tapped(with_two_children);
        pair.network.conditions.delay = SECOND / 10..SECOND / 10;
        let endpoint = &mut pair.a.endpoint;
        endpoint.initiate(pair.now, "site", Some("net")).unwrap();
        pair.flush();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
        pair.flush();
        while !asked_by_a && pair.b.sent.len() < 3 {
            assert!(pair.step(pair.now + SECOND));
        }
        let asks = match asked_by_a {
            true => &mut pair.a,
            false => &mut pair.b,
        };
        let done = asks.endpoint.initiate(pair.now, "site", Some("v6"));
        done.unwrap();
        pair.flush();
        pair.run(SECOND);
        pair.assert_agreed(1, 2);
        let requests = |side| {
            let mut sent = on_first_sa(&pair, side);
            sent.retain(|message| !message.header.response);
            sent
        };
        let by_a = requests(&pair.a);
        let kinds: Vec<_> = by_a.iter().map(|m| m.header.exchange).collect();
        let expected = [
            ExchangeType::IKE_SA_INIT,
            ExchangeType::IKE_AUTH,
            ExchangeType::CREATE_CHILD_SA,
            ExchangeType::INFORMATIONAL,
        ];
        assert_eq!(kinds, expected);
        assert!(deletes_ike(&by_a[3]));
        assert_eq!(requests(&pair.b), []);
        pair.assert_clean_end();
    }
}

// RFC 7296 R30, R32
#[test]
fn a_response_names_only_what_its_sender_has_not_deleted_itself() {
    type Close = fn(&mut Side, Instant);
    let by_command: Close = |side, now| {
        let closed = side.endpoint.terminate(now, "site", Some("net"));
        assert_eq!(closed, Ok(1));
    };
    let by_data_plane: Close = |side, now| {
        let child = *side.children.keys().next().unwrap();
        side.endpoint.reject_child_sa(now, child).unwrap();
    };
    let ike_sa: Close = |side, now| {
        assert_eq!(side.endpoint.terminate(now, "site", None), Ok(1));
    };
    for (close, left) in [(by_command, 1), (by_data_plane, 1), (ike_sa, 0)] {
        for crossing in [false, true] {
            check_deletes(close, left, crossing);
        }
    }
}

#[test]
fn an_sa_that_the_data_plane_refuses_ends_before_the_peer_answers() {
    let mut pair = tapped(|_, _| {});
    pair.initiate();
    pair.run(SECOND);
    pair.b.dead = true;
    let child = *pair.a.children.keys().next().unwrap();
    pair.a.endpoint.reject_child_sa(pair.now, child).unwrap();
    pair.flush();
    assert!(pair.a.children.is_empty());
    let ended = pair.a.events.iter().find_map(|event| match event {
        Event::ChildSaDeleted(deleted) => Some(&deleted.reason),
        _ => None,
    });
    assert_eq!(ended, Some(&DownReason::Resources(Shortage::DataPlane)));
    let again = pair.a.endpoint.reject_child_sa(pair.now, child);
    assert_eq!(again, Err(CommandError::NoSa));
    pair.b.dead = false;
    pair.run(5 * SECOND);
    pair.assert_agreed(1, 0);
}

/// A deletes something, and B too if it is `crossing`. Then there are `left` IKE SAs.
fn check_deletes(close: impl Fn(&mut Side, Instant), left: usize, crossing: bool) {
    let mut pair = tapped(|_, _| {});
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    close(&mut pair.a, pair.now);
    if crossing {
        close(&mut pair.b, pair.now);
    }
    pair.flush();
    pair.run(5 * SECOND);
    pair.assert_agreed(left, 0);
    let informational = |side, response| {
        let mut sent = on_first_sa(&pair, side);
        sent.retain(|message| {
            let header = message.header;
            header.exchange == ExchangeType::INFORMATIONAL && header.response == response
        });
        sent
    };
    assert_eq!(informational(&pair.a, false).len(), 1);
    assert_eq!(informational(&pair.b, false).len(), usize::from(crossing));
    let lens = |side| {
        let answers = informational(side, true);
        let lens = answers.iter().map(|answer| answer.payloads.len());
        lens.collect::<Vec<_>>()
    };
    let named = usize::from(left == 1 && !crossing);
    assert_eq!(lens(&pair.b), [named]);
    assert_eq!(lens(&pair.a), vec![0; usize::from(crossing)]);
    pair.assert_clean_end();
}

// RFC 7296 R56
#[test]
fn one_request_is_outstanding_however_many_the_peer_allows() {
    let names = ["one", "two", "three"];
    for allowed in [None, Some(16_u32)] {
        let (mut side, now) = b_with(|config| {
            change_connection(config, |connection| {
                let more = names.map(|name| child(name, NET_B, NET_A).into());
                connection.children.extend(more);
            });
        });
        let mut script = Script::established(&mut side, now);
        if let Some(size) = allowed {
            let kind = NotifyType::SET_WINDOW_SIZE;
            let notify = Notify::new(kind, size.to_be_bytes().to_vec());
            let payloads = [Payload::Notify(notify)];
            let exchange = ExchangeType::INFORMATIONAL;
            let answer = script.exchange(&mut side, now, exchange, &payloads);
            assert!(answer.is_some());
        }
        for name in names {
            side.endpoint.initiate(now, "site", Some(name)).unwrap();
        }
        side.endpoint.rekey(now, "site", Some("net")).unwrap();
        let refusal = Notify::new(NotifyType::NO_ADDITIONAL_SAS, vec![]);
        let mut requests = Script::take(&mut side);
        let mut answered = 0;
        while let [request] = &requests[..] {
            assert_eq!(Header::decode(request).unwrap().message_id, answered);
            side.endpoint.handle_timeout(now + 5 * SECOND);
            assert!(Script::take(&mut side).iter().all(|again| again == request));
            answered += 1;
            let refusal = [Payload::Notify(refusal.clone())];
            requests = script.answer(&mut side, now, &request.clone(), &refusal);
        }
        assert!(requests.is_empty(), "{} at once", requests.len());
        assert_eq!(answered, 4);
    }
}

// RFC 7296 R108
#[test]
fn a_second_rekey_of_an_ike_sa_is_refused_for_a_while() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::established(&mut side, now);
    let mut rekey = |spi| {
        let payloads = script.rekey_payloads(spi);
        let exchange = ExchangeType::CREATE_CHILD_SA;
        let answer = script.exchange(&mut side, now, exchange, &payloads);
        error_of(&answer.unwrap())
    };
    assert_eq!(rekey(0x1111), None);
    assert_eq!(rekey(0x2222), Some(NotifyType::TEMPORARY_FAILURE));
    assert_eq!(side.endpoint.counters().ike_rekeys, 1);
    let spis: Vec<_> = side.ike_sas().iter().map(|(spi, _)| *spi).collect();
    assert_eq!(spis, [0x1111]);
}

/// The ends prefer different ciphers, and each rekeys.
// RFC 7296 R96
#[test]
fn a_rekeyed_child_keeps_its_algorithms() {
    for by_a in [true, false] {
        let mut pair = Pair::with(|a, b| {
            for (connection, bits) in [(a, [128, 256]), (b, [256, 128])] {
                change_children(connection, |child| {
                    let ciphers = bits.map(|bits| (Encryption::AesGcm16, bits));
                    child.esp_proposals[0].encryption = ciphers.to_vec();
                });
            }
        });
        pair.initiate();
        pair.run(SECOND);
        let side = if by_a { &mut pair.a } else { &mut pair.b };
        side.endpoint.rekey(pair.now, "site", Some("net")).unwrap();
        pair.flush();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        let [old, new] = &pair.a.installed[..] else {
            panic!("two SAs");
        };
        assert_eq!(old.esp, new.esp, "by A: {by_a}");
        assert_eq!(
            (&old.local_ts, &old.remote_ts),
            (&new.local_ts, &new.remote_ts)
        );
        pair.assert_clean_end();
    }
}

/// The responder of the first exchange has chosen what the initiator would rather not have.
// RFC 7296 R96
#[test]
fn the_rekey_of_a_child_offers_its_algorithms_first() {
    const FIRST: [u16; 2] = [128, 256];
    let with_ciphers = |connection: &mut Connection, bits: [u16; 2]| {
        change_children(connection, |child| {
            let ciphers = bits.map(|bits| (Encryption::AesGcm16, bits));
            child.esp_proposals[0].encryption = ciphers.to_vec();
        });
    };
    let mut pair = tapped(|a, b| {
        with_ciphers(a, FIRST);
        with_ciphers(b, [256, 128]);
    });
    pair.initiate();
    pair.run(SECOND);
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let offered = |exchange| -> Vec<Vec<u16>> {
        let sent = sent_by(&pair, &pair.a).into_iter();
        let request = sent
            .map(|sent| sent.message)
            .find(|message| message.header.exchange == exchange);
        let proposals = request
            .unwrap()
            .payloads
            .into_iter()
            .find_map(|payload| match payload {
                Payload::Sa(proposals) => Some(proposals),
                _ => None,
            });
        let bits = |proposal: Proposal| {
            let transforms = proposal.transforms.into_iter();
            transforms
                .filter_map(|transform| transform.key_bits)
                .collect()
        };
        proposals.unwrap().into_iter().map(bits).collect()
    };
    assert_eq!(offered(ExchangeType::IKE_AUTH), [FIRST.to_vec()]);
    assert_eq!(
        offered(ExchangeType::CREATE_CHILD_SA),
        [vec![256], FIRST.to_vec()]
    );
}

/// The responder had narrowed the selectors. It gets a hint how, and may not narrow them otherwise.
// RFC 7296 R116
#[test]
fn the_rekey_of_a_child_offers_its_selectors_first() {
    let mut pair = tapped(|a, _| {
        change_children(a, |child| {
            child.remote_ts = vec![subnet("10.0.0.0-10.255.255.255")]
        });
    });
    pair.initiate();
    pair.run(SECOND);
    let end = &mut pair.a.endpoint;
    end.rekey(pair.now, "site", Some("net")).unwrap();
    pair.flush();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let sent = sent_by(&pair, &pair.a).into_iter();
    let mut requests = sent.map(|sent| sent.message);
    let rekey = requests.find(|message| message.header.exchange == ExchangeType::CREATE_CHILD_SA);
    let offered = rekey.unwrap().payloads.into_iter();
    let offered = offered.filter_map(|payload| match payload {
        Payload::TsR(selectors) => Some(selectors),
        _ => None,
    });
    let expected = [network(NET_B), network("10.0.0.0-10.255.255.255")].concat();
    assert_eq!(offered.collect::<Vec<_>>(), [expected]);
}

/// The configuration of one end is narrower when one of the two rekeys.
// RFC 7296 R116
#[test]
fn a_narrower_configuration_does_not_narrow_a_child_that_is_rekeyed() {
    for (changed_at_a, by_a) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut pair = Pair::established();
        let (mut a, mut b) = default_configs();
        let (changed, connection) = match changed_at_a {
            true => (&mut pair.a, &mut a),
            false => (&mut pair.b, &mut b),
        };
        change_children(connection, |child| {
            child.local_ts = vec![subnet(match changed_at_a {
                true => "10.1.0.0-10.1.0.255",
                false => "10.2.0.0-10.2.0.255",
            })];
        });
        changed.endpoint.set_config(config(connection.clone()));
        let side = if by_a { &mut pair.a } else { &mut pair.b };
        side.endpoint.rekey(pair.now, "site", Some("net")).unwrap();
        pair.flush();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        let [old, new] = &pair.a.installed[..] else {
            panic!("two SAs");
        };
        assert_eq!(
            (&old.local_ts, &old.remote_ts),
            (&new.local_ts, &new.remote_ts)
        );
        pair.assert_clean_end();
    }
}

fn network(range: &str) -> Vec<TrafficSelector> {
    let (start, end) = range.split_once('-').unwrap();
    vec![TrafficSelector::addresses(
        start.parse().unwrap(),
        end.parse().unwrap(),
    )]
}

/// The peer wants fewer selectors than the SA has, or more.
// RFC 7296 R116
#[test]
fn a_rekey_with_fewer_selectors_is_refused_and_one_with_more_is_narrowed() {
    const REFUSED: Option<NotifyType> = Some(NotifyType::TS_UNACCEPTABLE);
    for (proposed, refused) in [
        ("10.1.0.0-10.1.0.255", REFUSED),
        ("10.1.0.1-10.1.255.255", REFUSED),
        ("10.9.0.0-10.9.255.255", REFUSED),
        (NET_A, None),
        ("10.0.0.0-10.255.255.255", None),
    ] {
        let (mut side, now) = b_with(|_| {});
        let mut script = Script::established(&mut side, now);
        let before = side.endpoint.status()[0].children[0].clone();
        let mut payloads = Script::rekey_child_payloads();
        for payload in &mut payloads {
            if let Payload::TsI(selectors) = payload {
                *selectors = network(proposed);
            }
        }
        let kind = ExchangeType::CREATE_CHILD_SA;
        let answer = script.exchange(&mut side, now, kind, &payloads).unwrap();
        assert_eq!(error_of(&answer), refused, "{proposed}");
        let children = &side.endpoint.status()[0].children;
        let expected = if refused.is_some() { 1 } else { 2 };
        assert_eq!(children.len(), expected);
        for child in children {
            assert_eq!(child.remote_ts, before.remote_ts, "{proposed}");
            assert_eq!(child.local_ts, before.local_ts);
        }
        assert_eq!(
            children[0].state == before.state,
            refused.is_some(),
            "the old SA stays as it is"
        );
    }
}

/// B rekeys, and the peer narrows more than before. B deletes the new SA, and keeps the old one.
// RFC 7296 R116
#[test]
fn a_response_with_fewer_selectors_than_the_rekeyed_sa_has_is_not_accepted() {
    for (answered, accepted) in [(NET_B, true), ("10.2.0.0-10.2.0.255", false)] {
        let (mut side, now) = b_with(|_| {});
        let mut script = Script::established(&mut side, now);
        let before = side.endpoint.status()[0].children[0].id;
        side.endpoint.rekey(now, "site", Some("net")).unwrap();
        let request = Script::take(&mut side).remove(0);
        let mut payloads = Script::rekey_child_payloads();
        // B is the initiator of this exchange.
        payloads.remove(0);
        for payload in &mut payloads {
            match payload {
                Payload::TsR(own) => *own = network(NET_A),
                Payload::TsI(peers) => *peers = network(answered),
                _ => {}
            }
        }
        let sent = script.answer(&mut side, now, &request, &payloads);
        let status = side.endpoint.status();
        let old = status[0]
            .children
            .iter()
            .find(|child| child.id == before)
            .unwrap();
        assert_eq!(old.state == ChildSaState::Installed, !accepted);
        assert_eq!(status[0].children.len(), if accepted { 2 } else { 1 });
        let narrow = ChildFailure::PeerMisbehaved(ChildResponseFault::SelectorsTooNarrow);
        let failed =
            |event: &Event| matches!(event, Event::ChildFailed { reason, .. } if *reason == narrow);
        assert_eq!(side.events.iter().any(failed), !accepted);
        let [delete] = &sent[..] else {
            panic!("a delete of the SA that is not needed");
        };
        let [Payload::Delete(delete)] = &script.open(delete).payloads[..] else {
            panic!("a delete");
        };
        let deletes_old = delete.spis == [old.spi_in];
        assert_eq!(deletes_old, accepted);
    }
}

/// The times from the beginning to the rekey: of the IKE SA and of the child SA, at either end.
fn times_to_rekey(pair: &Pair) -> Vec<Duration> {
    let mut times = Vec::new();
    for side in [&pair.a, &pair.b] {
        let status = side.endpoint.status();
        let sa = status.last().unwrap();
        let child = &sa.children[0];
        times.push(sa.rekey_at.unwrap() - sa.established.unwrap());
        times.push(child.rekey_at.unwrap() - child.installed);
    }
    times
}

// RFC 7296 R103
#[test]
fn chance_makes_every_rekey_earlier() {
    let at_most = Duration::from_secs(1000);
    for rand in [Duration::ZERO, Duration::from_secs(100)] {
        let mut pair = Pair::with(|a, b| {
            for connection in [a, b] {
                (connection.rekey_time, connection.rand_time) = (at_most, rand);
                change_children(connection, |child| {
                    child.lifetime = Lifetime {
                        rekey_time: at_most,
                        life_time: 2 * at_most,
                        rand_time: rand,
                        ..child.lifetime
                    };
                });
            }
        });
        pair.initiate();
        pair.run(Duration::from_millis(200));
        let mut times = times_to_rekey(&pair);
        pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
        let child = pair.a.endpoint.rekey(pair.now, "site", Some("net"));
        child.unwrap();
        pair.flush();
        pair.run(Duration::from_millis(200));
        times.extend(times_to_rekey(&pair));
        let within = |time: &Duration| (at_most - rand..=at_most).contains(time);
        assert!(times.iter().all(within), "{times:?}");
        let different: BTreeSet<_> = times.iter().collect();
        let expected = if rand.is_zero() { 1 } else { times.len() };
        assert_eq!(different.len(), expected, "{times:?}");
    }
}

/// A peer keeps no more replaced IKE SAs here than it has IKE SAs.
#[test]
fn what_a_rekey_has_replaced_ends_with_its_successor() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::established(&mut side, now);
    script.rekey_ike(&mut side, now);
    assert_eq!(side.endpoint.status().len(), 2);
    let delete = Delete {
        protocol: ProtocolId::IKE,
        spis: vec![],
    };
    let exchange = ExchangeType::INFORMATIONAL;
    script.exchange(&mut side, now, exchange, &[Payload::Delete(delete)]);
    assert!(side.endpoint.status().is_empty());
}

/// If our answer to its rekey is lost, the peer repeats the request on the old IKE SA.
#[test]
fn a_replaced_ike_sa_is_kept_for_as_long_as_requests_are_repeated() {
    for (tries, seconds) in [(1, 165), (6, 301)] {
        let (mut side, start) = b_with(|b| {
            change_connection(b, |b| b.retransmission.tries = tries);
        });
        let mut script = Script::established(&mut side, start);
        script.rekey_ike(&mut side, start);
        let mut now = start;
        while Script::take(&mut side).is_empty() {
            now = side.endpoint.poll_timeout().unwrap();
            side.endpoint.handle_timeout(now);
        }
        assert_eq!((now - start).as_secs(), seconds, "our own delete");
    }
}

/// B's answers to the rekey are lost. A says that it does not know the new IKE SA, on which B asks for something.
#[test]
fn a_peer_that_cannot_know_the_new_ike_sa_yet_is_not_doubted() {
    let mut pair = Pair::with(|_, b| {
        (b.dpd_delay, b.dpd_timeout) = (300 * SECOND, 10 * SECOND);
        b.dpd_by_traffic = true;
    });
    pair.initiate();
    pair.run(SECOND);
    let lossy = Arc::new(AtomicBool::new(true));
    let loses = Arc::clone(&lossy);
    let b = pair.b.address;
    pair.attacker = Some(Box::new(move |datagram| {
        let header = Header::decode(&datagram.payload).unwrap();
        if header.response && datagram.from.ip() == b && loses.load(Ordering::Relaxed) {
            datagram.payload.clear();
        }
    }));
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(SECOND);
    let (now, endpoint) = (pair.now, &mut pair.b.endpoint);
    endpoint.rekey(now, "site", Some("net")).unwrap();
    pair.flush();
    pair.run(14 * SECOND);
    assert!(pair.b.endpoint.counters().refused(Refusal::Integrity) > 0);
    lossy.store(false, Ordering::Relaxed);
    pair.run(60 * SECOND);
    pair.assert_agreed(1, 1);
    for side in [&pair.a, &pair.b] {
        let down = |event: &Event| matches!(event, Event::IkeSaDown { .. });
        assert!(!side.events.iter().any(down), "{}", side.name);
    }
    pair.assert_clean_end();
}
