//! The reasons for which packets are dropped: one list, with one counter each.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use esplanade_counters::Counter;

esplanade_counters::reasons! {
    /// Every reason for which the packet path gives up a packet.
    pub enum DropReason: Packets {
        /// Outbound, or inside a tunnel: not a well-formed IPv4 or IPv6 packet.
        MalformedInner = "malformed-inner";
        /// The SPD says Discard. Inbound, this concerns a packet that its SA accepted (RFC 4301 §4.4.1).
        PolicyDiscard = "policy-discard";
        /// Outbound: no SPD entry matches. The default is to discard (RFC 4301 §5.1).
        NoPolicy = "no-policy";
        /// Outbound: the policy has no SA yet, and an acquire was raised.
        NoSa = "no-sa";
        /// Outbound: the policy's SA was negotiated for narrower selectors than this packet's.
        OutsideSaSelectors = "outside-sa-selectors";
        /// Outbound: all sequence numbers are used, and they must not cycle (RFC 4303 §3.3.3).
        SequenceExhausted = "sequence-exhausted";
        /// A hard limit of the SA's lifetime is reached (RFC 4301 §4.4.2.1).
        LifetimeExpired = "lifetime-expired";
        /// Outbound: the packet does not fit into the batch or into an outer packet.
        TooLong = "too-long";
        /// Outbound: the packet is longer than its path allows, and must not be fragmented. The sender was told
        /// (RFC 4301 §8.2.1).
        TooBig = "too-big";
        /// Overlapping or tiny fragments. Outbound, also too many fragments, and fragments of datagrams that did not come
        /// completely (RFC 4301 §7).
        FragmentRefused = "fragment-refused";
        /// Outbound: transport mode carries whole packets only (RFC 4303 §3.3.4). A fragment would need a tunnel.
        Fragment = "fragment";
        /// More nested SAs than are applied or removed.
        NestedTooDeep = "nested-too-deep";
        /// The engine is full, out of service, or refused a job.
        EngineFailed = "engine-failed";
        /// The random generator returned no IV.
        NoRandomness = "no-randomness";
        /// Inbound: too short for an ESP packet of its SA, or not a whole number of blocks.
        MalformedEsp = "malformed-esp";
        /// Inbound: the AH is too short, its length is not that of its SA, or the headers before it are malformed.
        MalformedAh = "malformed-ah";
        /// Inbound: no SA has this SPI (RFC 4303 §3.4.2).
        UnknownSpi = "unknown-spi";
        /// Inbound: the sequence number was seen before (RFC 4303 §3.4.3).
        Replayed = "replayed";
        /// Inbound: the sequence number lies left of the replay window.
        BeforeWindow = "before-window";
        /// Inbound: the ICV is wrong (RFC 4303 §3.4.4).
        AuthenticationFailed = "authentication-failed";
        /// Inbound: the padding is longer than the payload or has the wrong bytes (RFC 4303 §2.4).
        BadPadding = "bad-padding";
        /// Inbound: the next header is neither IPv4, IPv6 nor a dummy.
        BadNextHeader = "bad-next-header";
        /// Inbound: a dummy packet, discarded without notice (RFC 4303 §2.6).
        Dummy = "dummy";
        /// Inbound: the inner packet does not match the SA's selectors (RFC 4301 §5.2).
        SelectorMismatch = "selector-mismatch";
        /// Inbound: an ICMP error that its SA accepts only by its quote, and whose quote is unusable. The quote is
        /// damaged, truncated, not for the sender of the quoted packet, or about another error (RFC 4301 §6.2).
        MalformedIcmpError = "malformed-icmp-error";
        /// Inbound: an ICMP error that its SA does not accept, about a packet that was never sent on the SA
        /// (RFC 4301 §6.2).
        IcmpErrorMismatch = "icmp-error-mismatch";
        /// Inbound: a later fragment through an SA for certain ports, whose first fragment has not passed on that SA
        /// (RFC 4301 §7.3).
        UnknownFragment = "unknown-fragment";
        /// Inbound: the outer header signals congestion, and the inner one does not support ECN (RFC 6040 §4.2).
        EcnNotCapable = "ecn-not-capable";
        /// Inbound: an unprotected packet that no Bypass entry admits (RFC 4301 §5.2).
        NotProtected = "not-protected";
    }
}

