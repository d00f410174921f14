//! Shares the time of all cases among them.

use std::time::{Duration, Instant};

use esplanade_gpu::DeviceError;

use super::{Options, quoted};

/// A case below this time says nothing.
const LEAST: Duration = Duration::from_millis(50);

pub struct Clock {
    begun: Instant,
    budget: Option<Duration>,
    /// The time of a case where the budget has enough for all.
    time: Duration,
    /// Cases that are still to come.
    left: usize,
    /// Openings of a device that are still to come, and how long one took at most.
    openings: u32,
    opening: Duration,
}

impl Clock {
    pub fn new(options: &Options) -> Self {
        Self {
            begun: Instant::now(),
            budget: options.budget,
            time: options.time,
            left: 0,
            openings: 0,
            opening: Duration::ZERO,
        }
    }

    /// Says how many cases and openings of a device are still to come.
    pub fn expect(&mut self, cases: usize, openings: usize) {
        self.left = cases;
        self.openings = openings as u32;
    }

    /// Counts an opening, with its test, so that the next ones have their time too.
    pub fn opened(&mut self, took: Duration) {
        self.openings = self.openings.saturating_sub(1);
        self.opening = self.opening.max(took);
    }

    /// The next case's time: its share of what is left, and no more than the options say.
    fn share(&self) -> Option<Duration> {
        let Some(budget) = self.budget else {
            return Some(self.time);
        };
        let gone = self.begun.elapsed() + self.opening * self.openings;
        let left = budget.saturating_sub(gone);
        let share = left / u32::try_from(self.left.max(1)).unwrap_or(u32::MAX);
        let time = share.min(self.time);
        (time >= LEAST.min(self.time)).then_some(time)
    }

    pub fn has_time(&self) -> bool {
        self.share().is_some()
    }

    /// Measures a case for its time, or says that it is left out.
    pub fn measure<T>(
        &mut self,
        case: &str,
        measured: impl FnOnce(Duration) -> Result<T, DeviceError>,
    ) -> Result<Option<T>, DeviceError> {
        let share = self.share();
        self.left = self.left.saturating_sub(1);
        match share {
            Some(time) => measured(time).map(Some),
            None => self.leave_out(case).map(|()| None),
        }
    }

    /// Says that there is no time for a case.
    pub fn leave_out(&self, case: &str) -> Result<(), DeviceError> {
        println!("{{\"part\":\"left out\",\"case\":{}}}", quoted(case));
        Ok(())
    }

    /// Counts cases that will not come.
    pub fn forgo(&mut self, cases: usize) {
        self.left = self.left.saturating_sub(cases);
    }
}
