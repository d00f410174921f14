//! Shared by the tests of tiers: the tiers of this machine, keys, packets, a random generator.

#![allow(dead_code)]

use esplanade_crypto::lookaside::EspPacket;
use esplanade_crypto::{IvKind, JobStatus, KeyContext, Tier, Transform};

/// Calls `test` with each tier that this machine has, and names the others.
pub fn on_each_tier(mut test: impl FnMut(Tier)) {
    for tier in Tier::ALL {
        match tier.missing() {
            None => test(tier),
            Some(feature) => println!("SKIP tier_{tier}: this machine has no {feature}"),
        }
    }
}

/// The ESP transforms for which the tier has a kernel.
pub fn with_kernel(tier: Tier) -> Vec<Transform> {
    let has_kernel = |t: &Transform| key(tier, *t, false, 1).has_kernel();
    Transform::ESP.into_iter().filter(has_kernel).collect()
}

/// A key whose every byte depends on the seed.
pub fn key(tier: Tier, transform: Transform, esn: bool, seed: u64) -> KeyContext {
    let mut bytes = Bytes::new(seed.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ 0x14057b7ef767814f);
    let material = bytes.take(transform.key_material_len());
    KeyContext::for_tier(tier, transform, esn, &material).expect("a good key")
}

/// Bytes without a pattern (xorshift64*).
pub struct Bytes(u64);

impl Bytes {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number less than `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| (self.next() >> 56) as u8);
    }

    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

/// Length of the packet whose body, with padding and trailer, has at least `body` bytes.
pub fn len(transform: Transform, body: usize) -> usize {
    transform.sealed_len(body.saturating_sub(2))
}

/// Fills `bytes` with an unsealed packet: header, IV, body, room for the ICV.
pub fn fill(transform: Transform, sequence: u64, bytes: &mut [u8], random: &mut Bytes) {
    random.fill(bytes);
    bytes[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
    if transform.iv_kind() == IvKind::Sequence {
        bytes[8..16].copy_from_slice(&sequence.to_be_bytes());
    }
}

/// Makes an unsealed packet whose body has at least `body` bytes.
pub fn packet(transform: Transform, sequence: u64, body: usize, random: &mut Bytes) -> Vec<u8> {
    let mut packet = vec![0; len(transform, body)];
    fill(transform, sequence, &mut packet, random);
    packet
}

/// The part of the packet between IV and ICV.
pub fn body(transform: Transform, packet: &[u8]) -> &[u8] {
    &packet[8 + transform.iv_len()..packet.len() - transform.icv_len()]
}

/// A batch in buffers of the caller: key, sequence number and bytes of each packet.
pub type Packets<'a> = Vec<(&'a KeyContext, u64, &'a mut [u8])>;

pub fn seal(packets: Packets) -> Vec<JobStatus> {
    let mut packets = wrap(packets);
    esplanade_crypto::lookaside::seal_esp(&mut packets);
    packets.iter().map(|packet| packet.status).collect()
}

pub fn open(packets: Packets) -> Vec<JobStatus> {
    let mut packets = wrap(packets);
    esplanade_crypto::lookaside::open_esp(&mut packets);
    packets.iter().map(|packet| packet.status).collect()
}

fn wrap(packets: Packets) -> Vec<EspPacket> {
    let wrap = |(key, sequence, bytes)| EspPacket::new(key, sequence, bytes);
    packets.into_iter().map(wrap).collect()
}
