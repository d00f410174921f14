//! KE payloads: the same steps in IKE_SA_INIT, in new child SAs and in rekeys.

use esplanade_crypto::iana::Group;

use super::error_reply::ErrorReply;
use crate::sa::Context;
use crate::suite::{ActiveKeyExchange, Secret};
use crate::wire::{KePayload, Payload};

/// The initiator's KE payload.
pub(super) fn payload(exchange: &dyn ActiveKeyExchange) -> Payload {
    Payload::Ke(KePayload {
        method: exchange.method().number(),
        data: exchange.data().to_vec(),
    })
}

/// The responder's half: the shared secret, and the KE payload of the response. `method` is the chosen one.
pub(super) fn answer(
    ctx: &mut Context<'_>,
    method: Group,
    initiator: Option<&KePayload>,
) -> Result<(Payload, Secret), ErrorReply> {
    let initiator = initiator
        .filter(|ke| ke.method == method.number())
        .ok_or_else(|| ErrorReply::invalid_ke_payload(method))?;
    let answer = ctx.key_exchange.answer(method, &initiator.data)?;
    let payload = Payload::Ke(KePayload {
        method: method.number(),
        data: answer.data,
    });
    Ok((payload, answer.shared))
}

/// The reason why the initiator cannot complete its exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionError {
    OtherMethod,
    InvalidData,
}

/// The initiator's other half: the shared secret.
pub(super) fn complete(
    exchange: &dyn ActiveKeyExchange,
    responder: &KePayload,
) -> Result<Secret, CompletionError> {
    if responder.method != exchange.method().number() {
        return Err(CompletionError::OtherMethod);
    }
    exchange
        .complete(&responder.data)
        .map_err(|_| CompletionError::InvalidData)
}
