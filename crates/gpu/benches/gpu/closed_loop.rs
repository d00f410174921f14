//! Launches back to back: packets in host memory to packets in host memory.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use esplanade_crypto::{Arena, cpu};
use esplanade_gpu::{DeviceError, Gpu};

use super::rows::{Row, batch, keys, room};
use super::{Options, latencies};

/// Batches that are under way or wait: as many as a device takes.
const BATCHES: usize = 4;

/// Measures one core of the CPU engine, whose own batches have up to 128 packets.
pub fn cpu(time: Duration, row: &Row) {
    let (mut batch, bytes) = batch(row, &keys(row), 128, Arena::heap(room(128)));
    let mut rounds = 0;
    let begun = Instant::now();
    while rounds == 0 || begun.elapsed() < time {
        cpu::process(&mut batch);
        rounds += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let gbits = (bytes * rounds * 8) as f64 / seconds / 1e9;
    let row = row.name;
    println!("{{\"part\":\"closed\",\"row\":\"{row}\",\"engine\":\"cpu\",\"gbits\":{gbits:.3}}}");
}

/// Measures the device with several launches under way. Returns the throughput in Gbit/s of payloads.
pub fn gpu(
    options: &Options,
    time: Duration,
    gpu: &mut Gpu,
    row: &Row,
    name: &str,
) -> Result<f64, DeviceError> {
    let (packets, keys) = (options.packets, keys(row));
    let (first, bytes) = batch(row, &keys, packets, gpu.arena(room(packets)));
    // The first launch loads the keys.
    let mut idle = gpu.carry(vec![first])?;
    while idle.len() < BATCHES {
        idle.push(batch(row, &keys, packets, gpu.arena(room(packets))).0);
    }
    let before = gpu.counters();
    let mut under_way = VecDeque::new();
    let (mut latencies, mut host) = (Vec::new(), Duration::ZERO);
    let begun = Instant::now();
    while latencies.is_empty() || begun.elapsed() < time || !under_way.is_empty() {
        let begins = under_way.is_empty() && latencies.is_empty() || begun.elapsed() < time;
        if begins
            && gpu.can_start()
            && let Some(batch) = idle.pop()
        {
            let since = Instant::now();
            match gpu.start(vec![batch])? {
                // The CPU has done all of it.
                Some(done) => {
                    latencies.push(since.elapsed().as_secs_f32());
                    idle.extend(done);
                }
                None => under_way.push_back(since),
            }
            host += since.elapsed();
            continue;
        }
        idle.extend(gpu.wait()?.into_iter().flatten());
        latencies.extend(
            under_way
                .pop_front()
                .map(|since| since.elapsed().as_secs_f32()),
        );
    }
    let seconds = begun.elapsed().as_secs_f64();
    let launches = latencies.len();
    let gbits = (bytes * launches * 8) as f64 / seconds / 1e9;
    let host_ns = host.as_nanos() as f64 / (launches * packets) as f64;
    let after = gpu.counters();
    println!(
        "{{\"part\":\"closed\",\"row\":\"{}\",\"engine\":\"gpu\",\"tables\":{},\"arrangement\":\"{name}\",\"gbits\":{gbits:.3},\
         \"in_place\":{},\"launches\":{launches},\"packets_by_cpu\":{},{},\"host_ns_a_packet\":{host_ns:.0}}}",
        row.name,
        gpu.tables(),
        after.in_place > before.in_place,
        after.cpu_jobs - before.cpu_jobs,
        latencies::figures(&mut latencies),
    );
    Ok(gbits)
}
