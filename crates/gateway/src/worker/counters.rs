//! What a worker's I/O has done. The walks through IPsec have counters of their own.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// One worker's I/O counters, on cache lines that no other worker writes.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct IoCounters { $($(#[$meta])* pub $name: AtomicU64,)* }

        impl IoCounters {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Reads from the TUN: packets and super-segments.
    tun_reads,
    /// Writes to the TUN: packets and super-segments.
    tun_writes,
    /// Packets in writes that the TUN refused.
    tun_write_errors,
    /// Reads whose virtio header made no sense.
    tun_malformed,
    /// Datagrams received, coalesced ones counted as one.
    receives,
    /// Received datagrams that were cut off or had no usable source.
    receive_truncated,
    /// Errors of the sockets themselves.
    receive_errors,
    /// NAT keepalives (RFC 3948 §2.3).
    keepalives,
    /// Datagrams too short for ESP and IKE.
    runts,
    /// IKE messages handed to the control thread.
    ike_messages,
    /// IKE messages dropped because the control thread was behind.
    ike_dropped,
    /// Packets sent.
    sent,
    /// Packets larger than the path takes, with DF.
    send_too_big,
    /// Packets that no socket would send.
    send_errors,
    /// Packets that a Bypass policy let out and that could not be sent.
    bypass_errors,
    /// Events dropped because the control thread was far behind.
    events_dropped,
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
