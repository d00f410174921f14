//! Error notifies: those that we answer requests with, and those of the peer.

use esplanade_crypto::dh::DhError;
use esplanade_crypto::iana::Group;

use crate::failure::{AuthFailure, ChildFailure, DownReason, HeldTraffic};
use crate::refusal::Refusal;
use crate::status::IkeCounters;
use crate::text;
use crate::wire::{Message, Notify, NotifyType, Payload, Proposal, ProtocolId, TrafficSelector};

/// The error notify that answers a request which is not granted, and the reason that is counted.
#[derive(Debug)]
pub(crate) struct ErrorReply {
    pub(crate) refusal: Refusal,
    pub(super) kind: NotifyType,
    data: Vec<u8>,
    /// The child SA that the notify is about.
    about: Option<(ProtocolId, u32)>,
    /// The traffic of another peer, for [`Refusal::TrafficHeld`].
    pub(super) held: Option<Box<HeldTraffic>>,
}

impl ErrorReply {
    pub(super) fn new(refusal: Refusal, kind: NotifyType) -> Self {
        Self {
            refusal,
            kind,
            data: Vec::new(),
            about: None,
            held: None,
        }
    }

    pub(super) fn temporary_failure() -> Self {
        Self::new(Refusal::TemporaryFailure, NotifyType::TEMPORARY_FAILURE)
    }

    pub(super) fn invalid_syntax() -> Self {
        Self::new(Refusal::InvalidSyntax, NotifyType::INVALID_SYNTAX)
    }

    pub(super) fn no_proposal_chosen() -> Self {
        Self::new(Refusal::NoProposalChosen, NotifyType::NO_PROPOSAL_CHOSEN)
    }

    pub(super) fn ts_unacceptable() -> Self {
        Self::new(Refusal::TsUnacceptable, NotifyType::TS_UNACCEPTABLE)
    }

    /// Asks for a KE payload of another method (RFC 7296 §1.2).
    pub(super) fn invalid_ke_payload(method: Group) -> Self {
        Self {
            data: method.number().to_be_bytes().to_vec(),
            ..Self::new(Refusal::InvalidKePayload, NotifyType::INVALID_KE_PAYLOAD)
        }
    }

    /// There is no child SA that the peer's REKEY_SA names (RFC 7296 §2.25.1).
    pub(super) fn child_sa_not_found(rekeyed: &Notify) -> Self {
        Self {
            about: rekeyed.spi_u32().map(|spi| (rekeyed.protocol, spi)),
            ..Self::new(Refusal::ChildSaNotFound, NotifyType::CHILD_SA_NOT_FOUND)
        }
    }

    /// Another peer has the traffic that this one asks for.
    pub(super) fn traffic_held(held: HeldTraffic) -> Self {
        Self {
            held: Some(Box::new(held)),
            ..Self::new(Refusal::TrafficHeld, NotifyType::TS_UNACCEPTABLE)
        }
    }

    /// The embedder cannot keep what follows from the policy.
    pub(super) fn no_policy_room() -> Self {
        Self::new(Refusal::NoPolicyRoom, NotifyType::TS_UNACCEPTABLE)
    }

    /// The notify, after the refusal is counted.
    pub(crate) fn into_payload(self, counters: &mut IkeCounters) -> Payload {
        counters.count(self.refusal);
        Payload::Notify(match self.about {
            Some((protocol, spi)) => Notify::about_child(self.kind, protocol, spi),
            None => Notify::new(self.kind, self.data),
        })
    }
}

/// A key exchange that cannot be answered: invalid data is the peer's fault, anything else is ours.
impl From<DhError> for ErrorReply {
    fn from(error: DhError) -> Self {
        match error {
            DhError::Generate(_) => Self::temporary_failure(),
            DhError::Length { .. } | DhError::InvalidPublic(_) => Self::invalid_syntax(),
        }
    }
}

pub(super) fn notify(kind: NotifyType, data: Vec<u8>) -> Payload {
    Payload::Notify(Notify::new(kind, data))
}

/// The first error notify of a message.
pub(super) fn error_of(message: &Message) -> Option<&Notify> {
    message
        .notifications()
        .find(|notify| notify.kind.is_error())
}

/// The failure that the peer's error notify stands for. It names what we have proposed: `offer`, and our selectors and
/// the peer's.
pub(super) fn child_failure(
    error: &Notify,
    offer: &[Proposal],
    (local, remote): (&[TrafficSelector], &[TrafficSelector]),
) -> ChildFailure {
    match error.kind {
        NotifyType::NO_PROPOSAL_CHOSEN => ChildFailure::NoProposalChosen {
            offered: text::proposals(offer),
        },
        NotifyType::TS_UNACCEPTABLE => ChildFailure::TsUnacceptable {
            offered: text::ends(local, remote),
        },
        other => ChildFailure::PeerRefused(other),
    }
}

/// The key exchange method that the peer's INVALID_KE_PAYLOAD asks for.
pub(super) fn requested_method(notify: &Notify) -> Option<Group> {
    Group::from_number(u16::from_be_bytes(notify.data.as_slice().try_into().ok()?))
}

/// An error notify that ends the IKE SA in whatever exchange it comes (RFC 7296 §2.21.2).
pub(super) fn fatal_error(message: &Message) -> Option<DownReason> {
    message
        .notifications()
        .find_map(|notify| match notify.kind {
            NotifyType::AUTHENTICATION_FAILED => Some(DownReason::AuthenticationFailed(
                AuthFailure::RejectedByPeer,
            )),
            NotifyType::INVALID_SYNTAX => Some(DownReason::PeerRefused(notify.kind)),
            _ => None,
        })
}

/// Returns the refusal of an IKE_AUTH request: the reason that is counted, and the notify that answers the request.
pub(super) fn refusal_of(failure: &AuthFailure) -> (Refusal, NotifyType) {
    match failure {
        AuthFailure::MissingPayload | AuthFailure::NoChildSa | AuthFailure::ChildSaProposed => {
            (Refusal::InvalidSyntax, NotifyType::INVALID_SYNTAX)
        }
        AuthFailure::NoConnection(_) => (Refusal::NoConnection, NotifyType::AUTHENTICATION_FAILED),
        AuthFailure::TooManyIkeSas => (Refusal::IkeSaLimit, NotifyType::AUTHENTICATION_FAILED),
        AuthFailure::AlreadyConnected => (Refusal::Duplicate, NotifyType::AUTHENTICATION_FAILED),
        _ => (
            Refusal::AuthenticationFailed,
            NotifyType::AUTHENTICATION_FAILED,
        ),
    }
}
