//! Peers that share a connection, and what must tell them apart.

mod common;

use std::time::Instant;

use common::script::{SPI, Script, error_of};
use common::*;
use esplanade_ike::config::{Config, Connection, Unique};
use esplanade_ike::wire::{ExchangeType, Id, IdType, Message, Notify, NotifyType, Payload};
use esplanade_ike::{DownReason, Event, Refusal};

const KEY: &[u8] = b"a shared secret";

/// B, and how many peers have come to it.
struct Gateway {
    side: Side,
    now: Instant,
    peers: u64,
}

impl Gateway {
    fn new(change: impl FnOnce(&mut Connection), limits: impl FnOnce(&mut Config)) -> Self {
        let mut connection = default_configs().1;
        change(&mut connection);
        let mut config = config(connection);
        limits(&mut config);
        let now = Instant::now();
        let side = Side::new("b", B, config, now, 7);
        let peers = 0;
        Self { side, now, peers }
    }

    /// A new IKE SA of a peer with this identity. Its messages after IKE_SA_INIT are the caller's to make.
    fn meet(&mut self, id: &Id) -> Script {
        let mut script = Script::new();
        script.spi_i = SPI + self.peers;
        script.id = id.clone();
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

/// One identity in several spellings, each type with one that is not the same.
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
        };
        let mut gateway = Gateway::new(change, |_| {});
        assert_eq!(gateway.connect(&same[0], None), None, "{pattern}");
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
        assert_eq!(ups.count(), 2, "another peer may come: {pattern}");
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
