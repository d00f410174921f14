//! Partial streams: the frames in which a configuration differs from the one before, and block RAMs.
//!
//! The commands are those of Project Trellis' `ecppack --delta`, which writes each frame with its address. Here frames
//! behind one another have one address, and contents of block RAM follow.

use std::fmt;
use std::ops::Range;

use super::bitstream::{Bitstream, Configuration};
use super::walker::{
    FILLER, ISC_PROGRAM_DONE, LSC_EBR_ADDRESS, LSC_EBR_WRITE, LSC_PROG_INCR_RTI, LSC_RESET_CRC,
    LSC_WRITE_ADDRESS, VERIFY_ID, counted,
};

/// The reason why there is no partial stream from one configuration to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialError {
    /// The configurations are for different parts.
    Parts(&'static str, &'static str),
    /// The addresses of the part's frames are not known.
    NoAddresses(&'static str),
    /// The part would not take a partial stream, or none after it.
    NoBackground,
}

impl fmt::Display for PartialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parts(former, wanted) => {
                write!(f, "{former} has another configuration than {wanted}")
            }
            Self::NoAddresses(part) => write!(f, "the addresses of frames of {part} are not known"),
            Self::NoBackground => write!(
                f,
                "a configuration is not for background reconfiguration; pack it with ecppack --background"
            ),
        }
    }
}

impl std::error::Error for PartialError {}

/// The next bytes.
#[derive(Debug, Clone, Copy)]
enum Next {
    Begin,
    /// A frame of a run.
    Frame {
        run: usize,
        frame: u16,
    },
    Block(usize),
    End,
    Nothing,
}

/// A partial stream, written piece by piece.
#[derive(Debug)]
pub struct Partial {
    wanted: Bitstream,
    /// Frames that differ, from the one that a whole bitstream sends first.
    runs: Vec<Range<u16>>,
    next: Next,
    crc: u16,
}

/// Bytes of a command with operands of three bytes, and of one with a word behind them.
const COMMAND: usize = 4;
const COMMAND_WITH_WORD: usize = 8;
/// A checksum and a filler.
const FRAME_END: usize = 3;
/// A checksum after each frame, and one filler.
const FRAME_FLAGS: u8 = 0x91;
/// A checksum at the end.
const BLOCK_FLAGS: u8 = 0xd0;
const PREAMBLE: [u8; 8] = [0xff, 0xff, 0xbd, 0xb3, FILLER, FILLER, FILLER, FILLER];
/// Bytes of a frame of block RAM.
const BLOCK_FRAME: usize = 9;

impl Partial {
    /// Compares a configuration that is loaded with the one that is wanted.
    pub fn new(former: &Configuration, wanted: Bitstream) -> Result<Self, PartialError> {
        let part = wanted.part();
        if part != former.part() {
            return Err(PartialError::Parts(former.part().name, part.name));
        }
        if !part.has_addresses() {
            return Err(PartialError::NoAddresses(part.name));
        }
        if !former.is_background() || !wanted.configuration().is_background() {
            return Err(PartialError::NoBackground);
        }
        Ok(Self {
            runs: Self::runs(former, wanted.configuration()),
            wanted,
            next: Next::Begin,
            crc: 0,
        })
    }

    /// The frames in which two configurations of a part differ, from the one that a whole bitstream sends first.
    pub fn runs(former: &Configuration, wanted: &Configuration) -> Vec<Range<u16>> {
        let frame_len = wanted.part().frame_len;
        let pairs = former
            .frames()
            .chunks_exact(frame_len)
            .zip(wanted.frames().chunks_exact(frame_len));
        let mut runs: Vec<Range<u16>> = Vec::new();
        for (frame, _) in (0..).zip(pairs).filter(|(_, (one, other))| one != other) {
            match runs.last_mut() {
                Some(run) if run.end == frame => run.end += 1,
                _ => runs.push(frame..frame + 1),
            }
        }
        runs
    }

    /// The length of a partial stream with these frames. It does not depend on their addresses.
    pub fn len_of(runs: &[Range<u16>], wanted: &Bitstream) -> usize {
        let frames: usize = runs.iter().map(ExactSizeIterator::len).sum();
        let blocks = wanted.configuration().blocks().iter();
        let blocks: usize = blocks
            .map(|block| COMMAND_WITH_WORD + COMMAND + block.content.len() + 2)
            .sum();
        text_of(wanted).len()
            + PREAMBLE.len()
            + COMMAND
            + COMMAND_WITH_WORD
            + runs.len() * (COMMAND_WITH_WORD + COMMAND)
            + frames * (wanted.part().frame_len + FRAME_END)
            + blocks
            + COMMAND
            + 4
    }

