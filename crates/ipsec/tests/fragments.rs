//! Compares fragmentation and reassembly with scapy, in any order, and tries hostile fragments.

use esplanade_ipsec::fragment::{
    CutError, Fragment, FragmentKey, FragmentRefusal, Pieces, Pushed, Reassembler,
    ReassemblyLimits, Tracker,
};
use esplanade_ipsec::wire::{IpView, checksum};
use esplanade_testkit::vectors;
use proptest::prelude::*;

/// Splits bytes that hold packets one behind the other.
fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let len = if bytes[0] >> 4 == 4 {
            word(2)
        } else {
            40 + word(4)
        };
        packets.push(bytes[..len].to_vec());
        bytes = &bytes[len..];
    }
    packets
}

fn push(reassembler: &mut Reassembler, packet: &[u8], now_ms: u64) -> Pushed {
    let view = IpView::parse(packet).expect("well-formed");
    let fragment = Fragment::parse(packet, &view).expect("well-formed");
    reassembler.push(packet, &fragment.expect("a fragment"), now_ms)
}

/// Reassembles packets. The reassembler clears DF; scapy's packets have no flags.
fn reassemble(packets: &[Vec<u8>]) -> Vec<u8> {
    let limits = ReassemblyLimits {
        // The smallest MTU of the vectors makes many fragments.
        fragments: 1000,
        ..ReassemblyLimits::default()
    };
    let mut reassembler = Reassembler::new(limits);
    let mut whole = None;
    for packet in packets {
        match push(&mut reassembler, packet, 0) {
            Pushed::Held => {}
            Pushed::Whole(packet) => assert!(whole.replace(packet).is_none()),
            Pushed::Refused(refusal) => panic!("{refusal:?}"),
        }
    }
    assert_eq!(reassembler.bytes(), 0);
    whole.expect("whole")
}

#[test]
fn scapy_fragments_come_together_in_any_order() {
    for case in vectors::primitives("fragments.json").cases {
        let mut packets = split(&case.output);
        if packets.len() == 1 {
            assert_eq!(packets[0], case.input);
            continue;
        }
        assert_eq!(reassemble(&packets), case.input, "{}", case.name);
        packets.reverse();
        assert_eq!(reassemble(&packets), case.input, "{} reversed", case.name);
        packets.rotate_left(1);
        assert_eq!(reassemble(&packets), case.input, "{} rotated", case.name);
    }
}

#[test]
fn cutting_agrees_with_scapy() {
    let mut cut = 0;
    for case in vectors::primitives("fragments.json").cases {
        let view = IpView::parse(&case.input).unwrap();
        let mtu = case.name.split(' ').nth(2).unwrap().parse().unwrap();
        let pieces = match Pieces::new(&case.input, &view, mtu) {
            Ok(pieces) => pieces,
            Err(error) => {
                assert_eq!(error, CutError::NotAllowed);
                assert!(case.name.starts_with("v6"));
                continue;
            }
        };
        let mut bytes = Vec::new();
        for index in 0..pieces.count() {
            let mut piece = vec![0xee; pieces.len(index)];
            pieces.write(index, &mut piece).unwrap();
            assert!(piece.len() <= mtu);
            bytes.extend(piece);
        }
        assert_eq!(pieces.len(pieces.count()), 0);
        assert_eq!(bytes, case.output, "{}", case.name);
        cut += 1;
    }
    assert_eq!(cut, 7);
}

/// The offset of such a fragment would overflow into the flags and make it a first fragment.
#[test]
fn nothing_behind_the_longest_datagram_is_cut() {
    let packet = V4::new(8190 * 8, false, 1400).packet();
    let view = IpView::parse(&packet).unwrap();
    let cut = Pieces::new(&packet, &view, 576);
    assert_eq!(cut.err(), Some(CutError::Impossible));
    let packet = V4::new(65_535 - 20 - 1399, false, 1399).packet();
    let view = IpView::parse(&packet).unwrap();
    assert!(Pieces::new(&packet, &view, 576).is_ok());
}

struct V4 {
    offset: usize,
    more: bool,
    data: Vec<u8>,
    tos: u8,
    protocol: u8,
    source: u8,
    id: u16,
}

impl V4 {
    fn new(offset: usize, more: bool, len: usize) -> Self {
        let (tos, protocol, source, id) = (0, 17, 1, 7);
        let data = (0..len).map(|at| (offset + at) as u8).collect();
        Self {
            offset,
            more,
            data,
            tos,
            protocol,
            source,
            id,
        }
    }

