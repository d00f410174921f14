//! The configuration, as `list-conns` and `list-policies` show it.

use std::net::IpAddr;

use esplanade_engines::Named;
use esplanade_engines::stats::NamedCounters;
use esplanade_prefix::prefixes_of_range;
use serde::Serialize;

/// A connection. Times are in seconds. Keys with underscores are vici's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedConnection {
    pub local_addrs: Vec<String>,
    pub remote_addrs: Vec<String>,
    pub version: &'static str,
    pub reauth_time: u64,
    pub rekey_time: u64,
    pub unique: String,
    /// The silence, or the time of unanswered traffic, before a liveness check. `None` means that there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dpd_delay: Option<u64>,
    #[serde(rename = "local-1")]
    pub local: ListedAuthentication,
    #[serde(rename = "remote-1")]
    pub remote: ListedAuthentication,
    /// The host names among the addresses.
    #[serde(skip_serializing_if = "Named::is_empty")]
    pub names: Named<ListedName>,
    /// The peer that was refused last. It is forgotten when this peer gets a child SA.
    #[serde(rename = "last-refusal", skip_serializing_if = "Option::is_none")]
    pub last_refusal: Option<ListedRefusal>,
    pub children: Named<ListedChild>,
}

/// A peer that was refused, and why. The texts are bounded and escaped, whatever the peer has sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedRefusal {
    pub remote_host: IpAddr,
    pub remote_port: u16,
    /// The identity that the peer wants to talk to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_id: Option<String>,
    /// The identity that the peer claims. It may be false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_id: Option<String>,
    /// The counter under which it is counted.
    pub reason: &'static str,
    pub why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configured: Option<String>,
    /// Seconds since then.
    pub age: u64,
}

/// A host name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedName {
    /// The addresses that the name has now.
    pub addresses: Vec<String>,
    /// The reason why the name has no address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The way in which one end authenticates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedAuthentication {
    /// `pre-shared key` or `public key`.
    pub class: &'static str,
    pub id: String,
    /// The groups of which the peer must be in one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

/// A child of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedChild {
    pub mode: &'static str,
    pub rekey_time: u64,
    pub rekey_bytes: u64,
    pub rekey_packets: u64,
    pub dpd_action: &'static str,
    pub close_action: &'static str,
    #[serde(rename = "local-ts")]
    pub local_ts: Selectors,
    #[serde(rename = "remote-ts")]
    pub remote_ts: Selectors,
    /// `UP`, `CONNECTING`, `WAITING`, `CLOSED` or `DOWN`. It is `None` right after a reload, before IKE has the child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// The gateway is to have the child up by itself: `start_action` says so, or attempts go on. A command that closes
    /// the child ends that.
    pub wanted: bool,
    /// Time until the next attempt.
    #[serde(rename = "next-attempt", skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<u64>,
    /// The packets that the child has carried and dropped. `None` means that it has had no SA since the gateway's start,
    /// and no packet for one.
    #[serde(flatten)]
    pub carried: Option<ListedTotals>,
    /// The reason why the last attempt failed.
    #[serde(rename = "last-error", skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Time since the last attempt failed.
    #[serde(rename = "last-error-age", skip_serializing_if = "Option::is_none")]
    pub last_error_age: Option<u64>,
    /// The attempt under way, if a request of it waits for an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<ListedAttempt>,
}

/// An attempt to establish an IKE SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedAttempt {
    /// Time since the attempt began.
    #[serde(rename = "for")]
    pub lasts: u64,
    /// The number of times that the request at hand was sent.
    pub unanswered: u32,
    pub remote_host: IpAddr,
    pub remote_port: u16,
    /// A text about the answers of the peer.
    pub seen: String,
    /// A text about the likely causes.
    pub remedy: String,
    /// The content of the newest ICMP error about the peer. Anybody can forge one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The packets that a child has carried since the gateway's start, over all its SAs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedTotals {
    pub bytes_in: u64,
    pub packets_in: u64,
    pub bytes_out: u64,
    pub packets_out: u64,
    /// The packets that its SAs have dropped, and those for which it had no SA, by reason. Only reasons for which a packet
    /// was dropped are there.
    #[serde(skip_serializing_if = "NamedCounters::is_empty")]
    pub drops: NamedCounters,
    /// Seconds for which the child has always had an SA. `None` means that it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_for: Option<u64>,
}

/// A policy of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedPolicy {
    pub child: String,
    /// The connection.
    pub ike: String,
    /// `TUNNEL`, `TRANSPORT`, `PASS` or `DROP`.
    pub mode: &'static str,
    pub local_ts: Selectors,
    pub remote_ts: Selectors,
}

/// An authority of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedAuthority {
    /// The subject of its certificate.
    pub cacert: String,
    pub crl_uris: Vec<String>,
    pub ocsp_uris: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_uri_base: Option<String>,
}

/// Traffic selectors of one end, as `swanctl` writes them: `10.1.0.0/16[6/80]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Selectors(Vec<String>);

impl Selectors {
    /// Adds a range of addresses. Protocol 0 means any protocol.
    pub fn push_range(&mut self, first: IpAddr, last: IpAddr, protocol: u8, ports: (u16, u16)) {
        let addresses = match prefixes_of_range(first, last).as_slice() {
            [prefix] => prefix.to_string(),
            _ => format!("{first}-{last}"),
        };
        self.0.push(addresses + &layer_4(protocol, ports));
    }

    /// Adds a selector whose address comes with the peer.
    pub fn push_dynamic(&mut self, protocol: u8, ports: (u16, u16)) {
        self.0
            .push("dynamic".to_owned() + &layer_4(protocol, ports));
    }
}

/// Writes protocol and ports in brackets, or nothing for any traffic. A start port above the end port means OPAQUE
/// (RFC 7296 §3.13.1).
fn layer_4(protocol: u8, ports: (u16, u16)) -> String {
    match (protocol, ports) {
        (0, (0, u16::MAX)) => String::new(),
        (protocol, (0, u16::MAX)) => format!("[{protocol}]"),
        (protocol, (u16::MAX, 0)) => format!("[{protocol}/opaque]"),
        (protocol, (first, last)) if first == last => format!("[{protocol}/{first}]"),
        (protocol, (first, last)) => format!("[{protocol}/{first}-{last}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_written_as_swanctl_does() {
        let mut selectors = Selectors::default();
        let address = |text: &str| text.parse().unwrap();
        let all = (0, u16::MAX);
        selectors.push_range(address("10.1.0.0"), address("10.1.255.255"), 6, (80, 80));
        selectors.push_range(address("10.1.0.1"), address("10.1.0.2"), 0, all);
        selectors.push_range(address("fd00::1"), address("fd00::1"), 17, all);
        selectors.push_dynamic(6, (1000, 2000));
        selectors.push_dynamic(6, (u16::MAX, 0));
        assert_eq!(
            selectors.0,
            [
                "10.1.0.0/16[6/80]",
                "10.1.0.1-10.1.0.2",
                "fd00::1/128[17]",
                "dynamic[6/1000-2000]",
                "dynamic[6/opaque]"
            ]
        );
    }
}
