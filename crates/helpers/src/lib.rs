//! Processes that do for the gateway what it gives up itself: they run scripts, fetch from the network, and load PKCS#11
//! modules. Each is `esplanade` with a hidden command, and starts before the gateway gives up rights.

#![forbid(unsafe_code)]

pub mod fetch;
pub mod tokens;
pub mod updown;
