//! The payload chain (RFC 7296 §3.2).

use super::body;
use super::reader::{self, DecodeError, EncodeError, Problem, WireReader};
use super::{
    Auth, Cert, CertReq, Configuration, Delete, Encrypted, EncryptedFragment, FragmentPlace,
    HEADER_LEN, Header, Id, KePayload, Notify, PayloadType, Proposal, TrafficSelector, sa, ts,
};

const GENERIC_HEADER_LEN: usize = 4;
const CRITICAL: u8 = 0x80;

/// Payloads that no message of RFC 7296 has twice (appendix C). If one comes twice, the two ends could use different
/// ones.
pub(super) const ONCE: [PayloadType; 9] = [
    PayloadType::SA,
    PayloadType::KE,
    PayloadType::IDI,
    PayloadType::IDR,
    PayloadType::AUTH,
    PayloadType::NONCE,
    PayloadType::TSI,
    PayloadType::TSR,
    PayloadType::EAP,
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    Sa(Vec<Proposal>),
    Ke(KePayload),
    IdI(Id),
    IdR(Id),
    Cert(Cert),
    CertReq(CertReq),
    Auth(Auth),
    Nonce(Vec<u8>),
    Notify(Notify),
    Delete(Delete),
    Vendor(Vec<u8>),
    TsI(Vec<TrafficSelector>),
    TsR(Vec<TrafficSelector>),
    /// The last payload of a message.
    Encrypted(Encrypted),
    /// The last payload of a fragment.
    EncryptedFragment(EncryptedFragment),
    Configuration(Configuration),
    Eap(Vec<u8>),
    /// A payload that is unknown and not critical. It is ignored (RFC 7296 §2.5).
    Unknown {
        kind: PayloadType,
        body: Vec<u8>,
    },
}

