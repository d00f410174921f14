//! Chooses the tier that the process works with: the best one that the machine has and that passes its self-test.
//!
//! A self-test needs keys and kernels, and a key for the process's tier needs the self-test. Constructors that use
//! the process's tier are therefore here, above both.

use std::sync::OnceLock;

use crate::key::KeyContext;
use crate::lookaside::{AeadError, AeadKey};
use crate::material::KeyError;
use crate::self_test;
use crate::spec::AeadAlgorithm;
use crate::tier::{MissingFeature, SelfTestError, Tier};
use crate::transform::Transform;

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
    /// The self-test failures of better tiers that the machine has. The process does not use these tiers.
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
}

impl KeyContext {
    /// Expands `key_material`, laid out as [`Transform::key_material_len`] says, for [`Tier::current`]. Weak keys are
    /// refused.
    pub fn new(transform: Transform, esn: bool, key_material: &[u8]) -> Result<Self, KeyError> {
        Self::for_tier(Tier::current(), transform, esn, key_material)
    }
}

impl AeadKey {
    /// Makes a key for [`Tier::current`]. Fails if no tier passes its self-test.
    pub fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Result<Self, AeadError> {
        let selection = selection()?;
        Self::for_tier(selection.tier, algorithm, key)
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
