//! A peer proves that it is in a group by an attribute certificate, and connections may differ by their groups alone.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::*;
use esplanade_ike::auth::PeerAuthError;
use esplanade_ike::config::{
    CertificateRules, Connection, Credential, LocalMethod, RemoteMethod, SendCert,
};
use esplanade_ike::wire::NotifyType;
use esplanade_ike::{Config, DownReason, Event, Refusal};
use esplanade_pki::attributes::{
    AttributeAuthority, AttributeCertificate, AttributeStore, MembershipError,
};
use esplanade_pki::{Authorities, Certificate, RevocationPolicy};

/// 2026-06-01.
const NOW: Duration = Duration::from_secs(1_780_272_000);

macro_rules! file {
    ($name:expr) => {
        include_bytes!(concat!("../../../vectors/ike/", $name)).as_slice()
    };
}

const RESEARCH: &[u8] = file!("attributes/research.pem");
const SALES: &[u8] = file!("attributes/sales.pem");

fn load(pem: &[u8]) -> Vec<Certificate> {
    Certificate::from_file_content(pem).unwrap()
}

fn attributes(pems: &[&[u8]]) -> Vec<Arc<AttributeCertificate>> {
    let read = |pem: &&[u8]| AttributeCertificate::from_file_content(pem).unwrap();
    pems.iter().map(read).map(Arc::new).collect()
}

/// A store with the authority, and with attribute certificates that need not be sent.
fn store(known: &[&[u8]]) -> Arc<AttributeStore> {
    let authority = load(file!("attributes/aa.pem")).remove(0);
    let authority = AttributeAuthority::new(authority).unwrap();
    let store = AttributeStore::new(vec![authority], &[], attributes(known));
    Arc::new(store.unwrap())
}

/// A connection of B for peers in one of the groups.
fn for_groups(name: &str, groups: &[&str]) -> Connection {
    let mut connection = default_configs().1;
    connection.name = name.to_owned();
    connection.remote.id = id("*.example.org");
    connection.remote.method = RemoteMethod::Certificate {
        authorities: Arc::new(Authorities::new(&load(file!("certs/root.pem"))).unwrap()),
        pinned: vec![],
        rules: Arc::new(CertificateRules {
            groups: groups.iter().map(|group| group.parse().unwrap()).collect(),
            ..CertificateRules::default()
        }),
        revocation: RevocationPolicy::Relaxed,
    };
    connection
}

/// A has the credential and these attribute certificates.
fn member(own: &[&[u8]]) -> Config {
    let mut a = default_configs().0;
    let key = file!("certs/moon-ecdsa256.key");
    let credential = Credential::new(key, load(file!("certs/moon-ecdsa256.pem"))).unwrap();
    let credential = credential.with_attributes(&attributes(own));
    a.local.id = id("moon.example.org");
    a.local.method = LocalMethod::Signature(vec![Arc::new(credential)]);
    config(a)
}

/// A with these attribute certificates, and B with these connections and groups.
fn pair(own: &[&[u8]], connections: &[(&str, &[&str])]) -> Pair {
    let connections = connections.iter();
    let connections: Vec<_> = connections
        .map(|(name, groups)| Arc::new(for_groups(name, groups)))
        .collect();
    let mut b = config(connections[0].as_ref().clone());
    b.connections = connections;
    b.attributes = store(&[]);
    new_pair(member(own), b)
}

fn new_pair(a: Config, b: Config) -> Pair {
    let mut pair = Pair::with(|_, _| {});
    for (side, config) in [(&mut pair.a, a), (&mut pair.b, b)] {
        side.endpoint.set_config(config);
        let now = SystemTime::UNIX_EPOCH + NOW;
        side.endpoint.set_wall_clock(pair.start, now);
    }
    pair
}

/// The connection that B takes, and the groups that it says are proved.
fn chosen(pair: &mut Pair) -> Option<(String, Vec<String>)> {
    pair.initiate();
    pair.run(Duration::from_secs(1));
    let status = pair.b.endpoint.status();
    let sa = status.first()?;
    let groups = sa.groups.iter().map(ToString::to_string).collect();
    Some((sa.connection.clone()?, groups))
}

