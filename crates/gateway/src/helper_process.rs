//! Processes of this program that do for the gateway what it gives up the right to do. Each shares a socket with the
//! gateway, which is its standard input, and ends when the gateway closes its end.

use std::io::{self, BufRead, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use serde::Serialize;
use socket2::{Domain, Socket, Type};

/// The longest pause before a process that has ended is started again.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Starts this program with a hidden command. Returns the gateway's end of the socket.
pub fn spawn(command: &str) -> io::Result<UnixStream> {
    // Nobody waits for the process: it ends with the gateway.
    start(command).map(|(socket, _)| socket)
}

/// Does the same with a socket that keeps messages apart: each write is a message, and each read gives one.
pub fn spawn_for_packets(command: &str) -> io::Result<UnixStream> {
    let (ours, theirs) = packet_pair::<UnixStream>()?;
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

/// Runs a process, and runs it again when it has ended, until one ends well. In between is a pause, which doubles each
/// time that a process ends soon.
pub fn keep(first_pause: Duration, mut run: impl FnMut() -> io::Result<ExitStatus>) {
    let mut pause = first_pause;
    loop {
        let begun = Instant::now();
        if run().is_ok_and(|status| status.success()) {
            return;
        }
        if begun.elapsed() >= PAUSE_MAX {
            pause = first_pause;
        }
        std::thread::sleep(pause);
        pause = next_pause(pause);
    }
}

fn next_pause(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

/// The two ends of a socket that keeps messages apart.
pub fn packet_pair<T: From<OwnedFd>>() -> io::Result<(T, T)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_a_minute() {
        let first = Duration::from_millis(250);
        let pauses = std::iter::successors(Some(first), |pause| Some(next_pause(*pause)));
        let seconds: Vec<_> = pauses.take(10).map(|pause| pause.as_secs_f32()).collect();
        assert_eq!(
            seconds,
            [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
        );
    }
}
