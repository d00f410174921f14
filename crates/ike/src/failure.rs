//! The reasons why an SA ended, or was not made. Each cause is a variant, for callers and tests; its text is for the
//! administrator.

use esplanade_crypto::iana::Group;
use esplanade_pki::{PathError, StatusSource};

use crate::auth::{CredentialError, Identity, IdentityError, PeerAuthError};
use crate::id::ChildSaId;
use crate::wire::{
    AuthMethod, DecodeError, EncodeError, ExchangeType, NotifyType, TrafficSelector,
};

/// The reason why an SA ended or did not come up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownReason {
    #[error("terminated by the administrator")]
    Terminated,
    #[error("deleted by the peer")]
    PeerDeleted,
    #[error("the peer does not answer")]
    Timeout,
    #[error("the peer's answers cannot be used: {0}")]
    UnusableResponse(UnusableResponse),
    #[error("the peer has lost the IKE SA, as its crash token shows")]
    PeerRestarted,
    #[error("the peer has been busy for minutes (TEMPORARY_FAILURE)")]
    PeerBusy,
    #[error("there is no route to the peer, or no local address for it")]
    NoRoute,
    #[error("the name {name} has no address: {why}")]
    NoAddress { name: String, why: String },
    #[error("the peer is behind a NAT, so that only the peer can reauthenticate")]
    BehindNat,
    #[error("no child SA came up over the new IKE SA")]
    NoChildTakenOver,
    #[error("our address is gone")]
    AddressGone,
    #[error("replaced by a rekey")]
    Rekeyed,
    #[error("replaced by an IKE SA that authenticates again")]
    Reauthenticated,
    #[error("no traffic for as long as `inactivity` allows")]
    Inactive,
    #[error("lifetime expired before it was rekeyed")]
    Expired,
    #[error("the peer has connected anew")]
    Superseded,
    #[error("the peer started afresh (INITIAL_CONTACT)")]
    InitialContact,
    #[error("the peer refuses: {0}")]
    PeerRefused(NotifyType),
    #[error(
        "the peer does not announce IKE SAs without a child, which `childless = force` demands"
    )]
    NotChildless,
    /// Peers answer alike if they know nobody at our address: no connection, no proposal.
    #[error(
        "the peer chooses no proposal of ours, or has no connection for our address; we offered {offered}"
    )]
    NoProposalChosen { offered: String },
    #[error("authentication failed: {0}")]
    AuthenticationFailed(AuthFailure),
    #[error("protocol error of the peer: {0}")]
    PeerMisbehaved(RequestFault),
    #[error("configuration: {0}")]
    Configuration(ConfigurationFault),
    #[error("out of resources: {0}")]
    Resources(Shortage),
}

impl DownReason {
    /// Says whether the peer's certificate, or one of its issuers, is revoked.
    pub(crate) fn is_revocation(&self) -> bool {
        matches!(self, Self::AuthenticationFailed(failure) if failure.is_revocation())
    }
}

/// The reason why a response to our request cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableResponse {
    #[error(transparent)]
    Malformed(DecodeError),
    #[error("SA, KE or nonce is missing")]
    MissingPayload,
    #[error("the responder's SPI is zero")]
    ZeroSpi,
    #[error("its choice is not in our offer")]
    NotOffered,
    /// The response chooses one key exchange method, or sends the data of one, and our request had the data of another.
    #[error("it chooses {chosen} and sends a key for method {sent}, we sent one for {started}")]
    OtherKeyExchangeMethod {
        chosen: Group,
        sent: u16,
        started: Group,
    },
    #[error("its public key is not valid")]
    InvalidKeyExchangeData,
    #[error(
        "it does not announce IKE_SA_INIT_FULL_TRANSCRIPT_AUTH, which `full_transcript_auth = require` demands"
    )]
    NoFullTranscript,
    #[error("it asks for a cookie again and again")]
    TooManyCookies,
    /// INVALID_KE_PAYLOAD names a method that is in none of our proposals, or names one too often.
    #[error("it wants a key exchange method that we do not offer")]
    KeyExchangeMethodNotOffered,
    #[error("it rekeys the IKE SA otherwise than we offered")]
    InvalidIkeRekey,
    #[error("{0} is not what was asked")]
    OtherExchange(ExchangeType),
    /// An error notify without protection. Anybody may have sent it.
    #[error("{0} without protection")]
    UnprotectedError(NotifyType),
    #[error("not protected")]
    NotProtected,
    #[error("it comes in more fragments, or in longer ones, than are kept")]
    TooLarge,
    /// The integrity check failed.
    #[error("made with other keys, or damaged")]
    Forged,
}

