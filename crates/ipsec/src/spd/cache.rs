//! The flow cache: the SPD's decisions about recent flows, found by exact match (the hash record of Gateway 2.0).
//!
//! A cache belongs to one worker. An entry holds the key, the SA and a stamp. A hit compares the stamp with two
//! numbers. The packet needs the first number anyway, and the second is loaded once per burst:
//!
//! - The *generation* is in the SA. [`super::Policy::install`] and [`super::Policy::remove`] change it in all SAs of a
//!   policy. So a flow never keeps an SA that its policy would not choose any more.
//! - The *epoch* belongs to the SPD snapshot. A new snapshot changes it.
//!
//! Peers and hosts choose addresses and ports. The hash is keyed, so they cannot aim at one set. The multiply-fold is
//! no cryptographic hash, but nobody outside sees its result. Whoever still found collisions would only evict flows
//! of that set, at the price of a lookup in the compiled SPD each. A search looks at eight entries, whatever is
//! stored.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esplanade_crypto::prefetch_line;

use super::{Resolved, SaTables, Spd, policy};
use crate::drop_reason::DropReason;
use crate::sa::OutboundSa;
use crate::selector::Flow;
use crate::wire::ip::{PROTOCOL_ICMP, PROTOCOL_ICMPV6};

/// The fields that tell one flow from another, read from a packet without looking at policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowKey {
    V4 {
        addresses: u64,
        rest: u64,
    },
    V6 {
        local: [u64; 2],
        remote: [u64; 2],
        rest: u64,
    },
}

/// The bits of `rest`, from the lowest up: remote port, local port, protocol, DSCP and two flags. The 16 bits above
/// them hold the cache's number for the interface.
const PROTOCOL_SHIFT: u32 = 32;
const DSCP_SHIFT: u32 = 40;
const PORTS_KNOWN: u64 = 1 << 46;
const PROTOCOL_KNOWN: u64 = 1 << 47;
const INTERFACE_SHIFT: u32 = 48;

const TCP: u8 = 6;
const UDP: u8 = 17;

impl FlowKey {
    /// Makes the key of a packet that is no later fragment. Returns `None` for a protocol without ports.
    #[inline(always)]
    pub(crate) fn plain_ipv4(addresses: u64, ports: u32, protocol: u8, tos: u8) -> Option<Self> {
        let rest = u64::from(ports)
            | u64::from(protocol) << PROTOCOL_SHIFT
            | u64::from(tos >> 2) << DSCP_SHIFT
            | PORTS_KNOWN
            | PROTOCOL_KNOWN;
        matches!(protocol, TCP | UDP).then_some(Self::V4 { addresses, rest })
    }

    /// Makes the key of an outbound IPv6 packet from fixed offsets. Returns `None` for extension headers and other
    /// protocols; the caller then makes the key from a [`Flow`].
    #[inline]
    pub(crate) fn from_ipv6(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<44>()?;
        let word = |at: usize| -> u64 {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let payload_len = u16::from_be_bytes([header[4], header[5]]);
        if header[0] >> 4 != 6 || payload_len < 4 || !(header[6] == UDP || header[6] == TCP) {
            return None;
        }
        let dscp = (header[0] << 2 | header[1] >> 6) & 0x3f;
        Some(Self::V6 {
            local: [word(8), word(16)],
            remote: [word(24), word(32)],
            rest: word(36) & u64::from(u32::MAX)
                | u64::from(header[6]) << PROTOCOL_SHIFT
                | u64::from(dscp) << DSCP_SHIFT
                | PORTS_KNOWN
                | PROTOCOL_KNOWN,
        })
    }

    /// Makes the key of a flow. Returns `None` for a flow between addresses of different versions, which no packet has.
    #[inline]
    pub fn from_flow(flow: &Flow) -> Option<Self> {
        let mut rest = u64::from(flow.dscp & 0x3f) << DSCP_SHIFT;
        if let Some(protocol) = flow.protocol {
            rest |= PROTOCOL_KNOWN | u64::from(protocol) << PROTOCOL_SHIFT;
        }
        if let Some((local, remote)) = flow.ports {
            rest |= PORTS_KNOWN | u64::from(local) << 16 | u64::from(remote);
        }
        let halves = |bits: u128| [(bits >> 64) as u64, bits as u64];
        match (flow.local, flow.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => Some(Self::V4 {
                addresses: u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()),
                rest,
            }),
            (IpAddr::V6(local), IpAddr::V6(remote)) => Some(Self::V6 {
                local: halves(local.to_bits()),
                remote: halves(remote.to_bits()),
                rest,
            }),
            _ => None,
        }
    }

