//! Which refusals are told, of all that peers and strangers can cause: some of each source, some in all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::rate::{Due, Rate};
use crate::source_network::SourceNetwork;

/// A refusal at once, and one each so many seconds, from one source.
const SOURCE: Rate = Rate {
    every: Duration::from_secs(30),
    burst: 3,
};
/// In all, from sources that anybody can pretend to be.
const UNPROVEN: Rate = Rate {
    every: Duration::from_secs(5),
    burst: 5,
};
/// In all, from sources that have shown that they receive what is sent to them.
const PROVEN: Rate = Rate {
    every: Duration::from_secs(1),
    burst: 10,
};

/// What was told of sources of one kind.
#[derive(Debug, Default)]
struct Told {
    /// Those whose turn it is not yet: bounded by how many are told in all.
    sources: HashMap<SourceNetwork, Due>,
    in_all: Due,
}

impl Told {
    fn takes(&mut self, now: Instant, source: IpAddr, rate: Rate) -> bool {
        let source = SourceNetwork::of_source(source);
        let due = self.sources.get(&source).copied().flatten();
        if !SOURCE.allows(now, due) || !rate.allows(now, self.in_all) {
            return false;
        }
        rate.take(now, &mut self.in_all);
        self.sources
            .retain(|_, due| due.is_some_and(|due| due > now));
        SOURCE.take(now, self.sources.entry(source).or_default());
        true
    }
}

/// What is told in the name of a source that has shown nothing is not charged to the one that has.
#[derive(Debug, Default)]
pub(crate) struct ReportLimit {
    unproven: Told,
    proven: Told,
    untold: u64,
}

impl ReportLimit {
    /// Whether a refusal is told. Gives how many were not since the last that was.
    pub(crate) fn proven(&mut self, now: Instant, source: IpAddr) -> Option<u64> {
        let takes = self.proven.takes(now, source, PROVEN);
        self.count(takes)
    }

    /// The same for a source that anybody can pretend to be.
    pub(crate) fn unproven(&mut self, now: Instant, source: IpAddr) -> Option<u64> {
        let takes = self.unproven.takes(now, source, UNPROVEN);
        self.count(takes)
    }

    fn count(&mut self, takes: bool) -> Option<u64> {
        if takes {
            return Some(std::mem::take(&mut self.untold));
        }
        self.untold += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn source(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    #[test]
    fn one_source_is_told_a_few_times() {
        let (mut limit, start) = (ReportLimit::default(), Instant::now());
        let told = |limit: &mut ReportLimit, at| limit.proven(at, source(1));
        for _ in 0..3 {
            assert_eq!(told(&mut limit, start), Some(0));
        }
        for seconds in 0..30 {
            assert_eq!(told(&mut limit, start + seconds * SECOND), None);
        }
        assert_eq!(told(&mut limit, start + 30 * SECOND), Some(30));
        assert_eq!(told(&mut limit, start + 31 * SECOND), None);
        assert_eq!(limit.proven(start + 31 * SECOND, source(2)), Some(1));
    }

    #[test]
    fn a_flood_of_false_sources_is_bounded_and_hides_no_peer() {
        let (mut limit, start) = (ReportLimit::default(), Instant::now());
        let mut told = 0;
        for number in 0..100_000 {
            let now = start + SECOND * number / 1000;
            told += u32::from(limit.unproven(now, source(number)).is_some());
            assert!(limit.unproven.sources.len() < 200);
        }
        assert!((20..=26).contains(&told), "{told} in 100 s");
        assert!(limit.proven(start + 100 * SECOND, source(7)).is_some());
    }
}
