//! Network namespaces of threads. A socket or TUN device belongs to the namespace that its thread
//! was in when it was created.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use super::sys::check;

/// An open network namespace.
#[derive(Debug)]
pub struct NetworkNamespace {
    file: File,
}

impl NetworkNamespace {
    /// Opens the namespace of the calling thread.
    pub fn current() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Opens a namespace by its file, such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::open(path)?,
        })
    }

    /// Creates a namespace. It exists as long as it is open or a thread is in it.
    pub fn create() -> io::Result<Self> {
        // Use a new thread, because `unshare` moves the thread that calls it.
        std::thread::spawn(|| {
            // SAFETY: the call takes no pointers. It changes the namespace of the calling thread
            // only.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            Self::current()
        })
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread that makes a namespace died")))
    }

    /// Moves the calling thread into this namespace.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: the call takes no pointers. It changes the namespace of the calling thread only.
        check(unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
