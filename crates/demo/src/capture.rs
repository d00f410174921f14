//! Watches a link: counts the packets on it, keeps the IKE messages, and writes a capture file.
//!
//! Two sockets watch the link between the sites. The *recorder* sees every frame. It stores whole
//! frames while its budget lasts, and only the headers of ESP afterwards. Under load it may miss
//! frames, and counts them. For the *sentry*, the kernel filters out ESP and IKE, so it has almost
//! nothing to do and misses nothing. It finds a single clear packet under any load.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use esplanade_host::io::packet_socket::{FilterInstruction, PacketSocket};

use super::frame::{ETHERNET_LEN, FRAME_LEN_MAX, FrameKind, FrameView, wire_frames};
use super::lab::Namespace;
use super::pcap::PcapWriter;

/// Every packet of the demo's hosts contains this marker. A marker on the link means that content
/// leaked.
pub const MARKER: &[u8; 16] = b"ESPLANADE-INSIDE";

const BUFFER_LEN: usize = 68 << 10;
const MESSAGES_MAX: usize = 10_000;
const SAMPLES_MAX: usize = 8;
const SPIS_MAX: usize = 256;
const EXCERPT_LEN: usize = 64;

#[derive(Debug, Clone)]
pub struct IkeMessage {
    pub at: SystemTime,
    pub source: IpAddr,
    /// The UDP port that carried the message.
    pub port: u16,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
pub struct Sample {
    pub summary: String,
    /// The first bytes of the IP packet.
    pub excerpt: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
pub struct Totals {
    pub ike: u64,
    /// Number of ESP frames that the recorder saw. A super-frame counts once.
    pub esp_frames: u64,
    /// Number of frames that found the recorder's queue full.
    pub missed: u64,
    /// Number of frames that belong to the link itself, such as ARP and neighbour discovery.
    pub link: u64,
    /// Number of clear packets that the sentry saw.
    pub clear: u64,
    /// Number of frames that the sentry missed. If it is not zero, the check proves nothing.
    pub sentry_missed: u64,
    /// Number of recorded packets that contain the marker of the inner traffic.
    pub marked: u64,
    pub recorded: u64,
    pub clear_samples: Vec<Sample>,
    pub write_error: Option<String>,
    /// Last sequence number of each ESP SA, by SPI.
    sequences: HashMap<u32, u32>,
}

impl Totals {
    /// Returns the number of ESP packets that were sent, from their sequence numbers. Frames that
    /// the capture missed do not change it.
    pub fn esp_packets(&self) -> u64 {
        self.sequences.values().map(|&last| u64::from(last)).sum()
    }

