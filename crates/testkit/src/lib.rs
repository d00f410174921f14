//! Development only: vectors, network simulator, reference model, clock.
pub mod clock;
pub mod model;
pub mod net;
pub mod vectors;
