//! Errors and warnings about the configuration: each says what is wrong, where, and what to do. The
//! module formats findings; it does not decide what an error is.

use std::fmt::{self, Write};

use super::source::{Location, Sources, printable};

/// Upper bound of the findings that are kept; the rest are counted. A file that is no configuration
/// has one finding per line.
const COLLECTED_MAX: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

/// A finding. It never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub what: String,
    pub at: Option<Location>,
    pub help: Option<String>,
    /// The source line must not be shown, because it may contain a secret.
    pub(crate) hidden: bool,
}

impl Diagnostic {
    pub(crate) fn error(what: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            what: what.into(),
            at: None,
            help: None,
            hidden: false,
        }
    }

    pub fn warning(what: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(what)
        }
    }

    pub fn at(mut self, at: Location) -> Self {
        self.at = Some(at);
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn hide_source(mut self) -> Self {
        self.hidden = true;
        self
    }
}

/// All findings of one run over the configuration.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    pub(crate) sources: Sources,
    list: Vec<Diagnostic>,
    errors_left_out: usize,
    warnings_left_out: usize,
}

impl Diagnostics {
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        // A section that several others refer to is read once for each of them: keep one finding.
        if diagnostic.at.is_some() && self.list.contains(&diagnostic) {
            return;
        }
        if self.list.len() == COLLECTED_MAX {
            match diagnostic.severity {
                Severity::Error => self.errors_left_out += 1,
                Severity::Warning => self.warnings_left_out += 1,
            }
            return;
        }
        self.list.push(diagnostic);
    }

    /// Sorts the findings by place. Findings without a place come last.
    pub(crate) fn sort(&mut self) {
        self.list
            .sort_by_key(|diagnostic| (diagnostic.at.is_none(), diagnostic.at));
    }

    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn errors(&self) -> usize {
        self.list
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
            .count()
            + self.errors_left_out
    }

    pub fn warnings(&self) -> usize {
        self.list
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Warning)
            .count()
            + self.warnings_left_out
    }

    /// Renders the findings as text: each with its place, its source line and the advice.
    pub fn render(&self, colour: bool) -> String {
        let mut out = String::new();
        for diagnostic in &self.list {
            // Writing to a `String` cannot fail.
            let _ = self.render_one(&mut out, diagnostic, colour);
        }
        let left_out = self.errors_left_out + self.warnings_left_out;
        if left_out > 0 {
            let _ = writeln!(out, "... and {left_out} more");
        }
        out
    }

    /// The errors, each in one line with its place.
    pub fn error_lines(&self) -> impl Iterator<Item = String> {
        let errors = self.list.iter();
        let errors = errors.filter(|diagnostic| diagnostic.severity == Severity::Error);
        errors.map(|error| match &error.at {
            Some(at) => {
                let path = printable(&self.sources.path(at).display().to_string());
                format!("{path}:{}: {}", at.line, error.what)
            }
            None => error.what.clone(),
        })
    }

    /// The number of errors, in words.
    pub fn count(&self) -> String {
        match self.errors() {
            1 => "1 error".to_owned(),
            count => format!("{count} errors"),
        }
    }

    fn render_one(&self, out: &mut String, diagnostic: &Diagnostic, colour: bool) -> fmt::Result {
        let paint = |code: &'static str| if colour { code } else { "" };
        let (bold, dim, reset) = (paint("\x1b[1m"), paint("\x1b[2m"), paint("\x1b[0m"));
        let (word, tint) = match diagnostic.severity {
            Severity::Error => ("error", paint("\x1b[1;31m")),
            Severity::Warning => ("warning", paint("\x1b[1;33m")),
        };
        writeln!(out, "{tint}{word}{reset}{bold}: {}{reset}", diagnostic.what)?;
        if let Some(at) = &diagnostic.at {
            let path = printable(&self.sources.path(at).display().to_string());
            writeln!(out, "  {dim}-->{reset} {path}:{}:{}", at.line, at.column)?;
            if let Some(excerpt) = self.sources.excerpt(at).filter(|_| !diagnostic.hidden) {
                let number = at.line.to_string();
                let margin = " ".repeat(number.len());
                let more = if excerpt.more { " …" } else { "" };
                writeln!(
                    out,
                    " {dim}{number} |{reset} {}{}{more}",
                    excerpt.before, excerpt.marked
                )?;
                let skip = " ".repeat(excerpt.before.chars().count());
                let carets = "^".repeat(excerpt.marked.chars().count().max(1));
                writeln!(out, " {dim}{margin} |{reset} {skip}{tint}{carets}{reset}")?;
            }
        }
        if let Some(help) = &diagnostic.help {
            writeln!(out, "  {dim}={reset} {bold}help{reset}: {help}")?;
        }
        writeln!(out)
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Diagnostics {}

/// Puts a text from outside between back quotes, shortened, and with the control characters
/// replaced. Shows only the first line: behind a quote that was never closed, the next lines may
/// hold a secret.
pub(crate) fn quoted(text: &str) -> String {
    match text.split_once(['\n', '\r']) {
        Some((first, _)) => format!("`{}…`", printable(first)),
        None => format!("`{}`", printable(text)),
    }
}

/// Returns the candidate that is most like `word`, if one is similar enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    if word.len() > 64 {
        return None;
    }
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_ascii_lowercase()), candidate))
        .filter(|&(cost, _)| cost <= limit)
        .min_by_key(|&(cost, _)| cost)
        .map(|(_, candidate)| candidate)
}

/// Counts the edits that turn `a` into `b`: insertion, deletion, replacement, or a swap of
/// neighbours.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let width = b.len() + 1;
    let mut table = vec![0usize; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            let at = |i: usize, j: usize| i * width + j;
            table[at(i, j)] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = usize::from(a[i - 1] != b[j - 1]);
                let mut cost = (table[at(i - 1, j)] + 1)
                    .min(table[at(i, j - 1)] + 1)
                    .min(table[at(i - 1, j - 1)] + change);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    cost = cost.min(table[at(i - 2, j - 2)] + 1);
                }
                cost
            };
        }
    }
    table[a.len() * width + b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_typical_slips() {
        let keys = ["rekey_time", "remote_addrs", "local_addrs", "proposals"];
        assert_eq!(nearest("rekeytime", keys), Some("rekey_time"));
        assert_eq!(nearest("remote_adrs", keys), Some("remote_addrs"));
        assert_eq!(nearest("porposals", keys), Some("proposals"));
        assert_eq!(nearest("colour", keys), None);
    }
}
