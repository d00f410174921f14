//! Looks for secrets in the time that sealing and opening take, in the manner of dudect (Reparaz, Balasch and
//! Verbauwhede, 2017).
//!
//! Two classes of inputs are timed, mixed at random. In one test, the same secret is compared with random secrets. In
//! the other, packets whose ICV is wrong in the first byte are compared with packets wrong in the last byte. Welch's
//! t says whether the means differ by more than chance. An absolute value above 10 does not come by chance. A value
//! between 4.5 and 10 must be measured again with more samples. The upper tail consists of interrupts and other
//! programs, so it is cut off at several places, and the largest |t| counts. The last line is a control: a comparison
//! that stops at the first difference, which must be found.
//!
//! ```text
//! cargo bench -p esplanade-crypto --bench timing [-- PART-OF-A-TRANSFORM'S-NAME [SAMPLES]]
//! ```
//!
//! Each case prints one line of JSON. A value that stays low proves nothing about other machines.

use std::hint::black_box;
use std::time::Instant;

use esplanade_crypto::lookaside::{EspPacket, open_esp, seal_esp};
use esplanade_crypto::{JobStatus, KeyContext, Tier, Transform};

/// Number of packets in a batch: enough for all lanes of most kernels.
const PACKETS: usize = 32;
const BODY: usize = 96;
/// Number of inputs in each class. It is equal, so that both classes touch the same amount of memory.
const INPUTS: usize = 16;

/// A random generator (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() >> 56) as u8).collect()
    }
}

/// Returns Welch's t of two sets of times.
fn welch(a: &[f64], b: &[f64]) -> f64 {
    let stats = |times: &[f64]| {
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let squares = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>();
        (mean, squares / (count - 1.0) / count)
    };
    let ((mean_a, error_a), (mean_b, error_b)) = (stats(a), stats(b));
    (mean_a - mean_b) / (error_a + error_b).sqrt().max(f64::MIN_POSITIVE)
}

/// Returns the largest |t| over all cuts.
fn largest_t(classes: &[Vec<f64>; 2]) -> f64 {
    let mut all: Vec<f64> = classes.concat();
    all.sort_by(f64::total_cmp);
    let mut largest = 0.0f64;
    for share in [0.5, 0.75, 0.9, 0.97, 1.0] {
        let at = ((all.len() - 1) as f64 * share) as usize;
        let cut = |times: &Vec<f64>| -> Vec<f64> {
            times
                .iter()
                .copied()
                .filter(|&time| time <= all[at])
                .collect()
        };
        let [a, b] = [cut(&classes[0]), cut(&classes[1])];
        if a.len() > 100 && b.len() > 100 {
            largest = largest.max(welch(&a, &b).abs());
        }
    }
    largest
}

/// Times `work` on inputs of class 0 and 1. `prepare` makes an input ready.
fn measure<T>(
    samples: usize,
    state: &mut T,
    mut prepare: impl FnMut(&mut T, usize, usize),
    mut work: impl FnMut(&mut T, usize, usize),
) -> f64 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut classes = [Vec::with_capacity(samples), Vec::with_capacity(samples)];
    for number in 0..samples + samples / 10 {
        let choice = random.next() >> 32;
        let (class, input) = ((choice & 1) as usize, (choice >> 1) as usize % INPUTS);
        prepare(state, class, input);
        let start = Instant::now();
        work(state, class, input);
        let time = start.elapsed().as_nanos() as f64;
        // The first tenth of the samples warms up.
        if number >= samples / 10 {
            classes[class].push(time);
        }
    }
    largest_t(&classes)
}

fn key(tier: Tier, transform: Transform, material: &[u8]) -> KeyContext {
    KeyContext::for_tier(tier, transform, false, material).expect("a good key")
}

/// Key material of the two classes: the same key every time, and random keys.
fn materials(transform: Transform, random: &mut Random) -> [Vec<Vec<u8>>; 2] {
    let len = transform.key_material_len();
    let fixed = random.bytes(len);
    let others = (0..INPUTS).map(|_| random.bytes(len)).collect();
    [vec![fixed; INPUTS], others]
}

/// A batch of consecutive packets that all have one key.
struct Buffer {
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    fn new(transform: Transform, random: &mut Random) -> Self {
        let len = transform.sealed_len(BODY);
        Self {
            bytes: random.bytes(len * PACKETS),
            len,
        }
    }

    fn packets<'a>(&'a mut self, key: &'a KeyContext) -> Vec<EspPacket<'a>> {
        let packets = self.bytes.chunks_mut(self.len);
        packets.map(|bytes| EspPacket::new(key, 7, bytes)).collect()
    }
}

