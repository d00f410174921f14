//! AES-CBC (RFC 3602) with an HMAC, key schedules computed once.
//!
//! `aws_lc_rs` has no unpadded CBC that works in place, hence the calls into `aws_lc_sys`.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use aws_lc_sys as lc;

use crate::hmac::{Hmac, cleanse};
use crate::iana::Integrity;

const BLOCK: usize = 16;

/// The expanded keys of one AES-CBC + HMAC SA.
pub(crate) struct CbcHmac {
    encrypt: lc::AES_KEY,
    decrypt: lc::AES_KEY,
    hmac: Hmac,
}

impl CbcHmac {
    pub(crate) fn new(
        cipher_key: &[u8],
        integrity: Integrity,
        integrity_key: &[u8],
    ) -> Option<Self> {
        let hmac = Hmac::new(integrity, integrity_key)?;
        let bits = u32::try_from(cipher_key.len()).ok()? * 8;
        let mut encrypt = MaybeUninit::<lc::AES_KEY>::zeroed();
        let mut decrypt = MaybeUninit::<lc::AES_KEY>::zeroed();
        // SAFETY: the key pointer is valid for `bits / 8` bytes and both schedules are writable;
        // any bit pattern, zeros too, is a valid AES_KEY.
        let (encrypt, decrypt, failed) = unsafe {
            let a = lc::AES_set_encrypt_key(cipher_key.as_ptr(), bits, encrypt.as_mut_ptr());
            let b = lc::AES_set_decrypt_key(cipher_key.as_ptr(), bits, decrypt.as_mut_ptr());
            (
                encrypt.assume_init(),
                decrypt.assume_init(),
                a != 0 || b != 0,
            )
        };
        let keys = Self {
            encrypt,
            decrypt,
            hmac,
        };
        (!failed).then_some(keys)
    }

    /// Encrypts `body` in place; its length must be a multiple of the block.
    pub(crate) fn encrypt(&self, iv: [u8; BLOCK], body: &mut [u8]) {
        cbc(&self.encrypt, iv, body, lc::AES_ENCRYPT);
    }

    /// Decrypts `body` in place; its length must be a multiple of the block.
    pub(crate) fn decrypt(&self, iv: [u8; BLOCK], body: &mut [u8]) {
        cbc(&self.decrypt, iv, body, lc::AES_DECRYPT);
    }

    /// HMAC over `message` and `suffix`; the caller truncates.
    pub(crate) fn icv(&self, message: &[u8], suffix: &[u8]) -> [u8; 64] {
        self.hmac.compute(message, suffix)
    }
}

impl Drop for CbcHmac {
    fn drop(&mut self) {
        cleanse(&mut self.encrypt);
        cleanse(&mut self.decrypt);
    }
}

fn cbc(key: &lc::AES_KEY, mut iv: [u8; BLOCK], body: &mut [u8], direction: c_int) {
    assert!(body.len().is_multiple_of(BLOCK));
    // SAFETY: in and out are the same `body.len()` bytes, which AES_cbc_encrypt allows; the length
    // is a whole number of blocks; the IV is 16 writable bytes; the schedule fits the direction.
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
