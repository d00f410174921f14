//! Small numbers that name a worker's inbound SAs and their keys.

/// Numbers that are reused. There are never more than were in use at the busiest time.
#[derive(Debug, Default)]
pub(crate) struct NumberPool {
    free: Vec<u32>,
    /// The first number that was never given out.
    fresh: u32,
}

impl NumberPool {
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
