//! Puts jobs into work-groups so that no lane waits for another.
//!
//! The lanes of a warp run the same instructions. Where they have different work, each waits for the longest. So a
//! work-group has jobs of one kind, and of nearly equal length: jobs are sorted by kind and by the turns of the
//! kind's loop. The longest work-groups come first, because a device starts them in their order.

use crate::abi::{GROUP_LANES, GROUP_WORDS, StageKind};
use crate::suite::StageWork;

/// How the jobs of a stage are put into work-groups. The first two serve measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrangement {
    /// A warp takes jobs as they come, two for each lane, and the kinds that it meets one after another. So does a warp
    /// whose lanes take different branches.
    Arrival,
    /// Jobs are sorted by kind.
    ByKind,
    /// Jobs are sorted by kind and length, and the longest work-groups come first.
    #[default]
    Full,
}

/// Lanes that run the same instructions. Devices with wider warps only lose a little.
pub const WARP: usize = 32;

/// The work-groups of a stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Job numbers. Each work-group has a run of them.
    pub order: Vec<u32>,
    pub groups: Vec<Group>,
}

/// A work-group: jobs of one kind, in a row of [`Schedule::order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub kind: StageKind,
    pub argument: u32,
    /// Index of the first job number.
    pub first: u32,
    /// Job numbers, of which the last may be there twice where a lane has two jobs.
    pub count: u32,
    /// Turns of the loop: the most that one of the jobs needs.
    pub trip: u32,
}

impl Group {
    pub fn words(&self, order_offset: u32) -> [u32; GROUP_WORDS] {
        [
            self.kind as u32,
            self.first + order_offset,
            self.count,
            self.trip,
            self.argument,
            0,
            0,
            0,
        ]
    }

    fn cost(&self) -> u64 {
        self.kind.cost() * u64::from(self.trip)
    }
}

impl Schedule {
    /// Arranges the work of one stage. `work` has the job's number with the job's part in the stage.
    pub fn new(arrangement: Arrangement, work: &[(u32, StageWork)]) -> Self {
        let mut work = work.to_vec();
        let mut together = work.len().max(1);
        // Sorting keeps the order of equals, so packets of one flow stay neighbours in memory.
        match arrangement {
            Arrangement::Arrival => {
                together = 2 * WARP;
                for jobs in work.chunks_mut(together) {
                    jobs.sort_by_key(|(_, work)| (work.kind, work.argument));
                }
            }
            Arrangement::ByKind => work.sort_by_key(|(_, work)| (work.kind, work.argument)),
            Arrangement::Full => work
                .sort_by_key(|(_, work)| (work.kind, work.argument, std::cmp::Reverse(work.trip))),
        }
        let mut schedule = Self {
            order: Vec::with_capacity(work.len() + work.len() / 64 + 8),
            groups: Vec::new(),
        };
        let same = |a: &(u32, StageWork), b: &(u32, StageWork)| {
            (a.1.kind, a.1.argument) == (b.1.kind, b.1.argument)
        };
        for run in work.chunks(together).flat_map(|jobs| jobs.chunk_by(same)) {
            let mut rest = run;
            while !rest.is_empty() {
                let len = match arrangement {
                    Arrangement::Full => even_len(rest),
                    _ => rest.len().min(rest[0].1.kind.jobs()),
                };
                let (members, behind) = rest.split_at(len);
                schedule.push(members);
                rest = behind;
            }
        }
        if arrangement == Arrangement::Full {
            schedule
                .groups
                .sort_by_key(|group| std::cmp::Reverse(group.cost()));
        }
        schedule
    }

    /// Adds a work-group. `members` are not empty and of one kind.
    fn push(&mut self, members: &[(u32, StageWork)]) {
        let Some(((last, work), trip)) = members
            .last()
            .zip(members.iter().map(|(_, work)| work.trip).max())
        else {
            return;
        };
        let first = self.order.len() as u32;
        self.order.extend(members.iter().map(|(job, _)| *job));
        if work.kind.lanes().is_none() && !members.len().is_multiple_of(2) {
            self.order.push(*last);
        }
        self.groups.push(Group {
            kind: work.kind,
            argument: work.argument,
            first,
            count: self.order.len() as u32 - first,
            trip,
        });
    }
}

/// Returns how many of the sorted jobs fill a work-group. It ends behind a whole warp whose successors are clearly
/// shorter, because the loop's turns are those of the first job.
fn even_len(work: &[(u32, StageWork)]) -> usize {
    let most = work[0].1.kind.jobs();
    let of_warp = most * WARP / GROUP_LANES;
    let is_shorter = |at: &usize| {
        let next = work.get(*at).map_or(0, |(_, work)| work.trip);
        u64::from(next) * 8 < u64::from(work[0].1.trip) * 7
    };
    let cut = (of_warp..most).step_by(of_warp).find(is_shorter);
    cut.unwrap_or(most).min(work.len())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn any_work() -> impl Strategy<Value = Vec<(u32, StageWork)>> {
        let one =
            (0..StageKind::ALL.len(), 0..3_u32, 1..95_u32).prop_map(|(kind, argument, trip)| {
                StageWork {
                    kind: StageKind::ALL[kind],
                    argument,
                    trip,
                }
            });
        prop::collection::vec(one, 0..600)
            .prop_map(|work| (0..).zip(work).collect::<Vec<(u32, StageWork)>>())
    }

    fn any_arrangement() -> impl Strategy<Value = Arrangement> {
        prop::sample::select(vec![
            Arrangement::Arrival,
            Arrangement::ByKind,
            Arrangement::Full,
        ])
    }

    proptest! {
        #[test]
        fn each_job_is_in_one_group_of_its_kind(work in any_work(), arrangement in any_arrangement()) {
            let schedule = Schedule::new(arrangement, &work);
            let by_number: HashMap<u32, StageWork> = work.iter().copied().collect();
            let mut times = HashMap::<u32, usize>::new();
            for group in &schedule.groups {
                let jobs = &schedule.order[group.first as usize..][..group.count as usize];
                prop_assert!(!jobs.is_empty() && jobs.len() <= group.kind.jobs());
                let mut trip = 0;
                for (at, job) in jobs.iter().enumerate() {
                    let of_job = by_number[job];
                    prop_assert_eq!((of_job.kind, of_job.argument), (group.kind, group.argument));
                    trip = trip.max(of_job.trip);
                    // A job is there twice only as the second of its own lane.
                    if at == 0 || jobs[at - 1] != *job {
                        *times.entry(*job).or_default() += 1;
                    } else {
                        prop_assert!(group.kind.lanes().is_none() && at % 2 == 1);
                    }
                }
                prop_assert_eq!(trip, group.trip);
                if group.kind.lanes().is_none() {
                    prop_assert!(jobs.len().is_multiple_of(2));
                }
            }
            prop_assert!(times.len() == work.len() && times.values().all(|&times| times == 1));
        }

        #[test]
        fn the_longest_come_first_and_no_shorter_one_is_between(work in any_work()) {
            let schedule = Schedule::new(Arrangement::Full, &work);
            prop_assert!(schedule.groups.is_sorted_by_key(|group| std::cmp::Reverse(group.cost())));
            // Only the last group of a kind and argument leaves a part of a warp.
            let mut open = HashMap::<_, usize>::new();
            for group in &schedule.groups {
                if !(group.count as usize).is_multiple_of(group.kind.jobs() * WARP / GROUP_LANES) {
                    *open.entry((group.kind, group.argument)).or_default() += 1;
                }
            }
            prop_assert!(open.values().all(|&open| open == 1));
        }
    }
}
