//! AUTH over both messages of IKE_SA_INIT (draft-ietf-ipsecme-ikev2-downgrade-prevention).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::common::script::{Script, error_of};
use crate::common::wiretap::Broken;
use crate::common::*;
use esplanade_crypto::iana::{Encryption, Group, Prf};
use esplanade_crypto::secret::Secret;
use esplanade_ike::config::{AddressMatch, Credential, Identity, LocalMethod, RemoteMethod};
use esplanade_ike::failure::{AuthFailure, UnusableResponse};
use esplanade_ike::suite::{IkeSaKeys, KeyExchangeMethods, Nonces, Role, Suite};
use esplanade_ike::wire::{
    ExchangeType, Message, Notify, NotifyType, Payload, PayloadType, ProtocolId,
};
use esplanade_ike::{Config, DownReason, Event, Refusal};
use esplanade_pki::{Authorities, Certificate, RevocationPolicy};
use esplanade_testkit::certificate_file as file;
use esplanade_testkit::net::{Conditions, Datagram};

const NOTIFY: NotifyType = NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH;
const SECOND: Duration = Duration::from_secs(1);

fn announcement() -> Payload {
    Payload::Notify(Notify::new(NOTIFY, vec![]))
}

/// Two ends, of which each announces it or not.
fn pair(change: impl FnOnce(&mut Config, &mut Config)) -> Pair {
    let (a, b) = default_configs();
    let (mut a, mut b) = (config(a), config(b));
    change(&mut a, &mut b);
    Pair::new(a, b, Conditions::PERFECT, 1)
}

/// The status of the IKE SAs of an end.
fn full(side: &Side) -> Vec<bool> {
    let status = side.endpoint.status();
    status.iter().map(|sa| sa.full_transcript).collect()
}

fn init_of(datagram: &[u8]) -> Option<Message> {
    Message::decode(datagram)
        .ok()
        .filter(|message| message.header.exchange == ExchangeType::IKE_SA_INIT)
}

/// The messages of IKE_SA_INIT that an end has sent.
fn inits(side: &Side) -> Vec<Message> {
    let sent = side.sent.iter();
    sent.filter_map(|sent| init_of(&sent.payload)).collect()
}

fn failure(side: &Side) -> Option<&DownReason> {
    side.events.iter().find_map(|event| match event {
        Event::ConnectFailed { reason, .. } | Event::IkeSaDown { reason, .. } => Some(reason),
        _ => None,
    })
}

#[test]
fn it_is_used_where_both_ends_announce_it_and_outlives_a_rekey() {
    for (a, b) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut pair = pair(|config_a, config_b| {
            config_a.full_transcript_auth = a;
            config_b.full_transcript_auth = b;
        });
        pair.initiate();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        for (side, announced) in [(&pair.a, a), (&pair.b, b)] {
            let [init] = &inits(side)[..] else {
                panic!("one message of IKE_SA_INIT");
            };
            // The responder announces it even if the initiator did not.
            let expected = Notify::new(NOTIFY, vec![]);
            let expected = announced.then_some(&expected);
            assert_eq!(init.notification(NOTIFY), expected);
            assert_eq!(full(side), [a && b]);
            let up = side.events.iter().find_map(|event| match event {
                Event::IkeSaUp(up) => Some(up.full_transcript),
                _ => None,
            });
            assert_eq!(up, Some(a && b));
        }
        pair.b.endpoint.rekey(pair.now, "site", None).unwrap();
        pair.flush();
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        assert_eq!((full(&pair.a), full(&pair.b)), (vec![a && b], vec![a && b]));
        pair.assert_clean_end();
    }
}

