//! Compares the mutable fields of AH with scapy's, and tries hostile headers.

use esplanade_ipsec::wire::ah::{self, AhHeader, Insertion};
use esplanade_ipsec::wire::{IpVersion, Malformed};
use esplanade_testkit::vectors;
use proptest::prelude::*;

fn zeroed(packet: &[u8]) -> Result<(Vec<u8>, usize), Malformed> {
    let (mut bytes, mut saved) = (packet.to_vec(), vec![0xaa]);
    let at = ah::zero_mutable(&mut bytes, &mut saved)?;
    assert_eq!(saved.len(), at + 1);
    let mut restored = bytes.clone();
    ah::restore(&mut restored, &saved[1..]);
    assert_eq!(restored, packet, "restore undoes zero_mutable");
    Ok((bytes, at))
}

// RFC 4302 R17, R46
#[test]
fn scapy_sees_the_same_bytes() {
    let file = vectors::primitives("ah-mutable.json");
    assert!(file.cases.len() > 100);
    for case in &file.cases {
        let (seen, at) = zeroed(&case.input).expect(&case.name);
        assert_eq!(seen, case.output, "{}", case.name);
        let header = AhHeader::parse(&seen[at..]).expect(&case.name);
        assert_eq!((header.spi, header.sequence_low), (0x1234, 7));
        assert_eq!((header.next_header, header.header_len), (17, 24));
        // The receiver must find the values that the sender predicted.
        assert_eq!(zeroed(&seen), Ok((seen.clone(), at)), "{}", case.name);
    }
}

