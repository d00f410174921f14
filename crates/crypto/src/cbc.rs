//! AES-CBC (RFC 3602) and HMAC-SHA2 (RFC 4868) over aws-lc's primitives, with the key schedules
//! and the two HMAC states computed once.
//!
//! `aws_lc_rs` has neither an unpadded CBC that works in place nor an HMAC state that is copied
//! without an allocation, hence the calls into `aws_lc_sys`.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use aws_lc_sys as lc;

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

/// The states of the hash after the inner and the outer pad (RFC 2104 §4).
enum Hmac {
    Sha256 {
        inner: lc::SHA256_CTX,
        outer: lc::SHA256_CTX,
    },
    Sha512 {
        inner: lc::SHA512_CTX,
        outer: lc::SHA512_CTX,
    },
}

impl Hmac {
    fn new(integrity: Integrity, key: &[u8]) -> Option<Self> {
        match integrity {
            Integrity::HmacSha2_256_128 => Some(Self::Sha256 {
                inner: sha256_start(key, 0x36)?,
                outer: sha256_start(key, 0x5c)?,
            }),
            Integrity::HmacSha2_384_192 => Some(Self::Sha512 {
                inner: sha512_start(lc::SHA384_Init, key, 0x36)?,
                outer: sha512_start(lc::SHA384_Init, key, 0x5c)?,
            }),
            Integrity::HmacSha2_512_256 => Some(Self::Sha512 {
                inner: sha512_start(lc::SHA512_Init, key, 0x36)?,
                outer: sha512_start(lc::SHA512_Init, key, 0x5c)?,
            }),
        }
    }

    fn compute(&self, message: &[u8], suffix: &[u8]) -> [u8; 64] {
        let mut digest = [0; 64];
        match self {
            Self::Sha256 { inner, outer } => {
                sha256_finish(*inner, &[message, suffix], &mut digest);
                let inner_digest = digest;
                sha256_finish(*outer, &[&inner_digest[..32]], &mut digest);
            }
            Self::Sha512 { inner, outer } => {
                let digest_len = inner.md_len as usize;
                sha512_finish(*inner, &[message, suffix], &mut digest);
                let inner_digest = digest;
                sha512_finish(*outer, &[&inner_digest[..digest_len]], &mut digest);
            }
        }
        digest
    }
}

impl Drop for Hmac {
    fn drop(&mut self) {
        match self {
            Self::Sha256 { inner, outer } => {
                cleanse(inner);
                cleanse(outer);
            }
            Self::Sha512 { inner, outer } => {
                cleanse(inner);
                cleanse(outer);
            }
        }
    }
}

/// The key, no longer than a block, padded and masked.
fn pad<const N: usize>(key: &[u8], mask: u8) -> Option<[u8; N]> {
    let mut block = [mask; N];
    for (byte, key) in block.get_mut(..key.len())?.iter_mut().zip(key) {
        *byte ^= key;
    }
    Some(block)
}

fn sha256_start(key: &[u8], mask: u8) -> Option<lc::SHA256_CTX> {
    let mut block: [u8; 64] = pad(key, mask)?;
    let mut state = MaybeUninit::<lc::SHA256_CTX>::zeroed();
    // SAFETY: Init writes the whole state before Update reads it; the block is 64 bytes.
    let (state, ok) = unsafe {
        let ok = lc::SHA256_Init(state.as_mut_ptr()) == 1
            && lc::SHA256_Update(state.as_mut_ptr(), block.as_ptr().cast(), block.len()) == 1;
        (state.assume_init(), ok)
    };
    cleanse(&mut block);
    ok.then_some(state)
}

fn sha512_start(
    init: unsafe extern "C" fn(*mut lc::SHA512_CTX) -> c_int,
    key: &[u8],
    mask: u8,
) -> Option<lc::SHA512_CTX> {
    let mut block: [u8; 128] = pad(key, mask)?;
    let mut state = MaybeUninit::<lc::SHA512_CTX>::zeroed();
    // SAFETY: `init` is SHA384_Init or SHA512_Init and writes the whole state before Update reads
    // it; the block is 128 bytes.
    let (state, ok) = unsafe {
        let ok = init(state.as_mut_ptr()) == 1
            && lc::SHA512_Update(state.as_mut_ptr(), block.as_ptr().cast(), block.len()) == 1;
        (state.assume_init(), ok)
    };
    cleanse(&mut block);
    ok.then_some(state)
}

fn sha256_finish(mut state: lc::SHA256_CTX, parts: &[&[u8]], digest: &mut [u8; 64]) {
    // SAFETY: the state was initialised, each part is valid for its length, and the digest of 32
    // bytes fits. These functions cannot fail on an initialised state.
    unsafe {
        for part in parts {
            lc::SHA256_Update(&mut state, part.as_ptr().cast(), part.len());
        }
        lc::SHA256_Final(digest.as_mut_ptr(), &mut state);
    }
}

fn sha512_finish(mut state: lc::SHA512_CTX, parts: &[&[u8]], digest: &mut [u8; 64]) {
    // SAFETY: as in `sha256_finish`; Final writes `md_len` bytes, 48 or 64, as Init set it.
    unsafe {
        for part in parts {
            lc::SHA512_Update(&mut state, part.as_ptr().cast(), part.len());
        }
        lc::SHA512_Final(digest.as_mut_ptr(), &mut state);
    }
}

/// Overwrites plain old data that held key material.
fn cleanse<T: Copy>(value: &mut T) {
    // SAFETY: the pointer is valid for the size of T, and T is one of the plain C structs or byte
    // arrays above, for which zeros are a valid value.
    unsafe { lc::OPENSSL_cleanse(std::ptr::from_mut(value).cast(), size_of::<T>()) }
}
