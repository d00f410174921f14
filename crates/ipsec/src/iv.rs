//! Unpredictable IVs for CBC (RFC 3602 §3), drawn in bulk.

use esplanade_crypto::random::RandomError;

/// Fills its argument with unpredictable bytes.
pub type RandomSource = fn(&mut [u8]) -> Result<(), RandomError>;

const POOL_LEN: usize = 4096;
const IV_LEN: usize = 16;

pub(crate) struct IvPool {
    source: RandomSource,
    bytes: Box<[u8; POOL_LEN]>,
    used: usize,
}

impl IvPool {
    pub(crate) fn new(source: RandomSource) -> Self {
        Self {
            source,
            bytes: Box::new([0; POOL_LEN]),
            used: POOL_LEN,
        }
    }

    pub(crate) fn next(&mut self) -> Result<[u8; IV_LEN], RandomError> {
        if self.used + IV_LEN > POOL_LEN {
            (self.source)(&mut self.bytes[..])?;
            self.used = 0;
        }
        let mut iv = [0; IV_LEN];
        let bytes = &mut self.bytes[self.used..self.used + IV_LEN];
        iv.copy_from_slice(bytes);
        // An IV that was handed out is never given again, not even after a failed refill.
        bytes.fill(0);
        self.used += IV_LEN;
        Ok(iv)
    }
}
