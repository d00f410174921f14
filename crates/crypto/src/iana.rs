//! IKEv2 transform identifiers (IANA "IKEv2 Parameters") that Esplanade speaks.
//!
//! Each enum has the IANA number, the IANA name and the keyword that swanctl.conf uses.

/// Defines one registry as an enum with conversions from and to number, name and keyword.
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

            /// The member with this IANA number, if Esplanade speaks it.
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
    /// Transform type 1. The key length is a separate attribute; the keyword
    /// carries it between stem and ICV ("aes256gcm16", "aes128").
    Encryption {
        AesCbc = 12, "ENCR_AES_CBC", "aes";
        AesGcm16 = 20, "ENCR_AES_GCM_16", "aesgcm16";
    }
}

registry! {
    /// Transform type 2.
    Prf {
        HmacSha2_256 = 5, "PRF_HMAC_SHA2_256", "prfsha256";
        HmacSha2_384 = 6, "PRF_HMAC_SHA2_384", "prfsha384";
        HmacSha2_512 = 7, "PRF_HMAC_SHA2_512", "prfsha512";
    }
}

registry! {
    /// Transform type 3.
    Integrity {
        HmacSha2_256_128 = 12, "AUTH_HMAC_SHA2_256_128", "sha256";
        HmacSha2_384_192 = 13, "AUTH_HMAC_SHA2_384_192", "sha384";
        HmacSha2_512_256 = 14, "AUTH_HMAC_SHA2_512_256", "sha512";
    }
}

registry! {
    /// Transform type 4, the key exchange method.
    Group {
        Modp2048 = 14, "MODP_2048", "modp2048";
        Modp3072 = 15, "MODP_3072", "modp3072";
        Modp4096 = 16, "MODP_4096", "modp4096";
        Ecp256 = 19, "ECP_256", "ecp256";
        Ecp384 = 20, "ECP_384", "ecp384";
        Curve25519 = 31, "CURVE25519", "x25519";
    }
}

registry! {
    /// Transform type 5.
    SequenceNumbers {
        Bits32 = 0, "NO_ESN", "noesn";
        Bits64 = 1, "ESN", "esn";
    }
}

impl Encryption {
    /// An AEAD carries its own integrity: a proposal with it has no [`Integrity`] transform.
    pub const fn is_aead(self) -> bool {
        matches!(self, Self::AesGcm16)
    }

    /// Key lengths in bits that may be negotiated.
    pub const fn key_bits(self) -> &'static [u16] {
        match self {
            Self::AesCbc | Self::AesGcm16 => &[128, 192, 256],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for &member in Group::ALL {
            assert_eq!(Group::from_number(member.number()), Some(member));
        }
        for &member in Encryption::ALL {
            assert_eq!(Encryption::from_number(member.number()), Some(member));
        }
        assert_eq!(Group::from_number(2), None, "MODP_1024 is not spoken");
    }
}
