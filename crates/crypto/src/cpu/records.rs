//! Gathers records of general AEADs for the kernels of their keys. ESP packets are gathered by
//! [`gathered`](super::gathered).

use arrayvec::ArrayVec;

use super::registers;
use crate::spec::{JobStatus, NONCE_LEN, TAG_LEN};
use crate::tier::Tier;

/// A record for a kernel.
///
/// A record is *valid* if all of these hold during the call of a kernel:
/// - `from` points to `len` readable bytes.
/// - `to` points to `len` writable bytes: the same bytes, or bytes that do not overlap.
/// - Nobody else accesses those bytes.
#[derive(Debug)]
pub(crate) struct RecordWork<'a, K> {
    pub(crate) key: &'a K,
    pub(crate) nonce: [u8; NONCE_LEN],
    pub(crate) aad: &'a [u8],
    /// Start of the text to read.
    pub(crate) from: *const u8,
    /// The place where the result is written.
    pub(crate) to: *mut u8,
    pub(crate) len: usize,
    /// The tag. Sealing sets it. For opening, it is the tag that came with the record.
    pub(crate) tag: [u8; TAG_LEN],
    /// The record could not be sealed. Only sealing sets this.
    pub(crate) unsealed: bool,
}

/// A family of kernels for a general AEAD.
pub(crate) trait RecordKernel: Sized {
    /// The most records in one call.
    const RECORDS: usize;

    /// Encrypts each record and sets its tag, or `unsealed`.
    ///
    /// # Safety
    /// - The machine has the tier.
    /// - The records are [valid](RecordWork).
    unsafe fn seal(tier: Tier, records: &mut [RecordWork<'_, Self>]);

    /// Decrypts each record and says whether it is authentic. The output for a record that is not authentic is
    /// unspecified and must not be used.
    ///
    /// # Safety
    /// The obligations are those of [`RecordKernel::seal`]. `authentic` has one place for each record.
    unsafe fn open(tier: Tier, records: &mut [RecordWork<'_, Self>], authentic: &mut [bool]);
}

/// The most records that can wait.
pub(crate) const RECORDS: usize = 128;

/// Waiting records of one family and tier, each with the caller's number for it.
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

    /// Seals the waiting records. `done` gets number, status and tag of each.
    ///
    /// # Safety
    /// - The machine has the tier.
    /// - All records that were pushed are [valid](RecordWork).
    pub(crate) unsafe fn seal(&mut self, mut done: impl FnMut(usize, JobStatus, [u8; TAG_LEN])) {
        // SAFETY: the caller guarantees the tier and the records.
        unsafe {
            K::seal(self.tier, &mut self.work);
            #[cfg(feature = "generators")]
            super::fault::sealed_records(self.tier, &mut self.work);
            registers::zero(self.tier);
        }
        for (number, work) in self.numbers.drain(..).zip(self.work.drain(..)) {
            let status = match work.unsealed {
                false => JobStatus::Done,
                true => JobStatus::Malformed,
            };
            done(number, status, work.tag);
        }
    }

    /// Opens the waiting records. `done` gets each number and whether that record is authentic. The output of a
    /// record that is not authentic is zeroed.
    ///
    /// # Safety
    /// The obligations are those of [`Waiting::seal`].
    pub(crate) unsafe fn open(&mut self, mut done: impl FnMut(usize, bool)) {
        let mut authentic = [false; RECORDS];
        let authentic = &mut authentic[..self.work.len()];
        // SAFETY: the caller guarantees the tier and the records.
        unsafe {
            K::open(self.tier, &mut self.work, authentic);
            #[cfg(feature = "generators")]
            super::fault::opened_records(self.tier, &self.work, authentic);
            registers::zero(self.tier);
        }
        let work = self.work.drain(..).zip(authentic);
        for (number, (work, &mut authentic)) in self.numbers.drain(..).zip(work) {
            if !authentic {
                // SAFETY: the caller guarantees `len` writable bytes.
                unsafe { work.to.write_bytes(0, work.len) };
            }
            done(number, authentic);
        }
    }
}
