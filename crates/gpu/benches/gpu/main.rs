//! Measures an OpenCL device: rows of the PIPSEA paper's kind, in three arrangements, beside one core of the CPU engine.
//! Prints a line of JSON for each.
//!
//! Packets are sealed again and again with one number, which only a measurement may do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_crypto::{Batch, Direction, Job, JobStatus, KeyContext, Transform, cpu};
use esplanade_gpu::model::{divergent_efficiency, lane_efficiency};
use esplanade_gpu::schedule::{Schedule, WARP};
use esplanade_gpu::suite::{StageWork, Suite};
use esplanade_gpu::{Arrangement, Gpu, LaunchChoice, OpenCl};

const KEYS: usize = 512;

/// The lengths of the payloads of a row, in bytes.
#[derive(Clone, Copy)]
enum Lengths {
    Fixed(usize),
    /// Uniformly distributed.
    Between(usize, usize),
    /// 40, 576 and 1500 bytes, 7 to 4 to 1.
    Imix,
}

const CBC_SHA1: &[&str] = &["AES_CBC_128/HMAC_SHA1_96"];
const LIGHT: &[&str] = &[
    "AES_CBC_128/HMAC_MD5_96",
    "AES_CBC_128/HMAC_SHA1_96",
    "AES_CTR_128/HMAC_MD5_96",
    "AES_CTR_128/HMAC_SHA1_96",
    "NULL/HMAC_MD5_96",
    "NULL/HMAC_SHA1_96",
];
/// 3DES, the sixth of this mix, is opened by the device and sealed by the CPU, so it is left out here.
const MODERN: &[&str] = &[
    "AES_GCM_16_128",
    "AES_GCM_16_256",
    "CHACHA20_POLY1305",
    "AES_CBC_128/HMAC_SHA1_96",
    "AES_CBC_256/HMAC_SHA2_256_128",
];

const ROWS: [(&str, &[&str], Lengths); 5] = [
    ("R1", CBC_SHA1, Lengths::Fixed(1024)),
    ("R2", CBC_SHA1, Lengths::Between(64, 1500)),
    ("R3", LIGHT, Lengths::Fixed(1280)),
    ("R3'", MODERN, Lengths::Fixed(1280)),
    ("R4", MODERN, Lengths::Imix),
];

const ARRANGEMENTS: [(&str, Arrangement); 3] = [
    ("arrival", Arrangement::Arrival),
    ("by kind", Arrangement::ByKind),
    ("full", Arrangement::Full),
];

struct Options {
    device: String,
    packets: usize,
    time: Duration,
}

impl Options {
    fn read() -> Self {
        let mut options = Self {
            device: "Portable".to_owned(),
            packets: 4096,
            time: Duration::from_secs(2),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("the option has a value");
            match argument.as_str() {
                "--device" => options.device = value(),
                "--packets" => options.packets = value().parse().expect("a number"),
                "--seconds" => {
                    options.time = Duration::from_secs_f64(value().parse().expect("a number"));
                }
                // Cargo says so.
                "--bench" => {}
                other => panic!("unknown option {other}: --device, --packets, --seconds"),
            }
        }
        options
    }
}

fn main() {
    let options = Options::read();
    for (row, transforms, lengths) in ROWS {
        cpu_row(&options, row, transforms, lengths);
        for (arrangement, how) in ARRANGEMENTS {
            gpu_row(&options, row, transforms, lengths, arrangement, how);
        }
    }
}

fn below(state: &mut u64, bound: usize) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) as usize) % bound
}

