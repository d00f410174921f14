//! Checks whether the kernel forwards the packets that the policies are for, and takes them in.

use std::fs;
use std::net::IpAddr;

use esplanade_ike::config::{Mode, Selector, SelectorAddresses};

use crate::config::{Loaded, Policy, PolicyAction};

/// An IP version, and the kernel's settings for forwarding it.
struct Version {
    name: &'static str,
    v4: bool,
    /// The path with a folder for each interface, and a folder for all interfaces.
    settings: &'static str,
    sysctl: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        name: "IPv4",
        v4: true,
        settings: "/proc/sys/net/ipv4/conf",
        sysctl: "net.ipv4.ip_forward=1",
    },
    Version {
        name: "IPv6",
        v4: false,
        settings: "/proc/sys/net/ipv6/conf",
        sysctl: "net.ipv6.conf.all.forwarding=1",
    },
];

/// Returns a problem and its remedy for each IP version that the kernel does not forward although policies protect
/// whole networks. The packets of these networks reach the tunnel only if the kernel forwards them.
pub fn missing(loaded: &Loaded) -> Vec<(String, String)> {
    missing_where(loaded, |version| is_on(version.settings))
}

fn missing_where(loaded: &Loaded, is_on: impl Fn(&Version) -> bool) -> Vec<(String, String)> {
    let wanted = |version: &Version| {
        let protected = loaded
            .policies
            .iter()
            .filter(|policy| policy.action == PolicyAction::Protect && policy.mode == Mode::Tunnel);
        protected
            .flat_map(|policy| &policy.local_ts)
            .any(|selector| is_network(selector, version.v4))
    };
    VERSIONS
        .iter()
        .filter(|version| wanted(version) && !is_on(version))
        .map(|version| {
            let what = format!(
                "this machine does not forward {} packets: the networks in `local_ts` stay without the tunnel",
                version.name
            );
            (what, format!("run `sysctl -w {}`", version.sysctl))
        })
        .collect()
}

/// Tells whether the selector is a network of this IP version. A single address may be the gateway's own.
fn is_network(selector: &Selector, v4: bool) -> bool {
    match selector.addresses {
        SelectorAddresses::Range(first, last) => first != last && first.is_ipv4() == v4,
        SelectorAddresses::Dynamic => false,
    }
}

/// Tells whether any interface forwards packets. Returns true if the settings cannot be read.
fn is_on(settings: &str) -> bool {
    let Ok(interfaces) = fs::read_dir(settings) else {
        return true;
    };
    interfaces
        .flatten()
        .filter(|interface| interface.file_name() != "default")
        .any(|interface| {
            let forwards = fs::read_to_string(interface.path().join("forwarding"));
            forwards.is_ok_and(|value| value.trim() != "0")
        })
}

/// Returns a problem and its remedy if the kernel's reverse path filter drops packets that policies need. It does so for
/// devices that only a mark leads to, and for peers whose own addresses are led into the TUN device.
pub fn filtered(loaded: &Loaded) -> Option<(String, String)> {
    // The higher value counts: this one, or that of the interface.
    let all = fs::read_to_string("/proc/sys/net/ipv4/conf/all/rp_filter");
    filtered_where(loaded, all.is_ok_and(|value| value.trim() == "1"))
}

fn filtered_where(loaded: &Loaded, strict: bool) -> Option<(String, String)> {
    let mut interfaces = loaded.gateway.interfaces.iter();
    let mut policies = loaded.policies.iter();
    let what = if !strict {
        return None;
    } else if interfaces.any(|one| one.marks.are_given()) {
        "what children with marks decrypt"
    } else if policies.any(protects_peers) {
        "the packets of peers whose own addresses are protected, IKE too"
    } else {
        return None;
    };
    Some((
        format!(
            "the kernel's reverse path filter (net.ipv4.conf.all.rp_filter is 1) drops IPv4 packets: {what}"
        ),
        "run `sysctl -w net.ipv4.conf.all.rp_filter=2`".to_owned(),
    ))
}

/// Tells whether the policy leads IPv4 packets to the peer's own address into the TUN device.
fn protects_peers(policy: &Policy) -> bool {
    let everything = |selector: &Selector| match selector.addresses {
        SelectorAddresses::Range(IpAddr::V4(first), IpAddr::V4(last)) => {
            first.is_unspecified() && last.is_broadcast()
        }
        _ => false,
    };
    policy.action == PolicyAction::Protect
        && (policy.mode == Mode::Transport || policy.remote_ts.iter().any(everything))
}

/// Tells whether the kernel forwards packets of the source's IP version that come in by this interface. Returns true if
/// the settings cannot be read.
pub fn forwards(source: IpAddr, link: &str) -> bool {
    let is_set = |file: String| Some(fs::read_to_string(file).ok()?.trim() != "0");
    match source {
        IpAddr::V4(_) => is_set(format!("/proc/sys/net/ipv4/conf/{link}/forwarding")),
        // An interface's own `forwarding` makes the interface a router for its neighbours only. Kernels before 6.17
        // have no `force_forwarding`.
        IpAddr::V6(_) => is_set("/proc/sys/net/ipv6/conf/all/forwarding".to_owned()).map(|all| {
            let forced = format!("/proc/sys/net/ipv6/conf/{link}/force_forwarding");
            all || is_set(forced) == Some(true)
        }),
    }
    .unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::example::site;

    fn loaded(child: &str) -> Loaded {
        site(&format!("net {{ {child} }}"))
    }

    fn without(child: &str, on: bool) -> Vec<String> {
        let found = missing_where(&loaded(child), |_| on).into_iter();
        found.map(|(_, help)| help).collect()
    }

    #[test]
    fn strict_filtering_is_told_where_it_drops_what_policies_need() {
        let nets = "local_ts = 10.1.0.0/16\n remote_ts = 10.2.0.0/16";
        let filtered = |child: &str, strict| filtered_where(&loaded(child), strict);
        for (child, told) in [
            (format!("{nets}\n mark_out = 7"), "children with marks"),
            ("mode = transport".to_owned(), "whose own addresses"),
            ("remote_ts = 0.0.0.0/0".to_owned(), "whose own addresses"),
        ] {
            let (what, help) = filtered(&child, true).expect("told");
            assert!(what.contains(told), "{what}");
            assert!(help.ends_with("rp_filter=2`"));
            assert_eq!(filtered(&child, false), None);
        }
        assert_eq!(filtered(nets, true), None);
    }

    #[test]
    fn networks_need_forwarding_of_their_ip_version() {
        let v4 = "local_ts = 10.1.0.0/16\n remote_ts = 10.2.0.0/16";
        let v6 = "local_ts = 2001:db8:1::/48\n remote_ts = 2001:db8:2::/48";
        assert_eq!(
            without(v4, false),
            ["run `sysctl -w net.ipv4.ip_forward=1`"]
        );
        assert_eq!(
            without(v6, false),
            ["run `sysctl -w net.ipv6.conf.all.forwarding=1`"]
        );
        for quiet in [
            "remote_ts = 10.2.0.0/16",
            "local_ts = 10.1.0.1/32\n remote_ts = 10.2.0.0/16",
            "local_ts = 10.1.0.0/16\n remote_ts = 10.2.0.0/16\n mode = pass",
            "mode = transport",
        ] {
            assert!(without(quiet, false).is_empty(), "{quiet}");
        }
        assert!(without(v4, true).is_empty());
    }
}
