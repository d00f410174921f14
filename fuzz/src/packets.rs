//! Fuzzes packets from both sides, and the small parsers around them.

use esplanade::dataplane::mss;
use esplanade_crypto::{JobStatus, KeyContext, Protocol, Transform, cpu};
use esplanade_ipsec::fragment::{Fragment, Pieces, Pushed, Reassembler, ReassemblyLimits};
use esplanade_ipsec::sa::Mode;
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::ah::{self, AhHeader, Insertion};
use esplanade_ipsec::wire::icmp::{self, IcmpProblem};
use esplanade_ipsec::wire::{IpView, esp};
use esplanade_testkit::model;

use crate::esp::common::{self, Tunnel};

/// An IP packet. It is tried unchanged and, if it is IPv4, with a right header checksum. Every parser on the path
/// reads it. The reading of IP headers is compared with that of the reference model.
pub fn ip_packet(data: &[u8]) {
    one_packet(data);
    let header_len = data.first().map_or(0, |first| usize::from(first & 15) * 4);
    if data.first().is_some_and(|first| first >> 4 == 4) && (20..=data.len()).contains(&header_len)
    {
        let mut packet = data.to_vec();
        model::set_checksum(&mut packet);
        one_packet(&packet);
    }
    let _ = esp::parse_trailer(data);
    let _ = AhHeader::parse(data);
}

fn one_packet(data: &[u8]) {
    check_mutable_fields(data);
    let _ = Insertion::find(data).map(|place| assert!(place.at <= data.len()));
    let expected = model::Ip::parse(data);
    let view = IpView::parse(data).ok();
    assert_eq!(view.is_some(), expected.is_some(), "is it a packet?");
    let (Some(view), Some(expected)) = (view, expected) else {
        return;
    };
    assert_eq!(view.source, expected.source);
    assert_eq!(view.destination, expected.destination);
    assert_eq!(view.tos, expected.tos);
    assert_eq!(view.total_len, expected.total_len);
    assert_eq!(view.protocol, expected.protocol);
    assert_eq!(view.upper, expected.upper);
    assert_eq!(view.fragment, expected.fragment);
    assert_eq!(view.ports, expected.ports);

    let _ = icmp::parse_error(data, &view);
    for problem in [IcmpProblem::TooBig { mtu: 1280 }, IcmpProblem::Prohibited] {
        let Some(error) = icmp::error_about(data, &view, problem) else {
            continue;
        };
        let about = IpView::parse(&error).expect("an error message is a packet");
        assert_eq!(about.destination, view.source);
        assert!(
            error.len() <= 1280,
            "an error message of {} bytes",
            error.len()
        );
        assert_eq!(
            icmp::error_about(&error, &about, problem),
            None,
            "an error about an error"
        );
    }
    let mut clamped = data.to_vec();
    mss::clamp(&mut clamped, &view, 1200, false);
    let again = IpView::parse(&clamped).expect("clamping leaves the IP header alone");
    assert_eq!(again, view);
    let _ = Fragment::parse(data, &view);
}

fn check_mutable_fields(data: &[u8]) {
    let (mut packet, mut saved) = (data.to_vec(), vec![7]);
    match ah::zero_mutable(&mut packet, &mut saved) {
        Ok(at) => {
            assert_eq!(saved.len(), 1 + at);
            ah::restore(&mut packet, &saved[1..]);
        }
        Err(_) => assert_eq!(saved, [7]),
    }
    assert_eq!(packet, data, "something was changed for good");
}

/// Byte 0 is an MTU in units of 8 bytes. Packets follow, each behind two bytes of length. A whole packet is cut and
/// reassembled. A fragment goes to a reassembler whose memory is bounded.
pub fn fragments(data: &[u8]) {
    const BYTES: usize = 16 * 1024;
    let limits = ReassemblyLimits {
        bytes: BYTES,
        bytes_per_source: BYTES / 2,
        fragments: 20,
        timeout_ms: 1000,
    };
    let Some((&mtu, mut rest)) = data.split_first() else {
        return;
    };
    let mut reassembler = Reassembler::new(limits);
    let mut now_ms = 0;
    while let Some(packet) = next_packet(&mut rest) {
        now_ms += packet.len() as u64;
        let mut packet = packet.to_vec();
        if packet.len() >= 20 && packet[0] == 0x45 {
            model::complete(&mut packet);
        }
        let Ok(view) = IpView::parse(&packet) else {
            continue;
        };
        match Fragment::parse(&packet, &view) {
            Ok(Some(fragment)) => {
                if let Pushed::Whole(whole) = reassembler.push(&packet, &fragment, now_ms) {
                    assert!(IpView::parse(&whole).is_ok_and(|view| !view.fragment));
                }
            }
            Ok(None) => cut_and_join(&packet, &view, usize::from(mtu) * 8, limits),
            Err(_) => {}
        }
        assert!(
            reassembler.bytes() <= BYTES,
            "{} bytes are held",
            reassembler.bytes()
        );
        reassembler.expire(now_ms);
    }
    reassembler.expire(now_ms + 10_000);
    assert_eq!(reassembler.bytes(), 0, "something is held for ever");
}

