//! Parses the grammar of swanctl.conf and strongswan.conf into a tree of sections. It knows no
//! keys, except for hints about mistakes.
//!
//! ```text
//! statements := (section | value | include)*
//! section    := name [":" path ("," path)*] "{" statements "}"
//! value      := key "=" (word | quoted)*      up to the end of the line, "#" or "}"
//! include    := "include" pattern             relative to the including file
//! ```
//!
//! A section that occurs again extends the first one. A value that occurs again replaces the first
//! one.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::include;
use super::lexer::{Lexer, is_name, opens_section};
use super::schema;
use super::source::{Location, Spanned};
use super::tree::{GivenValue, KeyValue, SectionNode};
use super::wiped::Wiped;

const SECTION_DEPTH_MAX: usize = 16;
const INCLUDE_DEPTH_MAX: usize = 10;
const FILES_MAX: usize = 20_000;
const FILE_BYTES_MAX: u64 = 16 << 20;
const TOTAL_BYTES_MAX: u64 = 128 << 20;

/// Reads the file `path` and everything that it includes.
pub(crate) fn read(path: &Path, diagnostics: &mut Diagnostics) -> SectionNode {
    let mut reader = ConfigReader {
        diagnostics,
        files: 0,
        bytes: 0,
        open: Vec::new(),
    };
    let nowhere = Location {
        file: 0,
        line: 1,
        column: 1,
        start: 0,
        len: 0,
        joins_lines: false,
    };
    let mut root = SectionNode::new(Spanned {
        value: String::new(),
        at: nowhere,
    });
    reader.file(path, None, &mut root, &mut Vec::new());
    root
}

/// Parses `text` as if it were the file `path`. Relative includes start at the directory of `path`.
pub(crate) fn read_text(path: &Path, text: &str, diagnostics: &mut Diagnostics) -> SectionNode {
    let mut reader = ConfigReader {
        diagnostics,
        files: 1,
        bytes: 0,
        open: vec![path.to_owned()],
    };
    let file = reader
        .diagnostics
        .sources
        .add(path.to_owned(), Zeroizing::new(text.to_owned()));
    let at = Location {
        file,
        line: 1,
        column: 1,
        start: 0,
        len: 0,
        joins_lines: false,
    };
    let mut root = SectionNode::new(Spanned {
        value: String::new(),
        at,
    });
    reader.text(file, path, text, &mut root, &mut Vec::new());
    root
}

struct ConfigReader<'a> {
    diagnostics: &'a mut Diagnostics,
    files: usize,
    bytes: u64,
    /// The files that are being read, the outermost first.
    open: Vec<PathBuf>,
}

impl ConfigReader<'_> {
    /// Reads one file. `sections` names the sections around the include statement `from`.
    fn file(
        &mut self,
        path: &Path,
        from: Option<Location>,
        into: &mut SectionNode,
        sections: &mut Vec<String>,
    ) {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let place = |diagnostic: Diagnostic| match from {
            Some(at) => diagnostic.at(at),
            None => diagnostic,
        };
        let name = quoted(&path.display().to_string());
        let refused = if self.open.contains(&path) {
            Some((
                format!("{name} includes itself"),
                "remove one of the includes that form the circle",
            ))
        } else if self.open.len() > INCLUDE_DEPTH_MAX {
            Some((
                format!("includes are nested deeper than {INCLUDE_DEPTH_MAX}"),
                "flatten the include chain",
            ))
        } else if self.files == FILES_MAX {
            Some((
                format!("more than {FILES_MAX} files are included"),
                "join files",
            ))
        } else {
            None
        };
        if let Some((what, help)) = refused {
            self.diagnostics
                .push(place(Diagnostic::error(what).help(help)));
            return;
        }
        let text =
            match include::read_bounded(&path, FILE_BYTES_MAX.min(TOTAL_BYTES_MAX - self.bytes)) {
                Ok(text) => text,
                Err(error) => {
                    let what = format!("cannot read {name}: {}", error.what);
                    self.diagnostics
                        .push(place(Diagnostic::error(what).help(error.help)));
                    return;
                }
            };
        self.files += 1;
        self.bytes += text.len() as u64;
        let file = self.diagnostics.sources.add(path.clone(), text);
        let text = self.diagnostics.sources.text(file);
        self.open.push(path.clone());
        self.text(file, &path, &text, into, sections);
        self.open.pop();
    }

    fn text(
        &mut self,
        file: u32,
        path: &Path,
        text: &str,
        into: &mut SectionNode,
        sections: &mut Vec<String>,
    ) {
        let lexer = Lexer::new(text, file);
        let mut parser = Parser {
            reader: self,
            lexer,
            path,
            sections,
            base: 0,
        };
        parser.base = parser.sections.len();
        parser.lexer.skip_byte_order_mark();
        parser.statements(into);
    }
}

