//! IPsec transforms: protocol, cipher and integrity algorithm resolved into one value.
//!
//! All that a packet's layout depends on (IV, alignment, ICV, key material) is computed when the transform is made.
//! The packet path therefore never looks at algorithms.

use crate::iana::{Encryption, Integrity, Requirement};

/// The IPsec protocol of an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Esp,
    Ah,
}

impl Protocol {
    /// The IP protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Esp => 50,
            Self::Ah => 51,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Esp => "ESP",
            Self::Ah => "AH",
        }
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The IV that the sender puts into the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IvKind {
    /// The algorithm has no IV.
    None,
    /// Eight bytes that hold the 64-bit sequence number: a counter, as RFC 4106 §3.1 suggests.
    Sequence,
    /// No IV is in the packet. Both sides use the sequence number as IV (RFC 8750).
    Implicit,
    /// [`Transform::iv_len`] unpredictable bytes (RFC 3602 §3).
    Random,
}

/// A transform of ESP or AH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transform {
    protocol: Protocol,
    encryption: Option<Encryption>,
    key_bits: u16,
    integrity: Option<Integrity>,
    iv_kind: IvKind,
    iv_len: u8,
    icv_len: u8,
    block_align: u8,
}

impl Transform {
    /// Every transform of ESP. The first twelve are the common ones.
    pub const ESP: [Self; 110] = lists::esp();

    /// Every transform of AH.
    pub const AH: [Self; 10] = lists::ah();

