//! Jobs that are run late, in any order, never, or for an SA or a configuration that is gone.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::common::script::{SPI, Script, error_of};
use crate::common::*;
use esplanade_crypto::iana::Group;
use esplanade_ike::config::{AddressMatch, Connection, Credential, LocalMethod, RemoteMethod};
use esplanade_ike::failure::{AuthFailure, Shortage};
use esplanade_ike::jobs::Job;
use esplanade_ike::wire::{
    Auth, AuthMethod, Cert, CertEncoding, ExchangeType, Message, Notify, NotifyType, Payload,
    PayloadType,
};
use esplanade_ike::{Config, DownReason, Event, Refusal};
use esplanade_pki::{Authorities, Certificate, RevocationPolicy};
use esplanade_testkit::certificate_file as file;
use esplanade_testkit::net::{Conditions, Rng};

const SECOND: Duration = Duration::from_secs(1);
/// 2026-06-01.
const NOW: Duration = Duration::from_secs(1_780_272_000);

fn load(pem: &[u8]) -> Vec<Certificate> {
    Certificate::from_file_content(pem).unwrap()
}

/// A side whose jobs the test runs.
fn side(name: &'static str, address: &str, config: Config, now: Instant, seed: u64) -> Side {
    let mut side = Side::with_host(name, address, config, now, seed, |host| {
        host.random = Box::new(SeededRandom(Rng::new(seed)));
        host.runs_jobs = false;
    });
    side.endpoint
        .set_wall_clock(now, SystemTime::UNIX_EPOCH + NOW);
    side
}

/// Both ends have certificates, and children with key exchanges of their own.
fn configs() -> (Connection, Connection) {
    let credential = Credential::new(file!("moon-ecdsa256.key"), load(file!("moon-ecdsa256.pem")));
    let credential = Arc::new(credential.unwrap());
    let authorities = Arc::new(Authorities::new(&load(file!("root.pem"))).unwrap());
    let (mut a, mut b) = default_configs();
    for one in [&mut a, &mut b] {
        one.keyingtries = 0;
        one.remote.id = id("*.example.org");
        one.remote.method = RemoteMethod::Certificate {
            authorities: authorities.clone(),
            pinned: vec![],
            rules: Arc::default(),
            revocation: RevocationPolicy::Relaxed,
        };
        one.local.method = LocalMethod::Signature(vec![credential.clone()]);
        change_children(one, |child| {
            child.esp_proposals[0].groups = vec![Group::Curve25519];
        });
    }
    a.local.id = id("moon.example.org");
    // The certificate names nobody else, so that B answers with a pre-shared key's owner.
    b.local.id = id("b.example");
    b.local.method = LocalMethod::Psk;
    a.remote.id = id("b.example");
    a.remote.method = RemoteMethod::Psk;
    (a, b)
}

/// Threads that take their time.
struct Pool {
    rng: Rng,
    jobs: [Vec<Job>; 2],
    /// The part of the jobs that never ends.
    loss: f64,
}

impl Pool {
    fn new(seed: u64, loss: f64) -> Self {
        Self {
            rng: Rng::new(seed),
            jobs: [Vec::new(), Vec::new()],
            loss,
        }
    }

    /// Takes all jobs, and ends some of them.
    fn work(&mut self, pair: &mut Pair) {
        for (side, jobs) in [&mut pair.a, &mut pair.b].into_iter().zip(&mut self.jobs) {
            while let Some(job) = side.endpoint.poll_job(pair.now) {
                if !self.rng.chance(self.loss) {
                    jobs.push(job);
                }
            }
            while !jobs.is_empty() && self.rng.chance(0.6) {
                let job = jobs.swap_remove(self.rng.below(jobs.len() as u64) as usize);
                side.endpoint.job_done(pair.now, job.run(), SECOND / 1000);
            }
        }
        pair.flush();
    }

