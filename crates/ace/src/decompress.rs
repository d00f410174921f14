//! Reads what [`compress`](../compress/index.html) wrote, by memory reads alone.
//!
//! A phrase is a chain of symbols: each node of the dictionary has a symbol and the number of the node before it, and
//! the first node of a chain has its own number there. Chains are read from their end. The compressor therefore works
//! through its input from the end, so that chains give symbols in order.
//!
//! No part of this module allocates or panics, whatever the bytes are. Links lead to smaller numbers, so every chain
//! ends. The header gives the length of the output, so that every output does.

use core::fmt;

/// The first bytes of what the compressor writes.
pub const MAGIC: [u8; 4] = *b"ACEP";
/// The version of the format.
pub const VERSION: u8 = 1;
/// The widest codeword, in bits.
pub const WIDTH_MAX: u32 = 28;
/// The bytes in front of the list of parts.
pub const HEADER_LEN: usize = 12;
/// The bytes for each part in the header.
pub const PART_LEN: usize = 8;

/// The reason why compressed data is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackedError {
    /// The data does not begin with [`MAGIC`].
    Magic,
    /// The data has another version of the format.
    Version(u8),
    /// The data has codewords of no bits, or of more than [`WIDTH_MAX`].
    Width(u8),
    /// The dictionary has no phrase, or more than codewords can name.
    Phrases(u32),
    /// The data has no part.
    NoParts,
    /// The data has another length than its header says.
    Length {
        /// The bytes that the header asks for.
        wanted: u64,
        /// The bytes that are there.
        found: usize,
    },
    /// A codeword names a phrase that is not in the dictionary.
    Codeword {
        /// The number of the codeword in its part, from 0.
        at: u32,
        /// The phrase that it names.
        phrase: u32,
    },
    /// A phrase goes on with a phrase that comes later in the dictionary.
    Link {
        /// The phrase.
        phrase: u32,
        /// The phrase that its link names.
        link: u32,
    },
    /// The codewords of a part give fewer symbols than the header says.
    Short {
        /// The symbols that are missing.
        missing: u32,
    },
    /// The codewords of a part give more symbols than the header says.
    Long,
}

impl fmt::Display for PackedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Magic => write!(f, "the compressed data does not begin with `ACEP`"),
            Self::Version(version) => write!(
                f,
                "the compressed data has version {version} in byte 4; this program reads version {VERSION}"
            ),
            Self::Width(width) => write!(
                f,
                "byte 5 gives codewords {width} bits; they have 1 to {WIDTH_MAX}"
            ),
            Self::Phrases(phrases) => write!(
                f,
                "the dictionary has {phrases} phrases in bytes 8 to 11, which codewords of this width cannot name"
            ),
            Self::NoParts => write!(f, "the compressed data has no part in bytes 6 and 7"),
            Self::Length { wanted, found } => write!(
                f,
                "the compressed data has {found} bytes; its header asks for {wanted}"
            ),
            Self::Codeword { at, phrase } => write!(
                f,
                "codeword {at} names phrase {phrase}, which is not in the dictionary"
            ),
            Self::Link { phrase, link } => write!(
                f,
                "phrase {phrase} goes on with phrase {link}, which comes later"
            ),
            Self::Short { missing } => {
                write!(f, "the codewords end {missing} symbols before the output")
            }
            Self::Long => write!(f, "the codewords give more symbols than the output has"),
        }
    }
}

impl core::error::Error for PackedError {}

/// Compressed data whose header has been checked.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    bytes: &'a [u8],
    width: u32,
    phrases: u32,
    parts: u16,
    /// The byte after the dictionary.
    indices_at: usize,
}

