//! The Encrypted payload (RFC 7296 §3.14, and RFC 5282 for AEADs).

use esplanade_crypto::random;
use esplanade_crypto::sk::SkKey;
use zeroize::Zeroizing;

use crate::wire::{
    self, DecodeError, EncodeError, Encrypted, HEADER_LEN, Header, Message, Payload, PayloadType,
};

const GENERIC_HEADER_LEN: usize = 4;

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

/// Protects the messages of one direction.
#[derive(Debug)]
pub struct Sealer {
    key: SkKey,
    /// The next IV of an AEAD. It is a counter, so that no IV repeats (RFC 5282 §3.1). Message IDs have 32 bits, so
    /// that it never comes near its end.
    next_iv: u64,
}

impl Sealer {
    pub(super) fn new(key: SkKey) -> Self {
        Self { key, next_iv: 1 }
    }

    /// Makes a datagram of `header` and one Encrypted payload that contains `payloads`. Keep the datagram for
    /// retransmission: sealing again gives other bytes.
    pub fn seal(&mut self, header: &Header, payloads: &[Payload]) -> Result<Vec<u8>, SealError> {
        let mut content = Vec::new();
        let first = wire::encode_chain(payloads, &mut content)?;
        self.seal_content(header, first, content)
    }

    pub(super) fn seal_content(
        &mut self,
        header: &Header,
        first: PayloadType,
        mut content: Vec<u8>,
    ) -> Result<Vec<u8>, SealError> {
        // The padding, then its length in one byte (RFC 7296 §3.14).
        let block = self.key.block_len();
        let padding = (block - (content.len() + 1) % block) % block;
        content.resize(content.len() + padding, 0);
        content.push(u8::try_from(padding).map_err(|_| SealError::Cipher)?);

        let iv_len = self.key.iv_len();
        let icv_len = self.key.icv_len();
        let body = vec![0; iv_len + content.len() + icv_len];
        // The ICV covers the lengths in both headers, so that they are final from here on.
        let mut datagram = Message {
            header: *header,
            payloads: vec![Payload::Encrypted(Encrypted { first, body })],
        }
        .encode()?;
        let iv_at = HEADER_LEN + GENERIC_HEADER_LEN;
        datagram.truncate(datagram.len() - icv_len);
        let (iv, place) = datagram
            .get_mut(iv_at..)
            .and_then(|body| body.split_at_mut_checked(iv_len))
            .ok_or(SealError::Cipher)?;
        self.fill_iv(iv)?;
        place.copy_from_slice(&content);
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
        let iv_at = datagram.len() - encrypted.body.len();
        let mut message = Zeroizing::new(datagram.to_vec());
        let range = self
            .key
            .open(&mut message, iv_at)
            .map_err(|_| OpenError::Forged)?;
        let padded = message.get(range).ok_or(OpenError::Forged)?;
        let payloads = unpad(padded)
            .and_then(|content| wire::decode_chain(encrypted.first, content))
            .map_err(|error| OpenError::Inner {
                header: outer.header,
                error,
            })?;
        Ok(Message {
            header: outer.header,
            payloads,
        })
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
