//! Finds the tests of the repository, for the pages that name them.

use std::fs;
use std::path::PathBuf;

use crate::sources::{files_below, root};

/// Returns the sources that may have tests, sorted: the path of each below the root, and its text.
pub fn test_sources() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in ["crates", "interop", "fuzz"] {
        files.extend(files_below(&root().join(folder), &["py", "rs"]));
    }
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("readable");
        let file = path.strip_prefix(root()).expect("within");
        (file.display().to_string(), text)
    };
    files.into_iter().map(read).collect()
}

/// Returns true for the attribute that makes a Rust function a test.
pub fn is_test_attribute(line: &str) -> bool {
    matches!(line.trim(), "#[test]" | "#[tokio::test]")
}

/// Returns the name of the function that a line declares.
pub fn function(line: &str) -> Option<&str> {
    let rest = line.trim().trim_start_matches("pub ");
    let rest = rest.strip_prefix("fn ").or(rest.strip_prefix("def "))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_')
        .next()
}
