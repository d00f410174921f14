//! Chooses the processor's instructions that the CPU engine works with.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use esplanade_crypto::selection::{cheaper_tiers, settle_tier};
use esplanade_crypto::{Tier, TierError, Transform, selection};

use crate::failure::{Exit, Failure};
use crate::status::{EngineStats, Named};
use crate::worker::Health;
use esplanade_engines::{EngineNames, Engines};

/// Chooses the tier before the first key is made, and logs it. Without a wish, it is the best tier that passes its
/// self-test.
pub(in crate::daemon) fn choose(wish: Option<Tier>) -> Result<(), Failure> {
    wish.map_or(Ok(()), Tier::force).map_err(failure)?;
    let selection = selection().map_err(Failure::runtime)?;
    for error in &selection.disabled {
        tracing::warn!("a better tier is not used: {error}");
    }
    tracing::info!(tier = %selection.tier, "the CPU engine is ready");
    Ok(())
}

/// Measures the tiers for transforms that a configuration has, and logs where another than the process's is cheaper. A
/// transform is measured once in the life of the gateway.
pub(in crate::daemon) fn settle(transforms: impl Iterator<Item = Transform>) {
    static MEASURED: Mutex<BTreeSet<Transform>> = Mutex::new(BTreeSet::new());
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = Instant::now();
    for transform in transforms.filter(|transform| measured.insert(*transform)) {
        if let Some(found) = settle_tier(transform, || begun.elapsed()) {
            let (cost, instead_of) = (found.cost, found.instead_of);
            tracing::info!(
                transform = %transform.name(), tier = %found.tier,
                "a lower tier is cheaper: {cost} ns for a thousand bytes instead of {instead_of}"
            );
        }
    }
}

/// Reports the engines for `stats`, without their share of the load.
pub(in crate::daemon) fn report(
    engines: &Engines,
    health: &[(&'static str, Health)],
) -> EngineStats {
    let reports = engines.reports();
    let EngineNames {
        name,
        usual,
        others,
    } = engines.in_words(&reports);
    let mut stats = EngineStats {
        name,
        also: others,
        usual: Some(usual).filter(|usual| usual != name),
        ..EngineStats::default()
    };
    for (engine, report) in reports {
        for (name, figure) in report.figures {
            stats.figures.entry(name).or_insert(figure);
        }
        stats.warnings.extend(report.warnings);
        if !report.lines.is_empty() {
            stats.lines.0.push((engine.to_owned(), report.lines));
        }
    }
    let states = health.iter();
    let states = states.map(|(name, health)| ((*name).to_owned(), health.name()));
    let costs = crate::daemon::settings::speeds::measured().into_iter();
    let costs = costs.map(|(transform, ns)| (transform.name(), ns));
    let tiers = cheaper_tiers().into_iter();
    let tiers = tiers.map(|(transform, found)| (transform.name(), found.tier.name()));
    let selection = selection().ok();
    let disabled = selection.iter().flat_map(|selection| &selection.disabled);
    EngineStats {
        states: Named(states.collect()),
        costs: Named(costs.collect()),
        disabled: disabled.map(ToString::to_string).collect(),
        tier: selection.map(|selection| selection.tier.to_string()),
        tiers: Named(tiers.collect()),
        ..stats
    }
}

fn failure(error: TierError) -> Failure {
    let available = Tier::ALL.into_iter().filter(|tier| tier.available());
    let names: Vec<&str> = available.map(Tier::name).collect();
    let exit = match error {
        TierError::Missing(_) => Exit::Forbidden,
        _ => Exit::Failure,
    };
    Failure::new(exit, error).help(format!(
        "leave `--cpu-tier` and `cpu_tier` out to have the best of what this machine has: {}",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use esplanade_crypto::MissingFeature;

    use super::*;

    #[test]
    fn what_the_machine_lacks_is_said() {
        let missing = TierError::Missing(MissingFeature {
            tier: Tier::Avx512,
            feature: "vaes",
        });
        let failure = failure(missing);
        assert_eq!(failure.exit, Exit::Forbidden);
        assert_eq!(
            failure.what,
            "this machine has no vaes, which the tier avx512 needs"
        );
        assert!(failure.help.is_some_and(|help| help.contains("portable")));
    }

    #[test]
    fn the_tier_is_reported() {
        choose(None).unwrap();
        let report = report(&Engines::cpu(), &[("cpu", Health::InService)]);
        assert_eq!(report.name, "cpu");
        assert_eq!(report.tier.as_deref(), Some(Tier::current().name()));
        assert!(report.disabled.is_empty());
    }
}
