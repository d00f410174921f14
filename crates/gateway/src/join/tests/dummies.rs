//! Tests of the choice of SAs that send dummy packets.

use super::*;

// RFC 4303 R20
#[test]
fn dummies_are_sent_on_the_sa_in_use_only() {
    let mut configured = policy("net", TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut configured).sa.dummies = 20;
    let other = policy("other", TRAP, "10.3.0.0/16");
    let mut join = join_with(vec![configured, other]);
    let spis = |join: &mut Join| {
        let changes = join.take_changes().into_iter();
        let mut dummies = changes.filter_map(|change| match change {
            Change::Dummies(sas) => Some(sas),
            _ => None,
        });
        let sas = dummies.next()?;
        assert!(sas.iter().all(|one| one.interval_ms == 50));
        Some(sas.iter().map(|one| one.sa.common.spi).collect::<Vec<_>>())
    };
    assert_eq!(spis(&mut join), None);
    let first = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&first, 0).unwrap();
    assert_eq!(spis(&mut join), None, "the peer may not have it yet");
    join.use_outbound(first.child, Instant::now());
    assert_eq!(spis(&mut join), Some(vec![first.spi_out]));
    assert_eq!(spis(&mut join), None, "nothing has changed");

    let second = installed(&join, 2, "10.2.0.0/16", Some(1));
    join.install_now(&second, 0).unwrap();
    join.use_outbound(second.child, Instant::now());
    join.delete_now(&deleted(&first, true, EndAction::Clear), Instant::now());
    assert_eq!(spis(&mut join), Some(vec![second.spi_out]));

    // A change of an SA without dummies changes nothing.
    let mut other = installed(&join, 3, "10.3.0.0/16", None);
    other.name = "other".into();
    join.install_now(&other, 0).unwrap();
    join.use_outbound(other.child, Instant::now());
    assert_eq!(send(&join, "10.3.0.1"), Ok(other.spi_out));
    join.delete_now(&deleted(&other, false, EndAction::Clear), Instant::now());
    assert_eq!(spis(&mut join), None);

    join.delete_now(&deleted(&second, false, EndAction::Clear), Instant::now());
    assert_eq!(spis(&mut join), Some(vec![]));
}