impl<'a> Packed<'a> {
    /// Checks the header. It takes as many steps as there are parts.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PackedError> {
        let found = bytes.len();
        let short = |wanted: u64| PackedError::Length { wanted, found };
        let header: &[u8; HEADER_LEN] = bytes
            .first_chunk()
            .ok_or_else(|| short(HEADER_LEN as u64))?;
        let [m0, m1, m2, m3, version, width, p0, p1, n0, n1, n2, n3] = *header;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(PackedError::Magic);
        }
        if version != VERSION {
            return Err(PackedError::Version(version));
        }
        let bits = u32::from(width);
        if bits == 0 || bits > WIDTH_MAX {
            return Err(PackedError::Width(width));
        }
        let parts = u16::from_be_bytes([p0, p1]);
        if parts == 0 {
            return Err(PackedError::NoParts);
        }
        let phrases = u32::from_be_bytes([n0, n1, n2, n3]);
        if phrases == 0 || phrases > 1 << bits {
            return Err(PackedError::Phrases(phrases));
        }
        let dictionary_at = HEADER_LEN as u64 + u64::from(parts) * PART_LEN as u64;
        let indices_at = dictionary_at + dictionary_len(phrases, bits);
        let packed = Self {
            bytes,
            width: bits,
            phrases,
            parts,
            indices_at: usize::try_from(indices_at).map_err(|_| short(indices_at))?,
        };
        if dictionary_at > found as u64 {
            return Err(short(dictionary_at));
        }
        let indices: u64 = (0..parts)
            .map(|part| index_len(packed.extent(part).codewords, bits))
            .sum();
        match indices_at + indices {
            wanted if wanted == found as u64 => Ok(packed),
            wanted => Err(short(wanted)),
        }
    }

    /// The number of parts.
    pub fn parts(&self) -> u16 {
        self.parts
    }

    /// The bits of a codeword.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// The phrases of the dictionary.
    pub fn phrases(&self) -> u32 {
        self.phrases
    }

    /// The number of codewords of a part and of symbols of its output; none for a part that is not there.
    pub fn extent(&self, part: u16) -> Extent {
        let at = HEADER_LEN + usize::from(part) * PART_LEN;
        let bytes = self.bytes.get(at..at + PART_LEN);
        match bytes.and_then(|bytes| bytes.first_chunk::<PART_LEN>()) {
            Some(&[c0, c1, c2, c3, s0, s1, s2, s3]) if part < self.parts => Extent {
                codewords: u32::from_be_bytes([c0, c1, c2, c3]),
                symbols: u32::from_be_bytes([s0, s1, s2, s3]),
            },
            _ => Extent::default(),
        }
    }

    /// Begins to read a part. A part that is not there has no symbols.
    pub fn part(&self, part: u16) -> Symbols<'a> {
        let before: u64 = (0..part.min(self.parts))
            .map(|part| index_len(self.extent(part).codewords, self.width))
            .sum();
        let extent = self.extent(part);
        Symbols {
            packed: *self,
            // The sum was compared with the length of a slice.
            index_bit: (self.indices_at as u64 + before) * 8,
            extent,
            codewords_read: 0,
            missing: extent.symbols,
            link: None,
            failed: None,
        }
    }

    /// A node of the dictionary: its symbol and its link.
    fn node(&self, phrase: u32) -> (u8, u32) {
        let dictionary_at = HEADER_LEN as u64 + u64::from(self.parts) * PART_LEN as u64;
        let node_bits = u64::from(8 + self.width);
        let at = dictionary_at * 8 + u64::from(phrase) * node_bits;
        let bits = bits_at(self.bytes, at, 8 + self.width);
        let symbol = (bits >> self.width) & 0xff;
        let link = bits & ((1 << self.width) - 1);
        (symbol as u8, link as u32)
    }
}

/// The size of a part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// The codewords of its index.
    pub codewords: u32,
    /// The bytes of its output.
    pub symbols: u32,
}

/// The bytes that a dictionary takes.
pub(crate) fn dictionary_len(phrases: u32, width: u32) -> u64 {
    (u64::from(phrases) * u64::from(8 + width)).div_ceil(8)
}

/// The bytes that an index takes.
pub(crate) fn index_len(codewords: u32, width: u32) -> u64 {
    (u64::from(codewords) * u64::from(width)).div_ceil(8)
}

/// The `width` bits at a bit offset, the highest first. Bytes behind the end are zero.
fn bits_at(bytes: &[u8], at: u64, width: u32) -> u64 {
    let first = usize::try_from(at / 8).unwrap_or(usize::MAX);
    let mut word = [0; 8];
    let tail = bytes.get(first..).unwrap_or_default();
    match tail.first_chunk::<8>() {
        Some(whole) => word = *whole,
        None => word.iter_mut().zip(tail).for_each(|(to, from)| *to = *from),
    }
    // At most 7 bits in front and WIDTH_MAX + 8 bits wanted: 43 of 64.
    (u64::from_be_bytes(word) << (at % 8)) >> (64 - width)
}

/// The symbols of a part, in order.
#[derive(Debug, Clone)]
pub struct Symbols<'a> {
    packed: Packed<'a>,
    index_bit: u64,
    extent: Extent,
    codewords_read: u32,
    missing: u32,
    /// The node that is read next, inside a phrase.
    link: Option<u32>,
    failed: Option<PackedError>,
}

impl Symbols<'_> {
    /// The symbols that are still to come.
    pub fn remaining(&self) -> u32 {
        self.missing
    }

    /// The next symbol. After an error it gives the same error again.
    fn step(&mut self) -> Result<Option<u8>, PackedError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let phrase = match self.link {
            Some(link) => link,
            None if self.codewords_read == self.extent.codewords => {
                return match self.missing {
                    0 => Ok(None),
                    missing => Err(PackedError::Short { missing }),
                };
            }
            None => {
                let at = self.codewords_read;
                let width = self.packed.width;
                let bit = self.index_bit + u64::from(at) * u64::from(width);
                let phrase = bits_at(self.packed.bytes, bit, width) as u32;
                if phrase >= self.packed.phrases {
                    return Err(PackedError::Codeword { at, phrase });
                }
                self.codewords_read += 1;
                phrase
            }
        };
        let (symbol, link) = self.packed.node(phrase);
        if link > phrase {
            return Err(PackedError::Link { phrase, link });
        }
        self.missing = self.missing.checked_sub(1).ok_or(PackedError::Long)?;
        self.link = (link != phrase).then_some(link);
        Ok(Some(symbol))
    }

    /// Fills `out` as far as there are symbols, and returns how many there were. Fewer than `out` holds are the last.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, PackedError> {
        for (at, to) in out.iter_mut().enumerate() {
            match self.next().transpose()? {
                Some(symbol) => *to = symbol,
                None => return Ok(at),
            }
        }
        Ok(out.len())
    }
}

impl Iterator for Symbols<'_> {
    type Item = Result<u8, PackedError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        self.failed = step.err();
        step.transpose()
    }
}
