//! Auditable events (RFC 4301 §5.2, RFC 4302 §3.3 and §3.4, RFC 4303 §4): what happened, about which packet, and
//! how often beside those that are told one by one.

use std::net::IpAddr;

use crate::DropReason;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum AuditKind {
    /// Outbound: no policy lets the packet out (RFC 4301 §5.1).
    NoPolicy,
    /// A policy discards the packet (RFC 4301 §5.1.1), outbound or although it came through an SA.
    Discard,
    /// Outbound: the policy has no SA for the packet (RFC 4301 §5.1.1).
    NoOutboundSa,
    /// Outbound: sequence numbers would cycle (RFC 4303 §3.3.3).
    SequenceOverflow,
    /// Inbound: no SA for SPI and destination (RFC 4303 §3.4.2).
    NoSa,
    /// A fragment offered to ESP or AH (RFC 4303 §3.4.1), or outbound to transport mode (§3.3.4).
    Fragment,
    /// Inbound: replayed, or left of the window (RFC 4303 §3.4.3).
    Replay,
    /// Inbound: the integrity check failed (RFC 4303 §3.4.4).
    IntegrityFailed,
    /// Inbound: the ESP packet, its padding or its next header is wrong (RFC 4303 §2.4).
    Malformed,
    /// Inbound: the packet is not one the SA is for (RFC 4301 §5.2).
    SelectorMismatch,
    /// Inbound: an ICMP error about traffic that is not the SA's (RFC 4301 §6.2).
    IcmpError,
    /// Inbound: a fragment that does not go with the policy of its datagram (RFC 4301 §7.3).
    RefusedFragment,
    /// Inbound: in the clear, where policy demands protection (RFC 4301 §5.2).
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

    /// The event that a drop is, if the RFCs want it audited.
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

/// One event. RFC 4303 §4 asks for SPI, date and time, source, destination, sequence number and, in IPv6, the
/// flow label; the time is the log's. Fields that a packet does not have, or that are not known, are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    pub kind: AuditKind,
    pub spi: Option<u32>,
    pub sequence: Option<u64>,
    pub source: Option<IpAddr>,
    pub destination: Option<IpAddr>,
    pub flow_label: Option<u32>,
}

/// An event that is to be told, and how many of its kind were not since the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub event: AuditEvent,
    pub suppressed: u64,
}

/// Token buckets, one for each kind, so that a flood of one hides no other.
#[derive(Debug)]
pub struct Audit {
    burst: u64,
    per_second: u64,
    buckets: [Bucket; AuditKind::ALL.len()],
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// In thousandths of an event.
    tokens: u64,
    filled_ms: u64,
    suppressed: u64,
}

/// An event's worth of tokens.
const ONE: u64 = 1000;

impl Audit {
    /// Tells `burst` events of a kind at once and `per_second` in the long run.
    pub fn new(burst: u64, per_second: u64) -> Self {
        let bucket = Bucket {
            tokens: burst * ONE,
            filled_ms: 0,
            suppressed: 0,
        };
        Self {
            burst,
            per_second,
            buckets: [bucket; AuditKind::ALL.len()],
        }
    }

    /// Whether the event is to be told. Each is either told or counted as suppressed.
    pub fn record(&mut self, event: AuditEvent, now_ms: u64) -> Option<Report> {
        self.record_many(event, 1, now_ms)
    }

    /// The same for `count` packets that share everything but their sequence numbers.
    pub fn record_many(&mut self, event: AuditEvent, count: u64, now_ms: u64) -> Option<Report> {
        let (burst, per_second) = (self.burst, self.per_second);
        let bucket = self.buckets.get_mut(event.kind as usize)?;
        if count == 0 {
            return None;
        }
        bucket.fill(burst, per_second, now_ms);
        if bucket.tokens < ONE {
            bucket.suppressed += count;
            return None;
        }
        bucket.tokens -= ONE;
        let suppressed = std::mem::take(&mut bucket.suppressed) + count - 1;
        Some(Report { event, suppressed })
    }

    /// Whether something was suppressed that [`Audit::flush`] has not told yet.
    pub fn is_suppressing(&self) -> bool {
        self.buckets.iter().any(|bucket| bucket.suppressed > 0)
    }

    /// The kinds of which events were suppressed and for which there is a token again: told once a while, so that
    /// the end of a flood is counted too.
    pub fn flush(&mut self, now_ms: u64) -> impl Iterator<Item = (AuditKind, u64)> + '_ {
        let (burst, per_second) = (self.burst, self.per_second);
        let buckets = AuditKind::ALL.into_iter().zip(&mut self.buckets);
        buckets.filter_map(move |(kind, bucket)| {
            bucket.fill(burst, per_second, now_ms);
            if bucket.suppressed == 0 || bucket.tokens < ONE {
                return None;
            }
            bucket.tokens -= ONE;
            Some((kind, std::mem::take(&mut bucket.suppressed)))
        })
    }
}

impl Bucket {
    fn fill(&mut self, burst: u64, per_second: u64, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.filled_ms);
        self.filled_ms = self.filled_ms.max(now_ms);
        // A thousandth of an event per millisecond is an event per second.
        let gained = passed_ms.saturating_mul(per_second);
        self.tokens = self.tokens.saturating_add(gained).min(burst * ONE);
    }
}
