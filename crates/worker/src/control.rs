//! The control thread's requests to a running worker, and the worker's reports that nobody has asked for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::links::LinkQueue;
use super::queues::TunInterface;
use esplanade_host::io::sys::EventFd;

/// A change of the TUN devices that a worker serves.
#[derive(Debug)]
pub(super) enum TunChange {
    /// The device takes the place of another one for the same interface.
    Set(TunInterface),
    /// The interface has no device from now on.
    Remove(u32),
}

/// A change of the links past the kernel's stack.
#[derive(Debug)]
pub(super) enum LinkChange {
    /// The queue stands for the link of its name.
    Set(Box<LinkQueue>),
    /// The link of this name is gone.
    Lose(String),
}

/// The part of a worker that the control thread shares. Every request wakes the worker.
#[derive(Debug)]
pub(super) struct WorkerControl {
    stop: AtomicBool,
    wake: EventFd,
    tuns: Mutex<Vec<TunChange>>,
    links: Mutex<Vec<LinkChange>>,
    /// The worker has met a TUN device that is gone.
    lost_tun: AtomicBool,
}

impl WorkerControl {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            stop: AtomicBool::new(false),
            wake: EventFd::new()?,
            tuns: Mutex::default(),
            links: Mutex::default(),
            lost_tun: AtomicBool::new(false),
        })
    }

    /// Asks the worker to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Wakes the worker from its wait.
    pub fn wake(&self) {
        self.wake.notify();
    }

    /// The descriptor that is readable after [`Self::wake`], until [`Self::clear_wake`].
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub fn clear_wake(&self) {
        self.wake.clear();
    }

    pub fn change_tun(&self, change: TunChange) {
        let mut tuns = self.tuns.lock().unwrap_or_else(PoisonError::into_inner);
        tuns.push(change);
        drop(tuns);
        self.wake();
    }

    /// The changes since the last call, in order.
    pub fn take_tuns(&self) -> Vec<TunChange> {
        let mut tuns = self.tuns.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut tuns)
    }

    pub fn change_link(&self, change: LinkChange) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.push(change);
        drop(links);
        self.wake();
    }

    /// The changes since the last call, in order.
    pub fn take_links(&self) -> Vec<LinkChange> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut links)
    }

    /// Notes that a TUN device is gone: the control thread makes another.
    pub fn lose_tun(&self) {
        self.lost_tun.store(true, Ordering::Release);
    }

    /// Tells whether a TUN device has gone since the last call.
    pub fn take_lost_tun(&self) -> bool {
        self.lost_tun.swap(false, Ordering::AcqRel)
    }
}
