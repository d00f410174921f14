//! The status of IKE SAs and of configured children.

use super::Endpoint;
use crate::config::StartAction;
use crate::id::{ChildSaId, IkeSaId};
use crate::sa::{ChildRequest, ChildSa, ChildState, Established, IkeSa, Phase};
use crate::status::{
    Attempt, ChildSaState, ChildSaStatus, ConfiguredChild, ConfiguredState, IkeSaState, IkeSaStatus,
};

impl Endpoint {
    /// Every configured child, up or not, in the order of the configuration.
    pub fn configured(&self) -> Vec<ConfiguredChild> {
        let mut all = Vec::new();
        for connection in &self.config.connections {
            let ids = self.table.of_connection(&connection.name);
            let sas: Vec<_> = ids.iter().filter_map(|id| self.table.get(*id)).collect();
            for child in &connection.children {
                let goal = self.goals.look(&connection.name, &child.name);
                let wanted = ChildRequest::from(child.clone());
                let up = |state: &Established| state.is_up(&child.name);
                let installed = |sa: &&IkeSa| sa.established().is_some_and(up);
                let mut called = sas.iter().filter(|sa| sa.is_with_initiation_peer());
                let under_way = called.clone().filter(|sa| sa.has_child(&wanted));
                let attempt = under_way.clone().find_map(|sa| sa.attempt());
                let state = if called.clone().any(installed) {
                    ConfiguredState::Up
                } else if called.any(|sa| sa.has_child(&wanted)) {
                    ConfiguredState::Connecting
                } else if goal.next_at.is_some() {
                    ConfiguredState::Waiting
                } else if sas.iter().any(installed) {
                    ConfiguredState::Up
                } else if goal.closed {
                    ConfiguredState::Closed
                } else {
                    ConfiguredState::Down
                };
                all.push(ConfiguredChild {
                    connection: connection.name.clone(),
                    child: child.name.clone(),
                    state,
                    wanted: match state {
                        ConfiguredState::Connecting | ConfiguredState::Waiting => true,
                        ConfiguredState::Closed => false,
                        ConfiguredState::Up | ConfiguredState::Down => {
                            child.start_action == StartAction::Start && !goal.idle
                        }
                    },
                    next_at: goal.next_at,
                    failure: goal.failure.cloned(),
                    attempt: attempt.filter(|_| state == ConfiguredState::Connecting),
                });
            }
        }
        all
    }
}

impl Endpoint {
    /// The attempt to establish an IKE SA of the connection, if a request of it waits for an answer.
    pub fn attempt(&self, connection: &str) -> Option<Attempt> {
        let ids = self.table.of_connection(connection).into_iter();
        let sas = ids.filter_map(|id| self.table.get(id));
        let mut called = sas.filter(|sa| sa.is_with_initiation_peer());
        called.find_map(IkeSa::attempt)
    }

    /// The state of every IKE SA, oldest first, without those of which only the last response is kept.
    pub fn states(&self) -> impl Iterator<Item = IkeSaState> {
        self.table.iter().filter_map(ike_sa_state)
    }

    /// The state of an IKE SA, or `None` if there is no such SA.
    pub fn state_of(&self, id: IkeSaId) -> Option<IkeSaState> {
        ike_sa_state(self.table.get(id)?)
    }

    /// The state of a child SA, or `None` if there is no such SA.
    pub fn child_state_of(&self, id: ChildSaId) -> Option<ChildSaState> {
        let sa = self.table.get(self.table.ike_sa_of(id)?)?;
        Some(child_state(sa.established()?.child(id)?))
    }

    /// Tells whether an IKE SA of the connection is established, and has the child if one is named.
    pub fn is_established(&self, connection: &str, child: Option<&str>) -> bool {
        let ids = self.table.of_connection(connection).into_iter();
        let mut established = ids.filter_map(|id| self.table.get(id)?.established());
        established.any(|state| {
            let mut children = state.children.iter();
            child.is_none_or(|name| children.any(|child| child.config.name == name))
        })
    }
}

