//! A packet as it is written on the command line: `tcp 10.0.1.5:40000 -> 10.0.2.9:443`.

use std::net::IpAddr;

use esplanade_ipsec::selector::Flow;
use esplanade_ipsec::wire::ip::{PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP};

use esplanade_config::PROTOCOLS;

const SHAPE: &str = "write the protocol, the source, `->` or `to`, and the destination, in quotes: \
                     'tcp 10.0.1.5:40000 -> 10.0.2.9:443'";
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// A packet, as far as its headers show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSpec {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// The source and destination ports. For ICMP, both numbers hold the type and code. `None` means that the packet is
    /// a fragment or has no ports.
    pub ports: Option<(u16, u16)>,
    pub fragment: bool,
    pub dscp: u8,
    /// The `if_id` of the interface that the packet was led into; 0 is the common one.
    pub interface: u32,
    /// The length in bytes, with the IP header. `None` means that the length does not matter.
    pub len: Option<u16>,
    /// Don't Fragment is set. This is always true in IPv6, which no router fragments.
    pub dont_fragment: bool,
}

/// A description that is no packet's, and what to do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{what}")]
pub struct PacketError {
    pub what: String,
    pub help: String,
}

fn bad(what: impl std::fmt::Display, help: &str) -> PacketError {
    PacketError {
        what: what.to_string(),
        help: help.to_owned(),
    }
}

impl PacketSpec {
    pub fn parse(words: &[String], fragment: bool, dscp: u8) -> Result<Self, PacketError> {
        let text = words.join(" ").replace("->", " -> ");
        let mut words = text.split_whitespace().peekable();
        let protocol = protocol(&mut words)?;
        let source = words
            .next()
            .ok_or_else(|| bad("the packet has no source", SHAPE))?;
        match words.next() {
            Some("->" | "to" | "→") => {}
            // A shell has taken the rest of an arrow that was not quoted.
            Some("-") => {
                let help = "a shell takes `>` for itself: quote the packet, or write `to`";
                return Err(bad("`-` stands where `->` is expected", help));
            }
            Some(other) => {
                let what = format!("`{other}` stands where `->` is expected");
                return Err(bad(what, SHAPE));
            }
            None => return Err(bad("the packet has no destination", SHAPE)),
        }
        let destination = words
            .next()
            .ok_or_else(|| bad("the packet has no destination", SHAPE))?;
        let (source, destination) = (end(source)?, end(destination)?);
        let (message_type, code) = (number(&mut words, "type")?, number(&mut words, "code")?);
        if let Some(rest) = words.next() {
            let help = "behind the destination only `type N` and `code N` of ICMP may follow";
            return Err(bad(format!("`{rest}` is not part of a packet"), help));
        }
        if source.0.is_ipv4() != destination.0.is_ipv4() {
            let what = "source and destination have different IP versions";
            return Err(bad(what, "write two IPv4 or two IPv6 addresses"));
        }
        let icmp = match protocol {
            PROTOCOL_ICMP => Some((true, 8)),
            PROTOCOL_ICMPV6 => Some((false, 128)),
            _ => None,
        };
        if let Some((v4, _)) = icmp
            && v4 != source.0.is_ipv4()
        {
            let what = "the ICMP of the other IP version cannot go between these addresses";
            return Err(bad(what, "write `icmp` with IPv4 and `icmp6` with IPv6"));
        }
        if icmp.is_none() && (message_type.is_some() || code.is_some()) {
            return Err(bad(
                "only ICMP has a type and a code",
                "write `icmp` or `icmp6`",
            ));
        }
        let ports = match (icmp, source.1, destination.1) {
            (Some((_, echo)), None, None) => {
                let both = u16::from_be_bytes([message_type.unwrap_or(echo), code.unwrap_or(0)]);
                Some((both, both))
            }
            (None, Some(source), Some(destination)) if has_ports(protocol) => {
                Some((source, destination))
            }
            (None, None, None) if fragment || !has_ports(protocol) => None,
            (None, _, _) if has_ports(protocol) => {
                let help = "write them behind both addresses, such as 10.0.1.5:40000 and \
                            [fd00::9]:443, or add --fragment";
                return Err(bad("the packet lacks ports", help));
            }
            _ => {
                let help = "leave them out; type and code of ICMP follow the destination";
                return Err(bad("this protocol has no ports", help));
            }
        };
        Ok(Self {
            source: source.0,
            destination: destination.0,
            protocol,
            ports: ports.filter(|_| !fragment),
            fragment,
            dscp,
            interface: 0,
            len: None,
            dont_fragment: !source.0.is_ipv4(),
        })
    }