    /// Every transform that Esplanade can seal and open.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::ESP.into_iter().chain(Self::AH)
    }

    /// Makes a transform from negotiated ESP algorithms. An AEAD has no integrity algorithm, and any other cipher
    /// must have one (RFC 8221 §4). `key_bits` must be one of [`Encryption::key_bits`].
    pub const fn esp(
        encryption: Encryption,
        key_bits: u16,
        integrity: Option<Integrity>,
    ) -> Option<Self> {
        let icv_len = match integrity {
            None if encryption.is_aead() => aead_icv_len(encryption),
            Some(integrity) if encryption.goes_with(integrity) => integrity.icv_len(),
            _ => return None,
        };
        if !contains(encryption.key_bits(), key_bits) {
            return None;
        }
        let (iv_kind, iv_len) = iv(encryption);
        Some(Self {
            protocol: Protocol::Esp,
            encryption: Some(encryption),
            key_bits,
            integrity,
            iv_kind,
            iv_len,
            icv_len: icv_len as u8,
            block_align: match encryption {
                Encryption::AesCbc | Encryption::SerpentCbc | Encryption::TwofishCbc => 16,
                Encryption::Des | Encryption::TripleDes => 8,
                _ => 4,
            },
        })
    }

    /// Makes the AH transform with this integrity algorithm.
    pub const fn ah(integrity: Integrity) -> Self {
        let gmac = integrity.is_gmac();
        Self {
            protocol: Protocol::Ah,
            encryption: None,
            key_bits: 0,
            integrity: Some(integrity),
            iv_kind: if gmac { IvKind::Sequence } else { IvKind::None },
            iv_len: if gmac { 8 } else { 0 },
            icv_len: integrity.icv_len() as u8,
            block_align: 4,
        }
    }

    pub const fn protocol(self) -> Protocol {
        self.protocol
    }

    /// Returns the cipher, or `None` for AH.
    pub const fn encryption(self) -> Option<Encryption> {
        self.encryption
    }

    /// Returns the integrity algorithm, or `None` for an AEAD.
    pub const fn integrity(self) -> Option<Integrity> {
        self.integrity
    }

    /// The negotiated key length in bits. It is 0 if IKE has no key length attribute for the cipher.
    pub const fn key_bits(self) -> u16 {
        self.key_bits
    }

    pub const fn iv_kind(self) -> IvKind {
        self.iv_kind
    }

    /// Length in bytes of the explicit IV in the packet. In AH with AES-GMAC it begins the ICV field (RFC 4543 §4),
    /// but [`Transform::icv_len`] does not count it.
    pub const fn iv_len(self) -> usize {
        self.iv_len as usize
    }

    /// Length in bytes of the integrity check value in the packet.
    pub const fn icv_len(self) -> usize {
        self.icv_len as usize
    }

    /// The length of payload, padding and trailer must be a multiple of this (RFC 4303 §2.4).
    pub const fn block_align(self) -> usize {
        self.block_align as usize
    }

    /// Length in bytes of the cipher's part of the key material: key, then salt.
    pub const fn encryption_key_len(self) -> usize {
        match self.encryption {
            Some(cipher) => cipher.key_len(self.key_bits) + cipher.salt_len(),
            None => 0,
        }
    }

    /// Length in bytes of the key material that IKE must provide. It consists of the encryption key, its salt
    /// (RFC 4106 §8.1), the integrity key (RFC 7296 §2.17) and its salt (RFC 4543 §5.4).
    pub const fn key_material_len(self) -> usize {
        let integrity = match self.integrity {
            Some(integrity) => integrity.key_len() + integrity.salt_len(),
            None => 0,
        };
        self.encryption_key_len() + integrity
    }

    /// Length of an ESP packet, from SPI to ICV, with `payload_len` bytes of payload.
    pub const fn sealed_len(self, payload_len: usize) -> usize {
        let body = (payload_len + 2).next_multiple_of(self.block_align());
        8 + self.iv_len() + body + self.icv_len()
    }

    /// Length of the shortest valid ESP packet.
    pub const fn sealed_len_min(self) -> usize {
        self.sealed_len(0)
    }

    /// Length of the longest payload whose ESP packet fits into `sealed_len` bytes.
    pub const fn payload_len_max(self, sealed_len: usize) -> usize {
        let body = sealed_len.saturating_sub(8 + self.iv_len() + self.icv_len());
        // The alignment is a power of two. Its negative keeps whole blocks.
        (body & self.block_align().wrapping_neg()).saturating_sub(2)
    }

    /// Returns true if the transform hides the payload.
    pub const fn encrypts(self) -> bool {
        !matches!(
            self.encryption,
            None | Some(Encryption::Null | Encryption::NullAuthAesGmac)
        )
    }

    /// Returns true if the transform is too weak for use without the administrator's explicit consent.
    pub const fn legacy(self) -> bool {
        let cipher = matches!(self.encryption, Some(cipher) if cipher.legacy());
        let integrity = matches!(self.integrity, Some(integrity) if integrity.legacy());
        cipher || integrity
    }

    /// Returns true if the cipher's number is for private use.
    pub const fn private_use(self) -> bool {
        matches!(self.encryption, Some(cipher) if cipher.private_use())
    }

    /// The lower of the requirement levels that RFC 8221 gives to the algorithms.
    pub fn requirement(self) -> Requirement {
        let cipher = self
            .encryption
            .map(|cipher| cipher.requirement(self.key_bits));
        let integrity = self.integrity.map(Integrity::requirement);
        cipher
            .into_iter()
            .chain(integrity)
            .min()
            .unwrap_or(Requirement::May)
    }

    /// The IANA names without their prefixes, such as `AES_CBC_128/HMAC_SHA2_256_128`.
    pub fn name(self) -> String {
        let mut name = String::new();
        if let Some(cipher) = self.encryption {
            name.push_str(cipher.name().trim_start_matches("ENCR_"));
            if self.key_bits != 0 {
                name.push_str(&format!("_{}", self.key_bits));
            }
        }
        if let Some(integrity) = self.integrity {
            name.push_str(if self.encryption.is_some() {
                "/"
            } else {
                "AH/"
            });
            name.push_str(integrity.name().trim_start_matches("AUTH_"));
        }
        name
    }

    /// Returns the transform with this [`Transform::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|transform| transform.name() == name)
    }
}

impl std::fmt::Display for Transform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

const fn contains(lengths: &[u16], length: u16) -> bool {
    match lengths {
        [first, rest @ ..] => *first == length || contains(rest, length),
        [] => false,
    }
}

