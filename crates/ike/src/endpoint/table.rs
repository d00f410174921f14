//! The table of IKE SAs, its indices, and the timers.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esplanade_few::FewSet;

use super::half_open::{HalfOpen, HalfOpenStage};
use crate::auth::CertificateHash;
use crate::config::Connection;
use crate::event::{ChildSaId, Event, IkeSaId};
use crate::peer::PeerKey;
use crate::sa::{IkeSa, Phase, TrafficPast};

/// A timer fires this long after the call that armed it, or later.
const TIMER_MIN: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct IkeSaTable {
    entries: BTreeMap<IkeSaId, Box<IkeSaEntry>>,
    /// SAs by our own SPI.
    by_spi: HashMap<u64, IkeSaId>,
    /// Responder SAs by the source of their IKE_SA_INIT request and the initiator's SPI.
    by_init: HashMap<(SocketAddr, u64), IkeSaId>,
    by_connection: HashMap<String, FewSet<IkeSaId>>,
    established: HashSet<IkeSaId>,
    /// Established SAs by peer.
    peers: HashMap<PeerKey, FewSet<IkeSaId>>,
    /// Established SAs by the certificate of the peer.
    by_certificate: HashMap<CertificateHash, FewSet<IkeSaId>>,
    /// Established SAs by the peer's address.
    by_remote: HashMap<IpAddr, FewSet<IkeSaId>>,
    by_child: HashMap<ChildSaId, IkeSaId>,
    /// SAs that have ended. Those of which only the last response is kept come before those whose peer is still to
    /// confirm the end.
    ended: BTreeSet<(bool, IkeSaId)>,
    pub(super) half_open: HalfOpen,
    timers: BTreeSet<(Instant, IkeSaId)>,
}

/// An SA, and its keys in the indices.
struct IkeSaEntry {
    /// The SA. It is `None` while the SA is taken out for work on it.
    sa: Option<Box<IkeSa>>,
    spi: u64,
    init: Option<(SocketAddr, u64)>,
    /// With the bytes that are kept.
    half_open: Option<(HalfOpenStage, usize)>,
    connection: String,
    peer: Option<PeerKey>,
    certificate: Option<CertificateHash>,
    remote: Option<IpAddr>,
    timer: Option<Instant>,
    /// Its place among the SAs that have ended.
    ended: Option<bool>,
}

fn unlist<K, Q>(lists: &mut HashMap<K, FewSet<IkeSaId>>, key: &Q, id: IkeSaId)
where
    K: Borrow<Q> + Hash + Eq,
    Q: Hash + Eq + ?Sized,
{
    if let Some(list) = lists.get_mut(key) {
        list.remove(&id);
        if list.is_empty() {
            lists.remove(key);
        }
    }
}

/// Returns how far an SA's peer has come, while nobody has authenticated the peer.
fn stage(sa: &IkeSa) -> Option<HalfOpenStage> {
    match &sa.phase {
        Phase::InitReceived(_) | Phase::InitResponded(_) => Some(HalfOpenStage::HalfOpen),
        Phase::Gone(gone) if gone.unauthenticated => Some(HalfOpenStage::Refused),
        _ => None,
    }
}

/// Returns how many bytes of IKE_SA_INIT a half-open SA keeps.
fn kept_bytes(sa: &IkeSa) -> usize {
    match &sa.phase {
        Phase::InitReceived(state) => state.held.len(),
        Phase::InitResponded(state) => state.init.request.len() + state.init.response.len(),
        _ => 0,
    }
}

