//! The second half of the inbound walk: from an authenticated packet to a deliverable inner packet.

use std::net::IpAddr;

use esplanade_crypto::{Job, Protocol};

use super::opened::{Arrival, Content, Delivered, Nested};
use crate::drop_reason::DropReason;
use crate::fragment::check_arrival;
use crate::icmp_errors::check_selectors;
use crate::outbound::set_protocol_and_len;
use crate::sa::{InboundSa, Mode};
use crate::selector::Flow;
use crate::spd::Spd;
use crate::tunnel::{self, OuterFacts, OuterHeader, OuterMeta};
use crate::wire::ip::{
    IPV4_HEADER_LEN, IPV6_HEADER_LEN, PROTOCOL_IPV4, PROTOCOL_IPV6, PROTOCOL_NONE, PROTOCOL_TCP,
    PROTOCOL_UDP,
};
use crate::wire::udp_encap::UDP_HEADER_LEN;
use crate::wire::{IpVersion, IpView, ah, be16, checksum, esp};

/// Finishes one packet. Adds the inner packet to `content` and returns its length.
#[inline(always)]
pub(super) fn finish(
    sa: &InboundSa,
    buffer: &mut [u8],
    job: &Job,
    arrival: Arrival<'_>,
    content: &mut Content,
) -> Result<u32, DropReason> {
    // The outer ECN field is zero, so it changes nothing (RFC 6040 §4.2).
    if sa.layout.is_esp_tunnel()
        && arrival.facts.outer.tos & 0b11 == 0
        && let Some((offset, len)) = plain_ipv4(sa, buffer, job)
    {
        content.delivered.push(Delivered {
            offset,
            len,
            rebuilt: false,
        });
        return Ok(len);
    }
    finish_any(sa, buffer, job, arrival, content)
}

#[inline(never)]
fn finish_any(
    sa: &InboundSa,
    buffer: &mut [u8],
    job: &Job,
    arrival: Arrival<'_>,
    content: &mut Content,
) -> Result<u32, DropReason> {
    let layout = &sa.layout;
    let Arrival { facts, now_ms, .. } = arrival;
    let (offset, rebuilt, view) = match (layout.protocol, layout.mode) {
        (Protocol::Esp, Mode::Tunnel) => esp_tunnel(sa, buffer, job, &facts.outer, now_ms)?,
        (Protocol::Esp, Mode::Transport) => {
            esp_transport(sa, buffer, job, &facts.outer, &mut content.rebuilt)?
        }
        (Protocol::Ah, mode) => {
            let saved = arrival.tag.saved as usize;
            let ah_at = job.icv as usize - layout.iv_len() - ah::FIXED_LEN;
            let saved = arrival.saved.get(saved..saved + ah_at);
            let frame = buffer.get_mut(job.esp as usize..(job.esp + job.len) as usize);
            let (Some(saved), Some(frame)) = (saved, frame) else {
                return Err(DropReason::EngineFailed);
            };
            ah::restore(frame, saved);
            match mode {
                Mode::Tunnel => ah_tunnel(sa, frame, job, ah_at, &facts.outer, now_ms)?,
                Mode::Transport => ah_transport(sa, frame, ah_at, &mut content.rebuilt)?,
            }
        }
    };
    let packet = Delivered {
        offset,
        len: view.total_len as u32,
        rebuilt,
    };
    match is_nested(sa, &view) {
        false => content.delivered.push(packet),
        true => content.nested.push(Nested {
            packet,
            view,
            depth: facts.depth,
        }),
    }
    Ok(view.total_len as u32)
}

/// Removes packet `at` from the list of deliverable packets if the SPD discards it. A nested packet is not in the
/// list; what comes out of it is checked later. An ICMP error that its SA accepted by its quote has no SPD entry of
/// its own. Any Discard for its header then decides, as it does outbound.
#[cold]
pub(super) fn hold_against(
    spd: &Spd,
    sa: &InboundSa,
    buffer: &[u8],
    content: &mut Content,
    at: usize,
) -> Result<(), DropReason> {
    let Some(delivered) = content.delivered.get(at).copied() else {
        return Ok(());
    };
    let packet = content.packet(buffer, &delivered);
    let flow = IpView::parse(packet).map(|view| Flow {
        interface: sa.interface,
        ..view.inbound_flow()
    });
    if flow.is_ok_and(|flow| !spd.inbound_discards(&flow)) {
        return Ok(());
    }
    content.delivered.truncate(at);
    Err(DropReason::PolicyDiscard)
}

