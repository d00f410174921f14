//! The choices of a scenario, which come from a seed or from the input of a fuzzer.

use esplanade_testkit::net::Rng;

pub enum Choices<'a> {
    Seed(Rng),
    Bytes(&'a [u8]),
}

impl Choices<'_> {
    pub fn from_seed(seed: u64) -> Self {
        Self::Seed(Rng::new(seed))
    }

    /// Returns a number below `bound`. It is 0 once a fuzzer's input has ended.
    pub fn below(&mut self, bound: usize) -> usize {
        match self {
            Self::Seed(rng) => rng.below(bound as u64) as usize,
            Self::Bytes(bytes) => match bytes.split_first() {
                Some((&first, rest)) => {
                    *bytes = rest;
                    usize::from(first) % bound.max(1)
                }
                None => 0,
            },
        }
    }

    /// Returns true once in `times` calls on average. It never does once a fuzzer's input has ended.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) + 1 == times
    }

    pub fn of<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len())]
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    pub fn ended(&self) -> bool {
        matches!(self, Self::Bytes([]))
    }
}
