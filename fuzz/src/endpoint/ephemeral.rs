//! A replacement for the key exchange and its random numbers. The arithmetic would cost more than all the rest, and
//! without random numbers an input always does the same. Nothing here is secret.

use std::sync::{Arc, Mutex};

use esplanade_crypto::dh::public_len;
use esplanade_crypto::iana::Group;
use esplanade_ike::Random;
use esplanade_ike::suite::{
    ActiveKeyExchange, DhError, KeyExchange, KeyExchangeAnswer, Secret, check_public,
};
use esplanade_testkit::net::Rng;

/// A source of random numbers and keys. Its copies share one sequence of numbers.
#[derive(Clone)]
pub struct Repeatable(Arc<Mutex<Rng>>);

impl Repeatable {
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Rng::new(seed))))
    }

    fn ephemeral(&self, method: Group) -> Ephemeral {
        let mut data = vec![0; public_len(method)];
        self.0.lock().unwrap().fill(&mut data);
        Ephemeral { method, data }
    }
}

impl Random for Repeatable {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.lock().unwrap().fill(bytes);
    }
}

impl KeyExchange for Repeatable {
    fn start(&self, method: Group) -> Result<Arc<dyn ActiveKeyExchange>, DhError> {
        Ok(Arc::new(self.ephemeral(method)))
    }

    fn check(&self, method: Group, initiator: &[u8]) -> Result<(), DhError> {
        check_public(method, initiator)
    }

    fn answer(&self, method: Group, initiator: &[u8]) -> Result<KeyExchangeAnswer, DhError> {
        let ours = self.ephemeral(method);
        let shared = ours.complete(initiator)?;
        let data = ours.data;
        Ok(KeyExchangeAnswer { data, shared })
    }
}

#[derive(Debug)]
struct Ephemeral {
    method: Group,
    data: Vec<u8>,
}

impl ActiveKeyExchange for Ephemeral {
    fn method(&self) -> Group {
        self.method
    }

    fn data(&self) -> &[u8] {
        &self.data
    }

    /// The exclusive or of both public values. Zeros are refused, as in every group.
    fn complete(&self, responder: &[u8]) -> Result<Secret, DhError> {
        check_public(self.method, responder)?;
        if responder.iter().all(|byte| *byte == 0) {
            return Err(DhError::InvalidPublic(self.method));
        }
        let both = self.data.iter().zip(responder);
        let shared: Vec<u8> = both.map(|(ours, theirs)| ours ^ theirs).collect();
        Ok(Secret::from(shared))
    }
}
