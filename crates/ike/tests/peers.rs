//! Peers that share a connection, and what must tell them apart.

use std::time::{Duration, Instant};

use crate::common::script::{SPI, Script, error_of};
use crate::common::*;
use esplanade_ike::config::{AddressMatch, Child, Config, Connection, PeerEntry, Unique};
use esplanade_ike::event::RefusedPeer;
use esplanade_ike::failure::AuthFailure;
use esplanade_ike::wire::{
    Delete, ExchangeType, Id, IdType, Message, Notify, NotifyType, Payload, ProtocolId,
    TrafficSelector,
};
use esplanade_ike::{ChildFailure, DownReason, Event, Refusal};
use esplanade_testkit::net::Conditions;

const KEY: &[u8] = b"a shared secret";

/// B, and the number of peers that have come to it.
struct Gateway {
    side: Side,
    now: Instant,
    peers: u64,
    config: Config,
    /// The address of the next peer.
    from: &'static str,
}

impl Gateway {
    fn new(change: impl FnOnce(&mut Connection), limits: impl FnOnce(&mut Config)) -> Self {
        let mut connection = default_configs().1;
        change(&mut connection);
        let mut config = config(connection);
        limits(&mut config);
        let kept = config.clone();
        let now = Instant::now();
        let side = Side::new("b", B, config, now, 7);
        let peers = 0;
        Self {
            side,
            now,
            peers,
            config: kept,
            from: A,
        }
    }

    fn config(&self) -> Config {
        self.config.clone()
    }

    /// A new IKE SA of a peer with this identity. The caller makes its messages after IKE_SA_INIT.
    fn meet(&mut self, id: &Id) -> Script {
        let mut script = Script::new();
        script.spi_i = SPI + self.peers;
        script.id = id.clone();
        script.local.set_ip(self.from.parse().unwrap());
        self.peers += 1;
        let payloads = script.init_payloads();
        script.init(&mut self.side, self.now, payloads).unwrap();
        script
    }

    fn authenticate(&mut self, script: &mut Script, extra: Option<NotifyType>) -> Message {
        let mut payloads = script.auth_payloads(KEY);
        payloads.extend(extra.map(|kind| Payload::Notify(Notify::new(kind, vec![]))));
        let answer = script.exchange(&mut self.side, self.now, ExchangeType::IKE_AUTH, &payloads);
        answer.unwrap()
    }

    fn connect(&mut self, id: &Id, extra: Option<NotifyType>) -> Option<NotifyType> {
        let mut script = self.meet(id);
        error_of(&self.authenticate(&mut script, extra))
    }
}

/// Returns, for each type, one identity in several spellings, and another identity.
fn spellings() -> Vec<(&'static str, Vec<Id>, Id)> {
    let text = |kind: IdType, text: &str| Id::new(kind, text.as_bytes().to_vec());
    let fqdn = |name| text(IdType::FQDN, name);
    let email = |address| text(IdType::RFC822_ADDR, address);
    let dn = |name: &str| id(name).to_payload().unwrap();
    vec![
        (
            "*.example",
            vec![
                fqdn("a.example"),
                fqdn("A.example"),
                fqdn("a.EXAMPLE"),
                fqdn("A.Example."),
            ],
            fqdn("aa.example"),
        ),
        (
            "*@example.org",
            vec![
                email("carol@example.org"),
                email("carol@EXAMPLE.org"),
                email("Carol@example.ORG"),
            ],
            email("dave@example.org"),
        ),
        (
            "O=Example, CN=*",
            vec![
                dn("O=Example, CN=moon"),
                dn("O=EXAMPLE, CN=Moon"),
                dn("O=Example, CN=\" moon \""),
                // UTF8String and PrintableString.
                Id::new(IdType::DER_ASN1_DN, utf8_name(&dn("O=Example, CN=moon"))),
            ],
            dn("O=Example, CN=sun"),
        ),
    ]
}

/// The same name with its strings as UTF8String.
fn utf8_name(id: &Id) -> Vec<u8> {
    let printable = |byte: &u8| if *byte == 0x13 { 0x0c } else { *byte };
    id.data.iter().map(printable).collect()
}

