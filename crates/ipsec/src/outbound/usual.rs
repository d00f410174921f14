//! The straight way for the usual kind of SA ([`OutboundSa::is_usual`]): what most packets go, many of them alone in
//! their run. What can be checked once for a stage is not checked for each run, and one loop has all of it, so that
//! nothing is handed from one function to the next by way of memory.

use esplanade_crypto::{Job, JobStatus};

use super::burst::Packet;
use super::stage::{Header, Staged};
use super::{ESP_LEN_MAX, Outbound, refuse};
use crate::drop_reason::DropReason;
use crate::layout::Layout;
use crate::sa::OutboundSa;
use crate::spd::{FlowCache, Verdict};
use crate::wire::esp;

/// ESP header and IV.
const FRONT: usize = esp::HEADER_LEN + 8;

impl Outbound {
    /// Prepares the runs of a stage from the one at `at` on, as long as their SAs are usual. Gives the first of those
    /// that are left: `at` itself if there may not be room for all.
    #[inline(never)]
    pub(super) fn prepare_usual(
        &mut self,
        packets: &[Packet],
        flows: &FlowCache,
        (staged, lens): (&[Staged], &[u32]),
        mut at: usize,
    ) -> usize {
        let room = self.batches.room();
        let Self {
            batches,
            gate,
            counters,
            ..
        } = self;
        let (Some((batch, side)), Some(first)) = (batches.filling.as_mut(), staged.get(at)) else {
            return at;
        };
        if packets.len() > first.first as usize + room {
            return at;
        }
        let buffer = batch.buffer.as_mut_slice();
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
            let shape = Shape::new(sa, head.header);
            let run = head.first as usize..(head.first + count) as usize;
            for (at, sequence) in run.zip(sequence..) {
                if let (Some(packet), Some(len)) = (packets.get(at), lens.get(at))
                    && let Some((esp, len)) = lay_out(buffer, &shape, sequence, packet, *len)
                {
                    batch.jobs.push(Job {
                        key: head.sa,
                        esp,
                        len,
                        icv: 0,
                        sequence,
                        class: shape.class,
                        status: JobStatus::Pending,
                    });
                }
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

/// What the packets of a run have in common.
struct Shape {
    layout: Layout,
    spi: u32,
    class: u8,
    next_header: u8,
}

impl Shape {
    #[inline(always)]
    fn new(sa: &OutboundSa, header: Header) -> Self {
        let layout = sa.common.layout;
        Self {
            layout,
            spi: sa.common.spi,
            class: layout.class(header.of_inner().tos),
            next_header: header.version().next_header(),
        }
    }
}

/// Writes what is around a packet (RFC 4303 §2). Gives where ESP begins, and its length.
#[inline(always)]
fn lay_out(
    buffer: &mut [u8],
    shape: &Shape,
    sequence: u64,
    packet: &Packet,
    len: u32,
) -> Option<(u32, u32)> {
    let len = len as usize;
    let body_len = shape.layout.body_len(len);
    let whole = FRONT + body_len + shape.layout.icv_len();
    let start = (packet.offset as usize).checked_sub(FRONT)?;
    let end = start + whole;
    let inside = start >= packet.slot_start as usize && end <= packet.slot_end as usize;
    if !inside || whole > ESP_LEN_MAX {
        return None;
    }
    let (front, behind) = buffer.get_mut(start..end)?.split_first_chunk_mut()?;
    // The IV is unique because sequence numbers are.
    let header = u128::from(shape.spi) << 96 | u128::from(sequence as u32) << 64;
    *front = (header | u128::from(sequence)).to_be_bytes();
    let pad_len = body_len - len - esp::TRAILER_LEN;
    esp::write_trailer(behind.get_mut(len..)?, pad_len, shape.next_header);
    Some((start as u32, whole as u32))
}