const COUNT: usize = DropReason::ALL.len();

impl std::fmt::Display for DropReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The drop counters, one for each [`DropReason`].
#[derive(Debug)]
pub struct DropCounters([AtomicU64; COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; COUNT])
    }
}

impl DropCounters {
    pub fn add(&self, reason: DropReason, packets: u64) {
        self.0[reason as usize].fetch_add(packets, Ordering::Relaxed);
    }

    pub fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    pub fn total(&self) -> u64 {
        self.0.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.get(r)))
    }
}

/// The drop counters of one SA. Most SAs never drop a packet, so the memory is allocated at the first drop.
#[derive(Debug, Default)]
pub struct SaDropCounters(OnceLock<Box<DropCounters>>);

impl SaDropCounters {
    pub fn add(&self, reason: DropReason, packets: u64) {
        self.0.get_or_init(Box::default).add(reason, packets);
    }

    pub fn get(&self, reason: DropReason) -> u64 {
        self.0.get().map_or(0, |drops| drops.get(reason))
    }

    pub fn total(&self) -> u64 {
        self.0.get().map_or(0, |drops| drops.total())
    }

    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&r| (r, self.get(r)))
    }
}

macro_rules! walk_counters {
    ($($(#[doc = $help:literal])+ $name:ident: $unit:ident,)*) => {
        /// The counters of one walk (one direction of one worker). `packets_in` plus `dummies` equals `packets_out`
        /// plus `packets_bypassed` plus the drops plus what is still in the engine.
        #[derive(Debug, Default)]
        pub struct WalkCounters {
            $($(#[doc = $help])+ pub $name: AtomicU64,)*
            pub drops: DropCounters,
        }

        impl WalkCounters {
            /// Every counter besides the drops.
            pub const COUNTERS: &[Counter] =
                esplanade_counters::table!($($(#[doc = $help])+ $name: $unit,)*);

            /// Returns the counts, in the order of [`Self::COUNTERS`].
            pub fn iter(&self) -> impl Iterator<Item = u64> {
                [$(self.$name.load(Ordering::Relaxed),)*].into_iter()
            }
        }
    };
}

walk_counters! {
    /// Packets that entered the packet path.
    packets_in: Packets,
    /// Their bytes.
    bytes_in: Bytes,
    /// Packets sealed and sent, or opened and delivered.
    packets_out: Packets,
    /// Their bytes.
    bytes_out: Bytes,
    /// Packets that a policy let through unprotected.
    packets_bypassed: Packets,
    /// Outbound: dummy packets made (`tfc_dummies`). Received ones are dropped as `dummy`.
    dummies: Packets,
}

/// Adds to a counter that only this walk writes. A load and a store suffice, and cost less than a locked addition.
fn add_alone(counter: &AtomicU64, value: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(value);
    counter.store(sum, Ordering::Relaxed);
}

impl WalkCounters {
    pub(crate) fn count_in(&self, packets: u64, bytes: u64) {
        add_alone(&self.packets_in, packets);
        add_alone(&self.bytes_in, bytes);
    }

    pub(crate) fn count_out(&self, packets: u64, bytes: u64) {
        add_alone(&self.packets_out, packets);
        add_alone(&self.bytes_out, bytes);
    }

    pub(crate) fn count_bypassed(&self, packets: u64) {
        add_alone(&self.packets_bypassed, packets);
    }

    pub(crate) fn count_dummies(&self, packets: u64) {
        add_alone(&self.dummies, packets);
    }

    pub(crate) fn uncount_dummies(&self, packets: u64) {
        add_alone(&self.dummies, packets.wrapping_neg());
    }

    pub(crate) fn count_drop(&self, reason: DropReason, packets: u64) {
        add_alone(&self.drops.0[reason as usize], packets);
    }
}
