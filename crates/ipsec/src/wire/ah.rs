//! The Authentication Header (RFC 4302 §2). The ICV leaves out mutable fields, options and extension headers of the IP
//! header before the AH (RFC 4302 §3.3.3.1, appendix A). This module finds them.

use super::be32;
use super::ip::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, IpVersion, Malformed};

/// IANA protocol number.
pub const PROTOCOL: u8 = 51;
/// The length in bytes of all fields before the ICV.
pub const FIXED_LEN: usize = 12;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
const EXTENSION_HEADERS_MAX: usize = 16;

/// The most bytes of IP header, options and extension headers before an AH that is processed. Every packet's headers
/// are copied: without the bound a peer could have whole packets copied twice.
const HEADERS_LEN_MAX: usize = 1024;

/// The fields of the header that are in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AhHeader {
    pub next_header: u8,
    /// The length in bytes from the next header field to the end of the ICV's padding.
    pub header_len: usize,
    pub spi: u32,
    pub sequence_low: u32,
}

impl AhHeader {
    /// Parses the AH at the start of `bytes`. Returns `None` unless the whole AH is there.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let fixed = bytes.first_chunk::<FIXED_LEN>()?;
        // The field counts 32-bit words, minus 2 (RFC 4302 §2.2).
        let header_len = (usize::from(fixed[1]) + 2) * 4;
        (FIXED_LEN..=bytes.len())
            .contains(&header_len)
            .then_some(Self {
                next_header: fixed[0],
                header_len,
                spi: be32(bytes, 4)?,
                sequence_low: be32(bytes, 8)?,
            })
    }
}

/// The length in bytes of an AH whose ICV field holds `icv_len` bytes (with AES-GMAC, the IV and the ICV). The length
/// is a multiple of 4 bytes in IPv4 and of 8 bytes in IPv6 (RFC 4302 §2.6; for AES-GMAC erratum 3643 of RFC 4543).
pub const fn header_len(version: IpVersion, icv_len: usize) -> usize {
    let align = match version {
        IpVersion::V4 => 4,
        IpVersion::V6 => 8,
    };
    (FIXED_LEN + icv_len).next_multiple_of(align)
}

/// Writes an AH that fills `header`, with a zero ICV and zero padding. Returns `None` if no AH has this length.
pub fn write(header: &mut [u8], next_header: u8, spi: u32, sequence_low: u32) -> Option<()> {
    let words = (header.len() / 4).checked_sub(2)?;
    if header.len() < FIXED_LEN || !header.len().is_multiple_of(4) {
        return None;
    }
    let payload_len = u8::try_from(words).ok()?;
    header.fill(0);
    let fixed = header.first_chunk_mut::<FIXED_LEN>()?;
    fixed[0] = next_header;
    fixed[1] = payload_len;
    fixed[4..8].copy_from_slice(&spi.to_be_bytes());
    fixed[8..12].copy_from_slice(&sequence_low.to_be_bytes());
    Some(())
}

/// The place of a security header in transport mode: behind the headers that routers look at (RFC 4302 §3.1.1,
/// RFC 4303 §3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insertion {
    /// The offset of the new header.
    pub at: usize,
    /// The offset of the field that must name the new header.
    pub next_header_at: usize,
    /// The present value of that field.
    pub next_header: u8,
}

