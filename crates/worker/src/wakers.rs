//! Decides what wakes a worker. While an engine has no room for more batches of a direction,
//! packets of that direction do not wake it.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use esplanade_dataplane::Paused;

use esplanade_host::io::sys::{EVENTS_MAX, Epoll};

/// The purpose for which a descriptor is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For something other than packets of an engine.
    Other,
    Inbound,
    Outbound,
}

/// Sets of descriptors, one for each state. So a change of state needs no system call.
#[derive(Debug)]
pub(super) struct Wakers {
    /// The sets by [`Paused`]. If no engine can be late, only the first set exists.
    sets: Vec<(Paused, Epoll)>,
}

/// Tells whether descriptors of this purpose are watched.
fn takes(paused: Paused, purpose: Purpose) -> bool {
    match purpose {
        Purpose::Other => true,
        Purpose::Inbound => !paused.inbound,
        Purpose::Outbound => !paused.outbound,
    }
}

impl Wakers {
    /// Creates the sets. `may_pause` means that an engine works asynchronously.
    pub fn new(may_pause: bool) -> io::Result<Self> {
        let states = [(false, false), (true, false), (false, true), (true, true)];
        let used = if may_pause { &states[..] } else { &states[..1] };
        let set =
            |&(inbound, outbound): &(bool, bool)| Ok((Paused { inbound, outbound }, Epoll::new()?));
        let sets = used.iter().map(set).collect::<io::Result<_>>()?;
        Ok(Self { sets })
    }

    /// Reports `token` while the descriptor is readable.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, purpose: Purpose) -> io::Result<()> {
        let mut sets = self
            .sets
            .iter()
            .filter(|(paused, _)| takes(*paused, purpose));
        sets.try_for_each(|(_, set)| set.add(fd, token))
    }

    pub fn remove(&self, fd: BorrowedFd<'_>, purpose: Purpose) -> io::Result<()> {
        let sets = self
            .sets
            .iter()
            .filter(|(paused, _)| takes(*paused, purpose));
        // Remove the descriptor from every set, even after an error.
        sets.map(|(_, set)| set.remove(fd))
            .fold(Ok(()), io::Result::and)
    }

    /// Like [`Epoll::wait`], without the descriptors of a paused direction.
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
    use esplanade_host::io::sys::EventFd;

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
