//! The names of public types are made of words that `docs/glossary.md` explains, or that need no explanation. The words
//! and places of the glossary exist.

mod sources;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use sources::{files_below, root};

const GLOSSARY: &str = "docs/glossary.md";
const PLAIN: &str = "crates/testkit/tests/glossary/plain.txt";

/// A row of the glossary.
struct Row {
    line: usize,
    /// The words that it explains. A word may have several parts, as `fair queue` has.
    terms: Vec<String>,
    /// Inline code in the column with the meaning.
    named: Vec<String>,
    /// Modules and folders in the last column.
    places: Vec<String>,
}

fn code_spans(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.map(str::to_owned).collect()
}

fn rows(page: &str) -> Vec<Row> {
    let mut found = Vec::new();
    for (at, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", terms, meaning, places, ""] = cells[..] else {
            continue;
        };
        if meaning != "what it means here" && !meaning.starts_with("--") {
            found.push(Row {
                line: at + 1,
                terms: terms.split(", ").map(str::to_lowercase).collect(),
                named: code_spans(meaning),
                places: code_spans(places),
            });
        }
    }
    found
}

/// Returns the words that the glossary explains.
fn explained(rows: &[Row]) -> BTreeSet<String> {
    let terms = rows.iter().flat_map(|row| &row.terms);
    terms.flat_map(|term| parts(term)).collect()
}

