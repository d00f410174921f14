//! Path MTUs toward peers: learned from ICMP that fits our own packets, aged (RFC 1191, RFC 8201, RFC 4301 §8.2).
//!
//! Shared by all workers. Anybody can send us an ICMP error, so one counts only if it quotes an ESP or AH header that
//! was sent to that address a short while ago: SPI and, roughly, sequence number.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::wire::icmp::Reported;
use crate::wire::ip::{IPV6_HEADER_LEN, PROTOCOL_UDP};
use crate::wire::udp_encap::UDP_HEADER_LEN;
use crate::wire::{IpVersion, ah, be16, be32, esp};

/// No path is believed to be narrower. 576 is what every IPv4 host takes; a router that reports less (68 is legal)
/// could make every packet ten.
pub const V4_MIN: u16 = 576;
/// RFC 8200 §5.
pub const V6_MIN: u16 = 1280;

/// After this long a larger packet is tried again (RFC 1191 §6.3, RFC 8201 §4).
pub const AGE_MS: u64 = 10 * 60 * 1000;

/// Destinations whose MTU a gateway remembers; more are not learned until some have aged.
const PATHS_MAX: usize = 4096;
/// Slots for SAs sent through lately.
const SENT_SLOTS: usize = 8192;
/// How far behind the newest sequence number seen a quoted one may be.
const SEQUENCE_SLACK: u32 = 1 << 20;

/// Where a claim about a path comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Our own kernel, about its own interface.
    Local,
    /// An ICMP error that quotes the SPI and the low sequence number of one of our packets.
    Quoted { spi: u32, sequence_low: u32 },
    /// An ICMP error that quotes too little to tell (RFC 792 demands eight bytes, which is a UDP header).
    AddressOnly,
}

/// What an ICMP error says about one of our outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub remote: IpAddr,
    pub mtu: u32,
    pub evidence: Evidence,
}

/// MTUs of old networks, for routers that do not say theirs (RFC 1191 §7.1).
const PLATEAUS: [u16; 9] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 576, 508];

impl Claim {
    /// None if the error is about something else than the size of an ESP packet, an AH packet, or a datagram from
    /// our port `udp_port`.
    pub fn read(reported: &Reported<'_>, udp_port: u16) -> Option<Self> {
        let about = reported.about;
        let mut mtu = reported.mtu?;
        let (remote, protocol, payload) = match about.first()? >> 4 {
            4 => {
                // Without DF nobody had to complain.
                if about.get(6)? & 0x40 == 0 {
                    return None;
                }
                if mtu == 0 {
                    let len = be16(about, 2)?;
                    mtu = PLATEAUS.into_iter().find(|plateau| *plateau < len)?.into();
                }
                let remote: [u8; 4] = *about.get(16..)?.first_chunk()?;
                let header_len = usize::from(about.first()? & 0x0f) * 4;
                (remote.into(), *about.get(9)?, about.get(header_len..)?)
            }
            _ => {
                let remote: [u8; 16] = *about.get(24..)?.first_chunk()?;
                (remote.into(), *about.get(6)?, about.get(IPV6_HEADER_LEN..)?)
            }
        };
        let quoted = |at: usize| match (be32(payload, at), be32(payload, at + 4)) {
            (Some(spi), Some(sequence_low)) => Evidence::Quoted { spi, sequence_low },
            _ => Evidence::AddressOnly,
        };
        let evidence = match protocol {
            esp::PROTOCOL => quoted(0),
            ah::PROTOCOL => quoted(4),
            PROTOCOL_UDP if be16(payload, 0)? == udp_port => quoted(UDP_HEADER_LEN),
            _ => return None,
        };
        Some(Self {
            remote,
            mtu,
            evidence,
        })
    }
}

/// Why a claim was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disbelief {
    /// Nothing of ours was sent there with that SPI and sequence number lately.
    NotOurs,
    /// The path is known to be as narrow already.
    NothingNew,
    /// Too many paths are known.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    mtu: u16,
    learned_ms: u64,
}

type Paths = HashMap<IpAddr, Path>;

/// The path MTUs of a gateway.
#[derive(Debug)]
pub struct PathMtus {
    paths: ArcSwap<Paths>,
    writing: Mutex<()>,
    /// Spares the common case, in which no path is narrow, the look-up.
    any: AtomicBool,
    /// Upper half: a tag of SPI and address; lower half: the newest low sequence number sent.
    sent: Box<[AtomicU64]>,
    /// Keyed: peers choose their SPIs.
    hasher: RandomState,
    paths_max: usize,
}

