//! Auditable events (RFC 4301 §5.2, RFC 4302 §3.3 and §3.4, RFC 4303 §4), limited in rate. An event says what
//! happened and to which packet. Events above the rate are counted and not reported one by one. The module writes no
//! log: the caller does.

use std::net::IpAddr;

use crate::DropReason;

/// The kind of an auditable event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum AuditKind {
    /// Outbound: no policy lets the packet out (RFC 4301 §5.1).
    NoPolicy,
    /// A policy discards the packet (RFC 4301 §5.1.1): an outbound packet, or an inbound one that came through an SA.
    Discard,
    /// Outbound: the policy has no SA that takes the packet (RFC 4301 §5.1.1).
    NoOutboundSa,
    /// Outbound: the sequence number would cycle (RFC 4303 §3.3.3).
    SequenceOverflow,
    /// Inbound: no SA exists for the SPI and the destination (RFC 4303 §3.4.2).
    NoSa,
    /// A fragment arrived at ESP or AH (RFC 4303 §3.4.1), or was to be sent in transport mode (RFC 4303 §3.3.4).
    Fragment,
    /// Inbound: the packet is a replay, or its number lies left of the window (RFC 4303 §3.4.3).
    Replay,
    /// Inbound: the integrity check failed (RFC 4303 §3.4.4).
    IntegrityFailed,
    /// Inbound: the ESP packet, its padding or its next header is malformed (RFC 4303 §2.4).
    Malformed,
    /// Inbound: the SA's selectors do not match the packet (RFC 4301 §5.2).
    SelectorMismatch,
    /// Inbound: an ICMP error quotes traffic that is not the SA's (RFC 4301 §6.2).
    IcmpError,
    /// Inbound: the policy of the datagram does not admit this fragment (RFC 4301 §7.3).
    RefusedFragment,
    /// Inbound: the packet came in the clear where the policy demands protection (RFC 4301 §5.2).
    NotProtected,
}

impl AuditKind {
    pub const ALL: [Self; 13] = [
        Self::NoPolicy,
        Self::Discard,
        Self::NoOutboundSa,
        Self::SequenceOverflow,
        Self::NoSa,
        Self::Fragment,
        Self::Replay,
        Self::IntegrityFailed,
        Self::Malformed,
        Self::SelectorMismatch,
        Self::IcmpError,
        Self::RefusedFragment,
        Self::NotProtected,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::NoPolicy => "no-policy",
            Self::Discard => "discard",
            Self::NoOutboundSa => "no-outbound-sa",
            Self::SequenceOverflow => "sequence-overflow",
            Self::NoSa => "no-sa",
            Self::Fragment => "fragment",
            Self::Replay => "replay",
            Self::IntegrityFailed => "integrity-failed",
            Self::Malformed => "malformed",
            Self::SelectorMismatch => "selector-mismatch",
            Self::IcmpError => "icmp-error",
            Self::RefusedFragment => "refused-fragment",
            Self::NotProtected => "not-protected",
        }
    }

    /// Maps a drop reason to its event. Returns `None` if the RFCs do not ask for an audit of this reason.
    pub const fn of(reason: DropReason) -> Option<Self> {
        match reason {
            DropReason::NoPolicy => Some(Self::NoPolicy),
            DropReason::PolicyDiscard => Some(Self::Discard),
            DropReason::NoSa | DropReason::OutsideSaSelectors => Some(Self::NoOutboundSa),
            DropReason::Fragment => Some(Self::Fragment),
            DropReason::SequenceExhausted => Some(Self::SequenceOverflow),
            DropReason::UnknownSpi => Some(Self::NoSa),
            DropReason::Replayed | DropReason::BeforeWindow => Some(Self::Replay),
            DropReason::AuthenticationFailed => Some(Self::IntegrityFailed),
            DropReason::MalformedEsp | DropReason::BadPadding | DropReason::BadNextHeader => {
                Some(Self::Malformed)
            }
            DropReason::SelectorMismatch => Some(Self::SelectorMismatch),
            DropReason::MalformedIcmpError | DropReason::IcmpErrorMismatch => Some(Self::IcmpError),
            DropReason::UnknownFragment | DropReason::FragmentRefused => {
                Some(Self::RefusedFragment)
            }
            DropReason::NotProtected => Some(Self::NotProtected),
            _ => None,
        }
    }
}

/// An auditable event. RFC 4303 §4 asks for the SPI, the date and time, the addresses, the sequence number and, in
/// IPv6, the flow label. The log adds the time. A field is none if the packet does not have it or if it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    pub kind: AuditKind,
    pub spi: Option<u32>,
    pub sequence: Option<u64>,
    pub source: Option<IpAddr>,
    pub destination: Option<IpAddr>,
    pub flow_label: Option<u32>,
}

