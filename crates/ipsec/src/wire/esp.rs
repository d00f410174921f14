//! The ESP header and trailer (RFC 4303 §2).

use super::be32;

/// The length in bytes of SPI and sequence number.
pub const HEADER_LEN: usize = 8;
/// The length in bytes of pad length and next header.
pub const TRAILER_LEN: usize = 2;
/// IANA protocol number.
pub const PROTOCOL: u8 = 50;

/// The two ESP fields that are in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EspHeader {
    pub spi: u32,
    pub sequence_low: u32,
}

impl EspHeader {
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            spi: be32(bytes, 0)?,
            sequence_low: be32(bytes, 4)?,
        })
    }
}

/// Makes the ESP header. Only the low half of the sequence number is sent (RFC 4303 §2.2.1).
#[inline(always)]
pub(crate) fn header(spi: u32, sequence: u64) -> [u8; HEADER_LEN] {
    (u64::from(spi) << 32 | sequence & 0xffff_ffff).to_be_bytes()
}

/// Makes the ESP header and an IV of 8 bytes from the sequence number. The IV is unique because sequence numbers are.
#[inline(always)]
pub(crate) fn header_and_iv(spi: u32, sequence: u64) -> [u8; HEADER_LEN + 8] {
    let header = u64::from_be_bytes(header(spi, sequence));
    (u128::from(header) << 64 | u128::from(sequence)).to_be_bytes()
}

/// The fields of the trailer of an opened body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The length of the payload in bytes, without padding and trailer.
    pub payload_len: usize,
    pub next_header: u8,
}

/// Reads the trailer of an authenticated body. Returns `None` unless the padding is 1, 2, 3, … (RFC 4303 §2.4).
#[inline]
pub fn parse_trailer(body: &[u8]) -> Option<Trailer> {
    let (rest, &[padding_len, next_header]) = body.split_last_chunk::<TRAILER_LEN>()?;
    if let (Some(tail), Some(expected)) = (
        body.last_chunk::<8>(),
        SHORT_PADDING.get(usize::from(padding_len)),
    ) {
        // After the shift, the word ends with the padding (up to six bytes) and the pad length; the next header is
        // shifted out.
        let tail = u64::from_le_bytes(*tail) << 8 >> 8;
        let padding = tail >> (8 * (SHORT_PADDING.len() - 1 - usize::from(padding_len)));
        return (padding == *expected).then_some(Trailer {
            payload_len: rest.len() - usize::from(padding_len),
            next_header,
        });
    }
    let payload_len = rest.len().checked_sub(usize::from(padding_len))?;
    let expected = 1..=u8::MAX;
    let padding = rest.get(payload_len..)?;
    padding
        .iter()
        .copied()
        .eq(expected.take(padding.len()))
        .then_some(Trailer {
            payload_len,
            next_header,
        })
}

/// Padding of up to 6 bytes followed by the pad length, as little-endian numbers. The next header follows them.
const SHORT_PADDING: [u64; 7] = {
    let mut table = [0; 7];
    let mut len = 0;
    while len < table.len() {
        let mut at = 0;
        while at < len {
            table[len] |= (at as u64 + 1) << (8 * at);
            at += 1;
        }
        table[len] |= (len as u64) << (8 * len);
        len += 1;
    }
    table
};

/// Writes `padding_len` bytes of padding and the trailer (RFC 4303 §2.4). `behind` begins behind the payload and
/// reaches to the end of the ICV. The function may overwrite bytes of the ICV, which is computed later.
#[inline]
pub(crate) fn write_trailer(behind: &mut [u8], padding_len: usize, next_header: u8) {
    if let Some(&padding) = SHORT_PADDING.get(padding_len)
        && let Some(place) = behind.first_chunk_mut()
    {
        let trailer = padding | u64::from(next_header) << (8 * (padding_len + 1));
        *place = trailer.to_le_bytes();
        return;
    }
    let Some((padding, rest)) = behind.split_at_mut_checked(padding_len) else {
        return;
    };
    for (byte, value) in padding.iter_mut().zip(1..=u8::MAX) {
        *byte = value;
    }
    if let Some(trailer) = rest.first_chunk_mut() {
        *trailer = [padding_len as u8, next_header];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailer_is_bounded_by_the_body() {
        assert_eq!(parse_trailer(&[]), None);
        assert_eq!(parse_trailer(&[4]), None);
        assert_eq!(parse_trailer(&[1, 4]), None);
        let empty = Trailer {
            payload_len: 0,
            next_header: 59,
        };
        assert_eq!(parse_trailer(&[0, 59]), Some(empty));
        assert_eq!(parse_trailer(&[1, 2, 2, 59]), Some(empty));
        assert_eq!(parse_trailer(&[1, 3, 2, 59]), None);
        assert_eq!(parse_trailer(&[1, 2, 255, 59]), None);
    }

    // RFC 4303 R13, R14
    #[test]
    fn written_trailers_are_read_back() {
        for payload_len in 0..40 {
            for padding in 0..=255 {
                for icv in [0, 12] {
                    let mut body = vec![0xee; payload_len + padding + 2 + icv];
                    write_trailer(&mut body[payload_len..], padding, 4);
                    body.truncate(payload_len + padding + 2);
                    let trailer = parse_trailer(&body).expect("just written");
                    assert_eq!(trailer.payload_len, payload_len);
                    assert_eq!(trailer.next_header, 4);
                }
            }
        }
    }
}