impl IkeSaTable {
    pub(super) fn new(half_open: HalfOpen) -> Self {
        Self {
            half_open,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Says whether one more SA has room, also in the place of one that has ended.
    pub(super) fn has_room(&self, most: usize) -> bool {
        self.len() - self.ended.len() < most
    }

    /// The SA that has ended and makes room first, if there is no other room.
    pub(super) fn superfluous(&self, most: usize) -> Option<IkeSaId> {
        let (_, first) = self.ended.first()?;
        (self.len() >= most).then_some(*first)
    }

    pub(super) fn by_spi(&self) -> &HashMap<u64, IkeSaId> {
        &self.by_spi
    }

    pub(super) fn established(&self) -> &HashSet<IkeSaId> {
        &self.established
    }

    pub(super) fn peers(&self) -> &HashMap<PeerKey, FewSet<IkeSaId>> {
        &self.peers
    }

    pub(super) fn by_remote(&self) -> &HashMap<IpAddr, FewSet<IkeSaId>> {
        &self.by_remote
    }

    pub(super) fn get(&self, id: IkeSaId) -> Option<&IkeSa> {
        self.entries.get(&id)?.sa.as_deref()
    }

    pub(super) fn by_own_spi(&self, spi: u64) -> Option<&IkeSa> {
        self.get(*self.by_spi.get(&spi)?)
    }

    pub(super) fn by_init(&self, remote: SocketAddr, spi_i: u64) -> Option<&IkeSa> {
        self.get(*self.by_init.get(&(remote, spi_i))?)
    }

    /// IKE SAs that are not about to end go on under the new configuration.
    pub(super) fn reconfigure<'a>(
        &mut self,
        by_name: impl Fn(&str) -> Option<&'a Arc<Connection>>,
        will_end: impl Fn(IkeSaId) -> bool,
    ) {
        for sa in self
            .entries
            .values_mut()
            .filter_map(|entry| entry.sa.as_mut())
        {
            let lives = !sa.has_ended() && !will_end(sa.common.id);
            if let Some(connection) = by_name(&sa.common.connection.name)
                && lives
                && sa.ending().is_none()
            {
                sa.common.was_called = sa.is_with_initiation_peer() && !sa.phase.is_half_open();
                sa.common.connection = Arc::clone(connection);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut IkeSa> {
        let entries = self.entries.values_mut();
        entries.filter_map(|entry| entry.sa.as_deref_mut())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &IkeSa> {
        self.entries
            .values()
            .filter_map(|entry| entry.sa.as_deref())
    }

    pub(super) fn of_connection(&self, name: &str) -> Vec<IkeSaId> {
        let ids = self.by_connection.get(name).into_iter();
        ids.flat_map(FewSet::iter).copied().collect()
    }

    pub(super) fn of_peer(&self, key: &PeerKey) -> Vec<IkeSaId> {
        let ids = self.peers.get(key).into_iter();
        ids.flat_map(FewSet::iter).copied().collect()
    }

    pub(super) fn of_certificate(&self, certificate: &CertificateHash) -> Vec<IkeSaId> {
        let ids = self.by_certificate.get(certificate).into_iter();
        ids.flat_map(FewSet::iter).copied().collect()
    }

    pub(super) fn of_remote(&self, remote: IpAddr) -> Vec<IkeSaId> {
        let ids = self.by_remote.get(&remote).into_iter();
        ids.flat_map(FewSet::iter).copied().collect()
    }

    /// Says whether a peer at this address has an IKE SA. Half-open ones do not count: anybody can begin one.
    pub(super) fn is_peers(&self, remote: IpAddr) -> bool {
        let ids = self
            .by_remote
            .get(&remote)
            .into_iter()
            .flat_map(FewSet::iter);
        let mut sas = ids.filter_map(|id| self.get(*id));
        sas.any(|sa| sa.established().is_some())
    }

    pub(super) fn peer_of(&self, id: IkeSaId) -> Option<&PeerKey> {
        self.entries.get(&id)?.peer.as_ref()
    }

    pub(super) fn ike_sa_of(&self, child: ChildSaId) -> Option<IkeSaId> {
        self.by_child.get(&child).copied()
    }

    /// Returns the past of a child SA's traffic.
    pub(super) fn past_of(&self, child: ChildSaId) -> Option<TrafficPast> {
        let state = self.get(self.ike_sa_of(child)?)?.established()?;
        Some(state.child(child)?.past)
    }

    pub(super) fn moved(&mut self, child: ChildSaId, to: IkeSaId) {
        self.by_child.insert(child, to);
    }

    /// Follows child SAs, so that they can be found.
    pub(super) fn follow(&mut self, event: &Event) {
        match event {
            Event::ChildSaInstalled(installed) => {
                self.by_child.insert(installed.child, installed.ike_sa);
            }
            Event::ChildSaDeleted(deleted) => {
                self.by_child.remove(&deleted.child);
            }
            _ => {}
        }
    }

    /// `init` is the source of the IKE_SA_INIT request.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        sa: Box<IkeSa>,
        init: Option<SocketAddr>,
        timeout: Option<Instant>,
    ) {
        let id = sa.common.id;
        let init = init.map(|remote| (remote, sa.common.spi_i));
        if let Some(key) = init {
            self.by_init.insert(key, id);
        }
        self.by_spi.insert(sa.common.own_spi(), id);
        let connection = sa.common.connection.name.clone();
        self.by_connection
            .entry(connection.clone())
            .or_default()
            .insert(id);
        let entry = IkeSaEntry {
            spi: sa.common.own_spi(),
            sa: None,
            init,
            half_open: None,
            connection,
            peer: None,
            certificate: None,
            remote: None,
            timer: None,
            ended: None,
        };
        self.entries.insert(id, Box::new(entry));
        self.put_back(now, sa, timeout);
    }

    pub(super) fn take(&mut self, id: IkeSaId) -> Option<Box<IkeSa>> {
        self.entries.get_mut(&id)?.sa.take()
    }

    /// Puts an SA back after work on it. A closed one is dropped.
    pub(super) fn put_back(&mut self, now: Instant, sa: Box<IkeSa>, timeout: Option<Instant>) {
        let id = sa.common.id;
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let half_open = stage(&sa).map(|stage| (stage, kept_bytes(&sa)));
        if entry.half_open != half_open {
            // The source of IKE_SA_INIT counts. IKE_AUTH can come from another address behind a NAT, and nobody has
            // shown that it receives there.
            self.half_open.note(now, id, sa.common.hosts.1, half_open);
            entry.half_open = half_open;
        }
        let peer = sa
            .established()
            .filter(|_| !sa.common.suspended)
            .map(|state| &state.peer);
        if entry.peer.as_ref() != peer {
            if let Some(key) = &entry.peer {
                unlist(&mut self.peers, key, id);
            }
            if let Some(key) = peer {
                self.peers.entry(key.clone()).or_default().insert(id);
            }
            match peer {
                Some(_) => self.established.insert(id),
                None => self.established.remove(&id),
            };
            entry.peer = peer.cloned();
        }
        let certificate = sa.established().and_then(|state| state.certificate);
        if entry.certificate != certificate {
            if let Some(before) = entry.certificate {
                unlist(&mut self.by_certificate, &before, id);
            }
            if let Some(certificate) = certificate {
                self.by_certificate
                    .entry(certificate)
                    .or_default()
                    .insert(id);
            }
            entry.certificate = certificate;
        }
        let remote = peer.map(|_| sa.common.remote.ip());
        if entry.remote != remote {
            if let Some(before) = entry.remote {
                unlist(&mut self.by_remote, &before, id);
            }
            if let Some(remote) = remote {
                self.by_remote.entry(remote).or_default().insert(id);
            }
            entry.remote = remote;
        }
        if entry.connection != sa.common.connection.name {
            unlist(&mut self.by_connection, entry.connection.as_str(), id);
            entry.connection.clone_from(&sa.common.connection.name);
            self.by_connection
                .entry(entry.connection.clone())
                .or_default()
                .insert(id);
        }
        let ended = match sa.phase {
            Phase::Gone(_) => Some(false),
            Phase::Closing(_) => Some(true),
            _ => None,
        };
        if entry.ended != ended {
            if let Some(before) = entry.ended {
                self.ended.remove(&(before, id));
            }
            self.ended.extend(ended.map(|place| (place, id)));
            entry.ended = ended;
        }
        if let Some(timer) = entry.timer.take() {
            self.timers.remove(&(timer, id));
        }
        if matches!(sa.phase, Phase::Closed) {
            self.by_spi.remove(&entry.spi);
            unlist(&mut self.by_connection, entry.connection.as_str(), id);
            if let Some(key) = entry.init {
                self.by_init.remove(&key);
            }
            self.entries.remove(&id);
            return;
        }
        if let Some(at) = timeout.map(|at| at.max(now + TIMER_MIN)) {
            entry.timer = Some(at);
            self.timers.insert((at, id));
        }
        entry.sa = Some(sa);
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The SAs whose timers are due, `most` at a time.
    pub(super) fn due(&self, now: Instant, most: usize) -> Vec<IkeSaId> {
        self.timers
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(most)
            .map(|(_, id)| *id)
            .collect()
    }
}
