//! The table gives what a scan of all connections gives.

use std::sync::LazyLock;

use esplanade_crypto::iana::{Encryption, Group, Prf};
use esplanade_pki::{Authorities, Certificate, RevocationPolicy};
use esplanade_testkit::certificate_file;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::auth::generators::identity_among;
use crate::config::generators::plain_connection;
use crate::config::{
    HostName, IkeProposal, LocalAuth, LocalMethod, OcspInIke, RemoteAuth, SchemeRules,
};

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

/// The scan that the table stands for.
fn scan(
    connections: &[Arc<Connection>],
    (local, remote): Hosts,
    auth: Option<AuthTraits<'_>>,
) -> Vec<Arc<Connection>> {
    let rank = |connection: &Arc<Connection>| {
        let remote = precision(&connection.remote_addrs, remote)?;
        let local_rank = precision(&connection.local_addrs, local)?;
        let Some(auth) = auth else {
            return Some((remote, local_rank, 0, false));
        };
        let own = connection.local_id(local);
        let meant = connection.remote.id.accepts(auth.id_i)
            && auth.id_r.is_none_or(|id_r| own.accepts(id_r))
            && negotiate::allows(&connection.proposals, auth.suite);
        let identity = connection.remote.id.precision();
        meant.then_some((remote, local_rank, identity, names_key(connection)))
    };
    let ranked = connections.iter().filter_map(|one| Some((rank(one)?, one)));
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| Reverse(*rank));
    ranked.into_iter().map(|(_, one)| one.clone()).collect()
}

/// The CERTREQ payloads on behalf of connections that are all looked at.
fn scan_certreqs(connections: &[Arc<Connection>], suite: &Suite) -> Vec<CertReq> {
    let asking = connections
        .iter()
        .filter(|one| negotiate::allows(&one.proposals, suite) && one.send_certreq);
    let asking: Vec<_> = asking.collect();
    let trusted = asking.iter().filter_map(|one| match &one.remote.method {
        RemoteMethod::Certificate { authorities, .. } => Some(authorities),
        RemoteMethod::PublicKey { .. } | RemoteMethod::Psk => None,
    });
    let trusted: Vec<_> = trusted.collect();
    let hashes = trusted.iter().flat_map(|one| one.key_hashes());
    let x509 = (!trusted.is_empty()).then(|| certreq_of_all(hashes));
    let is_raw =
        |one: &&Arc<Connection>| matches!(one.remote.method, RemoteMethod::PublicKey { .. });
    let raw = asking.iter().any(is_raw).then(certreq_of_raw_key);
    let ocsp = x509.is_some() && asking.iter().any(|one| one.ocsp.request);
    let ocsp = ocsp.then(CertReq::ocsp);
    x509.into_iter().chain(raw).chain(ocsp).collect()
}

fn names(connections: &[Arc<Connection>]) -> Vec<String> {
    connections.iter().map(|one| one.name.clone()).collect()
}

// Few values, so that connections often meet in them.

fn address() -> impl Strategy<Value = IpAddr> {
    let all = [
        "192.0.2.7",
        "192.0.2.8",
        "192.0.3.255",
        "255.255.255.255",
        "2001:db8::7",
        "2001:db8::8",
    ];
    select(all.to_vec()).prop_map(|text| text.parse().unwrap())
}

fn entry() -> impl Strategy<Value = AddressMatch> {
    let name = |addresses| HostName {
        name: "gw.example".to_owned(),
        addresses,
    };
    prop_oneof![
        1 => Just(AddressMatch::Any),
        4 => address().prop_map(AddressMatch::Host),
        // Some have no address, or begin and end in two IP versions.
        3 => (address(), address()).prop_map(|(from, to)| AddressMatch::Range(from, to)),
        1 => vec(address(), 0..3).prop_map(move |all| AddressMatch::Name(name(Ok(all)))),
        1 => Just(AddressMatch::Name(name(Err("not found".to_owned())))),
    ]
}

/// Lists that stand for any address let connections meet in their identities.
fn addresses() -> impl Strategy<Value = Vec<AddressMatch>> {
    prop_oneof![Just(vec![]), vec(entry(), 1..4)]
}

const IDENTITIES: [&str; 11] = [
    "%any",
    "a.example",
    "A.Example.",
    "*.example",
    "*.EXAMPLE",
    "carol@example.org",
    "*@example.org",
    "O=x, CN=a",
    "O=x, CN=*",
    "192.0.2.7",
    "keyid:ab",
];

/// A peer can send a name that looks like a pattern.
fn presented() -> impl Strategy<Value = Identity> {
    identity_among(&IDENTITIES[1..])
}

fn proposal(bits: u16, prf: Prf) -> IkeProposal {
    IkeProposal {
        encryption: vec![(Encryption::AesGcm16, bits)],
        integrity: vec![],
        prf: vec![prf],
        groups: vec![Group::Curve25519],
    }
}

fn proposals() -> impl Strategy<Value = Vec<IkeProposal>> {
    let (sha256, sha384) = (Prf::HmacSha2_256, Prf::HmacSha2_384);
    let all = [(128, sha256), (256, sha256), (256, sha384)];
    vec(
        select(all.map(|(bits, prf)| proposal(bits, prf)).to_vec()),
        1..3,
    )
}