impl Payload {
    pub fn kind(&self) -> PayloadType {
        match self {
            Self::Sa(_) => PayloadType::SA,
            Self::Ke(_) => PayloadType::KE,
            Self::IdI(_) => PayloadType::IDI,
            Self::IdR(_) => PayloadType::IDR,
            Self::Cert(_) => PayloadType::CERT,
            Self::CertReq(_) => PayloadType::CERTREQ,
            Self::Auth(_) => PayloadType::AUTH,
            Self::Nonce(_) => PayloadType::NONCE,
            Self::Notify(_) => PayloadType::NOTIFY,
            Self::Delete(_) => PayloadType::DELETE,
            Self::Vendor(_) => PayloadType::VENDOR,
            Self::TsI(_) => PayloadType::TSI,
            Self::TsR(_) => PayloadType::TSR,
            Self::Encrypted(_) => PayloadType::SK,
            Self::EncryptedFragment(_) => PayloadType::SKF,
            Self::Configuration(_) => PayloadType::CP,
            Self::Eap(_) => PayloadType::EAP,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    fn decode(
        kind: PayloadType,
        critical: bool,
        reader: WireReader<'_>,
    ) -> Result<Self, DecodeError> {
        let opaque = |mut reader: WireReader<'_>| reader.rest().to_vec();
        // The critical bit of a known payload is ignored (RFC 7296 §2.5).
        Ok(match kind {
            PayloadType::SA => Self::Sa(sa::decode(reader)?),
            PayloadType::KE => Self::Ke(body::decode_ke(reader)?),
            PayloadType::IDI => Self::IdI(body::decode_id(reader)?),
            PayloadType::IDR => Self::IdR(body::decode_id(reader)?),
            PayloadType::CERT => Self::Cert(body::decode_cert(reader)?),
            PayloadType::CERTREQ => Self::CertReq(body::decode_certreq(reader)?),
            PayloadType::AUTH => Self::Auth(body::decode_auth(reader)?),
            PayloadType::NONCE => Self::Nonce(body::decode_nonce(reader)?),
            PayloadType::NOTIFY => Self::Notify(body::decode_notify(reader)?),
            PayloadType::DELETE => Self::Delete(body::decode_delete(reader)?),
            PayloadType::VENDOR => Self::Vendor(opaque(reader)),
            PayloadType::TSI => Self::TsI(ts::decode(reader)?),
            PayloadType::TSR => Self::TsR(ts::decode(reader)?),
            PayloadType::CP => Self::Configuration(body::decode_configuration(reader)?),
            PayloadType::EAP => Self::Eap(opaque(reader)),
            _ if critical => return Err(reader.error(Problem::UnsupportedCritical(kind.0))),
            _ => Self::Unknown {
                kind,
                body: opaque(reader),
            },
        })
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Sa(proposals) => sa::encode(proposals, out)?,
            Self::Ke(ke) => body::encode_ke(ke, out),
            Self::IdI(id) | Self::IdR(id) => body::encode_id(id, out),
            Self::Cert(Cert { encoding, data }) | Self::CertReq(CertReq { encoding, data }) => {
                out.push(encoding.0);
                out.extend_from_slice(data);
            }
            Self::Auth(auth) => body::encode_auth(auth, out),
            Self::Nonce(nonce) => body::encode_nonce(nonce, out)?,
            Self::Notify(notify) => body::encode_notify(notify, out)?,
            Self::Delete(delete) => body::encode_delete(delete, out)?,
            Self::TsI(selectors) | Self::TsR(selectors) => ts::encode(selectors, out)?,
            Self::Configuration(configuration) => {
                body::encode_configuration(configuration, out)?;
            }
            Self::EncryptedFragment(fragment) => body::encode_fragment(fragment, out),
            Self::Encrypted(Encrypted { body, .. })
            | Self::Vendor(body)
            | Self::Eap(body)
            | Self::Unknown { body, .. } => out.extend_from_slice(body),
        }
        Ok(())
    }
}

/// Returns the place of a fragment in its message (RFC 7383 §2.5). Returns `None` for other messages, and for malformed
/// ones. Payloads in front of the Encrypted Fragment payload are passed over.
pub fn fragment_place(datagram: &[u8]) -> Option<FragmentPlace> {
    let (_, mut kind) = Header::decode_with_next(datagram).ok()?;
    let mut reader = WireReader::new(datagram, "message");
    reader.take(HEADER_LEN).ok()?;
    while kind != PayloadType::NONE && kind != PayloadType::SK {
        let next = PayloadType(reader.u8().ok()?);
        reader.u8().ok()?;
        let stated = reader.u16().ok()?.into();
        let body = reader.sub(stated, GENERIC_HEADER_LEN, "payload").ok()?;
        if kind == PayloadType::SKF {
            return Some(body::decode_fragment(next, body).ok()?.place);
        }
        kind = next;
    }
    None
}

/// Decodes the payloads in `bytes`, which are the content of an opened Encrypted payload. The first one has type
/// `first`.
pub fn decode_chain(first: PayloadType, bytes: &[u8]) -> Result<Vec<Payload>, DecodeError> {
    let chain = decode_from(first, WireReader::new(bytes, "payload chain"))?;
    if let Some(Payload::Encrypted(_) | Payload::EncryptedFragment(_)) = chain.last() {
        return Err(DecodeError {
            place: "payload chain",
            offset: 0,
            problem: Problem::Invalid("an Encrypted payload inside another"),
        });
    }
    Ok(chain)
}

pub(super) fn decode_from(
    first: PayloadType,
    mut reader: WireReader<'_>,
) -> Result<Vec<Payload>, DecodeError> {
    let mut payloads = Vec::new();
    let mut kind = first;
    while kind != PayloadType::NONE {
        let next = PayloadType(reader.u8()?);
        let critical = reader.u8()? & CRITICAL != 0;
        let stated = reader.u16()?.into();
        let place = kind.name().unwrap_or("unknown payload");
        let mut body = reader.sub(stated, GENERIC_HEADER_LEN, place)?;
        // An Encrypted payload is the last one. Its Next Payload field has the type of the first payload inside
        // (RFC 7296 §3.14).
        if kind == PayloadType::SK {
            payloads.push(Payload::Encrypted(Encrypted {
                first: next,
                body: body.rest().to_vec(),
            }));
            break;
        }
        if kind == PayloadType::SKF {
            let fragment = body::decode_fragment(next, body)?;
            payloads.push(Payload::EncryptedFragment(fragment));
            break;
        }
        if ONCE.contains(&kind) && payloads.iter().any(|former| former.kind() == kind) {
            return Err(body.error(Problem::Twice));
        }
        payloads.push(Payload::decode(kind, critical, body)?);
        kind = next;
    }
    reader.finish()?;
    Ok(payloads)
}

/// Appends the payloads. Returns the type of the first one, or `NONE`.
pub fn encode_chain(payloads: &[Payload], out: &mut Vec<u8>) -> Result<PayloadType, EncodeError> {
    for (index, payload) in payloads.iter().enumerate() {
        let next = payloads.get(index + 1).map(Payload::kind);
        let next = match (payload, next) {
            (Payload::Encrypted(encrypted), None) => encrypted.first,
            (Payload::EncryptedFragment(fragment), None) => fragment.first,
            (Payload::Encrypted(_) | Payload::EncryptedFragment(_), Some(_)) => {
                return Err(EncodeError {
                    place: "message",
                    problem: "a payload after the Encrypted payload",
                });
            }
            (_, next) => next.unwrap_or(PayloadType::NONE),
        };
        let start = out.len();
        out.extend_from_slice(&[next.0, 0, 0, 0]);
        reader::with_length(out, "payload", start, start + 2, |out| payload.encode(out))?;
    }
    Ok(payloads.first().map_or(PayloadType::NONE, Payload::kind))
}
