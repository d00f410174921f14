//! Compares ICMP errors and MSS clamping with scapy's, and tests path MTUs, classes and audit events.

use std::net::IpAddr;

use esplanade_ipsec::DropReason;
use esplanade_ipsec::audit::AuditKind;
use esplanade_ipsec::pmtu::{
    AGE_MS, Claim, Disbelief, Evidence, GUESS_AGE_MS, MtuSource, PathMtus, V4_MIN,
};
use esplanade_ipsec::wire::icmp::{self, IcmpProblem};
use esplanade_ipsec::wire::{IpView, checksum};
use esplanade_testkit::vectors;
use proptest::prelude::*;

fn about(packet: &[u8], problem: IcmpProblem) -> Option<Vec<u8>> {
    icmp::error_about(packet, &IpView::parse(packet).unwrap(), problem)
}

const TOO_BIG: IcmpProblem = IcmpProblem::TooBig { mtu: 1372 };

// RFC 4301 R30
#[test]
fn icmp_errors_equal_scapys_and_are_read_back() {
    let cases = vectors::primitives("icmp-errors.json").cases;
    assert_eq!(cases.len(), 36);
    for case in cases {
        let problem = match &case.name {
            name if name.contains("too big") => TOO_BIG,
            _ => IcmpProblem::Prohibited,
        };
        let error = about(&case.input, problem).expect(&case.name);
        assert_eq!(error, case.output, "{}", case.name);
        let view = IpView::parse(&error).unwrap();
        let reported = icmp::parse_error(&error, &view).expect(&case.name);
        let mtu = (problem == TOO_BIG).then_some(1372);
        assert_eq!(reported.mtu, mtu, "{}", case.name);
        assert!(case.input.starts_with(reported.about));
        // An error about an error must not be made.
        assert_eq!(icmp::error_about(&error, &view, problem), None);
        let mut damaged = error.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(icmp::parse_error(&damaged, &view), None);
    }
}

fn v4(source: [u8; 4], destination: [u8; 4], protocol: u8, field: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 20 + payload.len() as u8, 0, 0];
    packet.extend(field.to_be_bytes());
    packet.extend([9, protocol, 0, 0]);
    packet.extend(source);
    packet.extend(destination);
    let sum = checksum::fold(checksum::sum(0, &packet));
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// RFC 1122 §3.2.2.
// RFC 4301 R61
#[test]
fn no_error_about_what_must_not_have_one() {
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let told = |packet: &[u8]| about(packet, TOO_BIG).is_some();
    assert!(told(&v4(a, b, 17, 0, &[0; 8])));
    assert!(told(&v4(a, b, 17, 0x2000, &[0; 8])), "a first fragment");
    assert!(!told(&v4(a, b, 17, 0x0001, &[0; 8])), "a later fragment");
    for source in [
        [0; 4],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [255; 4],
        [240, 0, 0, 1],
    ] {
        assert!(!told(&v4(source, b, 17, 0, &[0; 8])), "{source:?}");
        assert!(!told(&v4(a, source, 17, 0, &[0; 8])), "{source:?}");
    }
    for (kind, expected) in [
        (8, true),
        (0, true),
        (13, true),
        (3, false),
        (5, false),
        (11, false),
        (12, false),
        (4, false),
        (99, false),
    ] {
        assert_eq!(
            told(&v4(a, b, 1, 0, &[kind, 0, 0, 0, 0, 0, 0, 0])),
            expected,
            "type {kind}"
        );
    }
    assert!(!told(&v4(a, b, 1, 0, &[])), "ICMP without a type");
    let v6 = |source: u8, destination: u8, kind: u8| {
        let mut packet = vec![0x60, 0, 0, 0, 0, 8, 58, 9];
        packet.extend([source; 16]);
        packet.extend([destination; 16]);
        packet.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
        packet
    };
    assert!(told(&v6(0x20, 0x21, 128)));
    for (source, destination, kind) in [
        (0x20, 0xff, 128),
        (0xff, 0x21, 128),
        (0, 0x21, 128),
        (0x20, 0x21, 1),
        (0x20, 0x21, 127),
        (0x20, 0x21, 137),
    ] {
        assert!(
            !told(&v6(source, destination, kind)),
            "{source:x} {destination:x} {kind}"
        );
    }
}

