//! What the outbound walk knows about a batch that the engine does not need.

use esplanade_crypto::SlotTable;

use crate::circulation;
use crate::drop_reason::DropReason;
use crate::sa::OutboundSa;
use crate::tunnel::{OfInner, OuterMeta};

/// Consecutive jobs of one SA with the same outer header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub meta: OuterMeta,
    /// The SA's number.
    pub sa: u32,
    pub first_job: u32,
    pub jobs: u32,
    /// The first job's place in [`Side::frames`], where the packets have their IP header with them.
    pub first_frame: Option<u32>,
    /// How many SAs were applied before this one.
    pub depth: u8,
    /// The packets go to the next SA of their bundle.
    pub nested: bool,
}

/// A packet that lies in the arena with its IP header: transport mode and AH.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The outer IP header.
    pub start: u32,
    /// From there to the end.
    pub len: u32,
    /// Headers in front of ESP or AH.
    pub header_len: u32,
    /// AH: where in [`Side::saved`] the headers are as they will be sent, else empty.
    pub saved: u32,
    pub saved_len: u32,
}

#[derive(Debug, Default)]
pub(super) struct Side {
    pub runs: Vec<Run>,
    /// By number; a snapshot, once the batch is with the engine.
    pub sas: SlotTable<OutboundSa>,
    pub frames: Vec<Frame>,
    pub saved: Vec<u8>,
    /// Some runs go to another SA.
    nested: bool,
}

impl circulation::Side for Side {
    type Sas = ();

    fn clear(&mut self) {
        self.runs.clear();
        self.sas = SlotTable::new();
        self.frames.clear();
        self.saved.clear();
        self.nested = false;
    }

    /// The arena is filled without gaps.
    fn front(&self) -> Option<usize> {
        None
    }

    fn count_drops(&self, (): &(), reason: DropReason) {
        for run in &self.runs {
            if let Some(sa) = self.sa(run) {
                sa.common.drops.add(reason, run.jobs.into());
            }
        }
    }
}

impl Side {
    pub fn sa(&self, run: &Run) -> Option<&OutboundSa> {
        self.sas.get(run.sa).map(|sa| &**sa)
    }

    pub fn frame(&self, run: &Run, job_in_run: usize) -> Option<&Frame> {
        self.frames.get(run.first_frame? as usize + job_in_run)
    }

    /// All packets are ESP in tunnel mode, and leave.
    pub fn is_plain(&self) -> bool {
        self.frames.is_empty() && !self.nested
    }

    /// Adds jobs of a usual SA ([`OutboundSa::is_usual`]).
    #[inline(always)]
    pub fn add_usual(&mut self, sa: &OutboundSa, inner: OfInner, first_job: u32, jobs: u32) {
        let last = self.runs.last().map(|run| run.sa);
        match sa.common.path_between_ipv4() {
            Some(path) if last != Some(sa.number()) => self.runs.push(Run {
                // The header's one copy.
                meta: OuterMeta::usual(path, inner),
                sa: sa.number(),
                first_job,
                jobs,
                first_frame: None,
                depth: 0,
                nested: false,
            }),
            _ => self.add_tunnelled(sa, inner, first_job, jobs),
        }
    }

    /// Adds jobs with an outer header that is made for them.
    #[inline(never)]
    pub fn add_tunnelled(&mut self, sa: &OutboundSa, inner: OfInner, first_job: u32, jobs: u32) {
        let meta = OuterMeta::around(sa.common.packed_path(), &sa.common.tunnel, inner);
        self.add_jobs(sa, &meta, 0, first_job, jobs);
    }

    pub fn add_jobs(
        &mut self,
        sa: &OutboundSa,
        meta: &OuterMeta,
        depth: u8,
        first_job: u32,
        jobs: u32,
    ) {
        let number = sa.number();
        match self.runs.last_mut() {
            Some(run) if run.sa == number && run.depth == depth && run.meta == *meta => {
                run.jobs += jobs;
            }
            _ => {
                let nested = sa.is_nested();
                self.nested |= nested;
                self.runs.push(Run {
                    meta: *meta,
                    sa: number,
                    first_job,
                    jobs,
                    first_frame: None,
                    depth,
                    nested,
                });
            }
        }
    }

    /// Adds one job whose packet lies in `frame`.
    pub fn add_frame(
        &mut self,
        sa: &OutboundSa,
        meta: &OuterMeta,
        depth: u8,
        job: u32,
        frame: Frame,
    ) {
        let runs = self.runs.len();
        self.add_jobs(sa, meta, depth, job, 1);
        if let Some(run) = self.runs.get_mut(runs) {
            run.first_frame = Some(self.frames.len() as u32);
        }
        self.frames.push(frame);
    }
}