impl Default for PathMtus {
    fn default() -> Self {
        Self::new(PATHS_MAX)
    }
}

impl PathMtus {
    /// Remembers `paths_max` paths at most. Learning one costs as much as there are.
    pub fn new(paths_max: usize) -> Self {
        Self {
            paths_max,
            paths: ArcSwap::default(),
            writing: Mutex::default(),
            any: AtomicBool::new(false),
            sent: (0..SENT_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Remembers that a packet with this SPI and low sequence number left. Once per run of packets will do: with
    /// the last one's number.
    pub fn sent(&self, remote: IpAddr, spi: u32, sequence_low: u32) {
        if let Some((slot, tag)) = self.slot(remote, spi) {
            slot.store(tag << 32 | u64::from(sequence_low), Ordering::Relaxed);
        }
    }

    fn slot(&self, remote: IpAddr, spi: u32) -> Option<(&AtomicU64, u64)> {
        let hash = self.hasher.hash_one((remote, spi));
        let slot = self.sent.get(hash as usize % SENT_SLOTS)?;
        // Never zero, so that an empty slot matches nothing.
        Some((slot, hash >> 32 | 1))
    }

    fn is_ours(&self, remote: IpAddr, spi: u32, sequence_low: u32) -> bool {
        let Some((slot, tag)) = self.slot(remote, spi) else {
            return false;
        };
        let value = slot.load(Ordering::Relaxed);
        let behind = (value as u32).wrapping_sub(sequence_low);
        // Another worker's run may have overtaken the one that was remembered last.
        value >> 32 == tag && (behind <= SEQUENCE_SLACK || behind.wrapping_neg() <= SEQUENCE_SLACK)
    }

    /// Takes the claim that packets to `remote` may be `mtu` bytes long, outer IP header included. Gives what is
    /// believed from now on.
    pub fn learn(
        &self,
        remote: IpAddr,
        mtu: u32,
        evidence: Evidence,
        now_ms: u64,
    ) -> Result<u16, Disbelief> {
        let min = match IpVersion::of(remote) {
            IpVersion::V4 => V4_MIN,
            IpVersion::V6 => V6_MIN,
        };
        let min = match evidence {
            Evidence::Local => min,
            Evidence::Quoted { spi, sequence_low } if self.is_ours(remote, spi, sequence_low) => {
                min
            }
            Evidence::Quoted { .. } => return Err(Disbelief::NotOurs),
            // A guess at our address and port must not do more harm than a common tunnel would.
            Evidence::AddressOnly => V6_MIN,
        };
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).max(min);
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let paths = self.paths.load();
        let known = paths.get(&remote).filter(|path| path.is_fresh(now_ms));
        // Never up by a message (RFC 1191 §6.3); and the same claim again does not keep it from ageing, as
        // larger packets are not sent meanwhile.
        if known.is_some_and(|path| path.mtu <= mtu) {
            return Err(Disbelief::NothingNew);
        }
        // Anybody can make up guesses, for any number of peers: they neither fill the table nor cost copies of it.
        let paths_max = match evidence {
            Evidence::AddressOnly => self.paths_max / 2,
            Evidence::Local | Evidence::Quoted { .. } => self.paths_max,
        };
        let fresh = || paths.iter().filter(|(_, path)| path.is_fresh(now_ms));
        if known.is_none() && fresh().count() >= paths_max {
            return Err(Disbelief::Full);
        }
        let mut next: Paths = fresh().map(|(remote, path)| (*remote, *path)).collect();
        let learned_ms = now_ms;
        next.insert(remote, Path { mtu, learned_ms });
        self.paths.store(next.into());
        self.any.store(true, Ordering::Release);
        Ok(mtu)
    }

    /// What is known about the path to `remote`; none if nothing narrower than the interface is.
    pub fn mtu(&self, remote: IpAddr, now_ms: u64) -> Option<u16> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let paths = self.paths.load();
        let path = paths.get(&remote)?;
        path.is_fresh(now_ms).then_some(path.mtu)
    }
}

impl Path {
    fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.learned_ms.saturating_add(AGE_MS)
    }
}
