//! Sealed batches. Their packets leave in trains, or one by one with their outer headers.

use esplanade_crypto::{Batch, Job, JobStatus};

use super::prepare::{OUTER_HEADROOM, next};
use super::side::{Frame, OutboundRun, OutboundWalkState};
use crate::sa::OutboundSa;
use crate::tunnel::{OuterHeader, OuterMeta, write_outer, write_udp};
use crate::wire::ah;

/// A batch of sealed packets, ready to be sent.
#[derive(Debug)]
pub struct SealedBatch {
    pub(super) batch: Batch,
    pub(super) side: OutboundWalkState,
}

/// Bounds of one [`Train`]. They follow from what one send can take.
#[derive(Clone, Copy, Debug)]
pub struct TrainLimits {
    pub segments: usize,
    pub bytes: usize,
}

/// Sealed packets that lie one behind the other and have the same outer header. One UDP GSO send takes them.
#[derive(Clone, Copy, Debug)]
pub struct Train<'a> {
    pub meta: &'a OuterMeta,
    /// The IP protocol behind the IP header if it is not UDP: ESP or AH.
    pub protocol: u8,
    /// With ESP: the bytes from the SPI on. With AH: everything behind the outer IP header.
    pub esp: &'a [u8],
    /// The length of every packet. The last packet may be shorter.
    pub segment_len: usize,
    pub segments: usize,
    /// The priority, 0 to 7.
    pub class: u8,
    /// In transport mode and with AH: the whole outer packet, for back ends that send such packets. It may have
    /// options or extension headers, which `meta` cannot express.
    pub frame: Option<&'a [u8]>,
}

impl SealedBatch {
    /// Returns the batch's packets in order. If the limit is one segment, each packet is a train.
    pub fn trains(&self, limits: TrainLimits) -> Trains<'_> {
        Trains {
            sealed: self,
            limits,
            runs: self.side.runs.iter(),
            run: None,
            jobs: &[],
        }
    }

    /// Returns true if all packets have the same priority, as in most batches.
    pub fn is_of_one_class(&self) -> bool {
        let mut classes = self.batch.jobs.iter().map(|job| job.class);
        let first = classes.next();
        classes.all(|class| Some(class) == first)
    }

    /// Passes each packet to `each` in order, as it goes onto the wire with its outer IP header. The header is
    /// written over the bytes in front of the packet, which may belong to the packet before. A frame is therefore
    /// valid until `each` returns. `identification` is counted up, for IPv4. Returns the number of packets that have
    /// no room for a header.
    pub fn for_each_frame(
        &mut self,
        identification: &mut u16,
        mut each: impl FnMut(&[u8]),
    ) -> usize {
        let Self { batch, side } = self;
        let mut failed = 0;
        for run in side.runs.iter().filter(|run| !run.nested) {
            let header = OuterHeader::new(&run.meta);
            for job_in_run in 0..run.jobs as usize {
                let job = batch.jobs.get(run.first_job as usize + job_in_run);
                let Some(job) = job.filter(|job| job.status == JobStatus::Done) else {
                    continue;
                };
                let range = match side.frame(run, job_in_run) {
                    Some(frame) => Some(frame_range(frame)),
                    None => {
                        let esp = job.esp as usize;
                        let start = esp.checked_sub(run.meta.header_len());
                        start.map(|start| start..esp + job.len as usize)
                    }
                };
                let written = range.and_then(|range| {
                    let frame = batch.buffer.get_mut(range)?;
                    if run.first_frame.is_none() {
                        header.write(next(identification), frame)?;
                    }
                    Some(frame)
                });
                match written {
                    Some(frame) => each(frame),
                    None => failed += 1,
                }
            }
        }
        failed
    }

    /// Returns a run whose packets go on to another SA, and the run's SA.
    pub(super) fn nested_run(&self, run: usize) -> Option<(&OutboundRun, &OutboundSa)> {
        let run = self.side.runs.get(run).filter(|run| run.nested)?;
        Some((run, self.side.sa(run)?))
    }

    /// Builds a sealed packet with its outer header in `frame`. Returns `None` if the packet was not sealed, and
    /// `Some(None)` if the header could not be written.
    pub(super) fn copy_frame(
        &self,
        run: &OutboundRun,
        job_in_run: usize,
        identification: u16,
        frame: &mut Vec<u8>,
    ) -> Option<Option<()>> {
        let job = self.batch.jobs.get(run.first_job as usize + job_in_run)?;
        if job.status != JobStatus::Done {
            return None;
        }
        frame.clear();
        if let Some(whole) = self.side.frame(run, job_in_run) {
            frame.extend_from_slice(self.batch.buffer.get(frame_range(whole))?);
            return Some(Some(()));
        }
        let esp = job.esp as usize;
        let esp = self.batch.buffer.get(esp..esp + job.len as usize)?;
        frame.resize(run.meta.header_len(), 0);
        frame.extend_from_slice(esp);
        Some(write_outer(&run.meta, identification, frame))
    }
}

