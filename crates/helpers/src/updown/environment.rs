//! The environment of a script, as strongSwan's updown plugin gives it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;

use esplanade_crypto::transform::Protocol;
use esplanade_ike::ChildSaInstalled;
use esplanade_ike::text::clean;
use esplanade_ike::wire::TrafficSelector;

use esplanade_config::{Policy, SaMarks};
use esplanade_prefix::{Prefix, prefixes_of_range};

/// The variables of one call.
pub(super) type Environment = BTreeMap<String, String>;

/// Most variables of a call, and bytes of a value. `clean` bounds what peers say.
const VARIABLES_MAX: usize = 32;
const VALUE_LEN_MAX: usize = 1024;

/// Checks what the runner is told to pass on. A gateway that was taken over could run its own code with the runner's rights
/// by `PATH`, `LD_PRELOAD` or `BASH_FUNC_`: so only variables of scripts are passed on, and text that controls nothing.
pub(super) fn check(environment: &Environment) -> Result<(), String> {
    if environment.len() > VARIABLES_MAX {
        return Err(format!("it has more than {VARIABLES_MAX} variables"));
    }
    let mut variables = environment.iter();
    match variables.find(|(name, value)| !is_name(name) || !is_value(value)) {
        Some((name, _)) => Err(format!(
            "its variable `{}` is none that a script is given",
            clean(name)
        )),
        None => Ok(()),
    }
}

/// Tells whether a variable has the form `PLUTO_VERB`.
fn is_name(name: &str) -> bool {
    let is_allowed = |c: u8| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_';
    let rest = name.strip_prefix("PLUTO_");
    rest.is_some_and(|rest| !rest.is_empty() && rest.len() <= 32 && rest.bytes().all(is_allowed))
}

fn is_value(value: &str) -> bool {
    value.len() <= VALUE_LEN_MAX && !value.contains(char::is_control)
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

/// The facts about a child SA that scripts are told, besides its traffic selectors and the number of its IKE SA. All SAs
/// of one child with one peer at one address share them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CallSubject {
    pub script: String,
    pub connection: String,
    pub child: String,
    pub peer: String,
    own: IpAddr,
    variables: Vec<(&'static str, String)>,
}

impl CallSubject {
    pub fn new(facts: &ChildFacts<'_>, script: &str) -> Self {
        let sa = facts.sa;
        let own = sa.local.ip();
        let mut variables = Vec::new();
        let mut set = |name, value: &dyn Display| {
            variables.push((name, clean(&value.to_string())));
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
        set("PLUTO_ME", &own);
        set("PLUTO_MY_ID", &facts.local_id);
        set("PLUTO_PEER", &sa.remote.ip());
        set("PLUTO_PEER_ID", &facts.remote_id);
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
        Self {
            script: script.to_owned(),
            connection: sa.connection.clone(),
            child: sa.name.clone(),
            peer: clean(&facts.remote_id),
            own,
            variables,
        }
    }

    /// Bytes that the subject takes, roughly.
    pub fn bytes(&self) -> usize {
        let texts = [&self.script, &self.connection, &self.child, &self.peer];
        let variables = self.variables.iter().map(|(_, value)| value);
        let texts = texts.into_iter().chain(variables);
        size_of::<Self>() + texts.map(|text| text.len() + 64).sum::<usize>()
    }

    /// The verb of a call, for a pair that comes up or ends.
    pub fn verb(&self, pair: &SelectorPair, up: bool) -> String {
        let change = if up { "up" } else { "down" };
        let kind = match pair.local.prefix == Prefix::host(self.own) {
            true => "host",
            false => "client",
        };
        let version = match pair.local.prefix.address().is_ipv4() {
            true => "",
            false => "-v6",
        };
        format!("{change}-{kind}{version}")
    }

    /// The variables of a call. `ike_sa` is the number of the IKE SA.
    pub fn environment(&self, pair: &SelectorPair, up: bool, ike_sa: u64) -> Environment {
        let known = self.variables.iter();
        let mut environment: Environment = known
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        let mut set = |name: &str, value: String| {
            environment.insert(name.to_owned(), value);
        };
        set("PLUTO_VERB", self.verb(pair, up));
        set("PLUTO_UNIQUEID", ike_sa.to_string());
        for (end, network) in [("MY", &pair.local), ("PEER", &pair.remote)] {
            set(&format!("PLUTO_{end}_CLIENT"), network.prefix.to_string());
            set(&format!("PLUTO_{end}_PORT"), network.port.to_string());
            set(
                &format!("PLUTO_{end}_PROTOCOL"),
                network.protocol.to_string(),
            );
        }
        environment
    }
}

/// Traffic at one end, as a script is told: a subnet, a port and a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ClientNetwork {
    prefix: Prefix,
    /// Zero stands for any port. For a range the first port stands.
    port: u16,
    protocol: u8,
}

impl ClientNetwork {
    /// Cuts a selector into subnets. Together they are what the selector is, and no more.
    fn of(selector: &TrafficSelector) -> impl Iterator<Item = Self> {
        let port = match selector.is_opaque_port() {
            true => 0,
            false => selector.start_port,
        };
        let protocol = selector.protocol;
        let prefixes = prefixes_of_range(selector.start, selector.end);
        prefixes.into_iter().map(move |prefix| Self {
            prefix,
            port,
            protocol,
        })
    }
}

/// The traffic of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SelectorPair {
    local: ClientNetwork,
    remote: ClientNetwork,
}

