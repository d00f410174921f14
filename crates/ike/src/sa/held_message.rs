//! Messages that are not decided on yet.

use std::net::SocketAddr;
use std::time::Instant;

use esplanade_pki::StatusSource;

use crate::failure::AuthFailure;
use crate::jobs::{CheckedPeer, SignedAuth, WorkOutcome};
use crate::transport::ReceivedMessage;
use crate::wire::{Header, Message};

/// A message that waits for a job. Its sender repeats a request that gets no response, and we repeat ours, so that
/// nobody gives up.
#[derive(Debug)]
pub(crate) struct HeldMessage {
    pub(crate) since: Instant,
    header: Header,
    datagram: Vec<u8>,
    len: usize,
    local: SocketAddr,
    remote: SocketAddr,
    pub(crate) message: Message,
}

impl HeldMessage {
    pub(crate) fn new(now: Instant, received: &ReceivedMessage<'_>, message: &Message) -> Self {
        Self {
            since: now,
            header: received.header,
            datagram: received.datagram.to_vec(),
            len: received.len,
            local: received.local,
            remote: received.remote,
            message: message.clone(),
        }
    }

    /// Says whether the message has the place of this one in the sequence of messages.
    pub(crate) fn is_copy(&self, received: &ReceivedMessage<'_>) -> bool {
        let place = |header: &Header| (header.response, header.message_id);
        place(&self.header) == place(&received.header)
    }

    /// The bytes of the message.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn received(&self) -> ReceivedMessage<'_> {
        ReceivedMessage {
            header: self.header,
            datagram: &self.datagram,
            len: self.len,
            local: self.local,
            remote: self.remote,
        }
    }
}

/// A message of IKE_AUTH. It waits for a job, until the status of the peer's certificates has been asked for, or until
/// our own signature is made.
#[derive(Debug)]
pub(crate) struct HeldProof {
    pub(crate) held: HeldMessage,
    /// The places that are asked.
    pub(crate) sources: Vec<StatusSource>,
    pub(crate) known: KnownProofs,
    /// The configuration under which it is known.
    pub(crate) generation: u64,
}

impl HeldProof {
    /// The job for the message is done.
    pub(crate) fn with(mut self, outcome: WorkOutcome) -> Self {
        match outcome {
            WorkOutcome::Checked(verdict) => self.known.peer = Some(verdict.peer),
            WorkOutcome::Signed(own) => self.known.own = Some(own),
            WorkOutcome::Answered(_) | WorkOutcome::Completed(_) => {}
        }
        self
    }

    /// The message, and what is known. Under another configuration that is nothing.
    pub(crate) fn known_under(self, generation: u64) -> (HeldMessage, KnownProofs) {
        let known = match self.generation == generation {
            true => self.known,
            false => KnownProofs::default(),
        };
        (self.held, known)
    }
}

/// The findings of jobs about the two proofs of IKE_AUTH.
#[derive(Debug, Default)]
pub(crate) struct KnownProofs {
    pub(crate) peer: Option<Result<CheckedPeer, AuthFailure>>,
    pub(crate) own: Option<SignedAuth>,
}
