//! The ESP header and trailer (RFC 4303 §2).

use super::be32;

/// SPI and sequence number.
pub const HEADER_LEN: usize = 8;
/// Pad length and next header.
pub const TRAILER_LEN: usize = 2;
/// IANA protocol number.
pub const PROTOCOL: u8 = 50;

/// The two fields in the clear.
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

/// What the trailer says about an opened body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Length of the payload, without padding and trailer.
    pub payload_len: usize,
    pub next_header: u8,
}

/// Reads the trailer of an authenticated body. The padding must be 1, 2, 3, … (RFC 4303 §2.4).
pub fn parse_trailer(body: &[u8]) -> Option<Trailer> {
    let (rest, &[padding_len, next_header]) = body.split_last_chunk::<TRAILER_LEN>()?;
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

/// Writes padding and trailer behind a payload of `payload_len` bytes; `body` is payload to trailer.
pub(crate) fn write_trailer(body: &mut [u8], payload_len: usize, next_header: u8) {
    let Some((rest, trailer)) = body.split_last_chunk_mut::<TRAILER_LEN>() else {
        return;
    };
    let padding = rest.get_mut(payload_len..).unwrap_or_default();
    *trailer = [padding.len() as u8, next_header];
    for (byte, value) in padding.iter_mut().zip(1..=u8::MAX) {
        *byte = value;
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

    #[test]
    fn written_trailers_are_read_back() {
        for payload_len in 0..40 {
            for padding in 0..=255 {
                let mut body = vec![0xee; payload_len + padding + 2];
                write_trailer(&mut body, payload_len, 4);
                let trailer = parse_trailer(&body).expect("just written");
                assert_eq!(trailer.payload_len, payload_len);
                assert_eq!(trailer.next_header, 4);
            }
        }
    }
}
