//! Answers of OCSP responders (RFC 6960): reading them, and the request for one.
//!
//! Requests have no nonce, so that a responder can answer with what it has signed before. The answer's own times bound
//! its age.

use aws_lc_rs::digest;
use x509_cert::der::asn1::{Null, ObjectIdentifier, OctetString};
use x509_cert::der::{Encode, Tag, TagNumber};
use x509_cert::ext::pkix::crl::CrlReason;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_ocsp::{
    CertId, CertStatus, OcspGeneralizedTime, OcspRequest, OcspResponse, OcspResponseStatus,
    Request, ResponseData, TbsRequest, Version,
};

use super::super::der::{DerError, DerReader, decode};
use super::super::name::DistinguishedName;
use super::super::signed::{Signed, SubjectKey};
use super::crl::Revoked;
use super::serial::Serial;

const BASIC_RESPONSE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");
const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");

/// Certificates for which one response may have answers. A responder is asked about one.
const ANSWERS_MAX: usize = 16;
/// Certificates of responders in one response.
const CERTIFICATES_MAX: usize = 2;
/// The time for which an answer without a next update is used, in seconds. Its responder has newer ones at any time.
const AGE_MAX: u64 = 600;
/// The time by which the clocks of responder and gateway may differ, in seconds.
const SKEW_MAX: u64 = 300;

/// The tag of the certificates in a response.
const CERTIFICATES: Tag = Tag::ContextSpecific {
    constructed: true,
    number: TagNumber::N0,
};

/// A response cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OcspError {
    #[error("malformed OCSP response: {0}")]
    Malformed(String),
    #[error("the OCSP responder answers {0}")]
    Refused(&'static str),
}

/// A parsed response. Nobody has checked its signature.
#[derive(Clone, PartialEq, Eq)]
pub struct OcspAnswer {
    der: Vec<u8>,
    signed: Signed,
    singles: Vec<SingleAnswer>,
    /// The certificates of responders in DER.
    pub(in crate::auth) certificates: Vec<Vec<u8>>,
}

/// The answer about one certificate.
#[derive(Clone, PartialEq, Eq)]
struct SingleAnswer {
    id: CertId,
    status: CertStatus,
    this_update: u64,
    next_update: Option<u64>,
}

/// The status that an answer gives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::auth) enum OcspStatus {
    Good,
    Revoked(Revoked),
    /// The responder does not know the certificate, or its answer is not current.
    Nothing,
}

impl OcspStatus {
    /// Says less good by a smaller number.
    pub(in crate::auth) const fn rank(self) -> u8 {
        match self {
            Self::Revoked(_) => 0,
            Self::Nothing => 1,
            Self::Good => 2,
        }
    }
}

/// A certificate as OCSP names it.
pub(in crate::auth) struct CertificateName<'a> {
    pub(in crate::auth) issuer: &'a DistinguishedName,
    pub(in crate::auth) issuer_key: &'a SubjectKey,
    pub(in crate::auth) serial: &'a Serial,
}

impl OcspAnswer {
    /// Reads an OCSPResponse.
    pub fn from_der(der: &[u8]) -> Result<Self, OcspError> {
        let text = |error: DerError| OcspError::Malformed(error.to_string());
        let response: OcspResponse = decode(der).map_err(text)?;
        match response.response_status {
            OcspResponseStatus::Successful => {}
            OcspResponseStatus::MalformedRequest => {
                return Err(OcspError::Refused("malformedRequest"));
            }
            OcspResponseStatus::InternalError => return Err(OcspError::Refused("internalError")),
            OcspResponseStatus::TryLater => return Err(OcspError::Refused("tryLater")),
            OcspResponseStatus::SigRequired => return Err(OcspError::Refused("sigRequired")),
            OcspResponseStatus::Unauthorized => return Err(OcspError::Refused("unauthorized")),
        }
        let basic = response.response_bytes;
        let basic = basic.filter(|bytes| bytes.response_type == BASIC_RESPONSE);
        let basic = basic.ok_or_else(|| OcspError::Malformed("no basic response".to_owned()))?;
        Self::from_basic(der.to_vec(), basic.response.as_bytes()).map_err(OcspError::Malformed)
    }

