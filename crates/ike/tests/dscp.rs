//! The DSCP of IKE messages (`dscp` of a connection).

use std::time::Duration;

use crate::common::script::{Script, error_of};
use crate::common::*;
use esplanade_ike::wire::NotifyType;
use esplanade_testkit::net::Conditions;

const CS6: u8 = 48;
const EF: u8 = 46;

fn dscps(side: &Side) -> Vec<u8> {
    let mut dscps: Vec<_> = side.sent.iter().map(|sent| sent.dscp).collect();
    dscps.dedup();
    dscps
}

#[test]
fn every_message_of_a_connection_has_its_dscp() {
    let mut pair = Pair::with(|a, b| {
        a.dscp = CS6;
        b.dscp = EF;
        b.encap = true;
    });
    pair.initiate();
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    pair.collide();
    // Requests and responses that are sent again have it too.
    let sent = [&pair.a, &pair.b].map(|side| side.sent.len());
    pair.b.dead = true;
    pair.a
        .endpoint
        .rekey(pair.now, "site", Some("net"))
        .unwrap();
    pair.flush();
    pair.run(Duration::from_secs(20));
    pair.b.dead = false;
    pair.run(Duration::from_secs(60));
    assert!(pair.a.sent.len() > sent[0] + 1 && pair.b.sent.len() > sent[1]);
    pair.a.endpoint.terminate_all(pair.now);
    pair.flush();
    pair.run(Duration::from_secs(5));
    assert_eq!((dscps(&pair.a), dscps(&pair.b)), (vec![CS6], vec![EF]));
    let ports: Vec<_> = pair.a.sent.iter().map(|sent| sent.local.port()).collect();
    assert!(ports.contains(&500) && ports.contains(&4500));
}

#[test]
fn a_repeated_response_has_it() {
    let (mut b, now) = b_with(|b| change_connection(b, |b| b.dscp = EF));
    let mut script = Script::new();
    let payloads = script.init_payloads();
    script.init(&mut b, now, payloads).unwrap();
    let request = script.request.clone();
    let (remote, local) = (script.remote, script.local);
    for _ in 0..2 {
        b.endpoint.handle_datagram(now, remote, local, &request);
        let again = b.endpoint.poll_transmit().unwrap();
        assert_eq!(again.dscp, EF);
    }
}

#[test]
fn the_connection_that_the_peer_turns_out_to_mean_decides() {
    let (a, mut second) = default_configs();
    let mut first = second.clone();
    first.name = "first".to_owned();
    first.remote.id = id("other.example");
    first.dscp = CS6;
    second.dscp = EF;
    let mut b = config(first);
    b.connections.push(second.into());
    let mut pair = Pair::new(config(a), b, Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(Duration::from_secs(1));
    pair.assert_agreed(1, 1);
    assert_eq!(dscps(&pair.b), [CS6, EF]);
    assert_eq!(dscps(&pair.a), [0]);
}

#[test]
fn answers_outside_an_ike_sa_have_none() {
    let (mut b, now) = b_with(|b| {
        change_connection(b, |b| {
            b.dscp = EF;
            b.proposals[0].encryption[0].1 = 256;
        });
    });
    let mut script = Script::new();
    let payloads = script.init_payloads();
    let (remote, local) = (script.remote, script.local);
    let answer = script.init(&mut b, now, payloads);
    assert_eq!(
        answer.as_ref().and_then(error_of),
        Some(NotifyType::NO_PROPOSAL_CHOSEN)
    );
    let request = script.request.clone();
    b.endpoint.handle_datagram(now, remote, local, &request);
    assert_eq!(b.endpoint.poll_transmit().unwrap().dscp, 0);
}
