//! Safe wrappers of small system calls: epoll, eventfd, socket options and thread affinity.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Converts the result of a system call that returns −1 and sets `errno` on failure.
pub(super) fn check(result: impl Into<i64>) -> io::Result<usize> {
    let result = result.into();
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Takes ownership of a new descriptor that a system call returned.
pub(super) fn owned(descriptor: i32) -> io::Result<OwnedFd> {
    check(descriptor)?;
    // SAFETY: the kernel just created this descriptor for us, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

pub(crate) fn set_option(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call. The kernel only
    // reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

/// Tells whether the error means "try again later".
pub fn would_block(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
}

/// A level-triggered epoll instance. Each event carries a token.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

/// Most events that one wait returns.
pub const EVENTS_MAX: usize = 16;

impl Epoll {
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        Ok(Self { fd: owned(fd)? })
    }

    /// Reports `token` while `fd` is readable.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token,
        };
        // SAFETY: `event` is a valid epoll_event that outlives the call.
        let result = unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &raw mut event,
            )
        };
        check(result).map(drop)
    }

    /// Stops reporting `fd`.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: EPOLL_CTL_DEL ignores the event pointer, so it may be null.
        let result = unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd.as_raw_fd(),
                std::ptr::null_mut(),
            )
        };
        check(result).map(drop)
    }

    /// Waits at most `timeout` and returns how many `tokens` are ready.
    pub fn wait(&self, tokens: &mut [u64; EVENTS_MAX], timeout: Duration) -> io::Result<usize> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        let ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        let result = match timeout.subsec_nanos() % 1_000_000 {
            0 => self.wait_ms(&mut events, ms),
            _ => self
                .wait_ns(&mut events, timeout)
                .unwrap_or_else(|| self.wait_ms(&mut events, ms.saturating_add(1))),
        };
        let count = match check(result) {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => 0,
            other => other?,
        };
        for (token, event) in tokens.iter_mut().zip(&events[..count]) {
            *token = event.u64;
        }
        Ok(count)
    }

    fn wait_ms(&self, events: &mut [libc::epoll_event; EVENTS_MAX], timeout_ms: i32) -> i32 {
        // SAFETY: `events` has room for EVENTS_MAX entries and outlives the call.
        unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS_MAX as i32,
                timeout_ms,
            )
        }
    }

    /// Waits with a resolution of nanoseconds. Returns `None` if the kernel, before Linux 5.11,
    /// cannot.
    fn wait_ns(
        &self,
        events: &mut [libc::epoll_event; EVENTS_MAX],
        timeout: Duration,
    ) -> Option<i32> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: `events` has room for EVENTS_MAX entries. `events` and `timeout` outlive the
        // call. The null pointer means that there is no signal mask.
        let result = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS_MAX as i32,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        let is_unknown =
            result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS);
        (!is_unknown).then_some(result as i32)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Wakes a thread from its epoll wait.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        Ok(Self { fd: owned(fd)? })
    }

    pub fn notify(&self) {
        let one = 1u64;
        // SAFETY: the kernel reads the eight bytes of `one`. An error is harmless: a full counter
        // means that the reader is already awake.
        let _ = unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: the kernel writes the eight bytes of `count`. An error is harmless: there was
        // nothing to read.
        let _ = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns the user as which the process acts.
pub fn effective_uid() -> u32 {
    // SAFETY: the call takes no arguments, touches no memory and cannot fail.
    unsafe { libc::geteuid() }
}

/// Binds the calling thread to one CPU.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: an all-zero cpu_set_t is a valid, empty set. `cpu` was checked against its size. The
    // set outlives the call.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    check(result).map(drop)
}

/// Returns the name of an interface, or its number if the interface no longer exists.
pub fn link_name(index: u32) -> String {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has IF_NAMESIZE bytes, which is room for the longest name and its final
    // zero.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    let name = std::ffi::CStr::from_bytes_until_nul(&name).ok();
    match name.filter(|_| !found.is_null()) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => format!("interface {index}"),
    }
}

/// Gives memory that nothing uses any more back to the system. The allocator keeps it for what comes next: after a large
/// configuration was read, as much as the configuration itself takes.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes no memory that anybody has.
    unsafe {
        libc::malloc_trim(0);
    }
}
