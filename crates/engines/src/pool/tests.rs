//! Tests that the pool keeps order, delays batches and ends properly.

use std::time::Instant;

use esplanade_crypto::{Batch, Direction, Engine, RejectReason};

use super::*;
use esplanade_host::io::sys::{EVENTS_MAX, Epoll};

/// Makes a batch without jobs. Its first byte identifies it.
fn batch(number: u8) -> Batch {
    let mut batch = Batch::new(Direction::Seal, 16, 1);
    batch.buffer[0] = number;
    batch
}

fn is_ready(port: &EnginePort, timeout_ms: u64) -> bool {
    let epoll = Epoll::new().unwrap();
    epoll.add(port.ready_fd().unwrap(), 0).unwrap();
    let timeout = Duration::from_millis(timeout_ms);
    epoll.wait(&mut [0; EVENTS_MAX], timeout).unwrap() > 0
}

#[test]
fn batches_come_back_in_order_and_wake() {
    let pool = EnginePool::start(3, Duration::ZERO).unwrap();
    let mut ports = [pool.port().unwrap(), pool.port().unwrap()];
    for round in 0..200 {
        for port in &mut ports {
            for number in 0..INFO.depth as u8 {
                port.submit(batch(number)).unwrap();
            }
            let refused = port.submit(batch(99)).unwrap_err();
            assert_eq!(refused.reason, RejectReason::Full);
            assert_eq!(refused.batch.buffer[0], 99);
        }
        for port in &mut ports {
            let mut next = 0;
            while next < INFO.depth as u8 {
                assert!(is_ready(port, 10_000), "round {round}");
                while let Some(batch) = port.poll() {
                    assert_eq!(batch.buffer[0], next);
                    next += 1;
                }
            }
            assert!(!is_ready(port, 0));
        }
    }
}

#[test]
fn a_delay_holds_them_back() {
    let delay = Duration::from_millis(30);
    let pool = EnginePool::start(1, delay).unwrap();
    let mut port = pool.port().unwrap();
    let begun = Instant::now();
    port.submit(batch(1)).unwrap();
    assert!(port.poll().is_none());
    assert!(is_ready(&port, 10_000));
    assert!(begun.elapsed() >= delay);
    assert!(port.poll().is_some());
}

#[test]
fn a_pool_that_ended_takes_nothing() {
    let pool = EnginePool::start(1, Duration::ZERO).unwrap();
    let mut port = pool.port().unwrap();
    drop(pool);
    let refused = port.submit(batch(7)).unwrap_err();
    assert_eq!(refused.reason, RejectReason::OutOfService);
    assert_eq!(refused.batch.buffer[0], 7);
    assert!(port.poll().is_none());
}

#[test]
fn what_a_port_has_left_behind_is_not_done() {
    let pool = EnginePool::start(1, Duration::from_secs(600)).unwrap();
    let mut kept = pool.port().unwrap();
    kept.submit(batch(1)).unwrap();
    for _ in 0..50 {
        let mut lost = pool.port().unwrap();
        lost.submit(batch(2)).unwrap();
        lost.submit(batch(3)).unwrap();
    }
    kept.submit(batch(4)).unwrap();
    let waiting = pool.queue.waiting();
    // The helper may already have taken one batch of the port that is left.
    assert!((1..=2).contains(&waiting), "{waiting} wait");
}
