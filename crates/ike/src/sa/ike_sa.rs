//! An IKE SA: the fields that all its phases share, and the phase that it is in.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use super::deadline;
use super::established::Established;
use super::mapping::PeerMapping;
use super::phase::Phase;
use crate::config::{AddressMatch, Config, Connection};
use crate::failure::DownReason;
use crate::id::IkeSaId;
use crate::jobs::{Payer, Ticket};
use crate::nat::{Nat, UdpTrial};
use crate::suite::Role;
use crate::transport::Window;
use crate::wire::{ExchangeType, Header};

#[derive(Debug)]
pub(crate) struct IkeSa {
    pub(crate) common: IkeSaCommon,
    pub(crate) phase: Phase,
}

/// The fields that an IKE SA has in every phase.
#[derive(Debug)]
pub(crate) struct IkeSaCommon {
    pub(crate) id: IkeSaId,
    /// The time at which the attempt to establish it began.
    pub(crate) begun: Instant,
    /// A responder's connection can still change when the peer says who it is.
    pub(crate) connection: Arc<Connection>,
    /// Our role in IKE_SA_INIT; after a rekey, our role in that rekey.
    pub(crate) role: Role,
    pub(crate) spi_i: u64,
    pub(crate) spi_r: u64,
    /// The addresses of our IKE messages.
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// Where a peer that has moved is. `None`: it has not, and its ESP comes from where its IKE comes from.
    pub(crate) mapping: Option<PeerMapping>,
    /// The addresses of both ends in IKE_SA_INIT, which traffic selectors mean by the addresses of the two. Only a peer that
    /// receives at its address gets through IKE_SA_INIT. Later one datagram with a false source address can change `remote`.
    pub(crate) hosts: (IpAddr, IpAddr),
    pub(crate) nat: Nat,
    pub(crate) udp_trial: UdpTrial,
    /// Both ends have announced that they take fragments (RFC 7383 §2.3).
    pub(crate) fragmentation: bool,
    /// The ends have proved who they are over both messages of IKE_SA_INIT. A rekey changes nothing in that.
    pub(crate) full_transcript: bool,
    /// The length of the longest fragment that the path is believed to take, if that is less than what is configured.
    pub(crate) narrow_path: Option<usize>,
    pub(crate) window: Window,
    /// The SA begins no exchange and takes no request: a simultaneous rekey of it, or the one that made it, is not decided.
    pub(crate) suspended: bool,
    /// The time at which something was last sent towards the peer, for NAT keepalives.
    pub(crate) last_sent: Instant,
    /// The IKE SA that this one has replaced. It can still exist.
    pub(crate) predecessor: Option<IkeSaId>,
    /// The peer was the one that the connection initiates to, before a host name had other addresses.
    pub(crate) was_called: bool,
    /// The IKE SA for which this one authenticates the peers again, until it has the children of that one.
    pub(crate) reauthenticates: Option<IkeSaId>,
    /// The party that pays for the jobs of this SA.
    pub(crate) payer: Payer,
    /// The job that is under way.
    pub(crate) job: Option<Ticket>,
}

/// The progress of an IKE SA that we initiate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectProgress {
    /// The IKE_SA_INIT request is not sent yet.
    Waiting,
    InitSent,
    CookieSent,
    /// An error that nobody has authenticated refuses IKE_SA_INIT.
    Refused,
    /// IKE_SA_INIT is answered, IKE_AUTH is not.
    AuthSent,
    /// A request was retransmitted.
    Silent,
}

impl IkeSa {
    /// Moves the phase out, and the next phase in. No other place does that, so that no SA is left without its phase.
    pub(crate) fn advance(&mut self, next: impl FnOnce(Phase, &mut IkeSaCommon) -> Phase) {
        let phase = std::mem::replace(&mut self.phase, Phase::Closed);
        self.phase = next(phase, &mut self.common);
    }

    pub(crate) fn established(&self) -> Option<&Established> {
        self.phase.established()
    }

    /// The established phase, for changes that do not end it.
    pub(crate) fn established_mut(&mut self) -> Option<(&mut Established, &mut IkeSaCommon)> {
        match &mut self.phase {
            Phase::Established(state) => Some((state, &mut self.common)),
            _ => None,
        }
    }

