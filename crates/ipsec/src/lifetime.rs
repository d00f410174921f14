//! SA lifetimes in bytes, packets and time (RFC 4301 §4.4.2.1), and idle detection.
//!
//! Each kind of event is raised once per SA, and stays raised until the control plane takes it: [`Lifetime::take`]. An
//! event that got lost on its way comes again with [`Lifetime::poll`]. Outbound, a traffic limit is exceeded by less than one run of packets,
//! whatever the number of workers: [`Lifetime::admit`] counts a run before it passes. Inbound, only authenticated
//! packets may count ([`Lifetime::count`]), so a limit is exceeded by what is already in the engines.
//!
//! A run costs one locked addition. One word, `recent`, counts packets and bytes since the totals were last settled.
//! As long as `recent` is below `edge`, no limit is reached. At the edge the totals are settled under a lock. The
//! edge is set to zero before `recent` is emptied. Therefore a run that is counted in the emptied word is never
//! compared with the old edge. A run that was in the full word is in the totals from which the next edge is computed.
//! The next edge is above zero only if the totals are below the hard limits.

use std::sync::PoisonError;

use crate::atomic::{AtomicU8, AtomicU64, Mutex, Ordering};

/// Limits of one SA; `None` means no limit. Times count from the installation of the SA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifetimeLimits {
    pub bytes_soft: Option<u64>,
    pub bytes_hard: Option<u64>,
    pub packets_soft: Option<u64>,
    pub packets_hard: Option<u64>,
    pub time_soft_ms: Option<u64>,
    pub time_hard_ms: Option<u64>,
    /// The SA is idle after this many milliseconds without a packet.
    pub idle_ms: Option<u64>,
}

/// The action that a reached limit asks for. Each is reported once per SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifetimeEvent {
    /// The SA must be rekeyed.
    Soft,
    /// The SA must be deleted: it passes nothing more.
    Hard,
    /// The SA is unused. It still passes packets.
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

    /// Flags of the events after which this one asks for nothing more.
    const fn settled_by(self) -> u8 {
        self.flag() | Self::Hard.flag()
    }
}

/// The decision on a run of packets, and the event to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    pub passes: bool,
    pub event: Option<LifetimeEvent>,
}

/// A number of packets and bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

/// Number of bits for the bytes in the word of recent traffic. The packets are in the bits above.
const BYTES_BITS: u32 = 40;
const BYTES_MASK: u64 = (1 << BYTES_BITS) - 1;
/// The word is settled at this value at the latest. It leaves as much room again for runs that are counted until
/// then.
const EDGE: Traffic = Traffic {
    packets: 1 << 23,
    bytes: 1 << 39,
};
/// A longer run is added to the totals directly.
const RUN_MAX: Traffic = Traffic {
    packets: 1 << 16,
    bytes: 1 << 32,
};

impl Traffic {
    fn word(self) -> u64 {
        self.packets << BYTES_BITS | self.bytes
    }

