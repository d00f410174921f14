//! The life of child SAs as SPD and SAD see it.

use std::time::Duration;

use esplanade_crypto::Transform;
use esplanade_crypto::iana::SequenceNumbers;
use esplanade_crypto::transform::AesKeyLength;
use esplanade_ike::config::Mode;
use esplanade_ike::event::{DownReason, EspSuite, IkeSaId};
use esplanade_ipsec::DropReason;
use esplanade_ipsec::selector::Flow;
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
        tunnel: TunnelOptions::default(),
    }
}

fn installed(join: &Join, id: u64, remote: &str, rekeyed_from: Option<u64>) -> ChildSaInstalled {
    let transform = Transform::AesGcm16(AesKeyLength::Bits128);
    let key = || vec![id as u8; transform.key_material_len()].into();
    ChildSaInstalled {
        ike_sa: IkeSaId(1),
        child: ChildSaId(id),
        connection: "site".into(),
        name: "net".into(),
        initiator: true,
        mode: Mode::Tunnel,
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
        replay_window: 64,
        policies: true,
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

/// The SPI that a packet to `remote` would be sealed with, or what happens to it instead.
fn send(join: &Join, remote: &str) -> Result<u32, String> {
    let flow = Flow {
        local: "10.1.0.1".parse().unwrap(),
        remote: remote.parse().unwrap(),
        protocol: 17,
        ports: Some((1000, 2000)),
    };
    match join.database.spd().outbound(&flow) {
        Decision::Protect(sa) => Ok(sa.common.spi),
        Decision::Bypass => Err("bypass".into()),
        Decision::Discard(reason) => Err(reason.name().into()),
        Decision::Acquire(policy) => Err(format!("acquire {}", policy.name)),
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
    join.install(&first).unwrap();
    assert!(
        join.database.sad().lookup(first.spi_in).is_some(),
        "receives before it sends"
    );
    assert!(send(&join, "10.2.0.1").is_err());
    join.use_outbound(first.child);
    assert_eq!(send(&join, "10.2.0.1"), Ok(first.spi_out));

    let second = installed(&join, 2, "10.2.0.0/16", Some(1));
    join.install(&second).unwrap();
    assert_eq!(
        send(&join, "10.2.0.1"),
        Ok(first.spi_out),
        "the old one until told otherwise"
    );
    join.use_outbound(second.child);
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

#[test]
fn redundant_sas_fall_back_on_each_other() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let (first, second) = (
        installed(&join, 1, "10.2.0.0/16", None),
        installed(&join, 2, "10.2.0.0/16", None),
    );
    for sa in [&first, &second] {
        join.install(sa).unwrap();
        join.use_outbound(sa.child);
    }
    assert_eq!(send(&join, "10.2.0.1"), Ok(second.spi_out));
    join.delete(&deleted(&second, false, Then::Clear), Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Ok(first.spi_out));
}

#[test]
fn without_a_trap_the_policy_goes_with_its_sa() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    assert!(join.take_route_changes().is_empty());
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa).unwrap();
    join.use_outbound(sa.child);
    assert!(join.take_route_changes()[0].add);
    join.delete(&deleted(&sa, false, Then::Clear), Instant::now());
    assert!(!join.take_route_changes()[0].add);
    assert_eq!(
        send(&join, "10.2.0.1"),
        Err(DropReason::NoPolicy.name().into())
    );
}

#[test]
fn a_dead_peer_with_trap_leaves_the_policy_waiting() {
    let mut join = join_with(vec![policy("net", NO_TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa).unwrap();
    join.use_outbound(sa.child);
    join.delete(&deleted(&sa, false, Then::Trap), Instant::now());
    assert_eq!(send(&join, "10.2.0.1"), Err("acquire site/net".into()));
}

#[test]
fn narrowed_selectors_come_before_the_trap() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.7.0/24", None);
    join.install(&sa).unwrap();
    join.use_outbound(sa.child);
    assert_eq!(send(&join, "10.2.7.1"), Ok(sa.spi_out));
    assert_eq!(send(&join, "10.2.8.1"), Err("acquire site/net".into()));
}

#[test]
fn the_order_of_the_configuration_decides() {
    let mut join = join_with(vec![
        policy("pass", PolicyKind::Bypass, "10.2.1.0/24"),
        policy("drop", PolicyKind::Discard, "10.2.2.0/24"),
        policy("net", NO_TRAP, "10.2.0.0/16"),
    ]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa).unwrap();
    join.use_outbound(sa.child);
    assert_eq!(send(&join, "10.2.1.1"), Err("bypass".into()));
    assert_eq!(
        send(&join, "10.2.2.1"),
        Err(DropReason::PolicyDiscard.name().into())
    );
    assert_eq!(send(&join, "10.2.3.1"), Ok(sa.spi_out));
}

#[test]
fn a_reload_keeps_what_is_up() {
    let mut join = join_with(vec![policy("net", TRAP, "10.2.0.0/16")]);
    let sa = installed(&join, 1, "10.2.0.0/16", None);
    join.install(&sa).unwrap();
    join.use_outbound(sa.child);
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
    assert!(matches!(join.install(&sa), Err(InstallError::Key(_))));
    assert!(join.database.sad().lookup(sa.spi_in).is_none());
    assert_eq!(
        send(&join, "10.2.0.1"),
        Err(DropReason::NoPolicy.name().into())
    );
    assert!(
        join.take_route_changes()
            .iter()
            .filter(|change| change.add)
            .count()
            <= 1
    );
    assert!(join.groups.is_empty());
}
