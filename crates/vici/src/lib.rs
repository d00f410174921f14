//! The vici protocol: strongSwan's control protocol, spoken by `swanctl` and by `esplanade status`.
//!
//! A packet is a 32-bit length, a type and, for most types, a name. Then comes a message, which is a [`Section`]: keys
//! with values, lists and further sections.

#![forbid(unsafe_code)]

pub mod client;
mod clients;
mod log_limit;
mod packet;
mod refused;
mod section;
mod serialize;
pub mod server;
mod typed;

pub use packet::{ControlPacket, PACKET_BYTES_MAX};
pub use section::{Section, Value};
pub use serialize::Unrepresentable;

/// A packet or message that is not well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the packet is empty")]
    Empty,
    #[error("the packet is cut off")]
    Truncated,
    #[error("the packet of {0} bytes is too long")]
    TooLong(usize),
    #[error("the packet type {0} is not known")]
    PacketType(u8),
    #[error("the element type {0} is not known here")]
    Element(u8),
    #[error("a name is not text")]
    Name,
    #[error("sections are nested too deep")]
    Depth,
    #[error("a section or list is not closed, or closed twice")]
    Nesting,
}