    fn packet(&self) -> Vec<u8> {
        let total = (20 + self.data.len()) as u16;
        let field = (self.offset / 8) as u16 | if self.more { 0x2000 } else { 0 };
        let mut packet = vec![0x45, self.tos];
        packet.extend(total.to_be_bytes());
        packet.extend(self.id.to_be_bytes());
        packet.extend(field.to_be_bytes());
        packet.extend([64, self.protocol, 0, 0, 10, 0, 0, self.source, 10, 9, 9, 9]);
        let sum = checksum::fold(checksum::sum(0, &packet));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(&self.data);
        packet
    }

    fn push(&self, reassembler: &mut Reassembler) -> Pushed {
        push(reassembler, &self.packet(), 0)
    }
}

fn reassembler() -> Reassembler {
    Reassembler::new(ReassemblyLimits::default())
}

/// RFC 5722 §4: the datagram is refused, with all its further fragments.
#[test]
fn an_overlap_refuses_the_datagram_until_it_times_out() {
    let overlapping = [
        V4::new(8, true, 16),
        V4::new(16, true, 8),
        V4::new(0, true, 32),
        V4::new(24, true, 16),
    ];
    for second in overlapping {
        let mut r = reassembler();
        assert_eq!(V4::new(16, true, 16).push(&mut r), Pushed::Held);
        assert_eq!(
            second.push(&mut r),
            Pushed::Refused(FragmentRefusal::Overlap)
        );
        assert_eq!(
            V4::new(32, false, 8).push(&mut r),
            Pushed::Refused(FragmentRefusal::Overlap)
        );
        assert_eq!(
            V4::new(0, true, 16).push(&mut r),
            Pushed::Refused(FragmentRefusal::Overlap)
        );
        let later = V4::new(0, true, 16).packet();
        assert_eq!(push(&mut r, &later, 30_000), Pushed::Held);
    }
}

#[test]
fn contradicting_ends_are_overlaps() {
    let refused = Pushed::Refused(FragmentRefusal::Overlap);
    let mut r = reassembler();
    assert_eq!(V4::new(32, false, 8).push(&mut r), Pushed::Held);
    assert_eq!(V4::new(40, true, 8).push(&mut r), refused);
    let mut r = reassembler();
    assert_eq!(V4::new(32, false, 8).push(&mut r), Pushed::Held);
    assert_eq!(V4::new(16, false, 8).push(&mut r), refused);
    let mut r = reassembler();
    assert_eq!(V4::new(32, true, 8).push(&mut r), Pushed::Held);
    assert_eq!(V4::new(16, false, 8).push(&mut r), refused);
}

/// RFC 8200 §4.5 lets exact duplicates pass, because networks produce them.
#[test]
fn exact_duplicates_are_no_overlap() {
    let mut r = reassembler();
    assert_eq!(V4::new(0, true, 16).push(&mut r), Pushed::Held);
    assert_eq!(V4::new(0, true, 16).push(&mut r), Pushed::Held);
    let held = r.bytes();
    assert_eq!(V4::new(32, false, 5).push(&mut r), Pushed::Held);
    assert_eq!(V4::new(32, false, 5).push(&mut r), Pushed::Held);
    assert!(r.bytes() > held);
    let whole = V4::new(0, false, 37);
    let mut expected = V4::new(0, false, 37).packet();
    assert_eq!(
        V4::new(16, true, 16).push(&mut r),
        Pushed::Whole(std::mem::take(&mut expected))
    );
    assert_eq!(whole.data.len(), 37);
    // Other data in the same place is an attack.
    let mut r = reassembler();
    assert_eq!(V4::new(16, true, 16).push(&mut r), Pushed::Held);
    let mut other = V4::new(16, true, 16);
    other.data[3] ^= 1;
    assert_eq!(
        other.push(&mut r),
        Pushed::Refused(FragmentRefusal::Overlap)
    );
}

// RFC 4301 R51
#[test]
fn impossible_fragments_are_refused() {
    let refused = |fragment: V4| match fragment.push(&mut reassembler()) {
        Pushed::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(V4::new(8, true, 12)), FragmentRefusal::Malformed);
    assert_eq!(refused(V4::new(8, true, 0)), FragmentRefusal::Malformed);
    assert_eq!(refused(V4::new(65_528, false, 8)), FragmentRefusal::TooLong);
    assert_eq!(refused(V4::new(0, true, 0)), FragmentRefusal::Malformed);
    // RFC 1858 and RFC 3128: ports or flags come in a later fragment, or twice.
    let tcp = |offset, len| V4 {
        protocol: 6,
        ..V4::new(offset, true, len)
    };
    assert_eq!(refused(tcp(0, 8)), FragmentRefusal::Tiny);
    assert_eq!(refused(tcp(8, 16)), FragmentRefusal::Tiny);
    assert_eq!(tcp(0, 16).push(&mut reassembler()), Pushed::Held);
}

