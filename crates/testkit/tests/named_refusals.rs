//! Every refusal is named by a test, so that nobody can lose one unseen.
//!
//! A refusal is a variant of a public enum whose name says so: an error, a fault, a failure, a reason to drop. A test
//! names it as `Enum::Variant`, or has the text that it prints in a string. Product code does not count.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;

use sources::{files_below, root};

/// The crates whose refusals a peer or a packet can cause.
const CRATES: [&str; 4] = [
    "crates/crypto/",
    "crates/ike/",
    "crates/ipsec/",
    "crates/pki/",
];

/// The ends of the names of refusals.
const ENDINGS: [&str; 8] = [
    "Error", "Failure", "Fault", "Problem", "Reason", "Refusal", "Refused", "Response",
];

/// Refusals with other names.
const OTHER_NAMES: [&str; 5] = ["AuditKind", "Disbelief", "JobStatus", "Shortage", "WeakKey"];

/// Refusals that no test can cause, each with the reason.
const UNREACHABLE: [(&str, &str); 7] = [
    (
        "AeadError::Refused",
        "the library takes every key of the right length",
    ),
    (
        "AeadError::SelfTest",
        "one failure of the self-test stays for the whole process",
    ),
    (
        "KeyError::Refused",
        "the library takes every key of the right length",
    ),
    (
        "KeyFileError::Memory",
        "an allocation of the library must fail",
    ),
    ("SealError::Cipher", "the lengths come from the key itself"),
    (
        "SealError::Random",
        "the random generator of the system must fail",
    ),
    (
        "Shortage::ChildKeys",
        "prf+ gives more than any transform needs",
    ),
];

/// A text of fewer bytes is too common to name a refusal.
const TEXT_MIN: usize = 10;

struct Variant {
    file: String,
    of: String,
    name: String,
    /// The longest part of its text between two placeholders.
    text: String,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.of, self.name)
    }
}

/// A Rust or Python source, without its comments, in two parts: the code outside strings, and the strings. A string of
/// several pieces is one.
#[derive(Default)]
struct Read {
    /// The code, in which every string is a `"`.
    code: String,
    strings: Vec<String>,
}

impl Read {
    fn new(source: &str, comment: &str) -> Self {
        let mut read = Self::default();
        let mut rest = source;
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            let in_word = read.code.ends_with(is_word);
            if rest.starts_with(comment) {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
            } else if let Some(len) = quoted_char(rest) {
                rest = &rest[len..];
            } else if let Some((string, behind)) = raw_string(rest).filter(|_| !in_word) {
                read.push(string.to_owned());
                rest = behind;
            } else if c == '"' {
                let (string, behind) = string(after);
                read.push(string);
                rest = behind;
            } else {
                read.code.push(c);
                rest = after;
            }
        }
        read
    }

    fn push(&mut self, string: String) {
        let joins = self.code.trim_end().ends_with('"');
        match self.strings.last_mut() {
            Some(last) if joins => last.push_str(&string),
            _ => {
                self.code.push('"');
                self.strings.push(string);
            }
        }
    }
}

/// A raw string of Rust or a long one of Python, and what is behind it.
fn raw_string(rest: &str) -> Option<(&str, &str)> {
    let ends = [
        ("r##\"", "\"##"),
        ("r#\"", "\"#"),
        ("r\"", "\""),
        ("\"\"\"", "\"\"\""),
    ];
    let (start, end) = ends
        .into_iter()
        .find(|(start, _)| rest.starts_with(start))?;
    rest[start.len()..].split_once(end)
}

/// The length of a character literal that has a quote in it, or a backslash.
fn quoted_char(rest: &str) -> Option<usize> {
    let literals = ["'\"'", "'\\\"'", "'\\\\'", "'\\''"];
    let found = literals
        .iter()
        .find(|literal| rest.starts_with(**literal))?;
    Some(found.len())
}

/// The string that goes to the next quote, and what is behind it. Line breaks that a backslash hides do not count.
fn string(rest: &str) -> (String, &str) {
    let mut string = String::new();
    let mut chars = rest.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (string, &rest[at + 1..]),
            '\\' => match chars.next() {
                Some((_, '\n')) => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                Some((_, escaped)) => string.push(escaped),
                None => {}
            },
            _ => string.push(c),
        }
    }
    (string, "")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn word(text: &str) -> &str {
    &text[..text.find(|c| !is_word(c)).unwrap_or(text.len())]
}