    fn run(&mut self, pair: &mut Pair, time: Duration) {
        let until = pair.now + time;
        while pair.now < until {
            let next = (pair.now + SECOND / 50).min(until);
            while pair.step(next) {
                self.work(pair);
            }
            pair.now = next;
            self.work(pair);
        }
    }
}

fn pair(seed: u64, conditions: Conditions) -> Pair {
    let (a, b) = configs();
    let (a, b) = (config(a), config(b));
    let mut pair = Pair::new(a.clone(), b.clone(), conditions, seed);
    pair.a = side("a", A, a, pair.now, 2 * seed + 1);
    pair.b = side("b", B, b, pair.now, 2 * seed + 2);
    pair
}

#[test]
fn late_jobs_have_the_outcome_of_early_ones() {
    for seed in 0..6 {
        let mut pool = Pool::new(seed, 0.0);
        let mut pair = pair(seed, Conditions::PERFECT);
        pair.initiate();
        pool.run(&mut pair, 20 * SECOND);
        pair.assert_agreed(1, 1);
        let child = pair.a.endpoint.rekey(pair.now, "site", Some("net"));
        child.unwrap();
        pool.run(&mut pair, 20 * SECOND);
        pair.assert_agreed(1, 1);
        pair.b.endpoint.rekey(pair.now, "site", None).unwrap();
        pair.a.endpoint.rekey(pair.now, "site", None).unwrap();
        pool.run(&mut pair, 60 * SECOND);
        pair.assert_agreed(1, 1);
        pair.collide();
        pool.run(&mut pair, 60 * SECOND);
        pair.assert_agreed(1, 1);
        let rekeys = |side: &Side| side.endpoint.counters().ike_rekeys;
        assert!(rekeys(&pair.a) >= 2 && rekeys(&pair.b) >= 2);
        pair.assert_clean_end();
    }
}

#[test]
fn jobs_that_never_end_leave_nothing_behind() {
    let mut established = 0;
    for seed in 0..12 {
        let mut pool = Pool::new(seed, 0.3);
        let mut pair = pair(seed, Conditions::PERFECT);
        pair.initiate();
        for _ in 0..3 {
            pool.run(&mut pair, 60 * SECOND);
            let _ = pair.a.endpoint.rekey(pair.now, "site", Some("net"));
            let _ = pair.b.endpoint.rekey(pair.now, "site", None);
        }
        pool.run(&mut pair, 60 * SECOND);
        established += pair
            .a
            .events
            .iter()
            .filter(|e| matches!(e, Event::IkeSaUp(_)))
            .count();
        pair.assert_clean_end();
        for (side, jobs) in [&mut pair.a, &mut pair.b].into_iter().zip(&mut pool.jobs) {
            assert!(side.endpoint.poll_job(pair.now).is_none());
            for job in jobs.drain(..) {
                side.endpoint.job_done(pair.now, job.run(), SECOND);
            }
            assert!(side.endpoint.poll_event().is_none(), "nobody waits for it");
            assert_eq!(side.endpoint.poll_transmit(), None);
        }
    }
    assert!(established > 3, "{established}");
}

/// Runs all jobs but one, which fails: that of the number `failing`.
fn run_with_failure(pair: &mut Pair, time: Duration, failing: usize) {
    let (until, mut number) = (pair.now + time, 0);
    while pair.now < until {
        pair.run(SECOND / 100);
        for side in [&mut pair.a, &mut pair.b] {
            while let Some(job) = side.endpoint.poll_job(pair.now) {
                let failed = job.failed();
                let done = match number == failing {
                    true => failed,
                    false => job.run(),
                };
                number += 1;
                side.endpoint.job_done(pair.now, done, Duration::ZERO);
            }
        }
        pair.flush();
    }
    assert!(number > failing, "{number}");
}

