//! Measures the core cycles per packet of the CPU engine for each transform, and those to expand a key. They are the bar
//! for other engines.
//!
//! Each case prints one line of JSON with the least of many repetitions. A chain of dependent instructions, timed
//! beside each repetition, gives the length of a core cycle. The argument, if any, is a part of the transform's name.

use std::hint::black_box;
use std::time::Instant;

use esplanade_crypto::{JobStatus, KeyContext, Protocol, Transform, cpu};
use esplanade_testkit::clock::cycle_ns;

/// Lengths of the inner packet in bytes.
const LENGTHS: [usize; 3] = [64, 576, 1446];
const REPETITIONS: usize = 60;
/// Offset of the ICV: the IPv4 header, and AH up to its ICV field.
const AH_ICV: usize = 32;

/// Returns the least core cycles that one call takes.
fn cycles(calls: u32, mut call: impl FnMut()) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..REPETITIONS {
        let before = cycle_ns();
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        let spent = start.elapsed().as_secs_f64() * 1e9 / f64::from(calls);
        let clock = before.max(cycle_ns());
        least = least.min(spent / clock);
    }
    least
}

fn key(transform: Transform) -> KeyContext {
    let material: Vec<u8> = (0..transform.key_material_len())
        .map(|at| (at as u8).wrapping_mul(30) ^ 2)
        .collect();
    KeyContext::new(transform, true, &material).expect("good keys")
}

fn measure(transform: Transform, len: usize) -> (f64, f64) {
    let key = key(transform);
    let icv_at = AH_ICV + transform.iv_len();
    let mut packet = match transform.protocol() {
        Protocol::Esp => vec![7; transform.sealed_len(len)],
        Protocol::Ah => vec![7; icv_at + transform.icv_len() + len],
    };
    let seal = |packet: &mut [u8]| match transform.protocol() {
        Protocol::Esp => cpu::seal(&key, 9, packet),
        Protocol::Ah => cpu::seal_ah(&key, 9, packet, icv_at),
    };
    let open = |packet: &mut [u8]| match transform.protocol() {
        Protocol::Esp => cpu::open(&key, 9, packet),
        Protocol::Ah => cpu::open_ah(&key, 9, packet, icv_at),
    };
    let calls = if transform.legacy() { 10 } else { 50 };
    let sealing = cycles(calls, || {
        black_box(seal(&mut packet));
    });
    seal(&mut packet);
    let sealed = packet.clone();
    // The copy is part of the time, because opening changes the packet.
    let opening = cycles(calls, || {
        packet.copy_from_slice(&sealed);
        assert_eq!(open(&mut packet), JobStatus::Done);
    });
    (sealing, opening)
}

fn main() {
    // `cargo bench` adds its own flags, which are left out.
    let part = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let part = part.unwrap_or_default();
    for transform in Transform::all().filter(|t| t.name().contains(&part)) {
        let expand = cycles(20, || {
            black_box(key(transform));
        });
        for len in LENGTHS {
            let (seal, open) = measure(transform, len);
            let ghz = 1.0 / cycle_ns();
            println!(
                "{{\"transform\": \"{transform}\", \"inner\": {len}, \"seal\": {seal:.0}, \"open\": {open:.0}, \"key\": {expand:.0}, \
                 \"ghz\": {ghz:.2}}}"
            );
        }
    }
}
