//! What the outbound walk knows about a batch that the engine does not need.

use std::sync::Arc;

use crate::circulation;
use crate::drop_reason::DropReason;
use crate::sa::OutboundSa;
use crate::tunnel::OuterMeta;

/// Consecutive jobs of one SA with the same outer header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub sa: u32,
    pub meta: OuterMeta,
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
    pub sas: Vec<Arc<OutboundSa>>,
    pub frames: Vec<Frame>,
    pub saved: Vec<u8>,
}

impl circulation::Side for Side {
    fn clear(&mut self) {
        self.runs.clear();
        self.sas.clear();
        self.frames.clear();
        self.saved.clear();
    }

    fn count_drops(&self, reason: DropReason) {
        for run in &self.runs {
            if let Some(sa) = self.sas.get(run.sa as usize) {
                sa.common.drops.add(reason, run.jobs.into());
            }
        }
    }
}

impl Side {
    pub fn sa(&self, run: &Run) -> Option<&Arc<OutboundSa>> {
        self.sas.get(run.sa as usize)
    }

    pub fn frame(&self, run: &Run, job_in_run: usize) -> Option<&Frame> {
        self.frames.get(run.first_frame? as usize + job_in_run)
    }

    pub fn add_jobs(
        &mut self,
        sa: &Arc<OutboundSa>,
        meta: &OuterMeta,
        depth: u8,
        first_job: u32,
        jobs: u32,
    ) {
        let same_sa = self.sas.last().is_some_and(|last| Arc::ptr_eq(last, sa));
        if !same_sa {
            self.sas.push(Arc::clone(sa));
        }
        match self.runs.last_mut() {
            Some(run) if same_sa && run.depth == depth && run.meta == *meta => run.jobs += jobs,
            _ => self.runs.push(Run {
                sa: (self.sas.len() - 1) as u32,
                meta: *meta,
                first_job,
                jobs,
                first_frame: None,
                depth,
                nested: sa.next.is_some(),
            }),
        }
    }

    /// Adds one job whose packet lies in `frame`.
    pub fn add_frame(
        &mut self,
        sa: &Arc<OutboundSa>,
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
