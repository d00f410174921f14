//! Security associations: the parameters and the state of one direction of a child SA. The walks in
//! [`crate::outbound`] and [`crate::inbound`] use them.

use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use esplanade_crypto::{
    IvKind, KeyContext, KeyError, KeyMaterial, Protocol, Tier, Transform, prefetch_line,
};

use crate::drop_reason::{DropReason, SaDropCounters};
use crate::fragment::Arrivals;
use crate::layout::Layout;
use crate::lifetime::{Lifetime, LifetimeLimits};
use crate::options::{IcmpErrors, PolicyId};
use crate::pace::{self, Pace};
use crate::path::PathCell;
use crate::placement::Placement;
use crate::replay::ReplayWindow;
use crate::selector::{AddressRange, NextLayer, PortRange, SelectorSet};
use crate::sequence::SequenceAllocator;
use crate::tunnel::{self, OuterMeta};
use crate::wire::udp_encap::UDP_HEADER_LEN;
use crate::wire::{IpView, ah};

pub use crate::options::{DscpSet, Mode, SaDirection, TfcPadding, TunnelOptions};
pub use crate::path::{PackedPath, Path};

/// The parameters that IKE negotiated for one direction.
pub struct SaParameters<'a> {
    pub spi: u32,
    pub policy: PolicyId,
    pub transform: Transform,
    pub esn: bool,
    /// The key material in the order that [`Transform::key_material_len`] gives. The SA keeps a copy for as long as
    /// it lives.
    pub key_material: &'a [u8],
    pub selectors: SelectorSet,
    pub path: Path,
    pub tunnel: TunnelOptions,
    pub lifetime: LifetimeLimits,
    /// The size of the replay window in packets. Inbound only; 0 switches anti-replay off.
    pub replay_window: u32,
    /// The peer's replay window in packets, as far as it is known. It decides whether workers share the SA: see
    /// [`crate::pace`].
    pub peer_replay_window: u32,
    pub mode: Mode,
    /// Outbound only.
    pub tfc: TfcPadding,
    /// Outbound only: the inner DSCPs that this SA takes among the SAs of its policy (RFC 4301 §4.1).
    pub dscp: DscpSet,
    /// The priority class of every packet, 0 to 7. `None` takes the class from the DSCP.
    pub class: Option<u8>,
    pub icmp_errors: IcmpErrors,
    /// Both ends accept later fragments on an SA for certain ports (NON_FIRST_FRAGMENTS_ALSO, RFC 4301 §7.3).
    pub non_first_fragments: bool,
    /// Inbound: the interface to which packets are delivered, as in [`Flow::interface`](crate::selector::Flow).
    /// Outbound the field is only reported: the SPD's entry decides from which interface packets come.
    pub interface: u32,
    /// The caller's monotonic time of installation in milliseconds. Limits in time count from it.
    pub installed_ms: u64,
}

impl<'a> SaParameters<'a> {
    /// Makes the parameters of a tunnel with 32-bit sequence numbers, no limits and a replay window of 64 packets.
    pub fn new(
        spi: u32,
        policy: PolicyId,
        transform: Transform,
        key_material: &'a [u8],
        selectors: SelectorSet,
        path: Path,
    ) -> Self {
        Self {
            spi,
            policy,
            transform,
            esn: false,
            key_material,
            selectors,
            path,
            tunnel: TunnelOptions::default(),
            lifetime: LifetimeLimits::default(),
            replay_window: 64,
            peer_replay_window: 32,
            mode: Mode::Tunnel,
            tfc: TfcPadding::None,
            dscp: DscpSet::ALL,
            class: None,
            icmp_errors: IcmpErrors::default(),
            non_first_fragments: false,
            interface: 0,
            installed_ms: 0,
        }
    }
}

impl std::fmt::Debug for SaParameters<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SaParameters")
            .field("spi", &self.spi)
            .field("policy", &self.policy)
            .field("transform", &self.transform)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The part that SAs of both directions have in common. The fields that every packet needs come first.