#[test]
fn ecn_is_combined() {
    let outcome = |first: u8, second: u8| {
        let mut r = reassembler();
        let part = |fragment: V4, tos| V4 { tos, ..fragment };
        assert_eq!(part(V4::new(0, true, 8), first).push(&mut r), Pushed::Held);
        match part(V4::new(8, false, 8), second).push(&mut r) {
            Pushed::Whole(packet) => {
                assert!(IpView::parse(&packet).is_ok());
                Some(packet[1])
            }
            Pushed::Refused(FragmentRefusal::Ecn) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(outcome(0xb8, 0xb8), Some(0xb8));
    assert_eq!(outcome(0xba, 0xbb), Some(0xbb));
    assert_eq!(outcome(0xbb, 0xba), Some(0xbb));
    assert_eq!(outcome(0xb8, 0xbb), None);
}

#[test]
fn memory_is_bounded_per_source_and_in_all() {
    let limits = ReassemblyLimits {
        bytes: 40_000,
        bytes_per_source: 10_000,
        ..ReassemblyLimits::default()
    };
    let mut r = Reassembler::new(limits);
    let mut held = 0;
    for id in 0..100 {
        let fragment = V4 {
            id,
            ..V4::new(8, true, 1000)
        };
        match fragment.push(&mut r) {
            Pushed::Held => held += 1,
            other => assert_eq!(other, Pushed::Refused(FragmentRefusal::Limit)),
        }
    }
    assert!((5..10).contains(&held));
    // Other sources still get through. The oldest datagrams are dropped for them.
    for source in 2..100 {
        let fragment = V4 {
            source,
            ..V4::new(8, true, 1000)
        };
        assert_eq!(fragment.push(&mut r), Pushed::Held);
        assert!(r.bytes() <= limits.bytes);
    }
    assert!(r.expire(29_999) > 50, "given up to make room");
    assert_eq!(r.expire(29_999), 0);
    assert!(r.expire(30_000) > 10);
    assert_eq!(r.bytes(), 0);
}

#[test]
fn too_many_fragments_are_refused() {
    let mut r = reassembler();
    for index in 1..=120 {
        assert_eq!(V4::new(index * 16, true, 8).push(&mut r), Pushed::Held);
    }
    assert_eq!(
        V4::new(16_000, true, 8).push(&mut r),
        Pushed::Refused(FragmentRefusal::Limit)
    );
}

fn v6(field: u16, id: u32, data: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 8 + data.len() as u8, 44, 64];
    packet.extend([0x20; 16]);
    packet.extend([0x21; 16]);
    packet.extend([17, 0]);
    packet.extend(field.to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(data);
    packet
}

/// RFC 6946: an atomic fragment is processed in isolation, whatever other packets have its identification.
#[test]
fn atomic_fragments_stand_alone() {
    let mut r = reassembler();
    assert_eq!(push(&mut r, &v6(1, 9, &[1; 16]), 0), Pushed::Held);
    let Pushed::Whole(whole) = push(&mut r, &v6(0, 9, &[2; 16]), 0) else {
        panic!("atomic");
    };
    assert_eq!((whole.len(), whole[6], whole[5]), (56, 17, 16));
    assert_eq!(whole[40..], [2; 16]);
    assert!(matches!(push(&mut r, &v6(16, 9, &[3; 3]), 0), Pushed::Whole(w) if w.len() == 59));
}

#[test]
fn a_second_fragment_header_is_refused() {
    for field in [0u16, 1, 16] {
        let mut inner = vec![17, 0, 0, 0, 0, 0, 0, 7];
        inner[2..4].copy_from_slice(&field.to_be_bytes());
        inner.extend([5; 16]);
        let mut packet = v6(0, 9, &inner);
        packet[40] = 44;
        let pushed = push(&mut reassembler(), &packet, 0);
        assert_eq!(
            pushed,
            Pushed::Refused(FragmentRefusal::Malformed),
            "{field}"
        );
    }
}

/// RFC 7112: the first fragment must have all headers.
#[test]
fn a_first_fragment_without_ports_is_tiny() {
    let mut packet = v6(1, 9, &[17, 1, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    packet[40] = 60;
    let view = IpView::parse(&packet).unwrap();
    let fragment = Fragment::parse(&packet, &view).unwrap().unwrap();
    assert_eq!(
        reassembler().push(&packet, &fragment, 0),
        Pushed::Refused(FragmentRefusal::Tiny)
    );
}

// RFC 4301 R54
#[test]
fn later_fragments_share_the_verdict_of_the_first() {
    let key = |id| FragmentKey {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 17,
        id,
    };
    let mut tracker = Tracker::new(2, 1000);
    tracker.first(key(1), 'a', 0);
    tracker.first(key(2), 'b', 500);
    assert_eq!(tracker.later(&key(1), 999), Some('a'));
    assert_eq!(tracker.later(&key(1), 1000), None);
    assert_eq!(tracker.later(&key(3), 0), None);
    tracker.first(key(2), 'c', 600);
    tracker.first(key(3), 'd', 600);
    assert_eq!(tracker.len(), 2);
    assert_eq!(tracker.later(&key(1), 600), None);
    assert_eq!(tracker.later(&key(2), 600), Some('c'));
    assert!(!tracker.is_empty());
    tracker.forget(&key(2));
    assert_eq!(tracker.later(&key(2), 600), None);
    tracker.first(key(4), 'e', 600);
    tracker.first(key(2), 'f', 600);
    assert_eq!(tracker.later(&key(3), 600), None, "the oldest gave way");
    assert_eq!(tracker.later(&key(4), 600), Some('e'));
}

proptest! {
    /// Fragments of any cut, in any order and with duplicates, give the packet back.
    #[test]
    fn any_cut_in_any_order(len in 16usize..3000, cuts in prop::collection::vec(1usize..300, 0..12), order in any::<u64>()) {
        let mut edges: Vec<usize> = cuts.iter().map(|cut| cut * 8).filter(|cut| *cut < len).collect();
        edges.extend([0, len]);
        edges.sort_unstable();
        edges.dedup();
        let mut parts: Vec<V4> = edges.windows(2).map(|edge| V4::new(edge[0], edge[1] < len, edge[1] - edge[0])).collect();
        prop_assume!(parts.len() > 1);
        let mut state = order | 1;
        for index in (1..parts.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            parts.swap(index, (state >> 33) as usize % (index + 1));
        }
        let mut r = reassembler();
        let last = parts.len() - 1;
        for (index, part) in parts.iter().enumerate() {
            let pushed = part.push(&mut r);
            if index < last {
                prop_assert_eq!(pushed, Pushed::Held);
                prop_assert_eq!(part.push(&mut r), Pushed::Held);
            } else {
                prop_assert_eq!(pushed, Pushed::Whole(V4::new(0, false, len).packet()));
            }
        }
        prop_assert_eq!(r.bytes(), 0);
    }

    /// A packet that is cut can be reassembled, options included.
    // RFC 4301 R60
    #[test]
    fn cutting_and_reassembling(len in 8usize..4000, mtu in 68usize..1600, options in prop::sample::select(vec![vec![], vec![148, 4, 0, 0], vec![7, 7, 4, 0, 0, 0, 0, 1]])) {
        let mut packet = V4::new(0, false, len).packet();
        packet[0] = 0x45 + (options.len() / 4) as u8;
        let total = (20 + options.len() + len) as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet.splice(20..20, options.iter().copied());
        packet[10..12].fill(0);
        let header_len = 20 + options.len();
        let sum = checksum::fold(checksum::sum(0, &packet[..header_len]));
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let view = IpView::parse(&packet).unwrap();
        let pieces = Pieces::new(&packet, &view, mtu).unwrap();
        let mut fragments = Vec::new();
        for index in 0..pieces.count() {
            let mut piece = vec![0; pieces.len(index)];
            prop_assert!(pieces.write(index, &mut piece).is_some());
            prop_assert!(piece.len() <= mtu);
            fragments.push(piece);
        }
        if fragments.len() == 1 {
            prop_assert_eq!(&fragments[0], &packet);
        } else {
            fragments.reverse();
            prop_assert_eq!(reassemble(&fragments), packet);
        }
    }

    #[test]
    fn hostile_fragments_never_panic_and_stay_in_bounds(packets in prop::collection::vec((any::<u16>(), 0u32..3, prop::collection::vec(any::<u8>(), 0..64), any::<bool>(), 0u64..100_000), 0..60)) {
        let limits = ReassemblyLimits { bytes: 3000, bytes_per_source: 2000, fragments: 5, timeout_ms: 1000 };
        let mut r = Reassembler::new(limits);
        for (field, id, data, is_v4, now_ms) in packets {
            let packet = if is_v4 {
                V4 { id: id as u16, data, ..V4::new(usize::from(field & 0x1fff) * 8, field & 0x2000 != 0, 0) }.packet()
            } else {
                v6(field, id, &data)
            };
            let Ok(view) = IpView::parse(&packet) else { continue };
            if let Ok(Some(fragment)) = Fragment::parse(&packet, &view) {
                r.push(&packet, &fragment, now_ms);
            }
            prop_assert!(r.bytes() <= limits.bytes);
        }
        r.expire(u64::MAX);
        prop_assert_eq!(r.bytes(), 0);
    }
}
