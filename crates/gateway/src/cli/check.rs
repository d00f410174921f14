//! `esplanade check`: is the configuration valid, and do its policies mean what they seem to?

use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use esplanade_ike::config::AddressMatch;
use esplanade_ipsec::spd::SpdEntry;
use tracing::Level;

use super::{colour, load, print};
use crate::config::{Diagnostic, Diagnostics, Loaded, Policy};
use crate::daemon::host::{forwarding, host_state, own_traffic};
use crate::daemon::settings::preview::{Planned, Why, preview};
use crate::daemon::{certificates, revocation};
use crate::explain::analysis::{Finding, FindingKind, analyse, earlier_overlaps};
use crate::failure::Failure;
use crate::join::{ConfiguredPolicy, PolicyKind, may_stand_for};
use crate::log;
use crate::status::text::plural;

pub(super) fn check(file: &Path) -> Result<(), Failure> {
    let loaded = load(file)?;
    log::write_text(Level::WARN, &policy_warnings(&loaded).render(colour()));
    let number = |count: usize, one| plural(u64::try_from(count).unwrap_or(u64::MAX), one);
    let connections = number(loaded.ike.connections.len(), "connection");
    let policies = number(loaded.policies.len(), "policy");
    let text = format!("{}: valid, {connections}, {policies}\n", file.display());
    print(text.as_bytes())
}

/// Warns of policies that no packet reaches, policies whose order decides (RFC 4301 appendix B), and networks that the
/// kernel does not forward for.
fn policy_warnings(loaded: &Loaded) -> Diagnostics {
    let (planned, missing) = preview(loaded);
    let entries: Vec<SpdEntry> = planned.iter().map(|p| p.entry.clone()).collect();
    let analysis = analyse(&entries);
    let warning = |finding: &Finding| warning(loaded, &planned, finding);
    let mut list: Vec<Diagnostic> = analysis.findings.iter().filter_map(warning).collect();
    list.extend(substitutes(loaded, &planned, &entries));
    for missing in missing {
        let Some(policy) = loaded.policies.get(missing.policy) else {
            continue;
        };
        match missing.why {
            Why::NoHosts => list.push(without_hosts(policy)),
            Why::Contradicts => list.push(contradicts(policy)),
            Why::AddressUnknown => {}
        }
    }
    list.extend(own_peers(loaded));
    let mut forwarding = forwarding::missing(loaded);
    forwarding.extend(forwarding::filtered(loaded));
    forwarding.extend(own_traffic::taken(loaded));
    forwarding.extend(host_state::missing(loaded));
    let forwarding = forwarding.into_iter();
    list.extend(forwarding.map(|(what, help)| Diagnostic::warning(what).help(help)));
    if let [first, more @ ..] = analysis.undecided.as_slice() {
        let name = named(loaded, &planned, *first);
        let others = match more.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let what = format!("{name}{others}: too complex to tell whether packets reach them");
        let help = "the earlier policies cut them into too many pieces; `esplanade explain` tells for one packet";
        list.push(Diagnostic::warning(what).help(help));
    }
    let revocation = revocation::missing(loaded);
    list.extend(revocation.map(|(what, help)| Diagnostic::warning(what).help(help)));
    let certificates = certificates::doubtful(&loaded.ike, SystemTime::now());
    list.extend(
        certificates
            .into_iter()
            .map(|(what, help)| Diagnostic::warning(what).help(help)),
    );
    loaded.diagnostics(list)
}

/// Connections whose peer is this gateway itself: it would call itself, and refuse itself.
fn own_peers(loaded: &Loaded) -> Vec<Diagnostic> {
    let mut list = Vec::new();
    for connection in &loaded.ike.connections {
        let locals: Vec<IpAddr> = AddressMatch::hosts_of(&connection.local_addrs).collect();
        let mut remotes = AddressMatch::hosts_of(&connection.remote_addrs);
        let own = remotes.find(|remote| locals.contains(remote) || host_state::is_own(*remote));
        let mut policies = loaded.policies.iter();
        let policy = policies.find(|policy| policy.connection == connection.name);
        let (Some(own), Some(policy)) = (own, policy) else {
            continue;
        };
        let what = format!(
            "`{}`: {own} in `remote_addrs` is an address of this gateway",
            connection.name
        );
        let help = "`remote_addrs` has the addresses of the peer, `local_addrs` those of this side";
        list.push(Diagnostic::warning(what).at(policy.at).help(help));
    }
    list
}

/// A child in transport mode that no packet can take.
fn without_hosts(policy: &Policy) -> Diagnostic {
    let what = format!(
        "`{}/{}` gets no packet: transport mode carries packets between the two gateways only, and the selectors leave \
         them out",
        policy.connection, policy.child
    );
    let help = "leave local_ts and remote_ts out, or use `mode = tunnel`";
    Diagnostic::warning(what).at(policy.at).help(help)
}

fn contradicts(policy: &Policy) -> Diagnostic {
    let what = format!(
        "`{}/{}` gets no packet: its local and remote selectors contradict each other",
        policy.connection, policy.child
    );
    let help = "give both the same IP version, the same protocol, and with ICMP the same types";
    Diagnostic::warning(what).at(policy.at).help(help)
}

