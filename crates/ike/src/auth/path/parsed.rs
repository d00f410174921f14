//! What path validation needs of a certificate.

use std::time::Duration;

use rustls_pki_types::alg_id;
use x509_cert::TbsCertificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::certificate::Version;
use x509_cert::der::asn1::{BitString, ObjectIdentifier};
use x509_cert::der::{AnyRef, Decode, Encode, Reader, SliceReader, Tag, Tagged};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::constraints::name::NameConstraints;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    BasicConstraints, CertificatePolicies, ExtendedKeyUsage, InhibitAnyPolicy, KeyUsage,
    PolicyConstraints, PolicyMappings, SubjectAltName,
};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::super::{Name, oid};

/// The extensions that are processed, by the last arc of their object identifier 2.5.29.x.
const KEY_USAGE: u32 = 15;
const SUBJECT_ALT_NAME: u32 = 17;
const BASIC_CONSTRAINTS: u32 = 19;
const NAME_CONSTRAINTS: u32 = 30;
const CERTIFICATE_POLICIES: u32 = 32;
const POLICY_MAPPINGS: u32 = 33;
const POLICY_CONSTRAINTS: u32 = 36;
const EXTENDED_KEY_USAGE: u32 = 37;
const INHIBIT_ANY_POLICY: u32 = 54;

const ID_CE: &[u8] = &[0x55, 0x1d];
const EMAIL: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.1");

#[derive(Clone)]
pub(super) struct Parsed {
    /// The signed bytes, the AlgorithmIdentifier without its header, and the signature.
    pub(super) signed: Vec<u8>,
    pub(super) algorithm: Vec<u8>,
    pub(super) signature: Vec<u8>,
    pub(super) subject: Name,
    pub(super) issuer: Name,
    pub(super) key: Key,
    pub(super) not_before: Duration,
    pub(super) not_after: Duration,
    pub(super) version: Version,
    pub(super) extensions: Extensions,
    /// Of the subject field, where RFC 822 constraints apply too (RFC 5280 section 4.2.1.10).
    pub(super) emails: Vec<String>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// The AlgorithmIdentifier without its header.
    pub(super) algorithm: Vec<u8>,
    pub(super) bits: Vec<u8>,
}

#[derive(Clone, Default)]
pub(super) struct Extensions {
    pub(super) basic_constraints: Option<BasicConstraints>,
    pub(super) key_usage: Option<KeyUsage>,
    pub(super) purposes: Option<Vec<ObjectIdentifier>>,
    pub(super) alternative_names: Vec<GeneralName>,
    pub(super) name_constraints: Option<NameConstraints>,
    pub(super) policies: Option<Vec<ObjectIdentifier>>,
    pub(super) policy_mappings: Vec<(ObjectIdentifier, ObjectIdentifier)>,
    pub(super) require_explicit_policy: Option<u32>,
    pub(super) inhibit_policy_mapping: Option<u32>,
    pub(super) inhibit_any_policy: Option<u32>,
    /// The first critical one that is not processed.
    pub(super) unknown_critical: Option<ObjectIdentifier>,
}

impl Parsed {
    /// `Err` says what is malformed.
    pub(super) fn from_der(der: &[u8]) -> Result<Self, String> {
        let text = |error: x509_cert::der::Error| error.to_string();
        let (signed, algorithm, signature) = split(der).map_err(text)?;
        let tbs = TbsCertificate::from_der(signed).map_err(text)?;
        let inner = tbs.signature.to_der().map_err(text)?;
        if inner != algorithm {
            return Err("it names two signature algorithms".to_owned());
        }
        let name = |name: &x509_cert::name::Name| {
            let der = name.to_der().map_err(text)?;
            Name::from_der(&der).ok_or_else(|| "malformed name".to_owned())
        };
        let emails = tbs.subject.0.iter().flat_map(|rdn| rdn.0.iter());
        Ok(Self {
            signed: signed.to_vec(),
            algorithm: content(algorithm).map_err(text)?,
            signature,
            subject: name(&tbs.subject)?,
            issuer: name(&tbs.issuer)?,
            key: Key::new(&tbs.subject_public_key_info).map_err(text)?,
            not_before: tbs.validity.not_before.to_unix_duration(),
            not_after: tbs.validity.not_after.to_unix_duration(),
            version: tbs.version,
            extensions: Extensions::new(tbs.version, tbs.extensions.as_deref().unwrap_or(&[]))?,
            emails: emails.filter_map(email).collect(),
        })
    }