#[test]
fn another_spelling_is_no_other_peer_for_unique() {
    for (pattern, same, other) in spellings() {
        let change = |connection: &mut Connection| {
            connection.remote.id = id(pattern);
            connection.unique = Unique::Keep;
            connection.remote_addrs = vec![AddressMatch::Any];
        };
        let mut gateway = Gateway::new(change, |_| {});
        assert_eq!(gateway.connect(&same[0], None), None, "{pattern}");
        let again = gateway.connect(&same[1], None);
        assert_eq!(again, None, "it may authenticate again");
        gateway.from = "192.0.2.2";
        for id in &same {
            let refused = gateway.connect(id, None);
            assert_eq!(refused, Some(NotifyType::AUTHENTICATION_FAILED), "{id:?}");
        }
        let refused = gateway.side.refused(Refusal::Duplicate);
        assert_eq!(refused, same.len() as u64, "{pattern}");
        let up = |event: &Event| matches!(event, Event::IkeSaUp(_));
        assert_ne!(
            gateway.connect(&other, None),
            Some(NotifyType::AUTHENTICATION_FAILED)
        );
        let ups = gateway.side.events.iter().filter(|event| up(event));
        assert_eq!(ups.count(), 3, "another peer may come: {pattern}");
    }
}

#[test]
fn another_spelling_is_no_other_peer_for_its_limit() {
    for (pattern, same, _) in spellings() {
        let change = |connection: &mut Connection| connection.remote.id = id(pattern);
        let mut gateway = Gateway::new(change, |config| config.limits.ike_sas_per_peer_max = 2);
        assert_eq!(gateway.connect(&same[0], None), None);
        assert_eq!(gateway.connect(&same[1], None), None);
        let refused = gateway.connect(&same[2], None);
        assert_eq!(
            refused,
            Some(NotifyType::AUTHENTICATION_FAILED),
            "{pattern}"
        );
        assert_eq!(gateway.side.refused(Refusal::IkeSaLimit), 1);
    }
}

#[test]
fn initial_contact_ends_the_sas_of_every_spelling() {
    for (pattern, same, _) in spellings() {
        let change = |connection: &mut Connection| connection.remote.id = id(pattern);
        let mut gateway = Gateway::new(change, |_| {});
        assert_eq!(gateway.connect(&same[0], None), None);
        let contact = Some(NotifyType::INITIAL_CONTACT);
        assert_eq!(gateway.connect(&same[1], contact), None);
        let ended = |event: &&Event| {
            let reason = DownReason::InitialContact;
            matches!(event, Event::IkeSaDown { reason: why, .. } if *why == reason)
        };
        let ended = gateway.side.events.iter().filter(ended).count();
        assert_eq!(ended, 1, "{pattern}");
    }
}

fn name(text: &str) -> Id {
    id(text).to_payload().unwrap()
}

fn networks(ranges: &[&str]) -> Vec<TrafficSelector> {
    let one = |range: &&str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        TrafficSelector::addresses(from.parse().unwrap(), to.parse().unwrap())
    };
    ranges.iter().map(one).collect()
}

/// Puts the peer's own selectors into a request.
fn asking_for(payloads: &mut [Payload], ranges: &[&str]) {
    for payload in payloads {
        if let Payload::TsI(selectors) = payload {
            *selectors = networks(ranges);
        }
    }
}

const POOL: &str = "10.5.0.0-10.5.255.255";

/// Accepts any peer, with addresses of a pool.
fn pool(connection: &mut Connection) {
    connection.remote.id = id("*.rw.example");
    change_children(connection, |child| child.remote_ts = vec![subnet(POOL)]);
}

impl Gateway {
    /// A new IKE SA whose first child SA is for these addresses of the peer. Returns the error.
    fn up(&mut self, peer: &str, ranges: &[&str]) -> (Script, Option<NotifyType>) {
        let mut script = self.meet(&name(peer));
        let mut payloads = script.auth_payloads(KEY);
        asking_for(&mut payloads, ranges);
        let answer = script.exchange(&mut self.side, self.now, ExchangeType::IKE_AUTH, &payloads);
        (script, error_of(&answer.unwrap()))
    }

