//! Packet I/O: TUN, UDP and raw ESP sockets.

#![allow(unsafe_code)]

pub mod ns;
pub mod watch;
