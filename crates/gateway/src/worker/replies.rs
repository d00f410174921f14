//! ICMP errors to inner senders, through the TUN.

use std::io::IoSlice;

use esplanade_ipsec::wire::IpView;
use esplanade_ipsec::wire::icmp::{self, Problem};

use super::counters::{IoCounters, add};
use super::processing::Rate;
use crate::io::tun::Tun;
use crate::io::virtio::VnetHeader;

/// Errors at once and a second in the long run (RFC 1812 §4.3.2.8, RFC 4443 §2.4 f).
const BURST: u64 = 50;
const PER_SECOND: u64 = 100;

#[derive(Debug)]
pub(super) struct Replies {
    rate: Rate,
}

impl Replies {
    pub fn new() -> Self {
        Self {
            rate: Rate::new(BURST, PER_SECOND),
        }
    }

    /// Tells the sender of `packet`, from which `view` was parsed, if it may be told.
    pub fn send(
        &mut self,
        tun: &Tun,
        io: &IoCounters,
        (packet, view): (&[u8], &IpView),
        problem: Problem,
        now_ms: u64,
    ) {
        if !self.rate.take(now_ms) {
            add(&io.icmp_suppressed, 1);
            return;
        }
        let Some(message) = icmp::error_about(packet, view, problem) else {
            return;
        };
        let header = VnetHeader::default().encode();
        match tun.write(&[IoSlice::new(&header), IoSlice::new(&message)]) {
            Ok(()) => add(&io.icmp_sent, 1),
            Err(error) => tracing::trace!("cannot write an ICMP error to the TUN: {error}"),
        }
    }
}
