//! The choice of the connection for a peer that asks for an IKE SA. Connections are the peer authorization database of
//! RFC 4301 §4.4.3.
//!
//! Anybody can ask, so that the work must not grow with the number of connections. A table finds those that count.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::auth::{AUTHORITIES_ASKED_MAX, certreq_of_all, certreq_of_raw_key};
use crate::config::{AddressMatch, Connection, Identity, RemoteMethod};
use crate::identity_table::IdentityTable;
use crate::negotiate;
use crate::source_network::SourceNetwork;
use crate::suite::Suite;
use crate::wire::CertReq;

#[cfg(test)]
mod tests;

/// Our address and the peer's in IKE_SA_INIT. A later message can have a false source address.
pub(crate) type Hosts = (IpAddr, IpAddr);

/// The identities that the peer sends in IKE_AUTH, and the suite of the IKE SA.
#[derive(Clone, Copy)]
pub(crate) struct AuthTraits<'a> {
    pub(crate) id_i: &'a Identity,
    /// The identity that the peer wants to talk to.
    pub(crate) id_r: Option<&'a Identity>,
    pub(crate) suite: &'a Suite,
}

/// The connections of a configuration, found by what a peer shows of itself.
///
/// The connection that names the peer most exactly comes first: by its address, then by our address, then by its identity,
/// then by its certificate or key. So IKE_AUTH prefers the connection that IKE_SA_INIT preferred. Equal connections keep the
/// order of the configuration.
#[derive(Default)]
pub(crate) struct ConnectionTable {
    /// In the order of the configuration.
    connections: Vec<Arc<Connection>>,
    sites: Vec<Site>,
    /// Sites by the smallest networks around their remote addresses.
    by_network: HashMap<SourceNetwork, Vec<usize>>,
    /// The prefix lengths of these networks, for IPv4 and for IPv6.
    prefix_lens: [BTreeSet<u8>; 2],
    /// The host names among the remote addresses.
    remote_names: BTreeSet<String>,
}

/// The place of a connection in the configuration.
type Place = usize;

/// How exactly a site names the peer's address, and then ours. The most exact one is the least.
type SiteRank = Reverse<(u32, u32)>;

/// The connections that have one remote address, or one range of them, and the same local addresses. A connection with
/// several remote addresses is in several sites. All places are in the order of the configuration.
struct Site {
    remote: AddressMatch,
    local: Vec<AddressMatch>,
    members: Vec<Place>,
    by_identity: IdentityTable,
    offers: Vec<Offer>,
}

/// The connections of a site that have the same proposals, and what the response to IKE_SA_INIT asks for on their behalf.
struct Offer {
    first: Place,
    /// As many as a response can name, each with the first connection that trusts it.
    authorities: Vec<(Place, [u8; 20])>,
    asks_for_certificate: bool,
    asks_for_raw_key: bool,
    asks_for_ocsp: bool,
}

impl ConnectionTable {
    pub(crate) fn new(connections: &[Arc<Connection>]) -> Self {
        let mut table = Self {
            connections: connections.to_vec(),
            ..Self::default()
        };
        let mut known: HashMap<(AddressMatch, &[AddressMatch]), usize> = HashMap::new();
        for (place, connection) in connections.iter().enumerate() {
            let names = connection
                .remote_addrs
                .iter()
                .filter_map(AddressMatch::name);
            table
                .remote_names
                .extend(names.map(|name| name.name.clone()));
            for remote in without_names(&connection.remote_addrs) {
                let site = known.entry((remote, &connection.local_addrs));
                let site = site.or_insert_with_key(|(remote, local)| table.add_site(remote, local));
                table.sites[*site].add(place, connections);
            }
        }
        table
    }

    fn add_site(&mut self, remote: &AddressMatch, local: &[AddressMatch]) -> usize {
        let site = self.sites.len();
        self.sites.push(Site::new(remote, local));
        for network in networks(remote) {
            let version = usize::from(network.address.is_ipv6());
            self.prefix_lens[version].insert(network.prefix_len);
            self.by_network.entry(network).or_default().push(site);
        }
        site
    }

    /// The host names among the remote addresses.
    pub(crate) fn remote_names(&self) -> &BTreeSet<String> {
        &self.remote_names
    }

    /// The sites with a remote address.
    fn sites_at(&self, remote: IpAddr) -> impl Iterator<Item = &Site> {
        let prefix_lens = self.prefix_lens[usize::from(remote.is_ipv6())].iter();
        let networks = prefix_lens.map(move |len| SourceNetwork::of(remote, *len));
        let around = networks.filter_map(|network| self.by_network.get(&network));
        let sites = around.flatten().map(|site| &self.sites[*site]);
        sites.filter(move |site| site.remote.matches(remote))
    }

