//! Finds the interval of a value among sorted boundaries. The search is one load from a table of slots, and one look at
//! the few boundaries in the slot.

/// A value of one dimension: an IPv4 address, a port or a protocol (`u32`), or an IPv6 address (`u128`).
pub(super) trait DimensionValue: Copy + Ord + std::fmt::Debug {
    const MIN: Self;
    const MAX: Self;
    /// The structure that searches boundaries of this type.
    type Ranks: Ranks<Self>;
    /// The value after this one; none after the last.
    fn next(self) -> Option<Self>;
}

/// A search structure over sorted distinct boundaries, the first of which is [`DimensionValue::MIN`]. Interval `i`
/// goes from boundary `i` to the next.
pub(super) trait Ranks<V>: std::fmt::Debug {
    fn new(boundaries: &[V]) -> Self;
    /// The number of the interval that contains `value`.
    fn find(&self, value: V) -> usize;
    /// The number of bytes on the heap.
    fn memory(&self) -> usize;
}

impl DimensionValue for u32 {
    const MIN: Self = 0;
    const MAX: Self = Self::MAX;
    type Ranks = BoundaryTable<u32>;
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

impl DimensionValue for u128 {
    const MIN: Self = 0;
    const MAX: Self = Self::MAX;
    type Ranks = Halves;
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

/// The number of keys that are compared at once.
const WINDOW: usize = 8;

/// Boundaries that fit a register. A node cuts the values between its first and its last key into slots of equal
/// size. It has at most as many slots as keys, and more than half as many. A slot with more keys than a window
/// becomes a node in turn, as happens where keys are crowded. Such a node has less than a quarter of the values. So
/// 32 bits have at most 15 levels, and 64 bits at most 31.
#[derive(Debug)]
pub(super) struct BoundaryTable<K> {
    /// The keys, followed by [`WINDOW`] copies of the highest possible key.
    keys: Vec<K>,
    /// The index of the last key.
    last: usize,
    /// The nodes. The first node is the root.
    nodes: Vec<Node<K>>,
    slots: Vec<BoundarySlot>,
}

#[derive(Clone, Copy, Debug)]
struct Node<K> {
    first: K,
    /// The size of a slot: it has 2^`bits` values.
    bits: u32,
    /// The indices of the node's first and last slot.
    slots: (u32, u32),
}

/// The index of the first key in the slot or behind it. With the bit [`NODE`] set, it is the index of a node.
#[derive(Clone, Copy, Debug)]
struct BoundarySlot(u32);

const NODE: u32 = 1 << 31;

/// A key type of a [`BoundaryTable`].
pub(super) trait BoundaryKey: Copy + Ord + std::fmt::Debug {
    const MAX: Self;
    /// The number of the slot that holds the key, for slots of 2^`bits` values from `first` on. A key before `first`
    /// is in slot 0.
    fn slot(self, first: Self, bits: u32) -> usize;
}

impl BoundaryKey for u32 {
    const MAX: Self = Self::MAX;

    fn slot(self, first: Self, bits: u32) -> usize {
        (self.saturating_sub(first) >> bits) as usize
    }
}

impl BoundaryKey for u64 {
    const MAX: Self = Self::MAX;

    fn slot(self, first: Self, bits: u32) -> usize {
        (self.saturating_sub(first) >> bits) as usize
    }
}

impl<K: BoundaryKey> BoundaryTable<K> {
    /// Adds a node for `keys`. The first of them has index `start`.
    fn add(&mut self, keys: &[K], start: usize) -> BoundarySlot {
        let (Some(&first), Some(&last)) = (keys.first(), keys.last()) else {
            return BoundarySlot(start as u32);
        };
        let mut bits = 0;
        while last.slot(first, bits) >= keys.len() {
            bits += 1;
        }
        let (number, at) = (self.nodes.len(), self.slots.len());
        let slots = last.slot(first, bits) + 1;
        self.nodes.push(Node {
            first,
            bits,
            slots: (at as u32, (at + slots - 1) as u32),
        });
        self.slots.resize(at + slots, BoundarySlot(0));
        let mut rest = keys;
        for slot in 0..slots {
            let len = rest.partition_point(|key| key.slot(first, bits) <= slot);
            let start = start + keys.len() - rest.len();
            let (own, behind) = rest.split_at(len);
            self.slots[at + slot] = match len {
                0..=WINDOW => BoundarySlot(start as u32),
                _ => self.add(own, start),
            };
            rest = behind;
        }
        BoundarySlot(number as u32 | NODE)
    }

    fn key(&self, number: usize) -> Option<K> {
        self.keys.get(number).copied()
    }
}

impl<K: BoundaryKey> Ranks<K> for BoundaryTable<K> {
    fn new(boundaries: &[K]) -> Self {
        let mut table = Self {
            keys: [boundaries, &[K::MAX; WINDOW]].concat(),
            last: boundaries.len().saturating_sub(1),
            nodes: Vec::new(),
            slots: Vec::new(),
        };
        // The first boundary is left out: no value is below it, and it may be far from the others.
        table.add(boundaries.get(1..).unwrap_or(&[]), 1);
        table
    }

    #[inline]
    fn find(&self, value: K) -> usize {
        let mut node = self.nodes.first();
        loop {
            let Some(Node { first, bits, slots }) = node else {
                return 0;
            };
            let slot = slots.0 as usize + value.slot(*first, *bits);
            let Some(BoundarySlot(at)) = self.slots.get(slot.min(slots.1 as usize)) else {
                return 0;
            };
            if at & NODE != 0 {
                node = self.nodes.get((at & !NODE) as usize);
                continue;
            }
            let start = *at as usize;
            let window = self.keys.get(start..);
            let Some(window) = window.and_then(<[K]>::first_chunk::<WINDOW>) else {
                return 0;
            };
            // The keys of later slots are above the value. If the value is the highest possible, the padding counts
            // too, so the result is bounded by the last key.
            let below = window
                .iter()
                .map(|key| u32::from(*key <= value))
                .sum::<u32>();
            return (start + below as usize).saturating_sub(1).min(self.last);
        }
    }

