//! Lifetimes alone.

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
    assert_eq!(lifetime.poll(u64::MAX), None, "each once");
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