/// Why B has refused.
fn told(pair: &Pair) -> String {
    let told = pair.b.events.iter().find_map(|event| match event {
        Event::Refused(refused) => Some(refused.why.clone()),
        _ => None,
    });
    told.expect("told")
}

const TWO: &[(&str, &[&str])] = &[("sales", &["Sales"]), ("research", &["Board", "research"])];

#[test]
fn connections_differ_by_groups_alone() {
    for (own, name, group) in [
        (RESEARCH, "research", "research"),
        (SALES, "sales", "Sales"),
    ] {
        let mut pair = pair(&[own], TWO);
        let taken = chosen(&mut pair);
        assert_eq!(taken, Some((name.to_owned(), vec![group.to_owned()])));
        pair.assert_agreed(1, 1);
        let up = pair.b.events.iter().find_map(|event| match event {
            Event::IkeSaUp(up) => Some(up.groups.clone()),
            _ => None,
        });
        assert_eq!(up, Some(vec![group.parse().unwrap()]));
        pair.assert_clean_end();
    }
    // Who proves both is taken by the first.
    let mut both = pair(&[RESEARCH, SALES], TWO);
    assert_eq!(chosen(&mut both).unwrap().0, "sales");
    both.assert_clean_end();
    // A connection without groups is for the others.
    let fallback: &[(&str, &[&str])] = &[("sales", &["Sales"]), ("anybody", &[])];
    let mut other = pair(&[RESEARCH], fallback);
    assert_eq!(chosen(&mut other), Some(("anybody".to_owned(), vec![])));
    other.assert_clean_end();
}

#[test]
fn the_groups_outlive_a_rekey() {
    let mut pair = pair(&[RESEARCH], TWO);
    let before = chosen(&mut pair);
    pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
    pair.flush();
    pair.run(Duration::from_secs(60));
    let status = pair.b.endpoint.status();
    assert_eq!(status.len(), 1);
    let groups: Vec<_> = status[0].groups.iter().map(ToString::to_string).collect();
    assert_eq!(before.unwrap().1, groups);
    pair.assert_clean_end();
}

#[test]
fn who_proves_no_group_is_refused() {
    let nothing = PeerAuthError::NotMember(Box::new(MembershipError {
        wanted: vec!["Research".parse().unwrap()],
        proved: vec![],
        refused: vec![],
    }));
    for (own, reason) in [
        (vec![], &*nothing.to_string()),
        (
            vec![SALES],
            "it takes one of the groups Research, and those proved are Sales",
        ),
        (
            vec![file!("attributes/renewed.pem")],
            "no attribute authority that is trusted is called \"O=Example, CN=attribute authority\"",
        ),
        (
            vec![file!("attributes/pss.pem")],
            "is called \"O=Example, CN=another attribute authority\"",
        ),
    ] {
        let mut pair = pair(&own, &[("research", &["Research"])]);
        assert_eq!(chosen(&mut pair), None);
        pair.assert_agreed(0, 0);
        let told = told(&pair);
        assert!(told.contains(reason), "{told}");
        assert_eq!(pair.b.refused(Refusal::AuthenticationFailed), 1);
        let refused = DownReason::PeerRefused(NotifyType::AUTHENTICATION_FAILED);
        let down = pair.a.events.iter().any(
            |event| matches!(event, Event::ConnectFailed { reason, .. } if *reason == refused),
        );
        assert!(down, "{:?}", pair.a.events);
        pair.assert_clean_end();
    }
    // Each connection that was tried has its reason.
    let mut several = pair(&[file!("attributes/renewed.pem")], TWO);
    assert_eq!(chosen(&mut several), None);
    let told = told(&several);
    assert!(
        told.contains("sales: it takes one of the groups Sales"),
        "{told}"
    );
    assert!(
        told.contains("research: it takes one of the groups Board, research"),
        "{told}"
    );
    several.assert_clean_end();
}

