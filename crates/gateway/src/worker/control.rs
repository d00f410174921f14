//! The control thread's requests to a running worker, and the worker's reports that nobody has asked for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::queues::TunQueues;
use crate::io::sys::EventFd;

/// The part of a worker that the control thread shares. Every request wakes the worker.
#[derive(Debug)]
pub(super) struct WorkerControl {
    stop: AtomicBool,
    wake: EventFd,
    /// New TUN queues, each with the interface whose queues they replace.
    tuns: Mutex<Vec<(u32, TunQueues)>>,
    /// The worker has met a TUN device that is gone.
    lost_tun: AtomicBool,
}

impl WorkerControl {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            stop: AtomicBool::new(false),
            wake: EventFd::new()?,
            tuns: Mutex::default(),
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

    /// Gives the worker new queues for the TUN device of an interface.
    pub fn replace_tun(&self, interface: u32, tun: TunQueues) {
        let mut tuns = self.tuns.lock().unwrap_or_else(PoisonError::into_inner);
        tuns.push((interface, tun));
        drop(tuns);
        self.wake();
    }

    /// The queues that were given since the last call, in order.
    pub fn take_tuns(&self) -> Vec<(u32, TunQueues)> {
        let mut tuns = self.tuns.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut tuns)
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
