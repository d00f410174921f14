//! ESP (RFC 4303) and AH (RFC 4302) in tunnel and transport mode, on whole IP packets.

use std::net::SocketAddr;

use super::Reason;
use super::association::{InboundSa, Mode, OutboundSa};
use super::fragment;
use super::packet::{self, Ip};
use super::policy::matches_any;
use super::quote::{IcmpErrors, Quote, quote};

const UDP: u8 = 17;
const ESP: u8 = 50;
const AH: u8 = 51;
const DUMMY: u8 = 59;
/// Most bytes of an IP packet.
const PACKET_LEN_MAX: usize = 65_535;

/// The place of the security header in an outer packet.
#[derive(Clone, Copy, Debug)]
pub struct SecurityHeader {
    pub spi: u32,
    pub sequence_low: u32,
    ah: bool,
    udp: bool,
    tos: u8,
    /// Offset of the field that names the header after the IP headers.
    next_header_at: usize,
    /// Offset at which the IP headers end.
    headers_end: usize,
    /// Offset of ESP's SPI, or of AH's first byte.
    at: usize,
    end: usize,
}

/// Returns the offset after the headers that transport mode keeps in front, and the offset of the
/// field that names the next header.
fn transport_split(packet: &[u8]) -> (usize, usize) {
    if packet[0] >> 4 == 4 {
        return (usize::from(packet[0] & 15) * 4, 9);
    }
    let (mut at, mut field) = (40, 6);
    let mut split = (at, field);
    while matches!(packet[field], 0 | 43 | 60) {
        let destination_options = packet[field] == 60;
        (field, at) = (at, at + 8 + usize::from(packet[at + 1]) * 8);
        // Destination options stay in front only if a routing header follows (RFC 4303 §3.1.1).
        if !destination_options {
            split = (at, field);
        }
    }
    split
}

