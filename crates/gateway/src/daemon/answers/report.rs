//! Fills the structures of `status` from what IKE, the configuration and the data plane know.

use std::time::{Duration, Instant};

use esplanade_crypto::iana::SequenceNumbers;
use esplanade_ike::config::{
    AddressMatch, Connection, EndAction, LocalMethod, Mode, RemoteMethod, Selector,
    SelectorAddresses,
};
use esplanade_ike::status::{ChildSaStatus, ConfiguredChild, IkeSaStatus, Refusal};
use esplanade_ike::wire::TrafficSelector;
use esplanade_ipsec::sa::SaCommon;
use esplanade_pki::RevocationStore;
use esplanade_pki::attributes::GroupName;

use crate::config::ShareLimits;
use crate::config::{Authority, EngineKind, Mark, Policy, PolicyAction, SaMarks};
use crate::confine::InForce;
use crate::daemon::answers::strongswan_names as names;
use crate::daemon::counts;
use crate::daemon::silence;
use crate::join::{AdaptiveEngines, ChildTotals, InstalledChild};
use crate::net::{KnownBy, KnownMtu};
use crate::output;
use crate::share::ShareReport;
use crate::status::{
    ChildTraffic, ConfinementStats, HalfTraffic, IkeCounters, ListedAuthentication,
    ListedAuthority, ListedChild, ListedChildSa, ListedConnection, ListedCrl, ListedIkeSa,
    ListedName, ListedPolicy, ListedRefusal, ListedTotals, Named, NamedCounters, OutputCounters,
    Selectors, ShareStats,
};

/// Reports an IKE SA with the child SAs that are to be shown.
pub fn ike_sa(
    sa: &IkeSaStatus,
    path: Option<KnownMtu>,
    child_sas: Named<ListedChildSa>,
    now: Instant,
) -> ListedIkeSa {
    // An identity that is not known yet is %any, as in swanctl.
    let id = |id: &Option<_>| {
        id.as_ref()
            .map_or_else(|| "%any".to_owned(), ToString::to_string)
    };
    let suite = sa.suite.as_ref();
    ListedIkeSa {
        uniqueid: sa.id.0,
        version: 2,
        state: sa.state.name(),
        local_host: sa.local.ip(),
        local_port: sa.local.port(),
        remote_host: sa.remote.ip(),
        remote_port: sa.remote.port(),
        local_id: id(&sa.local_id),
        remote_id: id(&sa.remote_id),
        groups: names_of(&sa.groups),
        initiator: sa.initiator,
        initiator_spi: sa.spi_i,
        responder_spi: sa.spi_r,
        nat_local: sa.nat_local,
        nat_remote: sa.nat_remote,
        nat_any: sa.nat_local || sa.nat_remote,
        fragmentation: sa.fragmentation,
        full_transcript: sa.full_transcript,
        path_mtu: path.map(|path| path.mtu),
        path_mtu_by: path.and_then(|path| match path.by {
            KnownBy::Probes => Some("probes"),
            KnownBy::Error => Some("icmp"),
            KnownBy::Route => None,
        }),
        encr_alg: suite.map(|suite| names::encryption(suite.encryption).to_owned()),
        encr_keysize: suite.map(|suite| suite.key_bits).filter(|bits| *bits != 0),
        integ_alg: suite.and_then(|suite| Some(names::integrity(suite.integrity?).to_owned())),
        prf_alg: suite.map(|suite| suite.prf.name().to_owned()),
        dh_group: suite.map(|suite| names::group(suite.key_exchanges.first()).to_owned()),
        established: sa.established.map(|at| since(now, at)),
        rekey_time: sa.rekey_at.map(|at| until(now, at)),
        reauth_time: sa.reauth_at.map(|at| until(now, at)),
        reauth_error: (sa.reauth_failure.as_ref()).map(|failure| failure.why.clone()),
        reauth_error_age: (sa.reauth_failure.as_ref()).map(|failure| since(now, failure.at)),
        rekey_error: (sa.rekey_failure.as_ref()).map(|failure| failure.why.clone()),
        rekey_error_age: (sa.rekey_failure.as_ref()).map(|failure| since(now, failure.at)),
        tasks_queued: sa.tasks_queued.clone(),
        tasks_active: sa.task_active.into_iter().collect(),
        child_sas,
    }
}

