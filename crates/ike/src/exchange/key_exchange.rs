//! KE payloads: the same steps in IKE_SA_INIT, in new child SAs and in rekeys.

use esplanade_crypto::iana::Group;

use super::error_reply::ErrorReply;
use crate::jobs::{KeyExchangeService, Work, WorkOutcome};
use crate::negotiate;
use crate::sa::{Context, Established, IkeSaCommon, PendingExchange};
use crate::suite::{ActiveKeyExchange, Secret};
use crate::wire::{ExchangeType, KePayload, Message, Payload};

/// The initiator's KE payload.
pub(super) fn payload(exchange: &dyn ActiveKeyExchange) -> Payload {
    Payload::Ke(KePayload {
        method: exchange.method().number(),
        data: exchange.data().to_vec(),
    })
}

/// The responder's half, unless a job has done it: the shared secret, and the KE payload of the response. `method` is the chosen one.
pub(super) fn answer(
    ctx: &mut Context<'_>,
    method: Group,
    initiator: Option<&KePayload>,
) -> Result<(Payload, Secret), ErrorReply> {
    let initiator = initiator
        .filter(|ke| ke.method == method.number())
        .ok_or_else(|| ErrorReply::invalid_ke_payload(method))?;
    let answer = match ctx.prepared.take() {
        Some(WorkOutcome::Answered(answer)) => answer?,
        _ => ctx.key_exchange.answer(method, &initiator.data)?,
    };
    Ok((answer_payload(method, answer.data), answer.shared))
}

/// The responder's KE payload.
pub(super) fn answer_payload(method: Group, data: Vec<u8>) -> Payload {
    Payload::Ke(KePayload {
        method: method.number(),
        data,
    })
}

/// The reason why the initiator cannot complete its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionError {
    OtherMethod,
    InvalidData,
}

/// The initiator's other half, unless a job has done it: the shared secret.
pub(super) fn complete(
    ctx: &mut Context<'_>,
    exchange: &dyn ActiveKeyExchange,
    responder: &KePayload,
) -> Result<Secret, CompletionError> {
    if responder.method != exchange.method().number() {
        return Err(CompletionError::OtherMethod);
    }
    let shared = match ctx.prepared.take() {
        Some(WorkOutcome::Completed(shared)) => shared,
        _ => exchange.complete(&responder.data),
    };
    shared.map_err(|_| CompletionError::InvalidData)
}

impl Established {
    /// The key exchange of a message, which is worked on before anything is decided.
    pub(super) fn key_exchange_work(
        &self,
        sa: &IkeSaCommon,
        ctx: &Context<'_>,
        message: &Message,
    ) -> Option<Work> {
        if message.header.exchange != ExchangeType::CREATE_CHILD_SA {
            return None;
        }
        let theirs = message.payloads.iter().find_map(|payload| match payload {
            Payload::Ke(ke) => Some(ke),
            _ => None,
        })?;
        let method = Group::from_number(theirs.method)?;
        if message.header.response {
            let started = match self.exchange.as_ref()? {
                PendingExchange::CreateChild(pending) => pending.key_exchange.as_ref()?,
                PendingExchange::RekeyIke(pending) => &pending.key_exchange,
                _ => return None,
            };
            return (started.method() == method).then(|| Work::Complete {
                started: started.clone(),
                responder: theirs.data.clone(),
            });
        }
        let mut children = sa.connection.children.iter();
        let mut proposals = children.by_ref().flat_map(|child| &child.esp_proposals);
        let offers = negotiate::offers_method(&sa.connection.proposals, method)
            || proposals.any(|proposal| proposal.groups.contains(&method));
        let valid = ctx.key_exchange.check(method, &theirs.data).is_ok();
        let served = !self.is_ending() && self.has_work_left(ctx);
        (offers && valid && served).then(|| Work::Answer {
            by: KeyExchangeService(ctx.key_exchange.clone()),
            method,
            initiator: theirs.data.clone(),
        })
    }
}