#[derive(Debug)]
#[repr(C)]
pub struct SaCommon {
    pub spi: u32,
    pub(crate) layout: Layout,
    pub tunnel: TunnelOptions,
    path: PathCell,
    pub lifetime: Lifetime,
    pub policy: PolicyId,
    /// The interface to which opened packets are delivered, or from which outbound ones come. 0 is the common
    /// interface.
    pub interface: u32,
    pub(crate) key: Arc<KeyContext>,
    pub selectors: SelectorSet,
    pub drops: SaDropCounters,
    pub dscp: DscpSet,
    pub mode: Mode,
    pub tfc: TfcPadding,
    /// The priority class of every packet. `None` takes the class from the DSCP.
    pub class: Option<u8>,
    pub icmp_errors: IcmpErrors,
    pub non_first_fragments: bool,
    /// Several workers share the SA: the peer's replay window is large enough for it.
    pub shared: bool,
    /// The engine that the packets go to.
    pub placement: Placement,
    pub installed_ms: u64,
}

impl SaCommon {
    fn new(parameters: SaParameters<'_>) -> Result<Self, KeyError> {
        let SaParameters {
            transform,
            esn,
            key_material,
            ..
        } = parameters;
        Ok(Self {
            spi: parameters.spi,
            policy: parameters.policy,
            selectors: parameters.selectors,
            tunnel: parameters.tunnel,
            mode: parameters.mode,
            tfc: parameters.tfc,
            dscp: parameters.dscp,
            class: parameters.class,
            icmp_errors: parameters.icmp_errors,
            non_first_fragments: parameters.non_first_fragments,
            shared: pace::shares(parameters.peer_replay_window),
            placement: Placement::default(),
            interface: parameters.interface,
            installed_ms: parameters.installed_ms,
            lifetime: Lifetime::new(&parameters.lifetime, parameters.installed_ms),
            drops: SaDropCounters::default(),
            key: Arc::new(KeyContext::new(transform, esn, key_material)?),
            layout: Layout::new(transform, parameters.mode, parameters.tfc, parameters.class),
            path: PathCell::new(parameters.path),
        })
    }

    fn is_usual(&self) -> bool {
        let tunnel = TunnelOptions {
            dscp_from_outer: self.tunnel.dscp_from_outer,
            ..TunnelOptions::default()
        };
        self.layout.is_esp_tunnel()
            && self.layout.iv_kind == IvKind::Sequence
            && self.layout.tfc == TfcPadding::None
            && self.tunnel == tunnel
    }

    pub fn transform(&self) -> Transform {
        self.key.transform()
    }

    pub fn esn(&self) -> bool {
        self.key.esn()
    }

    /// The tier of the CPU engine that the key was made for.
    pub fn tier(&self) -> Tier {
        self.key.tier()
    }

    /// The key material, for engines that keep keys in a form of their own.
    pub fn material(&self) -> &KeyMaterial {
        self.key.material()
    }

    /// The number of the key among those of this process, for engines that keep keys by it.
    pub fn key_number(&self) -> u32 {
        self.key.slot().index
    }

    pub fn path(&self) -> Path {
        self.path.load().unpack()
    }

    pub(crate) fn packed_path(&self) -> PackedPath {
        self.path.load()
    }

    /// Returns the path if a few loads suffice to read it, as between IPv4 ends. Returns `None` otherwise.
    #[inline(always)]
    pub(crate) fn path_between_ipv4(&self) -> Option<PackedPath> {
        self.path.load_near()
    }

    /// Follows a peer (or this end) to another address. The change takes effect with the next burst.
    pub fn set_path(&self, path: Path) {
        self.path.store(path);
    }

    /// The caller's monotonic time of the last packet in milliseconds. It is 0 before the first packet.
    pub fn last_used_ms(&self) -> u64 {
        self.lifetime.last_used_ms()
    }
}

/// An outbound SA, which seals packets. The fields that every packet needs come first and fill as few cache lines as
/// possible.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct OutboundSa {
    /// The generation of the newest selection of the policy that had this SA. Flow caches compare their stamps with
    /// it.
    pub(crate) selection: AtomicU64,
    pub sequence: SequenceAllocator,
    /// The number of the SA: the index of its key's slot.
    number: u32,
    nested: bool,
    usual: bool,
    pub common: SaCommon,
    /// The policy whose SA goes around this one; present where `nested` is set.
    next: Option<PolicyId>,
    /// The path MTU in bytes; 0 if the path is not known to be narrow. It is kept only for SAs that pad packets.
    path_mtu: AtomicU16,
    /// The pace at which several workers take sequence numbers of this SA in batches.
    pub pace: Pace,
}

