//! The way of a packet through the policies, and the reasons for it. `cli` explains a configuration, and `daemon` the
//! running gateway. [`analysis`] tells of all packets: which policies none reaches, and where their order matters.

#![forbid(unsafe_code)]

pub mod analysis;
pub mod explanation;
pub mod packet;
pub mod report;
pub mod running;
pub mod words;

pub use explanation::Explanation;
pub use packet::{PacketError, PacketSpec};
pub use report::{Hop, Report};
