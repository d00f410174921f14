//! The only door for DER: certificates, CRLs, answers of OCSP responders, attribute certificates, keys and names.
//!
//! The decoders behind it sort the elements of a SET OF by insertion. Their time grows with the square of the number,
//! and a message of IKE holds thousands. So [`decode`] counts before it decodes, whatever the tag of the set is. All
//! else here reads one element after the other, in a time that grows with the length.

use x509_cert::TbsCertificate;
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::{self, AnyRef, Decode, DecodeOwned, Reader, SliceReader, Tag, Tagged};

/// Elements of one set. The RDNs of certificates have one attribute, and seldom two.
pub(crate) const ELEMENTS_MAX: usize = 32;

/// Levels of nesting that are counted in. No decoder looks for a set below the tenth.
const LEVELS_MAX: usize = 32;

/// The first octet of an OBJECT IDENTIFIER.
const OBJECT_IDENTIFIER: u8 = 0x06;

pub(crate) type Result<T> = std::result::Result<T, DerError>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DerError {
    #[error("{0}")]
    Malformed(der::Error),
    #[error("a set has more than {ELEMENTS_MAX} elements")]
    LargeSet,
    #[error("an extension is there twice")]
    Twice,
}

impl From<der::Error> for DerError {
    fn from(error: der::Error) -> Self {
        Self::Malformed(error)
    }
}

/// Decodes one value, behind which there is nothing.
pub(crate) fn decode<T: DecodeOwned>(der: &[u8]) -> Result<T> {
    match sets_are_small(Tag::Sequence, der, LEVELS_MAX) {
        true => Ok(T::from_der(der)?),
        false => Err(DerError::LargeSet),
    }
}

/// Says whether no set in the content of an element has too many elements. Malformed DER that stops this check stops the
/// decoder too.
fn sets_are_small(parent: Tag, content: &[u8], levels: usize) -> bool {
    let Ok(mut reader) = SliceReader::new(content) else {
        return true;
    };
    let mut elements = 0;
    while !reader.is_finished()
        && let Ok(element) = AnyRef::decode(&mut reader)
    {
        elements += usize::from(can_be_of_set(parent, element));
        let tag = element.tag();
        let enter = tag.is_constructed() && levels > 0;
        if elements > ELEMENTS_MAX || (enter && !sets_are_small(tag, element.value(), levels - 1)) {
            return false;
        }
    }
    true
}

/// Says whether a decoder can take the element for one of a set. An implicit tag can stand in place of the set's own. The
/// only sets that are decoded so are those of attributes, SEQUENCE { OBJECT IDENTIFIER, … }.
fn can_be_of_set(parent: Tag, element: AnyRef<'_>) -> bool {
    match parent {
        Tag::Sequence => false,
        Tag::Set => true,
        _ => element.tag() == Tag::Sequence && element.value().first() == Some(&OBJECT_IDENTIFIER),
    }
}

/// Decodes an extension of a certificate, if it is there. It may come once (RFC 5280 §4.2).
pub(crate) fn extension<T: DecodeOwned + AssociatedOid>(tbs: &TbsCertificate) -> Result<Option<T>> {
    let all = tbs.extensions.iter().flatten();
    let mut found = all.filter(|extension| extension.extn_id == T::OID);
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => decode(one.extn_value.as_bytes()).map(Some),
        (Some(_), Some(_)) => Err(DerError::Twice),
    }
}

/// Reads one element, behind which there is nothing.
pub(crate) fn element(der: &[u8]) -> Result<AnyRef<'_>> {
    Ok(AnyRef::from_der(der)?)
}

/// Returns an element without its header.
pub(crate) fn value_of(der: &[u8]) -> Result<&[u8]> {
    Ok(element(der)?.value())
}

/// Reads elements one behind the other.
pub(crate) struct DerReader<'a>(SliceReader<'a>);

impl<'a> DerReader<'a> {
    pub(crate) fn new(content: &'a [u8]) -> Result<Self> {
        Ok(Self(SliceReader::new(content)?))
    }

