//! Whole gateways without sockets, threads or wall clock, by seed: configuration text, IKE, SAD, SPD and data plane of each,
//! on links that lose, repeat, reorder, delay and corrupt, with a NAT that begins anew. Operations of a seed disturb one
//! connection. Rules hold after each step, and everything that is wanted comes up in the end.
//!
//! `ESPLANADE_SIMULATION_SEEDS` sets how many seeds are run, `ESPLANADE_SIMULATION_FIRST_SEED` where they begin. By default
//! the commit draws where they begin. `ESPLANADE_SIMULATION_TRACE` prints the events of all gateways.

#[path = "simulation/bystander.rs"]
mod bystander;
#[path = "simulation/config.rs"]
mod config;
#[path = "simulation/forge.rs"]
mod forge;
#[path = "simulation/gateway.rs"]
mod gateway;
#[path = "simulation/ledger.rs"]
mod ledger;
#[path = "simulation/operations.rs"]
mod operations;
#[path = "simulation/seen.rs"]
mod seen;
#[path = "simulation/site.rs"]
mod site;
#[path = "simulation/world.rs"]
mod world;

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esplanade_testkit::seeds;
use operations::Act;
use seen::Seen;
use world::World;

const SEEDS: u64 = 300;
/// Fewest inner packets that a seed delivers on average. A simulation in which nothing flows shows nothing.
const DELIVERED_MIN: u64 = 100;

thread_local! {
    /// The thread tries out operations, and its panics are expected.
    static IS_TRYING: Cell<bool> = const { Cell::new(false) };
}

/// What a simulation has met, and the number of packets that it has delivered.
type Met = (Seen, u64);

/// Runs one simulation. Returns what it has met, or what went wrong.
fn simulate(seed: u64, operations: &[(Duration, Act)]) -> Result<Met, String> {
    let run = || {
        let mut world = World::new(seed);
        world.run(operations)?;
        if world.ledger.parts_delivered > 0 {
            world.seen.count("part of a packet");
        }
        Ok((world.seen, world.ledger.delivered))
    };
    IS_TRYING.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(run));
    IS_TRYING.set(false);
    outcome.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("without a text")))
    })
}

/// Leaves out operations one by one, as long as the simulation still fails.
fn minimise(seed: u64, operations: &[(Duration, Act)]) -> Vec<(Duration, Act)> {
    let mut least = operations.to_vec();
    let mut part = least.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        while at < least.len() {
            let mut fewer = least.clone();
            let gone = fewer.drain(at..(at + part).min(least.len()));
            // What comes later comes at the same time.
            let time: Duration = gone.map(|(wait, _)| wait).sum();
            if let Some((wait, _)) = fewer.get_mut(at) {
                *wait += time;
            }
            match simulate(seed, &fewer) {
                Err(_) => least = fewer,
                Ok(_) => at += part,
            }
        }
        part /= 2;
    }
    least
}

fn list(operations: &[(Duration, Act)]) -> String {
    let line = |(wait, act): &(Duration, Act)| format!("  after {wait:?}: {act:?}\n");
    operations.iter().map(line).collect()
}

#[test]
fn whole_gateways_keep_their_rules_whatever_happens() {
    let seeds = seeds::of("SIMULATION", SEEDS);
    let former = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !IS_TRYING.get() {
            former(info);
        }
    }));
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let met = Mutex::<Met>::default();
    let worker = || {
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let operations = operations::draw(seed);
            match simulate(seed, &operations) {
                Ok((seen, delivered)) => {
                    let mut met = met.lock().unwrap();
                    met.0.add(&seen);
                    met.1 += delivered;
                }
                Err(why) => {
                    failed.store(true, Ordering::Relaxed);
                    let least = minimise(seed, &operations);
                    let why_least = simulate(seed, &least).err().unwrap_or_default();
                    panic!(
                        "seed {seed} failed: {why}\nits operations:\n{}the least that fails:\n{}because: {why_least}\n\
                         run it alone with {}",
                        list(&operations),
                        list(&least),
                        seeds::alone("SIMULATION", seed)
                    );
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
    let (seen, delivered) = met.into_inner().unwrap();
    println!("{delivered} inner packets were delivered; {seen:?}");
    let seeds = seeds.end - seeds.start;
    if seeds >= SEEDS {
        assert_eq!(seen.missing(), [""; 0], "nothing of it was met");
    }
    assert!(
        delivered >= DELIVERED_MIN * seeds,
        "{delivered} packets of {seeds} seeds"
    );
}
