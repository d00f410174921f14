//! Key contexts: everything about a key that can be computed once, when the SA is installed.

use crate::aead::Aead;
use crate::cipher::Cipher;
use crate::cpu::tier::MissingFeature;
use crate::cpu::{self, Family, Kind, Tier};
use crate::esp;
use crate::key_slot::{Held, KeySlot};
use crate::mac::Mac;
use crate::material::KeyMaterial;
use crate::transform::{Protocol, Transform};
use crate::weak::WeakKey;

/// Why no context was made. Says nothing about the key's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key material has {actual} bytes, {transform} needs {expected}")]
    WrongLength {
        transform: Transform,
        expected: usize,
        actual: usize,
    },
    #[error("the key for {transform} is refused: {weakness}")]
    Weak {
        transform: Transform,
        weakness: WeakKey,
    },
    #[error("the cryptographic library refused the key")]
    Refused,
    #[error(transparent)]
    Missing(#[from] MissingFeature),
}

/// One direction of one SA: transform, ESN flag and the expanded keys. Immutable, so that any number of
/// threads may use it at once; zeroised on drop.
///
/// Heap memory, with this struct: AES-GCM and AES-GMAC 600 bytes in a kernel's form, in the library's form 650 as
/// ChaCha20-Poly1305 has, AES-CCM 300, AES-CBC with an HMAC 700, AES-CTR, DES or NULL with an HMAC 450, AH with an
/// HMAC 200; AES-XCBC and AES-CMAC instead of the HMAC 280 more. AES-CBC, AES-CTR or NULL with an HMAC in a kernel: 420.
/// The key material takes 60 bytes and its own length.
// One line of a cache, not parts of two.
#[repr(align(64))]
pub struct KeyContext {
    transform: Transform,
    esn: bool,
    tier: Tier,
    kind: Kind,
    layout: Layout,
    pub(crate) keys: Keys,
    origin: Box<Origin>,
}

/// What engines with forms of their own need.
struct Origin {
    material: KeyMaterial,
    slot: Held,
}

/// The parts of an ESP packet, and what is to know of its key before that is at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(4))]
pub(crate) struct Layout {
    /// SPI to IV.
    pub(crate) head: u8,
    /// What is not body: the head and the ICV.
    pub(crate) around: u8,
    /// A block of the body, less one.
    block_mask: u8,
    /// What the key's kernel tells packets apart by.
    pub(crate) class: u8,
}

impl Layout {
    fn of(transform: Transform, keys: &Keys) -> Self {
        let head = esp::HEADER_LEN + transform.iv_len();
        Self {
            head: head as u8,
            around: (head + transform.icv_len()) as u8,
            block_mask: transform.block_align() as u8 - 1,
            class: keys.class(),
        }
    }

    /// Whether an ESP packet of `len` bytes can have it: whole blocks between head and ICV, one at least.
    #[inline(always)]
    pub(crate) fn fits(self, len: u32) -> bool {
        let around = u32::from(self.around);
        len > around && (len - around) & u32::from(self.block_mask) == 0
    }

    /// All of it, to be compared.
    #[inline(always)]
    pub(crate) fn bits(self) -> u32 {
        u32::from_ne_bytes([self.head, self.around, self.block_mask, self.class])
    }
}

/// In the form that the family of kernels or the library works with.
pub(crate) enum Keys {
    /// An AEAD in ESP.
    Aead(Aead),
    /// A cipher and an integrity algorithm in ESP.
    Pair(Box<Pair>),
    /// AES-GMAC in ESP or AH: all of the input is AAD.
    Gmac(Aead),
    /// Any other integrity algorithm in AH.
    Mac(Box<Mac>),
    /// A cipher and an HMAC in ESP.
    #[cfg(target_arch = "x86_64")]
    PairKernel(Box<cpu::pair::Key>),
    /// ChaCha20-Poly1305 in ESP.
    #[cfg(target_arch = "x86_64")]
    ChaCha(Box<cpu::chacha::Key>),
    /// DES or 3DES and an HMAC in ESP.
    #[cfg(target_arch = "x86_64")]
    DesKernel(Box<cpu::des::EspKey>),
    /// AES-GCM in ESP.
    #[cfg(target_arch = "x86_64")]
    Gcm(Box<cpu::gcm::Key>),
    /// AES-GMAC in ESP.
    #[cfg(target_arch = "x86_64")]
    GmacKernel(Box<cpu::gcm::gmac::Key>),
}

/// Encrypt, then MAC.
pub(crate) struct Pair {
    pub(crate) cipher: Cipher,
    pub(crate) mac: Mac,
}

impl KeyContext {
    /// Expands `key_material`, laid out as [`Transform::key_material_len`] says, for [`Tier::current`]. Weak keys are
    /// refused.
    pub fn new(transform: Transform, esn: bool, key_material: &[u8]) -> Result<Self, KeyError> {
        Self::for_tier(Tier::current(), transform, esn, key_material)
    }

