//! The ciphers that a lane can have, and which transforms they carry.

use esplanade_crypto::Transform;
use esplanade_crypto::iana::{Encryption, Integrity};

/// A finalist of the AES competition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    Rijndael,
    Serpent,
    Twofish,
    Rc6,
    Mars,
}

impl Algorithm {
    /// All of them, in the order of the parameter `Algorithm` of `rtl/ace/ace_cipher.sv`.
    pub const ALL: [Self; 5] = [
        Self::Rijndael,
        Self::Serpent,
        Self::Twofish,
        Self::Rc6,
        Self::Mars,
    ];

    /// The name of the algorithm's domain in a library.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rijndael => "rijndael",
            Self::Serpent => "serpent",
            Self::Twofish => "twofish",
            Self::Rc6 => "rc6",
            Self::Mars => "mars",
        }
    }

    /// The algorithm with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.name() == name)
    }

    /// The counter mode of ESP with this cipher.
    const fn encryption(self) -> Encryption {
        match self {
            Self::Rijndael => Encryption::AesCtr,
            Self::Serpent => Encryption::SerpentCtr,
            Self::Twofish => Encryption::TwofishCtr,
            Self::Rc6 => Encryption::Rc6Ctr,
            Self::Mars => Encryption::MarsCtr,
        }
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The algorithm and the keys that a lane must have for a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Need {
    pub algorithm: Algorithm,
    /// The key has 192 or 256 bits.
    pub long_key: bool,
}

impl Need {
    /// Returns what the transform needs, or `None` if no lane carries it. A lane has a counter mode and HMAC-SHA2-256-128.
    pub fn of(transform: Transform) -> Option<Self> {
        let cipher = transform.encryption()?;
        let algorithm = Algorithm::ALL
            .into_iter()
            .find(|each| each.encryption() == cipher)?;
        let long_key = transform.key_bits() > 128;
        (transform.integrity() == Some(Integrity::HmacSha2_256_128)).then_some(Self {
            algorithm,
            long_key,
        })
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = if self.long_key {
            "long keys"
        } else {
            "keys of 128 bits"
        };
        write!(f, "{} with {keys}", self.algorithm)
    }
}

/// A lane: a cipher with the keys that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    pub algorithm: Algorithm,
    /// It takes keys of 192 and 256 bits too.
    pub long_keys: bool,
}

impl Lane {
    /// The lane that a domain and its variant in a library are named after: `rc6` and `ctr-128`, or `ctr-256` for all keys.
    pub fn named(domain: &str, variant: &str) -> Option<Self> {
        let long_keys = match variant {
            "ctr-128" => false,
            "ctr-256" => true,
            _ => return None,
        };
        Some(Self {
            algorithm: Algorithm::named(domain)?,
            long_keys,
        })
    }

    /// Says whether the lane carries the transform.
    pub fn carries(self, transform: Transform) -> bool {
        Need::of(transform).is_some_and(|need| self.meets(need))
    }

    /// Says whether the lane carries what needs this.
    pub fn meets(self, need: Need) -> bool {
        self.algorithm == need.algorithm && (self.long_keys || !need.long_key)
    }
}

impl std::fmt::Display for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys = if self.long_keys {
            "all keys"
        } else {
            "keys of 128 bits"
        };
        write!(f, "{} with {keys}", self.algorithm)
    }
}
