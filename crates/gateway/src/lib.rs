//! The Esplanade IPsec gateway: configuration, packet I/O, workers, control socket and command
//! line. The protocols themselves are in `esplanade_ike` and `esplanade_ipsec`.

#![deny(unsafe_code)]

pub mod ace;
pub mod cli;
pub mod daemon;
pub mod engine_port;
pub mod explain;
pub mod failure;
pub mod gpu;
pub mod join;
pub mod latency;
pub mod log;
pub mod pool;
pub mod share;
pub mod status;
pub mod worker;

pub use esplanade_config as config;
pub use esplanade_dataplane as dataplane;
pub use esplanade_demo as demo;
pub use esplanade_helpers::{fetch, tokens, updown};
pub use esplanade_host::{confine, helper_process, io, net, notify, output, private, rate};
pub use esplanade_vici as vici;