impl Insertion {
    /// Finds the place behind the IPv4 header. In IPv6 it lies behind the hop-by-hop and routing headers, and behind
    /// destination options that stand before a routing header. Returns `None` if the headers are malformed or the
    /// packet is a fragment.
    pub fn find(packet: &[u8]) -> Option<Self> {
        if packet.first()? >> 4 == 4 {
            let at = usize::from(packet.first()? & 0x0f) * 4;
            let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff != 0;
            let sound = at >= IPV4_HEADER_LEN && at <= packet.len() && !fragment;
            return sound.then_some(Self {
                at,
                next_header_at: 9,
                next_header: *packet.get(9)?,
            });
        }
        let mut place = Self {
            at: IPV6_HEADER_LEN,
            next_header_at: 6,
            next_header: *packet.get(6)?,
        };
        let mut found = place;
        for _ in 0..EXTENSION_HEADERS_MAX {
            let kind = place.next_header;
            match kind {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                    let len = 8 + usize::from(*packet.get(place.at + 1)?) * 8;
                    place = Self {
                        at: place.at + len,
                        next_header_at: place.at,
                        next_header: *packet.get(place.at)?,
                    };
                    if kind != DESTINATION_OPTIONS {
                        found = place;
                    }
                }
                FRAGMENT => return None,
                _ => return (found.at <= packet.len()).then_some(found),
            }
        }
        None
    }
}

/// Brings the headers before the AH into the form that the ICV covers (RFC 4302 §3.3.3.1). Mutable fields become zero,
/// and predictable fields take the value that the receiver sees. Appends the former bytes to `saved`; [`restore`] puts
/// them back. Returns the offset of the AH, which is the number of bytes saved.
///
/// Both ends call it: at the receiver the predictable fields already have their values. On an error neither `packet`
/// nor `saved` has changed.
pub fn zero_mutable(packet: &mut [u8], saved: &mut Vec<u8>) -> Result<usize, Malformed> {
    let first = *packet.first().ok_or(Malformed)?;
    let len = match first >> 4 {
        4 => usize::from(first & 0x0f) * 4,
        6 => ah_offset_v6(packet).ok_or(Malformed)?,
        _ => return Err(Malformed),
    };
    let header = packet.get_mut(..len).ok_or(Malformed)?;
    let start = saved.len();
    saved.extend_from_slice(header);
    let done = match first >> 4 {
        4 => zero_v4(header),
        _ => zero_v6(header),
    };
    match done {
        Some(()) => Ok(len),
        None => {
            restore(packet, saved.get(start..).unwrap_or_default());
            saved.truncate(start);
            Err(Malformed)
        }
    }
}

/// Puts the bytes back that [`zero_mutable`] saved.
pub fn restore(packet: &mut [u8], saved: &[u8]) {
    if let Some(header) = packet.get_mut(..saved.len()) {
        header.copy_from_slice(saved);
    }
}

/// Zeroes the mutable fields of `header`, which is the whole IPv4 header (RFC 4302 §3.3.3.1.1).
fn zero_v4(header: &mut [u8]) -> Option<()> {
    let (fixed, mut options) = header.split_first_chunk_mut::<IPV4_HEADER_LEN>()?;
    // AH protects whole packets (RFC 4302 §3.3.4), so a fragment here was not reassembled.
    let fragmented = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0;
    if fixed[9] != PROTOCOL || fragmented {
        return None;
    }
    fixed[1] = 0;
    fixed[6..8].fill(0);
    fixed[8] = 0;
    fixed[10..12].fill(0);
    while let Some(&kind) = options.first() {
        let len = match kind {
            END_OF_OPTIONS => break,
            NO_OPERATION => 1,
            _ => usize::from(*options.get(1)?),
        };
        let (option, rest) = options.split_at_mut_checked(len)?;
        if kind != NO_OPERATION && len < 2 {
            return None;
        }
        if matches!(kind, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE)
            && let Some(last) = final_hop(option)?
        {
            fixed[16..20].copy_from_slice(&last);
        }
        if !IMMUTABLE_OPTIONS.contains(&kind) {
            option.fill(0);
        }
        options = rest;
    }
    Some(())
}

const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;

/// The immutable options (RFC 4302 appendix A1): no operation, security, extended security, commercial security,
/// router alert, and sender directed multi-destination delivery. All other options are zeroed, unknown ones included.
const IMMUTABLE_OPTIONS: [u8; 6] = [NO_OPERATION, 130, 133, 134, 148, 149];

