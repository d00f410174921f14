//! The core in-line: puts SAs and policies of the software path into the core's tables, and packets through its
//! lanes.
//!
//! An installed SA stays in the core as long as its owner keeps it. [`InLine::follow`] removes SAs that have no owner
//! any more, keys first. The core has the sequence numbers and IVs of its SAs; the software has none for them. The
//! software's lifetimes count the core's traffic, and end the SAs.
//!
//! The core handles only traffic for its own SAs. For all other traffic its policies say "to the host", and software
//! decides. Therefore nothing leaves the core that is neither sealed nor opened.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};

use crate::device_key::{DeviceKey, Suite};
use esplanade_crypto::random;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::event::Event;
use esplanade_ipsec::lifetime::LifetimeEvent;
use esplanade_ipsec::sa::{InboundSa, OutboundSa, Path, SaCommon, SaDirection};
use esplanade_ipsec::spd::{PolicyId, Spd};
use esplanade_ipsec::tunnel::{self, OuterFacts, OuterMeta};
use esplanade_ipsec::wire::esp;

use crate::core::{Core, CoreError, Facts, Lane, LaneCounters};
use crate::device::{BusError, Device};
use crate::fit::{device_key, overlap, row_of};
use crate::sa;

pub use crate::fit::InstallRefused;

mod tables;

/// Number of groups of inbound policies that the core can tell apart.
const GROUPS: u16 = 1 << 10;

#[derive(Debug)]
struct Sealing {
    sa: Weak<OutboundSa>,
    suite: Suite,
    row: sa::OutboundSaRow,
    path_mtu: Option<u16>,
}

#[derive(Debug)]
struct Opening {
    sa: Weak<InboundSa>,
    spi: u32,
    group: u16,
    /// True if the SA was taken out because the tables have no room for it.
    ended: bool,
}

/// Describes a packet that the core protected. The ESP packet follows its outer headers.
#[derive(Debug)]
pub struct Sealed {
    pub sa: Arc<OutboundSa>,
    /// Length of the outer headers in bytes.
    pub header_len: usize,
    pub tos: u8,
    pub dont_fragment: bool,
}

/// The result for a packet that left the outbound lane.
#[derive(Debug)]
pub enum OutboundOutcome {
    Sealed(Sealed),
    /// Software must handle the packet, which is unchanged: no SA in the core takes it, or it is too long for its
    /// path.
    ToHost,
    /// The SA, or its lifetime, ended meanwhile.
    Expired,
}

/// The result for a packet that left the inbound lane.
#[derive(Debug)]
pub enum Opened {
    /// A packet of this SA, and an event of the SA if one is due.
    Packet(Arc<InboundSa>, Option<Event>),
    /// The SA, or its lifetime, ended meanwhile.
    Dropped(DropReason),
}

/// A core, and a record of what is in it.
#[derive(Debug)]
pub struct InLine<D: Device> {
    core: Core<D>,
    sealing: BTreeMap<u32, Sealing>,
    /// The row for the next outbound SA, if it is free. Rows are used in turn, because frames of a removed SA may
    /// still come.
    next_row: u32,
    opening: BTreeMap<u32, Opening>,
    groups: BTreeMap<PolicyId, u16>,
}

impl<D: Device> InLine<D> {
    /// Opens a core with both lanes on and no policies, so that it discards everything.
    pub fn new(device: D) -> Result<Self, CoreError> {
        let mut core = Core::open(device)?;
        core.exceptions(Lane::Outbound, true)?;
        core.enable(Lane::Outbound, true)?;
        core.enable(Lane::Inbound, true)?;
        Ok(Self {
            core,
            sealing: BTreeMap::new(),
            next_row: 0,
            opening: BTreeMap::new(),
            groups: BTreeMap::new(),
        })
    }

    pub fn counters(&mut self, lane: Lane) -> Result<LaneCounters, CoreError> {
        self.core.counters(lane)
    }

    /// Numbers of rows that hold an SA: outbound, inbound.
    pub fn installed(&self) -> (usize, usize) {
        let opening = self.opening.values().filter(|opening| !opening.ended);
        (self.sealing.len(), opening.count())
    }

