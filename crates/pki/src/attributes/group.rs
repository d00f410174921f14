//! The names of groups.

use std::fmt;
use std::str::FromStr;

use crate::text::steers;

/// Octets of a name.
const LEN_MAX: usize = 256;
/// Names that are shown of a list.
const SHOWN_MAX: usize = 8;

/// The name of a group. As in strongSwan, upper and lower case are the same.
#[derive(Clone, Debug)]
pub struct GroupName(String);

impl GroupName {
    /// A value of a certificate. Returns `None` if it is too long.
    pub(super) fn presented(text: String) -> Option<Self> {
        (text.len() <= LEN_MAX).then_some(Self(text))
    }
}

impl FromStr for GroupName {
    type Err = &'static str;

    /// Reads a name of the configuration. A pattern would let peers in of whom the administrator does not think.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text.len() > LEN_MAX {
            return Err("a group has 1 to 256 bytes");
        }
        match text.contains('*') || text.starts_with('%') {
            true => Err("a group is no pattern"),
            false => Ok(Self(text.to_owned())),
        }
    }
}

impl PartialEq for GroupName {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for GroupName {}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An authority may have put anything into it.
        f.write_str(&self.0.replace(steers, "\u{fffd}"))
    }
}

/// Some names of a list, for a person.
pub(super) struct GroupNames<'a>(pub(super) &'a [GroupName]);

impl fmt::Display for GroupNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().take(SHOWN_MAX).enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