    /// An intermediate that names itself as its issuer, as when a CA changes its key (RFC 5280 section 6.1).
    pub(super) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }
}

impl Key {
    fn new(spki: &SubjectPublicKeyInfoOwned) -> x509_cert::der::Result<Self> {
        Ok(Self {
            algorithm: content(&spki.algorithm.to_der()?)?,
            bits: spki.subject_public_key.raw_bytes().to_vec(),
        })
    }

    pub(super) fn is_for(&self, algorithm: alg_id::AlgorithmIdentifier) -> bool {
        self.algorithm == algorithm.as_ref()
    }
}

/// The three parts of a certificate: the first two with their headers.
fn split(der: &[u8]) -> x509_cert::der::Result<(&[u8], &[u8], Vec<u8>)> {
    let outer = AnyRef::from_der(der)?;
    outer.tag().assert_eq(Tag::Sequence)?;
    let mut reader = SliceReader::new(outer.value())?;
    let signed = reader.tlv_bytes()?;
    let algorithm = reader.tlv_bytes()?;
    let signature: BitString = reader.decode()?;
    let signature = signature.as_bytes().unwrap_or_default().to_vec();
    reader.finish((signed, algorithm, signature))
}

fn content(der: &[u8]) -> x509_cert::der::Result<Vec<u8>> {
    Ok(AnyRef::from_der(der)?.value().to_vec())
}

fn email(attribute: &AttributeTypeAndValue) -> Option<String> {
    let is_email = attribute.oid == EMAIL;
    is_email.then(|| String::from_utf8_lossy(attribute.value.value()).into_owned())
}

impl Extensions {
    fn new(version: Version, list: &[Extension]) -> Result<Self, String> {
        if version != Version::V3 && !list.is_empty() {
            return Err("it has extensions, and not version 3".to_owned());
        }
        let mut known = Self::default();
        for (index, extension) in list.iter().enumerate() {
            let id = extension.extn_id;
            // RFC 5280 section 4.2.
            if list[..index].iter().any(|other| other.extn_id == id) {
                return Err(format!("it has extension {} twice", oid::dotted(&id)));
            }
            let processed = known
                .read(extension)
                .map_err(|error| format!("extension {}: {error}", oid::dotted(&id)))?;
            if !processed && extension.critical {
                known.unknown_critical.get_or_insert(id);
            }
        }
        Ok(known)
    }

    /// Whether the extension is one that is processed.
    fn read(&mut self, extension: &Extension) -> x509_cert::der::Result<bool> {
        let value = extension.extn_value.as_bytes();
        let Some(&[arc]) = extension.extn_id.as_bytes().strip_prefix(ID_CE) else {
            return Ok(false);
        };
        match u32::from(arc) {
            KEY_USAGE => self.key_usage = Some(KeyUsage::from_der(value)?),
            SUBJECT_ALT_NAME => self.alternative_names = SubjectAltName::from_der(value)?.0,
            BASIC_CONSTRAINTS => {
                self.basic_constraints = Some(BasicConstraints::from_der(value)?);
            }
            NAME_CONSTRAINTS => self.name_constraints = Some(NameConstraints::from_der(value)?),
            CERTIFICATE_POLICIES => {
                let list = CertificatePolicies::from_der(value)?.0;
                let list = list.into_iter().map(|policy| policy.policy_identifier);
                self.policies = Some(list.collect());
            }
            POLICY_MAPPINGS => {
                let list = PolicyMappings::from_der(value)?.0.into_iter();
                let pairs =
                    list.map(|pair| (pair.issuer_domain_policy, pair.subject_domain_policy));
                self.policy_mappings = pairs.collect();
            }
            POLICY_CONSTRAINTS => {
                let constraints = PolicyConstraints::from_der(value)?;
                self.require_explicit_policy = constraints.require_explicit_policy;
                self.inhibit_policy_mapping = constraints.inhibit_policy_mapping;
            }
            EXTENDED_KEY_USAGE => self.purposes = Some(ExtendedKeyUsage::from_der(value)?.0),
            INHIBIT_ANY_POLICY => {
                self.inhibit_any_policy = Some(InhibitAnyPolicy::from_der(value)?.0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