/// Finds ESP or AH after the IP header, the extension headers and UDP.
pub fn locate(frame: &[u8]) -> Result<SecurityHeader, Reason> {
    let ip = Ip::parse(frame).ok_or("malformed-outer")?;
    let (mut at, mut next_header_at) = (40, 6);
    if ip.version == 4 {
        (at, next_header_at) = (ip.upper, 9);
    } else {
        while at < ip.upper {
            (next_header_at, at) = (at, at + 8 + usize::from(frame[at + 1]) * 8);
        }
    }
    let headers_end = at;
    let protocol = frame[next_header_at];
    let udp = protocol == UDP;
    if udp {
        at += 8;
    }
    let ah = protocol == AH;
    let malformed = if ah { "malformed-ah" } else { "malformed-esp" };
    let spi_at = if ah { at + 4 } else { at };
    let word = |at: usize| -> Option<u32> {
        let bytes = frame[..ip.total_len].get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    if ah && ip.total_len < at + 12 {
        return Err(malformed);
    }
    Ok(SecurityHeader {
        spi: word(spi_at).ok_or(malformed)?,
        sequence_low: word(spi_at + 4).ok_or(malformed)?,
        ah,
        udp,
        tos: ip.tos,
        next_header_at,
        headers_end,
        at,
        end: ip.total_len,
    })
}

fn ah_len(frame: &[u8], at: usize) -> usize {
    (usize::from(frame[at + 1]) + 2) * 4
}

/// Returns the length of an AH whose ICV field has `field` bytes.
fn ah_len_for(version: u8, field: usize) -> usize {
    (12 + field).next_multiple_of(if version == 4 { 4 } else { 8 })
}

impl OutboundSa {
    /// Returns the packet as it leaves. `ip` describes the header of `inner`.
    pub fn seal(
        &mut self,
        inner: &[u8],
        ip: &Ip,
        identification: &mut u16,
    ) -> Result<Vec<u8>, Reason> {
        let inner = &inner[..ip.total_len];
        let (mut header, next_header_at, next_header, mut payload) = self.split(inner, ip)?;
        let icv_field = self.cipher.iv_len() + self.cipher.icv_len();
        let len = if self.cipher.protocol() == AH {
            ah_len_for(header[0] >> 4, icv_field) + payload.len()
        } else {
            payload.resize(payload.len().max(self.options.tfc), 0);
            let body = (payload.len() + 2).next_multiple_of(self.cipher.align());
            8 + icv_field + body + if self.options.path.udp { 8 } else { 0 }
        };
        if header.len() + len > PACKET_LEN_MAX {
            return Err("too-long");
        }
        if self.options.limits.hard_reached(self.usage) {
            return Err("lifetime-expired");
        }
        let sequence = self.take_number()?;
        self.usage.packets += 1;
        self.usage.bytes += inner.len() as u64;
        Ok(if self.cipher.protocol() == AH {
            // The ICV covers the identification, so it must be set before. A raw socket replaces
            // zero, so zero is not used.
            let numbered = header[0] >> 4 == 6 || header[4..6] != [0, 0];
            if self.options.mode == Mode::Tunnel || !numbered {
                *identification = identification.wrapping_add(1).max(1);
                if header[0] >> 4 == 4 {
                    header[4..6].copy_from_slice(&identification.to_be_bytes());
                }
            }
            self.seal_ah(sequence, header, next_header_at, next_header, &payload)
        } else {
            self.seal_esp(sequence, header, next_header_at, next_header, &payload)
        })
    }

    /// Returns the headers before the security header, the offset of their field for the next
    /// header, the protected protocol, and the protected bytes.
    fn split(&self, inner: &[u8], ip: &Ip) -> Result<(Vec<u8>, usize, u8, Vec<u8>), Reason> {
        let options = &self.options;
        if options.mode == Mode::Transport {
            // RFC 4303 §3.3.4: transport mode does not carry fragments.
            if ip.fragment {
                return Err("fragment");
            }
            // The packet's own addresses must be the ends of the SA (RFC 4301 §4.1).
            if (ip.source, ip.destination) != (options.path.local.ip(), options.path.remote.ip()) {
                return Err("outside-sa-selectors");
            }
            let (at, field) = transport_split(inner);
            return Ok((
                inner[..at].to_vec(),
                field,
                inner[field],
                inner[at..].to_vec(),
            ));
        }
        let dscp = ip.tos >> 2;
        let dscp = options.outer_dscp.map_or(dscp, |map| map(dscp));
        let ecn = if options.outer_ecn_clear {
            0
        } else {
            ip.tos & 3
        };
        let (local, remote) = (options.path.local.ip(), options.path.remote.ip());
        let df = options.outer_df.unwrap_or(ip.dont_fragment);
        let header = packet::outer_header(local, remote, dscp << 2 | ecn, df, 0);
        let field = if local.is_ipv4() { 9 } else { 6 };
        let next_header = if ip.version == 4 { 4 } else { 41 };
        Ok((header, field, next_header, inner.to_vec()))
    }

    fn seal_esp(
        &self,
        sequence: u64,
        mut header: Vec<u8>,
        field: usize,
        next_header: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut esp = self.options.spi.to_be_bytes().to_vec();
        esp.extend((sequence as u32).to_be_bytes());
        esp.extend(self.cipher.iv(sequence));
        esp.extend(payload);
        let mut padding = 0u8;
        while !(payload.len() + usize::from(padding) + 2).is_multiple_of(self.cipher.align()) {
            padding += 1;
            esp.push(padding);
        }
        esp.extend([padding, next_header]);
        esp.resize(esp.len() + self.cipher.icv_len(), 0);
        self.cipher.seal(sequence, &mut esp);
        let path = &self.options.path;
        header[field] = ESP;
        if path.udp {
            header[field] = UDP;
            let (local, remote) = (path.local, path.remote);
            esp = packet::udp(
                (local.ip(), local.port()),
                (remote.ip(), remote.port()),
                &esp,
            );
        }
        header.extend(esp);
        packet::complete(&mut header);
        header
    }

    fn seal_ah(
        &self,
        sequence: u64,
        mut packet: Vec<u8>,
        field: usize,
        next_header: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let at = packet.len();
        let iv = self.cipher.iv(sequence);
        let len = ah_len_for(packet[0] >> 4, iv.len() + self.cipher.icv_len());
        packet[field] = AH;
        packet.extend([next_header, (len / 4 - 2) as u8, 0, 0]);
        packet.extend(self.options.spi.to_be_bytes());
        packet.extend((sequence as u32).to_be_bytes());
        packet.extend(&iv);
        packet.resize(at + len, 0);
        packet.extend(payload);
        packet::complete(&mut packet);
        let mut covered = packet.clone();
        zero_mutable(&mut covered, at);
        let icv = self.cipher.authenticate(sequence, &covered, at);
        let icv_at = at + 12 + iv.len();
        packet[icv_at..icv_at + icv.len()].copy_from_slice(&icv);
        packet
    }
}

/// Zeroes the mutable fields of a packet at its destination (RFC 4302 §3.3.3.1 and appendix A).
fn zero_mutable(packet: &mut [u8], end: usize) {
    if packet[0] >> 4 == 4 {
        for at in [1, 6, 7, 8, 10, 11] {
            packet[at] = 0;
        }
        let mut at = 20;
        while at < end && packet[at] != 0 {
            let len = match packet[at] {
                1 => 1,
                _ => usize::from(packet[at + 1]).max(2),
            };
            if !matches!(packet[at], 1 | 130 | 133 | 134 | 148 | 149) {
                packet[at..(at + len).min(end)].fill(0);
            }
            at += len;
        }
        return;
    }
    packet[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    packet[7] = 0;
    let (mut next, mut at) = (packet[6], 40);
    while at < end {
        let len = 8 + usize::from(packet[at + 1]) * 8;
        let mut option = at + 2;
        while matches!(next, 0 | 60) && option + 1 < at + len {
            if packet[option] == 0 {
                option += 1;
                continue;
            }
            let data = option + 2..option + 2 + usize::from(packet[option + 1]);
            if packet[option] & 0x20 != 0 {
                packet[data.clone()].fill(0);
            }
            option = data.end;
        }
        (next, at) = (packet[at], at + len);
    }
}

impl InboundSa {
    /// Runs the checks before the ICV. Returns the whole sequence number.
    pub fn admit(&self, place: &SecurityHeader, frame: &[u8]) -> Result<u64, Reason> {
        let (iv, icv) = (self.cipher.iv_len(), self.cipher.icv_len());
        if place.ah != (self.cipher.protocol() == AH) {
            return Err("unknown-spi");
        }
        let len = place.end - place.at;
        if !place.ah {
            let body = len.checked_sub(8 + iv + icv).ok_or("malformed-esp")?;
            if body < 2 || !body.is_multiple_of(self.cipher.align()) {
                return Err("malformed-esp");
            }
        }
        if self.options.limits.hard_reached(self.usage) {
            return Err("lifetime-expired");
        }
        let sequence = self.replay.infer(place.sequence_low)?;
        self.replay.check(sequence)?;
        let ah_expected = ah_len_for(frame[0] >> 4, iv + icv);
        if place.ah && (ah_len(frame, place.at) != ah_expected || len < ah_expected) {
            return Err("malformed-ah");
        }
        Ok(sequence)
    }

    /// Verifies the ICV and runs all later steps.
    pub fn open(
        &mut self,
        sequence: u64,
        place: &SecurityHeader,
        frame: &[u8],
        from: SocketAddr,
    ) -> Result<Vec<u8>, Reason> {
        let opened = if place.ah {
            self.verify_ah(sequence, place, frame)
        } else {
            self.decrypt_esp(sequence, place, frame)
        };
        let (next_header, payload) = match opened {
            Err("authentication-failed") => return Err("authentication-failed"),
            // The packet is authentic, whatever else is wrong with it.
            opened => {
                self.replay.check(sequence)?;
                if self.replay.insert(sequence) && place.udp {
                    self.seen_from = from;
                }
                self.usage.packets += 1;
                opened?
            }
        };
        let packet = match self.options.mode {
            Mode::Tunnel => self.leave_tunnel(place, next_header, payload)?,
            Mode::Transport => self.rebuild(place, frame, next_header, &payload)?,
        };
        self.usage.bytes += packet.len() as u64;
        Ok(packet)
    }

    fn decrypt_esp(
        &self,
        sequence: u64,
        place: &SecurityHeader,
        frame: &[u8],
    ) -> Result<(u8, Vec<u8>), Reason> {
        let mut esp = frame[place.at..place.end].to_vec();
        if !self.cipher.open(sequence, &mut esp) {
            return Err("authentication-failed");
        }
        let mut body = esp[8 + self.cipher.iv_len()..esp.len() - self.cipher.icv_len()].to_vec();
        let next_header = body.pop().ok_or("bad-padding")?;
        let padding = body.pop().ok_or("bad-padding")?;
        for expected in (1..=padding).rev() {
            if body.pop() != Some(expected) {
                return Err("bad-padding");
            }
        }
        Ok((next_header, body))
    }

    fn verify_ah(
        &self,
        sequence: u64,
        place: &SecurityHeader,
        frame: &[u8],
    ) -> Result<(u8, Vec<u8>), Reason> {
        let mut covered = frame[..place.end].to_vec();
        zero_mutable(&mut covered, place.at);
        let icv = place.at + 12 + self.cipher.iv_len();
        let icv = icv..icv + self.cipher.icv_len();
        covered[icv.clone()].fill(0);
        if self.cipher.authenticate(sequence, &covered, place.at) != frame[icv] {
            return Err("authentication-failed");
        }
        let behind = place.at + ah_len(frame, place.at);
        Ok((frame[place.at], frame[behind..place.end].to_vec()))
    }

    /// Takes the inner packet out of the tunnel (RFC 4301 §5.2, RFC 6040 §4.2).
    fn leave_tunnel(
        &mut self,
        place: &SecurityHeader,
        next_header: u8,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, Reason> {
        let version = match next_header {
            4 => 4,
            41 => 6,
            DUMMY => return Err("dummy"),
            _ => return Err("bad-next-header"),
        };
        let ip = Ip::parse(&payload).filter(|ip| ip.version == version);
        let ip = ip.ok_or("malformed-inner")?;
        let found = fragment::Fragment::of(&payload, &ip);
        if found.as_ref().is_none_or(|fragment| fragment.offset == 0) {
            self.check_selectors(&payload, &ip)?;
        }
        if let Some(found) = found {
            let options = &self.options;
            let agreed = options.non_first_fragments;
            fragment::check(&mut self.firsts, agreed, &options.selectors, &ip, &found)?;
        }
        let mut packet = payload[..ip.total_len].to_vec();
        let ecn = match (ip.tos & 3, place.tos & 3) {
            (0, 3) => return Err("ecn-not-capable"),
            (0, _) => 0,
            (3, _) | (_, 3) => 3,
            (_, 1) => 1,
            (inner, _) => inner,
        };
        let dscp = match self.options.inner_dscp {
            true => place.tos & 0xfc,
            false => ip.tos & 0xfc,
        };
        if dscp | ecn != ip.tos {
            packet::set_tos(&mut packet, dscp | ecn);
        }
        Ok(packet)
    }

    /// Checks the inner packet against the SA's selectors (RFC 4301 §5.2 step 4, and §6.2).
    fn check_selectors(&self, packet: &[u8], ip: &Ip) -> Result<(), Reason> {
        let selectors = &self.options.selectors;
        let matches = matches_any(selectors, &ip.inbound_flow());
        let quote = match self.options.icmp_errors {
            IcmpErrors::Header => Quote::None,
            IcmpErrors::Quoted if matches => Quote::None,
            _ => quote(packet, ip),
        };
        match quote {
            Quote::None if matches => Ok(()),
            Quote::None => Err("selector-mismatch"),
            Quote::Useless => Err("malformed-icmp-error"),
            Quote::About(sent) if matches_any(selectors, &sent.outbound_flow()) => Ok(()),
            Quote::About(_) => Err("icmp-error-mismatch"),
        }
    }

    /// Rebuilds a transport mode packet: the received headers without the security header, and the
    /// payload.
    fn rebuild(
        &self,
        place: &SecurityHeader,
        frame: &[u8],
        next_header: u8,
        payload: &[u8],
    ) -> Result<Vec<u8>, Reason> {
        if next_header == DUMMY {
            return Err("dummy");
        }
        let mut packet = frame[..place.headers_end].to_vec();
        packet[place.next_header_at] = next_header;
        packet.extend(payload);
        packet::complete(&mut packet);
        let ip = Ip::parse(&packet).ok_or("malformed-inner")?;
        self.check_selectors(&packet, &ip)?;
        if place.udp && !ip.fragment {
            packet::correct_upper_checksum(&mut packet, &ip);
        }
        Ok(packet)
    }
}
