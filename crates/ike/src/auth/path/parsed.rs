//! The parts of a certificate that path validation uses.

use std::collections::BTreeSet;
use std::time::Duration;

use rustls_pki_types::alg_id;
use x509_cert::TbsCertificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::certificate::Version;
use x509_cert::der::asn1::{BitString, ObjectIdentifier, UintRef};
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::{AnyRef, Decode, Encode, Reader, SliceReader, Tag, Tagged};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::constraints::name::NameConstraints;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    BasicConstraints, CertificatePolicies, ExtendedKeyUsage, InhibitAnyPolicy, KeyUsage,
    PolicyConstraints, PolicyMappings, SubjectAltName,
};
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::super::identity::Identity;
use super::super::name::{DistinguishedName, EMAIL, text};
use super::super::oid;
use super::super::scheme::KeyType;
use super::super::sets::{TOO_LARGE, sets_are_small};
use super::presented::{Presented, presented};

#[derive(Clone)]
pub(super) struct Parsed {
    /// The signed bytes, the AlgorithmIdentifier without its header, and the signature.
    pub(super) signed: Vec<u8>,
    pub(super) algorithm: Vec<u8>,
    pub(super) signature: Vec<u8>,
    pub(super) subject: DistinguishedName,
    pub(super) issuer: DistinguishedName,
    pub(super) key: SubjectKey,
    pub(super) not_before: Duration,
    pub(super) not_after: Duration,
    pub(super) version: Version,
    pub(super) extensions: Extensions,
    /// The names that name constraints apply to. It is `None` if one of the names is malformed.
    pub(super) names: Option<Vec<Presented>>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct SubjectKey {
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
    /// The first critical extension that is not processed.
    pub(super) unknown_critical: Option<ObjectIdentifier>,
}

impl Parsed {
    /// An error says what is malformed.
    pub(super) fn from_der(der: &[u8]) -> Result<Self, String> {
        let text = |error: x509_cert::der::Error| error.to_string();
        if !sets_are_small(der) {
            return Err(TOO_LARGE.to_owned());
        }
        let (signed, algorithm, signature) = split(der).map_err(text)?;
        let tbs = TbsCertificate::from_der(signed).map_err(text)?;
        let inner = tbs.signature.to_der().map_err(text)?;
        if inner != algorithm {
            return Err("it names two signature algorithms".to_owned());
        }
        let name =
            |name| DistinguishedName::from_rdns(name).ok_or_else(|| "malformed name".to_owned());
        let subject = name(&tbs.subject)?;
        let extensions = Extensions::new(tbs.version, tbs.extensions.as_deref().unwrap_or(&[]))?;
        let attributes = tbs.subject.0.iter().flat_map(|rdn| rdn.0.iter());
        let emails = attributes.filter_map(email);
        Ok(Self {
            signed: signed.to_vec(),
            algorithm: content(algorithm).map_err(text)?,
            signature,
            names: presented(&subject, emails, &extensions.alternative_names),
            subject,
            issuer: name(&tbs.issuer)?,
            key: SubjectKey::new(&tbs.subject_public_key_info).map_err(text)?,
            not_before: tbs.validity.not_before.to_unix_duration(),
            not_after: tbs.validity.not_after.to_unix_duration(),
            version: tbs.version,
            extensions,
        })
    }

    /// An intermediate names itself as its issuer, for example when a CA changes its key (RFC 5280 §6.1).
    pub(super) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Says whether the subject or an alternative name is `name`, or fits the pattern.
    pub(super) fn has_name(&self, name: &Identity) -> bool {
        let others = self.extensions.alternative_names.iter();
        let others = others.filter_map(Identity::from_alternative_name);
        let mut all = others.chain([Identity::Dn(self.subject.clone())]);
        all.any(|own| name.accepts(&own))
    }
}

impl SubjectKey {
    fn new(spki: &SubjectPublicKeyInfoOwned) -> x509_cert::der::Result<Self> {
        Ok(Self {
            algorithm: content(&spki.algorithm.to_der()?)?,
            bits: spki.subject_public_key.raw_bytes().to_vec(),
        })
    }

