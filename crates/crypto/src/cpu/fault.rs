//! Breaks one lane of a tier's kernels on purpose, for the tests of the self-test.

use std::cell::Cell;

use super::records::RecordWork;
use super::{Tier, Work};

/// What is wrong with the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A bit of what it seals.
    Sealed,
    /// A bit of what it opens.
    Opened,
    /// It takes every packet for authentic.
    Accepted,
    /// It takes no packet for authentic.
    Refused,
}

thread_local! {
    static FAULT: Cell<Option<(Tier, usize, Effect)>> = const { Cell::new(None) };
}

/// Heals the lane when it is dropped.
#[derive(Debug)]
pub(crate) struct Broken;

impl Drop for Broken {
    fn drop(&mut self) {
        FAULT.set(None);
    }
}

/// Breaks the lane in this thread.
pub(crate) fn inject(tier: Tier, lane: usize, effect: Effect) -> Broken {
    FAULT.set(Some((tier, lane, effect)));
    Broken
}

fn lane(tier: Tier, effect: Effect) -> Option<usize> {
    let (broken, lane, how) = FAULT.get()?;
    (broken == tier && effect == how).then_some(lane)
}

/// # Safety
/// The packets' bytes may be written.
pub(super) unsafe fn sealed<K>(tier: Tier, work: &[Work<'_, K>]) {
    if let Some(work) = lane(tier, Effect::Sealed).and_then(|lane| work.get(lane)) {
        // SAFETY: the ICV's last byte.
        unsafe { *work.packet.add(work.len as usize - 1) ^= 0x10 };
    }
}

/// # Safety
/// As [`sealed`].
pub(super) unsafe fn opened<K>(tier: Tier, work: &[Work<'_, K>], authentic: &mut [bool]) {
    if let Some(work) = lane(tier, Effect::Opened).and_then(|lane| work.get(lane)) {
        // SAFETY: the body's first byte.
        unsafe { *work.body() ^= 1 };
    }
    judge(tier, authentic);
}

pub(super) fn sealed_records<K>(tier: Tier, records: &mut [RecordWork<'_, K>]) {
    if let Some(record) = lane(tier, Effect::Sealed).and_then(|lane| records.get_mut(lane)) {
        record.tag[3] ^= 0x20;
    }
}

/// # Safety
/// The records' outputs may be written.
pub(super) unsafe fn opened_records<K>(
    tier: Tier,
    records: &[RecordWork<'_, K>],
    authentic: &mut [bool],
) {
    if let Some(record) = lane(tier, Effect::Opened).and_then(|lane| records.get(lane)) {
        // SAFETY: one of the output's bytes.
        unsafe { *record.to.add(record.len / 2) ^= 1 };
    }
    judge(tier, authentic);
}

/// Says of the broken lane's packet or record what the fault says.
fn judge(tier: Tier, authentic: &mut [bool]) {
    for (effect, verdict) in [(Effect::Accepted, true), (Effect::Refused, false)] {
        if let Some(authentic) = lane(tier, effect).and_then(|lane| authentic.get_mut(lane)) {
            *authentic = verdict;
        }
    }
}
