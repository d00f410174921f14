//! The Encrypted payload (RFC 7296 §3.14, and RFC 5282 for AEADs), and the Encrypted Fragment payload (RFC 7383 §2.5).

use esplanade_crypto::random;
use esplanade_crypto::sk::SkKey;
use zeroize::Zeroizing;

use crate::wire::{
    self, DecodeError, EncodeError, Encrypted, EncryptedFragment, FragmentPlace, HEADER_LEN,
    Header, Message, Payload, PayloadType,
};

const GENERIC_HEADER_LEN: usize = 4;
/// Fragment Number and Total Fragments.
const FRAGMENT_FIELDS_LEN: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Random(#[from] random::RandomError),
    #[error("the IV counter of this IKE SA is used up")]
    Exhausted,
    #[error("the cipher refused the message")]
    Cipher,
}

/// The reason why a protected message is not used. Anybody can cause all errors but [`OpenError::Inner`], so these
/// errors get no answer. `Inner` comes from the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Outer(DecodeError),
    #[error("the message has no Encrypted payload")]
    NotEncrypted,
    #[error("the message does not authenticate")]
    Forged,
    /// The message is authentic, and its content is malformed. RFC 7296 §2.21 asks for an answer to a request.
    #[error("inside the Encrypted payload: {error}")]
    Inner { header: Header, error: DecodeError },
}

/// The content of an Encrypted payload: its payloads, and the type of the first one.
pub(crate) struct PlainContent {
    pub(super) first: PayloadType,
    pub(super) bytes: Zeroizing<Vec<u8>>,
}

impl PlainContent {
    pub(crate) fn encode(payloads: &[Payload]) -> Result<Self, EncodeError> {
        let mut bytes = Zeroizing::new(Vec::new());
        let first = wire::encode_chain(payloads, &mut bytes)?;
        Ok(Self { first, bytes })
    }
}

impl std::fmt::Debug for PlainContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PlainContent({} bytes)", self.bytes.len())
    }
}

/// Protects the messages of one direction.
#[derive(Debug)]
pub struct Sealer {
    key: SkKey,
    /// The next IV of an AEAD. It is a counter, so that no IV repeats (RFC 5282 §3.1). Message IDs have 32 bits and
    /// fragments 16, so that it never comes near its end.
    next_iv: u64,
}

impl Sealer {
    pub(super) fn new(key: SkKey) -> Self {
        Self { key, next_iv: 1 }
    }

    /// Makes a datagram of `header` and one Encrypted payload that contains `payloads`. Keep the datagram for
    /// retransmission: sealing again gives other bytes.
    pub fn seal(&mut self, header: &Header, payloads: &[Payload]) -> Result<Vec<u8>, SealError> {
        self.seal_content(header, &PlainContent::encode(payloads)?)
    }

    pub(crate) fn seal_content(
        &mut self,
        header: &Header,
        content: &PlainContent,
    ) -> Result<Vec<u8>, SealError> {
        let first = content.first;
        self.seal_as(header, &content.bytes, |body| {
            Payload::Encrypted(Encrypted { first, body })
        })
    }

    /// The length of the datagram that [`Sealer::seal_content`] makes.
    pub(crate) fn sealed_len(&self, content: &PlainContent) -> usize {
        let padded = (content.bytes.len() + 1).next_multiple_of(self.key.block_len());
        HEADER_LEN + GENERIC_HEADER_LEN + self.key.iv_len() + padded + self.key.icv_len()
    }

    /// The number of fragments that [`Sealer::seal_fragments`] makes. Returns `None` if it makes none.
    pub(crate) fn fragment_count(&self, content: &PlainContent, longest: usize) -> Option<u16> {
        let fragments = content.bytes.chunks(self.fragment_room(longest)?);
        u16::try_from(fragments.len().max(1)).ok()
    }

