//! Work with public keys. It takes from a tenth of a millisecond to several, so it comes as jobs that other threads run.
//!
//! A message that needs a job is held. When the job is done, the message is decided on anew, with the outcome at hand.
//! The SA may have ended meanwhile, and the configuration may have changed: then the outcome is dropped.
//!
//! Work for peers that have proved who they are, or that we call, goes first, as long as they keep within their
//! budgets. All other work waits in turns by network, so that no sender keeps another one waiting for long.

mod fair_queue;
mod proof_check;
mod signing;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_crypto::dh::DhError;
use esplanade_crypto::iana::Group;

use crate::auth::CredentialError;
use crate::failure::AuthFailure;
use crate::id::IkeSaId;
use crate::source_network::{SourceNetwork, prefix_lens};
use crate::suite::{ActiveKeyExchange, KeyExchange, KeyExchangeAnswer, Secret};

use fair_queue::FairQueue;
pub(crate) use fair_queue::QueueFull;
pub(crate) use proof_check::{
    AuthenticatedPeer, CheckedPeer, NotAccepted, ProofCheck, ProofVerdict, first_to_accept,
};
pub(crate) use signing::{SignedAuth, Signing};

/// Jobs of unproven peers that wait while all is well. With more, senders must show that they receive at their address.
const LOADED: usize = 16;
/// The cost of a refusal beside its jobs: two messages, and the report.
const REFUSAL_COST: Duration = Duration::from_micros(100);

/// The time after which a job counts as lost. By then a peer has forgotten its half-open SA, or repeated its message.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The party that a job is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payer {
    /// A peer that has proved who it is, or that we call.
    Proven(SourceNetwork),
    Unproven(SourceNetwork),
}

impl Payer {
    /// A peer that has proved who it is, or that we call.
    pub(crate) fn proven(address: IpAddr) -> Self {
        let prefix_len = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        Self::Proven(SourceNetwork::of(address, prefix_len))
    }

    /// A sender that has shown that it receives at its address. One that a connection names has an account of its own.
    pub(crate) fn unproven(address: IpAddr, is_configured: bool) -> Self {
        let widest = prefix_lens(address).last().copied().unwrap_or_default();
        match Self::proven(address) {
            Self::Proven(own) if is_configured => Self::Unproven(own),
            _ => Self::Unproven(SourceNetwork::of(address, widest)),
        }
    }

    /// All senders whose addresses can be false.
    pub(crate) fn nobody() -> Self {
        Self::Unproven(SourceNetwork::of(Ipv4Addr::UNSPECIFIED.into(), 0))
    }
}

/// A computation with everything that it needs.
#[derive(Debug)]
pub(crate) enum Work {
    /// The responder's half of a key exchange.
    Answer {
        by: KeyExchangeService,
        method: Group,
        initiator: Vec<u8>,
    },
    /// The initiator's other half.
    Complete {
        started: Arc<dyn ActiveKeyExchange>,
        responder: Vec<u8>,
    },
    /// The check of the peer's signature and certificates.
    Check(Box<ProofCheck>),
    /// Our own signature.
    Sign(Box<Signing>),
}

/// The key exchanges of the host.
#[derive(Clone)]
pub(crate) struct KeyExchangeService(pub(crate) Arc<dyn KeyExchange>);

impl std::fmt::Debug for KeyExchangeService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyExchangeService")
    }
}

/// The outcome of a [`Work`].
#[derive(Debug)]
pub(crate) enum WorkOutcome {
    Answered(Result<KeyExchangeAnswer, DhError>),
    Completed(Result<Secret, DhError>),
    Checked(Box<ProofVerdict>),
    Signed(SignedAuth),
}

