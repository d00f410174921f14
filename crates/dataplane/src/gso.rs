//! Splits one TUN read into complete packets. The read is a super-segment of TCP or UDP, or one
//! packet with an unfinished checksum. Each packet is written once, directly into the place where
//! it will be sealed.

use super::checksum::{copy_and_sum, fold, length_term, sum};
use super::virtio::{GsoKind, VnetHeader};

const TCP: u8 = 6;
const UDP: u8 = 17;
const IPV4_HEADER_MIN: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER_MIN: usize = 20;
const UDP_HEADER: usize = 8;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// The reason why a packet cannot be split. The kernel never sends such a packet; the gateway drops and counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GsoError {
    #[error("the packet is shorter than its headers")]
    Truncated,
    #[error("the checksum lies outside the packet")]
    ChecksumOutside,
    #[error("a super-segment without a checksum to complete")]
    NoChecksum,
    #[error("a super-segment with segments of no bytes")]
    SegmentSize,
    #[error("the segmentation does not fit the packet's protocol")]
    Protocol,
}

/// A TUN read that can be written packet by packet.
#[derive(Debug)]
pub struct GsoSegments<'a> {
    packet: &'a [u8],
    kind: ReadKind,
}

#[derive(Debug)]
enum ReadKind {
    /// A single packet, with the start of the checksummed bytes and the offset of the checksum to complete.
    Whole {
        checksum: Option<(usize, usize)>,
    },
    SuperSegment(SuperSegment),
}

#[derive(Debug)]
struct SuperSegment {
    tcp: bool,
    v4: bool,
    transport: usize,
    /// Length of all headers in bytes. They are repeated before the payload of each segment.
    headers: usize,
    segment: usize,
    count: usize,
    /// Sum over the pseudo-header without its length. It comes from the kernel and not from the IP header. The kernel
    /// takes the final destination of a source route or routing header (RFC 8200 §8.1), and a home address
    /// (RFC 6275 §11.3.1).
    pseudo: u64,
    sequence: u32,
    identification: u16,
}

impl<'a> GsoSegments<'a> {
    pub fn new(header: &VnetHeader, packet: &'a [u8]) -> Result<Self, GsoError> {
        let kind = match header.gso {
            None => ReadKind::Whole {
                checksum: whole_checksum(header, packet)?,
            },
            Some((kind, size)) => {
                ReadKind::SuperSegment(SuperSegment::new(kind, size, header, packet)?)
            }
        };
        Ok(Self { packet, kind })
    }

    /// Returns the number of packets, at least 1.
    pub fn count(&self) -> usize {
        match &self.kind {
            ReadKind::Whole { .. } => 1,
            ReadKind::SuperSegment(split) => split.count,
        }
    }

    /// Returns the length of packet `index` in bytes. All packets except the last have the same
    /// length.
    pub fn len(&self, index: usize) -> usize {
        match &self.kind {
            ReadKind::Whole { .. } => self.packet.len(),
            ReadKind::SuperSegment(split) => {
                split.headers + split.payload(self.packet, index).len()
            }
        }
    }

    /// Writes packet `index` into `out`. The caller guarantees that `index` is less than
    /// [`GsoSegments::count`], and that `out` has [`GsoSegments::len`] bytes.
    pub fn write(&self, index: usize, out: &mut [u8]) {
        debug_assert_eq!(out.len(), self.len(index));
        match &self.kind {
            ReadKind::Whole { checksum: None } => out.copy_from_slice(self.packet),
            ReadKind::Whole {
                checksum: Some((start, field)),
            } => {
                let (before, after) = self.packet.split_at(*start);
                out[..*start].copy_from_slice(before);
                // The checksum field already holds the sum of the pseudo-header.
                let total = copy_and_sum(&mut out[*start..], after);
                let udp = *field == *start + 6;
                out[*field..*field + 2].copy_from_slice(&finish(total, udp).to_ne_bytes());
            }
            ReadKind::SuperSegment(split) => split.write(self.packet, index, out),
        }
    }
}

fn whole_checksum(header: &VnetHeader, packet: &[u8]) -> Result<Option<(usize, usize)>, GsoError> {
    let Some((start, offset)) = header.checksum else {
        return Ok(None);
    };
    let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
    if field + 2 > packet.len() {
        return Err(GsoError::ChecksumOutside);
    }
    Ok(Some((start, field)))
}

/// Returns the checksum for a sum. UDP sends all ones instead of zero, because zero means "no
/// checksum" (RFC 768).
fn finish(sum: u64, udp: bool) -> u16 {
    match !fold(sum) {
        0 if udp => 0xffff,
        checksum => checksum,
    }
}

