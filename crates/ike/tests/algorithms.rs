//! Every algorithm is negotiated end to end, for IKE SAs and for children.

use std::time::Duration;

use crate::common::*;
use esplanade_crypto::Transform;
use esplanade_crypto::iana::{Encryption, Integrity, SequenceNumbers};
use esplanade_ike::config::{Connection, EspProposal, IkeProposal};

const SECOND: Duration = Duration::from_secs(1);

fn offer(connection: &mut Connection, proposal: &EspProposal) {
    let mut child = (*connection.children[0]).clone();
    child.esp_proposals = vec![proposal.clone()];
    connection.children = vec![child.into()];
}

/// The child SAs of the initiator, after a check that both sides agree on all of them.
fn negotiate(change: impl FnOnce(&mut Connection, &mut Connection)) -> Vec<(Transform, usize)> {
    let mut pair = Pair::with(change);
    pair.initiate();
    pair.run(SECOND);
    pair.assert_same();
    let children = pair.a.children.values();
    children
        .map(|(sa, _)| (sa.esp.transform, sa.key_in.len()))
        .collect()
}

// RFC 4303 R1, R2, R56, R68; RFC 7296 R214
#[test]
fn every_transform_of_a_child() {
    for transform in Transform::all() {
        let proposal = EspProposal {
            encryption: transform
                .encryption()
                .map(|cipher| (cipher, transform.key_bits()))
                .into_iter()
                .collect(),
            integrity: transform.integrity().into_iter().collect(),
            groups: Vec::new(),
            sequence_numbers: vec![SequenceNumbers::Bits64],
        };
        let agreed = negotiate(|a, b| {
            offer(a, &proposal);
            offer(b, &proposal);
        });
        assert_eq!(
            agreed,
            [(transform, transform.key_material_len())],
            "{transform}"
        );
    }
}

// RFC 7296 R214
#[test]
fn every_algorithm_of_an_ike_sa() {
    let ciphers = Encryption::ALL.iter().filter(|cipher| cipher.for_ike());
    for &cipher in ciphers {
        let integrity: Vec<Vec<Integrity>> = match cipher.is_aead() {
            true => vec![Vec::new()],
            false => Integrity::ALL
                .iter()
                .filter(|integrity| integrity.for_ike())
                .map(|integrity| vec![*integrity])
                .collect(),
        };
        for (&bits, integrity) in cipher
            .key_bits()
            .iter()
            .flat_map(|bits| integrity.iter().map(move |list| (bits, list)))
        {
            let proposal = IkeProposal {
                encryption: vec![(cipher, bits)],
                integrity: integrity.clone(),
                ..ike_proposal()
            };
            let agreed = negotiate(|a, b| {
                a.proposals = vec![proposal.clone()];
                b.proposals = vec![proposal.clone()];
            });
            assert_eq!(agreed.len(), 1, "{cipher} {bits} {integrity:?}");
        }
    }
}

/// An IKE SA with these algorithms would send everything in clear, or messages without an IV.
// RFC 7296 R253
#[test]
fn what_is_not_for_ike_makes_no_ike_sa() {
    for &cipher in Encryption::ALL.iter().filter(|cipher| !cipher.for_ike()) {
        let proposal = IkeProposal {
            encryption: vec![(cipher, cipher.key_bits()[0])],
            integrity: match cipher.is_aead() {
                true => Vec::new(),
                false => vec![Integrity::HmacSha2_256_128],
            },
            ..ike_proposal()
        };
        let mut pair = Pair::with(|a, b| {
            a.proposals = vec![proposal.clone()];
            b.proposals = vec![proposal.clone()];
        });
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(0, 0);
    }
}

#[test]
fn esp_and_ah_do_not_meet() {
    let esp = esp_proposal();
    let ah = EspProposal {
        encryption: Vec::new(),
        integrity: vec![Integrity::HmacSha2_256_128],
        ..esp_proposal()
    };
    let agreed = negotiate(|a, b| {
        offer(a, &ah);
        offer(b, &esp);
    });
    assert_eq!(agreed, []);
}
