//! Reads the section `peers` of a connection that serves many peers. An entry says which traffic
//! selectors a peer may have (RFC 4301 §4.4.3.3).

use std::collections::HashSet;
use std::net::IpAddr;

use esplanade_ike::auth::Identity;
use esplanade_ike::config::{PeerEntry, SelectorAddresses};

use super::child::selectors;
use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::identity::identity;
use super::schema;
use super::tree::SectionNode;
use super::value::{ValueError, given, place, read, refuse_empty_texts, report};

/// Reads the entries. `whom` is the identity, or pattern, that the connection expects of its peer.
pub(crate) fn peers(
    connection: &SectionNode,
    whom: &Identity,
    d: &mut Diagnostics,
) -> Vec<PeerEntry> {
    let Some(section) = connection.section("peers") else {
        return Vec::new();
    };
    schema::check(section, &schema::PEERS, false, d);
    let mut known = HashSet::new();
    let mut entries = Vec::new();
    let mut owned = Vec::new();
    for node in section.sections() {
        schema::check(node, &schema::PEER, false, d);
        refuse_empty_texts(node, d);
        for key in ["id", "remote_ts"] {
            if given(node, key).is_none() {
                let what = format!("the peer {} has no `{key}`", quoted(&node.name.value));
                let help = "a peer is an `id` and the `remote_ts` that are its own";
                d.push(Diagnostic::error(what).at(node.name.at).help(help));
            }
        }
        let remote_ts = selectors(node, "remote_ts", d);
        let Some(id) = read(node, "id", d, identity) else {
            continue;
        };
        let exact = !id.is_pattern();
        let bad = if exact && !whom.accepts(&id) {
            Some(ValueError::new(
                format!("{id} is no peer of this connection, which is for {whom}"),
                "name one that `remote.id` accepts",
            ))
        } else if !known.insert(id.clone()) {
            Some(ValueError::new(
                format!("{id} has an entry already"),
                "list all of its selectors there",
            ))
        } else {
            None
        };
        if let Some(bad) = bad {
            report("id", bad, place(node, "id"), d);
        }
        if exact {
            let ranges = remote_ts.iter().filter_map(|ts| match ts.addresses {
                SelectorAddresses::Range(first, last) => Some((first, last, node)),
                SelectorAddresses::Dynamic => None,
            });
            owned.extend(ranges);
        }
        entries.push(PeerEntry { id, remote_ts });
    }
    warn_of_overlaps(owned, d);
    entries
}

/// Warns of two peers that share addresses: only the peer that connects first can have them.
fn warn_of_overlaps(mut owned: Vec<(IpAddr, IpAddr, &SectionNode)>, d: &mut Diagnostics) {
    owned.sort_by_key(|(first, last, _)| (*first, *last));
    let mut widest: Option<(IpAddr, &SectionNode)> = None;
    for (first, last, node) in owned {
        if let Some((reaches, other)) = widest
            && first <= reaches
            && first.is_ipv4() == reaches.is_ipv4()
            && other.name.value != node.name.value
        {
            let what = format!(
                "the peers {} and {} have addresses in common, such as {first}",
                quoted(&other.name.value),
                quoted(&node.name.value)
            );
            let help = "only the first that comes gets them; let their `remote_ts` not overlap";
            let at = place(node, "remote_ts");
            d.push(Diagnostic::warning(what).at(at).help(help));
        }
        if widest.is_none_or(|(reaches, _)| last > reaches) {
            widest = Some((last, node));
        }
    }
}