    fn create_child(
        &mut self,
        script: &mut Script,
        ranges: &[&str],
        rekeys: Option<u32>,
    ) -> Option<NotifyType> {
        let mut payloads = Script::child_payloads();
        asking_for(&mut payloads, ranges);
        payloads.push(Payload::Nonce(vec![3; 32]));
        let rekey = |spi| Notify::about_child(NotifyType::REKEY_SA, ProtocolId::ESP, spi);
        payloads.extend(rekeys.map(|spi| Payload::Notify(rekey(spi))));
        let kind = ExchangeType::CREATE_CHILD_SA;
        let answer = script.exchange(&mut self.side, self.now, kind, &payloads);
        error_of(&answer.unwrap())
    }

    /// The report of the first refusal for another peer's traffic.
    fn told(&self) -> &RefusedPeer {
        let refused = |event: &&Event| matches!(event, Event::Refused(refused) if refused.refusal == Refusal::TrafficHeld);
        match self.side.events.iter().find(refused) {
            Some(Event::Refused(refused)) => refused,
            _ => panic!("nothing is told"),
        }
    }
}

const REFUSED: Option<NotifyType> = Some(NotifyType::TS_UNACCEPTABLE);

// RFC 4301 R26
#[test]
fn a_peer_does_not_get_the_traffic_of_another() {
    let mut gateway = Gateway::new(pool, |_| {});
    let (mut a, refused) = gateway.up("a.rw.example", &["10.5.0.7"]);
    assert_eq!(refused, None);
    for stolen in [
        &["10.5.0.7"][..],
        &[POOL],
        &["10.5.0.0-10.5.0.7"],
        &["10.5.9.9", "10.5.0.1-10.5.0.100"],
    ] {
        let (mut b, refused) = gateway.up("b.rw.example", stolen);
        assert_eq!(refused, REFUSED, "{stolen:?}");
        // The IKE SA is established, and can have what is free. It cannot get the rest.
        assert_eq!(
            gateway.create_child(&mut b, &["10.5.8.0-10.5.8.8"], None),
            None
        );
        assert_eq!(gateway.create_child(&mut b, stolen, None), REFUSED);
        let rekeyed = gateway.create_child(&mut b, stolen, Some(0x4444));
        assert_eq!(rekeyed, REFUSED, "as a rekey");
        b.rekey_ike(&mut gateway.side, gateway.now);
        assert_eq!(gateway.create_child(&mut b, stolen, None), REFUSED);
    }
    assert!(gateway.side.refused(Refusal::TrafficHeld) >= 12);
    let told = gateway.told();
    assert_eq!(told.remote_id.as_deref(), Some("b.rw.example"));
    let says = "a.rw.example has this traffic with child SA";
    assert!(told.why.starts_with(says), "{}", told.why);
    assert!(told.why.ends_with("=== 10.5.0.7"), "{}", told.why);
    assert!(told.offered.ends_with("=== 10.5.0.7"), "{}", told.offered);

    // The owner can have its traffic again, narrower and wider, in this IKE SA and in others.
    for own in ["10.5.0.7", "10.5.0.0-10.5.0.9"] {
        assert_eq!(gateway.create_child(&mut a, &[own], None), None);
        assert_eq!(gateway.up("A.RW.Example", &[own]).1, None);
    }
}

