//! The commands of a bitstream, byte by byte.

use core::fmt;

use super::part::Part;

/// The longest header of text in front of the commands.
const TEXT_LEN_MAX: u32 = 4096;
/// The most filler bytes in a row between commands.
const FILLERS_MAX: u32 = 4096;
/// A filler byte. As a command it does nothing, and no checksum counts it there.
pub(super) const FILLER: u8 = 0xff;

/// The reason why a bitstream is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitstreamError {
    /// The bitstream does not begin with the header of a `.bit` file.
    Header,
    /// The text or the fillers in front of a command are too long.
    Long,
    /// The preamble is missing after the header.
    Preamble,
    /// A command is not known.
    Command(u8),
    /// The frames are compressed. A library compresses them better by itself.
    Compressed,
    /// The part is not known.
    Idcode(u32),
    /// Frames come before the command that names the part.
    NoPart,
    /// The bitstream does not have all frames of its part once.
    Frames {
        /// The frames of the part.
        wanted: u16,
        /// The frames that the command announces.
        found: u16,
    },
    /// A partial stream writes frames that the part does not have, or one frame twice.
    Frame(u32),
    /// A partial stream has an address that no frame has.
    Address(u32),
    /// A partial stream has frames in front of their address.
    NoAddress,
    /// The frames have no checksums of their own.
    NoChecksums(u8),
    /// A checksum is wrong.
    Checksum {
        /// The checksum of the bytes in front.
        wanted: u16,
        /// The checksum that is there.
        found: u16,
    },
    /// A filler has another value than 0xff.
    Filler(u8),
    /// The bitstream ends inside a command, or before it has started the part.
    End,
    /// The bitstream goes on when the part has been started.
    AfterEnd(u8),
}

impl fmt::Display for BitstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Header => write!(f, "no header of a .bit file (0xff 0x00)"),
            Self::Long => write!(
                f,
                "the text or the fillers in front of a command are too long"
            ),
            Self::Preamble => write!(f, "no preamble (0xff 0xff 0xbd 0xb3) after the header"),
            Self::Command(code) => write!(f, "unknown command {code:#04x}"),
            Self::Compressed => write!(
                f,
                "the frames are compressed; pack the configuration without compression"
            ),
            Self::Idcode(idcode) => write!(f, "unknown part with IDCODE {idcode:#010x}"),
            Self::NoPart => write!(f, "frames before VERIFY_ID"),
            Self::Frames { wanted, found } => {
                write!(f, "{found} frames where the part has {wanted}, once")
            }
            Self::Frame(frame) => write!(f, "frame {frame} is not there, or came already"),
            Self::Address(address) => write!(f, "no frame has the address {address:#06x}"),
            Self::NoAddress => write!(f, "frames before their address"),
            Self::NoChecksums(flags) => {
                write!(f, "frames without a checksum each (flags {flags:#04x})")
            }
            Self::Checksum { wanted, found } => {
                write!(f, "checksum {found:#06x}, but the bytes give {wanted:#06x}")
            }
            Self::Filler(byte) => write!(f, "filler {byte:#04x} instead of 0xff"),
            Self::End => write!(f, "the bitstream ends too early"),
            Self::AfterEnd(byte) => write!(f, "byte {byte:#04x} after ISC_PROGRAM_DONE"),
        }
    }
}

impl core::error::Error for BitstreamError {}

/// The byte that comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// A byte of the envelope: a command or its operands.
    Envelope,
    /// A byte of the envelope too: the contents of a block RAM.
    Block,
    /// A byte of a configuration frame.
    Frame,
    /// A byte that is 0xff.
    Filler,
    /// The first byte of a checksum of two.
    Checksum,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// The first two bytes.
    Header(u8),
    /// Text until 0xff.
    Text {
        read: u32,
    },
    /// Fillers, then 0xbd, 0xb3.
    Preamble {
        fillers: u32,
        half: bool,
    },
    Commands {
        fillers: u32,
    },
    Operands {
        code: u8,
        read: usize,
        wanted: usize,
    },
    Frame {
        left: u16,
        byte: usize,
    },
    FrameChecksum {
        left: u16,
    },
    FrameFiller {
        left: u16,
        byte: u8,
    },
    Blocks {
        left: u32,
    },
    Checksum,
}

