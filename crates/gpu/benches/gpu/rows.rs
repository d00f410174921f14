//! The rows: which transforms, and which lengths.

use std::sync::Arc;

use esplanade_crypto::{Arena, Batch, Direction, Job, JobStatus, KeyContext, SlotTable, Transform};

pub const KEYS: usize = 512;

/// The lengths of the payloads of a row, in bytes.
#[derive(Clone, Copy, Debug)]
pub enum Lengths {
    Fixed(usize),
    /// Uniformly distributed.
    Between(usize, usize),
    /// 40, 576 and 1500 bytes, 7 to 4 to 1.
    Imix,
}

#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub transforms: &'static [&'static str],
    pub lengths: Lengths,
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
/// 3DES, the sixth of this mix, is sealed with tables or by the CPU, so it is left out here.
const MODERN: &[&str] = &[
    "AES_GCM_16_128",
    "AES_GCM_16_256",
    "CHACHA20_POLY1305",
    "AES_CBC_128/HMAC_SHA1_96",
    "AES_CBC_256/HMAC_SHA2_256_128",
];

const fn row(name: &'static str, transforms: &'static [&'static str], lengths: Lengths) -> Row {
    Row {
        name,
        transforms,
        lengths,
    }
}

pub const ROWS: [Row; 5] = [
    row("R1", CBC_SHA1, Lengths::Fixed(1024)),
    row("R2", CBC_SHA1, Lengths::Between(64, 1500)),
    row("R3", LIGHT, Lengths::Fixed(1280)),
    row("R3'", MODERN, Lengths::Fixed(1280)),
    row("R4", MODERN, Lengths::Imix),
];

pub fn below(state: &mut u64, bound: usize) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) as usize) % bound
}

/// Bytes of an arena that is large enough for so many packets.
pub fn room(packets: usize) -> usize {
    packets * 1700
}

/// Makes the SAs of a row.
pub fn keys(row: &Row) -> SlotTable<KeyContext> {
    let mut state = 5;
    let mut keys = SlotTable::new();
    for (number, name) in (0..KEYS).zip(row.transforms.iter().cycle()) {
        let transform = Transform::from_name(name).expect("a transform");
        let material: Vec<u8> = (0..transform.key_material_len())
            .map(|_| below(&mut state, 256) as u8)
            .collect();
        let key = KeyContext::new(transform, false, &material).expect("a key");
        keys.insert(number as u32, Arc::new(key));
    }
    keys
}

/// Fills an arena with packets, each with a random SA and length. Returns the bytes of the payloads too.
pub fn batch(
    row: &Row,
    keys: &SlotTable<KeyContext>,
    packets: usize,
    arena: Arena,
) -> (Batch, usize) {
    let mut state = 7;
    let mut batch = Batch::in_arena(Direction::Seal, arena, packets);
    batch.keys = keys.clone();
    let mut payload_bytes = 0;
    for _ in 0..packets {
        let key = below(&mut state, KEYS) as u32;
        let payload = match row.lengths {
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