// RFC 7296 R24, R28, R31
#[test]
fn what_a_peer_had_is_free_when_it_has_gone() {
    let mut gateway = Gateway::new(pool, |_| {});
    let (mut a, _) = gateway.up("a.rw.example", &["10.5.0.7"]);
    let (_, refused) = gateway.up("b.rw.example", &["10.5.0.7"]);
    assert_eq!(refused, REFUSED);
    let delete = Payload::Delete(Delete {
        protocol: ProtocolId::ESP,
        spis: vec![0x4444],
    });
    let kind = ExchangeType::INFORMATIONAL;
    a.exchange(&mut gateway.side, gateway.now, kind, &[delete])
        .unwrap();
    let (mut b, refused) = gateway.up("b.rw.example", &["10.5.0.7"]);
    assert_eq!(refused, None);
    assert_eq!(gateway.create_child(&mut a, &["10.5.0.7"], None), REFUSED);
    // The traffic is free with the end of the IKE SA, and of the one that has replaced it.
    b.rekey_ike(&mut gateway.side, gateway.now);
    assert_eq!(gateway.create_child(&mut a, &["10.5.0.7"], None), REFUSED);
    let delete = Payload::Delete(Delete {
        protocol: ProtocolId::IKE,
        spis: vec![],
    });
    b.exchange(&mut gateway.side, gateway.now, kind, &[delete])
        .unwrap();
    assert_eq!(gateway.create_child(&mut a, &["10.5.0.7"], None), None);
    gateway
        .side
        .endpoint
        .terminate(gateway.now, "site", None)
        .unwrap();
    let (_, refused) = gateway.up("c.rw.example", &["10.5.0.7"]);
    assert_eq!(refused, None, "terminated here");
}

// RFC 7296 R26, R67
#[test]
fn a_silent_peer_whose_traffic_another_wants_is_asked_whether_it_lives() {
    let mut gateway = Gateway::new(pool, |_| {});
    let (a, _) = gateway.up("a.rw.example", &["10.5.0.7"]);
    let asked = |gateway: &mut Gateway| {
        let mut sent = Vec::new();
        let mut script = gateway.meet(&name("b.rw.example"));
        let mut payloads = script.auth_payloads(KEY);
        asking_for(&mut payloads, &["10.5.0.7"]);
        let header = script.header(ExchangeType::IKE_AUTH, 1);
        let request = script.seal(&header, &payloads);
        sent.extend(script.send(&mut gateway.side, gateway.now, &request));
        let of_a = |sent: &&Vec<u8>| {
            let header = esplanade_ike::wire::Header::decode(sent).unwrap();
            header.initiator_spi == a.spi_i && header.exchange == ExchangeType::INFORMATIONAL
        };
        sent.iter().filter(of_a).count()
    };
    assert_eq!(asked(&mut gateway), 0, "it has just been heard");
    gateway.now += Duration::from_secs(11);
    assert_eq!(asked(&mut gateway), 1);
    assert_eq!(asked(&mut gateway), 0, "it is being asked");
    while gateway
        .side
        .endpoint
        .status()
        .iter()
        .any(|sa| sa.spi_i == a.spi_i)
    {
        gateway.now = gateway.side.endpoint.poll_timeout().unwrap();
        gateway.side.endpoint.handle_timeout(gateway.now);
        Script::take(&mut gateway.side);
    }
    assert_eq!(
        gateway.up("b.rw.example", &["10.5.0.7"]).1,
        None,
        "A was dead"
    );
}

#[test]
fn an_overlap_that_the_configuration_allows_is_none() {
    let change = |connection: &mut Connection| {
        pool(connection);
        change_children(connection, |child| child.overlap = true);
    };
    let mut gateway = Gateway::new(change, |_| {});
    assert_eq!(gateway.up("a.rw.example", &["10.5.0.7"]).1, None);
    assert_eq!(gateway.up("b.rw.example", &["10.5.0.7"]).1, None);
}

/// The pool's connection is behind or in front of one for the peer `site.example`, with these remote selectors.
fn beside_a_site(site_ts: &str, site_first: bool, change: impl Fn(&mut Child)) -> Gateway {
    Gateway::new(pool, |config| {
        let mut site = default_configs().1;
        site.remote.id = id("site.example");
        change_children(&mut site, |child| {
            child.remote_ts = vec![subnet(site_ts)];
            change(child);
        });
        let mut rw = (*config.connections[0]).clone();
        rw.name = "rw".to_owned();
        config.connections = match site_first {
            true => vec![site.into(), rw.into()],
            false => vec![rw.into(), site.into()],
        };
    })
}