    /// Reads the length in bytes from text.
    pub fn set_len(&mut self, text: &str) -> Result<(), String> {
        let least = if self.source.is_ipv4() { 20 } else { 40 };
        let len = text.parse().ok().filter(|len| *len >= least);
        self.len = Some(len.ok_or(format!("the length is not a number from {least} to 65535"))?);
        Ok(())
    }

    pub fn flow(&self, inbound: bool) -> Flow {
        let (local, remote, ports) = match inbound {
            false => (self.source, self.destination, self.ports),
            true => {
                let ports = self
                    .ports
                    .map(|(source, destination)| (destination, source));
                (self.destination, self.source, ports)
            }
        };
        Flow {
            dscp: self.dscp,
            interface: self.interface,
            ..Flow::new(local, remote, self.protocol, ports)
        }
    }
}

impl std::fmt::Display for PacketSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", protocol_name(self.protocol))?;
        let end = |address: IpAddr, port: Option<u16>| match (address, port) {
            (address, None) => address.to_string(),
            (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
            (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
        };
        let ports = self.ports.filter(|_| has_ports(self.protocol));
        let source = end(self.source, ports.map(|(source, _)| source));
        let destination = end(self.destination, ports.map(|(_, destination)| destination));
        write!(f, "{source} -> {destination}")?;
        if let (None, Some((both, _))) = (ports, self.ports) {
            let [message_type, code] = both.to_be_bytes();
            write!(f, " type {message_type} code {code}")?;
        }
        match self.fragment {
            true => f.write_str(" (a later fragment)"),
            false => Ok(()),
        }
    }
}

fn has_ports(protocol: u8) -> bool {
    matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP | SCTP | UDP_LITE)
}

/// Returns the name of a protocol in selectors, or its number.
pub fn protocol_name(protocol: u8) -> String {
    let known = PROTOCOLS.iter().skip_while(|(_, number)| *number == 0);
    let name = known.into_iter().find(|(_, number)| *number == protocol);
    name.map_or_else(
        || format!("protocol {protocol}"),
        |(name, _)| (*name).to_owned(),
    )
}

fn protocol<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<u8, PacketError> {
    let help =
        "begin with tcp, udp, icmp, icmp6, another protocol's name, or `proto` and its number";
    let word = words
        .next()
        .ok_or_else(|| bad("the packet is empty", SHAPE))?;
    let name = match word {
        "proto" | "protocol" => words
            .next()
            .ok_or_else(|| bad("`proto` lacks the number", help))?,
        "icmp6" => "icmpv6",
        name => name,
    };
    let known = PROTOCOLS
        .iter()
        .find(|(known, number)| *known == name && *number != 0);
    known
        .map(|(_, number)| *number)
        .or_else(|| name.parse().ok())
        .ok_or_else(|| bad(format!("`{name}` is not a protocol"), help))
}

fn end(text: &str) -> Result<(IpAddr, Option<u16>), PacketError> {
    let help =
        "write an address such as 10.0.1.5 or fd00::1, with a port 10.0.1.5:80 or [fd00::1]:80";
    let wrong = || bad(format!("`{text}` is not an address"), help);
    if let Ok(address) = text.parse() {
        return Ok((address, None));
    }
    let end: std::net::SocketAddr = text.parse().map_err(|_| wrong())?;
    Ok((end.ip(), Some(end.port())))
}

