//! Checks `docs/rfc-coverage.md`: one row for each MUST and SHOULD of the RFCs in `docs/rfc/`, with
//! the tests that cite it.
//!
//! A test cites requirements in a comment above it: `// RFC 4303 R12, R13; RFC 4302 R7`. The
//! numbers follow the order in `docs/rfc/*.json`, where new requirements go to the end. The page
//! lists them by section. Each requirement has a test, an `exception` or a `todo`. `ESPLANADE_WRITE=1 cargo test -p esplanade-testkit --test rfc_coverage`
//! writes the page again.

mod declared;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use declared::{function, is_test_attribute, test_sources};
use sources::root;

use serde::Deserialize;

const PAGE: &str = "docs/rfc-coverage.md";

/// The levels. A "rule" is demanded by an RFC without one of its words for it.
const LEVELS: [&str; 5] = ["MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "rule"];

#[derive(Deserialize)]
struct Rfc {
    rfc: u32,
    title: String,
    requirements: Vec<Requirement>,
}

#[derive(Deserialize)]
struct Requirement {
    id: u32,
    section: String,
    level: String,
    text: String,
    /// Explains what is tested, or how far.
    #[serde(default)]
    note: String,
    /// Why the requirement does not apply here, or is not to be met. There is no test then.
    #[serde(default)]
    exception: String,
    /// What is missing: the behaviour ("Not done"), or a test of it ("No test"). There may be a test of the rest.
    #[serde(default)]
    todo: String,
}

impl Requirement {
    /// What is wrong with the entry. `tested`: a test cites it.
    fn fault(&self, tested: bool) -> Option<&'static str> {
        let excepted = !self.exception.is_empty();
        let missing = !self.todo.is_empty();
        let told_apart = TODOS.iter().any(|begin| self.todo.starts_with(begin));
        if excepted && (tested || missing) {
            return Some("an exception beside a test or a to-do");
        }
        if !self.note.is_empty() && !tested {
            return Some("a note without a test");
        }
        if missing && !told_apart {
            return Some("a to-do is `Not done …` or `No test …`");
        }
        (!tested && !excepted && !missing).then_some("neither a test, an exception nor a to-do")
    }
}

/// How a to-do begins.
const TODOS: [&str; 2] = ["Not done", "No test"];

/// A test and its file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    name: String,
    file: String,
}

/// The tests that cite each requirement, by RFC and number.
type Citations = BTreeMap<(u32, u32), BTreeSet<Test>>;

fn rfcs() -> Vec<Rfc> {
    let mut rfcs: Vec<Rfc> = [4301, 4302, 4303, 5280, 6023, 6290, 7296, 7383]
        .iter()
        .map(|number| {
            let path = root().join(format!("docs/rfc/{number}.json"));
            let text = fs::read_to_string(path).expect("readable");
            serde_json::from_str(&text).expect("as described in Rfc")
        })
        .collect();
    rfcs.sort_by_key(|rfc| rfc.rfc);
    rfcs
}

/// Parses a citation such as `RFC 4303 R1, R2; RFC 4302 R3` after the comment marker. Returns
/// `None` for any other comment.
fn parse_citation(line: &str) -> Option<Vec<(u32, u32)>> {
    let comment = line
        .trim()
        .strip_prefix("// ")
        .or(line.trim().strip_prefix("# "))?;
    let mut cited = Vec::new();
    for part in comment.split(';') {
        let (rfc, ids) = part.trim().strip_prefix("RFC ")?.split_once(" R")?;
        let rfc = rfc.parse().ok()?;
        for id in ids.split(", R") {
            cited.push((rfc, id.parse().ok()?));
        }
    }
    Some(cited)
}

/// Collects the citations of one file. A citation that no test follows is an error with its line.
fn cited_in(text: &str, file: &str, citations: &mut Citations) -> Result<(), String> {
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(cited) = parse_citation(line) else {
            continue;
        };
        let mut is_test = file.ends_with(".py");
        let mut name = None;
        for (_, line) in lines.by_ref().take(6) {
            is_test |= is_test_attribute(line);
            name = function(line);
            if name.is_some() {
                break;
            }
        }
        let name =
            name.filter(|name| is_test && (file.ends_with(".rs") || name.starts_with("test_")));
        let name = name.ok_or(format!("{file}:{}: no test follows the citation", at + 1))?;
        for requirement in cited {
            let (name, file) = (name.to_owned(), file.to_owned());
            citations
                .entry(requirement)
                .or_default()
                .insert(Test { name, file });
        }
    }
    Ok(())
}

