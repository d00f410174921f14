//! How many errors are told to senders that nobody has authenticated (RFC 7296 section 2.21): whoever forges its source
//! address lets us answer somebody else.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::source_network::SourceNetwork;

/// Of what is answered in a second one source gets at most this part.
const PART_OF_A_SOURCE: u32 = 4;
/// So many times more is answered to senders that have shown a cookie: the address is theirs.
const FOR_PROVEN: u32 = 50;

#[derive(Default)]
pub(super) struct Answers {
    unproven: Budget,
    proven: Budget,
}

/// A bucket that is filled again every second.
#[derive(Default)]
struct Budget {
    filled: Option<Instant>,
    spent: u32,
    by_source: HashMap<SourceNetwork, u32>,
}

impl Budget {
    fn refill(&mut self, now: Instant) {
        let stale = |at| now.saturating_duration_since(at) >= Duration::from_secs(1);
        if self.filled.is_none_or(stale) {
            self.filled = Some(now);
            self.spent = 0;
            self.by_source.clear();
        }
    }

    fn has_left(&mut self, now: Instant, source: SourceNetwork, per_second: u32) -> bool {
        self.refill(now);
        let own = self.by_source.get(&source).copied().unwrap_or(0);
        self.spent < per_second && own < per_second.div_ceil(PART_OF_A_SOURCE)
    }

    fn take(&mut self, now: Instant, source: SourceNetwork, per_second: u32) -> bool {
        let left = self.has_left(now, source, per_second);
        if left {
            self.spent += 1;
            *self.by_source.entry(source).or_default() += 1;
        }
        left
    }
}

impl Answers {
    /// Whether a sender may be told an error although it has not proved its address.
    pub(super) fn has_left(&mut self, now: Instant, source: IpAddr, per_second: u32) -> bool {
        let source = SourceNetwork::of_source(source);
        self.unproven.has_left(now, source, per_second)
    }

    pub(super) fn take(
        &mut self,
        now: Instant,
        source: IpAddr,
        proven: bool,
        per_second: u32,
    ) -> bool {
        let source = SourceNetwork::of_source(source);
        match proven {
            true => (self.proven).take(now, source, per_second.saturating_mul(FOR_PROVEN)),
            false => self.unproven.take(now, source, per_second),
        }
    }
}