    /// Returns true if the packet is ICMP or ICMPv6.
    pub(crate) fn is_icmp(&self) -> bool {
        let rest = self.rest();
        let protocol = (rest >> PROTOCOL_SHIFT) as u8;
        rest & PROTOCOL_KNOWN != 0 && matches!(protocol, PROTOCOL_ICMP | PROTOCOL_ICMPV6)
    }

    fn rest(&self) -> u64 {
        match *self {
            Self::V4 { rest, .. } | Self::V6 { rest, .. } => rest,
        }
    }

    /// The flow that has this key.
    pub fn flow(&self, interface: u32) -> Flow {
        let whole =
            |[high, low]: [u64; 2]| IpAddr::V6((u128::from(high) << 64 | u128::from(low)).into());
        let (local, remote) = match *self {
            Self::V4 { addresses, .. } => (
                IpAddr::V4(((addresses >> 32) as u32).into()),
                IpAddr::V4((addresses as u32).into()),
            ),
            Self::V6 { local, remote, .. } => (whole(local), whole(remote)),
        };
        let rest = self.rest();
        Flow {
            local,
            remote,
            protocol: (rest & PROTOCOL_KNOWN != 0).then_some((rest >> PROTOCOL_SHIFT) as u8),
            ports: (rest & PORTS_KNOWN != 0).then_some(((rest >> 16) as u16, rest as u16)),
            dscp: (rest >> DSCP_SHIFT) as u8 & 0x3f,
            interface,
        }
    }
}

/// The decision about a packet. [`FlowCache::sa`] fetches the SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Protect(SaSlot),
    Bypass,
    Discard(DropReason),
    /// The packet must be protected, but there is no SA yet. The number is that of the entry, for [`Spd::acquire`].
    Acquire(u32),
    /// The packet must be protected, but the SAs are for narrower selectors. The number is that of the entry.
    Outside(u32),
}

impl Verdict {
    /// The reason for which a packet is dropped, and the number of the Protect entry that has no SA for it.
    pub(crate) fn drop_reason(self) -> Option<(DropReason, Option<u32>)> {
        match self {
            Self::Protect(_) | Self::Bypass => None,
            Self::Discard(reason) => Some((reason, None)),
            Self::Acquire(entry) => Some((DropReason::NoSa, Some(entry))),
            Self::Outside(entry) => Some((DropReason::OutsideSaSelectors, Some(entry))),
        }
    }
}

/// The place of an SA in the cache. It is valid until the next burst begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaSlot(u32);

/// The place in the cache at which a flow was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Located(u32);

impl Located {
    pub const NOWHERE: Self = Self(NOWHERE);
}

const NOWHERE: u32 = u32::MAX;
const PENDING: u32 = 1 << 31;
const V6: u32 = 1 << 30;

/// The number of entries in a set: a key can be in any entry of its set.
const WAYS: usize = 8;
/// The number of decisions of the same burst that a miss searches.
const RECENT: usize = 16;
/// The most interfaces from which a worker's packets may come. With more interfaces the cache starts anew.
const INTERFACES_MAX: usize = 4096;

/// The most entries of each IP version in a cache.
pub const FLOWS_MAX: usize = 1 << 26;

const EPOCH_BITS: u32 = 24;
/// Generations below [`policy::FIRST_GENERATION`] stand for decisions without an SA.
const BYPASS: u64 = 1;
const NO_POLICY: u64 = 2;
const POLICY_DISCARD: u64 = 3;
const _: () = assert!(POLICY_DISCARD < policy::FIRST_GENERATION);

#[derive(Debug)]
struct FlowSlot<const W: usize> {
    key: [u64; W],
    /// The generation above the epoch. A stamp of 0 means that the slot is empty, as epochs begin at 1.
    stamp: u64,
    sa: Option<Arc<OutboundSa>>,
}

