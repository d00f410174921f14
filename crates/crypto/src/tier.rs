//! Tiers: which of the processor's instructions the kernels may use.

use crate::transform::Transform;

/// A set of instructions for which there are kernels. A key context is made for one tier. All tiers give the same
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The code that aws-lc selects for the machine, one packet at a time.
    Portable,
    /// AES-NI, carry-less multiplication, SHA-NI and AVX2.
    AesNi,
    /// AVX-512 with vector AES, vector carry-less multiplication, IFMA, VBMI and GFNI.
    Avx512,
}

/// The machine lacks an instruction set that a tier needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this machine has no {feature}, which the tier {tier} needs")]
pub struct MissingFeature {
    pub tier: Tier,
    pub feature: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "self-test of {transform} on the tier {tier} failed: {step}; this build must not process packets with it on this machine"
)]
pub struct SelfTestError {
    pub tier: Tier,
    pub transform: Transform,
    pub step: &'static str,
}

impl Tier {
    /// All tiers, from the slowest to the fastest.
    pub const ALL: [Self; 3] = [Self::Portable, Self::AesNi, Self::Avx512];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::AesNi => "aesni",
            Self::Avx512 => "avx512",
        }
    }

    pub fn available(self) -> bool {
        self.missing().is_none()
    }

    /// Returns an error that names the first missing feature, if this machine lacks one.
    pub fn require(self) -> Result<(), MissingFeature> {
        match self.missing() {
            Some(feature) => Err(MissingFeature {
                tier: self,
                feature,
            }),
            None => Ok(()),
        }
    }

    /// The first feature of the tier that this machine lacks.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Self::Portable => None,
            Self::AesNi => missing_aesni(),
            Self::Avx512 => missing_aesni().or_else(missing_avx512),
        }
    }
}

/// Returns the name of the first feature that the processor or the operating system lacks.
#[cfg(target_arch = "x86_64")]
macro_rules! first_missing {
    ($($feature:tt),*) => {
        [$(($feature, is_x86_feature_detected!($feature))),*]
            .into_iter()
            .find_map(|(name, present)| (!present).then_some(name))
    };
}

#[cfg(target_arch = "x86_64")]
fn missing_aesni() -> Option<&'static str> {
    first_missing!(
        "aes",
        "pclmulqdq",
        "ssse3",
        "sse4.1",
        "avx",
        "avx2",
        "bmi1",
        "bmi2",
        "sha"
    )
}

#[cfg(target_arch = "x86_64")]
fn missing_avx512() -> Option<&'static str> {
    first_missing!(
        "avx512f",
        "avx512bw",
        "avx512cd",
        "avx512dq",
        "avx512vl",
        "avx512ifma",
        "avx512vbmi",
        "gfni",
        "vaes",
        "vpclmulqdq"
    )
}

#[cfg(not(target_arch = "x86_64"))]
fn missing_aesni() -> Option<&'static str> {
    Some("x86-64 processor")
}

#[cfg(not(target_arch = "x86_64"))]
fn missing_avx512() -> Option<&'static str> {
    missing_aesni()
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
