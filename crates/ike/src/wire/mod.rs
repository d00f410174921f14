//! IKEv2 messages and payloads on the wire (RFC 7296 §3).
//!
//! - [`Header::decode`] reads the part of a datagram that is needed to find its IKE SA.
//! - [`Message::decode`] and [`Message::encode`] are for messages that are not encrypted (IKE_SA_INIT). A message
//!   with an Encrypted payload decodes too. [`crate::suite::Opener::open`] opens it, from the datagram itself.
//!   [`crate::suite::Sealer::seal`] makes it. An Encrypted Fragment payload (RFC 7383) is treated in the same way.
//! - [`decode_chain`] and [`encode_chain`] are for payloads alone.
//!
//! Bytes here are without the non-ESP marker of UDP encapsulation. The fields of a message are the only limits on
//! what is decoded: work and memory grow with the length of the datagram only.
//!
//! A [`DecodeError`] says what is wrong and where. [`DecodeError::notification`] is the notification that answers it.
//! Payloads may come in any order, and unknown payloads that are not critical are kept as such (RFC 7296 §2.5). A
//! payload that may come once is refused when it comes twice.

mod body;
mod codes;
#[cfg(feature = "generators")]
pub mod generators;
mod header;
mod payload;
mod reader;
mod sa;
#[cfg(test)]
mod tests;
mod ts;

pub use body::{
    Auth, Cert, CertReq, Configuration, Delete, Encrypted, EncryptedFragment, FragmentPlace, Id,
    KePayload, Notify,
};
pub use codes::{
    AuthMethod, CertEncoding, ConfigurationType, ExchangeType, HashAlgorithm, IdType,
    MAJOR_VERSION, NotifyType, PayloadType, ProtocolId, TransformType,
};
pub use header::{HEADER_LEN, Header};
pub use payload::{Payload, decode_chain, encode_chain, fragment_place};
pub use reader::{DecodeError, EncodeError, Problem};
pub use sa::{Proposal, Transform};
pub use ts::TrafficSelector;

/// The largest IKE message: the most that a UDP datagram over IPv4 carries.
pub const MESSAGE_LEN_MAX: usize = 65_507;
/// Proposals are numbered from 1 in one byte (RFC 7296 §3.3.1). Proposals after the last number are ignored.
pub const PROPOSALS_MAX: usize = 255;
/// Traffic selectors are counted in one byte (RFC 7296 §3.13).
pub const TRAFFIC_SELECTORS_MAX: usize = 255;
/// RFC 7296 §3.9.
pub const NONCE_LEN_MIN: usize = 16;
pub const NONCE_LEN_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub header: Header,
    pub payloads: Vec<Payload>,
}

impl Message {
    pub fn decode(datagram: &[u8]) -> Result<Self, DecodeError> {
        let (header, first) = Header::decode_with_next(datagram)?;
        let mut reader = reader::WireReader::new(datagram, "message");
        reader.take(HEADER_LEN)?;
        let payloads = payload::decode_from(first, reader)?;
        Ok(Self { header, payloads })
    }

    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut chain = Vec::new();
        let first = encode_chain(&self.payloads, &mut chain)?;
        let mut message = Vec::with_capacity(HEADER_LEN + chain.len());
        self.header.encode(first, &mut message);
        message.extend_from_slice(&chain);
        header::set_length(&mut message)?;
        Ok(message)
    }

    /// All notifications, in order.
    pub fn notifications(&self) -> impl Iterator<Item = &Notify> {
        self.payloads.iter().filter_map(|payload| match payload {
            Payload::Notify(notify) => Some(notify),
            _ => None,
        })
    }

    /// The first notification of one type.
    pub fn notification(&self, kind: NotifyType) -> Option<&Notify> {
        self.notifications().find(|notify| notify.kind == kind)
    }
}
