//! Where a value lies among sorted boundaries: a static B-tree, searched without branches that depend on the value.

/// A value of one dimension: an IPv4 address, a port, a protocol (`u32`), or an IPv6 address (`u128`).
pub(super) trait Value: Copy + Ord + std::fmt::Debug {
    const MIN: Self;
    const MAX: Self;
    /// None behind the last one.
    fn next(self) -> Option<Self>;
}

impl Value for u32 {
    const MIN: Self = 0;
    const MAX: Self = Self::MAX;
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Value for u128 {
    const MIN: Self = 0;
    const MAX: Self = Self::MAX;
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

/// Keys in a node: one or two cache lines, compared all at once.
const NODE: usize = 16;

/// Sorted distinct boundaries, the first of which is [`Value::MIN`]. Interval `i` goes from boundary `i` to the next.
#[derive(Debug)]
pub(super) struct Ranks<V> {
    /// From the root down. A level's keys are the first keys of the nodes of the level below.
    levels: Vec<Level<V>>,
}

#[derive(Debug)]
struct Level<V> {
    nodes: Vec<[V; NODE]>,
    /// Without the padding of the last node.
    keys: usize,
}

impl<V: Value> Level<V> {
    fn new(keys: &[V]) -> Self {
        let node = |keys: &[V]| {
            let mut node = [V::MAX; NODE];
            for (place, key) in node.iter_mut().zip(keys) {
                *place = *key;
            }
            node
        };
        Self {
            nodes: keys.chunks(NODE).map(node).collect(),
            keys: keys.len(),
        }
    }
}

impl<V: Value> Ranks<V> {
    pub(super) fn new(boundaries: &[V]) -> Self {
        let mut keys = boundaries.to_vec();
        let mut levels = vec![Level::new(&keys)];
        while keys.len() > NODE {
            keys = keys.iter().step_by(NODE).copied().collect();
            levels.push(Level::new(&keys));
        }
        levels.reverse();
        Self { levels }
    }

    /// The interval that `value` is in.
    pub(super) fn find(&self, value: V) -> usize {
        let mut at = 0;
        for level in &self.levels {
            let Some(node) = level.nodes.get(at) else {
                return 0;
            };
            let below = node.iter().map(|key| u32::from(*key <= value)).sum::<u32>() as usize;
            // The first key of a node that is entered is not above the value. The padding counts as keys where the
            // value is the highest there is.
            at = (at * NODE + below.saturating_sub(1)).min(level.keys.saturating_sub(1));
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive<V: Value>(boundaries: &[V], value: V) -> usize {
        boundaries.iter().filter(|b| **b <= value).count() - 1
    }

    proptest! {
        #[test]
        fn agrees_with_counting(
            boundaries in proptest::collection::btree_set(any::<u32>(), 0..700),
            values in proptest::collection::vec(any::<u32>(), 50),
        ) {
            let mut boundaries = boundaries;
            boundaries.insert(0);
            let boundaries: Vec<u32> = boundaries.into_iter().collect();
            let wide: Vec<u128> = boundaries.iter().map(|b| u128::from(*b) << 90).collect();
            let (ranks, wide_ranks) = (Ranks::new(&boundaries), Ranks::new(&wide));
            let near = boundaries.iter().flat_map(|b| [b.wrapping_sub(1), *b, b.wrapping_add(1)]);
            for value in values.into_iter().chain(near).chain([0, u32::MAX]) {
                prop_assert_eq!(ranks.find(value), naive(&boundaries, value));
                let value = u128::from(value) << 90 | 5;
                prop_assert_eq!(wide_ranks.find(value), naive(&wide, value));
            }
            prop_assert_eq!(wide_ranks.find(u128::MAX), wide.len() - 1);
        }
    }

    #[test]
    fn the_highest_value_can_be_a_boundary() {
        for len in [1u32, 15, 16, 17, 255, 256, 257, 4097] {
            let mut boundaries: Vec<u32> = (0..len).collect();
            boundaries.push(u32::MAX);
            let ranks = Ranks::new(&boundaries);
            assert_eq!(ranks.find(u32::MAX), boundaries.len() - 1);
            assert_eq!(ranks.find(u32::MAX - 1), boundaries.len() - 2);
        }
    }
}