/// Goes through a bitstream. It says which byte comes next, and takes it.
#[derive(Debug, Clone)]
pub struct Walker {
    state: State,
    crc: u16,
    part: Option<&'static Part>,
    /// The operands of the command, and the word after them.
    operands: [u8; 7],
    fillers_after_frame: u8,
    framed: bool,
    done: bool,
    /// The frame that comes next.
    frame: Option<u16>,
    /// The address of the next content of a block RAM.
    block: u32,
    /// Control register 0.
    control: u32,
    is_partial: bool,
}

impl Default for Walker {
    fn default() -> Self {
        Self {
            state: State::Header(0),
            crc: 0,
            part: None,
            operands: [0; 7],
            fillers_after_frame: 0,
            framed: false,
            done: false,
            frame: None,
            block: 0,
            control: 0,
            is_partial: false,
        }
    }
}

impl Walker {
    /// Goes through a partial stream: single frames, each with its address or behind the one before.
    pub fn partial() -> Self {
        Self {
            is_partial: true,
            ..Self::default()
        }
    }

    /// The byte that comes next.
    pub fn expected(&self) -> Expected {
        match self.state {
            State::Frame { .. } => Expected::Frame,
            State::FrameFiller { .. } => Expected::Filler,
            State::FrameChecksum { .. } | State::Checksum => Expected::Checksum,
            State::Blocks { .. } => Expected::Block,
            _ => Expected::Envelope,
        }
    }

