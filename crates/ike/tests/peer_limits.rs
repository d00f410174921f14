//! Limits on what one identity may have: each is warned of, refused by its notify, and leaves others alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::script::{SPI, Script, error_of};
use crate::common::*;
use esplanade_crypto::iana::Group;
use esplanade_ike::config::{Config, EspProposal, Selector};
use esplanade_ike::event::PeerLimit;
use esplanade_ike::failure::Shortage;
use esplanade_ike::wire::{
    ExchangeType, Id, IdType, Notify, NotifyType, Payload, PayloadType, ProtocolId, TrafficSelector,
};
use esplanade_ike::{ChildFailure, Event, Host, PolicyRoom, Refusal, WantedPolicy};

const SECOND: Duration = Duration::from_secs(1);
const PSK: &[u8] = b"a shared secret";

/// A gateway whose peer may have any selectors, also several times.
fn gateway(change: impl FnOnce(&mut Config)) -> (Side, Instant) {
    b_with(|config| {
        change_connection(config, |connection| {
            change_children(connection, |child| child.overlap = true);
        });
        change(config);
    })
}

/// A request for a child SA with this SPI, and with this many selectors of the peer.
fn request(spi: u8, selectors: u8) -> Vec<Payload> {
    let mut payloads = Script::create_child_payloads();
    if let Payload::Sa(proposals) = &mut payloads[0] {
        proposals[0].spi = vec![0, 0, 0x55, spi];
    }
    let host = |n| TrafficSelector::addresses([10, 1, n, 1].into(), [10, 1, n, 1].into());
    payloads[1] = Payload::TsI((0..selectors).map(host).collect());
    payloads
}

fn ask(
    script: &mut Script,
    side: &mut Side,
    now: Instant,
    payloads: &[Payload],
) -> Option<NotifyType> {
    let answer = script.exchange(side, now, ExchangeType::CREATE_CHILD_SA, payloads);
    error_of(&answer.unwrap())
}

fn warnings(side: &Side, wanted: PeerLimit) -> Vec<(usize, usize)> {
    let of_limit = |event: &Event| match event {
        Event::LimitNear {
            limit, used, most, ..
        } if *limit == wanted => Some((*used, *most)),
        _ => None,
    };
    side.events.iter().filter_map(of_limit).collect()
}

fn delete(script: &mut Script, side: &mut Side, now: Instant, spi: u8) {
    let delete = Payload::Delete(esplanade_ike::wire::Delete {
        protocol: ProtocolId::ESP,
        spis: vec![0x5500 | u32::from(spi)],
    });
    script.exchange(side, now, ExchangeType::INFORMATIONAL, &[delete]);
}

#[test]
fn child_sas_of_one_identity_are_limited_over_all_its_ike_sas() {
    let (mut side, now) = gateway(|config| config.limits.children_per_peer_max = 10);
    let mut first = Script::established(&mut side, now);
    for spi in 1..=6 {
        assert_eq!(ask(&mut first, &mut side, now, &request(spi, 1)), None);
    }
    assert!(warnings(&side, PeerLimit::ChildSas).is_empty());
    let mut second = Script::new();
    second.spi_i = SPI + 1;
    let payloads = second.init_payloads();
    second.init(&mut side, now, payloads).unwrap();
    let payloads = second.auth_payloads(PSK);
    let answer = second.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(error_of(&answer.unwrap()), None);
    assert_eq!(warnings(&side, PeerLimit::ChildSas), [(8, 10)]);
    for spi in 11..=12 {
        assert_eq!(ask(&mut second, &mut side, now, &request(spi, 1)), None);
    }
    let refused = Some(NotifyType::NO_ADDITIONAL_SAS);
    assert_eq!(ask(&mut second, &mut side, now, &request(13, 1)), refused);
    assert_eq!(ask(&mut first, &mut side, now, &request(7, 1)), refused);
    assert_eq!(side.refused(Refusal::ChildSaPerPeer), 2);
    // A rekey is no further SA.
    assert_eq!(
        ask(&mut first, &mut side, now, &Script::rekey_child_payloads()),
        None
    );
    delete(&mut first, &mut side, now, 1);
    delete(&mut first, &mut side, now, 2);
    assert_eq!(
        ask(&mut first, &mut side, now, &request(7, 1)),
        None,
        "there is room again"
    );
    assert_eq!(
        warnings(&side, PeerLimit::ChildSas).len(),
        1,
        "one for each approach"
    );
}

#[test]
fn selectors_of_one_identity_are_limited_over_all_its_child_sas() {
    let (mut side, now) = gateway(|config| config.limits.selectors_per_peer_max = 100);
    let mut script = Script::established(&mut side, now);
    assert_eq!(ask(&mut script, &mut side, now, &request(1, 60)), None);
    let refused = Some(NotifyType::TS_UNACCEPTABLE);
    assert_eq!(ask(&mut script, &mut side, now, &request(2, 40)), refused);
    assert_eq!(side.refused(Refusal::SelectorsPerPeer), 1);
    assert_eq!(
        ask(&mut script, &mut side, now, &request(2, 39)),
        None,
        "the first child has one"
    );
    assert_eq!(warnings(&side, PeerLimit::Selectors), [(100, 100)]);
    // The selectors of the SA that is rekeyed count once.
    let mut rekey = request(3, 60);
    let old = Notify::about_child(NotifyType::REKEY_SA, ProtocolId::ESP, 0x5501);
    rekey.insert(0, Payload::Notify(old));
    assert_eq!(ask(&mut script, &mut side, now, &rekey), None);
}

