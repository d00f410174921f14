//! Half-open IKE SAs, and which of them go when there is no room (RFC 8019 §4.1 and §4.2).
//!
//! Peers that are configured by address have room of their own. All others share the rest, network by network.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::config::{AddressMatch, Config, Limits};
use crate::event::IkeSaId;
use crate::rate::{Due, Rate};
use crate::refusal::Refusal;
use crate::source_network::{SourceNetwork, prefix_lens};

/// When there is no room, a half-open SA of this age gives way to a new one. A peer whose message was lost has
/// retransmitted it by then.
const YIELD_AGE: Duration = Duration::from_secs(5);
/// A request for IKE_SA_INIT of this many bytes is short: all places may be taken by such.
const SHORT_REQUEST: usize = 4096;
/// A source that was refused in IKE_AUTH this many times as often as it may be half-open is served slowly, while the
/// refusals are remembered. Guessing of keys stays slow, and neighbours of a peer with a wrong key are not kept out.
const REFUSALS_PER_PLACE: usize = 10;
/// The rate at which such a source is served.
const SLOW: Rate = Rate {
    every: Duration::from_millis(100),
    burst: 10,
};

/// The place that a new half-open SA gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HalfOpenPlace {
    Free,
    /// There is room only if this SA is dropped.
    Instead(IkeSaId),
    None(Refusal),
}

/// The networks whose SAs are counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Grain {
    /// The source, and the networks around it.
    #[default]
    Networks,
    Sources,
    Addresses,
}

/// Room for SAs of peers that nobody has authenticated. SAs are ordered by age, because their numbers count up.
#[derive(Default)]
struct Room {
    occupants: BTreeMap<IkeSaId, Occupant>,
    /// Bytes of all occupants' messages.
    bytes: usize,
    by_network: HashMap<SourceNetwork, BTreeSet<IkeSaId>>,
    /// The largest networks, by the number of their SAs.
    weights: BTreeSet<(usize, SourceNetwork)>,
    grain: Grain,
}

#[derive(Clone, Copy)]
struct Occupant {
    address: IpAddr,
    since: Instant,
    /// Bytes of the messages that are kept.
    bytes: usize,
}

impl Room {
    /// The networks of an address, from small to large.
    fn networks(&self, address: IpAddr) -> impl DoubleEndedIterator<Item = SourceNetwork> + use<> {
        let networks = prefix_lens(address);
        let prefix_lens: &[u8] = match (self.grain, address) {
            (Grain::Networks, _) => networks,
            (Grain::Sources, _) => &networks[..1],
            (Grain::Addresses, IpAddr::V4(_)) => &[32],
            (Grain::Addresses, IpAddr::V6(_)) => &[128],
        };
        let of = move |prefix_len: &u8| SourceNetwork::of(address, *prefix_len);
        prefix_lens.iter().map(of)
    }

    fn widest(&self, address: IpAddr) -> Option<SourceNetwork> {
        self.networks(address).next_back()
    }

    fn share(&self, network: SourceNetwork, limits: &Limits) -> usize {
        let source = limits.half_open_per_source_max;
        let widest = limits.half_open_per_network_max.max(source);
        match (network.address, network.prefix_len) {
            // A peer that is configured by address can have many connections.
            _ if self.grain == Grain::Addresses => widest,
            (IpAddr::V4(_), 24) | (IpAddr::V6(_), 48) => widest,
            (IpAddr::V6(_), 56) => widest.div_ceil(2).max(source),
            _ => source,
        }
    }

    fn taken(&self, network: &SourceNetwork) -> usize {
        self.by_network.get(network).map_or(0, BTreeSet::len)
    }

    /// Says whether a sender that has not proved its address may have room. Half of every share, and half of the
    /// whole, is kept for senders that have.
    fn takes_unproven(&self, address: IpAddr, limits: &Limits) -> bool {
        let half = |taken: usize, share: usize| taken < share.div_ceil(2);
        half(self.occupants.len(), limits.half_open_max)
            && self
                .networks(address)
                .all(|network| half(self.taken(&network), self.share(network, limits)))
    }

    fn place(&self, now: Instant, address: IpAddr, limits: &Limits) -> HalfOpenPlace {
        let old = |id: &&IkeSaId| {
            self.occupants
                .get(id)
                .is_some_and(|one| now.saturating_duration_since(one.since) >= YIELD_AGE)
        };
        for network in self.networks(address) {
            if self.taken(&network) >= self.share(network, limits) {
                // An SA that gives way in a small network makes room in the larger ones too.
                let oldest = self.by_network.get(&network).and_then(BTreeSet::first);
                return match oldest.filter(old) {
                    Some(id) => HalfOpenPlace::Instead(*id),
                    None => HalfOpenPlace::None(Refusal::HalfOpenPerSource),
                };
            }
        }
        if self.occupants.len() < limits.half_open_max {
            return HalfOpenPlace::Free;
        }
        if let Some(id) = self.occupants.keys().next().filter(old) {
            return HalfOpenPlace::Instead(*id);
        }
        // All SAs are young. They come faster than honest peers would send them, so that the network with most of
        // them loses one.
        let own = self.widest(address).map_or(0, |widest| self.taken(&widest));
        match self.weights.last() {
            Some((weight, widest)) if *weight > own + 1 => {
                match self.by_network.get(widest).and_then(BTreeSet::first) {
                    Some(id) => HalfOpenPlace::Instead(*id),
                    None => HalfOpenPlace::None(Refusal::HalfOpenLimit),
                }
            }
            _ => HalfOpenPlace::None(Refusal::HalfOpenLimit),
        }
    }