/// Makes a batch of packets, each with a random SA and length.
fn batch(names: &[&str], lengths: Lengths, packets: usize) -> (Batch, usize) {
    let mut state = 7;
    let mut batch = Batch::new(Direction::Seal, packets * 1700, packets);
    for number in 0..KEYS {
        let transform = Transform::from_name(names[number % names.len()]).expect("a transform");
        let material: Vec<u8> = (0..transform.key_material_len())
            .map(|_| below(&mut state, 256) as u8)
            .collect();
        let key = KeyContext::new(transform, false, &material).expect("a key");
        batch.keys.insert(number as u32, Arc::new(key));
    }
    let mut payload_bytes = 0;
    for _ in 0..packets {
        let key = below(&mut state, KEYS) as u32;
        let payload = match lengths {
            Lengths::Fixed(len) => len,
            Lengths::Between(least, most) => least + below(&mut state, most - least + 1),
            Lengths::Imix => match below(&mut state, 12) {
                0..7 => 40,
                7..11 => 576,
                _ => 1500,
            },
        };
        payload_bytes += payload;
        let transform = batch.keys.get(key).expect("a key").transform();
        let len = transform.sealed_len(payload);
        let esp = batch.reserve(len).expect("room");
        batch.jobs.push(Job {
            key,
            esp: esp as u32,
            len: len as u32,
            icv: 0,
            sequence: 1,
            class: 0,
            status: JobStatus::Pending,
        });
    }
    (batch, payload_bytes)
}

fn cpu_row(options: &Options, row: &str, names: &[&str], lengths: Lengths) {
    // The CPU engine's own batches have up to 128 packets.
    let (mut batch, bytes) = batch(names, lengths, 128);
    let mut rounds = 0;
    let begun = Instant::now();
    while begun.elapsed() < options.time {
        cpu::process(&mut batch);
        rounds += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let gbits = (bytes * rounds * 8) as f64 / seconds / 1e9;
    println!("{{\"row\":\"{row}\",\"engine\":\"cpu\",\"gbits\":{gbits:.3}}}");
}

/// Returns the predicted lane efficiency of the cipher stage and of the MAC stage.
fn predicted(batch: &Batch, arrangement: Arrangement) -> [f64; 2] {
    let mut stages: [Vec<(u32, StageWork)>; 2] = Default::default();
    for (number, job) in (0..).zip(&batch.jobs) {
        let key = batch.keys.get(job.key).expect("a key");
        let suite = Suite::of(key.transform()).expect("a suite");
        let words = suite.payload_words(job.len).expect("a packet");
        stages[0].extend(
            suite
                .cipher(Direction::Seal, words)
                .map(|work| (number, work)),
        );
        stages[1].push((number, suite.mac(false, words)));
    }
    stages.map(|work| match arrangement {
        // A device without schedule takes the packets of a warp as they come.
        Arrangement::Arrival => divergent_efficiency(&work, WARP),
        _ => lane_efficiency(&Schedule::new(arrangement, &work), &work, WARP),
    })
}

fn gpu_row(
    options: &Options,
    row: &str,
    names: &[&str],
    lengths: Lengths,
    arrangement: &str,
    how: Arrangement,
) {
    let device = OpenCl::open(Some(&options.device), Arc::new(|| {})).expect("a device");
    let choice = LaunchChoice {
        arrangement: how,
        residue: true,
        disabled: Vec::new(),
    };
    let mut gpu = Gpu::new(Box::new(device), choice);
    let (first, bytes) = batch(names, lengths, options.packets);
    let [cipher, mac] = predicted(&first, how);
    // The first launch loads the keys.
    let mut idle = gpu.carry(vec![first]).expect("a launch");
    while idle.len() < 3 {
        idle.push(batch(names, lengths, options.packets).0);
    }
    let mut under_way = std::collections::VecDeque::new();
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
    let host_ns = host.as_nanos() as f64 / (launches * options.packets) as f64;
    println!(
        "{{\"row\":\"{row}\",\"engine\":\"gpu\",\"arrangement\":\"{arrangement}\",\"gbits\":{gbits:.3},\
         \"launches\":{launches},\"latency_us\":{mean:.0},\"latency_us_p50\":{:.0},\"latency_us_p99\":{:.0},\
         \"host_ns_a_packet\":{host_ns:.0},\"lanes_cipher\":{cipher:.3},\"lanes_mac\":{mac:.3}}}",
        at(0.5),
        at(0.99),
    );
}
