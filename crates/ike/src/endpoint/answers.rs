//! The limit on error notifies to senders that nobody has authenticated (RFC 7296 §2.21). A sender with a false
//! source address has us answer somebody else.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::source_network::SourceNetwork;

/// A source gets at most the notifies of a second, divided by this number.
const PART_OF_A_SOURCE: u32 = 4;
/// Senders that have shown a cookie own their address. They get this many times more notifies.
const FOR_PROVEN: u32 = 50;
/// Senders at addresses of peers get this many times more in all, so that strangers take nothing from them. A stranger
/// that uses the addresses of a few peers takes little from the others.
const FOR_PEERS: u32 = 50;
/// Hints that are looked at in a second, of all peers and of one.
const HEARD: Share = Share { all: 1000, own: 10 };

/// The kinds of senders that are not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SenderKind {
    Stranger,
    /// The source address is that of a peer: configured, or with an IKE SA. It can be false.
    AtPeersAddress,
    /// The sender has shown a cookie.
    Proven,
}

/// The sender of a message that is not authenticated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    pub source: IpAddr,
    pub kind: SenderKind,
}

/// The number of times in a second that all senders, and a single source of them, get something.
#[derive(Clone, Copy, Debug)]
struct Share {
    all: u32,
    own: u32,
}

impl Share {
    fn of(kind: SenderKind, per_second: u32) -> Self {
        let own = per_second.div_ceil(PART_OF_A_SOURCE);
        match kind {
            SenderKind::Stranger => Self {
                all: per_second,
                own,
            },
            SenderKind::AtPeersAddress => Self {
                all: per_second.saturating_mul(FOR_PEERS),
                own,
            },
            SenderKind::Proven => {
                let all = per_second.saturating_mul(FOR_PROVEN);
                let own = all.div_ceil(PART_OF_A_SOURCE);
                Self { all, own }
            }
        }
    }
}

#[derive(Default)]
pub(super) struct Answers {
    unproven: Budget,
    at_peers_addresses: Budget,
    proven: Budget,
    hints: Budget,
    hints_to_peers: Budget,
    heard: Budget,
}

/// The notifies of the current second.
#[derive(Default)]
struct Budget {
    filled: Option<Instant>,
    spent: u32,
    by_source: HashMap<SourceNetwork, u32>,
}

impl Budget {
    fn refill(&mut self, now: Instant) {
        let stale = |at| now.saturating_duration_since(at) >= Duration::from_secs(1);
        if self.filled.is_none_or(stale) {
            self.filled = Some(now);
            self.spent = 0;
            self.by_source.clear();
        }
    }

    fn has_left(&mut self, now: Instant, source: SourceNetwork, share: Share) -> bool {
        self.refill(now);
        let own = self.by_source.get(&source).copied().unwrap_or(0);
        self.spent < share.all && own < share.own
    }

    fn take(&mut self, now: Instant, source: IpAddr, share: Share) -> bool {
        let source = SourceNetwork::of_source(source);
        let left = self.has_left(now, source, share);
        if left {
            self.spent += 1;
            *self.by_source.entry(source).or_default() += 1;
        }
        left
    }
}

impl Answers {
    fn budget(&mut self, kind: SenderKind) -> &mut Budget {
        match kind {
            SenderKind::Stranger => &mut self.unproven,
            SenderKind::AtPeersAddress => &mut self.at_peers_addresses,
            SenderKind::Proven => &mut self.proven,
        }
    }

    /// Says whether a sender may get an error notify.
    pub(super) fn has_left(&mut self, now: Instant, sender: Sender, per_second: u32) -> bool {
        let share = Share::of(sender.kind, per_second);
        let source = SourceNetwork::of_source(sender.source);
        self.budget(sender.kind).has_left(now, source, share)
    }

    pub(super) fn take(&mut self, now: Instant, sender: Sender, per_second: u32) -> bool {
        let share = Share::of(sender.kind, per_second);
        self.budget(sender.kind).take(now, sender.source, share)
    }

    /// Says whether the sender of an unknown SPI may be told so.
    pub(super) fn take_hint(&mut self, now: Instant, sender: Sender, per_second: u32) -> bool {
        let budget = match sender.kind {
            SenderKind::Stranger => &mut self.hints,
            SenderKind::AtPeersAddress | SenderKind::Proven => &mut self.hints_to_peers,
        };
        budget.take(now, sender.source, Share::of(sender.kind, per_second))
    }

    /// Says whether a hint from a peer's address is looked at.
    pub(super) fn hear_hint(&mut self, now: Instant, source: IpAddr) -> bool {
        self.heard.take(now, source, HEARD)
    }
}
