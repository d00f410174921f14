//! Payloads that are a few fields and a run of bytes (RFC 7296 §3.4 to §3.12, §3.14 and §3.15).

use super::reader::{self, DecodeError, EncodeError, WireReader};
use super::{
    AuthMethod, CertEncoding, ConfigurationType, HashAlgorithm, IdType, NONCE_LEN_MAX,
    NONCE_LEN_MIN, NotifyType, PayloadType, ProtocolId,
};

const CA_HASH_LEN: usize = 20;

/// Key Exchange (RFC 7296 §3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KePayload {
    pub method: u16,
    pub data: Vec<u8>,
}

/// Identification (RFC 7296 §3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id {
    pub kind: IdType,
    /// The reserved bytes, which the AUTH payload signs (RFC 7296 §2.15). They are zero in what we send.
    pub reserved: [u8; 3],
    pub data: Vec<u8>,
}

impl Id {
    pub fn new(kind: IdType, data: Vec<u8>) -> Self {
        Self {
            kind,
            reserved: [0; 3],
            data,
        }
    }

    /// `RestOfIDPayload` of RFC 7296 §2.15: the payload without its generic header.
    pub fn body(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(4 + self.data.len());
        self.encode(&mut body);
        body
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.kind.0);
        out.extend_from_slice(&self.reserved);
        out.extend_from_slice(&self.data);
    }
}

/// Certificate (RFC 7296 §3.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cert {
    pub encoding: CertEncoding,
    pub data: Vec<u8>,
}

/// Certificate Request (RFC 7296 §3.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertReq {
    pub encoding: CertEncoding,
    pub data: Vec<u8>,
}

impl CertReq {
    /// Asks for X.509 certificates below the authorities with these key hashes.
    pub fn x509(ca_key_hashes: &[[u8; CA_HASH_LEN]]) -> Self {
        Self {
            encoding: CertEncoding::X509_SIGNATURE,
            data: ca_key_hashes.concat(),
        }
    }

    /// Asks for answers of OCSP responders, whoever signs them (RFC 4806 §3.2).
    pub fn ocsp() -> Self {
        Self {
            encoding: CertEncoding::OCSP,
            data: Vec::new(),
        }
    }

    /// The SHA-1 hashes of trusted CA keys. An incomplete hash at the end is ignored.
    pub fn ca_key_hashes(&self) -> impl Iterator<Item = &[u8]> {
        self.data.chunks_exact(CA_HASH_LEN)
    }
}

/// Authentication (RFC 7296 §3.8).
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    pub method: AuthMethod,
    pub data: Vec<u8>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // With the value of a shared key, a reader of the log could try passwords.
        write!(f, "Auth({}, {} bytes)", self.method, self.data.len())
    }
}

/// Notify (RFC 7296 §3.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    pub protocol: ProtocolId,
    pub spi: Vec<u8>,
    pub kind: NotifyType,
    pub data: Vec<u8>,
}

impl Notify {
    /// A notification that is about no child SA.
    pub fn new(kind: NotifyType, data: Vec<u8>) -> Self {
        Self {
            protocol: ProtocolId::NONE,
            spi: Vec::new(),
            kind,
            data,
        }
    }

    /// A notification about one child SA.
    pub fn about_child(kind: NotifyType, protocol: ProtocolId, spi: u32) -> Self {
        Self {
            protocol,
            spi: spi.to_be_bytes().to_vec(),
            kind,
            data: Vec::new(),
        }
    }

    /// SIGNATURE_HASH_ALGORITHMS (RFC 7427 §4).
    pub fn signature_hashes(algorithms: &[HashAlgorithm]) -> Self {
        let data = algorithms.iter().flat_map(|a| a.0.to_be_bytes()).collect();
        Self::new(NotifyType::SIGNATURE_HASH_ALGORITHMS, data)
    }

    /// The data as a list of hash algorithms. Half an entry at the end is ignored.
    pub fn as_signature_hashes(&self) -> Vec<HashAlgorithm> {
        let entries = self.data.as_chunks::<2>().0.iter();
        entries
            .map(|&entry| HashAlgorithm(u16::from_be_bytes(entry)))
            .collect()
    }