fn is_refusal(name: &str) -> bool {
    ENDINGS.iter().any(|ending| name.ends_with(ending)) || OTHER_NAMES.contains(&name)
}

/// The place of a part of the code in it.
fn offset(code: &str, part: &str) -> usize {
    part.as_ptr() as usize - code.as_ptr() as usize
}

/// Splits the body of an enum at the commas, or at the semicolons of a macro, that are in no brackets.
fn members(body: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (1, 0, Vec::new());
    for (at, c) in body.char_indices() {
        depth += i32::from("({[".contains(c)) - i32::from(")}]".contains(c));
        if depth == 0 || depth == 1 && ",;".contains(c) {
            found.push(&body[start..at]);
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Takes the attributes off the front of a member.
fn without_attributes(mut member: &str) -> &str {
    while let Some(attribute) = member.trim_start().strip_prefix("#[") {
        let mut depth = 1;
        let end = attribute.find(|c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            depth == 0
        });
        member = &attribute[end.map_or(attribute.len(), |end| end + 1)..];
    }
    member.trim()
}

/// The longest part of a message between placeholders.
fn longest_part(text: &str) -> &str {
    let mut rest = text;
    let mut longest = "";
    loop {
        let end = rest.find('{').unwrap_or(rest.len());
        if rest[..end].len() > longest.len() {
            longest = &rest[..end];
        }
        match rest[end..].find('}') {
            Some(close) => rest = &rest[end + close + 1..],
            None => return longest.trim(),
        }
    }
}

/// The refusals that a file declares.
fn declared_in(file: &str, source: &str) -> Vec<Variant> {
    let read = Read::new(source, "//");
    let mut found = Vec::new();
    for (at, _) in read.code.match_indices("pub enum ") {
        let declaration = &read.code[at + "pub enum ".len()..];
        let of = word(declaration);
        if !is_refusal(of) {
            continue;
        }
        let body = declaration.find('{').expect("a body") + 1;
        let mut body = &declaration[body..];
        if body.trim_start().starts_with('$') {
            // A macro declares the enum, and its call lists the variants.
            let declaration = read.code.split("macro_rules! ").nth(1);
            let call = format!("\n{}! {{", word(declaration.expect("a macro")));
            body = read.code.split_once(&call).expect("a call of the macro").1;
        }
        for member in members(body) {
            let name = word(without_attributes(member));
            if name.is_empty() {
                continue;
            }
            // The first string of a member is its text, or the name that a macro gives it.
            let before = read.code[..offset(&read.code, member)].matches('"').count();
            let text = match member.contains('"') {
                true => longest_part(&read.strings[before]).to_owned(),
                false => String::new(),
            };
            found.push(Variant {
                file: file.to_owned(),
                of: of.to_owned(),
                name: name.to_owned(),
                text,
            });
        }
    }
    found
}

/// The part of a source that only tests have: all of a file in a `tests` folder, the test module of any other.
fn test_part<'a>(file: &str, source: &'a str) -> &'a str {
    let of_tests = file.contains("/tests/") || file.ends_with("/tests.rs") || file.ends_with(".py");
    match source.find("#[cfg(test)]\nmod tests {") {
        _ if of_tests => source,
        Some(start) => &source[start..],
        None => "",
    }
}

/// Every `Enum::Variant` in the code, also those of `use Enum::{Variant}`.
fn paths(code: &str) -> BTreeSet<(&str, &str)> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("::") {
        let start = code[..at]
            .rfind(|c| !is_word(c))
            .map_or(0, |before| before + 1);
        let (of, after) = (&code[start..at], &code[at + 2..]);
        let list = after
            .strip_prefix('{')
            .and_then(|list| list.split('}').next());
        let names = list
            .unwrap_or(after)
            .split(',')
            .map(|name| word(name.trim()));
        let count = list.map_or(1, |_| usize::MAX);
        found.extend(names.take(count).map(|name| (of, name)));
    }
    found
}

/// Says whether the strings of a test have the text of a refusal, which no other refusal may have.
fn has_text(strings: &[String], variant: &Variant, all: &[Variant]) -> bool {
    let text = variant.text.as_str();
    let common = || all.iter().filter(|other| other.text.contains(text)).count() > 1;
    text.len() >= TEXT_MIN && strings.iter().any(|string| string.contains(text)) && !common()
}

