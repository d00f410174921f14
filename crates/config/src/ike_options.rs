//! Reads the keys of a connection that say how IKE works. They are the same for all children.

use std::time::Duration;

use esplanade_ike::config::{
    Childless, Fragmentation, IkeProposal, OcspInIke, Ports, SendCert, Unique,
};

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::gateway::GatewayConfig;
use super::tree::SectionNode;
use super::value::{
    ValueError, ValueResult, given, number, place, read, report, switch, time, word,
};
use super::{header, proposal};

/// The time after which an IKE SA is rekeyed, where nothing is configured.
const REKEY_TIME: Duration = Duration::from_secs(4 * 3600);
/// Unanswered traffic after which the peer is asked whether it is alive, where nothing else is configured.
const DPD_DELAY: Duration = Duration::from_secs(30);
/// The time that the peer then has.
const DPD_TIMEOUT: Duration = Duration::from_secs(10);

/// The content of the keys, with their defaults.
pub(crate) struct IkeOptions {
    pub local_port: Option<u16>,
    pub remote_port: u16,
    pub dscp: u8,
    pub proposals: Vec<IkeProposal>,
    pub fragmentation: Fragmentation,
    pub path_mtu_probe: bool,
    pub childless: Childless,
    pub full_transcript_required: bool,
    pub send_certreq: bool,
    pub ocsp: OcspInIke,
    pub send_cert: SendCert,
    pub lifetime: IkeLifetime,
    pub dpd_delay: Duration,
    pub dpd_by_traffic: bool,
    pub dpd_timeout: Duration,
    pub unique: Unique,
    /// The default depends on the children.
    pub keyingtries: Option<u32>,
}

pub(crate) struct IkeLifetime {
    pub rekey: Duration,
    pub reauth: Duration,
    pub over: Duration,
    pub rand: Duration,
}

/// Reads the keys. `legacy` means that the connection permits weak algorithms.
pub(crate) fn ike_options(
    node: &SectionNode,
    gateway: &GatewayConfig,
    legacy: bool,
    d: &mut Diagnostics,
) -> IkeOptions {
    read(node, "version", d, version);
    notes(node, d);
    let (local_port, remote_port) = ports(node, gateway.ports, d);
    let full_transcript_required = read(node, "full_transcript_auth", d, |text| {
        full_transcript_auth(text, gateway.full_transcript_auth)
    });
    let dpd_delay = read(node, "dpd_delay", d, time);
    // As in strongSwan, a peer that is asked by the clock has as long as retransmissions last.
    let dpd_timeout = read(node, "dpd_timeout", d, time).unwrap_or(match dpd_delay {
        Some(_) => Duration::ZERO,
        None => DPD_TIMEOUT,
    });
    IkeOptions {
        local_port,
        remote_port,
        dscp: read(node, "dscp", d, header::dscp_of_ike).unwrap_or_default(),
        proposals: proposal::connection(node, legacy, d),
        fragmentation: read(node, "fragmentation", d, fragmentation).unwrap_or_default(),
        path_mtu_probe: read(node, "path_mtu_probe", d, switch).unwrap_or(true),
        childless: read(node, "childless", d, childless).unwrap_or_default(),
        full_transcript_required: full_transcript_required.unwrap_or_default(),
        send_certreq: read(node, "send_certreq", d, switch).unwrap_or(true),
        ocsp: read(node, "ocsp", d, ocsp).unwrap_or_default(),
        send_cert: read(node, "send_cert", d, send_cert).unwrap_or_default(),
        lifetime: lifetime(node, d),
        dpd_delay: dpd_delay.unwrap_or(DPD_DELAY),
        dpd_by_traffic: dpd_delay.is_none(),
        dpd_timeout,
        unique: read(node, "unique", d, unique).unwrap_or_default(),
        keyingtries: read(node, "keyingtries", d, keyingtries),
    }
}

/// Reads the ports that the gateway initiates from and to. IKE messages between two NAT-T ports have a non-ESP marker, and
/// messages between two other ports have none (RFC 3948 §2.2). So one NAT-T port needs the other.
fn ports(node: &SectionNode, own: Ports, d: &mut Diagnostics) -> (Option<u16>, u16) {
    let usual = Ports::default();
    let local = read(node, "local_port", d, |text| local_port(text, own));
    let remote = read(node, "remote_port", d, |text| number(text, 1..=65_535));
    let remote = remote.map(|port| port as u16);
    match (local, remote) {
        (Some(local), None) if local == own.nat_t => (Some(local), usual.nat_t),
        (None, Some(remote)) if remote == usual.nat_t => (Some(own.nat_t), remote),
        (Some(local), Some(remote))
            if (local == own.nat_t && remote == usual.ike)
                || (local == own.ike && remote == usual.nat_t) =>
        {
            let bad = ValueError::new(
                "one end would take the messages of the other for ESP: of the two ports, one alone is for NAT traversal",
                format!(
                    "leave out one of `local_port` and `remote_port`; with {} the other is {}",
                    own.nat_t, usual.nat_t
                ),
            );
            report("remote_port", bad, place(node, "remote_port"), d);
            (Some(local), remote)
        }
        (local, remote) => (local, remote.unwrap_or(usual.ike)),
    }
}