impl<const W: usize> FlowSlot<W> {
    const EMPTY: Self = Self {
        key: [0; W],
        stamp: 0,
        sa: None,
    };

    /// Returns 0 if and only if the slot has this key.
    #[inline(always)]
    fn difference(&self, key: &[u64; W]) -> u64 {
        let pairs = self.key.iter().zip(key);
        pairs.fold(0, |differs, (a, b)| differs | (a ^ b))
    }

    fn empty(&mut self, tables: &mut SaTables) {
        let former = std::mem::replace(self, Self::EMPTY);
        if let Some(sa) = former.sa {
            tables.leave(&sa);
        }
    }

    #[inline(always)]
    fn is_current(&self, epoch: u64) -> bool {
        let generation = match &self.sa {
            Some(sa) => sa.selection.load(Ordering::Acquire),
            None => self.stamp >> EPOCH_BITS,
        };
        self.stamp == generation << EPOCH_BITS | epoch
    }
}

#[inline]
fn verdict(protect: bool, stamp: u64, slot: u32) -> Verdict {
    match stamp >> EPOCH_BITS {
        _ if protect => Verdict::Protect(SaSlot(slot)),
        BYPASS => Verdict::Bypass,
        POLICY_DISCARD => Verdict::Discard(DropReason::PolicyDiscard),
        _ => Verdict::Discard(DropReason::NoPolicy),
    }
}

/// A set of slots: four cache lines for IPv4, eight for IPv6.
#[derive(Debug)]
#[repr(align(64))]
struct Set<const W: usize>([FlowSlot<W>; WAYS]);

impl<const W: usize> Set<W> {
    const EMPTY: Self = Self([FlowSlot::EMPTY; WAYS]);
}

#[derive(Debug)]
struct FlowTable<const W: usize> {
    sets: Vec<Set<W>>,
    /// The set at which the sweep goes on. Its low bits also choose the way to evict next.
    hand: usize,
}

impl<const W: usize> FlowTable<W> {
    fn new(flows: usize) -> Self {
        let sets = flows
            .clamp(WAYS, FLOWS_MAX)
            .div_ceil(WAYS)
            .next_power_of_two();
        Self {
            sets: std::iter::repeat_with(|| Set::EMPTY).take(sets).collect(),
            hand: 0,
        }
    }

    #[inline]
    fn index(&self, hash: u64) -> usize {
        hash as usize & (self.sets.len() - 1)
    }

    #[inline]
    fn locate(&self, hash: u64, key: &[u64; W]) -> Option<u32> {
        let index = self.index(hash);
        let Set(set) = self.sets.get(index)?;
        // A flow that found a place in the line of its first choice is in one of two slots. Both are compared without
        // a branch, because the processor would guess the right one too seldom.
        let first = first_choice(hash);
        let (slot, other) = (set.get(first)?, set.get(first ^ 1)?);
        let (here, there) = (slot.difference(key), other.difference(key));
        let way = match here.min(there) {
            0 => first ^ usize::from(here != 0),
            _ => set.iter().position(|slot| slot.key == *key)?,
        };
        if let Some(sa) = set.get(way).and_then(|slot| slot.sa.as_ref()) {
            sa.prefetch();
        }
        Some((index * WAYS + way) as u32)
    }

    /// The entry at `at`, unless it is stale: whether it has an SA, and its stamp.
    #[inline]
    fn current(&self, at: u32, epoch: u64) -> Option<(bool, u64)> {
        let slot = self.slot(at)?;
        let found = (slot.sa.is_some(), slot.stamp);
        slot.is_current(epoch).then_some(found)
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        let set = self.sets.get(self.index(hash));
        if let Some(slot) = set.and_then(|Set(set)| set.get(first_choice(hash))) {
            prefetch_line(slot);
        }
    }