/// A job that fails refuses the exchange that waits for it, and the next try works.
#[test]
fn jobs_that_fail_refuse_what_waits_for_them() {
    let failures = |side: &Side| {
        let texts = side.events.iter().filter_map(|event| match event {
            Event::ConnectFailed { reason, .. } => Some(reason.to_string()),
            _ => None,
        });
        texts.collect::<Vec<_>>()
    };
    for failing in 0..4 {
        let mut pair = pair(1, Conditions::PERFECT);
        pair.initiate();
        run_with_failure(&mut pair, SECOND / 2, failing);
        let failed = failures(&pair.a);
        match failing {
            // Nobody has authenticated what the peer says here: we go on waiting for the right one.
            0 | 1 => assert!(failed.is_empty(), "{failed:?}"),
            2 => assert!(failed[0].contains("signing failed"), "{failed:?}"),
            _ => {
                assert!(failed[0].contains("AUTHENTICATION_FAILED"), "{failed:?}");
                assert_eq!(pair.b.refused(Refusal::AuthenticationFailed), 1);
                let told = pair.b.events.iter().find_map(|event| match event {
                    Event::Refused(refused) => Some(refused.why.clone()),
                    _ => None,
                });
                assert_eq!(told, Some(AuthFailure::NotChecked.to_string()));
            }
        }
        assert_eq!(
            pair.b.endpoint.half_open(),
            usize::from((1..3).contains(&failing))
        );
        run_with_failure(&mut pair, 90 * SECOND, 0);
        pair.assert_agreed(1, 1);
        // The key exchange of a new child SA: its answer, and what follows.
        for failing in 0..2 {
            let child = pair.a.endpoint.rekey(pair.now, "site", Some("net"));
            child.unwrap();
            run_with_failure(&mut pair, 90 * SECOND, failing);
            pair.assert_agreed(1, 1);
        }
        pair.assert_clean_end();
    }
}

#[test]
fn a_reload_during_a_job_counts() {
    let strangers = Arc::new(Authorities::new(&load(file!("other-root.pem"))).unwrap());
    let mut refused = 0;
    for reload_after in 0..6 {
        let mut pair = pair(1, Conditions::PERFECT);
        pair.initiate();
        let mut jobs = 0;
        for _ in 0..400 {
            pair.run(SECOND / 100);
            let now = pair.now;
            if let Some(job) = pair.a.endpoint.poll_job(now) {
                pair.a.endpoint.job_done(now, job.run(), Duration::ZERO);
            }
            if let Some(job) = pair.b.endpoint.poll_job(now) {
                let done = job.run();
                if jobs == reload_after {
                    let mut changed = configs().1;
                    if let RemoteMethod::Certificate { authorities, .. } =
                        &mut changed.remote.method
                    {
                        *authorities = strangers.clone();
                    }
                    pair.b.endpoint.set_config(config(changed));
                }
                pair.b.endpoint.job_done(now, done, Duration::ZERO);
                jobs += 1;
            }
            pair.flush();
        }
        // The first job answers the key exchange, and the second one checks the signature.
        let is_refused = pair.b.refused(Refusal::AuthenticationFailed) > 0;
        assert_eq!(is_refused, reload_after < 2, "{reload_after}: {jobs}");
        refused += u32::from(is_refused);
        pair.assert_clean_end();
    }
    assert_eq!(refused, 2);
}

/// B, for anybody, with a pre-shared key.
fn psk_gateway(change: impl FnOnce(&mut Config)) -> (Side, Instant) {
    let mut connection = default_configs().1;
    connection.remote_addrs = vec![AddressMatch::Any];
    let mut config = config(connection);
    change(&mut config);
    let now = Instant::now();
    (side("b", B, config, now, 7), now)
}

fn run_one(side: &mut Side, now: Instant, cost: Duration) -> bool {
    let job = side.endpoint.poll_job(now);
    let done = job.map(|job| side.endpoint.job_done(now, job.run(), cost));
    done.is_some()
}

