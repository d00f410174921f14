//! Small numbers for a worker's inbound SAs, to name them and their keys by.

/// Numbers that are used again: there are never more than were in use at the busiest time.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Vec<u32>,
    /// The first that was never given out.
    fresh: u32,
}

impl Pool {
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
