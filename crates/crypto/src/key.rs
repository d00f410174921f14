//! Key contexts: everything about a key that can be computed once, when the SA is installed.

use crate::aead::Aead;
use crate::cipher::Cipher;
use crate::cpu::kernel::{Family, KernelKind, Layout};
#[cfg(target_arch = "x86_64")]
use crate::cpu::{chacha, des, gcm, pair};
use crate::key_slot::{HeldSlot, KeySlot};
use crate::mac::Mac;
use crate::material::KeyMaterial;
use crate::plain::CleansedBlock;
use crate::tier::Tier;
use crate::transform::{Protocol, Transform};

pub use crate::material::KeyError;

/// The key context for one direction of an SA: transform, ESN flag and the expanded keys. It is immutable, so any
/// number of threads may use it at once. It is zeroised on drop.
///
/// Heap memory in bytes, this struct included:
///
/// | keys | bytes |
/// |---|---|
/// | AES-GCM and AES-GMAC in a kernel's form | 600 |
/// | AES-GCM and AES-GMAC in the library's form, ChaCha20-Poly1305 | 650 |
/// | AES-CCM | 300 |
/// | AES-CBC, AES-CTR or NULL with an HMAC in a kernel's form | 420 |
/// | AES-CBC with an HMAC in the library's form | 700 |
/// | AES-CTR, DES or NULL with an HMAC in the library's form | 450 |
/// | AH with an HMAC | 200 |
/// | AES-XCBC or AES-CMAC instead of the HMAC | 280 more |
/// | MARS, RC6, Serpent, Twofish with an HMAC | 450, 450, 800, 1500 |
///
/// The key material takes 60 bytes and its own length in addition.
// The alignment puts the struct into one cache line, not into parts of two.
#[repr(align(64))]
pub struct KeyContext {
    transform: Transform,
    esn: bool,
    tier: Tier,
    kind: KernelKind,
    layout: Layout,
    pub(crate) keys: KeyForm,
    origin: CleansedBlock<Origin>,
}

/// The parts that engines with their own form of a key need.
struct Origin {
    material: KeyMaterial,
    slot: HeldSlot,
}

/// The keys in the form of a kernel family or of the library. Each form is a block that is overwritten as a whole.
pub(crate) enum KeyForm {
    /// An AEAD in ESP, done by the library.
    Aead(CleansedBlock<Aead>),
    /// A cipher and an integrity algorithm in ESP, done by the library.
    Pair(CleansedBlock<Pair>),
    /// AES-GMAC in ESP or AH, done by the library. All of the input is AAD.
    Gmac(CleansedBlock<Aead>),
    /// Any other integrity algorithm in AH, done by the library.
    Mac(CleansedBlock<Mac>),
    /// A cipher and an HMAC in ESP, done by a kernel.
    #[cfg(target_arch = "x86_64")]
    PairKernel(CleansedBlock<pair::CipherHmacKey>),
    /// ChaCha20-Poly1305 in ESP, done by a kernel.
    #[cfg(target_arch = "x86_64")]
    ChaCha(CleansedBlock<chacha::ChaChaKey>),
    /// DES or 3DES and an HMAC in ESP, done by a kernel.
    #[cfg(target_arch = "x86_64")]
    DesKernel(CleansedBlock<des::EspKey>),
    /// AES-GCM in ESP, done by a kernel.
    #[cfg(target_arch = "x86_64")]
    Gcm(Box<gcm::GcmKey>),
    /// AES-GMAC in ESP, done by a kernel.
    #[cfg(target_arch = "x86_64")]
    GmacKernel(Box<gcm::gmac::GmacKey>),
}

/// A cipher and a MAC that the library applies in turn: encrypt, then MAC.
pub(crate) struct Pair {
    pub(crate) cipher: Cipher,
    pub(crate) mac: Mac,
}

impl KeyContext {
    /// Does the same as [`KeyContext::new`] for the kernels of this tier. If the tier has no kernel for the
    /// transform, the library does the work.
    pub fn for_tier(
        tier: Tier,
        transform: Transform,
        esn: bool,
        key_material: &[u8],
    ) -> Result<Self, KeyError> {
        Self::of(tier, KeyMaterial::new(transform, esn, key_material)?)
    }

