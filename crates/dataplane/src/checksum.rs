//! The Internet checksum (RFC 1071), computed with wide loads.
//!
//! Sums are taken over native-endian words. The one's complement sum does not depend on byte order
//! (RFC 1071 §2 (B)). So a folded sum that is stored with `to_ne_bytes` is correct on every
//! machine.

/// Adds up the 16-bit words of `bytes`. An odd last byte is padded with zero.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= 64 && is_x86_feature_detected!("avx2") {
        // SAFETY: the only obligation of `sum_avx2` is that the processor has AVX2, which was
        // checked above.
        return unsafe { sum_avx2(bytes) };
    }
    sum_generic(bytes)
}

/// Copies `source` to `target`, which has the same length, and returns the sum of the copied bytes.
#[inline]
pub fn copy_and_sum(target: &mut [u8], source: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if source.len() >= 64 && is_x86_feature_detected!("avx2") {
        // SAFETY: the only obligation of `copy_and_sum_avx2` is that the processor has AVX2, which
        // was checked above.
        return unsafe { copy_and_sum_avx2(target, source) };
    }
    copy_and_sum_generic(target, source)
}

/// Folds a sum to 16 bits.
#[inline]
pub fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// Returns the sum of the pseudo-header without its length field (RFC 9293 §3.1, RFC 8200 §8.1).
#[inline]
pub fn pseudo_header(addresses: &[u8], protocol: u8) -> u64 {
    sum_generic(addresses) + u64::from(u16::from(protocol).to_be())
}

/// Returns the length field of the pseudo-header as a term of a sum.
#[inline]
pub fn length_term(length: usize) -> u64 {
    // IPv6 has 32 bits for this length, but our packets are shorter than 64 KiB.
    u64::from((length as u16).to_be())
}

// Adds 32-bit words to eight independent 64-bit accumulators, which the compiler turns into vector
// adds. No carry is lost before 2^32 words.

#[inline(always)]
fn add_block(lanes: &mut [u64; 8], block: &[u8; 64]) {
    let (words, _) = block.as_chunks::<4>();
    for half in words.chunks_exact(8) {
        for (lane, word) in lanes.iter_mut().zip(half) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
}

#[inline(always)]
fn sum_tail(tail: &[u8]) -> u64 {
    let (words, rest) = tail.as_chunks::<4>();
    let mut total: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    let mut last = [0u8; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(last));
    total
}

#[inline(always)]
fn sum_generic(bytes: &[u8]) -> u64 {
    let (blocks, tail) = bytes.as_chunks::<64>();
    let mut lanes = [0u64; 8];
    for block in blocks {
        add_block(&mut lanes, block);
    }
    lanes.iter().sum::<u64>() + sum_tail(tail)
}

#[inline(always)]
fn copy_and_sum_generic(target: &mut [u8], source: &[u8]) -> u64 {
    let (blocks, tail) = source.as_chunks::<64>();
    let (target_blocks, target_tail) = target.as_chunks_mut::<64>();
    let mut lanes = [0u64; 8];
    for (to, from) in target_blocks.iter_mut().zip(blocks) {
        *to = *from;
        add_block(&mut lanes, from);
    }
    target_tail.copy_from_slice(tail);
    lanes.iter().sum::<u64>() + sum_tail(tail)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(bytes: &[u8]) -> u64 {
    sum_generic(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn copy_and_sum_avx2(target: &mut [u8], source: &[u8]) -> u64 {
    copy_and_sum_generic(target, source)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computes the checksum as RFC 1071 §1 describes it, over big-endian words.
    pub fn naive(bytes: &[u8], initial: u32) -> u16 {
        let mut total = initial;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            total = (total & 0xffff) + (total >> 16);
        }
        total as u16
    }

    proptest! {
        #[test]
        fn wide_sums_equal_the_naive_one(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let expected = naive(&bytes, 0);
            let same = |sum: u64| {
                // 0 and 0xffff both stand for zero in one's complement.
                let folded = u16::from_be(fold(sum));
                folded == expected || (folded.is_multiple_of(0xffff) && expected.is_multiple_of(0xffff))
            };
            prop_assert!(same(sum(&bytes)));
            prop_assert!(same(sum_generic(&bytes)));
            let mut copy = vec![0; bytes.len()];
            prop_assert!(same(copy_and_sum(&mut copy, &bytes)));
            prop_assert_eq!(copy, bytes);
        }
    }

    #[test]
    fn folding_keeps_every_carry() {
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(fold(0), 0);
        assert_eq!(fold(0x1_0000), 1);
        assert_eq!(fold(0x0001_0001_0001_0001), 4);
        assert_eq!(fold(0xffff_fffe_0000_0001), u16::MAX);
    }
}
