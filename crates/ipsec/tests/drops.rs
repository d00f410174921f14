//! Every drop reason is produced once, counted once, and leaves the counters reconciled.

use std::sync::Arc;

use crate::common::{
    LEFT, ONE, RIGHT, Tunnel, assert_reconciled, facts, inner, ipv4, key_material, parameters,
    prefix, selectors,
};
use esplanade_crypto::random::RandomError;
use esplanade_crypto::{Batch, Engine, JobStatus, KeyContext, Protocol, Rejected, Transform, cpu};
use esplanade_ipsec::DropReason;
use esplanade_ipsec::audit::AuditKind;
use esplanade_ipsec::lifetime::LifetimeLimits;
use esplanade_ipsec::outbound::{Outbound, TrainLimits, WalkLimits};
use esplanade_ipsec::sa::{InboundSa, Mode, OutboundSa, SaParameters};
use esplanade_ipsec::selector::{NextLayer, PortRange, Selector, SelectorSet};
use esplanade_ipsec::sequence::SequenceAllocator;
use esplanade_ipsec::spd::{Action, Policy, PolicyId, Spd, SpdEntry};
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::{IpView, checksum, ip};

const GCM: Transform = Transform::ESP[0];
const CBC: Transform = Transform::ESP[3];

/// Where the reason must be counted.
enum Walk {
    Outbound(Tunnel),
    Inbound(Tunnel),
    /// Not counted by a walk: the caller of the SPD decides.
    Verdict(DropReason),
}

/// Sends one packet of the left site.
fn send(mut tunnel: Tunnel, packet: &[u8]) -> Walk {
    assert!(tunnel.seal(&[packet.to_vec()]).is_empty());
    Walk::Outbound(tunnel)
}

/// Receives packets of which the last one is dropped.
fn receive(mut tunnel: Tunnel, packets: &[Vec<u8>]) -> Walk {
    assert_eq!(tunnel.open(packets).len(), packets.len() - 1);
    Walk::Inbound(tunnel)
}

/// An authentic packet with a body that no honest sender makes.
fn forge(tunnel: &Tunnel, body: &[u8]) -> Vec<u8> {
    let key = crate::common::key_material(GCM);
    let key = KeyContext::new(GCM, false, &key).expect("good keys");
    let mut packet = tunnel.inbound_sa.common.spi.to_be_bytes().to_vec();
    packet.extend(9u32.to_be_bytes());
    packet.extend(9u64.to_be_bytes());
    packet.extend(body);
    packet.extend([0; 16]);
    assert_eq!(cpu::seal(&key, 9, &mut packet), JobStatus::Done);
    packet
}

fn receive_forged(body: &[u8]) -> Walk {
    let tunnel = Tunnel::new(GCM, false);
    let packet = forge(&tunnel, body);
    receive(tunnel, &[packet])
}

fn with_action(action: Action) -> Tunnel {
    let mut tunnel = Tunnel::new(GCM, false);
    tunnel.spd = Spd::new(vec![SpdEntry::new(selectors(LEFT, RIGHT), action)]);
    tunnel
}

/// A reason, and a walk that has dropped one packet for it.
type DropCase = (DropReason, fn() -> Walk);

