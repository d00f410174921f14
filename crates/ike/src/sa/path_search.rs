//! The search for the path MTU towards a peer (RFC 8899), for paths that drop long packets without an ICMP error.
//!
//! ESP is not acknowledged, and IKE is. So a request of IKE that fills a packet of the size in question, with DF, is
//! the probe. Its response confirms the size. Where the response comes only after a short request, the probe is lost.
//!
//! A round begins with the size that the embedder names, which is what the route and ICMP errors allow. Usually it
//! arrives, and the round is over. If it is lost, the search goes up from a size that every path should take, through
//! usual sizes, until one is lost. Going up costs a round trip for each size that arrives, and the pauses of one size
//! that does not. Halving would need fewer probes, but more of them would be lost, and a lost probe costs most.
//!
//! A size counts as too long only if a shorter probe was answered. A peer that answers no probe at all, or a path that
//! loses everything, changes nothing. Neither does anybody who cannot send authenticated messages.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::event::PathFound;

/// The time between rounds (PMTU_RAISE_TIMER, RFC 8899 §5.1.1). A path that is not narrow is asked again too, because
/// it can become narrow.
const ROUND_EVERY: Duration = Duration::from_secs(600);
/// The shortest time from the begin of one round to the next, however often the peer moves.
const ROUND_AFTER: Duration = Duration::from_secs(10);
/// The time for an answer to the first, the second and the third probe of a size. After the third, the size counts as
/// lost (MAX_PROBES, RFC 8899 §5.1.2). RFC 8899 §5.1.1 asks for a second at least. The last is longer, because a long
/// round trip must not look like a loss.
const WAITS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// Where the search begins to go up (BASE_PLPMTU, RFC 8899 §5.1.2; RFC 8200 §5 for IPv6). Nothing less is found.
const BASE_V4: u16 = 1200;
const BASE_V6: u16 = 1280;
/// The longest probe. strongSwan takes IKE messages of up to 10,000 bytes.
const LONGEST: u16 = 9000;

/// Sizes that links and tunnels on the way have, in bytes of the IP packet.
const USUAL: [u16; 18] = [
    1280, 1300, 1320, 1340, 1358, 1380, 1400, 1420, 1440, 1454, 1460, 1472, 1480, 1492, 1500, 2002,
    4352, 8166,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The size that the embedder has named.
    Top,
    /// The size from which the search goes up.
    Start,
    /// A size above one that has arrived.
    Above,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    begun: Instant,
    stage: Stage,
    top: u16,
    /// The shortest size that was lost. At first it is the embedder's.
    lost_at: u16,
    /// The size that is being probed.
    size: u16,
    lost: u8,
    /// The longest packet that has arrived.
    best: u16,
}

/// The search of one IKE SA.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathSearch {
    /// The path MTU that probes have found, if the path is narrow.
    narrow: Option<u16>,
    round: Option<Round>,
    /// The begin of the last round.
    begun: Option<Instant>,
    /// The end of the last round on this path.
    ended: Option<Instant>,
    /// The embedder was asked at this time for the size to begin with, and has not answered.
    asked: Option<Instant>,
    /// The peer does not understand probes.
    off: bool,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A probe of this size.
    Probe(u16),
    /// Nothing. What was found before may not count any more.
    Nothing(Option<PathFound>),
}

/// Returns the size from which a search goes up.
fn base(remote: IpAddr) -> u16 {
    match remote {
        IpAddr::V4(_) => BASE_V4,
        IpAddr::V6(_) => BASE_V6,
    }
}

/// Returns the next usual size between the two.
fn above(size: u16, top: u16) -> Option<u16> {
    let mut usual = USUAL.into_iter();
    usual.find(|usual| *usual > size && *usual < top)
}

fn has_passed(since: Option<Instant>, time: Duration, now: Instant) -> bool {
    since.is_none_or(|at| now.saturating_duration_since(at) >= time)
}