    fn memory(&self) -> usize {
        size_of_val(self.keys.as_slice())
            + size_of_val(self.nodes.as_slice())
            + size_of_val(self.slots.as_slice())
    }
}

/// The boundaries of IPv6: a table of the distinct high halves, and under each of them the low halves. Policies
/// differ in the high half, so there are few low halves under each.
#[derive(Debug)]
pub(super) struct Halves {
    highs: BoundaryTable<u64>,
    groups: Vec<LowHalves>,
    lows: Vec<u64>,
}

/// The boundaries that share one high half.
#[derive(Debug)]
struct LowHalves {
    start: u32,
    /// The number of low halves. It is 0 for a single boundary whose low half is zero, as prefixes up to /64 have.
    lows: u32,
}

impl Ranks<u128> for Halves {
    fn new(boundaries: &[u128]) -> Self {
        let high = |boundary: &u128| (*boundary >> 64) as u64;
        let (mut highs, mut groups) = (Vec::new(), Vec::new());
        let mut start = 0;
        for same in boundaries.chunk_by(|a, b| high(a) == high(b)) {
            let plain = same.iter().all(|boundary| *boundary as u64 == 0);
            highs.extend(same.first().map(high));
            groups.push(LowHalves {
                start,
                lows: if plain { 0 } else { same.len() as u32 },
            });
            start += same.len() as u32;
        }
        Self {
            highs: BoundaryTable::new(&highs),
            groups,
            lows: boundaries.iter().map(|boundary| *boundary as u64).collect(),
        }
    }

    #[inline]
    fn find(&self, value: u128) -> usize {
        let (high, low) = ((value >> 64) as u64, value as u64);
        let number = self.highs.find(high);
        let Some(group) = self.groups.get(number) else {
            return 0;
        };
        let (start, len) = (group.start as usize, group.lows as usize);
        if len == 0 {
            return start;
        }
        let below = match self.highs.key(number) == Some(high) {
            true => {
                let lows = self.lows.get(start..start + len).unwrap_or(&[]);
                lows.partition_point(|l| *l <= low)
            }
            false => len,
        };
        // A value below the group's first boundary is in the last interval of the group before.
        (start + below).saturating_sub(1)
    }

    fn memory(&self) -> usize {
        self.highs.memory()
            + size_of_val(self.groups.as_slice())
            + size_of_val(self.lows.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn searched<V: DimensionValue>(boundaries: &[V], value: V) -> usize {
        boundaries.partition_point(|b| *b <= value) - 1
    }

    /// Compares both forms with a binary search, at and beside every boundary and at `values`.
    fn compare(boundaries: BTreeSet<u32>, values: &[u32], shift: u32) {
        let boundaries: Vec<u32> = boundaries.into_iter().collect();
        let wide: Vec<u128> = boundaries.iter().map(|b| u128::from(*b) << shift).collect();
        let (ranks, wide_ranks) = (BoundaryTable::new(&boundaries), Halves::new(&wide));
        let near = boundaries
            .iter()
            .flat_map(|b| [b.wrapping_sub(1), *b, b.wrapping_add(1)]);
        for value in near.chain(values.iter().copied()).chain([0, u32::MAX]) {
            assert_eq!(ranks.find(value), searched(&boundaries, value));
            for low in [0, 5] {
                let value = u128::from(value) << shift | low;
                assert_eq!(wide_ranks.find(value), searched(&wide, value));
            }
        }
        assert_eq!(wide_ranks.find(u128::MAX), wide.len() - 1);
    }

    proptest! {
        #[test]
        fn agrees_with_a_binary_search(
            spread in proptest::collection::btree_set(any::<u32>(), 0..400),
            // Crowds: values that start from a few points and spread over every width.
            crowded in proptest::collection::btree_set((0u32..4, 0u32..32, 0u32..40), 0..400),
            values in proptest::collection::vec(any::<u32>(), 50),
            // Shifts that leave a low half of zeros only, a high half with few values, or both.
            shift in prop_oneof![Just(90u32), Just(64), Just(40), Just(0)],
        ) {
            let crowded = crowded.into_iter().map(|(from, bits, n)| (from * 0x3fff_0001) ^ n.wrapping_shl(bits));
            let boundaries = spread.into_iter().chain(crowded).chain([0]).collect();
            compare(boundaries, &values, shift);
        }
    }

    #[test]
    fn crowded_boundaries_need_few_levels_and_little_memory() {
        // Each half of the remaining values has half of the keys.
        let keys: BTreeSet<u32> = (0..32u32)
            .flat_map(|bits| (0..300).map(move |n| (n << 23) >> bits))
            .collect();
        let keys: Vec<u32> = keys.into_iter().collect();
        let table = BoundaryTable::new(&keys);
        assert!(table.memory() <= keys.len() * 4 * 16, "{}", table.memory());
        compare(keys.into_iter().collect(), &[], 64);
    }

    #[test]
    fn the_highest_value_can_be_a_boundary() {
        for len in [1u32, 15, 16, 17, 255, 256, 257, 4097] {
            let mut boundaries: Vec<u32> = (0..len).collect();
            boundaries.push(u32::MAX);
            let ranks = BoundaryTable::new(&boundaries);
            assert_eq!(ranks.find(u32::MAX), boundaries.len() - 1);
            assert_eq!(ranks.find(u32::MAX - 1), boundaries.len() - 2);
        }
    }
}