/// Returns true if a packet is IPsec again and addressed to this end (RFC 4301 §5.2). Fragments of such a packet are
/// reassembled outside, where all fragments are (RFC 4303 §3.4.1).
#[inline]
fn is_nested(sa: &InboundSa, view: &IpView) -> bool {
    matches!(view.protocol, esp::PROTOCOL | ah::PROTOCOL)
        && !view.fragment
        && view.destination == sa.common.path().local.ip()
}

/// Offset of a packet, whether it is in [`Content::rebuilt`], and its parsed header.
type FinishedPacket = (u32, bool, IpView);

/// The range of the job's encrypted part.
#[inline]
fn body(sa: &InboundSa, job: &Job) -> std::ops::Range<usize> {
    let start = job.esp as usize + sa.layout.esp_header_len();
    let end = job.esp as usize + job.len as usize;
    start..end.saturating_sub(sa.layout.icv_len())
}

fn esp_tunnel(
    sa: &InboundSa,
    buffer: &mut [u8],
    job: &Job,
    facts: &OuterFacts,
    now_ms: u64,
) -> Result<FinishedPacket, DropReason> {
    let range = body(sa, job);
    let start = range.start as u32;
    let body = buffer.get_mut(range).ok_or(DropReason::EngineFailed)?;
    let trailer = esp::parse_trailer(body).ok_or(DropReason::BadPadding)?;
    let payload = body
        .get_mut(..trailer.payload_len)
        .ok_or(DropReason::BadPadding)?;
    let version = inner_version(trailer.next_header)?;
    // The inner packet may be shorter than the payload, because of traffic flow confidentiality (RFC 4303 §2.7).
    let view = tunnelled(sa, payload, version, facts.tos, now_ms)?;
    Ok((start, false, view))
}

/// Offset and length of a plain IPv4 packet that passes unchanged. It has no options, and the SA's first selector
/// accepts it by its addresses alone. `None` means that the general path must decide; it is no verdict.
#[inline(always)]
fn plain_ipv4(sa: &InboundSa, buffer: &[u8], job: &Job) -> Option<(u32, u32)> {
    let range = body(sa, job);
    let start = range.start as u32;
    let body = buffer.get(range)?;
    let trailer = esp::parse_trailer(body)?;
    let fixed = body.first_chunk::<IPV4_HEADER_LEN>()?;
    let len = u16::from_be_bytes([fixed[2], fixed[3]]);
    let word =
        |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    // ESP and AH may be nested.
    let plain = trailer.next_header == PROTOCOL_IPV4
        && fixed[0] == 0x45
        && !matches!(fixed[9], esp::PROTOCOL | ah::PROTOCOL)
        && usize::from(len) <= trailer.payload_len
        && usize::from(len) >= IPV4_HEADER_LEN;
    let passes = plain && sa.plain_ipv4.matches(word(16), word(12)) && checksum::is_sound(fixed);
    passes.then_some((start, len.into()))
}

fn inner_version(next_header: u8) -> Result<IpVersion, DropReason> {
    match next_header {
        PROTOCOL_IPV4 => Ok(IpVersion::V4),
        PROTOCOL_IPV6 => Ok(IpVersion::V6),
        PROTOCOL_NONE => Err(DropReason::Dummy),
        _ => Err(DropReason::BadNextHeader),
    }
}