    /// Reads the content of one element, which must have this tag and be alone.
    pub(crate) fn within(der: &'a [u8], tag: Tag) -> Result<Self> {
        let outer = element(der)?;
        outer.tag().assert_eq(tag)?;
        Self::new(outer.value())
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// The tag of the next element. It is `None` at the end, and if no such tag exists.
    pub(crate) fn next_tag(&self) -> Option<Tag> {
        self.0.peek_tag().ok()
    }

    /// The next element.
    pub(crate) fn element(&mut self) -> Result<AnyRef<'a>> {
        Ok(AnyRef::decode(&mut self.0)?)
    }

    /// The next element with its header.
    pub(crate) fn whole(&mut self) -> Result<&'a [u8]> {
        Ok(self.0.tlv_bytes()?)
    }

    /// The next element with its header, if it has this tag.
    pub(crate) fn optional(&mut self, tag: Tag) -> Result<Option<&'a [u8]>> {
        match self.next_tag() == Some(tag) {
            true => self.whole().map(Some),
            false => Ok(None),
        }
    }

    /// Decodes the next element.
    pub(crate) fn decode<T: DecodeOwned>(&mut self) -> Result<T> {
        decode(self.whole()?)
    }

    /// Returns `value`, if there is no further element.
    pub(crate) fn finish<T>(self, value: T) -> Result<T> {
        Ok(self.0.finish(value)?)
    }
}

#[cfg(test)]
mod tests {
    use x509_cert::ext::pkix::name::DistributionPointName;
    use x509_cert::name::RdnSequence;

    use super::*;

    fn tlv(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
        let content = parts.concat();
        let [.., high, low] = content.len().to_be_bytes();
        [&[tag, 0x82, high, low][..], &content].concat()
    }

    /// Attributes in falling order, which takes the most steps to sort.
    fn attributes(count: u8) -> Vec<Vec<u8>> {
        let attribute = |number: u8| {
            let value = [0x30, 10, 6, 3, 0x55, 4, 3, 0x0c, 3, number, number, number];
            value.to_vec()
        };
        (0..count).rev().map(attribute).collect()
    }

    #[test]
    fn a_set_is_small_under_any_tag() {
        for (count, small) in [(32, true), (33, false)] {
            let all = attributes(count);
            let plain = tlv(0x30, &[tlv(0x31, &all)]);
            let relative = tlv(0xa1, &all);
            let outcomes = [
                decode::<RdnSequence>(&plain).map(drop),
                decode::<DistributionPointName>(&relative).map(drop),
            ];
            // The decoder wants short lengths, and says so only when the sets are small.
            for outcome in outcomes {
                assert_eq!(outcome == Err(DerError::LargeSet), !small, "{outcome:?}");
            }
            for tag in [0x31, 0xa0, 0xbe, 0x61, 0xe1] {
                for outer in [0x30, 0x31, 0xa0] {
                    let der = tlv(outer, &[tlv(tag, &all)]);
                    let is_small = sets_are_small(Tag::Sequence, &der, LEVELS_MAX);
                    assert_eq!(is_small, small, "{tag:x} in {outer:x}");
                }
            }
        }
    }

    #[test]
    fn lists_may_be_long() {
        let name = vec![0x82, 1, b'a'];
        let subtree = vec![0x30, 3, 0x82, 1, b'a'];
        for der in [
            tlv(0x30, &attributes(200)),
            tlv(0xa0, &vec![name; 5000]),
            tlv(0xa0, &vec![subtree; 5000]),
        ] {
            assert!(sets_are_small(Tag::Sequence, &der, LEVELS_MAX));
        }
    }

    #[test]
    fn deep_nesting_ends() {
        let mut der = tlv(0x31, &attributes(33));
        for _ in 0..5000 {
            der = tlv(0x30, &[der]);
        }
        assert!(sets_are_small(Tag::Sequence, &der, LEVELS_MAX));
    }
}
