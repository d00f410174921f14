//! DES and 3DES in CBC (RFC 2405, RFC 2451), bitsliced: each bit of a word belongs to a lane, which has its own key.
//!
//! ```text
//! encrypt: a lane is a packet: CBC leaves nothing to do in parallel within one
//! decrypt: a lane is a part of a packet, which needs of the part before only its last block of ciphertext
//!
//! keys, IVs := transposed to bits
//! for each piece of 8 blocks of the lanes that have any left:
//!     gather the pieces, one cache line of each lane
//!     for each block: to bits; add the chain; 16 or 48 rounds; back to bytes
//!     scatter the pieces
//! lanes that outlast all others: the library
//! ```
//!
//! The longest packets come first, so the busy lanes are always the first ones.

use std::arch::x86_64::{__m256i, __m512i};

use arrayvec::ArrayVec;

use crate::des::{BLOCK, DesKey};
use crate::plain::Cleansed;
use crate::tier::Tier;

mod bits;
mod esp;
mod lane;
mod lanes;
mod networks;
#[cfg(feature = "generators")]
pub mod testing;
mod word;
mod x86;

pub(crate) use esp::EspKey;
use lane::DesLane;
use lanes::{DesLanes, FEWEST};
use word::Word;

/// The most chains in one call.
pub(crate) const LANES: usize = 512;

/// A DES or 3DES key as it came. A round key is a selection of its bits.
pub(crate) struct DesCbcKey {
    /// The key's eight-byte parts, little endian. DES uses only the first one.
    parts: Cleansed<[u64; 3]>,
    triple: bool,
}

impl DesCbcKey {
    /// Makes a key. Returns `None` unless there are 8 or 24 bytes. Weak keys are refused elsewhere.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let part = |bytes: &[u8; BLOCK]| u64::from_le_bytes(*bytes);
        let (parts, triple) = match key.as_chunks::<BLOCK>() {
            ([a], []) => ([part(a), 0, 0], false),
            ([a, b, c], []) => ([part(a), part(b), part(c)], true),
            _ => return None,
        };
        Some(Self {
            parts: Cleansed(parts),
            triple,
        })
    }

    /// The key in the library's form.
    fn library(&self) -> DesKey {
        let [a, b, c] = self.parts.0.map(u64::to_le_bytes);
        match self.triple {
            false => DesKey::single(&a),
            true => DesKey::triple([&a, &b, &c]),
        }
    }
}

/// A CBC chain that is worked on in place.
#[derive(Clone, Copy)]
pub(crate) struct Chain<'a> {
    pub(crate) key: &'a DesCbcKey,
    pub(crate) iv: [u8; BLOCK],
    /// Start of `len` bytes of whole blocks.
    pub(crate) body: *mut u8,
    pub(crate) len: u32,
}

/// Encrypts chains of any lengths, whose keys may be of both kinds.
///
/// # Safety
/// - The machine has the tier.
/// - Each body may be read and written, and nobody else accesses it during the call.
pub(crate) unsafe fn encrypt(tier: Tier, list: &[Chain]) {
    for triple in [false, true] {
        let mut lanes = ArrayVec::new();
        for chain in list.iter().filter(|chain| chain.key.triple == triple) {
            lanes.push(chain.lane());
            if lanes.len() == width(tier) {
                // SAFETY: the caller guarantees the tier and the bodies.
                unsafe {
                    run(
                        tier,
                        &mut DesLanes::new(std::mem::take(&mut lanes)),
                        triple,
                        true,
                    )
                };
            }
        }
        if !lanes.is_empty() {
            // SAFETY: same as above.
            unsafe { run(tier, &mut DesLanes::new(lanes), triple, true) };
        }
    }
}

/// Decrypts chains of any lengths, whose keys may be of both kinds.
///
/// # Safety
/// The obligations are those of [`encrypt`].
pub(crate) unsafe fn decrypt(tier: Tier, list: &[Chain]) {
    for triple in [false, true] {
        let mut chains = ArrayVec::<&Chain, LANES>::new();
        for chain in list.iter().filter(|chain| chain.key.triple == triple) {
            chains.push(chain);
            if chains.len() == width(tier) {
                // SAFETY: the caller guarantees the tier and the bodies.
                unsafe { decrypt_alike(tier, &chains, triple) };
                chains.clear();
            }
        }
        if !chains.is_empty() {
            // SAFETY: same as above.
            unsafe { decrypt_alike(tier, &chains, triple) };
        }
    }
}

