//! Ports of engines that work in threads of their own.
//!
//! Every worker has a port for each direction. The engine's threads take batches of all ports in the order of
//! submission. A port returns its batches in the same order, so the packets of an SA stay in order.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use esplanade_crypto::{Arena, Batch, Engine, EngineInfo, RejectReason, Rejected};

use crate::latency::LatencyCounters;
use esplanade_host::io::sys::EventFd;

/// The queue of all ports. It is bounded because each port is bounded.
#[derive(Debug, Default)]
pub struct PortQueue {
    state: Mutex<QueueState>,
    work: Condvar,
    /// Wakes threads that pause, when the queue is stopped.
    end: Condvar,
    /// The queue is stopped. Workers look at it often, and take no lock for it.
    is_stopped: AtomicBool,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<PortWork>,
    stopped: bool,
    /// Somebody wants the threads to look at something else than batches.
    woken: bool,
}

/// A batch with the port that it comes from.
#[derive(Debug)]
pub struct PortWork {
    pub batch: Batch,
    pub from: PortPlace,
}

/// The place of a batch among those of its port.
#[derive(Debug)]
pub struct PortPlace {
    number: u64,
    /// When the batch was submitted.
    since: Instant,
    latency: Option<Arc<LatencyCounters>>,
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
    /// The batches by ticket. `None` means that the engine has the batch.
    batches: VecDeque<Option<Batch>>,
    /// The ticket of the first batch.
    first: u64,
    /// The descriptor `ready` is readable.
    signalled: bool,
}

/// Returns memory for batches of so many bytes, if the engine has some that serves it better than the heap.
pub type ArenaSource = Arc<dyn Fn(usize) -> Option<Arena> + Send + Sync>;

/// The port by which one worker uses the engine, for one direction.
pub struct EnginePort {
    queue: Arc<PortQueue>,
    results: Arc<PortResults>,
    info: EngineInfo,
    arenas: Option<ArenaSource>,
    /// Counts the batches, if somebody wants to know how long the engine has them.
    latency: Option<Arc<LatencyCounters>>,
}

impl PortQueue {
    /// Waits for the next batch. Returns `None` when the queue is stopped.
    pub fn next(&self) -> Option<PortWork> {
        let mut state = lock(&self.state);
        loop {
            if state.stopped {
                return None;
            }
            if let Some(work) = state.waiting.pop_front() {
                return Some(work);
            }
            let woken = self.work.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the waiting batches that `wants` returns true for. It sees them in the order of submission.
    pub fn take(&self, mut wants: impl FnMut(&Batch) -> bool) -> Vec<PortWork> {
        let mut state = lock(&self.state);
        let mut taken = Vec::new();
        let mut left = VecDeque::with_capacity(state.waiting.len());
        for work in state.waiting.drain(..) {
            if wants(&work.batch) {
                taken.push(work);
            } else {
                left.push_back(work);
            }
        }
        state.waiting = left;
        taken
    }

    /// Waits for batches, if `for_batches`, or for a wake, but not longer than this. Returns false when the queue is
    /// stopped.
    pub fn wait(&self, for_batches: bool, longest: Duration) -> bool {
        let sleeps = |state: &mut QueueState| {
            !state.stopped && !state.woken && (!for_batches || state.waiting.is_empty())
        };
        let state = lock(&self.state);
        let woken = self.work.wait_timeout_while(state, longest, sleeps);
        let (mut state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        state.woken = false;
        !state.stopped
    }

    /// Waits for a while, or until the queue is stopped.
    pub fn pause(&self, longest: Duration) {
        let state = lock(&self.state);
        let goes_on = |state: &mut QueueState| !state.stopped;
        drop(self.end.wait_timeout_while(state, longest, goes_on));
    }

    /// Wakes a thread in [`PortQueue::wait`].
    pub fn wake(&self) {
        lock(&self.state).woken = true;
        self.work.notify_all();
    }

    /// Refuses batches from now on. Threads that wait return.
    pub fn stop(&self) {
        lock(&self.state).stopped = true;
        self.is_stopped.store(true, Ordering::Relaxed);
        self.work.notify_all();
        self.end.notify_all();
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting.len()
    }
}

impl EnginePort {
    pub fn new(queue: Arc<PortQueue>, info: EngineInfo) -> io::Result<Self> {
        let results = PortResults {
            ring: Mutex::default(),
            ready: EventFd::new()?,
        };
        let results = Arc::new(results);
        Ok(Self {
            queue,
            results,
            info,
            arenas: None,
            latency: None,
        })
    }

    /// Lets the port's batches lie where the engine wants them.
    pub fn with_arenas(mut self, arenas: ArenaSource) -> Self {
        self.arenas = Some(arenas);
        self
    }

    /// Counts for how long the engine has the port's batches.
    pub fn with_latency(mut self, latency: Arc<LatencyCounters>) -> Self {
        self.latency = Some(latency);
        self
    }
}

impl Drop for EnginePort {
    /// Removes the waiting batches of this port from the queue: nobody will fetch them.
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        let is_of_others = |work: &PortWork| !Arc::ptr_eq(&work.from.of, &self.results);
        state.waiting.retain(is_of_others);
    }
}

impl Engine for EnginePort {
    fn submit(&mut self, batch: Batch) -> Result<(), Rejected> {
        let mut ring = lock(&self.results.ring);
        if ring.batches.len() == self.info.depth {
            let reason = RejectReason::Full;
            return Err(Rejected { batch, reason });
        }
        let mut state = lock(&self.queue.state);
        if state.stopped {
            let reason = RejectReason::OutOfService;
            return Err(Rejected { batch, reason });
        }
        state.waiting.push_back(PortWork {
            batch,
            from: PortPlace {
                number: ring.first + ring.batches.len() as u64,
                since: Instant::now(),
                latency: self.latency.clone(),
                of: Arc::clone(&self.results),
            },
        });
        ring.batches.push_back(None);
        let is_filled = ring.batches.len() == self.info.depth;
        drop((state, ring));
        if let Some(latency) = self.latency.as_ref().filter(|_| is_filled) {
            latency.count_filled();
        }
        self.queue.work.notify_one();
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

    fn is_out_of_service(&self) -> bool {
        self.queue.is_stopped.load(Ordering::Relaxed)
    }

    fn info(&self) -> EngineInfo {
        self.info
    }

    fn arena(&self, len: usize) -> Arena {
        let engines_own = self.arenas.as_ref().and_then(|arenas| arenas(len));
        engines_own.unwrap_or_else(|| Arena::heap(len))
    }
}

impl std::fmt::Debug for EnginePort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnginePort")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

impl PortPlace {
    /// Returns how long the engine has had the batch.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Gives the batch back to its port.
    pub fn finish(self, batch: Batch) {
        if let Some(latency) = &self.latency {
            latency.count(self.age());
        }
        let mut ring = lock(&self.of.ring);
        let place = self.number.checked_sub(ring.first);
        let place = place.and_then(|place| ring.batches.get_mut(place as usize));
        if let Some(place) = place {
            *place = Some(batch);
        }
        // Only the first batch can be returned, so a later one does not wake the worker.
        let is_due = ring.batches.front().is_some_and(Option::is_some);
        if is_due && !ring.signalled {
            ring.signalled = true;
            self.of.ready.notify();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
