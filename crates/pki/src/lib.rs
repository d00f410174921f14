//! Certificates and what they prove: X.509 (RFC 5280), OCSP (RFC 6960), attribute certificates (RFC 5755).
//!
//! The door is [`Authorities::verify`]. It takes a peer's certificates as a [`Chain`], [`PathRules`], what is known of
//! revocations as [`Revocation`], and the time. The path is verified, or needs the status of a certificate
//! ([`PathOutcome`]), or is refused ([`PathError`]). The caller then asks whether the [`Certificate`] has the name that
//! the peer claims ([`Certificate::names`]).
//!
//! - Files: [`Certificate`], [`PublicKey`] and [`Crl`] are read from PEM and DER. A [`FileError`] says why not.
//! - Revocation: [`RevocationStore`] has the CRLs and the answers of OCSP responders. [`RevocationPolicy`] says what an
//!   unknown status means. [`StatusSource`] is a place where the status is to be had. [`RevocationCache`] keeps what
//!   such places give. [`OwnStatus`] finds answers about our own certificates.
//! - Groups: [`attributes`].
//!
//! Nothing here opens a socket or reads a clock.
//!
//! **Extended key usage.** RFC 4945 §5.1.3.12 accepts a certificate without the extension, with anyExtendedKeyUsage
//! or with id-kp-ipsecIKE, and refuses others. We also accept the older iKEIntermediate, which many IKE certificates
//! have. By default we accept serverAuth and clientAuth too, as others do: many authorities issue no others.
//! [`KeyPurposes`] says more. All of this holds for every certificate of the path.
#![forbid(unsafe_code)]

pub mod attributes;
mod authorities;
mod certificate;
mod date;
mod der;
mod error;
mod limit;
mod name;
mod octets;
mod oid;
mod path;
mod public_key;
mod revocation;
mod rules;
mod scheme;
mod signed;
mod subject_name;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod text;
mod validity;

pub use authorities::{Authorities, PathOutcome};
pub use certificate::Certificate;
pub use error::{FileError, PathError};
pub use name::DistinguishedName;
pub use octets::hexadecimal;
pub use path::{Chain, OwnStatus};
pub use public_key::PublicKey;
pub use revocation::{
    AuthoritySources, Crl, CrlError, OcspAnswer, OcspError, Revocation, RevocationCache,
    RevocationPolicy, RevocationStore, StatusKind, StatusSource,
};
pub use rules::{AuthorityName, CertificatePolicy, KeyFamily, KeyPurposes, PathRules, PathSchemes};
pub use rustls_pki_types::UnixTime;
pub use scheme::{Hash, KeyType, ParameterSet, Scheme, ecdsa_signature};
pub use subject_name::SubjectName;
pub use validity::{Validity, ValidityPhase, rough};
