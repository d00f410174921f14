//! The Esplanade IPsec gateway: configuration, packet I/O, workers, control socket and command
//! line. The protocols themselves are in `esplanade_ike` and `esplanade_ipsec`.

#![deny(unsafe_code)]

pub mod cli;
pub mod daemon;
mod engine_failure;
pub mod failure;
pub mod join;
pub mod log;
pub mod worker;

pub use esplanade_config as config;
pub use esplanade_dataplane as dataplane;
pub use esplanade_demo as demo;
pub use esplanade_engines::{ace, gpu, latency, pool, share};
pub use esplanade_explain as explain;
pub use esplanade_helpers::{fetch, tokens, updown};
pub use esplanade_host::{confine, helper_process, io, net, notify, output, private, rate};
pub use esplanade_status as status;
pub use esplanade_vici as vici;
