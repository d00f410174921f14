//! Work with public keys. It takes from a tenth of a millisecond to several, so it comes as jobs that other threads run.
//!
//! A message that needs a job is held. When the job is done, the message is decided on anew, with the outcome at hand.
//! The SA may have ended meanwhile, and the configuration may have changed: then the outcome is dropped.
//!
//! Work for peers that have proved who they are, or that we call, goes first. All other work waits in turns by
//! network, so that no sender keeps another one waiting for long.

mod fair_queue;
mod proof_check;
mod signing;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_crypto::dh::DhError;
use esplanade_crypto::iana::Group;

use crate::failure::AuthFailure;
use crate::id::IkeSaId;
use crate::source_network::{SourceNetwork, prefix_lens};
use crate::suite::{ActiveKeyExchange, KeyExchange, KeyExchangeAnswer, Secret};

use fair_queue::FairQueue;
pub(crate) use fair_queue::QueueFull;
pub(crate) use proof_check::{
    AuthenticatedPeer, CheckedPeer, NotAccepted, ProofCheck, first_to_accept,
};
pub(crate) use signing::{SignedAuth, Signing};

/// Jobs of unproven peers that wait while all is well. With more, senders must show that they receive at their address.
const LOADED: usize = 16;
/// The cost of a refusal beside its jobs: two messages, and the report.
const REFUSAL_COST: Duration = Duration::from_micros(100);

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
pub(crate) enum Outcome {
    Answered(Result<KeyExchangeAnswer, DhError>),
    Completed(Result<Secret, DhError>),
    Checked(Result<CheckedPeer, AuthFailure>),
    Signed(SignedAuth),
}

impl Work {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Answer {
                by,
                method,
                initiator,
            } => Outcome::Answered(by.0.answer(method, &initiator)),
            Self::Complete { started, responder } => {
                Outcome::Completed(started.complete(&responder))
            }
            Self::Check(check) => Outcome::Checked(check.run()),
            Self::Sign(signing) => Outcome::Signed(signing.run()),
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
}

/// The outcome of a [`Job`].
#[derive(Debug)]
pub struct JobDone {
    pub(crate) ike_sa: IkeSaId,
    pub(crate) ticket: Ticket,
    pub(crate) outcome: Outcome,
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

    /// Queues work for an IKE SA whose message has `bytes`. Returns the SA of a job that was dropped for it, if any.
    pub(crate) fn submit(
        &mut self,
        now: Instant,
        ike_sa: IkeSaId,
        payer: Payer,
        (work, bytes): (Work, usize),
    ) -> Result<(Ticket, Vec<(IkeSaId, Ticket)>), QueueFull> {
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
        match payer {
            Payer::Proven(network) => self.proven.push(now, network, job, bytes)?,
            Payer::Unproven(network) => {
                // Work of the network that has most gives way.
                while let Some(job) = self.unproven.make_room(network, bytes) {
                    dropped.push((job.ike_sa, job.ticket));
                }
                self.unproven.push(now, network, job, bytes)?;
            }
        }
        Ok((ticket, dropped))
    }

    pub(crate) fn next(&mut self, now: Instant) -> Option<Job> {
        self.proven.pop(now).or_else(|| self.unproven.pop(now))
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