/// Reads the lifetime of the IKE SA. By default we rekey after four hours, or never if we reauthenticate. The hard limit
/// is a tenth of the longer time later.
fn lifetime(node: &SectionNode, d: &mut Diagnostics) -> IkeLifetime {
    let reauth = read(node, "reauth_time", d, time).unwrap_or_default();
    let rekey = read(node, "rekey_time", d, time);
    let rekey = rekey.unwrap_or(match reauth.is_zero() {
        true => REKEY_TIME,
        false => Duration::ZERO,
    });
    let times = [("rekey_time", rekey), ("reauth_time", reauth)];
    let set = times.iter().filter(|(_, time)| !time.is_zero());
    let shortest = set.min_by_key(|(_, time)| *time);
    let over = read(node, "over_time", d, time).unwrap_or(rekey.max(reauth) / 10);
    let half = shortest.map_or(Duration::ZERO, |(_, time)| *time / 2);
    let rand = read(node, "rand_time", d, time).unwrap_or(over.min(half));
    if let Some((name, shortest)) = shortest
        && rand >= *shortest
        && let Some(entry) = given(node, "rand_time").or(given(node, name))
    {
        let what = format!("`rand_time` is not smaller than `{name}`");
        let help = format!("choose a smaller rand_time: it is subtracted from {name}");
        report("rand_time", ValueError::new(what, help), entry.value.at, d);
    }
    IkeLifetime {
        rekey,
        reauth,
        over,
        rand,
    }
}

fn version(text: &str) -> ValueResult<()> {
    match text {
        "0" | "2" => Ok(()),
        "1" => Err(ValueError::new(
            "IKEv1 is not supported",
            "set it to 2 and use IKEv2 at the peer (IKEv1 is RFC 9395 historic)",
        )),
        _ => Err(ValueError::new(
            format!("{} is not a version of IKE", quoted(text)),
            "set it to 2",
        )),
    }
}

fn local_port(text: &str, ports: Ports) -> ValueResult<u16> {
    let port = number(text, 1..=65_535)? as u16;
    if port != ports.ike && port != ports.nat_t {
        let what = format!("the gateway does not listen at port {port}");
        let help = format!(
            "use {} or {}, or set `port` and `port_nat_t` in the gateway section",
            ports.ike, ports.nat_t
        );
        return Err(ValueError::new(what, help));
    }
    Ok(port)
}

fn fragmentation(text: &str) -> ValueResult<Fragmentation> {
    let words = [
        ("yes", Fragmentation::Yes),
        ("accept", Fragmentation::Accept),
        // It forces the first message of IKEv1 only.
        ("force", Fragmentation::Yes),
        ("no", Fragmentation::No),
    ];
    word(text, &words)
}

fn childless(text: &str) -> ValueResult<Childless> {
    let words = [
        ("allow", Childless::Allow),
        ("prefer", Childless::Prefer),
        ("force", Childless::Force),
        ("never", Childless::Never),
    ];
    word(text, &words)
}

/// Returns whether the peer must prove itself over the full transcript.
fn full_transcript_auth(text: &str, announced: bool) -> ValueResult<bool> {
    let required = word(text, &[("auto", false), ("require", true)])?;
    if required && !announced {
        return Err(ValueError::new(
            "no peer can do it, because this gateway does not announce it",
            "remove `full_transcript_auth = no` from the gateway section",
        ));
    }
    Ok(required)
}

fn ocsp(text: &str) -> ValueResult<OcspInIke> {
    let when = |request, reply| OcspInIke { request, reply };
    let words = [
        ("reply", when(false, true)),
        ("request", when(true, false)),
        ("both", when(true, true)),
        ("never", when(false, false)),
    ];
    word(text, &words)
}

fn send_cert(text: &str) -> ValueResult<SendCert> {
    let words = [
        ("ifasked", SendCert::IfAsked),
        ("always", SendCert::Always),
        ("never", SendCert::Never),
    ];
    word(text, &words)
}

fn unique(text: &str) -> ValueResult<Unique> {
    let words = [
        ("no", Unique::No),
        ("never", Unique::Never),
        ("keep", Unique::Keep),
        ("replace", Unique::Replace),
    ];
    word(text, &words)
}

fn keyingtries(text: &str) -> ValueResult<u32> {
    match text {
        "%forever" => Ok(0),
        _ => number(text, 0..=u32::MAX.into()).map(|tries| tries as u32),
    }
}

/// Warns of keys that are accepted but do less than in strongSwan.
fn notes(node: &SectionNode, d: &mut Diagnostics) {
    // Only a warning: strongSwan's default is yes, so files that say so are common.
    if read(node, "mobike", d, switch) == Some(true)
        && let Some(entry) = given(node, "mobike")
    {
        let what = "`mobike`: changes of the peer's address are not followed by MOBIKE yet";
        let help = "nothing else changes; `mobike = no` says so";
        d.push(Diagnostic::warning(what).at(entry.value.at).help(help));
    }
}
