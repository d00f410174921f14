//! SA lifetimes in bytes, packets and time (RFC 4301 §4.4.2.1), and idleness.
//!
//! Each kind of event is raised once per SA. A limit of traffic is overshot by less than one run of packets
//! outbound, whatever the number of workers ([`Lifetime::admit`] claims before the run passes), and by what is
//! already in the engines inbound, where only an authenticated packet may count ([`Lifetime::count`]).
//!
//! A run costs one locked addition: one word counts the packets and bytes since the totals were last settled, and
//! short of `edge` neither reaches a limit. At the edge the totals are settled under a lock. The edge is zero while that
//! is done, and is so before the word is emptied: a run that is counted in the emptied word does not compare with
//! an edge that was meant for the full one. A run that was in the full word is in the totals from which the next edge
//! comes, and that is not zero only if they are short of the hard limits.

use std::sync::PoisonError;

use crate::atomic::{AtomicU8, AtomicU64, Mutex, Ordering};

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

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    packets: u64,
    bytes: u64,
}

/// Of the word of recent traffic; the packets are in the bits above.
const BYTES_BITS: u32 = 40;
const BYTES_MASK: u64 = (1 << BYTES_BITS) - 1;
/// The word is settled here at the latest. As much again is left for what is counted until that is done.
const EDGE: Traffic = Traffic {
    packets: 1 << 23,
    bytes: 1 << 39,
};
/// A longer run goes straight to the totals.
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

    /// Whether both are less.
    fn is_short_of(self, limit: Self) -> bool {
        self.packets < limit.packets && self.bytes < limit.bytes
    }
}

/// `u64::MAX` is no limit.
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

/// The traffic and age of one SA against its limits. Time is the caller's, monotonic. What every run needs comes first.
#[derive(Debug)]
#[repr(C)]
pub struct Lifetime {
    /// Traffic that is not in the totals yet.
    recent: AtomicU64,
    /// Where in `recent` the next limit is.
    edge: AtomicU64,
    /// When the next limit in time is reached; 0 when one of traffic has ended the SA.
    due_ms: AtomicU64,
    /// When a packet last passed.
    used_ms: AtomicU64,
    totals: Mutex<Traffic>,
    hard: Threshold,
    soft: Threshold,
    idle_ms: u64,
    installed_ms: u64,
    /// Flags of the events raised.
    raised: AtomicU8,
}

impl Lifetime {
    /// The bytes that every run needs.
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

    /// When a packet last passed; 0 before the first.
    pub fn last_used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// Whether nothing more may pass.
    #[inline]
    pub fn expired(&self, now_ms: u64) -> bool {
        self.is_due(now_ms) && self.hard.reached(self.totals(), now_ms)
    }

    #[inline]
    fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.due_ms.load(Ordering::Relaxed)
    }

    /// Counts a run of packets that is about to pass, or refuses it. The run that reaches a hard limit passes,
    /// the next does not; so all workers together exceed a limit by less than one run.
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

    /// Counts a run. True if no limit of traffic is reached with it, else it has to be settled.
    #[inline]
    fn add(&self, run: Traffic) -> bool {
        if !run.is_short_of(RUN_MAX) {
            let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
            *totals = totals.plus(run);
            return false;
        }
        let word = run.word();
        // Acquire: who finds the word emptied finds the edge at zero, or the next one.
        let recent = self.recent.fetch_add(word, Ordering::AcqRel) + word;
        let edge = Traffic::of_word(self.edge.load(Ordering::Acquire));
        Traffic::of_word(recent).is_short_of(edge)
    }

    /// Brings the totals up to date, `run` included, and sees what they say about it.
    #[cold]
    #[inline(never)]
    fn settle(&self, run: Traffic, now_ms: u64, may_refuse: bool) -> Admission {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        self.edge.store(0, Ordering::Release);
        let recent = self.recent.swap(0, Ordering::AcqRel);
        *totals = totals.plus(Traffic::of_word(recent));
        let before = totals.minus(run);
        // Runs that wait to be settled are in the totals too: the last of them passes if all that have passed are short
        // of the limit.
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

    /// The caller has the lock, or the only reference.
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

    /// What the time asks for while no packet passes. Call it again until it gives nothing.
    pub fn poll(&self, now_ms: u64) -> Option<LifetimeEvent> {
        let due = self.is_due(now_ms);
        let event = due.then(|| self.event_at(self.totals(), now_ms));
        event.flatten().or_else(|| {
            let since = self.last_used_ms().max(self.installed_ms);
            let idle = now_ms.saturating_sub(since) >= self.idle_ms;
            idle.then(|| self.raise(LifetimeEvent::Idle)).flatten()
        })
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