/// Decrypts chains whose keys are all of one kind.
///
/// # Safety
/// - The obligations are those of [`decrypt`].
/// - There are at most as many chains as lanes.
unsafe fn decrypt_alike(tier: Tier, chains: &[&Chain], triple: bool) {
    let blocks: usize = chains.iter().map(|chain| chain.blocks()).sum();
    if blocks < 2 * FEWEST {
        for chain in chains {
            // SAFETY: the caller guarantees that the body may be read and written.
            let body = unsafe { std::slice::from_raw_parts_mut(chain.body, chain.len as usize) };
            chain.key.library().decrypt(chain.iv, body);
        }
        return;
    }
    let width = width(tier);
    let part = part(chains, blocks, width);
    let mut lanes = ArrayVec::new();
    for chain in chains {
        let mut next = chain.lane();
        let mut left = next.blocks;
        while left > 0 {
            next.blocks = left.min(part);
            lanes.push(next);
            left -= next.blocks;
            // SAFETY: the pointer stays in the body: at least one block is before it, and the next part starts at the
            // end at most.
            unsafe {
                next.at = next.at.add(next.blocks as usize * BLOCK);
                // The IV is saved before this ciphertext becomes plaintext.
                next.iv = next.at.sub(BLOCK).cast::<u64>().read_unaligned().to_le();
            }
            if lanes.len() == width {
                // SAFETY: the caller guarantees the tier and the bodies.
                unsafe {
                    run(
                        tier,
                        &mut DesLanes::new(std::mem::take(&mut lanes)),
                        triple,
                        false,
                    )
                };
            }
        }
    }
    if !lanes.is_empty() {
        // SAFETY: the caller guarantees the tier and the bodies.
        unsafe { run(tier, &mut DesLanes::new(lanes), triple, false) };
    }
}

/// The most blocks in a part. Parts of this size make up for the setup of their lanes.
const PART_MAX: u32 = 32;

/// Returns the number of blocks in a part. The parts are about as small as fits the lanes, so that all lanes have
/// work. If the blocks fill the lanes several times over, each lane's share is cut into equal parts.
fn part(chains: &[&Chain], blocks: usize, lanes: usize) -> u32 {
    let share = (blocks.div_ceil(lanes) as u32).max(1);
    if share > PART_MAX {
        return share.div_ceil(share.div_ceil(PART_MAX));
    }
    let parts = |part| {
        let parts = chains.iter().map(|c| (c.blocks() as u32).div_ceil(part));
        parts.sum::<u32>() as usize
    };
    let mut part = share;
    while part < PART_MAX && parts(part) > lanes {
        part += part.div_ceil(8);
    }
    part.min(PART_MAX)
}

impl<'a> Chain<'a> {
    fn blocks(&self) -> usize {
        self.len as usize / BLOCK
    }

    fn lane(&self) -> DesLane<'a> {
        DesLane {
            at: self.body,
            blocks: self.blocks() as u32,
            iv: u64::from_le_bytes(self.iv),
            key: self.key,
        }
    }
}

/// Number of lanes in the tier's words. The portable tier serves tests only: no key is made for it.
fn width(tier: Tier) -> usize {
    64 * match tier {
        Tier::Portable => u64::COLUMNS,
        Tier::AesNi => __m256i::COLUMNS,
        Tier::Avx512 => __m512i::COLUMNS,
    }
}

/// Runs the lanes with the tier's words.
///
/// # Safety
/// - The machine has the tier, and each lane's blocks may be read and written.
/// - There are at most as many lanes as the tier's words have.
unsafe fn run(tier: Tier, lanes: &mut DesLanes, triple: bool, encrypt: bool) {
    // SAFETY: the caller guarantees the tier and the lanes.
    unsafe {
        if encrypt && lanes.too_few() {
            return lanes.finish();
        }
        match tier {
            Tier::Portable => lanes.run::<u64>(triple, encrypt),
            Tier::AesNi => x86::run_256(lanes, triple, encrypt),
            Tier::Avx512 => x86::run_512(lanes, triple, encrypt),
        }
    }
}