    pub fn esp_sas(&self) -> usize {
        self.sequences.len()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The link between the sites, with a sentry.
    Wire,
    /// Pings on a link inside a site.
    Pings,
}

#[derive(Debug)]
struct CaptureState {
    writer: PcapWriter,
    budget: usize,
    sparse: bool,
    totals: Totals,
    ike: Vec<IkeMessage>,
    samples: Vec<Sample>,
}

#[derive(Debug)]
struct CaptureShared {
    state: Mutex<CaptureState>,
    stop: AtomicBool,
}

impl CaptureShared {
    fn lock(&self) -> MutexGuard<'_, CaptureState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct Recorder {
    shared: Arc<CaptureShared>,
    watch: Arc<PacketSocket>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Recorder {
    /// Starts to watch an interface. Every later frame is seen.
    pub fn start(
        place: &Namespace,
        interface: &str,
        scope: Scope,
        path: &Path,
    ) -> io::Result<Self> {
        let filter = match scope {
            Scope::Wire => EVERYTHING,
            Scope::Pings => PINGS,
        };
        let watch = Arc::new(place.run(|| PacketSocket::open(interface, filter))?);
        let state = CaptureState {
            writer: PcapWriter::create(path)?,
            budget: 1 << 20,
            sparse: false,
            totals: Totals::default(),
            ike: Vec::new(),
            samples: Vec::new(),
        };
        let shared = Arc::new(CaptureShared {
            state: Mutex::new(state),
            stop: AtomicBool::new(false),
        });
        let mut recorder = Self {
            shared: Arc::clone(&shared),
            watch: Arc::clone(&watch),
            threads: Vec::new(),
        };
        if scope == Scope::Wire {
            let sentry = place.run(|| PacketSocket::open(interface, NEITHER_ESP_NOR_IKE))?;
            let shared = Arc::clone(&shared);
            recorder
                .threads
                .push(std::thread::spawn(move || run_sentry(&sentry, &shared)));
        }
        recorder
            .threads
            .push(std::thread::spawn(move || record(&watch, &shared)));
        Ok(recorder)
    }

    /// Allows `bytes` more bytes of whole frames in the file.
    pub fn allow(&self, bytes: usize) -> io::Result<()> {
        let mut state = self.shared.lock();
        state.budget = bytes;
        if std::mem::take(&mut state.sparse) {
            self.watch.filter(EVERYTHING)?;
        }
        Ok(())
    }

    /// Returns the IKE messages from number `from` on.
    pub fn ike_messages(&self, from: usize) -> Vec<IkeMessage> {
        self.shared
            .lock()
            .ike
            .get(from..)
            .unwrap_or_default()
            .to_vec()
    }

    /// Drops the samples, so that new ones are collected.
    pub fn clear_samples(&self) {
        self.shared.lock().samples.clear();
    }

    pub fn samples(&self) -> Vec<Sample> {
        self.shared.lock().samples.clone()
    }

    /// Processes the queued frames, closes the file and returns the totals.
    pub fn finish(mut self) -> io::Result<Totals> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a capture thread panicked")))?;
        }
        let mut state = self.shared.lock();
        if let Err(error) = state.writer.flush() {
            state.totals.write_error.get_or_insert(error.to_string());
        }
        Ok(state.totals.clone())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

fn record(watch: &PacketSocket, shared: &CaptureShared) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_LEN];
    watch.set_timeout(Duration::from_millis(50))?;
    loop {
        match watch.receive(&mut buffer)? {
            Some(frame) => {
                let mut state = shared.lock();
                state.take(frame);
                if state.budget == 0 && !state.sparse {
                    state.sparse = true;
                    watch.filter(ESP_HEADERS)?;
                }
            }
            None if shared.stop.load(Ordering::Relaxed) => break,
            None => {}
        }
    }
    shared.lock().totals.missed = watch.missed()?;
    Ok(())
}

fn run_sentry(watch: &PacketSocket, shared: &CaptureShared) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_LEN];
    watch.set_timeout(Duration::from_millis(50))?;
    loop {
        match watch.receive(&mut buffer)? {
            Some(frame) => shared.lock().count_unexpected(frame),
            None if shared.stop.load(Ordering::Relaxed) => break,
            None => {}
        }
    }
    shared.lock().totals.sentry_missed = watch.missed()?;
    Ok(())
}

impl CaptureState {
    fn take(&mut self, frame: &[u8]) {
        let view = FrameView::of(frame);
        match view.kind {
            FrameKind::Ike(message) => self.note_ike(&view, message),
            FrameKind::Esp(_) => {
                self.totals.esp_frames += 1;
                self.note_sequence(&view);
            }
            _ => {}
        }
        let ike = matches!(view.kind, FrameKind::Ike(_));
        let whole = frame.len() >= ETHERNET_LEN + view.packet_len;
        if !whole || (self.budget == 0 && !ike) {
            return;
        }
        for wire in wire_frames(frame) {
            // A super-frame of a kind that is not split here.
            if wire.len() > FRAME_LEN_MAX {
                continue;
            }
            self.note_sequence(&FrameView::of(&wire));
            if matches!(view.kind, FrameKind::Esp(_) | FrameKind::Clear)
                && self.samples.len() < SAMPLES_MAX
            {
                self.samples.push(Sample::of(&wire));
            }
            if wire.windows(MARKER.len()).any(|window| window == MARKER) {
                self.totals.marked += 1;
            }
            self.budget = self.budget.saturating_sub(wire.len());
            match self.writer.write(SystemTime::now(), &wire) {
                Ok(()) => self.totals.recorded += 1,
                Err(error) => {
                    self.totals.write_error.get_or_insert(error.to_string());
                }
            }
        }
    }

    fn note_ike(&mut self, view: &FrameView<'_>, message: &[u8]) {
        self.totals.ike += 1;
        let (Some(source), Some((port, _))) = (view.source, view.ports) else {
            return;
        };
        if self.ike.len() < MESSAGES_MAX {
            self.ike.push(IkeMessage {
                at: SystemTime::now(),
                source,
                port,
                bytes: message.to_vec(),
            });
        }
    }

