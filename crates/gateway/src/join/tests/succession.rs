//! Tests which SAs are expected to take over packets. What comes of it is tested with the data plane.

use super::hosts::engines;
use super::*;
use crate::join::succession::GONE;

/// A gateway with two engines, whose packets come back in no common order.
fn join_with(policies: Vec<ConfiguredPolicy>) -> Join {
    let mut join = super::join_with(policies);
    join.set_engines(engines(&["cpu", "pool"]));
    join
}

/// Tells of both halves, outbound first, whether their next packet waits for what engines have.
fn waits(join: &Join, sa: &ChildSaInstalled) -> [bool; 2] {
    let child = join.child(sa.child).unwrap();
    let halves = [&child.outbound.common, &child.inbound.common];
    halves.map(|half| half.placement.get().is_unmet())
}

/// Lets both halves of an SA have a packet.
fn pass_packets(join: &Join, sa: &ChildSaInstalled) {
    let child = join.child(sa.child).unwrap();
    for half in [&child.outbound.common, &child.inbound.common] {
        join.database.placements().meet(&half.placement);
    }
}

fn up(join: &mut Join, id: u64, remote: &str) -> ChildSaInstalled {
    let sa = installed(join, id, remote, None);
    join.install_now(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    sa
}

#[test]
fn the_first_sa_takes_over_from_none_and_its_successors_do() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let first = up(&mut join, 1, "10.2.0.0/16");
    assert_eq!(waits(&join, &first), [false, false]);
    for rekeyed_from in [Some(1), None] {
        let id = 2 + u64::from(rekeyed_from.is_none());
        let next = installed(&join, id, "10.2.0.0/16", rekeyed_from);
        join.install_now(&next, 0).unwrap();
        assert_eq!(waits(&join, &next), [true, true]);
        // The peer sends at once. We do later, and then the outbound half waits.
        pass_packets(&join, &next);
        join.use_outbound(next.child, Instant::now());
        assert_eq!(waits(&join, &next), [true, false]);
        pass_packets(&join, &next);
    }
}

/// One engine gives packets back in their order, so the control thread looks for nothing.
#[test]
fn with_one_engine_no_sa_waits() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    join.set_engines(engines(&["cpu"]));
    let first = up(&mut join, 1, "10.2.0.0/16");
    let next = installed(&join, 2, "10.2.0.0/16", Some(1));
    join.install_now(&next, 0).unwrap();
    assert_eq!(waits(&join, &next), [false, false]);
    join.delete_now(&deleted(&first, false, EndAction::Clear), Instant::now());
    assert!(!waits(&join, &next)[1]);
}

#[test]
fn an_sa_that_is_gone_is_remembered_for_a_while() {
    let now = Instant::now();
    for (seconds, remote, expected) in [
        (0, "10.2.0.0/16", true),
        // Packets come in for the former SA for five seconds.
        (6, "10.2.0.0/16", true),
        (8, "10.2.0.0/16", false),
        (0, "10.2.7.0/24", true),
        (0, "10.3.0.0/16", false),
    ] {
        let mut join = join_with(vec![policy("net", TRAP, "10.0.0.0/8")]);
        let first = up(&mut join, 1, "10.2.0.0/16");
        join.delete_now(&deleted(&first, false, EndAction::Clear), now);
        assert!(GONE < Duration::from_secs(3));
        join.expire(now + Duration::from_secs(seconds));
        let next = up(&mut join, 2, remote);
        assert_eq!(waits(&join, &next), [expected; 2], "{seconds} s, {remote}");
    }
}

/// With more SAs than are remembered, every new one may be a successor.
#[test]
fn few_sas_are_remembered() {
    let now = Instant::now();
    let mut join = join_with(vec![policy("net", TRAP, "10.0.0.0/8")]);
    // The keys are made of the numbers, and zero is no key.
    for id in (1..600).step_by(2) {
        let remote = format!("10.{}.{}.0/24", 100 + id / 100, id % 100);
        let sa = up(&mut join, id, &remote);
        join.delete_now(&deleted(&sa, false, EndAction::Clear), now);
    }
    let sa = up(&mut join, 601, "10.3.0.0/16");
    assert_eq!(waits(&join, &sa), [true, true]);
    join.expire(now + Duration::from_secs(8));
    let sa = up(&mut join, 603, "10.4.0.0/16");
    assert_eq!(waits(&join, &sa), [false, false]);
}

#[test]
fn an_sa_in_front_takes_packets_and_gives_them_back() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let net = up(&mut join, 1, "10.2.0.0/16");
    let other = up(&mut join, 2, "10.2.128.0/24");
    pass_packets(&join, &net);
    assert_eq!(send(&join, "10.2.0.1"), Ok(net.spi_out));
    let part = up(&mut join, 3, "10.2.0.0/24");
    assert_eq!(send(&join, "10.2.0.1"), Ok(part.spi_out));
    assert_eq!(waits(&join, &part), [true, true]);
    pass_packets(&join, &part);
    pass_packets(&join, &other);
    assert_eq!(waits(&join, &net), [false, false]);
    join.delete_now(&deleted(&part, false, EndAction::Clear), Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Ok(net.spi_out));
    assert_eq!(waits(&join, &net), [true, true]);
    assert_eq!(waits(&join, &other), [false, false]);
}

#[test]
fn of_two_sas_the_older_carries_on_behind_the_newer() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let first = up(&mut join, 1, "10.2.0.0/16");
    let second = up(&mut join, 2, "10.2.0.0/16");
    assert_eq!(waits(&join, &first), [false, false]);
    join.delete_now(&deleted(&second, false, EndAction::Clear), Instant::now());
    assert_eq!(waits(&join, &first), [true, true]);
}

#[test]
fn a_reload_that_moves_policies_is_a_move_of_all_sas() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let sa = up(&mut join, 1, "10.2.0.0/16");
    let placed = |join: &Join| {
        join.child(sa.child)
            .unwrap()
            .outbound
            .common
            .placement
            .get()
    };
    let before = placed(&join);
    join.configure(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert!(placed(&join).moment > before.moment && !placed(&join).is_unmet());
}
