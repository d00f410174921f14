//! Where a value lies among sorted boundaries: a static B-tree, searched without branches that depend on the value.

/// A value of one dimension: an IPv4 address, a port, a protocol (`u32`), or an IPv6 address (`u128`).
pub(super) trait Value: Copy + Ord + std::fmt::Debug {
    const MIN: Self;
    const MAX: Self;
    /// Searches boundaries of this type.
    type Ranks: Ranks<Self>;
    /// None behind the last one.
    fn next(self) -> Option<Self>;
}

/// Sorted distinct boundaries, the first of which is [`Value::MIN`]. Interval `i` goes from boundary `i` to the next.
pub(super) trait Ranks<V>: std::fmt::Debug {
    fn new(boundaries: &[V]) -> Self;
    /// The interval that `value` is in.
    fn find(&self, value: V) -> usize;
}

impl Value for u32 {
    const MIN: Self = 0;
    const MAX: Self = Self::MAX;
    type Ranks = Tree<u32>;
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl Value for u128 {
    const MIN: Self = 0;
    const MAX: Self = Self::MAX;
    type Ranks = Halves;
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

/// Keys in a node: one or two cache lines, compared all at once.
const NODE: usize = 16;

/// Boundaries that fit a register.
#[derive(Debug)]
pub(super) struct Tree<K> {
    /// From the root down. A level's keys are the first keys of the nodes of the level below.
    levels: Vec<Level<K>>,
}

#[derive(Debug)]
struct Level<K> {
    nodes: Vec<[K; NODE]>,
    /// Without the padding of the last node.
    keys: usize,
}

/// What a [`Tree`] holds.
trait Key: Copy + Ord + std::fmt::Debug {
    const MAX: Self;
}

impl Key for u32 {
    const MAX: Self = Self::MAX;
}

impl Key for u64 {
    const MAX: Self = Self::MAX;
}

impl<K: Key> Level<K> {
    fn new(keys: &[K]) -> Self {
        let node = |keys: &[K]| {
            let mut node = [K::MAX; NODE];
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

impl<K: Key> Ranks<K> for Tree<K> {
    fn new(boundaries: &[K]) -> Self {
        let mut keys = boundaries.to_vec();
        let mut levels = vec![Level::new(&keys)];
        while keys.len() > NODE {
            keys = keys.iter().step_by(NODE).copied().collect();
            levels.push(Level::new(&keys));
        }
        levels.reverse();
        Self { levels }
    }

    #[inline]
    fn find(&self, value: K) -> usize {
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

/// Boundaries of IPv6: a tree of the distinct high halves, and under each the low halves. Policies differ in the high
/// one, so there are few under each.
#[derive(Debug)]
pub(super) struct Halves {
    tree: Tree<u64>,
    /// The high half, and where its low halves end.
    groups: Vec<(u64, u32)>,
    lows: Vec<u64>,
}

impl Ranks<u128> for Halves {
    fn new(boundaries: &[u128]) -> Self {
        let high = |boundary: &u128| (*boundary >> 64) as u64;
        let mut groups = Vec::new();
        for same in boundaries.chunk_by(|a, b| high(a) == high(b)) {
            let end = groups.last().map_or(0, |(_, end)| *end) + same.len() as u32;
            groups.extend(same.first().map(|boundary| (high(boundary), end)));
        }
        let highs: Vec<u64> = groups.iter().map(|(high, _)| *high).collect();
        Self {
            tree: Tree::new(&highs),
            groups,
            lows: boundaries.iter().map(|boundary| *boundary as u64).collect(),
        }
    }

    #[inline]
    fn find(&self, value: u128) -> usize {
        let (high, low) = ((value >> 64) as u64, value as u64);
        let group = self.tree.find(high);
        let Some(&(group_high, end)) = self.groups.get(group) else {
            return 0;
        };
        let end = end as usize;
        if group_high != high {
            return end - 1;
        }
        let before = group.checked_sub(1).and_then(|g| self.groups.get(g));
        let start = before.map_or(0, |(_, end)| *end as usize);
        let lows = self.lows.get(start..end).unwrap_or(&[]);
        // Below the group's first boundary is the last interval of the group before.
        (start + lows.partition_point(|l| *l <= low)).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn len_is_odd(boundaries: &[u32]) -> bool {
        boundaries.len() % 2 == 1
    }

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
            // Few high halves and many, so that groups have one boundary and several.
            let shift = if len_is_odd(&boundaries) { 90 } else { 40 };
            let wide: Vec<u128> = boundaries.iter().map(|b| u128::from(*b) << shift).collect();
            let (ranks, wide_ranks) = (Tree::new(&boundaries), Halves::new(&wide));
            let near = boundaries.iter().flat_map(|b| [b.wrapping_sub(1), *b, b.wrapping_add(1)]);
            for value in values.into_iter().chain(near).chain([0, u32::MAX]) {
                prop_assert_eq!(ranks.find(value), naive(&boundaries, value));
                let value = u128::from(value) << shift | 5;
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
            let ranks = Tree::new(&boundaries);
            assert_eq!(ranks.find(u32::MAX), boundaries.len() - 1);
            assert_eq!(ranks.find(u32::MAX - 1), boundaries.len() - 2);
        }
    }
}
