//! Packet I/O: TUN, UDP and raw ESP sockets, and the splitting and coalescing of super-segments.
//!
//! The only module of the gateway with unsafe code: system calls whose buffers the safe types here own.

#![allow(unsafe_code)]

pub mod ah;
pub mod checksum;
pub mod gro;
pub mod gso;
pub mod icmp;
pub mod netns;
pub mod ns;
pub mod raw;
pub mod signals;
pub mod slots;
pub mod steer;
pub mod sys;
pub mod trap;
pub mod tun;
pub mod udp;
pub mod virtio;
pub mod watch;
pub mod xdp;

mod message;
mod received;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trials;
