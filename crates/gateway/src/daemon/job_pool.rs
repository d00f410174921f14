//! The threads that run IKE's jobs, so that the control thread waits for no work with public keys.

use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self as std_mpsc, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
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
    finished: mpsc::Receiver<Finished>,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
}

impl Daemon {
    /// Takes the outcome of a job, and of all others that have ended.
    pub(super) fn on_finished(&mut self, finished: Finished, now: Instant) {
        let mut next = Some(finished);
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
        let start = |index| {
            let (waiting, to_daemon) = (Arc::clone(&waiting), to_daemon.clone());
            let work = move || work(&waiting, &to_daemon);
            confine::start_writing(format!("ike-{index}"), work)
        };
        Ok(Self {
            jobs,
            finished,
            threads: (0..threads).map(start).collect::<io::Result<_>>()?,
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
    pub async fn finished(&mut self) -> Finished {
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
        Some(finished)
    }

    /// Says whether all threads are there. One that has ended had a job whose SA waits for ever.
    pub fn runs(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }
}

/// The loop of a thread.
fn work(waiting: &Mutex<Receiver<Job>>, to_daemon: &mpsc::Sender<Finished>) {
    loop {
        let job = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(job) = job else { return };
        let begun = processor_time();
        let done = run_or_fail(job.failed(), || job.run());
        let cost = processor_time().saturating_sub(begun);
        if to_daemon.blocking_send((done, cost)).is_err() {
            return;
        }
    }
}

/// A job that panics has failed, so that what waits for it is refused.
fn run_or_fail<T>(failed: T, run: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|what| {
        // The payload of a panic may panic when it is dropped.
        std::mem::forget(what);
        tracing::error!("a thread for IKE panicked over a job, which has failed, and goes on");
        failed
    })
}

/// The time for which the calling thread has had a processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    /// A payload of a panic.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[test]
    fn a_job_that_panics_has_failed() {
        assert_eq!(run_or_fail("failed", || "done"), "done");
        assert_eq!(run_or_fail("failed", || panic!("by design")), "failed");
        assert_eq!(run_or_fail("failed", || panic_any(Bomb)), "failed");
    }

    /// One thread that has ended is enough: nobody else takes up what it had.
    #[test]
    fn a_pool_without_one_of_its_threads_does_not_run() {
        let mut pool = JobPool::start(2).unwrap();
        assert!(pool.runs());
        let ended = std::thread::spawn(|| ());
        while !ended.is_finished() {
            std::thread::yield_now();
        }
        pool.threads.push(ended);
        assert!(!pool.runs());
    }
}
