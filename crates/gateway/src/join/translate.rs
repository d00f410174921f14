//! IKE's terms in those of the data plane, and back.

use std::sync::Arc;

use esplanade_crypto::KeyError;
use esplanade_crypto::iana::SequenceNumbers;
use esplanade_ike::config::{Demand, Mode as IkeMode};
use esplanade_ike::event::ChildSaInstalled;
use esplanade_ike::wire;
use esplanade_ipsec::lifetime::LifetimeLimits;
use esplanade_ipsec::sa::{InboundSa, Mode, OutboundSa, Path, SaParameters, TfcPadding};
use esplanade_ipsec::selector::{
    AddressRange, Flow, NextLayer, PortRange, Selector, SelectorSet, TrafficSelector,
};
use esplanade_ipsec::spd::PolicyId;

use super::policy_book::PolicySelectors;
use crate::config::SaOptions;

/// Returns the negotiated selectors, or `None` if there are too many, or if they select nothing.
pub(super) fn negotiated(event: &ChildSaInstalled) -> Option<PolicySelectors> {
    PolicySelectors::new(ends(&event.local_ts), ends(&event.remote_ts))
}

/// Returns the negotiated selectors of one end as the data plane has them.
pub fn ends(negotiated: &[esplanade_ike::TrafficSelector]) -> Vec<TrafficSelector> {
    negotiated.iter().filter_map(selector).collect()
}

/// Makes the two halves of a child SA. `now_ms` is the data plane's clock.
pub(super) fn halves(
    event: &ChildSaInstalled,
    options: &SaOptions,
    selectors: &SelectorSet,
    policy: PolicyId,
    now_ms: u64,
) -> Result<(Arc<InboundSa>, Arc<OutboundSa>), KeyError> {
    let parameters = |spi, key_material, interface| SaParameters {
        interface,
        esn: event.esp.sequence_numbers == SequenceNumbers::Bits64,
        tunnel: options.tunnel.clone(),
        lifetime: limits(event),
        replay_window: event.replay_window,
        peer_replay_window: event.peer_replay_window,
        mode: match event.mode {
            IkeMode::Tunnel => Mode::Tunnel,
            IkeMode::Transport => Mode::Transport,
        },
        tfc: match event.tfc {
            true => options.tfc,
            false => TfcPadding::None,
        },
        dscp: options.dscp,
        class: options.class,
        icmp_errors: options.icmp_errors,
        non_first_fragments: event.non_first_fragments,
        installed_ms: now_ms,
        ..SaParameters::new(
            spi,
            policy,
            event.esp.transform,
            key_material,
            selectors.clone(),
            Path {
                local: event.local,
                remote: event.remote,
                udp_encap: event.udp_encap,
            },
        )
    };
    let (key_in, key_out) = (event.key_in.expose(), event.key_out.expose());
    let inbound = parameters(event.spi_in, key_in, options.if_ids.inbound);
    let outbound = parameters(event.spi_out, key_out, options.if_ids.outbound);
    Ok((
        Arc::new(InboundSa::new(inbound)?),
        Arc::new(OutboundSa::new(outbound)?),
    ))
}

fn limits(event: &ChildSaInstalled) -> LifetimeLimits {
    let limit = |value: u64| (value != 0).then_some(value);
    LifetimeLimits {
        bytes_soft: limit(event.soft_bytes),
        bytes_hard: limit(event.hard_bytes),
        packets_soft: limit(event.soft_packets),
        packets_hard: limit(event.hard_packets),
        // IKE has timers for this limit and for the others in time. The keys end in time even if IKE is late.
        time_hard_ms: limit(event.life_time.as_millis() as u64),
        ..LifetimeLimits::default()
    }
}

/// Returns the traffic selectors that IKE is asked for when a packet finds no SA.
///
/// Returns `None` if PFP takes the protocol of a flow that hides it. Traffic selectors could only name any protocol
/// then (RFC 7296 §3.13.1).
pub fn demand(flow: &Flow, selector: &Selector) -> Option<Demand> {
    let protocol = match selector.protocol {
        NextLayer::Is(protocol) => Some(protocol),
        NextLayer::Any => None,
        NextLayer::Opaque => return None,
    };
    let end = |first, last, protocol: Option<u8>, ports: (u16, u16)| wire::TrafficSelector {
        protocol: protocol.unwrap_or(0),
        start_port: ports.0,
        end_port: ports.1,
        start: first,
        end: last,
    };
    let of_range = |range: &AddressRange, ports: &PortRange| {
        let ports = match *ports {
            PortRange::Any => (0, u16::MAX),
            PortRange::Opaque => (u16::MAX, 0),
            PortRange::Range(first, last) => (first, last),
        };
        end(range.first(), range.last(), protocol, ports)
    };
    let of_packet = |address, port: Option<u16>| {
        let ports = port.map_or((0, u16::MAX), |port| (port, port));
        end(address, address, flow.protocol, ports)
    };
    Some(Demand {
        packet: (
            of_packet(flow.local, flow.ports.map(|ports| ports.0)),
            of_packet(flow.remote, flow.ports.map(|ports| ports.1)),
        ),
        selectors: (
            of_range(&selector.local, &selector.local_ports),
            of_range(&selector.remote, &selector.remote_ports),
        ),
    })
}

/// Converts a selector from the wire. Returns `None` if the selector selects nothing.
fn selector(ts: &wire::TrafficSelector) -> Option<TrafficSelector> {
    Some(TrafficSelector {
        addresses: AddressRange::new(ts.start, ts.end)?,
        protocol: ts.protocol,
        ports: PortRange::from_wire(ts.start_port, ts.end_port)?,
    })
}
