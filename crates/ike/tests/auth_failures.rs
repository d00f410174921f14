//! Every reason for which IKE_AUTH fails, at both ends, and what the administrator is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::script::{SPI, Script, error_of};
use crate::common::*;
use esplanade_crypto::iana::{Encryption, Group, Prf};
use esplanade_ike::auth::{CredentialError, IdentityError, PeerAuthError};
use esplanade_ike::config::{
    AddressMatch, Childless, Config, Connection, LocalMethod, RemoteMethod, Secret, Unique,
};
use esplanade_ike::failure::{AuthFailure, ChildResponseFault, ConfigurationFault, Shortage};
use esplanade_ike::suite::{
    DiffieHellman, IkeSaKeys, KeyExchange, KeyExchangeMethods, Nonces, Role, Suite,
};
use esplanade_ike::wire::{
    Auth, AuthMethod, ExchangeType, Header, Id, IdType, KePayload, Message, Notify, NotifyType,
    Payload, PayloadType,
};
use esplanade_ike::{ChildFailure, DownReason, Event, Refusal};
use esplanade_pki::{Authorities, Certificate, RevocationPolicy};
use esplanade_testkit::certificate_file as file;
use esplanade_testkit::net::Conditions;

const SECOND: Duration = Duration::from_secs(1);
const KEY: &[u8] = b"a shared secret";
const OF_CHILD: [PayloadType; 3] = [PayloadType::SA, PayloadType::TSI, PayloadType::TSR];

fn name(text: &str) -> Id {
    id(text).to_payload().unwrap()
}

/// An identity of a type that is not supported.
fn null() -> Id {
    Id::new(IdType::NULL, Vec::new())
}

fn rsa() -> Auth {
    Auth {
        method: AuthMethod::RSA_SIGNATURE,
        data: vec![1; 256],
    }
}

/// B accepts those that show a certificate.
fn by_certificate(connection: &mut Connection) {
    let root = Certificate::from_file_content(file!("root.pem")).unwrap();
    connection.remote.method = RemoteMethod::Certificate {
        authorities: Arc::new(Authorities::new(&root).unwrap()),
        pinned: vec![],
        rules: Arc::default(),
        revocation: RevocationPolicy::Relaxed,
    };
}

/// Sends IKE_AUTH, changed by `bend`, as an initiator with this identity and address.
fn authenticate(
    side: &mut Side,
    now: Instant,
    (spi, from, id): (u64, &str, Id),
    bend: impl FnOnce(&mut Vec<Payload>),
) -> Option<NotifyType> {
    let mut script = Script::new();
    script.spi_i = SPI + spi;
    script.id = id;
    script.local.set_ip(from.parse().unwrap());
    let payloads = script.init_payloads();
    script.init(side, now, payloads).unwrap();
    let mut payloads = script.auth_payloads(KEY);
    bend(&mut payloads);
    let answer = script.exchange(side, now, ExchangeType::IKE_AUTH, &payloads);
    error_of(&answer.expect("a response"))
}

/// What B has told of refused peers.
fn told(side: &Side) -> Vec<(Refusal, String)> {
    let refused = side.events.iter().filter_map(|event| match event {
        Event::Refused(refused) => Some((refused.refusal, refused.why.clone())),
        _ => None,
    });
    refused.collect()
}

/// B refuses an initiator for this reason, and tells it.
fn refused(
    change: impl FnOnce(&mut Config),
    id: Id,
    bend: impl FnOnce(&mut Vec<Payload>),
    expected: &AuthFailure,
) {
    let (mut side, now) = b_with(change);
    let error = authenticate(&mut side, now, (0, A, id), bend);
    check_refusal(&side, error, expected);
    assert!(side.endpoint.status().is_empty());
}

fn check_refusal(side: &Side, error: Option<NotifyType>, expected: &AuthFailure) {
    let (refusal, kind) = match expected {
        AuthFailure::MissingPayload | AuthFailure::NoChildSa | AuthFailure::ChildSaProposed => {
            (Refusal::InvalidSyntax, NotifyType::INVALID_SYNTAX)
        }
        AuthFailure::NoConnection(_) => (Refusal::NoConnection, NotifyType::AUTHENTICATION_FAILED),
        AuthFailure::TooManyIkeSas => (Refusal::IkeSaLimit, NotifyType::AUTHENTICATION_FAILED),
        AuthFailure::AlreadyConnected => (Refusal::Duplicate, NotifyType::AUTHENTICATION_FAILED),
        _ => (
            Refusal::AuthenticationFailed,
            NotifyType::AUTHENTICATION_FAILED,
        ),
    };
    assert_eq!(told(side), [(refusal, expected.to_string())]);
    assert_eq!((error, side.refused(refusal)), (Some(kind), 1));
}