/// Sends IKE_SA_INIT, with a cookie if one is asked for.
fn ask(side: &mut Side, now: Instant, script: &mut Script) {
    let mut payloads = script.init_payloads();
    let request = script.init_request(payloads.clone());
    let Some(answer) = script.send(side, now, &request).pop() else {
        return;
    };
    let answer = Message::decode(&answer).unwrap();
    let cookie = answer.notification(NotifyType::COOKIE).unwrap().clone();
    payloads.insert(0, Payload::Notify(cookie));
    let request = script.init_request(payloads);
    assert!(script.send(side, now, &request).is_empty());
}

/// Sends IKE_SA_INIT, and runs its job.
fn begin(side: &mut Side, now: Instant, script: &mut Script) {
    let payloads = script.init_payloads();
    let request = script.init_request(payloads);
    assert_eq!(script.send(side, now, &request).len(), 0, "it waits");
    assert!(run_one(side, now, Duration::ZERO));
    let response = Script::take(side).pop().unwrap();
    script.take_init(response);
}

/// Sends IKE_AUTH with a certificate and what `change` makes of the proof. The answer comes without a job.
fn prove_at_once(certificate: Vec<u8>, change: impl Fn(&mut Payload)) -> Option<NotifyType> {
    let (mut b, now) = psk_gateway(|_| {});
    let mut script = Script::new();
    begin(&mut b, now, &mut script);
    let mut payloads = script.auth_payloads(b"a shared secret");
    let certificate = Cert {
        encoding: CertEncoding::X509_SIGNATURE,
        data: certificate,
    };
    payloads.insert(1, Payload::Cert(certificate));
    payloads.iter_mut().for_each(change);
    let answer = script.exchange(&mut b, now, ExchangeType::IKE_AUTH, &payloads);
    assert!(b.endpoint.poll_job(now).is_none());
    error_of(&answer.expect("at once"))
}

#[test]
fn without_a_connection_for_signatures_no_certificate_is_parsed() {
    // Only jobs parse certificates. There is none for a proof that no connection takes.
    let certificate = load(file!("moon-ecdsa256.pem"))[0].der().to_vec();
    let error = prove_at_once(certificate, |payload| {
        if payload.kind() == PayloadType::AUTH {
            *payload = Payload::Auth(Auth {
                method: AuthMethod::ECDSA_SHA2_256_P256,
                data: vec![1; 64],
            });
        }
    });
    assert_eq!(error, Some(NotifyType::AUTHENTICATION_FAILED));
}

#[test]
fn certificates_beside_a_pre_shared_key_are_not_parsed() {
    assert_eq!(prove_at_once(vec![0x30; 1000], |_| {}), None);
}

#[test]
fn a_request_that_comes_again_while_it_waits_costs_nothing() {
    let (mut b, now) = psk_gateway(|_| {});
    let mut script = Script::new();
    let payloads = script.init_payloads();
    let request = script.init_request(payloads);
    for _ in 0..10 {
        assert!(script.send(&mut b, now, &request).is_empty());
    }
    assert_eq!(b.endpoint.half_open(), 1);
    assert_eq!(b.refused(Refusal::Retransmission), 9);
    assert!(run_one(&mut b, now, Duration::ZERO));
    assert!(!run_one(&mut b, now, Duration::ZERO), "one job");
    assert_eq!(Script::take(&mut b).len(), 1, "one response");
}

#[test]
fn a_peer_with_one_job_is_next_after_a_network_with_many() {
    let (mut b, now) = psk_gateway(|config| {
        config.limits.half_open_per_source_max = 2000;
        config.limits.half_open_per_network_max = 2000;
        config.limits.half_open_max = 4000;
    });
    for number in 0..1000 {
        let mut script = Script::new();
        script.spi_i = SPI + number;
        script.local = "203.0.113.1:500".parse().unwrap();
        ask(&mut b, now, &mut script);
    }
    for _ in 0..2 {
        assert!(run_one(&mut b, now, SECOND / 1000));
    }
    Script::take(&mut b);
    let mut honest = Script::new();
    honest.local = "192.0.2.77:500".parse().unwrap();
    ask(&mut b, now, &mut honest);
    assert!(run_one(&mut b, now, SECOND / 1000));
    let sent = b.endpoint.poll_transmit().unwrap();
    assert_eq!(sent.remote, honest.local);
    assert_eq!(b.endpoint.half_open(), 1001, "they keep their places");
}

