//! Octets that stand for something else: hexadecimal digits of names, and IP addresses of certificates.

use std::net::IpAddr;

/// Returns the octets that the digits stand for. Colons are ignored. Returns `None` if there is no digit, an odd number
/// of digits, or another character.
pub fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits
        .chars()
        .filter(|c| *c != ':')
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    (!pairs.is_empty()).then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// The iPAddress of a subjectAltName (RFC 5280 §4.2.1.6).
pub(crate) fn ip_address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(octets).map(IpAddr::from);
    v4.or(v6).ok()
}
