//! The second line of defence behind the routes: a table of nf_tables. In both directions, it drops packets that must
//! not be in the clear.
//!
//! The table stands while the gateway restarts, and when somebody has taken rules or routes away. Only the table sees
//! packets that come in without protection and claim to be from the other side of a tunnel.

mod raised;

use std::net::IpAddr;

use esplanade_ipsec::selector::{PortRange, TrafficSelector};
use esplanade_ipsec::wire::{ah, esp};

use crate::config::{GatewayConfig, InterfaceConfig};
use crate::join::{ConfiguredPolicy, PolicyKind, bypass_routes, ranges};
use crate::net::nft::{Hook, NftTable, RuleMatch, RuleVerdict, SetKeys, interface_name};
use crate::net::{self, AddressRange, guarded};

pub use raised::{Outcome, Raised};

/// Most elements of one set. Only policies that overlap excessively need more.
const PAIRS_MAX: usize = 1 << 17;
/// Most rules for single selectors. Every packet pays for each of these rules.
const RULES_MAX: usize = 4096;

const DEVICES: &str = "devices";
const INBOUND: &str = "inbound";
const OUTBOUND: &str = "outbound";
const MARKS: &str = "marks";
const UDP: u8 = libc::IPPROTO_UDP as u8;
const ICMP: u8 = libc::IPPROTO_ICMP as u8;
const ICMPV6: u8 = libc::IPPROTO_ICMPV6 as u8;
/// The protocols whose headers begin with two ports.
const WITH_PORTS: [libc::c_int; 5] = [
    libc::IPPROTO_TCP,
    libc::IPPROTO_UDP,
    libc::IPPROTO_SCTP,
    libc::IPPROTO_DCCP,
    libc::IPPROTO_UDPLITE,
];

const IPV4: u8 = libc::NFPROTO_IPV4 as u8;
const IPV6: u8 = libc::NFPROTO_IPV6 as u8;
/// The address families, each with the offset of the source address in the header and its length, in bytes.
const FAMILIES: [(u8, u32, usize); 2] = [(IPV4, 12, 4), (IPV6, 8, 16)];

/// Returns the table's name. Gateways with different routing tables have tables of their own.
pub fn name(config: &GatewayConfig) -> String {
    format!("esplanade-{}", config.table)
}

/// The error that the policies do not fit into the table.
#[derive(Debug, thiserror::Error)]
#[error("the policies' selectors overlap too often, or too many name ports")]
pub struct TooMany;

/// Returns the table for these policies, which have the order of the SPD. `devices` are the gateway's TUN devices. If
/// interfaces have policies, a second table follows: the most that a kernel without `fib` expressions takes.
pub fn tables(
    config: &GatewayConfig,
    devices: &[String],
    policies: &[ConfiguredPolicy],
) -> Result<Vec<NftTable>, TooMany> {
    let bound = policies.iter().any(|policy| !policy.sa.is_led());
    let ways = if bound { &[true, false][..] } else { &[false] };
    let table = |way_back: &bool| table(config, devices, policies, *way_back);
    ways.iter().map(table).collect()
}

fn table(
    config: &GatewayConfig,
    devices: &[String],
    policies: &[ConfiguredPolicy],
    way_back: bool,
) -> Result<NftTable, TooMany> {
    let mut table = NftTable::new(&name(config));
    let mut names: Vec<_> = devices.iter().map(|name| interface_name(name)).collect();
    names.push(interface_name("lo"));
    names.sort_unstable();
    names.dedup();
    let names: Vec<_> = names.into_iter().map(|name| (name.clone(), name)).collect();
    table.set(DEVICES, 1, SetKeys::Names, &names);
    table.chain(OUTBOUND, None);
    table.chain(INBOUND, None);
    table.chain("input", Some(Hook::Input));
    table.chain("forward", Some(Hook::Forward));
    table.chain("output", Some(Hook::Output));
    let mut sets = 10..;
    outbound(&mut table, config, policies, &mut sets);
    exceptions(&mut table, config);
    give_marks(&mut table, config);
    for chain in ["input", "forward"] {
        table.rule(chain, &[], RuleVerdict::Jump(INBOUND));
    }
    for interface in &config.interfaces {
        let is_marked = interface.marks.are_given();
        if is_marked || way_back {
            of_interface(&mut table, interface, policies, &mut sets)?;
        }
    }
    let common = |policy: &&ConfiguredPolicy| policy.sa.is_led() && policy.sa.marks.given.is_none();
    inbound(
        &mut table,
        INBOUND,
        policies.iter().filter(common),
        &mut sets,
    )?;
    Ok(table)
}