#[test]
fn what_is_configured_for_one_peer_is_not_for_a_kind_of_peers() {
    let part = "10.5.1.0-10.5.1.255";
    for first in [true, false] {
        // The traffic is the site's, whether the site is up or down.
        let mut gateway = beside_a_site(part, first, |_| {});
        assert_eq!(gateway.up("b.rw.example", &["10.5.1.7"]).1, REFUSED);
        let says = "site.example has this traffic by configuration";
        assert!(gateway.told().why.starts_with(says));
        assert_eq!(gateway.up("b.rw.example", &["10.5.0.7"]).1, None);
        assert_eq!(gateway.up("site.example", &[part]).1, None);
        assert_eq!(gateway.up("b.rw.example", &["10.5.1.7"]).1, REFUSED);

        // The pool is an exception that the administrator makes from the site's traffic.
        let mut gateway = beside_a_site("0.0.0.0-255.255.255.255", first, |_| {});
        assert_eq!(gateway.up("b.rw.example", &["10.5.1.7"]).1, None);
        let all = &["0.0.0.0-255.255.255.255"];
        assert_eq!(gateway.up("site.example", all).1, None);
        assert_eq!(gateway.up("c.rw.example", &["10.5.2.7"]).1, None);
        assert_eq!(
            gateway.up("c.rw.example", &["10.5.1.7"]).1,
            REFUSED,
            "not from B"
        );

        // Another SPD has other traffic.
        let mut gateway = beside_a_site(part, first, |child| child.spd = 42);
        assert_eq!(gateway.up("b.rw.example", &["10.5.1.7"]).1, None);
        assert_eq!(gateway.up("site.example", &[part]).1, None);

        // The same on our side.
        let other = |child: &mut Child| child.local_ts = vec![subnet("10.9.0.0-10.9.0.255")];
        let mut gateway = beside_a_site(part, first, other);
        assert_eq!(gateway.up("b.rw.example", &["10.5.1.7"]).1, None);
    }
}

#[test]
fn a_new_configuration_binds_anew() {
    let mut gateway = Gateway::new(pool, |_| {});
    let mut config = gateway.config();
    let (mut b, refused) = gateway.up("b.rw.example", &["10.5.1.7"]);
    assert_eq!(refused, None);
    let mut site = default_configs().1;
    site.name = "other".to_owned();
    site.remote.id = id("site.example");
    change_children(&mut site, |child| {
        child.remote_ts = vec![subnet("10.5.1.0-10.5.1.255")];
    });
    config.connections.push(site.into());
    gateway.side.endpoint.set_config(config.clone());
    let rekeyed = gateway.create_child(&mut b, &["10.5.1.7"], Some(0x4444));
    assert_eq!(rekeyed, REFUSED);
    config.connections.pop();
    gateway.side.endpoint.set_config(config);
    let rekeyed = gateway.create_child(&mut b, &["10.5.1.7"], Some(0x4444));
    assert_eq!(rekeyed, None);
}

// RFC 4301 R26
#[test]
fn selectors_are_bound_to_identities() {
    let change = |connection: &mut Connection| {
        pool(connection);
        let entry = |peer, ts| PeerEntry {
            id: id(peer),
            remote_ts: vec![subnet(ts)],
        };
        connection.peers = vec![
            entry("*.guest.rw.example", "10.5.200.0-10.5.200.255"),
            entry("a.rw.example", "10.5.0.7-10.5.0.7"),
            entry("b.rw.example", "10.5.1.0-10.5.1.255"),
            entry("out.rw.example", "10.6.0.0-10.6.0.255"),
        ]
        .into();
    };
    let mut gateway = Gateway::new(change, |_| {});
    // The selectors are narrowed to the peer's own.
    assert_eq!(gateway.up("A.rw.example", &[POOL]).1, None);
    let granted = &gateway.side.endpoint.status()[0].children[0];
    assert_eq!(granted.remote_ts, networks(&["10.5.0.7"]));
    assert_eq!(gateway.up("a.rw.example", &["10.5.0.8"]).1, REFUSED);
    assert_eq!(gateway.up("b.rw.example", &["10.5.1.8"]).1, None);
    assert_eq!(gateway.up("b.rw.example", &["10.5.0.7"]).1, REFUSED);
    let (mut guest, refused) = gateway.up("x.guest.rw.example", &["10.5.200.1"]);
    assert_eq!(refused, None);
    assert_eq!(
        gateway.create_child(&mut guest, &["10.5.201.1"], None),
        REFUSED
    );
    assert_eq!(
        gateway.up("out.rw.example", &["10.6.0.1"]).1,
        REFUSED,
        "not the child's"
    );
    // Others can have the rest, with the owner there and without it.
    assert_eq!(gateway.up("c.rw.example", &["10.5.1.9"]).1, REFUSED);
    assert_eq!(gateway.up("c.rw.example", &["10.5.0.7"]).1, REFUSED);
    assert_eq!(gateway.up("c.rw.example", &["10.5.2.9"]).1, None);
}