/// A policy by name and place.
fn named(loaded: &Loaded, planned: &[Planned], entry: usize) -> String {
    let member = planned.get(entry).and_then(|p| p.members.first());
    match member.and_then(|(index, _)| loaded.policies.get(*index)) {
        Some(policy) => format!(
            "`{}/{}` ({})",
            policy.connection,
            policy.child,
            loaded.place(&policy.at)
        ),
        None => String::new(),
    }
}

/// Tells whether the policy's traffic goes through the SA of another one, which comes later, while it has none itself.
fn goes_through(planned: &[Planned], own: usize, other: usize, within: bool) -> bool {
    let (Some(own), Some(other)) = (policy_of(planned, own), policy_of(planned, other)) else {
        return false;
    };
    matches!(own.kind, PolicyKind::Protect { .. }) && may_stand_for(other, own, within)
}

fn policy_of(planned: &[Planned], entry: usize) -> Option<&ConfiguredPolicy> {
    Some(&planned.get(entry)?.policy)
}

/// Tells of policies whose SAs carry the traffic of narrower ones of other connections, while these have no SA.
fn substitutes(loaded: &Loaded, planned: &[Planned], entries: &[SpdEntry]) -> Vec<Diagnostic> {
    let Some(overlaps) = earlier_overlaps(entries, |_| true) else {
        return Vec::new();
    };
    let mut list = Vec::new();
    for (entry, earlier) in overlaps.iter().enumerate() {
        let Some(wide) = policy_of(planned, entry) else {
            continue;
        };
        let of_other = |other: usize| {
            policy_of(planned, other).is_some_and(|narrow| narrow.connection != wide.connection)
        };
        // Policies that take all of this one's packets are told of elsewhere.
        let mut narrower = earlier.iter().filter(|other| {
            other.is_covered
                && !other.covers
                && of_other(other.entry)
                && goes_through(planned, other.entry, entry, false)
        });
        let Some(first) = narrower.next() else {
            continue;
        };
        let others = match narrower.count() {
            0 => " while that has no SA".to_owned(),
            more => format!(" and {more} more while those have no SA"),
        };
        let what = format!(
            "`{}/{}` carries packets of {}{others}",
            wide.connection,
            wide.child,
            named(loaded, planned, first.entry),
        );
        let help =
            "if such packets are to wait for an SA of their own, use `start_action = trap` there";
        let at = planned
            .get(entry)
            .and_then(|planned| planned.members.first());
        let Some(policy) = at.and_then(|(index, _)| loaded.policies.get(*index)) else {
            continue;
        };
        list.push(Diagnostic::warning(what).at(policy.at).help(help));
    }
    list
}

fn warning(loaded: &Loaded, planned: &[Planned], finding: &Finding) -> Option<Diagnostic> {
    let (index, _) = planned.get(finding.entry)?.members.first()?;
    let policy = loaded.policies.get(*index)?;
    let own = format!("`{}/{}`", policy.connection, policy.child);
    let name = |entry: usize| named(loaded, planned, entry);
    let order = "set `priority` (lower comes first), or narrow the selectors of one of them";
    let stands = |by: usize| goes_through(planned, by, finding.entry, true);
    let of_others = |by: &usize| {
        policy_of(planned, *by).is_some_and(|other| other.connection != policy.connection)
    };
    let overlap = policy_of(planned, finding.entry).is_some_and(|p| p.shared_traffic.overlap);
    // A second peer that asks for the same traffic is refused (RFC 4301 §4.4.3.3).
    let way = match overlap {
        true => {
            "right for a second way to the same networks; else narrow the selectors of one of them"
        }
        false => {
            "right for a second way to the same networks, of which one is up at a time; for both at once, set \
             `overlap = yes` in both; else narrow the selectors of one of them"
        }
    };
    let help_for = |by: &[usize]| if by.iter().all(of_others) { way } else { order };
    let (what, help) = match &finding.kind {
        FindingKind::Empty => return Some(contradicts(policy)),
        FindingKind::Shadowed { by } if stands(*by) => (
            format!(
                "{own} gets packets only while {} has no SA: that comes before it and takes them all",
                name(*by)
            ),
            help_for(&[*by]),
        ),
        FindingKind::Shadowed { by } => (
            format!(
                "{own} gets no packet: {} comes before it and takes them all",
                name(*by)
            ),
            order,
        ),
        FindingKind::Unreachable { by } => {
            const SHOWN: usize = 4;
            let mut names: Vec<String> = by.iter().take(SHOWN).map(|entry| name(*entry)).collect();
            if by.len() > SHOWN {
                names.push(format!("{} more", by.len() - SHOWN));
            }
            let names = names.join(", ");
            match by.iter().all(|by| stands(*by)) {
                true => (
                    format!(
                        "{own} gets packets only while one of these has no SA, as together they come before it and take \
                         them all: {names}"
                    ),
                    help_for(by),
                ),
                false => (
                    format!(
                        "{own} gets no packet: together these come before it and take them all: {names}"
                    ),
                    order,
                ),
            }
        }
        FindingKind::Overlaps { with } => (
            format!(
                "{own} and {} do different things with packets that match both; {} comes first",
                name(*with),
                planned.get(*with)?.entry.name,
            ),
            "if the order is meant, say it with `priority`; else let the selectors not overlap",
        ),
    };
    Some(Diagnostic::warning(what).at(policy.at).help(help))
}