/// A sends an attribute certificate that has expired for B's clock.
#[test]
fn an_expired_certificate_proves_nothing() {
    let mut pair = pair(&[file!("attributes/expired.pem")], TWO);
    let january = SystemTime::UNIX_EPOCH + NOW - Duration::from_secs(130 * 86_400);
    pair.a.endpoint.set_wall_clock(pair.start, january);
    assert_eq!(chosen(&mut pair), None);
    let told = told(&pair);
    assert!(
        told.contains("it expired at 2026-02-01T00:00:00Z"),
        "{told}"
    );
    pair.assert_clean_end();
    let mut before = self::pair(&[file!("attributes/expired.pem")], TWO);
    for side in [&mut before.a, &mut before.b] {
        side.endpoint.set_wall_clock(before.start, january);
    }
    assert_eq!(chosen(&mut before).unwrap().0, "research");
    before.assert_clean_end();
}

/// The attribute certificate of another holder is worth nothing, also if its holder's name is known.
#[test]
fn another_holders_certificate_proves_nothing() {
    let mut pair = pair(&[], TWO);
    let mut b = config(for_groups("research", &["Research"]));
    b.attributes = store(&[file!("attributes/sun.pem")]);
    pair.b.endpoint.set_config(b);
    assert_eq!(chosen(&mut pair), None);
    let told = told(&pair);
    assert!(told.contains("no attribute certificate"), "{told}");
    pair.assert_clean_end();
}

#[test]
fn the_administrator_can_have_the_certificate_of_a_peer() {
    let mut pair = pair(&[], TWO);
    let mut b = config(for_groups("research", &["Research"]));
    b.attributes = store(&[file!("attributes/sun.pem"), SALES, RESEARCH]);
    pair.b.endpoint.set_config(b);
    let research = ("research".to_owned(), vec!["Research".to_owned()]);
    assert_eq!(chosen(&mut pair), Some(research));
    pair.assert_clean_end();
}

#[test]
fn a_responder_proves_its_group_too() {
    for (own, up) in [(RESEARCH, true), (SALES, false)] {
        let mut pair = pair(&[own], &[("site", &["Research"])]);
        pair.b.endpoint.initiate(pair.now, "site", None).unwrap();
        pair.flush();
        pair.run(Duration::from_secs(1));
        match up {
            true => {
                pair.assert_agreed(1, 1);
                assert_eq!(pair.b.endpoint.status()[0].groups.len(), 1);
            }
            false => {
                pair.assert_agreed(0, 0);
                let failed = pair.b.events.iter().find_map(|event| match event {
                    Event::ConnectFailed { reason, .. } => Some(reason.to_string()),
                    _ => None,
                });
                let failed = failed.unwrap();
                assert!(failed.contains("those proved are Sales"), "{failed}");
            }
        }
        pair.assert_clean_end();
    }
}

#[test]
fn no_attribute_certificate_goes_without_the_certificate() {
    let mut pair = pair(&[RESEARCH], TWO);
    let mut a = member(&[RESEARCH]);
    change_connection(&mut a, |a| a.send_cert = SendCert::Never);
    pair.a.endpoint.set_config(a);
    let mut b = for_groups("research", &["Research"]);
    if let RemoteMethod::Certificate { pinned, .. } = &mut b.remote.method {
        *pinned = load(file!("certs/moon-ecdsa256.pem"));
    }
    let mut b = config(b);
    b.attributes = store(&[]);
    pair.b.endpoint.set_config(b.clone());
    assert_eq!(chosen(&mut pair), None);
    let told = told(&pair);
    assert!(told.contains("no attribute certificate"), "{told}");
    // The administrator has both certificates.
    b.attributes = store(&[RESEARCH]);
    pair.b.endpoint.set_config(b);
    assert_eq!(chosen(&mut pair).unwrap().0, "research");
    pair.assert_clean_end();
}
