//! Gives up what the gateway does not use: capabilities, access to its memory by others, files and
//! system calls.
//!
//! Capabilities and Landlock rules belong to one thread, so every lasting thread drops what it does
//! not need. The filter of system calls covers all threads at once. It is installed when all
//! sockets and devices are open.

mod calls;
mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;

use files::FileRules;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::io::trap;

/// The level to which the process is confined. Before [`begin`], a thread gives up only what it gives up by itself.
static LEVEL: AtomicU8 = AtomicU8::new(UNCONFINED);
const UNCONFINED: u8 = 0;
/// Capabilities and memory are confined.
const BEGUN: u8 = 1;
/// Files and system calls are confined as well.
const WHOLE: u8 = 2;

/// Capabilities of the running gateway: routes, rules, TUN devices, marks on sockets, and IPv6
/// extension headers on raw sockets.
const RUNNING: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::NET_RAW);

/// Capabilities at the start: those of [`RUNNING`] and five more. They permit the ports 500 and 4500,
/// files and the control socket in folders of other users, and naming the program that holds a
/// port. AF_XDP links need the last two for their program and their memory ([`MEMORY`]).
const STARTING: CapabilitySet = RUNNING
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK);

/// The control thread keeps this capability where it may have to open AF_XDP links again. The kernel does not count
/// the memory of their frames against a limit then.
const MEMORY: CapabilitySet = CapabilitySet::IPC_LOCK;

/// Hides the memory from other processes of the same user, and from core dumps however the system
/// handles them.
pub fn hide() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(setrlimit(Resource::Core, none)?)
}

/// Drops capabilities for good. Call it before the process starts another thread, so that all
/// threads have no more.
pub fn begin() -> io::Result<()> {
    hide()?;
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().difference(RUNNING).iter() {
        // Without CAP_SETPCAP the bounding set stays as it is, and it matters only for executed
        // programs. The kernel may also know fewer capabilities than this program.
        let _ = remove_capability_from_bounding_set(capability);
    }
    LEVEL.store(BEGUN, Ordering::Relaxed);
    keep(STARTING)
}

/// Decides, once the configuration is read, whether threads give up files and system calls too.
pub fn settle(confine: bool) {
    if confine && LEVEL.load(Ordering::Relaxed) >= BEGUN {
        LEVEL.store(WHOLE, Ordering::Relaxed);
    }
}

/// Confines the calling thread, which processes packets.
fn working() -> io::Result<()> {
    if LEVEL.load(Ordering::Relaxed) == WHOLE {
        restrict(FileRules::few)?;
    }
    keep(RUNNING)
}

/// Confines the calling thread, which only writes to open descriptors.
fn writing() -> io::Result<()> {
    // Such a thread never opens a file, so this does not depend on the configuration.
    if LEVEL.load(Ordering::Relaxed) >= BEGUN {
        restrict(FileRules::few)?;
    }
    keep(CapabilitySet::empty())
}

/// Confines the calling thread, which reads files. It can open those that the thread can which has started it.
fn reading() -> io::Result<()> {
    match LEVEL.load(Ordering::Relaxed) {
        UNCONFINED => Ok(()),
        _ => keep(CapabilitySet::empty()),
    }
}

/// Starts a thread that only writes to open descriptors, confined as by `writing`.
pub fn start_writing(
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    start(name, writing, work)
}

/// Starts a thread that processes packets, confined as by `working`.
pub fn start_working(
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    start(name, working, work)
}

/// Starts a thread that reads what the configuration names, confined as by `reading`.
pub fn start_reading(
    name: String,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    start(name, reading, work)
}

/// Starts a thread. It is confined when this returns: soon the process may not do that any more.
fn start(
    name: String,
    give_up: fn() -> io::Result<()>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (to_starter, started) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        let confined = give_up();
        let goes_on = confined.is_ok();
        if to_starter.send(confined).is_ok() && goes_on {
            work();
        }
    })?;
    started.recv().map_err(io::Error::other)??;
    Ok(thread)
}

/// Confines the calling thread, which drives a GPU. Nobody knows the files that a driver needs, so that the thread keeps
/// these. It sends no signals to other processes.
pub fn driving() -> io::Result<()> {
    if LEVEL.load(Ordering::Relaxed) == WHOLE {
        restrict(FileRules::all)?;
    }
    keep(CapabilitySet::empty())
}

/// Confines a process that looks up names and opens TCP connections. It reads files, and writes none. Call it before the
/// process starts another thread.
pub fn fetching() -> io::Result<()> {
    hide()?;
    set_no_new_privs(true)?;
    restrict(FileRules::reading)?;
    keep(CapabilitySet::empty())
}

/// Confines a process that starts others: those of PKCS#11 modules, and the fetcher's. Nobody knows the files and sockets
/// that a module needs, so that the process keeps these. It sends signals to its own children alone. Call it before the
/// process starts another thread.
pub fn keeping() -> io::Result<()> {
    hide()?;
    set_no_new_privs(true)?;
    restrict(FileRules::all)?;
    keep(CapabilitySet::empty())
}

/// The limits of the control thread.
#[derive(Clone, Copy, Debug)]
pub struct ControlConfinement<'a> {
    /// The file of the configuration.
    pub config: &'a Path,
    /// The files that were read and the folders that were searched. A reload reads them again.
    pub read: &'a [PathBuf],
    /// More files and folders that a reload may read.
    pub readable: &'a [PathBuf],
    /// The control socket.
    pub socket: &'a Path,
    /// The process uses a GPU. Its driver makes system calls that nobody lists.
    pub gpu: bool,
    /// Links are open past the kernel's stack (AF_XDP). The control thread opens one again that is made anew.
    pub xdp: bool,
}

/// The parts of the confinement that the kernel enforces, besides capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// Version of Landlock, if it is in force.
    pub landlock: Option<u32>,
    pub seccomp: bool,
    /// The paths that the control thread can still read, if Landlock limits them.
    pub reach: Option<Vec<PathBuf>>,
}

/// Confines the control thread, after all sockets and devices are open. A part that the kernel lacks is logged and is no
/// error.
pub fn controlling(to: &ControlConfinement<'_>) -> io::Result<InForce> {
    let mut force = InForce::default();
    let kept = match to.xdp {
        true => RUNNING.union(MEMORY),
        false => RUNNING,
    };
    match LEVEL.load(Ordering::Relaxed) {
        UNCONFINED => return Ok(force),
        BEGUN => keep(kept)?,
        _ => {
            let reach = files::within_reach(to.config, to.read, to.readable);
            force.landlock = restrict(|| FileRules::control(&reach, to.socket))?;
            keep(kept)?;
            if to.gpu {
                tracing::warn!(
                    "system calls are not confined: the driver of a GPU makes calls that nobody lists"
                );
            } else {
                match calls::enter(to.xdp) {
                    Ok(()) => force.seccomp = true,
                    Err(error) => tracing::warn!("system calls are not confined: {error}"),
                }
            }
            match force.landlock {
                Some(_) => force.reach = Some(reach),
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
    files: impl FnOnce() -> Result<FileRules, landlock::RulesetError>,
) -> io::Result<Option<u32>> {
    files().and_then(FileRules::enter).map_err(io::Error::other)
}

/// Logs the system calls that were refused since the last time.
pub fn log_refused() {
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