/// How each reason is produced. [`DropReason::TooBig`] is missing: the caller of the walk raises it, and has the test.
const CASES: &[DropCase] = &[
    (DropReason::MalformedInner, || {
        send(Tunnel::new(GCM, false), &hello()[..19])
    }),
    (DropReason::PolicyDiscard, || {
        send(with_action(Action::Discard), &hello())
    }),
    (DropReason::NoPolicy, || {
        let elsewhere = ipv4("10.1.0.7", "10.9.0.9", 17, 0, &[0; 8]);
        send(Tunnel::new(GCM, false), &elsewhere)
    }),
    (DropReason::NoSa, || {
        let tunnel = Tunnel::new(GCM, false);
        tunnel.policy.remove(tunnel.outbound_sa.common.spi);
        send(tunnel, &hello())
    }),
    (DropReason::OutsideSaSelectors, || {
        let narrow = selectors(["10.1.0.0/30", LEFT[1]], RIGHT);
        let tunnel = Tunnel::with(GCM, false, |p| p.selectors = narrow.clone());
        send(tunnel, &hello())
    }),
    (DropReason::SequenceExhausted, sequence_exhausted),
    (DropReason::LifetimeExpired, lifetime_expired),
    (DropReason::TooLong, || {
        let mut tunnel = Tunnel::new(GCM, false);
        tunnel.outbound = Outbound::new(WalkLimits {
            buffer_len: 100,
            ..WalkLimits::default()
        });
        send(tunnel, &inner(4, &[0; 200]))
    }),
    (DropReason::FragmentRefused, fragment_refused),
    (DropReason::Fragment, || {
        let tunnel = Tunnel::with(GCM, false, |p| p.mode = Mode::Transport);
        let mut first = hello();
        first[6] = 0x20;
        fix_checksum(&mut first);
        send(tunnel, &first)
    }),
    (DropReason::NestedTooDeep, nested_too_deep),
    (DropReason::EngineFailed, || {
        let mut tunnel = Tunnel::new(GCM, false);
        let _ = tunnel.outbound.push(&tunnel.spd, &hello()).expect("room");
        let submitted = tunnel.outbound.submit(&mut tunnel.seal_engine);
        assert_eq!(submitted, Ok(()));
        tunnel.outbound.engine_lost();
        Walk::Outbound(tunnel)
    }),
    (DropReason::NoRandomness, || {
        let mut tunnel = Tunnel::new(CBC, false);
        tunnel.outbound = Outbound::with_random(WalkLimits::default(), |_| Err(RandomError), 8);
        send(tunnel, &hello())
    }),
    (DropReason::MalformedEsp, || {
        receive_changed(|sealed| sealed[0].truncate(20))
    }),
    (DropReason::MalformedAh, malformed_ah),
    (DropReason::UnknownSpi, || {
        receive_changed(|sealed| sealed[0][0] ^= 0x80)
    }),
    (DropReason::Replayed, || {
        receive_changed(|sealed| sealed.push(sealed[0].clone()))
    }),
    (DropReason::BeforeWindow, || {
        let mut tunnel = Tunnel::new(GCM, false);
        let mut sealed = tunnel.seal(&vec![hello(); 65]);
        let first = sealed.remove(0);
        receive(tunnel, &[sealed.remove(63), first])
    }),
    (DropReason::AuthenticationFailed, || {
        receive_changed(|sealed| *sealed[0].last_mut().expect("not empty") ^= 1)
    }),
    (DropReason::BadPadding, || receive_forged(&[0, 9, 2, 4])),
    (DropReason::BadNextHeader, || {
        receive_forged(&[0, 0, 0, ip::PROTOCOL_UDP])
    }),
    (DropReason::Dummy, || {
        receive_forged(&[1, 2, 0, ip::PROTOCOL_NONE])
    }),
    (DropReason::SelectorMismatch, || {
        let mut body = ipv4("10.1.0.7", "10.3.0.1", 17, 0, &[0; 10]);
        body.extend([0, 4]);
        receive_forged(&body)
    }),
    (DropReason::MalformedIcmpError, || {
        let mut body = ipv4("203.0.113.1", "10.2.0.9", 1, 0, &[3, 4, 0, 0, 0, 0, 4, 0]);
        body.extend([1, 2, 2, 4]);
        receive_forged(&body)
    }),
    (DropReason::IcmpErrorMismatch, icmp_error_mismatch),
    (DropReason::UnknownFragment, || {
        let mut later = hello();
        later[7] = 3;
        fix_checksum(&mut later);
        let mut tunnel = for_one_port();
        let sealed = tunnel.seal(&[later]);
        receive(tunnel, &sealed)
    }),
    (DropReason::EcnNotCapable, || {
        let mut tunnel = Tunnel::new(GCM, false);
        let sealed = tunnel.seal(&[hello()]);
        let congested = OuterFacts { tos: 3, ..facts() };
        assert!(tunnel.open_from(&sealed, &congested).is_empty());
        Walk::Inbound(tunnel)
    }),
    (DropReason::NotProtected, || {
        let packet = hello();
        let view = IpView::parse(&packet).expect("well-formed");
        let spd = Tunnel::new(GCM, false).spd;
        let verdict = spd.inbound_bypass(&view.outbound_flow());
        Walk::Verdict(verdict.expect_err("the policy is Protect"))
    }),
];

/// A packet of the left site to the right one.
fn hello() -> Vec<u8> {
    inner(4, b"hello")
}