const fn aead_icv_len(encryption: Encryption) -> usize {
    match encryption {
        Encryption::AesCcm8 | Encryption::AesCcm8Iiv | Encryption::AesGcm8 => 8,
        Encryption::AesCcm12 | Encryption::AesGcm12 => 12,
        _ => 16,
    }
}

const fn iv(encryption: Encryption) -> (IvKind, u8) {
    match encryption {
        Encryption::Null => (IvKind::None, 0),
        Encryption::AesCbc | Encryption::SerpentCbc | Encryption::TwofishCbc => {
            (IvKind::Random, 16)
        }
        Encryption::Des | Encryption::TripleDes => (IvKind::Random, 8),
        Encryption::AesCcm8Iiv | Encryption::AesGcm16Iiv | Encryption::ChaCha20Poly1305Iiv => {
            (IvKind::Implicit, 0)
        }
        _ => (IvKind::Sequence, 8),
    }
}

/// The lists of transforms, computed at compile time.
mod lists {
    use super::{Encryption, Integrity, Transform};
    use Encryption::*;
    use Integrity::*;

    const PLAIN: [Encryption; 5] = [AesCbc, AesCtr, Null, TripleDes, Des];
    const AEADS: [Encryption; 10] = [
        AesGcm12,
        AesGcm8,
        AesCcm16,
        AesCcm12,
        AesCcm8,
        ChaCha20Poly1305,
        NullAuthAesGmac,
        AesGcm16Iiv,
        AesCcm8Iiv,
        ChaCha20Poly1305Iiv,
    ];
    const PRIVATE_USE: [Encryption; 6] = [
        SerpentCbc, TwofishCbc, MarsCtr, Rc6Ctr, SerpentCtr, TwofishCtr,
    ];
    const INTEGRITY: [Integrity; 7] = [
        HmacSha2_256_128,
        HmacSha2_384_192,
        HmacSha2_512_256,
        HmacSha1_96,
        AesXcbc96,
        AesCmac96,
        HmacMd5_96,
    ];

    struct List<const N: usize> {
        members: [Transform; N],
        len: usize,
    }

    impl<const N: usize> List<N> {
        const fn new() -> Self {
            Self {
                members: [Transform::ah(HmacSha2_256_128); N],
                len: 0,
            }
        }

        const fn push(mut self, member: Transform) -> Self {
            self.members[self.len] = member;
            self.len += 1;
            self
        }

        const fn push_lengths(mut self, cipher: Encryption, integrity: Option<Integrity>) -> Self {
            let lengths = cipher.key_bits();
            let mut i = 0;
            while i < lengths.len() {
                if let Some(member) = Transform::esp(cipher, lengths[i], integrity) {
                    self = self.push(member);
                }
                i += 1;
            }
            self
        }

        const fn complete(self) -> [Transform; N] {
            assert!(self.len == N);
            self.members
        }
    }

    pub(super) const fn esp<const N: usize>() -> [Transform; N] {
        let mut list = List::new().push_lengths(AesGcm16, None);
        let mut cipher = 0;
        while cipher < PLAIN.len() {
            let mut integrity = 0;
            while integrity < INTEGRITY.len() {
                list = list.push_lengths(PLAIN[cipher], Some(INTEGRITY[integrity]));
                integrity += 1;
            }
            cipher += 1;
        }
        let mut aead = 0;
        while aead < AEADS.len() {
            list = list.push_lengths(AEADS[aead], None);
            aead += 1;
        }
        let mut private = 0;
        while private < PRIVATE_USE.len() {
            let cipher = PRIVATE_USE[private];
            let partner = if cipher.is_aead() {
                None
            } else {
                Some(HmacSha2_256_128)
            };
            list = list.push_lengths(cipher, partner);
            private += 1;
        }
        list.complete()
    }

    pub(super) const fn ah<const N: usize>() -> [Transform; N] {
        let mut list = List::new();
        let mut i = 0;
        while i < INTEGRITY.len() {
            list = list.push(Transform::ah(INTEGRITY[i]));
            i += 1;
        }
        list.push(Transform::ah(Aes128Gmac))
            .push(Transform::ah(Aes192Gmac))
            .push(Transform::ah(Aes256Gmac))
            .complete()
    }
}
