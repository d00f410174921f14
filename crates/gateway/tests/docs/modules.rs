//! Looks up names of modules and items, such as `worker::plane` or `ike::Endpoint`, in the sources.

use std::fs;
use std::path::Path;

use super::pages::root;

/// A source file: its module path, beginning with the crate's name, and its text.
pub struct Module {
    path: Vec<String>,
    text: String,
}

fn walk(folder: &Path, path: &[String], found: &mut Vec<Module>) {
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
        let below = || [path, std::slice::from_ref(&stem)].concat();
        if file.is_dir() {
            walk(&file, &below(), found);
        } else if file.extension().is_some_and(|extension| extension == "rs") {
            let path = match stem.as_str() {
                "lib" | "main" | "mod" => path.to_vec(),
                _ => below(),
            };
            let text = fs::read_to_string(&file).unwrap();
            found.push(Module { path, text });
        }
    }
}

/// Reads all modules of all crates.
pub fn modules() -> Vec<Module> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        walk(&folder.join("src"), &[name], &mut found);
    }
    found
}

/// Returns the pages that the sources name, in messages and comments.
pub fn pages_named(modules: &[Module]) -> Vec<String> {
    let mut found = Vec::new();
    for module in modules {
        for (at, _) in module.text.match_indices("docs/") {
            let rest = &module.text[at..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && !"/-_.".contains(c));
            let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            if name.ends_with(".md") {
                found.push(name.to_owned());
            }
        }
    }
    found
}

/// Returns true if inline code is a path of modules and items, as in Rust.
pub fn is_name(span: &str) -> bool {
    span.contains("::")
        && span.split("::").all(|part| {
            let mut chars = part.chars();
            chars.next().is_some_and(char::is_alphabetic)
                && chars.all(|c| c.is_alphanumeric() || c == '_')
        })
}

/// Returns true if `name` is the end of a module's path, an item of such a module, or a part of a type.
pub fn exists(modules: &[Module], name: &str) -> bool {
    let name = name.strip_prefix("esplanade_").unwrap_or(name);
    let parts: Vec<String> = name.split("::").map(str::to_owned).collect();
    let ends_with = |path: &[String], end: &[String]| {
        // A crate's name need not be followed by all modules on the way: `ike::Routes` is re-exported.
        path.ends_with(end) || (path.first() == end.first() && path.ends_with(&end[1..]))
    };
    let Some((last, front)) = parts.split_last() else {
        return false;
    };
    let defines = |text: &str, item: &str| {
        let kinds = ["struct", "enum", "trait", "fn", "mod", "const", "type"];
        let at_word_end = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        kinds.iter().any(|kind| {
            let definition = format!("{kind} {item}");
            text.match_indices(&definition)
                .any(|(at, _)| at_word_end(&text[at + definition.len()..]))
        })
    };
    let re_exports = |text: &str, item: &str| {
        let uses = text.split("pub use ").skip(1);
        let uses = uses.filter_map(|rest| rest.split_once(';'));
        let mut words = uses.flat_map(|(names, _)| names.split(|c: char| !c.is_alphanumeric()));
        words.any(|word| word == item)
    };
    modules.iter().any(|module| {
        ends_with(&module.path, &parts)
            // Defined there, or re-exported from there.
            || (ends_with(&module.path, front) && (defines(&module.text, last) || re_exports(&module.text, last)))
            // `Type::method`: an `impl` may be in another module than the type.
            || front.last().is_some_and(|of| {
                of.starts_with(char::is_uppercase)
                    && (defines(&module.text, of) || module.text.contains(&format!("impl {of} ")))
                    && (defines(&module.text, last) || module.text.contains(&format!("pub {last}: ")))
            })
            // A crate's own name in front of an item that any of its modules has.
            || (front.len() == 1 && module.path.first() == front.first() && defines(&module.text, last))
    })
}