    /// The stream's length.
    pub fn total_len(&self) -> usize {
        Self::len_of(&self.runs, &self.wanted)
    }

    /// The frames that it writes.
    pub fn frames(&self) -> usize {
        self.runs.iter().map(ExactSizeIterator::len).sum()
    }

    /// Appends the next bytes, up to `most` and what is behind of a frame or a block RAM. Returns `false` when there are
    /// none left.
    pub fn fill(&mut self, out: &mut Vec<u8>, most: usize) -> bool {
        while out.len() < most && !matches!(self.next, Next::Nothing) {
            self.next = self.write(out);
        }
        !matches!(self.next, Next::Nothing)
    }

    /// The part's configuration when the stream is loaded.
    pub fn into_wanted(self) -> Configuration {
        self.wanted.into_configuration()
    }

    fn write(&mut self, out: &mut Vec<u8>) -> Next {
        match self.next {
            Next::Begin => {
                out.extend_from_slice(text_of(&self.wanted));
                out.extend_from_slice(&PREAMBLE);
                out.extend_from_slice(&[LSC_RESET_CRC, 0, 0, 0]);
                let idcode = self.wanted.part().idcode;
                self.crc = command_with_word(out, 0, VERIFY_ID, idcode);
                self.frame_or_block(0)
            }
            Next::Frame { run, frame } => self.write_frame(out, run, frame),
            Next::Block(number) => self.write_block(out, number),
            Next::End => {
                out.extend_from_slice(&[ISC_PROGRAM_DONE, 0, 0, 0, FILLER, FILLER, FILLER, FILLER]);
                Next::Nothing
            }
            Next::Nothing => Next::Nothing,
        }
    }

    fn frame_or_block(&self, run: usize) -> Next {
        match self.runs.get(run) {
            Some(frames) => Next::Frame {
                run,
                frame: frames.start,
            },
            None => Next::Block(0),
        }
    }

    fn write_frame(&mut self, out: &mut Vec<u8>, run: usize, frame: u16) -> Next {
        let part = self.wanted.part();
        let Some(frames) = self.runs.get(run).cloned() else {
            return Next::Block(0);
        };
        if frame == frames.start {
            // `new` has checked that the part has addresses, and frames are the part's.
            let address = part.address(frame).unwrap_or_default();
            self.crc = command_with_word(out, self.crc, LSC_WRITE_ADDRESS, address);
            let [high, low] = (frames.len() as u16).to_be_bytes();
            let command = [LSC_PROG_INCR_RTI, FRAME_FLAGS, high, low];
            self.crc = written(out, self.crc, &command);
        }
        let mut bytes = self.wanted.frames().chunks_exact(part.frame_len);
        let bytes = bytes.nth(usize::from(frame)).unwrap_or_default();
        self.crc = written(out, self.crc, bytes);
        checksum(out, self.crc);
        self.crc = written(out, 0, &[FILLER]);
        match frame + 1 {
            frame if frame < frames.end => Next::Frame { run, frame },
            _ => self.frame_or_block(run + 1),
        }
    }

    fn write_block(&mut self, out: &mut Vec<u8>, number: usize) -> Next {
        let Some(block) = self.wanted.configuration().blocks().get(number) else {
            return Next::End;
        };
        let [high, low] = ((block.content.len() / BLOCK_FRAME) as u16).to_be_bytes();
        let command = [LSC_EBR_WRITE, BLOCK_FLAGS, high, low];
        self.crc = command_with_word(out, self.crc, LSC_EBR_ADDRESS, block.address);
        self.crc = written(out, self.crc, &command);
        self.crc = written(out, self.crc, &block.content);
        checksum(out, self.crc);
        self.crc = 0;
        Next::Block(number + 1)
    }
}

/// The header of text, with its end.
fn text_of(bitstream: &Bitstream) -> &[u8] {
    let envelope = bitstream.envelope();
    let end = envelope.iter().skip(2).position(|&byte| byte == FILLER);
    // A bitstream that was read has one.
    let end = end.map_or(0, |end| end + 3);
    envelope.get(..end).unwrap_or_default()
}

fn written(out: &mut Vec<u8>, crc: u16, bytes: &[u8]) -> u16 {
    out.extend_from_slice(bytes);
    bytes.iter().fold(crc, |crc, &byte| counted(crc, byte))
}

fn command_with_word(out: &mut Vec<u8>, crc: u16, code: u8, word: u32) -> u16 {
    let crc = written(out, crc, &[code, 0, 0, 0]);
    written(out, crc, &word.to_be_bytes())
}

fn checksum(out: &mut Vec<u8>, crc: u16) {
    let crc = counted(counted(crc, 0), 0);
    out.extend_from_slice(&crc.to_be_bytes());
}
