//! A message is negotiated if its fields can hold it. A limit of ours would end the exchange (RFC 7296 §2.21.1).

use std::time::{Duration, Instant};

use crate::common::script::{Script, error_of};
use crate::common::*;
use esplanade_crypto::iana::Encryption;
use esplanade_ike::Event;
use esplanade_ike::config::{Connection, Selector};
use esplanade_ike::wire::{
    Notify, NotifyType, Payload, Proposal, ProtocolId, Transform, TransformType,
};

fn answered(bend: impl FnOnce(&mut Vec<Payload>)) {
    let now = Instant::now();
    let mut side = Side::new("b", B, config(default_configs().1), now, 7);
    let mut script = Script::new();
    let mut payloads = script.init_payloads();
    bend(&mut payloads);
    let answer = script.init(&mut side, now, payloads).unwrap();
    assert_eq!(error_of(&answer), None);
    assert!(answer.payloads.iter().any(|p| matches!(p, Payload::Ke(_))));
}

fn offer(payloads: &mut [Payload]) -> &mut Vec<Proposal> {
    match &mut payloads[0] {
        Payload::Sa(proposals) => proposals,
        other => panic!("{other:?}"),
    }
}

/// Ciphers that do not exist.
fn unknown(count: u16) -> impl Iterator<Item = Transform> {
    (0..count).map(|id| Transform::new(TransformType::ENCRYPTION, 1024 + id))
}

// RFC 7296 R224
#[test]
fn as_many_transforms_as_a_proposal_can_count() {
    answered(|payloads| {
        let transforms = &mut offer(payloads)[0].transforms;
        let room = 255 - u16::try_from(transforms.len()).unwrap();
        transforms.splice(0..0, unknown(room));
    });
}

// RFC 7296 R223
#[test]
fn as_many_proposals_as_have_a_number() {
    answered(|payloads| {
        let proposals = offer(payloads);
        let ours = proposals[0].clone();
        let strange = |number| Proposal {
            number,
            protocol: ProtocolId::IKE,
            spi: Vec::new(),
            transforms: unknown(3).collect(),
        };
        *proposals = (1..=254).map(strange).collect();
        proposals.push(Proposal {
            number: 255,
            ..ours
        });
    });
}

#[test]
fn a_proposal_of_a_foreign_protocol_is_passed_over() {
    answered(|payloads| {
        let proposals = offer(payloads);
        let mut foreign = proposals[0].clone();
        foreign.protocol = ProtocolId(201);
        foreign.spi = vec![1; 16];
        proposals[0].number = 2;
        proposals.insert(0, foreign);
    });
}

// RFC 7296 R248
#[test]
fn any_number_of_vendor_ids_and_addresses() {
    answered(|payloads| payloads.extend((0..80).map(|n| Payload::Vendor(vec![n; 16]))));
    answered(|payloads| {
        let address = |n| {
            Payload::Notify(Notify::new(
                NotifyType::NAT_DETECTION_SOURCE_IP,
                vec![n; 20],
            ))
        };
        payloads.extend((0..70).map(address));
    });
}

/// Initiator and responder, IKE SA and child SA.
// RFC 7296 R37, R38, R210, R250
#[test]
fn two_gateways_with_many_proposals_and_selectors() {
    let mut pair = Pair::with(|a, b| {
        for connection in [&mut *a, &mut *b] {
            let proposal = &mut connection.proposals[0];
            let ciphers = Encryption::ALL
                .iter()
                .filter(|c| c.for_ike() && c.is_aead());
            proposal.encryption = ciphers
                .flat_map(|&cipher| cipher.key_bits().iter().map(move |&bits| (cipher, bits)))
                .collect();
            connection.proposals = vec![proposal.clone(); 200];
        }
        let near: Vec<_> = (0..=254)
            .map(|n| subnet(&format!("10.1.{n}.0-10.1.{n}.127")))
            .collect();
        let far = vec![subnet("10.2.0.0-10.2.0.255")];
        let with = |connection: &mut Connection, local: &[Selector], remote: &[Selector]| {
            let mut child = (*connection.children[0]).clone();
            child.local_ts = local.to_vec();
            child.remote_ts = remote.to_vec();
            connection.children = vec![child.into()];
        };
        with(a, &near, &far);
        with(b, &far, &near);
    });
    pair.initiate();
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    let selectors = |event: &Event| match event {
        Event::ChildSaInstalled(sa) => Some(sa.local_ts.len()),
        _ => None,
    };
    assert_eq!(pair.a.events.iter().find_map(selectors), Some(255));
}
