//! The configuration controller: loads lanes as SAs want them, and carries their packets.
//!
//! A packet whose lane is not there is carried by the CPU, at once and with the same bytes. So a load stops no packet, and
//! no batch is kept back: packets leave in the order in which they came.

mod carry;
mod load;
mod offers;
mod stream;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use esplanade_crypto::{KeyContext, Transform};

use crate::algorithm::{Lane, Need};
use crate::fabric::Fabric;
use crate::frames::Configuration;
use crate::lane::{Frames, PacketFrame};
use crate::library::Library;
use crate::residency::Residency;

use load::Load;
pub use load::Progress;
use offers::Offer;
pub use offers::lanes_of;

/// The cost of a load until one was measured.
const PRICE: Duration = Duration::from_millis(20);
/// Words of frames that go to a lane in one exchange.
const FRAMES_WORDS: usize = 1 << 16;

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that lanes have carried.
    pub fabric_packets: u64,
    /// Packets that the CPU has carried.
    pub cpu_packets: u64,
    /// Packets of these whose lane was loading.
    pub while_loading: u64,
    /// Sealed packets that the CPU has sealed again, to compare.
    pub checked: u64,
    /// Loads that have made a lane.
    pub loads: u64,
    /// Loads of these that wrote only what differs from the lane before.
    pub partial_loads: u64,
    /// Bytes that these loads have written.
    pub load_bytes: u64,
    /// Loads of these that ended before a packet wanted the lane.
    pub hidden_loads: u64,
    /// Loads that took the place of a lane.
    pub evictions: u64,
    /// Loads that have made no lane, or a wrong one.
    pub failed_loads: u64,
    /// The time of all loads.
    pub load_time: Duration,
    /// The part of this time in which packets wanted the lane.
    pub wanted_time: Duration,
    /// The time that the merge has taken of the controller's thread.
    pub merge_time: Duration,
    /// Times that a lane has forgotten its key, before a load or after its SA.
    pub wipes: u64,
}

/// A fabric with its lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricReport {
    pub part: String,
    pub lane: Option<Lane>,
    pub loading: Option<Lane>,
    pub failed: Option<String>,
}

/// A fabric with what was loaded onto it.
#[derive(Debug)]
struct Place<'a, F> {
    fabric: F,
    state: State<'a>,
    /// The fabric takes partial streams, and none has gone wrong.
    takes_partial: bool,
}

#[derive(Debug)]
enum State<'a> {
    Empty,
    Loading(Box<Load<'a>>),
    Ready(Ready),
    Failed(String),
}

#[derive(Debug)]
struct Ready {
    lane: Lane,
    /// The fabric's configuration, where a partial stream can go onto it.
    configuration: Option<Configuration>,
    /// The lane came by a partial stream.
    is_partial: bool,
    /// The key that the lane has. Dead when the SA is gone, and no batch has the key.
    key: Option<Weak<KeyContext>>,
}

/// The controller of some fabrics.
#[derive(Debug)]
pub struct Controller<'a, F> {
    library: &'a Library,
    offers: Vec<Offer>,
    places: Vec<Place<'a, F>>,
    residency: Residency,
    /// Nanoseconds of the CPU for a thousand bytes.
    costs: BTreeMap<Need, u64>,
    counters: Counters,
    /// Packets that lanes have sealed.
    sealed: u64,
    frames: Frames,
    answers: Frames,
    packet: PacketFrame,
    /// Events until somebody fetches them.
    events: Vec<Event>,
}

/// Something that the administrator may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A lane is there.
    Loaded {
        fabric: usize,
        lane: Lane,
        /// The lane whose place it took.
        replaced: Option<Lane>,
        time: Duration,
        /// The bytes that were written.
        bytes: usize,
        /// Only what differs from the lane before was written.
        partial: bool,
        /// No packet wanted it meanwhile.
        hidden: bool,
    },
    /// A bitstream does not make the lane that it should.
    Refused {
        fabric: usize,
        lane: Lane,
        why: String,
    },
    /// A partial stream does not make the lane that it should. The whole bitstream is loaded, from now on.
    PartialRefused {
        fabric: usize,
        lane: Lane,
        why: String,
    },
    /// A fabric is not used any more.
    Failed { fabric: usize, why: String },
}

