//! AES-GCM for records of protocols other than ESP: any AAD, from one buffer to another.

use arrayvec::ArrayVec;

use super::frame::Frame;
use super::key::{GcmKey, SORTS, Use, hash_aad, rounds_of};
use super::order::{Order, PACKETS};
use super::{AesNi, Avx512, Kernels, avx512};
use crate::cpu::records::{RecordKernel, RecordWork};
use crate::plain::cleanse;
use crate::tier::Tier;

/// A record whose AAD is hashed already, up to its last block.
struct General<'a> {
    key: &'a GcmKey,
    source: *const u8,
    target: *mut u8,
    text_len: usize,
    icv: *mut u8,
    nonce: [u64; 2],
    aad: [u64; 2],
    aad_bits: u64,
}

impl<'a> General<'a> {
    fn of(record: &mut RecordWork<'a, GcmKey>) -> Self {
        let [low @ .., a, b, c, d] = record.nonce;
        let key = record.key;
        // SAFETY: a key is made only on a machine that has its tier.
        let aad = unsafe { hash_aad(key, record.aad) };
        Self {
            key,
            source: record.from,
            target: record.to,
            text_len: record.len,
            icv: record.tag.as_mut_ptr(),
            nonce: [
                u64::from_le_bytes(low),
                u64::from(u32::from_le_bytes([a, b, c, d])),
            ],
            aad: [aad as u64, (aad >> 64) as u64],
            aad_bits: record.aad.len() as u64 * 8,
        }
    }
}

impl Frame for General<'_> {
    #[inline(always)]
    fn key(&self) -> &GcmKey {
        self.key
    }

    #[inline(always)]
    fn source(&self) -> *const u8 {
        self.source
    }

    #[inline(always)]
    fn target(&self) -> *mut u8 {
        self.target
    }

    #[inline(always)]
    fn text_len(&self) -> usize {
        self.text_len
    }

    #[inline(always)]
    fn icv(&self) -> *mut u8 {
        self.icv
    }

    #[inline(always)]
    fn nonce(&self) -> [u64; 2] {
        self.nonce
    }

    #[inline(always)]
    fn aad(&self) -> [u64; 2] {
        self.aad
    }

    #[inline(always)]
    fn aad_bits(&self) -> u64 {
        self.aad_bits
    }
}

impl avx512::Front for General<'_> {}

impl GcmKey {
    /// Makes a key without a salt. Returns `None` if the tier has no kernel or the key's length is wrong.
    pub(crate) fn general(tier: Tier, key: &[u8]) -> Option<Box<Self>> {
        if tier == Tier::Portable {
            return None;
        }
        let purpose = Use {
            icv_len: 16,
            esn: false,
            implicit_iv: true,
        };
        // SAFETY: the caller checked that the machine has the tier, which is not the portable one.
        unsafe { Self::new(tier, key, [0; 4], purpose) }
    }
}

impl RecordKernel for GcmKey {
    const RECORDS: usize = PACKETS;

    unsafe fn seal(tier: Tier, records: &mut [RecordWork<'_, Self>]) {
        // SAFETY: the caller guarantees the tier and the records.
        unsafe { run::<true>(tier, records, &mut []) }
    }

    unsafe fn open(tier: Tier, records: &mut [RecordWork<'_, Self>], authentic: &mut [bool]) {
        // SAFETY: the caller guarantees the tier and the records.
        unsafe { run::<false>(tier, records, authentic) }
    }
}

/// Seals or opens the records with the kernel of the tier.
///
/// # Safety
/// The obligations are those of [`RecordKernel::seal`].
unsafe fn run<const SEAL: bool>(
    tier: Tier,
    records: &mut [RecordWork<'_, GcmKey>],
    authentic: &mut [bool],
) {
    // SAFETY: the caller guarantees the tier and the records.
    unsafe {
        match tier {
            Tier::Avx512 => run_on::<Avx512, SEAL>(records, authentic),
            _ => run_on::<AesNi, SEAL>(records, authentic),
        }
    }
}

/// Orders the records by rounds and shape, then runs the kernel on each run of equal records.
///
/// # Safety
/// The obligations are those of [`RecordKernel::seal`].
unsafe fn run_on<K: Kernels, const SEAL: bool>(
    records: &mut [RecordWork<'_, GcmKey>],
    authentic: &mut [bool],
) {
    let mut frames: ArrayVec<General, PACKETS> = records.iter_mut().map(General::of).collect();
    let order = Order::new(frames.iter().map(|frame| {
        let shape = K::shape(frame.text_len);
        (frame.key.sort() % (SORTS / 2) * K::SHAPES + shape) as u8
    }));
    let mut start = 0;
    for (shape, count) in order.runs() {
        let (sort, shape) = (shape / K::SHAPES, shape % K::SHAPES);
        let mut queue = order.queue(&frames, start);
        // SAFETY: the caller guarantees the tier and the records; the order is by rounds and by shape.
        unsafe { K::run::<_, SEAL>(shape, rounds_of(sort), &mut queue, count, authentic) }
        start += count;
    }
    // The hash of known AAD would reveal the hash key, so it is erased.
    frames.iter_mut().for_each(|frame| cleanse(&mut frame.aad));
}
