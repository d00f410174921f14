//! Changes of our own addresses. A child SA cannot change its addresses, so an IKE SA whose own address is gone is
//! replaced by one from another address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Endpoint;
use crate::event::Event;
use crate::failure::DownReason;
use crate::id::IkeSaId;
use crate::sa::{IkeSa, Phase, Task};

/// Pause before the addresses are looked at again. A route often comes a while after its address. Each pause is longer by
/// this time than the one before.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Most looks after a change. A later change begins anew.
const LOOKS_MAX: u32 = 12;

/// The looks at our own addresses that are still to come.
#[derive(Debug, Default)]
pub(super) struct AddressWatch {
    next: Option<Instant>,
    done: u32,
}

impl AddressWatch {
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.next
    }
}

impl Endpoint {
    /// The addresses of this host have changed, or may have. An IKE SA whose own address is gone goes on from another
    /// address, by a new IKE SA with the same children. It waits while there is no other address.
    pub fn addresses_changed(&mut self, now: Instant) {
        self.address_watch = AddressWatch {
            next: Some(now),
            done: 0,
        };
        self.look_at_addresses(now);
        self.settle(now);
    }

    /// Looks for IKE SAs whose own address is gone, if it is time.
    pub(super) fn look_at_addresses(&mut self, now: Instant) {
        let watch = &mut self.address_watch;
        if watch.next.take_if(|at| *at <= now).is_none() {
            return;
        }
        watch.done += 1;
        let again = (watch.done < LOOKS_MAX).then(|| now + LOOK_AGAIN * watch.done);
        let mut waiting = false;
        for id in self.stranded() {
            waiting |= !self.leave_address(now, id);
        }
        if waiting {
            self.address_watch.next = again;
        }
    }

    /// The IKE SAs whose own address may be gone. Most SAs share an address, which is looked up once.
    fn stranded(&self) -> Vec<IkeSaId> {
        let mut present = HashMap::new();
        let alive = |sa: &&IkeSa| match &sa.phase {
            Phase::InitSent(_) | Phase::AuthDue(_) | Phase::AuthSent(_) => true,
            Phase::Established(state) => !state.is_ending() && !sa.common.suspended,
            _ => false,
        };
        let alive = self.table.iter().filter(alive);
        let stranded = alive.filter(|sa| {
            let local = sa.common.local.ip();
            let here = present.entry(local);
            !*here.or_insert_with(|| self.has_address(local, sa.common.remote.ip()))
        });
        stranded.map(|sa| sa.common.id).collect()
    }

    fn has_address(&self, local: IpAddr, remote: IpAddr) -> bool {
        self.host.routes.source(remote, Some(local)).is_some()
    }

    /// Has an IKE SA go on from another address if its own is gone. Returns false if there is none.
    fn leave_address(&mut self, now: Instant, id: IkeSaId) -> bool {
        let Some(sa) = self.table.get(id) else {
            return true;
        };
        let common = &sa.common;
        let (gone, remote) = (common.local.ip(), common.remote.ip());
        if self.has_address(gone, remote) {
            return true;
        }
        let Some(local) = self.source_for(&common.connection, remote) else {
            return false;
        };
        let (connection, to_peer) = (common.connection.name.clone(), sa.is_with_initiation_peer());
        self.events.push_back(Event::AddressGone {
            ike_sa: id,
            connection,
            gone,
            local,
        });
        if sa.established().is_none() {
            self.with(now, id, |sa, ctx| sa.close(ctx, DownReason::AddressGone));
            return true;
        }
        // The peer answers to the address that a message of the old IKE SA comes from (RFC 7296 §2.11).
        self.with(now, id, |sa, _| sa.common.set_own_address(local));
        if !to_peer || self.reauthenticate(now, id).is_err() {
            self.end_where_address_is_gone(now, id);
        }
        true
    }

    /// Ends an IKE SA that was to go on from another address, and cannot.
    pub(super) fn end_where_address_is_gone(&mut self, now: Instant, id: IkeSaId) {
        let Some(sa) = self.table.get(id) else { return };
        let (first, local) = (sa.common.hosts.0, sa.common.local.ip());
        if first != local && !self.has_address(first, sa.common.remote.ip()) {
            self.with(now, id, |sa, ctx| {
                sa.do_task(ctx, Task::DeleteIke(DownReason::AddressGone));
            });
        }
    }
}
