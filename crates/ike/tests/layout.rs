//! The form of what is sent: the order of payloads, reserved fields, and the transforms of each exchange.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::wiretap::{Overheard, sent_by, tapped};
use crate::common::*;
use esplanade_crypto::iana::{Encryption, Group, Integrity, Prf};
use esplanade_ike::config::{
    Connection, Credential, Fragmentation, Identity, IkeProposal, LocalMethod, RemoteMethod,
    SendCert,
};
use esplanade_ike::wire::{
    ExchangeType, Message, NotifyType, Payload, PayloadType, Proposal, TransformType,
};
use esplanade_pki::{Authorities, Certificate, RevocationPolicy};
use esplanade_testkit::certificate_file as file;

const SECOND: Duration = Duration::from_secs(1);

/// Both ends have moon's certificate, and use different names of it.
fn with_certificates(connection: &mut Connection) {
    let name = |end: &Identity| match *end == id("a.example") {
        true => id("moon.example.org"),
        false => id("moon@example.org"),
    };
    let load = |pem| Certificate::from_file_content(pem).unwrap();
    let own = Credential::new(file!("moon-ed25519.key"), load(file!("moon-ed25519.pem")));
    connection.local.id = name(&connection.local.id);
    connection.remote.id = name(&connection.remote.id);
    connection.local.method = LocalMethod::Signature(vec![Arc::new(own.unwrap())]);
    connection.remote.method = RemoteMethod::Certificate {
        authorities: Arc::new(Authorities::new(&load(file!("root.pem"))).unwrap()),
        pinned: vec![],
        rules: Arc::default(),
        revocation: RevocationPolicy::Relaxed,
    };
    connection.send_cert = SendCert::Always;
    connection.fragmentation = Fragmentation::No;
}

/// Two ciphers with their integrity for IKE and ESP, and a child with a key exchange of its own.
fn with_several_transforms(connection: &mut Connection) {
    let ciphers = vec![(Encryption::AesCbc, 256), (Encryption::AesCbc, 128)];
    connection.proposals.push(IkeProposal {
        encryption: ciphers.clone(),
        integrity: vec![Integrity::HmacSha2_256_128],
        prf: vec![Prf::HmacSha2_256],
        groups: vec![Group::Curve25519],
    });
    change_children(connection, |child| {
        child.esp_proposals[0].groups = vec![Group::Curve25519, Group::Ecp256];
        let mut other = esp_proposal();
        other.encryption = ciphers.clone();
        other.integrity = vec![Integrity::HmacSha2_256_128];
        other.groups = vec![Group::Curve25519];
        child.esp_proposals.push(other);
    });
}

/// A pair that has gone through every exchange that both ends begin. B demands a cookie.
fn after_every_exchange(change: impl Fn(&mut Connection)) -> Pair {
    let mut demanding = None;
    let mut pair = tapped(|a, b| {
        change(a);
        change(b);
        demanding = Some(config(b.clone()));
    });
    let mut demanding = demanding.unwrap();
    demanding.key_log = true;
    demanding.limits.cookie_threshold = 0;
    pair.b.endpoint.set_config(demanding);
    let june_2026 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_272_000);
    for side in [&mut pair.a, &mut pair.b] {
        side.endpoint.set_wall_clock(pair.start, june_2026);
    }
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    for (by_a, what) in [
        (true, Some("net")),
        (false, Some("net")),
        (true, None),
        (false, None),
    ] {
        let side = if by_a { &mut pair.a } else { &mut pair.b };
        side.endpoint.rekey(pair.now, "site", what).unwrap();
        pair.flush();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
    }
    for what in [Some("net"), None] {
        pair.b.endpoint.terminate(pair.now, "site", what).unwrap();
        pair.flush();
        pair.run(SECOND);
    }
    pair
}

fn all_sent(pair: &Pair) -> Vec<Overheard> {
    let mut sent = sent_by(pair, &pair.a);
    sent.extend(sent_by(pair, &pair.b));
    sent
}

/// The payloads by their names in the figures of the RFC. Among the notifies those have a name that have a place.
fn order(message: &Message) -> String {
    let mut names = Vec::new();
    for payload in &message.payloads {
        names.push(match payload {
            Payload::Notify(notify) => match notify.kind {
                NotifyType::COOKIE => "COOKIE",
                NotifyType::REKEY_SA => "REKEY_SA",
                _ => continue,
            },
            other => match other.kind() {
                PayloadType::SA => "SA",
                PayloadType::KE => "KE",
                PayloadType::NONCE => "N",
                PayloadType::IDI => "IDi",
                PayloadType::IDR => "IDr",
                PayloadType::CERT => "CERT",
                PayloadType::CERTREQ => "CERTREQ",
                PayloadType::AUTH => "AUTH",
                PayloadType::TSI => "TSi",
                PayloadType::TSR => "TSr",
                PayloadType::DELETE => "D",
                kind => panic!("{kind}"),
            },
        });
    }
    names.join(" ")
}

