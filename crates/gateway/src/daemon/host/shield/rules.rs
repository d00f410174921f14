//! The rules of one policy, as the classifiers take them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use esplanade_ipsec::selector::{PortRange, TrafficSelector};
use esplanade_prefix::{Prefix, prefixes_of_range};

use crate::join::{PolicyKind, ranges};
use crate::net::classifier::{ClassifierRule, RulePlace, Span};
use crate::net::{AddressRange, of_the_link, shadowed};

const ICMP: u8 = libc::IPPROTO_ICMP as u8;
const ICMPV6: u8 = libc::IPPROTO_ICMPV6 as u8;
/// The protocols whose headers begin with two ports.
const WITH_PORTS: [libc::c_int; 5] = [
    libc::IPPROTO_TCP,
    libc::IPPROTO_UDP,
    libc::IPPROTO_SCTP,
    libc::IPPROTO_DCCP,
    libc::IPPROTO_UDPLITE,
];

/// The local and the remote end.
pub type Ends<'a> = (&'a [TrafficSelector], &'a [TrafficSelector]);

/// The rules of a policy for each range of remote addresses. The number says which classifier they belong to.
pub type RulesByRemote = BTreeMap<(usize, Span), Vec<(RulePlace, ClassifierRule)>>;

/// The rules of a policy.
#[derive(Debug)]
pub struct PolicyRules {
    /// For packets that come in.
    pub inbound: RulesByRemote,
    /// For packets that leave. Routes know addresses alone, so these rules do too: packets of other protocols or ports
    /// come out of the TUN device, with the gateway's mark.
    pub outbound: RulesByRemote,
}

impl PolicyRules {
    /// `holder` is the number of the policy's place, and its own. `networks` are those on the host's links.
    pub fn of(holder: (usize, u64), kind: PolicyKind, ends: Ends<'_>, networks: &[Prefix]) -> Self {
        let accepts = match kind {
            PolicyKind::Bypass => true,
            PolicyKind::Protect { .. } => false,
            PolicyKind::Discard => {
                return Self {
                    inbound: RulesByRemote::new(),
                    outbound: RulesByRemote::new(),
                };
            }
        };
        let (mut inbound, mut outbound) = (Placed::new(holder), Placed::new(holder));
        if !accepts {
            for (local, remote) in exempt(ends, networks) {
                for rules in [&mut inbound, &mut outbound] {
                    rules.add(remote, of_addresses(local, true));
                }
            }
        }
        let (local, remote) = ends;
        let mut pairs = BTreeSet::new();
        for from in remote {
            let remote = addresses(from);
            for to in local.iter().filter(|to| is_alike(to, from)) {
                for rule in pair(to, from, accepts) {
                    inbound.add(remote, rule);
                }
                let all = |ts: &TrafficSelector| ts.protocol == 0 && ts.ports == PortRange::Any;
                if !accepts || (all(to) && all(from)) {
                    pairs.insert((remote, addresses(to)));
                }
            }
        }
        for (remote, local) in pairs {
            outbound.add(remote, of_addresses(local, accepts));
        }
        Self {
            inbound: inbound.rules,
            outbound: outbound.rules,
        }
    }

    pub fn count(&self) -> usize {
        let all = self.inbound.values().chain(self.outbound.values());
        all.map(Vec::len).sum()
    }
}

/// Rules in the order in which they are added.
struct Placed {
    holder: (usize, u64),
    next: usize,
    rules: RulesByRemote,
}

impl Placed {
    fn new(holder: (usize, u64)) -> Self {
        Self {
            holder,
            next: 0,
            rules: RulesByRemote::new(),
        }
    }

    fn add(&mut self, remote: AddressRange, rule: ClassifierRule) {
        self.next += 1;
        let place = (self.holder.0, self.holder.1, self.next);
        let key = (usize::from(remote.first.is_ipv6()), span(remote));
        self.rules.entry(key).or_default().push((place, rule));
    }
}

