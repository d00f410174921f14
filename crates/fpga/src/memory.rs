//! Memory that driver and device share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// An array of words that either side may write at any time. The rings define who may write where.
#[derive(Clone, Debug)]
pub struct Memory(Arc<[AtomicU32]>);

impl Memory {
    /// Makes memory of `len` bytes, rounded up to whole words and filled with zeros.
    pub fn new(len: usize) -> Self {
        Self((0..len.div_ceil(4)).map(|_| AtomicU32::new(0)).collect())
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len() * 4
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Loads the word at a byte address, or `None` outside of memory. The load acquires: it also makes visible what the
    /// other side stored before that word.
    pub fn load(&self, address: usize) -> Option<u32> {
        let word = self.0.get(address / 4)?;
        Some(word.load(Ordering::Acquire))
    }

    /// Stores a word at a byte address; returns false outside of memory. The store releases: whoever loads the word
    /// also sees what was stored before.
    pub fn store(&self, address: usize, value: u32) -> bool {
        let word = self.0.get(address / 4);
        if let Some(word) = word {
            word.store(value, Ordering::Release);
        }
        word.is_some()
    }

    /// Copies bytes out of memory. The address must be a multiple of four. Returns false if memory ends before the
    /// bytes do.
    pub fn copy_out(&self, address: usize, bytes: &mut [u8]) -> bool {
        let first = address / 4;
        let Some(words) = self.0.get(first..first + bytes.len().div_ceil(4)) else {
            return false;
        };
        for (chunk, word) in bytes.chunks_mut(4).zip(words) {
            let word = word.load(Ordering::Relaxed).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        true
    }

    /// Copies bytes into memory. The rest of the last word becomes zero. Returns false if memory ends before the
    /// bytes do.
    pub fn copy_in(&self, address: usize, bytes: &[u8]) -> bool {
        let first = address / 4;
        let Some(words) = self.0.get(first..first + bytes.len().div_ceil(4)) else {
            return false;
        };
        for (chunk, word) in bytes.chunks(4).zip(words) {
            let mut value = [0; 4];
            value[..chunk.len()].copy_from_slice(chunk);
            word.store(u32::from_le_bytes(value), Ordering::Relaxed);
        }
        fence(Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let memory = Memory::new(32);
        let bytes: Vec<u8> = (1..=11).collect();
        assert!(memory.copy_in(8, &bytes));
        let mut copy = [0; 11];
        assert!(memory.copy_out(8, &mut copy));
        assert_eq!(copy, bytes[..]);
        assert_eq!(memory.load(16), Some(0x000b_0a09));
        assert!(memory.copy_in(28, &[1, 2, 3, 4]));
        assert!(!memory.copy_in(28, &[0; 5]) && !memory.copy_out(24, &mut [0; 9]));
        assert!(!memory.store(32, 0) && memory.load(32).is_none());
    }
}
