//! Predicts how well a schedule uses the lanes of a device.

use crate::abi::{GROUP_LANES, StageKind};
use crate::schedule::Schedule;
use crate::suite::StageWork;

/// Returns the share of lane turns that do needed work, from 0 to 1. `warp` is the number of lanes that run together,
/// a divisor of the work-group's size. A warp without a job does not run. An empty schedule wastes nothing.
pub fn lane_efficiency(schedule: &Schedule, work: &[(u32, StageWork)], warp: usize) -> f64 {
    let mut needed_of = vec![
        0;
        work.iter()
            .map(|(job, _)| *job as usize + 1)
            .max()
            .unwrap_or(0)
    ];
    for (job, work) in work {
        needed_of[*job as usize] = needed_lane_turns(*work);
    }
    let (mut needed, mut taken) = (0, 0);
    for group in &schedule.groups {
        let cost = group.kind.cost();
        let jobs = &schedule.order[group.first as usize..][..group.count as usize];
        let mut before = None;
        for job in jobs
            .iter()
            .filter(|job| before.replace(**job) != Some(**job))
        {
            needed += needed_of[*job as usize] * cost;
        }
        let lanes = match group.kind.lanes() {
            Some(lanes) => jobs.len() * lanes,
            None => jobs.len().div_ceil(2),
        };
        let warps = lanes.min(GROUP_LANES).div_ceil(warp);
        // A lane of a pair does two jobs in a turn.
        let jobs_of_lane = if group.kind.lanes().is_none() { 2 } else { 1 };
        taken += (warps * warp * jobs_of_lane) as u64 * u64::from(group.trip) * cost;
    }
    if taken == 0 {
        return 1.0;
    }
    needed as f64 / taken as f64
}

/// Turns of a lane, counted for each job of the lane, that a job needs.
fn needed_lane_turns(work: StageWork) -> u64 {
    u64::from(work.trip) * work.kind.lanes().unwrap_or(1) as u64
}

/// Returns the lane efficiency of one lane a packet in arrival order, where a warp takes the turns of each kind that
/// it meets one after another. Systems without a schedule work like this.
pub fn divergent_efficiency(work: &[(u32, StageWork)], warp: usize) -> f64 {
    let (mut needed, mut taken) = (0, 0);
    for members in work.chunks(warp) {
        let mut longest = Vec::<(StageKind, u32, u64)>::new();
        for (
            _,
            StageWork {
                kind,
                argument,
                trip,
            },
        ) in members
        {
            let turns = needed_lane_turns(StageWork {
                kind: *kind,
                argument: *argument,
                trip: *trip,
            }) * kind.cost();
            needed += turns;
            match longest
                .iter_mut()
                .find(|(k, a, _)| (k, a) == (kind, argument))
            {
                Some((_, _, most)) => *most = (*most).max(turns),
                None => longest.push((*kind, *argument, turns)),
            }
        }
        taken += longest.iter().map(|(_, _, most)| most).sum::<u64>() * warp as u64;
    }
    if taken == 0 {
        return 1.0;
    }
    needed as f64 / taken as f64
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
                (transform, Suite::of(transform).unwrap())
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
        let suite = Suite::of(Transform::from_name("AES_CBC_128/HMAC_SHA1_96").unwrap()).unwrap();
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
