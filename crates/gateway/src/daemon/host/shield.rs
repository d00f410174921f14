//! The second line of defence behind the routes: a table of nf_tables. In both directions, it drops packets that must
//! not be in the clear.
//!
//! The table stands while the gateway restarts, and when somebody has taken rules or routes away. Only the table sees
//! packets that come in without protection and claim to be from the other side of a tunnel.
//!
//! However many selectors the policies have, the rules are the same: a packet's fields are looked up in maps of
//! intervals (`net::classifier`). When policies of peers come and go, only elements of maps and sets change.

mod policies;
mod raised;
mod rules;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use esplanade_ipsec::wire::{ah, esp};

use crate::config::{GatewayConfig, InterfaceConfig};
use crate::net::AddressRange;
use crate::net::classifier::{ACCEPT, Branch, ClassifierMap, DROP};
use crate::net::nft::{
    Hook, NftChange, PacketField, RuleMatch, RuleVerdict, SetElement, SetKeys, interface_name,
    node_key,
};

pub use policies::{NoRoom, OwnedPolicy, ShieldFull, ShieldPolicies};
pub use raised::{Outcome, Raised, Tables};

use policies::{COMMON, LEAVING};

const DEVICES: &str = "devices";
const INBOUND: &str = "inbound";
const OUTBOUND: &str = "outbound";
const MARKS: &str = "marks";
/// The chains for ICMP errors about packets of policies: those that pass, and those of the host.
const ERRORS: [(&str, Hook); 2] = [("errors", Hook::Prerouting), ("own-errors", Hook::Reroute)];
/// The types of ICMP's errors, by their families.
const ERROR_TYPES: [(u8, u8, u8, u8); 3] = [
    (IPV4, ICMP, 3, 3),
    (IPV4, ICMP, 11, 12),
    (IPV6, ICMPV6, 1, 4),
];
const UDP: u8 = libc::IPPROTO_UDP as u8;
const ICMP: u8 = libc::IPPROTO_ICMP as u8;
const ICMPV6: u8 = libc::IPPROTO_ICMPV6 as u8;
/// The type of ICMP's redirects (RFC 792).
const REDIRECT: u8 = 5;

const IPV4: u8 = libc::NFPROTO_IPV4 as u8;
const IPV6: u8 = libc::NFPROTO_IPV6 as u8;
/// The address families, each with the offset of the source address in the header and its length, in bytes.
const FAMILIES: [(u8, u32, usize); 2] = [(IPV4, 12, 4), (IPV6, 8, 16)];

/// Returns the table's name. Gateways with different routing tables have tables of their own.
pub fn name(config: &GatewayConfig) -> String {
    format!("esplanade-{}", config.table)
}

/// The policies of the shield. The IKE endpoint asks them whether there is room for more.
#[derive(Clone, Debug, Default)]
pub struct SharedPolicies(Arc<Mutex<ShieldPolicies>>);

