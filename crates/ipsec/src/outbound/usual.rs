//! The fast path for usual SAs ([`OutboundSa::is_usual`]). Most packets take it, and many of them are alone in their
//! run. Checks that can be done once per stage are not done per run. Nothing is looked up that such SAs have no
//! choice in.

use esplanade_crypto::Batch;

use super::burst::ArenaPacket;
use super::prepare::{self, PacketPlace, Shape};
use super::stage::{Header, Staged};
use super::{Outbound, refuse};
use crate::drop_reason::DropReason;
use crate::iv::IvPool;
use crate::sa::OutboundSa;
use crate::spd::{FlowCache, Verdict};

impl Outbound {
    /// Prepares the runs of a stage from index `at` on, as long as their SAs are usual. Returns the index of the
    /// first run that is left. That is `at` itself if there may not be room for all packets.
    #[inline(never)]
    pub(super) fn prepare_usual(
        &mut self,
        packets: &[ArenaPacket],
        flows: &FlowCache,
        (staged, lens): (&[Staged], &[u32]),
        mut at: usize,
    ) -> usize {
        let room = self.batches.room();
        let Self {
            batches,
            gate,
            counters,
            ivs,
            ..
        } = self;
        let (Some((batch, side)), Some(first)) = (batches.filling.as_mut(), staged.get(at)) else {
            return at;
        };
        if packets.len() > first.first as usize + room {
            return at;
        }
        while let Some(head) = staged.get(at)
            && let Verdict::Protect(slot) = head.verdict
            && let Some(sa) = flows.sa(slot)
            && sa.is_usual()
        {
            at += 1;
            let (mut count, mut bytes) = (head.count, head.bytes);
            while let Some(next) = staged.get(at)
                && next.sa == head.sa
                && next.header == head.header
                && next.first == head.first + count
            {
                count += next.count;
                bytes += next.bytes;
                at += 1;
            }
            let sequence = match gate.admit(sa, count, bytes.into()) {
                Ok(sequence) => sequence,
                Err(reason) => {
                    refuse(counters, sa, reason, count);
                    continue;
                }
            };
            let first_job = batch.jobs.len() as u32;
            let run = head.first as usize..(head.first + count) as usize;
            match (packets.get(run.clone()), lens.get(run)) {
                (Some([packet]), Some([len])) => {
                    lay_out_one((batch, ivs), sa, head.header, sequence, packet, *len);
                }
                (Some(packets), Some(lens)) => {
                    lay_out_all((batch, ivs), sa, head.header, sequence, packets, lens);
                }
                _ => {}
            }
            let jobs = batch.jobs.len() as u32 - first_job;
            if jobs > 0 {
                side.add_usual(sa, head.header.of_inner(), first_job, jobs);
            }
            if jobs < count {
                refuse(counters, sa, DropReason::TooLong, count - jobs);
            }
        }
        at
    }
}

/// Lays out a run of one packet; with many flows most runs are like that. This function and [`lay_out_all`] are not
/// inlined, because the registers do not suffice for both at once.
#[inline(never)]
fn lay_out_one(
    to: (&mut Batch, &mut IvPool),
    sa: &OutboundSa,
    header: Header,
    sequence: u64,
    packet: &ArenaPacket,
    len: u32,
) {
    lay_out(to, sa, header, std::iter::once((packet, len, sequence)));
}

#[inline(never)]
fn lay_out_all(
    to: (&mut Batch, &mut IvPool),
    sa: &OutboundSa,
    header: Header,
    sequence: u64,
    packets: &[ArenaPacket],
    lens: &[u32],
) {
    let packets = packets.iter().zip(lens).zip(sequence..);
    let packets = packets.map(|((packet, len), sequence)| (packet, *len, sequence));
    lay_out(to, sa, header, packets);
}

/// Does the same as [`prepare::esp_tunnel`]. A packet that does not fit its slot gets no job.
#[inline(always)]
fn lay_out<'a>(
    (batch, ivs): (&mut Batch, &mut IvPool),
    sa: &OutboundSa,
    header: Header,
    packets: impl Iterator<Item = (&'a ArenaPacket, u32, u64)>,
) {
    let Batch { buffer, jobs, .. } = batch;
    let buffer = &mut **buffer;
    let shape = Shape::of_usual(sa, header.of_inner().tos, header.version().next_header());
    for (packet, len, sequence) in packets {
        let place = PacketPlace {
            slot_start: packet.slot_start as usize,
            slot_end: packet.slot_end as usize,
            start: packet.offset as usize,
            len: len as usize,
        };
        let laid_out = prepare::lay_out(buffer, &shape, sequence, &place, ivs);
        if let Ok((start, len)) = laid_out {
            jobs.push(shape.job(start, len, 0, sequence));
        }
    }
}
