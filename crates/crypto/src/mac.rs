//! The integrity algorithms that are not part of an AEAD: HMAC, AES-XCBC and AES-CMAC.

use subtle::ConstantTimeEq;

use crate::aes_mac::AesMac;
use crate::hmac::{DIGEST_LEN_MAX, Hmac};
use crate::iana::Integrity;
use crate::plain::CleansedBlock;

/// An integrity key.
pub(crate) struct Mac {
    kind: MacKind,
    icv_len: u8,
}

enum MacKind {
    Hmac(Hmac),
    /// This is boxed because it is twice as large, and rare.
    Aes(CleansedBlock<AesMac>),
}

impl Mac {
    /// Makes a key. Returns `None` for AES-GMAC, and if the key's length does not suit the algorithm.
    pub(crate) fn new(integrity: Integrity, key: &[u8]) -> Option<Self> {
        if key.len() != integrity.key_len() {
            return None;
        }
        let kind = match integrity {
            Integrity::AesXcbc96 => MacKind::Aes(CleansedBlock::new(AesMac::xcbc(key)?)),
            Integrity::AesCmac96 => MacKind::Aes(CleansedBlock::new(AesMac::cmac(key)?)),
            _ => MacKind::Hmac(Hmac::new(integrity, key)?),
        };
        let icv_len = integrity.icv_len() as u8;
        Some(Self { kind, icv_len })
    }

    pub(crate) fn icv_len(&self) -> usize {
        self.icv_len as usize
    }

    /// Computes the MAC over `message` and `suffix`, not truncated. Its first bytes are the ICV.
    fn compute(&self, message: &[u8], suffix: &[u8]) -> [u8; DIGEST_LEN_MAX] {
        match &self.kind {
            MacKind::Hmac(key) => key.compute(message, suffix),
            MacKind::Aes(key) => {
                let mut digest = [0; DIGEST_LEN_MAX];
                let mac = key.compute(message, suffix);
                digest[..mac.len()].copy_from_slice(&mac);
                digest
            }
        }
    }

    /// Writes the ICV over `message` and `suffix`. `icv` must have the length [`Mac::icv_len`].
    pub(crate) fn write(&self, message: &[u8], suffix: &[u8], icv: &mut [u8]) {
        let digest = self.compute(message, suffix);
        icv.copy_from_slice(&digest[..self.icv_len()]);
    }

    /// Compares the ICV in constant time.
    pub(crate) fn verify(&self, message: &[u8], suffix: &[u8], icv: &[u8]) -> bool {
        let digest = self.compute(message, suffix);
        digest[..self.icv_len()].ct_eq(icv).into()
    }
}
