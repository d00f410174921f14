//! Tests of the order of policies whose traffic meets: an SA carries it, and the order decides among those with one.

use super::*;

/// A child of a connection of this name, for one peer.
fn of(connection: &str, kind: PolicyKind, remote: &str) -> ConfiguredPolicy {
    ConfiguredPolicy::new(ChildPolicy {
        connection: connection.into(),
        shared_traffic: SharedTraffic {
            of_one_peer: true,
            ..SharedTraffic::default()
        },
        ..(*policy("net", kind, remote)).clone()
    })
}

/// The same with `start_action = trap`.
fn trapped(connection: &str, remote: &str) -> ConfiguredPolicy {
    let mut policy = of(connection, TRAP, remote);
    Arc::make_mut(&mut policy).shared_traffic.trap = true;
    policy
}

/// The same for any peer.
fn for_anybody(connection: &str, remote: &str) -> ConfiguredPolicy {
    let mut policy = of(connection, NO_TRAP, remote);
    Arc::make_mut(&mut policy).shared_traffic.of_one_peer = false;
    policy
}

/// Brings an SA of the connection up.
fn up(join: &mut Join, id: u64, connection: &str, remote: &str) -> ChildSaInstalled {
    let mut sa = installed(join, id, remote, None);
    sa.connection = connection.into();
    join.install_now(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    join.settle();
    sa
}

fn down(join: &mut Join, sa: &ChildSaInstalled) {
    join.delete_now(&deleted(sa, false, EndAction::Clear), Instant::now());
}

fn asks(connection: &str) -> Result<u32, String> {
    Err(format!("acquire {connection}/net"))
}

const NET: &str = "10.2.0.0/16";
const PART: &str = "10.2.7.0/24";
const WHOLE: &str = "10.0.0.0/8";

/// Two ways to the same networks.
// RFC 4301 R12
#[test]
fn the_order_decides_among_children_with_an_sa() {
    for (one, other) in [(NET, NET), (PART, NET), (NET, PART), (PART, WHOLE)] {
        let mut join = join_with(vec![of("first", TRAP, one), of("second", TRAP, other)]);
        assert_eq!(send(&join, "10.2.7.1"), asks("first"), "{one} {other}");
        let second = up(&mut join, 1, "second", other);
        assert_eq!(send(&join, "10.2.7.1"), Ok(second.spi_out), "{one} {other}");
        let first = up(&mut join, 2, "first", one);
        assert_eq!(send(&join, "10.2.7.1"), Ok(first.spi_out));
        down(&mut join, &first);
        assert_eq!(send(&join, "10.2.7.1"), Ok(second.spi_out));
        down(&mut join, &second);
        assert_eq!(send(&join, "10.2.7.1"), asks("first"));
        assert_eq!(join.database.spd().entries().len(), 2);
    }
}

/// The peer has narrowed the first child.
#[test]
fn what_a_peer_narrows_away_goes_through_the_other_child() {
    let mut join = join_with(vec![of("first", TRAP, NET), of("second", TRAP, NET)]);
    let first = up(&mut join, 1, "first", PART);
    assert_eq!(send(&join, "10.2.8.1"), asks("first"));
    let second = up(&mut join, 2, "second", NET);
    assert_eq!(send(&join, "10.2.7.1"), Ok(first.spi_out));
    assert_eq!(send(&join, "10.2.8.1"), Ok(second.spi_out));
    down(&mut join, &first);
    assert_eq!(send(&join, "10.2.7.1"), Ok(second.spi_out));
}

#[test]
fn a_narrower_trap_insists_on_an_sa_of_its_own() {
    let mut join = join_with(vec![trapped("narrow", PART), of("wide", TRAP, NET)]);
    let wide = up(&mut join, 1, "wide", NET);
    assert_eq!(send(&join, "10.2.7.1"), asks("narrow"));
    assert_eq!(send(&join, "10.2.8.1"), Ok(wide.spi_out));
    // An SA comes before a trap of the same traffic.
    let mut join = join_with(vec![trapped("first", NET), trapped("second", NET)]);
    let second = up(&mut join, 1, "second", NET);
    assert_eq!(send(&join, "10.2.7.1"), Ok(second.spi_out));
}

#[test]
fn what_passes_and_what_is_dropped_keeps_its_place() {
    let pass = |remote| policy("pass", PolicyKind::Bypass, remote);
    let drop = |remote| policy("drop", PolicyKind::Discard, remote);
    let dropped = Err(DropReason::PolicyDiscard.name().to_owned());
    let (first, second) = (of("first", NO_TRAP, NET), of("second", NO_TRAP, NET));

    // Behind the first child, nothing of it passes: with an SA of either, or without.
    let mut join = join_with(vec![first.clone(), pass(PART), second.clone()]);
    assert_eq!(send(&join, "10.2.7.1"), asks("first"));
    let sa = up(&mut join, 1, "second", NET);
    assert_eq!(send(&join, "10.2.7.1"), asks("first"), "not in the clear");
    down(&mut join, &sa);
    assert_eq!(send(&join, "10.2.7.1"), asks("first"));

    let mut join = join_with(vec![first.clone(), second.clone(), pass(WHOLE)]);
    let sa = up(&mut join, 1, "second", NET);
    assert_eq!(send(&join, "10.2.7.1"), Ok(sa.spi_out));
    down(&mut join, &sa);
    assert_eq!(send(&join, "10.2.7.1"), asks("first"));
    assert_eq!(send(&join, "10.3.0.1"), Err("bypass".into()));

    // In front of both, or between them, they are obeyed.
    let mut join = join_with(vec![drop(PART), first.clone(), second.clone()]);
    up(&mut join, 1, "second", NET);
    assert_eq!(send(&join, "10.2.7.1"), dropped);
    let mut join = join_with(vec![
        of("first", NO_TRAP, "10.9.0.0/16"),
        drop(PART),
        second.clone(),
    ]);
    up(&mut join, 1, "second", NET);
    assert_eq!(send(&join, "10.2.7.1"), dropped);

    // Policies of other traffic are no obstacle.
    let mut join = join_with(vec![first, pass("10.9.0.0/16"), second]);
    let sa = up(&mut join, 1, "second", NET);
    assert_eq!(send(&join, "10.2.7.1"), Ok(sa.spi_out));
    assert_eq!(send(&join, "10.9.0.1"), Err("bypass".into()));
}

/// The selectors of an SA that does not send yet are those of an earlier configuration.
#[test]
fn negotiated_selectors_wait_behind_nothing() {
    let mut join = join_with(vec![of("first", NO_TRAP, "10.9.0.0/16")]);
    let mut sa = installed(&join, 1, "10.9.0.0/16", None);
    sa.connection = "first".into();
    join.install_now(&sa, 0).unwrap();
    join.configure(vec![
        of("first", NO_TRAP, NET),
        policy("pass", PolicyKind::Bypass, "10.9.0.0/16"),
        of("second", NO_TRAP, NET),
    ]);
    assert_eq!(send(&join, "10.9.0.1"), asks("first"), "not in the clear");
}

/// IKE refuses selectors that the configuration binds to another peer, but an SA may be older than the configuration.
#[test]
fn a_peer_does_not_get_what_is_bound_to_another() {
    let mut join = join_with(vec![of("bound", NO_TRAP, PART), for_anybody("any", NET)]);
    let any = up(&mut join, 1, "any", NET);
    assert_eq!(send(&join, "10.2.7.1"), asks("bound"));
    assert_eq!(send(&join, "10.2.8.1"), Ok(any.spi_out));

    // With `overlap` in both, the administrator gives it to both.
    let overlapping = |mut policy: ConfiguredPolicy| {
        Arc::make_mut(&mut policy).shared_traffic.overlap = true;
        policy
    };
    let (bound, anybody) = (of("bound", NO_TRAP, PART), for_anybody("any", NET));
    join.configure(vec![overlapping(bound.clone()), anybody.clone()]);
    assert_eq!(send(&join, "10.2.7.1"), asks("bound"));
    join.configure(vec![
        overlapping(bound.clone()),
        overlapping(anybody.clone()),
    ]);
    assert_eq!(send(&join, "10.2.7.1"), Ok(any.spi_out));

    // The traffic of anybody may be that of one.
    let mut join = join_with(vec![anybody.clone(), bound.clone()]);
    let sa = up(&mut join, 1, "bound", PART);
    assert_eq!(send(&join, "10.2.7.1"), Ok(sa.spi_out));

    // A third child does not get past one that may not have the traffic.
    let mut join = join_with(vec![bound, anybody, of("third", NO_TRAP, NET)]);
    up(&mut join, 1, "third", NET);
    assert_eq!(send(&join, "10.2.7.1"), asks("bound"));
}

/// The second child meets both others, which do not meet each other's traffic in all of it.
#[test]
fn without_any_sa_the_first_is_asked() {
    let pass = policy("pass", PolicyKind::Bypass, "10.4.0.0/16");
    let all = vec![
        of("first", TRAP, "10.2.0.0/15"),
        of("second", TRAP, "10.3.0.0/16"),
        of("third", TRAP, "10.2.0.0/14"),
        pass,
        of("fourth", TRAP, WHOLE),
    ];
    let mut join = join_with(all);
    assert_eq!(send(&join, "10.2.0.1"), asks("first"));
    assert_eq!(send(&join, "10.3.0.1"), asks("first"));
    assert_eq!(send(&join, "10.1.0.1"), asks("third"));
    assert_eq!(send(&join, "10.4.0.1"), Err("bypass".into()));
    assert_eq!(send(&join, "10.9.0.1"), asks("fourth"));
    let third = up(&mut join, 1, "third", "10.2.0.0/14");
    assert_eq!(send(&join, "10.3.0.1"), Ok(third.spi_out));
    let second = up(&mut join, 2, "second", "10.3.0.0/16");
    assert_eq!(send(&join, "10.3.0.1"), Ok(second.spi_out));
    assert_eq!(send(&join, "10.2.0.1"), Ok(third.spi_out));
    assert_eq!(send(&join, "10.4.0.1"), Err("bypass".into()));
}

/// A peer's address is not known before it is there.
#[test]
fn a_held_network_leaves_an_address_to_the_peer_that_has_it() {
    let mut roaming = for_anybody("roaming", NET);
    Arc::make_mut(&mut roaming).remote.clear();
    let mut join = join_with(vec![for_anybody("net", NET), roaming]);
    let sa = up(&mut join, 1, "roaming", "10.2.0.9/32");
    assert_eq!(send(&join, "10.2.0.9"), Ok(sa.spi_out));
    assert_eq!(send(&join, "10.2.0.8"), asks("net"));
}

/// An SPD that changes makes all workers decide anew.
#[test]
fn a_child_with_traffic_of_its_own_keeps_its_place() {
    let network = |n: usize| format!("10.{}.{}.0/24", n / 256, n % 256);
    let named = |n: usize| of(&format!("peer{n}"), TRAP, &network(n));
    let count = 2000;
    let mut join = join_with((0..count).map(named).collect());
    let before = join.database.spd().id();
    let sa = up(&mut join, 1, "peer7", &network(7));
    assert_eq!(send(&join, "10.0.7.1"), Ok(sa.spi_out));
    down(&mut join, &sa);
    assert_eq!(join.database.spd().id(), before);
}

/// Children that are too much to compare keep the order of the configuration.
#[test]
fn very_many_children_of_the_same_traffic_are_in_order() {
    let all = (0..4000).map(|n| of(&format!("peer{n}"), TRAP, NET));
    let mut join = join_with(all.collect());
    up(&mut join, 1, "peer7", NET);
    assert_eq!(send(&join, "10.2.0.1"), asks("peer0"));
}

/// A peer that anybody may be chooses its own address. It gets no traffic of a child for one peer.
#[test]
fn an_address_that_a_peer_chooses_opens_no_child_of_another_peer() {
    const HOST: &str = "10.2.7.1/32";
    let dynamic = |overlap| {
        let mut policy = for_anybody("anybody", NET);
        Arc::make_mut(&mut policy).remote = Vec::new();
        Arc::make_mut(&mut policy).shared_traffic.overlap = overlap;
        policy
    };
    let site = |overlap| {
        let mut policy = of("site", TRAP, NET);
        Arc::make_mut(&mut policy).shared_traffic.overlap = overlap;
        policy
    };
    for overlap in [false, true] {
        let mut join = join_with(vec![site(overlap), dynamic(overlap)]);
        let sa = up(&mut join, 1, "anybody", HOST);
        let sent = send(&join, "10.2.7.1");
        match overlap {
            false => assert_eq!(sent, asks("site")),
            true => assert_eq!(sent, Ok(sa.spi_out)),
        }
    }
}
