//! A stage of packets in the arena: sorts them into flows by their headers.

use crate::drop_reason::DropReason;
use crate::selector::Flow;
use crate::spd::{FlowCache, FlowKey, Located, Verdict};
use crate::tunnel::OfInner;
use crate::wire::ip::IPV6_HEADER_LEN;
use crate::wire::{IpVersion, IpView};

/// Number of packets that go through the steps together. It is enough for their cache misses to overlap, and small
/// enough for the stage's data to stay in the nearest cache.
pub(super) const PACKETS: usize = 128;

/// The number that stands for no SA. There are never so many SAs.
pub(super) const NO_SA: u32 = u32::MAX;

/// The data of a stage. Its memory is kept for the next stage.
#[derive(Default)]
pub(super) struct OutboundStage {
    pub flows: Vec<Staged>,
    /// The length of each packet, as its header says.
    pub lens: Vec<u32>,
}

/// Consecutive packets of a stage that belong to one flow and get the same outer header.
#[derive(Clone, Copy)]
pub(super) struct Staged {
    pub key: FlowKey,
    pub hash: u64,
    /// The header fields that the outer header takes from the packets.
    pub header: Header,
    pub at: Located,
    pub verdict: Verdict,
    /// The number of the SA, or [`NO_SA`].
    pub sa: u32,
    /// The first packet's index in the stage.
    pub first: u32,
    pub count: u32,
    pub bytes: u32,
}

/// TOS, Don't Fragment, version, flow label, and whether the packet is a fragment, which not every SA takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header(u64);

impl Header {
    const DONT_FRAGMENT: u64 = 1 << 8;
    const FRAGMENT: u64 = 1 << 9;
    const V6: u64 = 1 << 10;
    const LABEL_SHIFT: u32 = 16;

    #[inline(always)]
    pub fn v4(tos: u8, dont_fragment: bool) -> Self {
        let dont_fragment = if dont_fragment {
            Self::DONT_FRAGMENT
        } else {
            0
        };
        Self(u64::from(tos) | dont_fragment)
    }

    pub fn v6(first_word: u32) -> Self {
        let (tos, label) = (first_word >> 20 & 0xff, first_word & 0xf_ffff);
        let fixed = Self::V6 | Self::DONT_FRAGMENT;
        Self(u64::from(tos) | fixed | u64::from(label) << Self::LABEL_SHIFT)
    }

    #[inline(always)]
    pub fn of_fragment(self, fragment: bool) -> Self {
        Self(self.0 | if fragment { Self::FRAGMENT } else { 0 })
    }

    #[inline(always)]
    pub fn version(self) -> IpVersion {
        match self.0 & Self::V6 {
            0 => IpVersion::V4,
            _ => IpVersion::V6,
        }
    }

    #[inline(always)]
    pub fn of_inner(self) -> OfInner {
        OfInner {
            tos: self.0 as u8,
            dont_fragment: self.0 & Self::DONT_FRAGMENT != 0,
            flow_label: (self.0 >> Self::LABEL_SHIFT) as u32,
        }
    }
}

/// The values that a packet's headers contain.
struct ParsedHeaders {
    key: FlowKey,
    header: Header,
    len: u32,
}

/// The first 24 bytes of an IPv4 packet without options: its header and the ports.
#[derive(Clone, Copy)]
struct FirstWords([u64; 3]);

impl FirstWords {
    /// A value that no sound packet has.
    const NONE: Self = Self([0; 3]);
    /// Mask of the fields that packets of one flow share: all but lengths, identifications, TTLs and checksums.
    const COMMON: [u64; 3] = [
        u64::from_le_bytes([255, 255, 0, 0, 0, 0, 255, 255]),
        u64::from_le_bytes([0, 255, 0, 0, 255, 255, 255, 255]),
        u64::MAX,
    ];

