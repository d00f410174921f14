//! The keeper of the runner: a process that starts the runner, and starts it again where it has ended. The gateway cannot,
//! because it has given up the right to run programs.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use esplanade_host::helper_process::{self, packet_pair};

use super::message::{ScriptRegistration, receive};
use super::runner;

/// The hidden command of `esplanade` that is the keeper. Its socket is its standard input.
pub const COMMAND: &str = "updown-keeper";
/// The first pause before a runner that has ended is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// The gateway's end of the socket. A socket of records serves one runner after another: no record is read in part.
#[derive(Debug)]
pub struct RunnerSocket(UnixDatagram);

impl RunnerSocket {
    /// Starts the keeper. It ends, with the runner, when this end of the socket is closed.
    pub fn start() -> io::Result<Self> {
        let (ours, theirs) = packet_pair::<UnixDatagram>()?;
        // Nobody waits for the process: it ends with the gateway.
        helper_process::start_at(COMMAND, theirs)?;
        Ok(Self(ours))
    }

    pub(super) fn into_socket(self) -> io::Result<UnixDatagram> {
        self.0.set_nonblocking(true)?;
        Ok(self.0)
    }
}

/// Keeps a runner until the gateway closes the socket, which is the standard input. The scripts that may be run are read
/// once: a gateway that was taken over later adds none.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    let socket = UnixDatagram::from(socket);
    let mut scripts = Vec::new();
    loop {
        match receive(&socket)? {
            Some(ScriptRegistration::Script(script)) => scripts.push(script),
            Some(ScriptRegistration::Complete) => break,
            None => return Ok(()),
        }
    }
    // A runner ends well when the gateway has closed the socket.
    helper_process::keep(&socket, PAUSE, || run(&socket, &scripts));
    Ok(())
}

/// Starts a runner and waits for its end. It reads the scripts from its standard input, and has the socket as its
/// standard output.
fn run(socket: &UnixDatagram, scripts: &[String]) -> io::Result<ExitStatus> {
    let scripts = serde_json::to_vec(scripts)?;
    let mut child = helper_process::program(runner::COMMAND)
        .stdin(Stdio::piped())
        .stdout(OwnedFd::from(socket.try_clone()?))
        .spawn()?;
    if let Some(input) = child.stdin.take() {
        // A runner that does not read has ended.
        let _ = File::from(OwnedFd::from(input)).write_all(&scripts);
    }
    child.wait()
}
