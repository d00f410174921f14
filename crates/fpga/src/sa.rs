//! SAs as the core keeps them, and the words of their rows.

use std::net::IpAddr;

use crate::device_key::Suite;
use esplanade_ipsec::tunnel::{DfPolicy, EcnPolicy, OUTER_TTL};

use crate::regs::{inbound_sa, outbound_sa};

/// The UDP ports of encapsulation (RFC 3948).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    pub local: u16,
    pub remote: u16,
}

/// An outbound SA's row, without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundSaRow {
    pub spi: u32,
    pub esn: bool,
    /// The outer addresses. Both are of one IP version.
    pub local: IpAddr,
    pub remote: IpAddr,
    pub udp: Option<Udp>,
    /// Length in bytes of the longest outer packet; `None` stands for no limit.
    pub path_mtu: Option<u16>,
    pub df: DfPolicy,
    pub ecn: EcnPolicy,
    /// The outer DSCP; `None` copies the inner DSCP.
    pub dscp: Option<u8>,
    pub ttl: u8,
    pub copy_flow_label: bool,
    /// The IV is this value XOR the sequence number. The value is random and used with this key only.
    pub iv_base: u64,
    /// The last sequence number that was used; 0 for a new SA.
    pub sequence: u64,
    /// The last sequence number that may be used, as a limit of the SA's lifetime. Without this limit the core still
    /// ends at the SA's 32-bit or 64-bit maximum (RFC 4303 §2.2).
    pub sequence_max: u64,
    /// The core raises an event at this sequence number.
    pub sequence_soft: u64,
    pub bytes_max: u64,
}

impl OutboundSaRow {
    /// Makes a row that copies what can be copied from the inner header. It has no limits.
    pub fn new(spi: u32, esn: bool, local: IpAddr, remote: IpAddr) -> Self {
        Self {
            spi,
            esn,
            local,
            remote,
            udp: None,
            path_mtu: None,
            df: DfPolicy::Copy,
            ecn: EcnPolicy::Copy,
            dscp: None,
            ttl: OUTER_TTL,
            copy_flow_label: false,
            iv_base: 0,
            sequence: 0,
            sequence_max: u64::MAX,
            sequence_soft: u64::MAX,
            bytes_max: u64::MAX,
        }
    }

    pub(crate) fn flags(&self, suite: Suite) -> u32 {
        use outbound_sa as word;
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let df = match self.df {
            DfPolicy::Copy => 0,
            DfPolicy::Set => 1,
            DfPolicy::Clear => 2,
        };
        word::FLAGS_VALID
            | (suite as u32) << word::FLAGS_SUITE_SHIFT
            | flag(self.udp.is_some(), word::FLAGS_UDP)
            | flag(self.local.is_ipv6(), word::FLAGS_IPV6)
            | flag(self.esn, word::FLAGS_ESN)
            | df << word::FLAGS_DF_SHIFT
            | flag(self.ecn == EcnPolicy::Clear, word::FLAGS_ECN_CLEAR)
            | flag(self.dscp.is_some(), word::FLAGS_DSCP_FIXED)
            | u32::from(self.dscp.unwrap_or(0) & 63) << word::FLAGS_DSCP_SHIFT
            | u32::from(self.ttl) << word::FLAGS_TTL_SHIFT
            | flag(self.copy_flow_label, word::FLAGS_FLOW_LABEL)
    }

    /// Returns offset and value of every word except the flags.
    pub(crate) fn words(&self) -> Vec<(u32, u32)> {
        use outbound_sa as word;
        let udp = self.udp.unwrap_or(Udp {
            local: 0,
            remote: 0,
        });
        let ports = u32::from(udp.local) << word::PORTS_LOCAL_SHIFT
            | u32::from(udp.remote) << word::PORTS_REMOTE_SHIFT;
        let mut words = vec![
            (word::SPI, self.spi),
            (word::PATH_MTU, self.path_mtu.map_or(0, u32::from)),
            (word::PORTS, ports),
        ];
        for (first, address) in [(word::LOCAL, self.local), (word::REMOTE, self.remote)] {
            let bits = match address {
                IpAddr::V4(v4) => v4.to_bits().into(),
                IpAddr::V6(v6) => v6.to_bits(),
            };
            words.extend((0..4).map(|i| (first + 4 * i, (bits >> (32 * i)) as u32)));
        }
        for (low, value) in [
            (word::IV_BASE_LOW, self.iv_base),
            (word::SEQUENCE_MAX_LOW, self.sequence_max),
            (word::SEQUENCE_SOFT_LOW, self.sequence_soft),
            (word::BYTES_MAX_LOW, self.bytes_max),
            (word::SEQUENCE_LOW, self.sequence),
            (word::BYTES_LOW, 0),
        ] {
            words.extend(halves(low, value));
        }
        words
    }
}

/// An inbound SA's row, without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundSaRow {
    pub spi: u32,
    pub esn: bool,
    pub dscp_from_outer: bool,
    /// True if replayed packets are refused. With ESN they always are.
    pub replay_check: bool,
    /// The group of policies that inner packets must match.
    pub group: u16,
    pub bytes_max: u64,
    /// The highest sequence number seen; 0 for a new SA.
    pub sequence: u64,
}

impl InboundSaRow {
    pub fn new(spi: u32, esn: bool, group: u16) -> Self {
        Self {
            spi,
            esn,
            dscp_from_outer: false,
            replay_check: true,
            group,
            bytes_max: u64::MAX,
            sequence: 0,
        }
    }

    pub(crate) fn flags(&self, suite: Suite) -> u32 {
        use inbound_sa as word;
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let unchecked = !self.replay_check && !self.esn;
        word::FLAGS_VALID
            | (suite as u32) << word::FLAGS_SUITE_SHIFT
            | flag(self.esn, word::FLAGS_ESN)
            | flag(self.dscp_from_outer, word::FLAGS_DSCP_FROM_OUTER)
            | flag(unchecked, word::FLAGS_NO_REPLAY_CHECK)
            | u32::from(self.group) << word::FLAGS_GROUP_SHIFT & word::FLAGS_GROUP_MASK
    }

    pub(crate) fn words(&self) -> Vec<(u32, u32)> {
        use inbound_sa as word;
        let mut words = vec![(word::SPI, self.spi)];
        words.extend(halves(word::BYTES_MAX_LOW, self.bytes_max));
        words.extend(halves(word::SEQUENCE_LOW, self.sequence));
        words
    }
}

/// Splits a 64-bit value into two words, the low one first.
fn halves(low: u32, value: u64) -> [(u32, u32); 2] {
    [(low, value as u32), (low + 4, (value >> 32) as u32)]
}
