//! The life of child SAs as SPD and SAD see it.

use std::time::Duration;

use esplanade_crypto::Transform;
use esplanade_crypto::iana::SequenceNumbers;
use esplanade_ike::config::Mode;
use esplanade_ike::event::{DownReason, EspSuite, IkeSaId};
use esplanade_ipsec::DropReason;
use esplanade_ipsec::lifetime::LifetimeEvent;
use esplanade_ipsec::sa::DscpSet;
use esplanade_ipsec::selector::{Flow, PopulateFromPacket};
use esplanade_ipsec::spd::Decision;

use super::*;

fn ends(cidr: &str) -> Vec<TrafficSelector> {
    let (address, length) = cidr.split_once('/').unwrap();
    let addresses =
        AddressRange::from_prefix(address.parse().unwrap(), length.parse().unwrap()).unwrap();
    vec![TrafficSelector {
        addresses,
        protocol: 0,
        ports: PortRange::Any,
    }]
}

fn wire(cidr: &str) -> Vec<wire::TrafficSelector> {
    let addresses = ends(cidr)[0].addresses;
    vec![wire::TrafficSelector::addresses(
        addresses.first(),
        addresses.last(),
    )]
}

fn policy(child: &str, kind: PolicyKind, remote: &str) -> ConfiguredPolicy {
    ConfiguredPolicy {
        connection: "site".into(),
        child: child.into(),
        kind,
        local: ends("10.1.0.0/16"),
        remote: ends(remote),
        leader: child.into(),
        sa: SaOptions::default(),
    }
}

fn installed(join: &Join, id: u64, remote: &str, rekeyed_from: Option<u64>) -> ChildSaInstalled {
    let transform = Transform::ESP[0];
    let key = || vec![id as u8; transform.key_material_len()].into();
    ChildSaInstalled {
        ike_sa: IkeSaId(1),
        child: ChildSaId(id),
        connection: "site".into(),
        name: "net".into(),
        initiator: true,
        mode: Mode::Tunnel,
        non_first_fragments: false,
        tfc: true,
        local_ts: wire("10.1.0.0/16"),
        remote_ts: wire(remote),
        spi_in: join.database.sad().allocate_spi().unwrap(),
        spi_out: 0x1000 + id as u32,
        esp: EspSuite {
            transform,
            sequence_numbers: SequenceNumbers::Bits32,
        },
        key_in: key(),
        key_out: key(),
        local: "192.0.2.1:4500".parse().unwrap(),
        remote: "192.0.2.2:4500".parse().unwrap(),
        udp_encap: true,
        soft_bytes: 0,
        hard_bytes: 0,
        soft_packets: 0,
        hard_packets: 0,
        life_time: Duration::ZERO,
        replay_window: 64,
        peer_replay_window: 32,
        rekeyed_from: rekeyed_from.map(ChildSaId),
    }
}

fn deleted(sa: &ChildSaInstalled, replaced: bool, then: Then) -> ChildSaDeleted {
    ChildSaDeleted {
        ike_sa: sa.ike_sa,
        child: sa.child,
        connection: sa.connection.clone(),
        name: sa.name.clone(),
        spi_in: sa.spi_in,
        spi_out: sa.spi_out,
        linger: Duration::from_secs(5),
        replaced,
        reason: DownReason::Rekeyed,
        then,
    }
}

fn flow(remote: &str) -> Flow {
    Flow::new(
        "10.1.0.1".parse().unwrap(),
        remote.parse().unwrap(),
        17,
        Some((1000, 2000)),
    )
}

/// The SPI that a packet to `remote` would be sealed with, or what happens to it instead.
fn send(join: &Join, remote: &str) -> Result<u32, String> {
    match join.database.spd().outbound(&flow(remote)) {
        Decision::Protect(sa) => Ok(sa.common.spi),
        Decision::Bypass => Err("bypass".into()),
        Decision::Discard(reason) => Err(reason.name().into()),
        Decision::Acquire(acquire) => Err(format!("acquire {}", acquire.policy.name)),
    }
}

fn join_with(policies: Vec<ConfiguredPolicy>) -> Join {
    let mut join = Join::new(Arc::new(Database::new()));
    join.configure(policies);
    join
}

