//! Tests of traffic that is led into a TUN device, or kept out of it.

use super::*;
use crate::join::routes::bypass_routes;

#[test]
fn a_bypass_keeps_nothing_but_its_own_traffic_out_of_the_tun() {
    let net = || policy("net", TRAP, "10.2.0.0/16");
    let pass = || policy("pass", PolicyKind::Bypass, "10.2.1.0/24");
    let thrown = |policies: &[ConfiguredPolicy]| bypass_routes(policies).len();
    assert_eq!(thrown(&[pass(), net()]), 1);
    assert_eq!(thrown(&[net(), pass()]), 0, "the tunnel comes first");
    assert_eq!(
        thrown(&[net(), policy("far", PolicyKind::Bypass, "10.9.0.0/16")]),
        1
    );

    let mut ssh = pass();
    Arc::make_mut(&mut ssh).remote[0].protocol = 6;
    Arc::make_mut(&mut ssh).remote[0].ports = PortRange::Range(22, 22);
    assert_eq!(thrown(&[ssh, net()]), 0, "only one port is bypassed");
    let mut host = pass();
    Arc::make_mut(&mut host).local = ends("10.1.0.5/32");
    assert_eq!(thrown(&[host, net()]), 0, "only one host is bypassed");
    let mut unknown = net();
    Arc::make_mut(&mut unknown).local.clear();
    assert_eq!(thrown(&[pass(), unknown]), 0, "an address not known yet");
    let drop = policy("drop", PolicyKind::Discard, "10.2.1.128/25");
    assert_eq!(thrown(&[drop, pass()]), 0, "some of it is discarded");

    let mut join = join_with(vec![pass(), net()]);
    assert!(route_changes(&mut join).iter().any(|c| c.bypass && c.add));
    join.configure(vec![net(), pass()]);
    let changes = route_changes(&mut join);
    assert!(matches!(changes.as_slice(), [change] if change.bypass && !change.add));
}

#[test]
fn routes_lead_to_the_device_of_a_mark() {
    let mut marked = policy("net", NO_TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut marked).sa.if_ids = crate::config::IfIds {
        inbound: 7,
        outbound: 7,
    };
    let bound = marked.clone();
    Arc::make_mut(&mut marked).sa.marks.outbound = Some(crate::config::Mark {
        value: 10,
        mask: u32::MAX,
    });
    let mut join = join_with(vec![marked, policy("other", NO_TRAP, "10.2.0.0/16")]);
    let led = |join: &mut Join| -> Vec<_> {
        let changes = route_changes(join).into_iter();
        changes
            .map(|change| (change.interface, change.add))
            .collect()
    };
    // Both stand without an SA, each with its own routes.
    assert_eq!(led(&mut join), [(7, true), (0, true)]);
    let sa = installed(&join, 1, "10.2.7.0/24", None);
    join.install_now(&sa, 0).unwrap();
    assert_eq!(led(&mut join), [(7, true)]);
    join.delete_now(&deleted(&sa, false, EndAction::Clear), Instant::now());
    assert_eq!(led(&mut join), [(7, false)]);
    // Routes to an interface without a mark are the administrator's.
    join.configure(vec![bound]);
    assert_eq!(led(&mut join), [(7, false), (0, false)]);
}

/// Routes that have come and gone since the last look are no work for the kernel.
#[test]
fn opposite_changes_cancel() {
    let net = |third: u8| policy("net", TRAP, &format!("10.2.{third}.0/24"));
    let pass = || policy("pass", PolicyKind::Bypass, "10.9.0.0/16");
    let mut join = join_with(vec![net(0)]);
    assert_eq!(route_changes(&mut join).len(), 1);
    let now = Instant::now();
    for id in 1..20 {
        let sa = installed(&join, id, "10.2.7.0/24", None);
        join.install_now(&sa, 0).unwrap();
        join.delete_now(&deleted(&sa, false, EndAction::Clear), now);
    }
    assert_eq!(route_changes(&mut join), []);
    // One of two that were added is left, in its place.
    for policies in [
        vec![net(1)],
        vec![net(2), pass()],
        vec![net(0)],
        vec![net(3), pass()],
    ] {
        join.configure(policies);
    }
    let left: Vec<_> = route_changes(&mut join)
        .into_iter()
        .map(|change| {
            (
                change.add,
                change.bypass,
                change.remote[0].first.to_string(),
            )
        })
        .collect();
    let expected = [
        (false, false, "10.2.0.0"),
        (true, false, "10.2.3.0"),
        (true, true, "10.9.0.0"),
    ];
    let mut sorted = left.clone();
    sorted.sort();
    assert_eq!(
        sorted,
        expected.map(|(add, bypass, first)| (add, bypass, first.to_owned()))
    );
}
