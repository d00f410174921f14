//! Data workers: plain threads that move packets.
