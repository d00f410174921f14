//! Tells the service manager about the gateway's state, as sd_notify(3) does.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The socket of the service manager, if a service manager started the gateway.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<OsString>,
    watchdog: Option<Watchdog>,
}

/// The service manager ends a gateway that says nothing for some time.
#[derive(Debug)]
struct Watchdog {
    /// A third of that time.
    interval: Duration,
    due: Instant,
}

impl Manager {
    /// Returns the service manager that the environment names.
    pub fn from_environment() -> Self {
        let text = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let number = |name| text(name)?.to_str()?.parse().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|id| id == u64::from(std::process::id()));
        let interval = number("WATCHDOG_USEC").filter(|time| is_ours && *time > 0);
        let watchdog = interval.map(|time| Watchdog {
            interval: Duration::from_micros(time) / 3,
            due: Instant::now(),
        });
        let socket = text("NOTIFY_SOCKET");
        Self { socket, watchdog }
    }

    /// Returns the time, at most `other`, at which [`Self::keep_alive`] is to be called.
    pub fn deadline(&self, other: Instant) -> Instant {
        let watchdog = self.watchdog.as_ref();
        watchdog.map_or(other, |watchdog| watchdog.due.min(other))
    }

    /// Tells a watchdog that the control thread is at work (WATCHDOG=1), where the time has come.
    pub fn keep_alive(&mut self, now: Instant) {
        let Some(watchdog) = self.watchdog.as_mut().filter(|one| one.due <= now) else {
            return;
        };
        watchdog.due = now + watchdog.interval;
        self.send_state("WATCHDOG=1");
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
            let manager = Manager {
                socket: Some(name),
                watchdog: None,
            };
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
            watchdog: None,
        }
        .ready();
    }

    #[test]
    fn a_watchdog_hears_three_times_within_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (interval, start) = (Duration::from_secs(10), Instant::now());
        let mut manager = Manager {
            socket: Some(path.into()),
            watchdog: Some(Watchdog {
                interval,
                due: start,
            }),
        };
        let mut heard_at = Vec::new();
        for seconds in 0..30 {
            let now = start + Duration::from_secs(seconds);
            manager.keep_alive(now);
            if socket.recv(&mut [0; 64]).is_ok_and(|len| len == 10) {
                heard_at.push(seconds);
            }
        }
        assert_eq!(heard_at, [0, 10, 20]);
        let later = start + Duration::from_secs(60);
        assert_eq!(manager.deadline(later), start + 3 * interval);
        assert_eq!(manager.deadline(start), start);
        assert_eq!(Manager::default().deadline(later), later);
    }
}
