//! The places that were asked lately.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_pki::StatusSource;

/// Places that are known to have been asked.
const PLACES_MAX: usize = 4096;
/// The time after which a place can be asked again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct AskedPlaces {
    places: Arc<HashSet<StatusSource>>,
    /// The oldest come first.
    order: VecDeque<(Instant, StatusSource)>,
}

impl AskedPlaces {
    /// Notes a place. If there are too many, the oldest is forgotten: it can be asked again sooner.
    pub(super) fn note(&mut self, source: StatusSource, now: Instant) {
        if self.places.contains(&source) {
            return;
        }
        while self.order.len() >= PLACES_MAX
            && let Some((_, oldest)) = self.order.pop_front()
        {
            Arc::make_mut(&mut self.places).remove(&oldest);
        }
        Arc::make_mut(&mut self.places).insert(source.clone());
        self.order.push_back((now + AGAIN_AFTER, source));
    }

    /// Forgets those whose time is over. Returns whether there were any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.order.len();
        while let Some((until, _)) = self.order.front()
            && *until <= now
            && let Some((_, source)) = self.order.pop_front()
        {
            Arc::make_mut(&mut self.places).remove(&source);
        }
        self.order.len() < before
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn places(&self) -> &Arc<HashSet<StatusSource>> {
        &self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: usize) -> StatusSource {
        let uri = format!("http://ca.example.org/{number}");
        StatusSource::Crl { uri }
    }

    #[test]
    fn the_newest_is_always_known() {
        let (mut tried, now) = (AskedPlaces::default(), Instant::now());
        for number in 0..3 * PLACES_MAX {
            tried.note(source(number), now);
            assert!(tried.places().contains(&source(number)));
        }
        assert_eq!(tried.places().len(), PLACES_MAX);
        assert!(!tried.places().contains(&source(0)));
    }

    #[test]
    fn a_place_can_be_asked_again_after_a_minute() {
        let (mut tried, now) = (AskedPlaces::default(), Instant::now());
        let after = |seconds| now + Duration::from_secs(seconds);
        tried.note(source(1), now);
        tried.note(source(2), after(30));
        // The first time counts.
        tried.note(source(1), after(40));
        assert!(!tried.expire(after(59)));
        assert!(tried.expire(after(60)));
        let left: Vec<_> = tried.places().iter().cloned().collect();
        assert_eq!(left, [source(2)]);
        assert!(tried.expire(after(90)));
        assert!(tried.places().is_empty());
    }
}
