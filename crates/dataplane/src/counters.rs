//! Counts what a worker's I/O did. The walks through IPsec have their own counters.

use std::sync::atomic::{AtomicU64, Ordering};

use esplanade_counters::Counter;

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident: $unit:ident,)*) => {
        /// I/O counters of one worker, on cache lines that no other worker writes.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct IoCounters { $($(#[doc = $help])+ pub $name: AtomicU64,)* }

        impl IoCounters {
            pub const COUNTERS: &[Counter] =
                esplanade_counters::table!($($(#[doc = $help])+ $name: $unit,)*);

            /// Returns the counts, in the order of [`Self::COUNTERS`].
            pub fn iter(&self) -> impl Iterator<Item = u64> {
                [$(self.$name.load(Ordering::Relaxed),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Reads from the TUN device: packets and super-segments.
    tun_reads: Reads,
    /// Writes to the TUN device: packets and super-segments.
    tun_writes: Writes,
    /// Packets in writes that the TUN device refused.
    tun_write_errors: Packets,
    /// Reads with an invalid virtio header.
    tun_malformed: Reads,
    /// Received datagrams. Coalesced datagrams count as one.
    receives: Datagrams,
    /// Received datagrams that were truncated or had no usable source.
    receive_truncated: Datagrams,
    /// Errors of the sockets themselves.
    receive_errors: Errors,
    /// NAT keepalives (RFC 3948 §2.3).
    keepalives: Datagrams,
    /// Datagrams too short for ESP and IKE.
    runts: Datagrams,
    /// IKE messages passed to the control thread.
    ike_messages: Messages,
    /// IKE messages dropped because the control thread was behind.
    ike_dropped: Messages,
    /// Packets sent.
    sent: Packets,
    /// Packets sent past the kernel's stack. They are part of `sent`.
    link_sent: Packets,
    /// ESP packets received past the kernel's stack.
    link_received: Packets,
    /// Frames of an AF_XDP link that arrived faster than the worker took them.
    link_dropped: Frames,
    /// Packets with DF that exceeded the MTU.
    send_too_big: Packets,
    /// Packets that no socket would send.
    send_errors: Packets,
    /// Packets that a bypass policy let pass and that could not be sent.
    bypass_errors: Packets,
    /// ICMP errors created for inner senders.
    icmp_sent: Errors,
    /// ICMP errors suppressed by the rate limit.
    icmp_suppressed: Errors,
    /// ICMP errors from the network that match none of our packets.
    icmp_disbelieved: Errors,
    /// Times that a path turned out to be narrower than known.
    path_mtus_learned: Paths,
    /// TCP connections whose segment size was lowered.
    mss_clamped: Connections,
    /// Fragments held until the rest of their datagram arrived. The walk counts the whole datagram.
    fragments_held: Fragments,
    /// Packets that came before the response which makes their SA, and waited for it.
    early_packets: Packets,
    /// Datagrams reassembled from fragments.
    reassembled: Datagrams,
    /// Datagrams whose fragments did not all arrive in time.
    reassembly_timeouts: Datagrams,
    /// Packets cut into fragments for a narrow path.
    fragmented: Packets,
    /// Events dropped because the control thread was far behind.
    events_dropped: Events,
    /// Engines that returned nothing for a second, or took no more batches.
    engines_lost: Engines,
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