/// The fault in an authenticated request of the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    #[error(transparent)]
    Malformed(DecodeError),
    /// A payload is missing, or has a value that the exchange does not allow.
    #[error("malformed request")]
    InvalidSyntax,
    #[error("{0} on an established IKE SA")]
    OtherExchange(ExchangeType),
    #[error("it sends more fragments of a request, or longer ones, than are kept")]
    TooLarge,
}

/// The reason why IKE_AUTH failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthFailure {
    /// The peer has sent AUTHENTICATION_FAILED.
    #[error("the peer does not accept us")]
    RejectedByPeer,
    #[error("the peer gives no proof")]
    NoProof,
    /// The request has no AUTH payload, which asks for EAP (RFC 7296 §2.16).
    #[error("the peer wants EAP")]
    EapRequested,
    #[error("a payload is missing")]
    MissingPayload,
    #[error("no child SA is proposed")]
    NoChildSa,
    #[error(
        "a child SA is proposed, and `childless = force` wants the IKE SA to begin without one"
    )]
    ChildSaProposed,
    #[error(
        "the peer has not announced IKE_SA_INIT_FULL_TRANSCRIPT_AUTH, which `full_transcript_auth = require` demands"
    )]
    NoFullTranscript,
    #[error(transparent)]
    InvalidIdentity(IdentityError),
    /// Each connection that the peer could mean, with the reason why it does not accept the peer.
    #[error("{}", each_reason(.0))]
    NoneAccepts(Vec<(String, AuthFailure)>),
    #[error("the peer is {actual}, not {expected}")]
    OtherPeer {
        actual: Box<Identity>,
        expected: Box<Identity>,
    },
    #[error("the peer has our own identity, {0}")]
    OwnIdentity(Box<Identity>),
    #[error("no connection for {0}")]
    NoConnection(Box<Identity>),
    #[error("the peer has too many IKE SAs")]
    TooManyIkeSas,
    /// A second IKE SA of the peer, with `unique = keep`.
    #[error("the peer is connected already")]
    AlreadyConnected,
    #[error("no secret for {local} and {remote}")]
    NoSecret {
        local: Box<Identity>,
        remote: Box<Identity>,
    },
    #[error("{0} instead of a pre-shared key")]
    NotPsk(AuthMethod),
    #[error("the pre-shared keys differ")]
    PskMismatch,
    /// The check has ended without a result, by a fault of this program.
    #[error("its proof could not be checked: the log says why")]
    NotChecked,
    #[error("not tried, as many other connections with pre-shared keys were")]
    TooManyPsks,
    #[error(transparent)]
    Certificate(Box<PeerAuthError>),
    #[error(transparent)]
    Credential(Box<CredentialError>),
}

impl AuthFailure {
    /// Says whether the peer's certificate, or one of its issuers, is revoked.
    pub(crate) fn is_revocation(&self) -> bool {
        let Self::Certificate(error) = self else {
            return false;
        };
        matches!(**error, PeerAuthError::Path(PathError::Revoked { .. }))
    }

    /// Returns the places to ask before a responder can go on. There are none while our own signature is to be had.
    /// Returns `None` if the failure is final.
    pub(crate) fn held_for(&self) -> Option<&[StatusSource]> {
        match self.awaits_signature() {
            true => Some(&[]),
            false => self.status_needed(),
        }
    }

    /// Says whether our own signature is still to be had, so that nothing is decided.
    pub(crate) fn awaits_signature(&self) -> bool {
        match self {
            Self::Credential(error) => **error == CredentialError::SignatureAwaited,
            _ => false,
        }
    }

