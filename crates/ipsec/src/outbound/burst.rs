//! The fast way in: packets that lie in the arena, with room around them, in bursts.
//!
//! Each step is done for a stage of packets before the next, so that what the processor must fetch for one packet
//! (its flow, its SA) is fetched while it works on others. What is per SA is done once per run of packets.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::prepare::{Place, Plan, Preparer};
use super::{OVERHEAD_MAX, Outbound};
use crate::drop_reason::DropReason;
use crate::inbound::ReceiveBuffer;
use crate::sa::OutboundSa;
use crate::spd::{Decision, Spd};
use crate::wire::{IpVersion, IpView};

/// Room that a packet must have in front of it in its slot, for any SA and its outer headers.
pub const HEADROOM: usize = 96;
/// Room that it must have behind it, for any SA without traffic flow confidentiality.
pub const TAILROOM: usize = OVERHEAD_MAX;

/// Packets that go through the steps together: enough for their cache misses to overlap, few enough for what is
/// known about them to stay near.
const STAGE: usize = 64;

/// A packet in the arena: `offset..offset + len`, within a slot that is its own.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub slot_start: u32,
    pub slot_end: u32,
    pub offset: u32,
    pub len: u32,
}

/// What the SPD says about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// An index into [`Scratch::sas`].
    Protect(u32),
    Bypass,
    Drop(DropReason),
}

/// What is known about the packets of a stage; kept, so that it need not be made again.
pub(super) struct Scratch {
    stage: Box<[(IpView, Found); STAGE]>,
    sas: Vec<Arc<OutboundSa>>,
    bypassed: Vec<u32>,
}

const NO_VIEW: IpView = IpView {
    version: IpVersion::V4,
    source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    tos: 0,
    ttl: 0,
    flow_label: 0,
    dont_fragment: false,
    total_len: 0,
    header_len: 0,
    protocol: 0,
    upper: 0,
    fragment: false,
    later_fragment: false,
    ports: None,
};

impl Default for Scratch {
    fn default() -> Self {
        let unknown = (NO_VIEW, Found::Drop(DropReason::MalformedInner));
        Self {
            stage: Box::new([unknown; STAGE]),
            sas: Vec::with_capacity(STAGE),
            bypassed: Vec::new(),
        }
    }
}

