//! A process in namespaces of its own, and its children in others: the system calls of `esplanade demo`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use super::netns::Namespace;
use super::sys::check;

/// How this process came by the right to make network namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// The caller was allowed to as it stood (root).
    Privileged,
    /// In a user namespace, where the caller's own user is root.
    UserNamespace,
}

/// Moves the process into a network namespace of its own, and into a user namespace where that is needed.
///
/// The process must have one thread only: the kernel refuses a user namespace to any other.
pub fn isolate() -> io::Result<Isolation> {
    // SAFETY: geteuid and getegid only read the process's credentials.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    if uid == 0 {
        match unshare(libc::CLONE_NEWNET) {
            Ok(()) => return Ok(Isolation::Privileged),
            // Root of a container without CAP_SYS_ADMIN may still be given a user namespace.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {}
            Err(error) => return Err(error),
        }
    }
    unshare(libc::CLONE_NEWUSER)?;
    // user_namespaces(7): an ordinary user may map only itself, and the group only without setgroups.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
    unshare(libc::CLONE_NEWNET)?;
    Ok(Isolation::UserNamespace)
}

/// Starts a program inside the network namespace; it is killed when the calling thread ends.
///
/// The child leads a process group of its own, so that Ctrl-C on the terminal reaches only the demo.
pub fn spawn_in(network: &Namespace, command: &mut Command) -> io::Result<Child> {
    let network = network.as_fd().try_clone_to_owned()?;
    let parent = std::process::id();
    command.process_group(0);
    // SAFETY: between fork and exec the closure makes only async-signal-safe system calls and
    // allocates nothing; the descriptor is owned by the closure.
    unsafe {
        command.pre_exec(move || {
            check(libc::setns(network.as_raw_fd(), libc::CLONE_NEWNET))?;
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            // The parent may have died before the line above.
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
    // SAFETY: kill touches no memory; the child has not been waited for (`Child` is borrowed), so
    // the number still names it.
    check(unsafe { libc::kill(pid, libc::SIGTERM) }).map(drop)
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: unshare takes flags only and touches no memory of ours.
    check(unsafe { libc::unshare(flags) }).map(drop)
}