fn citations() -> Citations {
    let mut citations = Citations::new();
    for (file, text) in test_sources() {
        if let Err(error) = cited_in(&text, &file, &mut citations) {
            panic!("{error}");
        }
    }
    citations
}

/// Makes a key that sorts sections by number, and appendices (`A2.2`) after them.
fn section_key(section: &str) -> Vec<(bool, String, u32)> {
    let part = |part: &str| {
        let digits = part.trim_start_matches(|c: char| !c.is_ascii_digit());
        let letters = &part[..part.len() - digits.len()];
        (
            !letters.is_empty(),
            letters.to_owned(),
            digits.parse().unwrap_or(0),
        )
    };
    section.split('.').map(part).collect()
}

/// Says what the page is, and counts the requirements by what they have.
fn summary(rfcs: &[Rfc], citations: &Citations) -> String {
    let numbers: Vec<String> = rfcs.iter().map(|rfc| rfc.rfc.to_string()).collect();
    let (last, others) = numbers.split_last().expect("some RFCs");
    let mut page = format!(
        "# RFC coverage\n\n\
         The requirements (MUST and SHOULD) of RFC {} and {last}, in our words.\n\
         Each has the tests that cite it, or says why it has none.\n\
         A *rule* is demanded in other words.\n\
         Requirements on the authors of other documents, such as algorithm RFCs, are left out.\n\n\
         - A **note** explains what is tested.\n\
         - An **exception** says why a requirement does not apply here, or why we do not follow it.\n\
         - A **to-do** says what is missing.\n  \
           *Not done* means the behaviour.\n  \
           *No test* means that only a test is missing.\n  \
           It can stand beside a test of the rest.\n\n\
         `ESPLANADE_WRITE=1 cargo test -p esplanade-testkit --test rfc_coverage` writes this page.\n\
         Its sources are `docs/rfc/*.json`, and comments such as `// RFC 4303 R12` above the tests.\n\
         The same test fails when this page is stale.\n\n",
        others.join(", ")
    );
    page.push_str("| RFC | requirements | with a test | with a note | with an exception | not done | no test |\n|---|---|---|---|---|---|---|\n");
    for rfc in rfcs {
        let count = |is: &dyn Fn(&Requirement) -> bool| {
            let these = rfc.requirements.iter().filter(|r| is(r));
            these.count()
        };
        let counts = [
            count(&|_| true),
            count(&|r| citations.contains_key(&(rfc.rfc, r.id))),
            count(&|r| !r.note.is_empty()),
            count(&|r| !r.exception.is_empty()),
            count(&|r| r.todo.starts_with(TODOS[0])),
            count(&|r| r.todo.starts_with(TODOS[1])),
        ]
        .map(|count| count.to_string())
        .join(" | ");
        writeln!(page, "| {} | {counts} |", rfc.rfc).expect("to memory");
    }
    page
}

fn page(rfcs: &[Rfc], citations: &Citations) -> String {
    let mut page = summary(rfcs, citations);
    for rfc in rfcs {
        write!(page, "\n## RFC {}: {}\n\n", rfc.rfc, rfc.title).expect("to memory");
        page.push_str(
            "| id | section | level | requirement | tests, notes, exceptions, to-dos |\n|---|---|---|---|---|\n",
        );
        let mut sorted: Vec<&Requirement> = rfc.requirements.iter().collect();
        sorted.sort_by_key(|r| section_key(&r.section));
        for r in sorted {
            let tests = citations.get(&(rfc.rfc, r.id)).into_iter().flatten();
            let link = |t: &Test| format!("[{}](../{})", t.name, t.file);
            let mut cell: Vec<String> = tests.map(link).collect();
            for (kind, text) in [
                ("Note", &r.note),
                ("Exception", &r.exception),
                ("To do", &r.todo),
            ] {
                if !text.is_empty() {
                    cell.push(format!("**{kind}**: {text}"));
                }
            }
            let (id, section, level, text) = (r.id, &r.section, &r.level, &r.text);
            let cell = cell.join("<br>");
            writeln!(page, "| R{id} | §{section} | {level} | {text} | {cell} |")
                .expect("to memory");
        }
    }
    page
}

