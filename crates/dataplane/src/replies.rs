//! Sends ICMP errors to inner senders through the TUN device.

use std::io::IoSlice;

use esplanade_ipsec::wire::IpView;
use esplanade_ipsec::wire::icmp::{self, IcmpProblem};

use crate::counters::{IoCounters, add};
use crate::packet_io::{PacketIo, TunQueue};
use crate::rate::RateLimiter;
use crate::virtio::VnetHeader;

/// Most errors at once, and per second in the long run (RFC 1812 §4.3.2.8, RFC 4443 §2.4 (f)).
const BURST: u64 = 50;
const PER_SECOND: u64 = 100;

#[derive(Debug)]
pub(crate) struct IcmpReplies {
    rate: RateLimiter,
}

impl IcmpReplies {
    pub fn new() -> Self {
        Self {
            rate: RateLimiter::new(BURST, PER_SECOND),
        }
    }

    /// Sends an ICMP error about `packet` to its sender, through the port by which it arrived. The
    /// rate limit and the rules of ICMP may forbid it. The caller parsed `view` from `packet`.
    pub fn send(
        &mut self,
        (io, port): (&mut impl PacketIo, usize),
        counters: &IoCounters,
        (packet, view): (&[u8], &IpView),
        problem: IcmpProblem,
        now_ms: u64,
    ) {
        if !self.rate.take(now_ms) {
            add(&counters.icmp_suppressed, 1);
            return;
        }
        let Some(message) = icmp::error_about(packet, view, problem) else {
            return;
        };
        let header = VnetHeader::default().encode();
        let slices = [IoSlice::new(&header), IoSlice::new(&message)];
        match io.write(port, TunQueue::Own, &slices) {
            Ok(()) => add(&counters.icmp_sent, 1),
            Err(error) => tracing::trace!("cannot write an ICMP error to the TUN: {error}"),
        }
    }
}
