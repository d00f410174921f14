//! Strategies for selectors and for flows. Their values come from 64 addresses of each IP version, eight ports and a
//! few protocols, so that random selectors match random flows often.

use std::net::IpAddr;

use proptest::prelude::*;
use proptest::sample::select;

use super::{AddressRange, Flow, NextLayer, PortRange, Selector, TrafficSelector};

const ADDRESSES: u8 = 64;
const PORTS: u16 = 8;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

fn nth_address(v4: bool, n: u8) -> IpAddr {
    match v4 {
        true => IpAddr::V4((0x0a00_0000 | u32::from(n)).into()),
        false => IpAddr::V6((0x2001_0db8 << 96 | u128::from(n)).into()),
    }
}

fn range_of(v4: bool) -> impl Strategy<Value = AddressRange> {
    (0..ADDRESSES, 0..ADDRESSES).prop_map(move |(first, span)| AddressRange {
        first: nth_address(v4, first),
        last: nth_address(v4, first + span),
    })
}

pub fn address_range() -> impl Strategy<Value = AddressRange> {
    any::<bool>().prop_flat_map(range_of)
}

pub fn port_range() -> impl Strategy<Value = PortRange> {
    prop_oneof![
        Just(PortRange::Any),
        Just(PortRange::Opaque),
        (0..PORTS, 0..PORTS).prop_map(|(a, b)| PortRange::Range(a.min(b), a.max(b))),
    ]
}

pub fn traffic_selector() -> impl Strategy<Value = TrafficSelector> {
    (address_range(), select(&[0, TCP, UDP][..]), port_range()).prop_map(
        |(addresses, protocol, ports)| TrafficSelector {
            addresses,
            protocol,
            ports,
        },
    )
}

pub fn selector() -> impl Strategy<Value = Selector> {
    let protocol = prop_oneof![
        Just(NextLayer::Any),
        Just(NextLayer::Opaque),
        select(&[ICMP, TCP, UDP][..]).prop_map(NextLayer::Is),
    ];
    let addresses = any::<bool>().prop_flat_map(|v4| (range_of(v4), range_of(v4)));
    (addresses, protocol, port_range(), port_range()).prop_map(
        |((local, remote), protocol, local_ports, remote_ports)| Selector {
            local,
            remote,
            protocol,
            local_ports,
            remote_ports,
        },
    )
}

/// Gives flows between addresses of one IP version. Ports can be hidden, and over IPv6 the protocol too.
pub fn flow() -> impl Strategy<Value = Flow> {
    let addresses = (any::<bool>(), 0..ADDRESSES, 0..ADDRESSES);
    let protocol = select(&[ICMP, TCP, UDP][..]);
    let ports = proptest::option::of((0..PORTS, 0..PORTS));
    (addresses, protocol, ports, 0..10u8).prop_map(|((v4, local, remote), protocol, ports, n)| {
        let (local, remote) = (nth_address(v4, local), nth_address(v4, remote));
        match n {
            0 if !v4 => Flow {
                protocol: None,
                ..Flow::new(local, remote, protocol, None)
            },
            _ => Flow::new(local, remote, protocol, ports),
        }
    })
}