/// Returns the last address of a source route that is not completed. The inner option is none if the route is
/// completed (RFC 791 §3.1).
fn final_hop(option: &[u8]) -> Option<Option<[u8; 4]>> {
    let (&[_, len, pointer], route) = option.split_first_chunk::<3>()?;
    if !route.len().is_multiple_of(4) || pointer < 4 {
        return None;
    }
    Some(route.last_chunk::<4>().copied().filter(|_| pointer <= len))
}

/// Returns the offset at which the extension headers before the AH end.
fn ah_offset_v6(packet: &[u8]) -> Option<usize> {
    let mut at = IPV6_HEADER_LEN;
    let mut next_header = *packet.get(6)?;
    for _ in 0..EXTENSION_HEADERS_MAX {
        match next_header {
            PROTOCOL => return (at <= packet.len()).then_some(at),
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                next_header = *packet.get(at)?;
                at += 8 + usize::from(*packet.get(at + 1)?) * 8;
            }
            // A fragment header ends up here too, for the same reason as in IPv4.
            _ => return None,
        }
        if at > HEADERS_LEN_MAX {
            return None;
        }
    }
    None
}

/// Zeroes the mutable fields of `header`: the fixed IPv6 header and the extension headers before the AH
/// (RFC 4302 §3.3.3.1.2).
fn zero_v6(header: &mut [u8]) -> Option<()> {
    let (fixed, mut rest) = header.split_first_chunk_mut::<IPV6_HEADER_LEN>()?;
    // These bytes hold the traffic class, the flow label and the hop limit.
    fixed[0] = 0x60;
    fixed[1..4].fill(0);
    fixed[7] = 0;
    let mut next_header = fixed[6];
    while !rest.is_empty() {
        let len = 8 + usize::from(*rest.get(1)?) * 8;
        let (extension, behind) = rest.split_at_mut_checked(len)?;
        match next_header {
            HOP_BY_HOP | DESTINATION_OPTIONS => zero_options(extension.get_mut(2..)?)?,
            _ => predict_route(fixed, extension)?,
        }
        next_header = extension[0];
        rest = behind;
    }
    Some(())
}

/// Zeroes the data, not type and length, of options that may change en route. The third highest bit of the type marks
/// them (RFC 4302 §3.3.3.1.2.2).
fn zero_options(mut options: &mut [u8]) -> Option<()> {
    const PAD1: u8 = 0;
    const MAY_CHANGE: u8 = 0x20;
    while let Some(&kind) = options.first() {
        if kind == PAD1 {
            options = options.get_mut(1..)?;
            continue;
        }
        let len = 2 + usize::from(*options.get(1)?);
        let (option, rest) = options.split_at_mut_checked(len)?;
        if kind & MAY_CHANGE != 0 {
            option.get_mut(2..)?.fill(0);
        }
        options = rest;
    }
    Some(())
}

/// Brings a routing header into its form at the last hop (RFC 2460 §4.4; RFC 6275 §6.4 for type 2). There each
/// remaining segment has swapped places with the destination.
fn predict_route(fixed: &mut [u8; IPV6_HEADER_LEN], extension: &mut [u8]) -> Option<()> {
    let (head, addresses) = extension.split_first_chunk_mut::<8>()?;
    let (kind, segments_left) = (head[2], usize::from(head[3]));
    if segments_left == 0 {
        return Some(());
    }
    // The effect of other routing types on the packet is not known here.
    if !matches!(kind, 0 | 2) || !addresses.len().is_multiple_of(16) {
        return None;
    }
    let (addresses, _) = addresses.as_chunks_mut::<16>();
    let first = addresses.len().checked_sub(segments_left)?;
    for hop in &mut addresses[first..] {
        let destination: &mut [u8; 16] = fixed.last_chunk_mut()?;
        std::mem::swap(hop, destination);
    }
    head[3] = 0;
    Some(())
}
