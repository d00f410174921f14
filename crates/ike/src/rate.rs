//! Rate limits: how often something may be done.

use std::time::{Duration, Instant};

/// Permits one thing per `every`, and `burst` of them in a row after a pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    pub(crate) every: Duration,
    pub(crate) burst: u32,
}

/// The time at which the next action is due if all actions come at the rate. It is `None` if nothing was done yet.
pub(crate) type Due = Option<Instant>;

impl Rate {
    pub(crate) fn allows(self, now: Instant, due: Due) -> bool {
        due.is_none_or(|due| due <= now + self.every * (self.burst - 1))
    }

    pub(crate) fn take(self, now: Instant, due: &mut Due) {
        *due = Some(due.map_or(now, |due| due.max(now)) + self.every);
    }
}