    /// Cuts the content into fragments of at most `longest` bytes. Each fragment has an IV, padding and an ICV of its
    /// own (RFC 7383 §2.5).
    pub(crate) fn seal_fragments(
        &mut self,
        header: &Header,
        content: &PlainContent,
        longest: usize,
    ) -> Result<Vec<Vec<u8>>, SealError> {
        let too_long = EncodeError {
            place: "message",
            problem: "it cannot be cut into fragments",
        };
        let total = self.fragment_count(content, longest).ok_or(too_long)?;
        let room = self.fragment_room(longest).ok_or(too_long)?;
        if self.sealed_len(content) > wire::MESSAGE_LEN_MAX {
            return Err(too_long.into());
        }
        let mut parts = content.bytes.chunks(room);
        let seal = |number| {
            // Only the first fragment tells the type of the first payload (RFC 7383 §2.5).
            let first = match number {
                1 => content.first,
                _ => PayloadType::NONE,
            };
            let place = FragmentPlace { number, total };
            self.seal_fragment(header, first, place, parts.next().unwrap_or_default())
        };
        (1..=total).map(seal).collect()
    }

    /// Makes one fragment of a message (RFC 7383 §2.5).
    pub fn seal_fragment(
        &mut self,
        header: &Header,
        first: PayloadType,
        place: FragmentPlace,
        content: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        self.seal_as(header, content, |body| {
            Payload::EncryptedFragment(EncryptedFragment { first, place, body })
        })
    }

    /// The bytes of content for which a message of at most `longest` bytes has room.
    pub(crate) fn room(&self, longest: usize) -> Option<usize> {
        let around = HEADER_LEN + GENERIC_HEADER_LEN + self.key.iv_len() + self.key.icv_len();
        let block = self.key.block_len();
        let padded = longest.checked_sub(around)? / block * block;
        padded.checked_sub(1)
    }

    /// The bytes of content for which a fragment of at most `longest` bytes has room.
    fn fragment_room(&self, longest: usize) -> Option<usize> {
        let around = HEADER_LEN
            + GENERIC_HEADER_LEN
            + FRAGMENT_FIELDS_LEN
            + self.key.iv_len()
            + self.key.icv_len();
        let block = self.key.block_len();
        let padded = longest.checked_sub(around)? / block * block;
        padded.checked_sub(1).filter(|room| *room > 0)
    }

    /// Seals `content` as the last payload of a message. `payload` gets the bytes of the payload's body.
    fn seal_as(
        &mut self,
        header: &Header,
        content: &[u8],
        payload: impl FnOnce(Vec<u8>) -> Payload,
    ) -> Result<Vec<u8>, SealError> {
        // The padding, then its length in one byte (RFC 7296 §3.14).
        let padded_len = (content.len() + 1).next_multiple_of(self.key.block_len());
        let padding =
            u8::try_from(padded_len - content.len() - 1).map_err(|_| SealError::Cipher)?;
        let iv_len = self.key.iv_len();
        let icv_len = self.key.icv_len();
        let body_len = iv_len + padded_len + icv_len;
        // The ICV covers the lengths in both headers, so that they are final from here on.
        let mut datagram = Message {
            header: *header,
            payloads: vec![payload(vec![0; body_len])],
        }
        .encode()?;
        let iv_at = datagram.len() - body_len;
        datagram.truncate(datagram.len() - icv_len);
        let (iv, place) = datagram
            .get_mut(iv_at..)
            .and_then(|body| body.split_at_mut_checked(iv_len))
            .ok_or(SealError::Cipher)?;
        self.fill_iv(iv)?;
        let (text, rest) = place
            .split_at_mut_checked(content.len())
            .ok_or(SealError::Cipher)?;
        text.copy_from_slice(content);
        *rest.last_mut().ok_or(SealError::Cipher)? = padding;
        self.key
            .seal(&mut datagram, iv_at)
            .ok_or(SealError::Cipher)?;
        Ok(datagram)
    }

    fn fill_iv(&mut self, iv: &mut [u8]) -> Result<(), SealError> {
        if self.key.iv_is_counter() {
            iv.copy_from_slice(&self.next_iv.to_be_bytes());
            self.next_iv = self.next_iv.checked_add(1).ok_or(SealError::Exhausted)?;
        } else {
            random::fill(iv)?;
        }
        Ok(())
    }
}

/// A fragment whose sender has the keys of the IKE SA.
#[derive(Debug)]
pub struct OpenedFragment {
    pub header: Header,
    /// The type of the first payload, in the first fragment of a message.
    pub first: PayloadType,
    pub place: FragmentPlace,
    pub content: Zeroizing<Vec<u8>>,
}

