//! The choice of the connection for a peer that asks for an IKE SA. Connections are the peer authorization database of
//! RFC 4301 §4.4.3.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use super::authenticator;
use crate::config::{AddressMatch, Connection, Identity, RemoteMethod};
use crate::negotiate;
use crate::suite::Suite;
use crate::transport::ReceivedMessage;

/// The facts about a peer that a connection is chosen by.
#[derive(Clone, Copy)]
pub(crate) struct PeerTraits<'a> {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    /// Known from IKE_AUTH on.
    pub(crate) auth: Option<AuthTraits<'a>>,
}

impl PeerTraits<'_> {
    /// The addresses of IKE_SA_INIT, before the peer has said who it is.
    pub(crate) fn of(received: &ReceivedMessage<'_>) -> Self {
        Self::at((received.local.ip(), received.remote.ip()))
    }

    /// `hosts` are the addresses of both ends in IKE_SA_INIT. A later message can have a false source address.
    pub(crate) fn at(hosts: (IpAddr, IpAddr)) -> Self {
        Self {
            local: hosts.0,
            remote: hosts.1,
            auth: None,
        }
    }
}

/// The identities that the peer sends in IKE_AUTH, and the suite of the IKE SA.
#[derive(Clone, Copy)]
pub(crate) struct AuthTraits<'a> {
    pub(crate) id_i: &'a Identity,
    /// The identity that the peer wants to talk to.
    pub(crate) id_r: Option<&'a Identity>,
    pub(crate) suite: &'a Suite,
}

/// Returns the connections that the peer can mean. The connection that names the peer most exactly comes first: by its
/// address, then by our address, then by its identity, then by its certificate or key. So IKE_AUTH prefers the connection that
/// IKE_SA_INIT preferred. Equal connections keep the order of the configuration.
pub(crate) fn candidates(
    connections: &[Arc<Connection>],
    peer: PeerTraits<'_>,
) -> Vec<Arc<Connection>> {
    let ranked = connections.iter().filter_map(|connection| {
        let rank = rank(connection, peer)?;
        Some((rank, connection.clone()))
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| Reverse(*rank));
    ranked
        .into_iter()
        .map(|(_, connection)| connection)
        .collect()
}

/// The exactness with which a connection names a peer. The fields are compared in their order.
type Rank = (u32, u32, u8, bool);

/// Returns how exactly a connection names the peer, or `None` if the connection is not for the peer.
fn rank(connection: &Connection, peer: PeerTraits<'_>) -> Option<Rank> {
    let remote = precision(&connection.remote_addrs, peer.remote)?;
    let local = precision(&connection.local_addrs, peer.local)?;
    let Some(auth) = peer.auth else {
        return Some((remote, local, 0, false));
    };
    let own = authenticator::local_id(connection, peer.local);
    let meant = connection.remote.id.accepts(auth.id_i)
        && auth.id_r.is_none_or(|id_r| own.accepts(id_r))
        && negotiate::allows(&connection.proposals, auth.suite);
    let names_key = match &connection.remote.method {
        RemoteMethod::Certificate { pinned, .. } => !pinned.is_empty(),
        RemoteMethod::PublicKey { .. } => true,
        RemoteMethod::Psk => false,
    };
    let identity = connection.remote.id.precision();
    meant.then_some((remote, local, identity, names_key))
}

/// Returns how exactly a list names an address: 0 for any address, more for a longer prefix, most for a single address.
/// Returns `None` if the list does not have the address.
fn precision(list: &[AddressMatch], address: IpAddr) -> Option<u32> {
    if list.is_empty() {
        return Some(0);
    }
    let matching = list.iter().filter(|entry| entry.matches(address));
    let exact = |entry: &AddressMatch| match entry {
        AddressMatch::Any => 0,
        AddressMatch::Host(_) | AddressMatch::Name(_) => 1 + 128,
        // IPv4 prefixes count as the last 32 bits of IPv6, so that the number of addresses decides.
        AddressMatch::Range(IpAddr::V4(from), IpAddr::V4(to)) => {
            1 + 96 + (to.to_bits() - from.to_bits()).leading_zeros()
        }
        AddressMatch::Range(IpAddr::V6(from), IpAddr::V6(to)) => {
            1 + (to.to_bits() - from.to_bits()).leading_zeros()
        }
        AddressMatch::Range(..) => 0,
    };
    matching.map(exact).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrower_entries_are_more_exact() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let range = |from, to| AddressMatch::Range(ip(from), ip(to));
        for (address, order) in [
            (
                "192.0.2.7",
                vec![
                    AddressMatch::Any,
                    range("0.0.0.0", "255.255.255.255"),
                    range("192.0.0.0", "192.0.255.255"),
                    range("192.0.2.0", "192.0.2.9"),
                    AddressMatch::Host(ip("192.0.2.7")),
                ],
            ),
            (
                "2001:db8::7",
                vec![
                    AddressMatch::Any,
                    range("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
                    range("2001:db8::", "2001:db8::ffff"),
                    AddressMatch::Host(ip("2001:db8::7")),
                ],
            ),
        ] {
            let exact = |entry: &AddressMatch| precision(std::slice::from_ref(entry), ip(address));
            assert!(order.iter().is_sorted_by(|a, b| exact(a) < exact(b)));
            let all: Vec<_> = order.iter().rev().cloned().collect();
            assert_eq!(precision(&all, ip(address)), exact(order.last().unwrap()));
            assert_eq!(precision(&[], ip(address)), exact(&order[0]));
            let other = [AddressMatch::Host(ip("203.0.113.1"))];
            assert_eq!(precision(&other, ip(address)), None);
        }
        // A single address counts as one, whether it is written as a host or as a range.
        let one = range("192.0.2.7", "192.0.2.7");
        let host = AddressMatch::Host(ip("192.0.2.7"));
        assert_eq!(
            precision(&[one], ip("192.0.2.7")),
            precision(&[host], ip("192.0.2.7"))
        );
    }
}
