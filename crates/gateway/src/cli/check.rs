//! `esplanade check`: is the configuration valid, and do its policies mean what they seem to?

use std::path::Path;

use esplanade_ipsec::spd::SpdEntry;
use esplanade_ipsec::spd::analysis::{Finding, FindingKind, analyse};

use super::{colour, load, print};
use crate::config::{Diagnostic, Diagnostics, Loaded, Policy};
use crate::daemon::preview::{Planned, Why, preview};
use crate::daemon::{forwarding, revocation};
use crate::failure::Failure;
use crate::log;

pub(super) fn check(file: &Path) -> Result<(), Failure> {
    let loaded = load(file)?;
    log::write_text(&policy_warnings(&loaded).render(colour()));
    let connections = loaded.ike.connections.len();
    let policies = loaded.policies.len();
    let text = format!(
        "{}: valid, {connections} connections, {policies} policies\n",
        file.display()
    );
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
    let mut forwarding = forwarding::missing(loaded);
    forwarding.extend(forwarding::filtered(loaded));
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
    loaded.diagnostics(list)
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

fn warning(loaded: &Loaded, planned: &[Planned], finding: &Finding) -> Option<Diagnostic> {
    let (index, _) = planned.get(finding.entry)?.members.first()?;
    let policy = loaded.policies.get(*index)?;
    let own = format!("`{}/{}`", policy.connection, policy.child);
    let name = |entry: usize| named(loaded, planned, entry);
    let order = "set `priority` (lower comes first), or narrow the selectors of one of them";
    let (what, help) = match &finding.kind {
        FindingKind::Empty => return Some(contradicts(policy)),
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
            let what = format!(
                "{own} gets no packet: together these come before it and take them all: {}",
                names.join(", ")
            );
            (what, order)
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
