//! The holder of an attribute certificate (RFC 5755 §4.2.2).

use aws_lc_rs::digest::{self, Algorithm};
use x509_cert::der::asn1::{BitString, ObjectIdentifier};
use x509_cert::der::{Tag, TagNumber, Tagged};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::spki::AlgorithmIdentifierOwned;

use crate::certificate::Certificate;
use crate::der::{DerError, DerReader, decode};
use crate::name::DistinguishedName;
use crate::revocation::Serial;
use crate::subject_name::SubjectName;

/// Names of one holder, issuer or list of targets. No sane certificate has more.
const NAMES_MAX: usize = 64;

/// Every part that is there must fit the certificate of the holder.
pub(super) struct Holder {
    /// The issuer and the serial number of the certificate.
    base: Option<(DistinguishedName, Serial)>,
    entity: Vec<SubjectName<'static>>,
    digest: Option<ObjectDigest>,
}

/// The digest of the certificate, or of its key.
struct ObjectDigest {
    of_key: bool,
    algorithm: &'static Algorithm,
    value: Vec<u8>,
}

pub(super) const fn context(number: TagNumber) -> Tag {
    Tag::ContextSpecific {
        constructed: true,
        number,
    }
}

pub(super) fn text(error: DerError) -> String {
    error.to_string()
}

fn is_tag(tag: Tag, expected: Tag) -> Result<(), String> {
    tag.assert_eq(expected).map_err(|error| error.to_string())?;
    Ok(())
}

impl Holder {
    /// Reads the content of the SEQUENCE.
    pub(super) fn read(content: &[u8]) -> Result<Self, String> {
        let mut holder = Self {
            base: None,
            entity: Vec::new(),
            digest: None,
        };
        let mut reader = DerReader::new(content).map_err(text)?;
        let mut last = None;
        while !reader.is_finished() {
            let part = reader.element().map_err(text)?;
            if last.is_some_and(|last| part.tag().number() <= last) {
                return Err("its holder has a part twice".to_owned());
            }
            last = Some(part.tag().number());
            match part.tag() {
                tag if tag == context(TagNumber::N0) => holder.base = Some(base(part.value())?),
                tag if tag == context(TagNumber::N1) => holder.entity = identities(part.value())?,
                tag if tag == context(TagNumber::N2) => {
                    holder.digest = Some(ObjectDigest::read(part.value())?);
                }
                _ => return Err("its holder has an unknown part".to_owned()),
            }
        }
        match last {
            Some(_) => Ok(holder),
            None => Err("it names no holder".to_owned()),
        }
    }

    /// Says whether this certificate is the holder's.
    pub(super) fn is(&self, certificate: &Certificate) -> bool {
        let base = self.base.as_ref().is_none_or(|(issuer, serial)| {
            issuer == certificate.issuer() && Some(serial) == certificate.serial()
        });
        let digest = self.digest.as_ref();
        base && self.entity.iter().all(|name| certificate.names(name))
            && digest.is_none_or(|digest| digest.is_of(certificate))
    }
}

/// IssuerSerial: the issuer and the serial number of a certificate.
fn base(content: &[u8]) -> Result<(DistinguishedName, Serial), String> {
    let mut reader = DerReader::new(content).map_err(text)?;
    let names = reader.element().map_err(text)?;
    is_tag(names.tag(), Tag::Sequence)?;
    let serial = reader.whole().map_err(text)?;
    let serial = Serial::from_der(serial).ok_or("the serial number of its holder is malformed")?;
    // No certificate that we accept has the identifier that can follow.
    match reader.is_finished() {
        true => Ok((directory_name(names.value())?, serial)),
        false => Err("its holder has an issuerUID".to_owned()),
    }
}

/// Reads the one directoryName of GeneralNames.
pub(super) fn directory_name(content: &[u8]) -> Result<DistinguishedName, String> {
    match <[_; 1]>::try_from(general_names(content)?) {
        Ok([GeneralName::DirectoryName(name)]) => {
            let name = DistinguishedName::from_rdns(&name).filter(|name| !name.is_empty());
            name.ok_or_else(|| "malformed name".to_owned())
        }
        _ => Err("an issuer in it is not one directoryName".to_owned()),
    }
}