impl PathSearch {
    /// Says whether the embedder is to be asked for the size to begin with, because traffic goes out now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let waits = self.round.is_some() || self.may_begin(now);
        let due = !self.off && waits && has_passed(self.asked, ROUND_EVERY, now);
        if due {
            self.asked = Some(now);
        }
        due
    }

    /// The embedder has answered.
    pub(crate) fn answered(&mut self) {
        self.asked = None;
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    fn may_begin(&self, now: Instant) -> bool {
        has_passed(self.begun, ROUND_AFTER, now) && has_passed(self.ended, ROUND_EVERY, now)
    }

    /// Takes the embedder's answer: the longest size that is worth a probe, or `None` if the path MTU does not matter.
    pub(crate) fn next(&mut self, now: Instant, top: Option<u16>, remote: IpAddr) -> Next {
        let top = top.map(|top| top.min(LONGEST));
        let Some(top) = top.filter(|top| *top > base(remote)) else {
            self.finish(now);
            return Next::Nothing(self.set(None).then_some(PathFound::Whole));
        };
        let is_fresh = |round: &Round| !has_passed(Some(round.begun), ROUND_EVERY, now);
        let round = self.round.filter(is_fresh);
        if self.off || round.is_none() && !self.may_begin(now) {
            return Next::Nothing(None);
        }
        let new = Round {
            begun: now,
            stage: Stage::Top,
            top,
            lost_at: top,
            size: top,
            lost: 0,
            best: 0,
        };
        let mut round = round.unwrap_or(new);
        // An ICMP error, or another route, has told more meanwhile.
        if top < round.top && (round.stage == Stage::Top || round.size >= top) {
            round = Round {
                begun: round.begun,
                ..new
            };
        }
        self.begun = Some(round.begun);
        self.round = Some(round);
        Next::Probe(round.size)
    }

    /// The time that the peer has to answer the probe that is about to be sent.
    pub(crate) fn wait(&self) -> Duration {
        let lost = self.round.map_or(0, |round| round.lost);
        WAITS.get(usize::from(lost)).copied().unwrap_or(WAITS[0])
    }

    /// The probe was answered. `sent` is its true size: a block cipher can make it a little shorter.
    pub(crate) fn arrived(&mut self, now: Instant, sent: u16) -> Option<PathFound> {
        let mut round = self.round?;
        if round.size >= round.top {
            self.set(None);
            self.finish(now);
            return Some(PathFound::Whole);
        }
        round.best = sent;
        round.stage = Stage::Above;
        if round.size >= round.lost_at {
            // It was lost by chance before.
            round.lost_at = round.top;
        }
        // The last size was lost already, but perhaps in a short outage.
        let next = above(round.size, round.lost_at).unwrap_or(round.lost_at);
        (round.size, round.lost) = (next, 0);
        self.round = Some(round);
        None
    }

    /// The probe was answered only after it was sent again in short packets.
    pub(crate) fn lost(&mut self, now: Instant, remote: IpAddr) -> Option<PathFound> {
        let mut round = self.round?;
        round.lost = round.lost.saturating_add(1);
        let is_last = usize::from(round.lost) >= WAITS.len();
        let base = base(remote);
        let mut found = None;
        match round.stage {
            Stage::Above if is_last => {
                round.lost_at = round.size;
                return self.end(now, round);
            }
            // Most likely this size is the one that is too long. Data waits for that, so it is not put off.
            Stage::Above => found = self.publish(round.best, round.size),
            Stage::Top if is_last => {
                let before = self.narrow.filter(|narrow| *narrow < round.size);
                round.stage = Stage::Start;
                (round.size, round.lost) = (before.unwrap_or(base).max(base), 0);
            }
            Stage::Start if is_last && round.size <= base => {
                self.finish(now);
                return Some(PathFound::Nothing);
            }
            Stage::Start if is_last => {
                round.lost_at = round.size;
                (round.size, round.lost) = (base, 0);
            }
            Stage::Top | Stage::Start => {}
        }
        self.round = Some(round);
        found
    }

    /// The peer, or this end, is at another address, so that nothing is known of the path.
    pub(crate) fn restart(&mut self) {
        *self = Self {
            begun: self.begun,
            off: self.off,
            ..Self::default()
        };
    }

    /// No probe is sent any more: the peer does not understand it.
    pub(crate) fn give_up(&mut self) {
        self.round = None;
        self.off = true;
    }

    /// Sets the path MTU. Returns true if that is news.
    fn set(&mut self, narrow: Option<u16>) -> bool {
        std::mem::replace(&mut self.narrow, narrow) != narrow
    }

    fn publish(&mut self, mtu: u16, lost: u16) -> Option<PathFound> {
        self.set(Some(mtu))
            .then_some(PathFound::Narrow { mtu, lost })
    }

    fn end(&mut self, now: Instant, round: Round) -> Option<PathFound> {
        self.finish(now);
        self.publish(round.best, round.lost_at)
    }

    fn finish(&mut self, now: Instant) {
        self.round = None;
        self.ended = Some(now);
    }
}
