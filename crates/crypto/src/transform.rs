//! ESP transforms: cipher and integrity resolved into one value.
//!
//! Everything that a packet's layout depends on (IV, alignment, ICV, key material) is a
//! property of the transform, so that the packet path never looks at two algorithms.

use crate::iana::{Encryption, Integrity};

/// An AES key length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AesKeyLength {
    Bits128,
    Bits192,
    Bits256,
}

impl AesKeyLength {
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bits128 => 16,
            Self::Bits192 => 24,
            Self::Bits256 => 32,
        }
    }

    pub const fn bits(self) -> u16 {
        self.bytes() as u16 * 8
    }

    pub const fn from_bits(bits: u16) -> Option<Self> {
        match bits {
            128 => Some(Self::Bits128),
            192 => Some(Self::Bits192),
            256 => Some(Self::Bits256),
            _ => None,
        }
    }
}

/// One ESP transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transform {
    /// ENCR_AES_GCM_16 (RFC 4106).
    AesGcm16(AesKeyLength),
    /// ENCR_AES_CBC (RFC 3602) with an HMAC-SHA2 (RFC 4868), encrypt then MAC.
    AesCbcHmac(AesKeyLength, Integrity),
}

impl Transform {
    /// Every transform that Esplanade can seal and open.
    pub const ALL: [Self; 12] = {
        use AesKeyLength::{Bits128, Bits192, Bits256};
        use Integrity::{HmacSha2_256_128, HmacSha2_384_192, HmacSha2_512_256};
        [
            Self::AesGcm16(Bits128),
            Self::AesGcm16(Bits192),
            Self::AesGcm16(Bits256),
            Self::AesCbcHmac(Bits128, HmacSha2_256_128),
            Self::AesCbcHmac(Bits192, HmacSha2_256_128),
            Self::AesCbcHmac(Bits256, HmacSha2_256_128),
            Self::AesCbcHmac(Bits128, HmacSha2_384_192),
            Self::AesCbcHmac(Bits192, HmacSha2_384_192),
            Self::AesCbcHmac(Bits256, HmacSha2_384_192),
            Self::AesCbcHmac(Bits128, HmacSha2_512_256),
            Self::AesCbcHmac(Bits192, HmacSha2_512_256),
            Self::AesCbcHmac(Bits256, HmacSha2_512_256),
        ]
    };

    /// Resolves negotiated IKE transforms: an AEAD has no integrity transform, CBC must have one.
    pub const fn new(
        encryption: Encryption,
        key_bits: u16,
        integrity: Option<Integrity>,
    ) -> Option<Self> {
        let Some(length) = AesKeyLength::from_bits(key_bits) else {
            return None;
        };
        match (encryption, integrity) {
            (Encryption::AesGcm16, None) => Some(Self::AesGcm16(length)),
            (Encryption::AesCbc, Some(integrity)) => Some(Self::AesCbcHmac(length, integrity)),
            _ => None,
        }
    }

    pub const fn encryption(self) -> Encryption {
        match self {
            Self::AesGcm16(_) => Encryption::AesGcm16,
            Self::AesCbcHmac(..) => Encryption::AesCbc,
        }
    }

    pub const fn integrity(self) -> Option<Integrity> {
        match self {
            Self::AesGcm16(_) => None,
            Self::AesCbcHmac(_, integrity) => Some(integrity),
        }
    }

    pub const fn aes_key_length(self) -> AesKeyLength {
        match self {
            Self::AesGcm16(length) | Self::AesCbcHmac(length, _) => length,
        }
    }

    /// Length of the explicit IV in the packet.
    pub const fn iv_len(self) -> usize {
        match self {
            Self::AesGcm16(_) => 8,
            Self::AesCbcHmac(..) => 16,
        }
    }

    /// Length of the integrity check value in the packet.
    pub const fn icv_len(self) -> usize {
        match self {
            Self::AesGcm16(_) => 16,
            Self::AesCbcHmac(_, integrity) => integrity_key_len(integrity) / 2,
        }
    }

    /// What payload + padding + trailer must be a multiple of (RFC 4303 §2.4).
    pub const fn block_align(self) -> usize {
        match self {
            Self::AesGcm16(_) => 4,
            Self::AesCbcHmac(..) => 16,
        }
    }