    /// Returns the places to ask before a proof of identity can be decided on. Returns `None` if it failed.
    pub(crate) fn status_needed(&self) -> Option<&[StatusSource]> {
        match self {
            Self::Certificate(error) => match &**error {
                PeerAuthError::StatusNeeded(sources) => Some(sources),
                _ => None,
            },
            _ => None,
        }
    }
}

fn each_reason(refused: &[(String, AuthFailure)]) -> String {
    let reasons = refused.iter().map(|(name, why)| format!("{name}: {why}"));
    reasons.collect::<Vec<_>>().join("; ")
}

/// The reason why nothing can be proposed under the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationFault {
    #[error("no key exchange method")]
    NoKeyExchangeMethod,
    #[error("cannot propose: {0}")]
    CannotPropose(EncodeError),
    #[error(transparent)]
    Child(Box<ChildFailure>),
    #[error(transparent)]
    Authentication(AuthFailure),
}

/// The resource that the endpoint, the data plane or the operating system has run out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    #[error("no key pair could be made")]
    KeyExchange,
    #[error("too much work with public keys waits")]
    Jobs,
    #[error("our signature was not made in time")]
    Signature,
    #[error("no keys could be derived")]
    ChildKeys,
    #[error("a message could not be made")]
    Message,
    #[error("no SPI is left")]
    Spi,
    #[error("as many child SAs as an IKE SA may have")]
    ChildSas,
    #[error("the data plane does not take it")]
    DataPlane,
    #[error("queued tasks")]
    QueuedTasks,
    #[error("IKE SAs")]
    IkeSas,
    #[error("there is no room for what follows from its policy")]
    Policies,
}

/// The reason why a child SA was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildFailure {
    #[error("no proposal in common (NO_PROPOSAL_CHOSEN); we offered {offered}")]
    NoProposalChosen { offered: String },
    #[error("traffic selectors do not meet (TS_UNACCEPTABLE); we offered {offered}")]
    TsUnacceptable { offered: String },
    #[error("transport mode: {0}")]
    Transport(TransportFault),
    #[error("AH passes no NAT, nor UDP encapsulation")]
    AhThroughNat,
    #[error("the peer wants traffic of {} (connection {:?})", .0.peer, .0.connection)]
    TrafficHeld(Box<HeldTraffic>),
    #[error("the peer wants more than `peers` gives it")]
    NotItsTraffic,
    #[error("the peer narrows the selectors and leaves out the packet that asks")]
    PacketLeftOut,
    #[error("the peer refuses: {0}")]
    PeerRefused(NotifyType),
    #[error("protocol error of the peer: {0}")]
    PeerMisbehaved(ChildResponseFault),
    #[error("out of resources: {0}")]
    Resources(Shortage),
}

/// The fault in a response that makes a child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildResponseFault {
    #[error("it neither makes nor refuses the child SA")]
    NeitherMadeNorRefused,
    #[error("a payload is missing in its answer")]
    MissingPayload,
    #[error("no nonce in its answer")]
    NoNonce,
    #[error("invalid public value")]
    InvalidKeyExchangeData,
    #[error("no public value of the chosen group")]
    OtherKeyExchangeMethod,
    #[error("it wants a group that we did not offer")]
    KeyExchangeMethodNotOffered,
    #[error("it chose what we did not offer")]
    NotOffered,
    #[error("its traffic selectors are wider than ours")]
    SelectorsTooWide,
    #[error("its traffic selectors are narrower than those of the SA that is rekeyed")]
    SelectorsTooNarrow,
    #[error("it answers with transport mode, which we did not ask for")]
    TransportNotRequested,
}

/// The reason why a child SA cannot be in transport mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportFault {
    #[error("it does not pass a NAT")]
    Nat,
    #[error("the traffic selectors do not include both gateways themselves")]
    SelectorsWithoutGateways,
    #[error("the peer declines it")]
    DeclinedByPeer,
}

/// Traffic that a peer has, so that no other peer gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTraffic {
    pub peer: Identity,
    pub connection: String,
    pub child: String,
    pub local_ts: Vec<TrafficSelector>,
    pub remote_ts: Vec<TrafficSelector>,
    /// The child SA that carries the traffic. It is `None` if the configuration binds the traffic to the peer.
    pub sa: Option<ChildSaId>,
}