const TRAP: PolicyKind = PolicyKind::Protect { trap: true };
const NO_TRAP: PolicyKind = PolicyKind::Protect { trap: false };

#[test]
fn a_rekey_moves_traffic_without_a_gap() {
    let now = Instant::now();
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
    assert_eq!(
        send(&join, "10.3.0.1"),
        Err(DropReason::NoPolicy.name().into())
    );

    let first = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&first, 0).unwrap();
    assert!(
        join.database.sad().lookup(first.spi_in).is_some(),
        "receives before it sends"
    );
    assert!(send(&join, "10.2.0.1").is_err());
    join.use_outbound(first.child, Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Ok(first.spi_out));

    let second = installed(&join, 2, "10.2.0.0/16", Some(1));
    join.install(&second, 0).unwrap();
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(first.spi_out),
        "the old one until told otherwise"
    );
    join.use_outbound(second.child, Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Ok(second.spi_out));

    join.delete(&deleted(&first, true, Then::Clear), now);
    assert_eq!(send(&join, "10.2.0.1"), Ok(second.spi_out));
    assert!(
        join.database.sad().lookup(first.spi_in).is_some(),
        "packets in flight"
    );
    join.expire(now + Duration::from_secs(6));
    assert!(join.database.sad().lookup(first.spi_in).is_none());
    assert!(join.database.sad().lookup(second.spi_in).is_some());
}

// RFC 4301 R4
#[test]
fn redundant_sas_fall_back_on_each_other() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let (first, second) = (
        installed(&join, 1, "10.2.0.0/16", None),
        installed(&join, 2, "10.2.0.0/16", None),
    );
    for sa in [&first, &second] {
        join.install(sa, 0).unwrap();
        join.use_outbound(sa.child, Instant::now());
    }
    assert_eq!(send(&join, "10.2.0.1"), Ok(second.spi_out));
    join.delete(&deleted(&second, false, Then::Clear), Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Ok(first.spi_out));
}

#[test]
fn an_sa_that_the_peer_makes_beside_ours_waits_for_the_peer() {
    let now = Instant::now();
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let beside = |join: &mut Join, id| {
        let mut sa = installed(join, id, "10.2.0.0/16", None);
        sa.initiator = false;
        join.install(&sa, 0).unwrap();
        join.use_outbound(sa.child, now);
        sa
    };
    let first = beside(&mut join, 1);
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(first.spi_out),
        "nothing to wait for"
    );
    let second = beside(&mut join, 2);
    assert_eq!(send(&join, "10.2.0.1"), Ok(first.spi_out));
    join.expire(now + HANDOVER);
    assert_eq!(send(&join, "10.2.0.1"), Ok(second.spi_out));

    let third = beside(&mut join, 3);
    let rekeyed = installed(&join, 4, "10.2.0.0/16", Some(2));
    join.install(&rekeyed, 0).unwrap();
    join.use_outbound(rekeyed.child, now);
    join.expire(now + HANDOVER);
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(rekeyed.spi_out),
        "not back to an older one"
    );

    let last = beside(&mut join, 5);
    for older in [&first, &second, &third, &rekeyed] {
        join.delete(&deleted(older, false, Then::Clear), now);
    }
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(last.spi_out),
        "the only one left"
    );
}

#[test]
fn without_a_trap_traffic_is_held_and_asks_for_nothing() {
    let mut join = join_with(vec![
        policy("net", NO_TRAP, "10.2.0.0/16"),
        policy("pass", PolicyKind::Bypass, "10.0.0.0/8"),
    ]);
    assert!(join.take_route_changes().iter().any(|change| change.add));
    let held = Err("acquire site/net".into());
    assert_eq!(send(&join, "10.2.0.1"), held);
    let id = PolicyId(1);
    assert!(!join.asks(id) && join.wanted(id, 0).is_none());
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Ok(sa.spi_out));
    join.delete(&deleted(&sa, false, Then::Clear), Instant::now());
    assert!(join.take_route_changes().is_empty());
    assert_eq!(send(&join, "10.2.0.1"), held, "not in the clear");
    assert!(join.wanted(id, 0).is_none());
    join.configure(Vec::new());
    assert!(join.take_route_changes().iter().any(|change| !change.add));
}

