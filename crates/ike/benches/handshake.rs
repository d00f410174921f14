//! Full handshakes per second on one thread: IKE_SA_INIT and IKE_AUTH, both ends in this process.
//!
//! PSK, X25519, AES-GCM-128, PRF HMAC-SHA2-256 and one child SA; nothing is encrypted but IKE itself.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::*;
use esplanade_testkit::net::Conditions;

/// Two endpoints that know only each other; every handshake is between fresh ones.
fn handshake(seed: u64) {
    let (a, b) = default_configs();
    let mut pair = Pair::new(config(a), config(b), Conditions::PERFECT, seed);
    pair.initiate();
    pair.run(Duration::from_millis(100));
    assert_eq!((pair.a.children.len(), pair.b.children.len()), (1, 1));
}

fn main() {
    for seed in 0..50 {
        handshake(seed);
    }
    let mut rates = Vec::new();
    for round in 0..5 {
        let start = Instant::now();
        let mut count = 0u32;
        while start.elapsed() < Duration::from_secs(1) {
            handshake(u64::from(round * 1_000_000 + count));
            count += 1;
        }
        rates.push(f64::from(count) / start.elapsed().as_secs_f64());
    }
    rates.sort_by(f64::total_cmp);
    println!(
        "handshakes per second, both ends on one core: median {:.0}, best {:.0}",
        rates[2], rates[4]
    );
}
