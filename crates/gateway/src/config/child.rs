//! One section of `children`: selectors, lifetimes, actions; and the policy that comes from it.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use esplanade_ike::config::{
    Child, EndAction, Lifetime, Mode, Selector, SelectorAddresses, StartAction,
};
use esplanade_ike::wire::TRAFFIC_SELECTORS_MAX;
use esplanade_ipsec::icmp_errors::IcmpErrors;
use esplanade_ipsec::pace;
use esplanade_ipsec::replay::WINDOW_MAX;
use esplanade_ipsec::sa::{DscpSet, TfcPadding, TunnelOptions};
use esplanade_ipsec::selector::PopulateFromPacket;

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::gateway::{EngineKind, GatewayConfig};
use super::interface::{self, IfIds};
use super::selector::{selector, specificity};
use super::source::Location;
use super::tree::Node;
use super::value::{
    Bad, Parsed, bytes, count, given, number, place, read, read_list, report, subnet, switch, time,
    unused, warn_of_host_bits, word,
};
use super::{header, proposal, schema};

/// An entry for the security policy database, in the order of [`super::Loaded::policies`].
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub connection: String,
    pub child: String,
    pub action: PolicyAction,
    pub local_ts: Vec<Selector>,
    pub remote_ts: Vec<Selector>,
    /// From `priority`; zero is none.
    pub priority: u32,
    /// A matching packet starts the negotiation (`start_action` has `trap`).
    pub trap: bool,
    pub mode: Mode,
    pub sa: SaOptions,
    /// Where its name stands.
    pub at: Location,
}

/// How the data plane is to treat the SAs of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaOptions {
    pub tunnel: TunnelOptions,
    pub tfc: TfcPadding,
    /// Dummy packets a second, while an SA is silent.
    pub dummies: u8,
    /// The DSCPs of the packets that belong to this child, among those with the same selectors.
    pub dscp: DscpSet,
    /// None: from the DSCP.
    pub class: Option<u8>,
    pub icmp_errors: IcmpErrors,
    pub populate: PopulateFromPacket,
    pub if_ids: IfIds,
    /// None: the gateway's.
    pub engine: Option<EngineKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyAction {
    Protect,
    Bypass,
    Discard,
}

#[derive(Clone, Copy, PartialEq)]
enum ChildMode {
    Tunnel,
    Transport,
    Pass,
    Drop,
}

/// What a child has from its connection.
pub(super) struct Parent<'a> {
    pub connection: &'a str,
    /// The peer's address is known.
    pub reachable: bool,
    /// Weak algorithms are permitted.
    pub legacy: bool,
    pub if_ids: IfIds,
    pub gateway: &'a GatewayConfig,
}

/// Adds the policy; gives the child if it needs IKE.
pub(super) fn child(
    node: &Node,
    parent: &Parent<'_>,
    d: &mut Diagnostics,
    policies: &mut Vec<Policy>,
) -> Option<Child> {
    schema::check(node, &schema::CHILD, false, d);
    let name = node.name.value.clone();
    let mode = read(node, "mode", d, mode).unwrap_or(ChildMode::Tunnel);
    let start = read(node, "start_action", d, start_action).unwrap_or_default();
    let local_ts = selectors(node, "local_ts", d);
    let remote_ts = selectors(node, "remote_ts", d);
    let policy = Policy {
        connection: parent.connection.to_owned(),
        child: name.clone(),
        action: match mode {
            ChildMode::Tunnel | ChildMode::Transport => PolicyAction::Protect,
            ChildMode::Pass => PolicyAction::Bypass,
            ChildMode::Drop => PolicyAction::Discard,
        },
        local_ts: local_ts.clone(),
        remote_ts: remote_ts.clone(),
        priority: read(node, "priority", d, |text| {
            number(text, 0..=u32::MAX.into())
        })
        .map_or(0, |n| n as u32),
        trap: start.trap,
        mode: match mode {
            ChildMode::Transport => Mode::Transport,
            _ => Mode::Tunnel,
        },
        sa: sa_options(node, parent, d),
        at: node.name.at,
    };
    check_mode(node, &policy, d);
    check_sides(node, &policy, d);
    // Reading them also checks them, whatever the mode.
    let child = Child {
        name,
        local_ts,
        remote_ts,
        esp_proposals: proposal::child(node, parent.legacy, d),
        mode: policy.mode,
        start_action: match (start.start, start.trap) {
            (true, _) => StartAction::Start,
            (false, true) => StartAction::Trap,
            (false, false) => StartAction::None,
        },
        dpd_action: read(node, "dpd_action", d, action).unwrap_or_default(),
        close_action: read(node, "close_action", d, action).unwrap_or_default(),
        lifetime: lifetime(node, d),
        replay_window: read(node, "replay_window", d, |text| {
            number(text, 0..=WINDOW_MAX.into())
        })
        .map_or(REPLAY_WINDOW, |window| window as u32),
        peer_replay_window: read(node, "peer_replay_window", d, |text| {
            number(text, PEER_REPLAY_WINDOW.into()..=WINDOW_MAX.into())
        })
        .map_or(PEER_REPLAY_WINDOW, |window| window as u32),
        inactivity: read(node, "inactivity", d, time).unwrap_or_default(),
        from_packet: !policy.sa.populate.is_none(),
        non_first_fragments: read(node, "non_first_fragments", d, switch).unwrap_or_default(),
        spd: policy.sa.if_ids.outbound,
        overlap: read(node, "overlap", d, switch).unwrap_or_default(),
    };
    if policy.action != PolicyAction::Protect {
        check_shunt(node, &policy, start, d);
        policies.push(policy);
        return None;
    }
    if (start.start || start.trap) && !parent.reachable {
        let bad = Bad::new(
            "the peer has no single address to connect to",
            "put an address into remote_addrs, or set start_action to none",
        );
        report("start_action", bad, place(node, "start_action"), d);
    }
    policies.push(policy);
    Some(child)
}

