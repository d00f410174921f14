//! Stateful fragment checking (RFC 4301 §7.4): what was decided for a datagram's first fragment holds for the
//! ones that follow it.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The verdicts of first fragments, at most `capacity` of them. `K` names a datagram.
#[derive(Debug)]
pub struct Tracker<K, V> {
    capacity: usize,
    timeout_ms: u64,
    verdicts: HashMap<K, Remembered<V>>,
    /// Oldest first. Has every key of `verdicts` once.
    order: VecDeque<K>,
}

#[derive(Debug)]
struct Remembered<V> {
    verdict: V,
    deadline_ms: u64,
}

impl<K: Copy + Eq + Hash, V: Clone> Tracker<K, V> {
    pub fn new(capacity: usize, timeout_ms: u64) -> Self {
        Self {
            capacity,
            timeout_ms,
            verdicts: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Remembers the verdict of a first fragment. A full table forgets its oldest.
    pub fn first(&mut self, key: K, verdict: V, now_ms: u64) {
        if self.capacity == 0 {
            return;
        }
        let deadline_ms = now_ms.saturating_add(self.timeout_ms);
        let remembered = Remembered {
            verdict,
            deadline_ms,
        };
        if self.verdicts.insert(key, remembered).is_none() {
            if self.order.len() == self.capacity
                && let Some(oldest) = self.order.pop_front()
            {
                self.verdicts.remove(&oldest);
            }
            self.order.push_back(key);
        }
    }

    /// Another datagram of the same identification has begun: what was decided no longer holds.
    pub fn forget(&mut self, key: &K) {
        if self.verdicts.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }

    /// The verdict for a later fragment; none if its first one was not seen, or too long ago.
    pub fn later(&self, key: &K, now_ms: u64) -> Option<V> {
        let remembered = self.verdicts.get(key)?;
        (now_ms < remembered.deadline_ms).then(|| remembered.verdict.clone())
    }

    pub fn len(&self) -> usize {
        self.verdicts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.verdicts.is_empty()
    }
}
