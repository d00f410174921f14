//! Processes of this program that do for the gateway what it gives up the right to do. Each shares a socket with the
//! gateway, which is its standard input, and ends when the gateway closes its end.
//!
//! The gateway may end at any time, and leave messages unread. Then the kernel reports a reset or a broken pipe in place of
//! the end.

use std::io::{self, BufRead, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
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
    program(command).stdin(socket.into()).spawn()
}

/// This program with a hidden command, in a process group of its own.
pub fn program(command: &str) -> Command {
    let mut program = Command::new("/proc/self/exe");
    program.arg(command).process_group(0);
    program
}

/// Runs a process, and runs it again when it has ended, until one ends well or the gateway has closed its end of `socket`.
/// In between is a pause, which doubles each time that a process ends soon.
pub fn keep(
    socket: &impl AsFd,
    first_pause: Duration,
    mut run: impl FnMut() -> io::Result<ExitStatus>,
) {
    let mut pause = first_pause;
    loop {
        let begun = Instant::now();
        if run().is_ok_and(|status| status.success()) {
            return;
        }
        if begun.elapsed() >= PAUSE_MAX {
            pause = first_pause;
        }
        if closes_within(socket, pause) {
            return;
        }
        pause = next_pause(pause);
    }
}

/// Waits until the other end of a socket is closed, at most for a time. Returns whether it is. Nothing is read.
pub fn closes_within(socket: &impl AsFd, time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // A hang-up is told without being asked for.
        let mut ends = [PollFd::new(socket, PollFlags::empty())];
        match poll(&mut ends, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            // The time is waited for nevertheless.
            Err(_) => {
                std::thread::sleep(left);
                return false;
            }
        }
    }
}

/// Tells whether an error means that the other end of a socket is closed.
pub fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}

/// Reads from a socket by `read`. Returns the length, or `None` if the other end is closed.
pub fn read_until_end(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        return match read() {
            Ok(len) => Ok((len > 0).then_some(len)),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if is_end(&error) => Ok(None),
            Err(error) => Err(error),
        };
    }
}

/// Twice a pause, and a minute at most.
pub fn next_pause(pause: Duration) -> Duration {
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
    let mut reader = reader.take(len_max as u64);
    read_until_end(|| reader.read_until(b'\n', &mut line))?;
    Ok(line.ends_with(b"\n").then_some(line))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    /// Processes that fail are not started for a gateway that has ended, whatever it left unread.
    #[test]
    fn nothing_is_kept_for_a_gateway_that_has_ended() {
        let (ours, theirs) = packet_pair::<UnixStream>().unwrap();
        let (mut gateway, mut runs) = (Some(ours), 0);
        keep(&theirs, Duration::from_millis(1), || {
            runs += 1;
            (&theirs).write_all(b"unread")?;
            if runs == 3 {
                gateway.take();
            }
            Ok(ExitStatus::from_raw(1 << 8))
        });
        assert_eq!(runs, 3);
    }

    #[test]
    fn a_reset_and_a_broken_pipe_are_the_end() {
        let (ours, mut theirs) = packet_pair::<UnixStream>().unwrap();
        assert!(!closes_within(&theirs, Duration::ZERO));
        theirs.write_all(b"unread").unwrap();
        (&ours).write_all(b"read").unwrap();
        assert!(
            !closes_within(&theirs, Duration::ZERO),
            "there is a message"
        );
        drop(ours);
        assert!(closes_within(&theirs, Duration::MAX / 4));
        assert!(is_end(&theirs.write_all(b"late").unwrap_err()));
        let mut buffer = [0; 8];
        let mut reader = theirs.try_clone().unwrap();
        let mut read = || read_until_end(|| reader.read(&mut buffer)).unwrap();
        assert_eq!((read(), read()), (Some(4), None));
        let (ours, mut theirs) = packet_pair::<UnixStream>().unwrap();
        theirs.write_all(b"unread").unwrap();
        drop(ours);
        let error = theirs.read(&mut buffer).unwrap_err();
        assert!(is_end(&error), "{error}");
    }

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