    /// Returns the progress of an SA that we initiate. Returns `None` if we do not initiate the SA, or if it is not on
    /// its way up.
    pub(crate) fn connecting(&self) -> Option<ConnectProgress> {
        let window = &self.common.window;
        let silent = window.retransmissions() > 0;
        match &self.phase {
            Phase::InitSent(_) if !window.is_busy() => Some(ConnectProgress::Waiting),
            Phase::InitSent(_) | Phase::AuthSent(_) if silent => Some(ConnectProgress::Silent),
            Phase::InitSent(state) if state.refused.is_some() => Some(ConnectProgress::Refused),
            Phase::InitSent(state) if state.cookie.is_some() => Some(ConnectProgress::CookieSent),
            Phase::InitSent(_) => Some(ConnectProgress::InitSent),
            Phase::AuthDue(_) | Phase::AuthSent(_) => Some(ConnectProgress::AuthSent),
            _ => None,
        }
    }

    pub(crate) fn is_with_initiation_peer(&self) -> bool {
        self.common.is_with_initiation_peer()
    }

    /// Says whether only the last messages of the SA are still to come.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(
            self.phase,
            Phase::Closing(_) | Phase::Gone(_) | Phase::Closed
        )
    }

    pub(crate) fn next_timeout(&self, config: &Config) -> Option<Instant> {
        let sa = &self.common;
        let own = match &self.phase {
            Phase::InitReceived(state) => Some(state.deadline),
            Phase::InitResponded(state) => Some(state.deadline),
            Phase::AuthDue(state) => Some(state.deadline),
            Phase::Established(_) if sa.suspended => None,
            Phase::Established(state) => state.next_timeout(&sa.connection, &sa.window),
            Phase::Rekeyed(_) if sa.window.is_busy() => None,
            Phase::Rekeyed(state) => Some(state.delete_at),
            Phase::Gone(state) => Some(state.until),
            Phase::InitSent(_) | Phase::AuthSent(_) | Phase::Closing(_) | Phase::Closed => None,
        };
        let kept = sa.nat.local && self.established().is_some() && !config.nat_keepalive.is_zero();
        let keepalive = deadline(sa.last_sent, config.nat_keepalive).filter(|_| kept);
        [own, keepalive, sa.window.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn ending(&self) -> Option<&DownReason> {
        self.phase.ending()
    }
}

impl IkeSaCommon {
    /// Says whether the SA is with the peer that the connection initiates to. Others that call us over the same connection,
    /// as with `remote_addrs = 192.0.2.1, %any`, are not that peer.
    pub(crate) fn is_with_initiation_peer(&self) -> bool {
        let connection = &self.connection;
        let mut hosts = AddressMatch::hosts_of(&connection.remote_addrs).peekable();
        connection.names_one_peer()
            || self.was_called
            || hosts.peek().is_none()
            || hosts.any(|host| host == self.hosts.1)
    }

    /// The addresses of ESP.
    pub(crate) fn esp_ends(&self) -> (SocketAddr, SocketAddr) {
        let mapping = self.mapping.as_ref();
        mapping.map_or((self.local, self.remote), PeerMapping::esp)
    }

    /// The addresses of the next retransmission. A message can be late, and ESP can know the peer's mapping better. So
    /// every other retransmission goes where ESP goes.
    pub(crate) fn ends_again(&self) -> (SocketAddr, SocketAddr) {
        match self.window.retransmissions() % 2 {
            1 => self.esp_ends(),
            _ => (self.local, self.remote),
        }
    }

    /// The SA goes on from another own address.
    pub(crate) fn set_own_address(&mut self, address: IpAddr) {
        self.local.set_ip(address);
        if let Some(mapping) = &mut self.mapping {
            mapping.set_own(address);
        }
    }

    pub(crate) fn own_spi(&self) -> u64 {
        match self.role {
            Role::Initiator => self.spi_i,
            Role::Responder => self.spi_r,
        }
    }

    pub(crate) fn header(&self, exchange: ExchangeType, response: bool, message_id: u32) -> Header {
        Header {
            initiator_spi: self.spi_i,
            responder_spi: self.spi_r,
            exchange,
            from_initiator: self.role.is_initiator(),
            response,
            message_id,
        }
    }
}
