//! The process that starts the fetcher, and starts it again where it ends. It does nothing else.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use esplanade_host::{confine, helper_process};

use super::fetcher;

/// The hidden command of `esplanade` that is this process.
pub const COMMAND: &str = "fetch-keeper";
/// The first pause before a fetcher that has ended is started again.
const PAUSE: Duration = Duration::from_millis(250);

/// Runs fetchers until one of them says that the gateway has closed the socket, which is the standard input.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    confine::keeping()?;
    let socket = UnixStream::from(socket);
    helper_process::keep(&socket, PAUSE, || {
        helper_process::start_at(fetcher::COMMAND, socket.try_clone()?)?.wait()
    });
    Ok(())
}
