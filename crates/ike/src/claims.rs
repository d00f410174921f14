//! The claims of peers to traffic (RFC 4301 §4.4.3.3). A claim comes from the configuration, which binds traffic to one
//! peer, or from the child SAs that a peer has negotiated.
//!
//! A peer that chooses its selectors out of a range that it shares with others gets no traffic of theirs.

use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use crate::config::{AddressMatch, Child, Config, Connection, Identity, Selector};
use crate::id::ChildSaId;
use crate::peer::PeerKey;
use crate::peer_shares::PeerShares;
use crate::ts;
use crate::wire::TrafficSelector;

/// The traffic of one peer.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) connection: Arc<Connection>,
    pub(crate) config: Arc<Child>,
    owner: ClaimOwner,
    /// The configuration names this peer and its selectors exactly.
    bound: bool,
    /// The most that the child could have, with any peer.
    policy: Arc<SelectorPair>,
    /// Most peers have all of it.
    pub(crate) selectors: Arc<SelectorPair>,
}

/// The selectors of our side and of the peer's side.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SelectorPair {
    pub(crate) local: Vec<TrafficSelector>,
    pub(crate) remote: Vec<TrafficSelector>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ClaimOwner {
    Peer(PeerKey),
    /// The peer that proves this identity to the connection.
    Named(Identity),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ClaimHolder {
    Configured(usize),
    Sa(ChildSaId),
}

/// The key under which a claim is found: the smallest prefix around one of its remote ranges. If two ranges overlap,
/// one of their prefixes contains the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimPrefix {
    spd: u32,
    v6: bool,
    first: u128,
    len: u32,
    /// The claims of one owner lie side by side, so that those of the same peer are passed over at once.
    owner: u64,
    holder: ClaimHolder,
}

impl ClaimPrefix {
    /// The last one that there could be of this prefix and owner.
    fn last_of_owner(self) -> Self {
        Self {
            holder: MOST_HOLDER,
            ..self
        }
    }
}

const LEAST_HOLDER: ClaimHolder = ClaimHolder::Configured(0);
const MOST_HOLDER: ClaimHolder = ClaimHolder::Sa(ChildSaId(u64::MAX));

/// An owner of claims, by the name of the connection.
struct OwnerKey {
    connection: Arc<Connection>,
    owner: ClaimOwner,
}

impl OwnerKey {
    fn parts(&self) -> (&str, &ClaimOwner) {
        (&self.connection.name, &self.owner)
    }
}

impl PartialEq for OwnerKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for OwnerKey {}

impl Hash for OwnerKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

/// The owners of claims by connection. Two claims of one owner have the same peer, whatever they are compared with.
#[derive(Default)]
struct Owners {
    /// The number of each owner, and of its claims.
    known: HashMap<OwnerKey, (u64, usize)>,
    last: u64,
}

impl Owners {
    fn add(&mut self, claim: &Claim) -> u64 {
        let last = &mut self.last;
        let known = self.known.entry(claim.owner_key()).or_insert_with(|| {
            *last += 1;
            (*last, 0)
        });
        known.1 += 1;
        known.0
    }

    /// Removes one claim of an owner, and returns the owner's number.
    fn remove(&mut self, claim: &Claim) -> Option<u64> {
        let key = claim.owner_key();
        let known = self.known.get_mut(&key)?;
        known.1 -= 1;
        let (number, claims) = *known;
        if claims == 0 {
            self.known.remove(&key);
        }
        Some(number)
    }

    fn number(&self, claim: &Claim) -> u64 {
        self.known
            .get(&claim.owner_key())
            .map_or(0, |known| known.0)
    }
}

#[derive(Default)]
pub(crate) struct Claims {
    pub(crate) shares: PeerShares,
    by_holder: HashMap<ClaimHolder, Box<Claim>>,
    owners: Owners,
    prefixes: BTreeSet<ClaimPrefix>,
    configured: usize,
}

impl SelectorPair {
    /// The number of pairs of a local and a remote selector.
    pub(crate) fn pairs(&self) -> usize {
        self.local.len().saturating_mul(self.remote.len())
    }

