//! A bitstream as a whole.

use super::walker::{BitstreamError, Expected, Part, Walker};

/// The longest bitstream that is read. The largest part's has 2.0 MB, and block RAMs may follow.
pub const BITSTREAM_LEN_MAX: usize = 8 << 20;

/// A bitstream, checked: all frames of its part, each with its checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitstream {
    part: &'static Part,
    /// The frames, one after the other, as the part gets them.
    frames: Vec<u8>,
    /// The other bytes, without checksums and the fillers behind frames.
    envelope: Vec<u8>,
}

impl Bitstream {
    /// Reads a `.bit` file. An error comes with the offset of the byte that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, (usize, BitstreamError)> {
        if bytes.len() > BITSTREAM_LEN_MAX {
            return Err((BITSTREAM_LEN_MAX, BitstreamError::Long));
        }
        let (mut walker, mut frames, mut envelope) = (Walker::default(), Vec::new(), Vec::new());
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match walker.expected() {
                Expected::Checksum => {
                    let wanted = walker.checksum();
                    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
                    let found = u16::from_be_bytes(*found.ok_or((at, BitstreamError::End))?);
                    if found != wanted {
                        return Err((at, BitstreamError::Checksum { wanted, found }));
                    }
                    at += 2;
                    continue;
                }
                Expected::Frame => frames.push(byte),
                Expected::Envelope => envelope.push(byte),
                Expected::Filler => (),
            }
            walker.take(byte).map_err(|error| (at, error))?;
            at += 1;
        }
        walker.finish().map_err(|error| (at, error))?;
        let part = walker.part().ok_or((at, BitstreamError::NoPart))?;
        Ok(Self {
            part,
            frames,
            envelope,
        })
    }

    /// The part that the bitstream is for.
    pub fn part(&self) -> &'static Part {
        self.part
    }

    /// The frames, one after the other.
    pub fn frames(&self) -> &[u8] {
        &self.frames
    }

    /// The bytes that are neither frames nor follow from others.
    pub fn envelope(&self) -> &[u8] {
        &self.envelope
    }
}