fn cut_and_join(packet: &[u8], view: &IpView, mtu: usize, limits: ReassemblyLimits) {
    // The reserved bit "must be zero" (RFC 791 §3.1), and the cut clears it.
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        packet[6] &= 0x7f;
        model::set_checksum(&mut packet);
    }
    let Ok(pieces) = Pieces::new(&packet, view, mtu) else {
        return;
    };
    let mut reassembler = Reassembler::new(limits);
    for index in 0..pieces.count() {
        let mut piece = vec![0; pieces.len(index)];
        pieces
            .write(index, &mut piece)
            .expect("a slot of its length");
        assert!(piece.len() <= mtu);
        let cut = IpView::parse(&piece).expect("a piece is a packet");
        let Ok(Some(fragment)) = Fragment::parse(&piece, &cut) else {
            assert_eq!(piece, packet[..view.total_len], "one piece is the packet");
            return;
        };
        match reassembler.push(&piece, &fragment, 0) {
            Pushed::Whole(whole) => {
                assert_eq!(index + 1, pieces.count());
                assert_eq!(whole, packet[..whole.len()]);
                assert_eq!(whole.len(), view.total_len);
            }
            Pushed::Held => assert!(index + 1 < pieces.count(), "all is there"),
            // The fragments are too many or too small.
            Pushed::Refused(_) => return,
        }
    }
}

/// Takes a packet behind its two bytes of length.
pub(crate) fn next_packet<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&len, packets) = rest.split_first_chunk::<2>()?;
    let len = usize::from(u16::from_be_bytes(len)).min(packets.len());
    let (packet, after) = packets.split_at(len);
    *rest = after;
    Some(packet)
}

/// Every transform. Those for private use come last, so that a byte of an older input names what it named before.
pub fn transforms() -> Vec<Transform> {
    let mut transforms: Vec<Transform> = Transform::all().collect();
    transforms.sort_by_key(|transform| transform.private_use());
    transforms
}

/// Byte 0 chooses the transform (ESP or AH). Byte 1 chooses sequence numbers, mode and the known facts about the
/// outer header. Packets follow, each behind two bytes of length. Each is tried as a whole frame, and as the content
/// of an authentic packet.
pub fn inbound_frames(data: &[u8]) {
    let Some((&[pick, options], mut rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let transforms = transforms();
    let transform = transforms[usize::from(pick) % transforms.len()];
    let transport = options & 2 != 0;
    let mut tunnel = Tunnel::with(transform, options & 1 != 0, |parameters| {
        if transport {
            parameters.mode = Mode::Transport;
        }
    });
    for _ in 0..16 {
        let Some(packet) = next_packet(&mut rest) else {
            break;
        };
        let facts = OuterFacts {
            header_len: u16::from(options >> 2),
            protocol: transform.protocol(),
            ..common::facts()
        };
        let mut hostile = packet.to_vec();
        aim(&mut hostile, &tunnel, &facts);
        push(&mut tunnel, &hostile, &facts);
        let (frame, facts) = authentic(&tunnel, packet);
        let top = tunnel.inbound_sa.replay.top();
        push(&mut tunnel, &frame, &facts);
        assert_eq!(
            tunnel.inbound_sa.replay.top(),
            top + 1,
            "an authentic packet"
        );
    }
}

/// Writes the SPI at its place in the frame.
fn aim(frame: &mut [u8], tunnel: &Tunnel, facts: &OuterFacts) {
    let ah = if facts.protocol == Protocol::Ah { 4 } else { 0 };
    let at = usize::from(facts.header_len) + ah;
    if let Some(spi) = frame.get_mut(at..at + 4) {
        spi.copy_from_slice(&tunnel.inbound_sa.common.spi.to_be_bytes());
    }
}

fn push(tunnel: &mut Tunnel, frame: &[u8], facts: &OuterFacts) {
    for packet in tunnel.open_from(&[frame.to_vec()], facts) {
        assert!(IpView::parse(&packet).is_ok_and(|view| view.total_len == packet.len()));
    }
    common::assert_reconciled(tunnel.inbound.counters());
}

/// Makes an IPv4 packet with ESP or AH around `content`, which ends in a trailer.
fn authentic(tunnel: &Tunnel, content: &[u8]) -> (Vec<u8>, OuterFacts) {
    let sa = &tunnel.inbound_sa;
    let (transform, esn) = (sa.common.transform(), sa.common.esn());
    let key = KeyContext::new(transform, esn, &common::key_material(transform)).expect("good keys");
    let sequence = sa.replay.top() + 1;
    let facts = OuterFacts {
        header_len: 20,
        protocol: transform.protocol(),
        udp_encap: false,
        ..common::facts()
    };
    let mut payload = sa.common.spi.to_be_bytes().to_vec();
    payload.extend((sequence as u32).to_be_bytes());
    payload.resize(8 + transform.iv_len(), 0x1f);
    if transform.protocol() == Protocol::Ah {
        let len = ah::header_len(
            esplanade_ipsec::wire::IpVersion::V4,
            transform.iv_len() + transform.icv_len(),
        );
        payload.resize(len - 4, 0);
        let next_header = content.first().copied().unwrap_or(59);
        payload.splice(0..0, [next_header, (len / 4 - 2) as u8, 0, 0]);
        payload.extend(content.get(1..).unwrap_or_default());
        let mut frame = common::ipv4("198.51.100.2", "192.0.2.1", ah::PROTOCOL, 0, &payload);
        let mut saved = Vec::new();
        let at = ah::zero_mutable(&mut frame, &mut saved).expect("a plain header");
        let icv = at + ah::FIXED_LEN + transform.iv_len();
        assert_eq!(
            cpu::seal_ah(&key, sequence, &mut frame, icv),
            JobStatus::Done
        );
        ah::restore(&mut frame, &saved);
        return (frame, facts);
    }
    payload.extend(content);
    let body = content
        .len()
        .max(2)
        .next_multiple_of(transform.block_align());
    payload.resize(8 + transform.iv_len() + body + transform.icv_len(), 0);
    assert_eq!(cpu::seal(&key, sequence, &mut payload), JobStatus::Done);
    let frame = common::ipv4("198.51.100.2", "192.0.2.1", esp::PROTOCOL, 0, &payload);
    (frame, facts)
}
