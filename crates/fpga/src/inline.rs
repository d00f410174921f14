//! The core in-line: SAs and policies of the software path in the core's tables, and packets through its lanes.
//!
//! What is installed stays in the core for as long as its owner keeps it: [`InLine::follow`] takes out what nobody has any
//! more, keys first. Sequence numbers and IVs are the core's; the software's lifetimes count what the core has done.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};

use esplanade_crypto::device_key::{DeviceKey, Suite};
use esplanade_crypto::random;
use esplanade_ipsec::event::Event;
use esplanade_ipsec::lifetime::LifetimeEvent;
use esplanade_ipsec::sa::{InboundSa, Mode, OutboundSa, Path, SaCommon, SaDirection, TfcPadding};
use esplanade_ipsec::spd::{self, PolicyId, Spd};
use esplanade_ipsec::tunnel::{
    self, DscpPolicy, FlowLabelPolicy, OUTER_TTL, OuterFacts, OuterMeta,
};

use crate::core::{Core, CoreError, Counters, Facts, Lane};
use crate::device::Device;
use crate::policy::{self, Action, Entry};
use crate::sa::{self, Udp};

/// What the SA wants that the core cannot do, or why there is no room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the FPGA core cannot do {0}")]
    Unsupported(&'static str),
    #[error("the FPGA core has no room for another SA")]
    Full,
    #[error("there is no randomness for IVs")]
    NoRandomness,
    #[error(transparent)]
    Core(#[from] CoreError),
}

/// So far before the end of 32-bit sequence numbers the SA is renewed.
const SEQUENCE_MARGIN: u64 = 1 << 20;
/// Groups of inbound policies that the core can tell apart.
const GROUPS: u16 = 1 << 10;

#[derive(Debug)]
struct Sealing {
    sa: Weak<OutboundSa>,
    suite: Suite,
    row: sa::OutboundSa,
}

#[derive(Debug)]
struct Opening {
    sa: Weak<InboundSa>,
    group: u16,
}

/// A packet that the core has protected; the ESP packet behind its outer headers.
#[derive(Debug)]
pub struct Sealed {
    pub sa: Arc<OutboundSa>,
    /// How much of it is outer headers.
    pub header_len: usize,
    pub tos: u8,
    pub dont_fragment: bool,
}

/// What came out of the outbound lane.
#[derive(Debug)]
pub enum Sent {
    Sealed(Sealed),
    /// As it went in.
    Bypassed,
    /// Software is to deal with it: no SA, or too long for its path.
    ToHost,
}

/// Whose packet came out of the inbound lane, and an event of that SA.
pub type Opened = (Arc<InboundSa>, Option<Event>);

/// A core, with what is in it.
#[derive(Debug)]
pub struct InLine<D> {
    core: Core<D>,
    sealing: BTreeMap<u32, Sealing>,
    opening: BTreeMap<u32, Opening>,
    groups: BTreeMap<PolicyId, u16>,
    policies: [Vec<Entry>; 2],
}

impl<D: Device> InLine<D> {
    /// With both lanes on and no policy, which discards everything.
    pub fn new(device: D) -> Result<Self, CoreError> {
        let mut core = Core::open(device)?;
        core.exceptions(Lane::Outbound, true)?;
        core.enable(Lane::Outbound, true)?;
        core.enable(Lane::Inbound, true)?;
        Ok(Self {
            core,
            sealing: BTreeMap::new(),
            opening: BTreeMap::new(),
            groups: BTreeMap::new(),
            policies: [Vec::new(), Vec::new()],
        })
    }

    pub fn counters(&mut self, lane: Lane) -> Result<Counters, CoreError> {
        self.core.counters(lane)
    }

    /// Rows that hold an SA: sealing, opening.
    pub fn installed(&self) -> (usize, usize) {
        (self.sealing.len(), self.opening.len())
    }

    /// Puts an outbound SA into the core; packets go through it from the next [`InLine::follow`] on.
    pub fn install_outbound(
        &mut self,
        sa: &Arc<OutboundSa>,
        key_material: &[u8],
    ) -> Result<(), Refused> {
        let key = device_key(&sa.common, key_material)?;
        let mut base = [0; 8];
        random::fill(&mut base).map_err(|_| Refused::NoRandomness)?;
        let row = row_of(sa, u64::from_ne_bytes(base))?;
        let free = (0..self.core.sas_max()).find(|row| !self.sealing.contains_key(row));
        let place = free.ok_or(Refused::Full)?;
        self.core.install_outbound(place, &row, &key)?;
        let sealing = Sealing {
            sa: Arc::downgrade(sa),
            suite: key.suite,
            row,
        };
        self.sealing.insert(place, sealing);
        Ok(())
    }

    /// Puts an inbound SA into the core.
    pub fn install_inbound(
        &mut self,
        sa: &Arc<InboundSa>,
        key_material: &[u8],
    ) -> Result<(), Refused> {
        let common = &sa.common;
        let key = device_key(common, key_material)?;
        let place = Core::<D>::inbound_row(common.spi);
        if self.opening.contains_key(&place) {
            return Err(Refused::Full);
        }
        let group = self.group(common.policy).ok_or(Refused::Full)?;
        let row = sa::InboundSa {
            dscp_from_outer: common.tunnel.dscp_from_outer,
            replay_check: sa.replay.size() > 0,
            ..sa::InboundSa::new(common.spi, common.esn(), group)
        };
        self.core.install_inbound(&row, &key)?;
        let opening = Opening {
            sa: Arc::downgrade(sa),
            group,
        };
        self.opening.insert(place, opening);
        Ok(())
    }

    /// The number of a policy's group.
    fn group(&mut self, policy: PolicyId) -> Option<u16> {
        if let Some(group) = self.groups.get(&policy) {
            return Some(*group);
        }
        let free = (0..GROUPS).find(|group| self.groups.values().all(|taken| taken != group))?;
        self.groups.insert(policy, free);
        Some(free)
    }

    /// Brings the core's tables to what the software's say now. With an error every packet is discarded.
    pub fn follow(&mut self, spd: &Spd) -> Result<(), CoreError> {
        let result = self.follow_sas().and_then(|()| {
            let outbound = self.outbound_entries(spd);
            let inbound = self.inbound_entries();
            self.set(Lane::Outbound, outbound)?;
            self.set(Lane::Inbound, inbound)
        });
        if result.is_err() {
            for lane in [Lane::Outbound, Lane::Inbound] {
                self.core.set_policies(lane, &[])?;
                self.policies[lane as usize].clear();
            }
        }
        result
    }

    fn set(&mut self, lane: Lane, entries: Vec<Entry>) -> Result<(), CoreError> {
        if self.policies[lane as usize] != entries {
            self.core.set_policies(lane, &entries)?;
            self.policies[lane as usize] = entries;
        }
        Ok(())
    }

    /// Takes out SAs that are gone, and follows peers that have moved.
    fn follow_sas(&mut self) -> Result<(), CoreError> {
        let gone = |strong: usize| strong == 0;
        let old = self
            .sealing
            .iter()
            .filter(|(_, s)| gone(s.sa.strong_count()));
        let old: Vec<u32> = old.map(|(row, _)| *row).collect();
        for row in old {
            self.core.remove(Lane::Outbound, row)?;
            self.sealing.remove(&row);
        }
        let old = self
            .opening
            .iter()
            .filter(|(_, o)| gone(o.sa.strong_count()));
        let old: Vec<u32> = old.map(|(row, _)| *row).collect();
        for row in old {
            self.core.remove(Lane::Inbound, row)?;
            self.opening.remove(&row);
        }
        let used: Vec<u16> = self.opening.values().map(|opening| opening.group).collect();
        self.groups.retain(|_, group| used.contains(group));
        for (place, sealing) in &mut self.sealing {
            let Some(sa) = sealing.sa.upgrade() else {
                continue;
            };
            if let Ok(row) = row_of(&sa, sealing.row.iv_base)
                && row != sealing.row
            {
                self.core.change_outbound(*place, &row, sealing.suite)?;
                sealing.row = row;
            }
        }
        Ok(())
    }

    /// Of the common interface. What has no SA in the core goes to software, which asks for one.
    fn outbound_entries(&self, spd: &Spd) -> Vec<Entry> {
        let mut found = Vec::new();
        for entry in spd.entries().iter().filter(|entry| entry.interface == 0) {
            let action = match &entry.action {
                spd::Action::Discard => Action::Discard,
                spd::Action::Bypass => Action::Bypass,
                spd::Action::Protect(policy) => policy
                    .outbound_sa()
                    .and_then(|sa| self.row_of(&sa))
                    .map_or(Action::ToHost, Action::Protect),
            };
            let selectors = entry.selectors.as_slice().iter();
            found.extend(selectors.flat_map(|selector| policy::entries(selector, action)));
        }
        found
    }

    fn row_of(&self, sa: &Arc<OutboundSa>) -> Option<u16> {
        let is_it = |sealing: &Sealing| std::ptr::eq(sealing.sa.as_ptr(), Arc::as_ptr(sa));
        let found = self.sealing.iter().find(|(_, sealing)| is_it(sealing));
        found.and_then(|(row, _)| u16::try_from(*row).ok())
    }

    /// What each group's SAs were negotiated for.
    fn inbound_entries(&self) -> Vec<Entry> {
        let mut found: Vec<Entry> = Vec::new();
        for opening in self.opening.values() {
            let Some(sa) = opening.sa.upgrade() else {
                continue;
            };
            for selector in sa.common.selectors.as_slice() {
                for entry in policy::protecting(Lane::Inbound, selector, opening.group) {
                    if !found.contains(&entry) {
                        found.push(entry);
                    }
                }
            }
        }
        found
    }

    /// Gives the outbound lane a clear packet. False if it cannot take it now.
    pub fn send(&mut self, packet: &[u8]) -> Result<bool, CoreError> {
        self.core.send(Lane::Outbound, packet)
    }

    /// Gives the inbound lane an ESP packet, in the outer headers that it came in.
    pub fn open(&mut self, esp: &[u8], facts: &OuterFacts) -> Result<bool, CoreError> {
        let Some(frame) = framed(esp, facts) else {
            return Ok(false);
        };
        self.core.send(Lane::Inbound, &frame)
    }

    pub fn work(&mut self) {
        self.core.work();
    }

    /// The next packet from the outbound lane, in `frame`. An event is one of the SA that it went through.
    pub fn sent(
        &mut self,
        frame: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<Option<(Sent, Option<Event>)>, CoreError> {
        let Some(facts) = self.core.receive(Lane::Outbound, frame)? else {
            return Ok(None);
        };
        let Facts { to_host, sa, .. } = facts;
        let sealing = sa.and_then(|row| self.sealing.get(&u32::from(row)));
        Ok(Some(
            match (to_host, sealing.and_then(|s| s.sa.upgrade())) {
                (true, _) => (Sent::ToHost, None),
                (false, None) => (Sent::Bypassed, None),
                (false, Some(sa)) => {
                    let sealed = sealed(frame, sa);
                    let len = frame.len().saturating_sub(sealed.header_len);
                    let common = &sealed.sa.common;
                    let due = common.lifetime.count(1, len as u64, now_ms);
                    let event = due.map(|due| lifetime(SaDirection::Outbound, common, due));
                    (Sent::Sealed(sealed), event)
                }
            },
        ))
    }

    /// The next clear packet from the inbound lane, in `packet`; its SA, and an event of that.
    pub fn opened(
        &mut self,
        packet: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<Option<Opened>, CoreError> {
        while let Some(facts) = self.core.receive(Lane::Inbound, packet)? {
            let opening = facts.sa.and_then(|row| self.opening.get(&u32::from(row)));
            // What did not come through an SA that still counts is not delivered.
            let Some(sa) = opening.and_then(|opening| opening.sa.upgrade()) else {
                continue;
            };
            if facts.to_host {
                continue;
            }
            let due = sa.common.lifetime.count(1, packet.len() as u64, now_ms);
            let event = due.map(|due| lifetime(SaDirection::Inbound, &sa.common, due));
            return Ok(Some((sa, event)));
        }
        Ok(None)
    }

    /// What the core wants software to hear of: sequence numbers that come to their end.
    pub fn next_event(&mut self) -> Result<Option<Event>, CoreError> {
        const SOFT: u8 = 1;
        const NO_SA: u8 = 4;
        while let Some(event) = self.core.next_event()? {
            let row = u32::from(event.row);
            let due = match event.kind {
                // A packet without an SA comes to software itself.
                NO_SA => continue,
                SOFT => LifetimeEvent::Soft,
                _ => LifetimeEvent::Hard,
            };
            let raised = match event.lane {
                Lane::Outbound => self
                    .sealing
                    .get(&row)
                    .and_then(|s| s.sa.upgrade())
                    .and_then(|sa| {
                        let due = sa.common.lifetime.raise(due)?;
                        Some(lifetime(SaDirection::Outbound, &sa.common, due))
                    }),
                Lane::Inbound => self
                    .opening
                    .get(&row)
                    .and_then(|o| o.sa.upgrade())
                    .and_then(|sa| {
                        let due = sa.common.lifetime.raise(due)?;
                        Some(lifetime(SaDirection::Inbound, &sa.common, due))
                    }),
            };
            if raised.is_some() {
                return Ok(raised);
            }
        }
        Ok(None)
    }
}

fn lifetime(direction: SaDirection, common: &SaCommon, event: LifetimeEvent) -> Event {
    Event::Lifetime {
        direction,
        spi: common.spi,
        policy: common.policy,
        event,
    }
}

/// The key, if the core can do all that the SA wants of either direction.
fn device_key(common: &SaCommon, key_material: &[u8]) -> Result<DeviceKey, Refused> {
    let no = |what| Err(Refused::Unsupported(what));
    if common.mode != Mode::Tunnel {
        return no("transport mode");
    }
    if common.tfc != TfcPadding::None {
        return no("padding against traffic analysis");
    }
    if common.interface != 0 {
        return no("policies of interfaces");
    }
    DeviceKey::new(common.transform(), key_material)
        .ok_or(Refused::Unsupported("this combination of algorithms"))
}

/// The row of an SA that begins anew.
fn row_of(sa: &OutboundSa, iv_base: u64) -> Result<sa::OutboundSa, Refused> {
    let common = &sa.common;
    let (path, tunnel) = (common.path(), &common.tunnel);
    let dscp = match &tunnel.dscp {
        DscpPolicy::Copy => None,
        DscpPolicy::Map(map) => {
            let first = map.get(0);
            if (0..64).any(|code_point| map.get(code_point) != first) {
                return Err(Refused::Unsupported("a map of DSCPs"));
            }
            Some(first)
        }
    };
    if tunnel.flow_label == FlowLabelPolicy::Hash {
        return Err(Refused::Unsupported("hashes as flow labels"));
    }
    let ports = Udp {
        local: path.local.port(),
        remote: path.remote.port(),
    };
    let esn = common.esn();
    Ok(sa::OutboundSa {
        udp: path.udp_encap.then_some(ports),
        df: tunnel.df,
        ecn: tunnel.ecn,
        dscp,
        ttl: tunnel.ttl.map_or(OUTER_TTL, Into::into),
        copy_flow_label: tunnel.flow_label == FlowLabelPolicy::Copy,
        iv_base,
        sequence_soft: if esn {
            u64::MAX
        } else {
            u64::from(u32::MAX) - SEQUENCE_MARGIN
        },
        ..sa::OutboundSa::new(common.spi, esn, path.local.ip(), path.remote.ip())
    })
}

fn sealed(frame: &[u8], sa: Arc<OutboundSa>) -> Sealed {
    let byte = |index: usize| frame.get(index).copied().unwrap_or(0);
    let udp_len = if sa.common.path().udp_encap { 8 } else { 0 };
    let (ip_len, tos, dont_fragment) = match byte(0) >> 4 {
        4 => (20, byte(1), byte(6) & 0x40 != 0),
        _ => (40, byte(0) << 4 | byte(1) >> 4, true),
    };
    Sealed {
        sa,
        header_len: ip_len + udp_len,
        tos,
        dont_fragment,
    }
}

/// With the headers that a socket has taken off. The core looks at the port and the TOS, and not at where it is sent to.
fn framed(esp: &[u8], facts: &OuterFacts) -> Option<Vec<u8>> {
    const NAT_T: u16 = 4500;
    let to: IpAddr = match facts.remote.is_ipv4() {
        true => Ipv4Addr::LOCALHOST.into(),
        false => Ipv6Addr::LOCALHOST.into(),
    };
    let path = Path {
        local: facts.remote,
        remote: SocketAddr::new(to, NAT_T),
        udp_encap: facts.udp_encap,
    };
    let meta = OuterMeta {
        path: path.into(),
        tos: facts.tos,
        dont_fragment: true,
        ttl: None,
        flow_label: 0,
    };
    let mut frame = vec![0; meta.header_len()];
    frame.extend_from_slice(esp);
    tunnel::write_outer(&meta, 0, &mut frame)?;
    Some(frame)
}
