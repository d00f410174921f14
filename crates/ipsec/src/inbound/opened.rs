//! The data that the inbound walk keeps about a batch, and the opened batch that the caller gets.

use std::net::SocketAddr;

use esplanade_crypto::{Batch, Protocol};

use crate::circulation;
use crate::drop_reason::DropReason;
use crate::sad::{SaName, SadReader};
use crate::tunnel::OuterFacts;
use crate::wire::{IpView, ah};

/// Consecutive jobs of one SA.
#[derive(Clone, Copy, Debug)]
pub(super) struct InboundRun {
    pub sa: SaName,
    pub first_job: u32,
    pub jobs: u32,
}

/// The data that the walk keeps about one job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    /// Index into [`InboundWalkState::facts`].
    pub facts: u32,
    /// For AH: offset in [`InboundWalkState::saved`] of the headers as they came.
    pub saved: u32,
}

/// The outer header of packets that came together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub outer: OuterFacts,
    /// Number of SAs that were removed before.
    pub depth: u8,
}

/// The data that the walk keeps about a batch and that the engine does not need.
#[derive(Debug, Default)]
pub(super) struct InboundWalkState {
    pub runs: Vec<InboundRun>,
    /// The tags of the jobs, one for each job.
    pub tags: Vec<Tag>,
    pub facts: Vec<Facts>,
    pub saved: Vec<u8>,
    pub content: Content,
}

/// The result of opening a batch.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub delivered: Vec<Delivered>,
    /// Ranges of `delivered`: index of the first packet, its interface, and whether workers share its SA.
    pub interfaces: Vec<(usize, u32, bool)>,
    /// Packets that are IPsec again.
    pub nested: Vec<Nested>,
    /// Packets that are not contiguous in the arena: their own header, then what was behind ESP or AH.
    pub rebuilt: Vec<u8>,
}

impl Content {
    /// Bytes of all deliverable packets.
    pub fn bytes(&self) -> u64 {
        self.delivered.iter().map(|d| u64::from(d.len)).sum()
    }

    /// The bytes of a packet. `buffer` is the arena.
    pub fn packet<'a>(&'a self, buffer: &'a [u8], delivered: &Delivered) -> &'a [u8] {
        let bytes = match delivered.rebuilt {
            true => &self.rebuilt,
            false => buffer,
        };
        bytes.get(delivered.range()).unwrap_or_default()
    }

    /// Assigns the packets that are delivered next to this interface.
    pub fn turn_to(&mut self, interface: u32, shared: bool) {
        if self
            .interfaces
            .last()
            .is_none_or(|(_, last, last_shared)| (*last, *last_shared) != (interface, shared))
        {
            self.interfaces
                .push((self.delivered.len(), interface, shared));
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Nested {
    pub packet: Delivered,
    pub view: IpView,
    pub depth: u8,
}

impl Nested {
    /// The outer header for the next SA.
    pub fn outer(&self) -> OuterFacts {
        let view = &self.view;
        OuterFacts {
            remote: SocketAddr::new(view.source, 0),
            udp_encap: false,
            tos: view.tos,
            header_len: view.upper as u16,
            protocol: match view.protocol {
                ah::PROTOCOL => Protocol::Ah,
                _ => Protocol::Esp,
            },
        }
    }
}

/// The facts about the arrival of a job's packet.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub tag: &'a Tag,
    pub facts: &'a Facts,
    /// The bytes of [`InboundWalkState::saved`].
    pub saved: &'a [u8],
    /// The caller's time, by which fragments age.
    pub now_ms: u64,
}

impl circulation::WalkState for InboundWalkState {
    type Sas = SadReader;

    fn clear(&mut self) {
        self.runs.clear();
        self.tags.clear();
        self.facts.clear();
        self.saved.clear();
        self.content.delivered.clear();
        self.content.interfaces.clear();
        self.content.nested.clear();
        self.content.rebuilt.clear();
    }

    /// Packets lie where they were received, each in a slot for the longest packet.
    fn front(&self) -> Option<usize> {
        let headers = self.facts.iter().map(|facts| facts.outer.header_len.into());
        Some(headers.max().unwrap_or(0))
    }

    fn count_drops(&self, sas: &SadReader, reason: DropReason) {
        for run in &self.runs {
            if let Some(sa) = sas.get(run.sa) {
                sa.common.drops.add(reason, run.jobs.into());
            }
        }
    }
}

/// A deliverable inner packet, into which the outer ECN field was merged.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    pub(super) offset: u32,
    pub(super) len: u32,
    /// True if the packet is in [`Content::rebuilt`] and not in the arena.
    pub(super) rebuilt: bool,
}

impl Delivered {
    fn range(&self) -> std::ops::Range<usize> {
        let start = self.offset as usize;
        start..start + self.len as usize
    }
}

/// Consecutive packets for one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub interface: u32,
    /// True if the packets come from SAs that workers share: see [`crate::pace`].
    pub shared: bool,
    /// The range in [`OpenedBatch::delivered`].
    pub packets: std::ops::Range<usize>,
}

/// A batch of opened packets.
#[derive(Debug)]
pub struct OpenedBatch {
    pub(super) batch: Batch,
    pub(super) side: InboundWalkState,
}

impl OpenedBatch {
    /// The deliverable packets, in order.
    pub fn delivered(&self) -> &[Delivered] {
        &self.side.content.delivered
    }

    /// The deliverable packets by interface. An interface may occur several times.
    pub fn by_interface(&self) -> impl Iterator<Item = Share> + '_ {
        let interfaces = &self.side.content.interfaces;
        let ends = interfaces.iter().skip(1).map(|(first, ..)| *first);
        let ends = ends.chain([self.side.content.delivered.len()]);
        let ranges = interfaces.iter().zip(ends);
        ranges.map(|((first, interface, shared), end)| Share {
            interface: *interface,
            shared: *shared,
            packets: *first..end,
        })
    }

    /// The bytes of an inner packet of this batch.
    pub fn packet(&self, delivered: &Delivered) -> &[u8] {
        self.side.content.packet(&self.batch.buffer, delivered)
    }

    /// The bytes of an inner packet for writing: coalescing changes headers in place.
    pub fn packet_mut(&mut self, delivered: &Delivered) -> &mut [u8] {
        let bytes = match delivered.rebuilt {
            true => &mut self.side.content.rebuilt[..],
            false => &mut self.batch.buffer,
        };
        bytes.get_mut(delivered.range()).unwrap_or_default()
    }
}
