//! The IKEv2 transform identifiers (IANA "IKEv2 Parameters") that Esplanade supports.
//!
//! Each enum has the IANA number, the IANA name and the keyword of swanctl.conf.

/// Defines one registry as an enum, with conversions to and from number, name and keyword.
macro_rules! registry {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $number:literal, $iana:literal, $keyword:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Every member, in IANA order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The IANA number.
            pub const fn number(self) -> u16 {
                match self { $(Self::$variant => $number,)* }
            }

            /// The member with this IANA number, if Esplanade supports it.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            /// The name in the IANA registry.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $iana,)* }
            }

            /// The keyword in a swanctl.conf proposal.
            pub const fn keyword(self) -> &'static str {
                match self { $(Self::$variant => $keyword,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

registry! {
    /// Encryption algorithms (transform type 1). The key length is a separate attribute. The keyword has it between
    /// stem and ICV length ("aes256gcm16", "aes128").
    Encryption {
        Des = 2, "ENCR_DES", "des";
        TripleDes = 3, "ENCR_3DES", "3des";
        Null = 11, "ENCR_NULL", "null";
        AesCbc = 12, "ENCR_AES_CBC", "aes";
        AesCtr = 13, "ENCR_AES_CTR", "aesctr";
        AesCcm8 = 14, "ENCR_AES_CCM_8", "aesccm8";
        AesCcm12 = 15, "ENCR_AES_CCM_12", "aesccm12";
        AesCcm16 = 16, "ENCR_AES_CCM_16", "aesccm16";
        AesGcm8 = 18, "ENCR_AES_GCM_8", "aesgcm8";
        AesGcm12 = 19, "ENCR_AES_GCM_12", "aesgcm12";
        AesGcm16 = 20, "ENCR_AES_GCM_16", "aesgcm16";
        NullAuthAesGmac = 21, "ENCR_NULL_AUTH_AES_GMAC", "aesgmac";
        ChaCha20Poly1305 = 28, "ENCR_CHACHA20_POLY1305", "chacha20poly1305";
        /// This identifier and the next two have an implicit IV (RFC 8750).
        AesCcm8Iiv = 29, "ENCR_AES_CCM_8_IIV", "aesccm8iiv";
        AesGcm16Iiv = 30, "ENCR_AES_GCM_16_IIV", "aesgcm16iiv";
        ChaCha20Poly1305Iiv = 31, "ENCR_CHACHA20_POLY1305_IIV", "chacha20poly1305iiv";
        /// This number and the next are strongSwan's, from the range for private use (RFC 7296 §3.3.2).
        SerpentCbc = 1026, "ENCR_SERPENT_CBC", "serpent";
        TwofishCbc = 1027, "ENCR_TWOFISH_CBC", "twofish";
        /// This number and the next three are Esplanade's own. The modes are built as RFC 3686 builds AES-CTR.
        MarsCtr = 44257, "ENCR_MARS_CTR", "marsctr";
        Rc6Ctr = 44258, "ENCR_RC6_CTR", "rc6_ctr";
        SerpentCtr = 44259, "ENCR_SERPENT_CTR", "serpentctr";
        TwofishCtr = 44260, "ENCR_TWOFISH_CTR", "twofishctr";
    }
}

registry! {
    /// Pseudorandom functions (transform type 2).
    Prf {
        HmacSha1 = 2, "PRF_HMAC_SHA1", "prfsha1";
        Aes128Xcbc = 4, "PRF_AES128_XCBC", "prfaesxcbc";
        HmacSha2_256 = 5, "PRF_HMAC_SHA2_256", "prfsha256";
        HmacSha2_384 = 6, "PRF_HMAC_SHA2_384", "prfsha384";
        HmacSha2_512 = 7, "PRF_HMAC_SHA2_512", "prfsha512";
        Aes128Cmac = 8, "PRF_AES128_CMAC", "prfaescmac";
    }
}

registry! {
    /// Integrity algorithms (transform type 3).
    Integrity {
        HmacMd5_96 = 1, "AUTH_HMAC_MD5_96", "md5";
        HmacSha1_96 = 2, "AUTH_HMAC_SHA1_96", "sha1";
        AesXcbc96 = 5, "AUTH_AES_XCBC_96", "aesxcbc";
        AesCmac96 = 8, "AUTH_AES_CMAC_96", "aescmac";
        Aes128Gmac = 9, "AUTH_AES_128_GMAC", "aes128gmac";
        Aes192Gmac = 10, "AUTH_AES_192_GMAC", "aes192gmac";
        Aes256Gmac = 11, "AUTH_AES_256_GMAC", "aes256gmac";
        HmacSha2_256_128 = 12, "AUTH_HMAC_SHA2_256_128", "sha256";
        HmacSha2_384_192 = 13, "AUTH_HMAC_SHA2_384_192", "sha384";
        HmacSha2_512_256 = 14, "AUTH_HMAC_SHA2_512_256", "sha512";
    }
}

registry! {
    /// Key exchange methods (transform type 4).
    Group {
        Modp1024 = 2, "MODP_1024", "modp1024";
        Modp1536 = 5, "MODP_1536", "modp1536";
        Modp2048 = 14, "MODP_2048", "modp2048";
        Modp3072 = 15, "MODP_3072", "modp3072";
        Modp4096 = 16, "MODP_4096", "modp4096";
        Modp6144 = 17, "MODP_6144", "modp6144";
        Modp8192 = 18, "MODP_8192", "modp8192";
        Ecp256 = 19, "ECP_256", "ecp256";
        Ecp384 = 20, "ECP_384", "ecp384";
        Ecp521 = 21, "ECP_521", "ecp521";
        /// This identifier and the next two have a small subgroup (RFC 5114 §2).
        Modp1024Subgroup160 = 22, "MODP_1024_160", "modp1024s160";
        Modp2048Subgroup224 = 23, "MODP_2048_224", "modp2048s224";
        Modp2048Subgroup256 = 24, "MODP_2048_256", "modp2048s256";
        Curve25519 = 31, "CURVE25519", "x25519";
    }
}

registry! {
    /// Sequence number sizes (transform type 5).
    SequenceNumbers {
        Bits32 = 0, "NO_ESN", "noesn";
        Bits64 = 1, "ESN", "esn";
    }
}

/// The requirement level of an algorithm for ESP and AH (RFC 8221).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Requirement {
    MustNot,
    ShouldNot,
    May,
    Should,
    /// MUST today, but expected to be lowered (RFC 8221 §2).
    MustMinus,
    Must,
}

impl Requirement {
    /// The level in the words of RFC 8221.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MustNot => "MUST NOT",
            Self::ShouldNot => "SHOULD NOT",
            Self::May => "MAY",
            Self::Should => "SHOULD",
            Self::MustMinus => "MUST-",
            Self::Must => "MUST",
        }
    }
}