    /// Puts both halves of a child SA into the core, or neither. Packets go through it from the next
    /// [`InLine::follow`] on. The SPD shows whether there is room; it may not have the SA's policy yet.
    pub fn install(
        &mut self,
        outbound: &Arc<OutboundSa>,
        inbound: &Arc<InboundSa>,
        spd: &Spd,
    ) -> Result<(), InstallRefused> {
        self.install_inbound(inbound, spd)?;
        let installed = self.install_outbound(outbound, spd);
        if installed.is_err() {
            let row = self.core.inbound_row(inbound.common.spi);
            self.opening.remove(&row);
            self.core.remove(Lane::Inbound, row)?;
        }
        installed
    }

    /// Puts an outbound SA into the core. Packets go through it from the next [`InLine::follow`] on.
    pub fn install_outbound(
        &mut self,
        sa: &Arc<OutboundSa>,
        spd: &Spd,
    ) -> Result<(), InstallRefused> {
        let key = self.key(&sa.common)?;
        self.follow_sas()?;
        let mut base = [0; 8];
        random::fill(&mut base).map_err(|_| InstallRefused::NoRandomness)?;
        let row = row_of(sa, u64::from_ne_bytes(base), None)?;
        let rows = self.core.sas_max();
        let mut from_next = (0..rows).map(|at| (self.next_row + at) % rows);
        let free = from_next.find(|row| !self.sealing.contains_key(row));
        let place = free.ok_or(InstallRefused::Full)?;
        if Self::is_by_dscp(spd, sa.common.policy) {
            return Err(InstallRefused::Unsupported("SAs for certain DSCPs"));
        }
        self.room_for(spd, Lane::Outbound, &sa.common)?;
        // From here on the software cannot seal with this SA.
        if !sa.sequence.give_away() {
            return Err(InstallRefused::Used);
        }
        self.core.install_outbound(place, &row, &key)?;
        let sealing = Sealing {
            sa: Arc::downgrade(sa),
            suite: key.suite,
            row,
            path_mtu: None,
        };
        self.sealing.insert(place, sealing);
        self.next_row = (place + 1) % rows;
        Ok(())
    }

    /// Puts an inbound SA into the core.
    pub fn install_inbound(
        &mut self,
        sa: &Arc<InboundSa>,
        spd: &Spd,
    ) -> Result<(), InstallRefused> {
        let common = &sa.common;
        let key = self.key(common)?;
        self.follow_sas()?;
        let place = self.core.inbound_row(common.spi);
        if self.opening.contains_key(&place) {
            return Err(InstallRefused::Full);
        }
        self.room_for(spd, Lane::Inbound, common)?;
        if self.overlaps_another(common) {
            return Err(InstallRefused::Unsupported(
                "selectors that overlap those of another policy",
            ));
        }
        let group = self.group(common.policy).ok_or(InstallRefused::Full)?;
        let row = sa::InboundSaRow {
            dscp_from_outer: common.tunnel.dscp_from_outer,
            replay_check: sa.replay.size() > 0,
            ..sa::InboundSaRow::new(common.spi, common.esn(), group)
        };
        self.core.install_inbound(&row, &key)?;
        let opening = Opening {
            sa: Arc::downgrade(sa),
            spi: common.spi,
            group,
            ended: false,
        };
        self.opening.insert(place, opening);
        Ok(())
    }

    /// Returns true if the SA's selectors overlap those of another policy's SA. In the core the first matching entry
    /// decides whose SAs may carry an inner packet, so overlaps are refused.
    fn overlaps_another(&self, common: &SaCommon) -> bool {
        let own = common.selectors.as_slice();
        let others = self.opening.values().filter_map(|o| o.sa.upgrade());
        others
            .filter(|other| other.common.policy != common.policy)
            .any(|other| {
                let mut theirs = other.common.selectors.as_slice().iter();
                theirs.any(|a| own.iter().any(|b| overlap(a, b)))
            })
    }

    /// Returns the SA's key if the core was built with the units for its suite.
    fn key(&self, common: &SaCommon) -> Result<DeviceKey, InstallRefused> {
        let key = device_key(common)?;
        if !self.core.can(key.suite) {
            return Err(CoreError::NoUnits(key.suite).into());
        }
        Ok(key)
    }

    /// Returns true if the core handles packets with this SPI.
    pub fn opens(&self, spi: u32) -> bool {
        let opening = self.opening.get(&self.core.inbound_row(spi));
        opening.is_some_and(|opening| opening.spi == spi)
    }

    /// Returns the number of a policy's group, and takes a free number for a new policy.
    fn group(&mut self, policy: PolicyId) -> Option<u16> {
        if let Some(group) = self.groups.get(&policy) {
            return Some(*group);
        }
        let free = (0..GROUPS).find(|group| self.groups.values().all(|taken| taken != group))?;
        self.groups.insert(policy, free);
        Some(free)
    }

