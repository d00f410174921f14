//! Launches back to back: packets in host memory to packets in host memory.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use esplanade_crypto::{Arena, cpu};
use esplanade_gpu::Gpu;

use crate::Options;
use crate::rows::{Row, batch, room};

/// Measures one core of the CPU engine, whose own batches have up to 128 packets.
pub fn cpu(options: &Options, row: &Row) {
    let (mut batch, bytes) = batch(row, 128, Arena::heap(room(128)));
    let mut rounds = 0;
    let begun = Instant::now();
    while begun.elapsed() < options.time {
        cpu::process(&mut batch);
        rounds += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let gbits = (bytes * rounds * 8) as f64 / seconds / 1e9;
    let row = row.name;
    println!("{{\"part\":\"closed\",\"row\":\"{row}\",\"engine\":\"cpu\",\"gbits\":{gbits:.3}}}");
}

/// Measures the device with several launches under way. Returns the throughput in Gbit/s of payloads.
pub fn gpu(options: &Options, mut gpu: Gpu, row: &Row, name: &str) -> f64 {
    let packets = options.packets;
    let (first, bytes) = batch(row, packets, gpu.arena(room(packets)));
    // The first launch loads the keys.
    let mut idle = gpu.carry(vec![first]).expect("a launch");
    while idle.len() < 3 {
        idle.push(batch(row, packets, gpu.arena(room(packets))).0);
    }
    let mut under_way = VecDeque::new();
    let (mut latencies, mut host) = (Vec::new(), Duration::ZERO);
    let begun = Instant::now();
    while begun.elapsed() < options.time || gpu.under_way() > 0 {
        if begun.elapsed() < options.time
            && gpu.can_start()
            && let Some(batch) = idle.pop()
        {
            let since = Instant::now();
            let none = gpu.start(vec![batch]).expect("a launch");
            assert!(none.is_none());
            host += since.elapsed();
            under_way.push_back(since);
            continue;
        }
        let done = gpu.wait().expect("a launch").expect("one is under way");
        latencies.extend(under_way.pop_front().map(|since| since.elapsed()));
        idle.extend(done);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let launches = latencies.len();
    latencies.sort();
    let at = |share: f64| latencies[((launches - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    let mean = latencies.iter().sum::<Duration>().as_secs_f64() * 1e6 / launches as f64;
    let gbits = (bytes * launches * 8) as f64 / seconds / 1e9;
    let host_ns = host.as_nanos() as f64 / (launches * packets) as f64;
    let in_place = gpu.counters().in_place > 0;
    println!(
        "{{\"part\":\"closed\",\"row\":\"{}\",\"engine\":\"gpu\",\"arrangement\":\"{name}\",\"gbits\":{gbits:.3},\
         \"in_place\":{in_place},\"launches\":{launches},\"latency_us\":{mean:.0},\"latency_us_p50\":{:.0},\
         \"latency_us_p99\":{:.0},\"host_ns_a_packet\":{host_ns:.0}}}",
        row.name,
        at(0.5),
        at(0.99),
    );
    gbits
}