    fn of_word(word: u64) -> Self {
        Self {
            packets: word >> BYTES_BITS,
            bytes: word & BYTES_MASK,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    fn min(self, other: Self) -> Self {
        Self {
            packets: self.packets.min(other.packets),
            bytes: self.bytes.min(other.bytes),
        }
    }

    /// Returns true if both numbers are below the limit's.
    fn is_short_of(self, limit: Self) -> bool {
        self.packets < limit.packets && self.bytes < limit.bytes
    }
}

/// A limit. `u64::MAX` stands for no limit.
#[derive(Clone, Copy, Debug)]
struct Threshold {
    traffic: Traffic,
    time_ms: u64,
}

impl Threshold {
    fn new(bytes: Option<u64>, packets: Option<u64>, time_ms: Option<u64>, now_ms: u64) -> Self {
        let after = |time: u64| now_ms.saturating_add(time);
        Self {
            traffic: Traffic {
                packets: packets.unwrap_or(u64::MAX),
                bytes: bytes.unwrap_or(u64::MAX),
            },
            time_ms: time_ms.map_or(u64::MAX, after),
        }
    }

    fn reached(&self, totals: Traffic, now_ms: u64) -> bool {
        !totals.is_short_of(self.traffic) || now_ms >= self.time_ms
    }
}

/// The traffic and the age of one SA, compared with its limits. The caller provides monotonic time. The fields that
/// every run needs come first.
#[derive(Debug)]
#[repr(C)]
pub struct Lifetime {
    /// Traffic since the totals were last settled.
    recent: AtomicU64,
    /// The value of `recent` at which the next limit is reached.
    edge: AtomicU64,
    /// The time of the next time limit. It is 0 once a traffic limit has ended the SA.
    due_ms: AtomicU64,
    /// The time at which a packet last passed.
    used_ms: AtomicU64,
    totals: Mutex<Traffic>,
    hard: Threshold,
    soft: Threshold,
    idle_ms: u64,
    installed_ms: u64,
    /// Flags of the events that were raised.
    raised: AtomicU8,
    /// Flags of the events that the control plane has taken.
    taken: AtomicU8,
}

impl Lifetime {
    /// Number of leading bytes that every run needs.
    pub(crate) const HOT: usize = std::mem::offset_of!(Self, totals);

    pub fn new(limits: &LifetimeLimits, installed_ms: u64) -> Self {
        let l = limits;
        let lifetime = Self {
            recent: AtomicU64::new(0),
            edge: AtomicU64::new(0),
            due_ms: AtomicU64::new(0),
            used_ms: AtomicU64::new(0),
            totals: Mutex::new(Traffic::default()),
            hard: Threshold::new(l.bytes_hard, l.packets_hard, l.time_hard_ms, installed_ms),
            soft: Threshold::new(l.bytes_soft, l.packets_soft, l.time_soft_ms, installed_ms),
            idle_ms: l.idle_ms.unwrap_or(u64::MAX),
            installed_ms,
            raised: AtomicU8::new(0),
            taken: AtomicU8::new(0),
        };
        lifetime.set_edge(Traffic::default());
        lifetime
    }

    pub fn bytes(&self) -> u64 {
        self.totals().bytes
    }

    pub fn packets(&self) -> u64 {
        self.totals().packets
    }

    fn totals(&self) -> Traffic {
        let totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.plus(Traffic::of_word(self.recent.load(Ordering::Relaxed)))
    }

    /// The time at which a packet last passed; 0 before the first packet.
    pub fn last_used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// Returns true if no more packets may pass.
    #[inline]
    pub fn expired(&self, now_ms: u64) -> bool {
        self.is_due(now_ms) && self.hard.reached(self.totals(), now_ms)
    }

    #[inline]
    fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.due_ms.load(Ordering::Relaxed)
    }

    /// Counts a run of packets that is about to pass, or refuses it. The run that reaches a hard limit passes, and
    /// the next run does not. All workers together therefore exceed a limit by less than one run.
    #[inline(always)]
    pub fn admit(&self, packets: u64, bytes: u64, now_ms: u64) -> Admission {
        if self.expired(now_ms) {
            return Admission {
                passes: false,
                event: self.raise(LifetimeEvent::Hard),
            };
        }
        let run = Traffic { packets, bytes };
        let admission = if self.add(run) && !self.is_due(now_ms) {
            Admission {
                passes: true,
                event: None,
            }
        } else {
            self.settle(run, now_ms, true)
        };
        if admission.passes {
            self.touch(now_ms);
        }
        admission
    }

    /// Counts packets that have passed.
    #[inline]
    pub fn count(&self, packets: u64, bytes: u64, now_ms: u64) -> Option<LifetimeEvent> {
        self.touch(now_ms);
        let run = Traffic { packets, bytes };
        if self.add(run) && !self.is_due(now_ms) {
            return None;
        }
        self.settle(run, now_ms, false).event
    }

    #[inline]
    fn touch(&self, now_ms: u64) {
        if self.used_ms.load(Ordering::Relaxed) != now_ms {
            self.used_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Counts a run. Returns true if no traffic limit is reached. Otherwise the totals must be settled.
    #[inline]
    fn add(&self, run: Traffic) -> bool {
        if !run.is_short_of(RUN_MAX) {
            let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
            *totals = totals.plus(run);
            return false;
        }
        let word = run.word();
        // Acquire: whoever sees the word emptied sees the edge at zero, or the next edge.
        let recent = self.recent.fetch_add(word, Ordering::AcqRel) + word;
        let edge = Traffic::of_word(self.edge.load(Ordering::Acquire));
        Traffic::of_word(recent).is_short_of(edge)
    }

    /// Brings the totals up to date, `run` included, and decides on the run.
    #[cold]
    #[inline(never)]
    fn settle(&self, run: Traffic, now_ms: u64, may_refuse: bool) -> Admission {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        self.edge.store(0, Ordering::Release);
        let recent = self.recent.swap(0, Ordering::AcqRel);
        *totals = totals.plus(Traffic::of_word(recent));
        let before = totals.minus(run);
        // Other runs that wait to be settled are in the totals too. The last of them passes if all that have passed
        // are below the limit.
        let passes = !may_refuse || !self.hard.reached(before, now_ms);
        if !passes {
            *totals = before;
        }
        let event = match passes {
            true => self.event_at(*totals, now_ms),
            false => self.raise(LifetimeEvent::Hard),
        };
        self.set_edge(*totals);
        Admission { passes, event }
    }

    /// Computes the next edge. The caller holds the lock or the only reference.
    fn set_edge(&self, totals: Traffic) {
        let known = LifetimeEvent::Soft.flag() | LifetimeEvent::Hard.flag();
        let mut left = self.hard.traffic.minus(totals).min(EDGE);
        let mut due = self.hard.time_ms;
        if self.raised.load(Ordering::Relaxed) & known == 0 {
            left = left.min(self.soft.traffic.minus(totals));
            due = due.min(self.soft.time_ms);
        }
        if !totals.is_short_of(self.hard.traffic) {
            (left, due) = (Traffic::default(), 0);
        }
        self.due_ms.store(due, Ordering::Relaxed);
        self.edge.store(left.word(), Ordering::Release);
    }

    /// Takes an event that time alone has made due, or that was raised and not taken. Call it again until it returns
    /// `None`.
    pub fn poll(&self, now_ms: u64) -> Option<LifetimeEvent> {
        use LifetimeEvent::{Hard, Idle, Soft};
        if self.is_due(now_ms) {
            self.event_at(self.totals(), now_ms);
        }
        let since = self.last_used_ms().max(self.installed_ms);
        if now_ms.saturating_sub(since) >= self.idle_ms {
            self.raise(Idle);
        }
        let waits = self.raised.load(Ordering::Relaxed) & !self.taken.load(Ordering::Relaxed);
        [Hard, Soft, Idle]
            .into_iter()
            .find(|event| waits & event.flag() != 0 && self.take(*event))
    }

    /// Notes that the control plane acts on an event. Returns false if it has before, or if the SA is being deleted.
    pub fn take(&self, event: LifetimeEvent) -> bool {
        self.taken.fetch_or(event.flag(), Ordering::Relaxed) & event.settled_by() == 0
    }

    fn event_at(&self, totals: Traffic, now_ms: u64) -> Option<LifetimeEvent> {
        if self.hard.reached(totals, now_ms) {
            return self.raise(LifetimeEvent::Hard);
        }
        if self.soft.reached(totals, now_ms) {
            return self.raise(LifetimeEvent::Soft);
        }
        None
    }

    /// Reports that the SA reached another limit, such as that of sequence numbers. Returns `None` if the event is
    /// known already. Soft events are not raised for an SA that is being deleted, because rekeying it would be
    /// useless.
    pub fn raise(&self, event: LifetimeEvent) -> Option<LifetimeEvent> {
        let known = event.settled_by();
        // This load saves a locked instruction for the packets of an SA beyond its soft limit.
        if self.raised.load(Ordering::Relaxed) & known != 0 {
            return None;
        }
        let former = self.raised.fetch_or(event.flag(), Ordering::Relaxed);
        (former & known == 0).then_some(event)
    }
}
