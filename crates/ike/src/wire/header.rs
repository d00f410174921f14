//! The IKE header (RFC 7296 §3.1).

use super::codes::MAJOR_VERSION;
use super::reader::{DecodeError, Problem, WireReader};
use super::{ExchangeType, MESSAGE_LEN_MAX, PayloadType};

pub const HEADER_LEN: usize = 28;

const FLAG_INITIATOR: u8 = 0x08;
const FLAG_RESPONSE: u8 = 0x20;

/// The header without the first payload type and the length, which follow from the payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub initiator_spi: u64,
    pub responder_spi: u64,
    pub exchange: ExchangeType,
    /// The sender is the original initiator of this IKE SA.
    pub from_initiator: bool,
    pub response: bool,
    pub message_id: u32,
}

impl Header {
    /// Reads the header of a datagram, and checks that its length field is the datagram's length. That is enough to
    /// find the IKE SA.
    ///
    /// The minor version and the reserved flags are ignored. So is the flag that the sender can speak a higher major
    /// version (RFC 7296 §2.5).
    pub fn decode(datagram: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_with_next(datagram).map(|(header, _)| header)
    }

    pub(crate) fn decode_with_next(datagram: &[u8]) -> Result<(Self, PayloadType), DecodeError> {
        let mut reader = WireReader::new(datagram, "header");
        if datagram.len() > MESSAGE_LEN_MAX {
            return Err(reader.error(Problem::TooMany {
                limit: MESSAGE_LEN_MAX,
            }));
        }
        let initiator_spi = reader.u64()?;
        let responder_spi = reader.u64()?;
        let next = PayloadType(reader.u8()?);
        let version = reader.u8()?;
        let exchange = ExchangeType(reader.u8()?);
        let flags = reader.u8()?;
        let message_id = reader.u32()?;
        let stated = reader.u32()?;
        if version >> 4 != MAJOR_VERSION {
            return Err(reader.error(Problem::MajorVersion(version >> 4)));
        }
        if usize::try_from(stated) != Ok(datagram.len()) {
            return Err(reader.error(Problem::Length {
                stated: usize::try_from(stated).unwrap_or(usize::MAX),
                available: datagram.len(),
            }));
        }
        let header = Self {
            initiator_spi,
            responder_spi,
            exchange,
            from_initiator: flags & FLAG_INITIATOR != 0,
            response: flags & FLAG_RESPONSE != 0,
            message_id,
        };
        Ok((header, next))
    }

    /// Appends the header. [`set_length`] fills in the length field.
    pub(crate) fn encode(&self, next: PayloadType, out: &mut Vec<u8>) {
        let mut flags = 0;
        if self.from_initiator {
            flags |= FLAG_INITIATOR;
        }
        if self.response {
            flags |= FLAG_RESPONSE;
        }
        out.extend_from_slice(&self.initiator_spi.to_be_bytes());
        out.extend_from_slice(&self.responder_spi.to_be_bytes());
        out.extend_from_slice(&[next.0, MAJOR_VERSION << 4, self.exchange.0, flags]);
        out.extend_from_slice(&self.message_id.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
    }
}

/// Writes the total length into an encoded message.
pub(crate) fn set_length(message: &mut [u8]) -> Result<(), super::EncodeError> {
    let too_long = super::EncodeError {
        place: "message",
        problem: "longer than a UDP datagram",
    };
    if message.len() > MESSAGE_LEN_MAX {
        return Err(too_long);
    }
    let length = u32::try_from(message.len()).map_err(|_| too_long)?;
    message[24..HEADER_LEN].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
