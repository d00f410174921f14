//! Traffic Selector payloads (RFC 7296 §3.13).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::reader::{self, DecodeError, EncodeError, WireReader};

const TS_IPV4_ADDR_RANGE: u8 = 7;
const TS_IPV6_ADDR_RANGE: u8 = 8;

/// A range of addresses and ports. Both addresses have the same IP version, and are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrafficSelector {
    /// The IP protocol. Zero stands for any protocol.
    pub protocol: u8,
    /// The first port, or the ICMP type and code (RFC 7296 §3.13.1). 0 to 65535 is any port; 65535 to 0 is OPAQUE.
    pub start_port: u16,
    pub end_port: u16,
    pub start: IpAddr,
    pub end: IpAddr,
}

impl TrafficSelector {
    /// Every protocol and port between two addresses.
    pub const fn addresses(start: IpAddr, end: IpAddr) -> Self {
        Self {
            protocol: 0,
            start_port: 0,
            end_port: u16::MAX,
            start,
            end,
        }
    }

    pub const fn is_opaque_port(&self) -> bool {
        self.start_port == u16::MAX && self.end_port == 0
    }

    fn is_valid(&self) -> bool {
        let ports = self.start_port <= self.end_port || self.is_opaque_port();
        let addresses = match (self.start, self.end) {
            (IpAddr::V4(start), IpAddr::V4(end)) => start <= end,
            (IpAddr::V6(start), IpAddr::V6(end)) => start <= end,
            _ => false,
        };
        ports && addresses
    }
}

/// Selectors of other types than the two address ranges are left out. They cannot be granted, and a responder that
/// narrows drops them (RFC 7296 §2.9).
pub(crate) fn decode(mut reader: WireReader<'_>) -> Result<Vec<TrafficSelector>, DecodeError> {
    let count = usize::from(reader.u8()?);
    let _reserved = reader.take(3)?;
    if count == 0 {
        return Err(reader.invalid("no traffic selector"));
    }
    let mut selectors = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = reader.u8()?;
        let protocol = reader.u8()?;
        let stated = reader.u16()?.into();
        let mut body = reader.sub(stated, 4, "traffic selector")?;
        if !matches!(kind, TS_IPV4_ADDR_RANGE | TS_IPV6_ADDR_RANGE) {
            continue;
        }
        let start_port = body.u16()?;
        let end_port = body.u16()?;
        let (start, end) = if kind == TS_IPV4_ADDR_RANGE {
            (
                Ipv4Addr::from(body.array::<4>()?).into(),
                Ipv4Addr::from(body.array::<4>()?).into(),
            )
        } else {
            (
                Ipv6Addr::from(body.array::<16>()?).into(),
                Ipv6Addr::from(body.array::<16>()?).into(),
            )
        };
        body.finish()?;
        let selector = TrafficSelector {
            protocol,
            start_port,
            end_port,
            start,
            end,
        };
        if !selector.is_valid() {
            return Err(body.invalid("range ends before it starts"));
        }
        selectors.push(selector);
    }
    reader.finish()?;
    Ok(selectors)
}

pub(crate) fn encode(selectors: &[TrafficSelector], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let place = "traffic selector payload";
    if selectors.is_empty() {
        return Err(EncodeError {
            place,
            problem: "no traffic selector",
        });
    }
    let count = reader::byte(selectors.len(), place, "too many traffic selectors")?;
    out.extend_from_slice(&[count, 0, 0, 0]);
    for selector in selectors {
        if !selector.is_valid() {
            return Err(EncodeError {
                place,
                problem: "range ends before it starts, or mixes address families",
            });
        }
        let (kind, length) = match selector.start {
            IpAddr::V4(_) => (TS_IPV4_ADDR_RANGE, 16),
            IpAddr::V6(_) => (TS_IPV6_ADDR_RANGE, 40),
        };
        out.extend_from_slice(&[kind, selector.protocol, 0, length]);
        out.extend_from_slice(&selector.start_port.to_be_bytes());
        out.extend_from_slice(&selector.end_port.to_be_bytes());
        for address in [selector.start, selector.end] {
            match address {
                IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
                IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
            }
        }
    }
    Ok(())
}
