//! The services that the embedder gives an [`crate::Endpoint`]: randomness, key exchanges, SPIs for inbound ESP SAs,
//! routes, and room for policies.
//!
//! The endpoint owns no socket, no clock and no table of the operating system. It reaches all of them through these traits.

use std::net::IpAddr;
use std::sync::Arc;

use crate::config::Identity;
use crate::suite::{DiffieHellman, KeyExchange};
use crate::wire::TrafficSelector;

/// Everything that an endpoint uses of its embedder.
pub struct Host {
    pub spis: Box<dyn EspSpiAllocator>,
    pub routes: Box<dyn Routes>,
    pub policies: Box<dyn PolicyRoom>,
    pub random: Box<dyn Random>,
    pub key_exchange: Arc<dyn KeyExchange>,
    /// The endpoint runs its jobs itself, where they arise. Otherwise [`crate::Endpoint::poll_job`] gives them out.
    pub runs_jobs: bool,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    /// A host with the random generator and the key exchanges of the cryptographic library. The endpoint runs its jobs
    /// itself.
    pub fn new(spis: Box<dyn EspSpiAllocator>, routes: Box<dyn Routes>) -> Self {
        Self {
            spis,
            routes,
            policies: Box::new(AnyPolicy),
            random: Box::new(SystemRandom),
            key_exchange: Arc::new(DiffieHellman),
            runs_jobs: true,
        }
    }
}

/// Hands out the SPIs of inbound ESP and AH SAs.
pub trait EspSpiAllocator: Send {
    /// Returns an SPI above 255 that no live SA has. Returns `None` if no SPI is left.
    fn allocate(&mut self) -> Option<u32>;
    /// Gives back an SPI that was never installed. The data plane frees the SPI of an installed SA itself, after the
    /// `linger` of [`crate::Event::ChildSaDeleted`].
    fn release(&mut self, spi: u32);
}

/// Finds our source address towards a peer.
pub trait Routes: Send {
    /// Returns the address that packets to `remote` leave from; it is `local` if `local` is given. Returns `None` if
    /// there is no route, or if `local` is not an address of this host now.
    fn source(&self, remote: IpAddr, local: Option<IpAddr>) -> Option<IpAddr>;
}

/// Keeps what follows from the policies of child SAs, such as rules of a packet filter.
pub trait PolicyRoom: Send {
    /// Says whether there is room for the policy of a child SA. It is asked before the SA is made.
    fn has_room(&mut self, wanted: &WantedPolicy<'_>) -> bool;
}

/// The policy of a child SA that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct WantedPolicy<'a> {
    pub connection: &'a str,
    pub child: &'a str,
    pub peer: &'a Identity,
    pub local_ts: &'a [TrafficSelector],
    pub remote_ts: &'a [TrafficSelector],
}

/// Room for every policy.
#[derive(Debug, Default)]
struct AnyPolicy;

impl PolicyRoom for AnyPolicy {
    fn has_room(&mut self, _: &WantedPolicy<'_>) -> bool {
        true
    }
}

/// Source of IKE SPIs, nonces, cookie secrets and jitter.
pub trait Random: Send {
    fn fill(&mut self, bytes: &mut [u8]);

    /// A random number from 0 to 1.
    fn fraction(&mut self) -> f64 {
        let mut bytes = [0; 4];
        self.fill(&mut bytes);
        f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
    }
}

/// The random generator of the cryptographic library.
#[derive(Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&mut self, bytes: &mut [u8]) {
        // The generator fails only if the system has no entropy source. Nothing secure can follow.
        aws_lc_rs::rand::fill(bytes).unwrap_or_else(|_| std::process::abort());
    }
}
