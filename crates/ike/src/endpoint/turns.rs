//! The addresses of a peer that has several. Each attempt goes to the next one, in the order of RFC 8305, until one leads
//! to an IKE SA or all have failed.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::name_hold::no_address;
use super::{CommandError, Endpoint};
use crate::config::{AddressMatch, Connection};
use crate::failure::DownReason;

/// The time that an address has to answer IKE_SA_INIT while others were not tried. A second is a long round trip.
const WAIT: Duration = Duration::from_secs(5);
/// The time that the last of several addresses has. Then it is the turn of the first again, after a pause.
const WAIT_FOR_LAST: Duration = Duration::from_secs(30);

/// The addresses that have failed since an IKE SA was up, or since all had failed, by connection.
#[derive(Debug, Default)]
pub(super) struct FailedAddresses {
    by_connection: HashMap<String, Vec<IpAddr>>,
}

impl FailedAddresses {
    /// The next attempt begins with the first address.
    pub(super) fn end(&mut self, connection: &str) {
        self.by_connection.remove(connection);
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.by_connection.retain(|connection, _| keep(connection));
    }

    fn has_failed(&self, connection: &str, address: IpAddr) -> bool {
        let failed = self.by_connection.get(connection);
        failed.is_some_and(|failed| failed.contains(&address))
    }
}

/// The addresses, each once. Both IP versions take turns, and the version of the first address begins (RFC 8305 §4).
fn in_order(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut once: Vec<IpAddr> = Vec::new();
    for address in addresses {
        if !once.contains(&address) {
            once.push(address);
        }
    }
    let first = once.first().map(IpAddr::is_ipv4);
    let is_of_first = |address: &IpAddr| Some(address.is_ipv4()) == first;
    let (of_first, of_other): (Vec<_>, Vec<_>) = once.into_iter().partition(is_of_first);
    let mut ordered = Vec::new();
    let (mut of_first, mut of_other) = (of_first.into_iter(), of_other.into_iter());
    loop {
        let pair = [of_first.next(), of_other.next()];
        if pair == [None, None] {
            return ordered;
        }
        ordered.extend(pair.into_iter().flatten());
    }
}

/// Another address of the peer can lead to another outcome.
fn is_of_address(reason: &DownReason) -> bool {
    !matches!(
        reason,
        DownReason::Terminated
            | DownReason::AddressGone
            | DownReason::NoRoute
            | DownReason::Configuration(_)
            | DownReason::Resources(_)
    )
}

impl Endpoint {
    /// The pairs of our address and the peer's between which there is a route now.
    fn pairs(&self, connection: &Connection) -> Vec<(IpAddr, IpAddr)> {
        let remotes = in_order(AddressMatch::hosts_of(&connection.remote_addrs));
        let pair = |remote| Some((self.source_for(connection, remote)?, remote));
        remotes.into_iter().filter_map(pair).collect()
    }

    /// Our address and the peer's when we initiate now, and the time that the peer has to answer. Zero: as long as
    /// retransmissions last.
    pub(super) fn addresses(
        &self,
        connection: &Connection,
    ) -> Result<(SocketAddr, SocketAddr, Duration), CommandError> {
        let name = || connection.name.clone();
        let (locals, remotes) = (&connection.local_addrs, &connection.remote_addrs);
        if AddressMatch::hosts_of(remotes).next().is_none() {
            let none = || CommandError::NoRemoteAddress(name());
            return Err(no_address(remotes).unwrap_or_else(none));
        }
        if AddressMatch::hosts_of(locals).next().is_none()
            && let Some(error) = no_address(locals)
        {
            return Err(error);
        }
        let pairs = self.pairs(connection);
        let untried =
            |pair: &&(IpAddr, IpAddr)| !self.failed_addresses.has_failed(&connection.name, pair.1);
        let mut left = pairs.iter().filter(untried);
        let next = left.next().or_else(|| pairs.first());
        let (local, remote) = *next.ok_or_else(|| CommandError::NoRoute(name()))?;
        let port = connection.local_port.unwrap_or(self.config.ports.ike);
        let remote = SocketAddr::new(remote, connection.remote_port);
        let wait = match (pairs.len(), left.next()) {
            (0 | 1, _) => Duration::ZERO,
            (_, Some(_)) => WAIT,
            (_, None) => WAIT_FOR_LAST,
        };
        Ok((SocketAddr::new(local, port), remote, wait))
    }

    /// An attempt towards this address has failed. Returns true if the peer has another one whose turn has not come. If
    /// not, the next attempt begins with the first.
    pub(super) fn next_turn(
        &mut self,
        connection: &Connection,
        address: IpAddr,
        reason: &DownReason,
    ) -> bool {
        if is_of_address(reason) {
            let failed = self
                .failed_addresses
                .by_connection
                .entry(connection.name.clone());
            failed.or_default().push(address);
            let pairs = self.pairs(connection);
            let untried = |pair: &(IpAddr, IpAddr)| {
                !self.failed_addresses.has_failed(&connection.name, pair.1)
            };
            if pairs.iter().any(untried) {
                return true;
            }
        }
        self.failed_addresses.end(&connection.name);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ip_versions_take_turns() {
        let order = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|one| one.parse().unwrap());
            let ordered = in_order(addresses).into_iter();
            ordered.map(|one| one.to_string()).collect::<Vec<_>>()
        };
        let mixed = [
            "2001:db8::1",
            "2001:db8::2",
            "192.0.2.1",
            "2001:db8::1",
            "2001:db8::3",
        ];
        let expected = ["2001:db8::1", "192.0.2.1", "2001:db8::2", "2001:db8::3"];
        assert_eq!(order(&mixed), expected);
        assert_eq!(
            order(&["192.0.2.1", "192.0.2.2"]),
            ["192.0.2.1", "192.0.2.2"]
        );
        assert_eq!(order(&[]), [""; 0]);
    }
}