fn names_of(groups: &[GroupName]) -> Vec<String> {
    groups.iter().map(ToString::to_string).collect()
}

/// Reports a child SA. `traffic` is the data plane's part of the report.
pub fn child_sa(
    sa: &ChildSaStatus,
    reqid: Option<u32>,
    traffic: Option<ChildTraffic>,
    now: Instant,
) -> ListedChildSa {
    let transform = &sa.esp.transform;
    ListedChildSa {
        name: sa.name.clone(),
        uniqueid: sa.id.0,
        reqid,
        state: sa.state.name(),
        mode: mode(sa.mode),
        protocol: transform.protocol().name(),
        spi_in: sa.spi_in,
        spi_out: sa.spi_out,
        encr_alg: (transform.encryption()).map(|one| names::encryption(one).to_owned()),
        encr_keysize: Some(transform.key_bits()).filter(|bits| *bits != 0),
        integ_alg: (transform.integrity()).map(|one| names::integrity(one).to_owned()),
        dh_group: (sa.key_exchange).map(|method| names::group(method).to_owned()),
        esn: (sa.esp.sequence_numbers == SequenceNumbers::Bits64).then_some(1),
        encap: sa.udp_encap,
        traffic,
        one_way: sa.one_way.map(|one_way| silence::listed(&one_way, sa, now)),
        install_time: since(now, sa.installed),
        rekey_time: sa.rekey_at.map(|at| until(now, at)),
        life_time: sa.expires_at.map(|at| until(now, at)),
        local_ts: negotiated(&sa.local_ts),
        remote_ts: negotiated(&sa.remote_ts),
    }
}

