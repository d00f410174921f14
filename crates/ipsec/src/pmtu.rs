//! Path MTUs towards peers. They are learned from ICMP errors that fit our own packets, and they age (RFC 1191,
//! RFC 8201, RFC 4301 §8.2). Probes find others (RFC 8899), on paths that drop long packets without an error. The lower
//! one of the two counts.
//!
//! All workers share them. Anybody can send us an ICMP error. Therefore an error counts only if it quotes an ESP or AH
//! header that was sent to that address in the last seconds. The quote must have the header's SPI and a sequence number
//! of that time. Wrong quotes are guesses, and only a few guesses per second are accepted for a path.

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

/// The smallest believed IPv4 path MTU. Every IPv4 host takes 576 bytes. A router that reports less (68 is legal)
/// could turn every packet into ten.
pub const V4_MIN: u16 = 576;
/// The smallest believed IPv6 path MTU (RFC 8200 §5).
pub const V6_MIN: u16 = 1280;

/// Returns the smallest MTU that is believed of a path to `remote`.
fn smallest(remote: IpAddr) -> u16 {
    match IpVersion::of(remote) {
        IpVersion::V4 => V4_MIN,
        IpVersion::V6 => V6_MIN,
    }
}

/// After this time a larger packet is tried again (RFC 1191 §6.3, RFC 8201 §4).
pub const AGE_MS: u64 = 10 * 60 * 1000;
/// The same time for an error that quoted nothing that only we and the hosts on the path know.
pub const GUESS_AGE_MS: u64 = 60 * 1000;

/// The most destinations whose MTU a gateway remembers. More are learned only after some have aged.
const PATHS_MAX: usize = 4096;
/// Number of slots for SAs that were used lately.
const SENT_SLOTS: usize = 8192;
/// Length of a period. An error counts for at least one period after its packet, and for at most two.
const PERIOD_MS: u64 = 4096;
/// The distance by which a quoted sequence number may be ahead of the last remembered one. A worker may have
/// overtaken another.
const AHEAD_MAX: u32 = 1024;
/// The most packets that are sent in one run. Only the last one is remembered.
const RUN_MAX: u32 = 64;
/// The most wrong quotes for a path in a second. After that, errors about the path are ignored until the next second.
/// At this rate, guessing the 32 bits of an SPI takes years.
const GUESSES_MAX: u32 = 32;
/// Number of counters of wrong quotes. Peers may share one by chance.
const GUESS_SLOTS: usize = 1024;

const LOW_HALF: u64 = u32::MAX as u64;

/// The source of a claim about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Our own kernel reported it about its own interface.
    Local,
    /// An ICMP error that quotes the SPI and the low half of the sequence number of one of our packets.
    Quoted { spi: u32, sequence_low: u32 },
    /// An ICMP error that quotes too little for a check. RFC 792 demands eight bytes, which is only a UDP header.
    AddressOnly,
}

/// The content of an ICMP error about one of our outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub remote: IpAddr,
    pub mtu: u32,
    pub evidence: Evidence,
}

/// MTUs of old networks, for routers that do not report theirs (RFC 1191 §7.1).
const PLATEAUS: [u16; 9] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 576, 508];

impl Claim {
    /// Reads a claim. Returns `None` unless the error is about the size of an ESP packet, of an AH packet, or of a
    /// datagram from one of our ports `udp_ports`.
    pub fn read(reported: &Reported<'_>, udp_ports: &[u16]) -> Option<Self> {
        let about = reported.about;
        let mut mtu = reported.mtu?;
        let (remote, protocol, payload) = match about.first()? >> 4 {
            4 => {
                // Without DF, no router had a reason to report.
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
            PROTOCOL_UDP if udp_ports.contains(&be16(payload, 0)?) => quoted(UDP_HEADER_LEN),
            _ => return None,
        };
        Some(Self {
            remote,
            mtu,
            evidence,
        })
    }
}

/// The reason why a claim was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disbelief {
    /// Nothing was sent there lately with that SPI and sequence number.
    NotOurs,
    /// Too many errors about that path were [`Disbelief::NotOurs`] in this second.
    Guessing,
    /// The path is already known to be as narrow.
    NothingNew,
    /// Too many paths are known.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct LearnedMtu {
    mtu: u16,
    until_ms: u64,
}

/// The packets that were sent through one SA lately.
#[derive(Debug, Default)]
struct SentRecord {
    /// The upper half has a tag of SPI and address. The lower half has the low half of the last sequence number sent.
    newest: AtomicU64,
    /// An entry for even periods and an entry for odd periods. The upper half has the low bits of the period's number.
    /// The lower half has the low half of a sequence number just before the period's first packet.
    begins: [AtomicU64; 2],
}

/// The MTUs of a path, by their source. At least one of them is there.
#[derive(Clone, Copy, Debug, Default)]
struct PathEntry {
    told: Option<LearnedMtu>,
    probed: Option<LearnedMtu>,
}

type Paths = HashMap<IpAddr, PathEntry>;

