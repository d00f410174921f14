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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// How often the source was asked.
        static ASKED: Cell<u8> = const { Cell::new(0) };
    }

    /// Fails the second time, when it has written one half.
    fn source(bytes: &mut [u8]) -> Result<(), RandomError> {
        let asked = ASKED.get() + 1;
        ASKED.set(asked);
        let half = bytes.len() / 2;
        match asked {
            2 => bytes[..half].fill(asked),
            _ => bytes.fill(asked),
        }
        if asked == 2 { Err(RandomError) } else { Ok(()) }
    }

    #[test]
    fn an_iv_leaves_the_pool_when_it_is_handed_out() {
        let mut pool = IvPool::new(source);
        for count in 1..=POOL_LEN / IV_LEN {
            assert!(pool.next().is_ok_and(|iv| iv == [1; IV_LEN]));
            let (gone, left) = pool.bytes.split_at(count * IV_LEN);
            assert!(gone.iter().all(|byte| *byte == 0));
            assert!(left.iter().all(|byte| *byte == 1));
        }
    }

    #[test]
    fn a_failed_refill_gives_no_iv() {
        let mut pool = IvPool::new(source);
        while ASKED.get() < 2 {
            let iv = pool.next();
            assert_eq!(iv.is_ok(), ASKED.get() == 1);
        }
        assert!(pool.next().is_ok_and(|iv| iv == [3; IV_LEN]));
    }
}
