//! Small numbers for outbound SAs, which their peers give SPIs that index nothing.

use std::sync::{Mutex, PoisonError};

/// Those that are free, and the first that was never given out.
static NUMBERS: Mutex<(Vec<u32>, u32)> = Mutex::new((Vec::new(), 0));

/// A number that nobody else has until this is dropped. There are never more in use than SAs at the busiest time.
#[derive(Debug)]
pub(crate) struct Number(u32);

impl Number {
    pub fn new() -> Self {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        let (free, fresh) = &mut *numbers;
        Self(free.pop().unwrap_or_else(|| {
            let number = *fresh;
            *fresh += 1;
            number
        }))
    }

    #[inline(always)]
    pub fn get(&self) -> u32 {
        self.0
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        let mut numbers = NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.0.push(self.0);
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
