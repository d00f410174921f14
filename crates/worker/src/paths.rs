//! Learns how long packets to each peer may be: from the kernel, and from the network where its
//! ICMP errors are believable.

use std::net::IpAddr;

use esplanade_dataplane::counters::{IoCounters, add};
use esplanade_dataplane::rate::RateLimiter;
use esplanade_ipsec::pmtu::{Claim, Disbelief, Evidence};

use super::WorkerSockets;
use esplanade_host::io::icmp::{IcmpBuffer, route_mtu};

/// Most ICMP errors that are read at a time, so that a flood of them does not delay packets.
const ERRORS_PER_TURN: usize = 16;

#[derive(Debug)]
pub(super) struct PathErrors {
    message: IcmpBuffer,
    /// Limits the route look-ups, because each takes four system calls.
    look_ups: RateLimiter,
}

impl PathErrors {
    pub fn new() -> Self {
        Self {
            message: IcmpBuffer::default(),
            look_ups: RateLimiter::new(20, 20),
        }
    }

    /// Reads the waiting ICMP errors of the socket `index`.
    pub fn receive_errors(
        &mut self,
        sockets: &WorkerSockets,
        index: usize,
        io: &IoCounters,
        now_ms: u64,
    ) {
        let Some(socket) = sockets.icmp.get(index) else {
            return;
        };
        for _ in 0..ERRORS_PER_TURN {
            let reported = match socket.receive(&mut self.message) {
                Ok(Some(reported)) => reported,
                Ok(None) => return,
                Err(error) => {
                    tracing::trace!("cannot receive ICMP: {error}");
                    return;
                }
            };
            let ports = [sockets.ike_port, sockets.nat_t_port];
            if let Some(reported) = &reported {
                sockets.unreachable.note(reported, &ports, now_ms);
            }
            let claim = reported.and_then(|reported| Claim::read(&reported, &ports));
            // The socket also gets errors about packets of other programs.
            let Some(claim) = claim else { continue };
            let learned = sockets
                .paths
                .learn(claim.remote, claim.mtu, claim.evidence, now_ms);
            match learned {
                Ok(mtu) => {
                    add(&io.path_mtus_learned, 1);
                    tracing::debug!(remote = %claim.remote, mtu, "the path is narrower");
                }
                Err(Disbelief::NothingNew) => {}
                Err(disbelief) => {
                    add(&io.icmp_disbelieved, 1);
                    tracing::trace!(remote = %claim.remote, ?disbelief, "an ICMP error is not believed");
                }
            }
        }
    }

    /// Handles a packet to `remote` that the kernel refused as too long for the interface.
    pub fn refused(
        &mut self,
        sockets: &WorkerSockets,
        remote: IpAddr,
        io: &IoCounters,
        now_ms: u64,
    ) {
        if !self.look_ups.take(now_ms) {
            return;
        }
        match route_mtu(remote, sockets.mark) {
            Ok(mtu) => {
                if sockets
                    .paths
                    .learn(remote, mtu, Evidence::Local, now_ms)
                    .is_ok()
                {
                    add(&io.path_mtus_learned, 1);
                }
            }
            Err(error) => tracing::trace!("no MTU of the route to {remote}: {error}"),
        }
    }
}
