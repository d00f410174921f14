//! Names of SAs. They are never used twice, so that an event about an ended SA never means another one.

use std::fmt;

/// Names one IKE SA. The endpoint never uses it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IkeSaId(pub u64);

/// Names one child SA. The endpoint never uses it twice.
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
