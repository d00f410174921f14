//! Lanes are exchanged under traffic: one fabric, two SAs with different ciphers. A line of JSON for each case.
//!
//!     cargo bench -p esplanade-ace --bench swap
//!
//! Fabric and lanes are simulated. The time of a load is real: merging, and the bytes at the rate of the configuration
//! interface. The lanes' speed is that of the simulation and says nothing about an FPGA.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_ace::controller::{Controller, Counters, Progress};
use esplanade_ace::library::{Library, Trust};
use esplanade_ace::simulated::{INTERFACE_RATE, Simulated, shipped_lanes};
use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_crypto::{Batch, Direction, Job, JobStatus, KeyContext, Transform, cpu};

const PART: &str = "LFE5U-25F";
const PAYLOAD: usize = 1398;
const PACKETS: usize = 8;
/// From a batch to the next.
const PERIOD: Duration = Duration::from_millis(2);
const TURNS: usize = 10;
const BATCHES_A_TURN: usize = 100;

/// An SA with its next sequence number.
struct Sa {
    key: Arc<KeyContext>,
    next: u64,
    /// The last number that came back.
    last: u64,
}

#[derive(Default)]
struct Seen {
    packets: u64,
    lost: u64,
    reordered: u64,
    wrong: u64,
}

fn main() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("library");
    let library = Library::open(&folder, &Trust::Directory, 0).expect("the shipped library");
    // One SA follows the other; the lane is asked for before the first packet, or with it.
    for (case, ahead) in [
        ("announced", Duration::from_millis(60)),
        ("at once", Duration::ZERO),
    ] {
        run(case, &library, |controller, sas, seen| {
            for turn in 0..TURNS {
                let sa = &mut sas[turn % 2];
                controller.request(sa.key.transform());
                controller.step();
                idle(controller, ahead);
                send(controller, sa, seen);
                controller.release(sa.key.transform());
            }
        });
    }
    // Both SAs are there all the time, and bursts alternate.
    run("both", &library, |controller, sas, seen| {
        for sa in sas.iter() {
            controller.request(sa.key.transform());
        }
        for turn in 0..TURNS {
            send(controller, &mut sas[turn % 2], seen);
        }
    });
}

fn run(
    case: &str,
    library: &Library,
    traffic: impl Fn(&mut Controller<'_, Simulated>, &mut [Sa; 2], &mut Seen),
) {
    let known = shipped_lanes().expect("the list of lanes");
    let fabric = Simulated::new(PART, known, INTERFACE_RATE).expect("simulated lanes");
    let mut controller = Controller::new(library, vec![fabric]);
    let mut sas = [Encryption::SerpentCtr, Encryption::Rc6Ctr].map(sa);
    let mut seen = Seen::default();
    let begun = Instant::now();
    traffic(&mut controller, &mut sas, &mut seen);
    let Counters {
        fabric_packets,
        cpu_packets,
        while_loading,
        loads,
        hidden_loads,
        evictions,
        failed_loads,
        load_time,
        wanted_time,
        merge_time,
        ..
    } = controller.counters();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let costs: BTreeMap<_, _> = controller
        .costs()
        .iter()
        .map(|(need, ns)| (need.to_string(), *ns))
        .collect();
    println!(
        "{}",
        serde_json::json!({
            "case": case, "seconds": begun.elapsed().as_secs_f64(), "packets": seen.packets, "lost": seen.lost,
            "reordered": seen.reordered, "wrong": seen.wrong, "by_lanes": fabric_packets, "by_cpu": cpu_packets,
            "while_loading": while_loading, "loads": loads, "hidden": hidden_loads, "evictions": evictions,
            "failed": failed_loads, "load_ms": ms(load_time), "wanted_ms": ms(wanted_time), "merge_ms": ms(merge_time),
            "cpu_ns_per_kilobyte": costs,
        })
    );
}

fn sa(cipher: Encryption) -> Sa {
    let transform =
        Transform::esp(cipher, 128, Some(Integrity::HmacSha2_256_128)).expect("a transform");
    let bytes: Vec<u8> = (0..transform.key_material_len())
        .map(|at| at as u8)
        .collect();
    Sa {
        key: Arc::new(KeyContext::new(transform, false, &bytes).expect("a good key")),
        next: 1,
        last: 0,
    }
}

/// Lets time pass, in which loads go on.
fn idle(controller: &mut Controller<'_, Simulated>, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        let pause = match controller.step() {
            Progress::Idle => Duration::from_micros(200),
            Progress::After(pause) => pause,
        };
        std::thread::sleep(pause.min(time.saturating_sub(begun.elapsed())));
    }
}

fn send(controller: &mut Controller<'_, Simulated>, sa: &mut Sa, seen: &mut Seen) {
    for _ in 0..BATCHES_A_TURN {
        let mut sent = batch(sa);
        let mut wanted = sent.copied();
        cpu::process(&mut wanted);
        controller.carry(&mut sent, false);
        for job in &sent.jobs {
            let range = job.esp as usize..(job.esp + job.len) as usize;
            seen.packets += 1;
            seen.lost += u64::from(job.status != JobStatus::Done);
            seen.reordered += u64::from(job.sequence <= sa.last);
            seen.wrong += u64::from(sent.buffer[range.clone()] != wanted.buffer[range]);
            sa.last = job.sequence;
        }
        idle(controller, PERIOD);
    }
}

fn batch(sa: &mut Sa) -> Batch {
    let len = sa.key.transform().sealed_len(PAYLOAD);
    let mut batch = Batch::new(Direction::Seal, PACKETS * (len + 16), PACKETS);
    batch.keys.insert(0, sa.key.clone());
    for _ in 0..PACKETS {
        let esp = batch.reserve(len).expect("room");
        let place = &mut batch.buffer[esp..esp + len];
        place[4..8].copy_from_slice(&(sa.next as u32).to_be_bytes());
        place[8..16].copy_from_slice(&sa.next.to_be_bytes());
        batch.jobs.push(Job {
            key: 0,
            esp: esp as u32,
            len: len as u32,
            icv: 0,
            sequence: sa.next,
            class: 0,
            status: JobStatus::Pending,
        });
        sa.next += 1;
    }
    batch
}
