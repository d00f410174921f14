//! Reauthentication: a new IKE SA with the same children replaces an old one (RFC 7296 §2.8.3).
//!
//! The old SA and its children stay until the new ones are up, so that no packet finds a gap.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::{CommandError, Endpoint};
use crate::auth::CertificateHash;
use crate::config::{AddressMatch, EndAction, StartAction};
use crate::event::Event;
use crate::failure::{AuthFailure, DownReason, Shortage};
use crate::id::IkeSaId;
use crate::nat::UdpTrial;
use crate::sa::{ChildRequest, ChildState, Effect, Established, IkeSa, IkeSaCommon, Task};
use crate::status::GoalFailure;

impl Endpoint {
    /// Has the peers of an IKE SA authenticate again, over a new IKE SA with the same children. The old one stays until
    /// the new one has them. Refuses that for an IKE SA without children, which would only end.
    pub fn reauthenticate_ike_sa(
        &mut self,
        now: Instant,
        ike_sa: IkeSaId,
    ) -> Result<(), CommandError> {
        let sa = self.table.get(ike_sa).ok_or(CommandError::NoSa)?;
        let state = sa.established().filter(|state| !state.is_ending());
        if state.is_some_and(|state| state.wanted_children().is_empty()) {
            let connection = sa.common.connection.name.clone();
            return Err(CommandError::WithoutChildren(connection));
        }
        let result = self.reauthenticate(now, ike_sa);
        self.settle(now);
        result
    }

    /// The time to reauthenticate an IKE SA has come. If that fails, it is tried again within the lifetime of the SA.
    pub(super) fn reauthenticate_in_time(&mut self, now: Instant, id: IkeSaId) {
        let reason = match self.reauthenticate(now, id) {
            Err(CommandError::NoRoute(_)) => DownReason::NoRoute,
            Err(CommandError::BehindNat(_)) => DownReason::BehindNat,
            Err(CommandError::Limit(limit)) => DownReason::Resources(limit),
            _ => return,
        };
        self.not_reauthenticated(now, id, reason);
    }

    /// Tries a new IKE SA beside one whose peer does not answer. It takes the children over if the peer was started
    /// again. Children that would not be established again if the old SA ended are no reason for it.
    pub(super) fn reach_out(&mut self, now: Instant, id: IkeSaId) {
        let Some(sa) = self.table.get(id).filter(|sa| sa.is_with_initiation_peer()) else {
            return;
        };
        let wanted = sa.established().map(Established::wanted_children);
        let comes_back = |request: &ChildRequest| {
            request.config.dpd_action != EndAction::Clear
                || request.config.start_action == StartAction::Start
        };
        let due = wanted.is_some_and(|wanted| wanted.iter().any(comes_back));
        // Where no attempt can be made, the verdict about the old SA remains.
        if due && self.reauthentication_of(id).is_none() && self.reauthenticate(now, id).is_ok() {
            let attempt = self.reauthentication_of(id);
            self.with(now, id, |sa, _| {
                if let Some((state, _)) = sa.established_mut() {
                    state.liveness.attempt = attempt;
                }
            });
        }
    }

    /// The peer of an IKE SA has been heard after all, so that the attempt beside that SA ends, unless the peer has
    /// answered it.
    pub(super) fn withdraw_attempt(&mut self, now: Instant, attempt: IkeSaId) {
        let old = self.table.get(attempt);
        let old = old.and_then(|attempt| attempt.common.reauthenticates);
        self.with(now, attempt, |sa, ctx| sa.withdraw(ctx));
        let Some(old) = old.filter(|old| self.reauthentication_of(*old).is_none()) else {
            return;
        };
        self.with(now, old, |sa, _| {
            if let Some((state, _)) = sa.established_mut() {
                state.reauthentication = None;
            }
        });
    }

    /// The attempt to authenticate the peers of an IKE SA again has failed.
    pub(super) fn not_reauthenticated(&mut self, now: Instant, id: IkeSaId, reason: DownReason) {
        self.note_not_reauthenticated(now, id, reason);
        self.end_where_address_is_gone(now, id);
    }

    /// A peer was refused because its certificate is revoked. IKE SAs that hold by the same certificate end, whoever has
    /// made them. A certificate is public, but nobody can have a good one called revoked.
    pub(super) fn end_sas_of(
        &mut self,
        now: Instant,
        certificate: CertificateHash,
        why: &AuthFailure,
    ) {
        for id in self.table.of_certificate(&certificate) {
            let reason = DownReason::AuthenticationFailed(why.clone());
            self.with(now, id, |sa, ctx| sa.do_task(ctx, Task::DeleteIke(reason)));
        }
    }

    fn note_not_reauthenticated(&mut self, now: Instant, id: IkeSaId, reason: DownReason) {
        let failure = GoalFailure {
            at: now,
            why: reason.to_string(),
        };
        let next = self.with(now, id, |sa, _| {
            let (state, common) = sa.established_mut()?;
            state.reauthentication = None;
            // A trial that no new IKE SA can make is none. A later stretch of one-way traffic begins another.
            if common.udp_trial == UdpTrial::Wanted {
                common.udp_trial = UdpTrial::Untried;
            }
            // An attempt because of the peer's silence says nothing about who it is.
            if state.liveness.attempt.is_none() {
                state.reauth_failure = Some(failure);
            }
            state.reauth_at.filter(|_| !reason.is_revocation())
        });
        let Some(sa) = self.table.get(id) else { return };
        self.events.push_back(Event::ReauthenticationFailed {
            ike_sa: id,
            connection: sa.common.connection.name.clone(),
            reason,
            retry_in: next.flatten().map(|at| at.saturating_duration_since(now)),
        });
    }

