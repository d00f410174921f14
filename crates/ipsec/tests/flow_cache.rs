//! Asserts that the flow cache gives the SPD's answers, whatever changes meanwhile.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::key_material;
use esplanade_crypto::Transform;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::sa::{DscpSet, OutboundSa, Path, SaParameters};
use esplanade_ipsec::selector::{AddressRange, Flow, PortRange, Selector, SelectorSet};
use esplanade_ipsec::spd::{
    Action, Decision, FlowCache, FlowKey, Policy, PolicyId, Spd, SpdEntry, Verdict,
};
use proptest::prelude::*;

const SECRET: [u64; 6] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
    0xbe54_66cf_34e9_0c6c,
];
const POLICIES: usize = 4;

fn v4(n: u8) -> IpAddr {
    IpAddr::V4([10, 0, 0, n].into())
}

fn v6(n: u8) -> IpAddr {
    IpAddr::V6((0xfd00_u128 << 112 | u128::from(n)).into())
}

/// Selectors of both IP versions. `from` and `count` give the range of the remote addresses.
fn selectors(from: u8, count: u8, ports: PortRange) -> SelectorSet {
    let of = |version: fn(u8) -> IpAddr| {
        let all = AddressRange::new(version(0), version(255)).expect("in order");
        let remote = AddressRange::new(version(from), version(from.saturating_add(count)));
        Selector {
            remote_ports: ports,
            ..Selector::between(all, remote.expect("in order"))
        }
    };
    SelectorSet::new(vec![of(v4), of(v6)]).expect("two")
}

fn sa(spi: u32, selectors: SelectorSet, dscp: DscpSet) -> Arc<OutboundSa> {
    let transform = Transform::ESP[0];
    let key = key_material(transform);
    let path = Path {
        local: "192.0.2.1:0".parse().expect("valid"),
        remote: "192.0.2.2:0".parse().expect("valid"),
        udp_encap: false,
    };
    let parameters = SaParameters::new(spi, PolicyId(1), transform, &key, selectors, path);
    let parameters = SaParameters { dscp, ..parameters };
    Arc::new(OutboundSa::new(parameters).expect("good keys"))
}

#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<(u8, u8, u8)>),
    Install {
        policy: usize,
        from: u8,
        count: u8,
        dscp: u8,
    },
    /// Removes an SA with a recent SPI.
    Remove {
        policy: usize,
        back: u32,
    },
    Burst {
        interface: u32,
        flows: Vec<(bool, u8, Option<u16>, u8)>,
    },
    Sweep(usize),
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let line = (0u8..6, 0u8..12, 0u8..12);
    let flow = (
        any::<bool>(),
        0u8..20,
        proptest::option::of(0u16..3),
        0u8..3,
    );
    let step = prop_oneof![
        1 => proptest::collection::vec(line, 0..6).prop_map(Step::Publish),
        3 => (0..POLICIES, 0u8..12, 0u8..12, 0u8..4).prop_map(|(policy, from, count, dscp)| {
            Step::Install { policy, from, count, dscp }
        }),
        2 => (0..POLICIES, 0u32..6).prop_map(|(policy, back)| Step::Remove { policy, back }),
        6 => (0u32..3, proptest::collection::vec(flow, 1..20))
            .prop_map(|(interface, flows)| Step::Burst { interface, flows }),
        1 => (0usize..5).prop_map(Step::Sweep),
        1 => Just(Step::Clear),
    ];
    proptest::collection::vec(step, 1..60)
}

fn agrees(cache: &FlowCache, spd: &Spd, flow: &Flow, verdict: Verdict) -> bool {
    match (spd.outbound(flow), verdict) {
        (Decision::Protect(sa), Verdict::Protect(slot)) => cache
            .sa(slot)
            .is_some_and(|cached| Arc::ptr_eq(cached, &sa)),
        (Decision::Acquire(wanted), Verdict::Acquire(entry)) => {
            wanted.policy.acquire_done();
            let event = spd.acquire(entry, flow);
            assert!(spd.acquire(entry, flow).is_none(), "once");
            wanted.policy.acquire_done();
            event == wanted.raise(flow)
        }
        (Decision::Bypass, Verdict::Bypass) => true,
        (Decision::Discard(reason), Verdict::Discard(cached)) => reason == cached,
        (Decision::Discard(reason), Verdict::Outside(_)) => {
            reason == DropReason::OutsideSaSelectors
        }
        _ => false,
    }
}

