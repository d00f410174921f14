//! A replacement for the key exchange and its random numbers. The arithmetic would cost more than all the rest, and
//! without random numbers an input always does the same. Nothing here is secret.

use esplanade_crypto::dh::public_len;
use esplanade_crypto::iana::Group;
use esplanade_ike::Random;
use esplanade_ike::suite::{DhError, EphemeralKey, Secret, check_public};
use esplanade_testkit::net::Rng;

pub struct Repeatable(pub Rng);

impl Random for Repeatable {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }

    fn ephemeral_key(&mut self, group: Group) -> Result<Box<dyn EphemeralKey>, DhError> {
        let mut public = vec![0; public_len(group)];
        self.0.fill(&mut public);
        Ok(Box::new(Ephemeral { group, public }))
    }
}

#[derive(Debug)]
struct Ephemeral {
    group: Group,
    public: Vec<u8>,
}

impl EphemeralKey for Ephemeral {
    fn group(&self) -> Group {
        self.group
    }

    fn public(&self) -> &[u8] {
        &self.public
    }

    /// The exclusive or of both public values. Zeros are refused, as in every group.
    fn agree(&self, peer_public: &[u8]) -> Result<Secret, DhError> {
        check_public(self.group, peer_public)?;
        if peer_public.iter().all(|byte| *byte == 0) {
            return Err(DhError::InvalidPublic(self.group));
        }
        let both = self.public.iter().zip(peer_public);
        let shared: Vec<u8> = both.map(|(ours, theirs)| ours ^ theirs).collect();
        Ok(Secret::from(shared))
    }
}
