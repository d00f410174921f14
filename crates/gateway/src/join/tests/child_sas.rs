//! Tests of installed child SAs: how they are found, and what they report of their use and age.

use esplanade_ipsec::lifetime::LifetimeEvent;
use esplanade_ipsec::sa::TfcPadding;

use super::*;

#[test]
fn a_bad_key_leaves_nothing_behind() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let mut sa = installed(&join, 1, "10.2.0.0/16", None);
    sa.key_out = vec![1, 2, 3].into();
    assert!(matches!(
        join.install_now(&sa, 0),
        Err(InstallError::Key(_))
    ));
    assert!(join.database.sad().lookup(sa.spi_in).is_none());
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
    assert!(
        route_changes(&mut join)
            .iter()
            .filter(|change| change.add)
            .count()
            <= 1
    );
    assert_eq!(join.database.spd().entries().len(), 1);
    assert!(!join.asks(PolicyId(1)), "no SA is counted");
}

#[test]
fn an_spi_means_what_its_direction_says() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let victim = installed(&join, 1, "10.2.0.0/16", None);
    let mut hostile = installed(&join, 2, "10.2.9.0/24", None);
    hostile.spi_out = victim.spi_in;
    for sa in [&victim, &hostile] {
        join.install_now(sa, 0).unwrap();
    }
    let policy = |id| join.child(ChildSaId(id)).unwrap().policy;
    let found = |direction, id, spi| {
        let (child, _) = join.child_of(direction, policy(id), spi)?;
        Some(child)
    };
    let (inbound, outbound) = (SaDirection::Inbound, SaDirection::Outbound);
    assert_eq!(found(inbound, 1, victim.spi_in), Some(victim.child));
    assert_eq!(found(outbound, 2, victim.spi_in), Some(hostile.child));
    assert_eq!(found(outbound, 1, victim.spi_in), None);
    assert_eq!(found(outbound, 1, victim.spi_out), Some(victim.child));
    join.delete_now(&deleted(&victim, false, EndAction::Clear), Instant::now());
    let after = join.child_of(inbound, PolicyId(1), victim.spi_in);
    assert!(after.is_none());
}

// RFC 4301 R20; RFC 4303 R22, R63
#[test]
fn what_was_configured_reaches_the_sas() {
    let mut configured = policy("net", TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut configured).sa.tfc = TfcPadding::To(1200);
    Arc::make_mut(&mut configured).sa.class = Some(5);
    let mut join = join_with(vec![configured]);
    for (id, takes_padding) in [(1, true), (2, false)] {
        let mut sa = installed(&join, id, "10.2.0.0/16", None);
        (sa.mode, sa.tfc) = (Mode::Transport, takes_padding);
        join.install_now(&sa, 7000).unwrap();
        let common = &join.child(sa.child).unwrap().outbound.common;
        assert_eq!(common.mode, esplanade_ipsec::sa::Mode::Transport);
        assert_eq!((common.class, common.installed_ms), (Some(5), 7000));
        assert_eq!(common.tfc == TfcPadding::None, !takes_padding);
    }
}

/// A child SA of each id, all with the same two halves.
fn many(ids: std::ops::Range<u64>) -> ChildSas {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let first = installed(&join, ids.start, "10.2.0.0/16", None);
    join.install_now(&first, 1000).unwrap();
    let first = join.child(first.child).unwrap();
    let mut child_sas = ChildSas::default();
    for id in ids {
        child_sas.insert(ChildSaId(id), first.clone());
    }
    child_sas
}

#[test]
fn traffic_is_told_once() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 1000).unwrap();
    assert_eq!(join.take_activity(1500), []);
    let (_, halves) = join
        .child_of(SaDirection::Inbound, PolicyId(0), sa.spi_in)
        .unwrap();
    halves.outbound.common.lifetime.admit(1, 100, 1700);
    let active = |inbound, outbound| Activity {
        child: sa.child,
        inbound,
        outbound,
        due: None,
    };
    assert_eq!(join.take_activity(2000), [active(false, true)]);
    assert_eq!(join.take_activity(2500), []);
    let (_, halves) = join
        .child_of(SaDirection::Inbound, PolicyId(0), sa.spi_in)
        .unwrap();
    halves.inbound.common.lifetime.count(1, 100, 2700);
    assert_eq!(join.activity_of(sa.child, 3000), Some(active(true, false)));
    assert_eq!(join.activity_of(sa.child, 3000), None);
    assert_eq!(join.activity_of(ChildSaId(9), 3000), None);
}

// RFC 4301 R21
#[test]
fn keys_end_in_time_without_traffic_and_without_ike() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let sa = ChildSaInstalled {
        life_time: Duration::from_secs(60),
        ..installed(&join, 1, "10.2.0.0/16", None)
    };
    join.install_now(&sa, 1000).unwrap();
    join.use_outbound(sa.child, Instant::now());
    assert_eq!(join.take_activity(60_999), []);
    let due = |now_ms, join: &mut Join| {
        let active = join.take_activity(now_ms);
        active
            .iter()
            .map(|one| (one.child, one.due))
            .collect::<Vec<_>>()
    };
    let hard = Some(LifetimeEvent::Hard);
    assert_eq!(due(61_000, &mut join), [(sa.child, hard)]);
    // IKE is late. The other half reports its end too, and then neither half reports again.
    assert_eq!(due(61_500, &mut join), [(sa.child, hard)]);
    assert_eq!(due(62_000, &mut join), []);
    let (_, halves) = join
        .child_of(SaDirection::Inbound, PolicyId(0), sa.spi_in)
        .unwrap();
    assert!(!halves.outbound.common.lifetime.admit(1, 100, 62_000).passes);
    assert!(halves.inbound.common.lifetime.expired(62_000));
}

#[test]
fn many_sas_are_looked_at_in_turns() {
    let mut child_sas = many(1..200_001);
    let shared = child_sas.get(ChildSaId(1)).unwrap().inbound.clone();
    shared.common.lifetime.count(1, 100, 1500);
    let mut seen = Vec::new();
    for _ in 0..16 {
        let slice = child_sas.take_activity(2000);
        assert_eq!(slice.len(), 200_000 / 16);
        seen.extend(slice.iter().map(|one| one.child.0));
    }
    assert!(seen.iter().copied().eq(1..200_001), "each once, in order");
    assert_eq!(child_sas.take_activity(2000), []);
    // The next round begins with what is there now.
    shared.common.lifetime.count(1, 100, 2500);
    child_sas.remove(ChildSaId(1));
    let next = child_sas.take_activity(3000);
    assert_eq!(next.first().unwrap().child.0, 2);
}

#[test]
fn sas_for_the_same_packets_take_over_from_each_other_in_order_of_age() {
    let now = Instant::now();
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let sas: Vec<_> = (1..=20)
        .map(|id| {
            let sa = installed(&join, id, "10.2.0.0/16", None);
            join.install_now(&sa, 0).unwrap();
            join.use_outbound(sa.child, now);
            sa
        })
        .collect();
    // The newest goes first, and the next in age carries on.
    for (index, sa) in sas.iter().enumerate().rev() {
        assert_eq!(send(&join, "10.2.0.1"), Ok(sa.spi_out), "{index}");
        let found = join.child_of(SaDirection::Outbound, PolicyId(1), sa.spi_out);
        assert_eq!(found.map(|(id, _)| id), Some(sa.child));
        join.delete_now(&deleted(sa, false, EndAction::Clear), now);
        let found = join.child_of(SaDirection::Outbound, PolicyId(1), sa.spi_out);
        assert!(found.is_none());
    }
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
}
