//! The signals that the daemon obeys.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Stop,
    Reload,
}

impl Signals {
    pub fn watch() -> Result<Self, Failure> {
        let watch = |kind, name: &str| {
            signal(kind).map_err(|error: io::Error| {
                Failure::runtime(format!("cannot watch for {name}: {error}"))
            })
        };
        Ok(Self {
            terminate: watch(SignalKind::terminate(), "SIGTERM")?,
            interrupt: watch(SignalKind::interrupt(), "SIGINT")?,
            // By default this signal would leave a core dump with keys.
            quit: watch(SignalKind::quit(), "SIGQUIT")?,
            hangup: watch(SignalKind::hangup(), "SIGHUP")?,
        })
    }

    /// Waits for the next signal. No signal is lost if the future is dropped before it is ready.
    pub async fn asked(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.quit.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}
