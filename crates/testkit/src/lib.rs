//! Tools for development only: test vectors, network simulator, reference model, clock, and guarded
//! memory. The product does not use them.
pub mod clock;
pub mod freed;
pub mod guard;
pub mod model;
pub mod net;
pub mod vectors;
