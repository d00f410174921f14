//! Which SAs this worker holds sequence numbers of: see [`esplanade_ipsec::pace`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_ipsec::pace::Hold;
use esplanade_ipsec::sa::OutboundSa;

/// SAs of a batch. Each packet looks for its own among them.
const HELD_MAX: usize = 32;
/// Others hold numbers for as long as they seal and send a batch; but the scheduler may stop them.
const WAIT_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Turns {
    /// None where a worker is alone.
    held: Option<Vec<(Arc<OutboundSa>, Hold)>>,
}

impl Turns {
    pub fn new(workers: usize) -> Self {
        Self {
            held: (workers > 1).then(Vec::new),
        }
    }

    /// Whether numbers of the SA may be taken now. If not: send what there is, and [`Self::wait`].
    pub fn begin(&mut self, sa: &Arc<OutboundSa>) -> bool {
        let Some(held) = &mut self.held else {
            return true;
        };
        let of_sa = |(other, _): &&(Arc<OutboundSa>, Hold)| Arc::ptr_eq(other, sa);
        if let Some((_, hold)) = held.iter().rev().find(of_sa) {
            return sa.pace.goes_on(*hold, &sa.sequence);
        }
        if held.len() == HELD_MAX {
            return false;
        }
        match sa.pace.begin(&sa.sequence) {
            Some(hold) => {
                held.push((Arc::clone(sa), hold));
                true
            }
            None => false,
        }
    }

    /// As [`Self::begin`], when others let it; false if they do not within some time. Meanwhile nothing is held.
    pub fn wait(&mut self, sa: &Arc<OutboundSa>) -> bool {
        self.end();
        if self.begin(sa) {
            return true;
        }
        let begun = Instant::now();
        let hold = sa.pace.wait(&sa.sequence, || {
            std::thread::yield_now();
            begun.elapsed() < WAIT_MAX
        });
        let Some((held, hold)) = self.held.as_mut().zip(hold) else {
            return false;
        };
        held.push((Arc::clone(sa), hold));
        true
    }

    /// All packets that were made have been sent, or never will be.
    pub fn end(&mut self) {
        for (sa, hold) in self.held.iter_mut().flat_map(|held| held.drain(..)) {
            sa.pace.end(hold);
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.end();
    }
}
