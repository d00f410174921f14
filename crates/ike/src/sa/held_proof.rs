//! A proof of the peer that is not decided on yet.

use std::net::SocketAddr;

use crate::auth::StatusSource;
use crate::transport::ReceivedMessage;
use crate::wire::{Header, Message};

/// A message of IKE_AUTH whose signature is right. It waits until the status of the peer's certificates has been asked
/// for, or until our own signature is made. Its sender repeats a request that gets no response, and we repeat ours, so
/// that nobody gives up.
#[derive(Debug)]
pub(crate) struct HeldProof {
    header: Header,
    datagram: Vec<u8>,
    local: SocketAddr,
    remote: SocketAddr,
    pub(crate) message: Message,
    /// The places that are asked.
    pub(crate) sources: Vec<StatusSource>,
}

impl HeldProof {
    pub(crate) fn new(
        received: &ReceivedMessage<'_>,
        message: &Message,
        sources: Vec<StatusSource>,
    ) -> Self {
        Self {
            header: received.header,
            datagram: received.datagram.to_vec(),
            local: received.local,
            remote: received.remote,
            message: message.clone(),
            sources,
        }
    }

    pub(crate) fn received(&self) -> ReceivedMessage<'_> {
        ReceivedMessage {
            header: self.header,
            datagram: &self.datagram,
            local: self.local,
            remote: self.remote,
        }
    }
}
