//! Random operations on a network that loses, delays, duplicates, reorders and corrupts, by seed.
//!
//! `ESPLANADE_IKE_SEEDS` sets how many seeds are run, `ESPLANADE_IKE_FIRST_SEED` where they begin. By default the commit
//! draws where they begin.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use esplanade_crypto::iana::Integrity;
use esplanade_ike::Config;
use esplanade_ike::config::{
    Child, Connection, EndAction, Lifetime, Mode, Retransmission, Selector, StartAction, Unique,
};
use esplanade_ike::status::IkeSaState;
use esplanade_testkit::net::{Conditions, Rng};
use esplanade_testkit::seeds;

const SECOND: Duration = Duration::from_secs(1);

/// A run of `make soak` has many more.
const SEEDS: u64 = 400;

/// A pair of configurations with short lifetimes, drawn by the seed.
fn configs(rng: &mut Rng) -> (Connection, Connection) {
    let (mut a, mut b) = default_configs();
    a.children
        .push(child("two", "10.3.0.0-10.3.0.255", "10.4.0.0-10.4.0.255").into());
    b.children
        .push(child("two", "10.4.0.0-10.4.0.255", "10.3.0.0-10.3.0.255").into());
    if rng.chance(0.3) {
        let host = Child {
            name: "host".into(),
            mode: Mode::Transport,
            local_ts: vec![Selector::DYNAMIC],
            remote_ts: vec![Selector::DYNAMIC],
            ..(*a.children[0]).clone()
        };
        for connection in [&mut a, &mut b] {
            connection.children.push(host.clone().into());
        }
    }
    if rng.chance(0.2) {
        for connection in [&mut a, &mut b] {
            let two = Arc::make_mut(&mut connection.children[1]);
            two.esp_proposals[0].encryption.clear();
            two.esp_proposals[0].integrity = vec![Integrity::HmacSha2_256_128];
        }
    }
    let unique = [Unique::Never, Unique::No, Unique::Keep, Unique::Replace][rng.below(4) as usize];
    for connection in [&mut a, &mut b] {
        // The time-outs are short enough that live peers are given up too.
        connection.retransmission = Retransmission {
            tries: 4,
            timeout: SECOND,
            base: 1.5,
        };
        connection.dpd_delay = Duration::from_secs(20 + rng.below(20));
        connection.unique = unique;
        if rng.chance(0.3) {
            connection.rekey_time = Duration::from_secs(40 + rng.below(40));
            connection.rand_time = Duration::from_secs(10);
        }
        if rng.chance(0.3) {
            let time = Duration::from_secs(30 + rng.below(30));
            for child in &mut connection.children {
                let mut changed = (**child).clone();
                let life_time = time + Duration::from_secs(60);
                changed.lifetime = Lifetime {
                    rekey_time: time,
                    life_time,
                    rand_time: time / 2,
                    ..changed.lifetime
                };
                changed.dpd_action = if rng.chance(0.5) {
                    EndAction::Start
                } else {
                    EndAction::Clear
                };
                *child = changed.into();
            }
        }
        if rng.chance(0.3) {
            connection.keyingtries = rng.below(3) as u32;
            for child in &mut connection.children {
                Arc::make_mut(child).start_action = StartAction::Start;
            }
        }
        if rng.chance(0.2) {
            let net = Arc::make_mut(&mut connection.children[0]);
            net.inactivity = Duration::from_secs(15 + rng.below(60));
        }
        connection.encap = rng.chance(0.2);
    }
    (a, b)
}

fn operate(pair: &mut Pair, rng: &mut Rng, configs: &(Connection, Connection)) {
    let now = pair.now;
    let on_a = rng.chance(0.5);
    let side = if on_a { &mut pair.a } else { &mut pair.b };
    let what = [None, Some("net"), Some("two")][rng.below(3) as usize];
    match rng.below(13) {
        0..=2 => drop(side.endpoint.initiate(now, "site", what)),
        3..=4 => drop(side.endpoint.rekey(now, "site", Some("net"))),
        5..=6 => drop(side.endpoint.rekey(now, "site", None)),
        7 => drop(side.endpoint.terminate(now, "site", what)),
        8 | 9 => {
            // Both ends act at once, for the collisions of RFC 7296 §2.8 and §2.25.
            let other = [None, Some("net")][rng.below(2) as usize];
            drop(pair.a.endpoint.rekey(now, "site", what));
            drop(pair.b.endpoint.rekey(now, "site", other));
        }
        10 => {
            let children: Vec<_> = side.children.keys().copied().collect();
            for child in children {
                side.endpoint.note_inbound_traffic(now, child);
            }
        }
        11 => side.endpoint.start(now),
        _ if rng.chance(0.3) => {
            // One end forgets everything.
            let seed = rng.next_u64() & 0x7fff;
            if on_a {
                pair.a = Side::new("a", A, config(configs.0.clone()), now, seed);
            } else {
                pair.b = Side::new("b", B, config(configs.1.clone()), now, seed);
            }
        }
        _ => side.dead = !side.dead,
    }
    pair.flush();
}

fn storm(seed: u64) {
    let mut rng = Rng::new(seed);
    let configs = configs(&mut rng);
    let conditions = Conditions {
        loss: 0.25 * (rng.below(3) as f64) / 2.0,
        duplication: 0.15 * (rng.below(3) as f64) / 2.0,
        corruption: 0.1 * (rng.below(3) as f64) / 2.0,
        delay: Duration::from_millis(1)..Duration::from_millis(1 + 1500 * rng.below(3)),
    };
    let all: (Config, Config) = (config(configs.0.clone()), config(configs.1.clone()));
    let mut pair = Pair::new(all.0, all.1, conditions, seed);
    pair.a.endpoint.initiate(pair.now, "site", None).unwrap();
    if rng.chance(0.3) {
        pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
    }
    pair.flush();
    for _ in 0..4 + rng.below(6) {
        pair.run(Duration::from_millis(rng.below(8000)));
        operate(&mut pair, &mut rng, &configs);
        pair.a.check_status();
        pair.b.check_status();
    }
    // The storm is over. Both ends agree, whatever has happened.
    (pair.a.dead, pair.b.dead) = (false, false);
    pair.network.conditions = Conditions::PERFECT;
    pair.run(120 * SECOND);
    // A rekey that a lifetime has begun may be under way now. An IKE SA that was rekeyed does nothing more.
    for _ in 0..20 {
        let quiet = [&pair.a, &pair.b].iter().all(|side| {
            side.endpoint.status().iter().all(|sa| {
                let rests = matches!(sa.state, IkeSaState::Established | IkeSaState::Rekeyed);
                rests && sa.task_active.is_none()
            })
        });
        if quiet {
            break;
        }
        pair.run(SECOND / 3);
    }
    pair.assert_same();
    pair.assert_clean_end();
}

#[test]
fn both_ends_agree_after_every_storm() {
    let seeds = seeds::of("IKE", SEEDS);
    let next = AtomicU64::new(seeds.start);
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if std::panic::catch_unwind(|| storm(seed)).is_err() {
                panic!(
                    "seed {seed} failed; run it alone with {}",
                    seeds::alone("IKE", seed)
                );
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
}
