//! The fragments of one message, while they come in (RFC 7383 §2.6). Only fragments that the peer has made are here.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::datagram::ReceivedMessage;
use crate::refusal::Refusal;
use crate::suite::{OpenError, OpenedFragment, open_chain};
use crate::wire::{FragmentPlace, Header, Message, PayloadType};

/// The time for which fragments wait for the next one. Most retransmissions come within it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The fragments of one message that have come.
#[derive(Debug)]
pub(crate) struct Reassembly {
    total: u16,
    contents: BTreeMap<u16, Zeroizing<Vec<u8>>>,
    /// The sum of the lengths of the contents.
    len: usize,
    /// The length of the longest fragment, with its header.
    longest: usize,
    head: Option<FragmentHead>,
    until: Instant,
}

/// The parts of the first fragment that stand for the whole message.
#[derive(Debug)]
struct FragmentHead {
    header: Header,
    /// The type of the first payload.
    first: PayloadType,
    datagram: Vec<u8>,
}

/// The effect of a fragment on the message that is being put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FragmentEffect {
    Adds,
    /// The sender has cut its message into more fragments, so that those that came before are dropped.
    StartsOver,
}

/// The fragments have more bytes, or are more, than a message may have.
#[derive(Debug)]
pub(crate) struct ReassemblyFull;

/// The largest message that is put together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReassemblyLimits {
    pub(crate) fragments: u16,
    pub(crate) len: usize,
}

/// All fragments of a message.
#[derive(Debug)]
pub(crate) struct ReassembledMessage {
    head: FragmentHead,
    content: Zeroizing<Vec<u8>>,
    pub(crate) total: u16,
    pub(crate) longest: usize,
}

impl ReassembledMessage {
    pub(crate) fn open(&self) -> Result<Message, OpenError> {
        open_chain(self.head.header, self.head.first, &self.content)
    }

    pub(crate) fn len(&self) -> usize {
        self.content.len()
    }

    /// The message as received. Its datagram is that of the first fragment, because only a copy of that one is a copy
    /// of the message (RFC 7383 §2.6.1). The addresses are those of the last datagram that came.
    pub(crate) fn received(&self, last: &ReceivedMessage<'_>) -> ReceivedMessage<'_> {
        ReceivedMessage {
            header: self.head.header,
            datagram: &self.head.datagram,
            len: self.len(),
            ..*last
        }
    }
}

impl Reassembly {
    fn new(total: u16, now: Instant) -> Self {
        Self {
            total,
            contents: BTreeMap::new(),
            len: 0,
            longest: 0,
            head: None,
            until: now + PATIENCE,
        }
    }

    fn effect(&self, place: FragmentPlace) -> Result<FragmentEffect, Refusal> {
        match place.total.cmp(&self.total) {
            std::cmp::Ordering::Less => Err(Refusal::FragmentPlace),
            std::cmp::Ordering::Greater => Ok(FragmentEffect::StartsOver),
            std::cmp::Ordering::Equal if self.contents.contains_key(&place.number) => {
                Err(Refusal::FragmentDuplicate)
            }
            std::cmp::Ordering::Equal => Ok(FragmentEffect::Adds),
        }
    }

    fn add(&mut self, fragment: OpenedFragment, datagram: &[u8]) {
        let number = fragment.place.number;
        if number == 1 {
            self.head = Some(FragmentHead {
                header: fragment.header,
                first: fragment.first,
                datagram: datagram.to_vec(),
            });
        }
        self.len += fragment.content.len();
        self.longest = self.longest.max(datagram.len());
        self.contents.insert(number, fragment.content);
    }

    /// Puts the contents together, if all are here.
    fn complete(&mut self) -> Option<ReassembledMessage> {
        if self.contents.len() < self.total.into() {
            return None;
        }
        let head = self.head.take()?;
        // It never grows, so that no copy of the plaintext is left behind.
        let mut content = Zeroizing::new(Vec::with_capacity(self.len));
        for part in self.contents.values() {
            content.extend_from_slice(part);
        }
        Some(ReassembledMessage {
            head,
            content,
            total: self.total,
            longest: self.longest,
        })
    }
}

/// The message of one direction that is being put together, if there is one.
#[derive(Debug, Default)]
pub(super) struct IncomingFragments(Option<Reassembly>);

impl IncomingFragments {
    /// Says what a fragment at this place would change. The fragment is not verified yet.
    pub(super) fn effect(&self, place: FragmentPlace) -> Result<FragmentEffect, Refusal> {
        if !place.exists() {
            return Err(Refusal::FragmentPlace);
        }
        match &self.0 {
            Some(reassembly) => reassembly.effect(place),
            None => Ok(FragmentEffect::Adds),
        }
    }

    /// Takes a verified fragment, for which [`IncomingFragments::effect`] has given an effect. Returns the message when it
    /// is complete.
    pub(super) fn add(
        &mut self,
        now: Instant,
        fragment: OpenedFragment,
        datagram: &[u8],
        limits: ReassemblyLimits,
    ) -> Result<Option<ReassembledMessage>, ReassemblyFull> {
        let total = fragment.place.total;
        if self.0.as_ref().is_none_or(|before| before.total != total) {
            self.0 = Some(Reassembly::new(total, now));
        }
        let Some(reassembly) = &mut self.0 else {
            return Ok(None);
        };
        let len = reassembly.len + fragment.content.len();
        if total > limits.fragments || len > limits.len {
            self.clear();
            return Err(ReassemblyFull);
        }
        reassembly.until = now + PATIENCE;
        reassembly.add(fragment, datagram);
        let complete = reassembly.complete();
        if complete.is_some() {
            self.clear();
        }
        Ok(complete)
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.0.as_ref().map(|reassembly| reassembly.until)
    }

    /// Drops fragments that have waited too long. Returns true if there were some.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let expired = self.next_timeout().is_some_and(|until| until <= now);
        if expired {
            self.clear();
        }
        expired
    }
}