const _: () = {
    let hot = offset_of!(SaCommon, lifetime) + Lifetime::HOT;
    assert!(offset_of!(OutboundSa, common) + hot <= 128);
};

impl OutboundSa {
    pub fn new(parameters: SaParameters<'_>) -> Result<Self, KeyError> {
        let sequence = SequenceAllocator::new(parameters.esn);
        Self::with_sequence(parameters, sequence)
    }

    /// Makes an SA whose sequence numbers need not begin at 1.
    pub fn with_sequence(
        parameters: SaParameters<'_>,
        sequence: SequenceAllocator,
    ) -> Result<Self, KeyError> {
        let pace = Pace::new(parameters.peer_replay_window);
        let common = SaCommon::new(parameters)?;
        Ok(Self {
            pace,
            usual: common.is_usual(),
            number: common.key.slot().index,
            common,
            sequence,
            selection: AtomicU64::new(0),
            nested: false,
            next: None,
            path_mtu: AtomicU16::new(0),
        })
    }

    /// Makes the processor fetch the two cache lines that every packet needs.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        prefetch_line(self);
        prefetch_line(&self.common.lifetime);
    }

    /// The number of this SA in tables of SAs and of keys. Another SA can get the number only after this SA is
    /// dropped.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns true if packets that this SA has sealed go on through another SA.
    #[inline(always)]
    pub(crate) fn is_nested(&self) -> bool {
        self.nested
    }

    /// Returns true for ESP in tunnel mode as most SAs use it. The sequence number is the IV, and the outer header
    /// takes all fields from the inner one. Packets are not padded to a length, and sealed packets leave without
    /// another SA.
    #[inline(always)]
    pub(crate) fn is_usual(&self) -> bool {
        self.usual
    }

    /// Sets the learned path MTU in bytes, or none. Packets are padded to no more than fits the path.
    pub fn set_path_mtu(&self, path_mtu: Option<u16>) {
        let path_mtu = path_mtu.unwrap_or(0);
        // Most SAs pad nothing, and a path changes seldom, so the store is skipped when it changes nothing.
        if self.common.layout.tfc != TfcPadding::None
            && self.path_mtu.load(Ordering::Relaxed) != path_mtu
        {
            self.path_mtu.store(path_mtu, Ordering::Relaxed);
        }
    }

    /// The length in bytes to which TFC padding extends inner packets. It is 0 without TFC padding.
    #[inline(always)]
    pub(crate) fn padded_to(&self) -> usize {
        match self.common.layout.tfc {
            TfcPadding::None => 0,
            TfcPadding::To(len) => self.fitting(len.into()),
        }
    }

    #[cold]
    fn fitting(&self, len: usize) -> usize {
        match self.path_mtu.load(Ordering::Relaxed) {
            0 => len,
            path_mtu => len.min(self.inner_mtu(path_mtu.into())),
        }
    }

    /// The longest inner packet in bytes whose outer packet takes no more than `path_mtu` bytes (RFC 4301 §8.1).
    pub fn inner_mtu(&self, path_mtu: usize) -> usize {
        let layout = &self.common.layout;
        let (path, transform) = (self.common.path(), self.common.transform());
        let icv_field = layout.iv_len() + layout.icv_len();
        match (layout.protocol, layout.mode) {
            (Protocol::Esp, Mode::Tunnel) => {
                tunnel::inner_mtu(path_mtu, transform, path.version(), path.udp_encap)
            }
            // The packet keeps its own IP header, which is as long in front of ESP as it was inside.
            (Protocol::Esp, Mode::Transport) => {
                let udp_len = if path.udp_encap { UDP_HEADER_LEN } else { 0 };
                let header_len = tunnel::header_len(path.version(), false);
                let sealed = path_mtu.saturating_sub(header_len + udp_len);
                header_len + transform.payload_len_max(sealed)
            }
            (Protocol::Ah, mode) => {
                let outer = match mode {
                    Mode::Tunnel => tunnel::header_len(path.version(), false),
                    _ => 0,
                };
                path_mtu.saturating_sub(outer + ah::header_len(path.version(), icv_field))
            }
        }
    }

    /// The length of the outer packet in bytes around an inner packet of `inner_len` bytes without IP options.
    pub fn outer_len(&self, inner_len: usize) -> usize {
        let layout = &self.common.layout;
        let path = self.common.path();
        let own_header_len = tunnel::header_len(path.version(), false);
        let outer_header_len = tunnel::header_len(path.version(), path.udp_encap);
        let padded = inner_len.max(self.padded_to());
        match (layout.protocol, layout.mode) {
            (Protocol::Esp, Mode::Tunnel) => outer_header_len + layout.sealed_len(padded),
            (Protocol::Esp, Mode::Transport) => {
                outer_header_len + layout.sealed_len(inner_len.saturating_sub(own_header_len))
            }
            (Protocol::Ah, mode) => {
                let icv_field = layout.iv_len() + layout.icv_len();
                let outer = match mode {
                    Mode::Tunnel => own_header_len,
                    Mode::Transport => 0,
                };
                outer + ah::header_len(path.version(), icv_field) + inner_len
            }
        }
    }

    /// The outer header of a packet; in transport mode it is the packet's own. The walk adds the flow label if that
    /// is a hash.
    pub fn outer_meta(&self, view: &IpView) -> OuterMeta {
        let common = &self.common;
        let meta = OuterMeta::around(common.packed_path(), &common.tunnel, view.into());
        match common.layout.mode {
            Mode::Tunnel => meta,
            Mode::Transport => OuterMeta {
                tos: view.tos,
                ttl: None,
                dont_fragment: view.dont_fragment,
                flow_label: view.flow_label,
                ..meta
            },
        }
    }

    /// Returns the reason why transport mode refuses a packet with this outer header, or none.
    pub fn refuses(&self, view: &IpView, meta: &OuterMeta) -> Option<DropReason> {
        if self.common.layout.mode != Mode::Transport {
            return None;
        }
        // Transport mode carries whole packets only (RFC 4303 §3.3.4).
        if view.fragment {
            return Some(DropReason::Fragment);
        }
        let path = meta.path();
        // The addresses of the packet must be the ends of the SA (RFC 4301 §4.1).
        let between_ends = view.source == path.local.ip() && view.destination == path.remote.ip();
        (!between_ends).then_some(DropReason::OutsideSaSelectors)
    }

    /// The policy of the SA that protects the packets of this one once more: see [`Self::through`].
    pub fn next_policy(&self) -> Option<PolicyId> {
        self.next
    }

    /// Sends what this SA has sealed on through an SA of `policy`: AH over ESP, or a tunnel in a tunnel. The walk
    /// finds the policy in the SPD of the moment: [`Spd::policy`](crate::spd::Spd::policy).
    #[must_use]
    pub fn through(self, policy: PolicyId) -> Self {
        Self {
            nested: true,
            usual: false,
            next: Some(policy),
            ..self
        }
    }
}

