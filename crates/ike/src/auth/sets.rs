//! A bound on the SETs that x509-cert decodes.

use x509_cert::der::{AnyRef, Decode, Reader, SliceReader, Tag, Tagged};

/// Attributes of one RDN. The names of certificates have one, and seldom two.
pub(super) const ELEMENTS_MAX: usize = 32;

/// The error text for a larger SET.
pub(super) const TOO_LARGE: &str = "a set has too many elements";

/// Says whether no SET has more elements. The decoder sorts them in a time that grows with the square of their
/// number, and an IKE message holds thousands. Malformed DER that stops this check stops the decoder too.
pub(super) fn sets_are_small(der: &[u8]) -> bool {
    let mut contents = vec![(false, der)];
    while let Some((is_set, content)) = contents.pop() {
        let Ok(mut reader) = SliceReader::new(content) else {
            continue;
        };
        let mut elements = 0;
        while !reader.is_finished()
            && let Ok(element) = AnyRef::decode(&mut reader)
        {
            elements += 1;
            if is_set && elements > ELEMENTS_MAX {
                return false;
            }
            if element.tag().is_constructed() {
                contents.push((element.tag() == Tag::Set, element.value()));
            }
        }
    }
    true
}