/// A cookie and another group each make the initiator send its request again.
#[test]
fn the_last_messages_count() {
    let mut pair = pair(|config_a, config_b| {
        config_b.limits.cookie_threshold = 0;
        change_connection(config_a, |a| {
            a.proposals[0].groups = vec![Group::Ecp256, Group::Curve25519];
        });
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    let requests = inits(&pair.a);
    assert!(requests.len() >= 3, "{}", requests.len());
    assert!(
        requests
            .iter()
            .all(|init| init.notification(NOTIFY).is_some())
    );
    assert_eq!((full(&pair.a), full(&pair.b)), (vec![true], vec![true]));
}

/// A change of the configuration amid the attempt does not count for the attempt.
#[test]
fn the_request_decides_and_not_a_later_configuration() {
    for before in [true, false] {
        let mut pair = pair(|a, _| a.full_transcript_auth = before);
        pair.initiate();
        let mut other = config(default_configs().0);
        other.full_transcript_auth = !before;
        pair.a.endpoint.set_config(other);
        pair.run(SECOND);
        pair.assert_agreed(1, 1);
        assert_eq!(full(&pair.a), [before]);
    }
}

/// Octets that the test puts together from the messages.
#[test]
fn both_ends_sign_the_zero_prefix_and_both_messages() {
    for announced in [true, false] {
        let (mut side, now) = b_with(|_| {});
        let mut script = Script::new();
        let mut payloads = script.init_payloads();
        payloads.extend(announced.then(announcement));
        script.init(&mut side, now, payloads).unwrap();
        assert_eq!(script.full_transcript, announced);
        let payloads = script.auth_payloads(b"a shared secret");
        let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
        let answer = answer.unwrap();
        let [Payload::IdR(id), Payload::Auth(auth), ..] = &answer.payloads[..] else {
            panic!("{answer:?}");
        };
        assert_eq!(
            *auth,
            script.psk_auth(Role::Responder, id, b"a shared secret")
        );
        assert_eq!(full(&side), [announced]);
    }
}

/// An initiator that signs only its own message, after both ends have announced more.
#[test]
fn the_own_message_alone_is_not_enough() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::new();
    let mut payloads = script.init_payloads();
    payloads.push(announcement());
    script.init(&mut side, now, payloads).unwrap();
    script.full_transcript = false;
    let payloads = script.auth_payloads(b"a shared secret");
    let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
    let error = error_of(&answer.unwrap());
    assert_eq!(error, Some(NotifyType::AUTHENTICATION_FAILED));
    assert!(side.ike_sas().is_empty());
}

fn without_announcement(message: &mut Message) {
    let is_it =
        |payload: &Payload| matches!(payload, Payload::Notify(notify) if notify.kind == NOTIFY);
    message.payloads.retain(|payload| !is_it(payload));
}

fn with_announcement(message: &mut Message) {
    message.payloads.push(announcement());
}

/// Leaves the weakest cipher of the offer.
fn weakened(message: &mut Message) {
    for payload in &mut message.payloads {
        if let Payload::Sa(proposals) = payload {
            proposals.retain(|proposal| proposal.number == 2);
        }
    }
}

/// Changes the messages of IKE_SA_INIT. `request` says which of the two.
fn attacker(request: bool, change: fn(&mut Message)) -> impl FnMut(&mut Datagram) {
    move |datagram| {
        if let Some(mut message) = init_of(&datagram.payload)
            && message.header.response != request
        {
            change(&mut message);
            datagram.payload = message.encode().unwrap();
        }
    }
}

/// The ends take AES-GCM with 256 or 128 bits.
fn take_two_ciphers(a: &mut Config, b: &mut Config) {
    for config in [a, b] {
        change_connection(config, |one| {
            let mut strong = ike_proposal();
            strong.encryption = vec![(Encryption::AesGcm16, 256)];
            one.proposals.insert(0, strong);
        });
    }
}

#[test]
fn an_attacker_who_knows_no_key_gets_no_ike_sa() {
    type Change = fn(&mut Message);
    let nothing: Change = |_| {};
    for (a, b, on_request, on_response) in [
        // One or both announcements are taken away.
        (true, true, without_announcement as Change, nothing),
        (true, true, nothing, without_announcement),
        (true, true, without_announcement, without_announcement),
        // Announcements that an end did not make.
        (false, true, with_announcement, nothing),
        (true, false, nothing, with_announcement),
        (false, false, with_announcement, with_announcement),
        // The strong proposal is taken away, with the announcements and without.
        (true, true, weakened, nothing),
        (false, false, weakened, nothing),
    ] {
        for responder_is_a in [false, true] {
            let mut pair = pair(|config_a, config_b| {
                take_two_ciphers(config_a, config_b);
                config_a.full_transcript_auth = a;
                config_b.full_transcript_auth = b;
            });
            let mut of_request = attacker(true, on_request);
            let mut of_response = attacker(false, on_response);
            pair.attacker = Some(Box::new(move |datagram| {
                of_request(datagram);
                of_response(datagram);
            }));
            let initiator = match responder_is_a {
                true => &mut pair.b,
                false => &mut pair.a,
            };
            initiator.endpoint.initiate(pair.now, "site", None).unwrap();
            pair.flush();
            pair.run(60 * SECOND);
            pair.assert_agreed(0, 0);
            assert!(
                [&pair.a, &pair.b]
                    .iter()
                    .any(|side| { side.refused(Refusal::AuthenticationFailed) == 1 })
            );
            pair.assert_clean_end();
        }
    }
}

#[test]
fn an_initiator_that_requires_it_says_why_it_gives_up() {
    let mut pair = pair(|a, b| {
        change_connection(a, |a| a.full_transcript_required = true);
        b.full_transcript_auth = false;
    });
    pair.initiate();
    pair.run(60 * SECOND);
    pair.assert_agreed(0, 0);
    let why = DownReason::UnusableResponse(UnusableResponse::NoFullTranscript);
    assert_eq!(failure(&pair.a), Some(&why));
    assert!(why.to_string().contains("full_transcript_auth = require"));
    assert!(pair.b.events.is_empty(), "B has seen no IKE_AUTH");
    pair.assert_clean_end();
}

/// The response without the announcement can be forged, and the right one comes after it.
#[test]
fn a_forged_response_does_not_end_an_attempt_that_requires_it() {
    let mut pair = pair(|a, _| change_connection(a, |a| a.full_transcript_required = true));
    pair.initiate();
    let request = inits(&pair.a).remove(0);
    let mut forged = request.clone();
    forged.header.response = true;
    forged.header.from_initiator = false;
    forged.header.responder_spi = 7;
    without_announcement(&mut forged);
    let payload = forged.encode().unwrap();
    let (a, b) = (&pair.a.sent[0].local, &pair.a.sent[0].remote);
    let (to, from) = (*a, *b);
    pair.network.send(pair.now, Datagram { from, to, payload });
    pair.run(SECOND);
    pair.assert_agreed(1, 1);
    assert_eq!(pair.a.refused(Refusal::UnauthenticatedNotify), 1);
    assert_eq!(full(&pair.a), [true]);
}

#[test]
fn a_responder_that_requires_it_says_why_it_refuses() {
    let mut pair = pair(|a, b| {
        a.full_transcript_auth = false;
        change_connection(b, |b| b.full_transcript_required = true);
    });
    pair.initiate();
    pair.run(SECOND);
    pair.assert_agreed(0, 0);
    let refused = pair.b.events.iter().find_map(|event| match event {
        Event::Refused(refused) => Some(refused),
        _ => None,
    });
    let refused = refused.expect("told");
    assert_eq!(refused.refusal, Refusal::AuthenticationFailed);
    assert_eq!(refused.why, AuthFailure::NoFullTranscript.to_string());
    let told = DownReason::PeerRefused(NotifyType::AUTHENTICATION_FAILED);
    assert_eq!(failure(&pair.a), Some(&told));
    pair.assert_clean_end();
}

/// B has a connection for anybody, which IKE_SA_INIT chooses, and one that the identities choose.
fn b_with_two(of_anybody: bool, of_a: bool) -> (Side, Instant) {
    b_with(|config| {
        let anybody = Arc::make_mut(&mut config.connections[0]);
        anybody.remote_addrs = vec![AddressMatch::Any];
        let mut named = anybody.clone();
        named.name = "named".to_owned();
        anybody.remote.id = Identity::Any;
        anybody.full_transcript_required = of_anybody;
        named.full_transcript_required = of_a;
        config.connections.push(Arc::new(named));
    })
}

/// The connection that is found in IKE_AUTH does not change what IKE_SA_INIT has agreed upon.
#[test]
fn the_choice_of_the_connection_neither_breaks_nor_evades_it() {
    for (of_anybody, of_a) in [(false, false), (false, true), (true, false), (true, true)] {
        for announced in [true, false] {
            let (mut side, now) = b_with_two(of_anybody, of_a);
            let mut script = Script::new();
            let mut payloads = script.init_payloads();
            payloads.extend(announced.then(announcement));
            script.init(&mut side, now, payloads).unwrap();
            assert_eq!(script.full_transcript, announced);
            let payloads = script.auth_payloads(b"a shared secret");
            let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
            let error = error_of(&answer.unwrap());
            // The lax connection for anybody accepts the proof too, and does not get the peer.
            let refused = of_a && !announced;
            let expected = refused.then_some(NotifyType::AUTHENTICATION_FAILED);
            assert_eq!(error, expected);
            assert_eq!(side.ike_sas().len(), usize::from(!refused));
        }
    }
}

/// Data, a protocol and an SPI in the announcement mean nothing, and it may come twice.
#[test]
fn the_announcement_is_known_by_its_type() {
    let (mut side, now) = b_with(|_| {});
    let mut script = Script::new();
    let mut payloads = script.init_payloads();
    payloads.push(Payload::Notify(Notify {
        protocol: ProtocolId::IKE,
        ..Notify::new(NOTIFY, vec![1, 2, 3])
    }));
    payloads.push(announcement());
    script.init(&mut side, now, payloads).unwrap();
    let payloads = script.auth_payloads(b"a shared secret");
    let answer = script.exchange(&mut side, now, ExchangeType::IKE_AUTH, &payloads);
    let kinds: Vec<_> = answer.unwrap().payloads.iter().map(Payload::kind).collect();
    assert!(kinds.contains(&PayloadType::AUTH));
    assert_eq!(full(&side), [true]);
}

/// The attacker chooses the weak cipher for the two ends. It has broken the key exchange and has the private key of A,
/// so that it makes the proof that B expects. It does not have the key of B.
struct Impostor {
    shared: Arc<Mutex<Option<Secret>>>,
    key_of_a: Credential,
    full: bool,
    request: Vec<u8>,
    response: Vec<u8>,
}

impl Impostor {
    fn change(&mut self, datagram: &mut Datagram) {
        match init_of(&datagram.payload) {
            Some(mut request) if !request.header.response => {
                weakened(&mut request);
                datagram.payload = request.encode().unwrap();
                self.request.clone_from(&datagram.payload);
            }
            Some(_) => self.response.clone_from(&datagram.payload),
            None if datagram.from.ip() == A.parse::<std::net::IpAddr>().unwrap() => {
                if let Some(forged) = self.forge_auth(&datagram.payload) {
                    datagram.payload = forged;
                }
            }
            None => {}
        }
    }

    /// Replaces the proof of A in its IKE_AUTH request.
    fn forge_auth(&self, datagram: &[u8]) -> Option<Vec<u8>> {
        const SUITE: Suite = Suite {
            encryption: Encryption::AesGcm16,
            key_bits: 128,
            integrity: None,
            prf: Prf::HmacSha2_256,
            key_exchanges: KeyExchangeMethods::one(Group::Curve25519),
        };
        let [request, response] = [&self.request, &self.response].map(|m| init_of(m).unwrap());
        let nonce = |message: &Message| {
            let mut payloads = message.payloads.iter();
            payloads.find_map(|payload| match payload {
                Payload::Nonce(nonce) => Some(nonce.clone()),
                _ => None,
            })
        };
        let (initiator, responder) = (nonce(&request).unwrap(), nonce(&response).unwrap());
        let nonces = Nonces {
            initiator: &initiator,
            responder: &responder,
        };
        let header = response.header;
        let shared = self.shared.lock().unwrap().clone().unwrap();
        let spis = (header.initiator_spi, header.responder_spi);
        let keys = IkeSaKeys::derive(SUITE, &shared, nonces, spis.0, spis.1);
        let mut message = keys.opener(Role::Responder).open(datagram).ok()?;
        if message.header.exchange != ExchangeType::IKE_AUTH {
            return None;
        }
        let id = message.payloads.iter().find_map(|payload| match payload {
            Payload::IdI(id) => Some(id.clone()),
            _ => None,
        });
        let signed = match self.full {
            true => [&[0; 8], &self.response[..], &self.request].concat(),
            false => self.request.clone(),
        };
        let octets = keys.signed_octets(Role::Initiator, &signed, &responder, &id?);
        let hashes = response.notification(NotifyType::SIGNATURE_HASH_ALGORITHMS);
        let hashes = hashes.unwrap().as_signature_hashes();
        for payload in &mut message.payloads {
            if let Payload::Auth(auth) = payload {
                *auth = self.key_of_a.sign(&hashes, &octets, false).unwrap();
            }
        }
        let mut sealer = keys.sealer(Role::Initiator);
        Some(sealer.seal(&message.header, &message.payloads).unwrap())
    }
}

fn credential_of_a() -> Credential {
    let chain = Certificate::from_file_content(file!("moon-ecdsa256.pem")).unwrap();
    Credential::new(file!("moon-ecdsa256.key"), chain).unwrap()
}

/// A proves itself by its certificate, and B by a key that the attacker does not have.
fn prove_a_by_certificate(a: &mut Config, b: &mut Config) {
    let root = Certificate::from_file_content(file!("root.pem")).unwrap();
    let authorities = Arc::new(Authorities::new(&root).unwrap());
    change_connection(a, |a| {
        a.local.id = id("moon.example.org");
        a.local.method = LocalMethod::Signature(vec![credential_of_a().into()]);
    });
    change_connection(b, |b| {
        b.remote.id = id("moon.example.org");
        b.remote.method = RemoteMethod::Certificate {
            authorities,
            pinned: vec![],
            rules: Arc::default(),
            revocation: RevocationPolicy::Relaxed,
        };
    });
}

/// Without the extension the attack succeeds: A believes the proof of B, which is over the message of B alone.
#[test]
fn the_key_of_one_end_does_not_let_an_attacker_choose_for_the_other() {
    for full in [false, true] {
        let mut config_b = None;
        let mut pair = pair(|a, b| {
            take_two_ciphers(a, b);
            prove_a_by_certificate(a, b);
            a.full_transcript_auth = full;
            config_b = Some(b.clone());
        });
        let shared = Arc::default();
        let broken = Broken(Arc::clone(&shared));
        pair.b = Side::with_host("b", B, config_b.unwrap(), pair.now, 3, |host| {
            host.key_exchange = Arc::new(broken);
        });
        for side in [&mut pair.a, &mut pair.b] {
            let june_2026 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_272_000);
            side.endpoint.set_wall_clock(pair.start, june_2026);
        }
        let mut impostor = Impostor {
            shared,
            key_of_a: credential_of_a(),
            full,
            request: vec![],
            response: vec![],
        };
        pair.attacker = Some(Box::new(move |datagram| impostor.change(datagram)));
        pair.initiate();
        pair.run(60 * SECOND);
        assert_eq!(pair.b.refused(Refusal::AuthenticationFailed), 0);
        if full {
            pair.assert_agreed(0, 0);
            let why = DownReason::AuthenticationFailed(AuthFailure::PskMismatch);
            assert_eq!(failure(&pair.a), Some(&why));
        } else {
            pair.assert_agreed(1, 1);
            let suite = pair.a.endpoint.status()[0].suite.unwrap();
            assert_eq!(suite.key_bits, 128);
        }
    }
}