    fn overlap(&self, other: &Self) -> bool {
        let common = |a: &[TrafficSelector], b: &[TrafficSelector]| -> Vec<u8> {
            let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (a, b)));
            let common = pairs.filter_map(|(a, b)| ts::intersect(a, b));
            common.map(|both| both.protocol).collect()
        };
        let local = common(&self.local, &other.local);
        let remote = common(&self.remote, &other.remote);
        // A packet has the same protocol at both ends.
        let meet = |a: &u8| remote.iter().any(|b| a == b || *a == 0 || *b == 0);
        local.iter().any(meet)
    }

    /// Says whether the selectors here select all that `inner` does. One selector of `inner` may be here in several,
    /// split by addresses.
    pub(crate) fn cover(&self, inner: &Self) -> bool {
        self.have_all(inner, |outer, one| ts::covered(one, outer))
    }

    /// Says whether each selector of `inner` is part of one selector here.
    pub(crate) fn contain(&self, inner: &Self) -> bool {
        self.have_all(inner, |outer, one| {
            outer.iter().any(|outer| ts::contains(outer, one))
        })
    }

    fn have_all(
        &self,
        inner: &Self,
        has: impl Fn(&[TrafficSelector], &TrafficSelector) -> bool,
    ) -> bool {
        inner.local.iter().all(|one| has(&self.local, one))
            && inner.remote.iter().all(|one| has(&self.remote, one))
    }
}

impl Claim {
    /// The claim of a child SA with these selectors. The peer is at the second address of `hosts`.
    pub(crate) fn new(
        connection: &Arc<Connection>,
        config: &Arc<Child>,
        peer: &PeerKey,
        (local, remote): (IpAddr, IpAddr),
        mut selectors: SelectorPair,
    ) -> Self {
        // A child whose selectors come from a packet is a copy of a configured child with the same name.
        let known = |child: &&Arc<Child>| child.name == config.name;
        let child = connection.children.iter().find(known).unwrap_or(config);
        let entry = connection.peers.of(peer.remote());
        let policy = SelectorPair {
            local: ts::resolve(&child.local_ts, local),
            remote: ts::resolve(&child.remote_ts, remote),
        };
        let policy = Arc::new(policy);
        let selectors = if *policy == selectors {
            policy.clone()
        } else {
            selectors.local.shrink_to_fit();
            selectors.remote.shrink_to_fit();
            Arc::new(selectors)
        };
        Self {
            owner: ClaimOwner::Peer(peer.clone()),
            bound: connection.names_one_peer() || entry.is_some_and(|entry| !entry.id.is_pattern()),
            policy,
            selectors,
            connection: connection.clone(),
            config: config.clone(),
        }
    }

    fn owner_key(&self) -> OwnerKey {
        OwnerKey {
            connection: self.connection.clone(),
            owner: self.owner.clone(),
        }
    }

    pub(crate) fn owner(&self) -> &Identity {
        match &self.owner {
            ClaimOwner::Peer(peer) => peer.remote(),
            ClaimOwner::Named(id) => id,
        }
    }

    fn is_of_same_peer(&self, other: &Self) -> bool {
        match (&self.owner, &other.owner) {
            (ClaimOwner::Peer(a), ClaimOwner::Peer(b)) => a.is_same_peer(b),
            _ => self.connection.name == other.connection.name && self.owner() == other.owner(),
        }
    }

    /// Tells whether the peer, at the address `outer`, may have this much traffic. A peer without an entry in `peers`
    /// may.
    pub(crate) fn is_within_entry(&self, outer: IpAddr) -> bool {
        let Some(entry) = self.connection.peers.of(self.owner()) else {
            return true;
        };
        let own = ts::resolve(&entry.remote_ts, outer);
        let whole = SelectorPair {
            local: self.policy.local.clone(),
            remote: ts::narrow(&own, &self.policy.remote),
        };
        whole.contain(&self.selectors)
    }

