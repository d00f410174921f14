//! Policies and packets in words.

use std::net::IpAddr;

use esplanade_ipsec::selector::{AddressRange, Flow, NextLayer, PortRange, Selector};
use esplanade_ipsec::spd::{Action, SpdEntry};

use super::explanation::{Comparison, DifferingField};
use super::packet::protocol_name;

pub fn word(action: &Action) -> &'static str {
    match action {
        Action::Protect(_) => "protect",
        Action::Bypass => "bypass",
        Action::Discard => "discard",
    }
}

pub fn why(entry: &SpdEntry, comparison: &Comparison, flow: &Flow, later: bool) -> String {
    let selector = |at: usize| entry.selectors.as_slice().get(at);
    let (field, selector) = match comparison {
        Comparison::Matches(at) => {
            let what = selector(*at).map(describe).unwrap_or_default();
            let too = if later { " too, but comes later" } else { "" };
            return format!("matches{too}: {what}");
        }
        Comparison::Differs(field, at) => (*field, at.and_then(selector)),
    };
    let Some(selector) = selector else {
        return match field {
            DifferingField::Interface => "is for another interface".into(),
            DifferingField::Direction => "is for the other direction".into(),
            _ => "has no selectors".into(),
        };
    };
    let port = |port: Option<u16>, range: &PortRange| match port {
        None => format!("ports cannot be seen, and it is for {}", ports(range)),
        Some(port) if is_icmp(flow) => {
            let [message_type, code] = port.to_be_bytes();
            format!("type {message_type} code {code} is not {}", icmp(range))
        }
        Some(port) => format!("port {port} is not {}", ports(range)),
    };
    match field {
        DifferingField::Remote => format!(
            "remote address {} is not in {}",
            flow.remote,
            addresses(&selector.remote)
        ),
        DifferingField::Local => format!(
            "local address {} is not in {}",
            flow.local,
            addresses(&selector.local)
        ),
        DifferingField::Protocol => format!(
            "{} is not {}",
            protocol(flow.protocol),
            next_layer(selector)
        ),
        DifferingField::RemotePort => format!(
            "remote {}",
            port(flow.ports.map(|p| p.1), &selector.remote_ports)
        ),
        DifferingField::LocalPort => format!(
            "local {}",
            port(flow.ports.map(|p| p.0), &selector.local_ports)
        ),
        DifferingField::Interface | DifferingField::Direction => String::new(),
    }
}

fn is_icmp(flow: &Flow) -> bool {
    matches!(flow.protocol, Some(1 | 58))
}

fn protocol(number: Option<u8>) -> String {
    number.map_or_else(|| "a hidden protocol".to_owned(), protocol_name)
}

fn next_layer(selector: &Selector) -> String {
    match selector.protocol {
        NextLayer::Any => "any protocol".into(),
        NextLayer::Opaque => "a hidden protocol".into(),
        NextLayer::Is(number) => protocol_name(number),
    }
}

fn addresses(range: &AddressRange) -> String {
    let (first, last) = (range.first(), range.last());
    let bits = match (first, last) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => 0,
    };
    match AddressRange::from_prefix(first, bits as u8) {
        Some(prefix) if prefix == *range && first == last => first.to_string(),
        Some(prefix) if prefix == *range => format!("{first}/{bits}"),
        _ => format!("{first}-{last}"),
    }
}

fn ports(range: &PortRange) -> String {
    match range {
        PortRange::Any => "any port".into(),
        PortRange::Opaque => "opaque".into(),
        PortRange::Range(first, last) if first == last => first.to_string(),
        PortRange::Range(first, last) => format!("{first}-{last}"),
    }
}

fn icmp(range: &PortRange) -> String {
    let PortRange::Range(first, last) = range else {
        return ports(range);
    };
    let ([first_type, first_code], [last_type, last_code]) =
        (first.to_be_bytes(), last.to_be_bytes());
    match (first_type == last_type, first_code == last_code) {
        (true, true) => format!("type {first_type} code {first_code}"),
        (true, false) => format!("type {first_type} code {first_code}-{last_code}"),
        _ => format!("type {first_type} code {first_code} to type {last_type} code {last_code}"),
    }
}

/// Writes a selector as `status` does: `10.1.0.0/16 === 10.2.0.0/16[tcp/443]`.
pub fn describe(selector: &Selector) -> String {
    let end = |range: &AddressRange, port_range: &PortRange| {
        let what = match (selector.protocol, port_range) {
            (NextLayer::Any, PortRange::Any) => return addresses(range),
            (NextLayer::Is(number), PortRange::Any) => protocol_name(number),
            (NextLayer::Is(number @ (1 | 58)), range) => {
                format!("{}/{}", protocol_name(number), icmp(range))
            }
            (_, range) => format!("{}/{}", next_layer(selector), ports(range)),
        };
        format!("{}[{what}]", addresses(range))
    };
    let local = end(&selector.local, &selector.local_ports);
    format!(
        "{local} === {}",
        end(&selector.remote, &selector.remote_ports)
    )
}
