//! Development only: vectors, network simulator, oracles.
