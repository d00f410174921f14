//! Fragments that use an SA for certain ports (RFC 4301 §7). The model never forgets a first
//! fragment.

use std::collections::HashMap;
use std::net::IpAddr;

use super::Reason;
use super::packet::Ip;
use super::policy::{Ports, Selector};

type DatagramKey = (IpAddr, IpAddr, u8, u32);

/// For each datagram, the offset at which the data of its first fragment ended.
pub type Firsts = HashMap<DatagramKey, usize>;

pub struct Fragment {
    datagram: DatagramKey,
    pub offset: usize,
    pub more: bool,
    /// Protocol of the first header in the data.
    protocol: u8,
    len: usize,
    /// Header bytes that count towards the longest packet.
    headers: usize,
}

impl Fragment {
    pub fn of(packet: &[u8], ip: &Ip) -> Option<Self> {
        let word = |at: usize| u32::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        if ip.version == 4 {
            let field = word(6);
            return (field & 0x3fff != 0).then(|| Self {
                datagram: (ip.source, ip.destination, ip.protocol, word(4)),
                offset: (field & 0x1fff) as usize * 8,
                more: field & 0x2000 != 0,
                protocol: ip.protocol,
                len: ip.total_len - ip.upper,
                headers: ip.upper,
            });
        }
        let (mut at, mut next) = (40, packet[6]);
        while at < ip.upper {
            if next == 44 {
                let id = word(at + 4) << 16 | word(at + 6);
                return Some(Self {
                    datagram: (ip.source, ip.destination, 0, id),
                    offset: (word(at + 2) & 0xfff8) as usize,
                    more: packet[at + 3] & 1 == 1,
                    protocol: packet[at],
                    len: ip.total_len - at - 8,
                    headers: at - 40,
                });
            }
            next = packet[at];
            at += 8 + usize::from(packet[at + 1]) * 8;
        }
        None
    }

    /// Tells whether the fragment is sound, so that later fragments cannot change what the
    /// selectors examined.
    fn sound(&self, ip: &Ip) -> bool {
        let whole = self.offset == 0 && !self.more;
        let needed = if ip.protocol == 6 { 16 } else { 8 };
        let head_is_whole = self.offset > 0 || whole || ip.total_len - ip.upper >= needed;
        (self.len > 0 || whole)
            && (!self.more || self.len.is_multiple_of(8))
            && self.offset + self.len <= 65_535 - self.headers
            && !(self.protocol == 6 && self.offset > 0 && self.offset < 16)
            && head_is_whole
    }
}

/// Checks a fragment. `selectors` must match its addresses and protocol, and the ports of a first
/// fragment.
pub fn check(
    firsts: &mut Firsts,
    agreed: bool,
    selectors: &[Selector],
    ip: &Ip,
    fragment: &Fragment,
) -> Result<(), Reason> {
    let opaque = |s: &&Selector| s.local_ports == Ports::Opaque || s.remote_ports == Ports::Opaque;
    let mut flow = ip.inbound_flow();
    flow.ports = None;
    let matching: Vec<_> = selectors.iter().filter(|s| s.matches(&flow)).collect();
    if matching.iter().any(|selector| !opaque(selector)) {
        return Ok(());
    }
    let sound = match fragment.sound(ip) {
        true => Ok(()),
        false => Err("fragment-refused"),
    };
    if fragment.offset == 0 {
        if agreed && fragment.more {
            sound?;
            firsts.insert(fragment.datagram, fragment.len);
        }
        return Ok(());
    }
    match firsts.get(&fragment.datagram) {
        _ if !matching.is_empty() => sound,
        _ if !agreed => Err("selector-mismatch"),
        None => Err("unknown-fragment"),
        Some(end) if fragment.offset < *end => Err("fragment-refused"),
        Some(_) => sound,
    }
}
