//! Counts of what simulations have met. One in which nothing happens would show nothing.

use std::collections::BTreeMap;

/// What many simulations together meet in any case.
const EXPECTED: [&str; 9] = [
    "forged packet",
    "move of a peer",
    "packet that may be clear",
    "packet with an unknown SPI",
    "packet without an SA",
    "part of a packet",
    "rekey of a child SA",
    "rekey of an IKE SA",
    "repeated datagram",
];

#[derive(Clone, Debug, Default)]
pub struct Seen {
    counts: BTreeMap<&'static str, u64>,
    most: BTreeMap<&'static str, u64>,
}

impl Seen {
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Notes the number of things that there are.
    pub fn most(&mut self, what: &'static str, number: u64) {
        let most = self.most.entry(what).or_default();
        *most = number.max(*most);
    }

    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
        for (what, number) in &other.most {
            self.most(what, *number);
        }
    }

    /// Returns what should have been met and was not.
    pub fn missing(&self) -> Vec<&'static str> {
        let seen = |what: &&str| self.counts.contains_key(what);
        EXPECTED.into_iter().filter(|what| !seen(what)).collect()
    }
}
