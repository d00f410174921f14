//! Negotiated IKE suites: key exchange, PRF, key derivation and the Encrypted payload.
//!
//! In the order of an IKE SA's life:
//! 1. [`KeyPair::generate`] for the group of the first proposal; [`EphemeralKey::public`] goes into the KE payload.
//! 2. [`Suite::from_proposal`] of the chosen proposal; [`EphemeralKey::agree`] with the peer's public value
//!    (an error there means an invalid public value: INVALID_SYNTAX).
//! 3. [`Keys::derive`] (section 2.14), or [`Keys::rekey`] from the old SA's keys (section 2.18).
//! 4. [`Keys::sealer`] and [`Keys::opener`], each with the role that *we* have in this IKE SA (the original
//!    initiator or responder of it): [`Sealer::seal`] makes a whole datagram, [`Opener::open`] checks and
//!    opens one.
//! 5. [`Keys::psk_auth`] or [`Keys::signed_octets`] for AUTH (section 2.15).
//! 6. [`Keys::child_keymat`] for each child SA (section 2.17).

mod derive;
mod encrypted;
#[cfg(test)]
mod tests;

pub use derive::{Keys, Nonces, nat_detection_hash, prf, prf_plus};
pub use encrypted::{OpenError, Opener, SealError, Sealer};
pub use esplanade_crypto::dh::{DhError, KeyPair, check_public};
pub use esplanade_crypto::secret::Secret;

use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf};

use crate::wire::{Proposal, ProtocolId, Transform, TransformType};

/// Our half of a key exchange. A retried IKE_SA_INIT uses it again.
pub trait EphemeralKey: Send + std::fmt::Debug {
    fn group(&self) -> Group;
    /// The content of the KE payload.
    fn public(&self) -> &[u8];
    /// The shared secret of RFC 7296 section 2.14. Refuses public values that are no elements of the group.
    fn agree(&self, peer_public: &[u8]) -> Result<Secret, DhError>;
}

impl EphemeralKey for KeyPair {
    fn group(&self) -> Group {
        Self::group(self)
    }

    fn public(&self) -> &[u8] {
        Self::public(self)
    }

    fn agree(&self, peer_public: &[u8]) -> Result<Secret, DhError> {
        Self::agree(self, peer_public)
    }
}

/// Our side of an IKE SA. After a rekey the initiator is the one that started the rekey (section 2.18).
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
    /// None exactly if the encryption is an AEAD.
    pub integrity: Option<Integrity>,
    pub prf: Prf,
    pub group: Group,
}

/// Why a proposal is no IKE suite.
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
    /// Reads a chosen proposal: one transform of each type that IKE needs. INTEGRITY NONE beside an
    /// AEAD counts as absent (section 3.3.2).
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
        let group = only(proposal, TransformType::KEY_EXCHANGE)?
            .ok_or(SuiteError::NotOne(TransformType::KEY_EXCHANGE))?;
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
            group: Group::from_number(group.id).ok_or_else(|| unsupported(group))?,
        })
    }

    /// The transforms that stand for this suite in a proposal.
    pub fn transforms(&self) -> Vec<Transform> {
        let mut transforms = vec![Transform::encryption(self.encryption, self.key_bits)];
        if let Some(integrity) = self.integrity {
            transforms.push(Transform::new(TransformType::INTEGRITY, integrity.number()));
        }
        transforms.push(Transform::new(TransformType::PRF, self.prf.number()));
        transforms.push(Transform::new(
            TransformType::KEY_EXCHANGE,
            self.group.number(),
        ));
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
        write!(f, "/{}/{}", self.prf, self.group)
    }
}

/// The transform of one type, None if absent, an error if there are several or it must not be chosen.
fn only(proposal: &Proposal, kind: TransformType) -> Result<Option<&Transform>, SuiteError> {
    let mut all = proposal.of_kind(kind);
    match (all.next(), all.next()) {
        (Some(transform), None) if !transform.unknown_attribute => Ok(Some(transform)),
        (None, _) => Ok(None),
        _ => Err(SuiteError::NotOne(kind)),
    }
}
