//! Which way a packet takes through the policies and why: against a configuration (`cli`) and in the running gateway
//! (`daemon`).

pub mod packet;
pub mod report;
pub mod running;
pub mod words;

pub use packet::PacketSpec;
pub use report::{Hop, Report};