fn sa_options(node: &Node, parent: &Parent<'_>, d: &mut Diagnostics) -> SaOptions {
    let interfaces = &parent.gateway.interfaces;
    let if_ids = interface::if_ids(node, parent.if_ids, interfaces, d);
    // What the longest inner packet has.
    let tun_mtu = parent.gateway.interface_mtu(if_ids.outbound);
    let populate = read_list(node, "pfp", d, populate).unwrap_or_default();
    let tfc = read(node, "tfc_padding", d, |text| tfc_padding(text, tun_mtu)).unwrap_or_default();
    if let (TfcPadding::To(len), Some(entry)) = (tfc, given(node, "tfc_padding"))
        && len > tun_mtu
    {
        let what = format!(
            "`tfc_padding`: longer than the longest packet, which is {tun_mtu} bytes by the TUN device's MTU"
        );
        let help =
            "set `tfc_padding = mtu`: longer packets hide nothing more, and may be fragmented";
        d.push(Diagnostic::warning(what).at(entry.value.at).help(help));
    }
    SaOptions {
        tunnel: header::tunnel(node, d),
        tfc,
        dummies: read(node, "tfc_dummies", d, |text| number(text, 0..=DUMMIES_MAX))
            .map_or(0, |rate| rate as u8),
        dscp: read_list(node, "dscp", d, header::dscp)
            .filter(|list| !list.is_empty())
            .map_or(DscpSet::ALL, DscpSet::from_iter),
        icmp_errors: read(node, "icmp_errors", d, icmp_errors).unwrap_or_default(),
        class: read(node, "class", d, |text| number(text, 0..=7)).map(|class| class as u8),
        populate: PopulateFromPacket {
            local: populate.contains(&Field::LocalAddress),
            remote: populate.contains(&Field::RemoteAddress),
            protocol: populate.contains(&Field::Protocol),
            local_port: populate.contains(&Field::LocalPort),
            remote_port: populate.contains(&Field::RemotePort),
        },
        if_ids,
        engine: read(node, "engine", d, |text| engine(text, parent.gateway)),
    }
}

/// Of those that the gateway has.
fn engine(text: &str, gateway: &GatewayConfig) -> Parsed<EngineKind> {
    let kinds = [EngineKind::Cpu, EngineKind::Pool, EngineKind::Fpga];
    let kind = word(text, &kinds.map(|kind| (kind.name(), kind)))?;
    if kind == EngineKind::Fpga && gateway.engine != EngineKind::Fpga {
        let help = "set `engine = fpga` in the gateway section";
        return Err(Bad::new("the gateway has no FPGA core", help));
    }
    if kind == EngineKind::Pool && !gateway.has_pool() {
        let help = "set `pool_threads`, or `engine = pool`, in the gateway section";
        return Err(Bad::new("the gateway has no pool", help));
    }
    Ok(kind)
}

