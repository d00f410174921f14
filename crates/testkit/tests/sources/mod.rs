//! Finds the files of the repository for the tests of house rules.

use std::fs;
use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("workspace root")
}

/// Returns the files below `folder` with one of these extensions, sorted. Hidden folders, build output and fuzz corpora
/// are left out.
pub fn files_below(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(folder, extensions, &mut found);
    found.sort();
    found
}

fn walk(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("readable directory") {
        let entry = entry.expect("directory entry");
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "corpus" {
                walk(&path, extensions, found);
            }
        } else if extensions
            .iter()
            .any(|wanted| path.extension().is_some_and(|found| found == *wanted))
        {
            found.push(path);
        }
    }
}