fn parts(term: &str) -> Vec<String> {
    let words = term.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// Returns the words that names may have without a row.
fn plain() -> Vec<String> {
    let text = fs::read_to_string(root().join(PLAIN)).expect("the list of plain words");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// Splits a name into words: `SadReader` into `sad` and `reader`, `esplanade_esp_key` at its underscores.
fn words(name: &str) -> Vec<String> {
    name.split('_').flat_map(capitalised).collect()
}

fn capitalised(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words = Vec::new();
    for (at, &c) in chars.iter().enumerate() {
        let after_lower = at > 0 && !chars[at - 1].is_uppercase();
        let before_lower = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        if words.is_empty() || c.is_uppercase() && (after_lower || before_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
    }
    words
}

/// Returns the word, and the words that it may be the plural of.
fn singulars(word: &str) -> Vec<String> {
    let mut forms = vec![word.to_owned()];
    for (ending, singular) in [("ies", "y"), ("es", ""), ("s", "")] {
        let stem = word.strip_suffix(ending);
        forms.extend(stem.map(|stem| format!("{stem}{singular}")));
    }
    forms
}

/// Returns the name of the public type that a line declares. `pub(crate)` and the like count as public.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(inside) => inside.split_once(") ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&name[..end.unwrap_or(name.len())])
}

/// Returns all public types of the product's crates, by name, with the places of their declarations.
fn public_types() -> BTreeMap<String, Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("readable directory") {
        let path = entry.expect("directory entry").path();
        if !path.ends_with("testkit") {
            files.extend(files_below(&path.join("src"), &["rs"]));
        }
    }
    // Unit tests in files of their own.
    let root = root();
    let is_test = |file: &PathBuf| {
        let inner = file.strip_prefix(&root).expect("below the root");
        inner.with_extension("").iter().any(|part| part == "tests")
    };
    files.retain(|file| !is_test(file));
    files.sort();
    let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("UTF-8 text");
        let relative = file.strip_prefix(&root).expect("below the root");
        // Unit tests come last in a file.
        let product = text
            .lines()
            .enumerate()
            .take_while(|(_, line)| *line != "mod tests {");
        for (number, line) in product {
            if let Some(name) = public_type(line) {
                let place = format!("{}:{}", relative.display(), number + 1);
                types.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    types
}

fn glossary() -> Vec<Row> {
    rows(&fs::read_to_string(root().join(GLOSSARY)).expect("the glossary"))
}

#[test]
fn every_word_of_a_public_type_is_known() {
    let mut known = explained(&glossary());
    known.extend(plain());
    let mut missing = Vec::new();
    let types = public_types();
    for (name, places) in &types {
        for word in words(name) {
            if !singulars(&word).iter().any(|form| known.contains(form)) {
                missing.push(format!(
                    "the word `{word}` of the type `{name}` ({})",
                    places.join(", ")
                ));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "\n{GLOSSARY} does not have:\n{}\nTake a word that is there. A word that a reader cannot know gets a row. A word \
         that English or an RFC explains goes into {PLAIN}.\n",
        missing.join("\n")
    );
    assert!(types.len() > 500, "only {} types were found", types.len());
}

/// A word in the list that no name has would be allowed for ever. A word with a row needs no place in the list.
#[test]
fn every_plain_word_is_in_use() {
    let listed = plain();
    let mut sorted = listed.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(listed, sorted, "{PLAIN} is not in order");
    let types = public_types();
    let used: BTreeSet<String> = types
        .keys()
        .flat_map(|name| words(name))
        .flat_map(|word| singulars(&word))
        .collect();
    let explained = explained(&glossary());
    let mut listed = listed;
    listed.retain(|word| !used.contains(word) || explained.contains(word));
    assert_eq!(listed, [""; 0], "{PLAIN} need not have these");
}

/// A source file: its crate and modules, its text, and the words in it.
struct Module {
    path: Vec<String>,
    text: String,
    words: BTreeSet<String>,
}

fn words_of(text: &str) -> BTreeSet<String> {
    let names = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words = names.flat_map(capitalised);
    words.flat_map(|word| singulars(&word)).collect()
}

fn modules() -> Vec<Module> {
    let crates = root().join("crates");
    let product = files_below(&crates, &["rs"])
        .into_iter()
        .filter_map(|file| {
            let inner = file.strip_prefix(&crates).ok()?.with_extension("");
            let mut path: Vec<String> = inner
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            if path.get(1)? != "src" || path[0] == "testkit" {
                return None;
            }
            path.remove(1);
            let text = fs::read_to_string(&file).expect("UTF-8 text");
            let words = words_of(&format!("{} {text}", path.join(" ")));
            Some(Module { path, text, words })
        });
    product.collect()
}

/// Returns true if a file belongs to `place`, such as `dataplane::packet_io` or the crate `config`. A crate's name need
/// not be followed by all modules on the way.
fn belongs(module: &Module, place: &[&str]) -> bool {
    let within = |path: &[String], place: &[&str]| {
        place.is_empty() || path.windows(place.len()).any(|part| part == place)
    };
    let path = &module.path;
    within(path, place) || path[0] == place[0] && within(&path[1..], &place[1..])
}

/// Returns the words of a place, a set for each file. There is none if there is no such place.
fn words_at<'a>(modules: &'a [Module], place: &str) -> Vec<Cow<'a, BTreeSet<String>>> {
    if place.contains('/') {
        let folder = root().join(place);
        let words = folder.is_dir().then(|| words_below(&folder));
        return words.into_iter().map(Cow::Owned).collect();
    }
    let place: Vec<&str> = place.split("::").collect();
    let here = modules.iter().filter(|module| belongs(module, &place));
    here.map(|module| Cow::Borrowed(&module.words)).collect()
}

fn words_below(folder: &Path) -> BTreeSet<String> {
    let files = files_below(folder, &["rs", "py", "sv", "v", "md"]);
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    texts.flat_map(|text| words_of(&text)).collect()
}

/// Returns what a row says that the sources do not have.
fn stale(row: &Row, modules: &[Module]) -> Vec<String> {
    let has = |files: &[Cow<BTreeSet<String>>], term: &String| {
        let mut words = parts(term).into_iter();
        words.all(|word| files.iter().any(|words| words.contains(&word)))
    };
    let mut wrong = Vec::new();
    let mut all = Vec::new();
    for place in &row.places {
        let files = words_at(modules, place);
        if files.is_empty() {
            wrong.push(format!("there is no `{place}`"));
        } else if !row.terms.iter().any(|term| has(&files, term)) {
            let terms = row.terms.join(", ");
            wrong.push(format!("`{place}` does not have `{terms}`"));
        }
        all.extend(files);
    }
    if row.places.is_empty() {
        all.extend(modules.iter().map(|module| Cow::Borrowed(&module.words)));
    }
    let missing = row.terms.iter().filter(|term| !has(&all, term));
    wrong.extend(missing.map(|term| format!("no code has `{term}`")));
    let mut unknown = row.named.clone();
    unknown.retain(|name| !modules.iter().any(|module| module.text.contains(name)));
    wrong.extend(unknown.iter().map(|name| format!("no code has `{name}`")));
    wrong
}

#[test]
fn every_row_is_about_code_that_exists() {
    let modules = modules();
    let rows = glossary();
    let mut wrong = Vec::new();
    for row in &rows {
        for error in stale(row, &modules) {
            wrong.push(format!("{GLOSSARY}:{}: {error}", row.line));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(rows.len() > 150, "only {} rows were found", rows.len());
}

#[test]
fn stale_rows_are_found() {
    let modules = modules();
    let found = |line: &str| {
        let rows = rows(line);
        assert_eq!(rows.len(), 1, "{line}");
        stale(&rows[0], &modules)
    };
    let none = [""; 0];
    assert_eq!(found("| replay window | numbers | `ipsec::replay` |"), none);
    assert_eq!(found("| sa, sad | associations | RFC 4301 §4.1 |"), none);
    for (row, why) in [
        (
            "| sa | x | `ipsec::nothing` |",
            "there is no `ipsec::nothing`",
        ),
        ("| sa | x | `rtl/nothing/` |", "there is no `rtl/nothing/`"),
        (
            "| zeppelin | x | `ipsec::replay` |",
            "does not have `zeppelin`",
        ),
        ("| sa, zeppelin | x | RFC 4301 |", "no code has `zeppelin`"),
        (
            "| sa | a `zeppelin` | `ipsec::sad` |",
            "no code has `zeppelin`",
        ),
    ] {
        let found = found(row).join("\n");
        assert!(found.contains(why), "{row}: {found}");
    }
}

#[test]
fn names_are_taken_apart_at_their_capitals() {
    assert_eq!(words("TwiceAvx512"), ["twice", "avx512"]);
    assert_eq!(words("SadReader"), ["sad", "reader"]);
    assert_eq!(words("ESPHeader"), ["esp", "header"]);
    assert_eq!(words("esplanade_esp_key"), ["esplanade", "esp", "key"]);
    assert_eq!(
        public_type("    pub(in crate::worker) struct Port {"),
        Some("Port")
    );
    assert_eq!(public_type("pub unsafe trait Simd: Copy {"), Some("Simd"));
    assert_eq!(public_type("pub fn open() {}"), None);
    assert!(singulars("policies").contains(&"policy".to_owned()));
}
