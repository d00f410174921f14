//! The Internet checksum (RFC 1071).

/// Adds 16-bit big-endian words to `sum`. The result can be passed to `sum` again or to [`fold`].
pub fn sum(mut sum: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        sum += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut last = [0; 4];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum to 16 bits and returns its one's complement.
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Returns true if the checksum of an IPv4 header without options is right. The sum of such a header is a multiple of
/// 0xffff in either byte order. The sum is not zero, because the version is not zero.
#[inline]
pub(crate) fn is_sound(header: &[u8; 20]) -> bool {
    let (words, _) = header.as_chunks::<4>();
    let words = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)));
    words.sum::<u64>().is_multiple_of(0xffff)
}

/// Returns the checksum after one 16-bit word changed from `old` to `new` (RFC 1624 equation 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc1071_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(0, &bytes)), !0xddf2);
        assert_eq!(fold(sum(0, &bytes[..7])), !0xddf2u16.wrapping_sub(0xf7));
    }

    #[test]
    fn a_header_is_sound_if_its_sum_says_so() {
        let mut header = [
            0x45, 0, 0, 84, 1, 2, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 100, 0, 0, 2,
        ];
        for value in 0..=u16::MAX {
            header[10..12].copy_from_slice(&value.to_be_bytes());
            assert_eq!(is_sound(&header), fold(sum(0, &header)) == 0, "{value:#x}");
        }
    }

    #[test]
    fn update_equals_recomputing() {
        let mut bytes = [0x45, 0x02, 0x12, 0x34, 0xff, 0xff, 0x00, 0x01];
        let before = fold(sum(0, &bytes));
        bytes[1] = 0x03;
        assert_eq!(fold(sum(0, &bytes)), update(before, 0x4502, 0x4503));
    }
}