fn of_b(change: impl FnOnce(&mut Connection)) -> impl FnOnce(&mut Config) {
    |config| change_connection(config, change)
}

#[test]
fn a_responder_tells_what_is_missing_in_a_request() {
    let a = || name("a.example");
    let without = |kinds: &'static [PayloadType]| {
        move |payloads: &mut Vec<Payload>| {
            payloads.retain(|payload| !kinds.contains(&payload.kind()));
        }
    };
    let eap = &AuthFailure::EapRequested;
    refused(|_| {}, a(), without(&[PayloadType::AUTH]), eap);
    let missing = &AuthFailure::MissingPayload;
    refused(|_| {}, a(), without(&[PayloadType::IDI]), missing);
    refused(|_| {}, a(), without(&[PayloadType::TSI]), missing);
    let both = &[PayloadType::IDI, PayloadType::AUTH];
    refused(|_| {}, a(), without(both), missing);
    let never = of_b(|b| b.childless = Childless::Never);
    refused(never, a(), without(&OF_CHILD), &AuthFailure::NoChildSa);
    let force = of_b(|b| b.childless = Childless::Force);
    refused(force, a(), |_| {}, &AuthFailure::ChildSaProposed);
}

/// Another connection has announced IKE SAs without a child in IKE_SA_INIT, where nobody knows the peer yet.
#[test]
fn a_connection_that_wants_a_child_is_not_opened_by_the_announcement_of_another() {
    let change = |config: &mut Config| {
        let mut never = (*config.connections[0]).clone();
        never.childless = Childless::Never;
        let mut announces = never.clone();
        announces.name = "announces".to_owned();
        announces.childless = Childless::Allow;
        announces.remote.id = id("c.example");
        config.connections = vec![announces.into(), never.into()];
    };
    let childless = |payloads: &mut Vec<Payload>| {
        payloads.retain(|payload| !OF_CHILD.contains(&payload.kind()));
    };
    let expected = &AuthFailure::NoChildSa;
    refused(change, name("a.example"), childless, expected);
}

#[test]
fn a_responder_tells_whose_identity_it_does_not_take() {
    let anybody = || of_b(|b| b.remote.id = id("%any"));
    let unsupported = AuthFailure::InvalidIdentity(IdentityError::Type(IdType::NULL));
    refused(anybody(), null(), |_| {}, &unsupported);
    let idr = |payloads: &mut Vec<Payload>| payloads.insert(1, Payload::IdR(null()));
    refused(anybody(), name("a.example"), idr, &unsupported);
    let own = AuthFailure::OwnIdentity(Box::new(id("b.example")));
    refused(anybody(), name("b.example"), |_| {}, &own);
    let unknown = AuthFailure::NoConnection(Box::new(id("c.example")));
    refused(|_| {}, name("c.example"), |_| {}, &unknown);
    let other = |payloads: &mut Vec<Payload>| payloads.insert(1, Payload::IdR(name("d.example")));
    let unknown = AuthFailure::NoConnection(Box::new(id("a.example")));
    refused(|_| {}, name("a.example"), other, &unknown);
}

#[test]
fn a_responder_tells_why_a_proof_does_not_count() {
    let a = || name("a.example");
    let sign = |payloads: &mut Vec<Payload>| payloads[1] = Payload::Auth(rsa());
    let no_psk = AuthFailure::NotPsk(AuthMethod::RSA_SIGNATURE);
    refused(|_| {}, a(), sign, &no_psk);
    let method = PeerAuthError::Method(AuthMethod::SHARED_KEY);
    let no_signature = AuthFailure::Certificate(Box::new(method));
    refused(of_b(by_certificate), a(), |_| {}, &no_signature);
    let no_certificate = AuthFailure::Certificate(Box::new(PeerAuthError::NoCertificate));
    refused(of_b(by_certificate), a(), sign, &no_certificate);
    let no_secret = AuthFailure::NoSecret {
        local: Box::new(id("b.example")),
        remote: Box::new(id("a.example")),
    };
    refused(|config| config.secrets.clear(), a(), |_| {}, &no_secret);
    let spoil = |payloads: &mut Vec<Payload>| {
        let Payload::Auth(auth) = &mut payloads[1] else {
            panic!("{payloads:?}")
        };
        auth.data[0] ^= 1;
    };
    refused(|_| {}, a(), spoil, &AuthFailure::PskMismatch);
}

