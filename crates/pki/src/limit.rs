//! Bounds on the work that one message may cause.

/// The rest of one kind of work that may still be done. A limit that runs out says nothing about a certificate: it ends the whole check, and
/// the peer is refused.
#[derive(Clone, Copy)]
pub(crate) struct Limit {
    left: usize,
    what: &'static str,
}

/// A limit has run out. It holds the work of which there would be too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted(pub(crate) &'static str);

impl Limit {
    /// `what` completes the text of [`crate::PathError::TooMuchWork`].
    pub(crate) const fn new(left: usize, what: &'static str) -> Self {
        Self { left, what }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<(), Exhausted> {
        let left = self.left.checked_sub(count);
        self.left = left.ok_or(Exhausted(self.what))?;
        Ok(())
    }
}
