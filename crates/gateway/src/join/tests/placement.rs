//! Tests of children that change their engine, and of the SAs that the FPGA core takes.

use super::*;
use crate::config::EngineKind;

/// A core that takes every SA, or none and says why.
#[derive(Debug)]
struct FakeCore {
    refuses: Option<&'static str>,
}

impl ChildSaDevice for FakeCore {
    fn install(
        &self,
        _: Arc<esplanade_ipsec::sa::OutboundSa>,
        _: Arc<InboundSa>,
    ) -> Result<(), String> {
        self.refuses.map_or(Ok(()), |why| Err(why.to_owned()))
    }
}

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
    join.set_engines(vec!["cpu", "pool"]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa, 0).unwrap();
    join.set_core(Some(Box::new(FakeCore { refuses: None })));
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
    join.child_sas.get_mut(sa.child).unwrap().carrier = Carrier::Fpga;
    assert_eq!(order(&mut join, "fpga"), ("fpga", vec![]));
    assert_eq!(order(&mut join, "pool"), ("fpga", renewed.clone()));
    let error = join.set_engine(None, "net", "gpu").unwrap_err();
    assert!(error.to_string().contains("(it has cpu, pool, fpga)"));

    // A new configuration counts as an order where there is none.
    join.placement.forget_orders();
    let mut configured = policy("net", TRAP, "10.2.0.0/16");
    configured.sa.engine = Some(EngineKind::Cpu);
    join.configure(vec![configured]);
    assert_eq!(renewals(&mut join), renewed);
    join.configure(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert_eq!(renewals(&mut join), []);
    // Only an order asks the core again for an SA that it has refused.
    let refused = Carrier::Cpu(Some("it is full".into()));
    join.child_sas.get_mut(sa.child).unwrap().carrier = refused;
    join.configure(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert_eq!(renewals(&mut join), []);
    assert_eq!(order(&mut join, "fpga"), ("cpu", renewed));
}

#[test]
fn the_cpu_carries_what_the_core_cannot() {
    let mut dummies = policy("net", TRAP, "10.2.0.0/16");
    dummies.sa.dummies = 1;
    let full = "it is full";
    for (configured, refuses, carrier) in [
        (policy("net", TRAP, "10.2.0.0/16"), None, Carrier::Fpga),
        (
            policy("net", TRAP, "10.2.0.0/16"),
            Some(full),
            Carrier::Cpu(Some(full.into())),
        ),
        (
            dummies,
            None,
            Carrier::Cpu(Some("the FPGA core cannot do dummy packets".into())),
        ),
    ] {
        let mut join = join_with(vec![configured]);
        join.set_engines(vec!["cpu"]);
        join.set_core(Some(Box::new(FakeCore { refuses })));
        let sa = installed(&join, 1, "10.2.0.0/16", None);
        join.install(&sa, 0).unwrap();
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
    join.install(&sa, 0).unwrap();
    assert!(matches!(join.take_changes().as_slice(), [Change::Tables]));
    join.use_outbound(sa.child, Instant::now());
    assert!(matches!(join.take_changes().as_slice(), [Change::Tables]));
    join.use_outbound(ChildSaId(9), Instant::now());
    assert!(join.take_changes().is_empty(), "there is no such SA");
}
