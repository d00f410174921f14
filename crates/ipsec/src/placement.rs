//! Assigns an SA's packets to one of a worker's engines, and changes that while packets flow.
//!
//! Engines work side by side, and their batches come back in no common order. A worker that meets a moved SA
//! therefore lets all of its engines finish, before the SA's next packet goes to the new engine.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of bits of a packed value that name the engine. The moment is in the bits above.
const ENGINE_BITS: u32 = 8;

/// The engine of an SA's packets. It is the first engine until somebody moves the SA.
#[derive(Debug, Default)]
pub struct Placement(AtomicU64);

/// The content of a [`Placement`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// An index into the worker's engines.
    pub engine: u8,
    /// The number of the move that brought the SA there, as [`Placements`] counts; 0 if it never moved.
    pub moment: u64,
}

impl Placement {
    /// Sets the engine of a new SA that no packet has used and no worker has seen. This does not count as a move.
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

/// Moves SAs and counts the moves.
#[derive(Debug, Default)]
pub struct Placements {
    moves: AtomicU64,
}

impl Placements {
    /// Sends the SA's packets to this engine from now on. Only the control thread calls this.
    pub fn place(&self, placement: &Placement, engine: u8) {
        let moment = self.moves.load(Ordering::Relaxed) + 1;
        let packed = moment << ENGINE_BITS | u64::from(engine);
        placement.0.store(packed, Ordering::Release);
        self.moves.store(moment, Ordering::Release);
    }

    /// Lets `new` take over the packets of `old` without overtaking those that engines have. Call it before the next
    /// packet goes through `new`. Only the control thread calls this.
    pub fn succeed(&self, new: &Placement, old: &Placement) {
        let (to, from) = (new.get(), old.get());
        if to.engine != from.engine {
            self.place(new, to.engine);
        } else if to.moment < from.moment {
            // A worker that has not met the old SA's move may have packets of it in another engine.
            new.0
                .store(old.0.load(Ordering::Relaxed), Ordering::Release);
        }
    }

    /// Returns true if any SA was ever moved.
    pub fn any(&self) -> bool {
        self.moves.load(Ordering::Acquire) > 0
    }
}

/// The last move that a worker has taken note of, in one direction.
#[derive(Debug, Default)]
pub struct Settled(u64);

impl Settled {
    /// Returns true if the SA's packets may go to its engine at once. If not, let every engine finish, call
    /// [`Self::settle`], and ask the SA again where it is: it may have moved meanwhile.
    pub fn knows(&self, placed: Placed) -> bool {
        placed.moment <= self.0
    }

    /// Notes all moves so far, so that many moves at once cost one pause. No packet may be in any engine. The places
    /// that SAs have after this call are the ones that later calls of [`Self::knows`] are about.
    pub fn settle(&mut self, placements: &Placements) {
        // Whoever sees the number of a move sees the place that it gave.
        self.0 = self.0.max(placements.moves.load(Ordering::Acquire));
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
        // All moves are settled together.
        settled.settle(&placements);
        assert!(settled.knows(first.get()) && settled.knows(second.get()));

        let new = Placement::default();
        new.begin(1);
        assert_eq!(new.get().engine, 1);
        assert!(Settled::default().knows(new.get()), "it was moved nowhere");

        placements.place(&first, 0);
        assert!(!settled.knows(first.get()));
        assert!(settled.knows(second.get()));
        settled.settle(&placements);
        assert!(settled.knows(first.get()));
    }

    #[test]
    fn a_successor_with_another_engine_counts_as_moved() {
        let placements = Placements::default();
        let (old, new) = (Placement::default(), Placement::default());
        let mut settled = Settled::default();
        placements.succeed(&new, &old);
        assert!(settled.knows(new.get()) && !placements.any());

        placements.place(&old, 1);
        settled.settle(&placements);
        placements.succeed(&new, &old);
        assert_eq!(new.get().engine, 0);
        assert!(
            !settled.knows(new.get()),
            "the engine has packets of the old one"
        );

        // With the same engine, only workers that do not know the old SA's move have to let engines finish.
        let next = Placement::default();
        next.begin(1);
        placements.succeed(&next, &old);
        assert_eq!(next.get(), old.get());
        assert!(!Settled::default().knows(next.get()) && settled.knows(next.get()));
    }
}
