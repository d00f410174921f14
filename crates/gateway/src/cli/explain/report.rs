//! The way of one packet through the policies, for people (`Display`) and programs (`Serialize`).

use std::fmt;
use std::net::IpAddr;

use esplanade_crypto::Protocol;
use esplanade_ike::config::{AddressMatch, Connection, EspProposal, Mode};
use esplanade_ipsec::selector::{AddressRange, Flow, NextLayer, PortRange, Selector};
use esplanade_ipsec::spd::explain::{Comparison, Field};
use esplanade_ipsec::spd::{Action, Entry, Spd};
use esplanade_ipsec::tunnel::{DfPolicy, DscpPolicy, EcnPolicy};
use serde::Serialize;

use super::packet::{Packet, protocol_name};
use crate::config::{Loaded, Policy};
use crate::daemon::preview::{Planned, leaves_hosts_out, preview};

/// Policies shown before the one that matches: those that came closest.
const BEFORE_SHOWN: usize = 5;
/// Later policies shown that would match as well.
const AFTER_SHOWN: usize = 2;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    packet: String,
    direction: &'static str,
    dscp: u8,
    policies: usize,
    /// Those that are near the decision, in the order of the SPD.
    compared: Vec<Compared>,
    /// `protect`, `bypass` or `discard`.
    decision: &'static str,
    /// Why, and what follows: one sentence a step.
    steps: Vec<Step>,
}

#[derive(Debug, Serialize)]
struct Compared {
    /// From 1.
    number: usize,
    policy: String,
    place: String,
    action: &'static str,
    matches: bool,
    /// The one that decides.
    decides: bool,
    why: String,
}

#[derive(Debug, Serialize)]
struct Step {
    step: &'static str,
    text: String,
}

impl Report {
    pub(super) fn new(loaded: &Loaded, packet: &Packet, inbound: bool) -> Self {
        let (planned, unknown) = preview(loaded);
        let flow = packet.flow(inbound);
        let spd = Spd::new(planned.iter().map(|p| p.entry.clone()).collect());
        let explanation = spd.explain(&flow, inbound);
        let matched = explanation.matched;
        let mut report = Self {
            packet: packet.to_string(),
            direction: if inbound { "inbound" } else { "outbound" },
            dscp: packet.dscp,
            policies: planned.len(),
            compared: Vec::new(),
            decision: "discard",
            steps: Vec::new(),
        };
        for index in near(&explanation.comparisons, matched) {
            let (Some(one), Some(comparison)) =
                (planned.get(index), explanation.comparisons.get(index))
            else {
                continue;
            };
            let (name, place) = name(loaded, one);
            let later = matched.is_some_and(|first| index > first);
            report.compared.push(Compared {
                number: index + 1,
                policy: name,
                place,
                action: word(&one.entry.action),
                matches: matches!(comparison, Comparison::Matches(_)),
                decides: matched == Some(index),
                why: why(&one.entry, comparison, &flow, later),
            });
        }
        let Some(one) = matched.and_then(|index| planned.get(index)) else {
            report.step(
                "decision",
                "discard: no policy matches, and what no policy names is discarded (drop reason no-policy)".into(),
            );
            report.unknown(loaded, &unknown);
            return report;
        };
        let (decider, _) = name(loaded, one);
        match &one.entry.action {
            Action::Discard => {
                report.step(
                    "decision",
                    format!("discard: {decider} says so (drop reason policy-discard)"),
                );
            }
            Action::Bypass => report.bypass(loaded, &planned, explanation.doubt, &decider, inbound),
            Action::Protect(_) if inbound => report.unprotected(&decider),
            Action::Protect(_) => {
                let selector = match explanation.comparisons.get(matched.unwrap_or(0)) {
                    Some(Comparison::Matches(at)) => one.entry.selectors.as_slice().get(*at),
                    _ => None,
                };
                report.protect(loaded, one, selector, &flow);
            }
        }
        report.unknown(loaded, &unknown);
        report
    }

    fn step(&mut self, step: &'static str, text: String) {
        self.steps.push(Step { step, text });
    }

    fn bypass(
        &mut self,
        loaded: &Loaded,
        planned: &[Planned],
        doubt: Option<usize>,
        decider: &str,
        inbound: bool,
    ) {
        if let Some(other) = doubt.and_then(|index| planned.get(index)) {
            let (other, place) = name(loaded, other);
            let reason = if inbound {
                "not-protected"
            } else {
                "policy-discard"
            };
            self.step(
                "decision",
                format!(
                    "discard: {decider} would let it pass in the clear, but its datagram may belong to {other} \
                     ({place}), and a fragment does not show that (RFC 4301 §7.4; drop reason {reason})"
                ),
            );
            return;
        }
        self.decision = "bypass";
        let way = if inbound {
            "goes on to the protected side"
        } else {
            "leaves as it is, unprotected"
        };
        self.step(
            "decision",
            format!("bypass: {decider} lets it pass; it {way}"),
        );
    }

