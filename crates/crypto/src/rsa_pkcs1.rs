//! RSASSA-PKCS1-v1_5 signatures with hashes that aws-lc-rs does not offer. It verifies SHA-1 but does not make such
//! signatures, and peers without RFC 7427 know no other hash. Certificates may be signed with SHA-224 or SHA-3.

use std::ptr::{self, NonNull};

use aws_lc_rs::digest;
use aws_lc_sys as lc;

/// The bits of a modulus that is accepted, as aws-lc-rs has them.
const MODULUS_BITS: std::ops::RangeInclusive<u32> = 2048..=8192;

/// A hash that aws-lc-rs does not verify with RSA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RsaHash {
    Sha224,
    Sha3_256,
    Sha3_384,
    Sha3_512,
}

impl RsaHash {
    fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha224 => &digest::SHA224,
            Self::Sha3_256 => &digest::SHA3_256,
            Self::Sha3_384 => &digest::SHA3_384,
            Self::Sha3_512 => &digest::SHA3_512,
        }
    }

    fn number(self) -> i32 {
        match self {
            Self::Sha224 => lc::NID_sha224,
            Self::Sha3_256 => lc::NID_sha3_256,
            Self::Sha3_384 => lc::NID_sha3_384,
            Self::Sha3_512 => lc::NID_sha3_512,
        }
    }

    /// Says whether the key has made the signature. The key is an RSAPublicKey in DER (RFC 8017 appendix A.1.1).
    pub fn verifies(self, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
        // SAFETY: `key` is readable for its length.
        let rsa = unsafe { lc::RSA_public_key_from_bytes(key.as_ptr(), key.len()) };
        let Some(rsa) = NonNull::new(rsa).map(Rsa) else {
            return false;
        };
        // SAFETY: the key is initialised.
        let bits = unsafe { lc::RSA_bits(rsa.0.as_ptr()) };
        if !MODULUS_BITS.contains(&bits) {
            return false;
        }
        let hash = digest::digest(self.algorithm(), message);
        let hash = hash.as_ref();
        // SAFETY: `hash` and `signature` are readable for their lengths, and the key is initialised.
        let verified = unsafe {
            lc::RSA_verify(
                self.number(),
                hash.as_ptr(),
                hash.len(),
                signature.as_ptr(),
                signature.len(),
                rsa.0.as_ptr(),
            )
        };
        verified == 1
    }
}

/// An RSA object of aws-lc.
struct Rsa(NonNull<lc::RSA>);

impl Drop for Rsa {
    fn drop(&mut self) {
        // SAFETY: we own the reference, and nothing uses it any more.
        unsafe { lc::RSA_free(self.0.as_ptr()) }
    }
}

/// A private key for signatures with SHA-1. It is erased when it is dropped.
pub struct RsaSha1Key(Rsa);

// SAFETY: several threads may use an RSA object at once as long as it is not changed. aws-lc protects what it caches
// in the object with a lock.
unsafe impl Send for RsaSha1Key {}
// SAFETY: same as above.
unsafe impl Sync for RsaSha1Key {}

impl RsaSha1Key {
    /// Reads a key in PKCS#8 or PKCS#1 form.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let len = der.len().try_into().ok()?;
        let mut input = der.as_ptr();
        // SAFETY: `input` points to `len` readable bytes, and a null first argument asks for a new object.
        let key = unsafe { lc::d2i_AutoPrivateKey(ptr::null_mut(), &raw mut input, len) };
        let key = NonNull::new(key)?;
        // SAFETY: the key is initialised. The result holds its own reference, so ours is released.
        let rsa = unsafe {
            let rsa = lc::EVP_PKEY_get1_RSA(key.as_ptr());
            lc::EVP_PKEY_free(key.as_ptr());
            rsa
        };
        NonNull::new(rsa).map(|rsa| Self(Rsa(rsa)))
    }

    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, message);
        let hash = hash.as_ref();
        // SAFETY: the key is initialised.
        let size = unsafe { lc::RSA_size(self.0.0.as_ptr()) };
        let mut signature = vec![0; usize::try_from(size).ok()?];
        let mut len = 0;
        // SAFETY: `hash` is readable for its length, `signature` is writable for `RSA_size` bytes, and the key is
        // initialised.
        let done = unsafe {
            lc::RSA_sign(
                lc::NID_sha1,
                hash.as_ptr(),
                hash.len(),
                signature.as_mut_ptr(),
                &raw mut len,
                self.0.0.as_ptr(),
            )
        };
        (done == 1 && len == size).then_some(signature)
    }
}

impl std::fmt::Debug for RsaSha1Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RsaSha1Key")
    }
}