    pub fn spi_u32(&self) -> Option<u32> {
        Some(u32::from_be_bytes(self.spi.as_slice().try_into().ok()?))
    }
}

/// Delete (RFC 7296 §3.11). A delete of the IKE SA has an empty list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    pub protocol: ProtocolId,
    pub spis: Vec<u32>,
}

/// The Encrypted payload before it is opened (RFC 7296 §3.14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encrypted {
    /// The type of the first payload inside.
    pub first: PayloadType,
    /// IV, ciphertext and integrity check value.
    pub body: Vec<u8>,
}

/// The Encrypted Fragment payload before it is opened (RFC 7383 §2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptedFragment {
    /// The type of the first payload inside, in the first fragment. `NONE` in the others.
    pub first: PayloadType,
    pub place: FragmentPlace,
    /// IV, ciphertext and integrity check value.
    pub body: Vec<u8>,
}

/// The place of a fragment in its message. Anybody can send a place that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentPlace {
    /// Counts from 1.
    pub number: u16,
    /// The number of fragments of the message.
    pub total: u16,
}

impl FragmentPlace {
    /// RFC 7383 §2.6.
    pub fn exists(self) -> bool {
        (1..=self.total).contains(&self.number)
    }
}

pub(super) fn decode_fragment(
    first: PayloadType,
    mut reader: WireReader<'_>,
) -> Result<EncryptedFragment, DecodeError> {
    Ok(EncryptedFragment {
        first,
        place: FragmentPlace {
            number: reader.u16()?,
            total: reader.u16()?,
        },
        body: reader.rest().to_vec(),
    })
}

pub(super) fn encode_fragment(fragment: &EncryptedFragment, out: &mut Vec<u8>) {
    out.extend_from_slice(&fragment.place.number.to_be_bytes());
    out.extend_from_slice(&fragment.place.total.to_be_bytes());
    out.extend_from_slice(&fragment.body);
}

/// Configuration (RFC 7296 §3.15). The attribute values are opaque.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    pub kind: ConfigurationType,
    pub attributes: Vec<(u16, Vec<u8>)>,
}

pub(super) fn decode_ke(mut reader: WireReader<'_>) -> Result<KePayload, DecodeError> {
    let method = reader.u16()?;
    let _reserved = reader.u16()?;
    let data = reader.rest().to_vec();
    Ok(KePayload { method, data })
}

pub(super) fn encode_ke(ke: &KePayload, out: &mut Vec<u8>) {
    out.extend_from_slice(&ke.method.to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&ke.data);
}

pub(super) fn decode_id(mut reader: WireReader<'_>) -> Result<Id, DecodeError> {
    Ok(Id {
        kind: IdType(reader.u8()?),
        reserved: reader.array()?,
        data: reader.rest().to_vec(),
    })
}

pub(super) fn encode_id(id: &Id, out: &mut Vec<u8>) {
    id.encode(out);
}

pub(super) fn decode_cert(mut reader: WireReader<'_>) -> Result<Cert, DecodeError> {
    Ok(Cert {
        encoding: CertEncoding(reader.u8()?),
        data: reader.rest().to_vec(),
    })
}

pub(super) fn decode_certreq(mut reader: WireReader<'_>) -> Result<CertReq, DecodeError> {
    Ok(CertReq {
        encoding: CertEncoding(reader.u8()?),
        data: reader.rest().to_vec(),
    })
}

pub(super) fn decode_auth(mut reader: WireReader<'_>) -> Result<Auth, DecodeError> {
    let method = AuthMethod(reader.u8()?);
    let _reserved = reader.take(3)?;
    let data = reader.rest().to_vec();
    Ok(Auth { method, data })
}

pub(super) fn encode_auth(auth: &Auth, out: &mut Vec<u8>) {
    out.extend_from_slice(&[auth.method.0, 0, 0, 0]);
    out.extend_from_slice(&auth.data);
}

