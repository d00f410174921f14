//! What the gateway gives up: rights that it does not use, ways to see its memory, files and system calls.
//!
//! Capabilities and Landlock's rules are a thread's own: every thread that stays drops what it does not need. The filter
//! of system calls is put before all threads at once, when all is bound and made.

mod calls;
mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::config::GatewayConfig;
use crate::io::trap;
use files::Files;

/// How far the process goes. A process that has not begun gives up nothing but what a thread does by itself.
static LEVEL: AtomicU8 = AtomicU8::new(UNCONFINED);
const UNCONFINED: u8 = 0;
/// Rights, memory.
const BEGUN: u8 = 1;
/// Files and system calls as well.
const WHOLE: u8 = 2;

/// What the control thread can still read.
static REACH: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// For routes, rules and TUN devices, for the mark on sockets, and for IPv6 extension headers on raw ones.
const RUNNING: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// Besides, for the ports 500 and 4500, for files and the control socket in folders of other users, to name the program
/// that holds a port, and for links past the kernel's stack: their program and their memory.
const STARTING: CapabilitySet = RUNNING
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK);

/// From now on the memory is not readable by other processes of the user, and in no core dump, whatever handles those.
pub fn hide() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(setrlimit(Resource::Core, none)?)
}

/// Before the first further thread: those that come have no more.
pub fn begin() -> io::Result<()> {
    hide()?;
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().difference(RUNNING).iter() {
        // Without CAP_SETPCAP the set stays as it is; it only counts for programs that are executed. The kernel may know
        // fewer capabilities than this program.
        let _ = remove_capability_from_bounding_set(capability);
    }
    LEVEL.store(BEGUN, Ordering::Relaxed);
    keep(STARTING)
}

/// When the configuration is read: whether threads give up files and system calls too.
pub fn settle(config: &GatewayConfig) {
    if config.confine && LEVEL.load(Ordering::Relaxed) >= BEGUN {
        LEVEL.store(WHOLE, Ordering::Relaxed);
    }
}

/// In a thread that works on packets.
pub fn working() -> io::Result<()> {
    if LEVEL.load(Ordering::Relaxed) == WHOLE {
        restrict(Files::few)?;
    }
    keep(RUNNING)
}

/// In a thread that only writes what is open already.
pub fn writing() -> io::Result<()> {
    // It never opens a file, whatever the configuration will say.
    if LEVEL.load(Ordering::Relaxed) >= BEGUN {
        restrict(Files::few)?;
    }
    keep(CapabilitySet::empty())
}

/// What confines the process beside its rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// The version of Landlock.
    pub landlock: Option<u32>,
    pub seccomp: bool,
}

/// In the control thread, once all is bound and made. `read` was read at `path` and elsewhere to load the configuration.
/// What the kernel lacks is told and is no failure.
pub fn controlling(path: &Path, read: &[PathBuf], config: &GatewayConfig) -> io::Result<InForce> {
    let mut force = InForce::default();
    match LEVEL.load(Ordering::Relaxed) {
        UNCONFINED => return Ok(force),
        BEGUN => keep(RUNNING)?,
        _ => {
            let reach = files::within_reach(path, read, &config.readable);
            force.landlock = restrict(|| Files::control(&reach, &config.socket))?;
            keep(RUNNING)?;
            match calls::enter() {
                Ok(()) => force.seccomp = true,
                Err(error) => tracing::warn!("system calls are not confined: {error}"),
            }
            match force.landlock {
                Some(_) => drop(REACH.set(reach)),
                None => tracing::warn!("files are not confined: the kernel has no Landlock"),
            }
        }
    }
    tracing::info!(
        landlock = force.landlock.unwrap_or_default(),
        seccomp = force.seccomp,
        "rights that are not used are given up"
    );
    Ok(force)
}

fn restrict(
    files: impl FnOnce() -> Result<Files, landlock::RulesetError>,
) -> io::Result<Option<u32>> {
    files().and_then(Files::enter).map_err(io::Error::other)
}

/// Whether the confinement keeps the control thread from reading this file, or what is in this folder.
pub fn is_out_of_reach(path: &Path) -> bool {
    let Some(reach) = REACH.get() else {
        return false;
    };
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    !reach.iter().any(|within| path.starts_with(within))
}

/// Tells of system calls that were refused since the last time.
pub fn tell_refused() {
    for call in trap::take_refused() {
        tracing::warn!(
            call,
            "the confinement refused a system call: what needed it has failed"
        );
    }
}

fn keep(wanted: CapabilitySet) -> io::Result<()> {
    let kept = capabilities(None)?.permitted.intersection(wanted);
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_it_uses_and_no_more() {
        let of = |give_up: fn() -> io::Result<()>| {
            let thread = std::thread::spawn(move || {
                give_up().unwrap();
                capabilities(None).unwrap()
            });
            thread.join().unwrap()
        };
        let own = capabilities(None).unwrap();
        let after = of(working);
        assert_eq!(after.permitted, own.permitted.intersection(RUNNING));
        assert_eq!(after.effective, after.permitted);
        assert!(of(writing).permitted.is_empty());
        assert_eq!(capabilities(None).unwrap(), own, "it is the thread's alone");
    }
}
