//! Processes of this program that do for the gateway what it gives up the right to do. Each shares a socket with the
//! gateway, which is its standard input, and ends when the gateway closes its end.

use std::io::{self, BufRead, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use serde::Serialize;
use socket2::{Domain, Socket, Type};

/// Starts this program with a hidden command. Returns the gateway's end of the socket.
pub fn spawn(command: &str) -> io::Result<UnixStream> {
    // Nobody waits for the process: it ends with the gateway.
    start(command).map(|(socket, _)| socket)
}

/// Does the same with a socket that keeps messages apart: each write is a message, and each read gives one.
pub fn spawn_for_packets(command: &str) -> io::Result<UnixStream> {
    let (ours, theirs) = packet_pair()?;
    start_at(command, theirs)?;
    Ok(ours)
}

/// Does the same for a process that the caller waits for.
pub fn start(command: &str) -> io::Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    Ok((ours, start_at(command, theirs)?))
}

/// Starts this program with a hidden command, at the other end of a socket.
pub fn start_at(command: &str, socket: impl Into<OwnedFd>) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg(command)
        .stdin(socket.into())
        .process_group(0)
        .spawn()
}

/// The two ends of a socket that keeps messages apart.
pub fn packet_pair() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
    Ok((OwnedFd::from(ours).into(), OwnedFd::from(theirs).into()))
}

/// A message in JSON, on a line of its own.
pub fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a line of at most `len_max` bytes. Returns `None` if the other end has closed the socket.
pub fn next_line(reader: &mut impl BufRead, len_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    reader.take(len_max as u64).read_until(b'\n', &mut line)?;
    Ok(line.ends_with(b"\n").then_some(line))
}