    /// As [`KeyContext::new`], for the kernels of this tier. What a tier has no kernel for is left to the library.
    pub fn for_tier(
        tier: Tier,
        transform: Transform,
        esn: bool,
        key_material: &[u8],
    ) -> Result<Self, KeyError> {
        Self::of(tier, KeyMaterial::new(transform, esn, key_material)?)
    }

    /// In the form that the kernels of this tier work with.
    pub fn of(tier: Tier, material: KeyMaterial) -> Result<Self, KeyError> {
        tier.require()?;
        let (transform, esn) = (material.transform(), material.esn());
        let key_material = material.expose();
        let kernel = match transform.protocol() {
            Protocol::Esp => cpu::kernel_keys(tier, transform, esn, key_material),
            Protocol::Ah => None,
        };
        let keys = match kernel {
            Some(keys) => keys,
            None => expand(transform, key_material).ok_or(KeyError::Refused)?,
        };
        let family = keys.family();
        // One kind for all that the library does.
        let kind = if family == Family::Library {
            Kind::LIBRARY
        } else {
            Kind { family, tier }
        };
        Ok(Self {
            transform,
            esn,
            tier,
            kind,
            layout: Layout::of(transform, &keys),
            keys,
            origin: Box::new(Origin {
                material,
                slot: Held::new(),
            }),
        })
    }

    /// The tier that it was made for.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// What it was made of, for engines that have another form of it.
    pub fn material(&self) -> &KeyMaterial {
        &self.origin.material
    }

    /// What a device that several workers share knows it by.
    pub fn slot(&self) -> KeySlot {
        self.origin.slot.get()
    }

    /// Whether a kernel of ours does the work, and not the library.
    pub fn has_kernel(&self) -> bool {
        self.kind.family != Family::Library
    }

    #[inline(always)]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    #[inline(always)]
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub fn transform(&self) -> Transform {
        self.transform
    }

    /// Whether the SA uses 64-bit extended sequence numbers (RFC 4303 §2.2.1).
    pub fn esn(&self) -> bool {
        self.esn
    }
}

impl Keys {
    fn family(&self) -> Family {
        match self {
            Self::Aead(_) | Self::Pair(_) | Self::Gmac(_) | Self::Mac(_) => Family::Library,
            #[cfg(target_arch = "x86_64")]
            Self::PairKernel(_) => Family::Pair,
            #[cfg(target_arch = "x86_64")]
            Self::ChaCha(_) => Family::ChaCha,
            #[cfg(target_arch = "x86_64")]
            Self::DesKernel(_) => Family::Des,
            #[cfg(target_arch = "x86_64")]
            Self::Gcm(_) => Family::Gcm,
            #[cfg(target_arch = "x86_64")]
            Self::GmacKernel(_) => Family::Gmac,
        }
    }

    /// See [`Layout`].
    fn class(&self) -> u8 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Gcm(key) => key.sort() as u8,
            _ => 0,
        }
    }
}

/// For the library.
fn expand(transform: Transform, key_material: &[u8]) -> Option<Keys> {
    use crate::iana::Encryption::NullAuthAesGmac;
    let (cipher_key, integrity_key) =
        key_material.split_at_checked(transform.encryption_key_len())?;
    Some(match (transform.encryption(), transform.integrity()) {
        (Some(NullAuthAesGmac), None) => {
            Keys::Gmac(Aead::new(NullAuthAesGmac, transform.icv_len(), cipher_key)?)
        }
        (Some(cipher), None) => Keys::Aead(Aead::new(cipher, transform.icv_len(), cipher_key)?),
        (Some(cipher), Some(integrity)) => Keys::Pair(Box::new(Pair {
            cipher: Cipher::new(cipher, cipher_key)?,
            mac: Mac::new(integrity, integrity_key)?,
        })),
        (None, Some(integrity)) if integrity.is_gmac() => {
            Keys::Gmac(Aead::gmac(integrity, integrity_key)?)
        }
        (None, Some(integrity)) => Keys::Mac(Box::new(Mac::new(integrity, integrity_key)?)),
        (None, None) => return None,
    })
}

impl std::fmt::Debug for KeyContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyContext")
            .field("transform", &format_args!("{}", self.transform))
            .field("esn", &self.esn)
            .finish_non_exhaustive()
    }
}

// Of ten thousand keys, the line is what is fetched of each before its packets go to a kernel.
const _: () = assert!(size_of::<KeyContext>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_packet_has_one_block() {
        for transform in Transform::ESP {
            let material: Vec<u8> = (0..transform.key_material_len() as u8).collect();
            let key = KeyContext::new(transform, false, &material).expect("a good key");
            let fitting = (0..200).filter(|&len| key.layout().fits(len));
            let shortest = transform.sealed_len_min() as u32;
            let expected = (shortest..200).step_by(transform.block_align());
            assert!(fitting.eq(expected), "{transform}");
        }
    }

    #[test]
    fn contexts_are_shared_by_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<KeyContext>();
    }
}