    /// `whole` is the OCSPResponse, and `der` the BasicOCSPResponse in it.
    fn from_basic(whole: Vec<u8>, der: &[u8]) -> Result<Self, String> {
        let text = |error: DerError| error.to_string();
        let mut reader = DerReader::within(der, Tag::Sequence).map_err(text)?;
        let signed = Signed::read(&mut reader).map_err(text)?;
        let mut certificates = Vec::new();
        if !reader.is_finished() {
            let outer = reader.whole().map_err(text)?;
            let mut list = DerReader::within(outer, CERTIFICATES).map_err(text)?;
            let inner = list.whole().map_err(text)?;
            list.finish(()).map_err(text)?;
            let mut inner = DerReader::within(inner, Tag::Sequence).map_err(text)?;
            while !inner.is_finished() && certificates.len() < CERTIFICATES_MAX {
                certificates.push(inner.whole().map_err(text)?.to_vec());
            }
        }
        reader.finish(()).map_err(text)?;
        let data: ResponseData = decode(&signed.content).map_err(text)?;
        let extensions = data.response_extensions.iter().flatten();
        let of_singles = data.responses.iter();
        let of_singles = of_singles.filter_map(|single| single.single_extensions.as_ref());
        if (extensions.chain(of_singles.flatten())).any(|extension| extension.critical) {
            return Err("it has a critical extension".to_owned());
        }
        let singles = data.responses.into_iter().take(ANSWERS_MAX);
        let singles = singles.map(|single| SingleAnswer {
            id: single.cert_id,
            status: single.cert_status,
            this_update: seconds(single.this_update),
            next_update: single.next_update.map(seconds),
        });
        Ok(Self {
            der: whole,
            singles: singles.collect(),
            signed,
            certificates,
        })
    }

    /// The OCSPResponse.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns when the answer about this certificate was made, and the status that it gives. Returns `None` if it is
    /// about others.
    pub(in crate::auth) fn about(
        &self,
        certificate: &CertificateName<'_>,
        now: u64,
    ) -> Option<(u64, OcspStatus)> {
        let mut singles = self.singles.iter();
        let single = singles.find(|single| certificate.has_id(&single.id))?;
        Some((single.this_update, single.status(now)))
    }

    pub(in crate::auth) fn is_signed_by(&self, key: &SubjectKey) -> bool {
        self.signed.verify(key).is_ok()
    }

    /// The time until which the answer is used, in seconds since 1970.
    pub fn usable_until(&self) -> u64 {
        let ends = self.singles.iter().map(SingleAnswer::usable_until);
        ends.max().unwrap_or_default()
    }
}

impl std::fmt::Debug for OcspAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OcspAnswer({} certificates)", self.singles.len())
    }
}

impl SingleAnswer {
    fn usable_until(&self) -> u64 {
        match self.next_update {
            Some(next) => next.saturating_add(SKEW_MAX),
            None => self.this_update.saturating_add(AGE_MAX),
        }
    }

    /// A certificate that was revoked stays so, however old the answer is.
    fn status(&self, now: u64) -> OcspStatus {
        let is_current =
            self.this_update <= now.saturating_add(SKEW_MAX) && now <= self.usable_until();
        match self.status {
            CertStatus::Revoked(info) => OcspStatus::Revoked(Revoked {
                since: seconds(info.revocation_time),
                reason: info.revocation_reason.unwrap_or(CrlReason::Unspecified),
            }),
            CertStatus::Good(_) if is_current => OcspStatus::Good,
            CertStatus::Good(_) | CertStatus::Unknown(_) => OcspStatus::Nothing,
        }
    }
}

impl CertificateName<'_> {
    /// The request for the status of the certificate. Returns `None` if its serial number cannot be sent.
    pub(super) fn request(&self) -> Option<Vec<u8>> {
        let request = OcspRequest {
            tbs_request: TbsRequest {
                version: Version::default(),
                requestor_name: None,
                request_list: vec![Request {
                    req_cert: self.id()?,
                    single_request_extensions: None,
                }],
                request_extensions: None,
            },
            optional_signature: None,
        };
        request.to_der().ok()
    }

    /// The name with SHA-1, which every responder knows.
    fn id(&self) -> Option<CertId> {
        let hash = |octets: &[u8]| {
            let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, octets);
            OctetString::new(hash.as_ref()).ok()
        };
        Some(CertId {
            hash_algorithm: AlgorithmIdentifierOwned {
                oid: SHA1,
                parameters: Some(Null.into()),
            },
            issuer_name_hash: hash(self.issuer.der())?,
            issuer_key_hash: hash(&self.issuer_key.bits)?,
            serial_number: decode::<SerialNumber>(&self.serial.to_der()).ok()?,
        })
    }

    fn has_id(&self, id: &CertId) -> bool {
        let algorithm = match id.hash_algorithm.oid {
            SHA1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            SHA256 => &digest::SHA256,
            _ => return false,
        };
        let is_hash = |hash: &OctetString, octets: &[u8]| {
            digest::digest(algorithm, octets).as_ref() == hash.as_bytes()
        };
        let serial = id.serial_number.to_der().ok();
        serial.and_then(|der| Serial::from_der(&der)).as_ref() == Some(self.serial)
            && is_hash(&id.issuer_name_hash, self.issuer.der())
            && is_hash(&id.issuer_key_hash, &self.issuer_key.bits)
    }
}

fn seconds(time: OcspGeneralizedTime) -> u64 {
    time.0.to_unix_duration().as_secs()
}
