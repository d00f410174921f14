//! Development only: vectors, network simulator, oracles.
pub mod vectors;
