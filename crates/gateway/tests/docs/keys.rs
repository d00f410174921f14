//! Compares the reference of the configuration with the keys that exist.

use std::collections::BTreeMap;

use esplanade::config::schema::{self, Schema};

use super::pages::{Page, anchors, prose, spans};

/// The page with the list of sections. The tables of keys are in the folder of the same name.
const INDEX: &str = "docs/configuration.md";
const FOLDER: &str = "docs/configuration/";

/// Words of a cell of a table at most. What is longer becomes text below the table.
const CELL_WORDS_MAX: usize = 40;

/// Sections that have the keys of another kind of section.
const ALSO: [(&str, &Schema); 1] = [("secrets.pkcs12<suffix>", &schema::SECRET_PRIVATE)];

fn is_reference(page: &Page) -> bool {
    page.name == INDEX || page.name.starts_with(FOLDER)
}

/// A part of a page below a heading of the second level, such as `## secrets.ike&lt;suffix&gt;`.
struct Section<'a> {
    page: &'a str,
    place: String,
    /// The first cells of its tables of keys.
    keys: Vec<&'a str>,
    text: String,
}

/// A table of keys has the columns `key` and `value`. Other tables may have a column `key` alone.
fn begins_keys(line: &str) -> bool {
    line.starts_with("| key | value |")
}

fn first_cell(row: &str) -> Option<&str> {
    let cell = row.strip_prefix("| `")?;
    cell.split_once("` |").map(|(key, _)| key)
}

fn sections(page: &Page) -> Vec<Section<'_>> {
    let mut found: Vec<Section> = Vec::new();
    let mut in_keys = false;
    for (_, line) in prose(&page.text) {
        let heading = line.strip_prefix("## ");
        if heading.is_some() || found.is_empty() {
            let place = heading.unwrap_or_default();
            found.push(Section {
                page: &page.name,
                place: place.replace("&lt;", "<").replace("&gt;", ">"),
                keys: Vec::new(),
                text: String::new(),
            });
        }
        let section = found.last_mut().expect("pushed above");
        in_keys = begins_keys(line) || in_keys && line.starts_with('|');
        if in_keys {
            section.keys.extend(first_cell(line));
        }
        section.text += line;
        section.text.push('\n');
    }
    found
}

/// Returns what is wrong: keys without a row or with two, rows without a key, sections without a place in the reference.
pub fn problems(pages: &[Page]) -> Vec<String> {
    let reference: Vec<&Page> = pages.iter().filter(|page| is_reference(page)).collect();
    let sections: Vec<Section> = reference.iter().flat_map(|page| sections(page)).collect();
    let places: BTreeMap<&str, &Schema> = schema::ALL.iter().chain(&ALSO).copied().collect();
    let mut wrong = Vec::new();
    for (place, schema) in &places {
        let here: Vec<&Section> = sections.iter().filter(|s| s.place == *place).collect();
        let [section] = here[..] else {
            wrong.push(format!("{place}: {} headings, 1 expected", here.len()));
            continue;
        };
        let keys = schema.keys.iter().chain(schema.key_prefixes);
        for key in keys.clone() {
            let rows = section.keys.iter().filter(|row| *row == key).count();
            if rows != 1 {
                let page = section.page;
                wrong.push(format!("{page}: {place}.{key}: {rows} rows, 1 expected"));
            }
        }
        for row in &section.keys {
            if !keys.clone().any(|key| key == row) {
                wrong.push(format!("{}: {place} has no key {row}", section.page));
            }
        }
        for (later, _) in schema.later {
            let named = spans(&section.text);
            let named = named
                .iter()
                .filter_map(|(_, span)| span.split(' ').next())
                .any(|word| word == *later);
            if !named {
                let page = section.page;
                wrong.push(format!("{page}: {place} does not mention {later}"));
            }
        }
        let listed = reference
            .iter()
            .filter(|page| page.name == INDEX)
            .any(|page| {
                let name = place.replace('<', "&lt;").replace('>', "&gt;");
                let heading = anchors(&format!("# {name}\n"));
                let file = section.page.trim_start_matches("docs/");
                page.text
                    .contains(&format!("| [{name}]({file}#{}) |", heading[0]))
            });
        if !listed {
            wrong.push(format!("{INDEX} does not list {place}"));
        }
    }
    let strays = sections
        .iter()
        .filter(|section| !section.keys.is_empty() && !places.contains_key(&*section.place));
    wrong.extend(strays.map(|s| format!("{}: no section is called {}", s.page, s.place)));
    wrong
}

/// Returns the lines of the reference and the recipes with a cell of too many words.
pub fn long_cells(page: &Page) -> Vec<(usize, String)> {
    let mut wrong = Vec::new();
    if !is_reference(page) && page.name != "docs/recipes.md" {
        return wrong;
    }
    for (number, line) in prose(&page.text) {
        let cells = line.strip_prefix('|').unwrap_or_default();
        let cells = cells.replace("\\|", " ");
        for cell in cells.split('|') {
            let words = cell
                .split_whitespace()
                .filter(|word| word.contains(char::is_alphanumeric))
                .count();
            if words > CELL_WORDS_MAX {
                wrong.push((
                    number,
                    format!("a cell of {words} words, {CELL_WORDS_MAX} at most"),
                ));
            }
        }
    }
    wrong
}
