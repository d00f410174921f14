//! Answers of OCSP responders (RFC 6960): reading them, and the request for one.
//!
//! Requests have no nonce, so that a responder can answer with what it has signed before. The answer's own times bound
//! its age.

use std::cmp::Reverse;

use aws_lc_rs::digest;
use x509_cert::der::asn1::{Null, ObjectIdentifier, OctetString};
use x509_cert::der::{Encode, Tag, TagNumber};
use x509_cert::ext::pkix::crl::CrlReason;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_ocsp::{
    CertId, CertStatus, OcspGeneralizedTime, OcspRequest, OcspResponse, OcspResponseStatus,
    Request, ResponderId, ResponseData, TbsRequest, Version,
};

use super::crl::Revoked;
use super::serial::Serial;
use crate::der::{DerError, DerReader, decode};
use crate::name::DistinguishedName;
use crate::signed::{Signed, SubjectKey};

const TOO_LONG: &str = "it is too long";

const BASIC_RESPONSE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1.1");
const SHA1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.14.3.2.26");
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");

/// Certificates of responders in one response.
const CERTIFICATES_MAX: usize = 16;
/// Bytes of such a certificate. One with a key and a signature of ML-DSA has 8 kB.
const CERTIFICATE_LEN_MAX: usize = 16 << 10;
/// The time for which an answer without a next update is used, in seconds. Its responder has newer ones at any time.
const AGE_MAX: u64 = 600;
/// The age at which an answer of a peer says no more that a certificate is good, in seconds. The peer chooses which of
/// the answers that it ever had it sends.
const SENT_AGE_MAX: u64 = 24 * 60 * 60;
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

/// A parsed response. Its signature is checked when a path needs it.
#[derive(Clone)]
pub struct OcspAnswer {
    der: Vec<u8>,
    pub(crate) signed: Signed,
    signer: Signer,
    singles: Vec<SingleAnswer>,
    /// The certificates of responders in DER.
    pub(crate) certificates: Vec<Vec<u8>>,
}

/// The responder that says that it has signed an answer (RFC 6960 §4.2.1).
#[derive(Clone, PartialEq, Eq)]
enum Signer {
    Name(DistinguishedName),
    /// SHA-1 of the key.
    Key(Vec<u8>),
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
pub(crate) enum OcspStatus {
    Good,
    Revoked(Revoked),
    /// The answer is not current.
    Nothing,
}

impl OcspStatus {
    /// Returns the status that counts if the peer has sent the answer, which was made at this time.
    pub(crate) fn sent_by_peer(self, asked: bool, made: u64, now: u64) -> Option<Self> {
        match self {
            Self::Revoked(_) => Some(self),
            _ if !asked => None,
            Self::Good if now > made.saturating_add(SENT_AGE_MAX) => Some(Self::Nothing),
            Self::Good | Self::Nothing => Some(self),
        }
    }

    /// Says less good by a smaller number.
    pub(crate) const fn rank(self) -> u8 {
        match self {
            Self::Revoked(_) => 0,
            Self::Nothing => 1,
            Self::Good => 2,
        }
    }
}

/// A certificate as OCSP names it.
pub(crate) struct CertificateName<'a> {
    pub(crate) issuer: &'a DistinguishedName,
    pub(crate) issuer_key: &'a SubjectKey,
    pub(crate) serial: &'a Serial,
}

impl OcspAnswer {
    /// Bytes of the longest OCSPResponse.
    pub const LEN_MAX: usize = 64 << 10;