/// Reports the data plane's part of a child SA. `now_ms` is the data plane's clock.
pub fn child_traffic(
    installed: &InstalledChild,
    marks: SaMarks,
    (engine, adaptive): (Option<&'static str>, Option<AdaptiveEngines>),
    engine_reason: Option<String>,
    now_ms: u64,
) -> ChildTraffic {
    let (inbound, outbound) = (&installed.inbound.common, &installed.outbound.common);
    // The number of a device for marks is the gateway's own affair.
    let bound = marks == SaMarks::default();
    let half = |half: &SaCommon, mark: Option<Mark>| HalfTraffic {
        if_id: Some(half.interface).filter(|id| bound && *id != 0),
        mark: mark.map(|mark| (mark.value, mark.mask)),
        ..half_traffic(half, now_ms)
    };
    let mut drops = NamedCounters::new();
    for (reason, count) in inbound.drops.iter().chain(outbound.drops.iter()) {
        if count > 0 {
            *drops.entry(reason.name().to_owned()).or_default() += count;
        }
    }
    ChildTraffic {
        engine: match adaptive {
            Some(_) => Some(EngineKind::ADAPTIVE.name()),
            None => engine,
        },
        engine_in: adaptive.map(|engines| engines.inbound),
        engine_out: adaptive.map(|engines| engines.outbound),
        engine_reason,
        inbound: half(inbound, marks.inbound),
        outbound: half(outbound, marks.outbound),
        drops,
    }
}

fn half_traffic(half: &SaCommon, now_ms: u64) -> HalfTraffic {
    let last_used_ms = Some(half.last_used_ms()).filter(|ms| *ms > 0);
    HalfTraffic {
        bytes: half.lifetime.bytes(),
        packets: half.lifetime.packets(),
        idle: last_used_ms.map(|ms| now_ms.saturating_sub(ms) / 1000),
        ..HalfTraffic::default()
    }
}

/// Reports what a child has carried. `now_ms` is the data plane's clock.
pub fn totals(carried: ChildTotals, now_ms: u64) -> ListedTotals {
    let drops = carried.drops.into_iter();
    ListedTotals {
        bytes_in: carried.inbound.bytes,
        packets_in: carried.inbound.packets,
        bytes_out: carried.outbound.bytes,
        packets_out: carried.outbound.packets,
        drops: drops
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
        up_for: (carried.up_since_ms).map(|since| now_ms.saturating_sub(since) / 1000),
    }
}

/// Reports a connection. `states` are the states of its children, and `carried` says what a child has carried.
pub fn connection(
    connection: &Connection,
    states: &[&ConfiguredChild],
    carried: impl Fn(&str) -> Option<ListedTotals>,
    last_refusal: Option<ListedRefusal>,
    now: Instant,
) -> ListedConnection {
    let children = connection.children.iter().map(|child| {
        let state = states.iter().find(|state| state.child == child.name);
        let failure = state.and_then(|state| state.failure.as_ref());
        let listed = ListedChild {
            mode: mode(child.mode),
            rekey_time: child.lifetime.rekey_time.as_secs(),
            rekey_bytes: child.lifetime.rekey_bytes,
            rekey_packets: child.lifetime.rekey_packets,
            dpd_action: action(child.dpd_action),
            close_action: action(child.close_action),
            local_ts: configured(&child.local_ts),
            remote_ts: configured(&child.remote_ts),
            state: state.map(|state| state.state.name()),
            wanted: state.is_some_and(|state| state.wanted),
            next_attempt: state.and_then(|state| Some(until(now, state.next_at?))),
            carried: carried(&child.name),
            last_error: failure.map(|failure| failure.why.clone()),
            last_error_age: failure.map(|failure| since(now, failure.at)),
            attempt: state.and_then(|state| silence::listed_attempt(state.attempt.as_ref()?, now)),
        };
        (child.name.clone(), listed)
    });
    ListedConnection {
        local_addrs: addresses(&connection.local_addrs),
        remote_addrs: addresses(&connection.remote_addrs),
        version: "IKEv2",
        reauth_time: connection.reauth_time.as_secs(),
        rekey_time: connection.rekey_time.as_secs(),
        unique: format!("{:?}", connection.unique).to_uppercase(),
        dpd_delay: Some(connection.dpd_delay.as_secs()).filter(|_| !connection.dpd_delay.is_zero()),
        local: ListedAuthentication {
            class: match connection.local.method {
                LocalMethod::Psk => "pre-shared key",
                LocalMethod::Signature(_) => "public key",
            },
            id: connection.local.id.to_string(),
            groups: Vec::new(),
        },
        remote: ListedAuthentication {
            class: match connection.remote.method {
                RemoteMethod::Psk => "pre-shared key",
                RemoteMethod::Certificate { .. } | RemoteMethod::PublicKey { .. } => "public key",
            },
            id: connection.remote.id.to_string(),
            groups: match &connection.remote.method {
                RemoteMethod::Certificate { rules, .. } => names_of(&rules.groups),
                RemoteMethod::Psk | RemoteMethod::PublicKey { .. } => Vec::new(),
            },
        },
        names: names(connection),
        last_refusal,
        children: Named(children.collect()),
    }
}

pub fn policy(policy: &Policy) -> ListedPolicy {
    ListedPolicy {
        child: policy.child.clone(),
        ike: policy.connection.clone(),
        mode: match policy.action {
            PolicyAction::Bypass => "PASS",
            PolicyAction::Discard => "DROP",
            PolicyAction::Protect => mode(policy.mode),
        },
        local_ts: configured(&policy.local_ts),
        remote_ts: configured(&policy.remote_ts),
    }
}

pub fn authority(authority: &Authority) -> ListedAuthority {
    ListedAuthority {
        cacert: authority.subject.clone(),
        crl_uris: authority.crl_uris.clone(),
        ocsp_uris: authority.ocsp_uris.clone(),
        cert_uri_base: authority.cert_uri_base.clone(),
    }
}

pub fn ike_counters(ike: &esplanade_ike::status::IkeCounters) -> IkeCounters {
    let refused = Refusal::ALL.iter().map(|reason| ike.refused(*reason));
    IkeCounters {
        counts: counts::named(esplanade_ike::status::IkeCounters::COUNTERS, ike.iter()),
        refused: counts::named(Refusal::COUNTERS, refused),
    }
}

/// Reports the GPU's share.
pub fn share(with: String, share: &ShareReport, limits: ShareLimits) -> ShareStats {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    ShareStats {
        with,
        percent: share.percent,
        halves: share.halves,
        gpu_halves: share.on_gpu,
        busy_percent: share.busy_percent,
        threshold: limits.threshold,
        in_service: share.in_service,
        p99_us: share.p99.map(us),
        latency_us: us(limits.latency),
        moves: share.moves,
        trials: share.trials,
        undone: share.undone,
    }
}

/// Reports the lines on their way to the log or a file.
pub fn output(report: output::OutputReport) -> OutputCounters {
    OutputCounters {
        lost: report.lost,
        waiting: report.waiting,
        error: report.error,
    }
}

/// Reports the CRLs.
pub fn crls(store: &RevocationStore) -> Named<ListedCrl> {
    let listed = store.crls().iter().enumerate().map(|(index, crl)| {
        let listed = ListedCrl {
            issuer: crl.issuer().to_string(),
            number: crl.number(),
            delta: crl.is_delta(),
            entries: crl.entries(),
            this_update: crl.made(),
            next_update: crl.expires(),
            unusable: crl.unusable().map(str::to_owned),
        };
        (index.to_string(), listed)
    });
    Named(listed.collect())
}

/// Reports the confinement of the process besides its reduced rights.
pub fn confinement(force: &InForce) -> ConfinementStats {
    ConfinementStats {
        landlock: force.landlock.unwrap_or_default(),
        seccomp: force.seccomp,
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Tunnel => "TUNNEL",
        Mode::Transport => "TRANSPORT",
    }
}

fn negotiated(list: &[TrafficSelector]) -> Selectors {
    let mut selectors = Selectors::default();
    for ts in list {
        selectors.push_range(ts.start, ts.end, ts.protocol, (ts.start_port, ts.end_port));
    }
    selectors
}

fn configured(list: &[Selector]) -> Selectors {
    let mut selectors = Selectors::default();
    for ts in list {
        match ts.addresses {
            SelectorAddresses::Dynamic => selectors.push_dynamic(ts.protocol, ts.ports),
            SelectorAddresses::Range(first, last) => {
                selectors.push_range(first, last, ts.protocol, ts.ports);
            }
        }
    }
    selectors
}

/// Returns the action in strongSwan's words.
fn action(action: EndAction) -> &'static str {
    match action {
        EndAction::Clear => "clear",
        EndAction::Trap => "hold",
        EndAction::Start => "restart",
    }
}

