//! Children that change their engine.

use super::*;
use crate::config::EngineKind;

#[test]
fn into_the_core_and_out_of_it_a_child_goes_with_its_next_sa() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    join.set_engines(vec!["cpu", "pool"]);
    join.engines.has_core = true;
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa, 0).unwrap();
    let order = |join: &mut Join, engine| {
        let moved = join.set_engine(None, "net", engine).unwrap();
        let child = join.child(sa.child).unwrap();
        let renewals = join.engines.renewals.len();
        assert_eq!(moved.renewed, renewals, "{engine}");
        assert_eq!(moved.at_once, 1 - renewals, "{engine}");
        let engine = join.engine_of(child).unwrap();
        (engine, join.take_renewals())
    };
    let renewed = vec![sa.child];
    assert_eq!(order(&mut join, "pool"), ("pool", vec![]));
    assert_eq!(order(&mut join, "fpga"), ("pool", renewed.clone()));
    assert_eq!(order(&mut join, "cpu"), ("cpu", vec![]));
    // As if the core had taken it.
    join.children.get_mut(&sa.child).unwrap().carrier = Carrier::Fpga;
    assert_eq!(order(&mut join, "fpga"), ("fpga", vec![]));
    assert_eq!(order(&mut join, "pool"), ("fpga", renewed.clone()));
    let error = join.set_engine(None, "net", "gpu").unwrap_err();
    assert!(error.to_string().contains("(it has cpu, pool, fpga)"));

    // A new configuration counts as an order where there is none.
    join.engines.ordered.clear();
    let mut configured = policy("net", TRAP, "10.2.0.0/16");
    configured.sa.engine = Some(EngineKind::Cpu);
    join.configure(vec![configured]);
    assert_eq!(join.take_renewals(), renewed);
    join.configure(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert_eq!(join.take_renewals(), []);
    // What the core has refused is asked for again only by order.
    let refused = Carrier::Cpu(Some("it is full".into()));
    join.children.get_mut(&sa.child).unwrap().carrier = refused;
    join.configure(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert_eq!(join.take_renewals(), []);
    assert_eq!(order(&mut join, "fpga"), ("cpu", renewed));
}