fn sequence_exhausted() -> Walk {
    let tunnel = Tunnel::new(GCM, false);
    let key = crate::common::key_material(GCM);
    let spi = tunnel.outbound_sa.common.spi;
    let parameters = crate::common::parameters(GCM, false, spi, &key);
    let last = SequenceAllocator::starting_at(1 << 32, false);
    let sa = OutboundSa::with_sequence(parameters, last).expect("good keys");
    tunnel.policy.install(Arc::new(sa));
    send(tunnel, &hello())
}

fn lifetime_expired() -> Walk {
    let mut tunnel = Tunnel::with(GCM, false, |p| {
        p.lifetime = LifetimeLimits {
            packets_hard: Some(1),
            ..LifetimeLimits::default()
        }
    });
    let sealed = tunnel.seal(&[hello()]);
    assert_eq!(tunnel.open(&sealed).len(), 1);
    let again = sealed[0].clone();
    assert!(tunnel.open(&[again]).is_empty());
    let inbound = &tunnel.inbound.counters().drops;
    assert_eq!(inbound.get(DropReason::LifetimeExpired), 1);
    send(tunnel, &hello())
}

/// Each sealed packet goes to the same policy again.
fn nested_too_deep() -> Walk {
    let mut tunnel = Tunnel::new(GCM, false);
    let everything = prefix("0.0.0.0/0");
    let circle = Arc::new(Policy::new(PolicyId(9), "circle"));
    let key = key_material(GCM);
    let mut parameters = parameters(GCM, false, 0x1234, &key);
    parameters.selectors = SelectorSet::new(vec![Selector::between(everything, everything)])
        .expect("one is not too many");
    let sa = OutboundSa::new(parameters).expect("good keys");
    let sa = Arc::new(sa.through(circle.id));
    circle.install(Arc::clone(&sa));
    tunnel.policy.install(sa);
    tunnel.add_policy(circle);
    let _ = tunnel.outbound.push(&tunnel.spd, &hello()).expect("room");
    while tunnel.outbound.waiting() > 0 {
        let _ = tunnel.outbound.submit(&mut tunnel.seal_engine);
        while let Some(sealed) = tunnel.outbound.poll(&mut tunnel.seal_engine, &tunnel.spd) {
            assert!(sealed.trains(ONE).next().is_none());
            tunnel.outbound.recycle(sealed);
        }
    }
    Walk::Outbound(tunnel)
}

fn malformed_ah() -> Walk {
    let mut tunnel = Tunnel::new(Transform::AH[0], false);
    let mut frame = ipv4("198.51.100.2", "192.0.2.1", 51, 0, &[0; 60]);
    frame[24..28].copy_from_slice(&tunnel.inbound_sa.common.spi.to_be_bytes());
    frame[31] = 1;
    let facts = OuterFacts {
        header_len: 20,
        protocol: Protocol::Ah,
        ..OuterFacts::new(facts().remote, false, 0)
    };
    assert!(tunnel.open_from(&[frame], &facts).is_empty());
    Walk::Inbound(tunnel)
}

