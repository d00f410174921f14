//! What wakes a worker. While an engine has all batches of a direction, what would come in for it does not.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::io::sys::{EVENTS_MAX, Epoll};

/// For what a descriptor is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Not for packets of an engine.
    Other,
    Inbound,
    Outbound,
}

/// Directions that take no packets now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Paused {
    pub inbound: bool,
    pub outbound: bool,
}

/// One set of descriptors for each state, so that a change of state takes no system call.
#[derive(Debug)]
pub(super) struct Wakers {
    /// By [`Paused`]. Only the first where no engine is late.
    sets: Vec<(Paused, Epoll)>,
}

impl Paused {
    fn takes(self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Other => true,
            Purpose::Inbound => !self.inbound,
            Purpose::Outbound => !self.outbound,
        }
    }
}

impl Wakers {
    /// `may_pause`: an engine goes on behind its `submit`.
    pub fn new(may_pause: bool) -> io::Result<Self> {
        let states = [(false, false), (true, false), (false, true), (true, true)];
        let used = if may_pause { &states[..] } else { &states[..1] };
        let set =
            |&(inbound, outbound): &(bool, bool)| Ok((Paused { inbound, outbound }, Epoll::new()?));
        let sets = used.iter().map(set).collect::<io::Result<_>>()?;
        Ok(Self { sets })
    }

    /// Gives `token` while the descriptor is readable.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, purpose: Purpose) -> io::Result<()> {
        let mut sets = self.sets.iter().filter(|(paused, _)| paused.takes(purpose));
        sets.try_for_each(|(_, set)| set.add(fd, token))
    }

    pub fn remove(&self, fd: BorrowedFd<'_>, purpose: Purpose) -> io::Result<()> {
        let sets = self.sets.iter().filter(|(paused, _)| paused.takes(purpose));
        // Each must be tried.
        sets.map(|(_, set)| set.remove(fd))
            .fold(Ok(()), io::Result::and)
    }

    /// As [`Epoll::wait`], without what belongs to a paused direction.
    pub fn wait(
        &self,
        paused: Paused,
        tokens: &mut [u64; EVENTS_MAX],
        timeout: Duration,
    ) -> io::Result<usize> {
        let index = usize::from(paused.inbound) + 2 * usize::from(paused.outbound);
        match self.sets.get(index).or(self.sets.first()) {
            Some((_, set)) => set.wait(tokens, timeout),
            None => Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::io::sys::EventFd;

    #[test]
    fn a_paused_direction_wakes_nobody() {
        let wakers = Wakers::new(true).unwrap();
        let all = [Purpose::Other, Purpose::Inbound, Purpose::Outbound];
        let fds = all.map(|_| EventFd::new().unwrap());
        for (token, (purpose, fd)) in all.iter().zip(&fds).enumerate() {
            wakers.add(fd.as_fd(), token as u64, *purpose).unwrap();
            fd.notify();
        }
        for (inbound, outbound, expected) in [
            (false, false, &[0, 1, 2][..]),
            (true, false, &[0, 2]),
            (false, true, &[0, 1]),
            (true, true, &[0]),
        ] {
            let mut tokens = [0; EVENTS_MAX];
            let paused = Paused { inbound, outbound };
            let ready = wakers.wait(paused, &mut tokens, Duration::ZERO).unwrap();
            tokens[..ready].sort_unstable();
            assert_eq!(&tokens[..ready], expected);
        }
        for (purpose, fd) in all.iter().zip(&fds) {
            wakers.remove(fd.as_fd(), *purpose).unwrap();
        }
        let ready = wakers.wait(Paused::default(), &mut [0; EVENTS_MAX], Duration::ZERO);
        assert_eq!(ready.unwrap(), 0);
    }
}
