//! Tests the allocator of sequence numbers alone.

use esplanade_ipsec::sequence::{Exhausted, SequenceAllocator};

// RFC 4302 R9; RFC 4303 R9
#[test]
fn starts_at_one_and_refuses_before_it_wraps() {
    let allocator = SequenceAllocator::new(false);
    assert_eq!(allocator.take(3).map(|r| r.first), Ok(1));
    assert_eq!(allocator.take(1).map(|r| r.first), Ok(4));

    let end = SequenceAllocator::starting_at(u64::from(u32::MAX) - 1, false);
    assert_eq!(end.take(3), Err(Exhausted), "all or none");
    let run = end.take(2).expect("exactly what is left");
    assert!(run.low);
    assert_eq!(run.first + 1, u64::from(u32::MAX));
    assert_eq!(end.take(1), Err(Exhausted));
    assert_eq!(end.take(1), Err(Exhausted), "and stays so");
}

// RFC 4303 R10
#[test]
fn esn_goes_past_32_bits() {
    let allocator = SequenceAllocator::starting_at(u32::MAX.into(), true);
    let run = allocator.take(2).expect("64 bits are left");
    assert_eq!(run.first + 1, 1 << 32);
    assert!(!run.low);
    let end = SequenceAllocator::starting_at(u64::MAX - 1, true);
    assert!(end.take(1).is_ok());
    assert_eq!(end.take(1), Err(Exhausted));
}

#[test]
fn numbers_are_given_away_whole_or_not_at_all() {
    for esn in [false, true] {
        let allocator = SequenceAllocator::new(esn);
        assert!(!allocator.is_given_away());
        assert!(allocator.give_away() && allocator.is_given_away());
        assert_eq!(allocator.take(1), Err(Exhausted));
        assert!(!allocator.give_away(), "there are none left to give");
        let used = SequenceAllocator::new(esn);
        used.take(1).expect("plenty is left");
        assert!(!used.give_away() && !used.is_given_away());
        assert_eq!(used.take(1).map(|run| run.first), Ok(2));
    }
}

#[test]
fn threads_never_share_a_number() {
    let allocator = SequenceAllocator::new(true);
    let mut all: Vec<u64> = std::thread::scope(|scope| {
        let worker = |_| {
            scope.spawn(|| {
                let take = |i: u32| {
                    let run = allocator.take(i % 5 + 1).expect("plenty is left");
                    run.first..run.first + u64::from(run.count)
                };
                (0..2000).flat_map(take).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = (0..4).map(worker).collect();
        threads
            .into_iter()
            .flat_map(|t| t.join().expect("worker ends"))
            .collect()
    });
    let taken = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), taken);
    assert_eq!(all.last(), Some(&(taken as u64)), "no number is skipped");
}
