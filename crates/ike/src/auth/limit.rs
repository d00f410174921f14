//! Bounds on the work that one message may cause.

/// The rest of one kind of work that may still be done. A limit that runs out says nothing about a certificate: it ends the whole check, and
/// the peer is refused.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    left: usize,
    what: &'static str,
}

/// A limit has run out. It holds the work of which there would be too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted(pub(super) &'static str);

impl Limit {
    /// `what` completes the text of [`super::PeerAuthError::TooMuchWork`].
    pub(super) const fn new(left: usize, what: &'static str) -> Self {
        Self { left, what }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<(), Exhausted> {
        let left = self.left.checked_sub(count);
        self.left = left.ok_or(Exhausted(self.what))?;
        Ok(())
    }
}
