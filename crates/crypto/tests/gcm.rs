//! Tests the kernels against the library, packet by packet, with guard bytes around each.

use std::sync::Arc;

use esplanade_crypto::iana::Encryption;
use esplanade_crypto::testing::gcm::PACKETS;
use esplanade_crypto::testing::{self, ArenaPacket, Family, family};
use esplanade_crypto::{JobStatus, KeyContext, Tier, Transform, cpu};

const GUARD: usize = 64;

/// Tiers of this machine that have a kernel.
fn tiers() -> impl Iterator<Item = Tier> {
    let has = |tier: &Tier| tier.available() && transforms(*tier).next().is_some();
    Tier::ALL.into_iter().filter(has)
}

/// AES-GCM with all key and ICV lengths, with an explicit and with an implicit IV.
fn transforms(tier: Tier) -> impl Iterator<Item = Transform> {
    Transform::ESP.into_iter().filter(move |&transform| {
        let key = KeyContext::for_tier(tier, transform, false, &material(transform, 1));
        family(&key.expect("a key")) == Family::Gcm
    })
}

fn material(transform: Transform, seed: u64) -> Vec<u8> {
    noise(seed).take(transform.key_material_len()).collect()
}

fn noise(seed: u64) -> impl Iterator<Item = u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
}

struct GcmCase {
    kernel: Arc<KeyContext>,
    library: Arc<KeyContext>,
    sequence: u64,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl GcmCase {
    fn new(tier: Tier, transform: Transform, esn: bool, text_len: usize, seed: u64) -> Self {
        let context = |tier| {
            let context = KeyContext::for_tier(tier, transform, esn, &material(transform, seed));
            Arc::new(context.expect("a key"))
        };
        let len = 8 + transform.iv_len() + text_len + transform.icv_len();
        Self::of_keys(context(tier), context(Tier::Portable), len, seed)
    }

    /// Makes another packet with the same key and length.
    fn like(&self, seed: u64) -> Self {
        let (kernel, library) = (Arc::clone(&self.kernel), Arc::clone(&self.library));
        Self::of_keys(kernel, library, self.plain.len(), seed)
    }

    fn of_keys(kernel: Arc<KeyContext>, library: Arc<KeyContext>, len: usize, seed: u64) -> Self {
        let sequence = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let plain: Vec<u8> = noise(seed + 7).take(len).collect();
        let mut sealed = plain.clone();
        assert_eq!(cpu::seal(&library, sequence, &mut sealed), JobStatus::Done);
        Self {
            kernel,
            library,
            sequence,
            plain,
            sealed,
        }
    }
}

/// Lays out the packets with guard bytes between them, and returns where each begins.
fn arena<'a>(packets: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = vec![0xa5; GUARD];
    let mut starts = Vec::new();
    for packet in packets {
        starts.push(bytes.len());
        bytes.extend_from_slice(packet);
        bytes.resize(bytes.len() + GUARD, 0xa5);
    }
    (bytes, starts)
}

fn packets<'a>(cases: &'a [GcmCase], starts: &[usize]) -> Vec<ArenaPacket<'a>> {
    let packet = |(case, &start): (&'a GcmCase, &usize)| {
        let place = start..start + case.plain.len();
        (&*case.kernel, place, case.sequence)
    };
    cases.iter().zip(starts).map(packet).collect()
}

/// Seals and opens one batch, and compares the results with the library's.
fn check(tier: Tier, cases: &[GcmCase]) {
    let (plain, starts) = arena(cases.iter().map(|case| case.plain.as_slice()));
    let (sealed, _) = arena(cases.iter().map(|case| case.sealed.as_slice()));
    let mut bytes = plain.clone();
    let packets = packets(cases, &starts);
    let sealed_all = testing::seal(tier, &mut bytes, &packets);
    assert!(sealed_all.iter().all(|&sealed| sealed));
    for (case, &start) in cases.iter().zip(&starts) {
        let transform = case.kernel.transform();
        let len = case.sealed.len();
        let same = bytes[start..start + len] == case.sealed;
        assert!(same, "sealing {len} bytes with {transform} on {tier}");
    }
    assert!(bytes == sealed, "the guards");

    let authentic = testing::open(tier, &mut bytes, &packets);
    assert!(authentic.iter().all(|&authentic| authentic));
    for (case, &start) in cases.iter().zip(&starts) {
        let mut opened = case.sealed.clone();
        cpu::open(&case.library, case.sequence, &mut opened);
        assert!(
            bytes[start..start + opened.len()] == opened,
            "opening on {tier}"
        );
        bytes[start..start + opened.len()].copy_from_slice(&case.plain);
    }
    assert!(bytes == plain, "the guards");
}

#[test]
fn every_length_gives_what_the_library_gives() {
    for tier in tiers() {
        for (seed, transform) in transforms(tier).enumerate() {
            let lens = (4..=1200).step_by(4).chain([1448, 2048, 4100, 9000]);
            let cases: Vec<GcmCase> = lens
                .map(|len| {
                    GcmCase::new(tier, transform, len % 8 == 0, len, seed as u64 + len as u64)
                })
                .collect();
            for batch in cases.chunks(PACKETS) {
                check(tier, batch);
            }
            check(tier, &cases[..1]);
        }
    }
}

