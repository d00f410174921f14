//! Development only: vectors, network simulator, oracles.
pub mod net;
pub mod vectors;
