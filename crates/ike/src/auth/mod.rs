//! Authentication: identities, certificates and signatures (RFC 7296 §2.15, RFC 7427, RFC 4945).
//!
//! A pre-shared key needs only [`crate::suite::IkeSaKeys::psk_auth`]. With certificates:
//! - Ours: [`Credential::new`] takes a private key and its chain. [`Credential::certificates`] go into CERT payloads.
//!   [`Credential::sign`] makes the AUTH payload for the hashes that the peer has announced. A key that is kept elsewhere
//!   is an [`ExternalKey`].
//! - The peer's: [`Authorities::new`] takes the trusted CA certificates, and [`Authorities::certreq`] asks for
//!   certificates below them. [`Authorities::verify`] checks the CERT payloads, as [`PeerCertificates`],
//!   against the identity in the ID payload. It gives a [`VerifiedPeer`], whose [`VerifiedPeer::check_auth`] checks the
//!   AUTH payload. A raw key has no path, and [`PublicKey::check_auth`] does the same.
//!
//! - Revocation: [`RevocationStore`] has the CRLs and the answers of OCSP responders. [`RevocationPolicy`] says what an
//!   unknown status means. [`StatusSource`] is a place where the status is to be had. [`RevocationCache`] keeps what
//!   such places give.
//! - Groups: [`AttributeStore`] has the authorities whose attribute certificates prove that a peer is in a group, and
//!   the [`AttributeCertificate`]s that need not be sent. [`PeerAttributes`] are those of a message.
//!
//! [`crate::suite::IkeSaKeys::signed_octets`] gives the signed octets. IKE_SA_INIT must announce
//! [`SIGNATURE_HASHES`]. The caller gives the time.
//!
//! **Extended key usage.** RFC 4945 §5.1.3.12 accepts a certificate without the extension, with anyExtendedKeyUsage
//! or with id-kp-ipsecIKE, and refuses others. We also accept the older iKEIntermediate, which many IKE certificates
//! have. By default we accept serverAuth and clientAuth too, as others do: many authorities issue no others.
//! [`KeyPurposes`] says more. All of this holds for every certificate of the path.

mod attributes;
mod certificate;
mod credential;
mod date;
mod der;
mod error;
mod external_key;
mod identity;
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
#[cfg(test)]
mod tests;

pub use attributes::{
    AttributeAuthority, AttributeCertificate, AttributeStore, AttributeTerms, GroupName,
    PeerAttributes,
};
pub use certificate::{Authorities, Certificate, PeerCertificates, VerifiedPeer};
pub use credential::{CertificateUriBase, Credential};
pub(crate) use date::unix_time;
pub use error::{AttributeError, CredentialError, MembershipError, PeerAuthError};
pub use external_key::{ExternalKey, SigningMechanism, SigningRequest};
#[cfg(feature = "generators")]
pub use identity::generators;
pub use identity::{Identity, IdentityError};
pub use name::DistinguishedName;
pub use public_key::PublicKey;
pub use revocation::{
    AuthoritySources, Crl, CrlError, OcspAnswer, OcspError, Revocation, RevocationCache,
    RevocationPolicy, RevocationStore, StatusKind, StatusSource,
};
pub use rules::{CertificatePolicy, CertificateRules, KeyPurposes, SchemeRules};
pub use rustls_pki_types::UnixTime;
pub use scheme::SIGNATURE_HASHES;
