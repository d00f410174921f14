//! Packet I/O: TUN, UDP and raw sockets, AF_XDP, and the splitting and coalescing of
//! super-segments. It decides nothing about packets.
//!
//! This is the only module of the gateway with unsafe code. The code makes system calls, whose
//! buffers belong to the safe types here.

#![allow(unsafe_code)]

pub mod ah;
pub mod icmp;
pub mod netns;
pub mod ns;
pub mod packet_socket;
pub mod raw;
pub mod signals;
pub mod steer;
pub mod sys;
pub mod trap;
pub mod tun;
pub mod udp;
pub mod xdp;

mod message;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trials;
