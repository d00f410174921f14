//! A bitstream as a whole, and what it leaves in its part.

use super::part::Part;

/// The longest bitstream that is read. The largest part's has 2.0 MB, and block RAMs may follow.
pub const BITSTREAM_LEN_MAX: usize = 8 << 20;

/// The bits of control register 0 that Project Trellis' `ecppack --background` sets.
const BACKGROUND: u32 = 0x2e00_0000;

/// Contents of block RAM that a bitstream writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The operand of LSC_EBR_ADDRESS.
    pub address: u32,
    /// Nine bytes for each 72 bits.
    pub content: Vec<u8>,
}

/// The contents of a part's configuration memory and block RAMs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    pub(super) part: &'static Part,
    /// Control register 0.
    pub(super) control: u32,
    /// The frames, one after the other, as the part gets them.
    pub(super) frames: Vec<u8>,
    pub(super) blocks: Vec<Block>,
}

impl Configuration {
    /// The part that it is for.
    pub fn part(&self) -> &'static Part {
        self.part
    }

    /// The frames, one after the other.
    pub fn frames(&self) -> &[u8] {
        &self.frames
    }

    /// The contents that were written to block RAMs, in order.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// True if the part can be configured anew while it runs.
    pub fn is_background(&self) -> bool {
        self.control & BACKGROUND == BACKGROUND
    }

    /// Writes a frame. `false` if the part does not have it.
    pub(super) fn write_frame(&mut self, frame: u16, bytes: &[u8]) -> bool {
        let frame_len = self.part.frame_len;
        let mut places = self.frames.chunks_exact_mut(frame_len);
        let place = places.nth(usize::from(frame));
        place.is_some_and(|place| {
            let fits = place.len() == bytes.len();
            if fits {
                place.copy_from_slice(bytes);
            }
            fits
        })
    }

    /// Writes contents of block RAM in the place of those with the same address and length.
    pub(super) fn write_block(&mut self, block: Block) {
        let same = |old: &&mut Block| {
            old.address == block.address && old.content.len() == block.content.len()
        };
        match self.blocks.iter_mut().find(same) {
            Some(old) => *old = block,
            None => self.blocks.push(block),
        }
    }
}

/// A bitstream, checked: all frames of its part, each with its checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitstream {
    pub(super) configuration: Configuration,
    /// The other bytes, without checksums and the fillers behind frames.
    pub(super) envelope: Vec<u8>,
}

impl Bitstream {
    /// The part that the bitstream is for.
    pub fn part(&self) -> &'static Part {
        self.configuration.part
    }

    /// The frames, one after the other.
    pub fn frames(&self) -> &[u8] {
        &self.configuration.frames
    }

    /// The bytes that are neither frames nor follow from others.
    pub fn envelope(&self) -> &[u8] {
        &self.envelope
    }

    /// The part's configuration when the bitstream is loaded.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The part's configuration when the bitstream is loaded.
    pub fn into_configuration(self) -> Configuration {
        self.configuration
    }
}
