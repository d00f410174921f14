//! A packet against the policies of a configuration.

use std::net::IpAddr;

use esplanade_crypto::Protocol;
use esplanade_ike::config::{AddressMatch, Connection, EspProposal, Mode};
use esplanade_ipsec::selector::{Flow, Selector};
use esplanade_ipsec::spd::{Action, Spd};
use esplanade_ipsec::tunnel::{DfPolicy, DscpPolicy, EcnPolicy};

use crate::config::{Loaded, Policy};
use crate::daemon::settings::preview::{Missing, Planned, Why, preview};
use crate::explain::explanation::Comparison;
use crate::explain::words::describe;
use crate::explain::{Explanation, PacketSpec, Report};

pub(super) fn report(loaded: &Loaded, packet: &PacketSpec, inbound: bool) -> Report {
    let (planned, missing) = preview(loaded);
    let flow = packet.flow(inbound);
    let spd = Spd::new(planned.iter().map(|p| p.entry.clone()).collect());
    let explanation = Explanation::of(&spd, &flow, inbound);
    let entry = |index: usize| planned.get(index).map(|p| &p.entry);
    let named = |index: usize| planned.get(index).map(|p| name(loaded, p));
    let mut report = Report::new(packet, inbound, &explanation, entry, |index| {
        named(index).unwrap_or_default()
    });
    let matched = explanation
        .matched
        .and_then(|at| Some((at, planned.get(at)?)));
    if let Some((at, one)) = matched {
        let (decider, _) = name(loaded, one);
        match &one.entry.action {
            Action::Discard => report.discard(&decider),
            Action::Bypass => report.bypass(&decider, inbound, explanation.doubt.and_then(named)),
            Action::Protect(_) if inbound => {
                report.unprotected(&decider);
                report.step(
                    "sa",
                    format!(
                        "through an SA of {decider} it would pass if the SA's selectors contain it (else selector-mismatch)"
                    ),
                );
            }
            Action::Protect(_) => {
                let selector = match explanation.comparisons.get(at) {
                    Some(Comparison::Matches(at)) => one.entry.selectors.as_slice().get(*at),
                    _ => None,
                };
                protect(&mut report, loaded, one, selector, &flow);
            }
        }
    } else {
        report.no_policy();
    }
    left_out(&mut report, loaded, &missing);
    report
}

fn protect(
    report: &mut Report,
    loaded: &Loaded,
    one: &Planned,
    selector: Option<&Selector>,
    flow: &Flow,
) {
    report.decision = "protect".to_owned();
    let taking = one
        .members
        .iter()
        .find(|(_, dscp)| dscp.contains(flow.dscp));
    let member = taking.or(one.members.first());
    let Some(policy) = member.and_then(|(index, _)| loaded.policies.get(*index)) else {
        return;
    };
    let child = format!("{}/{}", policy.connection, policy.child);
    report.step("decision", format!("protect: with an SA of {child}"));
    if one.members.len() > 1 {
        let dscp = flow.dscp;
        report.step(
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
        report.step("sa", match one.asks {
            true => format!("while none is up, packets are dropped (no-sa) and the first asks for one: {wanted}, {from}"),
            false => format!(
                "{child} has start_action = none: until the peer or `esplanade up` brings one up, packets are dropped \
                 (no-sa). It is for {wanted}"
            ),
        });
    }
    let connection = loaded
        .ike
        .connections
        .iter()
        .find(|c| c.name == policy.connection);
    if let Some(connection) = connection {
        report.step("encapsulation", encapsulation(connection, policy, flow));
        let protocol = protocol_of(connection, policy);
        report.step("outer", outer(connection, protocol, loaded.ike.ports.nat_t));
    }
}

/// Reports the policies that could not be compared.
fn left_out(report: &mut Report, loaded: &Loaded, missing: &[Missing]) {
    for missing in missing {
        let Some(policy) = loaded.policies.get(missing.policy) else {
            continue;
        };
        let why = match missing.why {
            Why::NoHosts => {
                "takes no packet: transport mode carries packets between the two gateways only, and its selectors leave \
                 them out"
            }
            Why::Contradicts => {
                "takes no packet: its local and remote selectors contradict each other"
            }
            Why::AddressUnknown => {
                "could not be compared: its selectors depend on an address that is not in the configuration"
            }
        };
        let place = loaded.place(&policy.at);
        let text = format!("{}/{} ({place}) {why}", policy.connection, policy.child);
        report.step("note", text);
    }
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

/// Tells whether the outer packets are of IPv4, if that is known.
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
    let end = |list: &[AddressMatch], unknown: &str| {
        let by_name = || list.iter().find_map(AddressMatch::name);
        match (host(list), by_name()) {
            (Some(address), _) => address.to_string(),
            (None, Some(name)) => format!("the address of {}", name.name),
            (None, None) => unknown.to_owned(),
        }
    };
    let local = end(
        &connection.local_addrs,
        "the address that the route to the peer gives",
    );
    let remote = end(
        &connection.remote_addrs,
        "the address that the peer connects from",
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
    AddressMatch::hosts_of(addresses).next()
}