fn number<'a>(
    words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
    key: &str,
) -> Result<Option<u8>, PacketError> {
    if words.next_if(|word| *word == key).is_none() {
        return Ok(None);
    }
    let value = words.next().and_then(|word| word.parse().ok());
    let what = || {
        bad(
            format!("`{key}` lacks its number"),
            "write a number from 0 to 255",
        )
    };
    value.map(Some).ok_or_else(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PacketSpec, PacketError> {
        PacketSpec::parse(&[text.to_owned()], false, 0)
    }

    #[test]
    fn packets_are_read_and_written_alike() {
        for text in [
            "tcp 10.0.1.5:40000 -> 10.0.2.9:443",
            "udp [fd00::1]:1 -> [fd00::2]:2",
            "icmp 10.0.1.5 -> 10.0.2.9 type 8 code 0",
            "icmpv6 fd00::1 -> fd00::2 type 128 code 3",
            "gre 10.0.1.5 -> 10.0.2.9",
            "protocol 200 10.0.1.5 -> 10.0.2.9",
        ] {
            assert_eq!(
                parse(text).map(|p| p.to_string()).ok().as_deref(),
                Some(text)
            );
        }
        let same = [
            ("proto 47 10.0.1.5->10.0.2.9", "gre 10.0.1.5 -> 10.0.2.9"),
            (
                "icmp6 fd00::1 to fd00::2",
                "icmpv6 fd00::1 -> fd00::2 type 128 code 0",
            ),
        ];
        for (text, read) in same {
            assert_eq!(
                parse(text).map(|p| p.to_string()).ok().as_deref(),
                Some(read)
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_a_way_out() {
        for (text, what) in [
            ("", "the packet is empty"),
            ("tpc 10.0.1.5:1 -> 10.0.2.9:2", "`tpc` is not a protocol"),
            ("proto", "`proto` lacks the number"),
            ("proto 256 10.0.1.5 -> 10.0.2.9", "`256` is not a protocol"),
            ("tcp", "the packet has no source"),
            ("tcp 10.0.1.5:1 -", "`-` stands where `->` is expected"),
            ("tcp 10.0.1.5:1", "the packet has no destination"),
            ("tcp 10.0.1.5:1 ->", "the packet has no destination"),
            (
                "tcp 10.0.1.500:1 -> 10.0.2.9:2",
                "`10.0.1.500:1` is not an address",
            ),
            ("tcp 10.0.1.5 -> 10.0.2.9:2", "the packet lacks ports"),
            ("gre 10.0.1.5:1 -> 10.0.2.9:2", "this protocol has no ports"),
            (
                "icmp 10.0.1.5:1 -> 10.0.2.9:2",
                "this protocol has no ports",
            ),
            (
                "icmp fd00::1 -> fd00::2",
                "the ICMP of the other IP version cannot go between these addresses",
            ),
            (
                "udp 10.0.1.5:1 -> [fd00::1]:2",
                "source and destination have different IP versions",
            ),
            (
                "udp 10.0.1.5:1 -> 10.0.2.9:2 type 3",
                "only ICMP has a type and a code",
            ),
            (
                "icmp 10.0.1.5 -> 10.0.2.9 type 300",
                "`type` lacks its number",
            ),
            (
                "icmp 10.0.1.5 -> 10.0.2.9 type 3 ttl 4",
                "`ttl` is not part of a packet",
            ),
        ] {
            let failure = parse(text).expect_err(text);
            assert_eq!(failure.what, what);
            assert!(!failure.help.is_empty());
        }
    }

    #[test]
    fn an_inbound_packet_is_seen_from_here() {
        let packet = parse("tcp 10.0.2.9:443 -> 10.0.1.5:40000").expect("a packet");
        let out = parse("tcp 10.0.1.5:40000 -> 10.0.2.9:443").expect("a packet");
        assert_eq!(packet.flow(true), out.flow(false));
    }
}
