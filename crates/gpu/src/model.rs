//! Predicts how well a schedule uses the lanes of a device.

use std::collections::HashMap;

use crate::schedule::Schedule;
use crate::suite::StageWork;

/// Returns the share of lane turns that do needed work, from 0 to 1. `warp` is the number of lanes that run together,
/// a divisor of the work-group's size. A warp without a job does not run. An empty schedule wastes nothing.
pub fn lane_efficiency(schedule: &Schedule, work: &[(u32, StageWork)], warp: usize) -> f64 {
    let needed = work.iter().map(|(_, work)| needed_cost(*work)).sum();
    let taken = schedule.groups.iter().map(|group| {
        let jobs = group.count as usize;
        let (lanes, jobs_of_lane) = match group.kind.lanes() {
            Some(lanes) => (jobs * lanes, 1),
            // A lane of a pair does two jobs in a turn.
            None => (jobs.div_ceil(2), 2),
        };
        let warps = lanes.div_ceil(warp);
        (warps * warp * jobs_of_lane) as u64 * u64::from(group.trip) * group.kind.cost()
    });
    share(needed, taken.sum())
}

/// The cost of a job's turns, in all lanes that share it.
fn needed_cost(StageWork { kind, trip, .. }: StageWork) -> u64 {
    u64::from(trip) * kind.lanes().unwrap_or(1) as u64 * kind.cost()
}

fn share(needed: u64, taken: u64) -> f64 {
    match taken {
        0 => 1.0,
        taken => needed as f64 / taken as f64,
    }
}

/// Returns the lane efficiency of one lane a packet in arrival order, where a warp takes the turns of each kind that
/// it meets one after another. Systems without a schedule work like this.
pub fn divergent_efficiency(work: &[(u32, StageWork)], warp: usize) -> f64 {
    let (mut needed, mut taken) = (0, 0);
    for members in work.chunks(warp) {
        let mut longest = HashMap::new();
        for (_, work) in members {
            let cost = needed_cost(*work);
            needed += cost;
            let most: &mut u64 = longest.entry((work.kind, work.argument)).or_default();
            *most = cost.max(*most);
        }
        taken += longest.values().sum::<u64>() * warp as u64;
    }
    share(needed, taken)
}

#[cfg(test)]
mod tests {
    use esplanade_crypto::{Direction, Transform};

    use super::*;
    use crate::schedule::{Arrangement, WARP};
    use crate::suite::Suite;

    /// The lengths in bytes of IMIX's IP packets, with their shares.
    const IMIX: [(u32, u32); 3] = [(40, 7), (576, 4), (1500, 1)];

    /// The MAC stage and the cipher stage of a mix of packets, with the numbers of a simple generator.
    fn mix(names: &[&str], packets: u32) -> [Vec<(u32, StageWork)>; 2] {
        let suites: Vec<_> = names
            .iter()
            .map(|name| {
                let transform = Transform::from_name(name).unwrap();
                (transform, Suite::of(transform, false).unwrap())
            })
            .collect();
        let mut state = 1_u32;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        let (mut cipher, mut mac) = (Vec::new(), Vec::new());
        for job in 0..packets {
            let (transform, suite) = suites[draw(suites.len() as u32) as usize];
            let mut at = draw(12);
            let (len, _) = IMIX
                .into_iter()
                .find(|(_, share)| match at.checked_sub(*share) {
                    Some(rest) => {
                        at = rest;
                        false
                    }
                    None => true,
                })
                .unwrap();
            let payload = suite
                .payload_words(transform.sealed_len(len as usize) as u32)
                .unwrap();
            cipher.push((job, suite.cipher(Direction::Seal, payload).unwrap()));
            mac.push((job, suite.mac(false, payload)));
        }
        [cipher, mac]
    }

    const SIX: [&str; 6] = [
        "AES_GCM_16_128",
        "AES_GCM_16_256",
        "CHACHA20_POLY1305",
        "AES_CBC_128/HMAC_SHA1_96",
        "AES_CBC_256/HMAC_SHA2_256_128",
        "NULL/HMAC_SHA1_96",
    ];

    #[test]
    fn a_full_group_of_equals_wastes_nothing() {
        let suite = Suite::of(
            Transform::from_name("AES_CBC_128/HMAC_SHA1_96").unwrap(),
            false,
        )
        .unwrap();
        let work: Vec<_> = (0..128)
            .map(|job| (job, suite.cipher(Direction::Seal, 256).unwrap()))
            .collect();
        let schedule = Schedule::new(Arrangement::Full, &work);
        assert_eq!(lane_efficiency(&schedule, &work, 32), 1.0);
        // One more job takes a warp for itself.
        let work: Vec<_> = (0..129)
            .map(|job| (job, suite.cipher(Direction::Seal, 256).unwrap()))
            .collect();
        let schedule = Schedule::new(Arrangement::Full, &work);
        assert_eq!(lane_efficiency(&schedule, &work, 32), 129.0 / 192.0);
    }

    #[test]
    fn scheduling_fills_the_lanes_of_a_mix() {
        for work in mix(&SIX, 4096) {
            let of = |arrangement| lane_efficiency(&Schedule::new(arrangement, &work), &work, WARP);
            let full = of(Arrangement::Full);
            assert!(full >= 0.92, "{full}");
            assert!(full > of(Arrangement::ByKind) && of(Arrangement::ByKind) > 0.25);
            let divergent = divergent_efficiency(&work, WARP);
            assert!((0.05..0.12).contains(&divergent), "{divergent}");
        }
    }
}
