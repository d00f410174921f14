//! The payloads of each exchange, found by one mechanism.
//!
//! A set declares which payloads its message must have, may have, and may have several of. The decoder has already refused
//! a message with two payloads of a type that may come once.

use crate::wire::{
    Auth, Cert, CertReq, Delete, Id, KePayload, Message, NotifyType, Payload, Proposal,
    TrafficSelector,
};

/// Says whether the sender fetches certificates by their URIs (RFC 7296 §3.6).
pub(super) fn looks_up_certificates(message: &Message) -> bool {
    let announced = NotifyType::HTTP_CERT_LOOKUP_SUPPORTED;
    message.notification(announced).is_some()
}

/// The number of times that a payload of type `T` may come. `&T` or a slice stands for once, [`Option`] for once at
/// most, [`Vec`] for any number.
trait PayloadField<'a, T: 'a>: Sized {
    fn collect(found: impl Iterator<Item = &'a T>) -> Option<Self>;
}

impl<'a, T: 'a> PayloadField<'a, T> for &'a T {
    fn collect(mut found: impl Iterator<Item = &'a T>) -> Option<Self> {
        found.next()
    }
}

impl<'a, T: 'a> PayloadField<'a, Vec<T>> for &'a [T] {
    fn collect(mut found: impl Iterator<Item = &'a Vec<T>>) -> Option<Self> {
        found.next().map(Vec::as_slice)
    }
}

impl<'a, T: 'a, F: PayloadField<'a, T>> PayloadField<'a, T> for Option<F> {
    fn collect(found: impl Iterator<Item = &'a T>) -> Option<Self> {
        Some(F::collect(found))
    }
}

impl<'a, T: 'a> PayloadField<'a, T> for Vec<&'a T> {
    fn collect(found: impl Iterator<Item = &'a T>) -> Option<Self> {
        Some(found.collect())
    }
}

/// Declares a set. Each field names its variant of [`Payload`]; each flag says whether a notify is there.
macro_rules! payload_set {
    (
        $(#[$meta:meta])* struct $name:ident<$life:lifetime> {
            $($(#[$doc:meta])* $field:ident: $type:ty = $variant:ident,)*
        }
        $(notifies { $($(#[$flag_doc:meta])* $flag:ident = $notify:ident,)* })?
    ) => {
        $(#[$meta])*
        pub(crate) struct $name<$life> {
            $($(#[$doc])* pub(crate) $field: $type,)*
            $($($(#[$flag_doc])* pub(crate) $flag: bool,)*)?
        }

        impl<$life> $name<$life> {
            /// Finds the payloads in a message. Returns `None` if a payload is missing.
            pub(crate) fn find(message: &$life Message) -> Option<Self> {
                Some(Self {
                    $($field: PayloadField::collect(message.payloads.iter().filter_map(
                        |payload| match payload {
                            Payload::$variant(found) => Some(found),
                            _ => None,
                        },
                    ))?,)*
                    $($($flag: message.notification(NotifyType::$notify).is_some(),)*)?
                })
            }
        }
    };
}

payload_set! {
    /// IKE_SA_INIT, request and response (RFC 7296 §1.2).
    struct InitPayloads<'a> {
        proposals: &'a [Proposal] = Sa,
        key_exchange: &'a KePayload = Ke,
        nonce: &'a [u8] = Nonce,
    }
}

payload_set! {
    /// The initiator's proof in IKE_AUTH (RFC 7296 §1.2).
    struct InitiatorProof<'a> {
        id: &'a Id = IdI,
        /// The identity that the initiator wants to talk to.
        responder_id: Option<&'a Id> = IdR,
        certificates: Vec<&'a Cert> = Cert,
        certreqs: Vec<&'a CertReq> = CertReq,
        auth: &'a Auth = Auth,
    }
}

payload_set! {
    /// The responder's proof in IKE_AUTH (RFC 7296 §1.2).
    struct ResponderProof<'a> {
        id: &'a Id = IdR,
        certificates: Vec<&'a Cert> = Cert,
        auth: &'a Auth = Auth,
    }
}

payload_set! {
    /// The negotiation of a child SA, in IKE_AUTH or CREATE_CHILD_SA (RFC 7296 §1.2, §1.3.1 and §1.3.3).
    struct ChildPayloads<'a> {
        proposals: &'a [Proposal] = Sa,
        ts_i: &'a [TrafficSelector] = TsI,
        ts_r: &'a [TrafficSelector] = TsR,
        /// IKE_AUTH has none: the nonces of IKE_SA_INIT are used.
        nonce: Option<&'a [u8]> = Nonce,
        key_exchange: Option<&'a KePayload> = Ke,
    }
    notifies {
        transport = USE_TRANSPORT_MODE,
        no_tfc = ESP_TFC_PADDING_NOT_SUPPORTED,
        /// The peer accepts non-first fragments (RFC 4301 §7.3).
        non_first_fragments = NON_FIRST_FRAGMENTS_ALSO,
    }
}

payload_set! {
    /// The rekey of an IKE SA in CREATE_CHILD_SA (RFC 7296 §1.3.2).
    struct RekeyIkePayloads<'a> {
        proposals: &'a [Proposal] = Sa,
        nonce: &'a [u8] = Nonce,
        key_exchange: &'a KePayload = Ke,
    }
}

payload_set! {
    /// INFORMATIONAL (RFC 7296 §1.4).
    struct InformationalPayloads<'a> {
        deletes: Vec<&'a Delete> = Delete,
    }
}
