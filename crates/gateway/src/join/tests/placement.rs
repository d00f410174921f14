//! Tests of children that change their engine, and of the SAs that the FPGA core takes.

use esplanade_crypto::Direction;
use esplanade_ipsec::sa::DscpSet;

use super::hosts::{FakeDevice, FakeHost, engines as engines_named};
use super::*;
use crate::config::{EngineKind, ShareLimits};
use crate::gpu::{GpuLimits, carries};
use crate::latency::LatencyCounts;
use esplanade_engines::{CpuHost, Engines};

fn renewals(join: &mut Join) -> Vec<ChildSaId> {
    let changes = join.take_changes().into_iter();
    let renewals = changes.filter_map(|change| match change {
        Change::Renew(child) => Some(child),
        _ => None,
    });
    renewals.collect()
}

#[test]
fn into_the_core_and_out_of_it_a_child_goes_with_its_next_sa() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    join.set_engines(engines_named(&["cpu", "pool"]));
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    let device = Arc::new(FakeDevice { refuses: None });
    join.set_engines(engines_named(&["cpu", "pool"]).with_device(Some(device)));
    let order = |join: &mut Join, engine| {
        let moved = join.set_engine(None, "net", engine).unwrap();
        let child = join.child(sa.child).unwrap();
        let now_with = join.engine_of(child).unwrap();
        let renewals = renewals(join);
        assert_eq!(moved.renewed, renewals.len(), "{engine}");
        assert_eq!(moved.at_once, 1 - renewals.len(), "{engine}");
        (now_with, renewals)
    };
    let renewed = vec![sa.child];
    assert_eq!(order(&mut join, "pool"), ("pool", vec![]));
    assert_eq!(order(&mut join, "fpga"), ("pool", renewed.clone()));
    assert_eq!(order(&mut join, "cpu"), ("cpu", vec![]));
    // The test pretends that the core has taken the SA.
    join.child_sas.get_mut(sa.child).unwrap().carrier = Carrier::Device;
    assert_eq!(order(&mut join, "fpga"), ("fpga", vec![]));
    assert_eq!(order(&mut join, "pool"), ("fpga", renewed.clone()));
    let error = join.set_engine(None, "net", "gpu").unwrap_err();
    assert!(error.to_string().contains("(it has cpu, pool, fpga)"));

    // A new configuration counts as an order where there is none.
    join.placement.forget_orders();
    let mut configured = policy("net", TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut configured).sa.engine = Some(EngineKind::CPU);
    join.configure(vec![configured]);
    assert_eq!(renewals(&mut join), renewed);
    join.configure(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert_eq!(renewals(&mut join), []);
    // Only an order asks the core again for an SA that it has refused.
    let refused = Carrier::Engine(Some("it is full".into()));
    join.child_sas.get_mut(sa.child).unwrap().carrier = refused;
    join.configure(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert_eq!(renewals(&mut join), []);
    assert_eq!(order(&mut join, "fpga"), ("cpu", renewed));
}

#[test]
fn the_cpu_carries_what_the_device_refuses() {
    let full = "it is full";
    for (configured, refuses, carrier) in [
        (policy("net", TRAP, "10.2.0.0/16"), None, Carrier::Device),
        (
            policy("net", TRAP, "10.2.0.0/16"),
            Some(full),
            Carrier::Engine(Some(full.into())),
        ),
    ] {
        let mut join = join_with(vec![configured]);
        let device = Arc::new(FakeDevice { refuses });
        join.set_engines(engines_named(&["cpu"]).with_device(Some(device)));
        let sa = installed(&join, 1, "10.2.0.0/16", None);
        join.install_now(&sa, 0).unwrap();
        assert_eq!(join.child(sa.child).unwrap().carrier, carrier);
    }
}

#[test]
fn the_core_follows_before_routes_change_and_peers_hear_of_it() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let changes = join.take_changes();
    assert!(matches!(
        changes.as_slice(),
        [Change::Tables, Change::Route(_)]
    ));
    assert!(join.take_changes().is_empty());
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    assert!(matches!(join.take_changes().as_slice(), [Change::Tables]));
    join.use_outbound(sa.child, Instant::now());
    assert!(matches!(join.take_changes().as_slice(), [Change::Tables]));
    join.use_outbound(ChildSaId(9), Instant::now());
    assert!(join.take_changes().is_empty(), "there is no such SA");
}

const LIMITS: ShareLimits = ShareLimits {
    latency: Duration::from_millis(1),
    threshold: 80,
};

/// Lets a busy second pass. What passes grows with each look, so that every move to the GPU seems to help.
fn busy_second(join: &mut Join, id: ChildSaId, second: u64, in_service: bool) {
    for look in 10 * second..10 * second + 10 {
        let child = join.child(id).unwrap();
        for half in [&child.outbound.common, &child.inbound.common] {
            half.lifetime.count(1000, 1_000_000, 1);
        }
        let sample = LoadSample {
            time: Duration::from_millis(100),
            packets: 2000 << look,
            bytes: 2_000_000 << look,
            busy: 1.0,
            latency: LatencyCounts::default(),
            in_service,
        };
        join.balance(&sample, Duration::from_millis(100 * look));
    }
}

