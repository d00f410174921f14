//! UDP encapsulation of ESP (RFC 3948).

/// The UDP port for UDP-encapsulated ESP, and for IKE behind a NAT.
pub const PORT: u16 = 4500;
pub const UDP_HEADER_LEN: usize = 8;

/// The contents of a datagram on the encapsulation port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Classified {
    /// A NAT keepalive: one 0xff byte (RFC 3948 §2.3). It is ignored.
    Keepalive,
    /// An IKE message behind four zero bytes (RFC 3948 §2.2).
    Ike,
    /// An ESP packet: it begins with a non-zero SPI (RFC 3948 §2.1).
    Esp,
    /// A datagram that is too short for any of these.
    Runt,
}

pub fn classify(payload: &[u8]) -> Classified {
    match payload {
        [0xff] => Classified::Keepalive,
        [0, 0, 0, 0, ..] => Classified::Ike,
        [_, _, _, _, ..] => Classified::Esp,
        _ => Classified::Runt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind() {
        assert_eq!(classify(&[0xff]), Classified::Keepalive);
        assert_eq!(classify(&[0, 0, 0, 0, 9]), Classified::Ike);
        assert_eq!(classify(&[0, 0, 1, 0]), Classified::Esp);
        assert_eq!(classify(&[0xff, 0xff, 0xff, 0xff]), Classified::Esp);
        for runt in [&[][..], &[0], &[0xfe], &[0xff, 0xff], &[0, 0, 0]] {
            assert_eq!(classify(runt), Classified::Runt);
        }
    }
}
