//! Drives the FPGA core as an accelerator. Only the worker touches the core; the control thread
//! sends it jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::Duration;

use esplanade_config::{EngineKind, GatewayConfig, SaOptions};
use esplanade_dataplane::EngineSource;
use esplanade_dataplane::accelerator::{Accelerator, SealedByDevice};
use esplanade_engines::stats::CoreCounters;
use esplanade_engines::{ChildSaDevice, EngineHost, HostReport, StartError};
use esplanade_fpga::core::{FRAME_MAX, LaneCounters};
use esplanade_fpga::inline::{InstallRefused, Opened, OutboundOutcome};
use esplanade_fpga::{CoreError, Device, InLine, Lane};
use esplanade_ipsec::pmtu::PathMtus;
use esplanade_ipsec::sa::{InboundSa, OutboundSa};
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::{Database, DropReason, Event, WalkCounters};

use super::core_counters::core_counters;
use super::front::{DeviceParts, DeviceWaker, Front};

/// The only device that there is so far.
const SIMULATED: &str = "simulated";

/// Any device that contains the core.
type AnyCore = InLine<Box<dyn Device>>;

/// The interval, in milliseconds, at which the core's tables follow changes that the control thread does not announce.
/// These changes are path MTUs, and SAs that nobody uses.
const FOLLOW_MS: u64 = 500;

/// The core is given up if it takes no frame for this long, in milliseconds.
const STALLED_MS: u64 = 5_000;

type CoreJob = Box<dyn FnOnce(&mut CoreDriver) + Send>;

/// The control thread's handle of the core.
#[derive(Debug)]
struct CoreHandle {
    jobs: Sender<CoreJob>,
    waker: DeviceWaker,
    patience: Duration,
}

/// The state of the core.
#[derive(Clone, Debug, Default)]
struct CoreReport {
    /// The reason why the core failed, if it did.
    failed: Option<String>,
    /// The counters of the core: outbound, inbound.
    counters: [LaneCounters; 2],
    /// Number of table rows that hold an SA: outbound, inbound.
    installed: (usize, usize),
}

/// The time that the control thread waits for the worker. The worker runs jobs between bursts, which take milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// Decides who wins: the worker that begins a job, or the asker that withdraws it.
#[derive(Debug, Default)]
struct Ticket(AtomicBool);

impl Ticket {
    /// Returns true for the first caller only.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

impl CoreHandle {
    /// Runs a job in the worker and returns its result. Returns `None`, and the job never runs, if
    /// the worker has ended or does not answer in time.
    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut CoreDriver) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = sync_channel(1);
        let ticket = Arc::<Ticket>::default();
        let of_worker = Arc::clone(&ticket);
        let job = move |driver: &mut CoreDriver| {
            if of_worker.take() {
                // The receiver is gone only if the control thread has ended.
                let _ = answer.send(job(driver));
            }
        };
        self.jobs.send(Box::new(job)).ok()?;
        self.waker.wake();
        match answered.recv_timeout(self.patience) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) if ticket.take() => {
                tracing::error!("the worker of the FPGA core does not answer");
                None
            }
            // The worker has begun the job, so wait for its end.
            Err(_) => answered.recv().ok(),
        }
    }

    fn core_report(&self) -> CoreReport {
        self.ask(CoreDriver::report).unwrap_or_default()
    }
}

impl EngineHost for CoreHandle {
    fn name(&self) -> &'static str {
        "fpga"
    }

    fn title(&self) -> String {
        "the FPGA core".to_owned()
    }

    fn source(&self) -> Option<EngineSource> {
        None
    }

    fn device(&self) -> Option<&dyn ChildSaDevice> {
        Some(self)
    }

    fn report(&self) -> HostReport {
        let CoreReport {
            failed, installed, ..
        } = self.core_report();
        let report = HostReport {
            detail: Some(SIMULATED.to_owned()),
            ..HostReport::default()
        }
        .with("device", &SIMULATED)
        .with("installed-out", &installed.0)
        .with("installed-in", &installed.1);
        let Some(why) = failed else {
            return report;
        };
        let warning = format!("the FPGA core carries nothing any more: {why}");
        HostReport {
            warnings: vec![warning],
            ..report.with("failed", &why)
        }
    }
}

impl ChildSaDevice for CoreHandle {
    /// The core uses the SAs from the next [`Self::follow`] on.
    fn install(
        &self,
        outbound: Arc<OutboundSa>,
        inbound: Arc<InboundSa>,
        options: &SaOptions,
    ) -> Result<(), String> {
        if let Some(what) = unfit(options) {
            return Err(format!("the FPGA core cannot do {what}"));
        }
        let installed = self.ask(move |driver| driver.install(&outbound, &inbound));
        installed.unwrap_or_else(|| Err("the core's worker does not answer".to_owned()))
    }

    fn follow(&self) {
        self.ask(CoreDriver::follow);
    }

    fn counters(&self) -> CoreCounters {
        core_counters(&self.core_report().counters)
    }
}

