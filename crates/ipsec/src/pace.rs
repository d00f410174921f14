//! Keeps the sequence numbers that workers send at one time within the peer's replay window.
//!
//! A worker takes numbers, seals and sends. Other workers that took later numbers may finish first. A packet that the
//! peer gets behind its window is lost. It does not help to hold few numbers: a worker that the scheduler stops holds
//! them for long, while the others go on. So workers wait when they would get too far ahead.
//!
//! With a small window, a worker that takes numbers waits until nobody else holds any. Packets then leave in order.
//!
//! With a large window, numbers come in rounds of a quarter of the window. A worker begins in a round when nobody
//! holds numbers of rounds before the last one, and takes numbers while that round lasts. Two rounds at most can thus
//! overtake the oldest number of a round. The other half of the window is for runs that end beyond their round, one
//! per worker, and for reordering in the network.

use crate::atomic::{AtomicU32, Ordering, fence};
use crate::sequence::SequenceAllocator;

/// The smallest window for numbers in rounds, in packets. A quarter of it is the longest run that a batch takes.
pub const SHARED_WINDOW: u32 = 8192;

const ROUNDS: u64 = 4;

/// The number of times that a waiting worker looks whether the workers before it were served. A worker that the
/// scheduler has stopped may never be.
const LOOKS: u32 = 1000;

#[derive(Debug)]
pub struct Pace {
    /// Length of a round in numbers. It is 0 if only one worker at a time may hold numbers.
    round_len: u64,
    /// The number of workers that take numbers of a round or have not sent all of them, by the round's number.
    holders: [AtomicU32; ROUNDS as usize],
    /// Number of waiting workers. If one worker at a time holds numbers, later ones let them go first.
    waiting: AtomicU32,
    /// Number of times that a waiting worker has begun or has given up.
    served: AtomicU32,
}

/// Taken numbers, or the permission to take some.
#[derive(Clone, Copy, Debug)]
#[must_use = "others wait until it ends"]
pub struct Hold {
    round: u64,
}

impl Pace {
    /// `peer_window` is the size of the peer's replay window in packets.
    pub fn new(peer_window: u32) -> Self {
        let round_len = if shares(peer_window) {
            u64::from(peer_window) / ROUNDS
        } else {
            0
        };
        Self {
            round_len,
            holders: std::array::from_fn(|_| AtomicU32::new(0)),
            waiting: AtomicU32::new(0),
            served: AtomicU32::new(0),
        }
    }

    /// Begins at once. Returns `None` if other workers hold numbers or wait for them; then call [`Self::wait`].
    pub fn begin(&self, sequence: &SequenceAllocator) -> Option<Hold> {
        if self.is_wanted() {
            return None;
        }
        self.try_begin(sequence)
    }

    /// Waits until it can begin, as long as `patience` returns true. The waiting worker must hold no numbers of any
    /// SA.
    pub fn wait(
        &self,
        sequence: &SequenceAllocator,
        mut patience: impl FnMut() -> bool,
    ) -> Option<Hold> {
        let served = self.served.load(Ordering::Acquire);
        // Otherwise a worker that has just ended would begin again before a waiting worker has looked.
        let comes_later = self.waiting.fetch_add(1, Ordering::Relaxed) > 0 && self.round_len == 0;
        let mut looks = if comes_later { LOOKS } else { 0 };
        let mut hold = None;
        while hold.is_none() && patience() {
            let none_first = self.served.load(Ordering::Relaxed) != served
                || self.waiting.load(Ordering::Relaxed) == 1;
            looks = if none_first {
                0
            } else {
                looks.saturating_sub(1)
            };
            if looks == 0 {
                hold = self.try_begin(sequence);
            }
        }
        // The order matters: whoever sees that this worker was served no longer counts it among those that go first.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Release);
        hold
    }

    fn try_begin(&self, sequence: &SequenceAllocator) -> Option<Hold> {
        let round = self.round(sequence);
        let own = self.holders_of(round);
        if self.round_len == 0 {
            let taken = own.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
            return taken.is_ok().then_some(Hold { round });
        }
        own.fetch_add(1, Ordering::AcqRel);
        // If two workers race, either the second sees the first one's hold here, or the first sees that the round is
        // over.
        fence(Ordering::SeqCst);
        let others = [1, 2].map(|ahead| self.holders_of(round.wrapping_add(ahead)));
        let free = others.iter().all(|n| n.load(Ordering::Acquire) == 0);
        let hold = Hold { round };
        if free && self.round(sequence) == round {
            return Some(hold);
        }
        self.end(hold);
        None
    }

    /// Returns true if other workers wait for the present holder to end.
    pub fn is_wanted(&self) -> bool {
        self.round_len == 0 && self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Returns true if more numbers may be taken under the same hold.
    pub fn goes_on(&self, hold: Hold, sequence: &SequenceAllocator) -> bool {
        self.round(sequence) == hold.round
    }

    /// Ends a hold. All numbers that were taken are sent, or never will be.
    pub fn end(&self, hold: Hold) {
        self.holders_of(hold.round).fetch_sub(1, Ordering::Release);
    }

    fn round(&self, sequence: &SequenceAllocator) -> u64 {
        sequence.next().checked_div(self.round_len).unwrap_or(0)
    }

    fn holders_of(&self, round: u64) -> &AtomicU32 {
        &self.holders[(round % ROUNDS) as usize]
    }
}

/// Returns true if several workers may hold numbers of one SA at a time.
pub fn shares(peer_window: u32) -> bool {
    peer_window >= SHARED_WINDOW
}