fn engines(join: &Join, id: ChildSaId) -> Option<[&'static str; 2]> {
    let engines = join.adaptive_engines(join.child(id).unwrap())?;
    Some([engines.outbound, engines.inbound])
}

fn sharing() -> Arc<FakeHost> {
    Arc::new(FakeHost {
        shares: Some(LIMITS),
        ..FakeHost::named("gpu")
    })
}

fn adaptive_join(configured: ConfiguredPolicy) -> Join {
    adaptive_join_with(configured, sharing())
}

fn adaptive_join_with(configured: ConfiguredPolicy, gpu: Arc<FakeHost>) -> Join {
    let mut join = join_with(vec![configured]);
    join.set_engines(Engines::of(vec![Arc::new(CpuHost), gpu]).sharing_usually());
    join
}

#[test]
fn an_adaptive_child_goes_with_the_load() {
    let mut join = adaptive_join(policy("net", TRAP, "10.2.0.0/16"));
    assert!(!join.balances() && join.share().is_none());
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    assert!(join.balances());
    assert_eq!(engines(&join, sa.child), Some(["cpu", "cpu"]));
    busy_second(&mut join, sa.child, 0, true);
    assert_ne!(engines(&join, sa.child), Some(["cpu", "cpu"]));
    busy_second(&mut join, sa.child, 1, true);
    assert_eq!(engines(&join, sa.child), Some(["gpu", "gpu"]));
    assert_eq!(join.share().unwrap().on_gpu, 2);

    // The SA that replaces another begins where that one is.
    let next = installed(&join, 2, "10.2.0.0/16", Some(1));
    join.install_now(&next, 0).unwrap();
    assert_eq!(engines(&join, next.child), Some(["gpu", "gpu"]));
    join.delete_now(&deleted(&sa, true, EndAction::Clear), Instant::now());
    assert_eq!(join.share().unwrap().halves, 2);

    busy_second(&mut join, next.child, 2, false);
    assert_eq!(engines(&join, next.child), Some(["cpu", "cpu"]));
    join.delete_now(&deleted(&next, false, EndAction::Clear), Instant::now());
    assert!(!join.balances());
}

