//! Reads the pages, and finds the parts of a page that a test can check.

use std::fs;
use std::path::{Path, PathBuf};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A page of the documentation. `name` is its path below the root of the repository.
pub struct Page {
    pub name: String,
    pub text: String,
}

impl Page {
    /// Returns the page's folder below the root; it is empty for the root itself.
    pub fn folder(&self) -> &str {
        self.name.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

/// Pages outside `docs/`.
const PAGES: [&str; 11] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "bench/README.md",
    "fuzz/README.md",
    "interop/README.md",
    "rtl/README.md",
    "rtl/syn/README.md",
    "vectors/README.md",
];

fn pages_below(folder: &str, names: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            pages_below(&name, names);
        } else if name.ends_with(".md") {
            names.push(name);
        }
    }
}

/// Reads all pages of the documentation.
pub fn pages() -> Vec<Page> {
    let mut names: Vec<String> = PAGES.map(str::to_owned).into();
    pages_below("docs", &mut names);
    names.sort();
    let page = |name: String| Page {
        text: read(&name),
        name,
    };
    names.into_iter().map(page).collect()
}

/// A fenced block with its language, or an indented block without a language.
pub struct Block {
    pub line: usize,
    pub language: Option<String>,
    pub text: String,
}

impl Block {
    /// Returns true if the block holds commands for a shell.
    pub fn is_commands(&self) -> bool {
        matches!(self.language.as_deref(), None | Some("sh"))
    }
}

pub fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    let mut blank = true;
    for (at, line) in page.lines().enumerate() {
        let fence = line.strip_prefix("```");
        let indented = line.strip_prefix("    ").filter(|_| fence.is_none());
        match (&mut open, fence, indented) {
            (Some(block), Some(_), _) if block.language.is_some() => found.extend(open.take()),
            (Some(block), None, _) if block.language.is_some() => {
                block.text += line;
                block.text.push('\n');
            }
            (Some(block), None, Some(code)) => {
                block.text += code;
                block.text.push('\n');
            }
            (_, Some(language), _) => {
                found.extend(open.take());
                open = Some(Block {
                    line: at + 1,
                    language: Some(language.trim().to_owned()),
                    text: String::new(),
                });
            }
            (None, None, Some(code)) if blank => {
                open = Some(Block {
                    line: at + 1,
                    language: None,
                    text: format!("{code}\n"),
                });
            }
            (Some(_), None, None) => found.extend(open.take()),
            (None, ..) => {}
        }
        blank = line.trim().is_empty();
    }
    found.extend(open);
    found
}

/// Returns the lines outside fenced blocks, with their numbers.
pub fn prose(page: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (at, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            found.push((at + 1, line));
        }
    }
    found
}

/// Returns inline code, the texts between back quotes, with the numbers of their lines.
pub fn spans(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(page) {
        let inside = line.split('`').skip(1).step_by(2);
        found.extend(inside.map(|span| (number, span.replace("\\|", "|"))));
    }
    found
}

/// Returns the anchors of a page's headings, as GitHub makes them.
pub fn anchors(page: &str) -> Vec<String> {
    let headings = prose(page).into_iter();
    headings
        .filter_map(|(_, line)| line.strip_prefix('#'))
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim();
            let heading = heading.replace("&lt;", "").replace("&gt;", "");
            let kept = heading.to_lowercase();
            let kept = kept
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.collect::<String>().replace(' ', "-")
        })
        .collect()
}

/// Returns the targets of links in a page: `[text](target)` and `[name]: target`.
pub fn links(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(page) {
        let inline = line.split("](").skip(1);
        let inline = inline.filter_map(|rest| rest.split_once(')'));
        found.extend(inline.map(|(target, _)| (number, target.to_owned())));
        if let Some((_, target)) = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
        {
            found.push((number, target.to_owned()));
        }
    }
    found
}
