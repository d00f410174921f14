//! Loads: a bitstream is merged piece by piece while it goes to the fabric.
//!
//! Where the fabric takes partial streams, the bitstream is merged first, and what differs from the lane before goes there.
//! If that makes no lane, the whole bitstream is loaded, and that fabric gets no partial stream any more.

use std::time::{Duration, Instant};

use esplanade_crypto::Direction;
use esplanade_crypto::self_test::Trial;

use super::stream::{LoadProgress, LoadStream};
use super::{Controller, Event, Ready, State, offers};
use crate::algorithm::{Lane, Need};
use crate::fabric::{Fabric, FabricError};

/// The pause when the fabric's interface is busy.
const PAUSE: Duration = Duration::from_micros(200);

/// The controller's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is loading.
    Idle,
    /// Something is loading, and the fabric takes more after this time.
    After(Duration),
}

/// A load under way.
#[derive(Debug)]
pub(super) struct Load<'a> {
    lane: Lane,
    replaced: Option<Lane>,
    stream: LoadStream<'a>,
    begun: Instant,
    /// When the first packet wanted the lane.
    wanted: Option<Instant>,
}

/// A load that has ended.
struct Loaded {
    bytes: usize,
    is_partial: bool,
    lane: Lane,
    replaced: Option<Lane>,
    begun: Instant,
    wanted: Option<Instant>,
}

impl Load<'_> {
    pub fn lane(&self) -> Lane {
        self.lane
    }

    pub fn wanted_since(&mut self, now: Instant) {
        self.wanted.get_or_insert(now);
    }
}

impl<'a, F: Fabric> Controller<'a, F> {
    /// Begins the loads that are worth it.
    pub(super) fn begin_loads(&mut self) {
        loop {
            let offers = &self.offers;
            let next = self
                .residency
                .next_load(|need| offers::lane_for(offers, need));
            let Some((fabric, lane)) = next else {
                return;
            };
            if let Err(error) = self.begin_load(fabric, lane) {
                self.fail(fabric, error.to_string());
            }
        }
    }

    fn begin_load(&mut self, number: usize, lane: Lane) -> Result<(), FabricError> {
        let missing = || FabricError::Absent("the library has no such bitstream".to_owned());
        let offer = self
            .offers
            .iter()
            .position(|offer| offer.lane == lane && !offer.is_refused);
        let offer = offer.ok_or_else(missing)?;
        let Some((place, offered)) = self.places.get_mut(number).zip(self.offers.get(offer)) else {
            return Err(missing());
        };
        let merge = self.library.bitstream(&offered.domain, &offered.variant);
        let merge = merge.ok_or_else(missing)?;
        let (mut replaced, mut former) = (None, None);
        if let State::Ready(ready) = &mut place.state {
            replaced = Some(ready.lane);
            former = ready
                .configuration
                .take_if(|former| former.is_background() && place.takes_partial);
        }
        let stream = LoadStream::begin(&mut place.fabric, merge, place.takes_partial, former)?;
        self.counters.wipes += u64::from(replaced.is_some());
        self.counters.evictions += u64::from(replaced.is_some());
        place.state = State::Loading(Box::new(Load {
            lane,
            replaced,
            stream,
            begun: Instant::now(),
            wanted: None,
        }));
        Ok(())
    }

    /// Goes on with the loads. Each call takes a bounded time.
    pub fn step(&mut self) -> Progress {
        self.begin_loads();
        let mut progress = Progress::Idle;
        for number in 0..self.places.len() {
            match self.step_of(number) {
                Ok(of_place) => progress = progress.max_of(of_place),
                Err(why) => progress = progress.max_of(self.refuse(number, why)),
            }
        }
        progress
    }