/// An inbound SA, which opens packets. Every packet needs one cache line of this struct, the first bytes of the
/// lifetime's line, and the word of the replay window.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct InboundSa {
    pub(crate) plain_ipv4: PlainIpv4,
    /// A copy of `observed` in one word, if that is an IPv4 address; otherwise 0.
    observed_short: AtomicU64,
    /// Copy of `common.layout`, kept here so that the hot path reads one cache line.
    pub(crate) layout: Layout,
    /// Copy of `common.interface`, kept here for the same reason.
    pub(crate) interface: u32,
    /// Copy of `common.shared`, kept here for the same reason.
    pub(crate) shared: bool,
    pub replay: ReplayWindow,
    pub common: SaCommon,
    /// The address from which authenticated packets come, as last reported. It is that of the path again when the path
    /// changes.
    observed: Mutex<SocketAddr>,
    /// The fragments that arrived, present only with `non_first_fragments`.
    pub(crate) arrivals: Option<Box<Arrivals>>,
}

const _: () = {
    let replay = offset_of!(InboundSa, replay) + ReplayWindow::HOT;
    let lifetime = offset_of!(InboundSa, common) + offset_of!(SaCommon, lifetime);
    assert!(replay <= 64 && lifetime % 64 + Lifetime::HOT <= 64);
};

