//! Events on their way to the control thread.
//!
//! Each kind has a class of its own, so that many events of one kind take no room from others. What finds no room comes
//! again: a lifetime at the next look at the SA, an acquire with a packet half a second later.

use std::collections::{BTreeSet, HashMap, VecDeque};

use esplanade_dataplane::class::{Class, ClassQueue};
use esplanade_ipsec::Event;
use tokio::sync::mpsc;

/// Most events of one class that wait for the control thread.
const EVENTS_MAX: usize = 4096;
/// Most events of higher classes that go before a waiting event of a lower class.
const EVENTS_PATIENCE: u64 = 64;
/// The shortest time between two moves of one SA.
const MOVE_EVERY_MS: u64 = 100;

/// Events on their way to the control thread. Events that keep tunnels up go before requests for new tunnels, because
/// traffic can cause many requests.
#[derive(Debug)]
pub(super) struct EventQueue {
    waiting: ClassQueue<Event>,
    moves: PeerMoves,
}

impl Default for EventQueue {
    fn default() -> Self {
        Self::new(EVENTS_MAX)
    }
}

impl EventQueue {
    fn new(class_len_max: usize) -> Self {
        Self {
            waiting: ClassQueue::new(class_len_max, EVENTS_PATIENCE),
            moves: PeerMoves::default(),
        }
    }

    /// Queues an event. Returns false if the event was dropped.
    pub fn push(&mut self, event: Event, now_ms: u64) -> bool {
        if let Event::PeerMoved { spi, .. } = event {
            self.moves.push(spi, event, now_ms);
            return true;
        }
        self.waiting.push(class(&event), event).is_ok()
    }

    pub fn flush(&mut self, sender: &mpsc::Sender<Event>, now_ms: u64) {
        self.moves.forget(now_ms);
        while let Some((spi, event)) = self.moves.next_due(now_ms) {
            if self.waiting.push(class(&event), event).is_err() {
                break;
            }
            self.moves.queued(spi, now_ms);
        }
        while !self.waiting.is_empty() {
            let permit = match sender.try_reserve() {
                Ok(permit) => permit,
                Err(mpsc::error::TrySendError::Full(())) => return,
                // The control thread is ending, and this thread will end soon.
                Err(mpsc::error::TrySendError::Closed(())) => {
                    *self = Self::default();
                    return;
                }
            };
            if let Some((_, event)) = self.waiting.pop() {
                permit.send(event);
            }
        }
    }

    /// Returns true if no event waits for room or for its time.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.moves.due.is_empty()
    }
}

fn class(event: &Event) -> Class {
    let class = match event {
        Event::Lifetime { .. } => return Class::HIGHEST,
        Event::PeerMoved { .. } => 4,
        Event::Acquire { .. } => 2,
        Event::UnknownSpi { .. } => return Class::LOWEST,
    };
    Class::new(class).unwrap_or_default()
}

/// The moves of peers. An SA has one in [`MOVE_EVERY_MS`], the newest. There is at most one entry for each SA that has
/// just moved.
#[derive(Debug, Default)]
struct PeerMoves {
    by_spi: HashMap<u32, PeerMove>,
    /// The SAs whose moves wait, by the times from which they may be queued.
    due: BTreeSet<(u64, u32)>,
    /// The SAs whose moves were queued, with the ends of their pauses, earliest first.
    pauses: VecDeque<(u64, u32)>,
}

#[derive(Debug)]
struct PeerMove {
    /// The newest move, unless it was queued. It is told even if the move before went to the same address: IKE can have
    /// moved the peer since.
    waiting: Option<Event>,
    /// The end of the pause after the move that was queued last.
    pause_until: Option<u64>,
}

impl PeerMoves {
    fn push(&mut self, spi: u32, event: Event, now_ms: u64) {
        let entry = self.by_spi.entry(spi).or_insert(PeerMove {
            waiting: None,
            pause_until: None,
        });
        let at = entry.pause_until.unwrap_or(now_ms);
        if entry.waiting.replace(event).is_none() {
            self.due.insert((at, spi));
        }
    }

    /// Returns the next move whose time has come.
    fn next_due(&mut self, now_ms: u64) -> Option<(u32, Event)> {
        loop {
            let (at, spi) = *self.due.first()?;
            let event = self.by_spi.get(&spi).and_then(|entry| entry.waiting);
            match event {
                Some(_) if at > now_ms => return None,
                Some(event) => return Some((spi, event)),
                None => drop(self.due.pop_first()),
            }
        }
    }

    /// The move that was due first is queued now.
    fn queued(&mut self, spi: u32, now_ms: u64) {
        self.due.pop_first();
        if let Some(entry) = self.by_spi.get_mut(&spi)
            && entry.waiting.take().is_some()
        {
            let until = now_ms + MOVE_EVERY_MS;
            entry.pause_until = Some(until);
            self.pauses.push_back((until, spi));
        }
    }

