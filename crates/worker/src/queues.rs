//! The queues of a TUN device. A worker reads its own queue and writes to all of them.
//!
//! The kernel delivers a flow's packets by the queue to which the reverse flow was last written. So
//! we choose the queue by a hash that is the same in both directions. The flows of one SA then
//! spread over the workers, and each flow stays on one.

use std::sync::Arc;

use esplanade_ipsec::wire::FixedHeader;

use esplanade_host::io::tun::Tun;

/// The queues of a TUN device, as one worker sees them.
#[derive(Debug, Clone)]
pub struct TunQueues {
    all: Arc<[Tun]>,
    own: usize,
}

impl TunQueues {
    /// Returns the queues for each worker, in the order of the workers.
    pub fn for_workers(queues: Vec<Tun>) -> impl Iterator<Item = Self> {
        let all: Arc<[Tun]> = queues.into();
        (0..all.len()).map(move |own| Self {
            all: Arc::clone(&all),
            own,
        })
    }

    /// Returns the queue that this worker reads.
    pub fn own(&self) -> &Tun {
        &self.all[self.own]
    }

    /// Returns the queue to write a packet to, so that the reverse flow arrives by it.
    pub(super) fn of_flow(&self, packet: &[u8]) -> &Tun {
        match self.all.len() {
            0 | 1 => self.own(),
            count => &self.all[part(flow_hash(packet), count)],
        }
    }
}

/// A TUN device, and the policies that are bound to it.
#[derive(Debug)]
pub struct TunInterface {
    /// The interface that the SPD's entries name; 0 is the common device.
    pub id: u32,
    pub tun: TunQueues,
    pub mtu: u16,
}

/// 2^32 divided by the golden ratio. Its multiples spread evenly, even if there are only a few.
const GOLDEN: u32 = 0x9e37_79b9;

/// Hashes a packet's addresses, protocol and ports, equally in both directions. Fragments are
/// hashed without ports, because only the first fragment has them.
fn flow_hash(packet: &[u8]) -> u32 {
    let Some(FlowEnds {
        addresses: [source, destination],
        ports: [from, to],
        protocol,
    }) = ends(packet)
    else {
        return 0;
    };
    let addresses = mix(source).wrapping_add(mix(destination));
    let hosts = (mix(addresses ^ u64::from(protocol)) >> 32) as u32;
    // The flows of one client often have consecutive ports. They should be on different workers.
    let ports = u32::from(from) + u32::from(to);
    hosts.wrapping_add(ports.wrapping_mul(GOLDEN))
}

/// Divides all hashes into `count` equal parts, and returns the part of this hash.
fn part(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}

/// The finalizer of MurmurHash3.
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

/// The fields that identify a flow.
struct FlowEnds {
    /// Digests of source and destination address.
    addresses: [u64; 2],
    /// Source and destination port, or 0 if there are none.
    ports: [u16; 2],
    protocol: u8,
}

fn ends(packet: &[u8]) -> Option<FlowEnds> {
    let ip = FixedHeader::of(packet)?;
    let addresses = ip.addresses(packet);
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    let FixedHeader {
        protocol,
        fragment,
        header_len: upper,
        ..
    } = ip;
    // Behind an extension header, a fragment header included, no ports are read. The numbers are
    // TCP, UDP, DCCP, SCTP and UDP-Lite.
    let has_ports = matches!(protocol, 6 | 17 | 33 | 132 | 136) && !fragment;
    let ports = packet.get(upper..).and_then(<[u8]>::first_chunk::<4>);
    let ports = match ports.filter(|_| has_ports) {
        Some(&[a, b, c, d]) => [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])],
        None => [0; 2],
    };
    Some(FlowEnds {
        addresses: [digest(source)?, digest(destination)?],
        ports,
        protocol,
    })
}

/// Reduces an address to 64 bits.
fn digest(address: &[u8]) -> Option<u64> {
    if let Ok(four) = <[u8; 4]>::try_from(address) {
        return Some(u32::from_be_bytes(four).into());
    }
    let word = u128::from_be_bytes(address.try_into().ok()?);
    Some(mix((word >> 64) as u64) ^ word as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(v4: bool, ends: [(u8, u16); 2], protocol: u8) -> Vec<u8> {
        let mut packet = vec![0; if v4 { 20 } else { 40 }];
        let (at, len) = if v4 { (12, 4) } else { (8, 16) };
        packet[0] = if v4 { 0x45 } else { 0x60 };
        packet[if v4 { 9 } else { 6 }] = protocol;
        for ((host, _), at) in ends.into_iter().zip([at, at + len]) {
            packet[at] = 10;
            packet[at + len - 1] = host;
        }
        packet.extend(ends[0].1.to_be_bytes());
        packet.extend(ends[1].1.to_be_bytes());
        packet
    }

    proptest! {
        #[test]
        fn both_directions_have_the_same_hash(
            v4 in any::<bool>(), a in any::<(u8, u16)>(), b in any::<(u8, u16)>(), protocol in any::<u8>(),
        ) {
            let there = flow_hash(&packet(v4, [a, b], protocol));
            prop_assert_eq!(there, flow_hash(&packet(v4, [b, a], protocol)));
        }

        #[test]
        fn any_bytes_have_one(packet in proptest::collection::vec(any::<u8>(), 0..80)) {
            flow_hash(&packet);
        }
    }

    #[test]
    fn flows_spread_over_any_number_of_queues() {
        for (v4, queues) in [(true, 2), (false, 2), (true, 3), (false, 7)] {
            let mut found = vec![0; queues];
            // Consecutive ports, as the flows of one client to one server have them.
            for port in 40_000..40_000 + 1000 {
                let hash = flow_hash(&packet(v4, [(1, port), (2, 5201)], 6));
                found[part(hash, queues)] += 1;
            }
            assert_even(&found, 1000);
            // Consecutive hosts.
            found.fill(0);
            for host in 0..=255 {
                let hash = flow_hash(&packet(v4, [(host, 5000), (2, 5000)], 17));
                found[part(hash, queues)] += 1;
            }
            assert_even(&found, 256);
        }
    }

    fn assert_even(found: &[usize], all: usize) {
        let even = all / found.len();
        let is_even = |n: &usize| (even * 2 / 3..even * 4 / 3).contains(n);
        assert!(found.iter().all(is_even), "{found:?}");
    }

    #[test]
    fn a_few_flows_are_on_every_queue() {
        // The kernel gives a client consecutive ports, or every second port.
        for (first, step) in (1024..60_000).step_by(997).zip([1, 2].into_iter().cycle()) {
            let ports = (0..8).map(|flow| first + flow * step);
            let hashes = ports.map(|port| flow_hash(&packet(true, [(1, port), (2, 5201)], 6)));
            let of_second = hashes.filter(|hash| part(*hash, 2) == 1).count();
            assert!((2..=6).contains(&of_second), "{first} {step}: {of_second}");
        }
    }

    #[test]
    fn fragments_of_a_datagram_have_the_same_hash() {
        let mut first = packet(true, [(1, 7), (2, 9)], 17);
        let whole = flow_hash(&first);
        first[6] = 0x20;
        let mut later = packet(true, [(1, 0xabcd), (2, 0xef01)], 17);
        later[7] = 0xb9;
        assert_eq!(flow_hash(&first), flow_hash(&later));
        assert_ne!(flow_hash(&first), whole);
        // A packet with DF is not a fragment.
        let mut whole_too = packet(true, [(1, 7), (2, 9)], 17);
        whole_too[6] = 0x40;
        assert_eq!(flow_hash(&whole_too), whole);
    }
}
