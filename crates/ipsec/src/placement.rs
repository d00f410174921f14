//! Which of a worker's engines an SA's packets go to, and how that changes while they flow.
//!
//! Engines work side by side and give nothing back in each other's order. So a worker that meets an SA that was moved
//! lets all its engines finish what they have, before the SA's next packet goes to the new one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a packed value that name the engine; the moment is above.
const ENGINE_BITS: u32 = 8;

/// Where an SA's packets go. At first, and for ever where nobody moves it, to the first engine.
#[derive(Debug, Default)]
pub struct Placement(AtomicU64);

/// What a [`Placement`] says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// An index into the worker's engines.
    pub engine: u8,
    /// When it was moved there, as [`Placements`] counts; 0 if it never was.
    pub moment: u64,
}

impl Placement {
    /// For an SA that no packet has gone to yet, and that no worker has seen: that is no move.
    pub fn begin(&self, engine: u8) {
        self.0.store(engine.into(), Ordering::Release);
    }

    pub fn get(&self) -> Placed {
        let packed = self.0.load(Ordering::Acquire);
        Placed {
            engine: packed as u8,
            moment: packed >> ENGINE_BITS,
        }
    }
}

/// Moves SAs, and counts how often.
#[derive(Debug, Default)]
pub struct Placements {
    moves: AtomicU64,
}

impl Placements {
    /// From now on the SA's packets go to this engine. One control thread does this.
    pub fn place(&self, placement: &Placement, engine: u8) {
        let moment = self.moves.load(Ordering::Relaxed) + 1;
        let packed = moment << ENGINE_BITS | u64::from(engine);
        placement.0.store(packed, Ordering::Release);
        self.moves.store(moment, Ordering::Release);
    }

    /// Whether any SA has been moved so far.
    pub fn any(&self) -> bool {
        self.moves.load(Ordering::Acquire) > 0
    }
}

/// The last moves that a worker has taken note of, in one direction.
#[derive(Debug, Default)]
pub struct Settled(u64);

impl Settled {
    /// Whether the SA may go to its engine at once. If not, let every engine finish what it has, then [`Self::settle`].
    pub fn knows(&self, placed: Placed) -> bool {
        placed.moment <= self.0
    }

    /// No packet is in any engine, so that all moves up to this one count.
    pub fn settle(&mut self, placed: Placed) {
        self.0 = self.0.max(placed.moment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_known_once_it_is_settled() {
        let placements = Placements::default();
        let (first, second) = (Placement::default(), Placement::default());
        let mut settled = Settled::default();
        assert!(!placements.any());
        assert!(settled.knows(first.get()));

        placements.place(&first, 1);
        placements.place(&second, 2);
        assert!(placements.any());
        assert_eq!(first.get().engine, 1);
        assert_eq!(second.get().engine, 2);
        assert!(!settled.knows(first.get()));
        // What was moved before is settled with it.
        settled.settle(second.get());
        assert!(settled.knows(first.get()) && settled.knows(second.get()));

        let new = Placement::default();
        new.begin(1);
        assert_eq!(new.get().engine, 1);
        assert!(Settled::default().knows(new.get()), "it was moved nowhere");

        placements.place(&first, 0);
        assert!(!settled.knows(first.get()));
        // An older move takes nothing back.
        settled.settle(first.get());
        settled.settle(second.get());
        assert!(settled.knows(first.get()));
    }
}