/// Two connections, each for one peer, with these remote selectors.
fn two_sites(first: &str, second: &str) -> Gateway {
    Gateway::new(
        |_| {},
        |config| {
            let mut one = default_configs().1;
            one.name = "one".to_owned();
            one.remote.id = id("one.example");
            change_children(&mut one, |child| child.remote_ts = vec![subnet(first)]);
            let mut two = one.clone();
            two.name = "two".to_owned();
            two.remote.id = id("two.example");
            change_children(&mut two, |child| child.remote_ts = vec![subnet(second)]);
            config.connections = vec![one.into(), two.into()];
        },
    )
}

#[test]
fn two_sites_do_not_take_each_others_traffic() {
    let mut gateway = two_sites(POOL, POOL);
    assert_eq!(gateway.up("one.example", &["10.5.0.7"]).1, None);
    assert_eq!(gateway.up("two.example", &["10.5.0.7"]).1, REFUSED);
    assert_eq!(gateway.up("two.example", &[POOL]).1, REFUSED);
    assert_eq!(gateway.up("two.example", &["10.5.0.8"]).1, None);
    // A narrower network is an exception from a wider one, and its policy comes first.
    for (first, second) in [(POOL, "10.5.1.0-10.5.1.255"), ("10.5.1.0-10.5.1.255", POOL)] {
        let mut gateway = two_sites(first, second);
        assert_eq!(gateway.up("one.example", &[first]).1, None);
        assert_eq!(gateway.up("two.example", &[second]).1, None);
    }
}

/// Two clients behind one NAT have the same address inside. Without an address that B gives out, one of them gets the
/// tunnel. The other one is told, and can have an address that is free.
// RFC 4301 R26
#[test]
fn of_two_clients_behind_one_nat_with_the_same_inner_address_one_is_refused() {
    let anywhere = |connection: &mut Connection| {
        pool(connection);
        connection.remote_addrs = vec![AddressMatch::Any];
    };
    let mut gateway = Gateway::new(anywhere, |_| {});
    let mut client = |peer: &str, port: u16, inner: &str| {
        let mut script = Script::new();
        script.spi_i = SPI + u64::from(port);
        script.id = name(peer);
        script.local = format!("203.0.113.9:{port}").parse().unwrap();
        let payloads = script.init_payloads_behind_nat();
        script
            .init(&mut gateway.side, gateway.now, payloads)
            .unwrap();
        script.local.set_port(port + 1);
        script.remote.set_port(4500);
        let mut payloads = script.auth_payloads(KEY);
        asking_for(&mut payloads, &[inner]);
        let kind = ExchangeType::IKE_AUTH;
        let answer = script.exchange(&mut gateway.side, gateway.now, kind, &payloads);
        error_of(&answer.unwrap())
    };
    assert_eq!(client("a.rw.example", 5000, "10.5.0.7"), None);
    assert_eq!(client("b.rw.example", 6000, "10.5.0.7"), REFUSED);
    assert_eq!(client("c.rw.example", 7000, "10.5.0.8"), None);
    let told = gateway.told();
    assert_eq!(told.remote_id.as_deref(), Some("b.rw.example"));
    assert!(
        told.why.starts_with("a.rw.example has this traffic"),
        "{}",
        told.why
    );
    let status = gateway.side.endpoint.status();
    assert_eq!(
        status.len(),
        3,
        "the IKE SA of the client that is refused stays"
    );
    let installed = gateway.side.events.iter().filter_map(|event| match event {
        Event::ChildSaInstalled(child) => Some(child.remote.port()),
        _ => None,
    });
    assert!(installed.eq([5001, 7001]));
}

