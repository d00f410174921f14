//! The limit on the IKE SAs that are begun at once towards one address.
//!
//! A responder takes few half-open IKE SAs of one address, and drops more of them in silence. The SAs that we have
//! begun are held in a window, as TCP's segments are (RFC 5681). The window grows with each SA that is established. It
//! is halved when an SA gets no response.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use crate::event::IkeSaId;
use crate::sa::ConnectProgress;

/// Below the limits of common responders: strongSwan takes 5, Esplanade 20.
const WINDOW_START: f64 = 4.0;
const WINDOW_MIN: f64 = 2.0;
const WINDOW_MAX: f64 = 256.0;
/// An IKE SA counts as lost when this many that were begun after it were answered (RFC 5681 §3.2).
const OVERTAKEN: u32 = 3;

/// An address towards which IKE SAs are being established. The SAs are begun in the order of their numbers.
struct Peer {
    window: f64,
    /// Below the threshold the window grows by one with each IKE SA. Above it, it grows by one with each whole
    /// window.
    threshold: f64,
    waiting: BTreeSet<IkeSaId>,
    under_way: BTreeMap<IkeSaId, UnderWay>,
    /// The last SA that was begun before the window was halved. Losses up to it have the same cause.
    halved_at: Option<IkeSaId>,
}

#[derive(Default)]
struct UnderWay {
    answered: bool,
    overtaken: u32,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            window: WINDOW_START,
            threshold: WINDOW_MAX,
            waiting: BTreeSet::new(),
            under_way: BTreeMap::new(),
            halved_at: None,
        }
    }
}

impl Peer {
    fn has_room(&self) -> bool {
        (self.under_way.len() as f64) < self.window.floor()
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    fn note(&mut self, id: IkeSaId, stage: Option<ConnectProgress>) {
        match stage {
            Some(ConnectProgress::Waiting) => drop(self.waiting.insert(id)),
            Some(ConnectProgress::InitSent) => {
                if self.waiting.remove(&id) {
                    self.under_way.insert(id, UnderWay::default());
                }
            }
            // The peer asks for cookies, so it is under load. It does so before it drops messages.
            Some(ConnectProgress::CookieSent) => self.threshold = self.threshold.min(self.window),
            Some(ConnectProgress::AuthSent) => self.answered(id),
            Some(ConnectProgress::Silent) => self.lost(id),
            Some(ConnectProgress::Refused) => drop(self.under_way.remove(&id)),
            None => {
                self.waiting.remove(&id);
                if self.under_way.remove(&id).is_some_and(|one| one.answered) {
                    self.grow();
                }
            }
        }
    }

    fn answered(&mut self, id: IkeSaId) {
        let Some(one) = self.under_way.get_mut(&id) else {
            return;
        };
        one.answered = true;
        let mut lost = Vec::new();
        for (before, one) in self.under_way.range_mut(..id) {
            one.overtaken += u32::from(!one.answered);
            if one.overtaken >= OVERTAKEN && !one.answered {
                lost.push(*before);
            }
        }
        for id in lost {
            self.lost(id);
        }
    }

    /// The SA is retransmitted as usual, and does not count any more.
    fn lost(&mut self, id: IkeSaId) {
        if self.under_way.remove(&id).is_none() || Some(id) <= self.halved_at {
            return;
        }
        self.threshold = (self.window / 2.0).max(WINDOW_MIN);
        self.window = self.threshold;
        self.halved_at = self.under_way.keys().next_back().copied().max(Some(id));
    }

    fn grow(&mut self) {
        let step = match self.window < self.threshold {
            true => 1.0,
            false => 1.0 / self.window,
        };
        self.window = (self.window + step).min(WINDOW_MAX);
    }
}

#[derive(Default)]
pub(super) struct Pacing {
    peers: HashMap<IpAddr, Peer>,
    stages: HashMap<IkeSaId, (IpAddr, ConnectProgress)>,
    /// Addresses towards which an SA can perhaps be begun.
    changed: BTreeSet<IpAddr>,
}

impl Pacing {
    /// Notes how far an IKE SA towards `remote` has come. `None` means that the SA does not wait for its peer any more.
    pub(super) fn note(&mut self, id: IkeSaId, remote: IpAddr, stage: Option<ConnectProgress>) {
        let before = self.stages.get(&id).copied();
        if before.map(|(_, stage)| stage) == stage {
            return;
        }
        let remote = before.map_or(remote, |(remote, _)| remote);
        match stage {
            Some(stage) => drop(self.stages.insert(id, (remote, stage))),
            None => drop(self.stages.remove(&id)),
        }
        let peer = self.peers.entry(remote).or_default();
        peer.note(id, stage);
        if peer.is_idle() {
            self.peers.remove(&remote);
        } else {
            self.changed.insert(remote);
        }
    }

