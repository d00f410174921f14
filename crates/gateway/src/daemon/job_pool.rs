//! The threads that run IKE's jobs, so that the control thread waits for no work with public keys.

use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self as std_mpsc, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use esplanade_ike::jobs::{Job, JobDone};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;

use super::Daemon;
use crate::confine;

/// The outcome of a job, and the time that it has taken a processor.
type Finished = (JobDone, Duration);

/// Each thread has one job at most. The others wait in the endpoint, which knows whose turn it is.
#[derive(Debug)]
pub struct JobPool {
    jobs: Sender<Job>,
    /// `None` stands for a job that has failed.
    finished: mpsc::Receiver<Option<Finished>>,
    idle: usize,
}

impl Daemon {
    /// Takes the outcome of a job, and of all others that have ended.
    pub(super) fn on_finished(&mut self, finished: Option<Finished>, now: Instant) {
        let mut next = finished;
        while let Some((done, cost)) = next {
            self.endpoint.job_done(now, done, cost);
            next = self.job_pool.next_finished();
        }
    }
}

/// A thread for each processor but the control thread's, and one at least.
pub fn usual_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    processors.saturating_sub(1).max(1)
}

impl JobPool {
    pub fn start(threads: usize) -> io::Result<Self> {
        // The process' first look at this clock takes a system call that is forbidden later.
        processor_time();
        let (jobs, waiting) = std_mpsc::channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let (to_daemon, finished) = mpsc::channel(threads);
        for index in 0..threads {
            let (waiting, to_daemon) = (Arc::clone(&waiting), to_daemon.clone());
            let work = move || work(&waiting, &to_daemon);
            confine::start_writing(format!("ike-{index}"), work)?;
        }
        Ok(Self {
            jobs,
            finished,
            idle: threads,
        })
    }

    pub fn has_idle_thread(&self) -> bool {
        self.idle > 0
    }

    pub fn run(&mut self, job: Job) {
        if self.jobs.send(job).is_ok() {
            self.idle -= 1;
        }
    }

    /// Waits for a job to end. It is safe to cancel.
    pub async fn finished(&mut self) -> Option<Finished> {
        let Some(finished) = self.finished.recv().await else {
            // No thread is left.
            return std::future::pending().await;
        };
        self.idle += 1;
        finished
    }

    /// Returns a job that has ended already.
    pub fn next_finished(&mut self) -> Option<Finished> {
        let finished = self.finished.try_recv().ok()?;
        self.idle += 1;
        finished
    }

    /// Says whether all threads are there.
    pub fn runs(&self) -> bool {
        !self.finished.is_closed()
    }
}

/// The loop of a thread.
fn work(waiting: &Mutex<Receiver<Job>>, to_daemon: &mpsc::Sender<Option<Finished>>) {
    loop {
        let job = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(job) = job else { return };
        let begun = processor_time();
        let done = catch_unwind(AssertUnwindSafe(|| job.run()));
        let cost = processor_time().saturating_sub(begun);
        if done.is_err() {
            tracing::error!("a thread for IKE panicked over a job, and goes on");
        }
        let finished = done.ok().map(|done| (done, cost));
        if to_daemon.blocking_send(finished).is_err() {
            return;
        }
    }
}

/// The time for which the calling thread has had a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