fn v4(options: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45 + (options.len() / 4) as u8, 0xb8, 0, 0, 1, 2, 0x40, 0];
    packet.extend([64, 51, 9, 9, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(options);
    packet.extend([17, 4, 0, 0]);
    packet.extend([0; 20]);
    packet
}

/// RFC 4302 §3.3.3.1.1.1: with a source route the destination is mutable but predictable.
// RFC 4302 R17
#[test]
fn a_source_route_predicts_the_destination() {
    for kind in [131, 137] {
        let route = [kind, 11, 4, 10, 0, 0, 3, 10, 0, 0, 4, 0];
        let (seen, at) = zeroed(&v4(&route)).unwrap();
        assert_eq!(at, 32);
        assert_eq!(seen[16..20], [10, 0, 0, 4]);
        assert_eq!(seen[20..32], [0; 12]);
        // At the end of the route, the route holds the routers' addresses and the destination is our address.
        let travelled = [kind, 11, 12, 10, 0, 0, 3, 10, 0, 0, 4, 0];
        assert_eq!(zeroed(&v4(&travelled)).unwrap().0[16..20], [10, 0, 0, 2]);
    }
}

#[test]
fn bad_options_are_refused_and_nothing_changes() {
    let bad: [&[u8]; 7] = [
        &[7, 0, 0, 0],
        &[7, 1, 0, 0],
        &[7, 5, 4, 0],
        &[1, 1, 1, 7],
        &[131, 2, 1, 1],
        &[131, 8, 4, 1, 2, 3, 4, 5],
        &[137, 3, 0, 1],
    ];
    for options in bad {
        let mut packet = v4(options);
        let before = packet.clone();
        let mut saved = vec![1, 2];
        let result = ah::zero_mutable(&mut packet, &mut saved);
        assert_eq!(result, Err(Malformed), "{options:?}");
        assert_eq!((packet, saved), (before, vec![1, 2]), "{options:?}");
    }
}

// RFC 4302 R20
#[test]
fn fragments_and_other_protocols_are_refused() {
    let mut fragment = v4(&[]);
    fragment[6] = 0x20;
    assert_eq!(zeroed(&fragment), Err(Malformed));
    let mut other = v4(&[]);
    other[9] = 50;
    assert_eq!(zeroed(&other), Err(Malformed));
    for cut in 0..20 {
        assert_eq!(zeroed(&v4(&[])[..cut]), Err(Malformed));
    }
}

#[test]
fn an_unknown_routing_header_must_be_at_its_end() {
    let mut packet = vec![0x60, 0, 0, 0, 0, 48, 43, 64];
    packet.extend([0x20; 32]);
    packet.extend([51, 2, 4, 1, 0, 0, 0, 0]);
    packet.extend([0xfd; 16]);
    packet.extend([59, 4, 0, 0]);
    packet.extend([0; 20]);
    assert_eq!(zeroed(&packet), Err(Malformed));
    packet[43] = 0;
    assert_eq!(zeroed(&packet).map(|(_, at)| at), Ok(64));
    // The header has type 0, and more segments left than addresses.
    (packet[42], packet[43]) = (0, 2);
    assert_eq!(zeroed(&packet), Err(Malformed));
    packet[43] = 1;
    assert_eq!(zeroed(&packet).unwrap().0[24..40], [0xfd; 16]);
}

// RFC 4302 R1, R12, R13
#[test]
fn headers_have_the_padded_length() {
    for (version, icv, expected) in [
        (IpVersion::V4, 12, 24),
        (IpVersion::V6, 12, 24),
        (IpVersion::V4, 16, 28),
        (IpVersion::V6, 16, 32),
        (IpVersion::V4, 24, 36),
        (IpVersion::V6, 24, 40),
        (IpVersion::V4, 32, 44),
        (IpVersion::V6, 32, 48),
    ] {
        let len = ah::header_len(version, icv);
        assert_eq!(len, expected);
        let mut bytes = vec![0xff; len];
        ah::write(&mut bytes, 6, 0xc0ffee, 9).unwrap();
        assert!(bytes[12..].iter().all(|byte| *byte == 0));
        let header = AhHeader::parse(&bytes).unwrap();
        assert_eq!((header.next_header, header.header_len), (6, len));
        assert_eq!((header.spi, header.sequence_low), (0xc0ffee, 9));
        assert_eq!(AhHeader::parse(&bytes[..len - 1]), None);
    }
    for len in [0, 4, 8, 11, 13, 26, 1033] {
        assert_eq!(ah::write(&mut vec![0; len], 6, 1, 1), None, "{len}");
    }
    assert_eq!(AhHeader::parse(&[6, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]), None);
}

/// In transport mode AH goes behind the headers that routers read and before those that only the receiver reads.
// RFC 4302 R14; RFC 4301 R77
#[test]
fn insertion_places() {
    let at =
        |packet: &[u8]| Insertion::find(packet).map(|i| (i.at, i.next_header_at, i.next_header));
    assert_eq!(at(&v4(&[1, 1, 1, 1])), Some((24, 9, 51)));
    let v6 = |first: u8, extensions: &[u8]| {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, first, 64];
        packet.extend([0x20; 32]);
        packet.extend(extensions);
        packet
    };
    let hbh = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let routing = |next| [next, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(at(&v6(17, &[])), Some((40, 6, 17)));
    assert_eq!(at(&v6(0, &hbh(17))), Some((48, 40, 17)));
    // Destination options stay behind AH, unless a routing header follows them.
    assert_eq!(at(&v6(60, &hbh(17))), Some((40, 6, 60)));
    let before_routing = [hbh(43), routing(60), hbh(6)].concat();
    assert_eq!(at(&v6(60, &before_routing)), Some((56, 48, 60)));
    assert_eq!(at(&v6(44, &hbh(17))), None);
    assert_eq!(at(&v6(0, &[17, 1])), None);
}

proptest! {
    #[test]
    fn hostile_headers_never_panic(mut packet in prop::collection::vec(any::<u8>(), 0..400), version in 4u8..7, first in prop::sample::select(vec![0u8, 43, 51, 60])) {
        if let Some(byte) = packet.first_mut() {
            *byte = version << 4 | *byte & 0x0f;
        }
        let at = if version == 4 { 9 } else { 6 };
        if let Some(byte) = packet.get_mut(at) {
            *byte = first;
        }
        let _ = zeroed(&packet);
        let _ = AhHeader::parse(&packet);
        if let Some(place) = Insertion::find(&packet) {
            prop_assert!(place.at <= packet.len() && place.next_header_at < place.at);
            prop_assert_eq!(packet[place.next_header_at], place.next_header);
        }
    }
}
