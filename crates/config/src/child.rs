//! Reads one section of `children`: its traffic selectors, lifetimes and actions, and the policy
//! that they make. It does not negotiate or install anything.

use std::collections::HashSet;
use std::net::IpAddr;

use esplanade_ike::config::{Child, EndAction, Mode, Selector, SelectorAddresses, StartAction};
use esplanade_ike::wire::TRAFFIC_SELECTORS_MAX;
use esplanade_ipsec::icmp_errors::IcmpErrors;
use esplanade_ipsec::pace;
use esplanade_ipsec::replay::WINDOW_MAX;
use esplanade_ipsec::sa::{DscpSet, TfcPadding, TunnelOptions};
use esplanade_ipsec::selector::PopulateFromPacket;

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::engine::{EngineKind, engine_of};
use super::gateway::GatewayConfig;
use super::interface::{self, IfIds};
use super::lifetime::lifetime;
use super::mark::{InterfaceMarks, SaMarks};
use super::marks;
use super::proposal::Consent;
use super::selector::{selector, specificity};
use super::source::Location;
use super::tree::SectionNode;
use super::value::{
    ValueError, ValueResult, given, number, place, read, read_list, report, subnet, switch, time,
    unused, warn_of_host_bits, word,
};
use super::{header, proposal, schema};

/// An entry of the security policy database. [`super::Loaded::policies`] holds the entries in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub connection: String,
    pub child: String,
    pub action: PolicyAction,
    pub local_ts: Vec<Selector>,
    pub remote_ts: Vec<Selector>,
    /// The value of the key `priority`. Zero means that the section sets no priority.
    pub priority: u32,
    /// A matching packet starts the negotiation of an SA: `start_action` contains `trap`.
    pub trap: bool,
    pub mode: Mode,
    /// The gateway puts the ESP proposals into the order of their costs.
    pub adaptive_proposals: bool,
    pub sa: SaOptions,
    /// The command to call when an SA comes up and when it ends.
    pub updown: Option<String>,
    /// Scripts are to let traffic to and from this host through.
    pub host_access: bool,
    /// The place of the child's name in the configuration.
    pub at: Location,
}

/// The data plane's treatment of a child's SAs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaOptions {
    pub tunnel: TunnelOptions,
    pub tfc: TfcPadding,
    /// Number of dummy packets per second that a silent SA sends. Zero turns them off.
    pub dummies: u8,
    /// DSCPs of the packets that belong to this child. They divide traffic among children whose
    /// selectors are the same (RFC 4301 §4.1).
    pub dscp: DscpSet,
    /// Traffic class from 0 to 7. `None` takes the class from each packet's DSCP.
    pub class: Option<u8>,
    pub icmp_errors: IcmpErrors,
    pub populate: PopulateFromPacket,
    pub if_ids: IfIds,
    pub marks: SaMarks,
    /// The engine that carries the SAs. `None` means the gateway's engine.
    pub engine: Option<EngineKind>,
}

impl SaOptions {
    /// Tells whether the gateway's own routes lead traffic to the policy. Routes into interfaces that children are
    /// bound to are the administrator's.
    pub fn is_led(&self) -> bool {
        self.if_ids.outbound == 0 || self.marks.outbound.is_some()
    }
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

/// The properties that a child inherits from its connection.
pub(crate) struct ParentConnection<'a> {
    pub connection: &'a str,
    /// At least one remote address is a single host, so that we can initiate.
    pub reachable: bool,
    /// The place of the remote addresses, or where they are missing.
    pub remote_addrs_at: Location,
    pub consent: Consent,
    pub if_ids: IfIds,
    pub gateway: &'a GatewayConfig,
}

/// Reads one child and appends its policy to `policies`. Returns the child if it needs IKE.
pub(crate) fn child(
    node: &SectionNode,
    parent: &ParentConnection<'_>,
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
        priority: priority(node, d),
        trap: start.trap,
        mode: match mode {
            ChildMode::Transport => Mode::Transport,
            _ => Mode::Tunnel,
        },
        adaptive_proposals: proposal::is_adaptive(node),
        sa: sa_options(node, parent, d),
        updown: updown(node, d),
        host_access: read(node, "hostaccess", d, switch).unwrap_or_default(),
        at: node.place(),
    };
    check_mode(node, &policy, d);
    check_sides(node, &policy, d);
    // Build the child in every mode: reading the keys also checks them.
    let child = Child {
        name,
        local_ts,
        remote_ts,
        esp_proposals: proposal::child(node, parent.consent, d),
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
        sends_dummies: policy.sa.dummies > 0,
    };
    check_start(node, &child, start, d);
    if policy.action != PolicyAction::Protect {
        check_shunt(node, &policy, start, d);
        policies.push(policy);
        return None;
    }
    if (start.start || start.trap) && !parent.reachable {
        let bad = ValueError::new(
            "the peer has no single address to connect to",
            "put an address into remote_addrs, or set start_action to none",
        );
        // A template that others share is right; the connection lacks the address.
        let at = match given(node, "start_action").filter(|entry| !entry.inherited) {
            Some(own) => own.value.at,
            None => parent.remote_addrs_at,
        };
        report("start_action", bad, at, d);
    }
    policies.push(policy);
    Some(child)
}

