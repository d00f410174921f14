//! Key material on the heap. It is overwritten when it is dropped, and it is never printed.

use zeroize::Zeroizing;

/// Bytes that nobody may see by accident. Comparison takes constant time.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// An empty secret with room for `capacity` bytes. It must not grow beyond them: growing moves the bytes, and the
    /// old memory would not be overwritten.
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(capacity)))
    }

    /// The bytes themselves. The name makes every use easy to find in a review.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends bytes. They must fit the capacity given at the start.
    pub fn extend(&mut self, bytes: &[u8]) {
        debug_assert!(
            self.0.len() + bytes.len() <= self.0.capacity(),
            "a secret moved"
        );
        self.0.extend_from_slice(bytes);
    }

    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Returns a copy of `len` bytes from `offset` on, or `None` if there are fewer.
    pub fn part(&self, offset: usize, len: usize) -> Option<Self> {
        let end = offset.checked_add(len)?;
        self.0.get(offset..end).map(Self::from)
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        subtle::ConstantTimeEq::ct_eq(self.expose(), other.expose()).into()
    }
}

impl Eq for Secret {}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}