/// Checks and opens the messages of one direction.
#[derive(Debug)]
pub struct Opener {
    key: SkKey,
}

impl Opener {
    pub(super) fn new(key: SkKey) -> Self {
        Self { key }
    }

    /// Opens a datagram. The message has the payloads from inside the Encrypted payload. Payloads before it are
    /// dropped: none is defined there.
    pub fn open(&self, datagram: &[u8]) -> Result<Message, OpenError> {
        let outer = Message::decode(datagram).map_err(OpenError::Outer)?;
        let Some(Payload::Encrypted(encrypted)) = outer.payloads.last() else {
            return Err(OpenError::NotEncrypted);
        };
        let content = self.open_content(datagram, outer.header, encrypted.body.len())?;
        open_chain(outer.header, encrypted.first, &content)
    }

    /// Opens a fragment (RFC 7383 §2.6). Payloads before the Encrypted Fragment payload are dropped.
    pub fn open_fragment(&self, datagram: &[u8]) -> Result<OpenedFragment, OpenError> {
        let outer = Message::decode(datagram).map_err(OpenError::Outer)?;
        let Some(Payload::EncryptedFragment(fragment)) = outer.payloads.last() else {
            return Err(OpenError::NotEncrypted);
        };
        Ok(OpenedFragment {
            header: outer.header,
            first: fragment.first,
            place: fragment.place,
            content: self.open_content(datagram, outer.header, fragment.body.len())?,
        })
    }

    /// Checks a datagram whose last `body_len` bytes are IV, ciphertext and ICV. Returns the content without padding.
    fn open_content(
        &self,
        datagram: &[u8],
        header: Header,
        body_len: usize,
    ) -> Result<Zeroizing<Vec<u8>>, OpenError> {
        let iv_at = datagram.len() - body_len;
        let mut message = Zeroizing::new(datagram.to_vec());
        let range = self
            .key
            .open(&mut message, iv_at)
            .map_err(|_| OpenError::Forged)?;
        let padded = message.get(range).ok_or(OpenError::Forged)?;
        let content = unpad(padded).map_err(|error| OpenError::Inner { header, error })?;
        Ok(Zeroizing::new(content.to_vec()))
    }
}

/// Decodes the content of an Encrypted payload.
pub(crate) fn open_chain(
    header: Header,
    first: PayloadType,
    content: &[u8],
) -> Result<Message, OpenError> {
    match wire::decode_chain(first, content) {
        Ok(payloads) => Ok(Message { header, payloads }),
        Err(error) => Err(OpenError::Inner { header, error }),
    }
}

/// Removes the padding. The sender chooses its content (RFC 7296 §3.14).
fn unpad(padded: &[u8]) -> Result<&[u8], DecodeError> {
    let invalid = |problem| DecodeError {
        place: "padding",
        offset: padded.len(),
        problem: wire::Problem::Invalid(problem),
    };
    let (&padding, rest) = padded
        .split_last()
        .ok_or_else(|| invalid("no pad length"))?;
    rest.len()
        .checked_sub(padding.into())
        .and_then(|len| rest.get(..len))
        .ok_or_else(|| invalid("longer than the content"))
}

#[cfg(test)]
mod tests {
    use esplanade_crypto::iana::Encryption;

    use super::*;
    use crate::wire::ExchangeType;

    /// An IV that came twice would give the key away (RFC 5282 §8).
    #[test]
    fn a_counter_at_its_end_seals_nothing_more() {
        let key = SkKey::new(Encryption::AesGcm16, None, &[7; 20], &[]).unwrap();
        let mut sealer = Sealer::new(key);
        sealer.next_iv = u64::MAX - 1;
        let header = Header {
            initiator_spi: 1,
            responder_spi: 2,
            exchange: ExchangeType::INFORMATIONAL,
            from_initiator: true,
            response: false,
            message_id: 0,
        };
        assert!(sealer.seal(&header, &[]).is_ok());
        for _ in 0..2 {
            let error = sealer.seal(&header, &[]).unwrap_err();
            assert_eq!(error, SealError::Exhausted);
        }
    }
}
