//! The interface of a device that protects packets in front of the data plane. The device has its
//! own SPD, SAD and sequence numbers, and the worker only drives it.

use std::sync::Arc;

use esplanade_ipsec::Event;
use esplanade_ipsec::sa::OutboundSa;
use esplanade_ipsec::tunnel::OuterFacts;

/// An ESP packet that the device built.
#[derive(Debug)]
pub struct SealedByDevice {
    pub sa: Arc<OutboundSa>,
    pub tos: u8,
    pub dont_fragment: bool,
    /// Length in bytes of the outer headers before the ESP packet in `frame`.
    pub header_len: usize,
    pub frame: Vec<u8>,
}

/// A device that takes packets, protects them and returns them in order.
pub trait Accelerator {
    /// Most bytes of a packet that the device takes.
    const FRAME_MAX: usize;

    /// Runs the jobs that other threads asked for. SAs are added and removed only here and in
    /// [`Self::do_due`].
    fn serve(&mut self);

    /// Tells the device the time in milliseconds. Returns true if [`Self::do_due`] has work.
    fn keep_time(&mut self, now_ms: u64) -> bool;

    fn do_due(&mut self);

    /// Updates the device's tables to the current SPD and SAD.
    fn update_tables(&mut self);

    /// Returns false after the device has failed. It never works again, and its SAs carry no
    /// packets.
    fn works(&self) -> bool;

    /// Tells whether an inbound SA is in the device. The answer stays true after the device failed.
    fn opens(&self, spi: u32) -> bool;

    /// Gives the device a clear packet. `counted` means that the outbound walk already counted it.
    /// Returns false if the device does not take the packet now or at all.
    fn seal(&mut self, packet: &[u8], counted: bool) -> bool;

    /// Gives the device a datagram of one of its SAs. Returns false if the device does not take it
    /// now or at all.
    fn open(&mut self, esp: &[u8], facts: &OuterFacts) -> bool;

    /// Lets the device process the packets that it took.
    fn work(&mut self);

    /// Tells whether the device has packets to process, or results that nobody fetched.
    fn is_busy(&self) -> bool;

    /// Returns the packets that the device sealed since the last call.
    fn take_sealed(&mut self) -> Vec<SealedByDevice>;

    /// Returns the packets that the device left to software since the last call. The device has no SA for them, or they
    /// are too long for the path.
    fn take_returned(&mut self) -> Vec<Vec<u8>>;

    /// Returns the packets that the device opened since the last call.
    fn take_opened(&mut self) -> Vec<Vec<u8>>;

    fn take_events(&mut self) -> Vec<Event>;
}
