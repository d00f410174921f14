//! A device in front of the data plane that protects packets by itself: SPD, SAD and sequence numbers are its own.

use std::sync::Arc;

use esplanade_ipsec::Event;
use esplanade_ipsec::sa::OutboundSa;
use esplanade_ipsec::tunnel::OuterFacts;

/// An ESP packet that the device has made.
#[derive(Debug)]
pub(super) struct Made {
    pub sa: Arc<OutboundSa>,
    pub tos: u8,
    pub dont_fragment: bool,
    /// The ESP packet lies behind so many bytes of outer headers.
    pub header_len: usize,
    pub frame: Vec<u8>,
}

/// Packets go in on one side and come out when the device has worked on them, in order.
pub(super) trait Accelerator {
    /// Bytes of the longest packet that it takes.
    const FRAME_MAX: usize;

    /// Does what was asked of it from outside. SAs come and go here and in [`Self::do_due`] alone.
    fn serve(&mut self);

    /// Says what time it is. True if something is due.
    fn keep_time(&mut self, now_ms: u64) -> bool;

    fn do_due(&mut self);

    /// Its tables become what SPD and SAD say now.
    fn catch_up(&mut self);

    /// False for ever once it has failed. Its SAs carry nothing any more.
    fn works(&self) -> bool;

    /// Whether an inbound SA lives in the device, also when it does not work.
    fn opens(&self, spi: u32) -> bool;

    /// Gives it a clear packet; `counted` if the outbound walk has counted it. False if it takes none now, or never.
    fn seal(&mut self, packet: &[u8], counted: bool) -> bool;

    /// Gives it a datagram of one of its SAs. False if it takes none now, or never.
    fn open(&mut self, esp: &[u8], facts: &OuterFacts) -> bool;

    /// Has it work on what it was given.
    fn work(&mut self);

    /// Whether it has packets to work on, or has done some that nobody has taken.
    fn is_busy(&self) -> bool;

    /// What it has sealed since the last call.
    fn take_sealed(&mut self) -> Vec<Made>;

    /// What it has left to software since the last call: no SA of its own, or too long for the path.
    fn take_returned(&mut self) -> Vec<Vec<u8>>;

    /// What it has opened since the last call.
    fn take_opened(&mut self) -> Vec<Vec<u8>>;

    fn take_events(&mut self) -> Vec<Event>;
}
