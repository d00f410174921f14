//! The suite of an IKE SA: its algorithms, key exchange, key derivation and the Encrypted payload.
//!
//! These are used in the order of an IKE SA's life:
//! 1. [`KeyExchange::start`] for the first method of our proposals. [`ActiveKeyExchange::data`] goes into the KE payload.
//! 2. [`Suite::from_proposal`] of the chosen proposal, and [`ActiveKeyExchange::complete`] with the responder's data.
//!    The responder calls [`KeyExchange::answer`] instead.
//! 3. [`IkeSaKeys::derive`] (RFC 7296 §2.14), or [`IkeSaKeys::rekey`] from the keys of the replaced SA (§2.18).
//! 4. [`IkeSaKeys::sealer`] and [`IkeSaKeys::opener`], each with *our* role in this IKE SA. [`Sealer::seal`] makes a whole
//!    datagram, [`Opener::open`] checks and opens one.
//! 5. [`IkeSaKeys::psk_auth`] or [`IkeSaKeys::signed_octets`] for AUTH (§2.15).
//! 6. [`IkeSaKeys::child_keymat`] for each child SA (§2.17).

mod derive;
mod encrypted;
mod key_exchange;
#[cfg(test)]
mod tests;

pub use derive::{IkeSaKeys, Nonces, full_transcript, nat_detection_hash, prf, prf_plus};
pub use encrypted::{OpenError, OpenedFragment, Opener, SealError, Sealer};
pub(crate) use encrypted::{PlainContent, open_chain};
pub use esplanade_crypto::dh::{DhError, KeyPair, check_public};
pub use esplanade_crypto::secret::Secret;
pub use key_exchange::{
    ActiveKeyExchange, DiffieHellman, KeyExchange, KeyExchangeAnswer, KeyExchangeMethods,
};

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf};

use crate::wire::{Proposal, ProtocolId, Transform, TransformType};

/// Our role in an IKE SA. After a rekey the initiator is the end that began the rekey (RFC 7296 §2.18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    Initiator,
    Responder,
}

impl Role {
    pub const fn peer(self) -> Self {
        match self {
            Self::Initiator => Self::Responder,
            Self::Responder => Self::Initiator,
        }
    }

    pub const fn is_initiator(self) -> bool {
        matches!(self, Self::Initiator)
    }
}

/// The algorithms of one IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Suite {
    pub encryption: Encryption,
    pub key_bits: u16,
    /// The integrity algorithm. It is `None` if, and only if, the encryption is an AEAD.
    pub integrity: Option<Integrity>,
    pub prf: Prf,
    pub key_exchanges: KeyExchangeMethods,
}

/// The reason why a proposal is not an IKE suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    #[error("the proposal is for {0}, not for IKE")]
    Protocol(ProtocolId),
    #[error("there must be exactly one transform of type {0}")]
    NotOne(TransformType),
    #[error("transform {1} of type {0} is not supported")]
    Unsupported(TransformType, u16),
    #[error("{0} bits is no key length of the cipher")]
    KeyLength(u16),
    #[error("an AEAD cipher goes without an integrity transform, any other needs one")]
    Integrity,
}

impl Suite {
    /// Reads a chosen proposal, which has one transform of each type that IKE needs. INTEGRITY NONE beside an AEAD
    /// counts as absent (RFC 7296 §3.3.2).
    pub fn from_proposal(proposal: &Proposal) -> Result<Self, SuiteError> {
        if proposal.protocol != ProtocolId::IKE {
            return Err(SuiteError::Protocol(proposal.protocol));
        }
        let unsupported = |t: &Transform| SuiteError::Unsupported(t.kind, t.id);
        let cipher = only(proposal, TransformType::ENCRYPTION)?
            .ok_or(SuiteError::NotOne(TransformType::ENCRYPTION))?;
        let encryption = Encryption::from_number(cipher.id)
            .filter(|encryption| encryption.for_ike())
            .ok_or_else(|| unsupported(cipher))?;
        let key_bits = cipher.key_bits.unwrap_or(0);
        if !encryption.key_bits().contains(&key_bits) {
            return Err(SuiteError::KeyLength(key_bits));
        }
        let prf =
            only(proposal, TransformType::PRF)?.ok_or(SuiteError::NotOne(TransformType::PRF))?;
        let method = only(proposal, TransformType::KEY_EXCHANGE)?
            .ok_or(SuiteError::NotOne(TransformType::KEY_EXCHANGE))?;
        let method = Group::from_number(method.id).ok_or_else(|| unsupported(method))?;
        let integrity = only(proposal, TransformType::INTEGRITY)?
            .filter(|t| t.id != 0)
            .map(|t| {
                Integrity::from_number(t.id)
                    .filter(|integrity| integrity.for_ike())
                    .ok_or_else(|| unsupported(t))
            })
            .transpose()?;
        if integrity.is_some() == encryption.is_aead() {
            return Err(SuiteError::Integrity);
        }
        Ok(Self {
            encryption,
            key_bits,
            integrity,
            prf: Prf::from_number(prf.id).ok_or_else(|| unsupported(prf))?,
            key_exchanges: KeyExchangeMethods::one(method),
        })
    }

    /// The transforms of this suite, for a proposal.
    pub fn transforms(&self) -> Vec<Transform> {
        let mut transforms = vec![Transform::encryption(self.encryption, self.key_bits)];
        if let Some(integrity) = self.integrity {
            transforms.push(Transform::new(TransformType::INTEGRITY, integrity.number()));
        }
        transforms.push(Transform::new(TransformType::PRF, self.prf.number()));
        let methods = self.key_exchanges.iter();
        transforms.extend(
            methods.map(|method| Transform::new(TransformType::KEY_EXCHANGE, method.number())),
        );
        transforms
    }
}

impl std::fmt::Display for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.encryption)?;
        if self.key_bits != 0 {
            write!(f, "_{}", self.key_bits)?;
        }
        if let Some(integrity) = self.integrity {
            write!(f, "/{integrity}")?;
        }
        write!(f, "/{}/{}", self.prf, self.key_exchanges)
    }
}

/// Returns the transform of one type, or `None` if the proposal has none. Fails if there are several, or if the
/// transform has an unknown attribute.
fn only(proposal: &Proposal, kind: TransformType) -> Result<Option<&Transform>, SuiteError> {
    let mut all = proposal.of_kind(kind);
    match (all.next(), all.next()) {
        (Some(transform), None) if !transform.unknown_attribute => Ok(Some(transform)),
        (None, _) => Ok(None),
        _ => Err(SuiteError::NotOne(kind)),
    }
}