impl SuperSegment {
    fn new(kind: GsoKind, size: u16, header: &VnetHeader, packet: &[u8]) -> Result<Self, GsoError> {
        let (start, offset) = header.checksum.ok_or(GsoError::NoChecksum)?;
        let transport = usize::from(start);
        if size == 0 {
            return Err(GsoError::SegmentSize);
        }
        let v4 = match (packet.first().map(|byte| byte >> 4), kind) {
            (Some(4), GsoKind::TcpV4 | GsoKind::UdpL4) => true,
            (Some(6), GsoKind::TcpV6 | GsoKind::UdpL4) => false,
            _ => return Err(GsoError::Protocol),
        };
        let tcp = kind != GsoKind::UdpL4;
        let protocol = if v4 {
            let ihl = usize::from(packet[0] & 15) * 4;
            if packet.len() < IPV4_HEADER_MIN || ihl < IPV4_HEADER_MIN || ihl != transport {
                return Err(GsoError::Truncated);
            }
            packet[9]
        } else {
            if packet.len() < IPV6_HEADER || transport < IPV6_HEADER {
                return Err(GsoError::Truncated);
            }
            // With extension headers, the last of them names the protocol. We rely on the kernel
            // for it.
            if transport == IPV6_HEADER {
                packet[6]
            } else {
                expected(tcp)
            }
        };
        let (field, minimum) = if tcp {
            (16, TCP_HEADER_MIN)
        } else {
            (6, UDP_HEADER)
        };
        if protocol != expected(tcp) || usize::from(offset) != field {
            return Err(GsoError::Protocol);
        }
        if packet.len() < transport + minimum {
            return Err(GsoError::Truncated);
        }
        let headers = transport
            + if tcp {
                usize::from(packet[transport + 12] >> 4) * 4
            } else {
                UDP_HEADER
            };
        if headers < transport + minimum || headers >= packet.len() {
            return Err(GsoError::Truncated);
        }
        let segment = usize::from(size);
        if headers + segment > usize::from(u16::MAX) {
            return Err(GsoError::SegmentSize);
        }
        let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let partial =
            u16::from_ne_bytes([packet[transport + field], packet[transport + field + 1]]);
        // As in the kernel's own segmentation: TCP's length comes from the packet, UDP's length
        // from its header.
        let length = match tcp {
            true => packet.len() - transport,
            false => usize::from(word(transport + 4)),
        };
        let sequence = &packet[transport + 4..transport + 8];
        Ok(Self {
            tcp,
            v4,
            transport,
            headers,
            segment,
            count: (packet.len() - headers).div_ceil(segment),
            pseudo: u64::from(partial) + (0xffff - length_term(length)),
            sequence: u32::from_be_bytes([sequence[0], sequence[1], sequence[2], sequence[3]]),
            identification: word(4),
        })
    }

    fn payload<'a>(&self, packet: &'a [u8], index: usize) -> &'a [u8] {
        let start = self.headers + index * self.segment;
        &packet[start..packet.len().min(start + self.segment)]
    }

    fn write(&self, packet: &[u8], index: usize, out: &mut [u8]) {
        let length = out.len();
        let (headers, payload) = out.split_at_mut(self.headers);
        headers.copy_from_slice(&packet[..self.headers]);
        if self.v4 {
            headers[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            headers[4..6]
                .copy_from_slice(&self.identification.wrapping_add(index as u16).to_be_bytes());
            headers[10..12].fill(0);
            let checksum = !fold(sum(&headers[..self.transport]));
            headers[10..12].copy_from_slice(&checksum.to_ne_bytes());
        } else {
            headers[4..6].copy_from_slice(&((length - IPV6_HEADER) as u16).to_be_bytes());
        }
        let transport = &mut headers[self.transport..];
        let field = if self.tcp {
            let sequence = self.sequence.wrapping_add((index * self.segment) as u32);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            if index > 0 {
                transport[13] &= !TCP_CWR;
            }
            if index + 1 < self.count {
                transport[13] &= !(TCP_FIN | TCP_PSH);
            }
            16
        } else {
            transport[4..6].copy_from_slice(&((length - self.transport) as u16).to_be_bytes());
            6
        };
        transport[field..field + 2].fill(0);
        let total = self.pseudo
            + length_term(length - self.transport)
            + sum(transport)
            + copy_and_sum(payload, self.payload(packet, index));
        transport[field..field + 2].copy_from_slice(&finish(total, !self.tcp).to_ne_bytes());
    }
}

fn expected(tcp: bool) -> u8 {
    if tcp { TCP } else { UDP }
}