const PEER: [u8; 4] = [192, 0, 2, 1];

// RFC 4301 R45
#[test]
fn a_path_is_learned_only_from_errors_about_our_packets() {
    let paths = PathMtus::default();
    let peer = IpAddr::from(PEER);
    let quoted = |spi, sequence_low| Evidence::Quoted { spi, sequence_low };
    assert_eq!(
        paths.learn(peer, 1400, quoted(7, 1), 0),
        Err(Disbelief::NotOurs)
    );
    for last in [4_999_990, 5_000_000] {
        paths.sent(peer, 7, last, 0);
    }
    for (spi, sequence) in [(8, 5_000_000), (7, 1), (7, 4_999_000), (7, 5_002_000)] {
        assert_eq!(
            paths.learn(peer, 1400, quoted(spi, sequence), 0),
            Err(Disbelief::NotOurs)
        );
    }
    let elsewhere = IpAddr::from([192, 0, 2, 2]);
    assert_eq!(
        paths.learn(elsewhere, 1400, quoted(7, 5_000_000), 0),
        Err(Disbelief::NotOurs)
    );
    assert_eq!(paths.mtu(peer, 0), None);
    assert_eq!(paths.learn(peer, 1400, quoted(7, 4_999_940), 10), Ok(1400));
    assert_eq!(paths.mtu(peer, 10), Some(1400));
    assert_eq!(paths.mtu(elsewhere, 10), None);
    // A path MTU does not rise again, but it can fall further.
    assert_eq!(
        paths.learn(peer, 1500, quoted(7, 5_000_000), 20),
        Err(Disbelief::NothingNew)
    );
    assert_eq!(paths.learn(peer, 1300, Evidence::Local, 20), Ok(1300));
    assert_eq!(paths.mtu(peer, 20), Some(1300));
}

/// A sequence number near the wrap is as good as any other.
#[test]
fn sequence_numbers_wrap() {
    let paths = PathMtus::default();
    let peer = IpAddr::from(PEER);
    paths.sent(peer, 7, u32::MAX - 10, 0);
    paths.sent(peer, 7, 3, 0);
    let evidence = Evidence::Quoted {
        spi: 7,
        sequence_low: u32::MAX - 5,
    };
    assert_eq!(paths.learn(peer, 1400, evidence, 0), Ok(1400));
}

/// An error arrives a round trip later. It then quotes a packet of these seconds, whether three or millions were
/// sent.
// RFC 4301 R45
#[test]
fn errors_count_about_what_was_sent_in_the_last_seconds() {
    let paths = PathMtus::default();
    let (slow, fast): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let learn = |peer, spi, sequence_low, mtu, now_ms| {
        let evidence = Evidence::Quoted { spi, sequence_low };
        paths.learn(peer, mtu, evidence, now_ms)
    };
    paths.sent(slow, 7, 1000, 0);
    for second in 1..20 {
        paths.sent(slow, 7, 1000 + second, u64::from(second) * 1000);
        for run in 0..1000 {
            let last = (second * 1000 + run) * 64;
            paths.sent(fast, 9, last, u64::from(second) * 1000 + u64::from(run));
        }
    }
    let now_ms = 20_000;
    assert_eq!(learn(slow, 7, 1004, 1400, now_ms), Err(Disbelief::NotOurs));
    assert_eq!(learn(slow, 7, 1018, 1400, now_ms), Ok(1400));
    assert_eq!(
        learn(fast, 9, 5 * 64_000, 1400, now_ms),
        Err(Disbelief::NotOurs)
    );
    assert_eq!(learn(fast, 9, 18 * 64_000, 1400, now_ms), Ok(1400));
    // No packet was sent for a long time.
    assert_eq!(learn(slow, 7, 1019, 1300, 60_000), Err(Disbelief::NotOurs));
    paths.sent(slow, 7, 1020, 60_000);
    assert_eq!(learn(slow, 7, 1018, 1300, 60_000), Err(Disbelief::NotOurs));
    assert_eq!(learn(slow, 7, 1020, 1300, 60_000), Ok(1300));
}