    /// Makes a context in the form that the kernels of this tier use.
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
        // All keys of the library are of one kind.
        let kind = if family == Family::Library {
            KernelKind::LIBRARY
        } else {
            KernelKind { family, tier }
        };
        Ok(Self {
            transform,
            esn,
            tier,
            kind,
            layout: Layout::new(transform, keys.class()),
            keys,
            origin: CleansedBlock::new(Origin {
                material,
                slot: HeldSlot::new(),
            }),
        })
    }

    /// The tier that the context was made for.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// The key material, for engines that have another form of it.
    pub fn material(&self) -> &KeyMaterial {
        &self.origin.material
    }

    /// The key's slot, under which a device that several workers share finds its form of the key.
    pub fn slot(&self) -> KeySlot {
        self.origin.slot.get()
    }

    /// Returns true if one of our kernels does the work, and not the library.
    pub fn has_kernel(&self) -> bool {
        self.kind.family != Family::Library
    }

    #[inline(always)]
    pub(crate) fn kind(&self) -> KernelKind {
        self.kind
    }

    #[inline(always)]
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub fn transform(&self) -> Transform {
        self.transform
    }

    /// Returns true if the SA uses 64-bit extended sequence numbers (RFC 4303 §2.2.1).
    pub fn esn(&self) -> bool {
        self.esn
    }
}

impl KeyForm {
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

    /// The value of [`Layout::class`].
    fn class(&self) -> u8 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Gcm(key) => key.sort() as u8,
            _ => 0,
        }
    }
}

/// A kernel's form of a key, one of the variants of [`KeyForm`].
pub(crate) trait FormOf: Sized {
    /// The key in this form; `None` if the keys are in another.
    fn of(keys: &KeyForm) -> Option<&Self>;
}

#[cfg(target_arch = "x86_64")]
macro_rules! form_of {
    ($($variant:ident: $form:ty),* $(,)?) => {
        $(impl FormOf for $form {
            #[inline]
            fn of(keys: &KeyForm) -> Option<&Self> {
                match keys {
                    KeyForm::$variant(key) => Some(key),
                    _ => None,
                }
            }
        })*
    };
}

#[cfg(target_arch = "x86_64")]
form_of! {
    PairKernel: pair::CipherHmacKey,
    ChaCha: chacha::ChaChaKey,
    DesKernel: des::EspKey,
    Gcm: gcm::GcmKey,
    GmacKernel: gcm::gmac::GmacKey,
}

/// Makes the key of the tier's kernel for an ESP transform. Returns `None` if the tier has no kernel for it. The key
/// material must have the transform's length.
#[cfg(target_arch = "x86_64")]
fn kernel_keys(
    tier: Tier,
    transform: Transform,
    esn: bool,
    key_material: &[u8],
) -> Option<KeyForm> {
    use crate::iana::Encryption::*;
    match transform.encryption()? {
        ChaCha20Poly1305 | ChaCha20Poly1305Iiv => {
            chacha::ChaChaKey::new(tier, transform, esn, key_material).map(KeyForm::ChaCha)
        }
        Des | TripleDes => {
            des::EspKey::new(tier, transform, esn, key_material).map(KeyForm::DesKernel)
        }
        AesGcm8 | AesGcm12 | AesGcm16 | AesGcm16Iiv => {
            gcm::key(tier, transform, esn, key_material).map(KeyForm::Gcm)
        }
        NullAuthAesGmac => {
            gcm::gmac_key(tier, transform, esn, key_material).map(KeyForm::GmacKernel)
        }
        _ => pair::CipherHmacKey::new(tier, transform, esn, key_material).map(KeyForm::PairKernel),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn kernel_keys(_: Tier, _: Transform, _: bool, _: &[u8]) -> Option<KeyForm> {
    None
}

/// Makes the keys in the library's form.
fn expand(transform: Transform, key_material: &[u8]) -> Option<KeyForm> {
    use crate::iana::Encryption::NullAuthAesGmac;
    let (cipher_key, integrity_key) =
        key_material.split_at_checked(transform.encryption_key_len())?;
    Some(match (transform.encryption(), transform.integrity()) {
        (Some(NullAuthAesGmac), None) => {
            KeyForm::Gmac(Aead::new(NullAuthAesGmac, transform.icv_len(), cipher_key)?)
        }
        (Some(cipher), None) => KeyForm::Aead(Aead::new(cipher, transform.icv_len(), cipher_key)?),
        (Some(cipher), Some(integrity)) => KeyForm::Pair(CleansedBlock::new(Pair {
            cipher: Cipher::new(cipher, cipher_key)?,
            mac: Mac::new(integrity, integrity_key)?,
        })),
        (None, Some(integrity)) if integrity.is_gmac() => {
            KeyForm::Gmac(Aead::gmac(integrity, integrity_key)?)
        }
        (None, Some(integrity)) => {
            KeyForm::Mac(CleansedBlock::new(Mac::new(integrity, integrity_key)?))
        }
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

// With ten thousand keys, this line of each is all that is prefetched before the packets go to a kernel.
const _: () = assert!(size_of::<KeyContext>() == 64);