impl Outbound {
    /// The part of the arena that is free: put packets into it, [`Outbound::commit_received`] what was used, then
    /// [`Outbound::push_burst`] them. None while every batch is busy.
    pub fn receive_buffer(&mut self) -> Option<ReceiveBuffer<'_>> {
        let (batch, _) = self.batches.filling.as_mut()?;
        let offset = batch.used();
        let bytes = batch.buffer.get_mut(offset..)?;
        Some(ReceiveBuffer { offset, bytes })
    }

    /// Keeps the first `len` bytes of the receive buffer. False if there are not so many.
    pub fn commit_received(&mut self, len: usize) -> bool {
        let batch = self.batches.filling.as_mut().map(|(batch, _)| batch);
        batch.and_then(|batch| batch.reserve(len)).is_some()
    }

    /// How many packets the batch still takes.
    pub fn room(&self) -> usize {
        let filling = self.batches.filling.as_ref();
        filling.map_or(0, |(batch, _)| {
            self.limits.jobs_max.saturating_sub(batch.jobs.len())
        })
    }

    /// Decides on packets that lie in the arena and makes them ready for the engine, in order. More than there is
    /// [`Self::room`] for are dropped as too long. The SPD lets some pass as they are: see [`Self::bypassed`].
    pub fn push_burst(&mut self, spd: &Spd, packets: &[Packet]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.bypassed.clear();
        let mut first = 0;
        for stage in packets.chunks(STAGE) {
            scratch.sas.clear();
            self.parse_stage(stage, &mut scratch);
            self.find_stage(spd, stage.len(), &mut scratch);
            self.prepare_stage(stage, &mut scratch, first);
            first += stage.len() as u32;
        }
        self.scratch = scratch;
    }

    /// Of the last burst, the packets (by their index in it) that the caller sends as they are.
    pub fn bypassed(&self) -> &[u32] {
        &self.scratch.bypassed
    }

    fn parse_stage(&self, packets: &[Packet], scratch: &mut Scratch) {
        let filling = self.batches.filling.as_ref();
        let buffer = filling.map_or(&[][..], |(batch, _)| &batch.buffer);
        let mut bytes = 0;
        for (packet, (view, found)) in packets.iter().zip(scratch.stage.iter_mut()) {
            let start = packet.offset as usize;
            let packet = buffer.get(start..start + packet.len as usize);
            bytes += packet.map_or(0, <[u8]>::len);
            *found = match IpView::parse(packet.unwrap_or_default()) {
                Ok(parsed) => {
                    *view = parsed;
                    Found::Bypass
                }
                Err(_) => Found::Drop(DropReason::MalformedInner),
            };
        }
        self.counters.count_in(packets.len() as u64, bytes as u64);
    }

    fn find_stage(&mut self, spd: &Spd, packets: usize, scratch: &mut Scratch) {
        let Scratch { stage, sas, .. } = scratch;
        for (view, found) in stage.iter_mut().take(packets) {
            if *found != Found::Bypass {
                continue;
            }
            let flow = view.outbound_flow();
            *found = match spd.outbound(&flow) {
                Decision::Protect(sa) => {
                    if !sas.last().is_some_and(|last| Arc::ptr_eq(last, &sa)) {
                        sas.push(sa);
                    }
                    Found::Protect((sas.len() - 1) as u32)
                }
                Decision::Bypass => Found::Bypass,
                Decision::Discard(reason) => Found::Drop(reason),
                Decision::Acquire(acquire) => {
                    self.events.extend(acquire.raise(&flow));
                    Found::Drop(DropReason::NoSa)
                }
            };
        }
    }

    fn prepare_stage(&mut self, packets: &[Packet], scratch: &mut Scratch, first: u32) {
        let Scratch {
            stage,
            sas,
            bypassed,
        } = scratch;
        let stage = stage.get(..packets.len()).unwrap_or_default();
        let mut at = 0;
        while let (Some((view, found)), Some(rest)) = (stage.get(at), stage.get(at..)) {
            let run = rest
                .iter()
                .take_while(|(v, f)| f == found && same_header(v, view));
            let run_len = run.count().max(1);
            let run = packets.get(at..at + run_len).unwrap_or_default();
            match *found {
                Found::Protect(sa) => {
                    if let Some(sa) = sas.get(sa as usize) {
                        let views = rest.get(..run_len).unwrap_or_default();
                        self.prepare_run(sa, views, run);
                    }
                }
                Found::Bypass => {
                    self.counters.count_bypassed(run_len as u64);
                    let from = first + at as u32;
                    bypassed.extend(from..from + run_len as u32);
                }
                Found::Drop(reason) => self.counters.count_drop(reason, run_len as u64),
            }
            at += run_len;
        }
    }

    /// Prepares packets of one SA whose outer headers are the same.
    fn prepare_run(&mut self, sa: &Arc<OutboundSa>, views: &[(IpView, Found)], packets: &[Packet]) {
        let Some((head, _)) = views.first() else {
            return;
        };
        let count = packets.len() as u32;
        if self.room() < packets.len() {
            self.refuse(sa, DropReason::TooLong, count);
            return;
        }
        let bytes = views.iter().map(|(view, _)| view.total_len as u64).sum();
        let ready = self.plan(sa, head);
        let ready = ready.and_then(|plan| Ok((plan, self.admit(sa, count, bytes)?)));
        let (mut plan, sequence) = match ready {
            Ok(ready) => ready,
            Err(reason) => {
                self.refuse(sa, reason, count);
                return;
            }
        };
        let Some((batch, side)) = self.batches.filling.as_mut() else {
            return;
        };
        plan.key = batch.add_key(&sa.common.key);
        let first_job = batch.jobs.len() as u32;
        let mut preparer = Preparer {
            batch,
            side,
            ivs: &mut self.ivs,
            identification: &mut self.identification,
        };
        let mut number = sequence.first;
        for ((view, _), packet) in views.iter().zip(packets) {
            let place = Place {
                slot_start: packet.slot_start as usize,
                slot_end: packet.slot_end as usize,
                start: packet.offset as usize,
                len: view.total_len,
            };
            let result = prepare(&mut preparer, sa, &plan, number, &place);
            number += 1;
            if let Err(reason) = result {
                self.counters.count_drop(reason, 1);
                sa.common.drops.add(reason, 1);
            }
        }
        if plan.layout.is_esp_tunnel() {
            let jobs = batch.jobs.len() as u32 - first_job;
            if jobs > 0 {
                side.add_jobs(sa, &plan.meta, 0, first_job, jobs);
            }
        }
    }
}

#[inline]
fn prepare(
    preparer: &mut Preparer<'_>,
    sa: &Arc<OutboundSa>,
    plan: &Plan,
    sequence: u64,
    place: &Place,
) -> Result<(), DropReason> {
    if place.len > super::ESP_LEN_MAX {
        return Err(DropReason::TooLong);
    }
    match plan.layout.is_esp_tunnel() {
        true => preparer.esp_tunnel(plan, sequence, place),
        false => preparer.framed(sa, plan, sequence, place),
    }
}

/// Whether two packets of one SA get the same outer header and class.
fn same_header(a: &IpView, b: &IpView) -> bool {
    a.tos == b.tos
        && a.version == b.version
        && a.dont_fragment == b.dont_fragment
        && a.flow_label == b.flow_label
}