    /// Says whether the claim is an exception that the administrator makes from `other`. Between policies the
    /// narrower one comes first. Within one policy there is no order.
    fn is_exception_from(&self, other: &Self) -> bool {
        !self.is_of_same_child(other)
            && other.bound
            && other.policy.contain(&self.policy)
            && !self.policy.contain(&other.policy)
    }

    fn is_of_same_child(&self, other: &Self) -> bool {
        self.connection.name == other.connection.name && self.config.name == other.config.name
    }

    fn is_contested_by(&self, other: &Self) -> bool {
        let allowed = self.config.overlap && other.config.overlap;
        let settled = || self.is_exception_from(other) || other.is_exception_from(self);
        !allowed
            && !self.is_of_same_peer(other)
            && self.selectors.overlap(&other.selectors)
            && !settled()
    }

    fn prefixes(&self, owner: u64, holder: ClaimHolder) -> impl Iterator<Item = ClaimPrefix> {
        let spd = self.config.spd;
        let prefix = move |ts: &TrafficSelector| {
            let (v6, first, last, bits) = match (ts.start, ts.end) {
                (IpAddr::V4(first), IpAddr::V4(last)) => (
                    false,
                    u128::from(first.to_bits()) << 96,
                    u128::from(last.to_bits()) << 96,
                    32,
                ),
                (IpAddr::V6(first), IpAddr::V6(last)) => {
                    (true, first.to_bits(), last.to_bits(), 128)
                }
                _ => return None,
            };
            let len = (first ^ last).leading_zeros().min(bits);
            let first = first & mask(len);
            Some(ClaimPrefix {
                spd,
                v6,
                first,
                len,
                owner,
                holder,
            })
        };
        self.selectors.remote.iter().filter_map(prefix)
    }
}

/// A mask of the first `len` bits.
fn mask(len: u32) -> u128 {
    match len {
        0 => 0,
        len => !0 << (128 - len),
    }
}

impl Claims {
    /// Claims what the configuration binds to peers.
    pub(crate) fn configure(&mut self, config: &Config) {
        for index in 0..std::mem::take(&mut self.configured) {
            self.remove_holder(ClaimHolder::Configured(index));
        }
        for connection in &config.connections {
            for child in &connection.children {
                for claim in bound_by(connection, child) {
                    let holder = ClaimHolder::Configured(self.configured);
                    self.configured += 1;
                    self.insert(holder, claim);
                }
            }
        }
    }

    pub(crate) fn add(&mut self, child: ChildSaId, claim: Claim) {
        self.insert(ClaimHolder::Sa(child), claim);
    }

    pub(crate) fn remove(&mut self, child: ChildSaId) {
        self.remove_holder(ClaimHolder::Sa(child));
    }

    fn insert(&mut self, holder: ClaimHolder, claim: Claim) {
        if let ClaimOwner::Peer(peer) = &claim.owner {
            self.shares.add(peer, claim.selectors.pairs());
        }
        let owner = self.owners.add(&claim);
        self.prefixes.extend(claim.prefixes(owner, holder));
        self.by_holder.insert(holder, Box::new(claim));
    }

    fn remove_holder(&mut self, holder: ClaimHolder) {
        if let Some(claim) = self.by_holder.remove(&holder) {
            if let ClaimOwner::Peer(peer) = &claim.owner {
                self.shares.remove(peer, claim.selectors.pairs());
            }
            let Some(owner) = self.owners.remove(&claim) else {
                return;
            };
            for prefix in claim.prefixes(owner, holder) {
                self.prefixes.remove(&prefix);
            }
        }
    }

    /// Says whether a newer SA of the same child carries the peer's traffic of this SA.
    pub(crate) fn is_taken_over(&self, child: ChildSaId) -> bool {
        let holder = ClaimHolder::Sa(child);
        let Some(claim) = self.by_holder.get(&holder) else {
            return false;
        };
        let owner = self.owners.number(claim);
        let newer = claim.prefixes(owner, holder).flat_map(|prefix| {
            let until = prefix.last_of_owner();
            let from = (Bound::Excluded(prefix), Bound::Included(until));
            self.prefixes.range(from)
        });
        let mut newer = newer.filter_map(|prefix| self.by_holder.get(&prefix.holder));
        newer.any(|other| {
            other.is_of_same_peer(claim)
                && other.is_of_same_child(claim)
                && other.selectors.contain(&claim.selectors)
        })
    }

