//! The environment of a script, as strongSwan's updown plugin gives it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;

use esplanade_crypto::transform::Protocol;
use esplanade_ike::ChildSaInstalled;
use esplanade_ike::text::clean;
use esplanade_ike::wire::TrafficSelector;
use esplanade_ipsec::selector::AddressRange;

use crate::config::{Policy, SaMarks};

/// The variables of one call, without the verb.
pub type Environment = BTreeMap<&'static str, String>;

/// A pair of traffic selectors of a child SA. A script runs once for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorPair {
    /// `client`, or `host` if this end protects nothing but itself. Over IPv6 `-v6` follows.
    verb: String,
    environment: Environment,
}

impl SelectorPair {
    /// The variables, with the verb for a child SA that comes up or ends.
    pub fn call(&self, up: bool) -> Environment {
        let mut environment = self.environment.clone();
        let change = if up { "up" } else { "down" };
        environment.insert("PLUTO_VERB", format!("{change}-{}", self.verb));
        environment
    }

    /// The variables that two SAs for the same traffic of the same peer have in common.
    pub fn meaning(&self) -> Environment {
        let mut meaning = self.call(true);
        meaning.remove("PLUTO_UNIQUEID");
        meaning
    }
}

/// The properties of a child SA and its IKE SA that scripts are told.
#[derive(Debug)]
pub struct ChildFacts<'a> {
    pub sa: &'a ChildSaInstalled,
    pub policy: &'a Policy,
    /// The TUN device that leads to the child SA.
    pub interface: &'a str,
    pub local_id: String,
    pub remote_id: String,
}

/// Returns the pairs of traffic selectors of one IP version.
pub fn selector_pairs(facts: &ChildFacts<'_>) -> Vec<SelectorPair> {
    let pairs = facts.sa.local_ts.iter().flat_map(|local| {
        let alike = |remote: &&TrafficSelector| remote.start.is_ipv4() == local.start.is_ipv4();
        let remote = facts.sa.remote_ts.iter().filter(alike);
        remote.map(move |remote| (local, remote))
    });
    pairs
        .map(|(local, remote)| selector_pair(facts, local, remote))
        .collect()
}

fn selector_pair(
    facts: &ChildFacts<'_>,
    local: &TrafficSelector,
    remote: &TrafficSelector,
) -> SelectorPair {
    let sa = facts.sa;
    let own = sa.local.ip();
    let kind = match local.start == own && local.end == own {
        true => "host",
        false => "client",
    };
    let version = if local.start.is_ipv4() { "" } else { "-v6" };
    let mut environment = Environment::new();
    let mut set = |name, value: &dyn Display| {
        environment.insert(name, clean(&value.to_string()));
    };
    set("PLUTO_VERSION", &"1.1");
    set("PLUTO_CONNECTION", &sa.name);
    set("PLUTO_INTERFACE", &facts.interface);
    set(
        "PLUTO_PROTO",
        &match sa.esp.transform.protocol() {
            Protocol::Esp => "esp",
            Protocol::Ah => "ah",
        },
    );
    set("PLUTO_UNIQUEID", &sa.ike_sa.0);
    set("PLUTO_ME", &own);
    set("PLUTO_MY_ID", &facts.local_id);
    set("PLUTO_MY_CLIENT", &Network(local));
    set("PLUTO_MY_PORT", &port(local));
    set("PLUTO_MY_PROTOCOL", &local.protocol);
    set("PLUTO_PEER", &sa.remote.ip());
    set("PLUTO_PEER_ID", &facts.remote_id);
    set("PLUTO_PEER_CLIENT", &Network(remote));
    set("PLUTO_PEER_PORT", &port(remote));
    set("PLUTO_PEER_PROTOCOL", &remote.protocol);
    if sa.udp_encap {
        set("PLUTO_UDP_ENC", &sa.remote.port());
    }
    let if_ids = facts.policy.sa.if_ids;
    let marks = facts.policy.sa.marks;
    // The number of a device for marks is the gateway's own affair.
    let bound = marks == SaMarks::default();
    if bound && if_ids.inbound != 0 {
        set("PLUTO_IF_ID_IN", &if_ids.inbound);
    }
    if bound && if_ids.outbound != 0 {
        set("PLUTO_IF_ID_OUT", &if_ids.outbound);
    }
    if let Some(mark) = marks.inbound {
        set("PLUTO_MARK_IN", &mark);
    }
    if let Some(mark) = marks.outbound {
        set("PLUTO_MARK_OUT", &mark);
    }
    if facts.policy.host_access {
        set("PLUTO_HOST_ACCESS", &1);
    }
    SelectorPair {
        verb: format!("{kind}{version}"),
        environment,
    }
}

/// The port of a selector. Zero stands for any, and for a range the first port stands.
fn port(selector: &TrafficSelector) -> u16 {
    match selector.is_opaque_port() {
        true => 0,
        false => selector.start_port,
    }
}

/// Prints the smallest subnet that has all addresses of a selector.
struct Network<'a>(&'a TrafficSelector);

impl Display for Network<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TrafficSelector { start, end, .. } = *self.0;
        let bits = match (start, end) {
            (IpAddr::V4(start), IpAddr::V4(end)) => {
                (start.to_bits() ^ end.to_bits()).leading_zeros()
            }
            (IpAddr::V6(start), IpAddr::V6(end)) => {
                (start.to_bits() ^ end.to_bits()).leading_zeros()
            }
            // A selector has addresses of one IP version.
            _ => 0,
        };
        let network = AddressRange::from_prefix(start, bits as u8);
        let first = network.map_or(start, |network| network.first());
        write!(f, "{first}/{bits}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_shown_as_the_subnet_around_it() {
        for (start, end, shown) in [
            ("10.1.0.0", "10.1.255.255", "10.1.0.0/16"),
            ("10.1.0.7", "10.1.0.7", "10.1.0.7/32"),
            ("10.1.0.1", "10.1.0.6", "10.1.0.0/29"),
            ("0.0.0.0", "255.255.255.255", "0.0.0.0/0"),
            ("2001:db8::", "2001:db8::ffff", "2001:db8::/112"),
            ("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::/0"),
        ] {
            let selector = TrafficSelector::addresses(start.parse().unwrap(), end.parse().unwrap());
            assert_eq!(Network(&selector).to_string(), shown);
        }
    }
}
