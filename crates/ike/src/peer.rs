//! Who an authenticated peer is, for everything that is kept or limited by peer.

use std::sync::Arc;

use aws_lc_rs::digest;

use crate::config::{Connection, Identity, RemoteMethod};

/// One peer. An identity that was proved in another way may be another peer's word for itself, so it does not speak
/// for the SAs of this one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerKey(Arc<Parts>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Parts {
    local: Identity,
    remote: Identity,
    /// Which peers the connection is for.
    expected: Identity,
    proof: Proof,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Proof {
    Psk,
    /// Two authorities may know different peers by one name. The SHA-256 of what asks for their certificates.
    Certificate(Vec<u8>),
}

impl PeerKey {
    pub(crate) fn new(connection: &Connection, local: &Identity, remote: &Identity) -> Self {
        let proof = match &connection.remote.method {
            RemoteMethod::Psk => Proof::Psk,
            RemoteMethod::Certificate { authorities, .. } => {
                let asked = authorities.certreq();
                let hash = digest::digest(&digest::SHA256, &asked.data);
                Proof::Certificate(hash.as_ref().to_vec())
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

    /// Whether both are one peer, by whatever name it knows us.
    pub(crate) fn is_same_peer(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        (&a.remote, &a.expected, &a.proof) == (&b.remote, &b.expected, &b.proof)
    }
}