impl SharedPolicies {
    pub fn with<T>(&self, take: impl FnOnce(&mut ShieldPolicies) -> T) -> T {
        take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The table as the policies want it.
#[derive(Debug)]
pub struct Shield {
    pub config: GatewayConfig,
    /// The gateway's TUN devices.
    pub devices: Vec<String>,
    pub policies: SharedPolicies,
}

impl Tables for Shield {
    /// Returns the table. If interfaces have policies, a second table follows: the most that a kernel without `fib`
    /// expressions takes.
    fn whole(&mut self) -> Vec<NftChange> {
        self.policies.with(|policies| {
            let ways = match policies.has_bound() {
                true => &[true, false][..],
                false => &[false],
            };
            let table = |way_back: &bool| table(&self.config, &self.devices, policies, *way_back);
            let tables = ways.iter().map(table).collect();
            // The table has what had changed.
            let _ = difference(&name(&self.config), policies);
            tables
        })
    }

    fn difference(&mut self) -> Option<NftChange> {
        let name = name(&self.config);
        self.policies.with(|policies| difference(&name, policies))
    }

    fn absent(&self) -> NftChange {
        NftChange::remove(&name(&self.config))
    }
}

fn table(
    config: &GatewayConfig,
    devices: &[String],
    policies: &mut ShieldPolicies,
    way_back: bool,
) -> NftChange {
    let mut table = NftChange::replace(&name(config));
    let mut names: Vec<_> = devices.iter().map(|name| interface_name(name)).collect();
    names.push(interface_name("lo"));
    names.sort_unstable();
    names.dedup();
    let names = names.into_iter();
    let names: Vec<_> = names
        .map(|name| SetElement::new(name.clone(), name))
        .collect();
    let mut ids = 1..;
    let mut id = || ids.next().unwrap_or_default();
    table.set(DEVICES, id(), SetKeys::Names, &names);
    for (index, classifier) in policies.classifiers().iter_mut().enumerate() {
        let branches = classifier.branches();
        for map in ClassifierMap::ALL {
            let of_map = branches.iter().filter(|branch| branch.map == map);
            let elements: Vec<_> = of_map.map(|branch| element(index, branch)).collect();
            table.set(&map_name(index, map), id(), keys(index, map), &elements);
        }
    }
    table.chain(OUTBOUND, None);
    table.chain(INBOUND, None);
    table.chain("input", Some(Hook::Input));
    table.chain("forward", Some(Hook::Forward));
    table.chain("output", Some(Hook::Output));
    table.chain("translated", Some(Hook::Postrouting));
    outbound(&mut table, config, policies, &mut id);
    exceptions(&mut table, config);
    give_marks(&mut table, config);
    errors(&mut table, config);
    for chain in ["input", "forward"] {
        table.rule(chain, &[], RuleVerdict::Jump(INBOUND));
    }
    for interface in policies.interfaces() {
        if interface.marks.are_given() || way_back {
            of_interface(&mut table, interface);
        }
    }
    inbound(&mut table, INBOUND, COMMON);
    table
}

/// Returns what has changed since the last call, or since the whole table was made.
fn difference(name: &str, policies: &mut ShieldPolicies) -> Option<NftChange> {
    let mut change = NftChange::of(name);
    let mut changed = false;
    for (index, classifier) in policies.classifiers().iter_mut().enumerate() {
        let (gone, come) = classifier.take_changes();
        changed |= !gone.is_empty() || !come.is_empty();
        // The kernel refuses intervals that overlap those that are to go.
        for (branches, comes) in [(gone, false), (come, true)] {
            for map in ClassifierMap::ALL {
                let of_map = branches.iter().filter(|branch| branch.map == map);
                let elements: Vec<_> = of_map.map(|branch| element(index, branch)).collect();
                let (set, keys) = (map_name(index, map), keys(index, map));
                match comes {
                    true => change.add(&set, keys, &elements),
                    false => change.delete(&set, keys, &elements),
                }
            }
        }
    }
    for destinations in policies.destinations() {
        let (gone, come) = destinations.ranges.take_changes();
        changed |= !gone.is_empty() || !come.is_empty();
        for (index, (_, _, len)) in FAMILIES.iter().enumerate() {
            let set = destinations_name(destinations.interface, index);
            let keys = SetKeys::Addresses(*len);
            change.delete(&set, keys, &addresses(&gone, index));
            change.add(&set, keys, &addresses(&come, index));
        }
    }
    changed.then_some(change)
}

/// The name of a classifier's map. `index` is that of the family.
fn map_name(index: usize, map: ClassifierMap) -> String {
    let what = match map {
        ClassifierMap::Remote => "remote",
        ClassifierMap::Local => "local",
        ClassifierMap::Addresses => "addresses",
        ClassifierMap::Protocol => "protocol",
        ClassifierMap::PortProtocol => "port-protocol",
        ClassifierMap::RemotePort => "remote-port",
        ClassifierMap::LocalPort => "local-port",
    };
    format!("{}-{what}", family_name(index))
}

fn family_name(index: usize) -> &'static str {
    ["ip", "ip6"].get(index).copied().unwrap_or_default()
}

fn destinations_name(interface: u32, index: usize) -> String {
    format!("{}-out-{interface}", family_name(index))
}

/// The length in bytes of the field that a map looks at.
fn field_len(index: usize, map: ClassifierMap) -> usize {
    match map {
        ClassifierMap::Remote | ClassifierMap::Local | ClassifierMap::Addresses => {
            FAMILIES.get(index).map_or(0, |(_, _, len)| *len)
        }
        ClassifierMap::Protocol | ClassifierMap::PortProtocol => 1,
        ClassifierMap::RemotePort | ClassifierMap::LocalPort => 2,
    }
}

fn keys(index: usize, map: ClassifierMap) -> SetKeys {
    SetKeys::Nodes(field_len(index, map))
}

fn element(index: usize, branch: &Branch) -> SetElement {
    let len = field_len(index, branch.map);
    let key = |number: u128| {
        let bytes = number.to_be_bytes();
        node_key(
            branch.node,
            bytes.get(bytes.len() - len..).unwrap_or_default(),
        )
    };
    SetElement {
        value: Some(branch.to),
        ..SetElement::new(key(branch.span.0), key(branch.span.1))
    }
}

fn addresses(ranges: &[AddressRange], index: usize) -> Vec<SetElement> {
    let of_family = ranges
        .iter()
        .filter(|range| usize::from(range.first.is_ipv6()) == index);
    let element = |range: &AddressRange| SetElement::new(octets(range.first), octets(range.last));
    of_family.map(element).collect()
}

/// Drops packets of a policy's addresses, or of a mark, that would leave by another device than a TUN device. The
/// gateway's own messages may leave.
fn outbound(
    table: &mut NftChange,
    config: &GatewayConfig,
    policies: &mut ShieldPolicies,
    id: &mut impl FnMut() -> u32,
) {
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
    for destinations in policies.destinations() {
        let interface = destinations.interface;
        let mut marked = config.marked_interfaces();
        let marked = marked.find(|one| one.if_id == interface);
        let Some(mark) = marked.and_then(|one| one.marks.outbound) else {
            continue;
        };
        let marked = RuleMatch::MaskedMark(mark.value, mark.mask);
        let ranges = destinations.ranges.ranges();
        for (index, (family, source, len)) in FAMILIES.into_iter().enumerate() {
            let set = destinations_name(interface, index);
            let elements = addresses(&ranges, index);
            table.set(&set, id(), SetKeys::Addresses(len), &elements);
            let to = RuleMatch::Destination(source + len as u32, len, set);
            let matches = [marked.clone(), RuleMatch::Family(family), to];
            table.rule(OUTBOUND, &matches, RuleVerdict::Drop);
        }
    }
    for (index, (family, source, len)) in FAMILIES.into_iter().enumerate() {
        let step =
            |offset, map| RuleMatch::Step(PacketField::Network(offset, len), map_name(index, map));
        let matches = [
            RuleMatch::Family(family),
            RuleMatch::Start(LEAVING.into()),
            step(source + len as u32, ClassifierMap::Remote),
            step(source, ClassifierMap::Addresses),
            RuleMatch::Reached(DROP),
        ];
        table.rule(OUTBOUND, &matches, RuleVerdict::Drop);
    }
    for (types, matches) in errors_of_policies() {
        let matches = [types, matches].concat();
        table.rule(OUTBOUND, &matches, RuleVerdict::Drop);
    }
    // A hub's packets leave by the device that they came from. The kernel would tell their sender of a shorter way,
    // which is not there (RFC 1812 §5.2.7.2).
    let redirect = RuleMatch::Transport(0, vec![REDIRECT], vec![REDIRECT]);
    let redirect = [
        RuleMatch::InterfaceOut(DEVICES),
        RuleMatch::Family(IPV4),
        RuleMatch::Protocol(ICMP),
        redirect,
    ];
    table.rule("output", &redirect, RuleVerdict::Drop);
    // The host's own errors of policies are routed again, but chains still see the device of before.
    let error = [RuleMatch::Mark(config.error_mark())];
    table.rule("output", &error, RuleVerdict::Accept);
    // Neighbour discovery is the kernel's own traffic.
    neighbours(table, "output");
    // Rules and routes take a packet by its source before the translation of addresses. What has a source of a policy
    // only behind it, would leave in the clear.
    neighbours(table, "translated");
    for chain in ["output", "forward", "translated"] {
        table.rule(chain, &[], RuleVerdict::Jump(OUTBOUND));
    }
}

/// Gives a mark to ICMP errors about packets of policies. They come from any router, so that no policy has their source,
/// and they quote what is protected (RFC 4301 §6.2). The mark leads them into the TUN device.
fn errors(table: &mut NftChange, config: &GatewayConfig) {
    for (chain, hook) in ERRORS {
        table.chain(chain, Some(hook));
        for (types, matches) in errors_of_policies() {
            let matches = [types, vec![RuleMatch::Mark(0)], matches].concat();
            let mark = RuleVerdict::SetMark(config.error_mark());
            table.rule(chain, &matches, mark);
        }
    }
}

/// Returns the types of ICMP errors, each with the conditions on a packet that they quote: it came from a policy's remote
/// end and was for the local one.
fn errors_of_policies() -> impl Iterator<Item = (Vec<RuleMatch>, Vec<RuleMatch>)> {
    ERROR_TYPES
        .into_iter()
        .filter_map(|(of, protocol, first, last)| {
            let mut families = FAMILIES.into_iter().enumerate();
            let (index, (family, source, len)) =
                families.find(|(_, (family, ..))| *family == of)?;
            let quoted = |offset, map| {
                RuleMatch::Step(PacketField::Quoted(offset, len), map_name(index, map))
            };
            let types = vec![
                RuleMatch::Family(family),
                RuleMatch::Protocol(protocol),
                RuleMatch::Transport(0, vec![first], vec![last]),
            ];
            let matches = vec![
                RuleMatch::Start(LEAVING.into()),
                quoted(source, ClassifierMap::Remote),
                quoted(source + len as u32, ClassifierMap::Addresses),
                RuleMatch::Reached(DROP),
            ];
            Some((types, matches))
        })
}

/// Gives marks to the packets that come from the devices for marks, before rules of others look at them.
fn give_marks(table: &mut NftChange, config: &GatewayConfig) {
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
fn neighbours(table: &mut NftChange, chain: &str) {
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
fn exceptions(table: &mut NftChange, config: &GatewayConfig) {
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
    for (family, protocol, first, last) in ERROR_TYPES {
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
fn of_interface(table: &mut NftChange, interface: &InterfaceConfig) {
    let of_interface = match (interface.marks.are_given(), interface.marks.inbound) {
        (false, _) => RuleMatch::WayBack(interface.name.clone()),
        (true, Some(mark)) => RuleMatch::Mark(mark),
        (true, None) => return,
    };
    let chain = format!("interface-{}", interface.if_id);
    table.chain(&chain, None);
    table.rule(INBOUND, &[of_interface], RuleVerdict::Jump(&chain));
    inbound(table, &chain, interface.if_id);
}

/// Drops packets that no SA has brought, but whose policy says Protect (RFC 4301 §5.2, step 3b). The first policy that
/// names a packet decides. A packet from an address that no policy names is looked up once.
fn inbound(table: &mut NftChange, chain: &str, number: u32) {
    for (index, (family, source, len)) in FAMILIES.into_iter().enumerate() {
        let step = |field, map| RuleMatch::Step(field, map_name(index, map));
        let remote = [
            RuleMatch::Start(number.into()),
            step(PacketField::Network(source, len), ClassifierMap::Remote),
        ];
        let to = PacketField::Network(source + len as u32, len);
        let own = format!("{chain}-{}", family_name(index));
        table.chain(&own, None);
        let mut matches = vec![RuleMatch::Family(family)];
        matches.extend(remote.clone());
        table.rule(chain, &matches, RuleVerdict::Jump(&own));
        let ways = [
            vec![
                step(to, ClassifierMap::Local),
                step(PacketField::Protocol, ClassifierMap::PortProtocol),
                step(PacketField::Transport(0), ClassifierMap::RemotePort),
                step(PacketField::Transport(2), ClassifierMap::LocalPort),
            ],
            vec![
                step(to, ClassifierMap::Local),
                step(PacketField::Protocol, ClassifierMap::Protocol),
            ],
            vec![step(to, ClassifierMap::Addresses)],
        ];
        for way in ways {
            let rule = |verdict| [&remote[..], &way, &[RuleMatch::Reached(verdict)]].concat();
            table.rule(&own, &rule(DROP), RuleVerdict::Drop);
            table.rule(&own, &rule(ACCEPT), RuleVerdict::Accept);
        }
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