    fn sites(&self, (local, remote): Hosts) -> impl Iterator<Item = (SiteRank, &Site)> {
        self.sites_at(remote).filter_map(move |site| {
            let rank = (exactness(&site.remote), precision(&site.local, local)?);
            Some((Reverse(rank), site))
        })
    }

    /// The first `most` of the connections that were found, each once.
    fn first_of<R: Ord>(&self, mut found: Vec<(R, Place)>, most: usize) -> Vec<Arc<Connection>> {
        found.sort_unstable();
        let mut known = HashSet::new();
        let places = found.into_iter().map(|(_, place)| place);
        let once = places.filter(|place| known.insert(*place));
        once.take(most)
            .map(|place| self.connections[place].clone())
            .collect()
    }

    /// The first `most` connections for a peer that has not said yet who it is.
    pub(crate) fn first(&self, hosts: Hosts, most: usize) -> Vec<Arc<Connection>> {
        let found = self.sites(hosts).flat_map(|(rank, site)| {
            let members = site.members.iter().take(most);
            members.map(move |place| (rank, *place))
        });
        self.first_of(found.collect(), most)
    }

    /// Connections for a peer that has not said yet who it is. Those that have the same proposals as an earlier one can be
    /// left out.
    pub(crate) fn with_proposals(&self, hosts: Hosts) -> Vec<Arc<Connection>> {
        let found = self.sites(hosts).flat_map(|(rank, site)| {
            let offers = site.offers.iter();
            offers.map(move |offer| (rank, offer.first))
        });
        self.first_of(found.collect(), usize::MAX)
    }

    /// Returns what the response to IKE_SA_INIT asks the peer for, if it has chosen this suite. It is not known yet which
    /// of the connections the peer means. Connections that send no CERTREQ are left out.
    pub(crate) fn certreqs(&self, hosts: Hosts, suite: &Suite) -> Vec<CertReq> {
        let offers = self.sites(hosts).flat_map(|(rank, site)| {
            let offers = site.offers.iter();
            offers.map(move |offer| (rank, offer))
        });
        let allowing: Vec<_> = offers
            .filter(|(_, offer)| negotiate::allows(&self.connections[offer.first].proposals, suite))
            .collect();
        let any = |asks: fn(&Offer) -> bool| allowing.iter().any(|(_, offer)| asks(offer));
        let authorities = allowing.iter().flat_map(|(rank, offer)| {
            let authorities = offer.authorities.iter();
            authorities.map(move |(place, hash)| (*rank, *place, hash))
        });
        let mut authorities: Vec<_> = authorities.collect();
        // The authorities of one connection keep their order.
        authorities.sort_by_key(|(rank, place, _)| (*rank, *place));
        let x509 = any(|offer| offer.asks_for_certificate)
            .then(|| certreq_of_all(authorities.iter().map(|(.., hash)| *hash)));
        let raw = any(|offer| offer.asks_for_raw_key).then(certreq_of_raw_key);
        let ocsp = any(|offer| offer.asks_for_ocsp) && x509.is_some();
        let ocsp = ocsp.then(CertReq::ocsp);
        x509.into_iter().chain(raw).chain(ocsp).collect()
    }

    /// The connections at these addresses that accept an identity, some of them several times.
    fn found_by_identity<'a>(
        &'a self,
        hosts: Hosts,
        id: &'a Identity,
    ) -> impl Iterator<Item = (SiteRank, Place)> + use<'a> {
        self.sites(hosts).flat_map(move |(rank, site)| {
            let places = site.by_identity.accepting(id).flatten();
            places.map(move |place| (rank, *place))
        })
    }

    /// The connections at these addresses that accept an identity.
    pub(crate) fn accepting(&self, hosts: Hosts, id: &Identity) -> Vec<Arc<Connection>> {
        self.first_of(self.found_by_identity(hosts, id).collect(), usize::MAX)
    }

    /// The connections that a peer can mean in IKE_AUTH.
    pub(crate) fn candidates(&self, hosts: Hosts, auth: AuthTraits<'_>) -> Vec<Arc<Connection>> {
        let found = self.found_by_identity(hosts, auth.id_i);
        let meant = found.filter_map(|(site, place)| {
            let connection = &self.connections[place];
            let own = connection.local_id(hosts.0);
            let meant = auth.id_r.is_none_or(|id_r| own.accepts(id_r))
                && negotiate::allows(&connection.proposals, auth.suite);
            let rank = (connection.remote.id.precision(), names_key(connection));
            meant.then_some(((site, Reverse(rank)), place))
        });
        self.first_of(meant.collect(), usize::MAX)
    }

    /// The first connection of the configuration that has a remote address, whatever our address is.
    pub(crate) fn first_at(&self, remote: IpAddr) -> Option<&Connection> {
        let places = self
            .sites_at(remote)
            .filter_map(|site| site.members.first());
        places.min().map(|place| &*self.connections[*place])
    }
}