    /// Puts `new` into a slot and returns the former contents of the slot.
    fn insert(&mut self, hash: u64, new: FlowSlot<W>, epoch: u64) -> FlowSlot<W> {
        let index = self.index(hash);
        self.hand = self.hand.wrapping_add(1);
        let Some(Set(set)) = self.sets.get_mut(index) else {
            return new;
        };
        let first = first_choice(hash);
        // The set must not hold a key twice.
        let way = match set.iter().position(|slot| slot.key == new.key) {
            Some(same) => same,
            None if !set[first].is_current(epoch) => first,
            // This slot is in the same cache line.
            None if !set[first ^ 1].is_current(epoch) => first ^ 1,
            None => {
                let free = set.iter().position(|slot| !slot.is_current(epoch));
                free.unwrap_or(self.hand % WAYS)
            }
        };
        std::mem::replace(&mut set[way], new)
    }

    /// Empties the stale slots of the next `count` sets.
    fn sweep(&mut self, count: usize, epoch: u64, tables: &mut SaTables) {
        let len = self.sets.len();
        for _ in 0..count.min(len) {
            self.hand = (self.hand + 1) % len;
            let Some(Set(set)) = self.sets.get_mut(self.hand) else {
                return;
            };
            for slot in set {
                if slot.sa.is_some() && !slot.is_current(epoch) {
                    slot.empty(tables);
                }
            }
        }
    }

    fn clear(&mut self, tables: &mut SaTables) {
        let slots = self.sets.iter_mut().flat_map(|Set(set)| set);
        slots.for_each(|slot| slot.empty(tables));
    }

    #[inline]
    fn slot(&self, at: u32) -> Option<&FlowSlot<W>> {
        let at = at as usize;
        self.sets.get(at / WAYS)?.0.get(at % WAYS)
    }

    #[inline]
    fn sa(&self, at: u32) -> Option<&Arc<OutboundSa>> {
        self.slot(at)?.sa.as_ref()
    }
}

/// A decision that enters the tables when the next burst begins. Until then no slot changes.
#[derive(Debug)]
struct Pending {
    key: FlowKey,
    stamp: u64,
    sa: Option<Arc<OutboundSa>>,
}

/// The slot of its set that a flow takes if the slot is free.
#[inline]
fn first_choice(hash: u64) -> usize {
    (hash >> (u64::BITS - WAYS.trailing_zeros())) as usize
}

/// The SPD's decisions about recent outbound flows.
pub struct FlowCache {
    secret: [u64; 6],
    v4: FlowTable<2>,
    v6: FlowTable<5>,
    /// The number of the snapshot that `epoch` stands for.
    spd: u64,
    epoch: u64,
    interface: u32,
    interface_bits: u64,
    /// The known interfaces. The index of an interface is its number in keys.
    interfaces: Vec<u32>,
    pending: Vec<Pending>,
    /// The SAs of the flows in `v4`, `v6` and `pending`.
    tables: SaTables,
    /// The number of sets that the sweep has visited since SAs were last released.
    swept: usize,
    misses: u64,
}