    #[inline(always)]
    fn of(packet: &[u8]) -> Option<Self> {
        let first = packet.first_chunk::<24>()?;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&first[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Some(Self([word(0), word(8), word(16)]))
    }

    #[inline(always)]
    fn total_len(&self) -> u32 {
        u32::from(((self.0[0] >> 16) as u16).swap_bytes())
    }

    /// Returns true if these are the first bytes of an IPv4 packet without options. The byte order does not matter to
    /// whether a sum is zero (RFC 1071 §2).
    #[inline(always)]
    fn is_sound(&self, packet_len: usize) -> bool {
        let [a, b, c] = self.0;
        let len = self.total_len();
        let low = |word: u64| word & u64::from(u32::MAX);
        let sum = (a >> 32) + low(a) + (b >> 32) + low(b) + low(c);
        (a & 0xff == 0x45) & (len >= 24) & (len as usize <= packet_len) & sum.is_multiple_of(0xffff)
    }

    /// Returns true if both packets have the same flow and the same outer header. At least one of the packets must be
    /// sound.
    #[inline(always)]
    fn is_like(&self, other: &Self) -> bool {
        let (a, b, [x, y, z]) = (self.0, other.0, Self::COMMON);
        (a[0] ^ b[0]) & x | (a[1] ^ b[1]) & y | (a[2] ^ b[2]) & z == 0
    }

    /// Returns the flow, and the fields that the outer header takes from a sound packet. Returns `None` for later
    /// fragments, and for protocols without ports.
    #[inline(always)]
    fn flow(&self) -> Option<(FlowKey, Header)> {
        let [a, b, c] = self.0;
        let (tos, protocol) = ((a >> 8) as u8, (b >> 8) as u8);
        let flags_and_offset = ((a >> 48) as u16).swap_bytes();
        let ports = ((c >> 32) as u32).swap_bytes();
        if flags_and_offset & 0x1fff != 0 {
            return None;
        }
        let key = FlowKey::plain_ipv4((b >> 32 | c << 32).swap_bytes(), ports, protocol, tos)?;
        let header = Header::v4(tos, flags_and_offset & 0x4000 != 0);
        Some((key, header.of_fragment(flags_and_offset & 0x2000 != 0)))
    }
}

impl ParsedHeaders {
    /// Parses TCP and UDP over IPv6 without extension headers. Returns `None` for all other packets.
    fn plain_ipv6(packet: &[u8]) -> Option<Self> {
        let first = packet.first_chunk::<6>()?;
        let payload_len = u32::from(u16::from_be_bytes([first[4], first[5]]));
        let len = IPV6_HEADER_LEN as u32 + payload_len;
        let word = u32::from_be_bytes([first[0], first[1], first[2], first[3]]);
        let parsed = Self {
            key: FlowKey::from_ipv6(packet)?,
            header: Header::v6(word),
            len,
        };
        (len as usize <= packet.len()).then_some(parsed)
    }

    #[cold]
    fn other(packet: &[u8], interface: u32) -> Option<Self> {
        let view = IpView::parse(packet).ok()?;
        let flow = Flow {
            interface,
            ..view.outbound_flow()
        };
        let first = u32::from_be_bytes(*packet.first_chunk()?);
        let header = match view.version {
            IpVersion::V4 => Header::v4(view.tos, view.dont_fragment),
            IpVersion::V6 => Header::v6(first),
        };
        Some(Self {
            key: FlowKey::from_flow(&flow)?,
            header: header.of_fragment(view.fragment),
            len: view.total_len as u32,
        })
    }
}

impl OutboundStage {
    /// Sorts packets into runs of consecutive packets of one flow. Returns the number of malformed packets.
    #[inline(always)]
    pub fn parse<'a>(
        &mut self,
        packets: impl Iterator<Item = &'a [u8]>,
        cache: &FlowCache,
        interface: u32,
    ) -> u64 {
        self.flows.clear();
        self.lens.clear();
        // The first words of the packet before, if it was plain IPv4.
        let mut last = FirstWords::NONE;
        let mut malformed = 0;
        for packet in packets {
            if let Some(words) = FirstWords::of(packet)
                && words.is_sound(packet.len())
            {
                let len = words.total_len();
                if words.is_like(&last)
                    && let Some(flow) = self.flows.last_mut()
                {
                    flow.add(len);
                    self.lens.push(len);
                    continue;
                }
                if let Some((key, header)) = words.flow() {
                    last = words;
                    self.add(cache, key, header, len);
                    continue;
                }
            }
            last = FirstWords::NONE;
            malformed += u64::from(!self.parse_other(packet, cache, interface));
        }
        malformed
    }

