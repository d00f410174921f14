//! The limit on error notifies to senders that nobody has authenticated (RFC 7296 §2.21). A sender with a false
//! source address has us answer somebody else.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::source_network::SourceNetwork;

/// A source gets at most the notifies of a second, divided by this number.
const PART_OF_A_SOURCE: u32 = 4;
/// Senders that have shown a cookie own their address. They get this many times more notifies.
const FOR_PROVEN: u32 = 50;

#[derive(Default)]
pub(super) struct Answers {
    unproven: Budget,
    proven: Budget,
    hints: Budget,
}

/// The notifies of the current second.
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
    /// Says whether a sender that has not proved its address may get an error notify.
    pub(super) fn has_left(&mut self, now: Instant, source: IpAddr, per_second: u32) -> bool {
        let source = SourceNetwork::of_source(source);
        self.unproven.has_left(now, source, per_second)
    }

    /// Says whether the sender of an unknown SPI may be told so.
    pub(super) fn take_hint(&mut self, now: Instant, source: IpAddr, per_second: u32) -> bool {
        let source = SourceNetwork::of_source(source);
        self.hints.take(now, source, per_second)
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
