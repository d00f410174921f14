//! The tables that the control plane publishes and the workers read.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::placement::Placements;
use crate::sad::Sad;
use crate::spd::Spd;

#[derive(Debug, Default)]
pub struct Database {
    spd: ArcSwap<Spd>,
    sad: Sad,
    placements: Placements,
}

impl Database {
    /// A database with an empty SPD, which discards everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// A database for SPIs that others chose, see [`Sad::plain`].
    pub fn with_plain_spis() -> Self {
        Self {
            sad: Sad::plain(),
            ..Self::default()
        }
    }

    /// The present SPD. Load it once per burst.
    pub fn spd(&self) -> Arc<Spd> {
        self.spd.load_full()
    }

    /// Replaces the SPD. Bursts that have begun finish with the former SPD.
    pub fn publish_spd(&self, spd: Spd) {
        self.spd.store(Arc::new(spd));
    }

    pub fn sad(&self) -> &Sad {
        &self.sad
    }

    /// Moves SAs between the engines of the workers.
    pub fn placements(&self) -> &Placements {
        &self.placements
    }
}