#[test]
fn gmac_of_every_length_is_that_of_the_library() {
    let transforms = Transform::ESP
        .into_iter()
        .filter(|transform| transform.encryption() == Some(Encryption::NullAuthAesGmac));
    for (seed, transform) in transforms.enumerate() {
        for tier in tiers() {
            for esn in [false, true] {
                let lens = (4..=1200).step_by(4).chain([1448, 9000]);
                let cases: Vec<GcmCase> = lens
                    .map(|len| GcmCase::new(tier, transform, esn, len, (seed + len) as u64))
                    .collect();
                for batch in cases.chunks(PACKETS) {
                    check(tier, batch);
                }
            }
        }
    }
}

/// Tries every number of packets of a shape among packets of other shapes, keys and transforms.
#[test]
fn mixed_batches_give_what_the_library_gives() {
    for tier in tiers() {
        let transforms: Vec<Transform> = transforms(tier).collect();
        for count in 1..=PACKETS {
            let mut random = noise(count as u64).map(usize::from);
            let mut next = |below: usize| {
                (random.next().unwrap_or(0) << 8 | random.next().unwrap_or(0)) % below
            };
            let few = [20, 64, 100, 256, 508, 512, 576, 700, 1448];
            let cases: Vec<GcmCase> = (0..count)
                .map(|at| {
                    let transform = transforms[next(1 + count % 9).min(transforms.len() - 1)];
                    let len = match count % 3 {
                        0 => 64,
                        1 => few[next(few.len())],
                        _ => 4 + 4 * next(200),
                    };
                    GcmCase::new(tier, transform, next(2) == 0, len, at as u64 + 1)
                })
                .collect();
            check(tier, &cases);
        }
    }
}

/// Tries packets of one key and one length, with and without others between the groups of four.
#[test]
fn packets_that_are_alike_give_what_the_library_gives() {
    for tier in tiers() {
        for transform in transforms(tier) {
            for len in [
                48, 52, 60, 64, 68, 76, 80, 84, 240, 244, 252, 256, 260, 272, 276,
            ] {
                for esn in [false, true] {
                    let first = GcmCase::new(tier, transform, esn, len, 1);
                    let other = GcmCase::new(tier, transform, esn, len, 2);
                    let count = 8 + len / 4 % 13;
                    let mut cases: Vec<GcmCase> =
                        (0..count as u64).map(|at| first.like(at)).collect();
                    check(tier, &cases);
                    cases.extend((0..9).map(|at| other.like(100 + at)));
                    cases.push(first.like(200));
                    check(tier, &cases);
                }
            }
        }
    }
}

/// A kernel that keeps values of one key must not use them for the next packet's key.
#[test]
fn long_packets_of_few_keys_give_what_the_library_gives() {
    for tier in tiers() {
        for transform in transforms(tier) {
            for len in [576, 700, 764, 1024, 1448, 9000] {
                let keys = [1, 1, 2, 1, 2, 2, 2, 1];
                let cases = keys.map(|seed| GcmCase::new(tier, transform, true, len, seed));
                let (plain, starts) = arena(cases.iter().map(|case| case.plain.as_slice()));
                let (sealed, _) = arena(cases.iter().map(|case| case.sealed.as_slice()));
                let mut bytes = plain.clone();
                let mut packets = packets(&cases, &starts);
                let [first, second] = [packets[0].0, packets[2].0];
                for (packet, seed) in packets.iter_mut().zip(keys) {
                    packet.0 = if seed == 1 { first } else { second };
                }
                testing::seal(tier, &mut bytes, &packets);
                assert!(bytes == sealed, "sealing {len} bytes with {transform}");
                let authentic = testing::open(tier, &mut bytes, &packets);
                assert_eq!(authentic, [true; 8], "{len} bytes with {transform}");
            }
        }
    }
}

/// Flips one bit at each place of some packets of a batch.
#[test]
fn a_changed_bit_is_noticed_in_its_packet_only() {
    for tier in tiers() {
        for transform in transforms(tier) {
            for (number, len) in [4, 44, 60, 64, 176, 244, 256, 300, 508, 576, 1024]
                .into_iter()
                .enumerate()
            {
                let first = GcmCase::new(tier, transform, true, len, 1);
                // The packets are all alike, or each has a key of its own.
                let next = |seed| match number % 2 {
                    0 => first.like(seed),
                    _ => GcmCase::new(tier, transform, true, len, seed),
                };
                let cases: Vec<GcmCase> = (2..11).map(next).collect();
                let (sealed, starts) = arena(cases.iter().map(|case| case.sealed.as_slice()));
                for at in 0..cases[0].sealed.len() {
                    let mut bytes = sealed.clone();
                    let victim = at % cases.len();
                    bytes[starts[victim] + at] ^= 1 << (at % 8);
                    let authentic = testing::open(tier, &mut bytes, &packets(&cases, &starts));
                    let expected = (0..cases.len()).map(|case| case != victim);
                    assert!(
                        authentic.iter().copied().eq(expected),
                        "{transform} {len} {at}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_forged_packet_leaves_no_payload() {
    for tier in tiers() {
        let transform = Transform::ESP[0];
        let case = GcmCase::new(tier, transform, false, 100, 3);
        assert!(case.kernel.has_kernel());
        let mut packet = case.sealed.clone();
        packet[20] ^= 1;
        let status = cpu::open(&case.kernel, case.sequence, &mut packet);
        assert_eq!(status, JobStatus::AuthFailed);
        let body = 8 + transform.iv_len()..packet.len() - transform.icv_len();
        assert!(packet[body].iter().all(|&byte| byte == 0));
    }
}
