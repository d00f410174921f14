//! The FPGA core in front of a worker's software path. The worker alone drives it; the control thread asks the worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use esplanade_fpga::core::{Counters, FRAME_MAX};
use esplanade_fpga::inline::{Refused, Sealed, Sent};
use esplanade_fpga::{CoreError, Device, InLine, Lane};
use esplanade_ipsec::pmtu::PathMtus;
use esplanade_ipsec::sa::{InboundSa, OutboundSa};
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::{Database, Event, WalkCounters};
use zeroize::Zeroizing;

use super::Stop;

/// Any device with the core.
pub type AnyCore = InLine<Box<dyn Device>>;

/// How often the core is told of what changes without the control thread: narrow paths, SAs that nobody has any more.
const FOLLOW_MS: u64 = 500;

type Job = Box<dyn FnOnce(&mut Driver) + Send>;

/// What the control thread asks through.
#[derive(Clone, Debug)]
pub struct CoreHandle {
    jobs: Sender<Job>,
    stop: Arc<Stop>,
}

/// An SA and its key.
pub type Keyed<S> = (Arc<S>, Zeroizing<Vec<u8>>);

/// How the core is.
#[derive(Clone, Debug, Default)]
pub struct CoreReport {
    /// Why it carries nothing any more.
    pub failed: Option<String>,
    /// Outbound, inbound.
    pub counters: [Counters; 2],
    /// Rows that hold an SA: outbound, inbound.
    pub installed: (usize, usize),
}

impl CoreHandle {
    /// None if the worker has ended.
    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Driver) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = sync_channel(1);
        let job = move |driver: &mut Driver| {
            // Nobody waits where the control thread has ended.
            let _ = answer.send(job(driver));
        };
        self.jobs.send(Box::new(job)).ok()?;
        self.stop.wake.notify();
        answered.recv().ok()
    }

    /// Puts both halves of a child SA into the core, or neither; the text says why. It is used from the next
    /// [`Self::follow`] on.
    pub fn install(
        &self,
        outbound: Keyed<OutboundSa>,
        inbound: Keyed<InboundSa>,
    ) -> Result<(), String> {
        let installed = self.ask(move |driver| driver.install(&outbound, &inbound));
        installed.unwrap_or_else(|| Err("the worker has ended".to_owned()))
    }

    /// The core's tables become what SPD and SAD say now.
    pub fn follow(&self) {
        self.ask(Driver::follow);
    }

    pub fn report(&self) -> CoreReport {
        self.ask(Driver::report).unwrap_or_default()
    }
}

/// The core as its worker has it.
#[derive(Debug)]
pub(super) struct Driver {
    core: AnyCore,
    jobs: Receiver<Job>,
    database: Arc<Database>,
    paths: Arc<PathMtus>,
    outbound: Arc<WalkCounters>,
    inbound: Arc<WalkCounters>,
    /// Of the last packets that the core has sealed, and those that it gave back.
    sealed: Vec<(Sealed, Vec<u8>)>,
    returned: Vec<Vec<u8>>,
    opened: Vec<Vec<u8>>,
    /// Datagrams for the inbound lane.
    waiting: Vec<(Vec<u8>, OuterFacts)>,
    pub events: Vec<Event>,
    frame: Vec<u8>,
    failed: Option<CoreError>,
    /// Why the tables could not follow, which is said once.
    lagging: Option<CoreError>,
    /// Packets were given to it since it was last let work.
    busy: bool,
    followed_ms: u64,
    now_ms: u64,
}

impl Driver {
    pub fn new(
        core: AnyCore,
        stop: Arc<Stop>,
        database: Arc<Database>,
        paths: Arc<PathMtus>,
        [outbound, inbound]: [Arc<WalkCounters>; 2],
    ) -> (Self, CoreHandle) {
        let (to_jobs, jobs) = channel();
        let mut driver = Self {
            core,
            jobs,
            database,
            paths,
            outbound,
            inbound,
            sealed: Vec::new(),
            returned: Vec::new(),
            opened: Vec::new(),
            waiting: Vec::new(),
            events: Vec::new(),
            frame: Vec::new(),
            failed: None,
            lagging: None,
            busy: false,
            followed_ms: 0,
            now_ms: 0,
        };
        driver.follow();
        (
            driver,
            CoreHandle {
                jobs: to_jobs,
                stop,
            },
        )
    }