impl Work {
    pub(crate) fn run(self) -> WorkOutcome {
        match self {
            Self::Answer {
                by,
                method,
                initiator,
            } => WorkOutcome::Answered(by.0.answer(method, &initiator)),
            Self::Complete { started, responder } => {
                WorkOutcome::Completed(started.complete(&responder))
            }
            Self::Check(check) => WorkOutcome::Checked(Box::new(check.run())),
            Self::Sign(signing) => WorkOutcome::Signed(signing.run()),
        }
    }

    /// The outcome of work that comes to nothing.
    fn failed(&self) -> WorkOutcome {
        match self {
            Self::Answer { method, .. } => WorkOutcome::Answered(Err(DhError::Generate(*method))),
            Self::Complete { started, .. } => {
                WorkOutcome::Completed(Err(DhError::Generate(started.method())))
            }
            Self::Check(_) => WorkOutcome::Checked(Box::new(ProofVerdict {
                peer: Err(AuthFailure::NotChecked),
                revoked: None,
            })),
            Self::Sign(_) => WorkOutcome::Signed(Err(CredentialError::Signing)),
        }
    }
}

/// The job that an IKE SA waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    id: u64,
    payer: Payer,
    /// The configuration that the job was made for.
    pub(crate) generation: u64,
}

/// Work for an IKE SA. Any thread can run it, and [`crate::Endpoint::job_done`] takes the outcome.
#[derive(Debug)]
pub struct Job {
    ike_sa: IkeSaId,
    ticket: Ticket,
    work: Work,
}

impl Job {
    pub fn run(self) -> JobDone {
        JobDone {
            ike_sa: self.ike_sa,
            ticket: self.ticket,
            outcome: self.work.run(),
        }
    }

    /// The outcome if the job panics. What waits for it is refused.
    pub fn failed(&self) -> JobDone {
        JobDone {
            ike_sa: self.ike_sa,
            ticket: self.ticket,
            outcome: self.work.failed(),
        }
    }
}

/// The outcome of a [`Job`].
#[derive(Debug)]
pub struct JobDone {
    pub(crate) ike_sa: IkeSaId,
    pub(crate) ticket: Ticket,
    pub(crate) outcome: WorkOutcome,
}

/// The jobs that wait.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    proven: FairQueue<Job>,
    unproven: FairQueue<Job>,
    last_id: u64,
    generation: u64,
}

impl Jobs {
    /// The configuration that jobs were made for has changed.
    pub(crate) fn reconfigure(&mut self) {
        self.generation += 1;
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn is_current(&self, ticket: Ticket) -> bool {
        ticket.generation == self.generation
    }

    /// Queues work for an IKE SA whose message has `bytes`. Returns the SAs of jobs that were dropped for it too: some may
    /// have been dropped in vain.
    pub(crate) fn submit(
        &mut self,
        now: Instant,
        ike_sa: IkeSaId,
        payer: Payer,
        (work, bytes): (Work, usize),
    ) -> (Result<Ticket, QueueFull>, Vec<(IkeSaId, Ticket)>) {
        self.last_id += 1;
        let ticket = Ticket {
            id: self.last_id,
            payer,
            generation: self.generation,
        };
        let job = Job {
            ike_sa,
            ticket,
            work,
        };
        let mut dropped = Vec::new();
        let pushed = match payer {
            Payer::Proven(network) => self.proven.push(now, network, job, bytes),
            Payer::Unproven(network) => {
                // Work of the network that has most gives way.
                while let Some(job) = self.unproven.make_room(network, bytes) {
                    dropped.push((job.ike_sa, job.ticket));
                }
                self.unproven.push(now, network, job, bytes)
            }
        };
        (pushed.map(|()| ticket), dropped)
    }

    pub(crate) fn next(&mut self, now: Instant) -> Option<Job> {
        // Proven peers over their budgets take turns with all others.
        let proven = self.proven.first_paid_off();
        let unproven = self.unproven.first_paid_off();
        let is_over = proven.is_some_and(|at| at > now + fair_queue::BUDGET);
        match is_over && unproven.is_some() && unproven < proven {
            true => self.unproven.pop(now),
            false => self.proven.pop(now).or_else(|| self.unproven.pop(now)),
        }
    }

    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        match ticket.payer {
            Payer::Proven(network) => self.proven.cancel(network, |job| job.ticket == ticket),
            Payer::Unproven(network) => self.unproven.cancel(network, |job| job.ticket == ticket),
        }
    }

