//! Probes of paths: the embedder's part in them, and the peers that get none.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Endpoint;
use crate::event::{Event, PathFound};
use crate::id::{ChildSaId, IkeSaId};
use crate::sa::IkeSa;

/// The time for which a peer gets no probes after it has refused one, or after an IKE SA has ended over one. RFC 7296
/// §3.10.1 has peers ignore what a probe contains, but an IKE SA that ends every time would be no tunnel.
const REFUSED_FOR: Duration = Duration::from_secs(24 * 3600);
/// Most peers that are remembered.
const REFUSALS_MAX: usize = 1024;

/// The peers that get no probes, by connection and address, and since when.
#[derive(Debug, Default)]
pub(super) struct ProbeRefusals(HashMap<(String, IpAddr), Instant>);

impl ProbeRefusals {
    fn add(&mut self, now: Instant, connection: String, remote: IpAddr) {
        if self.0.len() >= REFUSALS_MAX {
            self.0.retain(|_, at| is_in_force(*at, now));
        }
        if self.0.len() < REFUSALS_MAX {
            self.0.insert((connection, remote), now);
        }
    }

    fn has(&self, now: Instant, connection: &str, remote: IpAddr) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let at = self.0.get(&(connection.to_owned(), remote));
        // With a full table nobody can tell who has refused, and an IKE SA is worth more than a probe.
        self.0.len() >= REFUSALS_MAX || at.is_some_and(|at| is_in_force(*at, now))
    }
}

fn is_in_force(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < REFUSED_FOR
}

impl Endpoint {
    /// The child SAs of an IKE SA.
    pub fn children_of(&self, ike_sa: IkeSaId) -> impl Iterator<Item = ChildSaId> {
        let state = self.table.get(ike_sa).and_then(IkeSa::established);
        let children = state.into_iter().flat_map(|state| &state.children);
        children.map(|child| child.id)
    }

    /// The answer to [`Event::PathProbeDue`]. `longest` is the length in bytes that packets to the peer may have, as far as
    /// the route and ICMP errors tell. `None`: it does not matter, because packets to the peer may be fragmented.
    pub fn probe_path(&mut self, now: Instant, ike_sa: IkeSaId, longest: Option<u16>) {
        let Some(sa) = self.table.get(ike_sa) else {
            return;
        };
        let (connection, remote) = (&sa.common.connection.name, sa.common.remote.ip());
        let refused = self.probe_refusals.has(now, connection, remote);
        self.with(now, ike_sa, |sa, ctx| match refused {
            true => sa.leave_path_alone(),
            false => sa.probe_path(ctx, longest),
        });
        self.settle(now);
    }

    pub(super) fn path_probe_refused(
        &mut self,
        now: Instant,
        ike_sa: IkeSaId,
        connection: String,
        remote: IpAddr,
    ) {
        self.events.push_back(Event::PathProbed {
            ike_sa,
            connection: connection.clone(),
            remote,
            found: PathFound::Refused,
        });
        self.probe_refusals.add(now, connection, remote);
    }
}
