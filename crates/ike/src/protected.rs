//! The protected channel of an IKE SA: messages in, protected datagrams out, and back (RFC 7296 §3.14).

use crate::suite::{IkeSaKeys, OpenError, Opener, Role, SealError, Sealer};
use crate::wire::{Header, Message, Payload};

/// The keys of an IKE SA, and the state of both directions.
#[derive(Debug)]
pub(crate) struct ProtectedChannel {
    keys: IkeSaKeys,
    sealer: Sealer,
    opener: Opener,
}

impl ProtectedChannel {
    /// `role` is our role in this IKE SA.
    pub(crate) fn new(keys: IkeSaKeys, role: Role) -> Self {
        Self {
            sealer: keys.sealer(role),
            opener: keys.opener(role),
            keys,
        }
    }

    pub(crate) fn keys(&self) -> &IkeSaKeys {
        &self.keys
    }

    pub(crate) fn seal(
        &mut self,
        header: &Header,
        payloads: &[Payload],
    ) -> Result<Vec<u8>, SealError> {
        self.sealer.seal(header, payloads)
    }

    pub(crate) fn open(&self, datagram: &[u8]) -> Result<Message, OpenError> {
        self.opener.open(datagram)
    }
}
