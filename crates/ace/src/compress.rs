//! Compression with a dictionary whose memory counts, after Dandalis, Prasanna and Rolim, "An Adaptive Cryptographic
//! Engine for IPSec Architectures".
//!
//! Several inputs can share a dictionary. docs/ace.md says how the paper's phases are read.

mod parse;
mod split;
mod trie;

use crate::decompress::{MAGIC, VERSION, WIDTH_MAX, dictionary_len, index_len};
use trie::{NONE, Trie};

/// How far an input is compressed. Each phase begins with the result of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// LZW with a dictionary without a limit. All its phrases are stored.
    Lzw,
    /// Only phrases that a codeword names are stored.
    One,
    /// Strings that phrases end with are removed where that saves memory.
    Two,
    /// Past the paper: inputs are read again with the fewest codewords, and phrases are removed until codewords can
    /// be narrower.
    Three,
}

/// Why an input cannot be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CompressError {
    /// There are more inputs than the header can count.
    #[error("{0} inputs share a dictionary; at most 65,535 can")]
    TooManyInputs(usize),
    /// An input has more bytes than the header can count.
    #[error("input {input} has {bytes} bytes, and all inputs together at most {INPUT_LEN_MAX}")]
    TooLong {
        /// The number of the input, from 0.
        input: usize,
        /// Its bytes.
        bytes: usize,
    },
    /// The inputs have no byte.
    #[error("the inputs are empty")]
    Empty,
}

/// The most bytes of all inputs together. It keeps the numbers of phrases below [`WIDTH_MAX`] bits.
pub const INPUT_LEN_MAX: usize = 1 << 27;

/// The memory that a dictionary and its indices take, as the paper counts it: without headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accounting {
    /// The codewords of all indices.
    pub codewords: u64,
    /// The phrases of the dictionary, which are its nodes.
    pub phrases: u64,
}

impl Accounting {
    /// The bits of a codeword: the smallest number that can tell the phrases apart, and at least one.
    pub fn width(&self) -> u32 {
        let last = self.phrases.saturating_sub(1);
        (u64::BITS - last.leading_zeros()).max(1)
    }

    /// The bits of all indices.
    pub fn index_bits(&self) -> u64 {
        self.codewords * u64::from(self.width())
    }

    /// The bits of the dictionary: a symbol of eight bits and a link for each phrase.
    pub fn dictionary_bits(&self) -> u64 {
        self.phrases * u64::from(8 + self.width())
    }

    /// All bits.
    pub fn bits(&self) -> u64 {
        self.index_bits() + self.dictionary_bits()
    }

    /// The compressed size in percent of an input of `bits` bits.
    pub fn percent(&self, bits: u64) -> f64 {
        self.bits() as f64 * 100.0 / bits as f64
    }
}

/// A dictionary, and for each input its index.
#[derive(Debug, Clone)]
pub struct Compressed {
    trie: Trie,
    indices: Vec<Index>,
}

/// The codewords of an input, from its end to its beginning.
#[derive(Debug, Clone)]
struct Index {
    codewords: Vec<u32>,
    symbols: u32,
}

/// Compresses inputs with one dictionary.
pub fn compress(inputs: &[&[u8]], phase: Phase) -> Result<Compressed, CompressError> {
    if inputs.len() > usize::from(u16::MAX) {
        return Err(CompressError::TooManyInputs(inputs.len()));
    }
    let mut total = 0;
    for (at, input) in inputs.iter().enumerate() {
        total += input.len();
        if total > INPUT_LEN_MAX {
            return Err(CompressError::TooLong {
                input: at,
                bytes: input.len(),
            });
        }
    }
    if total == 0 {
        return Err(CompressError::Empty);
    }
    let lzw = lzw(inputs);
    if phase == Phase::Lzw {
        return Ok(lzw);
    }
    let one = lzw.referenced();
    if phase == Phase::One {
        return Ok(one);
    }
    let two = split::phase_two(&one);
    let two = if two.accounting().bits() < one.accounting().bits() {
        two
    } else {
        one.clone()
    };
    match phase {
        Phase::Three => Ok(parse::phase_three(inputs, &one, two)),
        _ => Ok(two),
    }
}