/// The responder is sure of the peer, and has nothing to prove itself with.
#[test]
fn a_responder_without_a_proof_of_its_own_says_so() {
    let change = of_b(|b| b.local.method = LocalMethod::Signature(vec![]));
    let none = AuthFailure::Credential(Box::new(CredentialError::NoCredential));
    refused(change, name("a.example"), |_| {}, &none);
}

#[test]
fn a_second_ike_sa_is_refused_where_the_configuration_says_so() {
    let id = || name("a.example");
    let (mut side, now) = b_with(|config| config.limits.ike_sas_per_peer_max = 1);
    assert_eq!(authenticate(&mut side, now, (0, A, id()), |_| {}), None);
    let error = authenticate(&mut side, now, (1, A, id()), |_| {});
    check_refusal(&side, error, &AuthFailure::TooManyIkeSas);
    let (mut side, now) = b_with(of_b(|b| {
        b.unique = Unique::Keep;
        b.remote_addrs = vec![AddressMatch::Any];
    }));
    assert_eq!(authenticate(&mut side, now, (0, A, id()), |_| {}), None);
    let error = authenticate(&mut side, now, (1, "192.0.2.2", id()), |_| {});
    check_refusal(&side, error, &AuthFailure::AlreadyConnected);
    assert_eq!(side.endpoint.status().len(), 1, "the first one stays");
}

/// B has as many connections for anybody, each with its own identity and secret.
fn many(count: usize) -> impl FnOnce(&mut Config) {
    let own = |number: usize| format!("gw{number}.example");
    move |config| {
        let first = (*config.connections[0]).clone();
        let connection = |number| {
            let mut connection = first.clone();
            connection.name = format!("site{number}");
            connection.local.id = id(&own(number));
            connection.remote.id = id("%any");
            Arc::new(connection)
        };
        config.connections = (0..count).map(connection).collect();
        let secret = |number| Secret {
            owners: vec![id(&own(number))],
            key: Arc::new(format!("secret {number}").as_bytes().into()),
        };
        config.secrets = (0..count).map(secret).collect();
    }
}

#[test]
fn each_connection_says_why_it_does_not_accept_the_peer() {
    let mismatch = |number: usize| (format!("site{number}"), AuthFailure::PskMismatch);
    let a = || name("a.example");
    let two = AuthFailure::NoneAccepts((0..2).map(mismatch).collect());
    refused(many(2), a(), |_| {}, &two);
    let eight = (0..8).map(mismatch).collect();
    refused(many(16), a(), |_| {}, &AuthFailure::NoneAccepts(eight));
    // The administrator must know that the others were not asked.
    let mut reasons: Vec<_> = (0..8).map(mismatch).collect();
    reasons.push(("site16".to_owned(), AuthFailure::TooManyPsks));
    refused(many(40), a(), |_| {}, &AuthFailure::NoneAccepts(reasons));
}

/// A responder whose IKE_AUTH the test makes. A has sent its IKE_AUTH.
struct Responder {
    keys: IkeSaKeys,
    /// The response to IKE_SA_INIT, and the initiator's nonce.
    response: Vec<u8>,
    nonce_i: Vec<u8>,
    /// A's IKE_AUTH.
    request: Message,
}

fn local() -> SocketAddr {
    format!("{A}:500").parse().unwrap()
}

fn remote() -> SocketAddr {
    format!("{B}:500").parse().unwrap()
}

/// The keys of A, which has sent `request`, and the response that makes them.
fn answer_init(request: &[u8], more: Option<Payload>) -> (IkeSaKeys, Vec<u8>, Vec<u8>) {
    let request = Message::decode(request).unwrap();
    let (mut offer, mut public, mut nonce_i) = (None, None, None);
    for payload in &request.payloads {
        match payload {
            Payload::Sa(proposals) => offer = Some(proposals.clone()),
            Payload::Ke(ke) => public = Some(ke.data.clone()),
            Payload::Nonce(nonce) => nonce_i = Some(nonce.clone()),
            _ => {}
        }
    }
    let group = Group::Curve25519;
    let answer = DiffieHellman.answer(group, &public.unwrap()).unwrap();
    let (nonce_i, nonce_r) = (nonce_i.unwrap(), vec![0x29; 32]);
    let header = Header {
        responder_spi: 0x7e59_0de2,
        from_initiator: false,
        response: true,
        ..request.header
    };
    let key = KePayload {
        method: group.number(),
        data: answer.data,
    };
    let mut payloads = vec![Payload::Sa(offer.unwrap()), Payload::Ke(key)];
    payloads.push(Payload::Nonce(nonce_r.clone()));
    payloads.extend(more);
    let response = Message { header, payloads }.encode().unwrap();
    let suite = Suite {
        encryption: Encryption::AesGcm16,
        key_bits: 128,
        integrity: None,
        prf: Prf::HmacSha2_256,
        key_exchanges: KeyExchangeMethods::one(group),
    };
    let nonces = Nonces {
        initiator: &nonce_i,
        responder: &nonce_r,
    };
    let spis = (header.initiator_spi, header.responder_spi);
    let keys = IkeSaKeys::derive(suite, &answer.shared, nonces, spis.0, spis.1);
    (keys, response, nonce_i)
}

