//! Tells the service manager about the gateway's state, as sd_notify(3) does.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The socket of the service manager, if a service manager started the gateway.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<OsString>,
}

impl Manager {
    /// Returns the service manager that the environment names.
    pub fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        Self { socket }
    }

    /// Reports that the gateway negotiates SAs and carries packets.
    pub fn ready(&self) {
        self.send_state("READY=1\nSTATUS=The gateway is ready");
    }

    pub fn stopping(&self) {
        self.send_state("STOPPING=1\nSTATUS=The gateway stops");
    }

    /// Sends a state. A failure is only logged: the gateway works without a service manager.
    fn send_state(&self, state: &str) {
        let Some(name) = &self.socket else { return };
        if let Err(error) = send(name, state.as_bytes()) {
            tracing::warn!(socket = ?name, "cannot tell the service manager: {error}");
        }
    }
}

fn send(name: &OsStr, state: &[u8]) -> io::Result<()> {
    let address = match name.as_bytes() {
        // A leading @ means the abstract namespace.
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(manager: &UnixDatagram) -> String {
        let mut text = [0; 64];
        let len = manager.recv(&mut text).unwrap();
        String::from_utf8(text[..len].to_vec()).unwrap()
    }

    #[test]
    fn both_kinds_of_sockets_hear() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("esplanade-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        for (socket, name) in [
            (by_path, path.into_os_string()),
            (by_name, format!("@{name}").into()),
        ] {
            let manager = Manager { socket: Some(name) };
            manager.ready();
            assert!(heard(&socket).starts_with("READY=1\n"));
            manager.stopping();
            assert!(heard(&socket).starts_with("STOPPING=1\n"));
        }
    }

    #[test]
    fn without_a_manager_nothing_happens() {
        Manager::default().ready();
        Manager {
            socket: Some("/nonexistent/notify".into()),
        }
        .ready();
    }
}