/// A initiates. B answers for the traffic of a third peer of A.
#[test]
fn an_initiator_does_not_take_it_either() {
    let (mut a, mut b) = default_configs();
    a.remote.id = id("*.example");
    b.local.id = id("b.example");
    let mut others = a.clone();
    others.name = "others".to_owned();
    others.remote_addrs = vec![AddressMatch::Any];
    let mut a = config(a);
    a.connections.push(others.into());
    let mut pair = Pair::new(a, config(b), Conditions::PERFECT, 1);
    let mut third = Script::new();
    third.local = "203.0.113.3:500".parse().unwrap();
    third.remote = format!("{A}:500").parse().unwrap();
    third.id = name("third.example");
    let payloads = third.init_payloads();
    third.init(&mut pair.a, pair.now, payloads).unwrap();
    let mut payloads = third.auth_payloads(KEY);
    for payload in &mut payloads {
        match payload {
            Payload::TsI(selectors) => *selectors = networks(&["10.2.0.0-10.2.0.9"]),
            Payload::TsR(selectors) => *selectors = networks(&[NET_A]),
            _ => {}
        }
    }
    let answer = third.exchange(&mut pair.a, pair.now, ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(error_of(&answer.unwrap()), None);
    let child = pair.a.endpoint.status()[0].children[0].id;
    pair.initiate();
    pair.run(Duration::from_secs(1));
    let failed = pair.a.events.iter().find_map(|event| match event {
        Event::ChildFailed { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let Some(ChildFailure::TrafficHeld(held)) = failed else {
        panic!("{failed:?}");
    };
    assert_eq!((held.peer, held.sa), (id("third.example"), Some(child)));
    assert!(pair.b.children.is_empty(), "it is told");
    let children: Vec<_> = pair
        .a
        .endpoint
        .status()
        .into_iter()
        .flat_map(|sa| sa.children)
        .collect();
    assert_eq!(children.len(), 1);
}

/// B answers for more than `peers` of A gives it. A does not know that it is B before it answers.
#[test]
fn an_initiator_does_not_take_more_than_an_entry_gives() {
    let mut pair = Pair::with(|a, _| {
        a.remote.id = id("*.example");
        a.peers = vec![PeerEntry {
            id: id("b.example"),
            remote_ts: vec![subnet("10.2.0.0-10.2.0.255")],
        }]
        .into();
    });
    pair.initiate();
    pair.run(Duration::from_secs(1));
    let failed = pair.a.events.iter().find_map(|event| match event {
        Event::ChildFailed { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(failed, Some(&ChildFailure::NotItsTraffic));
    pair.assert_agreed(1, 0);
}

/// Somebody who reflects our own identity is not a peer, even with the key that all of them share.
#[test]
fn a_peer_with_our_own_identity_is_refused() {
    let change = |connection: &mut Connection| connection.remote.id = id("*.example");
    let mut gateway = Gateway::new(change, |_| {});
    for own in ["b.example", "B.Example"] {
        let refused = gateway.connect(&name(own), None);
        assert_eq!(refused, Some(NotifyType::AUTHENTICATION_FAILED), "{own}");
    }
    assert_eq!(gateway.side.refused(Refusal::AuthenticationFailed), 2);
    assert!(gateway.side.up.is_empty());
    let told = gateway.side.events.iter().find_map(|event| match event {
        Event::Refused(refused) => Some(refused.why.clone()),
        _ => None,
    });
    let why = AuthFailure::OwnIdentity(Box::new(id("b.example")));
    assert_eq!(told, Some(why.to_string()));
    assert_eq!(gateway.connect(&name("a.example"), None), None);
}
