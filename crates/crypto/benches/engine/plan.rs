//! Plans the packets: lengths, keys and places, the same for every contender.

use esplanade_crypto::{Batch, Direction, Transform};

use crate::contender::Planned;

/// Length of the ESP header: SPI and sequence number.
const HEADER: usize = 8;
/// Lengths of twelve packets of a simple Internet mix.
const IMIX: [usize; 12] = [64, 64, 64, 64, 64, 64, 64, 576, 576, 576, 576, 1500];
/// Number of packets in a plan for each key.
const DRAWS: usize = 2;
/// If lengths differ: number of batches with other lengths in other orders.
const MIXED_BATCHES: usize = 64;

/// A random generator (splitmix64) that is the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.next() as u8);
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.next() as usize % (end + 1));
        }
    }
}

/// Length of the part between header and ICV without the IV: payload and trailer.
#[derive(Clone, Copy, PartialEq)]
pub enum Size {
    Bytes(usize),
    /// Lengths from the first to the second, each as often as the others.
    Between(usize, usize),
    Imix,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Between(least, most) => write!(f, "{least}-{most}"),
            Self::Imix => f.write_str("IMIX"),
        }
    }
}

pub struct Plan {
    pub batches: Vec<Vec<Planned>>,
    /// Mean length of the encrypted parts in bytes.
    pub mean_bytes: f64,
    /// Mean of the lengths that were asked for: those of the parts before padding, or of the packets in them.
    pub mean_asked: f64,
    pub batch: Batch,
}

impl Plan {
    /// Makes a plan. Keys are drawn at random. The encrypted part begins `body_at` bytes behind the start of a cache
    /// line. With `trailer` bytes behind a packet the sizes are those of packets.
    pub fn new(
        transform: Transform,
        size: Size,
        trailer: usize,
        keys: usize,
        packets: usize,
        body_at: usize,
    ) -> Self {
        let mut random = Random(1);
        let batches = match (size, keys) {
            (Size::Imix | Size::Between(..), _) => {
                (DRAWS * keys).div_ceil(packets).max(MIXED_BATCHES)
            }
            (Size::Bytes(_), 1) => 1,
            (Size::Bytes(_), _) => (DRAWS * keys).div_ceil(packets),
        };
        let total = batches * packets;
        // Drawing at random is fair: a round in which every key has one turn would make the least use of the caches.
        let order: Vec<u32> = (0..total)
            .map(|_| (random.next() % keys as u64) as u32)
            .collect();
        let asked = || (0..total).map(|i| bytes(size, i));
        let mean_asked = asked().sum::<usize>() as f64 / total as f64;
        let padded = |bytes: usize| (bytes + trailer).next_multiple_of(transform.block_align());
        let mut sizes: Vec<usize> = asked().map(padded).collect();
        random.shuffle(&mut sizes);

        let largest = sizes.iter().copied().max().unwrap_or(0);
        let head = HEADER + transform.iv_len();
        let slot = (64 + body_at + largest + transform.icv_len()).next_multiple_of(64) + 64;
        let batch = Batch::new(Direction::Seal, slot * packets + 64, packets);
        let base = batch.buffer.as_ptr().align_offset(64);
        let mean_bytes = sizes.iter().sum::<usize>() as f64 / total as f64;
        let planned = order.iter().zip(&sizes).enumerate();
        let planned: Vec<Planned> = planned
            .map(|(i, (&key, bytes))| Planned {
                key,
                at: (base + i % packets * slot + 64 + body_at - head) as u32,
                len: (head + bytes + transform.icv_len()) as u32,
            })
            .collect();
        Self {
            batches: planned.chunks(packets).map(<[_]>::to_vec).collect(),
            mean_bytes,
            mean_asked,
            batch,
        }
    }
}

fn bytes(size: Size, number: usize) -> usize {
    match size {
        Size::Bytes(bytes) => bytes,
        Size::Between(least, most) => least + number % (most - least + 1),
        Size::Imix => IMIX[number % IMIX.len()],
    }
}
