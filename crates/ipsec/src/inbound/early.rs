//! Packets that overtake the IKE message which makes their SA.
//!
//! A peer that responds may send with a child SA as soon as its response is on the way (RFC 7296 §1.2). Its packets
//! can be here before the response. They name an SPI that was allocated and has no SA yet. They wait for the SA, few
//! of them and not for long. SPIs are unpredictable and go out encrypted, so only the peer can make packets wait.

use super::Inbound;
use crate::drop_reason::DropReason;
use crate::sad::Sad;
use crate::tunnel::OuterFacts;

/// Most packets that wait for one SA.
const OF_SPI_MAX: usize = 32;
/// Most packets that wait in all.
const PACKETS_MAX: usize = 256;
/// Most bytes that wait in all. They fit into the arena of a walk.
const BYTES_MAX: usize = 128 * 1024;
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

/// The packets that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct EarlyPackets {
    waiting: Vec<EarlyPacket>,
    bytes: usize,
}

impl EarlyPackets {
    /// Returns false if there is no room for the packet.
    pub fn hold(&mut self, early: EarlyPacket) -> bool {
        let same = self.waiting.iter().filter(|other| other.spi == early.spi);
        let has_room = self.waiting.len() < PACKETS_MAX
            && same.count() < OF_SPI_MAX
            && self.bytes + early.packet.len() <= BYTES_MAX;
        if has_room {
            self.bytes += early.packet.len();
            self.waiting.push(early);
        }
        has_room
    }
}

impl Inbound {
    /// Returns true if packets wait for their SAs. Then call [`Self::take_early`] soon.
    pub fn has_early(&self) -> bool {
        !self.early.waiting.is_empty()
    }

    /// Takes the packets whose SAs have come, or whose SPIs were given up: pass them to [`Self::push_early`]. Drops
    /// packets that have waited long enough.
    pub fn take_early(&mut self, sad: &Sad) -> Vec<EarlyPacket> {
        let mut ready = Vec::new();
        for early in std::mem::take(&mut self.early).waiting {
            if !sad.awaits(early.spi) {
                ready.push(early);
            } else if self.now_ms >= early.since_ms + WAIT_MS {
                let EarlyPacket { spi, facts, .. } = &early;
                let sequence = early.sequence_low;
                self.reports
                    .drop_unknown(*spi, sequence, facts, self.now_ms);
            } else {
                self.early.bytes += early.packet.len();
                self.early.waiting.push(early);
            }
        }
        ready
    }

    /// Takes a packet that has waited. It was counted when it came.
    pub fn push_early(&mut self, sad: &Sad, early: &EarlyPacket) -> Result<(), DropReason> {
        self.copy(sad, &early.packet, &early.facts, early.depth)
    }
}
