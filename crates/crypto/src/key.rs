//! Key contexts: everything about a key that can be computed once, when the SA is installed.

use crate::aead::Aead;
use crate::cipher::Cipher;
use crate::cpu::kernel::{Family, Kind, Layout};
#[cfg(target_arch = "x86_64")]
use crate::cpu::{chacha, des, gcm, pair};
use crate::key_slot::{Held, KeySlot};
use crate::mac::Mac;
use crate::material::KeyMaterial;
use crate::tier::Tier;
use crate::transform::{Protocol, Transform};

pub use crate::material::KeyError;

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
    PairKernel(Box<pair::Key>),
    /// ChaCha20-Poly1305 in ESP.
    #[cfg(target_arch = "x86_64")]
    ChaCha(Box<chacha::Key>),
    /// DES or 3DES and an HMAC in ESP.
    #[cfg(target_arch = "x86_64")]
    DesKernel(Box<des::EspKey>),
    /// AES-GCM in ESP.
    #[cfg(target_arch = "x86_64")]
    Gcm(Box<gcm::Key>),
    /// AES-GMAC in ESP.
    #[cfg(target_arch = "x86_64")]
    GmacKernel(Box<gcm::gmac::Key>),
}

/// Encrypt, then MAC.
pub(crate) struct Pair {
    pub(crate) cipher: Cipher,
    pub(crate) mac: Mac,
}

impl KeyContext {
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
            Protocol::Esp => kernel_keys(tier, transform, esn, key_material),
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
            layout: Layout::new(transform, keys.class()),
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

/// A kernel's form of a key, one of the variants of [`Keys`].
pub(crate) trait FormOf: Sized {
    /// The key in this form; `None` if the keys are in another.
    fn of(keys: &Keys) -> Option<&Self>;
}

#[cfg(target_arch = "x86_64")]
macro_rules! form_of {
    ($($variant:ident: $form:ty),* $(,)?) => {
        $(impl FormOf for $form {
            #[inline]
            fn of(keys: &Keys) -> Option<&Self> {
                match keys {
                    Keys::$variant(key) => Some(key),
                    _ => None,
                }
            }
        })*
    };
}

#[cfg(target_arch = "x86_64")]
form_of! {
    PairKernel: pair::Key,
    ChaCha: chacha::Key,
    DesKernel: des::EspKey,
    Gcm: gcm::Key,
    GmacKernel: gcm::gmac::Key,
}

/// Makes the key of the tier's kernel for an ESP transform. Returns None if the tier has no kernel for it. The key
/// material must have the transform's length.
#[cfg(target_arch = "x86_64")]
fn kernel_keys(tier: Tier, transform: Transform, esn: bool, key_material: &[u8]) -> Option<Keys> {
    use crate::iana::Encryption::*;
    match transform.encryption()? {
        ChaCha20Poly1305 | ChaCha20Poly1305Iiv => {
            chacha::Key::new(tier, transform, esn, key_material).map(Keys::ChaCha)
        }
        Des | TripleDes => {
            des::EspKey::new(tier, transform, esn, key_material).map(Keys::DesKernel)
        }
        AesGcm8 | AesGcm12 | AesGcm16 | AesGcm16Iiv => {
            gcm::key(tier, transform, esn, key_material).map(Keys::Gcm)
        }
        NullAuthAesGmac => gcm::gmac_key(tier, transform, esn, key_material).map(Keys::GmacKernel),
        _ => pair::Key::new(tier, transform, esn, key_material).map(Keys::PairKernel),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn kernel_keys(_: Tier, _: Transform, _: bool, _: &[u8]) -> Option<Keys> {
    None
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