/// What does not go together.
fn check_mode(node: &Node, policy: &Policy, d: &mut Diagnostics) {
    let protects = policy.action == PolicyAction::Protect;
    header::check(node, protects, policy.mode, d);
    check_tfc(node, policy, d);
    let populate = policy.sa.populate;
    if protects && !populate.is_none() {
        let ports = populate.local_port || populate.remote_port;
        let any = |ts: &Selector| ts.protocol == 0;
        if ports && !populate.protocol && policy.local_ts.iter().chain(&policy.remote_ts).any(any) {
            let bad = Bad::new(
                "ports belong to a protocol, and the selectors name none",
                "add `protocol`, or name one in local_ts and remote_ts",
            );
            report("pfp", bad, place(node, "pfp"), d);
        }
        let hidden = |ts: &Selector| ts.ports == (u16::MAX, 0);
        if ports && policy.local_ts.iter().chain(&policy.remote_ts).any(hidden) {
            let bad = Bad::new(
                "packets with opaque ports have none to take (RFC 4301 section 4.4.2.2)",
                "leave the ports out of `pfp`, or `opaque` out of the selectors",
            );
            report("pfp", bad, place(node, "pfp"), d);
        }
        if !policy.trap {
            let bad = Bad::new(
                "only packets can say which selectors to negotiate",
                "add `start_action = trap`",
            );
            report("pfp", bad, place(node, "pfp"), d);
        }
    }
}