/// Events that wait to be fetched, at most. Loads are rare; later ones are dropped.
const EVENTS_MAX: usize = 64;

impl<'a, F: Fabric> Controller<'a, F> {
    /// Fabrics without a lane. All must be of one part.
    pub fn new(library: &'a Library, fabrics: Vec<F>) -> Self {
        let part = fabrics.first().map(|fabric| fabric.part().to_owned());
        let offers = offers::of(library, part.as_deref().unwrap_or_default());
        let places = fabrics.into_iter().map(|fabric| Place {
            takes_partial: fabric.takes_partial(),
            fabric,
            state: State::Empty,
        });
        let places: Vec<_> = places.collect();
        Self {
            library,
            residency: Residency::new(places.len(), PRICE.as_nanos() as u64),
            costs: carry::measure_costs(&offers),
            offers,
            places,
            counters: Counters::default(),
            sealed: 0,
            frames: Frames::with_capacity(FRAMES_WORDS),
            answers: Frames::with_capacity(FRAMES_WORDS),
            packet: PacketFrame::default(),
            events: Vec::new(),
        }
    }

    /// Has an SA's lane loaded, from the next [`Controller::step`] on, as soon as that is worth it. The earlier it is said,
    /// the more of the load is hidden.
    pub fn request(&mut self, transform: Transform) {
        if let Some(need) = Need::of(transform) {
            self.residency.request(need);
        }
    }

    /// An SA that was requested is gone.
    pub fn release(&mut self, transform: Transform) {
        if let Some(need) = Need::of(transform) {
            self.residency.release(need);
        }
    }

    /// Has all lanes forget their keys, at the end.
    pub fn wipe(&mut self) {
        for place in &mut self.places {
            if let State::Ready(ready) = &mut place.state {
                ready.key = None;
                self.counters.wipes += 1;
                // Nobody uses the fabric any more, whatever it answers.
                let _ = place.fabric.wipe();
            }
        }
    }

    /// Has lanes forget keys whose SAs are gone.
    pub fn sweep(&mut self) {
        for number in 0..self.places.len() {
            let Some(place) = self.places.get_mut(number) else {
                continue;
            };
            let State::Ready(ready) = &mut place.state else {
                continue;
            };
            if ready.key.as_ref().is_none_or(|key| key.strong_count() > 0) {
                continue;
            }
            ready.key = None;
            self.counters.wipes += 1;
            if let Err(error) = place.fabric.wipe() {
                self.fail(number, error.to_string());
            }
        }
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Reports each fabric with its lane.
    pub fn report(&self) -> Vec<FabricReport> {
        let reports = self.places.iter().map(|place| {
            let (mut lane, mut loading, mut failed) = (None, None, None);
            match &place.state {
                State::Empty => {}
                State::Loading(load) => loading = Some(load.lane()),
                State::Ready(ready) => lane = Some(ready.lane),
                State::Failed(why) => failed = Some(why.clone()),
            }
            FabricReport {
                part: place.fabric.part().to_owned(),
                lane,
                loading,
                failed,
            }
        });
        reports.collect()
    }

    /// Nanoseconds of the CPU for a thousand bytes of each need, as measured.
    pub fn costs(&self) -> &BTreeMap<Need, u64> {
        &self.costs
    }

    /// Takes what has happened since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        }
    }

    /// Takes a fabric out of use.
    fn fail(&mut self, number: usize, why: String) {
        if let Some(place) = self.places.get_mut(number) {
            place.state = State::Failed(why.clone());
            self.residency.failed(number);
            self.tell(Event::Failed {
                fabric: number,
                why,
            });
        }
    }

    fn note_wanted(&mut self, need: Need, now: Instant) -> bool {
        let mut loading = false;
        for place in &mut self.places {
            if let State::Loading(load) = &mut place.state
                && load.lane().meets(need)
            {
                load.wanted_since(now);
                loading = true;
            }
        }
        loading
    }
}

/// A key, as a lane remembers it.
fn is_key(known: Option<&Weak<KeyContext>>, key: &Arc<KeyContext>) -> bool {
    known.is_some_and(|known| {
        std::ptr::eq(known.as_ptr(), Arc::as_ptr(key)) && known.strong_count() > 0
    })
}
