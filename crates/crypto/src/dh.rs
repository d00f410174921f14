//! Key exchange for IKE: Curve25519 (RFC 8031), ECP groups (RFC 5903) and MODP groups (RFC 3526, RFC 5114, RFC 7296
//! §B.2).
//!
//! The curves go through `aws_lc_rs::agreement`. It has no finite-field groups, so those call the constant-time
//! exponentiation of `aws_lc_sys`.

pub(crate) mod modp;
mod parameters;

use aws_lc_rs::agreement;

use crate::iana::Group;
use crate::secret::Secret;

/// First byte of an uncompressed point in SEC 1. IKE leaves it out (RFC 5903 §7).
const UNCOMPRESSED: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DhError {
    #[error("the peer's {group} public value is {actual} bytes long, not {expected}")]
    Length {
        group: Group,
        expected: usize,
        actual: usize,
    },
    #[error("the peer's {0} public value is not a valid element of the group")]
    InvalidPublic(Group),
    #[error("key generation for {0} failed")]
    Generate(Group),
}

/// An ephemeral private key and its public value. It may serve several calls of [`KeyPair::agree`], because an
/// IKE_SA_INIT may have to be retried with a cookie.
pub struct KeyPair {
    group: Group,
    private: Private,
    public: Vec<u8>,
}

enum Private {
    Curve(agreement::PrivateKey),
    Modp(Secret),
}

/// Length in bytes of a public value in the KE payload.
pub const fn public_len(group: Group) -> usize {
    match group {
        Group::Modp1024 | Group::Modp1024Subgroup160 => 128,
        Group::Modp1536 => 192,
        Group::Modp2048 | Group::Modp2048Subgroup224 | Group::Modp2048Subgroup256 => 256,
        Group::Modp3072 => 384,
        Group::Modp4096 => 512,
        Group::Modp6144 => 768,
        Group::Modp8192 => 1024,
        Group::Ecp256 => 64,
        Group::Ecp384 => 96,
        Group::Ecp521 => 132,
        Group::Curve25519 => 32,
    }
}

const fn curve(group: Group) -> Option<&'static agreement::Algorithm> {
    match group {
        Group::Ecp256 => Some(&agreement::ECDH_P256),
        Group::Ecp384 => Some(&agreement::ECDH_P384),
        Group::Ecp521 => Some(&agreement::ECDH_P521),
        Group::Curve25519 => Some(&agreement::X25519),
        _ => None,
    }
}

/// Checks a public value before anything costly is computed. Refuses wrong lengths, and MODP values outside 1 < y < p
/// - 1 (RFC 6989 §2). [`KeyPair::agree`] would refuse these values too, after an exponentiation of ours.
pub fn check_public(group: Group, public: &[u8]) -> Result<(), DhError> {
    let expected = public_len(group);
    if public.len() != expected {
        return Err(DhError::Length {
            group,
            expected,
            actual: public.len(),
        });
    }
    if curve(group).is_none() && !modp::is_valid_public(group, public) {
        return Err(DhError::InvalidPublic(group));
    }
    Ok(())
}

impl KeyPair {
    pub fn generate(group: Group) -> Result<Self, DhError> {
        let failed = DhError::Generate(group);
        match curve(group) {
            Some(algorithm) => {
                let private = agreement::PrivateKey::generate(algorithm).map_err(|_| failed)?;
                Self::from_curve(group, private).ok_or(failed)
            }
            None => {
                let private = modp::generate().ok_or(failed)?;
                Self::from_modp(group, private).ok_or(failed)
            }
        }
    }

    /// Makes a key pair from a known private key, for known-answer tests. The key is a big-endian scalar or exponent;
    /// Curve25519's is little-endian.
    pub fn from_private(group: Group, private: &[u8]) -> Result<Self, DhError> {
        let failed = DhError::Generate(group);
        match curve(group) {
            Some(algorithm) => {
                let private = agreement::PrivateKey::from_private_key(algorithm, private)
                    .map_err(|_| failed)?;
                Self::from_curve(group, private).ok_or(failed)
            }
            None => Self::from_modp(group, Secret::from(private)).ok_or(failed),
        }
    }

    fn from_curve(group: Group, private: agreement::PrivateKey) -> Option<Self> {
        let encoded = private.compute_public_key().ok()?;
        let public = match group {
            Group::Curve25519 => encoded.as_ref(),
            _ => encoded.as_ref().strip_prefix(&[UNCOMPRESSED])?,
        }
        .to_vec();
        Some(Self {
            group,
            private: Private::Curve(private),
            public,
        })
    }

    fn from_modp(group: Group, private: Secret) -> Option<Self> {
        let public = modp::public(group, &private)?;
        Some(Self {
            group,
            private: Private::Modp(private),
            public,
        })
    }

    pub fn group(&self) -> Group {
        self.group
    }

    /// Our public value in the form of the KE payload.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// Computes the shared secret g^ir: an x coordinate, or a MODP value padded to the length of the modulus
    /// (RFC 7296 §2.14).
    ///
    /// Refuses public values off the curve or of small order. Also refuses MODP values outside 1 < y < p - 1, and those
    /// outside the subgroup of a group that has one (RFC 6989 §2, RFC 8031 §2.3).
    pub fn agree(&self, peer_public: &[u8]) -> Result<Secret, DhError> {
        let group = self.group;
        check_public(group, peer_public)?;
        let invalid = DhError::InvalidPublic(group);
        let private = match &self.private {
            Private::Modp(private) => {
                return modp::agree(group, private, peer_public).ok_or(invalid);
            }
            Private::Curve(private) => private,
        };
        let mut encoded = Vec::with_capacity(1 + peer_public.len());
        if group != Group::Curve25519 {
            encoded.push(UNCOMPRESSED);
        }
        encoded.extend_from_slice(peer_public);
        let peer = agreement::UnparsedPublicKey::new(private.algorithm(), &encoded);
        agreement::agree(private, peer, invalid, |secret| Ok(Secret::from(secret)))
    }
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPair")
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