/// Checks the inner packet of a tunnel. Merges the outer ECN field into it, and the DSCP if the SA says so.
#[inline]
fn tunnelled(
    sa: &InboundSa,
    payload: &mut [u8],
    version: IpVersion,
    outer_tos: u8,
    now_ms: u64,
) -> Result<IpView, DropReason> {
    let mut view = IpView::parse(payload).map_err(|_| DropReason::MalformedInner)?;
    if view.version != version {
        return Err(DropReason::MalformedInner);
    }
    match view.fragment {
        false => check_selectors(&sa.common, payload, &view)?,
        true => check_arrival(sa, payload, &view, now_ms)?,
    }
    if !tunnel::decapsulate_ecn(payload, &mut view, outer_tos) {
        return Err(DropReason::EcnNotCapable);
    }
    if sa.common.tunnel.dscp_from_outer {
        tunnel::decapsulate_dscp(payload, &mut view, outer_tos);
    }
    Ok(view)
}

fn ah_tunnel(
    sa: &InboundSa,
    frame: &mut [u8],
    job: &Job,
    ah_at: usize,
    facts: &OuterFacts,
    now_ms: u64,
) -> Result<FinishedPacket, DropReason> {
    let header = frame.get(ah_at..).and_then(ah::AhHeader::parse);
    let header = header.ok_or(DropReason::MalformedAh)?;
    let version = inner_version(header.next_header)?;
    let start = ah_at + header.header_len;
    let payload = frame.get_mut(start..).ok_or(DropReason::MalformedAh)?;
    let view = tunnelled(sa, payload, version, facts.tos, now_ms)?;
    Ok((job.esp + start as u32, false, view))
}

/// Removes AH in transport mode (RFC 4302 §3.1.1).
fn ah_transport(
    sa: &InboundSa,
    frame: &[u8],
    ah_at: usize,
    rebuilt: &mut Vec<u8>,
) -> Result<FinishedPacket, DropReason> {
    let (headers, behind) = frame
        .split_at_checked(ah_at)
        .ok_or(DropReason::MalformedAh)?;
    let header = ah::AhHeader::parse(behind).ok_or(DropReason::MalformedAh)?;
    if header.next_header == PROTOCOL_NONE {
        return Err(DropReason::Dummy);
    }
    let payload = behind
        .get(header.header_len..)
        .ok_or(DropReason::MalformedAh)?;
    let start = rebuilt.len();
    rebuilt.extend_from_slice(headers);
    rebuilt.extend_from_slice(payload);
    complete(sa, rebuilt, start, headers.len(), header.next_header, false)
}

/// Removes ESP in transport mode (RFC 4303 §3.1.1).
fn esp_transport(
    sa: &InboundSa,
    buffer: &[u8],
    job: &Job,
    facts: &OuterFacts,
    rebuilt: &mut Vec<u8>,
) -> Result<FinishedPacket, DropReason> {
    let layout = &sa.layout;
    let esp_at = job.esp as usize;
    let end = (esp_at + job.len as usize).saturating_sub(layout.icv_len());
    let body = buffer
        .get(esp_at + layout.esp_header_len()..end)
        .ok_or(DropReason::EngineFailed)?;
    let trailer = esp::parse_trailer(body).ok_or(DropReason::BadPadding)?;
    if trailer.next_header == PROTOCOL_NONE {
        return Err(DropReason::Dummy);
    }
    let payload = body
        .get(..trailer.payload_len)
        .ok_or(DropReason::BadPadding)?;
    let start = rebuilt.len();
    match usize::from(facts.header_len) {
        0 => make_header(sa, facts, payload.len(), rebuilt)?,
        len => {
            let udp_len = if facts.udp_encap { UDP_HEADER_LEN } else { 0 };
            let headers = esp_at
                .checked_sub(len)
                .and_then(|start| buffer.get(start..esp_at - udp_len.min(len)))
                .ok_or(DropReason::MalformedEsp)?;
            rebuilt.extend_from_slice(headers);
        }
    }
    let header_len = rebuilt.len() - start;
    rebuilt.extend_from_slice(payload);
    let next_header = trailer.next_header;
    complete(sa, rebuilt, start, header_len, next_header, facts.udp_encap)
}