    /// The part, as soon as the bitstream has named it.
    pub fn part(&self) -> Option<&'static Part> {
        self.part
    }

    /// The frame whose bytes come, from the one that a whole bitstream sends first.
    pub fn frame(&self) -> u16 {
        self.frame.unwrap_or_default()
    }

    /// The address of the block RAM's contents that come, as LSC_EBR_ADDRESS has it.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Control register 0, as the bitstream sets it.
    pub fn control(&self) -> u32 {
        self.control
    }

    /// Checks that the bitstream may end here.
    pub fn finish(&self) -> Result<(), BitstreamError> {
        match self.state {
            State::Commands { .. } if self.done && (self.framed || self.is_partial) => Ok(()),
            _ => Err(BitstreamError::End),
        }
    }

    /// The checksum that comes next. It is only asked for where one is expected.
    pub fn checksum(&mut self) -> u16 {
        self.count(0);
        self.count(0);
        let checksum = core::mem::take(&mut self.crc);
        self.state = match self.state {
            State::FrameChecksum { left } => {
                self.frame = self.frame.map(|frame| frame + 1);
                self.after_frame(left, 0)
            }
            _ => State::Commands { fillers: 0 },
        };
        checksum
    }

    /// Takes a byte that is no checksum.
    pub fn take(&mut self, byte: u8) -> Result<(), BitstreamError> {
        self.state = match self.state {
            State::Header(0) if byte == 0xff => State::Header(1),
            State::Header(1) if byte == 0 => State::Text { read: 0 },
            State::Header(_) => return Err(BitstreamError::Header),
            State::Text { .. } if byte == FILLER => State::Preamble {
                fillers: 0,
                half: false,
            },
            State::Text { read: TEXT_LEN_MAX } => return Err(BitstreamError::Long),
            State::Text { read } => State::Text { read: read + 1 },
            State::Preamble { fillers, half } => preamble(fillers, half, byte)?,
            State::Commands {
                fillers: FILLERS_MAX,
            } if byte == FILLER => {
                return Err(BitstreamError::Long);
            }
            State::Commands { fillers } if byte == FILLER => State::Commands {
                fillers: fillers + 1,
            },
            State::Commands { .. } => self.command(byte)?,
            State::Operands { code, read, wanted } => {
                self.count(byte);
                if let Some(operand) = self.operands.get_mut(read) {
                    *operand = byte;
                }
                match read + 1 {
                    read if read < wanted => State::Operands { code, read, wanted },
                    _ => self.act(code)?,
                }
            }
            State::Frame { left, byte: at } => {
                self.count(byte);
                match self.part {
                    Some(part) if at + 1 < part.frame_len => State::Frame { left, byte: at + 1 },
                    _ => State::FrameChecksum { left: left - 1 },
                }
            }
            State::FrameFiller { .. } if byte != FILLER => {
                return Err(BitstreamError::Filler(byte));
            }
            State::FrameFiller { left, byte: at } => {
                self.count(byte);
                self.after_frame(left, at + 1)
            }
            State::Blocks { left } => {
                self.count(byte);
                match left - 1 {
                    0 => {
                        // The next write without an address goes behind: eight words for each frame.
                        let [_, high, low, ..] = self.operands;
                        let words = 8 * u32::from(u16::from_be_bytes([high, low]));
                        self.block = self.block.wrapping_add(words);
                        State::Checksum
                    }
                    left => State::Blocks { left },
                }
            }
            // A checksum is taken by `checksum`.
            state @ (State::FrameChecksum { .. } | State::Checksum) => state,
        };
        Ok(())
    }

    fn after_frame(&self, left: u16, fillers: u8) -> State {
        match left {
            _ if fillers < self.fillers_after_frame => State::FrameFiller {
                left,
                byte: fillers,
            },
            0 => State::Commands { fillers: 0 },
            _ => State::Frame { left, byte: 0 },
        }
    }

    fn command(&mut self, code: u8) -> Result<State, BitstreamError> {
        if self.done {
            return Err(BitstreamError::AfterEnd(code));
        }
        self.count(code);
        let wanted = match code {
            LSC_WRITE_ADDRESS if self.is_partial => 7,
            LSC_PROG_CNTRL0 | ISC_PROGRAM_USERCODE | ISC_PROGRAM_SECURITY | SPI_MODE | JUMP
                if self.is_partial =>
            {
                return Err(BitstreamError::Command(code));
            }
            LSC_RESET_CRC | LSC_INIT_ADDRESS | ISC_PROGRAM_SECURITY | ISC_PROGRAM_DONE
            | LSC_PROG_INCR_RTI | LSC_EBR_WRITE | SPI_MODE => 3,
            VERIFY_ID | LSC_PROG_CNTRL0 | ISC_PROGRAM_USERCODE | LSC_EBR_ADDRESS | JUMP => 7,
            LSC_WRITE_COMP_DIC | LSC_PROG_INCR_CMP => return Err(BitstreamError::Compressed),
            _ => return Err(BitstreamError::Command(code)),
        };
        Ok(State::Operands {
            code,
            read: 0,
            wanted,
        })
    }

    /// Does what a command says when its operands are there.
    fn act(&mut self, code: u8) -> Result<State, BitstreamError> {
        let [flags, high, low, word @ ..] = self.operands;
        let count = u16::from_be_bytes([high, low]);
        match code {
            LSC_RESET_CRC => self.crc = 0,
            VERIFY_ID => {
                let idcode = u32::from_be_bytes(word);
                let part = Part::with_idcode(idcode);
                self.part = Some(part.ok_or(BitstreamError::Idcode(idcode))?);
            }
            LSC_PROG_CNTRL0 => self.control = u32::from_be_bytes(word),
            LSC_INIT_ADDRESS => self.frame = Some(0),
            LSC_WRITE_ADDRESS => {
                let address = u32::from_be_bytes(word);
                let frame = self.part.ok_or(BitstreamError::NoPart)?.frame_at(address);
                self.frame = Some(frame.ok_or(BitstreamError::Address(address))?);
            }
            LSC_PROG_INCR_RTI => return self.frames(flags, count),
            LSC_EBR_ADDRESS => self.block = u32::from_be_bytes(word),
            LSC_EBR_WRITE if count > 0 => {
                // A frame of block RAM is 72 bits.
                return Ok(State::Blocks {
                    left: u32::from(count) * 9,
                });
            }
            LSC_EBR_WRITE => return Ok(State::Checksum),
            ISC_PROGRAM_USERCODE if flags & 0x80 != 0 => return Ok(State::Checksum),
            ISC_PROGRAM_DONE => self.done = true,
            _ => (),
        }
        Ok(State::Commands { fillers: 0 })
    }

    /// Begins frames: all of the part once, or some of a partial stream.
    fn frames(&mut self, flags: u8, count: u16) -> Result<State, BitstreamError> {
        let part = self.part.ok_or(BitstreamError::NoPart)?;
        match self.frame {
            _ if !self.is_partial && (self.framed || count != part.frames) => {
                return Err(BitstreamError::Frames {
                    wanted: part.frames,
                    found: count,
                });
            }
            None if self.is_partial => return Err(BitstreamError::NoAddress),
            Some(first) if self.is_partial => {
                let end = u32::from(first) + u32::from(count);
                if count == 0 || end > u32::from(part.frames) {
                    return Err(BitstreamError::Frame(end));
                }
            }
            _ => self.frame = Some(0),
        }
        // A checksum, after each frame.
        if flags & 0xc0 != 0x80 {
            return Err(BitstreamError::NoChecksums(flags));
        }
        self.framed = true;
        self.fillers_after_frame = flags & 0x0f;
        Ok(State::Frame {
            left: count,
            byte: 0,
        })
    }

    fn count(&mut self, byte: u8) {
        self.crc = counted(self.crc, byte);
    }
}