/// Drops packets that routes lead into the TUN device if they would leave by another device. Packets of the gateway
/// itself may leave.
fn outbound(
    table: &mut NftTable,
    config: &GatewayConfig,
    policies: &[ConfiguredPolicy],
    sets: &mut impl Iterator<Item = u32>,
) {
    let guards = |interface: u32| -> Vec<_> {
        let of_interface = |policy: &&ConfiguredPolicy| {
            policy.sa.if_ids.outbound == interface
                && matches!(policy.kind, PolicyKind::Protect { .. })
        };
        let policies = policies.iter().filter(of_interface);
        let ends = |policy: &ConfiguredPolicy| (ranges(&policy.local), ranges(&policy.remote));
        policies.map(ends).collect()
    };
    let thrown: Vec<_> = (bypass_routes(policies).into_iter())
        .map(|change| change.remote)
        .collect();
    table.rule(
        OUTBOUND,
        &[RuleMatch::Mark(config.mark)],
        RuleVerdict::Return,
    );
    table.rule(
        OUTBOUND,
        &[RuleMatch::InterfaceOut(DEVICES)],
        RuleVerdict::Return,
    );
    let all = guarded(&guards(0), &thrown);
    keep_in(table, &[], &all, &mut (2..));
    for interface in config.marked_interfaces() {
        if let Some(mark) = interface.marks.outbound {
            let marked = RuleMatch::MaskedMark(mark.value, mark.mask);
            let all = guarded(&guards(interface.if_id), &[]);
            keep_in(table, &[marked], &all, sets);
        }
    }
    // Neighbour discovery is the kernel's own traffic.
    neighbours(table, "output");
    for chain in ["output", "forward"] {
        table.rule(chain, &[], RuleVerdict::Jump(OUTBOUND));
    }
}

/// Drops packets that these matches take and that would leave for one of these destinations.
fn keep_in(
    table: &mut NftTable,
    matches: &[RuleMatch],
    destinations: &[AddressRange],
    sets: &mut impl Iterator<Item = u32>,
) {
    for (id, (family, source, len)) in sets.zip(FAMILIES) {
        let of_family = |range: &&AddressRange| range.first.is_ipv4() == (len == 4);
        let keys: Vec<_> = (destinations.iter().filter(of_family))
            .map(|range| (octets(range.first), octets(range.last)))
            .collect();
        let set = format!("out{id}");
        table.set(&set, id, SetKeys::Addresses(len), &keys);
        let to = RuleMatch::Destination(source + len as u32, len, set);
        let matches = [matches, &[RuleMatch::Family(family), to]].concat();
        table.rule(OUTBOUND, &matches, RuleVerdict::Drop);
    }
}

/// Gives marks to the packets that come from the devices for marks, before rules of others look at them.
fn give_marks(table: &mut NftTable, config: &GatewayConfig) {
    let devices = config.marked_interfaces();
    let given: Vec<_> = devices
        .filter_map(|one| Some((&one.name, one.marks.inbound?)))
        .collect();
    if given.is_empty() {
        return;
    }
    table.chain(MARKS, Some(Hook::Prerouting));
    for (name, mark) in given {
        let from = RuleMatch::From(name.clone());
        table.rule(MARKS, &[from], RuleVerdict::SetMark(mark));
    }
}

/// Accepts neighbour discovery (RFC 4861), which the kernel sends and takes for itself.
fn neighbours(table: &mut NftTable, chain: &str) {
    let discovery = RuleMatch::Transport(0, vec![133], vec![137]);
    table.rule(
        chain,
        &[
            RuleMatch::Family(IPV6),
            RuleMatch::Protocol(ICMPV6),
            discovery,
        ],
        RuleVerdict::Accept,
    );
}

/// Accepts the packets that rightly come in without an SA.
fn exceptions(table: &mut NftTable, config: &GatewayConfig) {
    for chain in ["input", "forward"] {
        table.rule(
            chain,
            &[RuleMatch::InterfaceIn(DEVICES)],
            RuleVerdict::Accept,
        );
    }
    for protocol in [esp::PROTOCOL, ah::PROTOCOL] {
        table.rule(
            "input",
            &[RuleMatch::Protocol(protocol)],
            RuleVerdict::Accept,
        );
    }
    for port in [config.ports.ike, config.ports.nat_t] {
        let port = port.to_be_bytes().to_vec();
        let to = RuleMatch::Transport(2, port.clone(), port);
        table.rule(
            "input",
            &[RuleMatch::Protocol(UDP), to],
            RuleVerdict::Accept,
        );
    }
    // ICMP errors about packets of the gateway come in without an SA. The gateway learns path MTUs from them.
    for (family, protocol, first, last) in [
        (IPV4, ICMP, 3, 3),
        (IPV4, ICMP, 11, 12),
        (IPV6, ICMPV6, 1, 4),
    ] {
        let kind = RuleMatch::Transport(0, vec![first], vec![last]);
        table.rule(
            "input",
            &[
                RuleMatch::Family(family),
                RuleMatch::Protocol(protocol),
                kind,
            ],
            RuleVerdict::Accept,
        );
    }
    neighbours(table, "input");
}