impl std::fmt::Debug for FlowCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FlowCache")
            .field("v4_sets", &self.v4.sets.len())
            .field("v6_sets", &self.v6.sets.len())
            .field("epoch", &self.epoch)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl FlowCache {
    /// Makes a cache with room for about `flows` flows of each IP version (at most [`FLOWS_MAX`]). `secret` must be
    /// random.
    pub fn new(flows: usize, secret: [u64; 6]) -> Self {
        Self {
            secret,
            v4: FlowTable::new(flows),
            v6: FlowTable::new(flows),
            spd: 0,
            epoch: 1,
            interface: 0,
            interface_bits: 0,
            interfaces: vec![0],
            pending: Vec::new(),
            tables: SaTables::default(),
            swept: 0,
            misses: 0,
        }
    }

    /// The number of sets for the flows of each IP version.
    pub fn sets(&self) -> usize {
        self.v4.sets.len()
    }

    /// The number of lookups that the SPD answered.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Begins a burst. The caller calls it before the first packet, with the snapshot that the burst will use and the
    /// interface that it comes from. Slots from earlier bursts become invalid.
    pub fn begin_burst(&mut self, spd: &Spd, interface: u32) {
        self.store_pending();
        if self.spd != spd.id {
            self.spd = spd.id;
            self.epoch += 1;
            if self.epoch >> EPOCH_BITS != 0 {
                self.clear();
            }
        }
        if self.interface != interface {
            self.interface = interface;
            let known = self.interfaces.iter().position(|known| *known == interface);
            let number = known.unwrap_or_else(|| {
                if self.interfaces.len() == INTERFACES_MAX {
                    self.interfaces.truncate(1);
                    self.clear();
                }
                self.interfaces.push(interface);
                self.interfaces.len() - 1
            });
            self.interface_bits = (number as u64) << INTERFACE_SHIFT;
        }
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        self.v4.clear(&mut self.tables);
        self.v6.clear(&mut self.tables);
        for sa in self.pending.drain(..).filter_map(|pending| pending.sa) {
            self.tables.leave(&sa);
        }
        self.epoch = 1;
    }

    /// Searches the next `sets` sets for SAs that are no longer in use. The SAs are released at the end of each round
    /// through the cache, so that keys do not outlive their SA by much. Call it between bursts, and not while packets
    /// with SAs of this cache wait in a batch.
    pub fn sweep(&mut self, sets: usize) {
        self.store_pending();
        self.v4.sweep(sets, self.epoch, &mut self.tables);
        self.v6.sweep(sets, self.epoch, &mut self.tables);
        self.swept = self.swept.saturating_add(sets);
        // A change copies parts of the tables while a batch has a snapshot, so many changes are made at a time.
        if self.swept >= self.sets() {
            self.swept = 0;
            self.tables.release();
        }
    }

    /// The SAs of all flows that have one, and their keys.
    pub(crate) fn tables(&self) -> &SaTables {
        &self.tables
    }

    /// Keeps an SA in [`Self::tables`] until the next sweep, for packets whose flow may not be in the cache.
    #[inline]
    pub(crate) fn hold(&mut self, sa: &Arc<OutboundSa>) {
        self.tables.hold(sa);
    }

    /// The hash of a key, for [`FlowCache::find`]. The caller computes it for a whole burst first, so that the
    /// searches overlap.
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        let [a, b, c, d, e, f] = self.secret;
        match *key {
            FlowKey::V4 { addresses, rest } => {
                fold(addresses ^ a, (rest | self.interface_bits) ^ b)
            }
            FlowKey::V6 {
                local,
                remote,
                rest,
            } => {
                let ends = fold(local[0] ^ a, local[1] ^ b) ^ fold(remote[0] ^ c, remote[1] ^ d);
                fold(ends ^ e, (rest | self.interface_bits) ^ f)
            }
        }
    }

    /// Makes the processor fetch the cache line in which [`FlowCache::find`] most probably finds the flow.
    #[inline]
    pub fn prefetch_slot(&self, key: &FlowKey, hash: u64) {
        match key {
            FlowKey::V4 { .. } => self.v4.prefetch(hash),
            FlowKey::V6 { .. } => self.v6.prefetch(hash),
        }
    }

    /// Returns the decision about a packet, from the cache or else from `spd`, the snapshot that the burst began
    /// with. At most one decision per packet is kept for the next burst.
    #[inline]
    pub fn find(&mut self, spd: &Spd, key: &FlowKey, hash: u64) -> Verdict {
        let at = self.locate(key, hash);
        self.settle(spd, key, at)
    }

    /// Does the first half of [`FlowCache::find`]: it finds the flow, current or not, and makes the processor fetch
    /// its SA.
    #[inline]
    pub(crate) fn locate(&self, key: &FlowKey, hash: u64) -> Located {
        let at = match *key {
            FlowKey::V4 { addresses, rest } => {
                let key = [addresses, rest | self.interface_bits];
                self.v4.locate(hash, &key)
            }
            FlowKey::V6 {
                local,
                remote,
                rest,
            } => {
                let rest = rest | self.interface_bits;
                let key = [local[0], local[1], remote[0], remote[1], rest];
                self.v6.locate(hash, &key).map(|at| at | V6)
            }
        };
        Located(at.unwrap_or(NOWHERE))
    }

    /// Does the second half of [`FlowCache::find`] for most packets. Returns the place of the SA and its number if
    /// the flow is IPv4 and its entry has an SA and is current.
    #[inline(always)]
    pub(crate) fn protected(&self, Located(at): Located) -> Option<(SaSlot, u32)> {
        let slot = match at < V6 {
            true => self.v4.slot(at)?,
            false => return None,
        };
        let sa = slot.sa.as_ref()?;
        let current = slot.is_current(self.epoch);
        current.then(|| (SaSlot(at), sa.number()))
    }

    /// Does the second half of [`FlowCache::find`].
    #[inline]
    pub(crate) fn settle(&mut self, spd: &Spd, key: &FlowKey, Located(at): Located) -> Verdict {
        let current = match (at, at & V6) {
            (NOWHERE, _) => None,
            (_, 0) => self.v4.current(at, self.epoch),
            _ => self.v6.current(at & !V6, self.epoch),
        };
        match current {
            Some((protect, stamp)) => verdict(protect, stamp, at),
            None => self.miss(spd, key),
        }
    }

    /// Does the work of [`FlowCache::hash`] and [`FlowCache::find`].
    pub fn lookup(&mut self, spd: &Spd, key: &FlowKey) -> Verdict {
        let hash = self.hash(key);
        self.find(spd, key, hash)
    }

    /// The SA of a verdict of the same burst.
    #[inline]
    pub fn sa(&self, slot: SaSlot) -> Option<&Arc<OutboundSa>> {
        let SaSlot(at) = slot;
        if at < V6 {
            return self.v4.sa(at);
        }
        if at & PENDING != 0 {
            return self.pending.get((at & !PENDING) as usize)?.sa.as_ref();
        }
        self.v6.sa(at & !V6)
    }

    #[cold]
    fn miss(&mut self, spd: &Spd, key: &FlowKey) -> Verdict {
        debug_assert_eq!(spd.id, self.spd, "the burst began with another snapshot");
        // A new flow often begins with several packets, so the newest decisions are searched first.
        let recent = self.pending.len().saturating_sub(RECENT);
        let known = self.pending.iter().skip(recent).position(|p| p.key == *key);
        if let Some(at) = known.map(|at| recent + at)
            && let Some(pending) = self.pending.get(at)
        {
            return verdict(pending.sa.is_some(), pending.stamp, PENDING | at as u32);
        }
        self.misses += 1;
        let at = PENDING | self.pending.len() as u32;
        let (verdict, generation, sa) = match spd.resolve(&key.flow(self.interface)) {
            Resolved::Protect { sa, generation } => {
                (Verdict::Protect(SaSlot(at)), generation, Some(sa))
            }
            Resolved::Bypass => (Verdict::Bypass, BYPASS, None),
            Resolved::Discard(reason) => {
                let generation = match reason {
                    DropReason::NoPolicy => NO_POLICY,
                    DropReason::PolicyDiscard => POLICY_DISCARD,
                    _ => return Verdict::Discard(reason),
                };
                (Verdict::Discard(reason), generation, None)
            }
            // These depend on SAs, and no SA is at hand whose generation a hit could compare.
            Resolved::Outside { entry } => return Verdict::Outside(entry),
            Resolved::Acquire { entry, .. } => return Verdict::Acquire(entry),
        };
        if let Some(sa) = &sa {
            self.tables.enter(sa);
        }
        self.pending.push(Pending {
            key: *key,
            stamp: generation << EPOCH_BITS | self.epoch,
            sa,
        });
        verdict
    }

    fn store_pending(&mut self) {
        if !self.pending.is_empty() {
            let mut pending = std::mem::take(&mut self.pending);
            pending.drain(..).for_each(|pending| self.store(pending));
            self.pending = pending;
        }
    }

    fn store(&mut self, pending: Pending) {
        let Pending { key, stamp, sa } = pending;
        // The interface is still that of the burst in which the decision was made.
        let hash = self.hash(&key);
        let rest = key.rest() | self.interface_bits;
        let former = match key {
            FlowKey::V4 { addresses, .. } => {
                let key = [addresses, rest];
                let former = self
                    .v4
                    .insert(hash, FlowSlot { key, stamp, sa }, self.epoch);
                former.sa
            }
            FlowKey::V6 { local, remote, .. } => {
                let key = [local[0], local[1], remote[0], remote[1], rest];
                let former = self
                    .v6
                    .insert(hash, FlowSlot { key, stamp, sa }, self.epoch);
                former.sa
            }
        };
        if let Some(sa) = former {
            self.tables.leave(&sa);
        }
    }
}
