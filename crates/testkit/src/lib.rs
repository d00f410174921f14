//! Development only: vectors, network simulator, reference model, clock, guarded memory.
pub mod clock;
pub mod guard;
pub mod model;
pub mod net;
pub mod vectors;
