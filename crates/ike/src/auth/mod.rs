//! Authentication: identities, credentials and signatures (RFC 7296 §2.15, RFC 7427, RFC 4945).
//!
//! A pre-shared key needs only [`crate::suite::IkeSaKeys::psk_auth`]. With certificates, which `esplanade_pki` reads:
//! - Ours: [`Credential::new`] takes a private key and its chain. [`Credential::certificates`] go into CERT payloads.
//!   [`Credential::sign`] makes the AUTH payload for the hashes that the peer has announced. A key that is kept elsewhere
//!   is an [`ExternalKey`].
//! - The peer's: [`certreq`] asks for certificates below the trusted authorities. [`PeerCertificates::verify`] checks
//!   those in the CERT payloads against the identity in the ID payload. It gives a [`VerifiedPeer`], whose
//!   [`VerifiedPeer::check_auth`] checks the AUTH payload. A raw key has no path.
//!
//! [`crate::suite::IkeSaKeys::signed_octets`] gives the signed octets. IKE_SA_INIT must announce
//! [`SIGNATURE_HASHES`]. The caller gives the time.

mod credential;
mod date;
mod error;
mod external_key;
mod identity;
mod peer_certificates;
mod requests;
mod rules;
mod scheme;
mod signature;
#[cfg(test)]
mod tests;

pub use credential::{CertificateUriBase, Credential};
pub(crate) use date::unix_time;
pub use error::{CredentialError, PeerAuthError};
pub use external_key::{ExternalKey, SigningMechanism, SigningRequest};
#[cfg(feature = "generators")]
pub use identity::generators;
pub use identity::{Identity, IdentityError};
pub(crate) use peer_certificates::CertificateHash;
pub use peer_certificates::{PeerCertificates, VerifiedPeer};
pub use requests::certreq;
pub(crate) use requests::{AUTHORITIES_ASKED_MAX, certreq_of_all, certreq_of_raw_key};
pub use rules::{CertificateRules, SchemeRules};
pub use scheme::SIGNATURE_HASHES;
pub(crate) use signature::{check_auth, check_scheme};