    /// Charges what a job has taken.
    pub(crate) fn settle(&mut self, now: Instant, ticket: Ticket, cost: Duration) {
        match ticket.payer {
            Payer::Proven(network) => self.proven.settle(now, network, cost),
            Payer::Unproven(network) => self.unproven.settle(now, network, cost),
        }
    }

    pub(crate) fn charge_refusal(&mut self, now: Instant, payer: Payer) {
        if let Payer::Unproven(network) = payer {
            self.unproven.charge(now, network, REFUSAL_COST);
        }
    }

    /// Says whether the sender must show that it receives at its address, before there is work for it.
    pub(crate) fn wants_proof(&self, now: Instant, method: Option<Group>, payer: Payer) -> bool {
        let over = |payer| match payer {
            Payer::Unproven(network) => self.unproven.is_over_budget(now, network),
            Payer::Proven(_) => false,
        };
        method.is_some_and(is_expensive)
            || self.unproven.len() >= LOADED
            || over(Payer::nobody())
            || over(payer)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.proven.len() + self.unproven.len()
    }
}

/// Key exchanges that take milliseconds.
fn is_expensive(method: Group) -> bool {
    matches!(
        method,
        Group::Modp3072 | Group::Modp4096 | Group::Modp6144 | Group::Modp8192
    )
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::{Duration, Instant};

    use super::fair_queue::FairQueue;
    use super::*;
    use crate::config::Identity;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn stranger(text: &str) -> Payer {
        Payer::unproven(address(text), false)
    }

    fn network(text: &str) -> SourceNetwork {
        SourceNetwork::of(address(text), 24)
    }

    fn work() -> Work {
        Work::Sign(Box::new(Signing {
            credentials: Vec::new(),
            peer: Identity::Any,
            peer_hashes: Vec::new(),
            octets: Vec::new(),
            legacy: false,
        }))
    }

    /// Jobs, each for an SA whose number tells the payers apart.
    struct Queue {
        jobs: Jobs,
        now: Instant,
    }

    impl Queue {
        fn new() -> Self {
            Self {
                jobs: Jobs::default(),
                now: Instant::now(),
            }
        }

        fn add(&mut self, ike_sa: u64, payer: Payer) -> Ticket {
            let (ticket, dropped) =
                self.jobs
                    .submit(self.now, IkeSaId(ike_sa), payer, (work(), 100));
            assert!(dropped.is_empty());
            ticket.unwrap()
        }

        /// Runs the next job, which takes `cost`.
        fn run(&mut self, cost: Duration) -> Option<u64> {
            let done = self.jobs.next(self.now)?.run();
            self.now += cost;
            self.jobs.settle(self.now, done.ticket, cost);
            Some(done.ike_sa.0)
        }

        fn order(&mut self, count: usize, cost: Duration) -> Vec<u64> {
            (0..count).filter_map(|_| self.run(cost)).collect()
        }
    }

    #[test]
    fn a_network_with_one_job_is_next_after_one_with_a_thousand() {
        let mut queue = Queue::new();
        for _ in 0..1000 {
            queue.add(1, stranger("192.0.2.1"));
        }
        assert_eq!(queue.order(3, MILLISECOND), [1, 1, 1]);
        queue.add(2, stranger("198.51.100.1"));
        assert_eq!(queue.order(2, MILLISECOND), [2, 1]);
        for _ in 0..3 {
            queue.add(2, stranger("198.51.100.2"));
        }
        let order = queue.order(6, MILLISECOND);
        let honest = order.iter().take(4).filter(|one| **one == 2).count();
        assert_eq!(honest, 3, "it pays off what it asks for: {order:?}");
    }

    #[test]
    fn a_network_that_waits_for_nobody_goes_on() {
        let mut queue = Queue::new();
        for _ in 0..10_000 {
            queue.add(1, stranger("192.0.2.1"));
        }
        assert_eq!(queue.order(20_000, MILLISECOND).len(), 10_000);
        assert_eq!(queue.jobs.len(), 0);
    }

    #[test]
    fn proven_peers_go_first() {
        let mut queue = Queue::new();
        for _ in 0..100 {
            queue.add(1, stranger("192.0.2.1"));
        }
        for _ in 0..3 {
            queue.add(2, Payer::proven(address("192.0.2.1")));
        }
        queue.add(3, Payer::proven(address("192.0.2.2")));
        let mut order = queue.order(5, MILLISECOND);
        assert_eq!(order.pop(), Some(1));
        assert_eq!(order, [2, 3, 2, 2], "in turns");
    }

    #[test]
    fn a_proven_peer_over_its_budget_keeps_nobody_waiting() {
        let mut queue = Queue::new();
        let greedy = Payer::proven(address("192.0.2.1"));
        for _ in 0..1000 {
            queue.add(1, greedy);
        }
        // Its budget is 200 ms.
        assert_eq!(queue.order(250, MILLISECOND), [1; 250]);
        for _ in 0..3 {
            queue.add(2, stranger("198.51.100.1"));
        }
        queue.add(3, Payer::proven(address("192.0.2.2")));
        let order = queue.order(5, MILLISECOND);
        assert_eq!(order, [3, 2, 2, 2, 1]);
        assert_eq!(queue.order(1000, MILLISECOND).len(), 749, "it goes on");
    }

    #[test]
    fn costs_decide_and_not_numbers() {
        let mut queue = Queue::new();
        let (dear, cheap) = (stranger("192.0.2.1"), stranger("198.51.100.1"));
        queue.add(1, dear);
        assert_eq!(queue.run(16 * MILLISECOND), Some(1));
        queue.add(1, dear);
        for _ in 0..100 {
            queue.add(2, cheap);
        }
        let before = queue
            .order(101, MILLISECOND / 2)
            .iter()
            .position(|one| *one == 1)
            .unwrap();
        assert!((25..35).contains(&before), "16 ms are 32 turns: {before}");
    }

    #[test]
    fn refusals_are_charged() {
        let mut queue = Queue::new();
        let (payer, other) = (stranger("192.0.2.1"), stranger("198.51.100.1"));
        let wants = |queue: &Queue, payer| {
            let method = Some(Group::Curve25519);
            queue.jobs.wants_proof(queue.now, method, payer)
        };
        assert!(!wants(&queue, payer));
        for _ in 0..2001 {
            queue.jobs.charge_refusal(queue.now, payer);
        }
        assert!(wants(&queue, payer), "over its budget");
        assert!(!wants(&queue, other));
        queue.add(1, payer);
        queue.add(2, other);
        assert_eq!(queue.order(2, MILLISECOND), [2, 1]);
        queue.now += Duration::from_secs(3);
        assert!(!wants(&queue, payer), "it has paid off");
    }

    #[test]
    fn senders_show_their_address_under_load_and_for_large_groups() {
        let mut queue = Queue::new();
        let payer = stranger("192.0.2.1");
        let wants = |queue: &Queue, method| queue.jobs.wants_proof(queue.now, method, payer);
        for large in [Group::Modp3072, Group::Modp4096, Group::Modp8192] {
            assert!(wants(&queue, Some(large)), "{large}");
        }
        for small in [Group::Curve25519, Group::Ecp384, Group::Modp2048] {
            assert!(!wants(&queue, Some(small)), "{small}");
        }
        assert!(!wants(&queue, None), "a group without a job");
        for _ in 0..LOADED {
            assert!(!wants(&queue, Some(Group::Curve25519)));
            queue.add(1, stranger("198.51.100.1"));
        }
        assert!(wants(&queue, Some(Group::Curve25519)));
        queue.order(LOADED, MILLISECOND);
        assert!(!wants(&queue, Some(Group::Curve25519)));
        // Nobody knows who has caused this.
        for _ in 0..300 {
            queue.add(1, Payer::nobody());
        }
        queue.order(300, MILLISECOND);
        assert!(wants(&queue, Some(Group::Curve25519)));
    }

    #[test]
    fn a_full_queue_drops_work_of_the_network_with_the_most() {
        let mut queue = FairQueue::default();
        let now = Instant::now();
        let heavy = ["192.0.2.1", "198.51.100.1"].map(network);
        let mut count = 0;
        // Each network has a mebibyte at most.
        while queue.push(now, heavy[0], count, 60_000).is_ok() {
            count += 1;
        }
        assert_eq!(count, 17);
        for site in 0..8 {
            let network = network(&format!("10.0.{site}.1"));
            assert_eq!(queue.make_room(network, 60_000), None);
            while queue.push(now, network, 1000, 50_000).is_ok() {}
        }
        assert!(queue.push(now, heavy[1], 2000, 60_000).is_err());
        assert_eq!(queue.make_room(heavy[1], 60_000), Some(16), "the last");
        while queue.make_room(heavy[1], 60_000).is_some() {}
        queue.push(now, heavy[1], 2000, 60_000).unwrap();
        assert_eq!(queue.make_room(heavy[0], 60_000), None, "it has the most");
        let mut left = 0;
        while queue.pop(now).is_some() {
            left += 1;
        }
        assert!(left > 100);
        assert_eq!(queue.len(), 0);
        assert_eq!(queue.make_room(heavy[0], 60_000), None);
        queue.push(now, heavy[0], 1, 60_000).unwrap();
    }

    #[test]
    fn work_that_has_given_way_in_vain_is_told_of() {
        let mut jobs = Jobs::default();
        let now = Instant::now();
        let mut add = |payer, bytes| jobs.submit(now, IkeSaId(1), payer, (work(), bytes));
        for site in 0..7 {
            add(stranger(&format!("10.0.{site}.1")), 915_000).0.unwrap();
        }
        let (heavy, other) = (stranger("192.0.2.1"), stranger("198.51.100.1"));
        add(heavy, 999_990).0.unwrap();
        let last = add(heavy, 20).0.unwrap();
        add(other, 900_000).0.unwrap();
        let (refused, dropped) = add(other, 100_000);
        assert_eq!(refused, Err(QueueFull));
        assert_eq!(dropped, [(IkeSaId(1), last)]);
    }

    #[test]
    fn cancelled_work_is_gone() {
        let mut queue = Queue::new();
        let payer = stranger("192.0.2.1");
        let tickets: Vec<Ticket> = (0..3).map(|number| queue.add(number, payer)).collect();
        queue.jobs.cancel(tickets[1]);
        queue.jobs.cancel(tickets[1]);
        assert_eq!(queue.order(3, MILLISECOND), [0, 2]);
        queue.jobs.cancel(tickets[0]);
    }

    #[test]
    fn networks_with_the_most_debt_take_turns() {
        let mut queue = Queue::new();
        for site in 0..3 {
            let payer = stranger(&format!("192.0.{site}.1"));
            for _ in 0..20 {
                queue.add(site, payer);
            }
        }
        let mut order = Vec::new();
        while let Some(job) = queue.jobs.next(queue.now) {
            let done = job.run();
            order.push(done.ike_sa.0);
            let cost = Duration::from_secs(60);
            queue.jobs.settle(queue.now, done.ticket, cost);
        }
        assert_eq!(order.len(), 60);
        for turns in order.chunks(3) {
            let mut turns = turns.to_vec();
            turns.sort_unstable();
            assert_eq!(turns, [0, 1, 2]);
        }
    }
}
