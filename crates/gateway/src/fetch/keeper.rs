//! The process that starts the fetcher, and starts it again where it ends. It does nothing else.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::fetcher;
use crate::{confine, helper_process};

/// The hidden command of `esplanade` that is this process.
pub const COMMAND: &str = "fetch-keeper";
/// The pause before a fetcher that has ended is started again. It doubles with each end.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Runs fetchers until one of them says that the gateway has closed the socket, which is the standard input.
pub fn serve(socket: OwnedFd) -> io::Result<()> {
    confine::keeping()?;
    let socket = UnixStream::from(socket);
    let mut pause = PAUSE_MIN;
    loop {
        let started = Instant::now();
        let ended = helper_process::start_at(fetcher::COMMAND, socket.try_clone()?)
            .and_then(|mut fetcher| fetcher.wait());
        if ended.is_ok_and(|status| status.success()) {
            return Ok(());
        }
        if started.elapsed() > PAUSE_MAX {
            pause = PAUSE_MIN;
        }
        std::thread::sleep(pause);
        pause = next_pause(pause);
    }
}

fn next_pause(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_a_minute() {
        let pauses = std::iter::successors(Some(PAUSE_MIN), |pause| Some(next_pause(*pause)));
        let seconds: Vec<_> = pauses.take(10).map(|pause| pause.as_secs_f32()).collect();
        assert_eq!(
            seconds,
            [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
        );
    }
}