#[test]
fn a_dead_peer_with_trap_leaves_the_policy_waiting() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    join.delete(&deleted(&sa, false, Then::Trap), Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
}

#[test]
fn narrowed_selectors_come_before_the_trap() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.7.0/24", None);
    join.install(&sa, 0).unwrap();
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
    join.install(&sa, 0).unwrap();
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
    join.install(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    join.configure(vec![policy("other", TRAP, "10.9.0.0/16")]);
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(sa.spi_out),
        "until IKE deletes it"
    );
    join.delete(&deleted(&sa, false, Then::Clear), Instant::now());
    assert_eq!(
        send(&join, "10.2.0.1"),
        Err(DropReason::NoPolicy.name().into())
    );
    assert_eq!(send(&join, "10.9.0.1"), Err("acquire site/other".into()));
}

#[test]
fn a_bad_key_leaves_nothing_behind() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let mut sa = installed(&join, 1, "10.2.0.0/16", None);
    sa.key_out = vec![1, 2, 3].into();
    assert!(matches!(join.install(&sa, 0), Err(InstallError::Key(_))));
    assert!(join.database.sad().lookup(sa.spi_in).is_none());
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
    assert!(
        join.take_route_changes()
            .iter()
            .filter(|change| change.add)
            .count()
            <= 1
    );
    let mut groups = join.groups.values();
    assert!(groups.all(|group| group.hold && group.children.is_empty()));
}

#[test]
fn an_spi_means_what_its_direction_says() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let victim = installed(&join, 1, "10.2.0.0/16", None);
    let mut hostile = installed(&join, 2, "10.2.9.0/24", None);
    hostile.spi_out = victim.spi_in;
    for sa in [&victim, &hostile] {
        join.install(sa, 0).unwrap();
    }
    let policy = |id| join.children[&ChildSaId(id)].group;
    let found = |direction, id, spi| {
        let (child, _) = join.child_of(direction, policy(id), spi)?;
        Some(child)
    };
    let (inbound, outbound) = (SaDirection::Inbound, SaDirection::Outbound);
    assert_eq!(found(inbound, 1, victim.spi_in), Some(victim.child));
    assert_eq!(found(outbound, 2, victim.spi_in), Some(hostile.child));
    assert_eq!(found(outbound, 1, victim.spi_in), None);
    assert_eq!(found(outbound, 1, victim.spi_out), Some(victim.child));
    join.delete(&deleted(&victim, false, Then::Clear), Instant::now());
    let after = join.child_of(inbound, PolicyId(1), victim.spi_in);
    assert!(after.is_none());
}

#[test]
fn a_peer_that_narrows_and_leaves_again_and_again_leaves_one_trap() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    for id in 1..50 {
        let sa = installed(&join, id, &format!("10.2.{id}.0/24"), None);
        join.install(&sa, 0).unwrap();
        join.use_outbound(sa.child, Instant::now());
        join.delete(&deleted(&sa, false, Then::Trap), Instant::now());
    }
    assert_eq!(join.groups.len(), 1);
    assert_eq!(join.by_selectors.len(), 1);
    assert_eq!(join.database.spd().entries().len(), 1);
    assert_eq!(send(&join, "10.2.200.1"), Err("acquire site/net".into()));
}

#[test]
fn a_reload_never_lets_trapped_traffic_out() {
    let now = Instant::now();
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    join.take_route_changes();
    // Another detail of the policy: its routes stay.
    let mut changed = policy("net", TRAP, "10.2.0.0/16");
    changed.sa.tunnel.df = esplanade_ipsec::tunnel::DfPolicy::Clear;
    join.configure(vec![changed]);
    assert_eq!(join.take_route_changes(), []);
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
    // Other selectors: the new routes come before the old ones go.
    join.configure(vec![policy("net", TRAP, "10.0.0.0/8")]);
    let adds: Vec<_> = join.take_route_changes().iter().map(|c| c.add).collect();
    assert_eq!(adds, [true, false]);

    // What a dead peer left trapped stays so.
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa, 0).unwrap();
    join.delete(&deleted(&sa, false, Then::Trap), now);
    join.take_route_changes();
    join.configure(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    assert_eq!(join.take_route_changes(), []);
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
    join.configure(Vec::new());
    assert_eq!(join.take_route_changes().len(), 1);
}