// RFC 7296 R78
#[test]
fn payloads_have_the_order_of_the_figures() {
    let pair = after_every_exchange(|connection| {
        with_certificates(connection);
        with_several_transforms(connection);
    });
    let mut seen = BTreeMap::<_, Vec<String>>::new();
    for sent in all_sent(&pair) {
        let header = sent.message.header;
        let orders = seen
            .entry((header.exchange.0, header.response))
            .or_default();
        orders.push(order(&sent.message));
    }
    for orders in seen.values_mut() {
        orders.sort();
        orders.dedup();
    }
    let expected: [(ExchangeType, bool, &[&str]); 8] = [
        (
            ExchangeType::IKE_SA_INIT,
            false,
            &["COOKIE SA KE N", "SA KE N"],
        ),
        (
            ExchangeType::IKE_SA_INIT,
            true,
            &["COOKIE", "SA KE N CERTREQ"],
        ),
        (
            ExchangeType::IKE_AUTH,
            false,
            &["IDi CERT CERTREQ IDr AUTH SA TSi TSr"],
        ),
        (ExchangeType::IKE_AUTH, true, &["IDr CERT AUTH SA TSi TSr"]),
        (
            ExchangeType::CREATE_CHILD_SA,
            false,
            &["REKEY_SA SA N KE TSi TSr", "SA N KE"],
        ),
        (
            ExchangeType::CREATE_CHILD_SA,
            true,
            &["SA N KE", "SA N KE TSi TSr"],
        ),
        (ExchangeType::INFORMATIONAL, false, &["D"]),
        (ExchangeType::INFORMATIONAL, true, &["", "D"]),
    ];
    for (exchange, response, orders) in expected {
        let found = seen.remove(&(exchange.0, response));
        assert_eq!(found.unwrap(), orders, "{exchange} {response}");
    }
}

/// The reserved bytes of an SA payload's body: one of each proposal, and two of each transform.
fn reserved_of_sa(mut body: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let mut reserved = Vec::new();
    while !body.is_empty() {
        let (proposal, rest) = body.split_at(number(&body[2..]));
        reserved.push(proposal[1]);
        let mut transforms = &proposal[8 + usize::from(proposal[6])..];
        while !transforms.is_empty() {
            let (transform, rest) = transforms.split_at(number(&transforms[2..]));
            reserved.extend([transform[1], transform[5]]);
            transforms = rest;
        }
        body = rest;
    }
    reserved
}

/// The reserved bytes of a chain of payloads. That of the payload header has the critical bit.
fn reserved(sent: &Overheard) -> Vec<(PayloadType, Vec<u8>)> {
    let (mut chain, mut kind) = (&sent.chain[..], sent.first);
    let mut all = Vec::new();
    while !chain.is_empty() {
        let len = usize::from(u16::from_be_bytes([chain[2], chain[3]]));
        let (payload, rest) = chain.split_at(len);
        let body = &payload[4..];
        let mut reserved = vec![payload[1]];
        match kind {
            PayloadType::SA => reserved.extend(reserved_of_sa(body)),
            PayloadType::KE => reserved.extend(&body[2..4]),
            PayloadType::IDI
            | PayloadType::IDR
            | PayloadType::AUTH
            | PayloadType::TSI
            | PayloadType::TSR => reserved.extend(&body[1..4]),
            _ => {}
        }
        all.push((kind, reserved));
        (chain, kind) = (rest, PayloadType(payload[0]));
    }
    all
}

// RFC 7296 R74
#[test]
fn reserved_fields_are_zero_in_all_that_is_sent() {
    let pair = after_every_exchange(with_several_transforms);
    let mut bytes = BTreeMap::<u8, usize>::new();
    for sent in all_sent(&pair) {
        for (kind, reserved) in reserved(&sent) {
            assert!(
                reserved.iter().all(|byte| *byte == 0),
                "{kind}: {reserved:x?}"
            );
            *bytes.entry(kind.0).or_default() += reserved.len();
        }
    }
    for kind in [
        PayloadType::SA,
        PayloadType::KE,
        PayloadType::IDI,
        PayloadType::IDR,
        PayloadType::AUTH,
        PayloadType::NONCE,
        PayloadType::NOTIFY,
        PayloadType::DELETE,
        PayloadType::TSI,
        PayloadType::TSR,
    ] {
        assert!(bytes.contains_key(&kind.0), "{kind} was not sent");
    }
}

// RFC 7296 R7
#[test]
fn the_child_of_ike_auth_has_no_key_exchange_transform() {
    let pair = after_every_exchange(with_several_transforms);
    let mut seen = Vec::new();
    for sent in all_sent(&pair) {
        let exchange = sent.message.header.exchange;
        let has_selectors = |payload: &Payload| matches!(payload, Payload::TsI(_));
        if !sent.message.payloads.iter().any(has_selectors) {
            continue;
        }
        let proposals = sent
            .message
            .payloads
            .iter()
            .find_map(|payload| match payload {
                Payload::Sa(proposals) => Some(proposals.clone()),
                _ => None,
            });
        for proposal in proposals.unwrap() {
            let groups =
                |proposal: &Proposal| proposal.of_kind(TransformType::KEY_EXCHANGE).count();
            let has_groups = groups(&proposal) > 0;
            assert_eq!(has_groups, exchange == ExchangeType::CREATE_CHILD_SA);
            seen.push(exchange);
        }
    }
    assert!(seen.contains(&ExchangeType::IKE_AUTH));
    assert!(seen.contains(&ExchangeType::CREATE_CHILD_SA));
}
