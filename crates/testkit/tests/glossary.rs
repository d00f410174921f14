//! The names of public types are made of words that `docs/glossary.md` knows.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use sources::{files_below, root};

const GLOSSARY: &str = "docs/glossary.md";
const PLAIN_WORDS: &str = "## Plain words";

/// Returns the words of the glossary: the first column of its tables, and its list of plain words.
fn glossary(page: &str) -> BTreeSet<String> {
    let (tables, plain) = page.split_once(PLAIN_WORDS).expect("a list of plain words");
    let columns = tables.lines().filter_map(|line| line.strip_prefix("| "));
    let columns = columns.filter_map(|row| row.split('|').next());
    let words = columns.chain([plain]).flat_map(|text| {
        text.split(|c: char| !c.is_ascii_alphanumeric())
            .map(str::to_ascii_lowercase)
    });
    words.filter(|word| !word.is_empty()).collect()
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

#[test]
fn every_word_of_a_public_type_is_in_the_glossary() {
    let page = fs::read_to_string(root().join(GLOSSARY)).expect("the glossary");
    let known = glossary(&page);
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
        "\n{GLOSSARY} does not have:\n{}\nAdd a row for a word of the field, or put a plain English word into the list at \
         the end. Better still, take a word that is there.\n",
        missing.join("\n")
    );
    assert!(types.len() > 500, "only {} types were found", types.len());
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
