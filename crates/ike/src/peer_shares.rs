//! The share that each peer has taken: child SAs, selectors, and work on requests for child SAs.

use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use crate::event::PeerLimit;
use crate::peer::PeerKey;
use crate::rate::{Due, Rate};

/// The requests that a peer may send in a row after a pause, in seconds of its rate.
const BURST: u32 = 20;
/// Pairs of selectors that cost as much as a request.
const PAIRS_PER_REQUEST: usize = 32;
/// Most peers whose warnings are remembered.
const WARNED_MAX: usize = 4096;
/// Most peers whose work is remembered although they may be idle.
const IDLE_MAX: usize = 1024;

/// A peer, whatever our own identity towards it is.
#[derive(Clone, Debug)]
struct SharingPeer(PeerKey);

impl PartialEq for SharingPeer {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_same_peer(&other.0)
    }
}

impl Eq for SharingPeer {}

impl Hash for SharingPeer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.remote().hash(state);
    }
}

/// The share that the child SAs of a peer take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerShare {
    pub(crate) children: usize,
    /// Pairs of a local and a remote selector.
    pub(crate) pairs: usize,
}

/// The rate of a peer's requests.
fn rate(per_second: u32) -> Rate {
    Rate {
        every: Duration::from_secs(1) / per_second.max(1),
        burst: per_second.max(1).saturating_mul(BURST),
    }
}

#[derive(Default)]
pub(crate) struct PeerShares {
    shares: HashMap<SharingPeer, PeerShare>,
    work: HashMap<SharingPeer, Due>,
    /// The number of peers in `work` at which idle ones are forgotten.
    forget_at: usize,
    warned: HashSet<(SharingPeer, PeerLimit)>,
}

impl PeerShares {
    pub(crate) fn of(&self, peer: &PeerKey) -> PeerShare {
        let share = self.shares.get(&SharingPeer(peer.clone()));
        share.copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, peer: &PeerKey, pairs: usize) {
        let share = self.shares.entry(SharingPeer(peer.clone())).or_default();
        share.children += 1;
        share.pairs += pairs;
    }

    pub(crate) fn remove(&mut self, peer: &PeerKey, pairs: usize) {
        let peer = SharingPeer(peer.clone());
        let Some(share) = self.shares.get_mut(&peer) else {
            return;
        };
        share.children = share.children.saturating_sub(1);
        share.pairs = share.pairs.saturating_sub(pairs);
        if share.children == 0 {
            self.shares.remove(&peer);
        }
    }

    /// Says whether the peer has a share of work left.
    pub(crate) fn has_left(&self, now: Instant, peer: &PeerKey, per_second: u32) -> bool {
        let due = self.work.get(&SharingPeer(peer.clone()));
        rate(per_second).allows(now, due.copied().flatten())
    }

    /// Charges a peer for a request for an SA with this many pairs of selectors. Returns false if the peer has used its
    /// share of work up.
    pub(crate) fn charge(
        &mut self,
        now: Instant,
        peer: &PeerKey,
        pairs: usize,
        per_second: u32,
    ) -> bool {
        let rate = rate(per_second);
        if self.work.len() >= self.forget_at.max(IDLE_MAX) {
            self.work.retain(|_, due| due.is_some_and(|due| due > now));
            self.forget_at = 2 * self.work.len();
        }
        let due = self.work.entry(SharingPeer(peer.clone())).or_default();
        let allowed = rate.allows(now, *due);
        if allowed {
            for _ in 0..=pairs / PAIRS_PER_REQUEST {
                rate.take(now, due);
            }
        }
        allowed
    }

    /// Says whether the peer comes near the limit now: it has taken four fifths, and had taken less than half since
    /// this was true last.
    pub(crate) fn nears(
        &mut self,
        peer: &PeerKey,
        limit: PeerLimit,
        used: usize,
        most: usize,
    ) -> bool {
        let key = (SharingPeer(peer.clone()), limit);
        if used.saturating_mul(2) < most {
            self.warned.remove(&key);
        }
        if used.saturating_mul(5) < most.saturating_mul(4) {
            return false;
        }
        if self.warned.len() >= WARNED_MAX {
            self.warned.clear();
        }
        self.warned.insert(key)
    }
}
