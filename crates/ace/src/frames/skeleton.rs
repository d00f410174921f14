//! The bits that the bitstreams of a domain have in common.

use super::bitstream::Bitstream;

/// The smallest thing that is in common or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// A bit.
    Bit,
    /// A tile of the part's grid.
    Tile,
    /// A configuration frame.
    Frame,
}

/// A tile of a part: the bits that configure it lie in several frames, at the same place of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// The first frame, in the numbers of Project Trellis: the last frame of a bitstream is frame 0.
    pub first_frame: u16,
    /// The number of frames.
    pub frames: u16,
    /// The first bit of a frame: bit 0 is the lowest bit of its last byte.
    pub first_bit: u16,
    /// The number of bits.
    pub bits: u16,
}

/// Why bitstreams have no skeleton.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SkeletonError {
    /// There is no bitstream.
    #[error("a domain without a bitstream has no skeleton")]
    Empty,
    /// Bitstreams are for different parts.
    #[error("bitstream {at} is for {found}, the first one for {wanted}")]
    Part {
        /// The number of the bitstream, from 0.
        at: usize,
        /// The part of the first bitstream.
        wanted: &'static str,
        /// The part of this one.
        found: &'static str,
    },
    /// A tile lies outside the part.
    #[error("tile {0:?} lies outside the part")]
    Tile(Tile),
}

/// The intersection of a domain's bitstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skeleton {
    common: Vec<u8>,
    mask: Vec<u8>,
    frame_len: usize,
}

/// How much is in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Common {
    /// The bits that are in common, as the grain counts them.
    pub bits: u64,
    /// The frames that are in common as a whole.
    pub frames: u64,
}

impl Skeleton {
    /// Finds what bitstreams have in common. Bits that no tile has are taken by themselves at the grain of tiles.
    pub fn new(
        bitstreams: &[&Bitstream],
        grain: Grain,
        tiles: &[Tile],
    ) -> Result<Self, SkeletonError> {
        let (first, others) = bitstreams.split_first().ok_or(SkeletonError::Empty)?;
        let part = first.part();
        let mut mask = vec![0; first.frames().len()];
        for (at, other) in (1..).zip(others) {
            if other.part() != part {
                let (wanted, found) = (part.name, other.part().name);
                return Err(SkeletonError::Part { at, wanted, found });
            }
            let pairs = first.frames().iter().zip(other.frames());
            for (mask, (one, two)) in mask.iter_mut().zip(pairs) {
                *mask |= one ^ two;
            }
        }
        match grain {
            Grain::Bit => (),
            Grain::Frame => {
                for frame in mask.chunks_mut(part.frame_len) {
                    if frame.iter().any(|&bits| bits != 0) {
                        frame.fill(0xff);
                    }
                }
            }
            Grain::Tile => {
                for &tile in tiles {
                    let bits = tile_bits(tile, part.frames, part.frame_len)
                        .ok_or(SkeletonError::Tile(tile))?;
                    if bits.clone().any(|(byte, bit)| mask[byte] & bit != 0) {
                        bits.for_each(|(byte, bit)| mask[byte] |= bit);
                    }
                }
            }
        }
        let common = first.frames().iter().zip(&mask);
        Ok(Self {
            common: common.map(|(byte, mask)| byte & !mask).collect(),
            mask,
            frame_len: part.frame_len,
        })
    }

    /// The bits in common, zero elsewhere.
    pub fn common(&self) -> &[u8] {
        &self.common
    }

    /// A one for each bit that is not in common.
    pub fn mask(&self) -> &[u8] {
        &self.mask
    }

    /// For each byte that the mask has ones in, the bits of a bitstream there. None if the bitstream has other bits
    /// where the skeleton's are in common.
    pub fn difference(&self, bitstream: &Bitstream) -> Option<Vec<u8>> {
        let frames = bitstream.frames();
        let mut difference = Vec::new();
        for ((&byte, &mask), &common) in frames.iter().zip(&self.mask).zip(&self.common) {
            if byte & !mask != common {
                return None;
            }
            if mask != 0 {
                difference.push(byte & mask);
            }
        }
        (frames.len() == self.mask.len()).then_some(difference)
    }

    /// How much is in common.
    pub fn extent(&self) -> Common {
        let zeros = self.mask.iter().map(|mask| u64::from(mask.count_zeros()));
        let frames = self.mask.chunks(self.frame_len);
        let whole = frames.filter(|frame| frame.iter().all(|&mask| mask == 0));
        Common {
            bits: zeros.sum(),
            frames: whole.count() as u64,
        }
    }
}

/// The byte in the frames and the bit in the byte, for each bit of a tile.
fn tile_bits(
    tile: Tile,
    frames: u16,
    frame_len: usize,
) -> Option<impl Iterator<Item = (usize, u8)> + Clone> {
    let frame_end = tile.first_frame.checked_add(tile.frames)?;
    let bit_end = tile.first_bit.checked_add(tile.bits)?;
    if frame_end > frames || usize::from(bit_end) > frame_len * 8 {
        return None;
    }
    let places = (tile.first_frame..frame_end)
        .flat_map(move |frame| (tile.first_bit..bit_end).map(move |bit| (frame, bit)));
    Some(places.map(move |(frame, bit)| {
        let byte = frame_len - 1 - usize::from(bit / 8);
        let frame = usize::from(frames - 1 - frame);
        (frame * frame_len + byte, 1 << (bit % 8))
    }))
}