/// Warns of a child that is to be up, and that silence ends nevertheless.
fn check_start(node: &SectionNode, child: &Child, start: StartActions, d: &mut Diagnostics) {
    if start.start && !start.trap && !child.inactivity.is_zero() {
        let what = "`inactivity` ends the child although `start_action` wants it up";
        let help = "the next packet establishes it again: say so with `start_action = trap|start`, or leave \
                    `inactivity` out";
        let warning = Diagnostic::warning(what).at(place(node, "inactivity"));
        d.push(warning.help(help));
    }
}

/// The largest number that comes ahead of all policies without a number in strongSwan, too.
const PRIORITY_IN_FRONT_MAX: u64 = 65_535;

/// Reads `priority`. Warns of a number that strongSwan would place behind policies without one, whose numbers it
/// calculates on the same scale.
fn priority(node: &SectionNode, d: &mut Diagnostics) -> u32 {
    let parse = |text: &str| number(text, 0..=u32::MAX.into());
    let priority = read(node, "priority", d, parse).unwrap_or_default();
    if priority > PRIORITY_IN_FRONT_MAX {
        let what = "`priority`: any number comes ahead of all policies without one";
        let help = "leave it out for a policy that is to come last: narrow selectors come before wide ones; strongSwan \
                    calculates numbers on the same scale, so that a large one is last there";
        let warning = Diagnostic::warning(what).at(place(node, "priority"));
        d.push(warning.help(help));
    }
    priority as u32
}

/// Reads the command of an updown script.
fn updown(node: &SectionNode, d: &mut Diagnostics) -> Option<String> {
    let Some(entry) = given(node, "updown") else {
        unused(node, &["hostaccess"], "only updown scripts hear of it", d);
        return None;
    };
    let command = entry.value.value.obey();
    let program = command.split_whitespace().next().unwrap_or_default();
    if program.starts_with('/') && !std::path::Path::new(program).exists() {
        let what = format!("`updown`: there is no file {}", quoted(program));
        let help = "install it, or name another command: a shell runs it";
        d.push(Diagnostic::warning(what).at(entry.value.at).help(help));
    }
    Some(command.to_owned())
}

fn sa_options(node: &SectionNode, parent: &ParentConnection<'_>, d: &mut Diagnostics) -> SaOptions {
    let bound_to = interface::if_ids(node, parent.if_ids, d);
    marks::check_bound(node, bound_to != IfIds::default(), d);
    let marks = marks::marks(node, parent.gateway, d);
    let if_ids = match parent.gateway.interface_for(InterfaceMarks::of(marks)) {
        Some(device) if marks != SaMarks::default() => IfIds {
            inbound: device.if_id,
            outbound: marks.outbound.map_or(0, |_| device.if_id),
        },
        _ => bound_to,
    };
    // An inner packet is at most as long as the MTU of the TUN device.
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
        icmp_errors: icmp_errors(node, d),
        class: read(node, "class", d, |text| number(text, 0..=7)).map(|class| class as u8),
        populate: PopulateFromPacket {
            local: populate.contains(&SelectorField::LocalAddress),
            remote: populate.contains(&SelectorField::RemoteAddress),
            protocol: populate.contains(&SelectorField::Protocol),
            local_port: populate.contains(&SelectorField::LocalPort),
            remote_port: populate.contains(&SelectorField::RemotePort),
        },
        if_ids,
        marks,
        engine: read(node, "engine", d, |text| {
            engine_of(&parent.gateway.engines(), text)
        }),
    }
}