    /// Notes the paths' MTUs. The next [`Self::follow`] writes them to the core.
    pub fn set_path_mtus(&mut self, mtu: impl Fn(IpAddr) -> Option<u16>) {
        for sealing in self.sealing.values_mut() {
            if let Some(sa) = sealing.sa.upgrade() {
                sealing.path_mtu = mtu(sa.common.path().remote.ip());
            }
        }
    }

    /// Gives the outbound lane a clear packet. Returns false if the lane cannot take it now.
    pub fn send(&mut self, packet: &[u8]) -> Result<bool, CoreError> {
        self.core.send(Lane::Outbound, packet)
    }

    /// Gives the inbound lane an ESP packet with the outer headers that it came in. Returns false if the lane cannot
    /// take it now.
    pub fn open(&mut self, esp: &[u8], facts: &OuterFacts) -> Result<bool, CoreError> {
        let Some(frame) = framed(esp, facts) else {
            return Ok(false);
        };
        self.core.send(Lane::Inbound, &frame)
    }

    pub fn work(&mut self) {
        self.core.work();
    }

    /// Takes the next packet from the outbound lane and copies it into `frame`. An event is one of the SA that sealed
    /// it.
    pub fn sent(
        &mut self,
        frame: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<Option<(OutboundOutcome, Option<Event>)>, CoreError> {
        let Some(facts) = self.core.receive(Lane::Outbound, frame)? else {
            return Ok(None);
        };
        let Facts { to_host, sa, .. } = facts;
        // A packet that no SA sealed does not leave, whatever the core says about it.
        let Some(row) = sa.filter(|_| !to_host) else {
            return Ok(Some((OutboundOutcome::ToHost, None)));
        };
        let sealing = self.sealing.get(&u32::from(row));
        let Some(sa) = sealing.and_then(|sealing| sealing.sa.upgrade()) else {
            return Ok(Some((OutboundOutcome::Expired, None)));
        };
        let udp = sealing.is_some_and(|sealing| sealing.row.udp.is_some());
        let Some(sealed) = sealed(frame, sa, udp)? else {
            return Ok(Some((OutboundOutcome::Expired, None)));
        };
        let len = frame.len().saturating_sub(sealed.header_len);
        let common = &sealed.sa.common;
        let admission = common.lifetime.admit(1, len as u64, now_ms);
        let event = admission.event;
        let event = event.map(|due| lifetime(SaDirection::Outbound, common, due));
        Ok(Some(match admission.passes {
            true => (OutboundOutcome::Sealed(sealed), event),
            false => (OutboundOutcome::Expired, event),
        }))
    }

    /// Takes the next clear packet from the inbound lane and copies it into `packet`.
    pub fn opened(
        &mut self,
        packet: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<Option<Opened>, CoreError> {
        let Some(facts) = self.core.receive(Lane::Inbound, packet)? else {
            return Ok(None);
        };
        let opening = facts.sa.and_then(|row| self.opening.get(&u32::from(row)));
        let opening = opening.filter(|opening| !opening.ended && !facts.to_host);
        // A packet that did not come through a valid SA is not delivered.
        let Some(sa) = opening.and_then(|opening| opening.sa.upgrade()) else {
            return Ok(Some(Opened::Dropped(DropReason::UnknownSpi)));
        };
        if sa.common.lifetime.expired(now_ms) {
            return Ok(Some(Opened::Dropped(DropReason::LifetimeExpired)));
        }
        let due = sa.common.lifetime.count(1, packet.len() as u64, now_ms);
        let event = due.map(|due| lifetime(SaDirection::Inbound, &sa.common, due));
        Ok(Some(Opened::Packet(sa, event)))
    }

    /// Returns the number of frames that the device has taken so far, modulo 2³². Returns `None` if the device has
    /// taken all frames that it was given.
    pub fn progress(&mut self) -> Result<Option<u32>, CoreError> {
        self.core.progress()
    }

    /// Number of packets from a lane that were longer than a buffer and were dropped.
    pub fn cut(&self, lane: Lane) -> u64 {
        self.core.cut(lane)
    }

    /// Turns the lanes off and removes the keys, as far as the device still obeys.
    pub fn wipe(&mut self) {
        let sealing = self.sealing.keys().map(|row| (Lane::Outbound, *row));
        let opening = self.opening.keys().map(|row| (Lane::Inbound, *row));
        let rows: Vec<_> = sealing.chain(opening).collect();
        for lane in [Lane::Outbound, Lane::Inbound] {
            let _ = self.core.enable(lane, false);
        }
        for (lane, row) in rows {
            // Each access to a silent device waits for its time limit, so the first one ends the loop.
            if let Err(CoreError::Bus(BusError::Silent(_))) = self.core.remove(lane, row) {
                return;
            }
        }
    }

    /// Returns the events that the core had no room for. They are recovered from the rows of SAs whose sequence
    /// numbers come to their end.
    pub fn missed(&mut self) -> Result<Vec<Event>, CoreError> {
        let mut missed = Vec::new();
        if !self.core.events_lost()? {
            return Ok(missed);
        }
        for (row, sealing) in &self.sealing {
            let used = self.core.snapshot(Lane::Outbound, *row)?.sequence;
            let Some(sa) = sealing.sa.upgrade() else {
                continue;
            };
            let due = match used {
                _ if !sealing.row.esn && used >= SEQUENCE_LAST => LifetimeEvent::Hard,
                _ if used >= sealing.row.sequence_soft => LifetimeEvent::Soft,
                _ => continue,
            };
            if let Some(due) = sa.common.lifetime.raise(due) {
                missed.push(lifetime(SaDirection::Outbound, &sa.common, due));
            }
        }
        Ok(missed)
    }

    /// Returns the events to report when the core is lost: its SAs carry nothing any more.
    pub fn lost(&self) -> Vec<Event> {
        let sealing = self.sealing.values().filter_map(|s| s.sa.upgrade());
        let end = |sa: Arc<OutboundSa>| ended(SaDirection::Outbound, &sa.common);
        sealing.map(end).collect()
    }

    /// Takes the next event that the core reports: sequence numbers that come to their end.
    pub fn next_event(&mut self) -> Result<Option<Event>, CoreError> {
        const SOFT: u8 = 1;
        const NO_SA: u8 = 4;
        while let Some(event) = self.core.next_event()? {
            let row = u32::from(event.row);
            let due = match event.kind {
                // A packet without an SA goes to software, which needs no event.
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

/// The last 32-bit sequence number.
const SEQUENCE_LAST: u64 = u32::MAX as u64;

/// The end of an SA that the core does not carry any more.
fn ended(direction: SaDirection, common: &SaCommon) -> Event {
    // If the event is lost, it comes again because it is raised.
    let _ = common.lifetime.raise(LifetimeEvent::Hard);
    lifetime(direction, common, LifetimeEvent::Hard)
}

fn lifetime(direction: SaDirection, common: &SaCommon, event: LifetimeEvent) -> Event {
    Event::Lifetime {
        direction,
        spi: common.spi,
        policy: common.policy,
        event,
    }
}

/// Checks that a frame is an ESP packet of this SA. Returns `None` if it belongs to an SA that the row had before.
/// Returns an error if it is no ESP packet, because it would be a clear packet of somebody.
fn sealed(frame: &[u8], sa: Arc<OutboundSa>, udp: bool) -> Result<Option<Sealed>, CoreError> {
    const UDP: u8 = 17;
    let (ip_len, protocol, tos, dont_fragment) = match *frame {
        [first, tos, _, _, _, _, fragment, _, _, protocol, ..] if first >> 4 == 4 => {
            (20, protocol, tos, fragment & 0x40 != 0)
        }
        [first, second, _, _, _, _, protocol, ..] if first >> 4 == 6 => {
            (40, protocol, first << 4 | second >> 4, true)
        }
        _ => return Err(CoreError::NotSealed),
    };
    if protocol != UDP && protocol != esp::PROTOCOL {
        return Err(CoreError::NotSealed);
    }
    let header_len = ip_len + if udp { 8 } else { 0 };
    let transform = sa.common.transform();
    let least = header_len + esp::HEADER_LEN + transform.iv_len() + transform.icv_len();
    let spi = frame.get(header_len..).and_then(|rest| rest.first_chunk());
    let is_it = spi == Some(&sa.common.spi.to_be_bytes()) && frame.len() > least;
    Ok((is_it && (protocol == UDP) == udp).then_some(Sealed {
        sa,
        header_len,
        tos,
        dont_fragment,
    }))
}

/// Puts the headers that a socket removed in front of an ESP packet. The core looks at the port and the TOS, but not
/// at the destination address.
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

/// Keys must not stay in a device that nobody drives.
impl<D: Device> Drop for InLine<D> {
    fn drop(&mut self) {
        self.wipe();
    }
}
