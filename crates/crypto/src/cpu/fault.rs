//! Breaks one lane of a tier's kernels on purpose. The tests of the self-test use it, and no build of the product has it.

use std::cell::Cell;

use super::kernel::Work;
use super::records::RecordWork;
use crate::tier::Tier;

/// The way in which the lane is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// One bit of the sealed output is flipped.
    Sealed,
    /// One bit of the opened output is flipped.
    Opened,
    /// Every packet counts as authentic.
    Accepted,
    /// Every packet counts as forged.
    Refused,
    /// The library does not seal.
    Unsealed,
}

thread_local! {
    static FAULT: Cell<Option<(Tier, usize, Effect)>> = const { Cell::new(None) };
}

/// Heals the lane when it is dropped.
#[derive(Debug)]
pub struct Broken;

impl Drop for Broken {
    fn drop(&mut self) {
        FAULT.set(None);
    }
}

/// Breaks the lane in this thread until the returned value is dropped.
pub fn inject(tier: Tier, lane: usize, effect: Effect) -> Broken {
    FAULT.set(Some((tier, lane, effect)));
    Broken
}

fn lane(tier: Tier, effect: Effect) -> Option<usize> {
    let (broken, lane, how) = FAULT.get()?;
    (broken == tier && effect == how).then_some(lane)
}

/// Breaks a sealed packet if the fault asks for it.
///
/// # Safety
/// The packets' bytes may be written.
pub(super) unsafe fn sealed<K>(tier: Tier, work: &[Work<'_, K>]) {
    if let Some(work) = lane(tier, Effect::Sealed).and_then(|lane| work.get(lane)) {
        // SAFETY: the ICV's last byte is the packet's last byte.
        unsafe { *work.packet.add(work.len as usize - 1) ^= 0x10 };
    }
}

/// Breaks an opened packet or its verdict if the fault asks for it.
///
/// # Safety
/// The packets' bytes may be written.
pub(super) unsafe fn opened<K>(tier: Tier, work: &[Work<'_, K>], authentic: &mut [bool]) {
    if let Some(work) = lane(tier, Effect::Opened).and_then(|lane| work.get(lane)) {
        // SAFETY: a packet's body has at least one byte.
        unsafe { *work.body() ^= 1 };
    }
    judge(tier, authentic);
}

/// The lane whose packet or record the library refuses to seal.
pub(super) fn unsealed(tier: Tier) -> Option<usize> {
    lane(tier, Effect::Unsealed)
}

pub(super) fn sealed_records<K>(tier: Tier, records: &mut [RecordWork<'_, K>]) {
    if let Some(record) = lane(tier, Effect::Sealed).and_then(|lane| records.get_mut(lane)) {
        record.tag[3] ^= 0x20;
    }
}

/// Breaks an opened record or its verdict if the fault asks for it.
///
/// # Safety
/// The records' outputs may be written.
pub(super) unsafe fn opened_records<K>(
    tier: Tier,
    records: &[RecordWork<'_, K>],
    authentic: &mut [bool],
) {
    if let Some(record) = lane(tier, Effect::Opened).and_then(|lane| records.get(lane)) {
        // SAFETY: `len / 2` lies inside the output.
        unsafe { *record.to.add(record.len / 2) ^= 1 };
    }
    judge(tier, authentic);
}

/// Overwrites the verdict on the broken lane's packet or record.
fn judge(tier: Tier, authentic: &mut [bool]) {
    for (effect, verdict) in [(Effect::Accepted, true), (Effect::Refused, false)] {
        if let Some(authentic) = lane(tier, effect).and_then(|lane| authentic.get_mut(lane)) {
            *authentic = verdict;
        }
    }
}
