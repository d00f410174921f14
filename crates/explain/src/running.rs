//! A packet in the running gateway: its SPD, its SAs, the paths that it knows.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;
use std::sync::Arc;

use esplanade_crypto::Protocol;
use esplanade_ipsec::DropReason;
use esplanade_ipsec::outbound::NESTING_MAX;
use esplanade_ipsec::sa::{InboundSa, Mode, OutboundSa, SaCommon};
use esplanade_ipsec::selector::Selector;
use esplanade_ipsec::spd::{Acquire, Action, Decision, Policy, PolicyId, Spd};
use esplanade_ipsec::tunnel::{DfPolicy, OUTER_TTL, OuterMeta};
use esplanade_ipsec::wire::ip::PROTOCOL_UDP;
use esplanade_ipsec::wire::{IpVersion, IpView, ah, esp};

use super::report::Hop;
use super::words::describe;
use super::{Explanation, PacketSpec, Report};
use esplanade_dataplane::{is_of_sa, size_limit};
use esplanade_host::net::{KnownBy, KnownMtu, RoutedTo};

/// Most SAs that are named for an inbound packet.
const INBOUND_SHOWN: usize = 8;
/// Most selectors of one SA that are written out.
const SELECTORS_SHOWN: usize = 3;

/// The gateway, as far as a packet's way depends on it.
pub trait Gateway {
    /// Returns where the routes lead the packet, or `None` if the routes do not tell.
    fn led(&self, packet: &PacketSpec) -> Option<RoutedTo>;
    fn spd(&self) -> &Spd;
    /// Returns the place of a policy in the configuration. The text is empty if the policy is no longer configured.
    fn place(&self, policy: &str) -> String;
    /// Returns the unique name and the state of an SA, if IKE knows it.
    fn state(&self, sa: &SaCommon, inbound: bool) -> Option<(String, &'static str)>;
    /// Returns what is known of an SA whose traffic goes one way: packets go out, and none comes in.
    fn one_way(&self, sa: &SaCommon, inbound: bool) -> Option<String>;
    /// Returns the engine that carries the SA, if there are several, and why it is not the one that was wanted. Also
    /// returns it if the SA's tier is not the process's.
    fn engine(&self, sa: &SaCommon, inbound: bool) -> Option<String>;
    fn path(&self, remote: IpAddr) -> Option<KnownMtu>;
    /// Returns the inbound SAs of a policy.
    fn inbound_sas(&self, policy: PolicyId) -> Vec<Arc<InboundSa>>;
    /// Tells whether a policy's packets ask for an SA while there is none.
    fn asks(&self, policy: PolicyId) -> bool;
    /// Returns why packets of this DSCP ask for nothing now, and until when: the peer has refused an SA, or a command has
    /// closed the child.
    fn refusal(&self, policy: PolicyId, dscp: u8) -> Option<String>;
    /// Returns what the log has of the last time that the peer of this policy was refused.
    fn last_refusal(&self, policy: &str) -> Option<String>;
    /// Returns how the attempt goes that is to bring up an SA for packets of this DSCP.
    fn attempt(&self, policy: PolicyId, dscp: u8) -> Option<String>;
    /// Returns the MTU of the interface that packets come from.
    fn interface_mtu(&self, interface: u32) -> u16;
    fn reassembles(&self) -> bool;
    fn reports_discards(&self) -> bool;
    /// Returns the time of the data plane's clock.
    fn now_ms(&self) -> u64;
}

pub fn report(gateway: &impl Gateway, packet: &PacketSpec, inbound: bool) -> Report {
    let spd = gateway.spd();
    let flow = packet.flow(inbound);
    let explanation = Explanation::of(spd, &flow, inbound);
    let named = |index: usize| {
        let entry = spd.entries().get(index)?;
        Some((entry.name.to_string(), gateway.place(&entry.name)))
    };
    let entry = |index: usize| spd.entries().get(index);
    let mut report = Report::new(packet, inbound, &explanation, entry, |index| {
        named(index).unwrap_or_default()
    });
    if !inbound && packet.fragment && gateway.reassembles() && spd.ports_decide(&flow) {
        report.decision = "held".to_owned();
        report.step(
            "decision",
            "held: ports count here, and it shows none. It waits until its datagram is whole, and that is decided on; if \
             its first fragment left as it was, bypassed or through an SA with non_first_fragments, it follows that \
             (RFC 4301 §7.3)",
        );
        return report;
    }
    let doubt = explanation.doubt.and_then(named);
    let decider = explanation.matched.and_then(named);
    let matched = explanation.matched.and_then(entry);
    let (Some((decider, _)), Some(entry)) = (decider, matched) else {
        report.no_policy();
        if !inbound {
            told(&mut report, gateway);
        }
        return report;
    };
    let led = match packet.interface {
        0 if !inbound => gateway.led(packet),
        _ => None,
    };
    if let Some(led) = led
        && !leads_here(&mut report, led)
        && matches!(entry.action, Action::Protect(_))
    {
        report.decision = "elsewhere".to_owned();
        let text = format!("elsewhere: {decider} would protect it, but no route brings it");
        report.step("decision", text);
        return report;
    }
    match &entry.action {
        Action::Discard => {
            report.discard(&decider);
            if inbound {
                report.step(
                    "sa",
                    "that holds for packets out of an SA too (RFC 4301 §4.4.1)",
                );
            }
        }
        Action::Bypass => report.bypass(&decider, inbound, doubt),
        Action::Protect(policy) if inbound => {
            report.unprotected(&decider);
            inbound_sas(&mut report, gateway, packet, policy, &decider);
        }
        Action::Protect(policy) => outbound(&mut report, gateway, packet, policy, &decider),
    }
    if report.decision == "discard" && !inbound {
        told(&mut report, gateway);
    }
    report
}

/// Tells whether the packet reaches the policies. If it does not, the report says why.
fn leads_here(report: &mut Report, led: RoutedTo) -> bool {
    let (here, text) = match led {
        RoutedTo::Tun => return true,
        RoutedTo::Past(interface) => (
            false,
            format!(
                "the routes lead it out of {interface}, not into the gateway's TUN device: the policies do not see it"
            ),
        ),
        RoutedTo::NotForwarded(interface) => (
            false,
            format!(
                "it comes in by {interface}, and this machine does not forward: the policies do not see it"
            ),
        ),
        RoutedTo::Nowhere => (
            true,
            "no route leads it anywhere: its sender is told".to_owned(),
        ),
    };
    report.step("route", text);
    here
}

/// Reports the ICMP error to the sender of a discarded packet (RFC 4301 §6).
fn told(report: &mut Report, gateway: &impl Gateway) {
    if gateway.reports_discards() {
        report.step("icmp", "its sender is told that it is prohibited");
    }
}

fn outbound(
    report: &mut Report,
    gateway: &impl Gateway,
    packet: &PacketSpec,
    policy: &Policy,
    decider: &str,
) {
    report.decision = "protect".to_owned();
    report.step("decision", format!("protect: {decider} says so"));
    match gateway.spd().outbound(&packet.flow(false)) {
        Decision::Protect(sa) => follow(report, gateway, packet, decider, sa),
        Decision::Acquire(acquire) => wanting(report, gateway, packet, &acquire),
        // The entry says Protect, so only the SAs can have refused the packet.
        Decision::Bypass | Decision::Discard(_) => {
            let up = policy.outbound_sas();
            let has: Vec<String> = up.iter().map(|sa| selectors(&sa.common)).collect();
            report.step(
                "sa",
                format!(
                    "dropped ({}): the SAs of {decider} were negotiated for less: {}",
                    DropReason::OutsideSaSelectors,
                    shortened(&has)
                ),
            );
        }
    }
}

fn wanting(
    report: &mut Report,
    gateway: &impl Gateway,
    packet: &PacketSpec,
    acquire: &Acquire<'_>,
) {
    let wanted = describe(&acquire.selector);
    let refused = gateway.last_refusal(&acquire.policy.name);
    if !gateway.asks(acquire.policy.id) {
        let text = format!(
            "none is up: the packet is dropped ({}), and asks for none (start_action = none); one would be for {wanted}",
            DropReason::NoSa
        );
        report.step("sa", text);
        refused
            .into_iter()
            .for_each(|why| report.step("refused", why));
        return;
    }
    let refusal = gateway.refusal(acquire.policy.id, packet.dscp);
    let asks = match (&refusal, acquire.policy.acquire_is_raised()) {
        (Some(_), _) => "it asks for none now",
        (None, true) => "one has been asked for",
        (None, false) => "it asks for one",
    };
    report.step(
        "sa",
        format!(
            "none is up: the packet is dropped ({}), and {asks}: {wanted}",
            DropReason::NoSa
        ),
    );
    if let Some(why) = refusal {
        report.step("refusal", why);
    }
    refused
        .into_iter()
        .for_each(|why| report.step("refused", why));
    if let Some(attempt) = gateway.attempt(acquire.policy.id, packet.dscp) {
        report.step("attempt", attempt);
    }
}

/// Follows the packet from SA to SA, as a bundle is applied (RFC 4301 appendix E).
fn follow(
    report: &mut Report,
    gateway: &impl Gateway,
    packet: &PacketSpec,
    decider: &str,
    first: Arc<OutboundSa>,
) {
    let (mut sa, mut view) = (first, view(packet));
    let mut policy = decider.to_owned();
    for depth in 0..=NESTING_MAX {
        let known_len = packet.len.is_some();
        let interface = if depth == 0 { packet.interface } else { 0 };
        // Only the first SA's packets come out of a device.
        let device = match depth {
            0 => gateway.interface_mtu(interface),
            _ => u16::MAX,
        };
        let of = (interface, device);
        let (hop, leaves) = hop(report, gateway, &sa, (&view, known_len), of, &policy);
        let outer_len = hop.outer_len.unwrap_or_default() as usize;
        report.hops.push(hop);
        let Some(next) = sa.next_policy().filter(|_| leaves) else {
            return;
        };
        let Some(next) = gateway.spd().policy(next) else {
            let text = format!(
                "the SPD has no policy for the next SA: the packet is dropped ({})",
                DropReason::NoSa
            );
            return report.step("next", text);
        };
        view = outer_view(&sa, &view, outer_len);
        let flow = view.outbound_flow();
        policy = next.name.clone();
        report.step(
            "next",
            format!("what comes out goes through an SA of {policy}"),
        );
        match next.outbound_sa_for(&flow) {
            Some(further) => sa = further,
            None => {
                let text = format!("none is up: the packet is dropped ({})", DropReason::NoSa);
                report.step("sa", text);
                return;
            }
        }
    }
    let reason = DropReason::NestedTooDeep;
    report.step(
        "sa",
        format!("dropped ({reason}): more SAs than {}", NESTING_MAX + 1),
    );
}

/// Reports one SA on the way of the packet, and tells whether the packet leaves it.
fn hop(
    report: &mut Report,
    gateway: &impl Gateway,
    sa: &OutboundSa,
    (view, known_len): (&IpView, bool),
    (interface, device): (u32, u16),
    policy: &str,
) -> (Hop, bool) {
    let common = &sa.common;
    let path = common.path();
    let meta = sa.outer_meta(view);
    let mut hop = Hop {
        policy: policy.to_owned(),
        local: path.local.to_string(),
        remote: path.remote.to_string(),
        udp_encap: path.udp_encap,
        dscp: meta.tos >> 2,
        dont_fragment: meta.dont_fragment || path.version() == IpVersion::V6,
        ..of_sa(report, gateway, common, false)
    };
    report.step("outer", outer(sa, &meta));
    let refused = if interface != 0 && is_of_sa(sa, view) {
        Some(DropReason::NestedTooDeep)
    } else if common.lifetime.expired(gateway.now_ms()) {
        Some(DropReason::LifetimeExpired)
    } else {
        sa.refuses(view, &meta)
    };
    if let Some(reason) = refused {
        hop.outcome = reason.name().to_owned();
        report.step("drop", format!("dropped ({reason})"));
        return (hop, false);
    }
    let known = gateway.path(path.remote.ip());
    hop.path_mtu = known.map(|path| path.mtu);
    let whole = |path: KnownMtu| (sa.inner_mtu(path.mtu as usize) as u32).min(device.into());
    hop.inner_mtu = known.map(whole);
    hop.outer_len = known_len.then(|| sa.outer_len(view.total_len) as u32);
    let size = match known_len && view.total_len > device.into() {
        true => too_long_for(device, view),
        false => size(sa, view, &meta, known, (known_len, device)),
    };
    hop.outcome = size.outcome.to_owned();
    report.step("size", size.text);
    (hop, size.leaves)
}

/// The outcome of a packet's length.
struct Size {
    outcome: &'static str,
    leaves: bool,
    text: String,
}

impl Size {
    fn sent(text: String) -> Self {
        Self {
            outcome: "sent",
            leaves: true,
            text,
        }
    }
}

/// Describes the outcome of a packet that is longer than the MTU of the TUN device.
fn too_long_for(device: u16, view: &IpView) -> Size {
    let len = view.total_len;
    let takes = format!("the TUN device takes {device} bytes, and the packet has {len}");
    match view.version == IpVersion::V4 && !view.dont_fragment {
        true => Size {
            outcome: "fragmented-before",
            leaves: true,
            text: format!(
                "{takes}: the kernel cuts it into pieces of up to {device} bytes, each of which meets the policies"
            ),
        },
        false => Size {
            outcome: "too-big",
            leaves: false,
            text: format!(
                "{takes}: it must not be cut, and the kernel tells its sender {device} bytes (RFC 1191, RFC 8201)"
            ),
        },
    }
}

fn size(
    sa: &OutboundSa,
    view: &IpView,
    meta: &OuterMeta,
    known: Option<KnownMtu>,
    (known_len, device): (bool, u16),
) -> Size {
    let Some(KnownMtu { mtu, by }) = known else {
        return Size::sent("what the path to the peer takes is not known".to_owned());
    };
    let mtu = mtu as usize;
    let whole = sa.inner_mtu(mtu).min(device.into());
    let from = match by {
        KnownBy::Error => "as learned",
        KnownBy::Probes => "as probes have found",
        KnownBy::Route => "by the route",
    };
    let by_device = match whole == usize::from(device) {
        true => format!(" and the TUN device {device}"),
        false => String::new(),
    };
    let takes = format!(
        "the path takes {mtu} bytes, {from}{by_device}: packets of up to {whole} fit in whole"
    );
    if !known_len {
        return Size::sent(takes);
    }
    let (len, outer_len) = (view.total_len, sa.outer_len(view.total_len));
    let becomes = format!("{takes}; its {len} bytes become {outer_len}");
    if outer_len <= mtu {
        return Size::sent(format!("{becomes}, which fit"));
    }
    let limit = size_limit(sa, view, mtu).filter(|limit| len > *limit);
    let (outcome, leaves, then) = match limit {
        Some(limit) if view.version == IpVersion::V4 && !view.dont_fragment => (
            "fragmented-before",
            true,
            format!("it is cut into pieces of up to {limit} bytes that are protected one by one"),
        ),
        Some(limit) => (
            "too-big",
            false,
            format!(
                "it must not be cut: it is dropped ({}), and an ICMP error tells its sender {limit} bytes (RFC 4301 §8.2.1)",
                DropReason::TooBig
            ),
        ),
        None => (
            "fragmented-after",
            true,
            "the outer packet is cut, and the peer puts it together".to_owned(),
        ),
    };
    // The gateway learns the MTU when the kernel refuses a packet, and uses it from the next packet on.
    let first = match by == KnownBy::Route && meta.dont_fragment {
        true => "the kernel refuses the first such packet; from then on ",
        false => "",
    };
    let text = format!("{becomes}: {first}{then}");
    Size {
        outcome,
        leaves,
        text,
    }
}

/// Reports the SA itself: its name and what was negotiated.
fn of_sa(report: &mut Report, gateway: &impl Gateway, common: &SaCommon, inbound: bool) -> Hop {
    let (name, state) = gateway
        .state(common, inbound)
        .unwrap_or(("an SA".to_owned(), "UNKNOWN"));
    let transform = common.transform();
    let mode = match common.mode {
        Mode::Tunnel => "tunnel",
        Mode::Transport => "transport",
    };
    let numbers = if common.esn() { ", ESN" } else { "" };
    report.step(
        "sa",
        format!(
            "{name} with SPI {:08x} is {state}: {} in {mode} mode, {transform}{numbers}, for {}",
            common.spi,
            transform.protocol().name(),
            selectors(common)
        ),
    );
    if let Some(one_way) = gateway.one_way(common, inbound) {
        report.step("one-way", one_way);
    }
    if let Some(engine) = gateway.engine(common, inbound) {
        report.step("engine", engine);
    }
    Hop {
        spi: format!("{:08x}", common.spi),
        state: state.to_owned(),
        protocol: transform.protocol().name().to_owned(),
        algorithms: transform.name(),
        mode: mode.to_owned(),
        ..Hop::default()
    }
}

/// Describes the header in front of the bytes that the SA seals.
fn outer(sa: &OutboundSa, meta: &OuterMeta) -> String {
    let path = sa.common.path();
    let (local, remote) = (path.local.ip(), path.remote.ip());
    let protocol = sa.common.transform().protocol();
    let how = match path.udp_encap {
        true => format!(
            "in UDP, port {} to {}",
            path.local.port(),
            path.remote.port()
        ),
        false => format!("directly as {}", protocol.name()),
    };
    let dscp = meta.tos >> 2;
    if sa.common.mode == Mode::Transport {
        return format!("the packet's own header, {local} -> {remote}, {how}, DSCP {dscp}");
    }
    let df = match (path.version(), meta.dont_fragment) {
        (IpVersion::V6, _) => "",
        (IpVersion::V4, true) => ", Don't Fragment",
        (IpVersion::V4, false) => ", may be fragmented",
    };
    let from = match sa.common.tunnel.df {
        _ if df.is_empty() => "",
        DfPolicy::Copy => " (as the packet)",
        DfPolicy::Set | DfPolicy::Clear => " (by the policy)",
    };
    let ttl = meta.ttl.map_or(OUTER_TTL, NonZeroU8::get);
    format!("a new header, {local} -> {remote}, {how}, DSCP {dscp}{df}{from}, TTL {ttl}")
}

/// Returns the view of a packet without options.
fn view(packet: &PacketSpec) -> IpView {
    let version = IpVersion::of(packet.source);
    let header_len = match version {
        IpVersion::V4 => 20,
        IpVersion::V6 => 40,
    };
    IpView {
        version,
        source: packet.source,
        destination: packet.destination,
        tos: packet.dscp << 2,
        ttl: OUTER_TTL,
        flow_label: 0,
        dont_fragment: packet.dont_fragment || version == IpVersion::V6,
        total_len: packet.len.map_or(header_len, usize::from),
        header_len,
        protocol: packet.protocol,
        upper: header_len,
        fragment: packet.fragment,
        later_fragment: packet.fragment,
        ports: packet.ports,
    }
}

/// Returns the packet as the next SA of a bundle sees it.
fn outer_view(sa: &OutboundSa, inner: &IpView, outer_len: usize) -> IpView {
    let meta = sa.outer_meta(inner);
    let path = sa.common.path();
    let header_len = match path.version() {
        IpVersion::V4 => 20,
        IpVersion::V6 => 40,
    };
    let port = |end: SocketAddr| end.port();
    IpView {
        version: path.version(),
        source: path.local.ip(),
        destination: path.remote.ip(),
        tos: meta.tos,
        ttl: meta.ttl.map_or(OUTER_TTL, NonZeroU8::get),
        flow_label: 0,
        dont_fragment: meta.dont_fragment || path.version() == IpVersion::V6,
        total_len: outer_len.max(header_len),
        header_len,
        protocol: match (path.udp_encap, sa.common.transform().protocol()) {
            (true, _) => PROTOCOL_UDP,
            (false, Protocol::Esp) => esp::PROTOCOL,
            (false, Protocol::Ah) => ah::PROTOCOL,
        },
        upper: header_len,
        fragment: false,
        later_fragment: false,
        ports: path
            .udp_encap
            .then(|| (port(path.local), port(path.remote))),
    }
}

/// Reports the SAs through which an inbound packet would pass.
fn inbound_sas(
    report: &mut Report,
    gateway: &impl Gateway,
    packet: &PacketSpec,
    policy: &Policy,
    decider: &str,
) {
    let flow = packet.flow(true);
    let sas = gateway.inbound_sas(policy.id);
    if sas.is_empty() {
        report.step("sa", format!("no SA of {decider} is up"));
    }
    for sa in sas.iter().take(INBOUND_SHOWN) {
        let common = &sa.common;
        let path = common.path();
        let takes = common.selectors.matches(&flow);
        let hop = Hop {
            policy: decider.to_owned(),
            local: path.local.to_string(),
            remote: path.remote.to_string(),
            udp_encap: path.udp_encap,
            dscp: packet.dscp,
            outcome: match takes {
                true => "accepted",
                false => DropReason::SelectorMismatch.name(),
            }
            .to_owned(),
            ..of_sa(report, gateway, common, true)
        };
        report.step(
            "through it",
            match takes {
                true => "the packet would pass".to_owned(),
                false => format!(
                    "the packet would be dropped ({}), as its selectors leave it out",
                    DropReason::SelectorMismatch
                ),
            },
        );
        report.hops.push(hop);
    }
    if sas.len() > INBOUND_SHOWN {
        let more = sas.len() - INBOUND_SHOWN;
        report.step("sa", format!("and {more} more of {decider}"));
    }
}

fn selectors(common: &SaCommon) -> String {
    let all: Vec<String> = (common.selectors.as_slice().iter())
        .map(describe as fn(&Selector) -> String)
        .collect();
    shortened(&all)
}

fn shortened(all: &[String]) -> String {
    let shown = all.get(..SELECTORS_SHOWN).unwrap_or(all).join(", ");
    match all.len().saturating_sub(SELECTORS_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
