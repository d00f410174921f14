//! Tests what a virtio header may ask for.

use crate::virtio::GsoKind;

use super::*;

/// Makes an IPv4 packet without options, with `payload`.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet.extend([10, 1, 0, 7, 10, 2, 0, 9]);
    let len = (packet.len() + payload.len()) as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    let checksum = !crate::checksum::fold(crate::checksum::sum(&packet));
    packet[10..12].copy_from_slice(&checksum.to_ne_bytes());
    packet.extend(payload);
    packet
}

fn accepts(packet: &[u8], checksum: Option<(u16, u16)>, gso: Option<(GsoKind, u16)>) -> bool {
    let header = VnetHeader {
        gso,
        checksum,
        header_len: 0,
    };
    stays_behind_ports(&header, &IpView::parse(packet).unwrap())
}

#[test]
fn no_checksum_is_written_over_what_the_policy_decided_on() {
    let udp = ipv4(17, &[0; 40]);
    assert!(accepts(&udp, None, None));
    assert!(accepts(&udp, Some((20, 6)), None));
    assert!(
        accepts(&udp, Some((40, 16)), None),
        "a packet inside the packet"
    );
    for addresses_or_ports in [
        (0, 12),
        (0, 16),
        (12, 6),
        (16, 8),
        (20, 0),
        (20, 2),
        (20, 3),
    ] {
        assert!(!accepts(&udp, Some(addresses_or_ports), None));
    }
}

#[test]
fn only_the_protocol_that_the_policy_saw_is_segmented() {
    let tcp = ipv4(6, &[0; 60]);
    assert!(accepts(&tcp, Some((20, 16)), Some((GsoKind::TcpV4, 8))));
    assert!(!accepts(&tcp, Some((24, 16)), Some((GsoKind::TcpV4, 8))));
    assert!(!accepts(&tcp, Some((20, 6)), Some((GsoKind::UdpL4, 8))));
    assert!(!accepts(&tcp, None, Some((GsoKind::TcpV4, 8))));
}

#[test]
fn the_df_policy_is_for_the_headers_of_tunnels() {
    let mut view = IpView::parse(&ipv4(17, &[0; 8])).unwrap();
    for df in [false, true] {
        view.dont_fragment = df;
        for outer in [IpVersion::V4, IpVersion::V6] {
            let whole = |mode, policy| leaves_whole(mode, policy, outer, &view);
            for policy in [DfPolicy::Copy, DfPolicy::Set, DfPolicy::Clear] {
                assert_eq!(whole(Mode::Transport, policy), df);
            }
            let cut_before = df || outer == IpVersion::V6;
            assert_eq!(whole(Mode::Tunnel, DfPolicy::Copy), cut_before);
            assert!(whole(Mode::Tunnel, DfPolicy::Set));
            assert!(!whole(Mode::Tunnel, DfPolicy::Clear));
        }
    }
}
