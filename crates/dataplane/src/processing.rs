//! Options of a data plane besides IPsec.

/// The processing of packets by a data plane besides IPsec.
#[derive(Debug, Clone, Copy)]
pub struct Processing {
    /// Lower the segment size of TCP connections to what fits into packets of this many bytes (the
    /// TUN device's MTU), or through a narrower path.
    pub mss_clamp: Option<u16>,
    /// Reassemble fragments where a policy selects by port (RFC 4301 §7.3). Otherwise they are
    /// judged without ports.
    pub reassemble: bool,
    /// Send ICMP errors for packets that a policy discards (RFC 4301 §6).
    pub report_discards: bool,
}

impl Default for Processing {
    fn default() -> Self {
        Self {
            mss_clamp: None,
            reassemble: true,
            report_discards: false,
        }
    }
}