#[test]
fn an_order_ends_and_begins_the_balance_of_a_child() {
    let mut join = adaptive_join(policy("net", TRAP, "10.2.0.0/16"));
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    let engine = |join: &Join| join.engine_of(join.child(sa.child).unwrap());
    for engine_name in ["gpu", "cpu"] {
        let moved = join.set_engine(None, "net", engine_name).unwrap();
        assert_eq!((moved.at_once, moved.renewed), (1, 0));
        assert_eq!(
            (engine(&join), engines(&join, sa.child)),
            (Some(engine_name), None)
        );
        assert!(!join.balances());
        join.set_engine(None, "net", "adaptive").unwrap();
        assert_eq!(engines(&join, sa.child), Some([engine_name; 2]));
        let on_gpu = if engine_name == "gpu" { 2 } else { 0 };
        assert_eq!(join.share().unwrap().on_gpu, on_gpu);
    }
    // A reload that changes nothing leaves the halves where they are.
    busy_second(&mut join, sa.child, 0, true);
    busy_second(&mut join, sa.child, 1, true);
    join.configure(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert_eq!(engines(&join, sa.child), Some(["gpu", "gpu"]));
    // A reload that chooses an engine ends the balance.
    join.placement.forget_orders();
    let mut configured = policy("net", TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut configured).sa.engine = Some(EngineKind::CPU);
    join.configure(vec![configured]);
    assert_eq!((engine(&join), join.balances()), (Some("cpu"), false));
    let error = join.set_engine(None, "net", "pool").unwrap_err();
    assert!(error.to_string().contains("(it has cpu, gpu, adaptive)"));
}

#[test]
fn what_may_not_wait_or_the_kernels_lack_stays_with_the_cpu() {
    let dscp = |names: &[u8]| names.iter().copied().collect();
    for (class, codes, halves) in [
        (None, DscpSet::ALL, 2),
        (Some(4), DscpSet::ALL, 2),
        (Some(5), DscpSet::ALL, 0),
        (None, dscp(&[46, 40]), 0),
        (None, dscp(&[46, 0]), 2),
        (Some(0), dscp(&[46]), 2),
    ] {
        let mut configured = policy("net", TRAP, "10.2.0.0/16");
        Arc::make_mut(&mut configured).sa.class = class;
        Arc::make_mut(&mut configured).sa.dscp = codes;
        let mut join = adaptive_join(configured);
        let sa = installed(&join, 1, "10.2.0.0/16", None);
        join.install_now(&sa, 0).unwrap();
        assert_eq!(
            join.share().map_or(0, |share| share.halves),
            halves,
            "{class:?} {codes:?}"
        );
    }
    let mut join = adaptive_join(policy("net", TRAP, "10.2.0.0/16"));
    let lacking = |transform: &Transform| !carries(*transform, Direction::Open, false);
    let mut sa = installed(&join, 1, "10.2.0.0/16", None);
    sa.esp.transform = *Transform::ESP
        .iter()
        .find(|transform| lacking(transform))
        .unwrap();
    let key = || vec![1; sa.esp.transform.key_material_len()].into();
    (sa.key_in, sa.key_out) = (key(), key());
    join.install_now(&sa, 0).unwrap();
    assert!(!join.balances());
    assert_eq!(engines(&join, sa.child), Some(["cpu", "cpu"]));
}

fn reason(join: &Join, id: ChildSaId) -> Option<String> {
    join.engine_reason(join.child(id).unwrap())
}

#[test]
fn what_a_device_does_wrong_or_has_no_row_for_is_with_the_cpu() {
    let transform = Transform::ESP[0];
    let limits = |disabled: &[Transform], keys| GpuLimits {
        disabled: disabled.to_vec(),
        keys,
        ..GpuLimits::default()
    };
    for engine in ["gpu", "adaptive"] {
        for (limits, why) in [
            (limits(&[transform], usize::MAX), "gives wrong results for"),
            (limits(&[], 0), "has 0 keys at most"),
        ] {
            let gpu = sharing();
            let mut join = adaptive_join_with(policy("net", TRAP, "10.2.0.0/16"), gpu.clone());
            join.set_engine(None, "net", engine).unwrap();
            let begun = installed(&join, 1, "10.2.0.0/16", None);
            join.install_now(&begun, 0).unwrap();
            assert_eq!(reason(&join, begun.child), None);
            if engine == "adaptive" {
                busy_second(&mut join, begun.child, 0, true);
                busy_second(&mut join, begun.child, 1, true);
            }
            let at = |join: &Join, id| {
                let child = join.child(id).unwrap();
                let of = |direction| join.engine_of_half(child, direction).unwrap();
                [of(SaDirection::Outbound), of(SaDirection::Inbound)]
            };
            assert_eq!(at(&join, begun.child), ["gpu", "gpu"]);
            // The device was opened again, and does less.
            gpu.set_limits(limits.clone());
            join.follow_refusals();
            let next = installed(&join, 2, "10.2.0.0/16", Some(1));
            join.install_now(&next, 0).unwrap();
            for id in [begun.child, next.child] {
                assert_eq!(at(&join, id), ["cpu", "cpu"], "{engine}");
                assert!(reason(&join, id).is_some_and(|text| text.contains(why)));
            }
            assert!(!join.balances());
            // It does all again.
            gpu.set_limits(GpuLimits::default());
            join.follow_refusals();
            assert_eq!(reason(&join, next.child), None);
            match engine {
                "gpu" => assert_eq!(at(&join, next.child), ["gpu", "gpu"]),
                _ => assert_eq!(join.share().unwrap().halves, 4),
            }
        }
    }
}

#[test]
fn an_engine_is_told_of_a_child_until_it_moves_or_is_gone() {
    let [carried, other] = [Transform::ESP[0], Transform::ESP[1]];
    let lanes = Arc::new(FakeHost {
        carried: Some(vec![carried]),
        ..FakeHost::named("ace")
    });
    let asked = || std::mem::take(&mut *lanes.told.lock().unwrap());
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    join.set_engines(Engines::of(vec![lanes.clone(), Arc::new(CpuHost)]));
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    assert_eq!(asked(), [(true, carried)]);
    join.set_engine(None, "net", "cpu").unwrap();
    assert_eq!(asked(), [(false, carried)]);
    join.set_engine(None, "net", "ace").unwrap();
    assert_eq!(asked(), [(true, carried)]);
    let successor = installed(&join, 2, "10.2.0.0/16", Some(1));
    join.install_now(&successor, 0).unwrap();
    assert_eq!(asked(), [(true, carried)]);
    for gone in [&sa, &successor] {
        join.delete_now(&deleted(gone, true, EndAction::Clear), Instant::now());
        assert_eq!(asked(), [(false, carried)]);
    }
    // The CPU does what no lane does, and nobody is asked.
    let mut lacking = installed(&join, 3, "10.2.0.0/16", None);
    lacking.esp.transform = other;
    for key in [&mut lacking.key_in, &mut lacking.key_out] {
        *key = vec![3; other.key_material_len()].into();
    }
    join.install_now(&lacking, 0).unwrap();
    assert_eq!(asked(), []);
    let child = join.child(lacking.child).unwrap();
    assert_eq!(join.engine_of(child), Some("cpu"));
    let why = reason(&join, lacking.child).unwrap();
    assert_eq!(why, format!("no lane for {other}"));
}
