//! Security associations of the model: sequence numbers, limits, and the packets that they are for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::Reason;
use super::fragment::Firsts;
use super::policy::Selector;
use super::quote::IcmpErrors;

/// The algorithms of one SA with their keys. They process one packet at a time.
pub trait Cipher: std::fmt::Debug {
    fn protocol(&self) -> u8;
    fn iv_len(&self) -> usize;
    fn icv_len(&self) -> usize;
    /// Returns the number of which the length of ESP's payload and trailer must be a multiple.
    fn align(&self) -> usize;
    /// Returns the IV that the sender writes for this sequence number.
    fn iv(&self, sequence: u64) -> Vec<u8>;
    /// Encrypts `esp`, which begins with the SPI, and fills in its ICV.
    fn seal(&self, sequence: u64, esp: &mut [u8]);
    /// Decrypts `esp` if its ICV is right. Returns false otherwise.
    fn open(&self, sequence: u64, esp: &mut [u8]) -> bool;
    /// Returns the ICV over an IP packet with AH at offset `ah`. The mutable fields and the ICV are
    /// zero.
    fn authenticate(&self, sequence: u64, packet: &[u8], ah: usize) -> Vec<u8>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Tunnel,
    Transport,
}

/// The ends of an SA. The ports matter only with UDP encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub udp: bool,
}

/// Limits of an SA. A hard limit stops the SA, and a soft limit only asks for a new SA.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    pub packets_soft: Option<u64>,
    pub packets_hard: Option<u64>,
    pub bytes_soft: Option<u64>,
    pub bytes_hard: Option<u64>,
}

/// Properties that both directions of an SA share.
#[derive(Clone, Debug)]
pub struct SaOptions {
    pub spi: u32,
    pub esn: bool,
    pub mode: Mode,
    pub selectors: Vec<Selector>,
    /// A bit for each DSCP that this SA carries.
    pub dscps: u64,
    pub path: Path,
    /// Maps the inner DSCP to the outer DSCP. `None` copies the DSCP.
    pub outer_dscp: Option<fn(u8) -> u8>,
    /// The outer header is never ECN-capable.
    pub outer_ecn_clear: bool,
    /// For inbound packets, the outer DSCP replaces the inner DSCP.
    pub inner_dscp: bool,
    /// Don't Fragment of the outer header. `None` copies it.
    pub outer_df: Option<bool>,
    /// Inner packets are padded to this many bytes (traffic flow confidentiality).
    pub tfc: usize,
    pub limits: Limits,
    pub icmp_errors: IcmpErrors,
    /// Later fragments may pass after their first fragment.
    pub non_first_fragments: bool,
}

/// Packets and bytes that an SA has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub packets: u64,
    pub bytes: u64,
}

impl Limits {
    pub fn hard_reached(&self, usage: Usage) -> bool {
        self.packets_hard
            .is_some_and(|limit| usage.packets >= limit)
            || self.bytes_hard.is_some_and(|limit| usage.bytes >= limit)
    }

    pub fn soft_reached(&self, usage: Usage) -> bool {
        self.packets_soft
            .is_some_and(|limit| usage.packets >= limit)
            || self.bytes_soft.is_some_and(|limit| usage.bytes >= limit)
    }
}

#[derive(Debug)]
pub struct OutboundSa {
    pub options: SaOptions,
    pub cipher: Box<dyn Cipher>,
    /// Sequence number of the next packet.
    pub sequence: u64,
    pub usage: Usage,
    pub drops: BTreeMap<Reason, u64>,
}

impl OutboundSa {
    pub fn new(options: SaOptions, cipher: Box<dyn Cipher>, first: u64) -> Self {
        Self {
            options,
            cipher,
            sequence: first,
            usage: Usage::default(),
            drops: BTreeMap::new(),
        }
    }

    /// Takes the next sequence number. No number is used twice (RFC 4303 §3.3.3).
    pub fn take_number(&mut self) -> Result<u64, Reason> {
        let last = if self.options.esn {
            u64::MAX - 1
        } else {
            u64::from(u32::MAX)
        };
        if self.sequence > last {
            return Err("sequence-exhausted");
        }
        self.sequence += 1;
        Ok(self.sequence - 1)
    }
}

#[derive(Debug)]
pub struct InboundSa {
    pub options: SaOptions,
    pub cipher: Box<dyn Cipher>,
    pub replay: ReplaySet,
    pub usage: Usage,
    pub drops: BTreeMap<Reason, u64>,
    /// The UDP source of the newest packet.
    pub seen_from: SocketAddr,
    pub firsts: Firsts,
}

impl InboundSa {
    pub fn new(options: SaOptions, cipher: Box<dyn Cipher>, replay: ReplaySet) -> Self {
        Self {
            seen_from: options.path.remote,
            options,
            cipher,
            replay,
            firsts: Firsts::new(),
            usage: Usage::default(),
            drops: BTreeMap::new(),
        }
    }
}

/// The sequence numbers that were received (RFC 4303 §3.4.3).
#[derive(Clone, Debug)]
pub struct ReplaySet {
    pub top: u64,
    seen: BTreeSet<u64>,
    /// Size of the window. Zero accepts every number.
    window: u64,
    esn: bool,
}

impl ReplaySet {
    /// Creates a set in which `top` is the only number received so far.
    pub fn starting_at(top: u64, window: u64, esn: bool) -> Self {
        Self {
            top,
            seen: [top].into(),
            window,
            esn,
        }
    }

    /// Infers the whole sequence number from the low 32 bits in a packet (RFC 4303 appendix A). It is the lowest number
    /// at or after the bottom of the window.
    pub fn infer(&self, low: u32) -> Result<u64, Reason> {
        if !self.esn {
            return Ok(low.into());
        }
        let space = 1i128 << 32;
        let bottom = i128::from(self.top) - i128::from(self.window) + 1;
        let mut number = bottom.div_euclid(space) * space + i128::from(low);
        if number < bottom {
            number += space;
        }
        u64::try_from(number).map_err(|_| "before-window")
    }

    pub fn check(&self, number: u64) -> Result<(), Reason> {
        if self.window == 0 {
            return Ok(());
        }
        if number == 0 || u128::from(number) + u128::from(self.window) <= u128::from(self.top) {
            return Err("before-window");
        }
        if self.seen.contains(&number) {
            return Err("replayed");
        }
        Ok(())
    }

    /// Inserts a number. Returns true if it is the highest so far.
    pub fn insert(&mut self, number: u64) -> bool {
        let newest = number > self.top;
        self.top = self.top.max(number);
        self.seen.insert(number);
        newest
    }
}