/// Returns a demand of the child that the core cannot meet and that the child's SAs do not show.
fn unfit(options: &SaOptions) -> Option<&'static str> {
    if !options.populate.is_none() {
        return Some("an SA for each flow");
    }
    (options.dummies > 0).then_some("dummy packets")
}

/// Opens the simulated core, if the configuration names it.
pub(super) fn open_simulated(config: &GatewayConfig) -> Result<Option<Front>, StartError> {
    if config.engine != EngineKind::FPGA {
        return Ok(None);
    }
    let device = esplanade_fpga::simulated::Simulated::new();
    let device = device.map_err(|error| StartError::new(error.to_string()))?;
    let front = core_front(Box::new(device));
    let front = front.map_err(|error| StartError::new(error.to_string()))?;
    tracing::warn!("the FPGA core is a simulation, which is for trials: it is slow");
    Ok(Some(front))
}

/// Puts a core in front of a worker. Its tables are empty, so it discards everything.
pub fn core_front(device: Box<dyn Device>) -> Result<Front, CoreError> {
    let core = InLine::new(device)?;
    Ok(Front::new(move |parts| {
        let (driver, handle) = CoreDriver::new(core, parts);
        (driver, Arc::new(handle) as _)
    }))
}

/// The core and its bookkeeping, as the worker that drives it has them.
#[derive(Debug)]
struct CoreDriver {
    core: AnyCore,
    jobs: Receiver<CoreJob>,
    database: Arc<Database>,
    paths: Arc<PathMtus>,
    outbound: Arc<WalkCounters>,
    inbound: Arc<WalkCounters>,
    /// Results that nobody fetched: packets that the core sealed, left to software, and opened.
    sealed: Vec<SealedByDevice>,
    returned: Vec<Vec<u8>>,
    opened: Vec<Vec<u8>>,
    events: Vec<Event>,
    frame: Vec<u8>,
    failed: Option<CoreError>,
    /// The core has packets to process.
    busy: bool,
    /// The number of frames that the core had taken, and the time since when it has taken none. `None` means that no
    /// frame waits for the core.
    waits: Option<(u32, u64)>,
    /// Packets that were too long, as counted so far: outbound, inbound.
    cut: [u64; 2],
    followed_ms: u64,
    now_ms: u64,
}