    /// Key material that IKE must provide: key then salt for GCM (RFC 4106 §8.1),
    /// encryption key then integrity key otherwise (RFC 7296 §2.17).
    pub const fn key_material_len(self) -> usize {
        match self {
            Self::AesGcm16(length) => length.bytes() + SALT_LEN,
            Self::AesCbcHmac(length, integrity) => length.bytes() + integrity_key_len(integrity),
        }
    }

    /// Length of an ESP packet, SPI to ICV, around `payload_len` bytes.
    pub const fn sealed_len(self, payload_len: usize) -> usize {
        let body = (payload_len + 2).next_multiple_of(self.block_align());
        8 + self.iv_len() + body + self.icv_len()
    }

    /// The shortest ESP packet that can be valid.
    pub const fn sealed_len_min(self) -> usize {
        self.sealed_len(0)
    }

    /// The longest payload whose ESP packet fits into `sealed_len` bytes.
    pub const fn payload_len_max(self, sealed_len: usize) -> usize {
        let body = sealed_len.saturating_sub(8 + self.iv_len() + self.icv_len());
        (body - body % self.block_align()).saturating_sub(2)
    }

    pub const fn name(self) -> &'static str {
        use AesKeyLength::{Bits128, Bits192, Bits256};
        use Integrity::{HmacSha2_256_128, HmacSha2_384_192, HmacSha2_512_256};
        match self {
            Self::AesGcm16(Bits128) => "AES_GCM_16_128",
            Self::AesGcm16(Bits192) => "AES_GCM_16_192",
            Self::AesGcm16(Bits256) => "AES_GCM_16_256",
            Self::AesCbcHmac(Bits128, HmacSha2_256_128) => "AES_CBC_128/HMAC_SHA2_256_128",
            Self::AesCbcHmac(Bits192, HmacSha2_256_128) => "AES_CBC_192/HMAC_SHA2_256_128",
            Self::AesCbcHmac(Bits256, HmacSha2_256_128) => "AES_CBC_256/HMAC_SHA2_256_128",
            Self::AesCbcHmac(Bits128, HmacSha2_384_192) => "AES_CBC_128/HMAC_SHA2_384_192",
            Self::AesCbcHmac(Bits192, HmacSha2_384_192) => "AES_CBC_192/HMAC_SHA2_384_192",
            Self::AesCbcHmac(Bits256, HmacSha2_384_192) => "AES_CBC_256/HMAC_SHA2_384_192",
            Self::AesCbcHmac(Bits128, HmacSha2_512_256) => "AES_CBC_128/HMAC_SHA2_512_256",
            Self::AesCbcHmac(Bits192, HmacSha2_512_256) => "AES_CBC_192/HMAC_SHA2_512_256",
            Self::AesCbcHmac(Bits256, HmacSha2_512_256) => "AES_CBC_256/HMAC_SHA2_512_256",
        }
    }

    /// The transform with this [`Transform::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }
}

impl std::fmt::Display for Transform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Length of the GCM salt that ends the key material.
pub const SALT_LEN: usize = 4;

/// Keys are as long as the hash and ICVs half of it (RFC 4868 §2.3).
const fn integrity_key_len(integrity: Integrity) -> usize {
    match integrity {
        Integrity::HmacSha2_256_128 => 32,
        Integrity::HmacSha2_384_192 => 48,
        Integrity::HmacSha2_512_256 => 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_agree_with_each_other() {
        for transform in Transform::ALL {
            assert_eq!(Transform::from_name(transform.name()), Some(transform));
            let again = Transform::new(
                transform.encryption(),
                transform.aes_key_length().bits(),
                transform.integrity(),
            );
            assert_eq!(again, Some(transform));
            for payload in 0..200 {
                let sealed = transform.sealed_len(payload);
                assert!(transform.payload_len_max(sealed) >= payload);
                assert_eq!(
                    transform.sealed_len(transform.payload_len_max(sealed)),
                    sealed
                );
            }
        }
    }

    #[test]
    fn aead_and_integrity_do_not_mix() {
        let sha256 = Some(Integrity::HmacSha2_256_128);
        assert_eq!(Transform::new(Encryption::AesGcm16, 128, sha256), None);
        assert_eq!(Transform::new(Encryption::AesCbc, 128, None), None);
        assert_eq!(Transform::new(Encryption::AesCbc, 64, sha256), None);
    }
}
