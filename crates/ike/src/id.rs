//! Names of SAs. They are never reused, so an event about an SA that has ended names no other SA.

use std::fmt;

/// Names one IKE SA for the life of the endpoint; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IkeSaId(pub u64);

/// Names one child SA for the life of the endpoint; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildSaId(pub u64);

impl fmt::Display for IkeSaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for ChildSaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}
