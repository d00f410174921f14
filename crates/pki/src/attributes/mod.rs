//! Memberships of peers in groups, which attribute certificates prove (RFC 5755).
//!
//! An attribute certificate says of the holder of another certificate that it is in certain groups. It counts if all of
//! this holds (RFC 5755 §5):
//! - Its holder is the certificate by which the peer has authenticated.
//! - An authority of the [`AttributeStore`] has signed it. No other issuer counts, whatever path it has.
//! - The issuer's own certificate has a valid path to a trusted authority, if the issuer of that is known. Otherwise the
//!   administrator vouches for it.
//! - The time is within its validity, its targets include us, and no critical extension is unknown.
//! - It has noRevAvail: nobody can revoke it. Others would need CRLs for attribute certificates (RFC 5755 §6).
//!
//! Attribute certificates are frozen: nothing is added to this module.

mod certificate;
mod error;
mod group;
mod holder;
mod store;
#[cfg(test)]
mod tests;

pub use certificate::AttributeCertificate;
pub use error::{AttributeError, MembershipError};
pub use group::GroupName;
pub use store::{AttributeAuthority, AttributeStore, AttributeTerms, Memberships, PeerAttributes};