/// The traffic selectors of a child SA, cut into subnets.
#[derive(Debug)]
pub(super) struct ChildNetworks {
    local: Box<[ClientNetwork]>,
    remote: Box<[ClientNetwork]>,
}

impl ChildNetworks {
    pub fn new(local: &[TrafficSelector], remote: &[TrafficSelector]) -> Self {
        let cut = |selectors: &[TrafficSelector]| {
            let networks = selectors.iter().flat_map(ClientNetwork::of);
            networks.collect()
        };
        Self {
            local: cut(local),
            remote: cut(remote),
        }
    }

    /// The pairs of one IP version. A script runs once for each.
    pub fn pairs(&self) -> impl Iterator<Item = SelectorPair> {
        self.local.iter().flat_map(|local| {
            let is_ipv4 = local.prefix.address().is_ipv4();
            let remote = self.remote.iter();
            let alike = remote.filter(move |other| other.prefix.address().is_ipv4() == is_ipv4);
            alike.map(|remote| SelectorPair {
                local: *local,
                remote: *remote,
            })
        })
    }

    /// The number of [`Self::pairs`].
    pub fn pairs_count(&self) -> usize {
        let of = |networks: &[ClientNetwork]| {
            let ipv4 = networks.iter();
            let ipv4 = ipv4.filter(|network| network.prefix.address().is_ipv4());
            let ipv4 = ipv4.count();
            [ipv4, networks.len() - ipv4]
        };
        let (local, remote) = (of(&self.local), of(&self.remote));
        let products = local.into_iter().zip(remote);
        products
            .map(|(local, remote)| local.saturating_mul(remote))
            .sum()
    }