/// Reports settings that contradict each other or the child's mode.
fn check_mode(node: &SectionNode, policy: &Policy, d: &mut Diagnostics) {
    let protects = policy.action == PolicyAction::Protect;
    header::check(node, protects, policy.mode, d);
    check_tfc(node, policy, d);
    let populate = policy.sa.populate;
    if protects && !populate.is_none() {
        let ports = populate.local_port || populate.remote_port;
        let any = |ts: &Selector| ts.protocol == 0;
        if ports && !populate.protocol && policy.local_ts.iter().chain(&policy.remote_ts).any(any) {
            let bad = ValueError::new(
                "ports belong to a protocol, and the selectors name none",
                "add `protocol`, or name one in local_ts and remote_ts",
            );
            report("pfp", bad, place(node, "pfp"), d);
        }
        let hidden = |ts: &Selector| ts.ports == (u16::MAX, 0);
        if ports && policy.local_ts.iter().chain(&policy.remote_ts).any(hidden) {
            let bad = ValueError::new(
                "packets with opaque ports have none to take (RFC 4301 section 4.4.2.2)",
                "leave the ports out of `pfp`, or `opaque` out of the selectors",
            );
            report("pfp", bad, place(node, "pfp"), d);
        }
        if !policy.trap {
            let bad = ValueError::new(
                "only packets can say which selectors to negotiate",
                "add `start_action = trap`",
            );
            report("pfp", bad, place(node, "pfp"), d);
        }
    }
}

/// Reports settings for traffic flow confidentiality that cannot work. It needs ESP in tunnel mode,
/// and padding without dummy packets (or the reverse) still reveals something.
fn check_tfc(node: &SectionNode, policy: &Policy, d: &mut Diagnostics) {
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
            ValueError::new(why, "leave it out")
        } else if policy.mode == Mode::Transport {
            let why = format!("transport mode has no room for {what}");
            ValueError::new(why, "use `mode = tunnel`, or leave it out")
        } else if given(node, "ah_proposals").is_some() {
            let why = format!("AH has no {what}: it hides nothing");
            ValueError::new(why, "use esp_proposals, or leave it out")
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
    let inactivity = given(node, "inactivity").map(|entry| time(entry.value.value.peek()));
    if dummies && inactivity.is_some_and(|time| time.is_ok_and(|time| !time.is_zero())) {
        let what = "`inactivity` never closes an SA that sends dummy packets";
        warn(what, "leave one of them out");
    }
}

#[derive(Clone, Copy, PartialEq)]
enum SelectorField {
    LocalAddress,
    RemoteAddress,
    Protocol,
    LocalPort,
    RemotePort,
}

fn populate(text: &str) -> ValueResult<SelectorField> {
    word(
        text,
        &[
            ("local_addr", SelectorField::LocalAddress),
            ("remote_addr", SelectorField::RemoteAddress),
            ("protocol", SelectorField::Protocol),
            ("local_port", SelectorField::LocalPort),
            ("remote_port", SelectorField::RemotePort),
        ],
    )
}

/// Upper bound of `tfc_dummies`, in dummy packets per second.
const DUMMIES_MAX: u64 = 100;

/// Default size of the replay window, in packets. strongSwan's default of 32 is too small for paths
/// that reorder at several gigabits per second. This window also covers a peer that spreads one SA
/// over several workers.
const REPLAY_WINDOW: u32 = pace::SHARED_WINDOW;

/// Default, and lower bound, of the peer's replay window (RFC 4303 §3.4.3).
const PEER_REPLAY_WINDOW: u32 = 32;

/// Keys that configure SAs only. A policy without SAs ignores them, which changes nothing in the
/// traffic that it lets pass. So they cause a warning and no error.
const OF_SAS: [&str; 21] = [
    "esp_proposals",
    "ah_proposals",
    "rekey_time",
    "life_time",
    "rand_time",
    "rekey_bytes",
    "life_bytes",
    "rand_bytes",
    "rekey_packets",
    "life_packets",
    "rand_packets",
    "set_mark_out",
    "replay_window",
    "peer_replay_window",
    "non_first_fragments",
    "inactivity",
    "dpd_action",
    "close_action",
    "overlap",
    "updown",
    "hostaccess",
];

