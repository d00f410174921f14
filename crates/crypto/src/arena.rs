//! The memory in which the packets of a batch lie.

use std::ops::{Deref, DerefMut};

/// Memory that an engine's device reaches by itself. It keeps its address and its length.
pub trait Memory: Send {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// A fixed number of bytes, on the heap or where an engine wants them. Dropping the arena gives them back to their
/// owner.
pub struct Arena(Kind);

enum Kind {
    Heap(Box<[u8]>),
    Device(Box<dyn Memory>),
}

impl Arena {
    /// An arena on the heap, filled with zeros.
    pub fn heap(len: usize) -> Self {
        Self(Kind::Heap(vec![0; len].into()))
    }

    pub fn of(memory: Box<dyn Memory>) -> Self {
        Self(Kind::Device(memory))
    }
}

impl Deref for Arena {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Heap(bytes) => bytes,
            Kind::Device(memory) => memory.bytes(),
        }
    }
}

impl DerefMut for Arena {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Heap(bytes) => bytes,
            Kind::Device(memory) => memory.bytes_mut(),
        }
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} bytes)", self.len())
    }
}

impl PartialEq for Arena {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}