fn a_with(change: impl FnOnce(&mut Config)) -> (Side, Instant) {
    let mut a = config(default_configs().0);
    change(&mut a);
    let now = Instant::now();
    (Side::new("a", A, a, now, 7), now)
}

impl Responder {
    fn meet(side: &mut Side, now: Instant) -> Self {
        side.endpoint.initiate(now, "site", None).unwrap();
        let request = Script::take(side).pop().unwrap();
        let (keys, response, nonce_i) = answer_init(&request, None);
        let endpoint = &mut side.endpoint;
        endpoint.handle_datagram(now, local(), remote(), &response);
        let request = Script::take(side).pop().unwrap();
        let request = keys.opener(Role::Responder).open(&request).unwrap();
        Self {
            keys,
            response,
            nonce_i,
            request,
        }
    }

    fn proof(&self, id: Id) -> Vec<Payload> {
        let octets = self
            .keys
            .signed_octets(Role::Responder, &self.response, &self.nonce_i, &id);
        let data = self.keys.psk_auth(&KEY.into(), &octets);
        let auth = Auth {
            method: AuthMethod::SHARED_KEY,
            data: data.expose().to_vec(),
        };
        vec![Payload::IdR(id), Payload::Auth(auth)]
    }

    /// Answers IKE_AUTH. Returns what A sends then.
    fn answer(&self, side: &mut Side, now: Instant, payloads: &[Payload]) -> Vec<Message> {
        let header = Header {
            from_initiator: false,
            response: true,
            ..self.request.header
        };
        let mut sealer = self.keys.sealer(Role::Responder);
        let response = sealer.seal(&header, payloads).unwrap();
        let endpoint = &mut side.endpoint;
        endpoint.handle_datagram(now, local(), remote(), &response);
        let opener = self.keys.opener(Role::Responder);
        let sent = Script::take(side);
        sent.iter().map(|one| opener.open(one).unwrap()).collect()
    }
}

