//! Whole packets, with their outer headers, through both walks.

use std::net::SocketAddr;

use esplanade_crypto::Protocol;
use esplanade_ipsec::sa::Path;
use esplanade_ipsec::tunnel::OuterFacts;
use esplanade_ipsec::wire::{IpView, ip};

use super::{Tunnel, address, assert_reconciled};

pub fn ends(version: u8, udp_encap: bool) -> Path {
    let (local, remote) = match version {
        4 => ("10.1.0.7", "10.2.0.9"),
        _ => ("2001:db8:1::7", "2001:db8:2::9"),
    };
    Path {
        local: SocketAddr::new(address(local), 4500),
        remote: SocketAddr::new(address(remote), 4500),
        udp_encap,
    }
}

/// Seals packets and gives them as they go onto the wire.
pub fn frames(tunnel: &mut Tunnel, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    for packet in packets {
        let _ = tunnel.outbound.push(&tunnel.spd, packet).expect("room");
    }
    flush(tunnel)
}

pub fn flush(tunnel: &mut Tunnel) -> Vec<Vec<u8>> {
    let (mut sent, mut identification) = (Vec::new(), 0);
    while tunnel.outbound.waiting() > 0 {
        let engine = &mut tunnel.seal_engine;
        tunnel.outbound.submit(engine).expect("it takes all");
        while let Some(mut sealed) = tunnel.outbound.poll(engine, &tunnel.spd) {
            let failed = sealed.for_each_frame(&mut identification, |f| sent.push(f.to_vec()));
            assert_eq!(failed, 0);
            tunnel.outbound.recycle(sealed);
        }
    }
    assert_reconciled(tunnel.outbound.counters());
    sent
}

/// Where ESP or AH begins, and what a back end that sees the whole packet knows.
pub fn facts_of(frame: &[u8]) -> OuterFacts {
    let view = IpView::parse(frame).expect("a well-formed outer packet");
    let udp = view.protocol == ip::PROTOCOL_UDP;
    let (protocol, udp_len) = match view.protocol {
        51 => (Protocol::Ah, 0),
        50 => (Protocol::Esp, 0),
        17 => (Protocol::Esp, 8),
        other => panic!("protocol {other} is no IPsec"),
    };
    let port = if udp { 4500 } else { 0 };
    OuterFacts {
        header_len: (view.upper + udp_len) as u16,
        protocol,
        ..OuterFacts::new(SocketAddr::new(view.source, port), udp, view.tos)
    }
}

pub fn open(tunnel: &mut Tunnel, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut opened = Vec::new();
    for frame in frames {
        opened.extend(tunnel.open_from(std::slice::from_ref(frame), &facts_of(frame)));
    }
    assert_reconciled(tunnel.inbound.counters());
    opened
}
