//! The gateway's state as vici messages, with the keys that `swanctl` reads.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use esplanade_crypto::iana::SequenceNumbers;
use esplanade_ike::config::{
    AddressMatch, Connection, LocalMethod, Mode, RemoteMethod, Selector, SelectorAddresses,
};
use esplanade_ike::status::{ChildSaStatus, ConfiguredChild, IkeSaStatus};
use esplanade_ike::wire::TrafficSelector;

use super::join::{Carrier, Installed};
use crate::config::{Policy, PolicyAction};
use crate::confine::InForce;
use crate::net::prefixes_of_range;
use crate::output;
use crate::vici::Section;

/// The IKE SA of a `list-sa` event; the caller adds the children.
pub fn ike_sa(sa: &IkeSaStatus, now: Instant) -> Section {
    let mut message = Section::new();
    message
        .set("uniqueid", sa.id.0)
        .set("version", 2)
        .set("state", sa.state.name())
        .set("local-host", sa.local.ip())
        .set("local-port", sa.local.port())
        .set("remote-host", sa.remote.ip())
        .set("remote-port", sa.remote.port());
    // What is not yet known is %any, as in swanctl.
    let id = |id: &Option<_>| {
        id.as_ref()
            .map_or_else(|| "%any".to_owned(), ToString::to_string)
    };
    message
        .set("local-id", id(&sa.local_id))
        .set("remote-id", id(&sa.remote_id));
    if sa.initiator {
        message.set("initiator", "yes");
    }
    message
        .set("initiator-spi", format_args!("{:016x}", sa.spi_i))
        .set("responder-spi", format_args!("{:016x}", sa.spi_r));
    for (key, nat) in [("nat-local", sa.nat_local), ("nat-remote", sa.nat_remote)] {
        if nat {
            message.set(key, "yes");
        }
    }
    if let Some(suite) = &sa.suite {
        message
            .set("encr-alg", suite.encryption.name())
            .set("encr-keysize", suite.key_bits);
        if let Some(integrity) = suite.integrity {
            message.set("integ-alg", integrity.name());
        }
        message
            .set("prf-alg", suite.prf.name())
            .set("dh-group", suite.group.name());
    }
    if let Some(established) = sa.established {
        message.set("established", since(now, established));
    }
    if let Some(at) = sa.rekey_at {
        message.set("rekey-time", until(now, at));
    }
    if !sa.tasks_queued.is_empty() {
        message.list("tasks-queued", &sa.tasks_queued);
    }
    if let Some(task) = sa.task_active {
        message.list("tasks-active", [task]);
    }
    message
}

/// What confines the process beside its rights.
pub fn confinement(force: &InForce) -> Section {
    let mut message = Section::new();
    message
        .set("landlock", force.landlock.unwrap_or_default())
        .set("seccomp", if force.seccomp { "yes" } else { "no" });
    message
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Tunnel => "TUNNEL",
        Mode::Transport => "TRANSPORT",
    }
}

/// One entry of `child-sas`. `installed` is the data plane's side, `now_ms` its clock.
pub fn child_sa(
    sa: &ChildSaStatus,
    installed: Option<&Installed>,
    now: Instant,
    now_ms: u64,
) -> Section {
    let mut message = Section::new();
    message
        .set("name", &sa.name)
        .set("uniqueid", sa.id.0)
        .set("state", sa.state.name())
        .set("mode", mode(sa.mode))
        .set("protocol", sa.esp.transform.protocol().name())
        .set("spi-in", format_args!("{:08x}", sa.spi_in))
        .set("spi-out", format_args!("{:08x}", sa.spi_out));
    if let Some(encryption) = sa.esp.transform.encryption() {
        message.set("encr-alg", encryption.name());
    }
    if sa.esp.transform.key_bits() != 0 {
        message.set("encr-keysize", sa.esp.transform.key_bits());
    }
    if let Some(integrity) = sa.esp.transform.integrity() {
        message.set("integ-alg", integrity.name());
    }
    if sa.esp.sequence_numbers == SequenceNumbers::Bits64 {
        message.set("esn", 1);
    }
    if sa.udp_encap {
        message.set("encap", "yes");
    }
    if let Some(installed) = installed {
        if let Carrier::Cpu(Some(why)) = &installed.carrier {
            message.set("engine-reason", why);
        }
        message.set("reqid", installed.inbound.common.policy.0);
        for (side, common) in [
            ("in", &installed.inbound.common),
            ("out", &installed.outbound.common),
        ] {
            message
                .set(&format!("bytes-{side}"), common.lifetime.bytes())
                .set(&format!("packets-{side}"), common.lifetime.packets());
            if common.interface != 0 {
                let id = format_args!("{:08x}", common.interface).to_string();
                message.set(&format!("if-id-{side}"), id);
            }
            if common.last_used_ms() > 0 {
                message.set(
                    &format!("use-{side}"),
                    now_ms.saturating_sub(common.last_used_ms()) / 1000,
                );
            }
        }
        let mut drops = Section::new();
        for common in [&installed.inbound.common, &installed.outbound.common] {
            for (reason, count) in common.drops.iter().filter(|(_, count)| *count > 0) {
                drops.set(reason.name(), count);
            }
        }
        if !drops.is_empty() {
            message.section("drops", drops);
        }
    }
    message.set("install-time", since(now, sa.installed));
    if let Some(at) = sa.rekey_at {
        message.set("rekey-time", until(now, at));
    }
    if let Some(at) = sa.expires_at {
        message.set("life-time", until(now, at));
    }
    let texts = |list: &[TrafficSelector]| {
        list.iter()
            .map(|ts| range(ts.start, ts.end, ts.protocol, (ts.start_port, ts.end_port)))
            .collect::<Vec<_>>()
    };
    message
        .list("local-ts", texts(&sa.local_ts))
        .list("remote-ts", texts(&sa.remote_ts));
    message
}

