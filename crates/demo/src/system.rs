//! The demo's needs from the system. If the system refuses, an error says what to do.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esplanade_host::io::ns::{self, Isolation};
use tokio::signal::unix::{SignalKind, signal};

use super::Error;

const TUN: &str = "/dev/net/tun";
const EXIT_INTERRUPTED: i32 = 130;

/// Moves the process into its own namespaces, and checks that a TUN device is available.
pub fn isolate(need_tun: bool) -> Result<Isolation, Error> {
    let isolation = ns::isolate().map_err(forbidden)?;
    if need_tun {
        check_tun()?;
    }
    Ok(isolation)
}

fn check_tun() -> Result<(), Error> {
    let way_out = match OpenOptions::new().read(true).write(true).open(TUN) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!(
            "{TUN} does not exist, and the gateways need it to take packets from the kernel.\n\
             On a machine: `modprobe tun`.\n\
             In a container: start it with --device /dev/net/tun, or as root in it:\n\
             `mkdir -p /dev/net && mknod -m 666 {TUN} c 10 200`."
        ),
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
            format!("{TUN} is there but the kernel has no TUN driver: `modprobe tun` as root.")
        }
        Err(error) => format!(
            "{TUN} cannot be opened ({error}), and the gateways need it to take packets from the kernel.\n\
             On a machine: `chmod 666 {TUN}` as root.\n\
             In a container: start it with --device /dev/net/tun."
        ),
    };
    Err(Error::Forbidden(way_out))
}

/// Explains, as far as the system tells, why namespaces are not permitted.
fn forbidden(error: io::Error) -> Error {
    let mut text = format!("this system does not let us make network namespaces ({error}).");
    if error.raw_os_error() == Some(libc::EINVAL) && thread_count() > 1 {
        text.push_str("\nThe process had threads already: this is a bug in esplanade.");
    }
    let setting = |path: &str| {
        std::fs::read_to_string(path)
            .ok()
            .map(|value| value.trim().to_owned())
    };
    for (path, forbids, allow) in [
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "0",
            "sysctl kernel.unprivileged_userns_clone=1",
        ),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            "/proc/sys/user/max_user_namespaces",
            "0",
            "sysctl user.max_user_namespaces=10000",
        ),
        (
            "/proc/sys/user/max_net_namespaces",
            "0",
            "sysctl user.max_net_namespaces=10000",
        ),
    ] {
        if setting(path).as_deref() == Some(forbids) {
            text.push_str(&format!("\n{path} is {forbids}. As root: `{allow}`."));
        }
    }
    if Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists() {
        text.push_str("\nThis is a container: start it with --cap-add SYS_ADMIN --cap-add NET_ADMIN, or --privileged.");
    } else {
        text.push_str("\nOr run the demo as root: `sudo esplanade demo`.");
    }
    Error::Forbidden(text)
}

fn thread_count() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// Records SIGINT and SIGTERM. A second signal ends the process at once, and the gateways end with
/// it.
#[derive(Debug)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
}

impl Interrupt {
    pub fn install() -> Result<Self, Error> {
        let failed = |source| Error::system("cannot watch for signals", source);
        let flag = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let (mut interrupt, mut terminate) = {
            let _context = runtime.enter();
            (
                signal(SignalKind::interrupt()).map_err(failed)?,
                signal(SignalKind::terminate()).map_err(failed)?,
            )
        };
        let seen = Arc::clone(&flag);
        std::thread::spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    if seen.swap(true, Ordering::Relaxed) {
                        std::process::exit(EXIT_INTERRUPTED);
                    }
                }
            });
        });
        Ok(Self { flag })
    }

    /// Fails if a signal has arrived.
    pub fn check(&self) -> Result<(), Error> {
        if self.flag.load(Ordering::Relaxed) {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Waits for `time`. Fails at once if a signal arrives.
    pub fn pause(&self, time: Duration) -> Result<(), Error> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}