    /// Bytes that the networks take.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.local) + size_of_val(&*self.remote)
    }
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;

    /// A child of a connection with a peer.
    pub fn subject(connection: &str, peer: &str) -> CallSubject {
        CallSubject {
            script: "true".to_owned(),
            connection: connection.to_owned(),
            child: "net".to_owned(),
            peer: peer.to_owned(),
            own: IpAddr::from([192, 0, 2, 1]),
            variables: vec![("PLUTO_PEER_ID", peer.to_owned())],
        }
    }

    /// Networks of a child: one here, and these ranges at the peer.
    pub fn networks(remote: &[(&str, &str)]) -> ChildNetworks {
        let range = |(start, end): (&str, &str)| {
            TrafficSelector::addresses(start.parse().unwrap(), end.parse().unwrap())
        };
        let remote: Vec<_> = remote.iter().copied().map(range).collect();
        ChildNetworks::new(&[range(("10.1.0.0", "10.1.255.255"))], &remote)
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{networks, subject};
    use super::*;

    fn told(start: &str, end: &str) -> Vec<String> {
        let remote = networks(&[(start, end)]).remote;
        remote.iter().map(|one| one.prefix.to_string()).collect()
    }

    #[test]
    fn a_range_is_told_as_the_subnets_that_it_is() {
        assert_eq!(told("10.1.0.0", "10.1.255.255"), ["10.1.0.0/16"]);
        assert_eq!(told("10.1.0.7", "10.1.0.7"), ["10.1.0.7/32"]);
        assert_eq!(told("0.0.0.0", "255.255.255.255"), ["0.0.0.0/0"]);
        assert_eq!(told("2001:db8::", "2001:db8::ffff"), ["2001:db8::/112"]);
        // Two addresses, and not the subnet of 65,536 around them.
        let both = ["10.5.127.255/32", "10.5.128.0/32"];
        assert_eq!(told("10.5.127.255", "10.5.128.0"), both);
        let six = ["10.1.0.1/32", "10.1.0.2/31", "10.1.0.4/31", "10.1.0.6/32"];
        assert_eq!(told("10.1.0.1", "10.1.0.6"), six);
        assert_eq!(
            told("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe").len(),
            254
        );
    }

    #[test]
    fn pairs_are_of_one_ip_version() {
        let child = networks(&[("10.2.0.0", "10.2.0.2"), ("::", "::3")]);
        assert_eq!((child.pairs().count(), child.pairs_count()), (2, 2));
        let [first, second] = child.pairs().collect::<Vec<_>>()[..] else {
            panic!("{child:?}");
        };
        let told = subject("site", "peer");
        let up = told.environment(&first, true, 7);
        let down = told.environment(&second, false, 7);
        let expected = [
            ("PLUTO_MY_CLIENT", "10.1.0.0/16"),
            ("PLUTO_MY_PORT", "0"),
            ("PLUTO_MY_PROTOCOL", "0"),
            ("PLUTO_PEER_CLIENT", "10.2.0.0/31"),
            ("PLUTO_PEER_ID", "peer"),
            ("PLUTO_PEER_PORT", "0"),
            ("PLUTO_PEER_PROTOCOL", "0"),
            ("PLUTO_UNIQUEID", "7"),
            ("PLUTO_VERB", "up-client"),
        ];
        let up: Vec<_> = up.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(up, expected);
        assert_eq!(down["PLUTO_VERB"], "down-client");
        assert_eq!(down["PLUTO_PEER_CLIENT"], "10.2.0.2/32");
    }

    #[test]
    fn only_variables_of_scripts_are_passed_on() {
        let checked = |name: &str, value: &str| {
            check(&Environment::from([(name.to_owned(), value.to_owned())]))
        };
        for name in ["PLUTO_VERB", "PLUTO_MY_CLIENT", "PLUTO_IF_ID_IN"] {
            assert_eq!(checked(name, "fe80::1 $(id) …"), Ok(()), "{name}");
        }
        let long = "PLUTO_".to_owned() + &"A".repeat(33);
        for name in [
            "",
            "PATH",
            "IFS",
            "ENV",
            "BASH_ENV",
            "LD_PRELOAD",
            "BASH_FUNC_echo%%",
            "pluto_verb",
            "PLUTO_",
            "PLUTO_verb",
            "PLUTO_A=B",
            "PLUTO_A\0",
            "XPLUTO_VERB",
            &long,
        ] {
            let why = checked(name, "1").unwrap_err();
            assert!(why.contains("is none that a script is given"), "{why}");
        }
        let long = "x".repeat(VALUE_LEN_MAX + 1);
        for value in ["a\0b", "a\nb", "\u{1b}[2J", &long] {
            assert!(checked("PLUTO_VERB", value).is_err(), "{value:?}");
        }
        let many = (0..=VARIABLES_MAX).map(|at| (format!("PLUTO_{at}"), String::new()));
        assert!(check(&many.collect()).is_err());
    }

    /// A peer may send the longest texts, and what no terminal takes.
    #[test]
    fn what_the_gateway_sends_is_passed_on() {
        let child = networks(&[("2001:db8::", "2001:db8::ffff"), ("10.2.0.0", "10.2.0.255")]);
        for peer in ["\0\n\u{1b}[2J", &"\u{202e}".repeat(5000), &"é".repeat(5000)] {
            let told = subject("site", &clean(peer));
            for pair in child.pairs() {
                assert_eq!(check(&told.environment(&pair, true, u64::MAX)), Ok(()));
            }
        }
    }
}
