//! The frames that an ESP lane (`rtl/ace/ace_lane.sv`) takes and gives: docs/ace-cores.md, "The ESP lane".

use esplanade_crypto::{Direction, Job, JobStatus, KeyContext};
use zeroize::{Zeroize, Zeroizing};

use crate::algorithm::Need;

/// The longest body of a packet that a lane takes, in bytes.
pub const BODY_LEN_MAX: usize = 2000;
/// SPI, sequence number and IV.
const HEADER_LEN: usize = 16;
const ICV_LEN: usize = 16;
/// Words of the longest frame: the packet's, before its body and behind it.
const FRAME_WORDS_MAX: usize = 6 + BODY_LEN_MAX / 4 + ICV_LEN / 4;

/// Frames of words, one after the other. They may have keys and plaintext, so they are zeroised.
#[derive(Debug)]
pub struct Frames {
    words: Zeroizing<Vec<u32>>,
    ends: Vec<usize>,
    capacity: usize,
}

impl Frames {
    /// Room for so many words. It never grows, because the memory that a vector leaves is not zeroised.
    pub fn with_capacity(words: usize) -> Self {
        Self {
            words: Zeroizing::new(Vec::with_capacity(words)),
            ends: Vec::new(),
            capacity: words,
        }
    }

    /// Adds a frame. Returns false, and adds nothing, if there is no room for it.
    pub fn push(&mut self, frame: &[u32]) -> bool {
        let fits = self.words.len() + frame.len() <= self.capacity;
        if fits {
            self.words.extend_from_slice(frame);
            self.ends.push(self.words.len());
        }
        fits
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The frames, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts.zip(self.ends.iter().copied());
        ranges.filter_map(|(start, end)| self.words.get(start..end))
    }

    /// Removes and zeroises all frames.
    pub fn clear(&mut self) {
        self.words.zeroize();
        self.ends.clear();
    }
}

const KEY: u32 = 1 << 24;
const PACKET: u32 = 2 << 24;
const ESN: u32 = 1 << 17;
const OPEN: u32 = 1 << 16;
const SEALED: u32 = 1;
const OPENED: u32 = 2;
const NOT_AUTHENTIC: u32 = 3;

/// Words of a frame with a key: which, cipher key, nonce, inner and outer state of HMAC.
const KEY_WORDS: usize = 1 + 8 + 1 + 8 + 8;

/// Returns the frame that gives a lane its key, or `None` if no lane has the transform.
pub fn key_frame(key: &KeyContext) -> Option<Zeroizing<[u32; KEY_WORDS]>> {
    let material = key.material();
    Need::of(material.transform())?;
    let mut frame = Zeroizing::new([0; KEY_WORDS]);
    let (head, rest) = frame.split_first_mut()?;
    *head = KEY | (u32::from(material.transform().key_bits()) / 64 - 2);
    let (cipher, rest) = rest.split_at_mut(8);
    for (word, bytes) in cipher.iter_mut().zip(material.cipher_key().chunks_exact(4)) {
        *word = word_of(bytes)?;
    }
    let (nonce, states) = rest.split_first_mut()?;
    *nonce = word_of(material.salt())?;
    for (words, state) in states.chunks_exact_mut(8).zip(&material.hmac_states()?) {
        words.copy_from_slice(&**state);
    }
    Some(frame)
}

/// The frame of a packet, in memory that is zeroised.
#[derive(Debug)]
pub struct PacketFrame(Zeroizing<[u32; FRAME_WORDS_MAX]>);

impl Default for PacketFrame {
    fn default() -> Self {
        Self(Zeroizing::new([0; FRAME_WORDS_MAX]))
    }
}

impl PacketFrame {
    /// Makes the frame of a packet whose key a lane has. Returns `None` if the packet is not one that a lane takes.
    pub fn make(
        &mut self,
        direction: Direction,
        job: &Job,
        esn: bool,
        packet: &[u8],
    ) -> Option<&[u32]> {
        let body_len = packet.len().checked_sub(HEADER_LEN + ICV_LEN)?;
        if body_len > BODY_LEN_MAX || !body_len.is_multiple_of(4) {
            return None;
        }
        let (flags, taken) = match direction {
            Direction::Seal => (0, packet.len() - ICV_LEN),
            Direction::Open => (OPEN, packet.len()),
        };
        let esn = if esn { ESN } else { 0 };
        let (header, rest) = packet.get(..taken)?.split_at_checked(HEADER_LEN)?;
        let [spi, sequence, iv @ ..] = [0, 4, 8, 12].map(|at| header.get(at..at + 4));
        let high = (job.sequence >> 32) as u32;
        let head = PACKET | flags | esn | body_len as u32;
        let fixed = [
            head,
            word_of(spi?)?,
            word_of(sequence?)?,
            high,
            word_of(iv[0]?)?,
            word_of(iv[1]?)?,
        ];
        let words = fixed.len() + rest.len() / 4;
        let (to, behind) = self.0.get_mut(..words)?.split_at_mut(fixed.len());
        to.copy_from_slice(&fixed);
        for (word, bytes) in behind.iter_mut().zip(rest.chunks_exact(4)) {
            *word = word_of(bytes)?;
        }
        self.0.get(..words)
    }
}

/// Puts a lane's answer into the packet. Returns `None`, and leaves the packet as it is, if that is not an answer to it.
pub fn take_answer(direction: Direction, answer: &[u32], packet: &mut [u8]) -> Option<JobStatus> {
    let (head, words) = answer.split_first()?;
    let body_len = packet.len().checked_sub(HEADER_LEN + ICV_LEN)?;
    let written = match (head >> 24, direction) {
        (SEALED, Direction::Seal) => body_len + ICV_LEN,
        (OPENED, Direction::Open) => body_len,
        (NOT_AUTHENTIC, Direction::Open) if words.is_empty() => {
            packet.get_mut(HEADER_LEN..)?.fill(0);
            return Some(JobStatus::AuthFailed);
        }
        _ => return None,
    };
    if (head & 0xffff) as usize != body_len || 4 * words.len() != written {
        return None;
    }
    let to = packet.get_mut(HEADER_LEN..HEADER_LEN + written)?;
    for (bytes, word) in to.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    Some(JobStatus::Done)
}

fn word_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}
