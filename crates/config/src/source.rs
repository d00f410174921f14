//! Keeps the text of the configuration files and the places in it, for messages. It never shows a
//! part that may be a secret.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esplanade_pki::text::steers;
use zeroize::Zeroizing;

/// The place of a name or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    pub(crate) file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Offset in bytes from the start of the file.
    pub(crate) start: u32,
    /// Length in bytes.
    pub(crate) len: u32,
    /// The value is a string that spans several lines. It may hold a secret behind a quote that was
    /// never closed, so findings do not show it.
    pub(crate) joins_lines: bool,
}

impl Location {
    pub(crate) fn end(&self) -> usize {
        self.start as usize + self.len as usize
    }
}

/// A value with the place where it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    pub value: T,
    pub at: Location,
}

/// Every file that was read. The text contains secrets: it is wiped on drop and never printed
/// whole.
#[derive(Clone, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
    read: Vec<PathBuf>,
}

#[derive(Clone)]
struct SourceFile {
    path: PathBuf,
    text: Arc<Zeroizing<String>>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.files.iter().map(|file| &file.path))
            .finish()
    }
}

impl Sources {
    pub(crate) fn add(&mut self, path: PathBuf, text: Zeroizing<String>) -> u32 {
        self.note_read(&path);
        self.files.push(SourceFile {
            path,
            text: Arc::new(text),
        });
        (self.files.len() - 1) as u32
    }

    /// Records a file that was read, or a folder that was searched.
    pub(crate) fn note_read(&mut self, path: &Path) {
        self.read.push(path.to_owned());
    }

    pub(crate) fn take_read(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.read)
    }

    /// Wipes the text. Paths and places stay valid.
    pub(crate) fn forget_text(&mut self) {
        for file in &mut self.files {
            file.text = Arc::default();
        }
    }

    pub(crate) fn text(&self, file: u32) -> Arc<Zeroizing<String>> {
        self.files
            .get(file as usize)
            .map(|file| file.text.clone())
            .unwrap_or_default()
    }

    /// Returns the path of the file that contains `location`.
    pub fn path(&self, location: &Location) -> &Path {
        self.files
            .get(location.file as usize)
            .map_or(Path::new(""), |file| &file.path)
    }

    /// Returns the part of the line that a finding may show: from before `location` up to its end.
    /// The rest of the line may hold a secret and is left out.
    pub(crate) fn excerpt(&self, location: &Location) -> Option<Excerpt> {
        let file = self.files.get(location.file as usize)?;
        let text = file.text.as_str();
        let start = location.start as usize;
        let line_start = text.get(..start)?.rfind('\n').map_or(0, |at| at + 1);
        let line_rest = text.get(start..)?;
        let line_end = start + line_rest.find('\n').unwrap_or(line_rest.len());
        let before = text.get(line_start..start)?;
        // Before the shown text, only `key =` of the same statement may stand.
        let lead = match before.trim_end().strip_suffix('=') {
            Some(head) => head
                .trim_end()
                .rfind(|c: char| c.is_whitespace() || "{}=#\"".contains(c))
                .map_or(0, |at| at + 1),
            None => before.trim_end().len(),
        };
        let shown_before = match before.get(..lead)? {
            skipped if skipped.trim().is_empty() => before.to_owned(),
            _ => format!("… {}", before.get(lead..)?.trim_start()),
        };
        let end = location.end().clamp(start, line_end);
        let marked = text.get(start..end)?;
        let more = !text.get(end..line_end)?.trim().is_empty();
        Some(Excerpt {
            before: printable(&shown_before),
            marked: printable(marked),
            more,
        })
    }
}

pub(crate) struct Excerpt {
    pub before: String,
    pub marked: String,
    pub more: bool,
}

/// Makes `text` safe for a terminal: a tab becomes a space, and what steers becomes U+FFFD.
/// The result is also shortened.
pub(crate) fn printable(text: &str) -> String {
    const SHOWN_MAX: usize = 120;
    let mut out: String = text
        .chars()
        .take(SHOWN_MAX)
        .map(|c| match c {
            '\t' => ' ',
            c if steers(c) => '\u{fffd}',
            c => c,
        })
        .collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_file_steers_nothing() {
        let shown = printable("a\tb\u{1b}[2J\u{202e}\u{e9}");
        assert_eq!(shown, "a b\u{fffd}[2J\u{fffd}\u{e9}");
    }
}