#[test]
fn a_bypass_keeps_nothing_but_its_own_traffic_out_of_the_tun() {
    let net = || policy("net", TRAP, "10.2.0.0/16");
    let pass = || policy("pass", PolicyKind::Bypass, "10.2.1.0/24");
    let thrown = |policies: &[ConfiguredPolicy]| thrown_routes(policies).len();
    assert_eq!(thrown(&[pass(), net()]), 1);
    assert_eq!(thrown(&[net(), pass()]), 0, "the tunnel comes first");
    assert_eq!(
        thrown(&[net(), policy("far", PolicyKind::Bypass, "10.9.0.0/16")]),
        1
    );

    let mut ssh = pass();
    ssh.remote[0].protocol = 6;
    ssh.remote[0].ports = PortRange::Range(22, 22);
    assert_eq!(thrown(&[ssh, net()]), 0, "only one port is bypassed");
    let mut host = pass();
    host.local = ends("10.1.0.5/32");
    assert_eq!(thrown(&[host, net()]), 0, "only one host is bypassed");
    let mut unknown = net();
    unknown.local.clear();
    assert_eq!(thrown(&[pass(), unknown]), 0, "an address not known yet");
    let drop = policy("drop", PolicyKind::Discard, "10.2.1.128/25");
    assert_eq!(thrown(&[drop, pass()]), 0, "some of it is discarded");

    let mut join = join_with(vec![pass(), net()]);
    assert!(join.take_route_changes().iter().any(|c| c.bypass && c.add));
    join.configure(vec![net(), pass()]);
    let changes = join.take_route_changes();
    assert!(matches!(changes.as_slice(), [change] if change.bypass && !change.add));
}

/// Two children with the same selectors: one for DSCP 46, one for all others.
fn join_with_voice() -> Join {
    let mut net = policy("net", TRAP, "10.2.0.0/16");
    net.sa.dscp = (0..64).filter(|dscp| *dscp != 46).collect();
    let mut voice = policy("voice", TRAP, "10.2.0.0/16");
    voice.leader = "net".into();
    voice.sa.dscp = DscpSet::EMPTY.with(46);
    join_with(vec![net, voice])
}

/// RFC 4301 section 4.1: one entry, an SA for each set of DSCPs.
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
                assert_eq!(join.wanted(acquire.policy.id, dscp), Some(("site", both)));
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
        join.install(&sa, 0).unwrap();
        join.use_outbound(sa.child, Instant::now());
        sa
    };
    let net = up(&mut join, 1, "net", true);
    // The peer's is beside another, but for other packets: nothing to wait for.
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
    join.delete(&deleted(&second, false, Then::Clear), Instant::now());
    assert_eq!(
        (spi(&join, 0), spi(&join, 46)),
        (net.spi_out, voice.spi_out)
    );
    join.delete(&deleted(&voice, false, Then::Clear), Instant::now());
    assert_eq!((spi(&join, 0), spi(&join, 46)), (net.spi_out, net.spi_out));
}

/// Peers choose the SPIs that we send with.
#[test]
fn of_two_sas_with_one_spi_the_deleted_one_stops() {
    let mut join = join_with_voice();
    let sas: Vec<_> = [(1, "net"), (2, "voice")]
        .into_iter()
        .map(|(id, name)| {
            let mut sa = installed(&join, id, "10.2.0.0/16", None);
            (sa.name, sa.spi_out) = (name.into(), 0x2000);
            join.install(&sa, 0).unwrap();
            join.use_outbound(sa.child, Instant::now());
            sa
        })
        .collect();
    join.delete(&deleted(&sas[0], false, Then::Clear), Instant::now());
    let Decision::Protect(left) = join.database.spd().outbound(&flow("10.2.0.1")) else {
        panic!("voice is left")
    };
    assert_eq!(left.common.dscp, DscpSet::EMPTY.with(46));
}