    fn unprotected(&mut self, decider: &str) {
        self.step(
            "decision",
            format!(
                "discard: {decider} wants such packets to come through an SA, and this one is unprotected \
                 (RFC 4301 §5.2; drop reason not-protected)"
            ),
        );
        self.step(
            "sa",
            format!("through an SA of {decider} it would pass if the SA's selectors contain it (else selector-mismatch)"),
        );
    }

    fn protect(
        &mut self,
        loaded: &Loaded,
        one: &Planned,
        selector: Option<&Selector>,
        flow: &Flow,
    ) {
        self.decision = "protect";
        let taking = one
            .members
            .iter()
            .find(|(_, dscp)| dscp.contains(flow.dscp));
        let member = taking.or(one.members.first());
        let Some(policy) = member.and_then(|(index, _)| loaded.policies.get(*index)) else {
            return;
        };
        let child = format!("{}/{}", policy.connection, policy.child);
        self.step("decision", format!("protect: with an SA of {child}"));
        if one.members.len() > 1 {
            let dscp = flow.dscp;
            self.step(
                "child",
                format!(
                    "{child} takes DSCP {dscp} of {} children with the same selectors",
                    one.members.len()
                ),
            );
        }
        if let Some(selector) = selector {
            let wanted = describe(&one.entry.populate.narrow(selector, flow));
            let from = match one.entry.populate.is_none() {
                true => "the policy's selectors",
                false => "the policy's selectors with the fields that come from the packet (PFP)",
            };
            self.step("sa", match one.held {
                true => format!("while none is up, packets are dropped (no-sa) and the first asks for one: {wanted}, {from}"),
                false => format!(
                    "{child} has start_action = none: this policy is in force only while the peer or `esplanade up` has \
                     brought it up; until then a later policy decides. Its SA is for {wanted}"
                ),
            });
        }
        let connection = loaded
            .ike
            .connections
            .iter()
            .find(|c| c.name == policy.connection);
        if let Some(connection) = connection {
            self.step("encapsulation", encapsulation(connection, policy, flow));
            let protocol = protocol_of(connection, policy);
            self.step("outer", outer(connection, protocol, loaded.ike.ports.nat_t));
        }
    }

    /// Policies that could not be compared.
    fn unknown(&mut self, loaded: &Loaded, unknown: &[usize]) {
        for policy in unknown
            .iter()
            .filter_map(|index| loaded.policies.get(*index))
        {
            let why = match leaves_hosts_out(loaded, policy) {
                true => {
                    "takes no packet: transport mode carries packets between the two gateways only, and its selectors \
                     leave them out"
                }
                false => {
                    "could not be compared: its selectors depend on an address that is not in the configuration"
                }
            };
            let place = loaded.place(&policy.at);
            let text = format!("{}/{} ({place}) {why}", policy.connection, policy.child);
            self.step("note", text);
        }
    }
}

/// The policies worth showing: the one that decides, those before it that came closest, and later ones that match too.
fn near(comparisons: &[Comparison], matched: Option<usize>) -> Vec<usize> {
    let end = matched.unwrap_or(comparisons.len());
    let mut before: Vec<(Field, usize)> = comparisons
        .iter()
        .take(end)
        .enumerate()
        .filter_map(|(index, comparison)| match comparison {
            Comparison::Differs(field, _) => Some((*field, index)),
            Comparison::Matches(_) => None,
        })
        .collect();
    before.sort_unstable_by(|a, b| b.cmp(a));
    before.truncate(BEFORE_SHOWN);
    let later = comparisons.iter().enumerate().skip(end.saturating_add(1));
    let later = later.filter(|(_, comparison)| matches!(comparison, Comparison::Matches(_)));
    let mut shown: Vec<usize> = before.into_iter().map(|(_, index)| index).collect();
    shown.extend(matched);
    shown.extend(later.map(|(index, _)| index).take(AFTER_SHOWN));
    shown.sort_unstable();
    shown
}

fn name(loaded: &Loaded, planned: &Planned) -> (String, String) {
    let policy = planned
        .members
        .first()
        .and_then(|(index, _)| loaded.policies.get(*index));
    let place = policy
        .map(|policy| loaded.place(&policy.at))
        .unwrap_or_default();
    (planned.entry.name.to_string(), place)
}

fn word(action: &Action) -> &'static str {
    match action {
        Action::Protect(_) => "protect",
        Action::Bypass => "bypass",
        Action::Discard => "discard",
    }
}