    pub(super) fn reauthenticate(&mut self, now: Instant, id: IkeSaId) -> Result<(), CommandError> {
        let sa = self.table.get(id).ok_or(CommandError::NoSa)?;
        let goes_on = |state: &&Established| !state.is_ending() && !self.ends.is_terminated(id);
        let state = sa.established().filter(goes_on);
        let mut requests = state.ok_or(CommandError::NoSa)?.wanted_children();
        if self.reauthentication_of(id).is_some() {
            // An attempt because of the peer's silence is wanted now also if the peer is heard.
            self.with(now, id, |sa, _| {
                if let Some((state, _)) = sa.established_mut() {
                    state.liveness.attempt = None;
                }
            });
            return Ok(());
        }
        let connection = sa.common.connection.clone();
        let udp_trial = sa.common.udp_trial.of_successor();
        for request in &mut requests {
            // A child goes on as it is configured now.
            let mut configured = connection.children.iter();
            let same = configured.find(|child| child.name == request.config.name);
            if let Some(child) = same.filter(|child| !child.from_packet) {
                request.config = Arc::clone(child);
            }
        }
        if requests.is_empty() {
            // There is nothing to go on with.
            self.with(now, id, |sa, ctx| {
                sa.do_task(ctx, Task::DeleteIke(DownReason::Expired))
            });
            return Ok(());
        }
        if !self.table.has_room(self.config.limits.ike_sas_max) {
            return Err(CommandError::Limit(Shortage::IkeSas));
        }
        let (local, remote) = self.addresses_again(&sa.common)?;
        let made = self.in_context(now, |ctx| {
            IkeSa::connect(ctx, connection.clone(), local, remote, requests)
        });
        match made {
            Ok(mut sa) => {
                let successor = sa.common.id;
                sa.common.reauthenticates = Some(id);
                sa.common.udp_trial = udp_trial;
                sa.common.nat.forced |= udp_trial.is_in_udp();
                self.insert(now, Box::new(sa), None);
                self.link(now, id, successor);
            }
            Err(reason) => self.effects.push(Effect::ConnectFailed {
                connection,
                reason,
                remote: None,
                reauthenticates: Some(id),
            }),
        }
        Ok(())
    }

    /// The addresses of a new IKE SA between the same two hosts.
    fn addresses_again(&self, old: &IkeSaCommon) -> Result<(SocketAddr, SocketAddr), CommandError> {
        let (connection, (local, remote)) = (&old.connection, old.hosts);
        let mut configured = AddressMatch::hosts_of(&connection.remote_addrs);
        if old.nat.remote && !configured.any(|host| host == remote) {
            return Err(CommandError::BehindNat(connection.name.clone()));
        }
        let routes = &self.host.routes;
        let source = routes.source(remote, Some(local));
        let source = source.or_else(|| self.source_for(connection, remote));
        let source = source.ok_or_else(|| CommandError::NoRoute(connection.name.clone()))?;
        let port = connection.local_port.unwrap_or(self.config.ports.ike);
        let to = SocketAddr::new(remote, connection.remote_port);
        Ok((SocketAddr::new(source, port), to))
    }

    /// The IKE SA that is about to replace this one.
    pub(super) fn reauthentication_of(&self, id: IkeSaId) -> Option<IkeSaId> {
        let successor = self.table.get(id)?.established()?.reauthentication?;
        let common = &self.table.get(successor)?.common;
        (common.reauthenticates == Some(id)).then_some(successor)
    }

    /// Lets the old IKE SA know the new one.
    fn link(&mut self, now: Instant, old: IkeSaId, successor: IkeSaId) {
        self.with(now, old, |sa, _| {
            if let Some((state, _)) = sa.established_mut() {
                state.reauthentication = Some(successor);
            }
        });
    }

    /// A rekey replaces `from`, which can be the old SA or the new SA of a reauthentication.
    pub(super) fn follow_rekey(&mut self, now: Instant, from: IkeSaId, to: IkeSaId) {
        if let Some(successor) = self.reauthentication_of(from) {
            self.with(now, successor, |sa, _| sa.common.reauthenticates = Some(to));
            self.link(now, to, successor);
        }
        let new = self.table.get(to);
        if let Some(old) = new.and_then(|new| new.common.reauthenticates) {
            self.link(now, old, to);
        }
    }

    /// The new IKE SA has all the children that it can have. The old one is deleted. If the new one has no child, the
    /// old one goes on.
    pub(super) fn reauthenticated(&mut self, now: Instant, from: IkeSaId, to: IkeSaId) {
        let Some(state) = self.table.get(to).and_then(IkeSa::established) else {
            return;
        };
        let current = (state.children.iter()).filter(|child| child.state.is_current());
        let children: Vec<_> = current.map(|child| child.config.clone()).collect();
        let old = self.table.get(from).and_then(IkeSa::established);
        let needed = |state: &crate::sa::Established| {
            let mut children = state.children.iter();
            children.any(|child| child.state != ChildState::Deleting)
        };
        if children.is_empty() && old.is_some_and(needed) {
            self.with(now, to, |sa, ctx| {
                sa.do_task(ctx, Task::DeleteIke(DownReason::Superseded))
            });
            self.note_not_reauthenticated(now, from, DownReason::NoChildTakenOver);
            return;
        }
        if let Some(old) = self.table.get(from) {
            self.events.push_back(Event::IkeSaReauthenticated {
                old: from,
                new: to,
                connection: old.common.connection.name.clone(),
            });
        }
        self.counters.ike_reauthentications += 1;
        self.with(now, from, |sa, ctx| sa.give_way(ctx, &children));
        // The peer may have authenticated again at the same time.
        self.established(now, to, false);
    }
}
