//! Packets that come at a set rate, whatever the device does: the latency of each, from its arrival to its return.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use esplanade_crypto::Job;
use esplanade_gpu::{DeviceError, Gpu};

use super::clock::Clock;
use super::rows::{Row, batch, keys, room};
use super::{Options, latencies};

/// The longest wait for more packets, as the gateway has it.
const DEADLINE: Duration = Duration::from_micros(100);
/// Batches that are filled or under way.
const BATCHES: usize = 6;
/// Parts of the highest throughput.
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 0.85];
/// Loads of a row at most.
pub const LOADS: usize = SHARES.len() + 1;

/// Measures shares of the row's highest throughput, and the load of the PIPSEA paper's row of the same number.
pub fn measure(
    options: &Options,
    clock: &mut Clock,
    gpu: &mut Gpu,
    row: &Row,
    highest: f64,
) -> Result<(), DeviceError> {
    let paper = match row.name {
        "R1" => Some(10.36),
        "R2" => Some(10.66),
        "R3" => Some(17.42),
        _ => None,
    };
    let reached = paper.map(|load| load / highest);
    let reached = reached.filter(|share| *share < 1.0);
    let shares = SHARES.into_iter().chain(reached);
    let mut measured = 0;
    for share in shares.filter(|_| highest > 0.0) {
        let load = (share, share * highest);
        clock.measure(&format!("open {} {:.3}", row.name, load.1), |time| {
            at_load(options, time, gpu, row, load)
        })?;
        measured += 1;
    }
    clock.forgo(LOADS - measured);
    Ok(())
}

/// Measures one load: its share of the highest throughput, and Gbit/s.
fn at_load(
    options: &Options,
    time: Duration,
    gpu: &mut Gpu,
    row: &Row,
    (share, gbits): (f64, f64),
) -> Result<(), DeviceError> {
    let (packets, keys) = (options.packets, keys(row));
    let (first, bytes) = batch(row, &keys, packets, gpu.arena(room(packets)));
    let template: Vec<Job> = first.jobs.clone();
    let used = first.used();
    let ns_a_packet = bytes as f64 * 8.0 / packets as f64 / gbits;
    let mut idle = gpu.carry(vec![first])?;
    while idle.len() < BATCHES {
        idle.push(batch(row, &keys, packets, gpu.arena(room(packets))).0);
    }
    let launches = gpu.counters().launches;
    let begun = Instant::now();
    let arrival = |number: usize| Duration::from_nanos((number as f64 * ns_a_packet) as u64);
    let mut under_way = VecDeque::new();
    let (mut taken, mut latencies) = (0, Vec::new());
    loop {
        let now = begun.elapsed();
        let ends = now >= time;
        // One packet comes at least.
        let arrived = ((now.min(time).as_nanos() as f64 / ns_a_packet) as usize).max(1);
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
            match gpu.start(vec![batch])? {
                None => under_way.push_back(taken..taken + waiting),
                // The CPU has done all of it.
                Some(done) => {
                    let now = begun.elapsed();
                    let numbers = taken..taken + waiting;
                    latencies.extend(numbers.map(|number| since(arrival(number), now)));
                    idle.extend(done);
                }
            }
            taken += waiting;
        }
        if let Some(done) = gpu.poll()? {
            let now = begun.elapsed();
            let numbers = under_way.pop_front().into_iter().flatten();
            latencies.extend(numbers.map(|number| since(arrival(number), now)));
            idle.extend(done);
        } else if ends && under_way.is_empty() && taken == arrived {
            break;
        } else {
            std::thread::yield_now();
        }
    }
    println!(
        "{{\"part\":\"open\",\"row\":\"{}\",\"tables\":{},\"share\":{share:.3},\"offered_gbits\":{gbits:.3},\"packets\":{},\
         \"launches\":{},{}}}",
        row.name,
        gpu.tables(),
        latencies.len(),
        gpu.counters().launches - launches,
        latencies::figures(&mut latencies),
    );
    Ok(())
}

fn since(arrival: Duration, now: Duration) -> f32 {
    now.saturating_sub(arrival).as_secs_f32()
}
