//! Tests lifetimes alone.

use esplanade_ipsec::lifetime::{Admission, Lifetime, LifetimeEvent, LifetimeLimits};

const NONE: LifetimeLimits = LifetimeLimits {
    bytes_soft: None,
    bytes_hard: None,
    packets_soft: None,
    packets_hard: None,
    time_soft_ms: None,
    time_hard_ms: None,
    idle_ms: None,
};

// RFC 4301 R21, R24
#[test]
fn soft_then_hard_and_each_once() {
    let limits = LifetimeLimits {
        bytes_soft: Some(1000),
        packets_hard: Some(20),
        ..NONE
    };
    let lifetime = Lifetime::new(&limits, 0);
    assert_eq!(lifetime.count(9, 999, 1), None);
    assert_eq!(lifetime.count(1, 1, 2), Some(LifetimeEvent::Soft));
    assert_eq!(lifetime.count(1, 1, 3), None);
    assert!(!lifetime.expired(3));
    assert_eq!(lifetime.count(9, 1, 4), Some(LifetimeEvent::Hard));
    assert!(lifetime.expired(4));
    assert_eq!(lifetime.count(1, 1, 5), None);
    assert_eq!(lifetime.last_used_ms(), 5);
}

// RFC 4301 R24
#[test]
fn the_run_that_reaches_the_limit_is_the_last_admitted() {
    let limits = LifetimeLimits {
        packets_soft: Some(8),
        packets_hard: Some(10),
        ..NONE
    };
    let lifetime = Lifetime::new(&limits, 0);
    let admit = || lifetime.admit(4, 400, 7);
    let passes = |event| Admission {
        passes: true,
        event,
    };
    assert_eq!(admit(), passes(None));
    assert_eq!(admit(), passes(Some(LifetimeEvent::Soft)));
    assert_eq!(admit(), passes(Some(LifetimeEvent::Hard)));
    let refused = Admission {
        passes: false,
        event: None,
    };
    assert_eq!(admit(), refused);
    assert_eq!((lifetime.packets(), lifetime.bytes()), (12, 1200));
}

// RFC 4301 R21
#[test]
fn time_passes_without_packets() {
    let limits = LifetimeLimits {
        time_soft_ms: Some(500),
        time_hard_ms: Some(700),
        idle_ms: Some(300),
        ..NONE
    };
    let lifetime = Lifetime::new(&limits, 1000);
    assert_eq!(lifetime.poll(1299), None);
    assert_eq!(lifetime.count(1, 1, 1299), None);
    assert_eq!(lifetime.poll(1300), None, "not idle: it was just used");
    assert_eq!(lifetime.poll(1500), Some(LifetimeEvent::Soft));
    assert_eq!(lifetime.poll(1598), None);
    assert_eq!(lifetime.poll(1599), Some(LifetimeEvent::Idle));
    assert_eq!(lifetime.poll(1699), None);
    assert!(!lifetime.expired(1699));
    assert!(lifetime.expired(1700));
    let late = lifetime.admit(1, 1, 1700);
    assert_eq!(late.event, Some(LifetimeEvent::Hard));
    assert!(!late.passes);
    assert_eq!(lifetime.packets(), 1, "what is refused is not counted");
    assert_eq!(lifetime.poll(u64::MAX), Some(LifetimeEvent::Hard));
    assert_eq!(lifetime.poll(u64::MAX), None, "each once");
}

/// A queue between the packet path and the control plane may be full. No SA may miss its rekey, or its end, for that.
#[test]
fn an_event_that_nobody_took_comes_again() {
    use LifetimeEvent::{Hard, Soft};
    let limits = LifetimeLimits {
        packets_soft: Some(1),
        packets_hard: Some(3),
        ..NONE
    };
    let lifetime = Lifetime::new(&limits, 0);
    assert_eq!(lifetime.admit(1, 1, 1).event, Some(Soft));
    // The event is lost. It comes up at the next look, and the late event asks for nothing more.
    assert_eq!(lifetime.poll(2), Some(Soft));
    assert!(!lifetime.take(Soft));
    assert_eq!(lifetime.poll(3), None);
    assert_eq!(lifetime.admit(2, 1, 4).event, Some(Hard));
    assert!(lifetime.take(Hard), "the event has come");
    assert_eq!(lifetime.poll(5), None);

    // The end of the sequence numbers comes again too, and the rekey before it is pointless then.
    let lifetime = Lifetime::new(&NONE, 0);
    assert_eq!(lifetime.raise(Soft), Some(Soft));
    assert_eq!(lifetime.raise(Hard), Some(Hard));
    assert_eq!((lifetime.poll(1), lifetime.poll(1)), (Some(Hard), None));
    assert!(!lifetime.take(Soft));
}

