//! Choice of the tier.

use std::time::Duration;

use esplanade_crypto::selection::{TierError, cheaper_tiers, selection, settle_tier};
use esplanade_crypto::testing::fault::{self, Effect};
use esplanade_crypto::testing::{best_tier, cheaper, choose, ways};
use esplanade_crypto::{KeyContext, Tier, Transform};

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
    let selection = best_tier().expect("the next tier passes");
    assert_eq!(selection.tier, next);
    let [error] = selection.disabled[..] else {
        panic!("{:?}", selection.disabled);
    };
    assert_eq!(error.tier, broken);
    let forced = broken.force();
    assert!(matches!(forced, Err(TierError::SelfTest(_))), "{forced:?}");
}

fn gcm() -> Transform {
    Transform::from_name("AES_GCM_16_128").expect("a transform")
}

#[test]
fn a_tier_that_is_clearly_cheaper_is_chosen() {
    use Tier::{AesNi, Avx512, Portable};
    let chosen = |costs: &[_]| choose(Avx512, costs).map(|found| found.tier);
    assert_eq!(
        chosen(&[(Portable, 300), (AesNi, 90), (Avx512, 100)]),
        Some(AesNi)
    );
    assert_eq!(
        chosen(&[(Portable, 80), (AesNi, 85), (Avx512, 100)]),
        Some(Portable)
    );
    assert_eq!(chosen(&[(Portable, 300), (AesNi, 91), (Avx512, 100)]), None);
    assert_eq!(chosen(&[(Portable, 100), (Avx512, 100)]), None);
    // The process's tier could not be measured.
    assert_eq!(chosen(&[(Portable, 1)]), None);
    assert_eq!(chosen(&[]), None);
}

#[test]
fn only_tiers_that_do_not_work_alike_are_measured() {
    let current = Tier::current();
    assert_eq!(ways(Tier::Portable, gcm()), [Tier::Portable]);
    let ccm = Transform::from_name("AES_CCM_16_128").expect("a transform");
    assert_eq!(ways(current, ccm), [Tier::Portable], "no kernel");
    let des = Transform::from_name("3DES/HMAC_SHA1_96").expect("a transform");
    assert!(!ways(current, des).contains(&Tier::Portable), "has tables");
    if current > Tier::Portable {
        let ways = ways(current, gcm());
        assert!(ways.len() > 1 && ways.contains(&current), "{ways:?}");
    }
}

/// A clock that makes the first of `tiers` cheap.
fn favours_the_first(tiers: usize) -> impl Fn() -> Duration {
    let calls = std::cell::Cell::new(0);
    move || {
        let call = calls.replace(calls.get() + 1);
        // Each measurement reads the clock twice, and the tiers take turns.
        let short = call % (2 * tiers) == 1;
        Duration::from_micros(1000 * call as u64 - if short { 990 } else { 0 })
    }
}

#[test]
fn new_keys_use_the_cheaper_tier() {
    // No other test looks at the tier of keys of this transform.
    let transform = Transform::from_name("AES_GCM_12_192").expect("a transform");
    let current = Tier::current();
    let tiers = ways(current, transform).len();
    if tiers < 2 {
        println!("SKIP tier_aesni: this machine has the portable tier only");
        return;
    }
    let key = || KeyContext::new(transform, false, &[7; 28]).expect("a good key");
    assert_eq!(key().tier(), current);
    let found = settle_tier(transform, favours_the_first(tiers)).expect("a cheaper tier");
    assert_eq!(found.tier, Tier::Portable);
    assert_eq!(key().tier(), Tier::Portable);
    assert_eq!(cheaper_tiers().get(&transform), Some(&found));
    assert_eq!(Tier::of(gcm()), current);
}

/// Tells the test below that it is the child.
const CHILD: &str = "ESPLANADE_FORCED_TIER";

/// The tier of a process is chosen once, so this one has a process of its own.
#[test]
fn a_tier_that_was_forced_is_not_replaced_by_a_cheaper_one() {
    if std::env::var_os(CHILD).is_none() {
        let name = "selection::a_tier_that_was_forced_is_not_replaced_by_a_cheaper_one";
        let child = std::process::Command::new(std::env::current_exe().expect("a path"))
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&child.stdout);
        print!("{text}");
        assert!(child.status.success() && text.contains("1 passed"));
        return;
    }
    let available = Tier::ALL.into_iter().rfind(|tier| tier.available());
    let best = available.expect("the portable tier");
    assert_eq!(best.force(), Ok(()));
    assert!(selection().expect("a tier passes").forced);
    let tiers = ways(best, gcm()).len();
    if tiers < 2 {
        println!("SKIP tier_aesni: this machine has the portable tier only");
        return;
    }
    let found = cheaper(best, gcm(), favours_the_first(tiers)).expect("a cheaper tier");
    assert!(found.tier < best);
    assert_eq!(settle_tier(gcm(), favours_the_first(tiers)), None);
    assert_eq!(Tier::of(gcm()), best);
    assert!(cheaper_tiers().is_empty());
}

/// A tier that is cheap but wrong is not used.
#[test]
fn a_cheaper_tier_has_to_pass_its_self_test() {
    let current = Tier::current();
    let tiers: Vec<_> = ways(current, gcm());
    let Some(lower) = tiers
        .iter()
        .copied()
        .find(|t| *t != Tier::Portable && *t < current)
    else {
        println!("SKIP tier_avx512: this machine has no tier with kernels below another");
        return;
    };
    let first = tiers
        .iter()
        .position(|tier| *tier == lower)
        .expect("a place");
    let clock = favours_the_first(tiers.len());
    for _ in 0..2 * (tiers.len() - first) {
        clock();
    }
    let _broken = fault::inject(lower, 5, Effect::Sealed);
    assert_eq!(cheaper(current, gcm(), clock), None);
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
