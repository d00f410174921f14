//! The protected channel of an IKE SA: messages in, protected datagrams out, and back (RFC 7296 §3.14).

use crate::suite::{
    IkeSaKeys, OpenError, OpenedFragment, Opener, PlainContent, Role, SealError, Sealer,
};
use crate::wire::{Header, Message, Payload};

/// A message in fragments is sent this many times as it is. Then the path may be too narrow for its fragments.
const SENT_AS_IT_IS: u32 = 2;

/// A message as it is sent: in one datagram, or in one for each fragment (RFC 7383 §2.5). Both are kept, because a
/// retransmission is the same bytes again (RFC 7296 §2.1).
#[derive(Debug)]
pub(crate) struct OutgoingMessage {
    datagrams: Vec<Vec<u8>>,
    /// The content of a message in fragments, from which smaller fragments can be made.
    cut_from: Option<Box<(Header, PlainContent)>>,
    times_sent: u32,
    /// The datagrams are an empty request and a probe of the path. The probe goes first, then the empty request, and
    /// from then on both.
    path_probe: bool,
}

impl OutgoingMessage {
    /// A message in one datagram.
    pub(crate) fn whole(datagram: Vec<u8>) -> Self {
        Self {
            datagrams: vec![datagram],
            cut_from: None,
            times_sent: 0,
            path_probe: false,
        }
    }

    pub(crate) fn is_fragmented(&self) -> bool {
        self.cut_from.is_some()
    }

    /// Says whether the message shows, when it is sent now, that packets of its size arrive.
    pub(crate) fn probes_path(&self) -> bool {
        self.path_probe && self.times_sent == 0
    }

    pub(crate) fn len(&self) -> usize {
        match self.datagrams.as_slice() {
            [_, long] if self.path_probe => long.len(),
            all => all.iter().map(Vec::len).sum(),
        }
    }

    /// The datagrams, to be sent once.
    pub(crate) fn send(&mut self) -> &[Vec<u8>] {
        let before = self.times_sent;
        self.times_sent = before.saturating_add(1);
        let mut datagrams = self.datagrams.as_slice();
        if self.path_probe {
            datagrams = match (before, datagrams) {
                (0, [_, rest @ ..]) => rest,
                (1, [first, ..]) => std::slice::from_ref(first),
                (_, all) => all,
            };
        }
        datagrams
    }
}

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

    /// Seals a message. If it is longer than `longest`, it is cut into fragments of that length.
    pub(crate) fn seal(
        &mut self,
        header: &Header,
        payloads: &[Payload],
        longest: Option<usize>,
    ) -> Result<OutgoingMessage, SealError> {
        let content = PlainContent::encode(payloads)?;
        match longest.filter(|longest| self.sealer.sealed_len(&content) > *longest) {
            None => {
                let datagram = self.sealer.seal_content(header, &content)?;
                Ok(OutgoingMessage::whole(datagram))
            }
            Some(longest) => Ok(OutgoingMessage {
                datagrams: self.sealer.seal_fragments(header, &content, longest)?,
                cut_from: Some(Box::new((*header, content))),
                times_sent: 0,
                path_probe: false,
            }),
        }
    }

    /// Seals a probe of the path: a message whose one datagram has `len` bytes, or less by a part of a block. `payload`
    /// makes its only payload of this many bytes. Returns `None` if there is no room.
    pub(crate) fn seal_path_probe(
        &mut self,
        header: &Header,
        payload: impl FnOnce(usize) -> Option<Payload>,
        len: usize,
    ) -> Result<Option<OutgoingMessage>, SealError> {
        let Some(payload) = self.sealer.room(len).and_then(payload) else {
            return Ok(None);
        };
        let long = self.sealer.seal(header, &[payload])?;
        let short = self.sealer.seal(header, &[])?;
        Ok(Some(OutgoingMessage {
            datagrams: vec![short, long],
            cut_from: None,
            times_sent: 0,
            path_probe: true,
        }))
    }

    /// Cuts a message that has brought no answer into smaller fragments. Returns false if it stays as it is.
    pub(crate) fn cut_smaller(&mut self, message: &mut OutgoingMessage, longest: usize) -> bool {
        let Some(cut_from) = &message.cut_from else {
            return false;
        };
        let (header, content) = &**cut_from;
        // The receiver tells the two sets apart by the total number, which must increase (RFC 7383 §2.5.2).
        let count = self.sealer.fragment_count(content, longest);
        let more = count.is_some_and(|count| usize::from(count) > message.datagrams.len());
        if message.times_sent < SENT_AS_IT_IS || !more {
            return false;
        }
        // Should sealing fail, the fragments stay as they are.
        let Ok(datagrams) = self.sealer.seal_fragments(header, content, longest) else {
            return false;
        };
        message.datagrams = datagrams;
        true
    }

    pub(crate) fn open(&self, datagram: &[u8]) -> Result<Message, OpenError> {
        self.opener.open(datagram)
    }

    pub(crate) fn open_fragment(&self, datagram: &[u8]) -> Result<OpenedFragment, OpenError> {
        self.opener.open_fragment(datagram)
    }
}
