//! Tells which of the host's own packets the policies take, where they may take more than the administrator means.

use std::net::IpAddr;

use esplanade_ike::config::{Selector, SelectorAddresses};

use crate::config::{Loaded, Policy, PolicyAction};
use crate::log::first_names;

/// Most children that are named.
const NAMED: usize = 4;

/// Returns what children for every destination take of the host's own traffic, with the child that would keep it in the
/// clear.
pub fn taken(loaded: &Loaded) -> Vec<(String, String)> {
    let everywhere = |policy: &&Policy| {
        policy.action == PolicyAction::Protect
            && policy.sa.if_ids.outbound == 0
            && policy.remote_ts.iter().any(is_everything)
    };
    let policies: Vec<_> = loaded.policies.iter().filter(everywhere).collect();
    let (of_hosts, of_networks): (Vec<_>, Vec<_>) = policies.into_iter().partition(|policy| {
        let mut local = policy.local_ts.iter();
        local.all(is_host)
    });
    let mut all = Vec::new();
    if !of_networks.is_empty() {
        let what = format!(
            "{} for every destination: this host's own packets from an address in `local_ts` go into the tunnel, \
             answers of its services there too. Packets from its other addresses do not",
            named(&of_networks)
        );
        let help = "a child with `mode = pass`, the host's address as `local_ts` and that of who manages it as \
                    `remote_ts` keeps them in the clear";
        all.push((what, help.to_owned()));
    }
    if !of_hosts.is_empty() {
        let what = format!(
            "{} for every destination and for this host alone: its own packets go into the tunnel unless they name \
             another source address, questions to name servers too",
            named(&of_hosts)
        );
        let help = "a child with `mode = pass` and `local_ts = 0.0.0.0/0` (or `::/0`) keeps packets to its `remote_ts` \
                    in the clear, such as name servers that are asked before the tunnel is up";
        all.push((what, help.to_owned()));
    }
    all
}

fn named(policies: &[&Policy]) -> String {
    let name = |policy: &&Policy| format!("`{}/{}`", policy.connection, policy.child);
    let all: Vec<_> = policies.iter().map(name).collect();
    let verb = if policies.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", first_names(&all, NAMED))
}

fn is_everything(selector: &Selector) -> bool {
    match selector.addresses {
        SelectorAddresses::Range(IpAddr::V4(first), IpAddr::V4(last)) => {
            first.is_unspecified() && last.is_broadcast()
        }
        SelectorAddresses::Range(IpAddr::V6(first), IpAddr::V6(last)) => {
            first.is_unspecified() && last.to_bits() == u128::MAX
        }
        _ => false,
    }
}

fn is_host(selector: &Selector) -> bool {
    match selector.addresses {
        SelectorAddresses::Range(first, last) => first == last,
        SelectorAddresses::Dynamic => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::example::site;

    fn told(children: &str) -> Vec<String> {
        taken(&site(children))
            .into_iter()
            .map(|(what, _)| what)
            .collect()
    }

    #[test]
    fn children_for_every_destination_are_named() {
        assert!(told("net { remote_ts = 10.0.0.0/8 }").is_empty());
        let all = "remote_ts = 0.0.0.0/0";
        let pass = "local_ts = 10.1.0.1\n mode = pass\n start_action = trap";
        assert!(told(&format!("net {{ {pass}\n {all} }}")).is_empty());
        let net = format!("net {{ local_ts = 10.1.0.0/16\n {all} }}");
        let [of_networks] = &told(&net)[..] else {
            panic!("one line")
        };
        assert!(
            of_networks.starts_with("`site/net` is for every"),
            "{of_networks}"
        );
        assert!(of_networks.contains("an address in `local_ts`"));
        let host = "host { local_ts = fd05::7\n remote_ts = ::/0 } own { remote_ts = 0.0.0.0/0 }";
        let lines = told(&format!("{net} {host}"));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[1].starts_with("`site/host`, `site/own` are for every"),
            "{lines:?}"
        );
    }
}
