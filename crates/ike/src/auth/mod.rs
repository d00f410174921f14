//! Authentication: identities, certificates and signatures (RFC 7296 section 2.15, RFC 7427, RFC 4945).
//!
//! Pre-shared keys need only [`crate::suite::IkeSaKeys::psk_auth`]. With certificates:
//! - ours: [`Credential::new`] from a private key and its chain; [`Credential::certificates`] go into
//!   CERT payloads, [`Credential::sign`] makes the AUTH payload for the hashes that the peer announced;
//! - the peer's: [`Authorities::new`] from the trusted CA certificates ([`Authorities::certreq`] asks for
//!   certificates below them), [`Authorities::verify`] checks the CERT payloads and that they
//!   belong to the identity in the ID payload, and gives a [`VerifiedPeer`], whose
//!   [`VerifiedPeer::check_auth`] checks the AUTH payload.
//!
//! The signed octets come from [`crate::suite::IkeSaKeys::signed_octets`]. Announce [`SIGNATURE_HASHES`] in
//! IKE_SA_INIT. Time is passed in.
//!
//! **Extended key usage.** RFC 4945 section 5.1.3.12 accepts a certificate without the extension, with
//! anyExtendedKeyUsage or with id-kp-ipsecIKE, and refuses others; so do we, for every certificate of
//! the path, and add the older iKEIntermediate that many IKE certificates carry. A certificate for
//! web servers only (serverAuth) is thus no IKE certificate.

mod certificate;
mod credential;
mod error;
mod identity;
mod name;
mod octets;
mod oid;
mod path;
mod scheme;
mod sets;
#[cfg(test)]
mod tests;

pub use certificate::{Authorities, Certificate, VerifiedPeer};
pub use credential::Credential;
pub use error::{CredentialError, PeerAuthError};
pub use identity::{Identity, IdentityError};
pub use name::Name;
pub use rustls_pki_types::UnixTime;
pub use scheme::SIGNATURE_HASHES;