    fn note_sequence(&mut self, view: &FrameView<'_>) {
        let Some((spi, sequence)) = view.esp_header() else {
            return;
        };
        if self.totals.sequences.len() < SPIS_MAX || self.totals.sequences.contains_key(&spi) {
            let last = self.totals.sequences.entry(spi).or_default();
            *last = sequence.max(*last);
        }
    }

    /// Counts a frame that the sentry's filter let through.
    fn count_unexpected(&mut self, frame: &[u8]) {
        match FrameView::of(frame).kind {
            FrameKind::Link => self.totals.link += 1,
            _ => {
                self.totals.clear += 1;
                if self.totals.clear_samples.len() < SAMPLES_MAX {
                    self.totals.clear_samples.push(Sample::of(frame));
                }
            }
        }
    }
}

impl Sample {
    fn of(frame: &[u8]) -> Self {
        let view = FrameView::of(frame);
        let packet = frame.get(ETHERNET_LEN..).unwrap_or_default();
        Self {
            summary: view.describe(),
            excerpt: packet.get(..EXCERPT_LEN).unwrap_or(packet).to_vec(),
        }
    }
}

// Classic BPF programs (Linux, Documentation/networking/filter.rst). A jump states the number of
// instructions to skip.

const WHOLE: FilterInstruction = FilterInstruction::new(0x06, 0, 0, 0x4_0000);
const NOTHING: FilterInstruction = FilterInstruction::new(0x06, 0, 0, 0);
/// Accepts 96 bytes: Ethernet, IPv4 with options, UDP, and the ESP header.
const HEADERS: FilterInstruction = FilterInstruction::new(0x06, 0, 0, 96);

const fn load_u8(at: u32) -> FilterInstruction {
    FilterInstruction::new(0x30, 0, 0, at)
}

const fn load_u16(at: u32) -> FilterInstruction {
    FilterInstruction::new(0x28, 0, 0, at)
}

/// The offset is relative to the index register.
const fn load_u16_at_x(at: u32) -> FilterInstruction {
    FilterInstruction::new(0x48, 0, 0, at)
}

const fn load_u32_at_x(at: u32) -> FilterInstruction {
    FilterInstruction::new(0x40, 0, 0, at)
}

/// Loads the length of the IPv4 header into the index register.
const LOAD_X_IPV4_HEADER_LEN: FilterInstruction =
    FilterInstruction::new(0xb1, 0, 0, ETHERNET_LEN as u32);

const fn if_equal(value: u32, skip_then: u8, skip_else: u8) -> FilterInstruction {
    FilterInstruction::new(0x15, skip_then, skip_else, value)
}

const fn if_any_bit(bits: u32, skip_then: u8, skip_else: u8) -> FilterInstruction {
    FilterInstruction::new(0x45, skip_then, skip_else, bits)
}

const EVERYTHING: &[FilterInstruction] = &[WHOLE];

const PINGS: &[FilterInstruction] = &[
    load_u16(12),
    if_equal(0x0800, 0, 3),
    load_u8(23),
    if_equal(1, 0, 1),
    WHOLE,
    NOTHING,
];

/// Accepts whole frames, except for ESP, of which it accepts the headers.
const ESP_HEADERS: &[FilterInstruction] = &[
    load_u16(12),
    if_equal(0x0800, 0, 13),
    load_u8(23),
    if_equal(50, 10, 0),
    if_equal(17, 0, 10),
    load_u16(20),
    if_any_bit(0x1fff, 8, 0),
    LOAD_X_IPV4_HEADER_LEN,
    load_u16_at_x(14),
    if_equal(4500, 0, 5),
    load_u16_at_x(16),
    if_equal(4500, 0, 3),
    load_u32_at_x(22),
    if_equal(0, 1, 0),
    HEADERS,
    WHOLE,
];

const NEITHER_ESP_NOR_IKE: &[FilterInstruction] = &[
    load_u16(12),
    if_equal(0x0800, 0, 13),
    load_u8(23),
    if_equal(50, 12, 0),
    if_equal(17, 0, 10),
    load_u16(20),
    if_any_bit(0x1fff, 8, 0),
    LOAD_X_IPV4_HEADER_LEN,
    load_u16_at_x(14),
    if_equal(500, 0, 2),
    load_u16_at_x(16),
    if_equal(500, 4, 3),
    if_equal(4500, 0, 2),
    load_u16_at_x(16),
    if_equal(4500, 1, 0),
    WHOLE,
    NOTHING,
];
