//! Small numbers for SAs, to name them and their keys by.

use std::sync::{Mutex, PoisonError};

/// Numbers that are used again: there are never more than were in use at the busiest time.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Vec<u32>,
    /// The first that was never given out.
    fresh: u32,
}

impl Pool {
    const fn new() -> Self {
        Self {
            free: Vec::new(),
            fresh: 0,
        }
    }

    pub fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    pub fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }
}

/// For outbound SAs, which their peers give SPIs that index nothing.
static NUMBERS: Mutex<Pool> = Mutex::new(Pool::new());

/// A number that no other outbound SA has until this is dropped.
#[derive(Debug)]
pub(crate) struct Number(u32);

impl Number {
    pub fn new() -> Self {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        Self(numbers.take())
    }

    #[inline(always)]
    pub fn get(&self) -> u32 {
        self.0
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.give_back(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_by_one_at_a_time_and_then_again() {
        let mut all: Vec<Number> = (0..100).map(|_| Number::new()).collect();
        let mut distinct: Vec<u32> = all.iter().map(Number::get).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 100);
        let highest = distinct.last().copied();
        // Other tests take numbers too, but few.
        for _ in 0..10_000 {
            all.pop();
            all.push(Number::new());
        }
        let reused = all.iter().map(Number::get).max();
        assert!(reused < highest.map(|highest| highest + 1000));
    }
}