/// The refusals that no test names.
fn unnamed<'a>(all: &'a [Variant], tests: &[Read]) -> Vec<&'a Variant> {
    let named: BTreeSet<_> = tests.iter().flat_map(|test| paths(&test.code)).collect();
    let by_path = |variant: &Variant| named.contains(&(&*variant.of, &*variant.name));
    let by_text = |variant: &Variant| {
        tests
            .iter()
            .any(|test| has_text(&test.strings, variant, all))
    };
    let unnamed = all
        .iter()
        .filter(|variant| !by_path(variant) && !by_text(variant));
    unnamed.collect()
}

/// The sources of the product and of its tests: the path of each below the root, and its text.
fn sources() -> Vec<(String, String)> {
    let folders = ["crates", "interop"].map(|folder| root().join(folder));
    let files = folders
        .iter()
        .flat_map(|folder| files_below(folder, &["py", "rs"]));
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).expect("readable");
        let file = path.strip_prefix(root()).expect("within");
        (file.display().to_string(), text)
    };
    files.map(read).collect()
}

#[test]
fn a_test_names_every_refusal() {
    let sources = sources();
    let is_product = |file: &str| CRATES.iter().any(|folder| file.starts_with(folder));
    let (mut all, mut tests) = (Vec::new(), Vec::new());
    for (file, source) in &sources {
        let comment = if file.ends_with(".py") { "#" } else { "//" };
        let part = test_part(file, source);
        // The texts here are no test of what they name.
        if !part.is_empty() && !file.starts_with("crates/testkit/") {
            tests.push(Read::new(part, comment));
        }
        if is_product(file) && part.len() < source.len() {
            all.extend(declared_in(file, source));
        }
    }
    let counts = all.iter().fold(BTreeMap::new(), |mut counts, variant| {
        *counts.entry(variant.of.as_str()).or_insert(0) += 1;
        counts
    });
    let enums = [
        "AuthFailure",
        "DropReason",
        "Problem",
        "Refusal",
        "Shortage",
    ];
    for of in OTHER_NAMES.iter().chain(&enums) {
        assert!(
            counts.get(of).is_some_and(|count| *count > 1),
            "{of}: {counts:?}"
        );
    }
    let unreachable = |variant: &Variant| {
        let name = variant.to_string();
        UNREACHABLE.iter().any(|(listed, _)| *listed == name)
    };
    let missing = unnamed(&all, &tests);
    for (name, _) in UNREACHABLE {
        let listed = missing.iter().any(|variant| variant.to_string() == name);
        assert!(
            listed,
            "{name} is named by a test, or is gone: take it off the list"
        );
    }
    let missing: Vec<String> = missing
        .into_iter()
        .filter(|variant| !unreachable(variant))
        .map(|variant| format!("{variant} of {}", variant.file))
        .collect();
    assert!(
        missing.is_empty(),
        "no test names these {} of {} refusals; let a test in the `tests` folder of their crate cause each, or delete \
         it:\n{}",
        missing.len(),
        all.len(),
        missing.join("\n")
    );
}

#[test]
fn a_refusal_without_a_test_is_found() {
    let product = r#"
        /// Not `pub enum OtherError { Gone }`.
        pub enum MadeError {
            #[error("the first, with {0} and a longer rest")]
            First(u8),
            #[error(transparent)]
            #[doc = "[]"]
            Second { inner: Box<[u8; 2]>, other: char },
            Third,
            Fourth,
            Fifth,
        }
        pub enum Mode { Tunnel }
    "#;
    let all = declared_in("made.rs", product);
    let missing = |tests: &[&str]| {
        let tests: Vec<Read> = tests.iter().map(|test| Read::new(test, "//")).collect();
        let missing = unnamed(&all, &tests).into_iter();
        missing
            .map(|variant| variant.name.clone())
            .collect::<Vec<_>>()
    };
    let every = ["First", "Second", "Third", "Fourth", "Fifth"];
    assert_eq!(missing(&[]), every);
    let of_others = "OtherError::First; // MadeError::Third\nlet s = \"MadeError::Fourth\"; Fifth; MadeError::Seconds";
    assert_eq!(missing(&[of_others]), every);
    let named = [
        "x == MadeError::Third",
        "use a::MadeError::{Fourth, Fifth};",
    ];
    assert_eq!(missing(&named), ["First", "Second"]);
    let shown = [
        "MadeError::Second { .. }",
        "'\"'; f(\"why: and a \\\n  longer rest.\")",
    ];
    assert_eq!(missing(&shown), ["Third", "Fourth", "Fifth"]);
}