    /// Reads an OCSPResponse.
    pub fn from_der(der: &[u8]) -> Result<Self, OcspError> {
        let text = |error: DerError| OcspError::Malformed(error.to_string());
        if der.len() > Self::LEN_MAX {
            return Err(OcspError::Malformed(TOO_LONG.to_owned()));
        }
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
            while !inner.is_finished() {
                let certificate = inner.whole().map_err(text)?;
                if certificates.len() >= CERTIFICATES_MAX {
                    return Err("it has too many certificates".to_owned());
                }
                if certificate.len() > CERTIFICATE_LEN_MAX {
                    return Err("a certificate in it is too long".to_owned());
                }
                certificates.push(certificate.to_vec());
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
        let signer = match data.responder_id {
            ResponderId::ByName(name) => {
                Signer::Name(DistinguishedName::from_rdns(&name).ok_or("malformed name")?)
            }
            ResponderId::ByKey(hash) => Signer::Key(hash.as_bytes().to_vec()),
        };
        let singles = data.responses.into_iter().map(|single| SingleAnswer {
            id: single.cert_id,
            status: single.cert_status,
            this_update: seconds(single.this_update),
            next_update: single.next_update.map(seconds),
        });
        Ok(Self {
            der: whole,
            singles: singles.collect(),
            signed,
            signer,
            certificates,
        })
    }

    /// The OCSPResponse.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns when the answer about this certificate was made, and the status that it gives. Returns `None` if it is
    /// about others, if the responder does not know the certificate, or if it is from the future and revokes nothing.
    pub(crate) fn about(
        &self,
        certificate: &CertificateName<'_>,
        now: u64,
    ) -> Option<(u64, OcspStatus)> {
        let about = |single: &&SingleAnswer| certificate.has_id(&single.id) && single.tells(now);
        let statuses = self.singles.iter().filter(about);
        let statuses = statuses.map(|single| (single.this_update, single.status(now)));
        statuses.min_by_key(|(made, status)| (Reverse(*made), status.rank()))
    }

    /// Says whether the answer names this end as its signer.
    pub(crate) fn names_signer(&self, name: &DistinguishedName, key: &SubjectKey) -> bool {
        match &self.signer {
            Signer::Name(signer) => signer == name,
            Signer::Key(hash) => {
                let own = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &key.bits);
                own.as_ref() == hash
            }
        }
    }

    /// Says whether the answer is about the certificate that an OCSPRequest of ours names.
    pub fn is_about(&self, request: &[u8]) -> bool {
        self.single(request).is_some()
    }

    fn single(&self, request: &[u8]) -> Option<&SingleAnswer> {
        let request: OcspRequest = decode(request).ok()?;
        let asked = &request.tbs_request.request_list.first()?.req_cert;
        let mut singles = self.singles.iter();
        // Another hash names the issuer in its own way.
        singles.find(
            |single| match single.id.hash_algorithm.oid == asked.hash_algorithm.oid {
                true => is_same(&single.id, asked),
                false => single.id.serial_number == asked.serial_number,
            },
        )
    }

    /// A key that may speak for the issuer of the certificate has made the signature.
    pub(super) fn is_verified(&self) -> bool {
        self.signed.has_verified()
    }

    pub(super) fn revokes(&self) -> bool {
        self.singles.iter().any(SingleAnswer::revokes)
    }

    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.singles == other.singles
    }

    /// Says whether the older answer to the same request has nothing to say any more.
    pub(super) fn supersedes(&self, older: &Self, request: &[u8], now: u64) -> bool {
        let Some(other) = older.single(request) else {
            return false;
        };
        let mut singles = self.singles.iter();
        let Some(own) = singles.find(|single| is_same(&single.id, &other.id)) else {
            return false;
        };
        // Only a word about the certificate takes a revocation back.
        let tells = !other.revokes() || !matches!(own.status, CertStatus::Unknown(_));
        tells
            && own.is_made(now)
            && own.this_update > other.this_update
            && self.is_verified()
            && older.is_verified()
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

impl PartialEq for OcspAnswer {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for OcspAnswer {}

impl SingleAnswer {
    fn revokes(&self) -> bool {
        matches!(self.status, CertStatus::Revoked(_))
    }

    /// It tells something about its certificate now.
    fn tells(&self, now: u64) -> bool {
        let is_known = !matches!(self.status, CertStatus::Unknown(_));
        self.revokes() || (is_known && self.is_made(now))
    }

    fn is_made(&self, now: u64) -> bool {
        self.this_update <= now.saturating_add(SKEW_MAX)
    }

    fn usable_until(&self) -> u64 {
        match self.next_update {
            Some(next) => next.saturating_add(SKEW_MAX),
            None => self.this_update.saturating_add(AGE_MAX),
        }
    }

    /// A certificate that was revoked stays so, however old the answer is.
    fn status(&self, now: u64) -> OcspStatus {
        let is_current = self.is_made(now) && now <= self.usable_until();
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

/// Says whether two names are of one certificate. The parameters of the hash do not matter.
fn is_same(one: &CertId, other: &CertId) -> bool {
    let parts = |id: &CertId| {
        (
            id.hash_algorithm.oid,
            id.issuer_name_hash.clone(),
            id.issuer_key_hash.clone(),
            id.serial_number.clone(),
        )
    };
    parts(one) == parts(other)
}

fn seconds(time: OcspGeneralizedTime) -> u64 {
    time.0.to_unix_duration().as_secs()
}
