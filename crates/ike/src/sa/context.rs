//! The parts of an endpoint that an IKE SA may use, and the effects that an IKE SA asks of its endpoint.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use esplanade_few::FewSet;

use super::due_end::DueEnd;
use super::held_message::HeldMessage;
use super::ike_sa::IkeSa;
use crate::claims::Claims;
use crate::config::{Config, Connection};
use crate::connection_choice::ConnectionTable;
use crate::event::{Event, Transmit};
use crate::failure::DownReason;
use crate::host::{EspSpiAllocator, PolicyRoom, Random};
use crate::id::{ChildSaId, IkeSaId};
use crate::jobs::{Jobs, Ticket, WorkOutcome};
use crate::peer::PeerKey;
use crate::protected::OutgoingMessage;
use crate::report_limit::ReportLimit;
use crate::secret_choice::SecretTable;
use crate::status::IkeCounters;
use crate::suite::KeyExchange;
use crate::transport::udp_payload;
use crate::wire::Payload;

/// The parts of the endpoint that one IKE SA works with.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) wall_clock: SystemTime,
    pub(crate) config: &'a Config,
    pub(crate) connections: &'a ConnectionTable,
    pub(crate) secrets: &'a SecretTable,
    pub(crate) random: &'a mut dyn Random,
    pub(crate) key_exchange: &'a Arc<dyn KeyExchange>,
    pub(crate) jobs: &'a mut Jobs,
    /// The outcome of the job that the message at hand was held for.
    pub(crate) prepared: Option<WorkOutcome>,
    pub(crate) spis: &'a mut dyn EspSpiAllocator,
    pub(crate) policies: &'a mut dyn PolicyRoom,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) transmits: &'a mut VecDeque<Transmit>,
    pub(crate) counters: &'a mut IkeCounters,
    /// The identifier that was given last, to an IKE SA or a child SA.
    pub(crate) last_id: &'a mut u64,
    /// IKE SAs by our own SPI.
    pub(crate) by_spi: &'a HashMap<u64, IkeSaId>,
    pub(crate) established: &'a HashSet<IkeSaId>,
    /// Established IKE SAs by peer.
    pub(crate) peers: &'a HashMap<PeerKey, FewSet<IkeSaId>>,
    /// Established IKE SAs by the peer's address.
    pub(crate) by_remote: &'a HashMap<IpAddr, FewSet<IkeSaId>>,
    pub(crate) report_limit: &'a mut ReportLimit,
    pub(crate) claims: &'a mut Claims,
    pub(crate) effects: &'a mut Vec<Effect>,
    /// SAs that have ended for IKE, and whose end is told in its turn.
    pub(crate) ends: &'a mut VecDeque<DueEnd>,
}

