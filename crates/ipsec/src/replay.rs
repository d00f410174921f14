//! Anti-replay (RFC 4303 §3.4.3) with extended sequence numbers (appendix A2).
//!
//! `check` reads and infers the high half before the ICV is verified; `commit` tests again and sets,
//! after it was verified: two copies of a packet can be in one batch.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub const WINDOW_MIN: u32 = 32;
pub const WINDOW_MAX: u32 = 4096;
const WORD_BITS: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("the sequence number was seen before")]
    Replayed,
    #[error("the sequence number lies left of the window")]
    BeforeWindow,
}

/// The window of one inbound SA. Workers share it; the lock is held for a run of packets of the SA.
#[derive(Debug)]
pub struct ReplayWindow(Mutex<Window>);

impl ReplayWindow {
    /// `size` is brought into bounds. Size 0 switches anti-replay off, which only an SA
    /// without ESN can do: the window is what the high half is inferred from (RFC 4303 §3.3.3).
    pub fn new(size: u32, esn: bool) -> Self {
        Self::starting_at(0, size, esn)
    }

    /// As if `top` were the highest sequence number received, for tests near the wrap.
    pub fn starting_at(top: u64, size: u32, esn: bool) -> Self {
        let enabled = size > 0 || esn;
        let size = u64::from(size.clamp(WINDOW_MIN, WINDOW_MAX));
        // One spare word, so that a word is cleared before any of its bits is in the window again.
        let words = size.div_ceil(WORD_BITS) as usize + 1;
        Self(Mutex::new(Window {
            top,
            size,
            esn,
            enabled,
            seen: vec![0; words.next_power_of_two()].into(),
        }))
    }

    pub fn lock(&self) -> MutexGuard<'_, Window> {
        // A panic elsewhere cannot leave the window half written: its updates do not panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A ring of bits: bit `n mod ring` says whether sequence number n was seen, for the `size` numbers up to
/// `top`. Moving forward clears whole words (RFC 6479).
#[derive(Debug)]
pub struct Window {
    top: u64,
    size: u64,
    esn: bool,
    enabled: bool,
    seen: Box<[u64]>,
}

impl Window {
    /// The highest sequence number authenticated.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// The number of sequence numbers that the window covers; 0 when anti-replay is off.
    pub fn size(&self) -> u64 {
        if self.enabled { self.size } else { 0 }
    }

    /// Infers the 64-bit sequence number and refuses what is surely a replay. Changes nothing.
    pub fn check(&self, sequence_low: u32) -> Result<u64, ReplayError> {
        let sequence = if self.esn {
            self.infer(sequence_low)?
        } else {
            u64::from(sequence_low)
        };
        self.test(sequence)?;
        Ok(sequence)
    }

    /// Marks an authenticated sequence number. Says whether it is the highest so far.
    pub fn commit(&mut self, sequence: u64) -> Result<bool, ReplayError> {
        self.test(sequence)?;
        let newest = sequence > self.top;
        if newest {
            self.advance(sequence);
        }
        if self.enabled {
            let (word, bit) = self.place(sequence);
            if let Some(word) = self.seen.get_mut(word) {
                *word |= bit;
            }
        }
        Ok(newest)
    }

    fn test(&self, sequence: u64) -> Result<(), ReplayError> {
        if !self.enabled || sequence > self.top {
            return Ok(());
        }
        // Number 0 is never sent (RFC 4303 §2.2).
        if sequence == 0 || self.top - sequence >= self.size {
            return Err(ReplayError::BeforeWindow);
        }
        let (word, bit) = self.place(sequence);
        match self.seen.get(word) {
            Some(word) if word & bit == 0 => Ok(()),
            _ => Err(ReplayError::Replayed),
        }
    }

    /// RFC 4303 appendix A2.2. The window spans `bottom..=top`; the names are the RFC's.
    fn infer(&self, sequence_low: u32) -> Result<u64, ReplayError> {
        let top_low = self.top as u32;
        let top_high = (self.top >> 32) as u32;
        let window = self.size as u32;
        let bottom = top_low.wrapping_sub(window - 1);
        let high = if top_low >= window - 1 {
            // Case A: the window lies within one subspace.
            if sequence_low >= bottom {
                Some(top_high)
            } else {
                top_high.checked_add(1)
            }
        } else if sequence_low >= bottom {
            // Case B: the window reaches into the subspace before.
            top_high.checked_sub(1)
        } else {
            Some(top_high)
        };
        let high = high.ok_or(ReplayError::BeforeWindow)?;
        Ok(u64::from(high) << 32 | u64::from(sequence_low))
    }

    fn place(&self, sequence: u64) -> (usize, u64) {
        let word = (sequence / WORD_BITS) as usize & (self.seen.len() - 1);
        (word, 1 << (sequence % WORD_BITS))
    }

    fn advance(&mut self, sequence: u64) {
        let words = self.seen.len() as u64;
        let from = self.top / WORD_BITS;
        let to = sequence / WORD_BITS;
        for word in 1..=(to - from).min(words) {
            let index = (from + word) as usize & (self.seen.len() - 1);
            if let Some(word) = self.seen.get_mut(index) {
                *word = 0;
            }
        }
        self.top = sequence;
    }
}
