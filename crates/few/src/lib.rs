//! Ordered maps and sets that have one member nearly everywhere. A node of a B-tree has room for eleven, and a gateway
//! with ten thousand tunnels has many times ten thousand such sets. Here a single member lies in the value itself.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// An ordered map. Each operation takes logarithmic time, however many members there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FewMap<K, V> {
    #[default]
    Empty,
    One(K, V),
    /// Two members at least.
    Many(Box<BTreeMap<K, V>>),
}

impl<K: Ord, V> FewMap<K, V> {
    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::One(..) => 1,
            Self::Many(map) => map.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        match self {
            Self::Empty => None,
            Self::One(own, value) => (own == key).then_some(value),
            Self::Many(map) => map.get(key),
        }
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self {
            Self::Empty => None,
            Self::One(own, value) => (own == key).then_some(value),
            Self::Many(map) => map.get_mut(key),
        }
    }

    /// Changes the value of a key, which is the default one if there is none.
    pub fn update(&mut self, key: K, change: impl FnOnce(&mut V))
    where
        V: Default,
    {
        match self.get_mut(&key) {
            Some(value) => change(value),
            None => {
                let mut value = V::default();
                change(&mut value);
                self.insert(key, value);
            }
        }
    }

    /// Returns the former value of the key.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            Self::Empty => {
                *self = Self::One(key, value);
                None
            }
            Self::One(own, old) if *own == key => Some(std::mem::replace(old, value)),
            Self::One(..) | Self::Many(_) => self.change(|map| map.insert(key, value)),
        }
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        match self {
            Self::Empty => None,
            Self::One(own, _) if own != key => None,
            Self::One(..) | Self::Many(_) => self.change(|map| map.remove(key)),
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(key, value) => (Some((key, value)), None),
            Self::Many(map) => (None, Some(map.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Changes the map as a B-tree. What remains takes the smallest form that has room for it.
    fn change<R>(&mut self, work: impl FnOnce(&mut BTreeMap<K, V>) -> R) -> R {
        let mut map = match std::mem::replace(self, Self::Empty) {
            Self::Empty => Box::default(),
            Self::One(key, value) => Box::new(BTreeMap::from([(key, value)])),
            Self::Many(map) => map,
        };
        let result = work(&mut map);
        *self = match map.len() {
            0 | 1 => map
                .pop_first()
                .map_or(Self::Empty, |(k, v)| Self::One(k, v)),
            _ => Self::Many(map),
        };
        result
    }
}

/// An ordered set, as [`FewMap`] is a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FewSet<T>(FewMap<T, ()>);

impl<T> Default for FewSet<T> {
    fn default() -> Self {
        Self(FewMap::Empty)
    }
}

impl<T: Ord> FewSet<T> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, member: &T) -> bool {
        self.0.get(member).is_some()
    }

    /// Returns true if the member is new.
    pub fn insert(&mut self, member: T) -> bool {
        self.0.insert(member, ()).is_none()
    }

    /// Returns true if the member was there.
    pub fn remove(&mut self, member: &T) -> bool {
        self.0.remove(member).is_some()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.0.keys()
    }

    pub fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    pub fn last(&self) -> Option<&T> {
        self.iter().next_back()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_maps_and_sets(work in prop::collection::vec((0_u8..5, 0_u8..5, any::<u8>()), 0..60)) {
            let (mut few, mut map) = (FewMap::default(), BTreeMap::new());
            let (mut few_set, mut set) = (FewSet::default(), BTreeSet::new());
            for (kind, key, value) in work {
                match kind {
                    0 | 1 => {
                        prop_assert_eq!(few.insert(key, value), map.insert(key, value));
                        prop_assert_eq!(few_set.insert(key), set.insert(key));
                    }
                    2 => {
                        prop_assert_eq!(few.remove(&key), map.remove(&key));
                        prop_assert_eq!(few_set.remove(&key), set.remove(&key));
                    }
                    3 => {
                        few.update(key, |one| *one ^= value);
                        *map.entry(key).or_default() ^= value;
                    }
                    _ => prop_assert_eq!(few.get_mut(&key), map.get_mut(&key)),
                }
                prop_assert_eq!(few.get(&key), map.get(&key));
                prop_assert_eq!(few.len(), map.len());
                prop_assert_eq!(few.is_empty(), map.is_empty());
                prop_assert!(few.iter().eq(&map) && few.iter().rev().eq(map.iter().rev()));
                prop_assert_eq!(matches!(few, FewMap::Many(_)), map.len() > 1);
                prop_assert_eq!((few_set.first(), few_set.last()), (set.first(), set.last()));
                prop_assert_eq!((few_set.len(), few_set.is_empty()), (set.len(), set.is_empty()));
                prop_assert_eq!(few_set.contains(&key), set.contains(&key));
            }
        }
    }

    #[test]
    fn a_single_member_needs_nothing_beside_itself() {
        assert!(size_of::<FewSet<u64>>() <= 16);
    }
}
