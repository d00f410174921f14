//! Checks `docs/ike-behaviours.md`: the behaviours of an IKEv2 gateway, and the tests that show them.
//!
//! The page is written by hand. A row has a number, a mark, the behaviour, and links to tests. This file checks that
//! the tests exist and that the marks are counted. It cannot check that a test shows what the row says.

mod declared;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use declared::{function, is_test_attribute, test_sources};
use sources::root;

const PAGE: &str = "docs/ike-behaviours.md";

/// The page keeps these numbers, so that other documents can refer to them.
const BEHAVIOURS: usize = 139;

const SHOWN: &str = "✓";
const IN_PART: &str = "½";
const NOT_YET: &str = "–";

struct Row<'a> {
    number: usize,
    mark: &'a str,
    shown_by: &'a str,
}

impl<'a> Row<'a> {
    /// Reads a line of a table. Other lines, and rows with another number of cells, give nothing.
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        let cells: Vec<&str> = line.split(" | ").collect();
        let [number, mark, _, shown_by] = cells[..] else {
            return None;
        };
        Some(Self {
            number: number.parse().ok()?,
            mark,
            shown_by,
        })
    }

    /// The tests that the row links to: the name and the file of each.
    fn tests(&self) -> Vec<(&'a str, &'a str)> {
        let link = |text: &'a str| {
            let (name, rest) = text.split_once("](../")?;
            Some((name, rest.split_once(')')?.0))
        };
        self.shown_by.split('[').skip(1).filter_map(link).collect()
    }

    fn fault(&self) -> Option<&'static str> {
        let tested = !self.tests().is_empty();
        let missing = self.shown_by.contains("<br>Missing: ");
        let not_yet = self.shown_by.starts_with("Not yet");
        let (fits, rule) = match self.mark {
            SHOWN => (tested && !missing, "✓ has tests, and nothing is missing"),
            IN_PART => (tested && missing, "½ has tests, and says what is missing"),
            NOT_YET => (!tested && not_yet, "– has no tests, and says `Not yet`"),
            _ => (false, "a mark is ✓, ½ or –"),
        };
        (!fits).then_some(rule)
    }
}

/// Returns the names of the tests that a source file declares.
fn tests_in(file: &str, text: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines() {
        is_test |= is_test_attribute(line);
        if let Some(name) = function(line) {
            if is_test || file.ends_with(".py") && name.starts_with("test_") {
                tests.insert(name.to_owned());
            }
            is_test = false;
        }
    }
    tests
}

#[test]
fn the_page_names_tests_that_exist_and_counts_its_marks() {
    let page = fs::read_to_string(root().join(PAGE)).expect("readable");
    let with_tests = |(file, text): (String, String)| {
        let tests = tests_in(&file, &text);
        (file, tests)
    };
    let files: BTreeMap<_, _> = test_sources().into_iter().map(with_tests).collect();
    let rows: Vec<Row> = page.lines().filter_map(Row::parse).collect();
    let numbers: Vec<usize> = rows.iter().map(|row| row.number).collect();
    assert_eq!(numbers, (1..=BEHAVIOURS).collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for row in &rows {
        let number = row.number;
        wrong.extend(row.fault().map(|rule| format!("row {number}: {rule}")));
        for (name, file) in row.tests() {
            let exists = files.get(file).is_some_and(|tests| tests.contains(name));
            if !exists {
                wrong.push(format!("row {number}: {file} has no test {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let count = |mark: &str| rows.iter().filter(|row| row.mark == mark).count();
    let (shown, in_part, not_yet) = (count(SHOWN), count(IN_PART), count(NOT_YET));
    let last = format!("Shown: {shown}, in part: {in_part}, not yet: {not_yet}");
    assert_eq!(page.lines().last(), Some(last.as_str()));
}
