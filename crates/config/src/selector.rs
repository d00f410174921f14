//! Parses traffic selectors such as `10.0.0.0/16[tcp/80]`, `10.1.1.1-10.1.1.9`, `dynamic[udp/53]`
//! and `[icmp]`. It does not compare them with packets.

use std::net::IpAddr;

use esplanade_ike::config::{Selector, SelectorAddresses};

use super::diagnostics::{nearest, quoted};
use super::value::{ValueError, ValueResult, address_range};

pub const PROTOCOLS: &[(&str, u8)] = &[
    ("any", 0),
    ("%any", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipv4", 4),
    ("ipencap", 4),
    ("tcp", 6),
    ("udp", 17),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ospf", 89),
    ("ipip", 94),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

const SERVICES: &[(&str, u16)] = &[
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("http", 80),
    ("kerberos", 88),
    ("ntp", 123),
    ("imap", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("isakmp", 500),
    ("syslog", 514),
    ("ldaps", 636),
    ("imaps", 993),
    ("l2tp", 1701),
    ("radius", 1812),
    ("nfs", 2049),
    ("ipsec-nat-t", 4500),
    ("sip", 5060),
    ("postgresql", 5432),
];

const SHAPES: &str = "write a subnet, an address, a range (10.0.0.1-10.0.0.9) or `dynamic`, then \
                      optionally [protocol/port] such as `10.0.0.0/16[tcp/80]`";

pub(crate) fn selector(text: &str) -> ValueResult<Selector> {
    let (addresses, rest) = match text.split_once('[') {
        None => (text, None),
        Some((head, tail)) => match tail.strip_suffix(']') {
            Some(inner) => (head.trim_end(), Some(inner)),
            None => {
                return Err(ValueError::new(
                    format!("{} lacks the closing bracket", quoted(text)),
                    SHAPES,
                ));
            }
        },
    };
    let addresses = match addresses {
        "dynamic" | "%dynamic" => SelectorAddresses::Dynamic,
        "" if rest.is_some() => SelectorAddresses::Dynamic,
        host if host.parse::<IpAddr>().is_ok() => {
            let host = host.parse().map_err(|_| ValueError::new("", SHAPES))?;
            SelectorAddresses::Range(host, host)
        }
        other => match address_range(other) {
            Some(Ok((from, to))) => SelectorAddresses::Range(from, to),
            Some(Err(bad)) => return Err(bad),
            None => {
                return Err(ValueError::new(
                    format!("{} is not a traffic selector", quoted(text)),
                    SHAPES,
                ));
            }
        },
    };
    let (protocol, ports) = match rest {
        None => (0, (0, u16::MAX)),
        Some(inner) => protocol_and_ports(inner)?,
    };
    Ok(Selector {
        addresses,
        protocol,
        ports,
    })
}

fn protocol_and_ports(text: &str) -> ValueResult<(u8, (u16, u16))> {
    let (protocol, ports) = text
        .split_once('/')
        .map_or((text, None), |(protocol, ports)| (protocol, Some(ports)));
    let protocol = match PROTOCOLS.iter().find(|(name, _)| *name == protocol) {
        Some(&(_, number)) => number,
        None if protocol.is_empty() => 0,
        None => protocol.parse().map_err(|_| {
            let help = match nearest(protocol, PROTOCOLS.iter().map(|&(name, _)| name)) {
                Some(near) => format!("did you mean `{near}`? A protocol number works as well"),
                None => "write a protocol name such as tcp, udp, icmp, or its number".to_owned(),
            };
            ValueError::new(
                format!("{} is not a known protocol", quoted(protocol)),
                help,
            )
        })?,
    };
    let ports = match ports {
        None | Some("any" | "%any" | "") => (0, u16::MAX),
        // The range from 65535 to 0 stands for OPAQUE (RFC 7296 §3.13.1).
        Some("opaque") if WITH_PORTS.contains(&protocol) => return Ok((protocol, (u16::MAX, 0))),
        Some(types) if matches!(protocol, ICMP | ICMPV6) => icmp(types)?,
        Some(range) => match range.split_once('-') {
            Some((from, to)) if from.parse::<u16>().is_ok() => (port(from)?, port(to)?),
            _ => (port(range)?, port(range)?),
        },
    };
    if ports.0 > ports.1 {
        return Err(ValueError::new(
            format!("{} is not a port range", quoted(text)),
            "write the lower port first",
        ));
    }
    if protocol != 0 && ports != (0, u16::MAX) && !WITH_PORTS.contains(&protocol) {
        let help = "leave the ports out (RFC 4301 appendix D.2)";
        let what = format!("the protocol in {} has no ports", quoted(text));
        return Err(ValueError::new(what, help));
    }
    if protocol == 0 && ports != (0, u16::MAX) {
        let help = "name the protocol, such as [tcp/80]";
        return Err(ValueError::new(
            format!("the ports in {} belong to no protocol", quoted(text)),
            help,
        ));
    }
    Ok((protocol, ports))
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// The protocols whose selectors have ports: ICMP (with its types), TCP, UDP, DCCP, ICMPv6, SCTP
/// and UDP-Lite.
const WITH_PORTS: [u8; 7] = [ICMP, 6, 17, 33, ICMPV6, 132, 136];

/// Parses `type`, `type-type`, `type/code` or `type/code-code`. The type is the high byte of the
/// port, and the code is the low byte (RFC 7296 §3.13.1). As in strongSwan, a number above 255 is
/// both.
fn icmp(text: &str) -> ValueResult<(u16, u16)> {
    let bad = || {
        let help = "write a type (8), a range of types (0-8), a type and codes (3/4, 3/0-5), or \
                    256 times the type plus the code (772)";
        ValueError::new(format!("{} is no ICMP type", quoted(text)), help)
    };
    let edges = |text: &str| {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        (from.parse::<u16>().ok()).zip(to.parse::<u16>().ok())
    };
    let Some((one, codes)) = text.split_once('/') else {
        // The first and the last code of a type stand at the two edges.
        let port = |number: u16, code: u8| match u8::try_from(number) {
            Ok(kind) => u16::from_be_bytes([kind, code]),
            Err(_) => number,
        };
        let (from, to) = edges(text).ok_or_else(bad)?;
        return Ok(match (from, to) {
            // An echo reply has no other code. strongSwan reads a port below 256 as a type, also where a peer sends it.
            (0, 0) => (0, 0),
            _ => (port(from, 0), port(to, u8::MAX)),
        });
    };
    let port = |code: u16| {
        let (kind, code) = one.parse().ok().zip(u8::try_from(code).ok())?;
        Some(u16::from_be_bytes([kind, code]))
    };
    let ports = edges(codes).and_then(|(from, to)| port(from).zip(port(to)));
    ports.ok_or_else(bad)
}

fn port(text: &str) -> ValueResult<u16> {
    match SERVICES.iter().find(|(name, _)| *name == text) {
        Some(&(_, port)) => Ok(port),
        None => text.parse().map_err(|_| {
            ValueError::new(
                format!("{} is not a port", quoted(text)),
                "write a port number or a range such as 1000-2000",
            )
        }),
    }
}

/// Returns how narrow a selector is: the prefix bits of its range count first, then its protocol
/// and ports.
pub(crate) fn specificity(selector: &Selector) -> u32 {
    let bits = match selector.addresses {
        SelectorAddresses::Dynamic => 128,
        // Scale IPv4 to the 128 bits of IPv6. So 0.0.0.0/0 equals ::/0, and single hosts are equal.
        SelectorAddresses::Range(IpAddr::V4(from), IpAddr::V4(to)) => {
            (u32::from(from) ^ u32::from(to)).leading_zeros() * 4
        }
        SelectorAddresses::Range(IpAddr::V6(from), IpAddr::V6(to)) => {
            (u128::from(from) ^ u128::from(to)).leading_zeros()
        }
        SelectorAddresses::Range(..) => 0,
    };
    bits * 4 + u32::from(selector.protocol != 0) + 2 * u32::from(selector.ports != (0, u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: &str, to: &str) -> Selector {
        Selector::range(from.parse().unwrap(), to.parse().unwrap())
    }

    // RFC 4301 R124, R125, R128
    #[test]
    fn shapes() {
        assert_eq!(
            selector("10.0.0.0/16").ok(),
            Some(range("10.0.0.0", "10.0.255.255"))
        );
        assert_eq!(
            selector("10.1.1.1").ok(),
            Some(range("10.1.1.1", "10.1.1.1"))
        );
        assert_eq!(
            selector("10.1.1.1-10.1.1.9").ok(),
            Some(range("10.1.1.1", "10.1.1.9"))
        );
        let web = Selector {
            protocol: 6,
            ports: (80, 80),
            ..range("10.0.0.0", "10.0.255.255")
        };
        assert_eq!(selector("10.0.0.0/16[tcp/80]").ok(), Some(web));
        assert_eq!(selector("10.0.0.0/16[tcp/http]").ok(), Some(web));
        assert_eq!(selector("dynamic").ok(), Some(Selector::DYNAMIC));
        assert_eq!(
            selector("[udp/53]").ok(),
            Some(Selector {
                protocol: 17,
                ports: (53, 53),
                ..Selector::DYNAMIC
            })
        );
        let high = Selector {
            protocol: 17,
            ports: (1000, 2000),
            ..Selector::DYNAMIC
        };
        assert_eq!(selector("dynamic[udp/1000-2000]").ok(), Some(high));
        for bad in [
            "",
            "10.0.0.0/16[tcp/80",
            "10.0.0.0/16[tpc]",
            "x",
            "[/53]",
            "10.0.0.1[udp/9-1]",
            "1.1.1.1[/opaque]",
            "1.1.1.1[icmp/65536]",
            "1.1.1.1[icmp/772-771]",
            "1.1.1.1[icmp/3/256]",
            "1.1.1.1[icmp/256/1]",
            "1.1.1.1[icmp/8-0]",
            "1.1.1.1[icmp/0-8/0]",
            "1.1.1.1[icmp/3/5-4]",
            "1.1.1.1[tcp/3/4]",
            "1.1.1.1[gre/1]",
            "1.1.1.1[47/opaque]",
        ] {
            assert!(selector(bad).is_err(), "{bad}");
        }
    }

    // RFC 4301 R96
    #[test]
    fn icmp_types_and_opaque_ports() {
        let ports = |text: &str| selector(text).unwrap().ports;
        assert_eq!(ports("1.1.1.1[icmp/8]"), (0x0800, 0x08ff));
        assert_eq!(ports("1.1.1.1[icmp/0]"), (0x0000, 0x0000));
        assert_eq!(ports("1.1.1.1[icmp/0-8]"), (0x0000, 0x08ff));
        assert_eq!(ports("1.1.1.1[icmp/3/4]"), (0x0304, 0x0304));
        assert_eq!(ports("1.1.1.1[icmp/772]"), (0x0304, 0x0304));
        assert_eq!(ports("1.1.1.1[icmp/2048-2303]"), (0x0800, 0x08ff));
        assert_eq!(ports("1.1.1.1[icmp/0-2303]"), (0x0000, 0x08ff));
        assert_eq!(ports("::1[icmpv6/1/0-4]"), (0x0100, 0x0104));
        assert_eq!(ports("1.1.1.1[udp/opaque]"), (u16::MAX, 0));
    }

    #[test]
    fn narrower_selectors_are_more_specific() {
        let order = [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.0.0.0/16",
            "10.0.0.0/16[tcp]",
            "10.0.0.0/16[tcp/80]",
            "10.0.0.1",
        ];
        let values: Vec<u32> = order
            .iter()
            .map(|text| specificity(&selector(text).unwrap()))
            .collect();
        assert!(values.is_sorted_by(|a, b| a < b), "{values:?}");
    }
}