impl std::fmt::Display for Requirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Encryption {
    /// Returns true if the algorithm is an AEAD. A proposal with an AEAD has no [`Integrity`] transform. AES-GMAC as
    /// an ESP cipher counts as an AEAD, although it does not encrypt (RFC 4543 §3).
    pub const fn is_aead(self) -> bool {
        !matches!(
            self,
            Self::Des
                | Self::TripleDes
                | Self::Null
                | Self::AesCbc
                | Self::AesCtr
                | Self::SerpentCbc
                | Self::TwofishCbc
                | Self::MarsCtr
                | Self::Rc6Ctr
                | Self::SerpentCtr
                | Self::TwofishCtr
        )
    }

    /// Returns true if the number is one for private use (RFC 7296 §3.3.2). It means the same to two peers only if both
    /// administrators say so.
    pub const fn private_use(self) -> bool {
        self.number() >= 1024
    }

    /// Returns true if ESP may have this integrity algorithm beside the cipher. No algorithm stands beside an AEAD.
    /// Ciphers for private use have one partner only.
    pub const fn goes_with(self, integrity: Integrity) -> bool {
        if self.is_aead() {
            false
        } else if self.private_use() {
            matches!(integrity, Integrity::HmacSha2_256_128)
        } else {
            !integrity.is_gmac()
        }
    }