    fn enter(&mut self, id: IkeSaId, occupant: Occupant) {
        let address = occupant.address;
        self.bytes += occupant.bytes;
        self.occupants.insert(id, occupant);
        for network in self.networks(address) {
            self.by_network.entry(network).or_default().insert(id);
        }
        self.weigh(address, |weight| weight - 1);
    }

    fn leave(&mut self, id: IkeSaId) -> bool {
        let Some(Occupant { address, bytes, .. }) = self.occupants.remove(&id) else {
            return false;
        };
        self.bytes = self.bytes.saturating_sub(bytes);
        for network in self.networks(address) {
            if let Some(occupants) = self.by_network.get_mut(&network) {
                occupants.remove(&id);
                if occupants.is_empty() {
                    self.by_network.remove(&network);
                }
            }
        }
        self.weigh(address, |weight| weight + 1);
        true
    }

    fn weigh(&mut self, address: IpAddr, before: impl FnOnce(usize) -> usize) {
        if let Some(widest) = self.widest(address) {
            let weight = self.taken(&widest);
            self.weights.remove(&(before(weight), widest));
            if weight > 0 {
                self.weights.insert((weight, widest));
            }
        }
    }
}

/// The progress of a peer that nobody has authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HalfOpenStage {
    HalfOpen,
    Refused,
}

#[derive(Default)]
pub(super) struct HalfOpen {
    configured_addresses: HashSet<IpAddr>,
    configured: Room,
    unconfigured: Room,
    /// SAs that were refused in IKE_AUTH. Their last responses are kept.
    refused: Room,
    /// The sources that are served slowly. Few have enough of the room for that.
    slow: HashMap<SourceNetwork, Due>,
}

impl HalfOpen {
    pub(super) fn new(config: &Config) -> Self {
        let mut half_open = Self::default();
        half_open.configured.grain = Grain::Addresses;
        half_open.refused.grain = Grain::Sources;
        half_open.configure(config);
        half_open
    }

    pub(super) fn configure(&mut self, config: &Config) {
        let connections = config.connections.iter();
        self.configured_addresses = connections
            .flat_map(|connection| AddressMatch::hosts_of(&connection.remote_addrs))
            .collect();
    }

    /// Says whether a connection has this single address.
    pub(super) fn is_configured(&self, source: IpAddr) -> bool {
        self.configured_addresses.contains(&source)
    }

    pub(super) fn len(&self) -> usize {
        self.configured.occupants.len() + self.unconfigured.occupants.len()
    }

    fn room(&self, source: IpAddr) -> &Room {
        match self.is_configured(source) {
            true => &self.configured,
            false => &self.unconfigured,
        }
    }

    pub(super) fn takes_unproven(&self, source: IpAddr, limits: &Limits) -> bool {
        self.len() < limits.cookie_threshold
            && self.room(source).takes_unproven(source, limits)
            && !self.is_slow(SourceNetwork::of_source(source), limits)
    }

    fn is_slow(&self, source: SourceNetwork, limits: &Limits) -> bool {
        let most = limits
            .half_open_per_source_max
            .saturating_mul(REFUSALS_PER_PLACE);
        self.refused.taken(&source) >= most.max(1)
    }

    /// Takes a turn of a source that has proved its address. Says whether there is one.
    pub(super) fn take_turn(&mut self, now: Instant, source: IpAddr, limits: &Limits) -> bool {
        let source = SourceNetwork::of_source(source);
        if !self.is_slow(source, limits) {
            self.slow.remove(&source);
            return true;
        }
        if !self.slow.contains_key(&source) {
            let mut slow = std::mem::take(&mut self.slow);
            slow.retain(|source, _| self.is_slow(*source, limits));
            self.slow = slow;
        }
        let due = self.slow.entry(source).or_default();
        let allowed = SLOW.allows(now, *due);
        if allowed {
            SLOW.take(now, due);
        }
        allowed
    }

    /// For a sender that has proved its address, or need not do so. `len` is the length of its request.
    pub(super) fn place(
        &self,
        now: Instant,
        source: IpAddr,
        len: usize,
        limits: &Limits,
    ) -> HalfOpenPlace {
        if len > SHORT_REQUEST && self.room(source).bytes + len > limits.half_open_bytes_max {
            return HalfOpenPlace::None(Refusal::HalfOpenBytes);
        }
        self.room(source).place(now, source, limits)
    }

    /// Notes how far an SA has come, and how many bytes of its messages are kept. Without a stage, its peer is
    /// authenticated, or the SA is dropped.
    pub(super) fn note(
        &mut self,
        now: Instant,
        id: IkeSaId,
        source: IpAddr,
        stage: Option<(HalfOpenStage, usize)>,
    ) {
        let _ = self.configured.leave(id) || self.unconfigured.leave(id) || self.refused.leave(id);
        let Some((stage, bytes)) = stage else {
            return;
        };
        let room = match stage {
            HalfOpenStage::HalfOpen if self.is_configured(source) => &mut self.configured,
            HalfOpenStage::HalfOpen => &mut self.unconfigured,
            HalfOpenStage::Refused => &mut self.refused,
        };
        let occupant = Occupant {
            address: source,
            since: now,
            bytes,
        };
        room.enter(id, occupant);
    }

    /// A refused SA that is to be dropped, so that kept responses do not pile up.
    pub(super) fn superfluous(&self, limits: &Limits) -> Option<IkeSaId> {
        let refused = &self.refused.occupants;
        let oldest = refused.keys().next().copied();
        oldest.filter(|_| refused.len() > limits.half_open_max)
    }
}