    /// Does what the control thread has asked for.
    pub fn serve(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            job(self);
        }
    }

    pub fn keep_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        if now_ms.saturating_sub(self.followed_ms) >= FOLLOW_MS {
            self.follow();
        }
    }

    /// Whether packets are to go to it.
    pub fn works(&self) -> bool {
        self.failed.is_none()
    }

    /// Whether an inbound packet of this SPI is for the core. Its SA lives there alone, so also when it does not work.
    pub fn opens(&self, spi: u32) -> bool {
        self.core.opens(spi)
    }

    /// From here on nothing goes through the core. Its SAs end: those that replace them are made without it.
    fn fail(&mut self, error: CoreError) {
        if self.failed.is_some() {
            return;
        }
        tracing::error!("the FPGA core is given up and its SAs carry nothing any more: {error}");
        self.failed = Some(error);
        self.events.extend(self.core.lost());
        self.sealed.clear();
        self.opened.clear();
    }

    fn install(
        &mut self,
        (outbound, key_out): &Keyed<OutboundSa>,
        (inbound, key_in): &Keyed<InboundSa>,
    ) -> Result<(), String> {
        if let Some(error) = self.failed {
            return Err(format!("it has failed: {error}"));
        }
        let installed = self.core.install(outbound, key_out, inbound, key_in);
        installed.map_err(|refused| {
            if let Refused::Core(error @ (CoreError::Bus(_) | CoreError::NotSealed)) = refused {
                self.fail(error);
            }
            refused.to_string()
        })
    }

    fn follow(&mut self) {
        self.followed_ms = self.now_ms;
        if self.failed.is_some() {
            return;
        }
        let (paths, now_ms) = (&self.paths, self.now_ms);
        self.core.set_path_mtus(|remote| paths.mtu(remote, now_ms));
        let lagging = match self.core.follow(&self.database.spd()) {
            Ok(()) => None,
            Err(error @ CoreError::Policies { .. }) => Some(error),
            Err(error) => return self.fail(error),
        };
        if lagging != self.lagging
            && let Some(error) = lagging
        {
            tracing::error!("the FPGA core discards everything: {error}");
        }
        self.lagging = lagging;
    }

    fn report(&mut self) -> CoreReport {
        let counters = |core: &mut AnyCore| -> Result<_, CoreError> {
            Ok([
                core.counters(Lane::Outbound)?,
                core.counters(Lane::Inbound)?,
            ])
        };
        let counters = match self.works().then(|| counters(&mut self.core)) {
            Some(Ok(counters)) => counters,
            Some(Err(error)) => {
                self.fail(error);
                Default::default()
            }
            None => Default::default(),
        };
        CoreReport {
            failed: self.failed.map(|error| error.to_string()),
            counters,
            installed: self.core.installed(),
        }
    }

    /// Gives the outbound lane a clear packet, which the walk may have counted. False if it takes none now, or never.
    pub fn send(&mut self, packet: &[u8], counted: bool) -> bool {
        if !self.works() || packet.len() > FRAME_MAX {
            return false;
        }
        let sent = self.core.send(packet);
        let sent = sent.unwrap_or_else(|error| {
            self.fail(error);
            false
        });
        self.busy |= sent;
        if sent && !counted {
            self.outbound.packets_in.fetch_add(1, Ordering::Relaxed);
            let bytes = packet.len() as u64;
            self.outbound.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        }
        sent
    }

    /// Keeps a datagram for the inbound lane.
    pub fn keep(&mut self, esp: &[u8], facts: OuterFacts) {
        self.inbound.packets_in.fetch_add(1, Ordering::Relaxed);
        let bytes = esp.len() as u64;
        self.inbound.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        self.waiting.push((esp.to_vec(), facts));
    }

    /// Gives the inbound lane what was kept. The number of those that the core did not take.
    pub fn open_kept(&mut self) -> u64 {
        let mut refused = 0;
        for (esp, facts) in std::mem::take(&mut self.waiting) {
            let opened = self.open(&esp, &facts) || {
                self.work();
                self.open(&esp, &facts)
            };
            refused += u64::from(!opened);
        }
        refused
    }

    fn open(&mut self, esp: &[u8], facts: &OuterFacts) -> bool {
        if !self.works() {
            return false;
        }
        let opened = self.core.open(esp, facts).unwrap_or_else(|error| {
            self.fail(error);
            false
        });
        self.busy |= opened;
        opened
    }

    /// Has the core work on what it was given, and takes what it has done.
    pub fn work(&mut self) {
        if !self.busy || !self.works() {
            return;
        }
        self.busy = false;
        self.core.work();
        if let Err(error) = self.take() {
            self.fail(error);
        }
    }

    fn take(&mut self) -> Result<(), CoreError> {
        while let Some((sent, event)) = self.core.sent(&mut self.frame, self.now_ms)? {
            self.events.extend(event);
            let frame = std::mem::take(&mut self.frame);
            let bytes = frame.len() as u64;
            match sent {
                Sent::Sealed(sealed) => {
                    self.outbound.packets_out.fetch_add(1, Ordering::Relaxed);
                    let bytes = bytes - sealed.header_len as u64;
                    self.outbound.bytes_out.fetch_add(bytes, Ordering::Relaxed);
                    self.sealed.push((sealed, frame));
                }
                Sent::ToHost => {
                    // The software path counts it once more.
                    self.outbound.packets_in.fetch_sub(1, Ordering::Relaxed);
                    self.outbound.bytes_in.fetch_sub(bytes, Ordering::Relaxed);
                    self.returned.push(frame);
                }
                Sent::Expired => self
                    .outbound
                    .drops
                    .add(esplanade_ipsec::DropReason::LifetimeExpired, 1),
            }
        }
        while let Some((_, event)) = self.core.opened(&mut self.frame, self.now_ms)? {
            self.events.extend(event);
            let packet = std::mem::take(&mut self.frame);
            self.inbound.packets_out.fetch_add(1, Ordering::Relaxed);
            let bytes = packet.len() as u64;
            self.inbound.bytes_out.fetch_add(bytes, Ordering::Relaxed);
            self.opened.push(packet);
        }
        while let Some(event) = self.core.next_event()? {
            self.events.push(event);
        }
        Ok(())
    }

    /// What was sealed since the last call.
    pub fn take_sealed(&mut self) -> Vec<(Sealed, Vec<u8>)> {
        std::mem::take(&mut self.sealed)
    }

    /// What the software path is to deal with.
    pub fn take_returned(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.returned)
    }

    /// What was opened since the last call.
    pub fn take_opened(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.opened)
    }
}