/// Each sample makes the context anew, so that keys of both classes lie at the same addresses. The address of a
/// context affects the time, but it is no secret.
fn secret_key(tier: Tier, transform: Transform, samples: usize) -> f64 {
    let mut random = Random(1);
    let materials = materials(transform, &mut random);
    let buffer = Buffer::new(transform, &mut random);
    let plain = buffer.bytes.clone();
    measure(
        samples,
        &mut (buffer, None),
        |(buffer, made), class, input| {
            drop(made.take());
            *made = Some(key(tier, transform, &materials[class][input]));
            buffer.bytes.copy_from_slice(&plain);
        },
        |(buffer, made), _, _| {
            if let Some(made) = made {
                seal_esp(&mut buffer.packets(made));
            }
        },
    )
}

fn secret_text(tier: Tier, transform: Transform, samples: usize) -> f64 {
    let mut random = Random(2);
    let key = key(tier, transform, &random.bytes(transform.key_material_len()));
    let mut buffer = Buffer::new(transform, &mut random);
    let fixed = vec![0; buffer.bytes.len()];
    let texts = [
        vec![fixed; INPUTS],
        (0..INPUTS)
            .map(|_| random.bytes(buffer.bytes.len()))
            .collect(),
    ];
    measure(
        samples,
        &mut buffer,
        |buffer, class, input| buffer.bytes.copy_from_slice(&texts[class][input]),
        |buffer, _, _| seal_esp(&mut buffer.packets(&key)),
    )
}

/// Compares packets whose ICVs are wrong in different places.
fn forged_icv(tier: Tier, transform: Transform, samples: usize) -> f64 {
    let mut random = Random(3);
    let key = key(tier, transform, &random.bytes(transform.key_material_len()));
    let mut buffer = Buffer::new(transform, &mut random);
    seal_esp(&mut buffer.packets(&key));
    let forged = |at_end: bool| {
        let mut bytes = buffer.bytes.clone();
        for packet in bytes.chunks_mut(buffer.len) {
            let back = if at_end { 1 } else { transform.icv_len() };
            packet[buffer.len - back] ^= 0x80;
        }
        vec![bytes; INPUTS]
    };
    let forged = [forged(false), forged(true)];
    measure(
        samples,
        &mut buffer,
        |buffer, class, input| buffer.bytes.copy_from_slice(&forged[class][input]),
        |buffer, _, _| {
            let mut packets = buffer.packets(&key);
            open_esp(&mut packets);
            assert!(packets.iter().all(|p| p.status == JobStatus::AuthFailed));
        },
    )
}

/// Times a comparison that reveals where the bytes differ.
fn control(samples: usize) -> f64 {
    let mut random = Random(4);
    let secret = random.bytes(2048);
    let mut guesses = [secret.clone(), secret.clone()];
    guesses[0][0] ^= 1;
    guesses[1][2047] ^= 1;
    measure(
        samples,
        &mut (),
        |_, _, _| (),
        |_, class, _| {
            let differs = guesses[class].iter().zip(&secret).position(|(a, b)| a != b);
            black_box(differs);
        },
    )
}

/// Returns the largest |t| of the given number of samples.
type Case = fn(Tier, Transform, usize) -> f64;

fn main() {
    // `cargo bench` adds its own flags, which are left out.
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with('-'));
    let part = arguments.next().unwrap_or_default();
    let samples = arguments.next().and_then(|count| count.parse().ok());
    let samples = samples.unwrap_or(20_000);
    let cases: [(&str, Case); 3] = [
        ("key", secret_key),
        ("text", secret_text),
        ("icv", forged_icv),
    ];
    for tier in Tier::ALL.into_iter().filter(|tier| tier.available()) {
        for transform in Transform::ESP
            .into_iter()
            .filter(|t| t.name().contains(&part))
        {
            let material: Vec<u8> = (1..=transform.key_material_len() as u8).collect();
            // Code of our own without a kernel is the same on every tier.
            let is_own = tier == Tier::Portable && transform.private_use();
            if !is_own && !key(tier, transform, &material).has_kernel() {
                continue;
            }
            for (secret, case) in cases {
                let t = case(tier, transform, samples);
                println!(
                    "{{\"tier\": \"{tier}\", \"transform\": \"{transform}\", \"secret\": \"{secret}\", \"samples\": {samples}, \"t\": {t:.1}}}"
                );
            }
        }
    }
    println!(
        "{{\"control\": true, \"samples\": {samples}, \"t\": {:.1}}}",
        control(samples)
    );
}
