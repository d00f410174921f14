//! Key exchange methods (RFC 7296 §2.14, RFC 9370), in the shape of a key encapsulation.
//!
//! The initiator starts an exchange and sends its data. The responder answers with data of its own and knows the shared
//! secret at once; it needs no key pair that outlives the answer. The initiator completes the exchange with that data.
//! A Diffie-Hellman method fits this shape, and so does a key encapsulation method.

use std::fmt;
use std::sync::Arc;

use esplanade_crypto::dh::{DhError, KeyPair, check_public};
use esplanade_crypto::iana::Group;
use esplanade_crypto::secret::Secret;

/// Key exchanges that one negotiation can have: the first and seven additional ones (RFC 9370 §2.2.2).
const METHODS_MAX: usize = 8;

/// Runs key exchanges of every method that can be configured.
pub trait KeyExchange: Send + Sync {
    /// Starts an exchange as its initiator.
    fn start(&self, method: Group) -> Result<Arc<dyn ActiveKeyExchange>, DhError>;

    /// Refuses data of the initiator that cannot be valid for the method, at little cost.
    fn check(&self, method: Group, initiator: &[u8]) -> Result<(), DhError>;

    /// Answers the initiator's data as the responder. Refuses data that is not valid for the method.
    fn answer(&self, method: Group, initiator: &[u8]) -> Result<KeyExchangeAnswer, DhError>;
}

/// A key exchange that waits for the responder's data.
pub trait ActiveKeyExchange: Send + Sync + fmt::Debug {
    fn method(&self) -> Group;

    /// Returns the data that the initiator sends in its KE payload. An IKE_SA_INIT request that is sent anew carries
    /// the same data.
    fn data(&self) -> &[u8];

    /// The shared secret. Refuses data that is not valid for the method. A forged response does not use the exchange up:
    /// the right response can still complete it.
    fn complete(&self, responder: &[u8]) -> Result<Secret, DhError>;
}

/// The responder's half of a key exchange.
#[derive(Debug)]
pub struct KeyExchangeAnswer {
    /// The data that the responder sends in its KE payload.
    pub data: Vec<u8>,
    pub shared: Secret,
}

/// Diffie-Hellman with key pairs of the cryptographic library.
#[derive(Debug, Default)]
pub struct DiffieHellman;

impl KeyExchange for DiffieHellman {
    fn start(&self, method: Group) -> Result<Arc<dyn ActiveKeyExchange>, DhError> {
        Ok(Arc::new(KeyPair::generate(method)?))
    }

    fn check(&self, method: Group, initiator: &[u8]) -> Result<(), DhError> {
        check_public(method, initiator)
    }

    fn answer(&self, method: Group, initiator: &[u8]) -> Result<KeyExchangeAnswer, DhError> {
        // Invalid data is refused before a key pair is made: a forged request must not cost an exponentiation.
        self.check(method, initiator)?;
        let key_pair = KeyPair::generate(method)?;
        Ok(KeyExchangeAnswer {
            shared: key_pair.agree(initiator)?,
            data: key_pair.public().to_vec(),
        })
    }
}

impl ActiveKeyExchange for KeyPair {
    fn method(&self) -> Group {
        self.group()
    }

    fn data(&self) -> &[u8] {
        self.public()
    }

    fn complete(&self, responder: &[u8]) -> Result<Secret, DhError> {
        self.agree(responder)
    }
}

/// The key exchange methods of an IKE SA, in the order in which they are run. There is at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyExchangeMethods {
    first: Group,
    additional: [Option<Group>; METHODS_MAX - 1],
}

impl KeyExchangeMethods {
    pub const fn one(method: Group) -> Self {
        Self {
            first: method,
            additional: [None; METHODS_MAX - 1],
        }
    }

    /// The method of IKE_SA_INIT, or of the first message of a rekey.
    pub const fn first(&self) -> Group {
        self.first
    }

    pub fn iter(&self) -> impl Iterator<Item = Group> {
        let additional = self.additional.into_iter().flatten();
        std::iter::once(self.first).chain(additional)
    }
}

impl fmt::Display for KeyExchangeMethods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        self.additional
            .iter()
            .flatten()
            .try_for_each(|method| write!(f, "/{method}"))
    }
}
