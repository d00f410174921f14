//! Encodes and decodes `struct virtio_net_hdr`. The kernel puts it before every packet of a TUN
//! device that was opened with IFF_VNET_HDR.

/// Length of the header in bytes. Its fields have the byte order of the machine.
pub const HEADER_LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GsoKind {
    TcpV4,
    TcpV6,
    UdpL4,
}

impl GsoKind {
    /// Returns the IANA number of the protocol that is segmented.
    pub fn protocol(self) -> u8 {
        match self {
            Self::TcpV4 | Self::TcpV6 => 6,
            Self::UdpL4 => 17,
        }
    }
}

/// The contents of the header, which describe its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VnetHeader {
    /// The segmentation that the packet still needs, with the payload bytes per segment.
    pub gso: Option<(GsoKind, u16)>,
    /// The place of an unfinished checksum: the start of the checksummed bytes, and the offset of the checksum from
    /// there.
    pub checksum: Option<(u16, u16)>,
    /// Length of all headers in bytes. The kernel takes it as a hint.
    pub header_len: u16,
}

/// The header asks for a kind of segmentation that we never offered to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownGso(pub u8);

impl VnetHeader {
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, UnknownGso> {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        // Ignore the ECN bit. It says that only the first segment carries CWR, and we always write
        // segments so.
        let kind = match bytes[1] & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCPV4 => Some(GsoKind::TcpV4),
            GSO_TCPV6 => Some(GsoKind::TcpV6),
            GSO_UDP_L4 => Some(GsoKind::UdpL4),
            _ => return Err(UnknownGso(bytes[1])),
        };
        Ok(Self {
            gso: kind.map(|kind| (kind, word(4))),
            checksum: (bytes[0] & NEEDS_CSUM != 0).then(|| (word(6), word(8))),
            header_len: word(2),
        })
    }

    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        if let Some((start, offset)) = self.checksum {
            bytes[0] = NEEDS_CSUM;
            bytes[6..8].copy_from_slice(&start.to_ne_bytes());
            bytes[8..10].copy_from_slice(&offset.to_ne_bytes());
        }
        if let Some((kind, size)) = self.gso {
            bytes[1] = match kind {
                GsoKind::TcpV4 => GSO_TCPV4,
                GsoKind::TcpV6 => GSO_TCPV6,
                GsoKind::UdpL4 => GSO_UDP_L4,
            };
            bytes[4..6].copy_from_slice(&size.to_ne_bytes());
        }
        bytes[2..4].copy_from_slice(&self.header_len.to_ne_bytes());
        bytes
    }
}