/// An ICMP error about a packet that the right site sent elsewhere.
fn icmp_error_mismatch() -> Walk {
    let mut error = vec![3, 4, 0, 0, 0, 0, 4, 0];
    error.extend(ipv4("10.2.0.9", "10.3.0.1", 17, 0, &[0; 8]));
    let sum = checksum::fold(checksum::sum(0, &error));
    error[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut body = ipv4("203.0.113.1", "10.2.0.9", 1, 0, &error);
    body.extend([1, 2, 2, 4]);
    receive_forged(&body)
}

/// A later fragment that lies on the data of the first one.
fn fragment_refused() -> Walk {
    let mut tunnel = for_one_port();
    let fragment = |flags: u8, at: u8| {
        let mut packet = inner(4, &[0; 24]);
        packet[6..8].copy_from_slice(&[flags, at]);
        fix_checksum(&mut packet);
        packet
    };
    let sealed = tunnel.seal(&[fragment(0x20, 0), fragment(0, 1)]);
    receive(tunnel, &sealed)
}

/// A tunnel whose right end takes packets to one port only, and later fragments behind their first one.
fn for_one_port() -> Tunnel {
    let tunnel = Tunnel::new(GCM, false);
    let key = key_material(GCM);
    let only = Selector {
        protocol: NextLayer::Is(17),
        local_ports: PortRange::Range(40_001, 40_001),
        ..selectors(RIGHT, LEFT).as_slice()[0]
    };
    let narrow = InboundSa::new(SaParameters {
        selectors: SelectorSet::new(vec![only]).expect("one"),
        non_first_fragments: true,
        ..parameters(GCM, false, tunnel.outbound_sa.common.spi, &key)
    });
    let narrow = Arc::new(narrow.expect("good keys"));
    tunnel.database.sad().insert(narrow).expect("allocated");
    tunnel
}

/// Receives a sealed packet after a change.
fn receive_changed(change: impl FnOnce(&mut Vec<Vec<u8>>)) -> Walk {
    let mut tunnel = Tunnel::new(GCM, false);
    let mut sealed = tunnel.seal(&[hello()]);
    change(&mut sealed);
    receive(tunnel, &sealed)
}

fn fix_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = checksum::fold(checksum::sum(0, &packet[..20]));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

// RFC 4301 R8, R25, R28, R39, R41; RFC 4303 R15, R18, R25, R30, R45
#[test]
fn each_reason_is_produced_and_counted_once() {
    for &(reason, produce) in CASES {
        let counters = match produce() {
            Walk::Outbound(tunnel) => Arc::clone(tunnel.outbound.counters()),
            Walk::Inbound(tunnel) => Arc::clone(tunnel.inbound.counters()),
            Walk::Verdict(verdict) => {
                assert_eq!(verdict, reason);
                continue;
            }
        };
        let expected = [(reason, 1)];
        let counted: Vec<_> = counters.drops.iter().filter(|&(_, n)| n > 0).collect();
        assert_eq!(counted, expected);
        assert_reconciled(&counters);
    }
}

#[test]
fn no_reason_is_forgotten() {
    let of_callers = [DropReason::TooBig];
    let cases = CASES.iter().map(|(reason, _)| *reason);
    let cases: Vec<_> = cases.chain(of_callers).collect();
    for reason in DropReason::ALL {
        let found = cases.iter().filter(|case| *case == reason);
        assert_eq!(found.count(), 1, "{reason}");
    }
}

/// The SPD is ordered: what an entry in front discards does not pass through the SA of a later one.
// RFC 4301 R90
#[test]
fn an_sa_delivers_nothing_that_an_entry_in_front_discards() {
    let mut tunnel = Tunnel::new(GCM, false);
    let (passes, refused) = (inner(4, b"hello"), inner(4, b"other"));
    let mut refused = refused;
    refused[20..22].copy_from_slice(&7u16.to_be_bytes());
    let from_port_7 = Selector {
        protocol: NextLayer::Is(17),
        remote_ports: PortRange::Range(7, 7),
        ..selectors(RIGHT, LEFT).as_slice()[0]
    };
    let discard = SelectorSet::new(vec![from_port_7]).expect("one");
    let spd = Spd::new(vec![SpdEntry::new(discard, Action::Discard)]);
    let sealed = tunnel.seal(&[passes.clone(), refused.clone(), passes.clone()]);
    for packet in &sealed {
        let pushed = tunnel
            .inbound
            .push_copy(tunnel.database.sad(), packet, &facts());
        pushed.expect("room");
    }
    tunnel
        .inbound
        .submit(&mut tunnel.open_engine)
        .expect("it takes all");
    let opened = tunnel.inbound.poll_against(&mut tunnel.open_engine, &spd);
    let opened = opened.expect("a batch");
    let delivered: Vec<_> = opened
        .delivered()
        .iter()
        .map(|d| opened.packet(d))
        .collect();
    assert_eq!(delivered, [&passes[..], &passes[..]]);
    tunnel.inbound.recycle(opened);
    let counters = tunnel.inbound.counters();
    assert_eq!(counters.drops.get(DropReason::PolicyDiscard), 1);
    assert_reconciled(counters);
    let of_the_sa = &tunnel.inbound_sa.common.drops;
    assert_eq!(of_the_sa.get(DropReason::PolicyDiscard), 1);
    let audits: Vec<_> = tunnel.inbound.drain_audits().collect();
    assert!(matches!(&audits[..], [(event, 1)] if event.kind == AuditKind::Discard));
}

#[test]
fn names_are_distinct() {
    let mut names: Vec<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), DropReason::ALL.len());
}