/// One `list-conn` event's section. `states` are those of its children.
pub fn connection(connection: &Connection, states: &[&ConfiguredChild], now: Instant) -> Section {
    let mut message = Section::new();
    message
        .list("local_addrs", addresses(&connection.local_addrs))
        .list("remote_addrs", addresses(&connection.remote_addrs))
        .set("version", "IKEv2")
        .set("reauth_time", 0)
        .set("rekey_time", connection.rekey_time.as_secs())
        .set(
            "unique",
            format_args!("{:?}", connection.unique)
                .to_string()
                .to_uppercase(),
        );
    if !connection.dpd_delay.is_zero() {
        message.set("dpd_delay", connection.dpd_delay.as_secs());
    }
    let mut local = Section::new();
    local.set(
        "class",
        match connection.local.method {
            LocalMethod::Psk => "pre-shared key",
            LocalMethod::Certificate(_) => "public key",
        },
    );
    local.set("id", &connection.local.id);
    let mut remote = Section::new();
    remote.set(
        "class",
        match connection.remote.method {
            RemoteMethod::Psk => "pre-shared key",
            RemoteMethod::Certificate { .. } => "public key",
        },
    );
    remote.set("id", &connection.remote.id);
    message
        .section("local-1", local)
        .section("remote-1", remote);
    let mut children = Section::new();
    for child in &connection.children {
        let mut section = Section::new();
        section
            .set("mode", mode(child.mode))
            .set("rekey_time", child.lifetime.rekey_time.as_secs())
            .set("rekey_bytes", child.lifetime.rekey_bytes)
            .set("rekey_packets", child.lifetime.rekey_packets)
            .set("dpd_action", action(child.dpd_action))
            .set("close_action", action(child.close_action))
            .list("local-ts", child.local_ts.iter().map(selector))
            .list("remote-ts", child.remote_ts.iter().map(selector));
        if let Some(state) = states.iter().find(|state| state.child == child.name) {
            section.set("state", state.state.name());
            if let Some(at) = state.next_at {
                section.set("next-attempt", until(now, at));
            }
            if let Some(failure) = &state.failure {
                section
                    .set("last-error", &failure.why)
                    .set("last-error-age", since(now, failure.at));
            }
        }
        children.section(&child.name, section);
    }
    message.section("children", children);
    message
}

/// One `list-policy` event's section.
pub fn policy(policy: &Policy) -> Section {
    let kind = match policy.action {
        PolicyAction::Bypass => "PASS",
        PolicyAction::Discard => "DROP",
        PolicyAction::Protect => mode(policy.mode),
    };
    let mut message = Section::new();
    message
        .set("child", &policy.child)
        .set("ike", &policy.connection)
        .set("mode", kind)
        .list("local-ts", policy.local_ts.iter().map(selector))
        .list("remote-ts", policy.remote_ts.iter().map(selector));
    message
}

/// Lines on their way to the log or a file.
pub fn output(report: &output::Report) -> Section {
    let mut message = Section::new();
    message
        .set("lost", report.lost)
        .set("waiting", report.waiting);
    if let Some(error) = &report.error {
        message.set("error", error);
    }
    message
}

fn selector(ts: &Selector) -> String {
    match ts.addresses {
        SelectorAddresses::Dynamic => "dynamic".to_owned() + &ports(ts.protocol, ts.ports),
        SelectorAddresses::Range(first, last) => range(first, last, ts.protocol, ts.ports),
    }
}

/// As swanctl writes selectors: `10.1.0.0/16[6/80]`.
fn range(first: IpAddr, last: IpAddr, protocol: u8, port_range: (u16, u16)) -> String {
    let addresses = match prefixes_of_range(first, last).as_slice() {
        [prefix] => prefix.to_string(),
        _ => format!("{first}-{last}"),
    };
    addresses + &ports(protocol, port_range)
}

fn ports(protocol: u8, range: (u16, u16)) -> String {
    match (protocol, range) {
        (0, (0, u16::MAX)) => String::new(),
        (protocol, (0, u16::MAX)) => format!("[{protocol}]"),
        (protocol, (u16::MAX, 0)) => format!("[{protocol}/opaque]"),
        (protocol, (first, last)) if first == last => format!("[{protocol}/{first}]"),
        (protocol, (first, last)) => format!("[{protocol}/{first}-{last}]"),
    }
}

fn action(action: esplanade_ike::config::Action) -> &'static str {
    use esplanade_ike::config::Action;
    match action {
        Action::Clear => "clear",
        Action::Trap => "hold",
        Action::Start => "restart",
    }
}

fn addresses(addresses: &[AddressMatch]) -> Vec<String> {
    let text = |address: &AddressMatch| match address {
        AddressMatch::Any => "%any".to_owned(),
        AddressMatch::Host(host) => host.to_string(),
        AddressMatch::Range(from, to) => format!("{from}-{to}"),
    };
    match addresses {
        [] => vec!["%any".to_owned()],
        some => some.iter().map(text).collect(),
    }
}

fn since(now: Instant, then: Instant) -> u64 {
    now.saturating_duration_since(then).as_secs()
}

fn until(now: Instant, then: Instant) -> u64 {
    then.checked_duration_since(now)
        .unwrap_or(Duration::ZERO)
        .as_secs()
}
