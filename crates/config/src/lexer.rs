//! Walks over the characters of a configuration file and keeps their places. The grammar is in
//! `syntax`.

use super::source::{Location, Spanned};

/// A position in one file.
pub(crate) struct Lexer<'a> {
    pub text: &'a str,
    file: u32,
    /// Offset in bytes.
    pub at: usize,
    pub line: u32,
    pub line_start: usize,
    /// Column in characters, from 1.
    column: u32,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str, file: u32) -> Self {
        Self {
            text,
            file,
            at: 0,
            line: 1,
            line_start: 0,
            column: 1,
        }
    }

    pub fn skip_byte_order_mark(&mut self) {
        if self.text.starts_with('\u{feff}') {
            self.at = '\u{feff}'.len_utf8();
            self.line_start = self.at;
        }
    }

    pub fn peek(&self) -> Option<char> {
        self.text.get(self.at..)?.chars().next()
    }

    pub fn bump(&mut self) -> Option<char> {
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

    pub fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let start = self.at;
        while self.peek().is_some_and(&accept) {
            self.bump();
        }
        &self.text[start..self.at]
    }

    pub fn skip_blanks(&mut self) {
        self.take_while(|c| matches!(c, ' ' | '\t' | '\r'));
    }

    pub fn skip_comment(&mut self) {
        if self.peek() == Some('#') {
            self.take_while(|c| c != '\n');
        }
    }

    /// Skips blanks, line ends and comments.
    pub fn skip_space(&mut self) {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
            if self.peek() != Some('#') {
                return;
            }
            self.skip_comment();
        }
    }

    /// Returns the location of the next `len` bytes.
    pub fn here(&self, len: usize) -> Location {
        Location {
            file: self.file,
            line: self.line,
            column: self.column,
            start: self.at as u32,
            len: len as u32,
            joins_lines: false,
        }
    }

    pub fn name(&mut self) -> Spanned<String> {
        let mut at = self.here(0);
        let name = self.take_while(is_name);
        at.len = name.len() as u32;
        Spanned {
            value: name.to_owned(),
            at,
        }
    }

    pub fn opens_section(&self) -> bool {
        self.text.get(self.at..).is_some_and(opens_section)
    }

    /// Tells whether the current line contains, before `end`, the start of a value, which may be a
    /// secret.
    pub fn after_value(&self, end: usize) -> bool {
        const LOOK_BACK_MAX: usize = 4096;
        if end.saturating_sub(self.line_start) > LOOK_BACK_MAX {
            return true;
        }
        let head = self.text.get(self.line_start..end).unwrap_or_default();
        head.contains('=') || head.contains('"') || head.to_ascii_lowercase().contains("secret")
    }
}

/// Tells whether `text` begins with a brace that is a token by itself.
pub(crate) fn opens_section(text: &str) -> bool {
    text.strip_prefix('{')
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// Tells whether `c` may occur in a section name, a key or the path of a reference.
pub(crate) fn is_name(c: char) -> bool {
    !matches!(
        c,
        '#' | '{' | '}' | '=' | '"' | ':' | ',' | '\r' | '\n' | '\t' | ' '
    )
}
