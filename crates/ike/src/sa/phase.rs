//! The phases of an IKE SA. Each type holds what an SA has in that phase and in no other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::child_sa::ChildRequest;
use super::established::Established;
use super::held_message::{HeldMessage, HeldProof};
use super::task::PendingChild;
use crate::config::{Connection, Identity};
use crate::failure::DownReason;
use crate::negotiate::ChosenIke;
use crate::protected::ProtectedChannel;
use crate::suite::{ActiveKeyExchange, IkeSaKeys, Nonces, Role, full_transcript};
use crate::wire::{CertReq, HashAlgorithm, Id, Proposal};

#[derive(Debug)]
pub(crate) enum Phase {
    InitSent(Box<InitSent>),
    InitReceived(Box<InitReceived>),
    InitResponded(Box<InitResponded>),
    AuthDue(Box<AuthDue>),
    AuthSent(Box<AuthSent>),
    Established(Box<Established>),
    Rekeyed(Box<Rekeyed>),
    Closing(Box<Closing>),
    Gone(Gone),
    /// The table drops the SA.
    Closed,
}

/// The initiator's phase in which the IKE_SA_INIT request is sent, or waits until it may be sent.
#[derive(Debug)]
pub(crate) struct InitSent {
    pub(crate) key_exchange: Arc<dyn ActiveKeyExchange>,
    pub(crate) nonce: Vec<u8>,
    pub(crate) offer: Vec<Proposal>,
    /// Every request of the attempt announces the full transcript.
    pub(crate) full_transcript: bool,
    pub(crate) request: Vec<u8>,
    pub(crate) cookie: Option<Vec<u8>>,
    /// The number of times that the request was begun anew, for a cookie or another key exchange method.
    pub(crate) restarts: u8,
    /// The reason in an unauthenticated response that refuses ours. Anybody can send one, so the SA waits for a better
    /// response until the next retransmission is due (RFC 7296 §2.21.1).
    pub(crate) refused: Option<DownReason>,
    pub(crate) requests: Vec<ChildRequest>,
    /// The time that the peer has to answer; zero: as long as retransmissions last.
    pub(crate) wait: Duration,
    /// The response whose key exchange is being completed.
    pub(crate) held: Option<Box<HeldMessage>>,
}

/// The responder's phase in which the key exchange of an IKE_SA_INIT request is being answered. The SA is half-open.
#[derive(Debug)]
pub(crate) struct InitReceived {
    pub(crate) held: HeldMessage,
    pub(crate) choice: InitChoice,
    /// The sender has shown that it receives at its address.
    pub(crate) proven: bool,
    pub(crate) deadline: Instant,
}

/// The connection and the proposal that answer an IKE_SA_INIT request.
#[derive(Debug)]
pub(crate) struct InitChoice {
    pub(crate) connection: Arc<Connection>,
    pub(crate) chosen: ChosenIke,
}

/// The parts of IKE_SA_INIT that both ends keep until IKE_AUTH is done.
#[derive(Debug)]
pub(crate) struct InitTranscript {
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
    pub(crate) nonce_i: Vec<u8>,
    pub(crate) nonce_r: Vec<u8>,
    /// The peer's SIGNATURE_HASH_ALGORITHMS (RFC 7427 §4).
    pub(crate) peer_hashes: Vec<HashAlgorithm>,
    /// The responder's CERTREQ payloads. The initiator's come in IKE_AUTH.
    pub(crate) certreqs: Vec<CertReq>,
    /// The peer fetches certificates by their URIs (HTTP_CERT_LOOKUP_SUPPORTED). The initiator says so in IKE_AUTH.
    pub(crate) looks_up_certificates: bool,
    /// The responder has announced that IKE_AUTH may come without a child SA (RFC 6023 §3).
    pub(crate) childless: bool,
    /// Both ends have announced that AUTH covers both messages of IKE_SA_INIT.
    pub(crate) full_transcript: bool,
}

impl InitTranscript {
    /// Returns the octets that the end with the role `signer` signs (RFC 7296 §2.15).
    pub(crate) fn signed_octets(&self, keys: &IkeSaKeys, signer: Role, id: &Id) -> Vec<u8> {
        let (own, others, nonce) = match signer {
            Role::Initiator => (&self.request, &self.response, &self.nonce_r),
            Role::Responder => (&self.response, &self.request, &self.nonce_i),
        };
        if self.full_transcript {
            keys.signed_octets(signer, &full_transcript(others, own), nonce, id)
        } else {
            keys.signed_octets(signer, own, nonce, id)
        }
    }

    pub(crate) fn nonces(&self) -> Nonces<'_> {
        Nonces {
            initiator: &self.nonce_i,
            responder: &self.nonce_r,
        }
    }
}

/// The responder's phase in which IKE_SA_INIT is answered. The SA is half-open until IKE_AUTH.
#[derive(Debug)]
pub(crate) struct InitResponded {
    pub(crate) channel: ProtectedChannel,
    pub(crate) init: InitTranscript,
    pub(crate) deadline: Instant,
    /// The request that is not decided on yet.
    pub(crate) held: Option<Box<HeldProof>>,
}

impl InitResponded {
    pub(crate) fn new(channel: ProtectedChannel, init: InitTranscript, deadline: Instant) -> Self {
        Self {
            channel,
            init,
            deadline,
            held: None,
        }
    }
}

