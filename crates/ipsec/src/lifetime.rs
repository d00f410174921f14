//! SA lifetimes in bytes, packets and time (RFC 4301 §4.4.2.1), and idleness.
//!
//! Each kind of event is raised once per SA. A limit of traffic is overshot by less than one run of packets
//! outbound, whatever the number of workers ([`Lifetime::admit`] claims before the run passes), and by what is
//! already in the engines inbound, where only an authenticated packet may count ([`Lifetime::count`]).

use crate::atomic::{AtomicU8, AtomicU64, Ordering};

/// Limits of one SA; none is unlimited. Times count from when the SA was installed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifetimeLimits {
    pub bytes_soft: Option<u64>,
    pub bytes_hard: Option<u64>,
    pub packets_soft: Option<u64>,
    pub packets_hard: Option<u64>,
    pub time_soft_ms: Option<u64>,
    pub time_hard_ms: Option<u64>,
    /// Without a packet for so long, the SA is idle.
    pub idle_ms: Option<u64>,
}

/// What reaching a limit asks for. Each is reported once per SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeEvent {
    /// Rekey.
    Soft,
    /// Delete: the SA passes nothing more.
    Hard,
    /// Nobody uses the SA. It still passes packets.
    Idle,
}

impl LifetimeEvent {
    const fn flag(self) -> u8 {
        match self {
            Self::Soft => 1,
            Self::Hard => 2,
            Self::Idle => 4,
        }
    }
}

/// Whether a run of packets may pass, and what to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub passes: bool,
    pub event: Option<LifetimeEvent>,
}

/// `u64::MAX` is no limit.
#[derive(Clone, Copy, Debug)]
struct Threshold {
    bytes: u64,
    packets: u64,
    time_ms: u64,
}

impl Threshold {
    fn new(bytes: Option<u64>, packets: Option<u64>, time_ms: Option<u64>, now_ms: u64) -> Self {
        let after = |time: u64| now_ms.saturating_add(time);
        Self {
            bytes: bytes.unwrap_or(u64::MAX),
            packets: packets.unwrap_or(u64::MAX),
            time_ms: time_ms.map_or(u64::MAX, after),
        }
    }

    fn reached(&self, bytes: u64, packets: u64, now_ms: u64) -> bool {
        bytes >= self.bytes || packets >= self.packets || now_ms >= self.time_ms
    }
}

/// The traffic and age of one SA against its limits. Time is the caller's, monotonic.
#[derive(Debug)]
pub struct Lifetime {
    bytes: AtomicU64,
    packets: AtomicU64,
    /// When a packet last passed.
    used_ms: AtomicU64,
    hard: Threshold,
    soft: Threshold,
    idle_ms: u64,
    installed_ms: u64,
    /// Flags of the events raised.
    raised: AtomicU8,
}

impl Lifetime {
    pub fn new(limits: &LifetimeLimits, installed_ms: u64) -> Self {
        let l = limits;
        Self {
            bytes: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            used_ms: AtomicU64::new(0),
            hard: Threshold::new(l.bytes_hard, l.packets_hard, l.time_hard_ms, installed_ms),
            soft: Threshold::new(l.bytes_soft, l.packets_soft, l.time_soft_ms, installed_ms),
            idle_ms: l.idle_ms.unwrap_or(u64::MAX),
            installed_ms,
            raised: AtomicU8::new(0),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// When a packet last passed; 0 before the first.
    pub fn last_used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// Whether nothing more may pass.
    pub fn expired(&self, now_ms: u64) -> bool {
        self.hard.reached(self.bytes(), self.packets(), now_ms)
    }

    /// Counts a run of packets that is about to pass, or refuses it. The run that reaches a hard limit passes,
    /// the next does not; so all workers together exceed a limit by less than one run.
    pub fn admit(&self, packets: u64, bytes: u64, now_ms: u64) -> Admission {
        if self.expired(now_ms) {
            return Admission {
                passes: false,
                event: self.raise(LifetimeEvent::Hard),
            };
        }
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let packets_before = self.packets.fetch_add(packets, Ordering::Relaxed);
        if self.hard.reached(bytes_before, packets_before, now_ms) {
            // Another worker's run came between.
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.packets.fetch_sub(packets, Ordering::Relaxed);
            return Admission {
                passes: false,
                event: self.raise(LifetimeEvent::Hard),
            };
        }
        self.used_ms.store(now_ms, Ordering::Relaxed);
        Admission {
            passes: true,
            event: self.event_at(
                bytes_before.saturating_add(bytes),
                packets_before.saturating_add(packets),
                now_ms,
            ),
        }
    }

    /// Counts packets that have passed.
    pub fn count(&self, packets: u64, bytes: u64, now_ms: u64) -> Option<LifetimeEvent> {
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let packets_before = self.packets.fetch_add(packets, Ordering::Relaxed);
        self.used_ms.store(now_ms, Ordering::Relaxed);
        self.event_at(
            bytes_before.saturating_add(bytes),
            packets_before.saturating_add(packets),
            now_ms,
        )
    }

    /// What the time asks for while no packet passes. Call it again until it gives nothing.
    pub fn poll(&self, now_ms: u64) -> Option<LifetimeEvent> {
        let event = self.event_at(self.bytes(), self.packets(), now_ms);
        event.or_else(|| {
            let since = self.last_used_ms().max(self.installed_ms);
            let idle = now_ms.saturating_sub(since) >= self.idle_ms;
            idle.then(|| self.raise(LifetimeEvent::Idle)).flatten()
        })
    }

    fn event_at(&self, bytes: u64, packets: u64, now_ms: u64) -> Option<LifetimeEvent> {
        if self.hard.reached(bytes, packets, now_ms) {
            return self.raise(LifetimeEvent::Hard);
        }
        if self.soft.reached(bytes, packets, now_ms) {
            return self.raise(LifetimeEvent::Soft);
        }
        None
    }

    /// The SA reached a limit other than these, such as that of sequence numbers. None if that was known; rekeying
    /// what is being deleted is of no use, and is not asked for.
    pub fn raise(&self, event: LifetimeEvent) -> Option<LifetimeEvent> {
        let known = match event {
            LifetimeEvent::Hard => event.flag(),
            _ => event.flag() | LifetimeEvent::Hard.flag(),
        };
        // The load spares the traffic of an SA beyond its soft limit a locked instruction.
        if self.raised.load(Ordering::Relaxed) & known != 0 {
            return None;
        }
        let former = self.raised.fetch_or(event.flag(), Ordering::Relaxed);
        (former & known == 0).then_some(event)
    }
}
