//! Simulates a network under a virtual clock. A seed decides which datagrams it loses, delays,
//! duplicates, reorders and corrupts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

/// A small deterministic generator (SplitMix64). It is not fit for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, uniform enough for tests. Returns zero for an empty range.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }

    pub fn between(&mut self, range: &Range<Duration>) -> Duration {
        let span = range.end.saturating_sub(range.start).as_nanos() as u64;
        range.start + Duration::from_nanos(self.below(span.max(1)))
    }
}

/// Probabilities and delays with which the network treats each datagram.
#[derive(Clone, Debug)]
pub struct Conditions {
    pub loss: f64,
    pub duplication: f64,
    pub corruption: f64,
    /// The range of delays. Datagrams with different delays overtake each other.
    pub delay: Range<Duration>,
}

impl Conditions {
    /// Conditions under which nothing goes wrong.
    pub const PERFECT: Self = Self {
        loss: 0.0,
        duplication: 0.0,
        corruption: 0.0,
        delay: Duration::from_millis(10)..Duration::from_millis(10),
    };
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Datagram {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub payload: Vec<u8>,
}

/// The network with its datagrams in flight.
#[derive(Debug)]
pub struct Network {
    pub conditions: Conditions,
    rng: Rng,
    in_flight: BinaryHeap<Reverse<(Instant, u64, Datagram)>>,
    sent: u64,
}

impl Network {
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self {
            conditions,
            rng: Rng::new(seed),
            in_flight: BinaryHeap::new(),
            sent: 0,
        }
    }

    pub fn send(&mut self, now: Instant, datagram: Datagram) {
        let copies = 1 + u32::from(self.rng.chance(self.conditions.duplication));
        for _ in 0..copies {
            if self.rng.chance(self.conditions.loss) {
                continue;
            }
            let mut copy = datagram.clone();
            if self.rng.chance(self.conditions.corruption) {
                self.corrupt(&mut copy.payload);
            }
            let at = now + self.rng.between(&self.conditions.delay);
            self.sent += 1;
            self.in_flight.push(Reverse((at, self.sent, copy)));
        }
    }

    fn corrupt(&mut self, payload: &mut Vec<u8>) {
        if self.rng.chance(0.2) {
            let len = self.rng.below(payload.len() as u64 + 1) as usize;
            payload.truncate(len);
            return;
        }
        for _ in 0..=self.rng.below(3) {
            let at = self.rng.below(payload.len() as u64) as usize;
            if let Some(byte) = payload.get_mut(at) {
                *byte ^= 1 << self.rng.below(8);
            }
        }
    }

    pub fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse((at, ..))| *at)
    }

    pub fn arrive(&mut self, now: Instant) -> Option<Datagram> {
        if self.next_arrival()? > now {
            return None;
        }
        self.in_flight.pop().map(|Reverse((.., datagram))| datagram)
    }

    /// Drops every datagram in flight.
    pub fn clear(&mut self) {
        self.in_flight.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(conditions: Conditions, seed: u64) -> Vec<u8> {
        let start = Instant::now();
        let address = "192.0.2.1:500".parse().unwrap();
        let mut network = Network::new(conditions, seed);
        for number in 0..100 {
            network.send(
                start,
                Datagram {
                    from: address,
                    to: address,
                    payload: vec![number],
                },
            );
        }
        let mut arrived = Vec::new();
        while let Some(at) = network.next_arrival() {
            arrived.extend(network.arrive(at).unwrap().payload);
        }
        arrived
    }

    #[test]
    fn a_seed_decides_everything() {
        let delay = Duration::from_millis(1)..Duration::from_millis(50);
        let bad = Conditions {
            loss: 0.2,
            duplication: 0.2,
            corruption: 0.2,
            delay,
        };
        assert_eq!(run(bad.clone(), 1), run(bad.clone(), 1));
        assert_ne!(run(bad.clone(), 1), run(bad, 2));
        assert_eq!(run(Conditions::PERFECT, 3), (0..100).collect::<Vec<u8>>());
    }
}
