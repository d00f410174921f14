//! The Esplanade IPsec gateway: the program, and what joins the crates that it is made of.
//!
//! | module | does |
//! |---|---|
//! | [`cli`] | the command line; `check` and `explain` of a configuration |
//! | [`daemon`] | the control thread: start, reload, events of IKE and of workers, the control socket's commands |
//! | [`join`] | turns what IKE has negotiated into entries of SPD and SAD, and says which engine has which SA |
//! | [`log`], [`failure`] | what the administrator reads |
//!
//! The crates below have the names of their modules here. None of them knows this crate.

#![deny(unsafe_code)]

pub mod cli;
pub mod daemon;
pub mod failure;
pub mod join;
pub mod log;

pub use esplanade_config as config;
pub use esplanade_dataplane as dataplane;
pub use esplanade_demo as demo;
pub use esplanade_engines as engines;
pub use esplanade_engines::{gpu, latency, pool, share};
pub use esplanade_explain as explain;
pub use esplanade_helpers::{fetch, tokens, updown};
pub use esplanade_host::{confine, helper_process, io, net, notify, output, private, rate};
pub use esplanade_status as status;
pub use esplanade_vici as vici;
pub use esplanade_worker as worker;