/// Returns pairs of local and remote addresses that a policy does not take, although it covers them: the routes lead
/// these packets to a network of the host, or they end at the next router.
fn exempt((local, remote): Ends<'_>, networks: &[Prefix]) -> Vec<(AddressRange, AddressRange)> {
    let (local, remote) = (unique(local), unique(remote));
    let prefixes = |ranges: &[AddressRange]| -> Vec<Prefix> {
        let of_range = |range: &AddressRange| prefixes_of_range(range.first, range.last);
        ranges.iter().flat_map(of_range).collect()
    };
    let wide = |prefixes: &[Prefix], inner: &Prefix| {
        let mut around = prefixes.iter();
        around.any(|prefix| prefix.covers(inner) && prefix != inner)
    };
    let (local_prefixes, remote_prefixes) = (prefixes(&local), prefixes(&remote));
    let mut all = Vec::new();
    let own = networks.iter().filter(|network| {
        wide(&remote_prefixes, network) && local.iter().any(|range| range.covers(network))
    });
    let alike = |ranges: &[AddressRange], prefix: &Prefix| -> Vec<AddressRange> {
        let v4 = prefix.address().is_ipv4();
        let ranges = ranges.iter().filter(|one| one.first.is_ipv4() == v4);
        ranges.copied().collect()
    };
    let of_link = of_the_link().filter(|prefix| wide(&remote_prefixes, prefix));
    let own = own.copied().chain(shadowed(&local, &remote));
    for prefix in own.chain(of_link) {
        let local = alike(&local, &prefix).into_iter();
        all.extend(local.map(|local| (local, range(prefix))));
    }
    for prefix in of_the_link().filter(|prefix| wide(&local_prefixes, prefix)) {
        let remote = alike(&remote, &prefix).into_iter();
        all.extend(remote.map(|remote| (range(prefix), remote)));
    }
    all
}

fn unique(selectors: &[TrafficSelector]) -> Vec<AddressRange> {
    let all: BTreeSet<_> = ranges(selectors).into_iter().collect();
    all.into_iter().collect()
}

fn range(prefix: Prefix) -> AddressRange {
    AddressRange {
        first: prefix.address(),
        last: prefix.last(),
    }
}

fn addresses(selector: &TrafficSelector) -> AddressRange {
    AddressRange {
        first: selector.addresses.first(),
        last: selector.addresses.last(),
    }
}

fn is_alike(to: &TrafficSelector, from: &TrafficSelector) -> bool {
    to.addresses.first().is_ipv4() == from.addresses.first().is_ipv4()
}

fn of_addresses(local: AddressRange, accepts: bool) -> ClassifierRule {
    ClassifierRule {
        local: span(local),
        protocol: (0, u8::MAX),
        ports: None,
        accepts,
    }
}

/// Returns the rules for a pair of selectors. There is none if no packet shows what they select by.
pub(super) fn pair(
    to: &TrafficSelector,
    from: &TrafficSelector,
    accepts: bool,
) -> Vec<ClassifierRule> {
    let protocol = match (to.protocol, from.protocol) {
        (0, protocol) | (protocol, 0) => protocol,
        (a, b) if a == b => a,
        _ => return Vec::new(),
    };
    let rule = |protocol, ports| ClassifierRule {
        protocol,
        ports,
        ..of_addresses(addresses(to), accepts)
    };
    let (to, from) = match (to.ports, from.ports) {
        (PortRange::Any, PortRange::Any) => {
            let protocols = if protocol == 0 {
                (0, u8::MAX)
            } else {
                (protocol, protocol)
            };
            return vec![rule(protocols, None)];
        }
        // Nothing shows that ports cannot be seen.
        (PortRange::Opaque, _) | (_, PortRange::Opaque) => return Vec::new(),
        (to, from) => (numbers(to), numbers(from)),
    };
    // Type and code of ICMP stand where a source port would, and both ends select by them.
    let codes = (to.0.max(from.0), to.1.min(from.1));
    let with_ports = WITH_PORTS.map(|one| (one as u8, [from, to]));
    let with_codes = [ICMP, ICMPV6].map(|one| (one, [codes, (0, u16::MAX)]));
    let known = with_ports.into_iter().chain(with_codes);
    known
        .filter(|(one, [first, _])| [0, *one].contains(&protocol) && first.0 <= first.1)
        .map(|(one, ports)| rule((one, one), Some(ports)))
        .collect()
}

