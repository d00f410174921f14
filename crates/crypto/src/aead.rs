//! The AEADs: AES-GCM, AES-GMAC and ChaCha20-Poly1305 through aws-lc's one-shot interface, and AES-CCM.
//!
//! `aws_lc_rs` has no truncated ICVs, so this module calls `aws_lc_sys`.

use std::ptr::NonNull;

use aws_lc_sys as lc;

use crate::ccm::{self, Ccm};
use crate::iana::{Encryption, Integrity};
use crate::plain::{Cleansed, CleansedBlock};
use crate::spec::{AeadAlgorithm, TAG_LEN};

pub(crate) const IV_LEN: usize = 8;

/// An AEAD key with its salt. It lies in a [`CleansedBlock`].
pub(crate) enum Aead {
    Evp {
        key: EvpKey,
        salt: Cleansed<[u8; 4]>,
    },
    Ccm {
        key: CleansedBlock<Ccm>,
        salt: Cleansed<[u8; 3]>,
    },
}

impl Aead {
    /// Makes a key from key and salt. Returns `None` unless the cipher is an AEAD and the length suits it.
    pub(crate) fn new(
        encryption: Encryption,
        icv_len: usize,
        key: &[u8],
    ) -> Option<CleansedBlock<Self>> {
        use Encryption::*;
        match encryption {
            AesCcm8 | AesCcm12 | AesCcm16 | AesCcm8Iiv => {
                let (key, salt) = key.split_last_chunk()?;
                Some(CleansedBlock::new(Self::Ccm {
                    key: CleansedBlock::new(Ccm::new(key)?),
                    salt: Cleansed(*salt),
                }))
            }
            ChaCha20Poly1305 | ChaCha20Poly1305Iiv => {
                // SAFETY: the call returns a static object.
                let algorithm = unsafe { lc::EVP_aead_chacha20_poly1305() };
                Self::evp(algorithm, icv_len, key)
            }
            AesGcm8 | AesGcm12 | AesGcm16 | AesGcm16Iiv | NullAuthAesGmac => {
                Self::gcm(icv_len, key)
            }
            Des | TripleDes | Null | AesCbc | AesCtr | SerpentCbc | TwofishCbc | MarsCtr
            | Rc6Ctr | SerpentCtr | TwofishCtr => None,
        }
    }

    /// Makes an AES-GMAC key for AH. Returns `None` for other algorithms, and if the length is wrong.
    pub(crate) fn gmac(integrity: Integrity, key: &[u8]) -> Option<CleansedBlock<Self>> {
        let fits = integrity.is_gmac() && key.len() == integrity.key_len() + integrity.salt_len();
        fits.then(|| Self::gcm(integrity.icv_len(), key)).flatten()
    }

    fn gcm(icv_len: usize, key: &[u8]) -> Option<CleansedBlock<Self>> {
        // SAFETY: each call returns a static object.
        let algorithm = unsafe {
            match key.len() {
                20 => lc::EVP_aead_aes_128_gcm(),
                28 => lc::EVP_aead_aes_192_gcm(),
                36 => lc::EVP_aead_aes_256_gcm(),
                _ => return None,
            }
        };
        Self::evp(algorithm, icv_len, key)
    }

    fn evp(
        algorithm: *const lc::EVP_AEAD,
        icv_len: usize,
        key: &[u8],
    ) -> Option<CleansedBlock<Self>> {
        let (key, salt) = key.split_last_chunk()?;
        Some(CleansedBlock::new(Self::Evp {
            key: EvpKey::new(algorithm, icv_len, key)?,
            salt: Cleansed(*salt),
        }))
    }

    /// Encrypts in place and writes the ICV. Returns `None` if a length does not fit.
    pub(crate) fn seal(
        &self,
        iv: [u8; IV_LEN],
        aad: &[u8],
        body: &mut [u8],
        icv: &mut [u8],
    ) -> Option<()> {
        match self {
            Self::Evp { key, salt } => key.seal(&evp_nonce(&salt.0, iv), aad, body, icv),
            Self::Ccm { key, salt } => key.seal(&ccm_nonce(&salt.0, iv), aad, body, icv),
        }
    }