/// An event to report, and the number of events of its kind that were suppressed since the last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditReport {
    pub event: AuditEvent,
    pub suppressed: u64,
}

/// Token buckets, one for each kind of event, so that a flood of one kind hides no other kind.
#[derive(Debug)]
pub struct Audit {
    burst: u64,
    /// The time for one event, and the longest that it becomes.
    pause_ms: u64,
    pause_max_ms: u64,
    buckets: [Bucket; AuditKind::ALL.len()],
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Tokens, in thousandths of an event.
    tokens: u64,
    filled_ms: u64,
    /// The time for one event at present.
    pause_ms: u64,
    suppressed: u64,
}

/// The tokens that one event costs.
const ONE: u64 = 1000;

impl Audit {
    /// Reports at most `burst` events of a kind at once, and at most `per_second` in the long run.
    pub fn new(burst: u64, per_second: u64) -> Self {
        let pause_ms = ONE / per_second.clamp(1, ONE);
        let bucket = Bucket {
            tokens: burst * ONE,
            filled_ms: 0,
            pause_ms,
            suppressed: 0,
        };
        Self {
            burst,
            pause_ms,
            pause_max_ms: pause_ms,
            buckets: [bucket; AuditKind::ALL.len()],
        }
    }

    /// Waits twice as long after each event that empties a bucket, up to this time: what goes on and on is reported
    /// ever more seldom. A full bucket ends that.
    #[must_use]
    pub fn slowing_to(mut self, pause_max_ms: u64) -> Self {
        self.pause_max_ms = pause_max_ms.max(self.pause_ms);
        self
    }

    /// Returns the report if the event is to be reported now. Otherwise the event is counted as suppressed.
    pub fn record(&mut self, event: AuditEvent, now_ms: u64) -> Option<AuditReport> {
        self.record_many(event, 1, now_ms)
    }

    /// Records `count` events for packets that differ in their sequence numbers only. One of the events is reported
    /// at most; the others count as suppressed.
    pub fn record_many(
        &mut self,
        event: AuditEvent,
        count: u64,
        now_ms: u64,
    ) -> Option<AuditReport> {
        let limits = (self.burst, self.pause_ms, self.pause_max_ms);
        let bucket = self.buckets.get_mut(event.kind as usize)?;
        if count == 0 {
            return None;
        }
        if !bucket.take(limits, now_ms) {
            bucket.suppressed += count;
            return None;
        }
        let suppressed = std::mem::take(&mut bucket.suppressed) + count - 1;
        Some(AuditReport { event, suppressed })
    }

    /// Returns true if suppressed events exist that [`Audit::flush`] has not yielded yet.
    pub fn is_suppressing(&self) -> bool {
        self.buckets.iter().any(|bucket| bucket.suppressed > 0)
    }

    /// Yields the kinds that have suppressed events and a token again, with the number of those events. The caller
    /// calls `flush` once in a while, so that the last events of a flood are reported too.
    pub fn flush(&mut self, now_ms: u64) -> impl Iterator<Item = (AuditKind, u64)> + '_ {
        let limits = (self.burst, self.pause_ms, self.pause_max_ms);
        let buckets = AuditKind::ALL.into_iter().zip(&mut self.buckets);
        buckets.filter_map(move |(kind, bucket)| {
            if bucket.suppressed == 0 || !bucket.take(limits, now_ms) {
                return None;
            }
            Some((kind, std::mem::take(&mut bucket.suppressed)))
        })
    }
}

impl Bucket {
    /// Takes the token for one event, if there is one. `limits` are the burst, and the shortest and the longest pause.
    fn take(&mut self, limits: (u64, u64, u64), now_ms: u64) -> bool {
        let (burst, pause_ms, pause_max_ms) = limits;
        self.fill(burst * ONE, pause_ms, now_ms);
        if self.tokens < ONE {
            return false;
        }
        self.tokens -= ONE;
        if self.tokens < ONE {
            self.pause_ms = self.pause_ms.saturating_mul(2).min(pause_max_ms);
        }
        true
    }

    fn fill(&mut self, full: u64, pause_ms: u64, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.filled_ms);
        let gained = passed_ms.saturating_mul(ONE) / self.pause_ms.max(1);
        self.tokens = self.tokens.saturating_add(gained).min(full);
        if self.tokens == full {
            self.pause_ms = pause_ms;
            self.filled_ms = self.filled_ms.max(now_ms);
        } else {
            // The rest of the time counts at the next look.
            self.filled_ms += gained * self.pause_ms / ONE;
        }
    }
}