/// An attacker knows only the gateways' addresses.
#[test]
fn guesses_at_an_spi_are_few_a_second() {
    let paths = PathMtus::default();
    let peer = IpAddr::from(PEER);
    let others = [2, 3, 4, 5].map(|last| IpAddr::from([192, 0, 2, last]));
    for remote in others.into_iter().chain([peer]) {
        paths.sent(remote, 7, 1, 0);
    }
    let learn = |remote, spi, now_ms| {
        let sequence_low = 1;
        paths.learn(remote, 600, Evidence::Quoted { spi, sequence_low }, now_ms)
    };
    let guesses: Vec<_> = (1000..42_000).map(|spi| learn(peer, spi, 999)).collect();
    let looked_at = guesses
        .iter()
        .filter(|guess| **guess == Err(Disbelief::NotOurs));
    assert_eq!(looked_at.count(), 32);
    assert_eq!(learn(peer, 7, 999), Err(Disbelief::Guessing));
    assert_eq!(paths.mtu(peer, 999), None);
    // Other paths stay usable, and so does this path in the next second. One in a thousand shares the path's counter.
    let usable = others
        .into_iter()
        .filter(|other| learn(*other, 7, 999) == Ok(600));
    assert!(usable.count() >= 3);
    assert_eq!(learn(peer, 7, 1000), Ok(600));
}

// RFC 4301 R46
#[test]
fn no_path_is_narrower_than_its_floor() {
    let v6 = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
    let paths = PathMtus::default();
    assert_eq!(paths.learn(v6, 68, Evidence::Local, 0), Ok(1280));
    assert_eq!(
        paths.learn(PEER.into(), 68, Evidence::AddressOnly, 0),
        Ok(1280)
    );
    assert_eq!(paths.learn(PEER.into(), 0, Evidence::Local, 0), Ok(576));
    assert_eq!(
        paths.learn([192, 0, 2, 9].into(), u32::MAX, Evidence::Local, 0),
        Ok(65_535)
    );
}

/// RFC 1191 §6.3: after ten minutes larger packets are tried again. The same claim does not prolong the time.
// RFC 4301 R63, R64
#[test]
fn paths_age() {
    let paths = PathMtus::default();
    let peer = PEER.into();
    assert_eq!(paths.learn(peer, 1400, Evidence::Local, 1000), Ok(1400));
    assert_eq!(
        paths.learn(peer, 1400, Evidence::Local, 2000),
        Err(Disbelief::NothingNew)
    );
    assert_eq!(paths.mtu(peer, 1000 + AGE_MS - 1), Some(1400));
    assert_eq!(paths.mtu(peer, 1000 + AGE_MS), None);
    assert_eq!(
        paths.learn(peer, 1450, Evidence::Local, 1000 + AGE_MS),
        Ok(1450)
    );
}

/// RFC 8899 §4.6.1: neither of the two sources raises what the other says.
#[test]
fn the_lower_one_of_error_and_probes_counts() {
    let paths = PathMtus::default();
    let peer = PEER.into();
    assert_eq!(paths.set_probed(peer, Some((1400, 5000)), 0), Ok(()));
    assert_eq!(paths.known(peer, 0), Some((1400, MtuSource::Probed)));
    assert_eq!(paths.told(peer, 0), None);
    assert_eq!(paths.learn(peer, 1450, Evidence::Local, 0), Ok(1450));
    assert_eq!(paths.known(peer, 0), Some((1400, MtuSource::Probed)));
    assert_eq!(paths.told(peer, 0), Some(1450));
    assert_eq!(paths.learn(peer, 1300, Evidence::Local, 0), Ok(1300));
    assert_eq!(paths.known(peer, 0), Some((1300, MtuSource::Told)));
    assert_eq!(paths.set_probed(peer, None, 0), Ok(()));
    assert_eq!(paths.mtu(peer, 0), Some(1300));
    assert_eq!(paths.set_probed(peer, Some((1280, 5000)), 0), Ok(()));
    assert_eq!(paths.mtu(peer, 4999), Some(1280));
    assert_eq!(paths.mtu(peer, 5000), Some(1300));
    // Both have ended.
    assert_eq!(paths.mtu(peer, AGE_MS), None);
    assert_eq!(paths.set_probed(peer, Some((100, 5000)), 0), Ok(()));
    assert_eq!(paths.mtu(peer, 0), Some(V4_MIN));
}

