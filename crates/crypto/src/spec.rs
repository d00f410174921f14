//! The nouns that every layer of the crate shares: directions, outcomes, the AEADs and their lengths. The module names
//! no kernel and no key, so that kernels, keys and engines can all stand on it.

use crate::iana::Encryption;
use crate::transform::Transform;

/// SPI and sequence number at the front of an ESP packet (RFC 4303 §2), in bytes.
pub(crate) const ESP_HEADER_LEN: usize = 8;

/// Length of an AEAD's nonce.
pub const NONCE_LEN: usize = 12;
/// Length of an AEAD's tag.
pub const TAG_LEN: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Seal,
    Open,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobStatus {
    /// Not yet seen by an engine.
    #[default]
    Pending,
    Done,
    /// The ICV is wrong; the engine has zeroed the payload.
    AuthFailed,
    /// The lengths do not fit the transform or the buffer; nothing was touched.
    Malformed,
}

/// The AEADs (RFC 5116, RFC 8439) with 12-byte nonces and 16-byte tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AeadAlgorithm {
    Aes128Gcm,
    Aes192Gcm,
    Aes256Gcm,
    ChaCha20Poly1305,
}

impl AeadAlgorithm {
    pub const ALL: [Self; 4] = [
        Self::Aes128Gcm,
        Self::Aes192Gcm,
        Self::Aes256Gcm,
        Self::ChaCha20Poly1305,
    ];

    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes192Gcm => 24,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// The longest text: the block counter has 32 bits.
    pub const fn text_len_max(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes192Gcm | Self::Aes256Gcm => (1 << 36) - 32,
            Self::ChaCha20Poly1305 => (1 << 38) - 64,
        }
    }

    /// The ESP transform that has it.
    pub(crate) const fn in_esp(self) -> Transform {
        let (cipher, key_bits) = match self {
            Self::Aes128Gcm => (Encryption::AesGcm16, 128),
            Self::Aes192Gcm => (Encryption::AesGcm16, 192),
            Self::Aes256Gcm => (Encryption::AesGcm16, 256),
            Self::ChaCha20Poly1305 => (Encryption::ChaCha20Poly1305, 0),
        };
        match Transform::esp(cipher, key_bits, None) {
            Some(transform) => transform,
            None => unreachable!(),
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes192Gcm => "AES-192-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }
}

impl std::fmt::Display for AeadAlgorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