fn general_names(content: &[u8]) -> Result<Vec<GeneralName>, String> {
    let mut reader = DerReader::new(content).map_err(text)?;
    let mut names = Vec::new();
    while !reader.is_finished() {
        if names.len() >= NAMES_MAX {
            return Err("it has too many names".to_owned());
        }
        names.push(reader.decode().map_err(text)?);
    }
    Ok(names)
}

/// Reads GeneralNames of kinds that certificates are compared by.
fn identities(content: &[u8]) -> Result<Vec<SubjectName<'static>>, String> {
    let names = general_names(content)?;
    let identities = names.iter().map(SubjectName::from_alternative_name);
    // An empty name would be that of every certificate without a subject.
    let is_empty =
        |name: &SubjectName<'_>| (name.as_directory()).is_some_and(|name| name.is_empty());
    match identities.collect::<Option<Vec<_>>>() {
        Some(identities) if !identities.is_empty() && !identities.iter().any(is_empty) => {
            Ok(identities)
        }
        _ => Err("its holder has no name, or one of a kind that is not supported".to_owned()),
    }
}

impl ObjectDigest {
    fn read(content: &[u8]) -> Result<Self, String> {
        let mut reader = DerReader::new(content).map_err(text)?;
        let kind = reader.element().map_err(text)?;
        is_tag(kind.tag(), Tag::Enumerated)?;
        let of_key = match kind.value() {
            [0] => true,
            [1] => false,
            _ => return Err("the digest of its holder is of another object".to_owned()),
        };
        let algorithm: AlgorithmIdentifierOwned = reader.decode().map_err(text)?;
        let algorithm = digest_algorithm(&algorithm.oid)
            .ok_or("the digest of its holder has an algorithm that is not supported")?;
        let value: BitString = reader.decode().map_err(text)?;
        let value = value.as_bytes().unwrap_or_default().to_vec();
        reader.finish(()).map_err(text)?;
        Ok(Self {
            of_key,
            algorithm,
            value,
        })
    }

    fn is_of(&self, certificate: &Certificate) -> bool {
        let object = match self.of_key {
            true => certificate.public_key().der(),
            false => certificate.der(),
        };
        digest::digest(self.algorithm, object).as_ref() == self.value
    }
}

fn digest_algorithm(id: &ObjectIdentifier) -> Option<&'static Algorithm> {
    const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
    const SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2");
    const SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");
    match *id {
        SHA256 => Some(&digest::SHA256),
        SHA384 => Some(&digest::SHA384),
        SHA512 => Some(&digest::SHA512),
        _ => None,
    }
}

/// Reads targetInformation (RFC 5755 §4.3.2): the names of those who may use an attribute certificate. Groups and
/// certificates as targets, and names of other kinds, name nobody here.
pub(super) fn targets(value: &[u8]) -> Result<Vec<SubjectName<'static>>, String> {
    const NAME: Tag = context(TagNumber::N0);
    let mut targets = Vec::new();
    let mut lists = DerReader::within(value, Tag::Sequence).map_err(text)?;
    while !lists.is_finished() {
        let list = lists.whole().map_err(text)?;
        let mut reader = DerReader::within(list, Tag::Sequence).map_err(text)?;
        while !reader.is_finished() {
            let target = reader.element().map_err(text)?;
            if target.tag() != NAME {
                continue;
            }
            if targets.len() >= NAMES_MAX {
                return Err("it has too many targets".to_owned());
            }
            // A CHOICE has an explicit tag also where the module's tags are implicit (X.680 clause 31.2.7).
            let name: GeneralName = decode(target.value()).map_err(text)?;
            targets.extend(SubjectName::from_alternative_name(&name));
        }
    }
    Ok(targets)
}
