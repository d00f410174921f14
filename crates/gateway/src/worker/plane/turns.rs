//! Which SAs this worker holds sequence numbers of: see [`esplanade_ipsec::pace`].

use std::sync::Arc;

use esplanade_ipsec::pace::Hold;
use esplanade_ipsec::sa::OutboundSa;

/// SAs of a batch. Each packet looks for its own among them.
const HELD_MAX: usize = 32;
/// Others hold numbers for as long as they seal and send a batch; but the scheduler may stop them.
pub const WAIT_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Turns {
    /// None where a worker is alone.
    held: Option<Vec<Held>>,
    /// The number of the batch that is being filled.
    filling: u64,
    /// Batches that were sent: all before this one.
    sent: u64,
}

#[derive(Debug)]
struct Held {
    sa: Arc<OutboundSa>,
    hold: Hold,
    /// The last one with numbers of it.
    batch: u64,
}

impl Turns {
    pub fn new(workers: usize) -> Self {
        Self {
            held: (workers > 1).then(Vec::new),
            filling: 0,
            sent: 0,
        }
    }

    /// Whether numbers of the SA may be taken now. If not: send what there is, all of it, and [`Self::wait`].
    pub fn begin(&mut self, sa: &Arc<OutboundSa>) -> bool {
        let Some(held) = &mut self.held else {
            return true;
        };
        let mut latest = held.iter_mut().rev();
        if let Some(held) = latest.find(|held| Arc::ptr_eq(&held.sa, sa)) {
            // With batches under way it may never end: then others go first.
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

    /// As [`Self::begin`], when others let it; false if `patience`, which is asked after each look, ends before.
    /// Meanwhile nothing is held.
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
            held.push(Held {
                sa: Arc::clone(sa),
                hold,
                batch: self.filling,
            });
        }
    }

    /// The engine has taken a batch.
    pub fn submitted(&mut self) {
        self.filling += 1;
    }

    /// The next batch was sent.
    pub fn sent(&mut self) {
        self.sent += 1;
        let (held, sent) = (&mut self.held, self.sent);
        for held in held.iter_mut() {
            for Held { sa, hold, .. } in held.extract_if(.., |held| held.batch < sent) {
                sa.pace.end(hold);
            }
        }
    }

    /// All packets that were made have been sent, or never will be.
    pub fn end(&mut self) {
        self.sent = self.filling;
        for Held { sa, hold, .. } in self.held.iter_mut().flat_map(|held| held.drain(..)) {
            sa.pace.end(hold);
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.end();
    }
}
