//! Assigns an SA's packets to one of a worker's engines, and changes that while packets flow.
//!
//! Engines work side by side, and their batches come back in no common order. Packets of a flow come to another engine
//! when their SA is moved, or when another SA takes the flow over. Both make the SA *unmet*. Somebody then meets it,
//! which gives it a moment: of a moved SA the mover, of an SA that takes over the first worker that has a packet for
//! it. A worker that does not know the moment lets all other engines finish, before the packet goes to the SA's engine.
//!
//! So an SA waits until it is used, however many moves are settled meanwhile. A flow that was with another SA before is
//! then with this one, and whatever engines have of it came earlier.

use crate::atomic::{AtomicU64, Ordering};

/// Number of bits of a packed value that name the engine. The moment is in the bits above.
const ENGINE_BITS: u32 = 8;
/// The bit of a moment that no worker knows. The bits below it make each value another.
const UNMET: u64 = 1 << (63 - ENGINE_BITS);

/// The most engines of a worker.
pub const ENGINES_MAX: usize = 8;

/// The engine of an SA's packets. It is the first engine until somebody moves the SA.
#[derive(Debug, Default)]
pub struct Placement(AtomicU64);

/// The content of a [`Placement`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// An index into the worker's engines.
    pub engine: u8,
    /// A number that [`Placements`] counted; 0 if the SA never moved and took nothing over.
    pub moment: u64,
}

impl Placed {
    fn of(packed: u64) -> Self {
        Self {
            engine: packed as u8,
            moment: packed >> ENGINE_BITS,
        }
    }

    fn packed(self) -> u64 {
        self.moment << ENGINE_BITS | u64::from(self.engine)
    }

    /// Tells whether the SA's next packet gives it a moment.
    pub fn is_unmet(self) -> bool {
        self.moment & UNMET != 0
    }
}

impl Placement {
    /// Sets the engine of a new SA that no packet has used and no worker has seen. This does not count as a move.
    pub fn begin(&self, engine: u8) {
        self.0.store(engine.into(), Ordering::Release);
    }

    pub fn get(&self) -> Placed {
        Placed::of(self.0.load(Ordering::Acquire))
    }
}

/// Moves SAs, and counts what workers have to take note of.
#[derive(Debug, Default)]
pub struct Placements {
    moments: AtomicU64,
}

impl Placements {
    /// Sends the SA's packets to this engine from now on. Only the control thread calls this.
    pub fn place(&self, placement: &Placement, engine: u8) {
        if !self.unmeet(placement, engine).is_unmet() {
            self.meet(placement);
        }
    }

    /// Lets the SA take over packets of other SAs without overtaking those that engines have. Call it before the first
    /// of them goes through the SA. Only the control thread calls this.
    pub fn expect(&self, placement: &Placement) {
        self.unmeet(placement, placement.get().engine);
    }

    /// Returns what the placement was before.
    fn unmeet(&self, placement: &Placement, engine: u8) -> Placed {
        // A number of its own, so that whoever is late in `meet` does not take this value for a former one.
        let moment = UNMET | self.count();
        let unmet = Placed { engine, moment };
        Placed::of(placement.0.swap(unmet.packed(), Ordering::AcqRel))
    }

    /// Returns where the SA is, and gives it a moment if it is unmet. Call it with a packet of the SA at hand.
    pub fn meet(&self, placement: &Placement) -> Meeting {
        let mut placed = placement.get();
        // The moment comes from the counter after the unmet value was seen. So whoever sees the moment in the counter
        // sees the unmet value or what came after it, and no former place.
        while placed.is_unmet() {
            let moment = self.count();
            let met = Placed { moment, ..placed };
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            let (from, to) = (placed.packed(), met.packed());
            placed = match placement.0.compare_exchange(from, to, success, failure) {
                Ok(_) => met,
                Err(now) => Placed::of(now),
            };
        }
        Meeting {
            engine: placed.engine,
            until: self.moments.load(Ordering::Acquire),
        }
    }

    fn count(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns true if any SA was ever moved, or takes over from another.
    pub fn any(&self) -> bool {
        self.moments.load(Ordering::Acquire) > 0
    }
}

/// The place of an SA that a worker has met, and the moments before the worker lets engines finish.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    engine: u8,
    /// The last moment so far.
    until: u64,
}

impl Meeting {
    /// The engine of the SA. All others have to finish.
    pub fn engine(&self) -> u8 {
        self.engine
    }
}

/// The last moment that a worker has taken note of, in one direction: for each engine, as of when no packet was in any
/// other.
#[derive(Debug, Default)]
pub struct Settled([u64; ENGINES_MAX]);

impl Settled {
    /// Returns true if the SA's packets may go to its engine at once. If not, [meet](Placements::meet) the SA, let all
    /// engines but the SA's finish, and call [`Self::settle`]. Then ask the SA again where it is: it may have moved
    /// meanwhile.
    pub fn knows(&self, placed: Placed) -> bool {
        let settled = self.0.get(usize::from(placed.engine));
        // There is no such engine, so nothing can be known of it.
        settled.is_none_or(|settled| placed.moment <= *settled)
    }

    /// Notes all moments up to the meeting, so that many moves at once cost one pause. Since the meeting every engine
    /// but the SA's must have been empty.
    pub fn settle(&mut self, meeting: Meeting) {
        if let Some(settled) = self.0.get_mut(usize::from(meeting.engine)) {
            *settled = meeting.until.max(*settled);
        }
    }
}