/// Traffic flow confidentiality is for ESP in tunnel mode, and hides nothing by halves.
fn check_tfc(node: &Node, policy: &Policy, d: &mut Diagnostics) {
    let (padding, dummies) = (policy.sa.tfc != TfcPadding::None, policy.sa.dummies > 0);
    for (key, what, _) in [
        ("tfc_padding", "padding that hides lengths", padding),
        ("tfc_dummies", "dummy packets", dummies),
    ]
    .into_iter()
    .filter(|(_, _, set)| *set)
    {
        let bad = if policy.action != PolicyAction::Protect {
            let why = format!("pass and drop have no SA, and no {what}");
            Bad::new(why, "leave it out")
        } else if policy.mode == Mode::Transport {
            let why = format!("transport mode has no room for {what}");
            Bad::new(why, "use `mode = tunnel`, or leave it out")
        } else if given(node, "ah_proposals").is_some() {
            let why = format!("AH has no {what}: it hides nothing");
            Bad::new(why, "use esp_proposals, or leave it out")
        } else {
            continue;
        };
        report(key, bad, place(node, key), d);
    }
    let mut warn = |what: &str, help: &str| {
        let warning = Diagnostic::warning(format!("`tfc_dummies`: {what}"));
        d.push(warning.at(place(node, "tfc_dummies")).help(help));
    };
    if dummies && !padding {
        let what = "without `tfc_padding` lengths tell dummy packets from others";
        warn(what, "add `tfc_padding = mtu`");
    }
    let inactivity = given(node, "inactivity").map(|entry| time(&entry.value.value));
    if dummies && inactivity.is_some_and(|time| time.is_ok_and(|time| !time.is_zero())) {
        let what = "`inactivity` never closes an SA that sends dummy packets";
        warn(what, "leave one of them out");
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Field {
    LocalAddress,
    RemoteAddress,
    Protocol,
    LocalPort,
    RemotePort,
}

fn populate(text: &str) -> Parsed<Field> {
    word(
        text,
        &[
            ("local_addr", Field::LocalAddress),
            ("remote_addr", Field::RemoteAddress),
            ("protocol", Field::Protocol),
            ("local_port", Field::LocalPort),
            ("remote_port", Field::RemotePort),
        ],
    )
}

/// Dummy packets a second that a child may ask for.
const DUMMIES_MAX: u64 = 100;

/// strongSwan's 32 is too small for several cores and multi-gigabit paths that reorder. This takes what several workers
/// of another gateway send.
const REPLAY_WINDOW: u32 = pace::SHARED_WINDOW;

/// The smallest that a peer may have (RFC 4303 §3.4.3).
const PEER_REPLAY_WINDOW: u32 = 32;

/// Keys about SAs that do not change what a policy seems to let pass.
const OF_SAS: [&str; 9] = [
    "esp_proposals",
    "ah_proposals",
    "replay_window",
    "peer_replay_window",
    "non_first_fragments",
    "inactivity",
    "dpd_action",
    "close_action",
    "overlap",
];

fn check_shunt(node: &Node, policy: &Policy, start: Start, d: &mut Diagnostics) {
    // `dscp` would seem to let less pass than it does.
    for key in ["dscp", "class", "pfp", "icmp_errors", "engine"] {
        if let Some(entry) = given(node, key) {
            let bad = Bad::new(
                "pass and drop have no SA, and take every packet of their selectors",
                "leave it out",
            );
            report(key, bad, entry.value.at, d);
        }
    }
    unused(node, &OF_SAS, "pass and drop have no SA", d);
    let dynamic = |selector: &Selector| selector.addresses == SelectorAddresses::Dynamic;
    if policy.local_ts.iter().chain(&policy.remote_ts).any(dynamic) {
        let bad = Bad::new(
            "pass and drop have no peer that `dynamic` could stand for",
            "write the addresses in local_ts and remote_ts, such as 0.0.0.0/0",
        );
        report("mode", bad, place(node, "mode"), d);
    }
    if !start.trap {
        let what = "`mode`: pass and drop take effect at once, also without `start_action = trap`";
        d.push(
            Diagnostic::warning(what)
                .at(place(node, "mode"))
                .help("add `start_action = trap` to say so"),
        );
    }
}

fn mode(text: &str) -> Parsed<ChildMode> {
    match text {
        "transport_proxy" | "beet" => {
            let what = format!("the mode {} is not supported yet", quoted(text));
            Err(Bad::new(what, "use `tunnel` or `transport`"))
        }
        _ => word(
            text,
            &[
                ("tunnel", ChildMode::Tunnel),
                ("transport", ChildMode::Transport),
                ("pass", ChildMode::Pass),
                ("drop", ChildMode::Drop),
            ],
        ),
    }
}

#[derive(Clone, Copy, Default)]
struct Start {
    start: bool,
    trap: bool,
}

fn start_action(text: &str) -> Parsed<Start> {
    let both = Start {
        start: true,
        trap: true,
    };
    word(
        text,
        &[
            ("none", Start::default()),
            (
                "trap",
                Start {
                    trap: true,
                    start: false,
                },
            ),
            (
                "route",
                Start {
                    trap: true,
                    start: false,
                },
            ),
            (
                "start",
                Start {
                    start: true,
                    trap: false,
                },
            ),
            ("trap|start", both),
            ("start|trap", both),
        ],
    )
}

/// With the older words `hold` and `restart`.
fn action(text: &str) -> Parsed<EndAction> {
    word(
        text,
        &[
            ("none", EndAction::Clear),
            ("clear", EndAction::Clear),
            ("trap", EndAction::Trap),
            ("start", EndAction::Start),
            ("hold", EndAction::Trap),
            ("restart", EndAction::Start),
        ],
    )
}

fn icmp_errors(text: &str) -> Parsed<IcmpErrors> {
    word(
        text,
        &[
            ("quoted", IcmpErrors::Quoted),
            ("header", IcmpErrors::Header),
            ("strict", IcmpErrors::Strict),
        ],
    )
}

/// `mtu` makes every packet as long as the longest that the TUN device lets through.
fn tfc_padding(text: &str, tun_mtu: u16) -> Parsed<TfcPadding> {
    match text {
        "mtu" => Ok(TfcPadding::To(tun_mtu)),
        _ => number(text, 0..=u16::MAX.into()).map(|bytes| match bytes {
            0 => TfcPadding::None,
            _ => TfcPadding::To(bytes as u16),
        }),
    }
}

pub(super) fn selectors(node: &Node, key: &str, d: &mut Diagnostics) -> Vec<Selector> {
    warn_of_host_bits(node, key, d);
    let list = read_list(node, key, d, selector).unwrap_or_default();
    if list.len() > TRAFFIC_SELECTORS_MAX {
        let bad = Bad::new(
            format!("more than {TRAFFIC_SELECTORS_MAX} selectors do not fit a message of IKEv2"),
            "write wider ones, or several children",
        );
        report(key, bad, place(node, key), d);
    }
    if list.is_empty() {
        return vec![Selector::DYNAMIC];
    }
    list
}

/// A network cannot be at both ends; everything can, where routes decide.
fn check_sides(node: &Node, policy: &Policy, d: &mut Diagnostics) {
    let range = |selector: &Selector| match selector.addresses {
        SelectorAddresses::Range(from, to) if !is_everything(from, to) => Some((from, to)),
        _ => None,
    };
    let local: HashSet<_> = policy.local_ts.iter().filter_map(range).collect();
    let mut remote = policy.remote_ts.iter().filter_map(range);
    if policy.action == PolicyAction::Protect
        && let Some((from, to)) = remote.find(|range| local.contains(range))
    {
        let what = format!("`remote_ts`: {from}-{to} is on both sides");
        let help =
            "packets within that network would be led into the tunnel; `local_ts` is this side's";
        d.push(
            Diagnostic::warning(what)
                .at(place(node, "remote_ts"))
                .help(help),
        );
    }
}

fn is_everything(from: IpAddr, to: IpAddr) -> bool {
    from.is_unspecified() && subnet(from, 0).1 == to
}

fn lifetime(node: &Node, d: &mut Diagnostics) -> Lifetime {
    const HOUR: u64 = 3600;
    let seconds =
        |key: &str, d: &mut Diagnostics| read(node, key, d, time).map(|time| time.as_secs());
    let (rekey_time, life_time, rand_time) = (
        seconds("rekey_time", d),
        seconds("life_time", d),
        seconds("rand_time", d),
    );
    let mut amounts = |keys: [&str; 3], parse: fn(&str) -> Parsed<u64>| {
        let [rekey, life, rand] = keys.map(|key| read(node, key, d, parse));
        (rekey, life, rand)
    };
    let in_bytes = amounts(["rekey_bytes", "life_bytes", "rand_bytes"], bytes);
    let in_packets = amounts(["rekey_packets", "life_packets", "rand_packets"], count);
    let mut limits = |unit: &str, given: Given, standard: u64| {
        let limits = limits(given, standard);
        let place = |key: &str| {
            node.value(&format!("{key}_{unit}"))
                .map(|entry| entry.value.at)
        };
        check_limits(unit, limits, place, d);
        limits
    };
    let (rekey_time, life_time, rand_time) =
        limits("time", (rekey_time, life_time, rand_time), HOUR);
    let (rekey_bytes, life_bytes, rand_bytes) = limits("bytes", in_bytes, 0);
    let (rekey_packets, life_packets, rand_packets) = limits("packets", in_packets, 0);
    Lifetime {
        rekey_time: Duration::from_secs(rekey_time),
        life_time: Duration::from_secs(life_time),
        rand_time: Duration::from_secs(rand_time),
        rekey_bytes,
        life_bytes,
        rand_bytes,
        rekey_packets,
        life_packets,
        rand_packets,
    }
}

/// Soft limit, hard limit, and what is subtracted at random from the soft one.
type Given = (Option<u64>, Option<u64>, Option<u64>);

/// Fills in swanctl's defaults: the hard limit is a tenth above the soft one.
fn limits((rekey, life, rand): Given, standard: u64) -> (u64, u64, u64) {
    let rekey = rekey.unwrap_or(match life {
        Some(life) if life > 0 => life - life / 11,
        _ => standard,
    });
    let life = life.unwrap_or(rekey + rekey / 10);
    let rand = rand.unwrap_or(life.saturating_sub(rekey).min(rekey / 2));
    (rekey, life, rand)
}

fn check_limits(
    unit: &str,
    (rekey, life, rand): (u64, u64, u64),
    place: impl Fn(&str) -> Option<Location>,
    d: &mut Diagnostics,
) {
    if life != 0
        && rekey >= life
        && let Some(at) = place("life").or(place("rekey"))
    {
        let key = format!("life_{unit}");
        let bad = Bad::new(
            format!(
                "it is not larger than `rekey_{unit}`, so the tunnel would end before it is rekeyed"
            ),
            format!("make it larger, or leave it out (a tenth more than rekey_{unit})"),
        );
        report(&key, bad, at, d);
    }
    if rekey != 0
        && rand >= rekey
        && let Some(at) = place("rand")
    {
        let help = format!("make it smaller: it is subtracted from rekey_{unit}");
        report(
            &format!("rand_{unit}"),
            Bad::new(format!("it is not smaller than `rekey_{unit}`"), help),
            at,
            d,
        );
    }
}

/// The order of the database: explicit priorities first, then pass before protect before drop, then
/// narrower selectors before wider ones, then the order of the file.
pub(super) fn sort(policies: &mut [Policy]) {
    policies.sort_by_cached_key(|policy| {
        let narrow = |list: &[Selector]| list.iter().map(specificity).min().unwrap_or(0);
        let class = match policy.action {
            PolicyAction::Bypass => 0,
            PolicyAction::Protect => 1,
            PolicyAction::Discard => 2,
        };
        let priority = if policy.priority == 0 {
            u32::MAX
        } else {
            policy.priority
        };
        let specificity = narrow(&policy.local_ts) + narrow(&policy.remote_ts);
        (priority, class, std::cmp::Reverse(specificity))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_fill_in() {
        assert_eq!(limits((None, None, None), 3600), (3600, 3960, 360));
        assert_eq!(limits((None, None, None), 0), (0, 0, 0));
        assert_eq!(limits((Some(1000), None, None), 0), (1000, 1100, 100));
        assert_eq!(limits((None, Some(1100), None), 3600), (1000, 1100, 100));
        assert_eq!(
            limits((Some(3600), Some(86_400), None), 3600),
            (3600, 86_400, 1800)
        );
        assert_eq!(limits((Some(0), Some(0), None), 3600), (0, 0, 0));
    }
}
