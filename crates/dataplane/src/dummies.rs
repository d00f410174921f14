//! Schedules dummy packets for silent SAs (RFC 4303 §2.6), so that an observer cannot tell silence
//! from traffic.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use esplanade_crypto::random;
use esplanade_ipsec::sa::OutboundSa;

/// Inner lengths of dummies in bytes, for SAs whose packets are not padded to one length. Every
/// path is wide enough for them.
const LENGTHS: RangeInclusive<usize> = 40..=512;
/// Most SAs that are examined for one dummy.
const LOOKS_MAX: usize = 256;

/// An SA that sends dummy packets while it sends nothing else.
#[derive(Debug, Clone)]
pub struct DummySa {
    pub sa: Arc<OutboundSa>,
    /// Milliseconds of silence before each dummy.
    pub interval_ms: u64,
}

/// The SAs that currently send dummies, as the control thread publishes them.
pub type DummySas = Arc<[DummySa]>;

/// The place where the control thread publishes them.
pub trait DummySource: std::fmt::Debug + Send {
    /// Returns the current list, unless this source has already returned it.
    fn take_new(&mut self) -> Option<DummySas>;
}

#[derive(Debug)]
pub(crate) struct DummyScheduler {
    published: Box<dyn DummySource>,
    sas: DummySas,
    /// The times at which to examine SAs, in milliseconds, each with an index into `sas`.
    looks: BinaryHeap<Reverse<(u64, usize)>>,
}

impl DummyScheduler {
    pub fn new(published: Box<dyn DummySource>) -> Self {
        Self {
            published,
            sas: DummySas::default(),
            looks: BinaryHeap::new(),
        }
    }

    /// Takes over the published list, and drops SAs that left it. The other SAs keep their times:
    /// otherwise no dummy would ever be due while the list changes often.
    pub fn follow(&mut self, now_ms: u64) {
        let Some(published) = self.published.take_new() else {
            return;
        };
        let former = std::mem::replace(&mut self.sas, published);
        let looks = std::mem::take(&mut self.looks).into_iter();
        let due_of = |Reverse((due, index)): Reverse<(u64, usize)>| {
            let one = former.get(index)?;
            Some((Arc::as_ptr(&one.sa), due))
        };
        let known: HashMap<_, _> = looks.filter_map(due_of).collect();
        let due = |(index, one): (usize, &DummySa)| {
            let known = known.get(&Arc::as_ptr(&one.sa)).copied();
            let due = known.unwrap_or(now_ms.saturating_add(one.interval_ms));
            Reverse((due, index))
        };
        self.looks = self.sas.iter().enumerate().map(due).collect();
    }

    /// Returns when to call [`Self::next`] again.
    pub fn next_ms(&self) -> Option<u64> {
        self.looks.peek().map(|Reverse((due, _))| *due)
    }

    /// Returns an SA that was silent for its interval, and the length of its dummy.
    pub fn next(&mut self, now_ms: u64) -> Option<(Arc<OutboundSa>, usize)> {
        for _ in 0..LOOKS_MAX {
            let mut look = self.looks.peek_mut()?;
            let Reverse((due, index)) = &mut *look;
            let one = self.sas.get(*index).filter(|_| *due <= now_ms)?;
            let silent = one.sa.common.last_used_ms().saturating_add(one.interval_ms);
            let is_due = silent <= now_ms;
            *due = if is_due {
                now_ms.saturating_add(one.interval_ms)
            } else {
                silent
            };
            if is_due {
                return Some((Arc::clone(&one.sa), length()));
            }
        }
        None
    }
}