fn entry(policies: &[Arc<Policy>], (kind, from, count): (u8, u8, u8)) -> SpdEntry {
    let action = match policies.get(usize::from(kind)) {
        Some(policy) => Action::Protect(Arc::clone(policy)),
        None if kind == 4 => Action::Bypass,
        None => Action::Discard,
    };
    let ports = if count % 3 == 0 {
        PortRange::Range(0, 1)
    } else {
        PortRange::Any
    };
    SpdEntry {
        interface: u32::from(from % 2),
        ..SpdEntry::new(selectors(from, count, ports), action)
    }
}

fn run(steps: Vec<Step>, flows_max: usize) {
    let policies: Vec<Arc<Policy>> = (0..POLICIES as u32)
        .map(|id| Arc::new(Policy::new(PolicyId(id), "p")))
        .collect();
    let mut cache = FlowCache::new(flows_max, SECRET);
    let mut spd = Spd::default();
    let mut spi = 1000;
    for step in steps {
        match step {
            Step::Publish(lines) => {
                let entries = lines.into_iter().map(|line| entry(&policies, line));
                spd = Spd::new(entries.collect());
            }
            Step::Install {
                policy,
                from,
                count,
                dscp,
            } => {
                spi += 1;
                let dscp = match dscp {
                    0 => DscpSet::ALL,
                    one => DscpSet::EMPTY.with(one),
                };
                policies[policy].install(sa(spi, selectors(from, count, PortRange::Any), dscp));
            }
            Step::Remove { policy, back } => {
                policies[policy].remove(spi - back);
            }
            Step::Sweep(sets) => cache.sweep(sets),
            Step::Clear => cache.clear(),
            Step::Burst { interface, flows } => {
                cache.begin_burst(&spd, interface);
                let flows = flows.iter().map(|&(six, remote, port, dscp)| {
                    let version = if six { v6 } else { v4 };
                    let ports = port.map(|port| (7, port));
                    let flow = Flow::new(version(1), version(remote), 17, ports);
                    Flow {
                        dscp,
                        interface,
                        ..flow
                    }
                });
                let asked: Vec<(Flow, Verdict)> = flows
                    .map(|flow| {
                        let key = FlowKey::from_flow(&flow).expect("one version");
                        assert_eq!(key.flow(interface), flow);
                        (flow, cache.lookup(&spd, &key))
                    })
                    .collect();
                // The check comes after all lookups: slots must not change until the next burst.
                for (flow, verdict) in asked {
                    assert!(
                        agrees(&cache, &spd, &flow, verdict),
                        "{flow:?}: {verdict:?}"
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    // RFC 4301 R29
    #[test]
    fn answers_are_those_of_the_spd(steps in steps()) {
        // One cache is so small that flows evict each other, and the other is large enough for all flows.
        run(steps.clone(), 8);
        run(steps, 4096);
    }
}

#[test]
fn a_flow_is_looked_up_once() {
    let policy = Arc::new(Policy::new(PolicyId(1), "p"));
    policy.install(sa(1, selectors(0, 255, PortRange::Any), DscpSet::ALL));
    let protect = Action::Protect(Arc::clone(&policy));
    let spd = Spd::new(vec![SpdEntry::new(
        selectors(0, 255, PortRange::Any),
        protect,
    )]);
    let mut cache = FlowCache::new(1024, SECRET);
    let key = |n| FlowKey::from_flow(&Flow::new(v4(1), v4(n), 17, Some((1, 2)))).expect("v4");
    for burst in 0..10 {
        cache.begin_burst(&spd, 0);
        for n in 0..100 {
            assert!(matches!(
                cache.lookup(&spd, &key(n / 2)),
                Verdict::Protect(_)
            ));
        }
        assert_eq!(cache.misses(), 50, "burst {burst}");
    }
    let rekeyed = sa(2, selectors(0, 255, PortRange::Any), DscpSet::ALL);
    assert!(policy.install(Arc::clone(&rekeyed)).is_some());
    cache.begin_burst(&spd, 0);
    let Verdict::Protect(slot) = cache.lookup(&spd, &key(3)) else {
        panic!("there is an SA");
    };
    assert!(cache.sa(slot).is_some_and(|sa| Arc::ptr_eq(sa, &rekeyed)));
    assert_eq!(cache.misses(), 51);
}

/// After `install` has returned, every later burst must see its effect. Until then either SA is right.
#[test]
fn no_burst_that_begins_after_a_rekey_finds_the_former_sa() {
    let policy = Arc::new(Policy::new(PolicyId(1), "p"));
    let everything = || selectors(0, 255, PortRange::Any);
    policy.install(sa(1, everything(), DscpSet::ALL));
    let protect = Action::Protect(Arc::clone(&policy));
    let spd = Spd::new(vec![SpdEntry::new(everything(), protect)]);
    let installed = AtomicU32::new(1);
    const REKEYS: u32 = 3000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for spi in 2..=REKEYS {
                policy.install(sa(spi, everything(), DscpSet::ALL));
                installed.store(spi, Ordering::Release);
            }
        });
        let mut cache = FlowCache::new(64, SECRET);
        let mut n = 0u8;
        loop {
            n = n.wrapping_add(1);
            let before = installed.load(Ordering::Acquire);
            cache.begin_burst(&spd, 0);
            let flow = Flow::new(v4(1), v4(n % 40), 17, Some((1, 2)));
            let key = FlowKey::from_flow(&flow).expect("v4");
            let Verdict::Protect(slot) = cache.lookup(&spd, &key) else {
                panic!("there is always an SA");
            };
            let spi = cache.sa(slot).expect("of this burst").common.spi;
            assert!(spi >= before, "{spi} after {before}");
            if before == REKEYS {
                break;
            }
        }
    });
}

/// However two installations interleave, the cache must end with the answer of the policy.
#[test]
fn installations_at_the_same_time_leave_nothing_stale() {
    let policy = Arc::new(Policy::new(PolicyId(1), "p"));
    let everything = || selectors(0, 255, PortRange::Any);
    let protect = Action::Protect(Arc::clone(&policy));
    let spd = Spd::new(vec![SpdEntry::new(everything(), protect)]);
    let flow = Flow::new(v4(1), v4(2), 17, Some((1, 2)));
    let key = FlowKey::from_flow(&flow).expect("v4");
    let mut cache = FlowCache::new(64, SECRET);
    for round in 0..500 {
        std::thread::scope(|scope| {
            for writer in 1..=2 {
                let (policy, sa) = (&policy, sa(2 * round + writer, everything(), DscpSet::ALL));
                scope.spawn(move || policy.install(sa));
            }
            for _ in 0..4 {
                cache.begin_burst(&spd, 0);
                cache.lookup(&spd, &key);
            }
        });
        cache.begin_burst(&spd, 0);
        let verdict = cache.lookup(&spd, &key);
        assert!(agrees(&cache, &spd, &flow, verdict), "{verdict:?}");
        cache.begin_burst(&spd, 0);
        let verdict = cache.lookup(&spd, &key);
        assert!(agrees(&cache, &spd, &flow, verdict), "{verdict:?}");
    }
}

#[test]
fn a_removed_sa_is_let_go() {
    let policy = Arc::new(Policy::new(PolicyId(1), "p"));
    let first = sa(1, selectors(0, 255, PortRange::Any), DscpSet::ALL);
    policy.install(Arc::clone(&first));
    let protect = Action::Protect(Arc::clone(&policy));
    let spd = Spd::new(vec![SpdEntry::new(
        selectors(0, 255, PortRange::Any),
        protect,
    )]);
    let mut cache = FlowCache::new(256, SECRET);
    for _ in 0..2 {
        cache.begin_burst(&spd, 0);
        for n in 0..200 {
            let flow = Flow::new(v4(1), v4(n), 17, Some((1, 2)));
            cache.lookup(&spd, &FlowKey::from_flow(&flow).expect("v4"));
        }
    }
    assert!(Arc::strong_count(&first) > 100);
    policy.remove(1);
    cache.sweep(usize::MAX);
    assert_eq!(Arc::strong_count(&first), 1);
}

/// All keys fall into one set, as an attacker who knew the secret could arrange. The secret is 0 here.
#[test]
fn a_flood_of_colliding_keys_reaches_one_set() {
    let everything = selectors(0, 255, PortRange::Any);
    let zero = AddressRange::host("0.0.0.0".parse().expect("valid"));
    let flooded = SelectorSet::new(vec![Selector::between(zero, zero)]).expect("one");
    let spd = Spd::new(vec![
        SpdEntry::new(everything, Action::Bypass),
        SpdEntry::new(flooded, Action::Discard),
    ]);
    let mut cache = FlowCache::new(4096, [0; 6]);
    let victim =
        |n: u8| FlowKey::from_flow(&Flow::new(v4(1), v4(n), 17, Some((1, 2)))).expect("v4");
    for _ in 0..2 {
        cache.begin_burst(&spd, 0);
        (0..100).for_each(|n| {
            cache.lookup(&spd, &victim(n));
        });
    }
    let hits_before = cache.misses();
    for ports in 0..50_000u32 {
        let ports = Some(((ports >> 8) as u16, ports as u16));
        let flow = Flow::new(zero.first(), zero.first(), 17, ports);
        let key = FlowKey::from_flow(&flow).expect("v4");
        cache.begin_burst(&spd, 0);
        let verdict = cache.lookup(&spd, &key);
        assert_eq!(verdict, Verdict::Discard(DropReason::PolicyDiscard));
    }
    let flood = cache.misses() - hits_before;
    assert!(flood >= 49_000, "{flood}");
    cache.begin_burst(&spd, 0);
    for n in 0..100 {
        assert_eq!(cache.lookup(&spd, &victim(n)), Verdict::Bypass);
    }
    assert_eq!(cache.misses() - hits_before, flood, "the others stay");
}

// RFC 4301 R52
#[test]
fn fragments_need_reassembly_where_ports_decide() {
    let everything = || selectors(0, 255, PortRange::Any);
    let web = || selectors(0, 9, PortRange::Range(80, 80));
    let policy = Arc::new(Policy::new(PolicyId(1), "p"));
    let protect = || Action::Protect(Arc::clone(&policy));
    let decide = |entries: Vec<SpdEntry>, remote: u8| {
        Spd::new(entries).ports_decide(&Flow::new(v4(1), v4(remote), 6, Some((1, 80))))
    };
    assert!(!decide(vec![], 5));
    assert!(!decide(vec![SpdEntry::new(everything(), protect())], 5));
    let both = || {
        vec![
            SpdEntry::new(web(), protect()),
            SpdEntry::new(everything(), Action::Bypass),
        ]
    };
    assert!(decide(both(), 5));
    assert!(!decide(both(), 50), "no port of this address is looked at");
    let shadowed = vec![
        SpdEntry::new(everything(), protect()),
        SpdEntry::new(web(), Action::Bypass),
    ];
    assert!(!decide(shadowed, 5), "the first entry takes them all");
    // RFC 4301 §7.2: fragments have an SA of their own.
    let opaque = SpdEntry::new(selectors(0, 255, PortRange::Opaque), protect());
    assert!(!decide(vec![SpdEntry::new(web(), protect()), opaque], 5));
}