#[test]
fn requests_of_one_identity_are_limited_in_time() {
    let (mut side, now) = gateway(|config| config.limits.child_requests_per_second = 1);
    let mut script = Script::established(&mut side, now);
    // IKE_AUTH was the first request.
    for spi in 1..20 {
        assert_eq!(ask(&mut script, &mut side, now, &request(spi, 1)), None);
    }
    let busy = Some(NotifyType::TEMPORARY_FAILURE);
    assert_eq!(ask(&mut script, &mut side, now, &request(20, 1)), busy);
    assert_eq!(side.refused(Refusal::WorkPerPeer), 1);
    // 64 pairs of selectors cost as much as two requests more.
    assert_eq!(
        ask(&mut script, &mut side, now + SECOND, &request(20, 64)),
        None
    );
    assert_eq!(
        ask(&mut script, &mut side, now + 3 * SECOND, &request(21, 1)),
        busy
    );
    assert_eq!(
        ask(&mut script, &mut side, now + 4 * SECOND, &request(21, 1)),
        None
    );
}

/// A key exchange costs a hundred times what the refusal costs.
#[test]
fn no_key_exchange_is_computed_for_a_request_beyond_the_limit() {
    for rekeys_ike in [false, true] {
        let now = Instant::now();
        let mut b = config(default_configs().1);
        b.limits.child_requests_per_second = 1;
        change_connection(&mut b, |connection| {
            change_children(connection, |child| {
                child.overlap = true;
                let proposal = child.esp_proposals[0].clone();
                let with_method = EspProposal {
                    groups: vec![Group::Curve25519],
                    ..proposal.clone()
                };
                child.esp_proposals = vec![proposal, with_method];
            });
        });
        let mut side = Side::with_host("b", B, b, now, 2, |host| host.runs_jobs = false);
        let mut script = Script::new();
        let init = script.init_payloads();
        let message = script.init_request(init.clone());
        assert!(script.send(&mut side, now, &message).is_empty());
        let job = side.endpoint.poll_job(now).unwrap();
        side.endpoint.job_done(now, job.run(), Duration::ZERO);
        let response = Script::take(&mut side).remove(0);
        script.take_init(response);
        let payloads = script.auth_payloads(PSK);
        let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
        assert_eq!(error_of(&answer.unwrap()), None);
        let mut dear = match rekeys_ike {
            true => script.rekey_ike_payloads(),
            false => request(40, 1),
        };
        if !rekeys_ike {
            dear.extend(init.into_iter().filter(|one| one.kind() == PayloadType::KE));
        }
        for spi in 1..20 {
            assert_eq!(ask(&mut script, &mut side, now, &request(spi, 1)), None);
        }
        let busy = Some(NotifyType::TEMPORARY_FAILURE);
        assert_eq!(ask(&mut script, &mut side, now, &dear), busy);
        assert!(side.endpoint.poll_job(now).is_none());
        assert_eq!(side.refused(Refusal::WorkPerPeer), 1);
        // A second later there is one.
        let header = script.header(ExchangeType::CREATE_CHILD_SA, script.next_id);
        let message = script.seal(&header, &dear);
        let later = now + SECOND;
        assert!(script.send(&mut side, later, &message).is_empty());
        assert!(side.endpoint.poll_job(later).is_some());
    }
}

#[test]
fn ike_sas_are_warned_of() {
    let (mut side, now) = gateway(|config| config.limits.ike_sas_per_peer_max = 5);
    for attempt in 0..6 {
        let mut script = Script::new();
        script.spi_i = SPI + attempt;
        let payloads = script.init_payloads();
        script.init(&mut side, now, payloads).unwrap();
        let payloads = script.auth_payloads(PSK);
        let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
        let refused = (attempt == 5).then_some(NotifyType::AUTHENTICATION_FAILED);
        assert_eq!(error_of(&answer.unwrap()), refused);
    }
    assert_eq!(warnings(&side, PeerLimit::IkeSas), [(4, 5)]);
}

/// A peer that connects and disconnects again and again keeps nobody out.
#[test]
fn ike_sas_that_have_ended_make_room() {
    let (mut side, now) = b_with(|config| config.limits.ike_sas_max = 5);
    let mut connect = |attempt, ends: bool| {
        let mut script = Script::new();
        script.spi_i = SPI + attempt;
        let payloads = script.init_payloads();
        script.init(&mut side, now, payloads)?;
        let payloads = script.auth_payloads(PSK);
        let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads)?;
        assert_eq!(error_of(&answer), None);
        let delete = Payload::Delete(esplanade_ike::wire::Delete {
            protocol: ProtocolId::IKE,
            spis: Vec::new(),
        });
        if ends {
            script.exchange(&mut side, now, ExchangeType::INFORMATIONAL, &[delete])?;
        }
        Some(())
    };
    for attempt in 0..20 {
        assert_eq!(connect(attempt, true), Some(()), "{attempt}");
    }
    for attempt in 20..25 {
        assert_eq!(connect(attempt, false), Some(()), "{attempt}");
    }
    assert_eq!(connect(25, false), None, "those that live stay");
    assert_eq!(side.refused(Refusal::IkeSaLimit), 1);
}

