//! The key of an authenticated peer. Limits per peer, `unique` and claims of traffic count by this key.

use std::sync::Arc;

use aws_lc_rs::digest;

use esplanade_pki::{Certificate, PublicKey};

use crate::auth::certreq;
use crate::config::{Connection, Identity, RemoteMethod};

/// The key of one peer. An identity that was proved in another way can belong to another peer, so it gives another key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerKey(Arc<Parts>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Parts {
    local: Identity,
    remote: Identity,
    /// The peers that the connection is for.
    expected: Identity,
    proof: Proof,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Proof {
    Psk,
    /// The SHA-256 of the CERTREQ data that asks for the peer's certificate, with the keys that need no path, and the
    /// authority that its path must have.
    /// Two authorities can know different peers by one name.
    Certificate(Vec<u8>, Option<Identity>),
    /// The SHA-256 of the keys that the connection names.
    PublicKey(Vec<u8>),
}

impl PeerKey {
    pub(crate) fn new(connection: &Connection, local: &Identity, remote: &Identity) -> Self {
        let proof = match &connection.remote.method {
            RemoteMethod::Psk => Proof::Psk,
            RemoteMethod::Certificate {
                authorities,
                rules,
                pinned,
                ..
            } => {
                let mut known = certreq(authorities).data;
                if rules.known_need_no_path {
                    known.extend(pinned.iter().flat_map(Certificate::key_hash));
                }
                let hash = digest::digest(&digest::SHA256, &known);
                Proof::Certificate(hash.as_ref().to_vec(), rules.authority.clone())
            }
            RemoteMethod::PublicKey { keys, .. } => {
                let keys: Vec<&[u8]> = keys.iter().map(PublicKey::der).collect();
                let hash = digest::digest(&digest::SHA256, &keys.concat());
                Proof::PublicKey(hash.as_ref().to_vec())
            }
        };
        Self(Arc::new(Parts {
            local: local.clone(),
            remote: remote.clone(),
            expected: connection.remote.id.clone(),
            proof,
        }))
    }

    pub(crate) fn remote(&self) -> &Identity {
        &self.0.remote
    }

    /// Says whether both are one peer, whatever our own identity towards it is.
    pub(crate) fn is_same_peer(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        (&a.remote, &a.expected, &a.proof) == (&b.remote, &b.expected, &b.proof)
    }
}