/// The initiator's phase in which IKE_SA_INIT is done, and our signature for IKE_AUTH is still to be had.
#[derive(Debug)]
pub(crate) struct AuthDue {
    pub(crate) channel: ProtectedChannel,
    pub(crate) init: InitTranscript,
    pub(crate) requests: Vec<ChildRequest>,
    /// Nothing is sent again meanwhile, so that nothing else ends the wait.
    pub(crate) deadline: Instant,
}

/// The initiator's phase in which our proof is sent, with the proposal of our first child SA or without it.
#[derive(Debug)]
pub(crate) struct AuthSent {
    pub(crate) channel: ProtectedChannel,
    pub(crate) init: InitTranscript,
    pub(crate) local_id: Identity,
    /// `None` if the IKE SA begins without a child SA (RFC 6023).
    pub(crate) child: Option<PendingChild>,
    /// The other children, which CREATE_CHILD_SA establishes.
    pub(crate) requests: Vec<ChildRequest>,
    /// The reason why the SA is deleted as soon as it is up. It is `None` if the SA stays.
    pub(crate) delete_when_up: Option<DownReason>,
    /// The response that is not decided on yet.
    pub(crate) held: Option<Box<HeldProof>>,
}

impl AuthSent {
    pub(crate) fn withdraw_child(&mut self, child: &str) {
        self.requests.retain(|other| other.config.name != child);
        if let Some(pending) = &mut self.child {
            pending.withdrawn |= pending.config().name == child;
        }
    }

    pub(crate) fn will_establish(&self, request: &ChildRequest) -> bool {
        let proposed = self.child.as_ref();
        proposed.is_some_and(|child| request.is_for(child.config()) && !child.withdrawn)
            || self
                .requests
                .iter()
                .any(|other| request.is_for(&other.config))
    }
}

/// A rekey has replaced the SA, and the peer is to delete it.
#[derive(Debug)]
pub(crate) struct Rekeyed {
    pub(crate) channel: ProtectedChannel,
    /// The time at which we delete the SA ourselves.
    pub(crate) delete_at: Instant,
}

/// Our delete, or our last error notify, waits for its response.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) channel: ProtectedChannel,
}

/// The SA has ended. Its last response is kept for a request that comes again.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) until: Instant,
    /// The peer never proved who it is.
    pub(crate) unauthenticated: bool,
}

impl Phase {
    pub(crate) fn channel(&self) -> Option<&ProtectedChannel> {
        match self {
            Self::InitResponded(state) => Some(&state.channel),
            Self::AuthSent(state) => Some(&state.channel),
            Self::Established(state) => Some(&state.channel),
            Self::Rekeyed(state) => Some(&state.channel),
            Self::Closing(state) => Some(&state.channel),
            Self::InitSent(_)
            | Self::InitReceived(_)
            | Self::AuthDue(_)
            | Self::Gone(_)
            | Self::Closed => None,
        }
    }

    pub(crate) fn channel_mut(&mut self) -> Option<&mut ProtectedChannel> {
        match self {
            Self::InitResponded(state) => Some(&mut state.channel),
            Self::AuthSent(state) => Some(&mut state.channel),
            Self::Established(state) => Some(&mut state.channel),
            Self::Rekeyed(state) => Some(&mut state.channel),
            Self::Closing(state) => Some(&mut state.channel),
            Self::InitSent(_)
            | Self::InitReceived(_)
            | Self::AuthDue(_)
            | Self::Gone(_)
            | Self::Closed => None,
        }
    }

    /// The children that an initiator has not proposed yet.
    pub(crate) fn unsent(&self) -> &[ChildRequest] {
        match self {
            Self::InitSent(state) => &state.requests,
            Self::AuthDue(state) => &state.requests,
            _ => &[],
        }
    }

    pub(crate) fn established(&self) -> Option<&Established> {
        match self {
            Self::Established(state) => Some(state),
            _ => None,
        }
    }

    /// The proof of the peer that is not decided on yet.
    pub(crate) fn held(&self) -> Option<&HeldProof> {
        match self {
            Self::InitResponded(state) => state.held.as_deref(),
            Self::AuthSent(state) => state.held.as_deref(),
            _ => None,
        }
    }

    /// Says whether something waits for the outcome of a job.
    pub(crate) fn awaits_job(&self) -> bool {
        match self {
            Self::InitSent(state) => state.held.is_some(),
            Self::Established(state) => state.held.is_some(),
            Self::InitReceived(_) | Self::AuthDue(_) => true,
            other => other.held().is_some(),
        }
    }

    /// Not authenticated, or refused and kept for a while: anybody can make us hold such an SA.
    pub(crate) fn is_half_open(&self) -> bool {
        match self {
            Self::InitReceived(_) | Self::InitResponded(_) => true,
            Self::Gone(gone) => gone.unauthenticated,
            _ => false,
        }
    }

    /// Returns the reason why the SA is to be deleted as soon as the exchange under way allows it.
    pub(crate) fn ending(&self) -> Option<&DownReason> {
        match self {
            Self::AuthSent(state) => state.delete_when_up.as_ref(),
            Self::Established(state) => state.ending(),
            _ => None,
        }
    }
}