#[test]
fn a_full_inbound_batch_counts_what_it_cannot_take() {
    let mut tunnel = Tunnel::new(GCM, false);
    let sealed = tunnel.seal(&[inner(4, b"hello")]);
    let sad = tunnel.database.sad();
    let outside = tunnel.inbound.push(sad, usize::MAX - 3, 100, &facts());
    assert_eq!(outside, Err(DropReason::TooLong));
    let huge = vec![0; WalkLimits::default().buffer_len + 1];
    let refused = tunnel.inbound.push_copy(sad, &huge, &facts());
    assert_eq!(refused, Err(DropReason::TooLong));
    assert_eq!(tunnel.open(&sealed).len(), 1);
    assert_reconciled(tunnel.inbound.counters());
}

#[test]
fn failed_randomness_does_not_use_up_the_arena() {
    let flaky: esplanade_ipsec::iv::RandomSource = |bytes| {
        use std::sync::atomic::{AtomicU32, Ordering};
        static CALLS: AtomicU32 = AtomicU32::new(0);
        bytes.fill(7);
        match CALLS.fetch_add(1, Ordering::Relaxed) {
            0..50 => Err(RandomError),
            _ => Ok(()),
        }
    };
    let mut tunnel = Tunnel::new(CBC, false);
    let limits = WalkLimits {
        buffer_len: 4096,
        ..WalkLimits::default()
    };
    tunnel.outbound = Outbound::with_random(limits, flaky, 8);
    let packet = inner(4, &[0; 1000]);
    for _ in 0..50 {
        assert!(tunnel.seal(std::slice::from_ref(&packet)).is_empty());
    }
    assert_eq!(tunnel.seal(&[packet]).len(), 1, "it works again");
    assert_reconciled(tunnel.outbound.counters());
}

/// Gives batches back as they were, with the plaintext in their arena.
#[derive(Default)]
struct IdleEngine(Option<Batch>);

impl Engine for IdleEngine {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        self.0 = Some(batch);
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        self.0.take()
    }
}

#[test]
fn a_place_that_nobody_fills_is_sealed_as_zeros() {
    use esplanade_ipsec::outbound::{Outcome, Segments};

    let mut tunnel = Tunnel::new(GCM, false);
    let secret = inner(4, &[0x5e; 64]);
    let mut idle = IdleEngine::default();
    let _ = tunnel.outbound.push(&tunnel.spd, &secret).expect("room");
    assert_eq!(tunnel.outbound.submit(&mut idle), Ok(()));
    let sealed = tunnel
        .outbound
        .poll(&mut idle, &tunnel.spd)
        .expect("it was there");
    assert_eq!(
        sealed
            .trains(TrainLimits {
                segments: 1,
                bytes: 65_535
            })
            .count(),
        0
    );
    tunnel.outbound.recycle(sealed);

    let view = IpView::parse(&secret).expect("well-formed");
    let segments = Segments::one(secret.len());
    let Outcome::Protect(sa) = tunnel
        .outbound
        .decide(&tunnel.spd, (&secret, &view), &segments)
    else {
        panic!("the policy protects");
    };
    drop(tunnel.outbound.reserve(&sa, &view, &segments));
    let mut sealed = tunnel.seal(&[]).remove(0);
    let key = crate::common::key_material(GCM);
    let key = KeyContext::new(GCM, false, &key).expect("good keys");
    assert_eq!(cpu::open(&key, 2, &mut sealed), JobStatus::Done);
    assert_eq!(sealed[16..16 + secret.len()], vec![0; secret.len()]);
}

#[test]
fn what_finds_no_batch_is_counted() {
    use esplanade_ipsec::outbound::{Outcome, Segments};

    let mut tunnel = Tunnel::new(GCM, false);
    let packet = inner(4, b"hello");
    let view = IpView::parse(&packet).expect("well-formed");
    let segments = Segments::one(packet.len());
    let Outcome::Protect(sa) = tunnel
        .outbound
        .decide(&tunnel.spd, (&packet, &view), &segments)
    else {
        panic!("the policy protects");
    };
    tunnel.outbound.give_up(&sa, &segments);
    assert_reconciled(tunnel.outbound.counters());
    assert_eq!(sa.common.drops.get(DropReason::EngineFailed), 1);
}
