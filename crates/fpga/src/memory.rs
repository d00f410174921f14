//! Memory that driver and device share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Words that either side may write at any time. Who may write where is agreed on by the rings.
#[derive(Clone, Debug)]
pub struct Memory(Arc<[AtomicU32]>);

impl Memory {
    /// Zeros; `len` is in bytes.
    pub fn new(len: usize) -> Self {
        Self((0..len.div_ceil(4)).map(|_| AtomicU32::new(0)).collect())
    }

    /// In bytes.
    pub fn len(&self) -> usize {
        self.0.len() * 4
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The word at a byte address; what was stored before the word that is read can be read after it.
    pub fn load(&self, address: usize) -> Option<u32> {
        let word = self.0.get(address / 4)?;
        Some(word.load(Ordering::Acquire))
    }

    /// False if there is no such word. What was stored before is seen by who sees this.
    pub fn store(&self, address: usize, value: u32) -> bool {
        let word = self.0.get(address / 4);
        if let Some(word) = word {
            word.store(value, Ordering::Release);
        }
        word.is_some()
    }

    /// Copies out of memory from an address that is a multiple of four. False if it ends before.
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

    /// Copies into memory; bytes of the last word behind the end become zero. False if memory ends before.
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
