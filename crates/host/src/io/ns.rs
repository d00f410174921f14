//! Puts a process and its children into their own namespaces: the system calls of `esplanade demo`.
//! The gateway does not use them.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use super::netns::NetworkNamespace;
use super::sys::check;

/// The way in which this process got the right to create network namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// The caller had the right already, as root.
    Privileged,
    /// The process entered a user namespace, in which the caller's user is root.
    UserNamespace,
}

/// Moves the process into a new network namespace, and into a new user namespace if that is
/// necessary.
///
/// The process must have one thread only: the kernel refuses a user namespace to any other process.
pub fn isolate() -> io::Result<Isolation> {
    // SAFETY: `geteuid` and `getegid` take no arguments, touch no memory and cannot fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    if uid == 0 {
        match unshare(libc::CLONE_NEWNET) {
            Ok(()) => return Ok(Isolation::Privileged),
            // In a container, root may lack CAP_SYS_ADMIN but still be allowed a user namespace.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            Err(error) => return Err(error),
        }
    }
    unshare(libc::CLONE_NEWUSER)?;
    // An ordinary user may map only itself. It may map its group only after it gives up setgroups
    // (user_namespaces(7)).
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    unshare(libc::CLONE_NEWNET)?;
    Ok(Isolation::UserNamespace)
}

/// Starts a program inside the network namespace. The kernel kills the program when the calling
/// thread ends.
///
/// The child leads its own process group, so that Ctrl-C on the terminal reaches only the demo.
pub fn spawn_in(network: &NetworkNamespace, command: &mut Command) -> io::Result<Child> {
    let network = network.as_fd().try_clone_to_owned()?;
    let parent = std::process::id();
    command.process_group(0);
    // SAFETY: between fork and exec, the closure makes only async-signal-safe system calls and
    // allocates nothing. The closure owns the descriptor that it uses.
    unsafe {
        command.pre_exec(move || {
            check(libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET))?;
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            // The parent may have died before `prctl` took effect.
            if libc::getppid() as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
    command.spawn()
}

/// Asks a child to end (SIGTERM).
pub fn terminate(child: &Child) -> io::Result<()> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: `kill` touches no memory. Nobody waited for the child yet, because `Child` is
    // borrowed, so the number still names this child.
    check(unsafe { libc::kill(pid, libc::SIGTERM) }).map(drop)
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: `unshare` takes only flags and touches no memory of ours.
    check(unsafe { libc::unshare(flags) }).map(drop)
}
