//! Tracks the SAs of which this worker holds sequence numbers: see [`esplanade_ipsec::pace`].

use std::sync::Arc;

use esplanade_ipsec::pace::Hold;
use esplanade_ipsec::sa::OutboundSa;

/// Most SAs of one batch. Each packet searches the list for its SA.
const HELD_MAX: usize = 32;
/// The time, in nanoseconds, to wait for another worker. That worker holds numbers only while it seals and sends a
/// batch, but the scheduler may stop it.
pub const WAIT_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(crate) struct SequenceTurns {
    /// The held SAs. `None` means that there is only one worker.
    held: Option<Vec<HeldSa>>,
    /// Number of the batch that is being filled.
    filling: u64,
    /// Number of the first batch that was not sent yet.
    sent: u64,
}

#[derive(Debug)]
struct HeldSa {
    sa: Arc<OutboundSa>,
    hold: Hold,
    /// The last batch that contains numbers of the SA.
    batch: u64,
}

impl SequenceTurns {
    pub fn new(workers: usize) -> Self {
        Self {
            held: (workers > 1).then(Vec::new),
            filling: 0,
            sent: 0,
        }
    }

    /// Tells whether numbers of the SA may be taken now. If not, the caller sends all its packets
    /// and calls [`Self::wait`].
    pub fn begin(&mut self, sa: &Arc<OutboundSa>) -> bool {
        let Some(held) = &mut self.held else {
            return true;
        };
        let mut latest = held.iter_mut().rev();
        if let Some(held) = latest.find(|held| Arc::ptr_eq(&held.sa, sa)) {
            // With several batches in flight, holding might never end. So let other workers go
            // first.
            let is_wanted = held.batch < self.filling && sa.pace.is_wanted();
            if is_wanted || !sa.pace.goes_on(held.hold, &sa.sequence) {
                return false;
            }
            held.batch = self.filling;
            return true;
        }
        if held.len() == HELD_MAX {
            return false;
        }
        let hold = sa.pace.begin(&sa.sequence);
        hold.map(|hold| self.hold(sa, hold)).is_some()
    }

    /// Like [`Self::begin`], but waits for other workers. Calls `patience` after each look, and
    /// returns false when it returns false. Holds nothing while it waits.
    pub fn wait(&mut self, sa: &Arc<OutboundSa>, patience: impl FnMut() -> bool) -> bool {
        self.end();
        if self.begin(sa) {
            return true;
        }
        let hold = sa.pace.wait(&sa.sequence, patience);
        hold.map(|hold| self.hold(sa, hold)).is_some()
    }

    fn hold(&mut self, sa: &Arc<OutboundSa>, hold: Hold) {
        if let Some(held) = &mut self.held {
            held.push(HeldSa {
                sa: Arc::clone(sa),
                hold,
                batch: self.filling,
            });
        }
    }

    /// Records that the engine took a batch.
    pub fn submitted(&mut self) {
        self.filling += 1;
    }

    /// Records that the next batch was sent.
    pub fn sent(&mut self) {
        self.sent += 1;
        let (held, sent) = (&mut self.held, self.sent);
        for held in held.iter_mut() {
            for HeldSa { sa, hold, .. } in held.extract_if(.., |held| held.batch < sent) {
                sa.pace.end(hold);
            }
        }
    }

    /// Records that all packets were sent, or never will be.
    pub fn end(&mut self) {
        self.sent = self.filling;
        for HeldSa { sa, hold, .. } in self.held.iter_mut().flat_map(|held| held.drain(..)) {
            sa.pace.end(hold);
        }
    }
}

impl Drop for SequenceTurns {
    fn drop(&mut self) {
        self.end();
    }
}
