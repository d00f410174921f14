//! Packets that overtake the IKE message which makes their SA.
//!
//! A peer that responds may send with a child SA as soon as its response is on the way (RFC 7296 §1.2). Its packets
//! can be here before the response. They name an SPI that was allocated and has no SA yet. They wait for the SA, few
//! of them and not for long. SPIs are unpredictable and go out encrypted, so only the peer can make packets wait.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use super::Inbound;
use crate::drop_reason::DropReason;
use crate::sad::Sad;
use crate::tunnel::OuterFacts;

/// Most packets that wait for one SA.
const OF_SPI_MAX: usize = 32;
/// Most bytes that wait in all. They fit into the arena of a walk.
const BYTES_MAX: usize = 128 * 1024;
/// A packet takes at least this share of [`BYTES_MAX`], so that no more than 256 wait.
const COST_MIN: usize = 512;
/// A packet waits for this many milliseconds. A response that got lost comes later than that.
const WAIT_MS: u64 = 1000;

/// A packet that waits for its SA. It begins [`OuterFacts::header_len`] bytes in front of ESP or AH.
#[derive(Debug)]
pub struct EarlyPacket {
    pub spi: u32,
    pub packet: Vec<u8>,
    pub facts: OuterFacts,
    pub(super) sequence_low: u32,
    pub(super) depth: u8,
    pub(super) since_ms: u64,
}

impl EarlyPacket {
    fn cost(&self) -> usize {
        self.packet.len().max(COST_MIN)
    }

    /// The network that the packet comes from. Over IPv6 a host has many addresses.
    fn sender(&self) -> IpAddr {
        match self.facts.remote.ip() {
            IpAddr::V6(address) => {
                let network = address.to_bits() >> 64 << 64;
                Ipv6Addr::from_bits(network).into()
            }
            address => address,
        }
    }
}

/// The packets that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct EarlyPackets {
    waiting: VecDeque<EarlyPacket>,
    /// The cost of each sender's packets.
    shares: HashMap<IpAddr, usize>,
}

impl EarlyPackets {
    /// Takes a packet. Returns the packets for which there is no room: this one, or packets of a sender that has more
    /// than this one's. So no peer can keep the packets of others out.
    pub fn hold(&mut self, early: EarlyPacket) -> Vec<EarlyPacket> {
        let same = self.waiting.iter().filter(|other| other.spi == early.spi);
        if same.count() >= OF_SPI_MAX || early.cost() > BYTES_MAX {
            return vec![early];
        }
        let own = self.share(early.sender()) + early.cost();
        let mut lost = Vec::new();
        while self.shares.values().sum::<usize>() + early.cost() > BYTES_MAX {
            match self.evict(own) {
                Some(other) => lost.push(other),
                None => {
                    lost.push(early);
                    return lost;
                }
            }
        }
        self.push(early);
        lost
    }

    /// Tells whether packets with this SPI wait.
    #[inline]
    pub fn holds(&self, spi: u32) -> bool {
        !self.waiting.is_empty() && self.waits(spi)
    }

    #[cold]
    fn waits(&self, spi: u32) -> bool {
        self.waiting.iter().any(|early| early.spi == spi)
    }

    fn share(&self, sender: IpAddr) -> usize {
        self.shares.get(&sender).copied().unwrap_or_default()
    }

    fn push(&mut self, early: EarlyPacket) {
        *self.shares.entry(early.sender()).or_default() += early.cost();
        self.waiting.push_back(early);
    }

    /// Removes the newest packet of the sender that has most, if that is more than `own`.
    fn evict(&mut self, own: usize) -> Option<EarlyPacket> {
        let most = self.shares.iter().max_by_key(|(_, share)| **share);
        let (sender, _) = most.filter(|(_, share)| **share > own)?;
        let sender = *sender;
        let mut waiting = self.waiting.iter();
        let newest = waiting.rposition(|early| early.sender() == sender)?;
        let early = self.waiting.remove(newest)?;
        if let Some(share) = self.shares.get_mut(&sender) {
            *share = share.saturating_sub(early.cost());
        }
        Some(early)
    }
}

impl Inbound {
    /// Returns true if packets wait for their SAs. Then call [`Self::take_early`] soon.
    pub fn has_early(&self) -> bool {
        !self.early.waiting.is_empty()
    }

    /// Returns the SPIs of packets that wait. Later packets with these SPIs have to come here as well: they wait, too.
    pub fn early_spis(&self) -> Vec<u32> {
        let mut spis: Vec<_> = self.early.waiting.iter().map(|early| early.spi).collect();
        spis.sort_unstable();
        spis.dedup();
        spis
    }

    /// Takes the packets whose SAs have come, or whose SPIs were given up: pass them to [`Self::push_early`]. Drops
    /// packets that have waited long enough.
    pub fn take_early(&mut self, sad: &Sad) -> Vec<EarlyPacket> {
        let mut ready = Vec::new();
        let now_ms = self.now_ms;
        let is_late = |early: &EarlyPacket| now_ms >= early.since_ms + WAIT_MS;
        // This is asked for each burst.
        let mut waiting = self.early.waiting.iter();
        if waiting.all(|early| sad.awaits(early.spi) && !is_late(early)) {
            return ready;
        }
        for early in std::mem::take(&mut self.early).waiting {
            // An SA may come at any time, and then its first packet waits already.
            if !self.early.holds(early.spi) && !sad.awaits(early.spi) {
                ready.push(early);
            } else if is_late(&early) {
                let EarlyPacket { spi, facts, .. } = &early;
                let name = (*spi, early.sequence_low);
                self.reports.drop_unknown(sad, name, facts, self.now_ms);
            } else {
                self.early.push(early);
            }
        }
        ready
    }

    /// Takes a packet that has waited. It was counted when it came.
    pub fn push_early(&mut self, sad: &Sad, early: &EarlyPacket) -> Result<(), DropReason> {
        self.copy(sad, &early.packet, &early.facts, early.depth)
    }
}
