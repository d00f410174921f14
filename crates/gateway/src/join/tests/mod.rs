//! Tests that follow child SAs through SPD and SAD, with a file for each module that decides.

mod child_sas;
mod dummies;
mod flows;
mod handover;
pub(crate) mod hosts;
mod placement;
mod policy_book;
mod policy_order;
mod routes;
mod succession;
mod totals;

use std::time::Duration;

use esplanade_crypto::Transform;
use esplanade_crypto::iana::SequenceNumbers;
use esplanade_ike::config::Mode;
use esplanade_ike::event::{DownReason, EspSuite, IkeSaId};
use esplanade_ike::wire;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::selector::{AddressRange, Flow, PortRange, TrafficSelector};
use esplanade_ipsec::spd::Decision;

use super::*;
use crate::config::SaOptions;

pub(crate) const TRAP: PolicyKind = PolicyKind::Protect { trap: true };
const NO_TRAP: PolicyKind = PolicyKind::Protect { trap: false };

pub(crate) fn ends(cidr: &str) -> Vec<TrafficSelector> {
    let (address, length) = cidr.split_once('/').unwrap();
    let addresses =
        AddressRange::from_prefix(address.parse().unwrap(), length.parse().unwrap()).unwrap();
    vec![TrafficSelector {
        addresses,
        protocol: 0,
        ports: PortRange::Any,
    }]
}

pub(crate) fn wire(cidr: &str) -> Vec<wire::TrafficSelector> {
    let addresses = ends(cidr)[0].addresses;
    vec![wire::TrafficSelector::addresses(
        addresses.first(),
        addresses.last(),
    )]
}

pub(crate) fn policy(child: &str, kind: PolicyKind, remote: &str) -> ConfiguredPolicy {
    ConfiguredPolicy::new(ChildPolicy {
        connection: "site".into(),
        child: child.into(),
        kind,
        local: ends("10.1.0.0/16"),
        remote: ends(remote),
        shares_entry_of: child.into(),
        shared_traffic: SharedTraffic::default(),
        sa: SaOptions::default(),
    })
}

pub(crate) fn installed(
    join: &Join,
    id: u64,
    remote: &str,
    rekeyed_from: Option<u64>,
) -> ChildSaInstalled {
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

pub(crate) fn deleted(sa: &ChildSaInstalled, replaced: bool, then: EndAction) -> ChildSaDeleted {
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

impl Join {
    pub(crate) fn install_now(
        &mut self,
        event: &ChildSaInstalled,
        now_ms: u64,
    ) -> Result<(), InstallError> {
        let result = self.install(event, now_ms);
        self.settle();
        result
    }

    pub(crate) fn delete_now(&mut self, event: &ChildSaDeleted, now: Instant) {
        self.delete(event, now);
        self.settle();
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

/// Returns the SPI that a packet to `remote` would be sealed with, or what happens to the packet instead.
fn send(join: &Join, remote: &str) -> Result<u32, String> {
    match join.database.spd().outbound(&flow(remote)) {
        Decision::Protect(sa) => Ok(sa.common.spi),
        Decision::Bypass => Err("bypass".into()),
        Decision::Discard(reason) => Err(reason.name().into()),
        Decision::Acquire(acquire) => Err(format!("acquire {}", acquire.policy.name)),
    }
}

pub(crate) fn join_with(policies: Vec<ConfiguredPolicy>) -> Join {
    let mut join = Join::new(Arc::new(Database::new()));
    join.configure(policies);
    join
}

/// Takes the changes of routes since the last call. Other changes are forgotten.
fn route_changes(join: &mut Join) -> Vec<RouteChange> {
    let routes = join.take_changes().into_iter();
    let routes = routes.filter_map(|change| match change {
        Change::Route(route) => Some(route),
        _ => None,
    });
    routes.collect()
}
