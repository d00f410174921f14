//! HMAC-SHA2 (RFC 4868) with the states after the two pads computed once.
//!
//! `aws_lc_rs` cannot copy an HMAC state without work per packet, hence the calls into `aws_lc_sys`.

use std::mem::MaybeUninit;

use aws_lc_sys as lc;

use crate::iana::Integrity;

/// The states of the hash after the inner and the outer pad (RFC 2104 §4).
pub(crate) struct Hmac {
    inner: Hash,
    outer: Hash,
}

impl Hmac {
    /// The key must not be longer than the hash's block.
    pub(crate) fn new(integrity: Integrity, key: &[u8]) -> Option<Self> {
        Some(Self {
            inner: Hash::after_pad(integrity, key, 0x36)?,
            outer: Hash::after_pad(integrity, key, 0x5c)?,
        })
    }

    /// HMAC over `message` and `suffix`, not truncated; zeros follow a shorter digest.
    pub(crate) fn compute(&self, message: &[u8], suffix: &[u8]) -> [u8; 64] {
        let mut inner = self.inner;
        inner.update(message);
        inner.update(suffix);
        let (digest, len) = inner.finish();
        let mut outer = self.outer;
        outer.update(&digest[..len]);
        outer.finish().0
    }
}

impl Drop for Hmac {
    fn drop(&mut self) {
        self.inner.cleanse();
        self.outer.cleanse();
    }
}

#[derive(Clone, Copy)]
enum Hash {
    Sha256(lc::SHA256_CTX),
    /// SHA-384 and SHA-512: they differ in the initial state and the digest's length.
    Sha512(lc::SHA512_CTX),
}

impl Hash {
    fn new(integrity: Integrity) -> Option<Self> {
        let mut sha256 = MaybeUninit::<lc::SHA256_CTX>::zeroed();
        let mut sha512 = MaybeUninit::<lc::SHA512_CTX>::zeroed();
        // SAFETY: each Init writes the plain C struct that it is given, cannot fail, and zeros are a
        // valid value of it anyway.
        unsafe {
            Some(match integrity {
                Integrity::HmacSha2_256_128 => {
                    lc::SHA256_Init(sha256.as_mut_ptr());
                    Self::Sha256(sha256.assume_init())
                }
                Integrity::HmacSha2_384_192 => {
                    lc::SHA384_Init(sha512.as_mut_ptr());
                    Self::Sha512(sha512.assume_init())
                }
                Integrity::HmacSha2_512_256 => {
                    lc::SHA512_Init(sha512.as_mut_ptr());
                    Self::Sha512(sha512.assume_init())
                }
                _ => return None,
            })
        }
    }

    fn after_pad(integrity: Integrity, key: &[u8], mask: u8) -> Option<Self> {
        let mut hash = Self::new(integrity)?;
        let mut block = [mask; 128];
        let pad = &mut block[..hash.block_len()];
        if key.len() > pad.len() {
            return None;
        }
        for (byte, key) in pad.iter_mut().zip(key) {
            *byte ^= key;
        }
        hash.update(pad);
        cleanse(&mut block);
        Some(hash)
    }

    fn block_len(&self) -> usize {
        match self {
            Self::Sha256(_) => 64,
            Self::Sha512(_) => 128,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        let (data, len) = (bytes.as_ptr().cast(), bytes.len());
        // SAFETY: the state was initialised by `new`, and `bytes` is valid for its length. Update
        // cannot fail.
        unsafe {
            match self {
                Self::Sha256(state) => lc::SHA256_Update(state, data, len),
                Self::Sha512(state) => lc::SHA512_Update(state, data, len),
            };
        }
    }

    fn finish(mut self) -> ([u8; 64], usize) {
        let mut digest = [0; 64];
        // SAFETY: the state was initialised by `new`. Final writes 32 bytes, or `md_len` bytes that
        // Init set to 48 or 64, and fails only if that is neither.
        let len = unsafe {
            match &mut self {
                Self::Sha256(state) => {
                    lc::SHA256_Final(digest.as_mut_ptr(), state);
                    32
                }
                Self::Sha512(state) => {
                    lc::SHA512_Final(digest.as_mut_ptr(), state);
                    state.md_len as usize
                }
            }
        };
        (digest, len)
    }

    fn cleanse(&mut self) {
        match self {
            Self::Sha256(state) => cleanse(state),
            Self::Sha512(state) => cleanse(state),
        }
    }
}

/// Plain old data that may hold key material.
///
/// # Safety
/// All zeros must be a valid value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: C structs of integers, and bytes.
unsafe impl Plain for lc::SHA256_CTX {}
// SAFETY: as above.
unsafe impl Plain for lc::SHA512_CTX {}
// SAFETY: as above.
unsafe impl Plain for lc::AES_KEY {}
// SAFETY: as above.
unsafe impl<const N: usize> Plain for [u8; N] {}

/// Overwrites `value` with zeros, which the compiler does not leave out.
pub(crate) fn cleanse<T: Plain>(value: &mut T) {
    // SAFETY: the pointer is valid for the size of T, and zeros are a valid T.
    unsafe { lc::OPENSSL_cleanse(std::ptr::from_mut(value).cast(), size_of::<T>()) }
}
