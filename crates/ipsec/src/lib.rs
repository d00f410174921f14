//! The IPsec packet path: SPD, SAD, anti-replay, ESP and AH (RFC 4301, RFC 4302, RFC 4303).
//!
//! The crate has no sockets, no clock and no threads of its own. All workers share a [`Database`]. Each worker owns
//! an [`outbound::Outbound`], an [`inbound::Inbound`] and an engine for each of them.
//!
//! Outbound, once per burst (`max` bounds the length of a GSO send, in bytes):
//!
//! ```ignore
//! let spd = database.spd();                                // one snapshot per burst
//! outbound.set_now_ms(now_ms);
//! for (packet, segments) in burst {                        // one TUN read each
//!     let Ok(view) = IpView::parse(packet) else { outbound.drop_malformed(packet.len()); continue };
//!     let Outcome::Protect(sa) = outbound.decide(&spd, (packet, &view), &segments) else { continue };
//!     let mut slots = match outbound.reserve(&sa, &view, &segments) {
//!         Err(ReserveRefused::BatchFull) => { /* submit, poll and send, then reserve again */ }
//!         Err(ReserveRefused::Dropped(_)) => continue,
//!         Ok(slots) => slots,
//!     };
//!     while let Some(slot) = slots.next_slot() { /* write one whole inner packet */ }
//! }
//! outbound.submit(&mut engine)?;                           // Full: poll, then try again
//! while let Some(sealed) = outbound.poll(&mut engine, &spd) {
//!     for train in sealed.trains(max) { /* send train.esp to train.meta.path().remote, or train.frame */ }
//!     outbound.recycle(sealed);
//! }                                                        // again while packets are waiting(): nested SAs
//! ```
//!
//! If the back end can receive packets into the arena with room around them, [`outbound::Outbound::push_burst`]
//! replaces the loop and copies nothing.
//!
//! Inbound, once per burst:
//!
//! ```ignore
//! let buffer = inbound.receive_buffer();                   // receive into buffer.bytes
//! inbound.commit_received(bytes_used);
//! inbound.push_burst(database.sad(), &facts, &packets);    // ESP by udp_encap::classify; drops are counted
//! inbound.push_held(database.sad());                       // nested SAs that found no batch
//! inbound.submit(&mut engine)?;
//! while let Some(opened) = inbound.poll(&mut engine) {
//!     for packet in opened.delivered() { /* write opened.packet(packet) to the TUN */ }
//!     inbound.push_nested(database.sad(), &mut opened);    // submit again while packets are waiting()
//!     inbound.recycle(opened);
//! }
//! for event in inbound.drain_events() { /* to the control plane */ }
//! ```
#![forbid(unsafe_code)]

mod atomic;
pub mod audit;
mod circulation;
pub mod database;
pub mod drop_reason;
pub mod event;
pub mod fragment;
pub mod icmp_errors;
pub mod inbound;
pub mod iv;
mod layout;
pub mod lifetime;
mod numbers;
mod options;
pub mod outbound;
pub mod pace;
mod path;
pub mod placement;
pub mod pmtu;
pub mod replay;
pub mod sa;
pub mod sad;
pub mod selector;
pub mod sequence;
pub mod spd;
pub mod tunnel;
pub mod wire;

pub use database::Database;
pub use drop_reason::{DropCounters, DropReason, WalkCounters};
pub use event::Event;
