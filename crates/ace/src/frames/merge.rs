//! A bitstream from its skeleton and its difference, by memory reads alone.

use core::fmt;

use super::part::Part;
use super::walker::{BitstreamError, Expected, FILLER, Walker};
use crate::decompress::{PackedError, Symbols};

/// The streams that a bitstream is merged from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeStream {
    /// The bits that all variants have in common, zero elsewhere.
    Skeleton,
    /// A one for each bit that is not in common.
    Mask,
    /// For each byte that the mask has ones in: the variant's bits there.
    Difference,
    /// The variant's bytes around its frames.
    Envelope,
}

/// The reason why a bitstream cannot be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeError {
    /// A stream cannot be decompressed.
    Packed(MergeStream, PackedError),
    /// A stream ends too early.
    Short(MergeStream),
    /// A stream is longer than the bitstream needs.
    Long(MergeStream),
    /// A byte of the difference has ones where the mask has none, or a byte of the skeleton where the mask has.
    Overlap(MergeStream),
    /// The bytes are no bitstream.
    Bitstream(BitstreamError),
}

impl fmt::Display for MergeStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Skeleton => "skeleton",
            Self::Mask => "mask",
            Self::Difference => "difference",
            Self::Envelope => "envelope",
        })
    }
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packed(stream, error) => write!(f, "{stream}: {error}"),
            Self::Short(stream) => write!(f, "the {stream} ends too early"),
            Self::Long(stream) => write!(f, "the {stream} is longer than the bitstream needs"),
            Self::Overlap(stream) => write!(f, "the {stream} does not fit the mask"),
            Self::Bitstream(error) => write!(f, "merged bitstream: {error}"),
        }
    }
}

impl core::error::Error for MergeError {}

/// The bytes of a bitstream, in order. After an error it gives the same error again.
#[derive(Debug, Clone)]
pub struct Merge<'a> {
    walker: Walker,
    skeleton: Symbols<'a>,
    mask: Symbols<'a>,
    difference: Symbols<'a>,
    envelope: Symbols<'a>,
    /// The second byte of a checksum whose first was given.
    pending: Option<u8>,
    failed: Option<MergeError>,
}

impl<'a> Merge<'a> {
    /// Begins a bitstream.
    pub fn new(
        skeleton: Symbols<'a>,
        mask: Symbols<'a>,
        difference: Symbols<'a>,
        envelope: Symbols<'a>,
    ) -> Self {
        Self {
            walker: Walker::default(),
            skeleton,
            mask,
            difference,
            envelope,
            pending: None,
            failed: None,
        }
    }

    /// The part, as soon as the bitstream has named it.
    pub fn part(&self) -> Option<&'static Part> {
        self.walker.part()
    }

    /// Fills `out` as far as there are bytes, and returns how many there were. Fewer than `out` holds are the last.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, MergeError> {
        for (at, to) in out.iter_mut().enumerate() {
            match self.next().transpose()? {
                Some(byte) => *to = byte,
                None => return Ok(at),
            }
        }
        Ok(out.len())
    }

    fn step(&mut self) -> Result<Option<u8>, MergeError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Some(byte) = self.pending.take() {
            return Ok(Some(byte));
        }
        let byte = match self.walker.expected() {
            Expected::Checksum => {
                let [first, second] = self.walker.checksum().to_be_bytes();
                self.pending = Some(second);
                return Ok(Some(first));
            }
            Expected::Filler => FILLER,
            Expected::Frame => self.frame_byte()?,
            Expected::Envelope | Expected::Block => {
                match read(MergeStream::Envelope, &mut self.envelope)? {
                    Some(byte) => byte,
                    None => return self.finish().map(|()| None),
                }
            }
        };
        self.walker.take(byte).map_err(MergeError::Bitstream)?;
        Ok(Some(byte))
    }

    fn frame_byte(&mut self) -> Result<u8, MergeError> {
        use MergeStream::{Difference, Mask, Skeleton};
        let common = wanted(Skeleton, &mut self.skeleton)?;
        let mask = wanted(Mask, &mut self.mask)?;
        let own = match mask {
            0 => 0,
            _ => wanted(Difference, &mut self.difference)?,
        };
        if common & mask != 0 {
            return Err(MergeError::Overlap(Skeleton));
        }
        if own & !mask != 0 {
            return Err(MergeError::Overlap(Difference));
        }
        Ok(common | own)
    }

    /// Checks that nothing is left over.
    fn finish(&mut self) -> Result<(), MergeError> {
        self.walker.finish().map_err(MergeError::Bitstream)?;
        let streams = [
            (MergeStream::Skeleton, &mut self.skeleton),
            (MergeStream::Mask, &mut self.mask),
            (MergeStream::Difference, &mut self.difference),
        ];
        for (stream, symbols) in streams {
            if read(stream, symbols)?.is_some() {
                return Err(MergeError::Long(stream));
            }
        }
        Ok(())
    }
}

fn read(stream: MergeStream, symbols: &mut Symbols<'_>) -> Result<Option<u8>, MergeError> {
    let symbol = symbols.next().transpose();
    symbol.map_err(|error| MergeError::Packed(stream, error))
}

fn wanted(stream: MergeStream, symbols: &mut Symbols<'_>) -> Result<u8, MergeError> {
    read(stream, symbols)?.ok_or(MergeError::Short(stream))
}

impl Iterator for Merge<'_> {
    type Item = Result<u8, MergeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        self.failed = step.err();
        step.transpose()
    }
}
