//! The ends of SAs that the data plane is still to be told of.

use std::sync::Arc;

use super::child_sa::ChildSa;
use crate::claims::Claims;
use crate::config::Connection;
use crate::event::Event;
use crate::failure::DownReason;
use crate::id::IkeSaId;

/// Pairs of selectors that cost as much as one selector or one SA.
const PAIRS_OF_ONE: usize = 64;

/// The end of an SA that is still to be told.
#[derive(Debug)]
pub(crate) struct DueEnd {
    pub(super) ike_sa: IkeSaId,
    pub(super) connection: Arc<Connection>,
    pub(super) reason: DownReason,
    /// The child that has ended. `None` means that the IKE SA has.
    pub(super) child: Option<ChildSa>,
    /// The goals of the endpoint follow this end.
    pub(crate) of_goals: bool,
}

impl DueEnd {
    /// The work that the end makes, in units of about one route.
    pub(crate) fn work(&self) -> usize {
        let of_child = |child: &ChildSa| {
            let (local, remote) = (child.local_ts.len(), child.remote_ts.len());
            remote + local * remote / PAIRS_OF_ONE
        };
        1 + self.child.as_ref().map_or(0, of_child)
    }

    pub(crate) fn tell(self, claims: &mut Claims) -> Event {
        let connection = &self.connection.name;
        match self.child {
            Some(child) => child.uninstall(claims, self.ike_sa, connection, self.reason),
            None => Event::IkeSaDown {
                ike_sa: self.ike_sa,
                connection: connection.clone(),
                reason: self.reason,
            },
        }
    }
}
