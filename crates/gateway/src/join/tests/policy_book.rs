//! Tests of the policies that stand, of their order, and of the SAs that may send by them.

use esplanade_ipsec::sa::DscpSet;
use esplanade_ipsec::selector::PopulateFromPacket;

use super::*;

#[test]
fn without_a_trap_traffic_is_held_and_asks_for_nothing() {
    let mut join = join_with(vec![
        policy("net", NO_TRAP, "10.2.0.0/16"),
        policy("pass", PolicyKind::Bypass, "10.0.0.0/8"),
    ]);
    assert!(route_changes(&mut join).iter().any(|change| change.add));
    let held = Err("acquire site/net".into());
    assert_eq!(send(&join, "10.2.0.1"), held);
    let id = PolicyId(1);
    assert!(!join.asks(id) && join.children_to_ask(id, 0).is_none());
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Ok(sa.spi_out));
    join.delete_now(&deleted(&sa, false, EndAction::Clear), Instant::now());
    assert!(route_changes(&mut join).is_empty());
    assert_eq!(send(&join, "10.2.0.1"), held, "not in the clear");
    assert!(join.children_to_ask(id, 0).is_none());
    join.configure(Vec::new());
    assert!(route_changes(&mut join).iter().any(|change| !change.add));
}

#[test]
fn a_dead_peer_with_trap_leaves_the_policy_waiting() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    join.delete_now(&deleted(&sa, false, EndAction::Trap), Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
}

#[test]
fn narrowed_selectors_come_before_the_trap() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.7.0/24", None);
    join.install_now(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    assert_eq!(send(&join, "10.2.7.1"), Ok(sa.spi_out));
    assert_eq!(send(&join, "10.2.8.1"), Err("acquire site/net".into()));
}

// RFC 4301 R12
#[test]
fn the_order_of_the_configuration_decides() {
    let mut join = join_with(vec![
        policy("pass", PolicyKind::Bypass, "10.2.1.0/24"),
        policy("drop", PolicyKind::Discard, "10.2.2.0/24"),
        policy("net", NO_TRAP, "10.2.0.0/16"),
    ]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    assert_eq!(send(&join, "10.2.1.1"), Err("bypass".into()));
    assert_eq!(
        send(&join, "10.2.2.1"),
        Err(DropReason::PolicyDiscard.name().into())
    );
    assert_eq!(send(&join, "10.2.3.1"), Ok(sa.spi_out));
}

// RFC 4301 R91
#[test]
fn a_reload_keeps_what_is_up() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    join.configure(vec![policy("other", TRAP, "10.9.0.0/16")]);
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(sa.spi_out),
        "until IKE deletes it"
    );
    join.delete_now(&deleted(&sa, false, EndAction::Clear), Instant::now());
    assert_eq!(
        send(&join, "10.2.0.1"),
        Err(DropReason::NoPolicy.name().into())
    );
    assert_eq!(send(&join, "10.9.0.1"), Err("acquire site/other".into()));
}

#[test]
fn a_peer_that_narrows_and_leaves_again_and_again_leaves_one_trap() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    for id in 1..50 {
        let sa = installed(&join, id, &format!("10.2.{id}.0/24"), None);
        join.install_now(&sa, 0).unwrap();
        join.use_outbound(sa.child, Instant::now());
        join.delete_now(&deleted(&sa, false, EndAction::Trap), Instant::now());
    }
    assert_eq!(join.database.spd().entries().len(), 1);
    assert_eq!(send(&join, "10.2.200.1"), Err("acquire site/net".into()));
}