fn check_shunt(node: &SectionNode, policy: &Policy, start: StartActions, d: &mut Diagnostics) {
    // These keys are errors: with `dscp`, for example, the policy would seem to match fewer packets
    // than it does.
    for key in [
        "dscp",
        "class",
        "pfp",
        "icmp_errors",
        "icmp",
        "engine",
        "mark_in",
        "mark_out",
        "set_mark_in",
    ] {
        if let Some(entry) = given(node, key) {
            let bad = ValueError::new(
                "pass and drop have no SA, and take every packet of their selectors",
                "leave it out",
            );
            report(key, bad, entry.value.at, d);
        }
    }
    unused(node, &OF_SAS, "pass and drop have no SA", d);
    let dynamic = |selector: &Selector| selector.addresses == SelectorAddresses::Dynamic;
    if policy.local_ts.iter().chain(&policy.remote_ts).any(dynamic) {
        let bad = ValueError::new(
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

fn mode(text: &str) -> ValueResult<ChildMode> {
    match text {
        "iptfs" => Err(ValueError::new(
            "IP-TFS (RFC 9347) is not supported: packets are neither joined nor cut",
            "use `tunnel`; `tfc_padding = mtu` and `tfc_dummies` hide lengths and silence",
        )),
        "transport_proxy" | "beet" => {
            let what = format!("the mode {} is not supported yet", quoted(text));
            Err(ValueError::new(what, "use `tunnel` or `transport`"))
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
struct StartActions {
    start: bool,
    trap: bool,
}

fn start_action(text: &str) -> ValueResult<StartActions> {
    let both = StartActions {
        start: true,
        trap: true,
    };
    word(
        text,
        &[
            ("none", StartActions::default()),
            (
                "trap",
                StartActions {
                    trap: true,
                    start: false,
                },
            ),
            (
                "route",
                StartActions {
                    trap: true,
                    start: false,
                },
            ),
            (
                "start",
                StartActions {
                    start: true,
                    trap: false,
                },
            ),
            ("trap|start", both),
            ("start|trap", both),
        ],
    )
}

/// Parses an action. `hold` and `restart` are strongSwan's older names for `trap` and `start`.
fn action(text: &str) -> ValueResult<EndAction> {
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

/// Reads `icmp_errors`, or `icmp`, which is strongSwan's key for it.
fn icmp_errors(node: &SectionNode, d: &mut Diagnostics) -> IcmpErrors {
    let own = read(node, "icmp_errors", d, icmp_errors_word);
    let forwarded = read(node, "icmp", d, switch).map(|quoted| match quoted {
        true => IcmpErrors::Quoted,
        false => IcmpErrors::Header,
    });
    if own.is_some() && forwarded.is_some() {
        let bad = ValueError::new(
            "`icmp_errors` says the same more exactly",
            "keep one of the two",
        );
        report("icmp", bad, place(node, "icmp"), d);
    }
    own.or(forwarded).unwrap_or_default()
}

fn icmp_errors_word(text: &str) -> ValueResult<IcmpErrors> {
    word(
        text,
        &[
            ("quoted", IcmpErrors::Quoted),
            ("header", IcmpErrors::Header),
            ("strict", IcmpErrors::Strict),
        ],
    )
}

/// Parses `tfc_padding`. `mtu` pads every packet to the MTU of the TUN device.
fn tfc_padding(text: &str, tun_mtu: u16) -> ValueResult<TfcPadding> {
    match text {
        "mtu" => Ok(TfcPadding::To(tun_mtu)),
        _ => number(text, 0..=u16::MAX.into()).map(|bytes| match bytes {
            0 => TfcPadding::None,
            _ => TfcPadding::To(bytes as u16),
        }),
    }
}

pub(crate) fn selectors(node: &SectionNode, key: &str, d: &mut Diagnostics) -> Vec<Selector> {
    warn_of_host_bits(node, key, d);
    let list = read_list(node, key, d, selector).unwrap_or_default();
    if list.len() > TRAFFIC_SELECTORS_MAX {
        let bad = ValueError::new(
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

/// Warns of a network that stands on both sides. All addresses may stand on both sides: then routes
/// decide which packets are for the tunnel. Marks tell the two sides apart, unless decrypted packets
/// get the mark that leads into the tunnel.
fn check_sides(node: &SectionNode, policy: &Policy, d: &mut Diagnostics) {
    let marks = policy.sa.marks;
    let marked = marks.outbound.is_some();
    let returns = (marks.outbound).is_none_or(|mark| mark.matches(marks.given.unwrap_or_default()));
    let range = |selector: &Selector| match selector.addresses {
        SelectorAddresses::Range(from, to) if marked || !is_everything(from, to) => {
            Some((from, to))
        }
        _ => None,
    };
    let local: HashSet<_> = policy.local_ts.iter().filter_map(range).collect();
    let mut remote = policy.remote_ts.iter().filter_map(range);
    if policy.action == PolicyAction::Protect
        && returns
        && let Some((from, to)) = remote.find(|range| local.contains(range))
    {
        let what = format!("`remote_ts`: {from}-{to} is on both sides");
        let help = match marked {
            true => {
                "decrypted packets would be led back into the tunnel by their mark; give `mark_in` another value"
            }
            false => {
                "packets within that network would be led into the tunnel; `local_ts` is this side's"
            }
        };
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

/// Sorts policies into the order in which the database searches them. Explicit priorities come
/// first, then pass before protect before drop. Narrow selectors then come before wide ones; the
/// order of the file decides the rest.
pub(crate) fn sort(policies: &mut [Policy]) {
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