    /// The values of the Key Length attribute that may be negotiated. 0 stands for no attribute, because the key has
    /// only one length (RFC 7296 §3.3.5).
    pub const fn key_bits(self) -> &'static [u16] {
        match self {
            Self::Des
            | Self::TripleDes
            | Self::Null
            | Self::ChaCha20Poly1305
            | Self::ChaCha20Poly1305Iiv => &[0],
            _ => &[128, 192, 256],
        }
    }

    /// Length of the key in bytes, without salt, for one of [`Encryption::key_bits`].
    pub const fn key_len(self, key_bits: u16) -> usize {
        match self {
            Self::Des => 8,
            Self::TripleDes => 24,
            Self::Null => 0,
            Self::ChaCha20Poly1305 | Self::ChaCha20Poly1305Iiv => 32,
            _ => key_bits as usize / 8,
        }
    }

    /// Number of salt or nonce bytes that follow the key in the key material.
    pub const fn salt_len(self) -> usize {
        match self {
            Self::Des
            | Self::TripleDes
            | Self::Null
            | Self::AesCbc
            | Self::SerpentCbc
            | Self::TwofishCbc => 0,
            // RFC 4309 §7.1: a salt has three bytes.
            Self::AesCcm8 | Self::AesCcm12 | Self::AesCcm16 | Self::AesCcm8Iiv => 3,
            _ => 4,
        }
    }

    /// Returns true if the algorithm may protect an IKE SA: it must encrypt, its IV must be in the message (RFC 8750),
    /// and its number must not be for private use.
    pub const fn for_ike(self) -> bool {
        !matches!(
            self,
            Self::Des
                | Self::TripleDes
                | Self::Null
                | Self::NullAuthAesGmac
                | Self::AesCcm8Iiv
                | Self::AesGcm16Iiv
                | Self::ChaCha20Poly1305Iiv
        ) && !self.private_use()
    }

    /// Returns true if the algorithm is too weak for use without the administrator's explicit consent.
    pub const fn legacy(self) -> bool {
        matches!(self, Self::Des | Self::TripleDes)
    }

    /// The level of RFC 8221 §5. Algorithms that it does not list are MAY.
    pub const fn requirement(self, key_bits: u16) -> Requirement {
        match self {
            Self::Des => Requirement::MustNot,
            Self::TripleDes => Requirement::ShouldNot,
            Self::Null => Requirement::Must,
            // The table's notes: 192-bit keys stay at MAY, and CCM is for small devices with 128-bit keys.
            Self::AesCbc | Self::AesGcm16 if key_bits != 192 => Requirement::Must,
            Self::AesCcm8 if key_bits == 128 => Requirement::Should,
            Self::ChaCha20Poly1305 => Requirement::Should,
            _ => Requirement::May,
        }
    }
}

impl Prf {
    /// Returns true if the algorithm is too weak for use without the administrator's explicit consent.
    pub const fn legacy(self) -> bool {
        matches!(self, Self::HmacSha1)
    }
}

impl Group {
    /// Returns true if the group is too weak for use without the administrator's explicit consent (RFC 8247 §2.4).
    pub const fn legacy(self) -> bool {
        matches!(
            self,
            Self::Modp1024
                | Self::Modp1536
                | Self::Modp1024Subgroup160
                | Self::Modp2048Subgroup224
                | Self::Modp2048Subgroup256
        )
    }
}

impl Integrity {
    /// Returns true if the algorithm is AES-GMAC, which protects AH. In ESP it is the cipher
    /// [`Encryption::NullAuthAesGmac`].
    pub const fn is_gmac(self) -> bool {
        matches!(self, Self::Aes128Gmac | Self::Aes192Gmac | Self::Aes256Gmac)
    }

    /// Length of the key in bytes, without salt. HMAC-SHA2 keys are as long as the hash (RFC 4868 §2.1.1).
    pub const fn key_len(self) -> usize {
        match self {
            Self::HmacMd5_96 | Self::AesXcbc96 | Self::AesCmac96 | Self::Aes128Gmac => 16,
            Self::HmacSha1_96 => 20,
            Self::Aes192Gmac => 24,
            Self::Aes256Gmac | Self::HmacSha2_256_128 => 32,
            Self::HmacSha2_384_192 => 48,
            Self::HmacSha2_512_256 => 64,
        }
    }

    /// Number of salt bytes that follow the key in the key material (RFC 4543 §5.4).
    pub const fn salt_len(self) -> usize {
        if self.is_gmac() { 4 } else { 0 }
    }

    /// Length of the ICV in bytes, without an IV that precedes it.
    pub const fn icv_len(self) -> usize {
        match self {
            Self::HmacMd5_96 | Self::HmacSha1_96 | Self::AesXcbc96 | Self::AesCmac96 => 12,
            Self::Aes128Gmac | Self::Aes192Gmac | Self::Aes256Gmac | Self::HmacSha2_256_128 => 16,
            Self::HmacSha2_384_192 => 24,
            Self::HmacSha2_512_256 => 32,
        }
    }

    /// Returns true if the algorithm may protect an IKE SA.
    pub const fn for_ike(self) -> bool {
        !self.is_gmac() && !self.legacy()
    }

    /// Returns true if the algorithm is too weak for use without the administrator's explicit consent.
    pub const fn legacy(self) -> bool {
        matches!(self, Self::HmacMd5_96)
    }

    /// The level of RFC 8221 §6. Algorithms that it does not list are MAY, and so is AES-XCBC except for small
    /// devices.
    pub const fn requirement(self) -> Requirement {
        match self {
            Self::HmacMd5_96 => Requirement::MustNot,
            Self::HmacSha1_96 => Requirement::MustMinus,
            Self::HmacSha2_256_128 => Requirement::Must,
            Self::HmacSha2_512_256 => Requirement::Should,
            _ => Requirement::May,
        }
    }
}
