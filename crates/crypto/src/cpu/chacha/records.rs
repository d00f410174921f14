//! ChaCha20-Poly1305 for records of protocols other than ESP: any AAD, from one buffer to another.

use arrayvec::ArrayVec;

use super::message::AeadMessage;
use super::{ChaChaKey, flow, open, seal};
use crate::cpu::records::{RecordKernel, RecordWork};
use crate::tier::Tier;

impl RecordKernel for ChaChaKey {
    const RECORDS: usize = flow::MESSAGES;

    unsafe fn seal(tier: Tier, records: &mut [RecordWork<'_, Self>]) {
        // SAFETY: the caller guarantees the tier and the records.
        unsafe {
            let mut messages = messages(records);
            seal(tier, &mut messages);
            for (record, message) in records.iter_mut().zip(&messages) {
                record.tag = message.tag;
                record.unsealed = message.unsealed;
            }
        }
    }

    unsafe fn open(tier: Tier, records: &mut [RecordWork<'_, Self>], authentic: &mut [bool]) {
        // SAFETY: the caller guarantees the tier and the records.
        unsafe {
            let mut messages = messages(records);
            open(tier, &mut messages);
            for (message, authentic) in messages.iter().zip(authentic) {
                *authentic = message.authentic;
            }
        }
    }
}

/// Describes the records as messages.
///
/// # Safety
/// The obligations are those of [`RecordKernel::seal`].
unsafe fn messages<'a>(
    records: &[RecordWork<'a, ChaChaKey>],
) -> ArrayVec<AeadMessage<'a>, { flow::MESSAGES }> {
    let message = |record: &RecordWork<'a, ChaChaKey>| {
        let (key, nonce) = (record.key, &record.nonce);
        // SAFETY: the caller guarantees that the record is valid.
        let message = unsafe { AeadMessage::new(key, nonce, record.from, record.to, record.len) };
        message.with_aad(record.aad).with_received(record.tag)
    };
    records.iter().map(message).collect()
}