pub(super) fn decode_nonce(mut reader: WireReader<'_>) -> Result<Vec<u8>, DecodeError> {
    let nonce = reader.rest();
    if !(NONCE_LEN_MIN..=NONCE_LEN_MAX).contains(&nonce.len()) {
        return Err(reader.invalid("nonce is not 16 to 256 bytes long"));
    }
    Ok(nonce.to_vec())
}

pub(super) fn encode_nonce(nonce: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if !(NONCE_LEN_MIN..=NONCE_LEN_MAX).contains(&nonce.len()) {
        return Err(EncodeError {
            place: "nonce",
            problem: "not 16 to 256 bytes long",
        });
    }
    out.extend_from_slice(nonce);
    Ok(())
}

pub(super) fn decode_notify(mut reader: WireReader<'_>) -> Result<Notify, DecodeError> {
    let protocol = ProtocolId(reader.u8()?);
    let spi_len = usize::from(reader.u8()?);
    let kind = NotifyType(reader.u16()?);
    let spi = reader.take(spi_len)?.to_vec();
    let data = reader.rest().to_vec();
    Ok(Notify {
        protocol,
        spi,
        kind,
        data,
    })
}

pub(super) fn encode_notify(notify: &Notify, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let spi_len = reader::byte(notify.spi.len(), "notify", "SPI too long")?;
    out.extend_from_slice(&[notify.protocol.0, spi_len]);
    out.extend_from_slice(&notify.kind.0.to_be_bytes());
    out.extend_from_slice(&notify.spi);
    out.extend_from_slice(&notify.data);
    Ok(())
}

pub(super) fn decode_delete(mut reader: WireReader<'_>) -> Result<Delete, DecodeError> {
    let protocol = ProtocolId(reader.u8()?);
    let spi_len = usize::from(reader.u8()?);
    let count = usize::from(reader.u16()?);
    let expected = if protocol == ProtocolId::IKE { 0 } else { 4 };
    if spi_len != expected {
        return Err(reader.invalid("SPI size does not suit the protocol"));
    }
    if protocol == ProtocolId::IKE && count != 0 {
        return Err(reader.invalid("an IKE SA is deleted without an SPI"));
    }
    let mut spis = Vec::with_capacity(count.min(reader.left() / 4));
    for _ in 0..count {
        spis.push(reader.u32()?);
    }
    reader.finish()?;
    Ok(Delete { protocol, spis })
}

pub(super) fn encode_delete(delete: &Delete, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let place = "delete";
    if delete.protocol == ProtocolId::IKE && !delete.spis.is_empty() {
        return Err(EncodeError {
            place,
            problem: "an IKE SA is deleted without an SPI",
        });
    }
    let spi_len = if delete.protocol == ProtocolId::IKE {
        0
    } else {
        4
    };
    let count = u16::try_from(delete.spis.len()).map_err(|_| EncodeError {
        place,
        problem: "too many SPIs",
    })?;
    out.extend_from_slice(&[delete.protocol.0, spi_len]);
    out.extend_from_slice(&count.to_be_bytes());
    for spi in &delete.spis {
        out.extend_from_slice(&spi.to_be_bytes());
    }
    Ok(())
}

pub(super) fn decode_configuration(
    mut reader: WireReader<'_>,
) -> Result<Configuration, DecodeError> {
    let kind = ConfigurationType(reader.u8()?);
    let _reserved = reader.take(3)?;
    let mut attributes = Vec::new();
    while !reader.is_empty() {
        // The top bit is reserved and ignored (RFC 7296 §3.15.1).
        let attribute = reader.u16()? & 0x7fff;
        let length = reader.u16()?;
        attributes.push((attribute, reader.take(length.into())?.to_vec()));
    }
    Ok(Configuration { kind, attributes })
}

pub(super) fn encode_configuration(
    configuration: &Configuration,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    let place = "configuration";
    out.extend_from_slice(&[configuration.kind.0, 0, 0, 0]);
    for (attribute, value) in &configuration.attributes {
        let length = u16::try_from(value.len()).map_err(|_| EncodeError {
            place,
            problem: "attribute value too long",
        })?;
        out.extend_from_slice(&(attribute & 0x7fff).to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(value);
    }
    Ok(())
}
