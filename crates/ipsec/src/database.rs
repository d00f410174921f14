//! What the control plane publishes and the workers read.

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
    /// With an empty SPD, which discards everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// For SPIs that others chose, see [`Sad::plain`].
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

    /// Replaces the SPD; bursts that have begun end with the former one.
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
