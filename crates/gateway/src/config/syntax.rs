//! The grammar of swanctl.conf and strongswan.conf.
//!
//! ```text
//! statements := (section | value | include)*
//! section    := name [":" path ("," path)*] "{" statements "}"
//! value      := key "=" (word | quoted)*      up to the end of the line, "#" or "}"
//! include    := "include" pattern             relative to the including file
//! ```
//!
//! A section that comes again extends the first; a value that comes again replaces the first.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::include;
use super::source::{Location, Spanned};
use super::tree::{Entry, Node};

const SECTION_DEPTH_MAX: usize = 16;
const INCLUDE_DEPTH_MAX: usize = 10;
const FILES_MAX: usize = 20_000;
const FILE_BYTES_MAX: u64 = 16 << 20;
const TOTAL_BYTES_MAX: u64 = 128 << 20;

/// Reads `path` and all that it includes.
pub(super) fn read(path: &Path, diagnostics: &mut Diagnostics) -> Node {
    let mut reader = Reader {
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
    let mut root = Node::new(Spanned {
        value: String::new(),
        at: nowhere,
    });
    reader.file(path, None, &mut root, &mut Vec::new());
    root
}

/// Parses `text` as if it were the file `path`; relative includes start at its directory.
pub(super) fn read_text(path: &Path, text: &str, diagnostics: &mut Diagnostics) -> Node {
    let mut reader = Reader {
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
    let mut root = Node::new(Spanned {
        value: String::new(),
        at,
    });
    reader.text(file, path, text, &mut root, &mut Vec::new());
    root
}

struct Reader<'a> {
    diagnostics: &'a mut Diagnostics,
    files: usize,
    bytes: u64,
    /// Files being read, the outermost first.
    open: Vec<PathBuf>,
}

impl Reader<'_> {
    /// `sections` are the names of the sections around, `from` is the include statement.
    fn file(
        &mut self,
        path: &Path,
        from: Option<Location>,
        into: &mut Node,
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
        into: &mut Node,
        sections: &mut Vec<String>,
    ) {
        let lexer = Lexer {
            text,
            file,
            at: 0,
            line: 1,
            line_start: 0,
            column: 1,
        };
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

/// A position in one file.
struct Lexer<'a> {
    text: &'a str,
    file: u32,
    at: usize,
    line: u32,
    line_start: usize,
    /// From 1, in characters.
    column: u32,
}

impl<'a> Lexer<'a> {
    fn skip_byte_order_mark(&mut self) {
        if self.text.starts_with('\u{feff}') {
            self.at = '\u{feff}'.len_utf8();
            self.line_start = self.at;
        }
    }

    fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        if c == '\n' {
            self.line += 1;
            self.line_start = self.at;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(&accept) {
            self.bump();
        }
        &self.text[start..self.at]
    }

    fn skip_blanks(&mut self) {
        self.take_while(|c| matches!(c, ' ' | '\t' | '\r'));
    }

    fn skip_comment(&mut self) {
        if self.peek() == Some('#') {
            self.take_while(|c| c != '\n');
        }
    }

    /// Blanks, line ends and comments.
    fn skip_space(&mut self) {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
            if self.peek() != Some('#') {
                return;
            }
            self.skip_comment();
        }
    }

    /// The next `len` bytes.
    fn here(&self, len: usize) -> Location {
        Location {
            file: self.file,
            line: self.line,
            column: self.column,
            start: self.at as u32,
            len: len as u32,
            joins_lines: false,
        }
    }

    fn name(&mut self) -> Spanned<String> {
        let mut at = self.here(0);
        let name = self.take_while(is_name);
        at.len = name.len() as u32;
        Spanned {
            value: name.to_owned(),
            at,
        }
    }

    /// Whether the current line, up to `end`, shows that a value (perhaps a secret) has begun.
    fn after_value(&self, end: usize) -> bool {
        const LOOK_BACK_MAX: usize = 4096;
        if end.saturating_sub(self.line_start) > LOOK_BACK_MAX {
            return true;
        }
        let head = self.text.get(self.line_start..end).unwrap_or_default();
        head.contains('=') || head.contains('"') || head.to_ascii_lowercase().contains("secret")
    }
}