impl Site {
    fn new(remote: &AddressMatch, local: &[AddressMatch]) -> Self {
        Self {
            remote: remote.clone(),
            local: local.to_vec(),
            members: Vec::new(),
            by_identity: IdentityTable::default(),
            offers: Vec::new(),
        }
    }

    fn add(&mut self, place: Place, connections: &[Arc<Connection>]) {
        if self.members.last() == Some(&place) {
            return;
        }
        self.members.push(place);
        let connection = &connections[place];
        self.by_identity.add(&connection.remote.id, place);
        let mut offers = self.offers.iter_mut();
        let same = |offer: &&mut Offer| connections[offer.first].proposals == connection.proposals;
        match offers.find(same) {
            Some(offer) => offer.add(place, connection),
            None => {
                let mut offer = Offer::new(place);
                offer.add(place, connection);
                self.offers.push(offer);
            }
        }
    }
}

impl Offer {
    fn new(first: Place) -> Self {
        Self {
            first,
            authorities: Vec::new(),
            asks_for_certificate: false,
            asks_for_raw_key: false,
            asks_for_ocsp: false,
        }
    }

    fn add(&mut self, place: Place, connection: &Connection) {
        if !connection.send_certreq {
            return;
        }
        self.asks_for_ocsp |= connection.ocsp.request;
        match &connection.remote.method {
            RemoteMethod::Certificate { authorities, .. } => {
                self.asks_for_certificate = true;
                for hash in authorities.key_hashes() {
                    if self.authorities.len() < AUTHORITIES_ASKED_MAX
                        && self.authorities.iter().all(|(_, known)| known != hash)
                    {
                        self.authorities.push((place, *hash));
                    }
                }
            }
            RemoteMethod::PublicKey { .. } => self.asks_for_raw_key = true,
            RemoteMethod::Psk => {}
        }
    }
}

/// The connection is for certain certificates or keys.
fn names_key(connection: &Connection) -> bool {
    match &connection.remote.method {
        RemoteMethod::Certificate { pinned, .. } => !pinned.is_empty(),
        RemoteMethod::PublicKey { .. } => true,
        RemoteMethod::Psk => false,
    }
}

/// A list of addresses, with the addresses that names have now in the place of the names.
fn without_names(list: &[AddressMatch]) -> Vec<AddressMatch> {
    if list.is_empty() {
        return vec![AddressMatch::Any];
    }
    let entries = list.iter().flat_map(|entry| match entry {
        AddressMatch::Name(_) => entry
            .hosts()
            .iter()
            .copied()
            .map(AddressMatch::Host)
            .collect(),
        AddressMatch::Any | AddressMatch::Host(_) | AddressMatch::Range(..) => vec![entry.clone()],
    });
    entries.collect()
}

/// The smallest networks around the addresses of an entry.
fn networks(entry: &AddressMatch) -> Vec<SourceNetwork> {
    match entry {
        AddressMatch::Any => {
            let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
            all.map(|address| SourceNetwork::of(address, 0)).to_vec()
        }
        AddressMatch::Range(from, to) => vec![SourceNetwork::around(*from, *to)],
        AddressMatch::Host(_) | AddressMatch::Name(_) => {
            let hosts = entry.hosts().iter();
            hosts
                .map(|host| SourceNetwork::around(*host, *host))
                .collect()
        }
    }
}

/// Returns how exactly a list names an address: 0 for any address, more for a longer prefix, most for a single address.
/// Returns `None` if the list does not have the address.
fn precision(list: &[AddressMatch], address: IpAddr) -> Option<u32> {
    if list.is_empty() {
        return Some(0);
    }
    let matching = list.iter().filter(|entry| entry.matches(address));
    matching.map(exactness).max()
}

/// Returns how exactly an entry names the addresses that it has.
fn exactness(entry: &AddressMatch) -> u32 {
    match entry {
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
    }
}
