//! The endpoint: all IKE SAs of one gateway, driven by datagrams, time and commands.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

use crate::config::Config;
use crate::event::{ChildSaId, Event, IkeSaId, Transmit};
use crate::status::{Counters, IkeSaStatus};

/// Hands out the SPIs that inbound ESP SAs are found by.
pub trait EspSpiAllocator: Send {
    /// A SPI that no live SA has, above 255. None: no more SAs.
    fn allocate(&mut self) -> Option<u32>;
    /// Gives back a SPI that was never installed. The SPI of an installed SA is the data plane's to free, after
    /// [`crate::Event::ChildSaDeleted`] and its linger.
    fn release(&mut self, spi: u32);
}

/// Source of SPIs, nonces and jitter.
pub trait Random: Send {
    fn fill(&mut self, bytes: &mut [u8]);
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

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    #[error("no connection named {0:?}")]
    NoConnection(String),
    #[error("connection {0:?} has no child named {1:?}")]
    NoChild(String, String),
    #[error("no such SA")]
    NoSa,
    #[error("connection {0:?} has no single remote address to initiate to")]
    NoRemoteAddress(String),
    #[error("connection {0:?} has no local address to initiate from")]
    NoLocalAddress(String),
    #[error("limit of {0} reached")]
    Limit(&'static str),
}

/// All IKE SAs of one gateway. Holds no socket and no clock.
///
/// After every call that takes `now` (and only then) drain [`Endpoint::poll_event`], then
/// [`Endpoint::poll_transmit`], then arm a timer for [`Endpoint::poll_timeout`]. Events first: an SA must be able to
/// receive before the message that tells the peer to use it leaves.
pub struct Endpoint {
    events: VecDeque<Event>,
    transmits: VecDeque<Transmit>,
    counters: Counters,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

#[allow(unused_variables)]
impl Endpoint {
    pub fn new(
        config: Config,
        spis: Box<dyn EspSpiAllocator>,
        random: Box<dyn Random>,
        now: Instant,
    ) -> Self {
        Self {
            events: VecDeque::new(),
            transmits: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Wall-clock time, for the validity of certificates. Never set: 1970, where no certificate is valid.
    pub fn set_wall_clock(&mut self, now: Instant, wall_clock: SystemTime) {}

    /// Replaces the configuration. SAs keep what they were established with; those of connections that are no
    /// longer there stay until they are terminated. Nothing is initiated: call [`Endpoint::start`].
    pub fn set_config(&mut self, config: Config) {}

    /// Initiates every child with `start_action = start` that is neither up nor on its way.
    pub fn start(&mut self, now: Instant) {}

    /// Takes one UDP payload; `local.port()` tells whether it begins with the non-ESP marker.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        payload: &[u8],
    ) {
    }

    pub fn handle_timeout(&mut self, now: Instant) {}

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Establishes `child`, or every child of the connection, over the connection's IKE SA or a new one.
    /// `local` overrides the source address (where the configuration says any).
    pub fn initiate(
        &mut self,
        now: Instant,
        connection: &str,
        child: Option<&str>,
        local: Option<SocketAddr>,
    ) -> Result<(), CommandError> {
        Ok(())
    }

    /// Traffic has met a policy without an SA: the same as [`Endpoint::initiate`] of one child, but does nothing
    /// where the child is up or on its way.
    pub fn acquire(
        &mut self,
        now: Instant,
        connection: &str,
        child: &str,
        local: Option<SocketAddr>,
    ) -> Result<(), CommandError> {
        Ok(())
    }

    /// Deletes every IKE SA of the connection, or every SA of one of its children, and stops retrying.
    /// Returns how many SAs it concerns.
    pub fn terminate(
        &mut self,
        now: Instant,
        connection: &str,
        child: Option<&str>,
    ) -> Result<usize, CommandError> {
        Ok(0)
    }

    pub fn terminate_ike_sa(&mut self, now: Instant, ike_sa: IkeSaId) -> Result<(), CommandError> {
        Ok(())
    }

    pub fn terminate_child_sa(
        &mut self,
        now: Instant,
        child: ChildSaId,
    ) -> Result<(), CommandError> {
        Ok(())
    }

    /// Sends a delete for every IKE SA, for a graceful stop.
    pub fn terminate_all(&mut self, now: Instant) -> usize {
        0
    }

    /// Rekeys the IKE SAs of the connection, or the SAs of one of its children.
    pub fn rekey(
        &mut self,
        now: Instant,
        connection: &str,
        child: Option<&str>,
    ) -> Result<usize, CommandError> {
        Ok(0)
    }

    pub fn rekey_ike_sa(&mut self, now: Instant, ike_sa: IkeSaId) -> Result<(), CommandError> {
        Ok(())
    }

    /// A soft limit in bytes, packets or sequence numbers was reached in the data plane.
    pub fn rekey_child_sa(&mut self, now: Instant, child: ChildSaId) -> Result<(), CommandError> {
        Ok(())
    }

    /// Authenticated ESP traffic came in on `child`: its peer lives (RFC 7296 section 2.4), and has begun to use the SA.
    pub fn note_inbound_traffic(&mut self, now: Instant, child: ChildSaId) {}

    /// ESP went out on `child`: its NAT mapping needs no keepalive for a while.
    pub fn note_outbound_traffic(&mut self, now: Instant, child: ChildSaId) {}

    /// Authenticated ESP traffic came from a new outer address (RFC 7296 section 2.23).
    pub fn note_peer_address(
        &mut self,
        now: Instant,
        child: ChildSaId,
        local: SocketAddr,
        remote: SocketAddr,
    ) {
    }

    pub fn status(&self) -> Vec<IkeSaStatus> {
        Vec::new()
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