struct Parser<'r, 'd, 'a> {
    reader: &'r mut Reader<'d>,
    lexer: Lexer<'a>,
    path: &'a Path,
    sections: &'r mut Vec<String>,
    /// How many of `sections` were open when this file began.
    base: usize,
}

impl Parser<'_, '_, '_> {
    /// Statements up to the closing brace of the section or the end of the file.
    fn statements(&mut self, into: &mut Node) {
        // Keys of this pair of braces; a repetition in one block is worth a warning.
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

    fn statement(&mut self, into: &mut Node, block: &mut std::collections::HashSet<String>) {
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
            let value = self.value();
            if !value.value.is_empty() && !block.insert(name.value.clone()) {
                let what = format!(
                    "{} is set twice in this section; the later value counts",
                    quoted(&name.value)
                );
                self.error(
                    Diagnostic::warning(what)
                        .at(at)
                        .help("remove one of the two"),
                );
            }
            into.set(Entry { key: name, value });
            return;
        }
        let quotable =
            line_start == self.lexer.line_start && !self.lexer.after_value(at.start as usize);
        // The opening brace may stand on a line of its own.
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

    fn section(
        &mut self,
        name: Spanned<String>,
        references: Vec<Spanned<String>>,
        into: &mut Node,
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

    /// Words and quoted strings up to the end of the line, joined by single spaces.
    fn value(&mut self) -> Spanned<Zeroizing<String>> {
        self.lexer.skip_blanks();
        let mut value = Zeroizing::new(String::new());
        let mut at = self.lexer.here(0);
        let start = self.lexer.at;
        let mut first = true;
        let mut end = start;
        let mut one_line = true;
        loop {
            self.lexer.skip_blanks();
            match self.lexer.peek() {
                None | Some('\n' | '#' | '}') => break,
                Some('"') => {
                    if !first {
                        value.push(' ');
                    }
                    let line = self.lexer.line;
                    at.joins_lines |= self.string(&mut value);
                    one_line &= line == self.lexer.line;
                }
                Some(_) => {
                    if !first {
                        value.push(' ');
                    }
                    value.push_str(
                        self.lexer.take_while(|c| {
                            !matches!(c, '#' | '}' | '"' | '\r' | '\n' | '\t' | ' ')
                        }),
                    );
                }
            }
            first = false;
            if one_line {
                end = self.lexer.at;
            }
        }
        at.len = (end - start) as u32;
        Spanned { value, at }
    }

    /// Whether it joins lines.
    fn string(&mut self, into: &mut String) -> bool {
        let at = self.lexer.here(1);
        let mut joins_lines = false;
        self.lexer.bump();
        loop {
            match self.lexer.bump() {
                Some('"') => return joins_lines,
                Some('\r') => {}
                Some('\\') => match self.lexer.bump() {
                    Some('n') => into.push('\n'),
                    Some('r') => into.push('\r'),
                    Some('t') => into.push('\t'),
                    // An escaped line end joins the lines.
                    Some('\n') => joins_lines = true,
                    Some('\r') if self.lexer.peek() == Some('\n') => {
                        self.lexer.bump();
                        joins_lines = true;
                    }
                    Some(c) => into.push(c),
                    None => {}
                },
                Some(c) => into.push(c),
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
        joins_lines
    }

    fn include(&mut self, at: Location, into: &mut Node) {
        let mut pattern = Zeroizing::new(String::new());
        if self.lexer.peek() == Some('"') {
            if self.string(&mut pattern) {
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
        match include::expand(directory, &pattern, FILES_MAX) {
            Ok(files) => {
                for file in files {
                    self.reader.file(&file, Some(at), into, self.sections);
                }
            }
            Err(error) => self.error(Diagnostic::error(error.what).at(at).help(error.help)),
        }
    }

    /// Punctuation where a statement should begin.
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
                // Read on inside, so that its errors are found too, but keep nothing.
                let mut nameless = Node::new(Spanned {
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
                self.string(&mut Zeroizing::new(String::new()));
            }
            '=' => {
                self.lexer.bump();
                let _ = self.value();
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

/// Letters of section names, keys and paths of references.
fn is_name(c: char) -> bool {
    !matches!(
        c,
        '#' | '{' | '}' | '=' | '"' | ':' | ',' | '\r' | '\n' | '\t' | ' '
    )
}
