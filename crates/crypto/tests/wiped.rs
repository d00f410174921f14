//! Memory that was freed tells nothing of a key (SECURITY.md, "Secrets in the CPU engine").
//!
//! Everything is done with two keys in turn. A byte of a freed block that follows the key was not wiped.

mod common;

use common::{Bytes, on_each_tier, packet};
use esplanade_crypto::iana::{Encryption, Integrity};
use esplanade_crypto::lookaside::{AeadAlgorithm, AeadKey};
use esplanade_crypto::sk::{SkKey, key_lens};
use esplanade_crypto::{JobStatus, KeyContext, Protocol, Transform, cpu};
use esplanade_testkit::freed::{WatchedAllocator, watch};

#[global_allocator]
static ALLOCATOR: WatchedAllocator = WatchedAllocator;

/// So many that no address or counter is likely to follow the key by chance.
const RUNS: u32 = 32;

/// Which of the two keys a run has. The order has no period.
fn which(run: u32) -> usize {
    run.count_ones() as usize % 2
}

/// The number of bytes that are one value with the first key, and another with the second.
fn following(runs: &[Vec<u8>]) -> usize {
    let lens: Vec<usize> = runs.iter().map(Vec::len).collect();
    assert!(lens.iter().all(|len| *len == lens[0]), "{lens:?}");
    let follows = |at: &usize| {
        let of = [runs[0][*at], runs[1][*at]];
        let mut all = (0..).zip(runs);
        of[0] != of[1] && all.all(|(number, run)| run[*at] == of[which(number)])
    };
    (0..lens[0]).filter(follows).count()
}

/// What is wrong with the bytes that follow the key. The blocks of what is made have at least so many as `least`, and
/// the blocks that were freed when all is over have none.
fn fault<K>(
    (key_len, least): (usize, usize),
    make: impl Fn(&[u8]) -> K,
    work: impl Fn(&K),
) -> Option<String> {
    let first = Bytes::new(7).take(key_len);
    let second: Vec<u8> = first.iter().map(|byte| !byte).collect();
    let keys = [first, second];
    let run = |number: u32| {
        let (made, begin) = watch(|| Box::new(make(&keys[which(number)])));
        let ((), middle) = watch(|| work(&made));
        let ((), end) = watch(|| drop(made));
        let freed = [begin.freed, middle.freed, end.freed];
        (begin.left.concat(), freed.concat().concat())
    };
    // What is made once in a process is made here.
    run(0);
    let (live, freed): (Vec<_>, Vec<_>) = (0..RUNS).map(run).unzip();
    let [live, freed] = [live, freed].map(|runs| following(&runs));
    (live < least || freed > 0).then(|| format!("{freed} left of {live} bytes"))
}

fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Seals a few packets, one after the other.
fn seal(transform: Transform, key: &KeyContext) {
    for sequence in 1..4 {
        let mut bytes = packet(transform, sequence, 300, &mut Bytes::new(sequence));
        let status = match transform.protocol() {
            Protocol::Esp => cpu::seal(key, sequence, &mut bytes),
            Protocol::Ah => cpu::seal_ah(key, sequence, &mut bytes, 32),
        };
        assert_eq!(status, JobStatus::Done);
        // The packet is no secret.
        bytes.fill(0);
    }
}

// RFC 7296 R122
#[test]
fn a_key_context_leaves_nothing_of_its_key() {
    let mut faults = Vec::new();
    on_each_tier(|tier| {
        for transform in Transform::all() {
            // The context has the key material itself.
            let len = transform.key_material_len();
            let make = |key: &[u8]| KeyContext::for_tier(tier, transform, true, key).expect("good");
            let fault = fault((len, len), make, |key| seal(transform, key));
            faults.extend(fault.map(|fault| format!("{tier} {transform}: {fault}")));
        }
    });
    assert_none(&faults);
}

/// The library has its keys in blocks of its own, which it wipes.
#[test]
fn a_key_of_a_general_aead_leaves_nothing() {
    let mut faults = Vec::new();
    on_each_tier(|tier| {
        for algorithm in AeadAlgorithm::ALL {
            let make = |key: &[u8]| AeadKey::for_tier(tier, algorithm, key).expect("good");
            let fault = fault((algorithm.key_len(), 0), make, |_| {});
            faults.extend(fault.map(|fault| format!("{tier} {algorithm:?}: {fault}")));
        }
    });
    assert_none(&faults);
}

/// Seals a message, for which the algorithms get forms of the keys of their own.
fn seal_message(key: &SkKey) {
    const HEAD: usize = 32;
    let mut message = vec![0; HEAD + key.iv_len() + 4 * 16];
    assert_eq!(key.seal(&mut message, HEAD), Some(()));
    // The message is no secret.
    message.fill(0);
}

#[test]
fn the_keys_of_an_ike_sa_leave_nothing() {
    let hmac = Some(Integrity::HmacSha2_256_128);
    let mut faults = Vec::new();
    for (encryption, key_bits, integrity) in [
        (Encryption::AesCbc, 128, hmac),
        (Encryption::AesCbc, 256, Some(Integrity::AesXcbc96)),
        (Encryption::AesCtr, 256, hmac),
        (Encryption::AesCcm16, 256, None),
        (Encryption::AesGcm16, 256, None),
    ] {
        let (sk_e, sk_a) = key_lens(encryption, key_bits, integrity);
        let make = |key: &[u8]| {
            let (sk_e, sk_a) = key.split_at(sk_e);
            SkKey::new(encryption, integrity, sk_e, sk_a).expect("good")
        };
        // Some bytes may be alike in all runs by chance.
        let (len, least) = (sk_e + sk_a, sk_e + sk_a - 4);
        let fault = fault((len, least), make, seal_message);
        faults.extend(fault.map(|fault| format!("{encryption:?} {integrity:?}: {fault}")));
    }
    assert_none(&faults);
}