/// The IPv4 address ranges of the SA's first selector, for a quick first test. They are set only if that selector
/// looks at nothing but addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainIpv4 {
    local: [u32; 2],
    remote: [u32; 2],
}

impl PlainIpv4 {
    /// Ranges that match no packet.
    const NONE: Self = Self {
        local: [1, 0],
        remote: [1, 0],
    };

    fn new(selectors: &SelectorSet) -> Self {
        let Some(first) = selectors.as_slice().first() else {
            return Self::NONE;
        };
        let ends = |range: &AddressRange| match (range.first(), range.last()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => Some([first.to_bits(), last.to_bits()]),
            _ => None,
        };
        let any = (first.protocol, first.local_ports, first.remote_ports)
            == (NextLayer::Any, PortRange::Any, PortRange::Any);
        match (ends(&first.local), ends(&first.remote), any) {
            (Some(local), Some(remote), true) => Self { local, remote },
            _ => Self::NONE,
        }
    }

    #[inline]
    pub fn matches(&self, local: u32, remote: u32) -> bool {
        let within = |[first, last]: [u32; 2], address| first <= address && address <= last;
        within(self.local, local) & within(self.remote, remote)
    }
}

impl InboundSa {
    /// Makes the processor fetch the cache lines that a packet needs.
    #[inline(always)]
    pub(crate) fn prefetch(&self, sequence_low: u32) {
        prefetch_line(self);
        prefetch_line(&self.common.lifetime);
        self.replay.prefetch(sequence_low);
    }

    pub fn new(parameters: SaParameters<'_>) -> Result<Self, KeyError> {
        let replay = ReplayWindow::new(parameters.replay_window, parameters.esn);
        Self::with_replay(parameters, replay)
    }

    /// Makes an SA whose replay window need not begin at 0.
    pub fn with_replay(
        parameters: SaParameters<'_>,
        replay: ReplayWindow,
    ) -> Result<Self, KeyError> {
        let remote = parameters.path.remote;
        // The quick test looks at addresses alone, and leaves packets as they are.
        let strict = parameters.icmp_errors == IcmpErrors::Strict;
        let plain_ipv4 = match strict || parameters.tunnel.dscp_from_outer {
            true => PlainIpv4::NONE,
            false => PlainIpv4::new(&parameters.selectors),
        };
        let arrivals = parameters
            .non_first_fragments
            .then(|| Box::new(Arrivals::new()));
        let common = SaCommon::new(parameters)?;
        Ok(Self {
            layout: common.layout,
            interface: common.interface,
            shared: common.shared,
            common,
            replay,
            observed_short: AtomicU64::new(short(remote)),
            observed: Mutex::new(remote),
            arrivals,
            plain_ipv4,
        })
    }

    /// Follows the peer to another address. A packet from anywhere else is reported then, also from where packets came
    /// before.
    pub fn set_path(&self, path: Path) {
        self.common.set_path(path);
        self.note(path.remote);
    }

    fn note(&self, remote: SocketAddr) -> SocketAddr {
        let mut place = self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        self.observed_short.store(short(remote), Ordering::Relaxed);
        std::mem::replace(&mut *place, remote)
    }

    /// Remembers the address that the newest packet came from. Returns the former address if the new one differs.
    #[inline]
    pub(crate) fn observe(&self, remote: SocketAddr) -> Option<SocketAddr> {
        let short = short(remote);
        if short != 0 && short == self.observed_short.load(Ordering::Relaxed) {
            return None;
        }
        let former = self.note(remote);
        (former != remote).then_some(former)
    }
}

/// Packs an IPv4 address and port into a word. Returns 0 for IPv6.
#[inline]
fn short(address: SocketAddr) -> u64 {
    match address {
        SocketAddr::V4(v4) => 1 << 63 | u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port()),
        SocketAddr::V6(_) => 0,
    }
}
