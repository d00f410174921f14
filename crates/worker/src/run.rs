//! The worker's loop. It takes ready packets in bounded bursts, inbound first, and then waits.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use esplanade_crypto::Direction;
use esplanade_dataplane::counters::{IoCounters, WorkerLoad, add};
use esplanade_dataplane::ms;
use esplanade_dataplane::{DataPlane, Doors, EngineHealth, EngineSource, PlaneConfig, TunPort};
use esplanade_engines::EngineHost;
use esplanade_ipsec::spd::Spd;
use esplanade_ipsec::{Database, WalkCounters};

use super::DummyList;
use super::control::{LinkChange, TunChange, WorkerControl};
use super::events::EventQueue;
use super::host_io::{HostIo, RAW_SLOTS, ReceiveSource, WakeReason};
use super::{Clock, IkeDatagram, TunInterface, WorkerConfig, WorkerReports};
use esplanade_host::io::sys::{self, EVENTS_MAX};
use esplanade_host::io::tun;
use esplanade_host::io::udp::{DatagramReceiver, ReceivedDatagram};

/// Most reads from the TUN device in one burst.
const READ_BURST: usize = 128;
/// The time after which to retry events that found the control thread's queue full.
const EVENTS_AGAIN: Duration = Duration::from_millis(10);

pub(super) struct WorkerLoop {
    control: Arc<WorkerControl>,
    cpu: Option<usize>,
    clock: Clock,
    database: Arc<Database>,
    doors: Box<dyn Doors<HostIo> + Send>,
    walks: [Arc<WalkCounters>; 2],
    device: Option<Arc<dyn EngineHost>>,
    reports: WorkerReports,
    events: EventQueue,
    receiver: DatagramReceiver,
    from_link: Vec<ReceivedDatagram>,
    read_buffer: Vec<u8>,
    counters: Arc<IoCounters>,
    load: Arc<WorkerLoad>,
}

impl WorkerLoop {
    pub(super) fn new(config: WorkerConfig, control: Arc<WorkerControl>) -> io::Result<Self> {
        let WorkerConfig {
            cpu,
            clock,
            tun,
            interfaces,
            sockets,
            database,
            reports,
            processing,
            engines,
            ..
        } = config;
        let mut tuns = vec![(0, tun, processing.mss_clamp)];
        tuns.extend(interfaces.into_iter().map(|interface| {
            let mss_clamp = processing.mss_clamp.map(|_| interface.mtu);
            (interface.id, interface.tun, mss_clamp)
        }));
        tuns.sort_unstable_by_key(|(interface, ..)| *interface);
        let port = |(interface, tun, mss_clamp): (u32, super::TunQueues, _)| {
            let port = TunPort::new(interface, tun.own().udp_segmentation(), mss_clamp);
            (port, (interface, tun))
        };
        let (ports, tuns) = tuns.into_iter().map(port).unzip();
        let counters = Arc::<IoCounters>::default();
        let paths = Arc::clone(&sockets.paths);
        let may_pause = engines.iter().any(EngineSource::may_be_late);
        let (wake, for_host) = (control.wake_fd(), Arc::clone(&counters));
        let host = HostIo::new(clock, tuns, sockets, wake, may_pause, for_host)?;
        let plane_config = PlaneConfig {
            ports,
            database: Arc::clone(&database),
            paths: Arc::clone(&paths),
            receive_len: RAW_SLOTS.total(),
            flows: config.flows,
            workers: config.count,
            processing,
            dummies: config
                .dummies
                .map(|published| Box::new(DummyList::new(published)) as _),
            engines,
            counters: Arc::clone(&counters),
            now_ns: clock.now_ns(),
        };
        let plane = DataPlane::new(host, plane_config)?;
        let walks = plane.walk_counters();
        let (doors, device) = match config.front {
            Some(front) => {
                let control = Arc::clone(&control);
                let (doors, device) = front.open(plane, control, paths);
                (doors, Some(device))
            }
            None => (Box::new(plane) as _, None),
        };
        Ok(Self {
            control,
            cpu,
            clock,
            database,
            doors,
            walks,
            device,
            reports,
            events: EventQueue::default(),
            receiver: DatagramReceiver::new(RAW_SLOTS.count),
            from_link: Vec::new(),
            read_buffer: vec![0; tun::READ_MAX],
            counters,
            load: Arc::default(),
        })
    }

    /// Takes the device in front of the data plane, if there is one.
    pub(super) fn take_device(&mut self) -> Option<Arc<dyn EngineHost>> {
        self.device.take()
    }

    /// Returns the counters of the I/O, and those of the walks: outbound, inbound.
    pub(super) fn counters(&self) -> (Arc<IoCounters>, [Arc<WalkCounters>; 2]) {
        (Arc::clone(&self.counters), self.walks.clone())
    }

    pub(super) fn engines(&mut self) -> Vec<EngineHealth> {
        self.plane().engines()
    }

    fn plane(&mut self) -> &mut DataPlane<HostIo> {
        self.doors.plane()
    }

    pub(super) fn load(&self) -> Arc<WorkerLoad> {
        Arc::clone(&self.load)
    }

