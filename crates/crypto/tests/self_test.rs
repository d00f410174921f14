//! The self-test of a tier.

use esplanade_crypto::lookaside::{AeadAlgorithm, AeadKey};
use esplanade_crypto::testing::fault::{self, Effect};
use esplanade_crypto::testing::{ANSWERS, check_answer, check_batch, check_records};
use esplanade_crypto::{KeyContext, Tier, Transform, self_test};

#[test]
fn passes_on_every_tier_of_this_machine() {
    for tier in Tier::ALL.into_iter().filter(|tier| tier.available()) {
        assert_eq!(self_test::run(tier), Ok(()));
    }
}

/// The kernel is wrong in one lane only, in each possible way.
#[test]
fn a_broken_lane_is_noticed() {
    for tier in Tier::ALL.into_iter().filter(|tier| tier.available()) {
        let kernels = Transform::ESP.into_iter().filter(|transform| {
            let material: Vec<u8> = (1..=transform.key_material_len() as u8).collect();
            let key = KeyContext::for_tier(tier, *transform, false, &material);
            key.expect("a good key").has_kernel()
        });
        for (round, transform) in kernels.enumerate() {
            let name = transform.name();
            let known: Vec<&str> = ANSWERS
                .lines()
                .filter_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))
                .collect();
            for (number, (effect, step)) in [
                (Effect::Sealed, "sealing a batch gives another packet"),
                (Effect::Opened, "opening a batch gives another payload"),
                (Effect::Refused, "opening a batch gives another payload"),
                (Effect::Accepted, "a forged packet of a batch is accepted"),
            ]
            .into_iter()
            .enumerate()
            {
                let lane = [0, 1, 7, 15, 16, 31, 60, 120][(round + number) % 8] / 5 * 5;
                // The fault hits a forged packet of the batch, or a good one.
                let lane = lane + if effect == Effect::Accepted { 2 } else { 0 };
                let _broken = fault::inject(tier, lane, effect);
                let noticed = check_batch(tier, transform, &known);
                assert_eq!(noticed, Err(step), "{tier} {name} lane {lane}");
            }
        }
    }
}

#[test]
fn a_broken_lane_of_records_is_noticed() {
    for tier in Tier::ALL.into_iter().filter(|tier| tier.available()) {
        for algorithm in AeadAlgorithm::ALL {
            let key = AeadKey::for_tier(tier, algorithm, &[7; 32][..algorithm.key_len()]);
            if !key.expect("a good key").has_kernel() {
                continue;
            }
            for effect in [
                Effect::Sealed,
                Effect::Opened,
                Effect::Accepted,
                Effect::Refused,
            ] {
                // The fault hits a forged record, or a good one that has a text.
                let lane = if effect == Effect::Accepted { 57 } else { 53 };
                let _broken = fault::inject(tier, lane, effect);
                assert!(
                    check_records(tier, algorithm).is_err(),
                    "{tier} {algorithm} {effect:?}"
                );
            }
            assert_eq!(check_records(tier, algorithm), Ok(()));
        }
    }
}

#[test]
fn a_wrong_answer_is_noticed() {
    let transform = Transform::ESP[0];
    let name = transform.name();
    let answer = ANSWERS
        .lines()
        .find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '))
        .expect("there is an answer");
    let mut wrong = answer.to_owned();
    let last = if wrong.pop() == Some('0') { '1' } else { '0' };
    wrong.push(last);
    let expected = Err("sealing gives another packet");
    assert_eq!(check_answer(Tier::Portable, transform, &wrong), expected);
    assert!(check_answer(Tier::Portable, transform, "short").is_err());
}
