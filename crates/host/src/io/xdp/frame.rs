//! Reads and writes the Ethernet frames and IP headers around ESP packets.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use esplanade_ipsec::sa::Path;
use esplanade_ipsec::tunnel::{OuterMeta, write_outer};
use esplanade_ipsec::wire::{IpView, esp};

use esplanade_dataplane::datagram::Outgoing;

pub const ETHERNET_LEN: usize = 14;

/// A hardware address.
pub type MacAddress = [u8; 6];

/// An ESP packet inside a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EspInFrame {
    /// The range of the ESP packet in the frame, without the padding of the frame.
    pub esp: Range<usize>,
    pub source: IpAddr,
    pub tos: u8,
}

/// Finds the ESP packet behind the headers. Returns `None` if a header is malformed, or if the
/// packet is a fragment or no ESP.
pub fn find(frame: &[u8]) -> Option<EspInFrame> {
    let packet = frame.get(ETHERNET_LEN..)?;
    let view = IpView::parse(packet).ok()?;
    let is_esp = view.protocol == esp::PROTOCOL && !view.fragment;
    is_esp.then_some(EspInFrame {
        esp: ETHERNET_LEN + view.upper..ETHERNET_LEN + view.total_len,
        source: view.source,
        tos: view.tos,
    })
}

/// The two hosts of the link between which a frame travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkEnds {
    pub from: MacAddress,
    pub to: MacAddress,
}

/// Returns the length in bytes of the headers before an ESP packet.
pub fn header_len(local: IpAddr) -> usize {
    ETHERNET_LEN + if local.is_ipv4() { 20 } else { 40 }
}

/// Writes the headers into a frame that already contains the ESP packet. Returns false if addresses
/// or lengths do not fit together.
pub fn write_headers(
    ends: &LinkEnds,
    local: IpAddr,
    item: &Outgoing<'_>,
    identification: u16,
    frame: &mut [u8],
) -> bool {
    let Some((ethernet, packet)) = frame.split_at_mut_checked(ETHERNET_LEN) else {
        return false;
    };
    let kind: u16 = if local.is_ipv4() { 0x0800 } else { 0x86dd };
    ethernet[..6].copy_from_slice(&ends.to);
    ethernet[6..12].copy_from_slice(&ends.from);
    ethernet[12..].copy_from_slice(&kind.to_be_bytes());
    let path = Path {
        local: SocketAddr::new(local, 0),
        remote: item.remote,
        udp_encap: false,
    };
    let meta = OuterMeta {
        path: path.into(),
        tos: item.tos,
        dont_fragment: item.df,
        ttl: item.ttl,
        flow_label: 0,
    };
    write_outer(&meta, identification, packet).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: LinkEnds = LinkEnds {
        from: [2, 0, 0, 0, 0, 1],
        to: [2, 0, 0, 0, 0, 2],
    };

    fn frame(local: &str, remote: &str, payload: &[u8]) -> Vec<u8> {
        let local: IpAddr = local.parse().unwrap();
        let item = Outgoing {
            remote: SocketAddr::new(remote.parse().unwrap(), 0),
            tos: 0xb8,
            df: true,
            payload,
            ..Outgoing::NONE
        };
        let mut frame = vec![0; header_len(local)];
        frame.extend_from_slice(payload);
        assert!(write_headers(&ENDS, local, &item, 7, &mut frame));
        frame
    }

    #[test]
    fn what_is_written_is_found() {
        for (local, remote, kind) in [
            ("192.0.2.1", "192.0.2.2", [8, 0]),
            ("2001:db8::1", "2001:db8::2", [0x86, 0xdd]),
        ] {
            let mut frame = frame(local, remote, &[9; 60]);
            assert_eq!(frame[..6], ENDS.to);
            assert_eq!(frame[6..12], ENDS.from);
            assert_eq!(frame[12..14], kind);
            let expected = EspInFrame {
                esp: frame.len() - 60..frame.len(),
                source: local.parse().unwrap(),
                tos: 0xb8,
            };
            assert_eq!(find(&frame).as_ref(), Some(&expected));
            // Short frames are padded.
            frame.resize(200, 0);
            assert_eq!(find(&frame).as_ref(), Some(&expected));
            for len in 0..expected.esp.end {
                assert_eq!(find(&frame[..len]), None, "{len}");
            }
            let protocol = if kind == [8, 0] { 23 } else { 20 };
            frame[protocol] = 17;
            assert_eq!(find(&frame), None);
        }
    }

    #[test]
    fn addresses_of_two_versions_make_no_frame() {
        let item = Outgoing {
            remote: "192.0.2.2:0".parse().unwrap(),
            ..Outgoing::NONE
        };
        let local = "2001:db8::1".parse().unwrap();
        assert!(!write_headers(&ENDS, local, &item, 0, &mut [0; 100]));
        assert!(!write_headers(&ENDS, local, &item, 0, &mut [0; 13]));
    }
}