/// Makes an IP header between the SA's ends, for back ends that keep the received one to themselves.
fn make_header(
    sa: &InboundSa,
    facts: &OuterFacts,
    payload_len: usize,
    rebuilt: &mut Vec<u8>,
) -> Result<(), DropReason> {
    let path = sa.common.path();
    let ends = crate::sa::Path {
        local: facts.remote,
        remote: path.local,
        udp_encap: false,
    };
    let meta = OuterMeta {
        path: ends.into(),
        tos: facts.tos,
        dont_fragment: true,
        ttl: None,
        flow_label: 0,
    };
    let start = rebuilt.len();
    let header_len = meta.ip_header_len();
    rebuilt.resize(start + header_len + payload_len, 0);
    let header = OuterHeader::of_protocol(&meta, esp::PROTOCOL);
    let packet = rebuilt.get_mut(start..);
    let written = packet.and_then(|packet| header.write_ip(0, packet));
    rebuilt.truncate(start + header_len);
    written.map(|_| ()).ok_or(DropReason::MalformedEsp)
}

/// Completes a packet of headers whose last one announced ESP or AH (or UDP around it), and of the payload.
fn complete(
    sa: &InboundSa,
    rebuilt: &mut Vec<u8>,
    start: usize,
    header_len: usize,
    next_header: u8,
    udp_encap: bool,
) -> Result<FinishedPacket, DropReason> {
    let result = rebuilt
        .get_mut(start..)
        .ok_or(DropReason::MalformedInner)
        .and_then(|packet| complete_packet(sa, packet, header_len, next_header, udp_encap));
    match result {
        Ok(view) => Ok((start as u32, true, view)),
        Err(reason) => {
            rebuilt.truncate(start);
            Err(reason)
        }
    }
}

fn complete_packet(
    sa: &InboundSa,
    packet: &mut [u8],
    header_len: usize,
    next_header: u8,
    udp_encap: bool,
) -> Result<IpView, DropReason> {
    let len = packet.len();
    last_next_header(packet, header_len)
        .and_then(|at| set_protocol_and_len(packet, at, next_header, len))
        .ok_or(DropReason::MalformedInner)?;
    let view = IpView::parse(packet).map_err(|_| DropReason::MalformedInner)?;
    check_selectors(&sa.common, packet, &view)?;
    if udp_encap {
        recompute_checksum(packet, &view);
    }
    Ok(view)
}

/// Returns the offset of the next header field of the last header in the first `header_len` bytes.
fn last_next_header(packet: &[u8], header_len: usize) -> Option<usize> {
    if IpVersion::of_packet(packet)? == IpVersion::V4 {
        return Some(9);
    }
    let (mut field, mut at) = (6, IPV6_HEADER_LEN);
    while at < header_len {
        field = at;
        at += 8 + usize::from(*packet.get(at + 1)?) * 8;
    }
    (at == header_len).then_some(field)
}

/// Recomputes the transport checksum. A NAT changed the addresses that the checksum covers, but could not see the
/// checksum (RFC 3948 §3.1.2). The packet is authentic, so a new checksum is right.
fn recompute_checksum(packet: &mut [u8], view: &IpView) {
    let at = match view.protocol {
        PROTOCOL_TCP => 16,
        PROTOCOL_UDP => 6,
        _ => return,
    };
    let Some(upper) = packet.get_mut(view.upper..view.total_len) else {
        return;
    };
    // A zero UDP checksum stands for "none". Some tunnels over IPv6 use it too (RFC 6935).
    let none = view.protocol == PROTOCOL_UDP && be16(upper, at) == Some(0);
    let Some(field) = upper
        .get_mut(at..at + 2)
        .filter(|_| !view.fragment && !none)
    else {
        return;
    };
    field.fill(0);
    let mut sum = upper.len() as u64 + u64::from(view.protocol);
    for address in [view.source, view.destination] {
        sum = match address {
            IpAddr::V4(v4) => checksum::sum(sum, &v4.octets()),
            IpAddr::V6(v6) => checksum::sum(sum, &v6.octets()),
        };
    }
    let value = match checksum::fold(checksum::sum(sum, upper)) {
        0 if view.protocol == PROTOCOL_UDP => 0xffff,
        value => value,
    };
    if let Some(field) = upper.get_mut(at..at + 2) {
        field.copy_from_slice(&value.to_be_bytes());
    }
}
