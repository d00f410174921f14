//! Entries for the journal of systemd, in its native protocol (systemd's "Native Journal Protocol", and
//! systemd.journal-fields(7)): one datagram for each entry, with the event's fields beside its text.
//!
//! The crate `tracing-journald` speaks it too. It sends from the thread that logs, which may then wait for the
//! journal, and it puts long entries into a memfd, which the confined gateway may not make.

use std::fmt::{Debug, Write as _};
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use tracing::field::{Field, Visit};

/// The socket of the journal.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// Most bytes of a value and of an entry. An entry fits into one datagram with the usual limits of sockets.
const VALUE_MAX: usize = 16 << 10;
const ENTRY_MAX: usize = 48 << 10;
/// Most bytes of a field's name. The journal ignores fields with longer ones.
const NAME_MAX: usize = 64;

/// An entry in the making.
#[derive(Debug)]
pub(super) struct Entry(Vec<u8>);

impl Entry {
    pub fn new(text: &str, priority: u8) -> Self {
        let mut entry = Self(Vec::new());
        entry.field("PRIORITY", &priority.to_string());
        entry.field("SYSLOG_IDENTIFIER", "esplanade");
        entry.field("MESSAGE", text.trim_end());
        entry
    }

    /// Adds a field of ours. Fields that find no room are left out: the text has them too.
    pub fn own(&mut self, name: &str, value: &str) {
        let mut full = "ESPLANADE_".to_owned();
        full.extend(name.chars().map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' => c.to_ascii_uppercase(),
            _ => '_',
        }));
        full.truncate(NAME_MAX);
        self.field(&full, value);
    }

    fn field(&mut self, name: &str, value: &str) {
        let value = value.get(..value.floor_char_boundary(VALUE_MAX));
        let value = value.unwrap_or_default().as_bytes();
        if self.0.len() + name.len() + value.len() > ENTRY_MAX {
            return;
        }
        self.0.extend(name.as_bytes());
        // A value with a line's end goes with its length in front, and so cannot pass for further fields.
        if value.contains(&b'\n') {
            self.0.push(b'\n');
            self.0.extend((value.len() as u64).to_le_bytes());
        } else {
            self.0.push(b'=');
        }
        self.0.extend(value);
        self.0.push(b'\n');
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() != "message" {
            self.own(field.name(), value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() != "message" {
            let mut text = String::new();
            // Writing to a String fails only if the value itself does.
            let _ = write!(text, "{value:?}");
            self.own(field.name(), &text);
        }
    }
}

/// The way to the journal. Each write is an entry.
#[derive(Debug)]
pub(super) struct JournalSocket {
    socket: UnixDatagram,
    path: PathBuf,
}

impl JournalSocket {
    /// Connects before the gateway gives up its rights.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
        })
    }
}

impl Write for JournalSocket {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let sent = match self.socket.send(entry) {
            Err(error) if is_gone(&error) => {
                // The journal was started anew, perhaps with another socket.
                self.socket.connect(&self.path)?;
                self.socket.send(entry)
            }
            sent => sent,
        };
        match sent {
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                let lost = Entry::new(
                    "an entry is lost: the journal's socket takes only shorter ones",
                    3,
                );
                self.socket.send(&lost.into_bytes())?;
                Ok(entry.len())
            }
            sent => sent,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::NotConnected
            | io::ErrorKind::BrokenPipe
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an entry as the journal does.
    fn parsed(mut entry: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        while !entry.is_empty() {
            let end = entry.iter().position(|b| b"=\n".contains(b)).unwrap();
            let (name, rest) = entry.split_at(end);
            let (value, rest) = match rest[0] {
                b'=' => {
                    let end = rest.iter().position(|b| *b == b'\n').unwrap();
                    (&rest[1..end], &rest[end..])
                }
                _ => {
                    let (len, rest) = rest[1..].split_first_chunk::<8>().unwrap();
                    rest.split_at(u64::from_le_bytes(*len) as usize)
                }
            };
            assert_eq!(rest[0], b'\n');
            entry = &rest[1..];
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            fields.push((text(name), text(value)));
        }
        fields
    }

    #[test]
    fn no_value_passes_for_another_field() {
        let mut entry = Entry::new("one\ntwo\n", 4);
        entry.own("reason", "x\nPRIORITY=0\nMESSAGE=all is well");
        entry.own("local-id", "a=b\u{1b}[2J");
        let fields = parsed(&entry.into_bytes());
        let fields: Vec<_> = fields
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        let expected = [
            ("PRIORITY", "4"),
            ("SYSLOG_IDENTIFIER", "esplanade"),
            ("MESSAGE", "one\ntwo"),
            ("ESPLANADE_REASON", "x\nPRIORITY=0\nMESSAGE=all is well"),
            ("ESPLANADE_LOCAL_ID", "a=b\u{1b}[2J"),
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn an_entry_has_a_bound() {
        let mut entry = Entry::new(&"\u{e9}".repeat(1 << 20), 6);
        for _ in 0..100 {
            entry.own(&"n".repeat(100), &"v".repeat(10_000));
        }
        entry.own("last", "1");
        let bytes = entry.into_bytes();
        assert!(bytes.len() <= ENTRY_MAX + 16, "{}", bytes.len());
        let fields = parsed(&bytes);
        assert_eq!(fields[2].1.len(), VALUE_MAX);
        assert_eq!(fields[3].0.len(), NAME_MAX);
        assert_eq!(fields.last().unwrap().0, "ESPLANADE_LAST");
    }

    #[test]
    fn a_journal_that_is_started_anew_gets_the_next_entry() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(JournalSocket::connect(&path).is_err());
        let journal = UnixDatagram::bind(&path).unwrap();
        let mut socket = JournalSocket::connect(&path).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(socket.write(b"A=1\n").unwrap(), 4);
        assert_eq!(journal.recv(&mut buffer).unwrap(), 4);
        drop(journal);
        std::fs::remove_file(&path).unwrap();
        assert!(socket.write(b"A=2\n").is_err());
        let journal = UnixDatagram::bind(&path).unwrap();
        assert_eq!(socket.write(b"A=3\n").unwrap(), 4);
        assert_eq!(journal.recv(&mut buffer).unwrap(), 4);
        assert_eq!(&buffer[..4], b"A=3\n");
        let long = vec![b'x'; 8 << 20];
        assert_eq!(socket.write(&long).unwrap(), long.len());
        let len = journal.recv(&mut buffer).unwrap();
        assert!(buffer[..len].starts_with(b"PRIORITY=3\n"));
    }
}
