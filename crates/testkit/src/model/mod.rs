//! A small model of RFC 4301 processing. Tests run it beside the real packet path: the same
//! policies, SAs and packets must have the same outcome.
//!
//! The model shares no code with the real path, and none of its techniques. The SPD is a list, the
//! SAD a hash map, the replay window a set, and a packet a vector. There are no caches, batches or
//! atomics. Cryptography comes from outside ([`Cipher`]), one packet at a time. Drop reasons have
//! the names of the real ones.

mod association;
mod fragment;
mod packet;
mod policy;
mod protect;
mod quote;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

pub use association::{
    Cipher, InboundSa, Limits, Mode, OutboundSa, Path, ReplaySet, SaOptions, Usage,
};
pub use packet::{Ip, checksum, complete, set_checksum, set_tos};
pub use policy::{Entry, EntryAction, Flow, Ports, Protocol, Selector, matches_any};

pub use quote::IcmpErrors;

use policy::Lookup;
use quote::{Quote, quote};

/// The name of a drop reason.
pub type Reason = &'static str;

/// Numbers of packets by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    pub packets_in: u64,
    pub packets_out: u64,
    pub packets_bypassed: u64,
    pub drops: BTreeMap<Reason, u64>,
}

impl PacketCounts {
    fn drop_one(&mut self, reason: Reason) {
        *self.drops.entry(reason).or_default() += 1;
    }

    pub fn dropped(&self) -> u64 {
        self.drops.values().sum()
    }
}

/// The outcome of an outbound packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outbound {
    /// The whole packet that leaves, and the SA that carries it.
    Sealed {
        spi: u32,
        frame: Vec<u8>,
    },
    Bypass,
    Dropped(Reason),
}

/// The outcome of an inbound packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    Delivered(Vec<u8>),
    Dropped(Reason),
}

/// An end of the tunnel.
#[derive(Debug, Default)]
pub struct Gateway {
    pub policies: Vec<Entry>,
    /// The SAs that each policy sends with, by the policy's number. The newest SA is last.
    pub outbound: HashMap<u32, Vec<OutboundSa>>,
    /// The inbound SAs by SPI.
    pub inbound: HashMap<u32, InboundSa>,
    pub outbound_counters: PacketCounts,
    pub inbound_counters: PacketCounts,
    /// Policies that asked for an SA and have no answer yet.
    pub acquiring: Vec<u32>,
    /// Identification of the last outer IPv4 header that an ICV covers.
    pub identification: u16,
}

/// A packet that passed the checks before its ICV.
struct Arrived {
    spi: u32,
    sequence: u64,
    place: protect::SecurityHeader,
    frame: Vec<u8>,
    from: SocketAddr,
}

impl Gateway {
    /// Processes an outbound packet (RFC 4301 §5.1).
    pub fn send(&mut self, packet: &[u8]) -> Outbound {
        self.outbound_counters.packets_in += 1;
        let outcome = self.protect(packet);
        let counters = &mut self.outbound_counters;
        match &outcome {
            Outbound::Sealed { .. } => counters.packets_out += 1,
            Outbound::Bypass => counters.packets_bypassed += 1,
            Outbound::Dropped(reason) => counters.drop_one(reason),
        }
        outcome
    }

    fn protect(&mut self, packet: &[u8]) -> Outbound {
        let Some(ip) = Ip::parse(packet) else {
            return Outbound::Dropped("malformed-inner");
        };
        let flow = ip.outbound_flow();
        let chosen = match policy::lookup(&self.policies, &flow) {
            Lookup::None => Err("no-policy"),
            Lookup::Discard => return Outbound::Dropped("policy-discard"),
            Lookup::Bypass => return Outbound::Bypass,
            Lookup::Protect(policy) => self.choose(policy, &flow, ip.tos),
        };
        let (policy, index) = match chosen {
            Ok(chosen) => chosen,
            Err("no-sa") => {
                if let Lookup::Protect(policy) = policy::lookup(&self.policies, &flow)
                    && !self.acquiring.contains(&policy)
                {
                    self.acquiring.push(policy);
                }
                return Outbound::Dropped("no-sa");
            }
            Err(reason) => match self.return_sa(packet, &ip) {
                Some(chosen) => chosen,
                None => return Outbound::Dropped(reason),
            },
        };
        let associations = self.outbound.entry(policy).or_default();
        let Some(sa) = associations.get_mut(index) else {
            return Outbound::Dropped("no-sa");
        };
        match sa.seal(packet, &ip, &mut self.identification) {
            Ok(frame) => Outbound::Sealed {
                spi: sa.options.spi,
                frame,
            },
            Err(reason) => {
                *sa.drops.entry(reason).or_default() += 1;
                Outbound::Dropped(reason)
            }
        }
    }