fn ike_sa_state(sa: &IkeSa) -> Option<IkeSaState> {
    Some(match &sa.phase {
        _ if sa.ending().is_some() => IkeSaState::Deleting,
        Phase::InitSent(_)
        | Phase::InitReceived(_)
        | Phase::InitResponded(_)
        | Phase::AuthDue(_)
        | Phase::AuthSent(_) => IkeSaState::Connecting,
        Phase::Established(state) if state.is_rekeying_ike() || sa.common.suspended => {
            IkeSaState::Rekeying
        }
        Phase::Established(_) => IkeSaState::Established,
        Phase::Rekeyed(_) => IkeSaState::Rekeyed,
        Phase::Closing(_) => IkeSaState::Deleting,
        Phase::Gone(_) | Phase::Closed => return None,
    })
}

fn child_state(child: &ChildSa) -> ChildSaState {
    match child.state {
        ChildState::Installed => ChildSaState::Installed,
        ChildState::Rekeying => ChildSaState::Rekeying,
        ChildState::Rekeyed => ChildSaState::Rekeyed,
        ChildState::Deleting => ChildSaState::Deleting,
    }
}

/// Returns the status of an IKE SA. Returns `None` if only the last response of the SA is kept.
pub(super) fn ike_sa(sa: &IkeSa) -> Option<IkeSaStatus> {
    let state = ike_sa_state(sa)?;
    let up = sa.established();
    Some(IkeSaStatus {
        id: sa.common.id,
        connection: (!sa.phase.is_half_open()).then(|| sa.common.connection.name.clone()),
        state,
        initiator: sa.common.role.is_initiator(),
        local: sa.common.local,
        remote: sa.common.remote,
        local_id: up.map(|state| state.local_id.clone()),
        remote_id: up.map(|state| state.remote_id.clone()),
        groups: up.map_or_else(Vec::new, |state| state.groups.clone()),
        spi_i: sa.common.spi_i,
        spi_r: sa.common.spi_r,
        nat_local: sa.common.nat.local,
        nat_remote: sa.common.nat.remote,
        fragmentation: sa.common.fragmentation,
        full_transcript: sa.common.full_transcript,
        suite: sa.phase.channel().map(|channel| channel.keys().suite()),
        established: up.map(|state| state.established),
        rekey_at: up.and_then(|state| state.rekey_at),
        expires_at: up.and_then(|state| state.expires_at),
        reauth_at: up.and_then(|state| state.reauth_at),
        reauth_failure: up.and_then(|state| state.reauth_failure.clone()),
        rekey_failure: up.and_then(|state| state.rekey_failure.clone()),
        task_active: up
            .and_then(|state| state.exchange.as_ref())
            .map(|exchange| exchange.name()),
        tasks_queued: up
            .map(|state| {
                state
                    .tasks
                    .iter()
                    .map(|queued| queued.task.name())
                    .collect()
            })
            .unwrap_or_default(),
        children: up
            .map(|state| state.children.iter().map(|c| child(sa, c)).collect())
            .unwrap_or_default(),
    })
}

fn child(sa: &IkeSa, child: &ChildSa) -> ChildSaStatus {
    ChildSaStatus {
        id: child.id,
        name: child.config.name.clone(),
        state: child_state(child),
        mode: child.mode,
        spi_in: child.spi_in,
        spi_out: child.spi_out,
        esp: child.esp,
        key_exchange: child.key_exchange,
        local_ts: child.local_ts.clone(),
        remote_ts: child.remote_ts.clone(),
        udp_encap: sa.common.nat.udp_encap(),
        one_way: sa
            .established()
            .and_then(|state| state.one_way(&sa.common, child)),
        installed: child.installed,
        rekey_at: child.rekey_at,
        expires_at: child.expires_at,
    }
}