/// Room for policies, while the test says so.
struct Room(Arc<AtomicBool>);

impl PolicyRoom for Room {
    fn has_room(&mut self, wanted: &WantedPolicy<'_>) -> bool {
        assert_eq!((wanted.connection, wanted.child), ("site", "net"));
        assert!(!wanted.local_ts.is_empty() && !wanted.remote_ts.is_empty());
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_child_sa_whose_policy_has_no_room_is_refused_and_the_ike_sa_stands() {
    let room = Arc::new(AtomicBool::new(false));
    let with_room = |host: &mut Host| host.policies = Box::new(Room(Arc::clone(&room)));
    let now = Instant::now();
    let config = config(default_configs().1);
    let mut side = Side::with_host("b", B, config, now, 2, with_room);
    let mut script = Script::new();
    let payloads = script.init_payloads();
    script.init(&mut side, now, payloads).unwrap();
    let payloads = script.auth_payloads(PSK);
    let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(
        error_of(&answer.unwrap()),
        Some(NotifyType::TS_UNACCEPTABLE)
    );
    assert_eq!(side.refused(Refusal::NoPolicyRoom), 1);
    assert!(side.endpoint.status()[0].children.is_empty());
    room.store(true, Ordering::Relaxed);
    let payloads = Script::create_child_payloads();
    assert_eq!(ask(&mut script, &mut side, now, &payloads), None);
}

#[test]
fn an_initiator_makes_no_child_sa_whose_policy_has_no_room() {
    let room = Arc::new(AtomicBool::new(false));
    let mut pair = Pair::with(|_, _| {});
    let config = config(default_configs().0);
    let with_room = |host: &mut Host| host.policies = Box::new(Room(Arc::clone(&room)));
    pair.a = Side::with_host("a", A, config, pair.now, 2, with_room);
    pair.initiate();
    pair.run(SECOND);
    assert_eq!(pair.a.refused(Refusal::NoPolicyRoom), 1);
    assert!(pair.a.child_spis().is_empty());
    let failed = pair.a.events.iter().find_map(|event| match event {
        Event::ChildFailed { reason, .. } => Some(reason),
        _ => None,
    });
    let policies = ChildFailure::Resources(Shortage::Policies);
    assert_eq!(failed, Some(&policies));
}

#[test]
fn an_identity_that_is_too_long_is_refused_by_name() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::new();
    script.id = Id::new(IdType::FQDN, vec![b'a'; 1025]);
    let payloads = script.init_payloads();
    script.init(&mut side, now, payloads).unwrap();
    let payloads = script.auth_payloads(PSK);
    let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(
        error_of(&answer.unwrap()),
        Some(NotifyType::AUTHENTICATION_FAILED)
    );
    let told = |event: &Event| match event {
        Event::Refused(refused) => refused.why.contains("1025 octets"),
        _ => false,
    };
    assert!(side.events.iter().any(told));
}

#[test]
fn half_open_sas_keep_a_bounded_number_of_bytes() {
    let (mut side, now) = b_with(|config| config.limits.half_open_bytes_max = 60_000);
    let mut connect = |attempt: u64, len: usize| {
        let mut script = Script::new();
        script.spi_i = SPI + attempt;
        let mut payloads = script.init_payloads();
        payloads.push(Payload::Vendor(vec![0; len]));
        script.init(&mut side, now, payloads).is_some()
    };
    assert!(connect(0, 50_000), "a single long one is served");
    assert!(!connect(1, 50_000));
    assert!(connect(2, 1_000), "short ones are");
    assert_eq!(side.refused(Refusal::HalfOpenBytes), 1);
}

#[test]
fn a_selector_is_counted_with_each_of_the_other_end() {
    let (mut side, now) = gateway(|config| {
        config.limits.selectors_per_peer_max = 10;
        change_connection(config, |connection| {
            change_children(connection, |child| {
                child.local_ts = vec![Selector::range(
                    [10, 2, 0, 0].into(),
                    [10, 2, 255, 255].into(),
                )];
            });
        });
    });
    let mut script = Script::established(&mut side, now);
    let mut payloads = request(1, 3);
    let host = |n| TrafficSelector::addresses([10, 2, n, 1].into(), [10, 2, n, 1].into());
    payloads[2] = Payload::TsR((0..4).map(host).collect());
    let refused = Some(NotifyType::TS_UNACCEPTABLE);
    assert_eq!(ask(&mut script, &mut side, now, &payloads), refused);
    payloads[2] = Payload::TsR((0..3).map(host).collect());
    assert_eq!(ask(&mut script, &mut side, now, &payloads), None);
}
