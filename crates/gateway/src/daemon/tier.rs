//! Which of the processor's instructions the CPU engine works with.

use esplanade_crypto::{Tier, TierError, selection};

use crate::failure::{Exit, Failure};
use crate::vici::Section;
use crate::worker::{CoreReport, Health};

/// Settles it before the first key is made, and logs it. Without a wish it is the best that passes its self-test.
pub(super) fn choose(wish: Option<Tier>) -> Result<(), Failure> {
    wish.map_or(Ok(()), Tier::force).map_err(failure)?;
    let selection = selection().map_err(Failure::runtime)?;
    for error in &selection.disabled {
        tracing::warn!("a better tier is not used: {error}");
    }
    tracing::info!(tier = %selection.tier, "the CPU engine is ready");
    Ok(())
}

/// For the control socket. With an FPGA core the CPU engine carries what that cannot. The first of the `engines` is the
/// one of SAs that are not placed elsewhere.
pub(super) fn report(
    core: Option<&CoreReport>,
    pool_threads: Option<usize>,
    engines: &[(&str, Health)],
) -> Section {
    let mut message = Section::new();
    match core {
        Some(core) => message
            .set("name", "fpga")
            .set("device", "simulated")
            .set("installed-out", core.installed.0)
            .set("installed-in", core.installed.1),
        None => message.set("name", engines.first().map_or("cpu", |(name, _)| name)),
    };
    if let Some(threads) = pool_threads {
        message.set("threads", threads);
    }
    let mut states = Section::new();
    for (name, health) in engines {
        states.set(name, health.name());
    }
    message.section("states", states);
    if let Some(why) = core.and_then(|core| core.failed.as_ref()) {
        message.set("failed", why);
    }
    if let Ok(selection) = selection() {
        message
            .set("tier", selection.tier)
            .list("disabled", &selection.disabled);
    }
    message
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
        let report = report(None, None, &[("cpu", Health::InService)]);
        assert_eq!(report.text("name"), Some("cpu"));
        assert_eq!(report.text("tier"), Some(Tier::current().name()));
        assert_eq!(report.items("disabled").count(), 0);
    }
}