struct Parser<'r, 'd, 'a> {
    reader: &'r mut ConfigReader<'d>,
    lexer: Lexer<'a>,
    path: &'a Path,
    sections: &'r mut Vec<String>,
    /// Number of `sections` that were open when this file began.
    base: usize,
}

impl Parser<'_, '_, '_> {
    /// Parses statements up to the closing brace of the section, or up to the end of the file.
    fn statements(&mut self, into: &mut SectionNode) {
        // The keys between this pair of braces. A repetition within one block causes a warning.
        let mut block = std::collections::HashSet::new();
        loop {
            self.lexer.skip_space();
            let Some(c) = self.lexer.peek() else { return };
            match c {
                '}' if self.sections.len() > self.base => return,
                '}' => {
                    let at = self.lexer.here(1);
                    let what = "this closing brace closes nothing";
                    self.error(
                        Diagnostic::error(what)
                            .at(at)
                            .help("remove it, or open a section before it"),
                    );
                    self.lexer.bump();
                }
                '{' | '=' | '"' | ':' | ',' => self.stray(c),
                _ => self.statement(into, &mut block),
            }
        }
    }

    fn statement(&mut self, into: &mut SectionNode, block: &mut std::collections::HashSet<String>) {
        let line_start = self.lexer.line_start;
        let name = self.lexer.name();
        let at = name.at;
        let blank = matches!(self.lexer.peek(), Some(' ' | '\t'));
        self.lexer.skip_blanks();
        if name.value == "include" && blank && self.lexer.peek() != Some('=') {
            self.include(at, into);
            return;
        }
        if self.lexer.peek() == Some('=') {
            self.lexer.bump();
            self.lexer.skip_blanks();
            if self.lexer.opens_section() {
                let what = format!("{} is a section, not a value", quoted(&name.value));
                let help = "write `name { … }`, without the equals sign";
                self.error(Diagnostic::error(what).at(at).help(help));
                self.lexer.bump();
                self.section(name, Vec::new(), into);
                return;
            }
            let value = self.value(&name.value);
            let entry = KeyValue {
                key: name,
                value,
                inherited: false,
            };
            self.set(entry, into, block);
            return;
        }
        let quotable =
            line_start == self.lexer.line_start && !self.lexer.after_value(at.start as usize);
        // The opening brace may stand on its own line.
        let references = self.references();
        self.lexer.skip_space();
        if self.lexer.peek() == Some('{') {
            self.lexer.bump();
            self.section(name, references, into);
            return;
        }
        let what = match quotable && !self.in_secrets() {
            true => format!("{} is neither a setting nor a section", quoted(&name.value)),
            false => "this is neither a setting nor a section".to_owned(),
        };
        let help = "write `key = value` or `name { … }`; a value that continues, or has # or } in it, needs quotes";
        let diagnostic = Diagnostic::error(what).at(at).help(help);
        self.error(if quotable {
            diagnostic
        } else {
            diagnostic.hide_source()
        });
    }

    fn set(
        &mut self,
        entry: KeyValue,
        into: &mut SectionNode,
        block: &mut std::collections::HashSet<String>,
    ) {
        let Spanned { value: name, at } = entry.key.clone();
        let text = entry.value.value.clone();
        let given = !text.is_empty();
        let replaced = into.set(entry);
        if given && !block.insert(name.clone()) {
            let what = format!(
                "{} is set twice in this section; the later value counts",
                quoted(&name)
            );
            self.error(
                Diagnostic::warning(what)
                    .at(at)
                    .help("remove one of the two"),
            );
            return;
        }
        // Another file may override a value on purpose. Twice in one file looks like a copied
        // section that was not renamed.
        if let Some(old) = replaced
            && old.key.at.file == at.file
            && !old.value.value.is_empty()
            && old.value.value.peek() != text.peek()
        {
            let what = format!(
                "{} is set in line {} already, in a section of the same name; the later value counts",
                quoted(&name),
                old.key.at.line
            );
            let help = "rename one of the two sections, or remove one of the two values";
            self.error(Diagnostic::warning(what).at(at).help(help));
        }
    }

    fn section(
        &mut self,
        name: Spanned<String>,
        references: Vec<Spanned<String>>,
        into: &mut SectionNode,
    ) {
        let at = name.at;
        if self.sections.len() == SECTION_DEPTH_MAX {
            let what = format!("sections are nested deeper than {SECTION_DEPTH_MAX}");
            self.error(
                Diagnostic::error(what)
                    .at(at)
                    .help("close sections before this one"),
            );
            self.skip_section();
            return;
        }
        let shown = quoted(&name.value);
        self.sections.push(name.value.clone());
        let node = into.open(name);
        node.references.extend(references);
        self.statements(node);
        if self.lexer.peek() == Some('}') {
            self.lexer.bump();
        } else {
            let what = format!("section {shown} is never closed");
            self.error(Diagnostic::error(what).at(at).help("add the closing brace"));
        }
        self.sections.pop();
    }

    /// Skips to the brace that closes a section that is nested too deep.
    fn skip_section(&mut self) {
        let mut depth = 1usize;
        while depth > 0 {
            match self.lexer.bump() {
                Some('{') => depth += 1,
                Some('}') => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }

    fn references(&mut self) -> Vec<Spanned<String>> {
        let mut references = Vec::new();
        if self.lexer.peek() != Some(':') {
            return references;
        }
        loop {
            self.lexer.bump();
            self.lexer.skip_space();
            let path = self.lexer.name();
            if path.value.is_empty() {
                let help = "name the section to inherit from, such as `connections.site`";
                self.error(
                    Diagnostic::error("a reference is missing here")
                        .at(path.at)
                        .help(help),
                );
            } else {
                references.push(path);
            }
            self.lexer.skip_space();
            if self.lexer.peek() != Some(',') {
                return references;
            }
        }
    }

    /// Parses words and quoted strings up to the end of the line, and joins them by single spaces.
    fn value(&mut self, key: &str) -> Spanned<GivenValue> {
        self.lexer.skip_blanks();
        let mut value = Wiped::default();
        let mut at = self.lexer.here(0);
        let start = self.lexer.at;
        let mut end = start;
        let mut one_line = true;
        let mut odd = OddValue::default();
        loop {
            let before = self.lexer.at;
            self.lexer.skip_blanks();
            let first = self.lexer.at == start;
            let gap = &self.lexer.text[before..self.lexer.at];
            match self.lexer.peek() {
                None | Some('\n' | '}') => break,
                Some('#') => {
                    odd.comment = gap.is_empty() && !first;
                    break;
                }
                Some(_) if !first && self.next_statement() => {
                    let len = value.trim_end_matches(';').len();
                    value.truncate(len);
                    break;
                }
                Some(c) => {
                    if !first {
                        odd.joined |= gap != " ";
                        value.push(' ');
                    }
                    if c == '"' {
                        let line = self.lexer.line;
                        let string = self.string(&mut value);
                        at.joins_lines |= string.joins_lines;
                        odd.lines |= string.lines;
                        odd.escape |= string.escape;
                        one_line &= line == self.lexer.line;
                    } else {
                        value.push_str(self.lexer.take_while(|c| {
                            !matches!(c, '#' | '}' | '"' | '\r' | '\n' | '\t' | ' ')
                        }));
                    }
                }
            }
            if one_line {
                end = self.lexer.at;
            }
        }
        at.len = (end - start) as u32;
        self.report_odd(&odd, key, at);
        Spanned {
            value: GivenValue::new(value.into_inner()),
            at,
        }
    }

    /// Reports text after a value that looks like the next setting or section, and returns true.
    /// The grammar wants a line break there; without one, the value would swallow the text.
    fn next_statement(&mut self) -> bool {
        let rest = &self.lexer.text[self.lexer.at..];
        let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        let then = rest[name.len()..].trim_start_matches([' ', '\t']);
        // A distinguished name has equals signs too, after commas. Its attributes do not have the names of keys.
        let in_list = self.lexer.text[..self.lexer.at]
            .trim_end()
            .ends_with([',', '/', '+']);
        let setting = then.starts_with('=') && !in_list && schema::is_key_anywhere(name);
        let section = !name.is_empty() && opens_section(then);
        if !setting && !section {
            return false;
        }
        let at = self.lexer.here(name.len());
        let (what, help) = match setting {
            true => (
                format!("two settings on one line: {} begins another", quoted(name)),
                "end each setting with a line break or `}`; a value that holds this needs quotes",
            ),
            false => (
                "a section begins behind a value on one line".to_owned(),
                "end each setting with a line break or `}`; a value that holds `{` needs quotes",
            ),
        };
        self.error(Diagnostic::error(what).at(at).help(help));
        true
    }

    /// Reports values that the grammar reads otherwise than they look. A secret or an identity
    /// would silently be wrong, and only the peer's refusal would show it.
    fn report_odd(&mut self, odd: &OddValue, key: &str, at: Location) {
        let secret = key == "secret" || self.in_secrets();
        let decisive = secret || key.starts_with("id");
        let mut report = |what: String, help: &str| {
            let diagnostic = match decisive {
                true => Diagnostic::error(what),
                false => Diagnostic::warning(what),
            };
            let diagnostic = diagnostic.at(at).help(help);
            self.error(match secret {
                true => diagnostic.hide_source(),
                false => diagnostic,
            });
        };
        let key = quoted(key);
        if odd.comment {
            report(
                format!("{key}: `#` begins a comment, so the value ends in front of it"),
                "put the value into quotes if `#` belongs to it, else a blank in front of `#`",
            );
        }
        if odd.escape {
            report(
                format!("{key}: a backslash in quotes is not kept"),
                "write `\\\\` for a backslash",
            );
        }
        if secret && odd.joined {
            report(
                format!("{key}: its parts are joined by single spaces"),
                "put the whole value into one pair of quotes",
            );
        }
        if secret && odd.lines {
            report(
                format!("{key}: the quoted string has a line break in it"),
                "close the quote on its line; write `\\n` if a line break belongs to it",
            );
        }
    }

    /// Parses a quoted string and appends its content to `into`.
    fn string(&mut self, into: &mut Wiped) -> Quoted {
        let at = self.lexer.here(1);
        let mut read = Quoted::default();
        self.lexer.bump();
        loop {
            match self.lexer.bump() {
                Some('"') => return read,
                Some('\r') => {}
                Some('\\') => match self.lexer.bump() {
                    Some('n') => into.push('\n'),
                    Some('r') => into.push('\r'),
                    Some('t') => into.push('\t'),
                    // A backslash before a line end joins the two lines.
                    Some('\n') => read.joins_lines = true,
                    Some('\r') if self.lexer.peek() == Some('\n') => {
                        self.lexer.bump();
                        read.joins_lines = true;
                    }
                    Some(c) => {
                        read.escape |= c.is_alphanumeric();
                        into.push(c);
                    }
                    None => {}
                },
                Some(c) => {
                    read.lines |= c == '\n';
                    into.push(c);
                }
                None => break,
            }
        }
        let help = "add the closing double quote; inside quotes write \\\" for a double quote and \\\\ for a backslash";
        self.error(
            Diagnostic::error("this quoted string is never closed")
                .at(at)
                .help(help)
                .hide_source(),
        );
        read.lines = false;
        read
    }

    fn include(&mut self, at: Location, into: &mut SectionNode) {
        let mut pattern = Wiped::default();
        if self.lexer.peek() == Some('"') {
            if self.string(&mut pattern).joins_lines {
                let help = "perhaps a quote in front of it is never closed";
                self.error(
                    Diagnostic::error("the name of a file goes on one line")
                        .at(at)
                        .help(help)
                        .hide_source(),
                );
                return;
            }
        } else {
            loop {
                match self.lexer.peek() {
                    None | Some('#' | '}' | '\n' | '\r' | '\t' | ' ') => break,
                    Some('\\') => {
                        self.lexer.bump();
                        match self.lexer.peek() {
                            Some(c @ ('"' | '#' | '}' | ' ')) => {
                                self.lexer.bump();
                                pattern.push(c);
                            }
                            _ => pattern.push('\\'),
                        }
                    }
                    Some(c) => {
                        self.lexer.bump();
                        pattern.push(c);
                    }
                }
            }
        }
        if pattern.is_empty() {
            let help = "name a file or a pattern, such as `include conf.d/*.conf`";
            self.error(
                Diagnostic::error("`include` names no file")
                    .at(at)
                    .help(help),
            );
            return;
        }
        let directory = self.path.parent().unwrap_or(Path::new("."));
        if let Some(folder) = include::searched(directory, &pattern) {
            self.reader.diagnostics.sources.note_read(&folder);
        }
        match include::expand(directory, &pattern, FILES_MAX) {
            Ok(files) => {
                for file in files {
                    self.reader.file(&file, Some(at), into, self.sections);
                }
            }
            Err(error) => self.error(Diagnostic::error(error.what).at(at).help(error.help)),
        }
    }

    /// Reports punctuation where a statement should begin.
    fn stray(&mut self, c: char) {
        let at = self.lexer.here(c.len_utf8());
        let (what, help) = match c {
            '{' => ("a section has no name", "write `name { … }`"),
            '=' => ("a value has no key", "write `key = value`"),
            '"' => (
                "a quoted string stands where a key should be",
                "write `key = \"value\"`; names take no quotes",
            ),
            _ => (
                "a reference has no section",
                "write `name : other.section { … }`",
            ),
        };
        self.error(Diagnostic::error(what).at(at).help(help).hide_source());
        match c {
            '{' => {
                self.lexer.bump();
                // Parse the content so that its errors are reported, but keep nothing.
                let mut nameless = SectionNode::new(Spanned {
                    value: String::new(),
                    at,
                });
                if self.sections.len() == SECTION_DEPTH_MAX {
                    self.skip_section();
                    return;
                }
                let inner = self.sections.last().cloned().unwrap_or_default();
                self.sections.push(inner);
                self.statements(&mut nameless);
                self.lexer.bump();
                self.sections.pop();
            }
            '"' => {
                self.string(&mut Wiped::default());
            }
            '=' => {
                self.lexer.bump();
                let _ = self.value("");
            }
            _ => {
                self.lexer.bump();
            }
        }
    }

    fn in_secrets(&self) -> bool {
        self.sections
            .iter()
            .any(|name| name.to_ascii_lowercase().contains("secret"))
    }

    fn error(&mut self, diagnostic: Diagnostic) {
        let hidden = self.in_secrets();
        self.reader.diagnostics.push(if hidden {
            diagnostic.hide_source()
        } else {
            diagnostic
        });
    }
}

/// The peculiarities of a quoted string.
#[derive(Default)]
struct Quoted {
    /// A backslash at the end of a line joined two lines.
    joins_lines: bool,
    /// The string contained a line break.
    lines: bool,
    /// A letter or digit lost its backslash.
    escape: bool,
}

/// Reasons why a value differs from what it looks like.
#[derive(Default)]
struct OddValue {
    /// A comment begins right after the value, without a blank.
    comment: bool,
    /// The blanks between its parts were not single spaces.
    joined: bool,
    lines: bool,
    escape: bool,
}
