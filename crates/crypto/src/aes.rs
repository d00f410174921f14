//! AES key schedules of aws-lc, with CBC (RFC 3602) and counter mode (RFC 3686) in place.
//!
//! `aws_lc_rs` has no unpadded CBC, and no counter mode that works in place without an allocation. Therefore this
//! module calls `aws_lc_sys`.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use aws_lc_sys as lc;

use crate::plain::Cleansed;

pub(crate) const BLOCK: usize = 16;

/// The key schedule for encryption.
pub(crate) struct EncryptKey(Cleansed<lc::AES_KEY>);

/// The key schedule for decryption.
pub(crate) struct DecryptKey(Cleansed<lc::AES_KEY>);

type SetKey = unsafe extern "C" fn(*const u8, u32, *mut lc::AES_KEY) -> c_int;

fn schedule(key: &[u8], set_key: SetKey) -> Option<Cleansed<lc::AES_KEY>> {
    let bits = u32::try_from(key.len()).ok()?.checked_mul(8)?;
    let mut schedule = MaybeUninit::<lc::AES_KEY>::zeroed();
    // SAFETY: the key pointer is valid for `bits / 8` bytes, and the schedule is writable. Zeros are a valid AES_KEY
    // even if the call fails.
    let (failed, schedule) = unsafe {
        let failed = set_key(key.as_ptr(), bits, schedule.as_mut_ptr()) != 0;
        (failed, Cleansed(schedule.assume_init()))
    };
    (!failed).then_some(schedule)
}

impl EncryptKey {
    /// Returns `None` unless the key has 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        schedule(key, lc::AES_set_encrypt_key).map(Self)
    }

    pub(crate) fn encrypt_block(&self, mut block: [u8; BLOCK]) -> [u8; BLOCK] {
        // SAFETY: input and output are the same 16 bytes, which AES_encrypt allows.
        unsafe { lc::AES_encrypt(block.as_ptr(), block.as_mut_ptr(), &self.0.0) }
        block
    }

    /// Encrypts with CBC in place. `body` must consist of whole blocks.
    pub(crate) fn cbc(&self, iv: [u8; BLOCK], body: &mut [u8]) {
        cbc(&self.0.0, iv, body, lc::AES_ENCRYPT);
    }

    /// Returns the CBC-MAC chaining value after `blocks`, which must be whole blocks.
    pub(crate) fn chain(&self, mut state: [u8; BLOCK], blocks: &[u8]) -> [u8; BLOCK] {
        assert!(blocks.len().is_multiple_of(BLOCK));
        // CBC writes its output somewhere, although only the chaining value is used.
        let mut scratch = [0; 32 * BLOCK];
        for chunk in blocks.chunks(scratch.len()) {
            // SAFETY: `chunk` is whole blocks, not longer than `scratch`, and does not overlap it. The state is 16
            // writable bytes and receives the last block of output.
            unsafe {
                lc::AES_cbc_encrypt(
                    chunk.as_ptr(),
                    scratch.as_mut_ptr(),
                    chunk.len(),
                    &self.0.0,
                    state.as_mut_ptr(),
                    lc::AES_ENCRYPT,
                );
            }
        }
        state
    }

    /// Applies counter mode in place, starting at this counter block. `body` must be shorter than 2^32 blocks, so
    /// that the 32-bit counter in the last bytes does not wrap.
    pub(crate) fn ctr(&self, mut counter: [u8; BLOCK], body: &mut [u8]) {
        let mut key_stream = [0; BLOCK];
        let mut used = 0;
        // SAFETY: input and output are the same `body.len()` bytes, which AES_ctr128_encrypt allows. Counter and key
        // stream are 16 writable bytes, and `used` is below 16.
        unsafe {
            lc::AES_ctr128_encrypt(
                body.as_ptr(),
                body.as_mut_ptr(),
                body.len(),
                &self.0.0,
                counter.as_mut_ptr(),
                key_stream.as_mut_ptr(),
                &mut used,
            );
        }
    }
}

impl DecryptKey {
    /// Returns `None` unless the key has 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        schedule(key, lc::AES_set_decrypt_key).map(Self)
    }

    /// Decrypts with CBC in place. `body` must consist of whole blocks.
    pub(crate) fn cbc(&self, iv: [u8; BLOCK], body: &mut [u8]) {
        cbc(&self.0.0, iv, body, lc::AES_DECRYPT);
    }
}

fn cbc(key: &lc::AES_KEY, mut iv: [u8; BLOCK], body: &mut [u8], direction: c_int) {
    assert!(body.len().is_multiple_of(BLOCK));
    // SAFETY: input and output are the same `body.len()` bytes, which AES_cbc_encrypt allows. The length is a whole
    // number of blocks. The IV is 16 writable bytes. The schedule fits the direction.
    unsafe {
        lc::AES_cbc_encrypt(
            body.as_ptr(),
            body.as_mut_ptr(),
            body.len(),
            key,
            iv.as_mut_ptr(),
            direction,
        );
    }
}
