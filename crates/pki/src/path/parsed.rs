//! The parts of a certificate that path validation uses.

use std::collections::BTreeSet;

use x509_cert::TbsCertificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::certificate::Version;
use x509_cert::der::Encode;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::AssociatedOid;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::constraints::name::NameConstraints;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, CertificatePolicies, ExtendedKeyUsage,
    InhibitAnyPolicy, KeyUsage, PolicyConstraints, PolicyMappings, SubjectAltName,
    SubjectKeyIdentifier,
};

use super::presented::{Presented, presented};
use crate::der::{self, DerError, decode, value_of};
use crate::name::{DistinguishedName, EMAIL, text};
use crate::oid;
use crate::revocation::{Points, Serial};
use crate::signed::{Signed, SubjectKey, authority_key};
use crate::subject_name::SubjectName;
use crate::validity::Validity;

#[derive(Clone)]
pub(super) struct Parsed {
    /// The peer has sent it. Work for it counts against the peer.
    pub(super) sent: bool,
    pub(super) signed: Signed,
    pub(super) serial: Serial,
    pub(super) subject: DistinguishedName,
    pub(super) issuer: DistinguishedName,
    pub(super) key: SubjectKey,
    pub(super) validity: Validity,
    pub(super) version: Version,
    pub(super) extensions: Extensions,
    /// The names that name constraints apply to. It is `None` if one of the names is malformed.
    pub(super) names: Option<Vec<Presented>>,
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
    pub(super) points: Points,
    /// The identifier of the certificate's key, and that of the issuer's key.
    pub(super) subject_key: Option<Vec<u8>>,
    pub(super) authority_key: Option<Vec<u8>>,
    /// The first critical extension that is not processed.
    pub(super) unknown_critical: Option<ObjectIdentifier>,
}

impl Parsed {
    /// An error says what is malformed.
    pub(super) fn from_der(der: &[u8]) -> Result<Self, String> {
        let text = |error: DerError| error.to_string();
        let signed = Signed::from_der(der).map_err(text)?;
        let tbs: TbsCertificate = decode(&signed.content).map_err(text)?;
        let inner = encoded(&tbs.signature)?;
        if value_of(&inner).map_err(text)? != signed.algorithm {
            return Err("it names two signature algorithms".to_owned());
        }
        let serial = encoded(&tbs.serial_number)?;
        let name =
            |name| DistinguishedName::from_rdns(name).ok_or_else(|| "malformed name".to_owned());
        let subject = name(&tbs.subject)?;
        let extensions = Extensions::new(tbs.version, tbs.extensions.as_deref().unwrap_or(&[]))?;
        let attributes = tbs.subject.0.iter().flat_map(|rdn| rdn.0.iter());
        let emails = attributes.filter_map(email);
        Ok(Self {
            sent: false,
            signed,
            serial: Serial::from_der(&serial).ok_or("its serial number is too long")?,
            names: presented(&subject, emails, &extensions.alternative_names),
            subject,
            issuer: name(&tbs.issuer)?,
            key: SubjectKey::new(&tbs.subject_public_key_info).map_err(text)?,
            validity: Validity {
                not_before: tbs.validity.not_before.to_unix_duration(),
                not_after: tbs.validity.not_after.to_unix_duration(),
            },
            version: tbs.version,
            extensions,
        })
    }

    /// An intermediate names itself as its issuer, for example when a CA changes its key (RFC 5280 §6.1).
    pub(super) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }

    /// Says whether the key of the certificate has signed it. Of a root whose signature cannot be checked, with SHA-1 for
    /// example, its names and the identifiers of its key tell: nothing relies on a root's own signature.
    pub(super) fn is_self_signed(&self) -> bool {
        let extensions = &self.extensions;
        let own_key = match (&extensions.authority_key, &extensions.subject_key) {
            (Some(issuer), Some(own)) => issuer == own,
            _ => true,
        };
        self.is_self_issued()
            && match self.signed.is_supported() {
                true => self.is_signed_by(self),
                false => own_key,
            }
    }

    /// Says whether `issuer` has issued the certificate: by name and by signature.
    pub(super) fn is_issued_by(&self, issuer: &Self) -> bool {
        self.issuer == issuer.subject && self.is_signed_by(issuer)
    }

    fn is_signed_by(&self, issuer: &Self) -> bool {
        self.signed.verify(&issuer.key).is_ok()
    }

    /// Ranks a certificate with the name of the issuer by the identifiers of keys: the less, the likelier it is the issuer
    /// (RFC 5280 §4.2.1.1).
    pub(super) fn rank_of_issuer(&self, issuer: &Self) -> u8 {
        let named = self.extensions.authority_key.as_ref();
        match named.zip(issuer.extensions.subject_key.as_ref()) {
            Some((named, own)) if named == own => 0,
            None => 1,
            Some(_) => 2,
        }
    }

    /// Says whether the subject or an alternative name is `name`, or fits the pattern.
    pub(super) fn has_name(&self, name: &SubjectName<'_>) -> bool {
        let others = self.extensions.alternative_names.iter();
        let mut others = others.filter_map(SubjectName::from_alternative_name);
        name.accepts(&SubjectName::directory(&self.subject)) || others.any(|own| name.accepts(&own))
    }
}

fn encoded(value: &impl Encode) -> Result<Vec<u8>, String> {
    value.to_der().map_err(|error| error.to_string())
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
    fn read(&mut self, extension: &Extension) -> der::Result<bool> {
        let value = extension.extn_value.as_bytes();
        match extension.extn_id {
            KeyUsage::OID => self.key_usage = Some(decode(value)?),
            SubjectAltName::OID => self.alternative_names = decode::<SubjectAltName>(value)?.0,
            BasicConstraints::OID => self.basic_constraints = Some(decode(value)?),
            NameConstraints::OID => self.name_constraints = Some(decode(value)?),
            CertificatePolicies::OID => {
                let list = decode::<CertificatePolicies>(value)?.0;
                let list = list.into_iter().map(|policy| policy.policy_identifier);
                self.policies = Some(list.collect());
            }
            PolicyMappings::OID => {
                let list = decode::<PolicyMappings>(value)?.0.into_iter();
                let pairs =
                    list.map(|pair| (pair.issuer_domain_policy, pair.subject_domain_policy));
                self.policy_mappings = pairs.collect();
            }
            PolicyConstraints::OID => {
                let constraints: PolicyConstraints = decode(value)?;
                self.require_explicit_policy = constraints.require_explicit_policy;
                self.inhibit_policy_mapping = constraints.inhibit_policy_mapping;
            }
            ExtendedKeyUsage::OID => self.purposes = Some(decode::<ExtendedKeyUsage>(value)?.0),
            InhibitAnyPolicy::OID => {
                self.inhibit_any_policy = Some(decode::<InhibitAnyPolicy>(value)?.0);
            }
            // They order candidates, and nothing else, so that nothing of them is processed.
            SubjectKeyIdentifier::OID => {
                let identifier = decode::<SubjectKeyIdentifier>(value).ok();
                self.subject_key = identifier.map(|identifier| identifier.0.into_bytes());
                return Ok(false);
            }
            AuthorityKeyIdentifier::OID => {
                self.authority_key = authority_key(value).ok().flatten();
                return Ok(false);
            }
            id => return Ok(self.points.read(id, value)),
        }
        Ok(true)
    }
}