    /// Checks the ICV and decrypts in place. If the ICV is wrong, the body is zeroed and the result is `None`.
    pub(crate) fn open(
        &self,
        iv: [u8; IV_LEN],
        aad: &[u8],
        body: &mut [u8],
        icv: &[u8],
    ) -> Option<()> {
        match self {
            Self::Evp { key, salt } => key.open(&evp_nonce(&salt.0, iv), aad, body, icv),
            Self::Ccm { key, salt } => key.open(&ccm_nonce(&salt.0, iv), aad, body, icv),
        }
    }
}

/// The nonce is salt || IV (RFC 4106 §4, RFC 7634 §2).
fn evp_nonce(salt: &[u8; 4], iv: [u8; IV_LEN]) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(salt);
    nonce[4..].copy_from_slice(&iv);
    nonce
}

/// The nonce is salt || IV (RFC 4309 §4).
fn ccm_nonce(salt: &[u8; 3], iv: [u8; IV_LEN]) -> [u8; ccm::NONCE_LEN] {
    let mut nonce = [0; ccm::NONCE_LEN];
    nonce[..3].copy_from_slice(salt);
    nonce[3..].copy_from_slice(&iv);
    nonce
}

/// An AEAD context of aws-lc, which erases what it frees.
pub(crate) struct EvpKey(NonNull<lc::EVP_AEAD_CTX>);

// SAFETY: the context has no thread affinity.
unsafe impl Send for EvpKey {}
// SAFETY: sealing and opening take a const context and may run concurrently (openssl/aead.h).
unsafe impl Sync for EvpKey {}

impl EvpKey {
    /// Makes a key without a salt, for nonces of 12 bytes and tags of 16.
    pub(crate) fn general(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        // SAFETY: each call returns a static object.
        let algorithm = unsafe {
            match algorithm {
                AeadAlgorithm::Aes128Gcm => lc::EVP_aead_aes_128_gcm(),
                AeadAlgorithm::Aes192Gcm => lc::EVP_aead_aes_192_gcm(),
                AeadAlgorithm::Aes256Gcm => lc::EVP_aead_aes_256_gcm(),
                AeadAlgorithm::ChaCha20Poly1305 => lc::EVP_aead_chacha20_poly1305(),
            }
        };
        Self::new(algorithm, TAG_LEN, key)
    }

    fn new(algorithm: *const lc::EVP_AEAD, icv_len: usize, key: &[u8]) -> Option<Self> {
        // SAFETY: the algorithm is a static object. The key is valid for its length, which the call checks.
        let context = unsafe { lc::EVP_AEAD_CTX_new(algorithm, key.as_ptr(), key.len(), icv_len) };
        NonNull::new(context).map(Self)
    }

    pub(crate) fn seal(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        body: &mut [u8],
        icv: &mut [u8],
    ) -> Option<()> {
        let mut icv_len = 0;
        // SAFETY: input and output are the same `body.len()` bytes, which is allowed. ICV, nonce and AAD are valid
        // for their lengths and do not overlap the output. There is no extra input.
        let done = unsafe {
            lc::EVP_AEAD_CTX_seal_scatter(
                self.0.as_ptr(),
                body.as_mut_ptr(),
                icv.as_mut_ptr(),
                &mut icv_len,
                icv.len(),
                nonce.as_ptr(),
                nonce.len(),
                body.as_ptr(),
                body.len(),
                std::ptr::null(),
                0,
                aad.as_ptr(),
                aad.len(),
            )
        };
        if done != 1 || icv_len != icv.len() {
            body.fill(0);
            return None;
        }
        Some(())
    }

    pub(crate) fn open(
        &self,
        nonce: &[u8; 12],
        aad: &[u8],
        body: &mut [u8],
        icv: &[u8],
    ) -> Option<()> {
        // SAFETY: as in `seal`; the ICV is only read.
        let done = unsafe {
            lc::EVP_AEAD_CTX_open_gather(
                self.0.as_ptr(),
                body.as_mut_ptr(),
                nonce.as_ptr(),
                nonce.len(),
                body.as_ptr(),
                body.len(),
                icv.as_ptr(),
                icv.len(),
                aad.as_ptr(),
                aad.len(),
            )
        };
        if done != 1 {
            // aws-lc clears its output too, but does not promise it.
            body.fill(0);
            return None;
        }
        Some(())
    }
}

impl Drop for EvpKey {
    fn drop(&mut self) {
        // SAFETY: the context came from EVP_AEAD_CTX_new, and it is freed once.
        unsafe { lc::EVP_AEAD_CTX_free(self.0.as_ptr()) }
    }
}
