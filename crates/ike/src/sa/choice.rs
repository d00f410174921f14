//! Which connection a peer means that asks for an IKE SA.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use super::{Received, credentials};
use crate::config::{AddressMatch, Connection, Identity};
use crate::negotiate;
use crate::suite::Suite;

/// What is known of the peer.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    /// From IKE_AUTH on.
    pub(crate) said: Option<Said<'a>>,
}

impl Caller<'_> {
    /// Whose message this is, before it has said who it is.
    pub(crate) fn of(received: &Received<'_>) -> Self {
        Self {
            local: received.local.ip(),
            remote: received.remote.ip(),
            said: None,
        }
    }
}

/// What it says in IKE_AUTH, over the keys of IKE_SA_INIT.
#[derive(Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) id_i: &'a Identity,
    /// Whom it wants to talk to.
    pub(crate) id_r: Option<&'a Identity>,
    pub(crate) suite: &'a Suite,
}

/// The connections that the peer can mean. The more exactly one names it, the earlier it comes: by identity, by its
/// address, by ours. The order of the configuration decides among equals.
pub(crate) fn candidates(
    connections: &[Arc<Connection>],
    caller: Caller<'_>,
) -> Vec<Arc<Connection>> {
    let ranked = connections.iter().filter_map(|connection| {
        let rank = rank(connection, caller)?;
        Some((rank, connection.clone()))
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| Reverse(*rank));
    ranked
        .into_iter()
        .map(|(_, connection)| connection)
        .collect()
}

/// How exactly a connection names the peer; None if it does not.
fn rank(connection: &Connection, caller: Caller<'_>) -> Option<(u8, u32, u32)> {
    let remote = precision(&connection.remote_addrs, caller.remote)?;
    let local = precision(&connection.local_addrs, caller.local)?;
    let Some(said) = caller.said else {
        return Some((0, remote, local));
    };
    let own = credentials::local_id(connection, caller.local);
    let meant = connection.remote.id.accepts(said.id_i)
        && said.id_r.is_none_or(|id_r| own.accepts(id_r))
        && negotiate::allows(&connection.proposals, said.suite);
    meant.then(|| (connection.remote.id.precision(), remote, local))
}

/// How exactly a list names an address: 0 for any address, then by the length of the prefix; a single address is the
/// longest.
fn precision(list: &[AddressMatch], address: IpAddr) -> Option<u32> {
    if list.is_empty() {
        return Some(0);
    }
    let matching = list.iter().filter(|entry| entry.matches(address));
    let exact = |entry: &AddressMatch| match *entry {
        AddressMatch::Any => 0,
        AddressMatch::Host(_) => 1 + 128,
        // On the scale of IPv6, so that the number of addresses counts.
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
        // One address is one address, however it is written.
        let one = range("192.0.2.7", "192.0.2.7");
        let host = AddressMatch::Host(ip("192.0.2.7"));
        assert_eq!(
            precision(&[one], ip("192.0.2.7")),
            precision(&[host], ip("192.0.2.7"))
        );
    }
}