#[test]
fn places_of_half_open_sas_are_free_again() {
    let (mut b, now) = psk_gateway(|_| {});
    let mut jobs = Vec::new();
    for number in 0..20 {
        let mut script = Script::new();
        script.spi_i = SPI + number;
        script.local = "203.0.113.1:500".parse().unwrap();
        ask(&mut b, now, &mut script);
        jobs.extend(b.endpoint.poll_job(now));
    }
    assert_eq!((b.endpoint.half_open(), jobs.len()), (20, 20));
    let late = now + 31 * SECOND;
    b.endpoint.handle_timeout(late);
    assert_eq!(b.endpoint.half_open(), 0);
    for job in jobs {
        b.endpoint.job_done(late, job.run(), SECOND);
    }
    assert_eq!(b.endpoint.poll_transmit(), None);
    assert_eq!(b.endpoint.poll_timeout(), None);
}

/// Whoever saw a request can send it again from elsewhere, as long as it has no response.
#[test]
fn a_copy_of_a_request_that_waits_moves_nothing() {
    let (a, mut b) = default_configs();
    b.remote_addrs = vec![AddressMatch::Any];
    let mut pair = Pair::new(config(a), config(b.clone()), Conditions::PERFECT, 1);
    pair.b = side("b", B, config(b), pair.now, 7);
    pair.nat = Some(("203.0.113.9".parse().unwrap(), 1000));
    pair.initiate();
    Pool::new(1, 0.0).run(&mut pair, SECOND);
    pair.assert_agreed(1, 1);
    let (now, peer) = (pair.now, pair.b.endpoint.status()[0].remote);
    assert_eq!(pair.a.endpoint.rekey(now, "site", None), Ok(1));
    let request = pair.a.endpoint.poll_transmit().unwrap();
    let b = &mut pair.b;
    for from in [peer, "203.0.113.66:4500".parse().unwrap()] {
        let endpoint = &mut b.endpoint;
        endpoint.handle_datagram(now, request.remote, from, &request.payload);
        assert!(Script::take(b).is_empty());
        assert_eq!(b.endpoint.status()[0].remote, peer);
    }
    let moved = |event: &Event| matches!(event, Event::PeerMoved { .. });
    assert!(!b.events.iter().any(moved));
    assert!(run_one(b, now, Duration::ZERO));
    assert_eq!(b.endpoint.poll_transmit().unwrap().remote, peer);
}

/// B, and an IKE SA of the script whose rekey waits for a job.
fn rekeying() -> (Side, Instant, Script, Vec<u8>) {
    let (mut b, now) = psk_gateway(|_| {});
    let mut script = Script::new();
    begin(&mut b, now, &mut script);
    let payloads = script.auth_payloads(b"a shared secret");
    let answer = script.exchange(&mut b, now, ExchangeType::IKE_AUTH, &payloads);
    assert_eq!(answer.as_ref().and_then(error_of), None);
    let header = script.header(ExchangeType::CREATE_CHILD_SA, script.next_id);
    let payloads = script.rekey_ike_payloads();
    let request = script.seal(&header, &payloads);
    assert!(script.send(&mut b, now, &request).is_empty());
    (b, now, script, request)
}

