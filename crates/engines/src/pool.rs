//! The engine `pool`: helper threads seal and open batches while the workers continue with packets.

use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use esplanade_crypto::{EngineInfo, cpu};

use crate::engine_port::{EnginePort, PortQueue};
use crate::host::{EngineHost, HostReport, StartError};
use crate::trials::Trials;
use esplanade_config::GatewayConfig;
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

    /// Opens a port, for one direction of a worker.
    #[cfg(test)]
    fn port(&self) -> io::Result<EnginePort> {
        EnginePort::new(Arc::clone(&self.queue), INFO)
    }
}

impl EngineHost for EnginePool {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn source(&self) -> Option<EngineSource> {
        let queue = Arc::clone(&self.queue);
        Some(EngineSource::new(self.name(), move || {
            let port = EnginePort::new(Arc::clone(&queue), INFO)?;
            Ok(Box::new(port))
        }))
    }

    fn has_tiers(&self) -> bool {
        true
    }

    fn report(&self) -> HostReport {
        let threads = self.threads.len();
        HostReport {
            detail: Some(format!("threads: {threads}")),
            ..HostReport::default()
        }
        .with("threads", &threads)
    }
}

/// Starts the pool, if the configuration has one. By default it has a helper for each processor that no worker has, and
/// at least one.
pub(crate) fn start(
    config: &GatewayConfig,
    trials: &Trials,
) -> Result<Option<Arc<dyn EngineHost>>, StartError> {
    if !config.has_pool() {
        return Ok(None);
    }
    let spare = || {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        processors.saturating_sub(config.workers).max(1)
    };
    let threads = config.pool_threads.unwrap_or_else(spare);
    let pool = EnginePool::start(threads, trials.pool_delay);
    let pool =
        pool.map_err(|error| StartError::new(format!("cannot start a helper thread: {error}")))?;
    Ok(Some(Arc::new(pool)))
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