    pub(super) fn forget(&mut self, id: IkeSaId) {
        if let Some((remote, _)) = self.stages.get(&id).copied() {
            self.note(id, remote, None);
        }
    }

    /// The next IKE SA to begin.
    pub(super) fn next(&mut self) -> Option<IkeSaId> {
        while let Some(remote) = self.changed.first().copied() {
            let peer = self.peers.get(&remote).filter(|peer| peer.has_room());
            match peer.and_then(|peer| peer.waiting.first()) {
                Some(id) => return Some(*id),
                None => drop(self.changed.remove(&remote)),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(peer: &mut Peer, from: u64) -> u64 {
        let mut next = from;
        while peer.has_room() {
            peer.note(IkeSaId(next), Some(ConnectProgress::Waiting));
            peer.note(IkeSaId(next), Some(ConnectProgress::InitSent));
            next += 1;
        }
        next
    }

    fn up(peer: &mut Peer, id: u64) {
        peer.note(IkeSaId(id), Some(ConnectProgress::AuthSent));
        peer.note(IkeSaId(id), None);
    }

    #[test]
    fn the_window_doubles_until_something_is_lost() {
        let mut peer = Peer::default();
        assert_eq!(begin(&mut peer, 0), 4);
        (0..4).for_each(|id| up(&mut peer, id));
        assert_eq!(begin(&mut peer, 4), 12);
        // Three SAs have overtaken the first one. That counts as one loss, though several were lost.
        (6..9).for_each(|id| up(&mut peer, id));
        assert_eq!(peer.window.floor(), 5.0);
        assert_eq!(peer.under_way.len(), 3, "two count no more");
        let window = peer.window;
        up(&mut peer, 10);
        assert!(
            peer.window > window && peer.window < window + 1.0,
            "slowly now"
        );
    }

    #[test]
    fn a_cookie_ends_the_doubling() {
        let mut peer = Peer::default();
        begin(&mut peer, 0);
        peer.note(IkeSaId(0), Some(ConnectProgress::CookieSent));
        (0..4).for_each(|id| up(&mut peer, id));
        assert!(peer.window < 5.0);
    }

    #[test]
    fn a_dead_peer_gets_few_at_a_time_and_everyone_has_a_turn() {
        let mut peer = Peer::default();
        let mut next = begin(&mut peer, 0);
        for _ in 0..10 {
            let silent: Vec<_> = peer.under_way.keys().copied().collect();
            for id in silent {
                peer.note(id, Some(ConnectProgress::Silent));
            }
            let before = next;
            next = begin(&mut peer, next);
            assert_eq!(next - before, 2);
        }
    }

    #[test]
    fn nothing_is_kept_of_a_peer_that_is_done_with() {
        let mut pacing = Pacing::default();
        let remote = "192.0.2.1".parse().unwrap();
        for id in 0..10 {
            pacing.note(IkeSaId(id), remote, Some(ConnectProgress::Waiting));
        }
        while let Some(id) = pacing.next() {
            pacing.note(id, remote, Some(ConnectProgress::InitSent));
            let stage = match id.0 {
                0 => ConnectProgress::Refused,
                1 => ConnectProgress::Silent,
                _ => ConnectProgress::AuthSent,
            };
            pacing.note(id, remote, Some(stage));
            pacing.note(id, remote, None);
        }
        assert!(pacing.peers.is_empty() && pacing.stages.is_empty());
        assert_eq!(pacing.next(), None);
    }
}
