//! Hands sealed packets to the sockets.

use std::net::SocketAddr;

use crate::class::{Class, ClassQueue};
use esplanade_crypto::Protocol;
use esplanade_ipsec::outbound::{SealedBatch, Train, TrainLimits};
use esplanade_ipsec::wire::ah;

use super::{DataPlane, JOBS_MAX};
use crate::counters::add;
use crate::datagram::{Outgoing, PAYLOAD_MAX, SEGMENTS_MAX, SEND_MAX};
use crate::packet_io::{PacketIo, SendSocket};

/// Limits of a train: one train is one UDP GSO send.
const TRAINS: TrainLimits = TrainLimits {
    segments: SEGMENTS_MAX,
    bytes: PAYLOAD_MAX,
};

/// Most sends of higher classes that go before a waiting send of a lower class.
const PATIENCE: u64 = 64;

/// Items that collect for one `sendmmsg`.
struct SendBatch<'a> {
    items: [Outgoing<'a>; SEND_MAX],
    queued: usize,
    send_socket: Option<SendSocket>,
}

impl Default for SendBatch<'_> {
    fn default() -> Self {
        Self {
            items: [Outgoing::NONE; SEND_MAX],
            queued: 0,
            send_socket: None,
        }
    }
}

impl<I: PacketIo> DataPlane<I> {
    /// Sends a batch, higher classes first. Most batches have one class and need no queue.
    pub(crate) fn send(&mut self, sealed: &SealedBatch) {
        let mut sending = SendBatch::default();
        if sealed.is_of_one_class() {
            for train in sealed.trains(TRAINS) {
                self.queue(&mut sending, &train);
            }
        } else {
            let mut queue = ClassQueue::new(JOBS_MAX, PATIENCE);
            for train in sealed.trains(TRAINS) {
                let class = Class::new(train.class).unwrap_or_default();
                // The queue has room for every packet of a batch.
                let _ = queue.push(class, train);
            }
            while let Some((_, train)) = queue.pop() {
                self.queue(&mut sending, &train);
            }
        }
        self.flush(&mut sending);
    }

    /// Sends packets that were sealed outside the walks.
    pub fn send_trains<'a>(&mut self, trains: impl Iterator<Item = Train<'a>>) {
        let mut sending = SendBatch::default();
        for train in trains {
            self.queue(&mut sending, &train);
        }
        self.flush(&mut sending);
    }

    fn queue<'a>(&mut self, sending: &mut SendBatch<'a>, train: &Train<'a>) {
        let protocol = match train.protocol {
            ah::PROTOCOL => Protocol::Ah,
            _ => Protocol::Esp,
        };
        let Some(send_socket) = self.io.send_socket(&train.meta.path(), protocol) else {
            add(&self.counters.send_errors, train.segments as u64);
            return;
        };
        if sending.send_socket != Some(send_socket) {
            self.flush(sending);
            sending.send_socket = Some(send_socket);
        }
        self.remember(train);
        let item = self.outgoing(train);
        if matches!(send_socket, SendSocket::NatT(_)) {
            return self.queue_item(sending, item);
        }
        if let (SendSocket::Ah(_), Some(payload)) = (send_socket, train.frame) {
            return self.queue_item(sending, Outgoing { payload, ..item });
        }
        // Raw sockets have no segmentation.
        for payload in train.esp.chunks(train.segment_len.max(1)) {
            let segment = 0;
            let item = Outgoing {
                payload,
                segment,
                ..item
            };
            self.queue_item(sending, item);
        }
    }

    fn queue_item<'a>(&mut self, sending: &mut SendBatch<'a>, item: Outgoing<'a>) {
        if sending.queued == SEND_MAX {
            self.flush(sending);
        }
        sending.items[sending.queued] = item;
        sending.queued += 1;
    }

    fn flush(&mut self, sending: &mut SendBatch<'_>) {
        let items = &sending.items[..sending.queued];
        sending.queued = 0;
        let Some(send_socket) = sending.send_socket else {
            return;
        };
        let report = self.io.send(send_socket, items);
        add(&self.counters.sent, report.sent);
        add(&self.counters.send_too_big, report.too_big);
        add(&self.counters.send_errors, report.failed);
    }

    /// Records a sent packet, so that an ICMP error about it is believed.
    fn remember(&self, train: &Train<'_>) {
        if !train.meta.dont_fragment {
            return;
        }
        let last = train.segment_len * train.segments.saturating_sub(1);
        let at = match train.protocol {
            ah::PROTOCOL => last + 4,
            _ => last,
        };
        let word = |at: usize| Some(u32::from_be_bytes(*train.esp.get(at..)?.first_chunk()?));
        if let (Some(spi), Some(sequence_low)) = (word(at), word(at + 4)) {
            let remote = train.meta.path().remote.ip();
            self.paths.sent(remote, spi, sequence_low, self.now_ms);
        }
    }

    fn outgoing<'a>(&self, train: &Train<'a>) -> Outgoing<'a> {
        let path = train.meta.path();
        // Packets for a narrow path were refused earlier. An exception are packets that their
        // sender may send at this length.
        let path_mtu = self.paths.mtu(path.remote.ip(), self.now_ms);
        let len = train.meta.header_len() + train.segment_len;
        let fits = path_mtu.is_none_or(|mtu| len <= mtu.into());
        let local = path.local.ip();
        Outgoing {
            // A raw socket's address has no port: IPv6 refuses every port except zero.
            remote: SocketAddr::new(
                path.remote.ip(),
                if path.udp_encap {
                    path.remote.port()
                } else {
                    0
                },
            ),
            local: (!local.is_unspecified()).then_some(local),
            tos: train.meta.tos,
            ttl: train.meta.ttl,
            df: train.meta.dont_fragment && fits,
            payload: train.esp,
            segment: if train.segments > 1 {
                train.segment_len as u16
            } else {
                0
            },
        }
    }
}