/// The reasons for which A has failed to connect.
fn failures(side: &Side) -> Vec<DownReason> {
    let failed = side.events.iter().filter_map(|event| match event {
        Event::ConnectFailed { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    failed.collect()
}

#[test]
fn an_initiator_tells_why_it_does_not_take_the_responder() {
    let other = AuthFailure::OtherPeer {
        actual: Box::new(id("c.example")),
        expected: Box::new(id("b.example")),
    };
    let signed = vec![Payload::IdR(name("b.example")), Payload::Auth(rsa())];
    type Answer = Box<dyn Fn(&Responder) -> Vec<Payload>>;
    let cases: [(Answer, AuthFailure); 6] = [
        (Box::new(|_| vec![]), AuthFailure::NoProof),
        (
            Box::new(|responder| responder.proof(name("b.example"))[..1].to_vec()),
            AuthFailure::NoProof,
        ),
        (
            Box::new(|responder| responder.proof(null())),
            AuthFailure::InvalidIdentity(IdentityError::Type(IdType::NULL)),
        ),
        (
            Box::new(|responder| responder.proof(name("c.example"))),
            other,
        ),
        (
            Box::new(move |_| signed.clone()),
            AuthFailure::NotPsk(AuthMethod::RSA_SIGNATURE),
        ),
        (
            Box::new(|responder| {
                let mut proof = responder.proof(name("c.example"));
                proof[0] = Payload::IdR(name("b.example"));
                proof
            }),
            AuthFailure::PskMismatch,
        ),
    ];
    for (answer, expected) in cases {
        let (mut side, now) = a_with(|_| {});
        let responder = Responder::meet(&mut side, now);
        let mut payloads = answer(&responder);
        payloads.extend(Script::child_payloads());
        let sent = responder.answer(&mut side, now, &payloads);
        let reason = DownReason::AuthenticationFailed(expected);
        assert_eq!(failures(&side), [reason]);
        // The responder takes the IKE SA for established (RFC 7296 §2.21.2).
        let [message] = &sent[..] else {
            panic!("{sent:?}")
        };
        assert_eq!(error_of(message), Some(NotifyType::AUTHENTICATION_FAILED));
    }
}

/// The IKE SA stands, and the child is not made.
#[test]
fn a_responder_that_answers_nothing_about_the_child_is_told_of() {
    let (mut side, now) = a_with(|_| {});
    let responder = Responder::meet(&mut side, now);
    let payloads = responder.proof(name("b.example"));
    assert!(responder.answer(&mut side, now, &payloads).is_empty());
    let failed = side.events.iter().find_map(|event| match event {
        Event::ChildFailed { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let silent = ChildResponseFault::NeitherMadeNorRefused;
    assert_eq!(failed, Some(ChildFailure::PeerMisbehaved(silent)));
    assert_eq!((side.ike_sas().len(), failures(&side)), (1, vec![]));
    assert!(side.spis.0.lock().unwrap().used.is_empty());
}

/// The responder can end the IKE SA when that time is over (RFC 4478 §2).
#[test]
fn a_responder_says_for_how_long_the_authentication_holds() {
    let (mut side, now) = a_with(|_| {});
    let responder = Responder::meet(&mut side, now);
    let mut payloads = responder.proof(name("b.example"));
    let data = 600_u32.to_be_bytes().to_vec();
    payloads.push(Payload::Notify(Notify::new(
        NotifyType::AUTH_LIFETIME,
        data,
    )));
    responder.answer(&mut side, now, &payloads);
    let status = side.endpoint.status();
    let (again, end) = (status[0].reauth_at.unwrap(), status[0].expires_at.unwrap());
    assert_eq!(end - now, 600 * SECOND);
    assert!(again > now + 500 * SECOND && again <= now + 540 * SECOND);
}

/// A cannot begin IKE_AUTH, or cannot propose. It sends nothing more.
fn gives_up(change: impl FnOnce(&mut Config), expected: &DownReason) {
    let (a, b) = default_configs();
    let (mut a, b) = (config(a), config(b));
    change(&mut a);
    let mut pair = Pair::new(a, b, Conditions::PERFECT, 1);
    pair.initiate();
    pair.run(SECOND);
    assert_eq!(failures(&pair.a), std::slice::from_ref(expected));
    assert!(pair.a.endpoint.status().is_empty());
    assert!(pair.a.sent.len() < 2, "{}", pair.a.sent.len());
}

#[test]
fn an_initiator_tells_what_its_configuration_lacks() {
    let authentication =
        |failure| DownReason::Configuration(ConfigurationFault::Authentication(failure));
    let no_secret = AuthFailure::NoSecret {
        local: Box::new(id("a.example")),
        remote: Box::new(id("b.example")),
    };
    gives_up(|a| a.secrets.clear(), &authentication(no_secret));
    let none = AuthFailure::Credential(Box::new(CredentialError::NoCredential));
    gives_up(
        |a| change_connection(a, |a| a.local.method = LocalMethod::Signature(vec![])),
        &authentication(none),
    );
    let no_method = ConfigurationFault::NoKeyExchangeMethod;
    gives_up(
        |a| change_connection(a, |a| a.proposals[0].groups.clear()),
        &DownReason::Configuration(no_method),
    );
}

/// Much work with public keys waits for a thread, so that there is no room for our signature.
#[test]
fn an_initiator_gives_up_where_too_much_work_waits() {
    let peer = |number: usize| format!("203.0.113.{number}");
    let mut a = default_configs().0;
    a.local.method = LocalMethod::Signature(vec![]);
    let of = |number: usize| {
        let mut connection = a.clone();
        connection.name = peer(number);
        connection.remote_addrs = vec![AddressMatch::Host(peer(number).parse().unwrap())];
        Arc::new(connection)
    };
    let mut config = config(a.clone());
    config.connections = (1..200).map(of).collect();
    let now = Instant::now();
    let mut side = Side::with_host("a", A, config, now, 7, |host| host.runs_jobs = false);
    let mut first = None;
    for number in 1..200 {
        side.endpoint.initiate(now, &peer(number), None).unwrap();
        let request = Script::take(&mut side).pop().unwrap();
        let (_, response, _) = answer_init(&request, Some(Payload::Vendor(vec![0; 60_000])));
        let from = format!("{}:500", peer(number)).parse().unwrap();
        let endpoint = &mut side.endpoint;
        endpoint.handle_datagram(now, local(), from, &response);
        // A thread works on the first key exchange while the responses to the others come in.
        first = first.or_else(|| endpoint.poll_job(now));
    }
    assert!(side.refused(Refusal::JobQueueFull) > 0);
    let done = first.expect("a job").run();
    side.endpoint.job_done(now, done, Duration::ZERO);
    Script::take(&mut side);
    assert_eq!(failures(&side), [DownReason::Resources(Shortage::Jobs)]);
}
