//! The status of IKE SAs and of configured children.

use super::Endpoint;
use crate::sa::{ChildRequest, ChildSa, ChildState, Established, IkeSa, Phase};
use crate::status::{
    ChildSaState, ChildSaStatus, ConfiguredChild, ConfiguredState, IkeSaState, IkeSaStatus,
};

impl Endpoint {
    /// Every configured child, up or not, in the order of the configuration.
    pub fn configured(&self) -> Vec<ConfiguredChild> {
        let mut all = Vec::new();
        for connection in &self.config.connections {
            let ids = self.table.of_connection(&connection.name);
            let sas: Vec<_> = ids.iter().filter_map(|id| self.table.get(*id)).collect();
            for child in &connection.children {
                let (closed, next_at, failure) = self.goals.look(&connection.name, &child.name);
                let wanted = ChildRequest::from(child.clone());
                let up = |state: &Established| state.is_up(&child.name);
                let installed = |sa: &&IkeSa| sa.established().is_some_and(up);
                let mut called = sas.iter().filter(|sa| sa.is_with_initiation_peer());
                let state = if called.clone().any(installed) {
                    ConfiguredState::Up
                } else if called.any(|sa| sa.has_child(&wanted)) {
                    ConfiguredState::Connecting
                } else if next_at.is_some() {
                    ConfiguredState::Waiting
                } else if sas.iter().any(installed) {
                    ConfiguredState::Up
                } else if closed {
                    ConfiguredState::Closed
                } else {
                    ConfiguredState::Down
                };
                all.push(ConfiguredChild {
                    connection: connection.name.clone(),
                    child: child.name.clone(),
                    state,
                    next_at,
                    failure: failure.cloned(),
                });
            }
        }
        all
    }
}

/// Returns the status of an IKE SA. Returns `None` if only the last response of the SA is kept.
pub(super) fn ike_sa(sa: &IkeSa) -> Option<IkeSaStatus> {
    let state = match &sa.phase {
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
    };
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
        state: match child.state {
            ChildState::Installed => ChildSaState::Installed,
            ChildState::Rekeying => ChildSaState::Rekeying,
            ChildState::Rekeyed => ChildSaState::Rekeyed,
            ChildState::Deleting => ChildSaState::Deleting,
        },
        mode: child.mode,
        spi_in: child.spi_in,
        spi_out: child.spi_out,
        esp: child.esp,
        local_ts: child.local_ts.clone(),
        remote_ts: child.remote_ts.clone(),
        udp_encap: sa.common.nat.udp_encap(),
        installed: child.installed,
        rekey_at: child.rekey_at,
        expires_at: child.expires_at,
    }
}
