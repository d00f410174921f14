//! Stateful fragment checking (RFC 4301 §7.3; §7.4 demands it for Bypass): the decision about a datagram's first
//! fragment also holds for its later fragments.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The verdicts on first fragments, at most `capacity` of them. A `K` identifies a datagram.
#[derive(Debug)]
pub struct Tracker<K, V> {
    capacity: usize,
    timeout_ms: u64,
    verdicts: HashMap<K, Remembered<V>>,
    /// The keys of `verdicts`, each once, the oldest first.
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

    /// Remembers the verdict on a first fragment. A full table forgets its oldest entry.
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

    /// Forgets a verdict, because another datagram with the same identification has begun.
    pub fn forget(&mut self, key: &K) {
        if self.verdicts.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }

    /// Returns the verdict for a later fragment. Returns `None` if its first fragment was not seen, or was seen too
    /// long ago.
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