/// LZW from the end of each input to its beginning. All 256 symbols are phrases from the start.
fn lzw(inputs: &[&[u8]]) -> Compressed {
    let mut trie = Trie::default();
    for symbol in 0..=u8::MAX {
        trie.add(NONE, symbol);
    }
    let indices = inputs.iter().map(|input| {
        let mut codewords = Vec::new();
        let mut phrase = NONE;
        for &symbol in input.iter().rev() {
            phrase = trie.child(phrase, symbol).unwrap_or_else(|| {
                codewords.push(phrase);
                trie.add(phrase, symbol);
                u32::from(symbol)
            });
        }
        if phrase != NONE {
            codewords.push(phrase);
        }
        Index {
            codewords,
            symbols: input.len() as u32,
        }
    });
    let indices = indices.collect();
    Compressed { trie, indices }
}

impl Compressed {
    /// The numbers that the paper's tables follow from.
    pub fn accounting(&self) -> Accounting {
        let codewords = self
            .indices
            .iter()
            .map(|index| index.codewords.len() as u64);
        Accounting {
            codewords: codewords.sum(),
            phrases: self.trie.len() as u64,
        }
    }

    /// The number of codewords that name each phrase.
    fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.trie.len()];
        for index in &self.indices {
            for &codeword in &index.codewords {
                counts[codeword as usize] += 1;
            }
        }
        counts
    }

    /// Phase I: only phrases that a codeword names. LZW makes a phrase when it has just named the phrase without the
    /// last symbol, so prefixes stay too.
    fn referenced(&self) -> Self {
        let counts = self.counts();
        self.keep(|phrase| counts[phrase] > 0)
    }

    /// Keeps phrases in their order, among them all that codewords name.
    fn keep(&self, kept: impl Fn(usize) -> bool) -> Self {
        let (trie, numbers) = self.trie.only(kept);
        let renumber = |index: &Index| Index {
            codewords: index
                .codewords
                .iter()
                .map(|&word| numbers[word as usize])
                .collect(),
            symbols: index.symbols,
        };
        let indices = self.indices.iter().map(renumber).collect();
        Self { trie, indices }
    }

    /// The bytes that [`Packed`](crate::decompress::Packed) reads.
    pub fn pack(&self) -> Vec<u8> {
        let width = self.accounting().width();
        debug_assert!(width <= WIDTH_MAX);
        let phrases = self.trie.len() as u32;
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[VERSION, width as u8]);
        bytes.extend_from_slice(&(self.indices.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&phrases.to_be_bytes());
        for index in &self.indices {
            bytes.extend_from_slice(&(index.codewords.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&index.symbols.to_be_bytes());
        }
        let dictionary_at = bytes.len();
        let mut bits = BitWriter::new(bytes);
        for (phrase, (&parent, &symbol)) in
            (0u32..).zip(self.trie.parents.iter().zip(&self.trie.symbols))
        {
            bits.write(u64::from(symbol), 8);
            // The link of a first symbol is its own number.
            let link = if parent == NONE { phrase } else { parent };
            bits.write(u64::from(link), width);
        }
        bits.align();
        let dictionary = (bits.bytes.len() - dictionary_at) as u64;
        debug_assert_eq!(dictionary, dictionary_len(phrases, width));
        for index in &self.indices {
            let before = bits.bytes.len();
            // Read from the beginning of the output.
            for &codeword in index.codewords.iter().rev() {
                bits.write(u64::from(codeword), width);
            }
            bits.align();
            let words = index.codewords.len() as u32;
            debug_assert_eq!((bits.bytes.len() - before) as u64, index_len(words, width));
        }
        bits.bytes
    }
}

/// Writes bits, the highest first.
struct BitWriter {
    bytes: Vec<u8>,
    pending: u64,
    pending_bits: u32,
}

impl BitWriter {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            pending: 0,
            pending_bits: 0,
        }
    }

    fn write(&mut self, value: u64, width: u32) {
        self.pending = self.pending << width | value;
        self.pending_bits += width;
        while self.pending_bits >= 8 {
            self.pending_bits -= 8;
            self.bytes.push((self.pending >> self.pending_bits) as u8);
        }
    }

    /// Fills the last byte with zeros.
    fn align(&mut self) {
        if self.pending_bits > 0 {
            self.write(0, 8 - self.pending_bits);
        }
    }
}
