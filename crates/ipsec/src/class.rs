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
