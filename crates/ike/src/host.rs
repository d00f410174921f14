//! What the embedder gives an [`crate::Endpoint`]: randomness, SPIs for inbound ESP SAs, and routes.
//!
//! The endpoint owns no socket, clock or table of the operating system. It reaches all of them through these traits.

use std::net::IpAddr;

use esplanade_crypto::iana::Group;

use crate::suite::{DhError, EphemeralKey, KeyPair};

/// Hands out the SPIs that inbound ESP SAs are found by.
pub trait EspSpiAllocator: Send {
    /// A SPI that no live SA has, above 255. None: no more SAs.
    fn allocate(&mut self) -> Option<u32>;
    /// Gives back a SPI that was never installed. The SPI of an installed SA is the data plane's to free, after
    /// [`crate::Event::ChildSaDeleted`] and its linger.
    fn release(&mut self, spi: u32);
}

/// Finds the way to a peer.
pub trait Routes: Send {
    /// The address that packets to `remote` leave from: `local`, where it is given. None: there is no route, or `local` is
    /// none of our addresses at this moment.
    fn source(&self, remote: IpAddr, local: Option<IpAddr>) -> Option<IpAddr>;
}

/// Source of SPIs, nonces, jitter and ephemeral keys.
pub trait Random: Send {
    fn fill(&mut self, bytes: &mut [u8]);

    /// From 0 to 1.
    fn fraction(&mut self) -> f64 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
    }

    /// A key pair of the cryptographic library. A source that repeats itself, or has its keys elsewhere, says so here.
    fn ephemeral_key(&mut self, group: Group) -> Result<Box<dyn EphemeralKey>, DhError> {
        Ok(Box::new(KeyPair::generate(group)?))
    }
}

/// The random generator of the cryptographic library.
#[derive(Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) {
        // The generator fails only where the system has no entropy source, which is fatal.
        aws_lc_rs::rand::fill(bytes).unwrap_or_else(|_| std::process::abort());
    }
}