#[test]
fn what_probes_find_is_bounded_too() {
    let paths = PathMtus::new(2);
    let found = |last: u8, found| paths.set_probed(IpAddr::from([192, 0, 2, last]), found, 0);
    let narrow = Some((1400, AGE_MS));
    assert_eq!(found(1, narrow), Ok(()));
    assert_eq!(found(2, narrow), Ok(()));
    assert_eq!(found(3, narrow), Err(Disbelief::Full));
    assert_eq!(found(1, None), Ok(()));
    assert_eq!(found(3, narrow), Ok(()));
}

/// A router that drops a probe says so about a message of IKE.
#[test]
fn errors_about_probes_are_believed() {
    let peer = IpAddr::from(PEER);
    let spis = [0x5a; 16];
    let marked = [&[0; 4][..], &spis].concat();
    for (port, payload) in [(500_u16, &spis[..]), (4500, &marked)] {
        let [high, low] = port.to_be_bytes();
        let udp = [&[high, low, 1, 244, 0, 0, 0, 0][..], &payload[..8]].concat();
        let claim = claim(4, 17, 1400, true, &udp).expect("it is about our port");
        let paths = PathMtus::default();
        let learn = |now_ms| paths.learn(peer, claim.mtu, claim.evidence, now_ms);
        assert_eq!(learn(0), Err(Disbelief::NotOurs));
        paths.sent_ike(peer, payload, 0);
        assert_eq!(learn(100), Ok(1400));
    }
}

/// An error that quotes nothing secret may come from anybody.
#[test]
fn guesses_age_soon() {
    let paths = PathMtus::default();
    assert_eq!(
        paths.learn(PEER.into(), 1300, Evidence::AddressOnly, 0),
        Ok(1300)
    );
    assert_eq!(paths.mtu(PEER.into(), GUESS_AGE_MS - 1), Some(1300));
    assert_eq!(paths.mtu(PEER.into(), GUESS_AGE_MS), None);
}

#[test]
fn the_number_of_paths_is_bounded() {
    let paths = PathMtus::new(100);
    let learn =
        |n: u32, now_ms| paths.learn(IpAddr::from(n.to_be_bytes()), 1400, Evidence::Local, now_ms);
    for n in 0..100 {
        assert_eq!(learn(n, 0), Ok(1400));
    }
    assert_eq!(learn(100, 0), Err(Disbelief::Full));
    assert_eq!(learn(100, AGE_MS), Ok(1400));
}

/// Anybody who knows our address can invent such errors, for any peer.
#[test]
fn guesses_leave_room_for_what_is_known() {
    let paths = PathMtus::new(100);
    let learn = |n: u32, evidence| paths.learn(IpAddr::from(n.to_be_bytes()), 1400, evidence, 0);
    let guessed = (0..1000).filter(|n| learn(*n, Evidence::AddressOnly).is_ok());
    assert_eq!(guessed.count(), 50);
    for n in 1000..1050 {
        assert_eq!(learn(n, Evidence::Local), Ok(1400));
    }
}

/// The claim of an error that quotes an IP header and `payload`.
fn claim(version: u8, protocol: u8, mtu: u32, df: bool, payload: &[u8]) -> Option<Claim> {
    let mut about = if version == 4 {
        let mut header = v4(
            [192, 0, 2, 9],
            PEER,
            protocol,
            if df { 0x4000 } else { 0 },
            &[],
        );
        header[2..4].copy_from_slice(&1500u16.to_be_bytes());
        header
    } else {
        let mut header = vec![0x60, 0, 0, 0, 5, 180, protocol, 64];
        header.extend([0x20; 16]);
        header.extend([0x21; 16]);
        header
    };
    about.extend(payload);
    let reported = icmp::Reported {
        kind: 3,
        code: 4,
        mtu: Some(mtu),
        about: &about,
    };
    Claim::read(&reported, &[500, 4500])
}

