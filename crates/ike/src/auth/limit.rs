//! Bounds on the work that one message may cause.

use super::error::PeerAuthError;

/// What is left of one kind of work. A limit that runs out says nothing about a certificate: it ends the whole check, and
/// the peer is refused.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    left: usize,
    what: &'static str,
}

/// A limit has run out. It holds the work of which there would be too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted(&'static str);

impl Limit {
    /// `what` completes the text of [`PeerAuthError::TooMuchWork`].
    pub(super) const fn new(left: usize, what: &'static str) -> Self {
        Self { left, what }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<(), Exhausted> {
        let left = self.left.checked_sub(count);
        self.left = left.ok_or(Exhausted(self.what))?;
        Ok(())
    }
}

impl From<Exhausted> for PeerAuthError {
    fn from(Exhausted(what): Exhausted) -> Self {
        Self::TooMuchWork(what)
    }
}
