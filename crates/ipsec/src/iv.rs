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

    /// Bytes of whole IVs that the pool still has.
    fn left(&self) -> usize {
        let left = POOL_LEN.saturating_sub(self.used);
        left - left % IV_LEN
    }

    /// Hands out an IV that was not handed out before.
    pub(crate) fn next(&mut self) -> Result<[u8; IV_LEN], RandomError> {
        if self.left() == 0 {
            (self.source)(&mut self.bytes[..])?;
            self.used = 0;
        }
        let next = self.bytes.get_mut(self.used..);
        let next = next.and_then(<[u8]>::first_chunk_mut::<IV_LEN>);
        // A pool that was just filled has an IV.
        let next = next.ok_or(RandomError)?;
        self.used += IV_LEN;
        // An IV that was handed out is never given again, not even after a failed refill.
        Ok(std::mem::take(next))
    }
}
