//! The files that this process can still read. A confined gateway cannot reach the others.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static REACH: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Tells this crate, once, that the process can read nothing but these files, and files in these folders. Errors name the
/// confinement from then on.
pub fn limit(reach: Vec<PathBuf>) {
    let _ = REACH.set(reach);
}

/// Tells whether the process cannot read this file, or files in this folder.
pub fn is_out(path: &Path) -> bool {
    let Some(reach) = REACH.get() else {
        return false;
    };
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    !reach.iter().any(|within| path.starts_with(within))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An access that Landlock would not refuse must not be reported as refused by Landlock.
    #[test]
    fn without_a_confinement_everything_is_within_reach() {
        assert!(!is_out(Path::new("/etc/passwd")));
        limit(vec!["/usr".into()]);
        assert!(is_out(Path::new("/etc/passwd")));
        assert!(!is_out(Path::new("/usr/bin")));
    }
}
