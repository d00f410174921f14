//! The engine `pool`: helper threads seal and open batches while the workers continue with packets.
//!
//! Every worker has a port for each direction. The helpers take batches of all ports in the order
//! of submission. A port returns its batches in the same order, so the packets of an SA stay in
//! order.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use esplanade_crypto::{Batch, Engine, EngineInfo, RejectReason, Rejected, cpu};

use crate::confine;
use crate::io::sys::EventFd;
use crate::worker::EngineSource;

/// Most batches of a port that the helpers hold or that the worker has not fetched.
const DEPTH: usize = 16;

/// The helper threads. Dropping the pool ends them after their current batch.
#[derive(Debug)]
pub struct EnginePool {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct PoolShared {
    queue: Mutex<BatchQueue>,
    work: Condvar,
    /// Wakes helpers that delay a batch, when the pool ends.
    end: Condvar,
    delay: Duration,
}

/// The queue of all ports. It is bounded because each port is bounded.
#[derive(Debug, Default)]
struct BatchQueue {
    waiting: VecDeque<PoolWork>,
    stopped: bool,
}

#[derive(Debug)]
struct PoolWork {
    batch: Batch,
    ticket: u64,
    due: Option<Instant>,
    of: Arc<PortResults>,
}

/// The results for one port.
#[derive(Debug)]
struct PortResults {
    ring: Mutex<ResultRing>,
    ready: EventFd,
}

#[derive(Debug, Default)]
struct ResultRing {
    /// The batches by ticket. `None` means that a helper has the batch.
    batches: VecDeque<Option<Batch>>,
    /// The ticket of the first batch.
    first: u64,
    /// The descriptor `ready` is readable.
    signalled: bool,
}

/// The port by which one worker uses the pool, for one direction.
#[derive(Debug)]
pub struct PoolPort {
    shared: Arc<PoolShared>,
    results: Arc<PortResults>,
}

impl EnginePool {
    /// Starts the helpers. They hold each batch back for `delay`, which serves experiments.
    pub fn start(threads: usize, delay: Duration) -> io::Result<Self> {
        let shared = Arc::new(PoolShared {
            queue: Mutex::default(),
            work: Condvar::new(),
            end: Condvar::new(),
            delay,
        });
        let mut pool = Self {
            shared,
            threads: Vec::with_capacity(threads),
        };
        for index in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let name = format!("engine-{index}");
            let helper = std::thread::Builder::new().name(name).spawn(move || {
                if let Err(error) = confine::writing() {
                    tracing::error!("cannot give up rights: {error}");
                    return;
                }
                help(&shared);
            })?;
            pool.threads.push(helper);
        }
        Ok(pool)
    }

    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Opens a port, for one direction of a worker.
    pub fn port(&self) -> io::Result<PoolPort> {
        PoolPort::new(Arc::clone(&self.shared))
    }

    /// Returns a source of engines, each of which is a port.
    pub fn source(&self) -> EngineSource {
        let shared = Arc::clone(&self.shared);
        EngineSource::new("pool", move || {
            let port = PoolPort::new(Arc::clone(&shared))?;
            Ok(Box::new(port))
        })
    }
}

impl Drop for EnginePool {
    fn drop(&mut self) {
        lock(&self.shared.queue).stopped = true;
        self.shared.work.notify_all();
        self.shared.end.notify_all();
        for helper in self.threads.drain(..) {
            if helper.join().is_err() {
                tracing::error!("a helper thread panicked");
            }
        }
    }
}

impl PoolPort {
    fn new(shared: Arc<PoolShared>) -> io::Result<Self> {
        let results = PortResults {
            ring: Mutex::default(),
            ready: EventFd::new()?,
        };
        let results = Arc::new(results);
        Ok(Self { shared, results })
    }
}

impl Drop for PoolPort {
    /// Removes the waiting batches of this port from the queue: nobody will fetch them.
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        let is_of_others = |work: &PoolWork| !Arc::ptr_eq(&work.of, &self.results);
        queue.waiting.retain(is_of_others);
    }
}

impl Engine for PoolPort {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        let mut ring = lock(&self.results.ring);
        if ring.batches.len() == DEPTH {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        let mut queue = lock(&self.shared.queue);
        if queue.stopped {
            let reason = RejectReason::OutOfService;
            return Err(Rejected { batch, reason });
        }
        let delay = Some(self.shared.delay).filter(|delay| !delay.is_zero());
        queue.waiting.push_back(PoolWork {
            batch,
            ticket: ring.first + ring.batches.len() as u64,
            due: delay.map(|delay| Instant::now() + delay),
            of: Arc::clone(&self.results),
        });
        ring.batches.push_back(None);
        drop((queue, ring));
        self.shared.work.notify_one();
        Ok(())
    }

    fn poll(&mut self) -> Option<Batch> {
        let mut ring = lock(&self.results.ring);
        let batch = ring.batches.front_mut().and_then(Option::take);
        if batch.is_some() {
            ring.batches.pop_front();
            ring.first += 1;
        } else if ring.signalled {
            ring.signalled = false;
            self.results.ready.clear();
        }
        batch
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.results.ready.as_fd())
    }

    fn info(&self) -> EngineInfo {
        EngineInfo {
            depth: DEPTH,
            ..EngineInfo::AT_ONCE
        }
    }
}

impl PortResults {
    fn finish(&self, ticket: u64, batch: Batch) {
        let mut ring = lock(&self.ring);
        let place = ticket.checked_sub(ring.first);
        let place = place.and_then(|place| ring.batches.get_mut(place as usize));
        if let Some(place) = place {
            *place = Some(batch);
        }
        // Only the first batch can be returned, so a later one does not wake the worker.
        let is_due = ring.batches.front().is_some_and(Option::is_some);
        if is_due && !ring.signalled {
            ring.signalled = true;
            self.ready.notify();
        }
    }
}

/// The loop of a helper thread.
fn help(shared: &PoolShared) {
    while let Some(work) = next(shared) {
        let PoolWork {
            mut batch,
            ticket,
            due,
            of,
        } = work;
        if let Some(wait) = due.and_then(|due| due.checked_duration_since(Instant::now())) {
            let goes_on = |queue: &mut BatchQueue| !queue.stopped;
            let queue = lock(&shared.queue);
            drop(shared.end.wait_timeout_while(queue, wait, goes_on));
        }
        // The walk counts and drops the jobs that are not done.
        if catch_unwind(AssertUnwindSafe(|| cpu::process(&mut batch))).is_err() {
            tracing::error!("a helper thread panicked over a batch, and goes on");
        }
        of.finish(ticket, batch);
    }
}

/// Waits for the next batch. Returns `None` when the pool ends.
fn next(shared: &PoolShared) -> Option<PoolWork> {
    let mut queue = lock(&shared.queue);
    loop {
        if queue.stopped {
            return None;
        }
        if let Some(work) = queue.waiting.pop_front() {
            return Some(work);
        }
        let woken = shared.work.wait(queue);
        queue = woken.unwrap_or_else(PoisonError::into_inner);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