#[test]
fn what_is_to_be_deleted_is_not_rekeyed() {
    let limits = LifetimeLimits {
        bytes_soft: Some(1),
        bytes_hard: Some(2),
        idle_ms: Some(0),
        ..NONE
    };
    let lifetime = Lifetime::new(&limits, 0);
    assert_eq!(lifetime.count(1, 2, 0), Some(LifetimeEvent::Hard));
    assert_eq!(lifetime.raise(LifetimeEvent::Soft), None);
    assert!(lifetime.take(LifetimeEvent::Hard));
    assert_eq!(lifetime.poll(1), None);
}

#[test]
fn unlimited_never_expires() {
    let lifetime = Lifetime::new(&NONE, 0);
    let much = u64::MAX - 1;
    assert_eq!(lifetime.count(much, much, much), None);
    assert!(!lifetime.expired(much));
    assert_eq!(lifetime.poll(much), None);
}

/// The word of recent traffic is emptied long before it is full. No traffic may be lost then.
#[test]
fn totals_are_exact_however_much_passes() {
    let limits = LifetimeLimits {
        bytes_soft: Some(3 << 40),
        packets_soft: Some(40 << 20),
        ..NONE
    };
    for (packets, bytes) in [(65_535, 1), (1, (1 << 32) - 1), (65_535, (1 << 32) - 1)] {
        let lifetime = Lifetime::new(&limits, 0);
        let (mut sum, mut softs) = ((0, 0), 0);
        for _ in 0..2000 {
            let before = lifetime.admit(packets, bytes, 1);
            let after = lifetime.count(packets, bytes, 1);
            assert!(before.passes);
            sum = (sum.0 + 2 * packets, sum.1 + 2 * bytes);
            assert_eq!((lifetime.packets(), lifetime.bytes()), sum);
            softs += [before.event, after].iter().flatten().count();
            let reached = sum.0 >= 40 << 20 || sum.1 >= 3 << 40;
            assert_eq!(softs, usize::from(reached), "at {sum:?}");
        }
        assert_eq!(softs, 1);
    }
}

// RFC 4301 R24
#[test]
fn limits_in_bytes_hold_beyond_what_one_word_counts() {
    let hard = (5 << 40) + 7;
    let limits = LifetimeLimits {
        bytes_hard: Some(hard),
        ..NONE
    };
    let lifetime = Lifetime::new(&limits, 0);
    let half = 1 << 31;
    for _ in 0..hard / half {
        assert!(lifetime.admit(1, half, 1).passes);
    }
    assert_eq!(lifetime.admit(1, 6, 1).event, None);
    assert!(!lifetime.expired(1));
    assert_eq!(lifetime.admit(1, 1, 1).event, Some(LifetimeEvent::Hard));
    assert!(lifetime.expired(1));
    assert!(!lifetime.admit(1, 1, 1).passes);
    assert_eq!(lifetime.bytes(), hard);
}

/// Runs on the machine's own atomics: some workers settle while others count.
#[test]
fn threads_together_lose_no_count() {
    const RUNS: u64 = 2000;
    let limits = LifetimeLimits {
        packets_soft: Some(1000),
        ..NONE
    };
    let lifetime = Lifetime::new(&limits, 0);
    let softs: usize = std::thread::scope(|scope| {
        let send = || {
            let runs = (0..RUNS).map(|_| lifetime.admit(60_000, 1 << 30, 1));
            runs.filter(|a| a.passes && a.event.is_some()).count()
        };
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(send)).collect();
        let softs = workers.into_iter().map(|w| w.join().expect("no panic"));
        softs.sum()
    });
    assert_eq!(softs, 1);
    assert_eq!(lifetime.packets(), 3 * RUNS * 60_000);
    assert_eq!(lifetime.bytes(), (3 * RUNS) << 30);
}
