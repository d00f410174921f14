//! The Esplanade IPsec gateway: configuration, packet I/O, workers, control socket and command
//! line. The protocols themselves are in `esplanade_ike` and `esplanade_ipsec`.

#![deny(unsafe_code)]

pub mod ace;
pub mod cli;
pub mod config;
pub mod confine;
pub mod daemon;
pub mod demo;
pub mod engine_port;
pub mod explain;
pub mod failure;
pub mod fetch;
pub mod gpu;
pub mod helper_process;
pub mod io;
pub mod join;
pub mod latency;
pub mod log;
pub mod net;
pub mod notify;
pub mod output;
pub mod pool;
pub mod private;
pub mod rate;
pub mod share;
pub mod status;
pub mod tokens;
pub mod updown;
pub mod vici;
pub mod worker;
