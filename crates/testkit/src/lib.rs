//! Development only: vectors, network simulator, reference model, oracles.
pub mod model;
pub mod net;
pub mod vectors;
