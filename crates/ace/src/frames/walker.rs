//! The commands of a bitstream, byte by byte.

use core::fmt;

/// A part whose frames are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The maker's name for it.
    pub name: &'static str,
    /// The number that the command VERIFY_ID compares.
    pub idcode: u32,
    /// The frames of a whole configuration.
    pub frames: u16,
    /// The bytes of a frame.
    pub frame_len: usize,
}

const fn part(name: &'static str, idcode: u32, frames: u16, frame_len: usize) -> Part {
    Part {
        name,
        idcode,
        frames,
        frame_len,
    }
}

/// Project Trellis, `devices.json`.
const PARTS: [Part; 10] = [
    part("LFE5U-12F", 0x2111_1043, 7562, 74),
    part("LFE5U-25F", 0x4111_1043, 7562, 74),
    part("LFE5U-45F", 0x4111_2043, 9470, 106),
    part("LFE5U-85F", 0x4111_3043, 13294, 142),
    part("LFE5UM-25F", 0x0111_1043, 7562, 74),
    part("LFE5UM-45F", 0x0111_2043, 9470, 106),
    part("LFE5UM-85F", 0x0111_3043, 13294, 142),
    part("LFE5UM5G-25F", 0x8111_1043, 7562, 74),
    part("LFE5UM5G-45F", 0x8111_2043, 9470, 106),
    part("LFE5UM5G-85F", 0x8111_3043, 13294, 142),
];

impl Part {
    /// The part with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PARTS.iter().find(|part| part.name == name)
    }
}

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
    /// A byte of the envelope: a command, its operands, the contents of block RAMs.
    Envelope,
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
        }
    }
}

impl Walker {
    /// The byte that comes next.
    pub fn expected(&self) -> Expected {
        match self.state {
            State::Frame { .. } => Expected::Frame,
            State::FrameFiller { .. } => Expected::Filler,
            State::FrameChecksum { .. } | State::Checksum => Expected::Checksum,
            _ => Expected::Envelope,
        }
    }

    /// The part, as soon as the bitstream has named it.
    pub fn part(&self) -> Option<&'static Part> {
        self.part
    }

    /// Checks that the bitstream may end here.
    pub fn finish(&self) -> Result<(), BitstreamError> {
        match self.state {
            State::Commands { .. } if self.done && self.framed => Ok(()),
            _ => Err(BitstreamError::End),
        }
    }

    /// The checksum that comes next. It is only asked for where one is expected.
    pub fn checksum(&mut self) -> u16 {
        self.count(0);
        self.count(0);
        let checksum = core::mem::take(&mut self.crc);
        self.state = match self.state {
            State::FrameChecksum { left } => self.after_frame(left, 0),
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
                    0 => State::Checksum,
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
                let part = PARTS.iter().find(|part| part.idcode == idcode);
                self.part = Some(part.ok_or(BitstreamError::Idcode(idcode))?);
            }
            LSC_PROG_INCR_RTI => {
                let part = self.part.ok_or(BitstreamError::NoPart)?;
                if self.framed || count != part.frames {
                    return Err(BitstreamError::Frames {
                        wanted: part.frames,
                        found: count,
                    });
                }
                // A checksum, after each frame.
                if flags & 0xc0 != 0x80 {
                    return Err(BitstreamError::NoChecksums(flags));
                }
                self.framed = true;
                self.fillers_after_frame = flags & 0x0f;
                return Ok(State::Frame {
                    left: count,
                    byte: 0,
                });
            }
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

    /// The checksum over one more byte: CRC-16 with the polynomial 0x8005.
    fn count(&mut self, byte: u8) {
        let [high, low] = self.crc.to_be_bytes();
        self.crc = u16::from_be_bytes([low, byte]) ^ CRC[usize::from(high)];
    }
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
const LSC_RESET_CRC: u8 = 0x3b;
const LSC_INIT_ADDRESS: u8 = 0x46;
const ISC_PROGRAM_DONE: u8 = 0x5e;
const SPI_MODE: u8 = 0x79;
const JUMP: u8 = 0x7e;
const LSC_PROG_INCR_RTI: u8 = 0x82;
const LSC_EBR_WRITE: u8 = 0xb2;
const LSC_PROG_INCR_CMP: u8 = 0xb8;
const ISC_PROGRAM_USERCODE: u8 = 0xc2;
const ISC_PROGRAM_SECURITY: u8 = 0xce;
const VERIFY_ID: u8 = 0xe2;
const LSC_EBR_ADDRESS: u8 = 0xf6;

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