fn length() -> usize {
    let mut bytes = [0; 2];
    // A failure of the random source does no harm here: the bytes only choose a length.
    let _ = random::fill(&mut bytes);
    let (first, last) = (LENGTHS.start(), LENGTHS.end());
    first + usize::from(u16::from_le_bytes(bytes)) % (last - first + 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Debug, Default)]
    struct PublishedList(Arc<Mutex<Option<DummySas>>>);

    impl PublishedList {
        fn publish(&self, sas: DummySas) {
            *self.0.lock().unwrap() = Some(sas);
        }
    }

    impl DummySource for PublishedList {
        fn take_new(&mut self) -> Option<DummySas> {
            self.0.lock().unwrap().take()
        }
    }
    use esplanade_crypto::Transform;
    use esplanade_ipsec::sa::{Path, SaParameters};
    use esplanade_ipsec::selector::SelectorSet;
    use esplanade_ipsec::spd::PolicyId;

    const NOTHING: [u32; 0] = [];

    fn sa(spi: u32) -> Arc<OutboundSa> {
        let transform = Transform::ESP[0];
        let key: Vec<u8> = (0..transform.key_material_len() as u8).collect();
        let path = Path {
            local: "192.0.2.1:0".parse().unwrap(),
            remote: "192.0.2.2:0".parse().unwrap(),
            udp_encap: false,
        };
        let selectors = SelectorSet::new(Vec::new()).unwrap();
        let parameters = SaParameters::new(spi, PolicyId(1), transform, &key, selectors, path);
        Arc::new(OutboundSa::new(parameters).unwrap())
    }

    fn spis(dummies: &mut DummyScheduler, now_ms: u64) -> Vec<u32> {
        dummies.follow(now_ms);
        let next = || dummies.next(now_ms);
        std::iter::from_fn(next)
            .map(|(sa, length)| {
                assert!(LENGTHS.contains(&length));
                sa.common.spi
            })
            .collect()
    }

    // RFC 4303 R20
    #[test]
    fn silence_is_filled_and_nothing_else() {
        let (often, seldom) = (sa(1), sa(2));
        let one = |sa: &Arc<OutboundSa>, interval_ms| DummySa {
            sa: Arc::clone(sa),
            interval_ms,
        };
        let published = PublishedList::default();
        let mut dummies = DummyScheduler::new(Box::new(published.clone()));
        assert_eq!(spis(&mut dummies, 1), NOTHING);
        assert_eq!(dummies.next_ms(), None);
        published.publish([one(&often, 100), one(&seldom, 250)].into());
        assert_eq!(spis(&mut dummies, 1000), NOTHING);
        assert_eq!(dummies.next_ms(), Some(1100));
        assert_eq!(spis(&mut dummies, 1099), NOTHING);
        assert_eq!(spis(&mut dummies, 1100), [1]);
        assert_eq!(spis(&mut dummies, 1250), [1, 2]);
        // A late call does not make up for missed dummies.
        assert_eq!(spis(&mut dummies, 5000), [1, 2]);
        // A packet replaces a dummy.
        often.common.lifetime.admit(1, 100, 5090);
        assert_eq!(spis(&mut dummies, 5100), NOTHING);
        assert_eq!(dummies.next_ms(), Some(5190));
        assert_eq!(spis(&mut dummies, 5190), [1]);
        // An SA that leaves the list is dropped. The other SAs do not wait longer because of it.
        published.publish([one(&seldom, 250)].into());
        assert_eq!(spis(&mut dummies, 5200), NOTHING);
        assert_eq!(Arc::strong_count(&often), 1);
        assert_eq!(dummies.next_ms(), Some(5250));
        assert_eq!(spis(&mut dummies, 5250), [2]);
    }

    #[test]
    fn sas_that_stay_keep_their_time() {
        let stays = sa(1);
        let dummy = |sa: &Arc<OutboundSa>| DummySa {
            sa: Arc::clone(sa),
            interval_ms: 1000,
        };
        let published = PublishedList::default();
        let mut dummies = DummyScheduler::new(Box::new(published.clone()));
        let mut sent = Vec::new();
        for step in 0..30 {
            // Another SA is rekeyed more often than a dummy is due. It is listed before or after
            // this SA.
            let (other, one) = (dummy(&sa(100 + step)), dummy(&stays));
            let sas = if step % 2 == 0 {
                [other, one]
            } else {
                [one, other]
            };
            published.publish(sas.into());
            let now_ms = 100 * u64::from(step);
            let due = spis(&mut dummies, now_ms).into_iter();
            sent.extend(due.map(|spi| (now_ms, spi)));
        }
        assert_eq!(sent, [(1000, 1), (2000, 1)]);
    }

    #[test]
    fn busy_sas_are_looked_at_a_few_at_a_time() {
        let sa = sa(1);
        sa.common.lifetime.admit(1, 100, 1000);
        let one = DummySa {
            sa,
            interval_ms: 10,
        };
        let published = PublishedList::default();
        let mut dummies = DummyScheduler::new(Box::new(published.clone()));
        dummies.follow(0);
        published.publish(vec![one; LOOKS_MAX + 1].into());
        dummies.follow(0);
        assert!(dummies.next(1005).is_none());
        assert_eq!(dummies.next_ms(), Some(10), "one is left to look at");
        assert!(dummies.next(1005).is_none());
        assert_eq!(dummies.next_ms(), Some(1010));
    }
}
