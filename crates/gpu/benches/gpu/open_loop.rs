//! Packets that come at a set rate, whatever the device does: the latency of each, from its arrival to its return.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use esplanade_crypto::Job;
use esplanade_gpu::Arrangement;
use esplanade_gpu::device::opencl::OpenClOptions;

use crate::Options;
use crate::rows::{Row, batch, room};

/// The longest wait for more packets, as the gateway has it.
const DEADLINE: Duration = Duration::from_micros(100);
/// Batches that are filled or under way.
const BATCHES: usize = 6;

/// Measures shares of the row's highest throughput, and the load of the PIPSEA paper's row of the same number.
pub fn measure(options: &Options, row: &Row, highest: f64) {
    let paper = match row.name {
        "R1" => Some(10.36),
        "R2" => Some(10.66),
        "R3" => Some(17.42),
        _ => None,
    };
    let shares = [0.25, 0.5, 0.75, 0.85].map(|share| share * highest);
    let reached = paper.filter(|load| *load < highest);
    for load in shares.into_iter().chain(reached) {
        at_load(options, row, load);
    }
}

fn at_load(options: &Options, row: &Row, gbits: f64) {
    let mut gpu = options.gpu(Arrangement::Full, OpenClOptions::default());
    let packets = options.packets;
    let (first, bytes) = batch(row, packets, gpu.arena(room(packets)));
    let template: Vec<Job> = first.jobs.clone();
    let used = first.used();
    let ns_a_packet = bytes as f64 * 8.0 / packets as f64 / gbits;
    let mut idle = gpu.carry(vec![first]).expect("a launch");
    while idle.len() < BATCHES {
        idle.push(batch(row, packets, gpu.arena(room(packets))).0);
    }
    let begun = Instant::now();
    let arrival = |number: usize| Duration::from_nanos((number as f64 * ns_a_packet) as u64);
    let mut under_way = VecDeque::new();
    let (mut taken, mut latencies) = (0, Vec::new());
    loop {
        let now = begun.elapsed();
        let ends = now >= options.time;
        let arrived = (now.min(options.time).as_nanos() as f64 / ns_a_packet) as usize;
        let waiting = (arrived - taken).min(packets);
        let is_due = waiting == packets || ends || now - arrival(taken).min(now) >= DEADLINE;
        if waiting > 0
            && is_due
            && gpu.can_start()
            && let Some(mut batch) = idle.pop()
        {
            // The batch has the first packets of the template, and no more bytes.
            batch.reserve(used - batch.used());
            batch.jobs.clear();
            batch.jobs.extend_from_slice(&template[..waiting]);
            let last = batch.jobs[waiting - 1];
            batch.release((last.esp + last.len) as usize);
            assert!(gpu.start(vec![batch]).expect("a launch").is_none());
            under_way.push_back(taken..taken + waiting);
            taken += waiting;
        }
        if let Some(done) = gpu.poll().expect("a launch") {
            let now = begun.elapsed();
            let numbers = under_way.pop_front().into_iter().flatten();
            latencies.extend(numbers.map(|number| (now - arrival(number).min(now)).as_secs_f32()));
            idle.extend(done);
        } else if ends && under_way.is_empty() && taken == arrived {
            break;
        } else {
            std::thread::yield_now();
        }
    }
    print(row, gbits, gpu.counters().launches, &mut latencies);
}

fn print(row: &Row, gbits: f64, launches: u64, latencies: &mut [f32]) {
    latencies.sort_by(f32::total_cmp);
    let count = latencies.len();
    let at = |share: f64| latencies[((count - 1) as f64 * share) as usize] * 1e6;
    let mean = latencies.iter().map(|s| f64::from(*s)).sum::<f64>() * 1e6 / count as f64;
    println!(
        "{{\"part\":\"open\",\"row\":\"{}\",\"offered_gbits\":{gbits:.3},\"packets\":{count},\"launches\":{launches},\
         \"latency_us\":{mean:.0},\"latency_us_p50\":{:.0},\"latency_us_p99\":{:.0},\"latency_us_p99_9\":{:.0}}}",
        row.name,
        at(0.5),
        at(0.99),
        at(0.999),
    );
}