// RFC 4301 R19
#[test]
fn flows_share_the_entry_that_they_populate() {
    let mut each = policy("net", TRAP, "10.2.0.0/16");
    each.sa.populate.remote = true;
    let mut join = join_with(vec![each]);
    for (id, remote) in [(1, "10.2.0.1"), (2, "10.2.0.2")] {
        assert_eq!(send(&join, remote), Err("acquire site/net".into()));
        let sa = installed(&join, id, &format!("{remote}/32"), None);
        join.install(&sa, 0).unwrap();
        join.use_outbound(sa.child, Instant::now());
        assert_eq!(send(&join, remote), Ok(sa.spi_out));
    }
    assert_eq!(join.database.spd().entries().len(), 1);
    assert_eq!(join.take_route_changes().len(), 1, "the policy's own");
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

// RFC 4301 R20; RFC 4303 R22, R63
#[test]
fn what_was_configured_reaches_the_sas() {
    let mut configured = policy("net", TRAP, "10.2.0.0/16");
    configured.sa.tfc = TfcPadding::To(1200);
    configured.sa.class = Some(5);
    let mut join = join_with(vec![configured]);
    for (id, takes_padding) in [(1, true), (2, false)] {
        let mut sa = installed(&join, id, "10.2.0.0/16", None);
        (sa.mode, sa.tfc) = (Mode::Transport, takes_padding);
        join.install(&sa, 7000).unwrap();
        let common = &join.child(sa.child).unwrap().outbound.common;
        assert_eq!(common.mode, esplanade_ipsec::sa::Mode::Transport);
        assert_eq!((common.class, common.installed_ms), (Some(5), 7000));
        assert_eq!(common.tfc == TfcPadding::None, !takes_padding);
    }
}

// RFC 4301 R10
#[test]
fn a_policy_of_an_interface_is_for_its_packets_only() {
    let mut bound = policy("net", TRAP, "0.0.0.0/0");
    bound.local = ends("0.0.0.0/0");
    bound.sa.if_ids = crate::config::IfIds {
        inbound: 43,
        outbound: 42,
    };
    let mut pass = policy("pass", PolicyKind::Bypass, "10.9.0.0/16");
    pass.sa.if_ids.outbound = 42;
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
    join.install(&sa, 0).unwrap();
    join.use_outbound(sa.child, Instant::now());
    assert_eq!(from(&join, 42, "10.2.0.1"), "1001");
    for other in [0, 43] {
        assert_eq!(from(&join, other, "10.2.0.1"), DropReason::NoPolicy.name());
        assert_eq!(from(&join, other, "10.9.0.1"), DropReason::NoPolicy.name());
    }
    let inbound = join.database.sad().lookup(sa.spi_in).unwrap();
    assert_eq!(inbound.common.interface, 43);
    assert!(
        join.take_route_changes().is_empty(),
        "routes are the administrator's"
    );

    // The SA stays where it was negotiated for, whatever the child is bound to now.
    bound.sa.if_ids = Default::default();
    join.configure(vec![bound]);
    assert_eq!(from(&join, 0, "10.2.0.1"), "site/net");
    assert_eq!(from(&join, 42, "10.2.0.1"), "1001");
    assert!(matches!(join.take_route_changes().as_slice(), [change] if change.add));
    join.delete(&deleted(&sa, false, Then::Clear), Instant::now());
    assert_eq!(from(&join, 42, "10.2.0.1"), DropReason::NoPolicy.name());
    assert!(join.take_route_changes().is_empty());
}

// RFC 4303 R20
#[test]
fn dummies_are_sent_on_the_sa_in_use_only() {
    let mut configured = policy("net", TRAP, "10.2.0.0/16");
    configured.sa.dummies = 20;
    let other = policy("other", TRAP, "10.3.0.0/16");
    let mut join = join_with(vec![configured, other]);
    let spis = |join: &mut Join| {
        let sas = join.take_dummies()?;
        assert!(sas.iter().all(|one| one.interval_ms == 50));
        Some(sas.iter().map(|one| one.sa.common.spi).collect::<Vec<_>>())
    };
    assert_eq!(spis(&mut join), None);
    let first = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&first, 0).unwrap();
    assert_eq!(spis(&mut join), None, "the peer may not have it yet");
    join.use_outbound(first.child, Instant::now());
    assert_eq!(spis(&mut join), Some(vec![first.spi_out]));
    assert_eq!(spis(&mut join), None, "nothing has changed");

    let second = installed(&join, 2, "10.2.0.0/16", Some(1));
    join.install(&second, 0).unwrap();
    join.use_outbound(second.child, Instant::now());
    join.delete(&deleted(&first, true, Then::Clear), Instant::now());
    assert_eq!(spis(&mut join), Some(vec![second.spi_out]));

    // What happens to SAs without dummies changes nothing.
    let mut other = installed(&join, 3, "10.3.0.0/16", None);
    other.name = "other".into();
    join.install(&other, 0).unwrap();
    join.use_outbound(other.child, Instant::now());
    assert_eq!(send(&join, "10.3.0.1"), Ok(other.spi_out));
    join.delete(&deleted(&other, false, Then::Clear), Instant::now());
    assert_eq!(spis(&mut join), None);

    join.delete(&deleted(&second, false, Then::Clear), Instant::now());
    assert_eq!(spis(&mut join), Some(vec![]));
}