    /// Returns the policy, and the index of the SA to use.
    fn choose(&self, policy: u32, flow: &Flow, tos: u8) -> Result<(u32, usize), Reason> {
        let associations = self.outbound.get(&policy).map_or(&[][..], |sas| sas);
        if associations.is_empty() {
            return Err("no-sa");
        }
        let fits = |sa: &OutboundSa| matches_any(&sa.options.selectors, flow);
        let meant = |sa: &OutboundSa| fits(sa) && sa.options.dscps >> (tos >> 2) & 1 == 1;
        // Prefer the newest SA for this DSCP, and otherwise the newest SA that fits.
        let index =
            (associations.iter().rposition(meant)).or_else(|| associations.iter().rposition(fits));
        Ok((policy, index.ok_or("outside-sa-selectors")?))
    }

    /// Returns the SA that would carry the answer to the packet in an ICMP error (RFC 4301 §6.2).
    fn return_sa(&self, packet: &[u8], ip: &Ip) -> Option<(u32, usize)> {
        let Quote::About(received) = quote(packet, ip) else {
            return None;
        };
        let flow = received.inbound_flow();
        let Lookup::Protect(policy) = policy::lookup(&self.policies, &flow) else {
            return None;
        };
        let (policy, index) = self.choose(policy, &flow, ip.tos).ok()?;
        let sa = self.outbound.get(&policy)?.get(index)?;
        (sa.options.icmp_errors != IcmpErrors::Header).then_some((policy, index))
    }

    /// Processes ESP and AH packets that are addressed to this gateway (RFC 4301 §5.2). Like the
    /// real path, checks replay windows and limits when a burst arrives, and again after
    /// decryption.
    pub fn receive(&mut self, burst: &[(Vec<u8>, SocketAddr)]) -> Vec<Inbound> {
        let arrived: Vec<_> = burst
            .iter()
            .map(|(frame, from)| self.arrive(frame, *from))
            .collect();
        let finished = arrived.into_iter().map(|arrived| {
            self.inbound_counters.packets_in += 1;
            let outcome = match arrived {
                Ok(arrived) => self.finish(arrived),
                Err((spi, reason)) => {
                    self.count_drop(spi, reason);
                    Inbound::Dropped(reason)
                }
            };
            match &outcome {
                Inbound::Delivered(_) => self.inbound_counters.packets_out += 1,
                Inbound::Dropped(reason) => self.inbound_counters.drop_one(reason),
            }
            outcome
        });
        finished.collect()
    }

    fn arrive(&self, frame: &[u8], from: SocketAddr) -> Result<Arrived, (Option<u32>, Reason)> {
        let place = protect::locate(frame).map_err(|reason| (None, reason))?;
        let spi = place.spi;
        let sa = self.inbound.get(&spi).ok_or((None, "unknown-spi"))?;
        let sequence = sa
            .admit(&place, frame)
            .map_err(|reason| (Some(spi), reason))?;
        Ok(Arrived {
            spi,
            sequence,
            place,
            frame: frame.to_vec(),
            from,
        })
    }

    fn finish(&mut self, arrived: Arrived) -> Inbound {
        let Some(sa) = self.inbound.get_mut(&arrived.spi) else {
            return Inbound::Dropped("unknown-spi");
        };
        let outcome = sa.open(
            arrived.sequence,
            &arrived.place,
            &arrived.frame,
            arrived.from,
        );
        match outcome {
            Ok(packet) => Inbound::Delivered(packet),
            Err(reason) => {
                self.count_drop(Some(arrived.spi), reason);
                Inbound::Dropped(reason)
            }
        }
    }

    fn count_drop(&mut self, spi: Option<u32>, reason: Reason) {
        if let Some(sa) = spi.and_then(|spi| self.inbound.get_mut(&spi)) {
            *sa.drops.entry(reason).or_default() += 1;
        }
    }
}
