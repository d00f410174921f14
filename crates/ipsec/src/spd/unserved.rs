//! Counts the packets of a policy that no SA carries.
//!
//! Such packets can come at any rate, and at all workers at once. Each walk therefore counts in a stripe, and stripes
//! share no cache line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::drop_reason::DropReason;

const REASONS: [DropReason; 2] = [DropReason::NoSa, DropReason::OutsideSaSelectors];
const STRIPES: usize = 16;

/// The stripe in which a walk counts. With more than 16 walks some share one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stripe(usize);

impl Stripe {
    /// Returns the next stripe in turn.
    pub fn next() -> Self {
        static TURN: AtomicUsize = AtomicUsize::new(0);
        Self(TURN.fetch_add(1, Ordering::Relaxed) % STRIPES)
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; REASONS.len()]);

/// The packets of one policy, or of several, that were dropped because there was no SA for them. Most policies never
/// drop one, so the memory is allocated at the first drop.
#[derive(Debug, Default)]
pub struct UnservedDrops(OnceLock<Box<[Line; STRIPES]>>);

impl UnservedDrops {
    pub(crate) fn add(&self, Stripe(stripe): Stripe, reason: DropReason, packets: u64) {
        let place = REASONS.iter().position(|known| *known == reason);
        let lines = self.0.get_or_init(Box::default);
        let line = lines.get(stripe);
        if let Some(count) = line.zip(place).and_then(|(line, at)| line.0.get(at)) {
            count.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// Every reason that counts here, with its packets.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        let lines = self.0.get();
        REASONS.into_iter().enumerate().map(move |(at, reason)| {
            let counts = lines.into_iter().flat_map(|lines| lines.iter());
            let counts = counts.filter_map(|line| line.0.get(at));
            (
                reason,
                counts.map(|count| count.load(Ordering::Relaxed)).sum(),
            )
        })
    }
}
