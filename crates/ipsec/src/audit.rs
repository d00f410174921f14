//! Auditable events (RFC 4301 §5.2, RFC 4302 §3.3 and §3.4, RFC 4303 §4). An event says what happened and to which
//! packet. The caller decides how many of them it reports.

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
