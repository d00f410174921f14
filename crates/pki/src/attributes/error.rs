//! The reasons why a peer is in no group.

use std::fmt;

use super::group::{GroupName, GroupNames};
use crate::error::PathError;

/// Refused attribute certificates whose reasons are shown.
const REASONS_MAX: usize = 8;

/// An attribute certificate does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    #[error("malformed: {0}")]
    Malformed(String),
    #[error("it is for another holder than the peer's certificate")]
    OtherHolder,
    #[error("it expired at {0}")]
    Expired(String),
    #[error("it is not valid before {0}")]
    NotYetValid(String),
    #[error("it has no noRevAvail, and CRLs for attribute certificates are not supported")]
    Revocable,
    #[error("extension {0} is critical and not known")]
    CriticalExtension(String),
    #[error("no attribute authority that is trusted is called \"{0}\"")]
    UnknownIssuer(String),
    #[error("issued by \"{issuer}\": {why}")]
    Signature { issuer: String, why: &'static str },
    #[error("we are none of its targets")]
    OtherTarget,
    #[error("its issuer: {0}")]
    Issuer(Box<PathError>),
    #[error("the peer has sent too many others")]
    TooMany,
}

/// No membership that is wanted is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipError {
    pub wanted: Vec<GroupName>,
    /// The groups of the attribute certificates that count.
    pub proved: Vec<GroupName>,
    /// The attribute certificates that do not count.
    pub refused: Vec<AttributeError>,
}

impl std::error::Error for MembershipError {}

impl fmt::Display for MembershipError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "it takes one of the groups {}, and ",
            GroupNames(&self.wanted)
        )?;
        match (self.proved.is_empty(), self.refused.is_empty()) {
            (true, true) => return f.write_str("the peer has no attribute certificate"),
            (true, false) => f.write_str("no group is proved")?,
            (false, _) => write!(f, "those proved are {}", GroupNames(&self.proved))?,
        }
        for refused in self.refused.iter().take(REASONS_MAX) {
            write!(f, "; attribute certificate refused: {refused}")?;
        }
        Ok(())
    }
}
