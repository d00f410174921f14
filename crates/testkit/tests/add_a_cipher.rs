//! Checks that docs/add-a-cipher.patch still applies, and that the page speaks of each file that it changes. The stage
//! `add-a-cipher` of tools/test.sh builds and runs what comes of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

#[test]
fn the_patch_applies() {
    let output = Command::new("python3")
        .arg(root().join("tools/add-a-cipher.py"))
        .arg("check")
        .output()
        .expect("python3 runs");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{why}");
}

/// A new file is named by its folder.
#[test]
fn the_steps_name_the_files_that_the_patch_changes() {
    let (patch, page) = (
        read("docs/add-a-cipher.patch"),
        read("docs/add-a-cipher.md"),
    );
    let (_, steps) = page.split_once("## The steps").unwrap();
    let (steps, _) = steps.split_once("\n    .venv/").unwrap();
    let named: BTreeSet<&str> = steps.split('`').skip(1).step_by(2).collect();
    let changed = patch.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    let mut count = 0;
    for file in changed {
        let folder = file.rsplit_once('/').unwrap().0;
        let shown = if root().join(file).exists() {
            file
        } else {
            folder
        };
        assert!(named.contains(shown), "no step names {shown}");
        count += 1;
    }
    assert!(count >= 8, "the patch changes {count} files");
}

/// It brings no dependency, and changes little of the product.
#[test]
fn the_patch_is_small() {
    let patch = read("docs/add-a-cipher.patch");
    let mut product = 0;
    for file in patch.split("diff --git ").skip(1) {
        let path = file.split(' ').next().unwrap();
        assert!(!path.contains("Cargo."), "{path}");
        if path.contains("/src/") {
            let added = |line: &&str| line.starts_with('+') && !line.starts_with("+++");
            product += file.lines().filter(added).count();
        }
    }
    assert!((10..=60).contains(&product), "{product} lines");
}