    /// The type and the size in bits, or `None` if a key of this type cannot sign here.
    pub(super) fn strength(&self) -> Option<(KeyType, u32)> {
        let fixed = [
            (alg_id::ECDSA_P256, (KeyType::P256, 256)),
            (alg_id::ECDSA_P384, (KeyType::P384, 384)),
            (alg_id::ECDSA_P521, (KeyType::P521, 521)),
            (alg_id::ED25519, (KeyType::Ed25519, 255)),
        ];
        if self.is_for(alg_id::RSA_ENCRYPTION) {
            return Some((KeyType::Rsa, modulus_bits(&self.bits)?));
        }
        let found = fixed
            .into_iter()
            .find(|(algorithm, _)| self.is_for(*algorithm));
        found.map(|(_, strength)| strength)
    }

    pub(super) fn is_for(&self, algorithm: alg_id::AlgorithmIdentifier) -> bool {
        self.algorithm == algorithm.as_ref()
    }
}

/// The size of an RSAPublicKey (RFC 8017 appendix A.1.1).
fn modulus_bits(key: &[u8]) -> Option<u32> {
    let sequence = AnyRef::from_der(key).ok()?;
    let mut reader = SliceReader::new(sequence.value()).ok()?;
    let modulus = UintRef::decode(&mut reader).ok()?;
    let (first, rest) = modulus.as_bytes().split_first()?;
    let rest = u32::try_from(rest.len()).ok()?;
    rest.checked_mul(8)?
        .checked_add(u8::BITS - first.leading_zeros())
}

/// The three parts of a certificate. The first two are with their headers.
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

/// An email address in the subject, which RFC 822 constraints apply to too (RFC 5280 §4.2.1.10).
fn email(attribute: &AttributeTypeAndValue) -> Option<String> {
    // A value that is not text is no mailbox that a constraint could permit.
    (attribute.oid == EMAIL).then(|| text(&attribute.value).unwrap_or_default())
}

impl Extensions {
    fn new(version: Version, list: &[Extension]) -> Result<Self, String> {
        if version != Version::V3 && !list.is_empty() {
            return Err("it has extensions, and not version 3".to_owned());
        }
        let mut known = Self::default();
        let mut seen = BTreeSet::new();
        for extension in list {
            let id = extension.extn_id;
            // An extension comes once (RFC 5280 §4.2).
            if !seen.insert(id) {
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

    /// Says whether the extension is one that is processed.
    fn read(&mut self, extension: &Extension) -> x509_cert::der::Result<bool> {
        let value = extension.extn_value.as_bytes();
        match extension.extn_id {
            KeyUsage::OID => self.key_usage = Some(KeyUsage::from_der(value)?),
            SubjectAltName::OID | NameConstraints::OID if !sets_are_small(value) => {
                return Err(Tag::Set.value_error());
            }
            SubjectAltName::OID => self.alternative_names = SubjectAltName::from_der(value)?.0,
            BasicConstraints::OID => {
                self.basic_constraints = Some(BasicConstraints::from_der(value)?);
            }
            NameConstraints::OID => self.name_constraints = Some(NameConstraints::from_der(value)?),
            CertificatePolicies::OID => {
                let list = CertificatePolicies::from_der(value)?.0;
                let list = list.into_iter().map(|policy| policy.policy_identifier);
                self.policies = Some(list.collect());
            }
            PolicyMappings::OID => {
                let list = PolicyMappings::from_der(value)?.0.into_iter();
                let pairs =
                    list.map(|pair| (pair.issuer_domain_policy, pair.subject_domain_policy));
                self.policy_mappings = pairs.collect();
            }
            PolicyConstraints::OID => {
                let constraints = PolicyConstraints::from_der(value)?;
                self.require_explicit_policy = constraints.require_explicit_policy;
                self.inhibit_policy_mapping = constraints.inhibit_policy_mapping;
            }
            ExtendedKeyUsage::OID => self.purposes = Some(ExtendedKeyUsage::from_der(value)?.0),
            InhibitAnyPolicy::OID => {
                self.inhibit_any_policy = Some(InhibitAnyPolicy::from_der(value)?.0);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
