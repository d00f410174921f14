//! Data workers: threads that move packets between TUN queues and sockets. They run the data plane
//! and negotiate nothing.
//!
//! In each direction, a flow stays on one worker. The kernel chooses the TUN queue of an outbound
//! flow: by a hash, or as its reverse flow was written ([`TunQueues`]). The SPI chooses the worker of
//! an inbound packet. Inside a worker, packets stay in the order of their arrival.
//!
//! A worker is a loop (`run`) around a data plane that knows no socket, device or clock (`plane`).
//! `host_io` is its I/O. A device may stand in front (`front`), such as the FPGA core (`core`).

#![forbid(unsafe_code)]

mod control;
#[cfg(esp_core_simulated)]
mod core;
mod core_counters;
mod devices;
mod events;
mod front;
mod host_io;
mod links;
mod paths;
mod port_user;
mod queues;
mod run;
mod sockets;
mod unreachable;
mod wakers;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use esplanade_dataplane::{DummySource, ms};
use esplanade_engines::EngineHost;
use esplanade_ipsec::{Database, Event, WalkCounters};
use tokio::sync::{mpsc, watch};

use esplanade_host::confine;

use control::{LinkChange, TunChange, WorkerControl};

#[cfg(esp_core_simulated)]
pub use self::core::core_front;
pub use core_counters::core_counters;
pub use devices::{OpenDevice, add_device, open_device};
pub use esplanade_dataplane::counters::{IoCounters, WorkerLoad};
pub use esplanade_dataplane::datagram::IkeDatagram;
pub use esplanade_dataplane::{
    DummySa, DummySas, EngineHealth, EngineSource, Health, Processing, is_of_sa, size_limit,
};
pub use front::{DeviceParts, DeviceWaker, Front};
pub use links::LinkQueue;
pub use queues::{TunInterface, TunQueues};
pub use sockets::{
    BindError, IKE_PORT, IkeSender, ListenConfig, NAT_T_PORT, Sockets, WorkerSockets,
};
pub use unreachable::UnreachablePeers;

/// The queues to which a worker reports. Both queues are bounded. An IKE message that finds its queue full is dropped,
/// as the network might have done; an event waits.
#[derive(Debug, Clone)]
pub struct WorkerReports {
    pub ike: mpsc::Sender<IkeDatagram>,
    pub events: mpsc::Sender<Event>,
}

/// Milliseconds since the program's start. The last use of an SA is measured in this time.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn now_ms(&self) -> u64 {
        ms(self.now_ns())
    }

    fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// The SAs that send dummies, as the control thread publishes them.
#[derive(Debug)]
pub struct DummyList(watch::Receiver<DummySas>);

impl DummyList {
    pub fn new(mut published: watch::Receiver<DummySas>) -> Self {
        // A worker that starts later takes the list that is there.
        published.mark_changed();
        Self(published)
    }
}

impl DummySource for DummyList {
    fn take_new(&mut self) -> Option<DummySas> {
        let is_new = matches!(self.0.has_changed(), Ok(true));
        is_new.then(|| self.0.borrow_and_update().clone())
    }
}

/// Everything that a worker needs.
#[derive(Debug)]
pub struct WorkerConfig {
    pub index: usize,
    /// Number of workers.
    pub count: usize,
    /// The CPU to which the worker is bound.
    pub cpu: Option<usize>,
    pub clock: Clock,
    pub tun: TunQueues,
    /// TUN devices besides the common one.
    pub interfaces: Vec<TunInterface>,
    pub sockets: WorkerSockets,
    pub database: Arc<Database>,
    pub reports: WorkerReports,
    /// The number of flows of each IP version that the flow cache holds.
    pub flows: usize,
    pub processing: Processing,
    /// The device in front of the software path.
    pub front: Option<Front>,
    /// The SAs that send dummy packets. One worker sends the dummies of all SAs; the others have
    /// `None`.
    pub dummies: Option<watch::Receiver<DummySas>>,
    /// The engines. The first engine serves every SA that was not placed elsewhere: see
    /// [`esplanade_ipsec::placement`].
    pub engines: Vec<EngineSource>,
}

/// A running worker. Dropping it stops the thread and waits for it.
#[derive(Debug)]
pub struct Worker {
    pub io: Arc<IoCounters>,
    pub outbound: Arc<WalkCounters>,
    pub inbound: Arc<WalkCounters>,
    pub load: Arc<WorkerLoad>,
    /// State of the engines, in the order of [`WorkerConfig::engines`].
    pub engines: Vec<EngineHealth>,
    /// The device in front, if this worker has one.
    pub device: Option<Arc<dyn EngineHost>>,
    control: Arc<WorkerControl>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub fn spawn(config: WorkerConfig) -> io::Result<Self> {
        let control = Arc::new(WorkerControl::new()?);
        let name = format!("worker-{}", config.index);
        let mut run = run::WorkerLoop::new(config, Arc::clone(&control))?;
        let (io, [outbound, inbound]) = run.counters();
        let (load, engines) = (run.load(), run.engines());
        let device = run.take_device();
        let thread = confine::start_working(name, move || run.run())?;
        Ok(Self {
            io,
            outbound,
            inbound,
            load,
            engines,
            device,
            control,
            thread: Some(thread),
        })
    }

    /// Asks the thread to end. Does not wait.
    pub fn stop(&self) {
        self.control.stop();
    }

    /// From now on the worker uses this device for its interface.
    pub fn set_tun(&self, tun: TunInterface) {
        self.control.change_tun(TunChange::Set(tun));
    }

    /// From now on the worker has no device for this interface.
    pub fn remove_tun(&self, interface: u32) {
        self.control.change_tun(TunChange::Remove(interface));
    }

    /// From now on the worker uses this queue for the link of its name, if it had one at the start.
    pub fn give_link(&self, queue: LinkQueue) {
        self.control.change_link(LinkChange::Set(Box::new(queue)));
    }

    /// From now on the worker has no queue of this link, which is gone.
    pub fn lose_link(&self, name: &str) {
        self.control.change_link(LinkChange::Lose(name.to_owned()));
    }

    /// Tells whether a TUN device has gone since the last call.
    pub fn has_lost_tun(&self) -> bool {
        self.control.take_lost_tun()
    }

    /// Returns false once the thread has ended, on request or after an error.
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
