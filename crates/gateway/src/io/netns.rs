//! Network namespaces of threads: a socket or TUN belongs to the namespace that its thread was in when it was made.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use super::sys::check;

/// An open network namespace.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

impl Namespace {
    /// The namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// A namespace by its file: `/run/netns/NAME`, `/proc/PID/ns/net`.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
        })
    }

    /// Makes a new namespace, which lives as long as it is held open or a thread is in it.
    pub fn create() -> io::Result<Self> {
        // A thread of its own, so that the caller's namespace is left alone.
        std::thread::spawn(|| {
            // SAFETY: no pointers; only the calling thread changes its namespace.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            Self::current()
        })
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread that makes a namespace died")))
    }

    /// Moves the calling thread into this namespace.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: no pointers; only the calling thread changes its namespace.
        check(unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
