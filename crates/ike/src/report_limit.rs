//! Limits on reports of refusals. Anybody can cause refusals, so each source gets some reports, and all sources
//! together get some.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::rate::{Due, Rate};
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

/// The reports of one kind of sources.
#[derive(Debug, Default)]
struct Told {
    /// Sources with recent reports. The limit on all reports bounds their number.
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

/// The two limits of reports. What somebody causes in the name of an address does not use up the reports of its
/// owner.
#[derive(Debug, Default)]
pub(crate) struct ReportLimit {
    unproven: Told,
    proven: Told,
    untold: u64,
}

impl ReportLimit {
    /// Tells whether a refusal is reported. If it is, returns the number of refusals since the last report that were
    /// not reported.
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
