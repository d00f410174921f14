//! Whatever arrives, an endpoint neither panics nor loses its SAs.

use std::time::Duration;

use crate::common::script::Script;
use crate::common::*;
use esplanade_ike::wire::{ExchangeType, Header, PayloadType, generators};
use esplanade_testkit::net::{Conditions, Rng};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// A peer that is authenticated sends well-formed payloads that mean nothing, in every exchange.
    #[test]
    fn an_authenticated_peer_that_talks_nonsense_gets_one_answer_at_most(
        messages in prop::collection::vec((33u8..40, generators::payloads()), 1..6),
    ) {
        let (mut b, now) = b_with(|_| ());
        let mut script = Script::established(&mut b, now);
        for (exchange, payloads) in &messages {
            let header = script.header(ExchangeType(*exchange), script.next_id);
            let request = script.seal(&header, payloads);
            let sent = script.send(&mut b, now, &request);
            let own = sent.iter().filter(|datagram| Header::decode(datagram).unwrap().response);
            prop_assert!(own.count() <= 1);
            script.next_id += 1;
        }
        prop_assert!(b.endpoint.status().len() <= 1);
    }
}

// RFC 7296 R63
#[test]
fn noise_and_mutated_messages_change_nothing() {
    let mut pair = Pair::established();
    let before = (pair.a.ike_sas(), pair.a.child_spis());
    let mut rng = Rng::new(42);
    let mut real: Vec<_> = pair.a.sent.iter().chain(&pair.b.sent).cloned().collect();
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    real.extend(pair.a.sent.last().cloned());
    pair.network.clear();
    for round in 0..20_000 {
        let chosen = real[rng.below(real.len() as u64) as usize].clone();
        let mut payload = chosen.payload;
        match rng.below(4) {
            0 => {
                payload = vec![0; rng.below(200) as usize];
                rng.fill(&mut payload);
            }
            1 => payload.truncate(rng.below(payload.len() as u64) as usize),
            _ => {
                for _ in 0..1 + rng.below(8) {
                    let at = rng.below(payload.len() as u64) as usize;
                    payload[at] = rng.next_u64() as u8;
                }
            }
        }
        let (local, remote) = match round % 2 {
            0 => (format!("{A}:500"), format!("{B}:500")),
            _ => (format!("{B}:4500"), format!("{A}:4500")),
        };
        let side = if round % 2 == 0 {
            &mut pair.a
        } else {
            &mut pair.b
        };
        side.endpoint.handle_datagram(
            pair.now,
            local.parse().unwrap(),
            remote.parse().unwrap(),
            &payload,
        );
        let side = if round % 3 == 0 {
            &mut pair.a
        } else {
            &mut pair.b
        };
        let (local, remote) = if round % 3 == 0 { (A, B) } else { (B, A) };
        let address = |text: &str| format!("{text}:500").parse().unwrap();
        side.endpoint
            .handle_datagram(pair.now, address(local), address(remote), &payload);
        while pair.a.endpoint.poll_transmit().is_some() || pair.b.endpoint.poll_transmit().is_some()
        {
        }
    }
    let half_open = pair.b.endpoint.half_open() + pair.a.endpoint.half_open();
    assert!(half_open <= 60, "{half_open}");
    pair.flush();
    pair.run(Duration::from_secs(120));
    assert!(pair.a.ike_sas().is_superset(&before.0), "the SA lives");
    assert_eq!(
        pair.a.children.len(),
        1,
        "the rekey went through in the end"
    );
    assert_ne!(pair.a.child_spis(), before.1);
    pair.assert_clean_end();
}

/// Bytes of fragments are changed before the whole fragments come, in a request and in a response.
// RFC 7383 R19, R20
#[test]
fn changed_fragments_change_nothing() {
    let mut rng = Rng::new(7);
    for round in 0..200 {
        let (a, b) = default_configs();
        let (mut a, mut b) = (config(a), config(b));
        (a.fragment_size, b.fragment_size) = (200, 200);
        let mut pair = Pair::new(a, b, Conditions::PERFECT, round);
        let mut rng = Rng::new(rng.next_u64());
        pair.attacker = Some(Box::new(move |datagram| {
            let first = datagram.payload.get(16).copied();
            let is_fragment = first == Some(PayloadType::SKF.0);
            if is_fragment && rng.chance(0.3) {
                let payload = &mut datagram.payload;
                match rng.below(3) {
                    0 => payload.truncate(rng.below(payload.len() as u64) as usize),
                    1 => payload.push(rng.next_u64() as u8),
                    _ => {
                        let at = rng.below(payload.len() as u64) as usize;
                        payload[at] ^= 1 + rng.below(255) as u8;
                    }
                }
            }
        }));
        pair.initiate();
        pair.run(Duration::from_secs(15));
        pair.attacker = None;
        pair.run(Duration::from_secs(60));
        pair.assert_agreed(1, 1);
        pair.assert_clean_end();
    }
}