/// A checksum over one more byte: CRC-16 with the polynomial 0x8005.
pub(super) fn counted(crc: u16, byte: u8) -> u16 {
    let [high, low] = crc.to_be_bytes();
    u16::from_be_bytes([low, byte]) ^ CRC[usize::from(high)]
}

fn preamble(fillers: u32, half: bool, byte: u8) -> Result<State, BitstreamError> {
    Ok(match (byte, half) {
        (FILLER, false) if fillers == FILLERS_MAX => return Err(BitstreamError::Long),
        (FILLER, false) => State::Preamble {
            fillers: fillers + 1,
            half,
        },
        (0xbd, false) if fillers >= 2 => State::Preamble {
            fillers,
            half: true,
        },
        (0xb3, true) => State::Commands { fillers: 0 },
        _ => return Err(BitstreamError::Preamble),
    })
}

const LSC_WRITE_COMP_DIC: u8 = 0x02;
const LSC_PROG_CNTRL0: u8 = 0x22;
pub(super) const LSC_RESET_CRC: u8 = 0x3b;
pub(super) const LSC_INIT_ADDRESS: u8 = 0x46;
pub(super) const ISC_PROGRAM_DONE: u8 = 0x5e;
const SPI_MODE: u8 = 0x79;
const JUMP: u8 = 0x7e;
pub(super) const LSC_PROG_INCR_RTI: u8 = 0x82;
pub(super) const LSC_EBR_WRITE: u8 = 0xb2;
pub(super) const LSC_WRITE_ADDRESS: u8 = 0xb4;
const LSC_PROG_INCR_CMP: u8 = 0xb8;
const ISC_PROGRAM_USERCODE: u8 = 0xc2;
const ISC_PROGRAM_SECURITY: u8 = 0xce;
pub(super) const VERIFY_ID: u8 = 0xe2;
pub(super) const LSC_EBR_ADDRESS: u8 = 0xf6;

const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut high = 0;
    while high < 256 {
        let mut crc = (high as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = crc << 1 ^ if crc >> 15 == 1 { 0x8005 } else { 0 };
            bit += 1;
        }
        table[high] = crc;
        high += 1;
    }
    table
};
