//! Checks that the faults of tools/mutants still fit the sources, and that the tool refuses those that do not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The lists have at least so many faults.
const MUTANTS_MIN: usize = 150;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn check(lists: Option<&Path>) -> Output {
    let mut command = Command::new("python3");
    command.arg(root().join("tools/mutants.py")).arg("check");
    if let Some(lists) = lists {
        command.env("MUTANTS_LISTS", lists);
    }
    command.output().expect("python3 runs")
}

/// What the tool says of a list. It must refuse it.
fn refusal(list: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("made.toml"), list).unwrap();
    let output = check(Some(folder.path()));
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

fn mutant(name: &str, file: &str, old: &str, new: &str, tests: &str) -> String {
    format!(
        "[[mutant]]\nname = '{name}'\nfile = '{file}'\nold = '{old}'\nnew = '{new}'\ntests = [{tests}]\n"
    )
}

#[test]
fn every_mutant_applies() {
    let output = check(None);
    let said = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{why}");
    let (count, rest) = said.split_once(' ').expect("a number");
    assert_eq!(rest, "mutants apply\n");
    let count: usize = count.parse().expect("a number");
    assert!(count >= MUTANTS_MIN, "{count} mutants");
}

#[test]
fn a_mutant_that_does_not_fit_is_refused() {
    let (file, once) = ("ipsec/src/replay.rs", "pub const WINDOW_MIN: u32 = 32;");
    for (old, times) in [("no such text", 0), ("pub const", 2)] {
        let said = refusal(&mutant("a", file, old, "b", "'replay'"));
        let expected = format!(
            "made/a: the mutant no longer applies: crates/{file} has its original text {times} times"
        );
        assert!(said.contains(&expected), "{said}");
    }
    let said = refusal(&mutant("a", file, once, "b", "'lib no_such_module'"));
    assert!(
        said.contains("made/a: ipsec has no unit test no_such_module"),
        "{said}"
    );
    let twice = mutant("a", file, once, "b", "'replay'")
        + &mutant("c", file, "WINDOW_MIN: u32", "d", "'replay'");
    assert!(refusal(&twice).contains("made/c and made/a are in one place"));
    let same = mutant("a", file, once, "b", "'replay'").repeat(2);
    assert!(refusal(&same).contains("its name is not its own"));
    for list in [
        mutant("a", file, once, once, "'replay'"),
        mutant("a", file, once, "b", ""),
    ] {
        assert!(refusal(&list).contains("it has no tests or no fault"));
    }
    let nowhere = mutant("a", "replay/none.rs", once, "b", "'replay'");
    assert!(refusal(&nowhere).contains("replay/none.rs is no file of the repository"));
    let anywhere = mutant("a", "src/lib.rs", "x", "y", "'replay'");
    assert!(refusal(&anywhere).contains("src/lib.rs is crates/"));
    let untested = mutant("a", file, once, "b", "'no_such_test'");
    assert!(refusal(&untested).contains("0 crates have a test no_such_test"));
}