/// The source of a path MTU that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuSource {
    /// An ICMP error, or our own kernel.
    Told,
    /// Probes, while no error said so.
    Probed,
}

/// The path MTUs of a gateway.
#[derive(Debug)]
pub struct PathMtus {
    paths: ArcSwap<Paths>,
    writing: Mutex<()>,
    /// Saves the lookup in the common case that no path is narrow.
    any: AtomicBool,
    sent: Box<[SentRecord]>,
    /// Upper half: the low bits of a second. Lower half: the number of wrong quotes in it.
    guesses: Box<[AtomicU64]>,
    /// The hash is keyed, because peers choose their SPIs.
    hasher: RandomState,
    paths_max: usize,
}

impl Default for PathMtus {
    fn default() -> Self {
        Self::new(PATHS_MAX)
    }
}

impl PathMtus {
    /// Remembers at most `paths_max` paths. Learning a path copies all known ones.
    pub fn new(paths_max: usize) -> Self {
        Self {
            paths_max,
            paths: ArcSwap::default(),
            writing: Mutex::default(),
            any: AtomicBool::new(false),
            sent: (0..SENT_SLOTS).map(|_| SentRecord::default()).collect(),
            guesses: (0..GUESS_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Notes that a packet with this SPI and low sequence number was sent. One call with the last number is enough
    /// for a run of up to 64 packets.
    pub fn sent(&self, remote: IpAddr, spi: u32, sequence_low: u32, now_ms: u64) {
        let Some((slot, tag)) = self.slot(remote, spi) else {
            return;
        };
        let period = now_ms / PERIOD_MS;
        let former = slot.newest.load(Ordering::Relaxed);
        let known = former >> 32 == tag;
        if let Some(begin) = slot.begins.get(period as usize & 1)
            && (!known || begin.load(Ordering::Relaxed) >> 32 != period & LOW_HALF)
        {
            let first = match known {
                true => former as u32,
                false => sequence_low.wrapping_sub(RUN_MAX),
            };
            begin.store(period << 32 | u64::from(first), Ordering::Relaxed);
            if !known && let Some(other) = slot.begins.get(period as usize & 1 ^ 1) {
                other.store(u64::MAX, Ordering::Relaxed);
            }
        }
        slot.newest
            .store(tag << 32 | u64::from(sequence_low), Ordering::Relaxed);
    }

    fn slot(&self, remote: IpAddr, spi: u32) -> Option<(&SentRecord, u64)> {
        let hash = self.hasher.hash_one((remote, spi));
        let slot = self.sent.get(hash as usize % SENT_SLOTS)?;
        // The tag is never zero, so that an empty slot matches nothing.
        Some((slot, hash >> 32 | 1))
    }

    fn is_ours(&self, remote: IpAddr, spi: u32, sequence_low: u32, now_ms: u64) -> bool {
        let Some((slot, tag)) = self.slot(remote, spi) else {
            return false;
        };
        let newest = slot.newest.load(Ordering::Relaxed);
        let period = now_ms / PERIOD_MS;
        let begin_of = |period: u64| {
            let begin = slot.begins.get(period as usize & 1)?;
            let begin = begin.load(Ordering::Relaxed);
            (begin >> 32 == period & LOW_HALF).then_some(begin as u32)
        };
        let before = period.checked_sub(1).and_then(begin_of);
        let Some(begin) = before.or_else(|| begin_of(period)) else {
            return false;
        };
        let sent = (newest as u32).wrapping_sub(begin).wrapping_add(AHEAD_MAX);
        newest >> 32 == tag && sequence_low.wrapping_sub(begin) <= sent
    }

    /// Returns true if wrong quotes about the path to `remote` have used up this second.
    fn is_guessed_at(&self, remote: IpAddr, now_ms: u64) -> bool {
        let count = self.guess_count(remote);
        let value = count.map_or(0, |count| count.load(Ordering::Relaxed));
        value >> 32 == (now_ms / 1000) & LOW_HALF && value as u32 >= GUESSES_MAX
    }

    fn count_guess(&self, remote: IpAddr, now_ms: u64) {
        if let Some(count) = self.guess_count(remote) {
            let second = (now_ms / 1000) << 32;
            let value = count.load(Ordering::Relaxed);
            let value = match value & !LOW_HALF == second {
                true => value + 1,
                false => second + 1,
            };
            count.store(value, Ordering::Relaxed);
        }
    }

    fn guess_count(&self, remote: IpAddr) -> Option<&AtomicU64> {
        let hash = self.hasher.hash_one(remote);
        self.guesses.get(hash as usize % GUESS_SLOTS)
    }

    /// Takes the claim that packets to `remote` may have `mtu` bytes, outer IP header included. Returns the MTU that
    /// is believed from now on.
    pub fn learn(
        &self,
        remote: IpAddr,
        mtu: u32,
        evidence: Evidence,
        now_ms: u64,
    ) -> Result<u16, Disbelief> {
        let min = smallest(remote);
        let min = match evidence {
            Evidence::Local => min,
            Evidence::Quoted { .. } if self.is_guessed_at(remote, now_ms) => {
                return Err(Disbelief::Guessing);
            }
            Evidence::Quoted { spi, sequence_low } => {
                if !self.is_ours(remote, spi, sequence_low, now_ms) {
                    self.count_guess(remote, now_ms);
                    return Err(Disbelief::NotOurs);
                }
                min
            }
            // A guess at our address and port must not do more harm than a common tunnel would.
            Evidence::AddressOnly => V6_MIN,
        };
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).max(min);
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let paths = self.paths.load();
        let path = paths.get(&remote).filter(|path| path.is_fresh(now_ms));
        let known = path
            .and_then(|path| path.told)
            .filter(|told| told.is_fresh(now_ms));
        // A message never raises the MTU (RFC 1191 §6.3). Repeating a claim does not extend its age, because no
        // larger packets are sent meanwhile.
        if known.is_some_and(|told| told.mtu <= mtu) {
            return Err(Disbelief::NothingNew);
        }
        // Anybody can invent guesses for any number of peers. Guesses must neither fill the table nor cost copies of
        // it.
        let paths_max = match evidence {
            Evidence::AddressOnly => self.paths_max / 2,
            Evidence::Local | Evidence::Quoted { .. } => self.paths_max,
        };
        let fresh = || paths.iter().filter(|(_, path)| path.is_fresh(now_ms));
        if path.is_none() && fresh().count() >= paths_max {
            return Err(Disbelief::Full);
        }
        let mut next: Paths = fresh().map(|(remote, path)| (*remote, *path)).collect();
        let age_ms = match evidence {
            Evidence::AddressOnly => GUESS_AGE_MS,
            Evidence::Local | Evidence::Quoted { .. } => AGE_MS,
        };
        let until_ms = now_ms.saturating_add(age_ms);
        next.entry(remote).or_default().told = Some(LearnedMtu { mtu, until_ms });
        self.paths.store(next.into());
        self.any.store(true, Ordering::Release);
        Ok(mtu)
    }

    /// Notes what probes have found: the MTU of the path to `remote`, and for how long it counts. `None`: the path takes
    /// what the interface takes.
    pub fn set_probed(
        &self,
        remote: IpAddr,
        found: Option<(u16, u64)>,
        now_ms: u64,
    ) -> Result<(), Disbelief> {
        let probed = found.map(|(mtu, until_ms)| LearnedMtu {
            mtu: mtu.max(smallest(remote)),
            until_ms,
        });
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let paths = self.paths.load();
        let fresh = paths.iter().filter(|(_, path)| path.is_fresh(now_ms));
        let mut next: Paths = fresh.map(|(remote, path)| (*remote, *path)).collect();
        if probed.is_some() && !next.contains_key(&remote) && next.len() >= self.paths_max {
            return Err(Disbelief::Full);
        }
        let path = next.entry(remote).or_default();
        path.probed = probed;
        if path.told.is_none() && path.probed.is_none() {
            next.remove(&remote);
        }
        self.any.store(true, Ordering::Release);
        self.paths.store(next.into());
        Ok(())
    }

    /// Notes that a message of IKE was sent that must not be fragmented, so that an ICMP error about it is believed. The
    /// payload is that of UDP. An error quotes eight bytes of it, which have at least half of an SPI of IKE.
    pub fn sent_ike(&self, remote: IpAddr, payload: &[u8], now_ms: u64) {
        if let (Some(first), Some(second)) = (be32(payload, 0), be32(payload, 4)) {
            self.sent(remote, first, second, now_ms);
        }
    }

    /// Returns the MTU of the path to `remote`, in bytes. Returns `None` if nothing narrower than the interface's MTU is
    /// known.
    pub fn mtu(&self, remote: IpAddr, now_ms: u64) -> Option<u16> {
        self.known(remote, now_ms).map(|(mtu, _)| mtu)
    }

    /// The same with its source.
    pub fn known(&self, remote: IpAddr, now_ms: u64) -> Option<(u16, MtuSource)> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let paths = self.paths.load();
        let path = paths.get(&remote)?;
        let mtu = |of: Option<LearnedMtu>| Some(of.filter(|of| of.is_fresh(now_ms))?.mtu);
        match (mtu(path.told), mtu(path.probed)) {
            (told, Some(probed)) if told.is_none_or(|told| probed < told) => {
                Some((probed, MtuSource::Probed))
            }
            (told, _) => Some((told?, MtuSource::Told)),
        }
    }

    /// Returns what ICMP errors and our own kernel have told of the path to `remote`.
    pub fn told(&self, remote: IpAddr, now_ms: u64) -> Option<u16> {
        let paths = self.paths.load();
        let told = paths.get(&remote)?.told?;
        told.is_fresh(now_ms).then_some(told.mtu)
    }
}

impl PathEntry {
    fn is_fresh(&self, now_ms: u64) -> bool {
        let mut both = [self.told, self.probed].into_iter().flatten();
        both.any(|one| one.is_fresh(now_ms))
    }
}

impl LearnedMtu {
    fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms
    }
}
