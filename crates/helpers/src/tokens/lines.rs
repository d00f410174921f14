//! The messages of `esplanade_tokens` on their way between processes: JSON, a line each.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use esplanade_host::helper_process::read_until_end;

/// Bytes of a line. The longest has a certificate, or the message that an Ed25519 key signs.
const LINE_MAX: usize = 1 << 17;

/// Writes a message as one line. No copy of the line is left in memory.
pub(super) fn write_line(socket: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    // The room is taken at once, because a list that grows leaves copies.
    let mut line = Zeroizing::new(Vec::with_capacity(LINE_MAX));
    serde_json::to_writer(&mut *line, message)?;
    line.push(b'\n');
    match line.len() <= LINE_MAX {
        true => socket.write_all(&line),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Reads lines of a bounded length, and wipes them from memory.
#[derive(Debug)]
pub(super) struct WipedLines {
    socket: UnixStream,
    held: Zeroizing<Vec<u8>>,
    len: usize,
}

impl WipedLines {
    pub fn new(socket: UnixStream) -> Self {
        let held = Zeroizing::new(vec![0; LINE_MAX]);
        let len = 0;
        Self { socket, held, len }
    }

    /// Reads the next message. Returns `None` if the other end has closed the socket.
    pub fn next<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<Option<T>> {
        loop {
            let held = self.held.get_mut(..self.len).unwrap_or_default();
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                let message = serde_json::from_slice(&held[..end])?;
                held.copy_within(end + 1.., 0);
                let left = held.len() - end - 1;
                held[left..].zeroize();
                self.len = left;
                return Ok(Some(message));
            }
            let room = self.held.get_mut(self.len..).unwrap_or_default();
            if room.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            match read_until_end(|| self.socket.read(room))? {
                None => return Ok(None),
                Some(read) => self.len += read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use esplanade_tokens::TokenPlace;
    use esplanade_tokens::message::{
        Mechanism, SentPin, TokenOutcome, TokenReply, TokenRequest, TokenTask,
    };

    use super::*;

    fn read(bytes: &[u8]) -> Vec<io::Result<Option<TokenReply>>> {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let bytes = bytes.to_vec();
        let thread = std::thread::spawn(move || drop(writer.write_all(&bytes)));
        let mut lines = WipedLines::new(reader);
        let mut read = Vec::new();
        loop {
            let next = lines.next();
            let more = matches!(next, Ok(Some(_)));
            read.push(next);
            if !more {
                drop(lines);
                thread.join().unwrap();
                return read;
            }
        }
    }

    #[test]
    fn hostile_lines_end_the_connection() {
        let reply = |id: u64| TokenReply {
            id,
            outcome: TokenOutcome::Done(vec![1, 2]),
        };
        let text = serde_json::to_string(&reply(7)).unwrap();
        let two = read(format!("{text}\n{text}\n{text}").as_bytes());
        assert_eq!(two.len(), 3, "a line without an end is none");
        assert_eq!(two[1].as_ref().unwrap(), &Some(reply(7)));
        assert!(two[2].as_ref().unwrap().is_none());
        for bytes in [
            b"\n".to_vec(),
            b"{\"id\": -1}\n".to_vec(),
            b"\xff\xfe\n".to_vec(),
            b"[[[[[[[[\n".to_vec(),
            vec![b'['; LINE_MAX + 1],
            vec![0; LINE_MAX + 1],
        ] {
            let read = read(&bytes);
            assert!(matches!(read[..], [Err(_)]), "{read:?}");
        }
    }

    #[test]
    fn a_pin_is_wiped_when_its_line_is_read() {
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let request = TokenRequest {
            id: 1,
            place: TokenPlace {
                module: "/lib/one.so".into(),
                slot: None,
                handle: vec![1],
            },
            task: TokenTask::Sign {
                mechanism: Mechanism::Ecdsa,
                input: vec![0; 32],
                pin: Some(SentPin(b"4711".to_vec())),
            },
        };
        write_line(&mut writer, &request).unwrap();
        assert!(!format!("{request:?}").contains("52"));
        let mut lines = WipedLines::new(reader);
        let read: TokenRequest = lines.next().unwrap().unwrap();
        let TokenTask::Sign { pin: Some(pin), .. } = &read.task else {
            panic!("{read:?}");
        };
        assert_eq!(pin.0, b"4711");
        assert!(lines.held.iter().all(|byte| *byte == 0));
    }
}
