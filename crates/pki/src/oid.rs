//! Object identifiers as text.
//!
//! `const_oid` reads text with arithmetic that overflows, encodes arcs such as 128 wrongly, and panics when it prints
//! arcs that its own decoder accepts. So it is used for decoding only.

use x509_cert::der::asn1::ObjectIdentifier;

/// More arcs than any identifier in use has. The encoding holds fewer.
const ARCS_MAX: usize = 40;

/// Reads an object identifier such as `1.2.840.113549`. Returns `None` also if an arc is above 2^32 - 1, or if the
/// encoding has more than 39 bytes.
pub(crate) fn parse(text: &str) -> Option<ObjectIdentifier> {
    let mut arcs = text.splitn(ARCS_MAX, '.').map(arc);
    let (first, second) = (arcs.next()??, arcs.next()??);
    // ITU-T X.660 clause 6: there are three roots, and the first two have 40 arcs below them.
    if first > 2 || (first < 2 && second > 39) {
        return None;
    }
    let mut encoded = Vec::new();
    push_arc(&mut encoded, first * 40 + second);
    for arc in arcs {
        push_arc(&mut encoded, arc?);
    }
    ObjectIdentifier::from_bytes(&encoded).ok()
}

/// A number without a sign and without leading zeros.
fn arc(text: &str) -> Option<u64> {
    let plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    let number: u32 = text.parse().ok().filter(|_| plain)?;
    Some(number.into())
}

/// Seven bits in each byte; all bytes but the last have the high bit set (X.690 clause 8.19.2).
fn push_arc(encoded: &mut Vec<u8>, arc: u64) {
    let groups = (u64::BITS - arc.leading_zeros()).div_ceil(7).max(1);
    for group in (0..groups).rev() {
        let more = if group > 0 { 0x80 } else { 0 };
        encoded.push((arc >> (7 * group)) as u8 & 0x7f | more);
    }
}

pub(crate) fn dotted(oid: &ObjectIdentifier) -> String {
    let mut arcs = Vec::new();
    let mut arc = 0_u64;
    for byte in oid.as_bytes() {
        // No arc that was decoded has more than 35 bits.
        arc = arc << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if arcs.is_empty() {
                let first = (arc / 40).min(2);
                arcs.push(first.to_string());
                arc -= first * 40;
            }
            arcs.push(arc.to_string());
            arc = 0;
        }
    }
    arcs.join(".")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_read_is_printed() {
        for text in [
            "1.2.840.113549.1.9.1",
            "2.5.4.3",
            "0.9.2342.19200300.100.1.25",
            "1.3.128",
            "1.3.16384.128.0",
        ] {
            let oid = parse(text).unwrap();
            assert_eq!(dotted(&oid), text);
        }
        // The library does not accept a root of two bytes, as in the example of X.690 clause 8.19.5.
        assert_eq!(parse("2.999.3"), None);
        assert_eq!(parse("1.3.128").unwrap().as_bytes(), [0x2b, 0x81, 0x00]);
    }

    #[test]
    fn what_would_be_another_identifier_is_refused() {
        let long = format!("1.2{}", ".1".repeat(100_000));
        let digits = format!("1.2.{}", "9".repeat(100_000));
        for text in [
            "",
            "1",
            "1.",
            "1.2.",
            ".1.2.3",
            "1..2",
            "3.1.1",
            "1.40.1",
            "1.2.+3",
            "1.2.-3",
            "1.2.03",
            "1.2. 3",
            "1.2.99999999999",
            "1.2.4294967296",
            &long,
            &digits,
        ] {
            assert_eq!(parse(text), None, "{}", &text[..text.len().min(30)]);
        }
    }

    proptest! {
        #[test]
        fn any_encoding_that_decodes_can_be_printed(bytes in proptest::collection::vec(any::<u8>(), 0..39)) {
            if let Ok(oid) = ObjectIdentifier::from_bytes(&bytes) {
                prop_assert!(!dotted(&oid).is_empty());
            }
        }

        #[test]
        fn any_arcs_come_back(first in 0_u32..3, second in 0_u32..40, arcs in proptest::collection::vec(any::<u32>(), 1..7)) {
            let arcs: Vec<String> = [first, second].iter().chain(&arcs).map(u32::to_string).collect();
            let text = arcs.join(".");
            if let Some(oid) = parse(&text) {
                prop_assert_eq!(dotted(&oid), text);
            }
        }
    }
}
