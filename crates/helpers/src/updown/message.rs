//! The messages of the gateway, the keeper and the runner: JSON, one for each record of a socket.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixDatagram;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use esplanade_host::helper_process::read_until_end;

/// Bytes of the longest message. A script is as long as a shell takes it, and its variables are bounded.
pub(super) const MESSAGE_MAX: usize = 160 * 1024;

/// The gateway tells the keeper, before it gives up rights, which scripts may be run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ScriptRegistration {
    Script(String),
    Complete,
}

/// The gateway tells the runner what to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RunnerRequest {
    /// The requests before were for a runner that has ended. Those that still count come again.
    Begin,
    Call(ScriptRequest),
}

/// A script to run now.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ScriptRequest {
    pub id: u64,
    pub script: String,
    pub environment: BTreeMap<String, String>,
}

/// The runner tells the gateway what has happened.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum RunnerReport {
    Started,
    Ended {
        id: u64,
        outcome: ScriptOutcome,
        /// The beginning of standard output and standard error.
        output: String,
    },
}

/// The end of a script.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ScriptOutcome {
    Exited(i32),
    Killed,
    TimedOut,
    NotStarted(String),
}

/// Writes a message. Fails if it is too long.
pub(super) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = serde_json::to_vec(message)?;
    match bytes.len() <= MESSAGE_MAX {
        true => Ok(bytes),
        false => Err(io::Error::other("the script is too long")),
    }
}

pub(super) fn send(socket: &UnixDatagram, message: &impl Serialize) -> io::Result<()> {
    socket.send(&encode(message)?).map(drop)
}

/// Waits for a message. Returns `None` if the other end has closed the socket.
pub(super) fn receive<T: DeserializeOwned>(socket: &UnixDatagram) -> io::Result<Option<T>> {
    let mut buffer = vec![0; MESSAGE_MAX];
    match read_until_end(|| socket.recv(&mut buffer))? {
        None => Ok(None),
        Some(len) => Ok(Some(serde_json::from_slice(&buffer[..len])?)),
    }
}
