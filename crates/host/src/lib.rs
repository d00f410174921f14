//! The host that Esplanade runs on: packet I/O ([`io`]), links, routes and packet filters ([`net`]), and the rights and
//! processes of the gateway. It knows no SA and no configuration.

#![deny(unsafe_code)]

pub mod confine;
pub mod helper_process;
pub mod io;
pub mod net;
pub mod notify;
pub mod output;
pub mod private;
pub mod rate;