/// An action that an IKE SA asks of its endpoint because it concerns other SAs.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A rekey has made a new IKE SA.
    Insert(Box<IkeSa>),
    /// `to` replaces `from` and takes over its children.
    Adopt {
        from: IkeSaId,
        to: IkeSaId,
        retirement: Retirement,
    },
    /// The new IKE SA of a simultaneous rekey is redundant, and we made it: we delete it (RFC 7296 §2.8.2).
    DeleteRedundant { ike_sa: IkeSaId },
    /// The new IKE SA of a simultaneous rekey is redundant, and the peer made it: the peer deletes it.
    AwaitRedundantDelete { ike_sa: IkeSaId },
    /// The peer is authenticated. `initial_contact` says that the peer has sent INITIAL_CONTACT.
    Established {
        ike_sa: IkeSaId,
        initial_contact: bool,
    },
    /// It is time for the peers of this IKE SA to authenticate again.
    Reauthenticate { ike_sa: IkeSaId },
    /// The peer has not answered for a while. It may have lost this SA.
    ReachOut { ike_sa: IkeSaId },
    /// The peer is heard again, so that this IKE SA, which was tried in its silence, is not needed.
    WithdrawAttempt { ike_sa: IkeSaId },
    /// The SA that has replaced this one has ended. So a peer keeps no more replaced SAs here than it has SAs.
    ForgetReplaced { ike_sa: IkeSaId },
    /// The time is over that the peer had to delete `ike_sa` in favour of another SA.
    Superseded { ike_sa: IkeSaId },
    /// The peers have authenticated again. The children that `from` had are up over `to`, or refused.
    Reauthenticated { from: IkeSaId, to: IkeSaId },
    ConnectFailed {
        connection: Arc<Connection>,
        reason: DownReason,
        /// The peer's address that the attempt went to.
        remote: Option<IpAddr>,
        /// The IKE SA for which the attempt was to authenticate the peers again.
        reauthenticates: Option<IkeSaId>,
    },
    /// The IKE SA ended while it was about to establish the child.
    ChildAbandoned { connection: String, child: String },
    /// IKE_AUTH waits for the status of certificates, or for our own signature.
    HoldAuth { ike_sa: IkeSaId },
    /// An IKE_SA_INIT request is answered with an error. `proven`: its sender receives at its address.
    RefuseInit {
        request: Box<HeldMessage>,
        error: Payload,
        proven: bool,
    },
    /// A job of this IKE SA has made room for others.
    JobDropped { ike_sa: IkeSaId, ticket: Ticket },
    /// The peer has answered a probe of the path with an error, or the IKE SA has ended over one.
    PathProbeRefused {
        ike_sa: IkeSaId,
        connection: String,
        remote: IpAddr,
    },
    /// Another peer asks for the traffic of this child SA, so its own peer is asked whether it is alive.
    CheckLiveness { child: ChildSaId },
}

/// The way in which a replaced IKE SA ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retirement {
    /// We delete it.
    Delete,
    /// The peer is to delete it.
    AwaitDelete,
    /// The peer has deleted it.
    Deleted,
}

impl Context<'_> {
    pub(crate) fn next_id(&mut self) -> u64 {
        *self.last_id += 1;
        *self.last_id
    }

    pub(crate) fn nonce(&mut self) -> Vec<u8> {
        let mut nonce = vec![0; 32];
        self.random.fill(&mut nonce);
        nonce
    }

    /// A fresh IKE SPI. It is not zero, and no live SA has it.
    pub(crate) fn ike_spi(&mut self) -> u64 {
        loop {
            let mut bytes = [0; 8];
            self.random.fill(&mut bytes);
            let spi = u64::from_be_bytes(bytes);
            if spi != 0 && !self.by_spi.contains_key(&spi) {
                return spi;
            }
        }
    }

    /// A random part of `range`.
    pub(crate) fn jitter(&mut self, range: Duration) -> Duration {
        range.mul_f64(self.random.fraction())
    }

    /// A random number from 0 to `range`.
    pub(crate) fn jitter_count(&mut self, range: u64) -> u64 {
        let mut bytes = [0; 8];
        self.random.fill(&mut bytes);
        match range.checked_add(1) {
            Some(range) => u64::from_be_bytes(bytes) % range,
            None => u64::from_be_bytes(bytes),
        }
    }

    /// Sends a datagram outside an IKE SA, with the non-ESP marker on the NAT-T port.
    pub(crate) fn transmit(&mut self, local: SocketAddr, remote: SocketAddr, datagram: &[u8]) {
        self.transmit_as((local, remote), 0, false, datagram);
    }

    fn transmit_as(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        dscp: u8,
        path_probe: bool,
        datagram: &[u8],
    ) {
        let payload = udp_payload(datagram, self.is_nat_t(local));
        self.counters.messages_sent += 1;
        self.transmits.push_back(Transmit {
            local,
            remote,
            dscp,
            payload,
            path_probe,
        });
    }

    /// Sends a message in its one datagram, or in all its fragments.
    pub(crate) fn transmit_message(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        dscp: u8,
        message: &mut OutgoingMessage,
    ) {
        let (fragments, path_probe) = (message.is_fragmented(), message.probes_path());
        for datagram in message.send() {
            self.counters.fragments_sent += u64::from(fragments);
            self.transmit_as((local, remote), dscp, path_probe, datagram);
        }
    }

    pub(crate) fn is_nat_t(&self, local: SocketAddr) -> bool {
        local.port() == self.config.ports.nat_t
    }
}
