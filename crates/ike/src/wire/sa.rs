//! Security Association payload: proposals, transforms, attributes (RFC 7296 §3.3).

use esplanade_crypto::iana::Encryption;

use super::reader::{self, DecodeError, EncodeError, WireReader};
use super::{PROPOSALS_MAX, ProtocolId, TransformType};

const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;
const ATTRIBUTE_KEY_LENGTH: u16 = 14;
const ATTRIBUTE_SHORT: u16 = 0x8000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub number: u8,
    pub protocol: ProtocolId,
    /// The SPI: empty in IKE_SA_INIT, 8 bytes in the rekey of an IKE SA, 4 for ESP and AH. A proposal with another
    /// length cannot be chosen.
    pub spi: Vec<u8>,
    pub transforms: Vec<Transform>,
}

/// A transform. Transforms of one type are in the sender's order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    pub kind: TransformType,
    pub id: u16,
    /// The Key Length attribute.
    pub key_bits: Option<u16>,
    /// There was an attribute other than Key Length, so that the transform must not be chosen (RFC 7296 §3.3.6).
    pub unknown_attribute: bool,
}

impl Transform {
    pub const fn new(kind: TransformType, id: u16) -> Self {
        Self {
            kind,
            id,
            key_bits: None,
            unknown_attribute: false,
        }
    }

    pub const fn with_key_bits(kind: TransformType, id: u16, key_bits: u16) -> Self {
        Self {
            kind,
            id,
            key_bits: Some(key_bits),
            unknown_attribute: false,
        }
    }

    /// A cipher with keys of one length has no Key Length attribute (RFC 7296 §3.3.5). Its `key_bits` is 0.
    pub const fn encryption(cipher: Encryption, key_bits: u16) -> Self {
        match key_bits {
            0 => Self::new(TransformType::ENCRYPTION, cipher.number()),
            _ => Self::with_key_bits(TransformType::ENCRYPTION, cipher.number(), key_bits),
        }
    }
}

impl Proposal {
    /// The transforms of one type, in order of preference.
    pub fn of_kind(&self, kind: TransformType) -> impl Iterator<Item = &Transform> {
        self.transforms.iter().filter(move |t| t.kind == kind)
    }

    /// The SPI of an ESP or AH proposal.
    pub fn spi_u32(&self) -> Option<u32> {
        Some(u32::from_be_bytes(self.spi.as_slice().try_into().ok()?))
    }

    /// The SPI of a proposal that rekeys an IKE SA.
    pub fn spi_u64(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.spi.as_slice().try_into().ok()?))
    }
}

pub(crate) fn decode(mut reader: WireReader<'_>) -> Result<Vec<Proposal>, DecodeError> {
    let mut proposals = Vec::new();
    let mut more = true;
    while more {
        more = more_follows(&mut reader, MORE_PROPOSALS)?;
        let _reserved = reader.u8()?;
        let stated = reader.u16()?.into();
        let body = reader.sub(stated, 4, "proposal")?;
        let proposal = decode_proposal(body)?;
        if proposals.len() < PROPOSALS_MAX {
            proposals.push(proposal);
        }
    }
    reader.finish()?;
    Ok(proposals)
}

fn more_follows(reader: &mut WireReader<'_>, more: u8) -> Result<bool, DecodeError> {
    match reader.u8()? {
        0 => Ok(false),
        value if value == more => Ok(true),
        _ => Err(reader.invalid("substructure marker is neither 'last' nor 'more'")),
    }
}

fn decode_proposal(mut reader: WireReader<'_>) -> Result<Proposal, DecodeError> {
    let number = reader.u8()?;
    let protocol = ProtocolId(reader.u8()?);
    let spi_len = usize::from(reader.u8()?);
    let count = usize::from(reader.u8()?);
    let spi = reader.take(spi_len)?.to_vec();
    let mut transforms = Vec::with_capacity(count);
    for index in 0..count {
        let more = more_follows(&mut reader, MORE_TRANSFORMS)?;
        if more != (index + 1 < count) {
            return Err(reader.invalid("transform count and 'last' marker disagree"));
        }
        let _reserved = reader.u8()?;
        let stated = reader.u16()?.into();
        let body = reader.sub(stated, 4, "transform")?;
        transforms.push(decode_transform(body)?);
    }
    reader.finish()?;
    Ok(Proposal {
        number,
        protocol,
        spi,
        transforms,
    })
}

fn decode_transform(mut reader: WireReader<'_>) -> Result<Transform, DecodeError> {
    let kind = TransformType(reader.u8()?);
    let _reserved = reader.u8()?;
    let mut transform = Transform::new(kind, reader.u16()?);
    while !reader.is_empty() {
        let attribute = reader.u16()?;
        let value = reader.u16()?;
        if attribute & ATTRIBUTE_SHORT == 0 {
            reader.take(value.into())?;
            transform.unknown_attribute = true;
        } else if attribute == ATTRIBUTE_SHORT | ATTRIBUTE_KEY_LENGTH {
            if transform.key_bits.replace(value).is_some() {
                return Err(reader.invalid("two key lengths in one transform"));
            }
        } else {
            transform.unknown_attribute = true;
        }
    }
    Ok(transform)
}

pub(crate) fn encode(proposals: &[Proposal], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if proposals.is_empty() || proposals.len() > PROPOSALS_MAX {
        return Err(EncodeError {
            place: "SA payload",
            problem: "no proposal, or too many",
        });
    }
    for (index, proposal) in proposals.iter().enumerate() {
        let last = index + 1 == proposals.len();
        let start = out.len();
        out.extend_from_slice(&[if last { 0 } else { MORE_PROPOSALS }, 0, 0, 0]);
        reader::with_length(out, "proposal", start, start + 2, |out| {
            encode_proposal(proposal, out)
        })?;
    }
    Ok(())
}

fn encode_proposal(proposal: &Proposal, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let place = "proposal";
    out.extend_from_slice(&[
        proposal.number,
        proposal.protocol.0,
        reader::byte(proposal.spi.len(), place, "SPI too long")?,
        reader::byte(proposal.transforms.len(), place, "too many transforms")?,
    ]);
    out.extend_from_slice(&proposal.spi);
    for (index, transform) in proposal.transforms.iter().enumerate() {
        let last = index + 1 == proposal.transforms.len();
        encode_transform(transform, last, out)?;
    }
    Ok(())
}

fn encode_transform(
    transform: &Transform,
    last: bool,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if transform.unknown_attribute {
        return Err(EncodeError {
            place: "transform",
            problem: "has an attribute that was not understood",
        });
    }
    let length: u8 = if transform.key_bits.is_some() { 12 } else { 8 };
    out.extend_from_slice(&[if last { 0 } else { MORE_TRANSFORMS }, 0, 0, length]);
    out.extend_from_slice(&[transform.kind.0, 0]);
    out.extend_from_slice(&transform.id.to_be_bytes());
    if let Some(bits) = transform.key_bits {
        out.extend_from_slice(&(ATTRIBUTE_SHORT | ATTRIBUTE_KEY_LENGTH).to_be_bytes());
        out.extend_from_slice(&bits.to_be_bytes());
    }
    Ok(())
}