    /// The claim of another peer that overlaps `claim`, and the child SA that has it, if one does.
    pub(crate) fn conflict(&self, claim: &Claim) -> Option<(&Claim, Option<ChildSaId>)> {
        let mut own = claim.prefixes(0, LEAST_HOLDER);
        own.find_map(|prefix| self.conflict_near(prefix, claim))
    }

    /// Looks at the claims whose prefixes contain `prefix`, or lie in it.
    fn conflict_near(
        &self,
        prefix: ClaimPrefix,
        claim: &Claim,
    ) -> Option<(&Claim, Option<ChildSaId>)> {
        let mut around = (0..=prefix.len).filter_map(|len| {
            let from = ClaimPrefix {
                first: prefix.first & mask(len),
                len,
                ..prefix
            };
            self.conflict_between(from, last_of(from), claim)
        });
        let from = ClaimPrefix {
            len: prefix.len + 1,
            ..prefix
        };
        let to = ClaimPrefix {
            first: prefix.first | !mask(prefix.len),
            len: u32::MAX,
            ..last_of(prefix)
        };
        around
            .next()
            .or_else(|| self.conflict_between(from, to, claim))
    }

    fn conflict_between(
        &self,
        from: ClaimPrefix,
        to: ClaimPrefix,
        claim: &Claim,
    ) -> Option<(&Claim, Option<ChildSaId>)> {
        let mut from = Bound::Included(from);
        loop {
            let found = *self.prefixes.range((from, Bound::Included(to))).next()?;
            from = Bound::Excluded(found);
            let child = match found.holder {
                // The administrator has configured both.
                ClaimHolder::Configured(_) if claim.bound => continue,
                ClaimHolder::Configured(_) => None,
                ClaimHolder::Sa(child) => Some(child),
            };
            let Some(held) = self.by_holder.get(&found.holder) else {
                continue;
            };
            if held.is_of_same_peer(claim) {
                from = Bound::Excluded(found.last_of_owner());
            } else if held.is_contested_by(claim) {
                return Some((held, child));
            }
        }
    }
}

/// The last one that there could be of a prefix.
fn last_of(prefix: ClaimPrefix) -> ClaimPrefix {
    ClaimPrefix {
        owner: u64::MAX,
        holder: MOST_HOLDER,
        ..prefix
    }
}

/// Returns the claims by which a child binds traffic to single peers, as far as the addresses are known before there is
/// an SA.
fn bound_by(connection: &Arc<Connection>, child: &Arc<Child>) -> Vec<Claim> {
    let host = |addresses: &[AddressMatch]| AddressMatch::hosts_of(addresses).next();
    let known = |selectors: &[Selector], outer: Option<IpAddr>| match outer {
        Some(outer) => ts::resolve(selectors, outer),
        None => ts::fixed(selectors),
    };
    let mut local = known(&child.local_ts, host(&connection.local_addrs));
    if local.len() < child.local_ts.len() {
        local = ts::everything();
    }
    let remote_host = host(&connection.remote_addrs);
    let policy = Arc::new(SelectorPair {
        local,
        remote: known(&child.remote_ts, remote_host),
    });
    let claim = |id: &Identity, selectors: Arc<SelectorPair>| Claim {
        connection: connection.clone(),
        config: child.clone(),
        owner: ClaimOwner::Named(id.clone()),
        bound: true,
        policy: policy.clone(),
        selectors,
    };
    if connection.names_one_peer() {
        return vec![claim(&connection.remote.id, policy.clone())];
    }
    let exact = (connection.peers.iter()).filter(|entry| !entry.id.is_pattern());
    exact
        .map(|entry| {
            let own = known(&entry.remote_ts, remote_host);
            let selectors = SelectorPair {
                local: policy.local.clone(),
                remote: ts::narrow(&own, &policy.remote),
            };
            claim(&entry.id, Arc::new(selectors))
        })
        .collect()
}
