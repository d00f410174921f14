//! What a data plane does to packets beside IPsec.

/// What is done to packets beside IPsec.
#[derive(Debug, Clone, Copy)]
pub struct Processing {
    /// Lower the segment size that TCP connections agree on to what fits packets of this length (the TUN's MTU), or
    /// through the path where that is narrower.
    pub mss_clamp: Option<u16>,
    /// Put fragments together where a policy wants to see ports (RFC 4301 §7.3). Otherwise they are judged without.
    pub reassemble: bool,
    /// Tell the senders of packets that a policy discards (RFC 4301 §6).
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
