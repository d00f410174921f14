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
    /// Of those, how many past the kernel's stack.
    link_sent,
    /// ESP packets received past the kernel's stack.
    link_received,
    /// Frames of such a link that came faster than the worker took them.
    link_dropped,
    /// Packets larger than the path takes, with DF.
    send_too_big,
    /// Packets that no socket would send.
    send_errors,
    /// Packets that a Bypass policy let out and that could not be sent.
    bypass_errors,
    /// ICMP errors made for inner senders.
    icmp_sent,
    /// ICMP errors not made because of their rate.
    icmp_suppressed,
    /// ICMP errors from outside that fit none of our packets.
    icmp_disbelieved,
    /// Times that a path turned out to be narrower than known.
    path_mtus_learned,
    /// TCP connections whose segment size was lowered.
    mss_clamped,
    /// Fragments that wait, or waited, for the rest of their datagram. The walk counts the whole.
    fragments_held,
    /// Datagrams put together from fragments.
    reassembled,
    /// Datagrams whose fragments did not all come.
    reassembly_timeouts,
    /// Packets cut into fragments for a narrow path.
    fragmented,
    /// Events dropped because the control thread was far behind.
    events_dropped,
    /// Engines that gave nothing back for a second, or took nothing any more.
    engines_lost,
}

/// How long a worker was not waiting for packets, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Load {
    busy_ns: AtomicU64,
}

impl Load {
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed)
    }

    /// Only the worker itself does.
    pub(super) fn count(&self, busy_ns: u64) {
        let sum = self.busy_ns().saturating_add(busy_ns);
        self.busy_ns.store(sum, Ordering::Relaxed);
    }
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
