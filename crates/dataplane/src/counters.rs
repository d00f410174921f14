//! Counts what a worker's I/O did. The walks through IPsec have their own counters.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident,)*) => {
        /// I/O counters of one worker, on cache lines that no other worker writes.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct IoCounters { $($(#[doc = $help])+ pub $name: AtomicU64,)* }

        impl IoCounters {
            /// The name of every counter, and its meaning.
            pub const TABLE: &[(&str, &str)] = &[$((stringify!($name), concat!($($help),+)),)*];

            /// Returns every counter with its name, which has hyphens as all counters' names have.
            pub fn iter(&self) -> impl Iterator<Item = (String, u64)> {
                let fields = [$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*];
                fields.into_iter().map(|(name, count)| (name.replace('_', "-"), count))
            }
        }
    };
}

counters! {
    /// Reads from the TUN device: packets and super-segments.
    tun_reads,
    /// Writes to the TUN device: packets and super-segments.
    tun_writes,
    /// Packets in writes that the TUN device refused.
    tun_write_errors,
    /// Reads with an invalid virtio header.
    tun_malformed,
    /// Received datagrams. Coalesced datagrams count as one.
    receives,
    /// Received datagrams that were truncated or had no usable source.
    receive_truncated,
    /// Errors of the sockets themselves.
    receive_errors,
    /// NAT keepalives (RFC 3948 §2.3).
    keepalives,
    /// Datagrams too short for ESP and IKE.
    runts,
    /// IKE messages passed to the control thread.
    ike_messages,
    /// IKE messages dropped because the control thread was behind.
    ike_dropped,
    /// Packets sent.
    sent,
    /// Packets sent past the kernel's stack. They are part of `sent`.
    link_sent,
    /// ESP packets received past the kernel's stack.
    link_received,
    /// Frames of an AF_XDP link that arrived faster than the worker took them.
    link_dropped,
    /// Packets with DF that exceeded the MTU.
    send_too_big,
    /// Packets that no socket would send.
    send_errors,
    /// Packets that a bypass policy let pass and that could not be sent.
    bypass_errors,
    /// ICMP errors created for inner senders.
    icmp_sent,
    /// ICMP errors suppressed by the rate limit.
    icmp_suppressed,
    /// ICMP errors from the network that match none of our packets.
    icmp_disbelieved,
    /// Times that a path turned out to be narrower than known.
    path_mtus_learned,
    /// TCP connections whose segment size was lowered.
    mss_clamped,
    /// Fragments held until the rest of their datagram arrived. The walk counts the whole datagram.
    fragments_held,
    /// Packets that came before the response which makes their SA, and waited for it.
    early_packets,
    /// Datagrams reassembled from fragments.
    reassembled,
    /// Datagrams whose fragments did not all arrive in time.
    reassembly_timeouts,
    /// Packets cut into fragments for a narrow path.
    fragmented,
    /// Events dropped because the control thread was far behind.
    events_dropped,
    /// Engines that returned nothing for a second, or took no more batches.
    engines_lost,
}

/// The time for which a worker was busy and not waiting for packets. It has its own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WorkerLoad {
    busy_ns: AtomicU64,
}

impl WorkerLoad {
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed)
    }

    /// Adds busy time in nanoseconds. Only the worker calls this, so no other write can be lost.
    pub fn count(&self, busy_ns: u64) {
        let sum = self.busy_ns().saturating_add(busy_ns);
        self.busy_ns.store(sum, Ordering::Relaxed);
    }
}

pub fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