fn addresses(addresses: &[AddressMatch]) -> Vec<String> {
    let text = |address: &AddressMatch| match address {
        AddressMatch::Any => "%any".to_owned(),
        AddressMatch::Host(host) => host.to_string(),
        AddressMatch::Range(from, to) => format!("{from}-{to}"),
        AddressMatch::Name(name) => name.name.clone(),
    };
    match addresses {
        [] => vec!["%any".to_owned()],
        some => some.iter().map(text).collect(),
    }
}

/// Reports the host names of a connection, each once.
fn names(connection: &Connection) -> Named<ListedName> {
    let mut listed: Vec<(String, ListedName)> = Vec::new();
    for name in connection.names() {
        if listed.iter().all(|(known, _)| *known != name.name) {
            let addresses = name.addresses.as_deref().unwrap_or_default();
            let report = ListedName {
                addresses: addresses.iter().map(ToString::to_string).collect(),
                error: name.addresses.as_ref().err().cloned(),
            };
            listed.push((name.name.clone(), report));
        }
    }
    Named(listed)
}

pub(in crate::daemon) fn since(now: Instant, then: Instant) -> u64 {
    now.saturating_duration_since(then).as_secs()
}

fn until(now: Instant, then: Instant) -> u64 {
    then.checked_duration_since(now)
        .unwrap_or(Duration::ZERO)
        .as_secs()
}
