//! Sorts records of general AEADs by the kernels of their keys, as [`group`](super::group) does with packets.

use arrayvec::ArrayVec;

use super::{Tier, registers};
use crate::lookaside::{NONCE_LEN, TAG_LEN};

/// A record for a kernel.
#[derive(Debug)]
pub(crate) struct RecordWork<'a, K> {
    pub(crate) key: &'a K,
    pub(crate) nonce: [u8; NONCE_LEN],
    pub(crate) aad: &'a [u8],
    /// `len` bytes that may be read.
    pub(crate) from: *const u8,
    /// `len` bytes that may be written: the same or others.
    pub(crate) to: *mut u8,
    pub(crate) len: usize,
    /// Of sealing the result; when opening, the tag that the record came with.
    pub(crate) tag: [u8; TAG_LEN],
}

/// A family of kernels for a general AEAD.
pub(crate) trait RecordKernel: Sized {
    /// The most records of one call.
    const RECORDS: usize;

    /// Encrypts each record and sets its tag.
    ///
    /// # Safety
    /// The machine has the tier; the records' pointers are what they promise.
    unsafe fn seal(tier: Tier, records: &mut [RecordWork<'_, Self>]);

    /// Decrypts each record and says whether it is authentic; what it leaves of one that is not must not be used.
    ///
    /// # Safety
    /// As [`RecordKernel::seal`].
    unsafe fn open(tier: Tier, records: &mut [RecordWork<'_, Self>], authentic: &mut [bool]);
}

/// The most records that wait.
pub(crate) const RECORDS: usize = 128;

/// Records of one family and tier that wait, each with the caller's number for it.
pub(crate) struct Waiting<'a, K: RecordKernel> {
    work: ArrayVec<RecordWork<'a, K>, RECORDS>,
    numbers: ArrayVec<usize, RECORDS>,
    tier: Tier,
}

impl<'a, K: RecordKernel> Waiting<'a, K> {
    pub(crate) fn new(tier: Tier) -> Self {
        const { assert!(K::RECORDS <= RECORDS) };
        Self {
            work: ArrayVec::new(),
            numbers: ArrayVec::new(),
            tier,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.work.len() == K::RECORDS
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    pub(crate) fn push(&mut self, number: usize, work: RecordWork<'a, K>) {
        self.work.push(work);
        self.numbers.push(number);
    }

    /// Seals what waits; `done` gets the number and the tag of each.
    ///
    /// # Safety
    /// The machine has the tier; the records' pointers are what they promise, for nobody else during the call.
    pub(crate) unsafe fn seal(&mut self, mut done: impl FnMut(usize, [u8; TAG_LEN])) {
        // SAFETY: the caller's promise.
        unsafe {
            K::seal(self.tier, &mut self.work);
            #[cfg(test)]
            super::fault::sealed_records(self.tier, &mut self.work);
            registers::zero(self.tier);
        }
        for (number, work) in self.numbers.drain(..).zip(self.work.drain(..)) {
            done(number, work.tag);
        }
    }

    /// Opens what waits; `done` gets whether a record is authentic. The output of one that is not is zeroed.
    ///
    /// # Safety
    /// As [`Waiting::seal`].
    pub(crate) unsafe fn open(&mut self, mut done: impl FnMut(usize, bool)) {
        let mut authentic = [false; RECORDS];
        let authentic = &mut authentic[..self.work.len()];
        // SAFETY: the caller's promise.
        unsafe {
            K::open(self.tier, &mut self.work, authentic);
            #[cfg(test)]
            super::fault::opened_records(self.tier, &self.work, authentic);
            registers::zero(self.tier);
        }
        let work = self.work.drain(..).zip(authentic);
        for (number, (work, &mut authentic)) in self.numbers.drain(..).zip(work) {
            if !authentic {
                // SAFETY: the caller's promise.
                unsafe { work.to.write_bytes(0, work.len) };
            }
            done(number, authentic);
        }
    }
}