#[test]
fn a_reload_never_lets_trapped_traffic_out() {
    let now = Instant::now();
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    route_changes(&mut join);
    // A detail of the policy changes, and its routes stay.
    let mut changed = policy("net", TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut changed).sa.tunnel.df = esplanade_ipsec::tunnel::DfPolicy::Clear;
    join.configure(vec![changed]);
    assert_eq!(route_changes(&mut join), []);
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
    // The selectors change: the new routes come before the old ones go.
    join.configure(vec![policy("net", TRAP, "10.0.0.0/8")]);
    let adds: Vec<_> = route_changes(&mut join).iter().map(|c| c.add).collect();
    assert_eq!(adds, [true, false]);

    // A policy that a dead peer left trapped stays trapped.
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install_now(&sa, 0).unwrap();
    join.delete_now(&deleted(&sa, false, EndAction::Trap), now);
    route_changes(&mut join);
    join.configure(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    assert_eq!(route_changes(&mut join), []);
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
    join.configure(Vec::new());
    assert_eq!(route_changes(&mut join).len(), 1);
}

/// Two children with the same selectors: one for DSCP 46, one for all others.
pub(super) fn join_with_voice() -> Join {
    let mut net = policy("net", TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut net).sa.dscp = (0..64).filter(|dscp| *dscp != 46).collect();
    let mut voice = policy("voice", TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut voice).shares_entry_of = "net".into();
    Arc::make_mut(&mut voice).sa.dscp = DscpSet::EMPTY.with(46);
    join_with(vec![net, voice])
}

/// RFC 4301 §4.1: one entry, an SA for each set of DSCPs.
// RFC 4301 R3, R75
#[test]
fn dscps_choose_among_the_sas_of_one_entry() {
    let mut join = join_with_voice();
    let spi = |join: &Join, dscp| {
        let flow = Flow {
            dscp,
            ..flow("10.2.0.1")
        };
        match join.database.spd().outbound(&flow) {
            Decision::Protect(sa) => sa.common.spi,
            Decision::Acquire(acquire) => {
                let both = match dscp {
                    46 => vec!["voice", "net"],
                    _ => vec!["net", "voice"],
                };
                assert_eq!(
                    join.children_to_ask(acquire.policy.id, dscp),
                    Some(("site", both))
                );
                0
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((spi(&join, 0), spi(&join, 46)), (0, 0));
    assert_eq!(join.database.spd().entries().len(), 1);

    let up = |join: &mut Join, id, name: &str, initiator| {
        let mut sa = installed(join, id, "10.2.0.0/16", None);
        sa.name = name.into();
        sa.initiator = initiator;
        join.install_now(&sa, 0).unwrap();
        join.use_outbound(sa.child, Instant::now());
        sa
    };
    let net = up(&mut join, 1, "net", true);
    // The peer's SA is beside another SA, but for other packets. So it does not wait.
    let voice = up(&mut join, 2, "voice", false);
    assert_eq!(
        (spi(&join, 0), spi(&join, 46)),
        (net.spi_out, voice.spi_out)
    );
    let second = up(&mut join, 3, "voice", true);
    assert_eq!(
        (spi(&join, 0), spi(&join, 46)),
        (net.spi_out, second.spi_out)
    );
    join.delete_now(&deleted(&second, false, EndAction::Clear), Instant::now());
    assert_eq!(
        (spi(&join, 0), spi(&join, 46)),
        (net.spi_out, voice.spi_out)
    );
    join.delete_now(&deleted(&voice, false, EndAction::Clear), Instant::now());
    assert_eq!((spi(&join, 0), spi(&join, 46)), (net.spi_out, net.spi_out));
}

// RFC 4301 R19
#[test]
fn flows_share_the_entry_that_they_populate() {
    let mut each = policy("net", TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut each).sa.populate.remote = true;
    let mut join = join_with(vec![each]);
    for (id, remote) in [(1, "10.2.0.1"), (2, "10.2.0.2")] {
        assert_eq!(send(&join, remote), Err("acquire site/net".into()));
        let sa = installed(&join, id, &format!("{remote}/32"), None);
        join.install_now(&sa, 0).unwrap();
        join.use_outbound(sa.child, Instant::now());
        assert_eq!(send(&join, remote), Ok(sa.spi_out));
    }
    assert_eq!(join.database.spd().entries().len(), 1);
    assert_eq!(route_changes(&mut join).len(), 1, "the policy's own");
    let spd = join.database.spd();
    let Decision::Acquire(acquire) = spd.outbound(&flow("10.2.0.3")) else {
        panic!("no SA is for it")
    };
    let asked = demand(&flow("10.2.0.3"), &acquire.selector).unwrap();
    let host = "10.2.0.3".parse().unwrap();
    assert_eq!(
        (asked.selectors.1.start, asked.selectors.1.end),
        (host, host)
    );
    assert_eq!(asked.selectors.0, wire("10.1.0.0/16")[0]);
    assert_eq!(asked.packet.1.start, host);

    // A flow whose protocol is hidden is not all protocols: traffic selectors have no word for it.
    let hidden = Flow {
        protocol: None,
        ports: None,
        ..flow("10.2.0.3")
    };
    let by_protocol = PopulateFromPacket {
        protocol: true,
        ..PopulateFromPacket::default()
    };
    let selector = by_protocol.narrow(&acquire.selector, &hidden);
    assert_eq!(demand(&hidden, &selector), None);
}

// RFC 4301 R10
#[test]
fn a_policy_of_an_interface_is_for_its_packets_only() {
    let mut bound = policy("net", TRAP, "0.0.0.0/0");
    Arc::make_mut(&mut bound).local = ends("0.0.0.0/0");
    Arc::make_mut(&mut bound).sa.if_ids = crate::config::IfIds {
        inbound: 43,
        outbound: 42,
    };
    let mut pass = policy("pass", PolicyKind::Bypass, "10.9.0.0/16");
    Arc::make_mut(&mut pass).sa.if_ids.outbound = 42;
    let mut join = join_with(vec![bound.clone(), pass]);
    let from = |join: &Join, interface, remote: &str| {
        let flow = Flow {
            interface,
            ..flow(remote)
        };
        match join.database.spd().outbound(&flow) {
            Decision::Protect(sa) => format!("{:x}", sa.common.spi),
            Decision::Bypass => "bypass".into(),
            Decision::Discard(reason) => reason.name().into(),
            Decision::Acquire(acquire) => acquire.policy.name.clone(),
        }
    };
    assert_eq!(from(&join, 42, "10.2.0.1"), "site/net");
    let mut sa = installed(&join, 1, "0.0.0.0/0", None);
    sa.local_ts = wire("0.0.0.0/0");
    join.install_now(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    assert_eq!(from(&join, 42, "10.2.0.1"), "1001");
    for other in [0, 43] {
        assert_eq!(from(&join, other, "10.2.0.1"), DropReason::NoPolicy.name());
        assert_eq!(from(&join, other, "10.9.0.1"), DropReason::NoPolicy.name());
    }
    let inbound = join.database.sad().lookup(sa.spi_in).unwrap();
    assert_eq!(inbound.common.interface, 43);
    assert!(
        route_changes(&mut join).is_empty(),
        "routes are the administrator's"
    );

    // The SA stays where it was negotiated for, whatever the child is bound to now.
    Arc::make_mut(&mut bound).sa.if_ids = Default::default();
    join.configure(vec![bound]);
    assert_eq!(from(&join, 0, "10.2.0.1"), "site/net");
    assert_eq!(from(&join, 42, "10.2.0.1"), "1001");
    assert!(matches!(route_changes(&mut join).as_slice(), [change] if change.add));
    join.delete_now(&deleted(&sa, false, EndAction::Clear), Instant::now());
    assert_eq!(from(&join, 42, "10.2.0.1"), DropReason::NoPolicy.name());
    assert!(route_changes(&mut join).is_empty());
}

#[test]
fn selectors_that_come_with_a_peer_are_told_while_it_is_there() {
    let mut known = policy("net", NO_TRAP, "10.2.0.0/16");
    Arc::make_mut(&mut known).remote.clear();
    let mut join = join_with(vec![known, policy("other", NO_TRAP, "10.3.0.0/16")]);
    let told = |join: &mut Join| {
        let changes = join.take_changes().into_iter();
        let changes = changes.filter_map(|change| match change {
            Change::PeerPolicy(came, policy) => {
                Some((came, policy.remote[0].addresses.first().to_string()))
            }
            _ => None,
        });
        let changes: Vec<_> = changes.collect();
        (changes, join.peer_policies().len())
    };
    let one = |came| vec![(came, "10.2.0.0".to_owned())];
    assert_eq!(told(&mut join), (vec![], 0));
    let first = installed(&join, 1, "10.2.0.0/24", None);
    join.install_now(&first, 0).unwrap();
    assert_eq!(told(&mut join), (one(true), 1));
    let second = installed(&join, 2, "10.2.0.0/24", Some(1));
    join.install_now(&second, 0).unwrap();
    join.delete_now(&deleted(&first, true, EndAction::Clear), Instant::now());
    assert_eq!(told(&mut join), (vec![], 1), "a rekey changes nothing");
    join.delete_now(&deleted(&second, false, EndAction::Clear), Instant::now());
    assert_eq!(told(&mut join), (one(false), 0));
}

#[test]
fn selectors_stay_a_peers_while_a_name_leads_elsewhere() {
    let named = |remote: &str| vec![policy("net", NO_TRAP, remote)];
    let mut join = join_with(named("192.0.2.1/32"));
    let sa = installed(&join, 1, "192.0.2.1/32", None);
    join.install_now(&sa, 0).unwrap();
    join.take_changes();
    assert!(
        join.peer_policies().is_empty(),
        "the configuration has them"
    );
    join.configure(named("192.0.2.2/32"));
    let ids: Vec<_> = join.peer_policies().iter().map(|one| one.id).collect();
    assert_eq!(ids.len(), 1);
    join.take_changes();
    join.delete_now(&deleted(&sa, false, EndAction::Clear), Instant::now());
    let changes = join.take_changes().into_iter();
    let mut gone = changes.filter_map(|change| match change {
        Change::PeerPolicy(false, policy) => Some(policy.id),
        _ => None,
    });
    assert_eq!(gone.next(), Some(ids[0]));
}

#[test]
fn the_spd_is_published_once_for_a_batch() {
    let mut join = join_with(vec![policy("net", TRAP, "10.0.0.0/8")]);
    let before = join.database.spd();
    let sas: Vec<_> = (1..=100)
        .map(|id| {
            let sa = installed(&join, id, &format!("10.2.{id}.0/24"), None);
            join.install(&sa, 0).unwrap();
            join.use_outbound(sa.child, Instant::now());
            assert!(
                join.database.sad().lookup(sa.spi_in).is_some(),
                "it receives"
            );
            sa
        })
        .collect();
    assert_eq!(join.database.spd().id(), before.id(), "not yet");
    assert!(matches!(join.take_changes().first(), Some(Change::Tables)));
    let spd = join.database.spd();
    assert_eq!(spd.entries().len(), 101);
    for sa in &sas {
        assert_eq!(
            send(&join, &format!("10.2.{}.1", sa.child.0)),
            Ok(sa.spi_out)
        );
        join.delete(&deleted(sa, false, EndAction::Clear), Instant::now());
    }
    assert_eq!(join.database.spd().id(), spd.id(), "not yet");
    join.take_changes();
    assert_eq!(join.database.spd().entries().len(), 1);
    assert_eq!(send(&join, "10.2.1.1"), Err("acquire site/net".into()));
}

#[test]
fn a_policy_that_comes_and_goes_in_one_batch_is_never_published() {
    let mut join = join_with(vec![policy("net", TRAP, "10.0.0.0/8")]);
    let before = join.database.spd().id();
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa, 0).unwrap();
    join.delete(&deleted(&sa, false, EndAction::Clear), Instant::now());
    join.take_changes();
    assert_eq!(join.database.spd().entries().len(), 1);
    assert_eq!(join.compiled_rules(), 1, "the configured one alone");
    assert!(join.database.spd().id() >= before);
}

/// Child SAs with selectors of their own come one by one and go together, as after the restart of a peer. Returns how
/// many selectors were compiled for that.
fn work_of_children(count: u64) -> u64 {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.0.0.0/8")]);
    let settle = |join: &mut Join| {
        join.take_changes();
        while let Some(merge) = join.take_merge() {
            drop(join.merged(merge.run()));
            join.take_changes();
        }
    };
    let mut sas = Vec::new();
    for n in 0..count {
        let remote = format!("10.{}.{}.0/24", n / 256, n % 256);
        // The key is made of the last byte of the number, and must not be zero.
        let sa = installed(&join, 2 * n + 1, &remote, None);
        join.install(&sa, 0).unwrap();
        settle(&mut join);
        sas.push(sa);
    }
    for step in sas.chunks(64) {
        for sa in step {
            join.delete(&deleted(sa, false, EndAction::Clear), Instant::now());
        }
        settle(&mut join);
    }
    assert_eq!(join.database.spd().entries().len(), 1);
    join.compiled_rules()
}

#[test]
fn the_work_for_children_grows_in_proportion() {
    let (few, many) = (work_of_children(1000), work_of_children(4000));
    assert!(many <= 5 * few, "{many} selectors for 4000, {few} for 1000");
}

#[test]
fn a_reload_without_changes_compiles_nothing() {
    let policies = || {
        vec![
            policy("pass", PolicyKind::Bypass, "10.2.1.0/24"),
            policy("net", TRAP, "10.2.0.0/16"),
        ]
    };
    let mut join = join_with(policies());
    let sa = installed(&join, 1, "10.2.7.0/24", None);
    join.install_now(&sa, 0).unwrap();
    let (compiled, spd) = (join.compiled_rules(), join.database.spd().id());
    join.configure(policies());
    assert_eq!(
        (join.compiled_rules(), join.database.spd().id()),
        (compiled, spd)
    );
    // A new policy in front moves the others back.
    let mut more = policies();
    more.insert(0, policy("drop", PolicyKind::Discard, "10.2.0.0/30"));
    join.configure(more);
    assert_eq!(join.database.spd().entries().len(), 4);
    let drop = DropReason::PolicyDiscard.name();
    assert_eq!(send(&join, "10.2.0.1"), Err(drop.into()));
    assert_eq!(send(&join, "10.2.1.1"), Err("bypass".into()));
    assert_eq!(send(&join, "10.2.8.1"), Err("acquire site/net".into()));
    join.configure(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert_eq!(join.database.spd().entries().len(), 2);
    assert_eq!(send(&join, "10.2.1.1"), Err("acquire site/net".into()));
}

/// The numbers of policies begin anew, and those that policies still have are left out.
#[test]
fn numbers_that_were_all_used_do_not_collide() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    join.policies.number_from(u32::MAX);
    let mut ids = Vec::new();
    for third in 1..4 {
        let sa = installed(&join, third, &format!("10.2.{third}.0/24"), None);
        join.install_now(&sa, 0).unwrap();
        ids.push(join.child(sa.child).unwrap().policy);
    }
    assert_eq!(ids, [PolicyId(u32::MAX), PolicyId(2), PolicyId(3)]);
    assert_eq!(send(&join, "10.2.9.1"), Err("acquire site/net".into()));
}
