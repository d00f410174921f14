//! Prints the demo's output: steps, checks, a live line and tables, at 80 columns. Output that is
//! no terminal is plain.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

const WIDTH: usize = 80;

#[derive(Debug)]
pub struct Ui {
    color: bool,
    live: bool,
    steps: u32,
    live_shown: bool,
    failures: Vec<String>,
    /// The first error of standard output.
    unwritten: io::Result<()>,
}

impl Ui {
    pub fn new(plain: bool) -> Self {
        let terminal = !plain
            && std::io::stdout().is_terminal()
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            color: terminal && std::env::var_os("NO_COLOR").is_none(),
            live: terminal,
            steps: 0,
            live_shown: false,
            failures: Vec::new(),
            unwritten: Ok(()),
        }
    }

    /// Tells whether [`Self::live`] shows anything.
    pub fn is_live(&self) -> bool {
        self.live
    }

    pub fn step(&mut self, title: &str) {
        self.steps += 1;
        let title = format!("{}. {title}", self.steps);
        let title = self.paint("1", &title);
        self.line(format_args!("\n{title}\n"));
    }

    pub fn line(&mut self, text: impl Display) {
        self.end_live();
        // Remember the error and continue: the demo must still clean up.
        let written = writeln!(io::stdout(), "{text}");
        if self.unwritten.is_ok() {
            self.unwritten = written;
        }
    }

    /// Returns the error of standard output, if any. A reader that closed its pipe early (`| head`)
    /// is no error.
    pub fn finish(self) -> io::Result<()> {
        match self.unwritten {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    /// Prints indented text that belongs to a step.
    pub fn text(&mut self, text: impl Display) {
        for line in text.to_string().lines() {
            self.line(format_args!("  {line}").to_string().trim_end());
        }
    }

    pub fn faint(&mut self, text: impl Display) {
        for line in text.to_string().lines() {
            let line = self.paint("2", line);
            self.line(format_args!("  {line}"));
        }
    }

    /// Replaces the live line. Does nothing unless the output is a terminal.
    pub fn live(&mut self, text: impl Display) {
        if self.live {
            self.live_shown = true;
            let mut out = std::io::stdout();
            let _ = write!(out, "\r\x1b[2K  {text}");
            let _ = out.flush();
        }
    }

    fn end_live(&mut self) {
        if std::mem::take(&mut self.live_shown) {
            let _ = write!(std::io::stdout(), "\r\x1b[2K");
        }
    }

    /// Reports a check, and remembers it if it failed.
    pub fn check(&mut self, passed: bool, text: impl Display) {
        let text = text.to_string();
        let verdict = if passed {
            self.paint("32", "ok  ")
        } else {
            self.paint("1;31", "FAIL")
        };
        self.line(format_args!("  {verdict}  {text}"));
        if !passed {
            self.failures.push(text);
        }
    }

    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Prints rows of a name and a value, aligned.
    pub fn table(&mut self, rows: &[(&str, String)]) {
        let width = rows
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or_default();
        for (name, value) in rows {
            let name = self.paint("2", &format!("{name:width$}"));
            let mut lines = wrap(value, WIDTH - width - 6);
            self.line(format_args!(
                "  {name}  {}",
                lines.next().unwrap_or_default()
            ));
            for rest in lines {
                self.line(format_args!("  {:width$}  {rest}", ""));
            }
        }
    }

    pub fn paint(&self, code: &str, text: &str) -> String {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Breaks text at spaces. A word longer than `width` stays whole.
pub fn wrap(text: &str, width: usize) -> impl Iterator<Item = String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter()
}

/// Formats bytes in hexadecimal, sixteen in a line, with the printable characters beside them.
pub fn hex_dump(bytes: &[u8]) -> String {
    let line = |(index, part): (usize, &[u8])| {
        let hex: String = part.iter().map(|byte| format!("{byte:02x} ")).collect();
        let text: String = part
            .iter()
            .map(|&byte| {
                if byte.is_ascii_graphic() {
                    char::from(byte)
                } else {
                    '.'
                }
            })
            .collect();
        format!("{:04x}  {hex:<48} {text}\n", index * 16)
    };
    bytes.chunks(16).enumerate().map(line).collect()
}

/// Formats a rate with three significant digits.
pub fn bits_per_second(rate: f64) -> String {
    let (value, unit) = match rate {
        r if r >= 1e9 => (r / 1e9, "Gbit/s"),
        r if r >= 1e6 => (r / 1e6, "Mbit/s"),
        r => (r / 1e3, "kbit/s"),
    };
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_spaces() {
        let lines: Vec<_> = wrap("one two three verylongword four", 9).collect();
        assert_eq!(lines, ["one two", "three", "verylongword", "four"]);
    }

    #[test]
    fn rates_have_three_digits() {
        assert_eq!(bits_per_second(8.456e9), "8.46 Gbit/s");
        assert_eq!(bits_per_second(123.4e6), "123 Mbit/s");
        assert_eq!(bits_per_second(15_040.0), "15.0 kbit/s");
    }

    #[test]
    fn dumps_show_offset_bytes_and_text() {
        assert_eq!(
            hex_dump(b"Hello, wire 0123"),
            "0000  48 65 6c 6c 6f 2c 20 77 69 72 65 20 30 31 32 33  Hello,.wire.0123\n"
        );
    }
}
