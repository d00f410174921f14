//! Priority classes: higher classes are served first, and lower ones are not starved.

use std::collections::VecDeque;

/// Number of classes. Class 7 is served first.
pub const CLASSES: usize = 8;

/// A priority class, 0 to 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    pub const LOWEST: Self = Self(0);
    pub const HIGHEST: Self = Self(CLASSES as u8 - 1);

    /// Returns `None` above 7.
    pub const fn new(class: u8) -> Option<Self> {
        if (class as usize) < CLASSES {
            Some(Self(class))
        } else {
            None
        }
    }

    /// Takes the precedence from a TOS or traffic class octet: the class selectors of RFC 2474 §4.2.2. It is also the
    /// first three bits of EF (5) and of AFxy (x).
    pub const fn from_tos(tos: u8) -> Self {
        Self(tos >> 5)
    }

    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The item that was not queued, because its lane is full.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// A bounded queue with a lane for each class.
///
/// Priority is strict with one exception. A lane that has waited while `patience` items of other lanes were served is
/// served next, the longest waiting lane first. So the first item of a lane waits for at most `patience` + 7 other
/// items.
#[derive(Debug)]
pub struct ClassQueue<T> {
    lanes: [ClassLane<T>; CLASSES],
    /// The most items in each lane. A flood of one class thus takes no room from another class.
    lane_len_max: usize,
    patience: u64,
    len: usize,
    /// Number of items served so far.
    served: u64,
}

#[derive(Debug)]
struct ClassLane<T> {
    items: VecDeque<T>,
    /// The value of `served` when the lane's first item became the first.
    waiting_since: u64,
}

impl<T> ClassQueue<T> {
    pub fn new(lane_len_max: usize, patience: u64) -> Self {
        Self {
            lanes: std::array::from_fn(|_| ClassLane {
                items: VecDeque::new(),
                waiting_since: 0,
            }),
            lane_len_max,
            patience,
            len: 0,
            served: 0,
        }
    }

    pub fn push(&mut self, class: Class, item: T) -> Result<(), Full<T>> {
        let served = self.served;
        match self.lanes.get_mut(usize::from(class.0)) {
            Some(lane) if lane.items.len() < self.lane_len_max => {
                if lane.items.is_empty() {
                    lane.waiting_since = served;
                }
                lane.items.push_back(item);
                self.len += 1;
                Ok(())
            }
            _ => Err(Full(item)),
        }
    }

    /// Takes the next item. Items of one class come in the order of arrival.
    pub fn pop(&mut self) -> Option<(Class, T)> {
        if self.len == 0 {
            return None;
        }
        let (served, patience) = (self.served, self.patience);
        let lanes = || self.lanes.iter().enumerate();
        let waiting = lanes().filter(|(_, lane)| !lane.items.is_empty());
        let highest = waiting.clone().next_back()?.0;
        let longest = waiting.min_by_key(|(_, lane)| lane.waiting_since);
        let chosen = match longest {
            Some((index, lane)) if served - lane.waiting_since >= patience => index,
            _ => highest,
        };
        let lane = self.lanes.get_mut(chosen)?;
        let item = lane.items.pop_front()?;
        self.served += 1;
        lane.waiting_since = self.served;
        self.len -= 1;
        Some((Class(chosen as u8), item))
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn classes_come_from_the_dscp() {
        for (tos, class) in [(0, 0), (0xb8, 5), (0x28, 1), (0xe0, 7), (0xff, 7)] {
            assert_eq!(Class::from_tos(tos).get(), class);
        }
        assert_eq!(Class::new(8), None);
        assert_eq!(Class::new(7), Some(Class::HIGHEST));
    }

    #[test]
    fn higher_classes_go_first_and_lower_ones_do_not_starve() {
        let class = |c| Class::new(c).unwrap();
        let mut queue = ClassQueue::new(100, 4);
        for n in 0..10 {
            for c in [0, 3, 7] {
                queue.push(class(c), n).unwrap();
            }
        }
        let order: Vec<u8> = std::iter::from_fn(|| queue.pop())
            .map(|(c, _)| c.get())
            .collect();
        assert_eq!(order[..4], [7; 4]);
        // Two items have waited for four others and take their turns. Then the highest class is next again.
        assert_eq!(order[4..8], [0, 3, 7, 7]);
        assert_eq!(order.len(), 30);
        assert!(order.iter().rposition(|c| *c == 7) < Some(20));
    }

    #[test]
    fn lanes_are_bounded_by_themselves() {
        let mut queue = ClassQueue::new(2, 4);
        let (low, high) = (Class::LOWEST, Class::HIGHEST);
        assert_eq!(queue.push(low, 1), Ok(()));
        assert_eq!(queue.push(low, 2), Ok(()));
        assert_eq!(queue.push(low, 3), Err(Full(3)));
        assert_eq!(queue.push(high, 4), Ok(()));
        assert_eq!(queue.pop(), Some((high, 4)));
        assert_eq!((queue.pop(), queue.len()), (Some((low, 1)), 1));
    }

    proptest! {
        /// The order within a class is kept and nothing is lost. An item waits for at most `patience` + 7 others, for
        /// itself and for each item before it in its lane.
        #[test]
        fn waiting_is_bounded(pushes in prop::collection::vec(0u8..8, 1..300), patience in 0u64..20) {
            let mut queue = ClassQueue::new(300, patience);
            let mut lens = [0usize; 8];
            let mut bound = Vec::new();
            for (n, c) in pushes.iter().enumerate() {
                lens[usize::from(*c)] += 1;
                bound.push(lens[usize::from(*c)] * (patience as usize + 8));
                queue.push(Class::new(*c).unwrap(), n).unwrap();
            }
            let mut last = [None; 8];
            let mut served = 0;
            while let Some((class, n)) = queue.pop() {
                served += 1;
                prop_assert!(served <= bound[n], "{n} served as number {served}");
                prop_assert!(last[usize::from(class.get())] < Some(n));
                last[usize::from(class.get())] = Some(n);
            }
            prop_assert_eq!(served, pushes.len());
            prop_assert!(queue.is_empty());
        }
    }
}