fn frame_range(frame: &Frame) -> std::ops::Range<usize> {
    let start = frame.start as usize;
    start..start + frame.len as usize
}

/// Writes the parts of frames that can be written only after sealing. These are AH's mutable fields, and the UDP
/// header, whose checksum over IPv6 covers the sealed bytes.
pub(super) fn complete_frames(batch: &mut Batch, side: &OutboundWalkState, run: &OutboundRun) {
    for job_in_run in 0..run.jobs as usize {
        let Some(frame) = side.frame(run, job_in_run) else {
            return;
        };
        let Some(packet) = batch.buffer.get_mut(frame_range(frame)) else {
            return;
        };
        let saved = frame.saved as usize;
        let saved = side.saved.get(saved..saved + frame.saved_len as usize);
        match saved {
            Some(saved) if !saved.is_empty() => ah::restore(packet, saved),
            _ if run.meta.udp_encap() => {
                let udp = (frame.header_len as usize).saturating_sub(8);
                if let Some(datagram) = packet.get_mut(udp..) {
                    write_udp(&run.meta.path(), datagram);
                }
            }
            _ => {}
        }
    }
}

#[derive(Debug)]
pub struct Trains<'a> {
    sealed: &'a SealedBatch,
    limits: TrainLimits,
    runs: std::slice::Iter<'a, OutboundRun>,
    run: Option<&'a OutboundRun>,
    /// The jobs of the run that are still to come.
    jobs: &'a [Job],
}

impl<'a> Iterator for Trains<'a> {
    type Item = Train<'a>;

    #[inline]
    fn next(&mut self) -> Option<Train<'a>> {
        let SealedBatch { batch, side } = self.sealed;
        loop {
            let (Some((head, rest)), Some(run)) = (self.jobs.split_first(), self.run) else {
                let run = self.runs.next()?;
                let first = run.first_job as usize;
                if !run.nested {
                    self.jobs = batch.jobs.get(first..first + run.jobs as usize)?;
                    self.run = Some(run);
                }
                continue;
            };
            if head.status != JobStatus::Done || run.first_frame.is_some() {
                let job_in_run = run.jobs as usize - self.jobs.len();
                self.jobs = rest;
                match side.frame(run, job_in_run) {
                    Some(frame) if head.status == JobStatus::Done => {
                        return framed(batch, run, frame, head.class);
                    }
                    _ => continue,
                }
            }
            let (segments, bytes) = train_of(head, rest, &self.limits);
            self.jobs = rest.get(segments - 1..).unwrap_or_default();
            let start = head.esp as usize;
            return Some(Train {
                meta: &run.meta,
                protocol: crate::wire::esp::PROTOCOL,
                esp: batch.buffer.get(start..start + bytes)?,
                segment_len: head.len as usize,
                segments,
                class: head.class,
                frame: None,
            });
        }
    }
}

fn framed<'a>(
    batch: &'a Batch,
    run: &'a OutboundRun,
    frame: &Frame,
    class: u8,
) -> Option<Train<'a>> {
    let packet = batch.buffer.get(frame_range(frame))?;
    // The headers in front include the UDP header, which a socket writes itself.
    let esp = packet.get(frame.header_len as usize..)?;
    Some(Train {
        meta: &run.meta,
        protocol: match frame.saved_len {
            0 => crate::wire::esp::PROTOCOL,
            _ => ah::PROTOCOL,
        },
        esp,
        segment_len: esp.len(),
        segments: 1,
        class,
        frame: Some(packet),
    })
}

/// Returns how many packets from the first on form one train, and their bytes.
#[inline]
fn train_of(head: &Job, rest: &[Job], limits: &TrainLimits) -> (usize, usize) {
    let (mut segments, mut bytes) = (1, head.len as usize);
    for job in rest {
        let contiguous = job.esp as usize == head.esp as usize + bytes;
        let joins = contiguous && job.status == JobStatus::Done && job.len <= head.len;
        let full = segments >= limits.segments || bytes + job.len as usize > limits.bytes;
        if !joins || full {
            break;
        }
        segments += 1;
        bytes += job.len as usize;
        if job.len < head.len {
            break;
        }
    }
    (segments, bytes)
}

const _: () = assert!(OUTER_HEADROOM >= 40 + 8);
