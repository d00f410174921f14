//! Priority classes: higher ones are served first, and lower ones are not starved.

use std::collections::VecDeque;

/// Eight classes; 7 is served first.
pub const CLASSES: usize = 8;

/// A priority class, 0 to 7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(u8);

impl Class {
    pub const LOWEST: Self = Self(0);
    pub const HIGHEST: Self = Self(CLASSES as u8 - 1);

    /// None above 7.
    pub const fn new(class: u8) -> Option<Self> {
        if (class as usize) < CLASSES {
            Some(Self(class))
        } else {
            None
        }
    }

    /// The precedence in a TOS or traffic class octet: the class selectors of RFC 2474 §4.2.2, and with them
    /// the first three bits of EF (5) and AFxy (x).
    pub const fn from_tos(tos: u8) -> Self {
        Self(tos >> 5)
    }

    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Why an item was not queued. It is given back.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

/// A bounded queue with a lane for each class.
///
/// Strict priority, but for one rule: a lane that has waited while `patience` items of higher classes were
/// served is served next. So every item is out after at most `patience` × 7 others per item before it in its lane.
#[derive(Debug)]
pub struct ClassQueue<T> {
    lanes: [Lane<T>; CLASSES],
    /// Items in each lane at most: a flood of one class takes no room from another.
    lane_len_max: usize,
    patience: u32,
    len: usize,
}

#[derive(Debug)]
struct Lane<T> {
    items: VecDeque<T>,
    /// Items served from higher lanes since this one had its turn.
    passed_over: u32,
}

impl<T> ClassQueue<T> {
    pub fn new(lane_len_max: usize, patience: u32) -> Self {
        Self {
            lanes: std::array::from_fn(|_| Lane {
                items: VecDeque::new(),
                passed_over: 0,
            }),
            lane_len_max,
            patience: patience.max(1),
            len: 0,
        }
    }

    pub fn push(&mut self, class: Class, item: T) -> Result<(), Full<T>> {
        match self.lanes.get_mut(usize::from(class.0)) {
            Some(lane) if lane.items.len() < self.lane_len_max => {
                lane.items.push_back(item);
                self.len += 1;
                Ok(())
            }
            _ => Err(Full(item)),
        }
    }

    /// Puts back at the head of its lane what was just popped.
    pub fn unpop(&mut self, class: Class, item: T) {
        if let Some(lane) = self.lanes.get_mut(usize::from(class.0)) {
            lane.items.push_front(item);
            self.len += 1;
        }
    }

    /// The next item, in the order of arrival within its class.
    pub fn pop(&mut self) -> Option<(Class, T)> {
        let waiting = |lane: &Lane<T>| !lane.items.is_empty();
        let patience = self.patience;
        // The lowest of the impatient ones: it has waited for all others.
        let chosen = self
            .lanes
            .iter()
            .position(|lane| waiting(lane) && lane.passed_over >= patience)
            .or_else(|| self.lanes.iter().rposition(waiting))?;
        let item = self.lanes.get_mut(chosen)?.items.pop_front()?;
        self.len -= 1;
        for lane in self.lanes.iter_mut().take(chosen) {
            if !lane.items.is_empty() {
                lane.passed_over = lane.passed_over.saturating_add(1);
            }
        }
        if let Some(lane) = self.lanes.get_mut(chosen) {
            lane.passed_over = 0;
        }
        Some((Class(chosen as u8), item))
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
