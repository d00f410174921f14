//! Data workers: plain threads that move packets between TUN queues and the sockets.
//!
//! A flow stays on one worker in each direction: the kernel steers outbound flows to a TUN queue by their hash, or as their
//! reverse flow was written ([`Queues`]), and what comes in to one of the workers' sockets by its SPI. Inside a worker
//! everything happens in order of arrival.
//!
//! A worker is a loop (`run`) around a data plane that knows no sockets, devices and clock (`plane`), its I/O (`host_io`)
//! and, where there is an FPGA core, an accelerator in front (`front`).

mod accelerator;
mod control;
mod core;
mod counters;
mod front;
mod host_io;
mod links;
mod packet_io;
#[cfg(test)]
mod pair;
mod paths;
mod plane;
mod port_user;
mod queues;
mod rate;
mod run;
mod sockets;
mod wakers;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use esplanade_ipsec::class::{Class, ClassQueue};
use esplanade_ipsec::{Database, Event, WalkCounters};
use tokio::sync::{mpsc, watch};

use crate::confine;

use control::WorkerControl;

pub use self::core::{AnyCore, CoreHandle, CoreReport};
pub use counters::{IoCounters, Load};
pub use links::LinkQueue;
pub use plane::{DummySa, DummySas, EngineHealth, EngineSource, Health, Processing};
pub(crate) use plane::{is_of_sa, size_limit};
pub use queues::{Interface, Queues};
pub use sockets::{
    BindError, IKE_PORT, IkeSender, ListenConfig, NAT_T_PORT, Sockets, WorkerSockets,
};

/// An IKE message from the network. On the NAT traversal port it still has its non-ESP marker.
#[derive(Debug)]
pub struct Datagram {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub payload: Vec<u8>,
}

/// Where a worker reports. Both queues are bounded: IKE messages that find theirs full are dropped, as the network
/// might have done; events wait.
#[derive(Debug, Clone)]
pub struct Reports {
    pub ike: mpsc::Sender<Datagram>,
    pub events: mpsc::Sender<Event>,
}

/// Milliseconds since the program's start, the time base of the SAs' last use.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn now_ms(&self) -> u64 {
        Self::ms(self.now_ns())
    }

    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn ms(ns: u64) -> u64 {
        // Begins at 1: 0 means "never".
        ns / 1_000_000 + 1
    }
}

/// What a worker works with.
#[derive(Debug)]
pub struct WorkerConfig {
    pub index: usize,
    /// All workers.
    pub count: usize,
    /// The processor to stay on.
    pub cpu: Option<usize>,
    pub clock: Clock,
    pub tun: Queues,
    /// TUN devices beside the common one.
    pub interfaces: Vec<Interface>,
    pub sockets: WorkerSockets,
    pub database: Arc<Database>,
    pub reports: Reports,
    /// Flows of each IP version to remember the decision of.
    pub flows: usize,
    pub processing: Processing,
    /// The FPGA core in front of the software path.
    pub core: Option<AnyCore>,
    /// One worker sends the dummies of all SAs.
    pub dummies: Option<watch::Receiver<DummySas>>,
    /// The first one is for all SAs that are not placed elsewhere: see [`esplanade_ipsec::placement`].
    pub engines: Vec<EngineSource>,
}

/// A running worker. Dropping it stops the thread and waits for it.
#[derive(Debug)]
pub struct Worker {
    pub io: Arc<IoCounters>,
    pub outbound: Arc<WalkCounters>,
    pub inbound: Arc<WalkCounters>,
    pub load: Arc<Load>,
    /// In the order of [`WorkerConfig::engines`].
    pub engines: Vec<EngineHealth>,
    /// Where there is a core.
    pub core: Option<CoreHandle>,
    control: Arc<WorkerControl>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn spawn(config: WorkerConfig) -> io::Result<Self> {
        let control = Arc::new(WorkerControl::new()?);
        let name = format!("worker-{}", config.index);
        let mut run = run::Run::new(config, Arc::clone(&control))?;
        let (io, [outbound, inbound]) = run.counters();
        let (load, engines) = (run.load(), run.engines());
        let core = run.core_handle();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            if let Err(error) = confine::working() {
                tracing::error!("cannot give up rights: {error}");
                return;
            }
            run.run();
        })?;
        Ok(Self {
            io,
            outbound,
            inbound,
            load,
            engines,
            core,
            control,
            thread: Some(thread),
        })
    }

    /// Asks the thread to end, without waiting.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// From now on it reads and writes these for the interface.
    pub fn replace_tun(&self, interface: u32, tun: Queues) {
        self.control.replace_tun(interface, tun);
    }

    /// Whether a TUN device has gone since the last call.
    pub fn has_lost_tun(&self) -> bool {
        self.control.take_lost_tun()
    }

    /// False once the thread has ended, by request or by an error.
    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a worker panicked");
        }
    }
}

/// Most events of a class that wait for the control thread.
const EVENTS_MAX: usize = 4096;
/// Events of higher classes that are told before one of a lower.
const EVENTS_PATIENCE: u64 = 64;

/// Events on their way to the control thread. What keeps tunnels up goes before requests for new ones, of which traffic
/// can make many.
#[derive(Debug)]
struct EventQueue {
    waiting: ClassQueue<Event>,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self {
            waiting: ClassQueue::new(EVENTS_MAX, EVENTS_PATIENCE),
        }
    }
}

impl EventQueue {
    /// False if the event had to be dropped.
    fn push(&mut self, event: Event) -> bool {
        let class = match event {
            Event::Acquire { .. } => Class::LOWEST,
            _ => Class::HIGHEST,
        };
        self.waiting.push(class, event).is_ok()
    }

    fn flush(&mut self, sender: &mpsc::Sender<Event>) {
        while !self.waiting.is_empty() {
            let permit = match sender.try_reserve() {
                Ok(permit) => permit,
                Err(mpsc::error::TrySendError::Full(())) => return,
                // The control thread ends, and this one soon.
                Err(mpsc::error::TrySendError::Closed(())) => {
                    self.waiting = Self::default().waiting;
                    return;
                }
            };
            if let Some((_, event)) = self.waiting.pop() {
                permit.send(event);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