    #[inline(never)]
    fn parse_other(&mut self, packet: &[u8], cache: &FlowCache, interface: u32) -> bool {
        let parsed = ParsedHeaders::plain_ipv6(packet);
        let Some(parsed) = parsed.or_else(|| ParsedHeaders::other(packet, interface)) else {
            self.lens.push(0);
            return false;
        };
        let ParsedHeaders { key, header, len } = parsed;
        let first = self.lens.len() as u32;
        match self.flows.last_mut() {
            Some(flow)
                if flow.key == key && flow.header == header && flow.first + flow.count == first =>
            {
                flow.add(len);
                self.lens.push(len);
            }
            _ => self.add(cache, key, header, len),
        }
        true
    }

    #[inline(always)]
    fn add(&mut self, cache: &FlowCache, key: FlowKey, header: Header, len: u32) {
        let hash = cache.hash(&key);
        self.flows.push(Staged {
            key,
            hash,
            header,
            at: Located::NOWHERE,
            verdict: Verdict::Discard(DropReason::NoPolicy),
            sa: NO_SA,
            first: self.lens.len() as u32,
            count: 1,
            bytes: len,
        });
        self.lens.push(len);
    }
}

impl Staged {
    #[inline(always)]
    fn add(&mut self, len: u32) {
        self.count += 1;
        self.bytes += len;
    }

    /// The indices of the run's packets in the stage, and of `more` packets that follow.
    pub fn range(&self, more: u32) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.count + more) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses a packet as [`OutboundStage::parse`] does.
    fn fast(packet: &[u8]) -> Option<ParsedHeaders> {
        let words = FirstWords::of(packet).filter(|words| words.is_sound(packet.len()));
        let v4 = words.and_then(|words| {
            let (key, header) = words.flow()?;
            Some(ParsedHeaders {
                key,
                header,
                len: words.total_len(),
            })
        });
        v4.or_else(|| ParsedHeaders::plain_ipv6(packet))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn a_quick_look_sees_what_a_slow_one_does(
            mut packet in proptest::collection::vec(any::<u8>(), 20..70),
            version in prop_oneof![Just(0x45u8), Just(0x46), Just(0x60)],
            protocol in prop_oneof![Just(6u8), Just(17), Just(1), Just(44), Just(47)],
            fragment in any::<bool>(),
            cut in 0u16..12,
        ) {
            let len = (packet.len() as u16).saturating_sub(cut);
            packet[0] = version | packet[0] & if version == 0x60 { 0xf } else { 0 };
            if version == 0x60 {
                packet.resize(packet.len().max(40), 0);
                packet[4..6].copy_from_slice(&len.saturating_sub(40).to_be_bytes());
                packet[6] = protocol;
            } else {
                packet[2..4].copy_from_slice(&len.to_be_bytes());
                packet[6..8].copy_from_slice(&u16::from(fragment).to_be_bytes());
                packet[9] = protocol;
                packet[10..12].fill(0);
                let header = usize::from(packet[0] & 0xf) * 4;
                let sum: u32 = packet.get(..header).unwrap_or(&[]).chunks(2)
                    .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
                let folded = (sum & 0xffff) + (sum >> 16);
                let checksum = !((folded & 0xffff) + (folded >> 16)) as u16;
                packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            if let Ok(view) = IpView::parse(&packet) {
                let slow = ParsedHeaders::other(&packet, 0).map(|p| (p.key, p.header, p.len));
                let fast = fast(&packet).map(|p| (p.key, p.header, p.len));
                prop_assert!(fast.is_none() || fast == slow, "{fast:?}, not {slow:?}");
                let plain = matches!(packet[0], 0x45 | 0x60..) && matches!(protocol, 6 | 17);
                let whole = version == 0x60 || !fragment;
                if plain && whole && view.ports.is_some() {
                    prop_assert!(fast.is_some());
                }
            }
        }
    }
}