impl CoreDriver {
    fn new(core: AnyCore, parts: DeviceParts) -> (Self, CoreHandle) {
        let DeviceParts {
            database,
            paths,
            walks: [outbound, inbound],
            waker,
        } = parts;
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
            events: Vec::new(),
            frame: Vec::new(),
            failed: None,
            busy: false,
            waits: None,
            cut: [0; 2],
            followed_ms: 0,
            now_ms: 0,
        };
        driver.follow();
        (
            driver,
            CoreHandle {
                jobs: to_jobs,
                waker,
                patience: PATIENCE,
            },
        )
    }

    /// Checks for events that the core does not report by itself, and for a core that has stopped.
    fn watch(&mut self) -> Result<(), CoreError> {
        self.events.extend(self.core.missed()?);
        let taken = self.core.progress()?;
        self.waits = match (taken, self.waits) {
            (None, _) => None,
            (Some(taken), Some((last, since_ms))) if taken == last => {
                if self.now_ms.saturating_sub(since_ms) >= STALLED_MS {
                    return Err(CoreError::Stalled);
                }
                Some((last, since_ms))
            }
            (Some(taken), _) => Some((taken, self.now_ms)),
        };
        Ok(())
    }

    /// Gives the core up. Its SAs end, and their successors are made without it.
    fn fail(&mut self, error: CoreError) {
        if self.failed.is_some() {
            return;
        }
        tracing::error!("the FPGA core is given up and its SAs carry nothing any more: {error}");
        self.failed = Some(error);
        self.events.extend(self.core.lost());
        self.core.wipe();
        // These packets were counted as leaving, so count them as dropped.
        for (walk, lost) in [
            (&self.outbound, self.sealed.len()),
            (&self.inbound, self.opened.len()),
        ] {
            walk.drops.add(DropReason::EngineFailed, lost as u64);
        }
        self.sealed.clear();
        self.opened.clear();
        self.busy = false;
    }

    fn install(
        &mut self,
        outbound: &Arc<OutboundSa>,
        inbound: &Arc<InboundSa>,
    ) -> Result<(), String> {
        if let Some(error) = self.failed {
            return Err(format!("it has failed: {error}"));
        }
        let spd = self.database.spd();
        let installed = self.core.install(outbound, inbound, &spd);
        installed.map_err(|refused| {
            if let InstallRefused::Core(error @ (CoreError::Bus(_) | CoreError::NotSealed)) =
                refused
            {
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
        match self.core.follow(&self.database.spd()) {
            Ok(ended) if ended.is_empty() => {}
            Ok(ended) => {
                tracing::warn!(
                    sas = ended.len(),
                    "SAs leave the FPGA core and end: it has no room for the policies in front, or others are for certain DSCPs"
                );
                self.events.extend(ended);
            }
            Err(error) => self.fail(error),
        }
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

    fn take(&mut self) -> Result<(), CoreError> {
        while let Some((sent, event)) = self.core.sent(&mut self.frame, self.now_ms)? {
            self.events.extend(event);
            let frame = std::mem::take(&mut self.frame);
            let bytes = frame.len() as u64;
            match sent {
                OutboundOutcome::Sealed(sealed) => {
                    self.outbound.packets_out.fetch_add(1, Ordering::Relaxed);
                    let bytes = bytes - sealed.header_len as u64;
                    self.outbound.bytes_out.fetch_add(bytes, Ordering::Relaxed);
                    self.sealed.push(SealedByDevice {
                        sa: sealed.sa,
                        tos: sealed.tos,
                        dont_fragment: sealed.dont_fragment,
                        header_len: sealed.header_len,
                        frame,
                    });
                }
                OutboundOutcome::ToHost => {
                    // The software path will count this packet again.
                    self.outbound.packets_in.fetch_sub(1, Ordering::Relaxed);
                    self.outbound.bytes_in.fetch_sub(bytes, Ordering::Relaxed);
                    self.returned.push(frame);
                }
                OutboundOutcome::Expired => self.outbound.drops.add(DropReason::LifetimeExpired, 1),
            }
        }
        while let Some(opened) = self.core.opened(&mut self.frame, self.now_ms)? {
            let packet = std::mem::take(&mut self.frame);
            match opened {
                Opened::Packet(_, event) => self.events.extend(event),
                Opened::Dropped(reason) => {
                    self.inbound.drops.add(reason, 1);
                    continue;
                }
            }
            self.inbound.packets_out.fetch_add(1, Ordering::Relaxed);
            let bytes = packet.len() as u64;
            self.inbound.bytes_out.fetch_add(bytes, Ordering::Relaxed);
            self.opened.push(packet);
        }
        while let Some(event) = self.core.next_event()? {
            self.events.push(event);
        }
        let walks = [&self.outbound, &self.inbound];
        for ((lane, walk), counted) in [Lane::Outbound, Lane::Inbound]
            .into_iter()
            .zip(walks)
            .zip(&mut self.cut)
        {
            let cut = self.core.cut(lane);
            let new = cut - std::mem::replace(counted, cut);
            walk.drops.add(DropReason::TooLong, new);
        }
        Ok(())
    }
}

impl Accelerator for CoreDriver {
    const FRAME_MAX: usize = FRAME_MAX;

    fn serve(&mut self) {
        while let Ok(job) = self.jobs.try_recv() {
            job(self);
        }
    }

    fn keep_time(&mut self, now_ms: u64) -> bool {
        self.now_ms = now_ms;
        now_ms.saturating_sub(self.followed_ms) >= FOLLOW_MS
    }

    fn do_due(&mut self) {
        self.follow();
        if self.works()
            && let Err(error) = self.watch()
        {
            self.fail(error);
        }
    }

    fn update_tables(&mut self) {
        self.follow();
    }

    fn works(&self) -> bool {
        self.failed.is_none()
    }

    fn opens(&self, spi: u32) -> bool {
        self.core.opens(spi)
    }

    fn seal(&mut self, packet: &[u8], counted: bool) -> bool {
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

    fn work(&mut self) {
        if !self.busy || !self.works() {
            return;
        }
        self.core.work();
        let left = self.take().and_then(|()| self.core.progress());
        match left {
            Ok(left) => self.busy = left.is_some(),
            Err(error) => self.fail(error),
        }
    }

    fn is_busy(&self) -> bool {
        self.busy || !(self.opened.is_empty() && self.returned.is_empty() && self.sealed.is_empty())
    }

    fn take_sealed(&mut self) -> Vec<SealedByDevice> {
        std::mem::take(&mut self.sealed)
    }

    fn take_returned(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.returned)
    }

    fn take_opened(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.opened)
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_does_not_serve_is_not_waited_for() {
        let (jobs, waiting) = channel::<CoreJob>();
        let control = crate::control::WorkerControl::new().unwrap();
        let handle = CoreHandle {
            jobs,
            waker: DeviceWaker(Arc::new(control)),
            patience: Duration::from_millis(10),
        };
        assert!(handle.ask(|_| ()).is_none());
        assert_eq!(waiting.try_iter().count(), 1, "it was asked");
        assert!(handle.core_report().failed.is_none());
        drop(waiting);
        assert!(handle.ask(|_| ()).is_none(), "the worker has ended");
    }

    #[test]
    fn what_the_core_cannot_do_is_named() {
        let dummies = SaOptions {
            dummies: 1,
            ..SaOptions::default()
        };
        assert_eq!(unfit(&dummies), Some("dummy packets"));
        assert_eq!(unfit(&SaOptions::default()), None);
    }

    #[test]
    fn a_job_is_done_or_taken_back() {
        let ticket = Ticket::default();
        assert!(ticket.take());
        assert!(!ticket.take());
    }
}
