//! Limits on reports of refusals. Anybody can cause refusals, so each source gets some reports, and all sources
//! together get some.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::rate::{Due, Rate};
use crate::refusal::Refusal;
use crate::source_network::SourceNetwork;

/// Reports of one source.
const SOURCE: Rate = Rate {
    every: Duration::from_secs(30),
    burst: 3,
};
/// Reports of all sources that anybody can pretend to be.
const UNPROVEN: Rate = Rate {
    every: Duration::from_secs(5),
    burst: 5,
};
/// Reports of all sources that have shown that they receive at their address.
const PROVEN: Rate = Rate {
    every: Duration::from_secs(1),
    burst: 10,
};

/// The time for which a peer that is refused again for the same reason is not reported again.
const SAME: Duration = Duration::from_secs(60);

/// The reports of one kind of sources.
#[derive(Debug)]
struct Told {
    rate: Rate,
    /// Sources with recent reports. The limit on all reports bounds their number.
    sources: HashMap<SourceNetwork, Due>,
    /// The ends of the times in which the same is not reported again. The limit on all reports bounds their number.
    same: HashMap<(SourceNetwork, Refusal, Option<String>), Instant>,
    in_all: Due,
}

impl Told {
    fn with(rate: Rate) -> Self {
        Self {
            rate,
            sources: HashMap::new(),
            same: HashMap::new(),
            in_all: None,
        }
    }

    fn allows(&self, now: Instant, source: SourceNetwork) -> bool {
        let due = self.sources.get(&source).copied().flatten();
        SOURCE.allows(now, due) && self.rate.allows(now, self.in_all)
    }

    fn takes(&mut self, now: Instant, source: SourceNetwork, refused: ReportedRefusal) -> bool {
        self.same.retain(|_, end| *end > now);
        let same = (source, refused.refusal, refused.remote_id);
        if !self.allows(now, source) || self.same.contains_key(&same) {
            return false;
        }
        self.same.insert(same, now + SAME);
        self.rate.take(now, &mut self.in_all);
        self.sources
            .retain(|_, due| due.is_some_and(|due| due > now));
        SOURCE.take(now, self.sources.entry(source).or_default());
        true
    }
}

/// The source of what is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportSource {
    /// The peer has shown that it receives at this address.
    Proven(IpAddr),
    /// Anybody can pretend to be there.
    Unproven(IpAddr),
}

/// The reason of a refusal, and the name that the peer gives itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReportedRefusal {
    pub(crate) refusal: Refusal,
    pub(crate) remote_id: Option<String>,
}

/// The two limits of reports. What somebody causes in the name of an address does not use up the reports of its
/// owner.
#[derive(Debug)]
pub(crate) struct ReportLimit {
    unproven: Told,
    proven: Told,
    untold: u64,
}

impl Default for ReportLimit {
    fn default() -> Self {
        Self {
            unproven: Told::with(UNPROVEN),
            proven: Told::with(PROVEN),
            untold: 0,
        }
    }
}

impl ReportLimit {
    /// Says whether there is room for a report. A refusal without room is counted.
    pub(crate) fn has_room(&mut self, now: Instant, source: ReportSource) -> bool {
        let (told, source) = self.of(source);
        let room = told.allows(now, source);
        self.untold += u64::from(!room);
        room
    }

    /// Tells whether a refusal is reported. If it is, returns the number of refusals since the last report that were
    /// not reported.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        source: ReportSource,
        refused: ReportedRefusal,
    ) -> Option<u64> {
        let (told, source) = self.of(source);
        if told.takes(now, source, refused) {
            return Some(std::mem::take(&mut self.untold));
        }
        self.untold += 1;
        None
    }

    fn of(&mut self, source: ReportSource) -> (&mut Told, SourceNetwork) {
        match source {
            ReportSource::Proven(host) => (&mut self.proven, SourceNetwork::of_source(host)),
            ReportSource::Unproven(host) => (&mut self.unproven, SourceNetwork::of_source(host)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn source(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    fn reported(remote_id: &str) -> ReportedRefusal {
        ReportedRefusal {
            refusal: Refusal::AuthenticationFailed,
            remote_id: Some(remote_id.to_owned()),
        }
    }

    fn told(limit: &mut ReportLimit, now: Instant, number: u32, id: &str) -> Option<u64> {
        let source = ReportSource::Proven(source(number));
        match limit.has_room(now, source) {
            true => limit.take(now, source, reported(id)),
            false => None,
        }
    }

    #[test]
    fn one_source_is_told_a_few_times() {
        let (mut limit, start) = (ReportLimit::default(), Instant::now());
        for id in ["a", "b", "c"] {
            assert_eq!(told(&mut limit, start, 1, id), Some(0));
        }
        for seconds in 0..30 {
            assert_eq!(told(&mut limit, start + seconds * SECOND, 1, "d"), None);
        }
        assert_eq!(told(&mut limit, start + 30 * SECOND, 1, "d"), Some(30));
        assert_eq!(told(&mut limit, start + 31 * SECOND, 1, "e"), None);
        assert_eq!(told(&mut limit, start + 31 * SECOND, 2, "e"), Some(1));
    }

    #[test]
    fn the_same_is_told_once_a_minute() {
        let (mut limit, start) = (ReportLimit::default(), Instant::now());
        let at =
            |limit: &mut ReportLimit, seconds, id| told(limit, start + seconds * SECOND, 1, id);
        assert_eq!(at(&mut limit, 0, "a"), Some(0));
        for seconds in 1..60 {
            assert_eq!(at(&mut limit, seconds, "a"), None);
        }
        assert_eq!(at(&mut limit, 59, "b"), Some(59));
        assert_eq!(at(&mut limit, 60, "a"), Some(0));
        let other = ReportedRefusal {
            refusal: Refusal::NoProposalChosen,
            ..reported("a")
        };
        let source = ReportSource::Proven(source(1));
        assert_eq!(limit.take(start + 61 * SECOND, source, other), Some(0));
    }

    #[test]
    fn a_flood_of_false_sources_is_bounded_and_hides_no_peer() {
        let (mut limit, start) = (ReportLimit::default(), Instant::now());
        let mut count = 0;
        for number in 0..100_000 {
            let now = start + SECOND * number / 1000;
            let source = ReportSource::Unproven(source(number));
            let taken =
                limit.has_room(now, source) && limit.take(now, source, reported("a")).is_some();
            count += u32::from(taken);
            assert!(limit.unproven.sources.len() < 200 && limit.unproven.same.len() < 200);
        }
        assert!((20..=26).contains(&count), "{count} in 100 s");
        assert!(told(&mut limit, start + 100 * SECOND, 7, "a").is_some());
    }
}
