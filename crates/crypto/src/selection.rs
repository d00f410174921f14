//! Chooses the tier that the process works with: the best one that the machine has and that passes its self-test. Single
//! transforms use a lower tier where that is measured to be cheaper.
//!
//! A self-test needs keys and kernels, and a key for the process's tier needs the self-test. Constructors that use
//! the process's tier are therefore here, above both.

use std::collections::BTreeMap;
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use crate::cost;
use crate::iana::Encryption;
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
    /// The tier is the one that somebody wished, for all transforms.
    pub forced: bool,
}

/// A transform whose new keys use a lower tier than the process's. Costs are nanoseconds for a thousand bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheaperTier {
    pub tier: Tier,
    pub cost: u64,
    /// The cost with the process's tier.
    pub instead_of: u64,
}

static CHEAPER: RwLock<BTreeMap<Transform, CheaperTier>> = RwLock::new(BTreeMap::new());

static SELECTION: OnceLock<Result<Selection, SelfTestError>> = OnceLock::new();

/// Returns the tier of the process. The first call chooses it: the best tier that the machine has and that passes its
/// self-test. Returns an error if the portable tier does not pass either.
pub fn selection() -> Result<&'static Selection, SelfTestError> {
    SELECTION.get_or_init(best).as_ref().map_err(|e| *e)
}

pub(crate) fn best() -> Result<Selection, SelfTestError> {
    let mut disabled = Vec::new();
    for tier in Tier::ALL.into_iter().rev() {
        if tier.missing().is_some() {
            continue;
        }
        match self_test::run(tier) {
            Ok(()) => {
                return Ok(Selection {
                    tier,
                    disabled,
                    forced: false,
                });
            }
            Err(error) if tier == Tier::Portable => return Err(error),
            Err(error) => disabled.push(error),
        }
    }
    unreachable!("every machine has the portable tier")
}

/// Measures the tiers of the machine with the transform, which is of ESP. If a lower tier than the process's costs
/// clearly less and passes its self-test, keys that are made from now on use it. `now` is the time since any fixed
/// moment.
///
/// A forced tier stays. So does the process's tier where a lower one has tables that secrets are looked up in.
pub fn settle_tier(transform: Transform, now: impl Fn() -> Duration) -> Option<CheaperTier> {
    let selection = selection().ok().filter(|selection| !selection.forced)?;
    let found = cheaper(selection.tier, transform, now)?;
    let mut all = CHEAPER.write().unwrap_or_else(PoisonError::into_inner);
    all.insert(transform, found);
    Some(found)
}

/// Returns the transforms whose new keys use a lower tier.
pub fn cheaper_tiers() -> BTreeMap<Transform, CheaperTier> {
    let all = CHEAPER.read().unwrap_or_else(PoisonError::into_inner);
    all.clone()
}

pub(crate) fn cheaper(
    current: Tier,
    transform: Transform,
    now: impl Fn() -> Duration,
) -> Option<CheaperTier> {
    let tiers = ways(current, transform);
    if tiers.len() < 2 {
        return None;
    }
    let measure = || choose(current, &cost::by_tier(&tiers, transform, &now));
    let found = measure()?;
    self_test::run_one(found.tier, transform).ok()?;
    // Others use the processor too: one measurement may be an accident.
    let again = measure()?;
    (again.tier == found.tier).then_some(again)
}

/// The tiers up to the process's one that do not work alike for the transform.
pub(crate) fn ways(current: Tier, transform: Transform) -> Vec<Tier> {
    let library_looks_up = matches!(
        transform.encryption(),
        Some(Encryption::Des | Encryption::TripleDes)
    );
    let material: Vec<u8> = (1..).take(transform.key_material_len()).collect();
    let has_kernel = |tier| {
        let key = KeyContext::for_tier(tier, transform, false, &material);
        key.is_ok_and(|key| key.has_kernel())
    };
    let mut library = false;
    let tiers = Tier::ALL.into_iter();
    tiers
        .filter(|tier| *tier <= current && tier.available())
        .filter(|tier| {
            has_kernel(*tier) || !(library_looks_up || std::mem::replace(&mut library, true))
        })
        .collect()
}

/// The cheapest tier, unless the process's tier costs less than a ninth more: measured costs are never quite right.
pub(crate) fn choose(current: Tier, costs: &[(Tier, u64)]) -> Option<CheaperTier> {
    let (_, instead_of) = *costs.iter().find(|(tier, _)| *tier == current)?;
    let (tier, cost) = *costs.iter().min_by_key(|(_, cost)| *cost)?;
    let clearly = u128::from(cost) * 10 <= u128::from(instead_of) * 9;
    (clearly && tier != current).then_some(CheaperTier {
        tier,
        cost,
        instead_of,
    })
}

impl Tier {
    /// The tier that [`KeyContext::new`](crate::KeyContext::new) uses for the transform: [`Tier::current`], or a cheaper
    /// one that [`settle_tier`] found.
    pub fn of(transform: Transform) -> Self {
        let all = CHEAPER.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&transform)
            .map_or_else(Self::current, |found| found.tier)
    }

    /// The tier of the process. It is the portable tier if no tier passes its self-test;
    /// [`CpuEngine::new`](crate::CpuEngine::new) then refuses to work.
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
                forced: true,
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
    /// Expands `key_material`, laid out as [`Transform::key_material_len`] says, for [`Tier::of`] the transform. Weak keys
    /// are refused.
    pub fn new(transform: Transform, esn: bool, key_material: &[u8]) -> Result<Self, KeyError> {
        Self::for_tier(Tier::of(transform), transform, esn, key_material)
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