fn numbers(ports: PortRange) -> (u16, u16) {
    match ports {
        PortRange::Range(first, last) => (first, last),
        PortRange::Any | PortRange::Opaque => (0, u16::MAX),
    }
}

fn span(range: AddressRange) -> Span {
    let number = |address| match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    };
    (number(range.first), number(range.last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::tests::{TRAP, ends};

    /// The verdict on a packet of a local and a remote address: `None` if no rule is about it.
    fn accepts(rules: &RulesByRemote, local: &str, remote: &str) -> Option<bool> {
        let [local, remote] = [local, remote].map(|address| address.parse::<IpAddr>().unwrap());
        let number = |address| {
            span(AddressRange {
                first: address,
                last: address,
            })
            .0
        };
        let within = |(first, last): Span, address| (first..=last).contains(&number(address));
        let about = rules
            .iter()
            .filter(|((family, span), _)| {
                *family == usize::from(remote.is_ipv6()) && within(*span, remote)
            })
            .flat_map(|(_, rules)| rules)
            .filter(|(_, rule)| within(rule.local, local));
        let first = about.min_by_key(|(place, _)| *place);
        first.map(|(_, rule)| rule.accepts)
    }

    #[test]
    fn a_policy_for_every_destination_takes_no_network_of_the_host() {
        let lan = Prefix::new(IpAddr::from([10, 1, 0, 0]), 24).unwrap();
        let verdicts = |local: &str, remote: &str| {
            let (local, remote) = (ends(local), ends(remote));
            let rules = PolicyRules::of((0, 0), TRAP, (&local, &remote), &[lan]);
            [
                ("10.1.0.1", "10.1.0.9"),
                ("10.1.0.1", "198.51.100.1"),
                ("10.1.0.1", "224.0.0.18"),
                ("10.9.0.1", "10.9.0.2"),
                ("172.16.1.2", "198.51.100.1"),
                ("198.51.100.1", "10.1.0.9"),
            ]
            .map(|(local, remote)| {
                let [inbound, outbound] =
                    [&rules.inbound, &rules.outbound].map(|rules| accepts(rules, local, remote));
                assert_eq!(inbound, outbound, "{local} {remote}");
                inbound
            })
        };
        let (takes, leaves) = (Some(false), Some(true));
        let net = verdicts("10.1.0.0/16", "0.0.0.0/0");
        assert_eq!(net, [leaves, takes, leaves, None, None, None]);
        let both = verdicts("0.0.0.0/0", "0.0.0.0/0");
        assert_eq!(both, [leaves, takes, leaves, takes, takes, leaves]);
        let wide = verdicts("10.0.0.0/8", "10.0.0.0/8");
        assert_eq!(wide, [leaves, None, None, takes, None, None]);
        // It names the network itself.
        assert_eq!(verdicts("10.1.0.0/24", "10.1.0.0/24")[0], takes);
        // The host has an address of its own inside.
        assert_eq!(verdicts("10.1.0.1/32", "0.0.0.0/0")[0], takes);
    }

    #[test]
    fn packets_leave_by_addresses_and_come_in_by_ports_too() {
        let web = TrafficSelector {
            protocol: 6,
            ports: PortRange::Range(80, 80),
            ..ends("10.2.0.0/16")[0]
        };
        let local = ends("10.1.0.0/16");
        let rules = |kind| PolicyRules::of((0, 0), kind, (&local, &[web]), &[]);
        let protect = rules(TRAP);
        let [inbound, outbound] = [&protect.inbound, &protect.outbound].map(|rules| {
            let all = rules.values().flatten();
            all.map(|(_, rule)| (rule.protocol, rule.ports.is_some()))
                .collect::<Vec<_>>()
        });
        assert_eq!(
            (inbound, outbound),
            (vec![((6, 6), true)], vec![((0, 255), false)])
        );
        let bypass = rules(PolicyKind::Bypass);
        assert!(bypass.outbound.is_empty() && !bypass.inbound.is_empty());
    }
}