    pub(super) fn run(&mut self) {
        if let Some(cpu) = self.cpu
            && let Err(error) = sys::pin_to_cpu(cpu)
        {
            tracing::warn!("cannot keep a worker on processor {cpu}: {error}");
        }
        let mut tokens = [0; EVENTS_MAX];
        let mut woke_ns = self.clock.now_ns();
        while !self.control.is_stopped() {
            self.load.count(self.clock.now_ns().saturating_sub(woke_ns));
            let (paused, timeout) = (self.plane().paused(), self.timeout());
            let ready = match self.plane().io.wait(paused, &mut tokens, timeout) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!("a worker cannot wait for packets and ends: {error}");
                    return;
                }
            };
            woke_ns = self.clock.now_ns();
            self.doors.handle_time(woke_ns);
            self.doors.follow_early();
            let tokens = &tokens[..ready];
            if let Err(error) = self.take_ready(tokens) {
                tracing::error!("a worker ends: {error}");
                return;
            }
            self.doors.finish();
            self.plane().io.retry_sends(ms(woke_ns));
            self.report_events(ms(woke_ns));
        }
    }

    /// Handles the descriptors that the tokens stand for. Inbound goes before the TUN devices.
    fn take_ready(&mut self, tokens: &[u64]) -> io::Result<()> {
        for token in tokens {
            match self.plane().io.ready(*token) {
                Some(WakeReason::Control) => {
                    self.control.clear_wake();
                    self.take_tuns()?;
                    for change in self.control.take_links() {
                        match change {
                            LinkChange::Set(queue) => self.plane().io.set_link(*queue)?,
                            LinkChange::Lose(name) => self.plane().io.lose_link(&name),
                        }
                    }
                    self.doors.serve();
                }
                Some(WakeReason::Engine(Direction::Seal)) => self.plane().seal_and_send(),
                Some(WakeReason::Engine(Direction::Open)) => self.plane().open_and_deliver(),
                Some(WakeReason::Socket(source)) => self.receive(source),
                Some(WakeReason::Port(_)) | None => {}
            }
        }
        for token in tokens {
            if let Some(WakeReason::Port(port)) = self.plane().io.ready(*token) {
                self.read_tun(port)?;
            }
        }
        Ok(())
    }

    /// Receives one burst from a socket.
    fn receive(&mut self, source: ReceiveSource) {
        let Some(receive_socket) = self.plane().io.receive_socket(source) else {
            return self.plane().io.receive_errors(source);
        };
        let Some((io, buffer)) = self.doors.room() else {
            return;
        };
        let received = match source {
            ReceiveSource::Link(index) => {
                io.receive(index, buffer, &mut self.from_link);
                Ok(&self.from_link[..])
            }
            _ => match io.descriptor(source) {
                Some(fd) => self.receiver.receive(fd, buffer, source.slots()),
                None => return,
            },
        };
        let received = match received {
            Ok(received) => received,
            Err(error) => {
                // Typically an ICMP error. The report removes it from the socket.
                tracing::trace!("cannot receive: {error}");
                add(&self.counters.receive_errors, 1);
                return;
            }
        };
        let (reports, counters) = (&self.reports.ike, &self.counters);
        let mut ike = |datagram: IkeDatagram| match reports.try_send(datagram) {
            Ok(()) => add(&counters.ike_messages, 1),
            Err(_) => add(&counters.ike_dropped, 1),
        };
        self.doors.handle_outer(receive_socket, received, &mut ike);
    }

    /// Reads one burst of packets that were routed into a port.
    fn read_tun(&mut self, port: usize) -> io::Result<()> {
        let spd = self.database.spd();
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let read = self.read_burst(&spd, port, &mut buffer);
        self.read_buffer = buffer;
        self.doors.finish_inner(&spd, port);
        self.plane().seal_and_send();
        match read {
            // The device is gone. The control thread will create another.
            Err(error) if error.raw_os_error() == Some(libc::EBADFD) => {
                self.control.lose_tun();
                self.plane().io.lose_tun(port)
            }
            Err(error) => {
                let tun = self.plane().io.tun_name(port);
                let text = format!("the TUN {tun} cannot be read: {error}");
                Err(io::Error::new(error.kind(), text))
            }
            Ok(()) => Ok(()),
        }
    }

    fn read_burst(&mut self, spd: &Spd, port: usize, buffer: &mut [u8]) -> io::Result<()> {
        let mut reads = 0;
        let result = loop {
            if reads == READ_BURST || !self.plane().can_seal() {
                break Ok(());
            }
            let read = match self.plane().io.read(port, buffer) {
                Ok(Some(length)) => buffer.get_mut(..length).unwrap_or_default(),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            reads += 1;
            self.doors.handle_inner(spd, port, read);
        };
        add(&self.counters.tun_reads, reads as u64);
        result
    }

    /// Takes over the devices that the control thread created, and gives up others.
    fn take_tuns(&mut self) -> io::Result<()> {
        for change in self.control.take_tuns() {
            match change {
                TunChange::Set(TunInterface { id, tun, mtu }) => {
                    let udp = tun.own().udp_segmentation();
                    if let Some(port) = self.plane().io.set_tun(id, tun)? {
                        self.plane().add_port(port, id, udp, mtu);
                    }
                }
                TunChange::Remove(interface) => {
                    self.plane().io.remove_tun(interface);
                    self.plane().remove_port(interface);
                }
            }
        }
        Ok(())
    }

    fn timeout(&mut self) -> Duration {
        if !self.events.is_empty() {
            return EVENTS_AGAIN;
        }
        if self.doors.is_busy() {
            return Duration::from_millis(1);
        }
        let timeout = self.plane().timeout();
        match self.plane().io.is_stuck() {
            true => timeout.min(Duration::from_millis(1)),
            false => timeout,
        }
    }

    fn report_events(&mut self, now_ms: u64) {
        let mut dropped = 0;
        for event in self.doors.take_events() {
            dropped += u64::from(!self.events.push(event, now_ms));
        }
        add(&self.counters.events_dropped, dropped);
        self.events.flush(&self.reports.events, now_ms);
    }
}