/// The suite that an initiator with one of our lists gets.
fn suite(of: &[IkeProposal]) -> Suite {
    let offer = negotiate::ike_offer(of, &[]);
    let chosen = negotiate::choose_ike(of, &offer, Group::Curve25519.number(), 0);
    chosen.unwrap().suite
}

fn certificates(pem: &[u8]) -> Vec<Certificate> {
    Certificate::from_file_content(pem).unwrap()
}

static ROOTS: LazyLock<[Certificate; 3]> = LazyLock::new(|| {
    let files = [
        certificate_file!("root.pem"),
        certificate_file!("other-root.pem"),
        certificate_file!("usage-root.pem"),
    ];
    files.map(|pem| certificates(pem).remove(0))
});

fn method() -> impl Strategy<Value = RemoteMethod> {
    let trusting = (vec(0..3_usize, 0..3), any::<bool>());
    let by_certificate = trusting.prop_map(|(roots, is_pinned)| {
        let roots: Vec<_> = roots.iter().map(|root| ROOTS[*root].clone()).collect();
        RemoteMethod::Certificate {
            authorities: Arc::new(Authorities::new(&roots).unwrap()),
            pinned: ROOTS[..usize::from(is_pinned)].to_vec(),
            rules: Arc::default(),
            revocation: RevocationPolicy::Relaxed,
        }
    });
    prop_oneof![
        2 => Just(RemoteMethod::Psk),
        1 => Just(RemoteMethod::PublicKey {
            keys: vec![],
            signatures: SchemeRules::default(),
        }),
        3 => by_certificate,
    ]
}

fn connection() -> impl Strategy<Value = Connection> {
    let own = prop_oneof![identity_among(&IDENTITIES), identity_among(&["a.example"])];
    let identities = (own, identity_among(&IDENTITIES));
    let asks = (any::<bool>(), any::<bool>());
    let addresses = (addresses(), addresses());
    let parts = (addresses, identities, proposals(), method(), asks);
    parts.prop_map(
        |(addresses, (own, peers), proposals, method, asks)| Connection {
            local_addrs: addresses.0,
            remote_addrs: addresses.1,
            proposals,
            send_certreq: asks.0,
            ocsp: OcspInIke {
                request: asks.1,
                reply: true,
            },
            local: LocalAuth {
                id: own,
                method: LocalMethod::Psk,
            },
            remote: RemoteAuth { id: peers, method },
            ..plain_connection()
        },
    )
}

fn configuration() -> impl Strategy<Value = Vec<Arc<Connection>>> {
    vec(connection(), 0..24).prop_map(|all| {
        let numbered = all.into_iter().enumerate();
        let named = numbered.map(|(number, connection)| Connection {
            name: number.to_string(),
            ..connection
        });
        named.map(Arc::new).collect()
    })
}

proptest! {
    #[test]
    fn ike_sa_init_gets_what_a_scan_gives(
        connections in configuration(),
        hosts in (address(), address()),
        offered in proposals(),
        most in 1..6_usize,
    ) {
        let table = ConnectionTable::new(&connections);
        let all = scan(&connections, hosts, None);
        prop_assert_eq!(names(&table.first(hosts, most)), names(&all[..most.min(all.len())]));
        let with_proposals = table.with_proposals(hosts);
        prop_assert_eq!(with_proposals.first().map(|one| &one.name), all.first().map(|one| &one.name));
        let offer = negotiate::ike_offer(&offered, &[]);
        let choice = |from: &[Arc<Connection>]| {
            from.iter().find_map(|one| {
                let method = Group::Curve25519.number();
                let chosen = negotiate::choose_ike(&one.proposals, &offer, method, 0)?;
                Some((one.name.clone(), chosen.suite))
            })
        };
        prop_assert_eq!(choice(&with_proposals), choice(&all));
        let suite = suite(&offered);
        prop_assert_eq!(table.certreqs(hosts, &suite), scan_certreqs(&all, &suite));
    }

    #[test]
    fn ike_auth_gets_what_a_scan_gives(
        connections in configuration(),
        hosts in (address(), address()),
        id_i in presented(),
        id_r in proptest::option::of(presented()),
        offered in proposals(),
    ) {
        let table = ConnectionTable::new(&connections);
        let suite = suite(&offered);
        let auth = AuthTraits { id_i: &id_i, id_r: id_r.as_ref(), suite: &suite };
        let meant = scan(&connections, hosts, Some(auth));
        prop_assert_eq!(names(&table.candidates(hosts, auth)), names(&meant));
        let mut accepting = scan(&connections, hosts, None);
        accepting.retain(|one| one.remote.id.accepts(&id_i));
        prop_assert_eq!(names(&table.accepting(hosts, &id_i)), names(&accepting));
    }

    #[test]
    fn an_address_alone_gets_what_a_scan_gives(
        connections in configuration(),
        remote in address(),
    ) {
        let table = ConnectionTable::new(&connections);
        let mut scan = connections.iter();
        let first = scan.find(|one| precision(&one.remote_addrs, remote).is_some());
        let name = |one: &Connection| one.name.clone();
        prop_assert_eq!(table.first_at(remote).map(name), first.map(|one| name(one)));
        let remote_addrs = connections.iter().flat_map(|one| &one.remote_addrs);
        let known = remote_addrs.filter_map(AddressMatch::name);
        let known: BTreeSet<_> = known.map(|name| name.name.clone()).collect();
        prop_assert_eq!(table.remote_names(), &known);
    }
}
