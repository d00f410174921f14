//! Tiers: which of the processor's instructions the kernels may use.

use std::sync::OnceLock;

use crate::self_test::{self, SelfTestError};

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

/// The reason why a tier cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    #[error(transparent)]
    Missing(#[from] MissingFeature),
    #[error(transparent)]
    SelfTest(#[from] SelfTestError),
    #[error("the tier {tier} comes too late: keys were made for {current}")]
    Late { tier: Tier, current: Tier },
    #[error("there is no tier {0:?}; there are portable, aesni and avx512")]
    Unknown(String),
}

/// The tier that the process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub tier: Tier,
    /// The self-test failures of better tiers that the machine has. Those tiers are not used.
    pub disabled: Vec<SelfTestError>,
}

static SELECTION: OnceLock<Result<Selection, SelfTestError>> = OnceLock::new();

/// Returns the tier of the process. The first call chooses it: the best tier that the machine has and that passes its
/// self-test. Returns an error if the portable tier does not pass either.
pub fn selection() -> Result<&'static Selection, SelfTestError> {
    SELECTION.get_or_init(best).as_ref().map_err(|e| *e)
}

fn best() -> Result<Selection, SelfTestError> {
    let mut disabled = Vec::new();
    for tier in Tier::ALL.into_iter().rev() {
        if tier.missing().is_some() {
            continue;
        }
        match self_test::run(tier) {
            Ok(()) => return Ok(Selection { tier, disabled }),
            Err(error) if tier == Tier::Portable => return Err(error),
            Err(error) => disabled.push(error),
        }
    }
    unreachable!("every machine has the portable tier")
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

    /// The tier that [`KeyContext::new`](crate::KeyContext::new) uses. It is the portable tier if no tier passes its
    /// self-test; [`CpuEngine::new`](crate::CpuEngine::new) then refuses to work.
    pub fn current() -> Self {
        selection().map_or(Self::Portable, |selection| selection.tier)
    }

    /// Makes the process use this tier and no other. It must be called before the first key is made.
    pub fn force(self) -> Result<(), TierError> {
        self.require()?;
        self_test::run(self)?;
        let selection = SELECTION.get_or_init(|| {
            Ok(Selection {
                tier: self,
                disabled: Vec::new(),
            })
        });
        match selection {
            Ok(selection) if selection.tier == self => Ok(()),
            Ok(selection) => Err(TierError::Late {
                tier: self,
                current: selection.tier,
            }),
            Err(error) => Err((*error).into()),
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

impl std::str::FromStr for Tier {
    type Err = TierError;

    fn from_str(name: &str) -> Result<Self, TierError> {
        let named = |tier: &Self| tier.name() == name;
        let tier = Self::ALL.into_iter().find(named);
        tier.ok_or_else(|| TierError::Unknown(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::fault::{self, Effect};

    #[test]
    fn the_best_tier_of_the_machine_is_selected() {
        let selection = selection().expect("a tier passes");
        assert_eq!(selection.disabled, []);
        let best = Tier::ALL.into_iter().rev().find(|tier| tier.available());
        assert_eq!(Some(selection.tier), best);
        assert_eq!(Tier::current(), selection.tier);
        assert_eq!(selection.tier.force(), Ok(()));
        let tier = Tier::Portable;
        if selection.tier != tier {
            let current = selection.tier;
            assert_eq!(tier.force(), Err(TierError::Late { tier, current }));
        }
    }

    /// A tier with a kernel that is wrong in one lane is not used; the next tier is selected.
    #[test]
    fn a_broken_tier_is_disabled() {
        let good: Vec<Tier> = Tier::ALL.into_iter().filter(|t| t.available()).collect();
        let &[.., next, broken] = good.as_slice() else {
            println!("SKIP tier_aesni: this machine has the portable tier only");
            return;
        };
        let _broken = fault::inject(broken, 5, Effect::Sealed);
        let selection = best().expect("the next tier passes");
        assert_eq!(selection.tier, next);
        let [error] = selection.disabled[..] else {
            panic!("{:?}", selection.disabled);
        };
        assert_eq!(error.tier, broken);
        let forced = broken.force();
        assert!(matches!(forced, Err(TierError::SelfTest(_))), "{forced:?}");
    }

    #[test]
    fn tiers_have_names() {
        for tier in Tier::ALL {
            assert_eq!(tier.name().parse(), Ok(tier));
        }
        let error = "sse9".parse::<Tier>().err().map(|e| e.to_string());
        let expected = "there is no tier \"sse9\"; there are portable, aesni and avx512";
        assert_eq!(error.as_deref(), Some(expected));
    }
}