#[test]
fn every_requirement_has_a_test_an_exception_or_a_todo() {
    let (rfcs, citations) = (rfcs(), citations());
    let mut wrong = Vec::new();
    let mut known = BTreeSet::new();
    for rfc in &rfcs {
        for (index, r) in rfc.requirements.iter().enumerate() {
            known.insert((rfc.rfc, r.id));
            if r.id as usize != index + 1 {
                wrong.push(format!("RFC {} R{}: not in order", rfc.rfc, r.id));
            }
            if !LEVELS.contains(&r.level.as_str()) {
                wrong.push(format!("RFC {} R{}: level {}", rfc.rfc, r.id, r.level));
            }
            if let Some(fault) = r.fault(citations.contains_key(&(rfc.rfc, r.id))) {
                wrong.push(format!("RFC {} R{}: {fault}", rfc.rfc, r.id));
            }
        }
    }
    for ((rfc, id), tests) in citations
        .iter()
        .filter(|(cited, _)| !known.contains(*cited))
    {
        let test = tests.first().map_or("", |test| test.name.as_str());
        wrong.push(format!(
            "{test} cites RFC {rfc} R{id}, which does not exist"
        ));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_page_is_what_the_citations_say() {
    let expected = page(&rfcs(), &citations());
    let path = root().join(PAGE);
    if std::env::var_os("ESPLANADE_WRITE").is_some() {
        fs::write(&path, &expected).expect("writable");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let stale = written.lines().zip(expected.lines()).find(|(a, b)| a != b);
    assert!(
        written == expected,
        "{PAGE} is stale, from {stale:?} on: see the head of this file"
    );
}

#[test]
fn sections_are_sorted() {
    let sections = [
        "2", "4.4.1", "4.4.1.1", "4.10", "10", "A2.2", "A3", "B1", "D.4",
    ];
    assert!(
        sections
            .iter()
            .map(|section| section_key(section))
            .is_sorted()
    );
}

#[test]
fn citations_are_read() {
    let found = parse_citation("    // RFC 4303 R1, R12; RFC 4302 R7");
    assert_eq!(found, Some(vec![(4303, 1), (4303, 12), (4302, 7)]));
    for other in [
        "// RFC 4303 §2.6",
        "// RFC 4303 R",
        "let x = 1;",
        "// R1",
        "// RFC 4303 R1 and so on",
    ] {
        assert_eq!(parse_citation(other), None, "{other}");
    }
    let mut citations = Citations::new();
    let test = "// RFC 4303 R1\n#[test]\nfn works() {}\n";
    assert!(cited_in(test, "a.rs", &mut citations).is_ok());
    assert_eq!(citations.len(), 1);
    let helper = "// RFC 4303 R1\nfn helper() {}\n";
    assert!(cited_in(helper, "a.rs", &mut citations).is_err());
    let nothing = "// RFC 4303 R1\n";
    assert!(cited_in(nothing, "a.rs", &mut citations).is_err());
}

#[test]
fn notes_exceptions_and_todos_are_told_apart() {
    let faulty = |fields: &str, tested: bool| {
        let text = format!(r#"{{"id": 1, "section": "1", "level": "MUST", "text": "x"{fields}}}"#);
        let requirement: Requirement = serde_json::from_str(&text).expect("well-formed");
        requirement.fault(tested).is_some()
    };
    let (note, exception) = (r#", "note": "x""#, r#", "exception": "x""#);
    let (not_done, no_test) = (r#", "todo": "Not done: x""#, r#", "todo": "No test of x""#);
    let (excepted_todo, noted_todo) =
        (format!("{exception}{no_test}"), format!("{note}{not_done}"));
    for (fields, without_test, with_test) in [
        ("", true, false),
        (note, true, false),
        (exception, false, true),
        (not_done, false, false),
        (no_test, false, false),
        (r#", "todo": "x""#, true, true),
        (excepted_todo.as_str(), true, true),
        (noted_todo.as_str(), true, false),
    ] {
        assert_eq!(faulty(fields, false), without_test, "{fields}, no test");
        assert_eq!(faulty(fields, true), with_test, "{fields}, a test");
    }
}
