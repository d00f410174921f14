//! The engine `pool`: helper threads seal and open batches while the workers continue with packets.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use esplanade_crypto::{EngineInfo, cpu};

use crate::engine_port::{EnginePort, PortQueue};
use esplanade_dataplane::EngineSource;
use esplanade_host::confine;

/// Each port has at most so many batches that the helpers hold or that the worker has not fetched.
const INFO: EngineInfo = EngineInfo {
    depth: 16,
    ..EngineInfo::AT_ONCE
};

/// The helper threads. Dropping the pool ends them after their current batch.
#[derive(Debug)]
pub struct EnginePool {
    queue: Arc<PortQueue>,
    threads: Vec<JoinHandle<()>>,
}

impl EnginePool {
    /// Starts the helpers. They hold each batch back for `delay`, which serves experiments.
    pub fn start(threads: usize, delay: Duration) -> io::Result<Self> {
        let mut pool = Self {
            queue: Arc::default(),
            threads: Vec::with_capacity(threads),
        };
        for index in 0..threads {
            let queue = Arc::clone(&pool.queue);
            let name = format!("engine-{index}");
            let helper = confine::start_writing(name, move || help(&queue, delay))?;
            pool.threads.push(helper);
        }
        Ok(pool)
    }

    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Opens a port, for one direction of a worker.
    #[cfg(test)]
    fn port(&self) -> io::Result<EnginePort> {
        EnginePort::new(Arc::clone(&self.queue), INFO)
    }

    /// Returns a source of engines, each of which is a port.
    pub fn source(&self) -> EngineSource {
        let queue = Arc::clone(&self.queue);
        EngineSource::new("pool", move || {
            let port = EnginePort::new(Arc::clone(&queue), INFO)?;
            Ok(Box::new(port))
        })
    }
}

impl Drop for EnginePool {
    fn drop(&mut self) {
        self.queue.stop();
        for helper in self.threads.drain(..) {
            if helper.join().is_err() {
                tracing::error!("a helper thread panicked");
            }
        }
    }
}

/// The loop of a helper thread.
fn help(queue: &PortQueue, delay: Duration) {
    while let Some(mut work) = queue.next() {
        if !delay.is_zero() {
            queue.pause(delay.saturating_sub(work.from.age()));
        }
        // The walk counts and drops the jobs that are not done.
        if catch_unwind(AssertUnwindSafe(|| cpu::process(&mut work.batch))).is_err() {
            tracing::error!("a helper thread panicked over a batch, and goes on");
        }
        work.from.finish(work.batch);
    }
}

#[cfg(test)]
mod tests;