/// A child of each id, without groups and routes in the way.
fn many(join: &mut Join, ids: std::ops::Range<u64>, life_time: Duration) {
    let sa = ChildSaInstalled {
        life_time,
        ..installed(join, ids.start, "10.2.0.0/16", None)
    };
    join.install(&sa, 1000).unwrap();
    let first = join.children.remove(&ChildSaId(ids.start)).unwrap();
    for id in ids {
        let one = Installed {
            name: first.name.clone(),
            inbound: first.inbound.clone(),
            outbound: first.outbound.clone(),
            carrier: first.carrier.clone(),
            ..first
        };
        join.children.insert(ChildSaId(id), one);
    }
}

#[test]
fn traffic_is_told_once() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa, 1000).unwrap();
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
    join.install(&sa, 1000).unwrap();
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
    // IKE is late: the other half says so too, and then neither.
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
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    many(&mut join, 1..200_001, Duration::ZERO);
    let shared = join.children[&ChildSaId(1)].inbound.clone();
    shared.common.lifetime.count(1, 100, 1500);
    let mut seen = Vec::new();
    for _ in 0..16 {
        let slice = join.take_activity(2000);
        assert_eq!(slice.len(), 200_000 / 16);
        seen.extend(slice.iter().map(|one| one.child.0));
    }
    assert!(seen.iter().copied().eq(1..200_001), "each once, in order");
    assert_eq!(join.take_activity(2000), []);
    // The next round begins with what is there now.
    shared.common.lifetime.count(1, 100, 2500);
    join.children.remove(&ChildSaId(1));
    assert_eq!(join.take_activity(3000).first().unwrap().child.0, 2);
}

#[test]
fn selectors_that_come_with_a_peer_are_shielded_while_it_is_there() {
    let mut known = policy("net", NO_TRAP, "10.2.0.0/16");
    known.remote.clear();
    let mut join = join_with(vec![known, policy("other", NO_TRAP, "10.3.0.0/16")]);
    let shielded = |join: &mut Join| {
        let changed = join.take_shield_change();
        let remotes: Vec<_> = (join.shielded().iter())
            .flat_map(|policy| policy.remote.clone())
            .map(|ts| ts.addresses.first().to_string())
            .collect();
        (changed, remotes)
    };
    let rest = vec!["10.3.0.0".to_owned()];
    let both = vec!["10.2.0.0".to_owned(), "10.3.0.0".to_owned()];
    assert_eq!(shielded(&mut join), (false, rest.clone()));
    let first = installed(&join, 1, "10.2.0.0/24", None);
    join.install(&first, 0).unwrap();
    assert_eq!(shielded(&mut join), (true, both.clone()), "in its place");
    let second = installed(&join, 2, "10.2.0.0/24", Some(1));
    join.install(&second, 0).unwrap();
    join.delete(&deleted(&first, true, Then::Clear), Instant::now());
    assert_eq!(
        shielded(&mut join),
        (false, both),
        "a rekey changes nothing"
    );
    join.delete(&deleted(&second, false, Then::Clear), Instant::now());
    assert_eq!(shielded(&mut join), (true, rest));
}

mod engines;
