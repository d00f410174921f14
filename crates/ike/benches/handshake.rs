//! Full handshakes per second: IKE_SA_INIT and IKE_AUTH, both ends in this process.
//!
//! X25519, AES-GCM-128, PRF HMAC-SHA2-256 and one child SA; nothing is encrypted but IKE itself. The ends prove themselves
//! by a pre-shared key, or one of them by an ECDSA certificate. `--threads N` has the endpoints' jobs run by N threads, for
//! many handshakes at a time. Without it the endpoints run them where they arise.

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use common::*;
use esplanade_ike::Config;
use esplanade_ike::config::{Connection, Credential, LocalMethod, RemoteMethod};
use esplanade_ike::jobs::{Job, JobDone};
use esplanade_pki::{Authorities, Certificate, RevocationPolicy};
use esplanade_testkit::certificate_file as file;
use esplanade_testkit::net::{Conditions, Rng};

const ROUNDS: u64 = 5;
const ROUND: Duration = Duration::from_secs(1);
/// Handshakes that are under way at a time, where other threads run the jobs.
const UNDER_WAY: usize = 32;
/// 2026-06-01.
const NOW: Duration = Duration::from_secs(1_780_272_000);

/// How the initiator proves itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Proof {
    Psk,
    Certificate,
}

fn certificate(a: &mut Connection, b: &mut Connection) {
    let load = |pem| Certificate::from_file_content(pem).unwrap();
    let own = load(file!("moon-ecdsa256.pem"));
    let credential = Credential::new(file!("moon-ecdsa256.key"), own).unwrap();
    let authorities = Authorities::new(&load(file!("root.pem"))).unwrap();
    a.local.id = id("moon.example.org");
    a.local.method = LocalMethod::Signature(vec![Arc::new(credential)]);
    b.remote.id = id("moon.example.org");
    b.remote.method = RemoteMethod::Certificate {
        authorities: Arc::new(authorities),
        pinned: vec![],
        rules: Arc::default(),
        revocation: RevocationPolicy::Relaxed,
    };
}

/// The threads, and the jobs of each handshake that they have done.
struct Pool {
    jobs: Sender<(usize, bool, Job)>,
    done: Receiver<(usize, bool, JobDone)>,
}

impl Pool {
    fn start(threads: usize) -> Self {
        let (jobs, waiting) = channel::<(usize, bool, Job)>();
        let (finished, done) = channel();
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..threads {
            let (waiting, finished) = (Arc::clone(&waiting), finished.clone());
            std::thread::spawn(move || {
                loop {
                    let next = waiting.lock().unwrap().recv();
                    let Ok((handshake, of_a, job)) = next else {
                        return;
                    };
                    if finished.send((handshake, of_a, job.run())).is_err() {
                        return;
                    }
                }
            });
        }
        Self { jobs, done }
    }
}

/// Two endpoints that know only each other; every handshake is between fresh ones.
struct Handshakes {
    configs: [Config; 2],
    pool: Option<Pool>,
    begun: u64,
}

impl Handshakes {
    fn new(proof: Proof, threads: usize) -> Self {
        let (mut a, mut b) = default_configs();
        if proof == Proof::Certificate {
            certificate(&mut a, &mut b);
        }
        Self {
            configs: [config(a), config(b)],
            pool: (threads > 0).then(|| Pool::start(threads)),
            begun: 0,
        }
    }

    fn begin(&mut self) -> Pair {
        self.begun += 1;
        let [a, b] = self.configs.clone();
        let seed = self.begun;
        let mut pair = Pair::new(a.clone(), b.clone(), Conditions::PERFECT, seed);
        let runs_jobs = self.pool.is_none();
        let now = pair.now;
        let side = |name, address, config, seed| {
            let mut side = Side::with_host(name, address, config, now, seed, |host| {
                host.random = Box::new(SeededRandom(Rng::new(seed)));
                host.runs_jobs = runs_jobs;
            });
            let wall_clock = SystemTime::UNIX_EPOCH + NOW;
            side.endpoint.set_wall_clock(now, wall_clock);
            side
        };
        pair.a = side("a", A, a, 2 * seed);
        pair.b = side("b", B, b, 2 * seed + 1);
        pair.initiate();
        pair
    }

    /// Goes on until nothing is left but jobs of other threads. Says whether the handshake is done.
    fn proceed(&self, number: usize, pair: &mut Pair) -> bool {
        pair.run(Duration::from_millis(100));
        if let Some(pool) = &self.pool {
            for (side, of_a) in [(&mut pair.a, true), (&mut pair.b, false)] {
                while let Some(job) = side.endpoint.poll_job(pair.now) {
                    pool.jobs.send((number, of_a, job)).unwrap();
                }
            }
        }
        (pair.a.children.len(), pair.b.children.len()) == (1, 1)
    }

    fn count(&mut self, time: Duration) -> u32 {
        let start = Instant::now();
        let mut count = 0;
        if self.pool.is_none() {
            while start.elapsed() < time {
                let mut pair = self.begin();
                assert!(self.proceed(0, &mut pair));
                count += 1;
            }
            return count;
        }
        let mut pairs: Vec<Pair> = (0..UNDER_WAY).map(|_| self.begin()).collect();
        for (number, pair) in pairs.iter_mut().enumerate() {
            self.proceed(number, pair);
        }
        while start.elapsed() < time {
            let done = self.pool.as_ref().and_then(|pool| pool.done.recv().ok());
            let (number, of_a, done) = done.expect("a thread");
            let pair = &mut pairs[number];
            let side = if of_a { &mut pair.a } else { &mut pair.b };
            side.endpoint.job_done(pair.now, done, Duration::ZERO);
            pair.flush();
            if self.proceed(number, pair) {
                count += 1;
                pairs[number] = self.begin();
                self.proceed(number, &mut pairs[number]);
            }
        }
        // What is under way ends, so that the next round begins anew.
        if let Some(pool) = &self.pool {
            while pool.done.recv_timeout(Duration::from_millis(50)).is_ok() {}
        }
        count
    }
}

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--threads");
    let threads = arguments.nth(1).map_or(0, |number| number.parse().unwrap());
    for (proof, name) in [(Proof::Psk, "psk"), (Proof::Certificate, "certificate")] {
        let mut handshakes = Handshakes::new(proof, threads);
        handshakes.count(ROUND / 10);
        let rates = (0..ROUNDS).map(|_| f64::from(handshakes.count(ROUND)) / ROUND.as_secs_f64());
        let mut rates: Vec<f64> = rates.collect();
        rates.sort_by(f64::total_cmp);
        let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
        println!(
            r#"{{"proof": "{name}", "threads": {threads}, "median": {median:.0}, "best": {best:.0}}}"#
        );
    }
}