fn why(entry: &Entry, comparison: &Comparison, flow: &Flow, later: bool) -> String {
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
            Field::Interface => "is for another interface".into(),
            Field::Direction => "is for the other direction".into(),
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
        Field::Remote => format!(
            "remote address {} is not in {}",
            flow.remote,
            addresses(&selector.remote)
        ),
        Field::Local => format!(
            "local address {} is not in {}",
            flow.local,
            addresses(&selector.local)
        ),
        Field::Protocol => format!(
            "{} is not {}",
            protocol(flow.protocol),
            next_layer(selector)
        ),
        Field::RemotePort => format!(
            "remote {}",
            port(flow.ports.map(|p| p.1), &selector.remote_ports)
        ),
        Field::LocalPort => format!(
            "local {}",
            port(flow.ports.map(|p| p.0), &selector.local_ports)
        ),
        Field::Interface | Field::Direction => String::new(),
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

/// `10.1.0.0/16 === 10.2.0.0/16[tcp/443]`, as `status` writes selectors.
fn describe(selector: &Selector) -> String {
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

fn proposals<'a>(connection: &'a Connection, policy: &Policy) -> &'a [EspProposal] {
    let mut children = connection.children.iter();
    let child = children.find(|child| child.name == policy.child);
    child.map_or(&[][..], |child| &child.esp_proposals)
}

fn protocol_of(connection: &Connection, policy: &Policy) -> Protocol {
    let first = proposals(connection, policy).first();
    first.map_or(Protocol::Esp, EspProposal::protocol)
}

fn encapsulation(connection: &Connection, policy: &Policy, flow: &Flow) -> String {
    let proposals = proposals(connection, policy);
    let protocol = protocol_of(connection, policy);
    let offered: Vec<String> = proposals.iter().map(proposal).collect();
    let mut text = match policy.mode {
        Mode::Transport => format!("{protocol} in transport mode: the packet keeps its IP header"),
        Mode::Tunnel => {
            let tunnel = &policy.sa.tunnel;
            let dscp = match &tunnel.dscp {
                DscpPolicy::Copy => format!("DSCP {} copied from the packet", flow.dscp),
                DscpPolicy::Map(map) => format!("DSCP {}", map.get(flow.dscp)),
            };
            let df = match tunnel.df {
                _ if connection_version(connection).is_some_and(|v4| !v4) => "",
                DfPolicy::Copy => ", Don't Fragment copied",
                DfPolicy::Set => ", Don't Fragment set",
                DfPolicy::Clear => ", Don't Fragment clear",
            };
            let ecn = match tunnel.ecn {
                EcnPolicy::Copy => "",
                EcnPolicy::Clear => ", ECN clear",
            };
            let ttl = tunnel.ttl.map(|ttl| format!(", TTL {ttl}"));
            let ttl = ttl.unwrap_or_default();
            format!(
                "{protocol} in tunnel mode: the whole packet behind a new header with {dscp}{ecn}{df}{ttl}"
            )
        }
    };
    if !offered.is_empty() {
        text += &format!("; offered: {}", offered.join(", then "));
    }
    text
}

/// Whether the outer packets are of IPv4, if that is known.
fn connection_version(connection: &Connection) -> Option<bool> {
    host(&connection.remote_addrs).map(|remote| remote.is_ipv4())
}

fn proposal(proposal: &EspProposal) -> String {
    let ciphers = proposal
        .encryption
        .iter()
        .map(|(encryption, bits)| match bits {
            0 => encryption.name().to_owned(),
            bits => format!("{}_{bits}", encryption.name()),
        });
    let integrity = proposal.integrity.iter().map(|i| i.name().to_owned());
    let all: Vec<String> = ciphers.chain(integrity).collect();
    all.join("/")
}

fn outer(connection: &Connection, protocol: Protocol, nat_t: u16) -> String {
    let local = host(&connection.local_addrs).map_or_else(
        || "the address that the route to the peer gives".to_owned(),
        |address| address.to_string(),
    );
    let remote = host(&connection.remote_addrs).map_or_else(
        || "the address that the peer connects from".to_owned(),
        |address| address.to_string(),
    );
    let udp = match (protocol, connection.encap) {
        (Protocol::Ah, _) => "directly (AH passes no NAT)".to_owned(),
        (Protocol::Esp, true) => format!("in UDP, port {nat_t} (encap = yes)"),
        (Protocol::Esp, false) => {
            format!("directly, or in UDP port {nat_t} where a NAT is in between (RFC 3948)")
        }
    };
    format!("{local} -> {remote}, {udp}")
}

fn host(addresses: &[AddressMatch]) -> Option<IpAddr> {
    addresses.iter().find_map(|address| match address {
        AddressMatch::Host(host) => Some(*host),
        _ => None,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LABEL: usize = 15;
        writeln!(
            f,
            "{:LABEL$}{}, {}, DSCP {}",
            "packet", self.packet, self.direction, self.dscp
        )?;
        let hidden = self.policies - self.compared.len().min(self.policies);
        let more = match hidden {
            0 => String::new(),
            hidden => format!(", {hidden} not shown"),
        };
        writeln!(
            f,
            "{:LABEL$}{} in order, first match wins{more}",
            "policies", self.policies
        )?;
        for one in &self.compared {
            let mark = if one.decides { ">" } else { " " };
            writeln!(
                f,
                "{:>13} {mark} {:<4}{} {} ({})",
                "", one.number, one.action, one.policy, one.place
            )?;
            writeln!(f, "{:LABEL$}      {}", "", one.why)?;
        }
        for step in &self.steps {
            writeln!(f, "{:LABEL$}{}", step.step, step.text)?;
        }
        Ok(())
    }
}