/// Without that the SA would take no request any more.
#[test]
fn a_request_is_taken_anew_when_its_job_is_lost() {
    let (mut b, now, script, request) = rekeying();
    let lost = b.endpoint.poll_job(now).expect("a job");
    let soon = now + 29 * SECOND;
    assert!(script.send(&mut b, soon, &request).is_empty());
    assert!(b.endpoint.poll_job(soon).is_none());
    let late = now + 31 * SECOND;
    assert!(script.send(&mut b, late, &request).is_empty());
    let job = b.endpoint.poll_job(late).expect("another job");
    // The first one ends after all.
    b.endpoint.job_done(late, lost.run(), SECOND);
    assert!(Script::take(&mut b).is_empty());
    b.endpoint.job_done(late, job.run(), SECOND);
    let answer = script.open(&Script::take(&mut b)[0]);
    assert_eq!(error_of(&answer), None);
    assert!(b.endpoint.poll_job(late).is_none());
}

/// The SA would keep a place, and the child would never be tried again.
#[test]
fn an_initiator_waits_for_its_signature_for_a_bounded_time() {
    let mut pair = pair(1, Conditions::PERFECT);
    pair.initiate();
    // The first job of A completes the key exchange, and the second one signs.
    let mut jobs = 0;
    while jobs < 2 {
        pair.run(SECOND / 50);
        while let Some(job) = pair.b.endpoint.poll_job(pair.now) {
            pair.b.endpoint.job_done(pair.now, job.run(), SECOND);
        }
        while let Some(job) = pair.a.endpoint.poll_job(pair.now) {
            jobs += 1;
            if jobs < 2 {
                pair.a.endpoint.job_done(pair.now, job.run(), SECOND);
            }
        }
        pair.flush();
    }
    Pool::new(1, 0.0).run(&mut pair, 120 * SECOND);
    let failed = pair.a.events.iter().find_map(|event| match event {
        Event::ConnectFailed { reason, .. } => Some(reason),
        _ => None,
    });
    assert_eq!(failed, Some(&DownReason::Resources(Shortage::Signature)));
    pair.assert_agreed(1, 1);
}

/// A message in fragments counts with all of them.
#[test]
fn the_bytes_of_one_network_that_wait_are_bounded() {
    let mut connection = configs().1;
    connection.remote_addrs = vec![AddressMatch::Any];
    let mut config = config(connection);
    config.limits.half_open_per_source_max = 100;
    config.limits.half_open_per_network_max = 100;
    let now = Instant::now();
    let mut b = side("b", B, config, now, 7);
    let certificate = Cert {
        encoding: CertEncoding::X509_SIGNATURE,
        data: vec![0x30; 30_000],
    };
    let auth = Auth {
        method: AuthMethod::ECDSA_SHA2_256_P256,
        data: vec![1; 64],
    };
    let mut scripts = Vec::new();
    for number in 0..40 {
        let mut script = Script::new();
        script.spi_i = SPI + number;
        let mut payloads = script.init_payloads();
        let notify = Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, Vec::new());
        payloads.push(Payload::Notify(notify));
        let mut request = script.init_request(payloads.clone());
        let mut answers = script.send(&mut b, now, &request);
        if let Some(answer) = answers.pop() {
            let answer = Message::decode(&answer).unwrap();
            let cookie = answer.notification(NotifyType::COOKIE).unwrap().clone();
            payloads.insert(0, Payload::Notify(cookie));
            request = script.init_request(payloads);
            assert!(script.send(&mut b, now, &request).is_empty());
        }
        assert!(run_one(&mut b, now, Duration::ZERO));
        let response = Script::take(&mut b).pop().unwrap();
        script.take_init(response);
        scripts.push(script);
    }
    for mut script in scripts {
        script.id.data = b"moon.example.org".to_vec();
        let mut payloads = vec![
            Payload::IdI(script.id.clone()),
            Payload::Cert(certificate.clone()),
            Payload::Auth(auth.clone()),
        ];
        payloads.extend(Script::child_payloads());
        let header = script.header(ExchangeType::IKE_AUTH, 1);
        for fragment in script.seal_fragments(&header, &payloads, 1000) {
            assert!(script.send(&mut b, now, &fragment).is_empty());
        }
    }
    assert!(b.refused(Refusal::JobQueueFull) > 0);
}