    fn step_of(&mut self, number: usize) -> Result<Progress, String> {
        let Some(place) = self.places.get_mut(number) else {
            return Ok(Progress::Idle);
        };
        let State::Loading(load) = &mut place.state else {
            return Ok(Progress::Idle);
        };
        if load.stream.wants_piece() {
            let begun = Instant::now();
            load.stream.next_piece(&mut place.fabric)?;
            self.counters.merge_time += begun.elapsed();
        }
        let turn = load.stream.give(&mut place.fabric);
        match turn.map_err(|error| error.to_string())? {
            LoadProgress::Goes => return Ok(Progress::After(Duration::ZERO)),
            LoadProgress::Waits => return Ok(Progress::After(PAUSE)),
            LoadProgress::Ended => {}
        }
        let made = place.fabric.end().map_err(|error| error.to_string())?;
        if made != load.lane {
            return Err(format!("it makes {made}"));
        }
        let State::Loading(load) = std::mem::replace(&mut place.state, State::Empty) else {
            return Ok(Progress::Idle);
        };
        let loaded = Loaded {
            bytes: load.stream.bytes(),
            is_partial: load.stream.is_partial(),
            lane: load.lane,
            replaced: load.replaced,
            begun: load.begun,
            wanted: load.wanted,
        };
        place.state = State::Ready(Ready {
            lane: made,
            configuration: load.stream.into_configuration(),
            is_partial: loaded.is_partial,
            key: None,
        });
        self.test(number, made)?;
        self.finish_load(number, &loaded);
        Ok(Progress::Idle)
    }

    fn finish_load(&mut self, number: usize, load: &Loaded) {
        let now = Instant::now();
        let time = now.duration_since(load.begun);
        let wanted = load.wanted.map(|since| now.duration_since(since));
        self.counters.loads += 1;
        self.counters.partial_loads += u64::from(load.is_partial);
        self.counters.load_bytes += load.bytes as u64;
        self.counters.hidden_loads += u64::from(wanted.is_none());
        self.counters.load_time += time;
        self.counters.wanted_time += wanted.unwrap_or_default();
        self.residency.set_price(time.as_nanos() as u64);
        self.residency.loaded(number);
        self.tell(Event::Loaded {
            fabric: number,
            lane: load.lane,
            replaced: load.replaced,
            time,
            bytes: load.bytes,
            partial: load.is_partial,
            hidden: wanted.is_none(),
        });
    }

    /// Gives a new lane the known answers of its transforms. They are not its users' keys.
    fn test(&mut self, number: usize, lane: Lane) -> Result<(), String> {
        let before = self.counters;
        for direction in [Direction::Seal, Direction::Open] {
            let wants = |transform| Need::of(transform).is_some_and(|need| lane.meets(need));
            let (trial, mut batch) =
                Trial::of(direction, wants).ok_or("no known answers can be made")?;
            let jobs: Vec<u32> = (0..batch.jobs.len() as u32).collect();
            let left = self
                .by_fabric(number, &mut batch, jobs)
                .map_err(|error| error.to_string())?;
            if !left.is_empty() {
                return Err("it leaves known answers to the CPU".to_owned());
            }
            trial.check(&batch).map_err(|wrong| match wrong {
                Some(transform) => format!("it gives a wrong result for {transform}"),
                None => "it gives wrong results".to_owned(),
            })?;
        }
        self.counters = before;
        // The first packet of a new lane is compared.
        self.sealed = 0;
        let place = self.places.get_mut(number);
        let place = place.ok_or("there is no such fabric")?;
        if let State::Ready(ready) = &mut place.state {
            ready.key = None;
        }
        self.counters.wipes += 1;
        place.fabric.wipe().map_err(|error| error.to_string())
    }

    /// A load does not make its lane. The bitstream is not loaded again; after a partial stream the whole bitstream is, at
    /// once.
    fn refuse(&mut self, number: usize, why: String) -> Progress {
        let Some(place) = self.places.get_mut(number) else {
            return Progress::Idle;
        };
        let (lane, is_partial) = match std::mem::replace(&mut place.state, State::Empty) {
            State::Loading(load) => (load.lane, load.stream.is_partial()),
            State::Ready(ready) => (ready.lane, ready.is_partial),
            other => {
                place.state = other;
                return Progress::Idle;
            }
        };
        self.residency.emptied(number);
        self.counters.failed_loads += 1;
        let fabric = number;
        if is_partial {
            place.takes_partial = false;
            self.tell(Event::PartialRefused { fabric, lane, why });
            return Progress::After(Duration::ZERO);
        }
        for offer in self.offers.iter_mut().filter(|offer| offer.lane == lane) {
            offer.is_refused = true;
        }
        self.tell(Event::Refused { fabric, lane, why });
        Progress::Idle
    }
}

impl Progress {
    /// Returns what is to be done sooner.
    fn max_of(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(other)) => Self::After(one.min(other)),
            (Self::Idle, other) => other,
            (one, Self::Idle) => one,
        }
    }
}
