//! How long packets to each peer may be: what the kernel and, if it is believable, the network say.

use std::net::IpAddr;

use esplanade_ipsec::pmtu::{Claim, Disbelief, Evidence};

use super::WorkerSockets;
use super::counters::{IoCounters, add};
use super::rate::Rate;
use crate::io::icmp::{Message, route_mtu};

/// ICMP errors read in one turn: a flood of them does not keep packets waiting.
const ERRORS_PER_TURN: usize = 16;

#[derive(Debug)]
pub(super) struct PathErrors {
    message: Message,
    /// Of looking routes up, which takes four system calls.
    look_ups: Rate,
}

impl PathErrors {
    pub fn new() -> Self {
        Self {
            message: Message::default(),
            look_ups: Rate::new(20, 20),
        }
    }

    /// Reads the ICMP errors that have come to the socket `index`.
    pub fn hear(&mut self, sockets: &WorkerSockets, index: usize, io: &IoCounters, now_ms: u64) {
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
            let claim = reported.and_then(|reported| Claim::read(&reported, sockets.nat_t_port));
            // Errors about other programs' packets come here too.
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

    /// The kernel refused a packet to `remote` as too long for the interface.
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