    /// Forgets SAs that have not moved for a while.
    fn forget(&mut self, now_ms: u64) {
        while let Some((until, spi)) = self.pauses.front().copied()
            && until <= now_ms
        {
            self.pauses.pop_front();
            let is_over = |entry: &&PeerMove| {
                entry.waiting.is_none() && entry.pause_until.is_none_or(|end| end <= now_ms)
            };
            if self.by_spi.get(&spi).filter(is_over).is_some() {
                self.by_spi.remove(&spi);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use esplanade_ipsec::lifetime::{Lifetime, LifetimeEvent, LifetimeLimits};
    use esplanade_ipsec::sa::SaDirection;
    use esplanade_ipsec::spd::PolicyId;

    use super::*;

    fn moved(spi: u32, port: u16) -> Event {
        let at = |port| SocketAddr::from(([192, 0, 2, 9], port));
        Event::PeerMoved {
            spi,
            policy: PolicyId(1),
            from: at(1),
            to: at(port),
        }
    }

    fn lifetime(spi: u32, event: LifetimeEvent) -> Event {
        Event::Lifetime {
            direction: SaDirection::Outbound,
            spi,
            policy: PolicyId(1),
            event,
        }
    }

    /// Lets the control thread take what there is for it.
    fn taken(queue: &mut EventQueue, now_ms: u64) -> Vec<Event> {
        let (sender, mut receiver) = mpsc::channel(10_000);
        queue.flush(&sender, now_ms);
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    #[test]
    fn an_sa_moves_once_in_a_tenth_of_a_second_and_the_last_move_wins() {
        let mut queue = EventQueue::default();
        let mut all = Vec::new();
        // A packet a millisecond, each from another port.
        for now_ms in 1..=250 {
            assert!(queue.push(moved(7, 1000 + now_ms as u16), now_ms));
            all.extend(taken(&mut queue, now_ms));
        }
        let expected = [1001, 1101, 1201].map(|port| moved(7, port));
        assert_eq!(all, expected);
        assert!(!queue.is_empty(), "the last one waits");
        assert_eq!(taken(&mut queue, 300), []);
        assert_eq!(taken(&mut queue, 301), [moved(7, 1250)]);
        assert!(queue.is_empty());
        // IKE may have moved a peer that is back where it was.
        queue.push(moved(7, 9), 302);
        queue.push(moved(7, 1250), 303);
        assert_eq!(taken(&mut queue, 400), []);
        assert_eq!(taken(&mut queue, 401), [moved(7, 1250)]);
        assert_eq!(taken(&mut queue, 1000), []);
        assert!(queue.is_empty());
        // Nothing is kept of SAs that stay where they are.
        queue.push(moved(8, 1), 2000);
        assert_eq!(taken(&mut queue, 2000), [moved(8, 1)]);
        assert_eq!(taken(&mut queue, 2100), []);
        assert!(queue.moves.by_spi.is_empty());
    }

    #[test]
    fn moves_and_unknown_spis_take_no_room_from_others() {
        let mut queue = EventQueue::new(2);
        let remote = SocketAddr::from(([192, 0, 2, 9], 4500));
        for spi in 1..=5 {
            assert!(queue.push(moved(spi, 1), 1), "there is one for each SA");
            let unknown = Event::UnknownSpi { spi, remote };
            assert_eq!(queue.push(unknown, 1), spi <= 2);
        }
        assert!(queue.push(lifetime(6, LifetimeEvent::Soft), 1));
        // A move that finds no room waits.
        assert_eq!(taken(&mut queue, 1).len(), 1 + 2 + 2);
        assert_eq!(taken(&mut queue, 1).len(), 2);
        assert_eq!(taken(&mut queue, 1), [moved(5, 1)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_lifetime_that_found_no_room_comes_again() {
        let limits = LifetimeLimits {
            packets_soft: Some(1),
            ..LifetimeLimits::default()
        };
        let sas = [1, 2].map(|spi| (spi, Lifetime::new(&limits, 0)));
        let mut queue = EventQueue::new(1);
        let queued = sas.each_ref().map(|(spi, lifetime_of)| {
            let event = lifetime_of
                .admit(1, 1, 1)
                .event
                .expect("the limit is reached");
            queue.push(lifetime(*spi, event), 1)
        });
        assert_eq!(queued, [true, false]);
        for event in taken(&mut queue, 1) {
            assert_eq!(event, lifetime(1, LifetimeEvent::Soft));
            assert!(sas[0].1.take(LifetimeEvent::Soft));
        }
        let next_look = sas.each_ref().map(|(_, lifetime)| lifetime.poll(2));
        assert_eq!(next_look, [None, Some(LifetimeEvent::Soft)]);
        assert_eq!(sas[1].1.poll(3), None);
    }
}