/// Adds the rules for the policies of an interface. Routes decide what these policies protect, here by the way back of
/// a packet. For a device of marks the mark decides, which somebody has given to a packet in the clear.
fn of_interface(
    table: &mut NftTable,
    interface: &InterfaceConfig,
    policies: &[ConfiguredPolicy],
    sets: &mut impl Iterator<Item = u32>,
) -> Result<(), TooMany> {
    let marked = interface.marks.are_given();
    let is_bound = |policy: &&ConfiguredPolicy| match marked {
        true => policy.sa.if_ids.inbound == interface.if_id,
        false => policy.sa.if_ids.outbound == interface.if_id,
    };
    let of_interface = match (marked, interface.marks.inbound) {
        (false, _) => RuleMatch::WayBack(interface.name.clone()),
        (true, Some(mark)) => RuleMatch::Mark(mark),
        (true, None) => return Ok(()),
    };
    let chain = format!("interface-{}", interface.if_id);
    table.chain(&chain, None);
    table.rule(INBOUND, &[of_interface], RuleVerdict::Jump(&chain));
    inbound(table, &chain, policies.iter().filter(is_bound), sets)
}

/// Drops packets that no SA has brought, but whose policy says Protect (RFC 4301 §5.2, step 3b). The first policy that
/// names a packet decides.
fn inbound<'a>(
    table: &mut NftTable,
    chain: &str,
    policies: impl Iterator<Item = &'a ConfiguredPolicy>,
    sets: &mut impl Iterator<Item = u32>,
) -> Result<(), TooMany> {
    let mut rules = 0;
    let mut together: Vec<(AddressRange, AddressRange)> = Vec::new();
    for policy in policies {
        let verdict = match policy.kind {
            PolicyKind::Bypass => RuleVerdict::Accept,
            PolicyKind::Protect { .. } => RuleVerdict::Drop,
            PolicyKind::Discard => continue,
        };
        for local in &policy.local {
            for remote in &policy.remote {
                let pair = (range(remote), range(local));
                if pair.0.first.is_ipv4() != pair.1.first.is_ipv4() {
                    continue;
                }
                let everything = [local, remote]
                    .iter()
                    .all(|ts| ts.protocol == 0 && ts.ports == PortRange::Any);
                if everything && matches!(verdict, RuleVerdict::Drop) {
                    together.push(pair);
                    continue;
                }
                flush(table, chain, &mut together, sets)?;
                rules += 1;
                if rules > RULES_MAX {
                    return Err(TooMany);
                }
                if let Some(matches) = single(remote, local) {
                    table.rule(chain, &matches, verdict);
                }
            }
        }
    }
    flush(table, chain, &mut together, sets)
}

/// Adds one rule with one set for each address family, however many policies there are.
fn flush(
    table: &mut NftTable,
    chain: &str,
    together: &mut Vec<(AddressRange, AddressRange)>,
    sets: &mut impl Iterator<Item = u32>,
) -> Result<(), TooMany> {
    let pairs = std::mem::take(together);
    for (family, source, len) in FAMILIES {
        let of_family = |pair: &&(AddressRange, AddressRange)| pair.0.first.is_ipv4() == (len == 4);
        let rectangles: Vec<_> = pairs.iter().filter(of_family).copied().collect();
        if rectangles.is_empty() {
            continue;
        }
        let Some(id) = sets.next() else {
            return Err(TooMany);
        };
        let name = format!("in{id}");
        let disjoint = net::disjoint(&rectangles, PAIRS_MAX).ok_or(TooMany)?;
        let keys: Vec<_> = (disjoint.iter())
            .map(|(from, to)| {
                let first = [octets(from.first), octets(to.first)].concat();
                (first, [octets(from.last), octets(to.last)].concat())
            })
            .collect();
        table.set(&name, id, SetKeys::Pairs(len), &keys);
        let pair = RuleMatch::Pair(source, len, name);
        table.rule(chain, &[RuleMatch::Family(family), pair], RuleVerdict::Drop);
    }
    Ok(())
}

/// Returns the conditions for one pair of selectors, or `None` if they select by something that the header does not
/// show.
fn single(remote: &TrafficSelector, local: &TrafficSelector) -> Option<Vec<RuleMatch>> {
    let (family, source, len) = FAMILIES[usize::from(remote.addresses.first().is_ipv6())];
    let address = |offset, ts: &TrafficSelector| {
        RuleMatch::Network(
            offset,
            octets(ts.addresses.first()),
            octets(ts.addresses.last()),
        )
    };
    let mut matches = vec![
        RuleMatch::Family(family),
        address(source, remote),
        address(source + len as u32, local),
    ];
    let protocol = remote.protocol.max(local.protocol);
    if protocol != 0 {
        matches.push(RuleMatch::Protocol(protocol));
    }
    // Type and code of ICMP stand where a source port would.
    let is_icmp = [ICMP, ICMPV6].contains(&protocol);
    for (offset, ports) in [
        (0, remote.ports),
        (if is_icmp { 0 } else { 2 }, local.ports),
    ] {
        match ports {
            PortRange::Any => {}
            PortRange::Range(first, last) if is_icmp || WITH_PORTS.contains(&protocol.into()) => {
                let (first, last) = (first.to_be_bytes().to_vec(), last.to_be_bytes().to_vec());
                matches.push(RuleMatch::Transport(offset, first, last));
            }
            _ => return None,
        }
    }
    Some(matches)
}

fn range(ts: &TrafficSelector) -> AddressRange {
    AddressRange {
        first: ts.addresses.first(),
        last: ts.addresses.last(),
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
