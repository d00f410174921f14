//! HMAC (RFC 2104). The hash states after the two pads are computed once per key.
//!
//! `aws_lc_rs` cannot copy an HMAC state without work per packet, so this module calls `aws_lc_sys`. It keeps only
//! the chaining values: the rest of a library state is the same for every key.

use std::mem::MaybeUninit;

use aws_lc_sys as lc;

use crate::iana::Integrity;
use crate::plain::{Cleansed, cleanse};

/// Length in bytes of the longest digest.
pub(crate) const DIGEST_LEN_MAX: usize = 64;

/// Defines HMAC over one hash from the type of its chaining value and the library's functions.
macro_rules! hmac {
    ($name:ident, [$word:ty; $words:literal], block $block:literal, digest $digest:literal,
     $init:ident, $update:ident, $finish:ident, $context:ident) => {
        struct $name {
            inner: Cleansed<[$word; $words]>,
            outer: Cleansed<[$word; $words]>,
        }

        impl $name {
            fn new(key: &[u8]) -> Option<Self> {
                Some(Self {
                    inner: Self::after_pad(key, 0x36)?,
                    outer: Self::after_pad(key, 0x5c)?,
                })
            }

            fn empty() -> lc::$context {
                let mut context = MaybeUninit::<lc::$context>::zeroed();
                // SAFETY: Init writes the C struct that it is given and cannot fail. Zeros are a valid value of the
                // struct anyway.
                unsafe {
                    lc::$init(context.as_mut_ptr());
                    context.assume_init()
                }
            }

            fn after_pad(key: &[u8], mask: u8) -> Option<Cleansed<[$word; $words]>> {
                let mut pad = [mask; $block];
                if key.len() > pad.len() {
                    return None;
                }
                for (byte, key) in pad.iter_mut().zip(key) {
                    *byte ^= key;
                }
                let mut context = Self::empty();
                Self::update(&mut context, &pad);
                cleanse(&mut pad);
                let state = Cleansed(context.h);
                cleanse(&mut context.h);
                Some(state)
            }

            /// Returns the hash context as it was after one block.
            fn resume(state: &[$word; $words]) -> lc::$context {
                let mut context = Self::empty();
                context.h = *state;
                context.Nl = 8 * $block;
                context
            }

            fn update(context: &mut lc::$context, bytes: &[u8]) {
                // SAFETY: the context is initialised, and `bytes` is valid for its length. Update cannot fail.
                unsafe { lc::$update(context, bytes.as_ptr().cast(), bytes.len()) };
            }

            fn finish(mut context: lc::$context) -> [u8; DIGEST_LEN_MAX] {
                let mut digest = [0; DIGEST_LEN_MAX];
                // SAFETY: the context is initialised, and Final writes the digest, which has at most 64 bytes.
                unsafe { lc::$finish(digest.as_mut_ptr(), &mut context) };
                digest
            }

            fn compute(&self, message: &[u8], suffix: &[u8]) -> [u8; DIGEST_LEN_MAX] {
                let mut inner = Self::resume(&self.inner.0);
                Self::update(&mut inner, message);
                Self::update(&mut inner, suffix);
                let digest = Self::finish(inner);
                let mut outer = Self::resume(&self.outer.0);
                Self::update(&mut outer, &digest[..$digest]);
                Self::finish(outer)
            }
        }
    };
}

hmac!(Md5, [u32; 4], block 64, digest 16, MD5_Init, MD5_Update, MD5_Final, MD5_CTX);
hmac!(Sha1, [u32; 5], block 64, digest 20, SHA1_Init, SHA1_Update, SHA1_Final, SHA_CTX);
hmac!(Sha256, [u32; 8], block 64, digest 32, SHA256_Init, SHA256_Update, SHA256_Final, SHA256_CTX);
hmac!(Sha384, [u64; 8], block 128, digest 48, SHA384_Init, SHA384_Update, SHA384_Final, SHA512_CTX);
hmac!(Sha512, [u64; 8], block 128, digest 64, SHA512_Init, SHA512_Update, SHA512_Final, SHA512_CTX);

/// An HMAC key.
pub(crate) struct Hmac(HmacKind);

enum HmacKind {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Hmac {
    /// Makes a key. Returns `None` if the algorithm is no HMAC, or if the key is longer than the hash's block.
    pub(crate) fn new(integrity: Integrity, key: &[u8]) -> Option<Self> {
        Some(Self(match integrity {
            Integrity::HmacMd5_96 => HmacKind::Md5(Md5::new(key)?),
            Integrity::HmacSha1_96 => HmacKind::Sha1(Sha1::new(key)?),
            Integrity::HmacSha2_256_128 => HmacKind::Sha256(Sha256::new(key)?),
            Integrity::HmacSha2_384_192 => HmacKind::Sha384(Sha384::new(key)?),
            Integrity::HmacSha2_512_256 => HmacKind::Sha512(Sha512::new(key)?),
            _ => return None,
        }))
    }

    /// Returns the chaining values after the inner and after the outer pad, padded with zeros. Returns `None` if the
    /// hash has 64-bit words.
    pub(crate) fn states(&self) -> Option<[Cleansed<[u32; 8]>; 2]> {
        let states: [&[u32]; 2] = match &self.0 {
            HmacKind::Md5(key) => [&key.inner.0, &key.outer.0],
            HmacKind::Sha1(key) => [&key.inner.0, &key.outer.0],
            HmacKind::Sha256(key) => [&key.inner.0, &key.outer.0],
            HmacKind::Sha384(_) | HmacKind::Sha512(_) => return None,
        };
        Some(states.map(|state| {
            let mut padded = Cleansed([0; 8]);
            padded.0[..state.len()].copy_from_slice(state);
            padded
        }))
    }

    /// Computes the HMAC over `message` and `suffix`, not truncated. Zeros follow a shorter digest.
    pub(crate) fn compute(&self, message: &[u8], suffix: &[u8]) -> [u8; DIGEST_LEN_MAX] {
        match &self.0 {
            HmacKind::Md5(key) => key.compute(message, suffix),
            HmacKind::Sha1(key) => key.compute(message, suffix),
            HmacKind::Sha256(key) => key.compute(message, suffix),
            HmacKind::Sha384(key) => key.compute(message, suffix),
            HmacKind::Sha512(key) => key.compute(message, suffix),
        }
    }
}