#[test]
fn claims_are_read_from_the_quoted_packet() {
    let esp = [0, 0, 0, 7, 0, 0, 0, 9, 1, 2, 3, 4];
    let quoted = Evidence::Quoted {
        spi: 7,
        sequence_low: 9,
    };
    let evidence = |claim: Option<Claim>| claim.map(|claim| claim.evidence);
    let expected = Claim {
        remote: PEER.into(),
        mtu: 1400,
        evidence: quoted,
    };
    assert_eq!(claim(4, 50, 1400, true, &esp), Some(expected));
    assert_eq!(evidence(claim(6, 50, 1400, true, &esp)), Some(quoted));
    let ah = [6, 4, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9];
    assert_eq!(evidence(claim(4, 51, 1400, true, &ah)), Some(quoted));
    assert_eq!(
        evidence(claim(4, 51, 1400, true, &ah[..8])),
        Some(Evidence::AddressOnly)
    );
    let udp = [&[0x11, 0x94, 0x11, 0x94, 0, 0, 0, 0][..], &esp].concat();
    assert_eq!(evidence(claim(4, 17, 1400, true, &udp)), Some(quoted));
    assert_eq!(
        evidence(claim(4, 17, 1400, true, &udp[..8])),
        Some(Evidence::AddressOnly)
    );
    // The errors quote another port of ours, another protocol, or a packet that may be fragmented.
    assert_eq!(claim(4, 17, 1400, true, &[0; 20]), None);
    assert_eq!(claim(4, 6, 1400, true, &[0; 20]), None);
    assert_eq!(claim(4, 50, 1400, false, &esp), None);
    // RFC 1191 §5: the router does not state an MTU. The packet had 1500 bytes.
    assert_eq!(
        claim(4, 50, 0, true, &esp).map(|claim| claim.mtu),
        Some(1492)
    );
}

proptest! {
    #[test]
    fn hostile_packets_never_panic(mut packet in prop::collection::vec(any::<u8>(), 20..200), v6: bool, protocol in prop::sample::select(vec![1u8, 6, 58, 44, 0, 60])) {
        let len = packet.len();
        if v6 {
            packet[0] = 0x60;
            packet[4..6].copy_from_slice(&(len.saturating_sub(40) as u16).to_be_bytes());
            packet[6] = protocol;
        } else {
            packet[0] = 0x40 | packet[0] & 7;
            packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            packet[9] = protocol;
            packet[10..12].fill(0);
            let header_len = (usize::from(packet[0] & 15) * 4).min(len);
            let sum = checksum::fold(checksum::sum(0, &packet[..header_len]));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        if let Ok(view) = IpView::parse(&packet) {
            let _ = icmp::parse_error(&packet, &view);
            if let Some(error) = icmp::error_about(&packet, &view, TOO_BIG) {
                prop_assert!(IpView::parse(&error).is_ok());
                prop_assert!(error.len() <= 1280);
            }
        }
    }
}

/// RFC 4303 §4 and the sections that say "auditable event".
// RFC 4301 R31, R32, R42, R66, R117; RFC 4302 R16, R21, R23, R32, R34, R35; RFC 4303 R26, R28, R29, R31, R40, R48, R50, R67
#[test]
fn drops_that_the_rfcs_audit_have_an_event() {
    let event_of = |reason| match reason {
        DropReason::NoPolicy => Some(AuditKind::NoPolicy),
        DropReason::PolicyDiscard => Some(AuditKind::Discard),
        DropReason::NoSa | DropReason::OutsideSaSelectors => Some(AuditKind::NoOutboundSa),
        DropReason::SequenceExhausted => Some(AuditKind::SequenceOverflow),
        DropReason::Fragment => Some(AuditKind::Fragment),
        DropReason::UnknownSpi => Some(AuditKind::NoSa),
        DropReason::Replayed | DropReason::BeforeWindow => Some(AuditKind::Replay),
        DropReason::AuthenticationFailed => Some(AuditKind::IntegrityFailed),
        DropReason::MalformedEsp | DropReason::BadPadding | DropReason::BadNextHeader => {
            Some(AuditKind::Malformed)
        }
        DropReason::SelectorMismatch => Some(AuditKind::SelectorMismatch),
        DropReason::MalformedIcmpError | DropReason::IcmpErrorMismatch => {
            Some(AuditKind::IcmpError)
        }
        DropReason::UnknownFragment | DropReason::FragmentRefused => {
            Some(AuditKind::RefusedFragment)
        }
        DropReason::NotProtected => Some(AuditKind::NotProtected),
        _ => None,
    };
    let mut audited = Vec::new();
    for reason in DropReason::ALL {
        assert_eq!(AuditKind::of(*reason), event_of(*reason), "{reason}");
        audited.extend(event_of(*reason));
    }
    for kind in AuditKind::ALL {
        assert!(audited.contains(&kind), "{}", kind.name());
    }
}
