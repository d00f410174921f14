//! The numbers of certificates and of CRLs.

use x509_cert::der::{AnyRef, Tag, Tagged};

use crate::der;

/// Octets of the longest number: 20 of them, and a leading zero for the sign (RFC 5280 §4.1.2.2 and §5.2.3).
const OCTETS_MAX: usize = 21;

/// An INTEGER as it is encoded, without its header. Shorter ones are less, so non-negative numbers are in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Serial {
    len: u8,
    octets: [u8; OCTETS_MAX],
}

impl Serial {
    /// Reads an INTEGER. Returns `None` if it is too long, or is not encoded in the shortest way.
    pub(crate) fn from_der(der: &[u8]) -> Option<Self> {
        Self::new(der::element(der).ok()?)
    }

    pub(super) fn new(integer: AnyRef<'_>) -> Option<Self> {
        let value = integer.value();
        let shortest = match value {
            [] => false,
            [0, second, ..] => *second >= 0x80,
            [0xff, second, ..] => *second < 0x80,
            _ => true,
        };
        if integer.tag() != Tag::Integer || !shortest {
            return None;
        }
        let mut octets = [0; OCTETS_MAX];
        octets.get_mut(..value.len())?.copy_from_slice(value);
        let len = u8::try_from(value.len()).ok()?;
        Some(Self { len, octets })
    }

    /// The INTEGER with its header.
    pub(super) fn to_der(self) -> Vec<u8> {
        [&[2, self.len][..], self.octets()].concat()
    }

    fn octets(&self) -> &[u8] {
        self.octets.get(..self.len.into()).unwrap_or_default()
    }
}

impl std::fmt::Display for Serial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = match self.octets() {
            [0, rest @ ..] if !rest.is_empty() => rest,
            all => all,
        };
        digits.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl std::fmt::Debug for Serial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Serial({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 5280 R1, R6
    #[test]
    fn numbers_are_in_order_and_have_one_form() {
        let number = |der: &[u8]| Serial::from_der(der);
        let order = [
            number(b"\x02\x01\x00").unwrap(),
            number(b"\x02\x01\x7f").unwrap(),
            number(b"\x02\x02\x00\x80").unwrap(),
            number(b"\x02\x02\x01\x00").unwrap(),
        ];
        assert!(order.is_sorted_by(|a, b| a < b));
        assert_ne!(number(b"\x02\x01\x80"), number(b"\x02\x02\x00\x80"));
        assert_eq!(order[2].to_string(), "80");
        assert_eq!(order[0].to_string(), "00");
        let long = |len: u8| [&[2, len][..], &vec![1; len.into()]].concat();
        assert!(number(&long(21)).is_some());
        for bad in [
            b"\x02\x02\x00\x7f".as_slice(),
            b"\x02\x02\xff\x80",
            b"\x02\x00",
            b"\x04\x01\x00",
            &long(22),
        ] {
            assert_eq!(number(bad), None);
        }
    }
}
