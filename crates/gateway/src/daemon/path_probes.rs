//! Path MTUs that probes find (RFC 8899): which paths are probed, whose result counts, and what the log tells of it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Instant;

use esplanade_ike::event::{Event, IkeSaId, PathFound};
use esplanade_ipsec::pmtu::AGE_MS;
use esplanade_ipsec::sa::Mode;
use esplanade_ipsec::tunnel::DfPolicy;

use super::Daemon;

/// The results of the IKE SAs about the paths to their peers. The peers of several IKE SAs can have one address, as behind
/// a NAT. Then the lowest result counts, so that no two of them contradict each other.
#[derive(Debug, Default)]
pub(super) struct PathProbes {
    by_remote: HashMap<IpAddr, BTreeMap<IkeSaId, u16>>,
    of: HashMap<IkeSaId, IpAddr>,
}

impl PathProbes {
    fn lowest(&self, remote: IpAddr) -> Option<u16> {
        self.by_remote.get(&remote)?.values().min().copied()
    }

    fn set(&mut self, ike_sa: IkeSaId, remote: IpAddr, mtu: u16) {
        self.of.insert(ike_sa, remote);
        let found = self.by_remote.entry(remote).or_default();
        found.insert(ike_sa, mtu);
    }

    /// Removes the result of an IKE SA. Returns its peer's address, if there was a result.
    fn remove(&mut self, ike_sa: IkeSaId) -> Option<IpAddr> {
        let remote = self.of.remove(&ike_sa)?;
        if let Some(found) = self.by_remote.get_mut(&remote) {
            found.remove(&ike_sa);
            if found.is_empty() {
                self.by_remote.remove(&remote);
            }
        }
        Some(remote)
    }

    /// `new` goes on in the place of `old`.
    fn follow(&mut self, old: IkeSaId, new: IkeSaId) {
        let mtu = (self.of.get(&old)).and_then(|remote| self.by_remote.get(remote)?.get(&old));
        if let Some(mtu) = mtu.copied()
            && let Some(remote) = self.remove(old)
        {
            self.set(new, remote, mtu);
        }
    }
}

impl Daemon {
    /// Follows what concerns the probes of paths in an event of IKE.
    pub(super) fn follow_paths(&mut self, event: &Event, now: Instant) {
        match event {
            Event::PathProbeDue { ike_sa, remote, .. } => {
                let longest = self.probe_limit(*ike_sa, remote.ip());
                self.endpoint.probe_path(now, *ike_sa, longest);
            }
            Event::PathProbed {
                ike_sa,
                connection,
                remote,
                found,
            } => self.path_probed(*ike_sa, connection, *remote, *found),
            Event::IkeSaDown { ike_sa, .. } => self.forget_probes(*ike_sa),
            Event::IkeSaRekeyed { old, new, .. } | Event::IkeSaReauthenticated { old, new, .. } => {
                self.probed.follow(*old, *new);
            }
            Event::PeerMoved { ike_sa, remote, .. }
                if self
                    .probed
                    .of
                    .get(ike_sa)
                    .is_some_and(|at| *at != remote.ip()) =>
            {
                self.forget_probes(*ike_sa);
            }
            _ => {}
        }
    }

    /// Returns the longest packet that is worth a probe. Where all packets to the peer may be fragmented on their way,
    /// there is none.
    fn probe_limit(&self, ike_sa: IkeSaId, remote: IpAddr) -> Option<u16> {
        let mut children = self.endpoint.children_of(ike_sa);
        let has_df = children.any(|child| {
            self.join.child(child).is_some_and(|child| {
                let common = &child.outbound.common;
                common.mode == Mode::Transport || common.tunnel.df != DfPolicy::Clear
            })
        });
        if !has_df {
            return None;
        }
        self.plane.probe_limit(remote, self.clock.now_ms())
    }

    fn path_probed(&mut self, ike_sa: IkeSaId, connection: &str, remote: IpAddr, found: PathFound) {
        let before = self.known_path(remote);
        match found {
            PathFound::Narrow { mtu, lost } => {
                self.forget_elsewhere(ike_sa, remote);
                self.probed.set(ike_sa, remote, mtu);
                self.apply_probes(remote);
                let now = self.known_path(remote);
                if let Some(now) = now.filter(|now| before.is_none_or(|before| *now < before)) {
                    tracing::warn!(
                        connection,
                        "packets of {lost} bytes to {remote} are lost, and no ICMP error says so; the path MTU is {now} now"
                    );
                } else if let Some(now) = now.filter(|now| Some(*now) != before) {
                    tracing::info!(connection, "the path MTU to {remote} is {now} now");
                }
            }
            PathFound::Whole => {
                if self.probed.remove(ike_sa).is_some() {
                    self.apply_probes(remote);
                    tracing::info!(connection, "long packets to {remote} arrive again");
                } else if self.probed.lowest(remote).is_none() && before.is_some() {
                    // Left over from an IKE SA that has ended.
                    self.apply_probes(remote);
                }
            }
            PathFound::Nothing => tracing::info!(
                connection,
                "no probe of the path to {remote} is answered in time, so that its MTU is not known"
            ),
            PathFound::Refused => tracing::info!(
                connection,
                "the peer at {remote} does not take probes of the path, and gets none for a day"
            ),
        }
    }

    /// The path MTU that probes or errors have told.
    fn known_path(&self, remote: IpAddr) -> Option<u32> {
        let known = self.plane.narrow_path(remote, self.clock.now_ms());
        known.map(|known| known.mtu)
    }

    /// Has the lowest result count, until another comes.
    fn apply_probes(&self, remote: IpAddr) {
        let found = self.probed.lowest(remote).map(|mtu| (mtu, u64::MAX));
        let now_ms = self.clock.now_ms();
        self.plane.set_probed(remote, found, now_ms);
    }

    fn forget_elsewhere(&mut self, ike_sa: IkeSaId, remote: IpAddr) {
        if self.probed.of.get(&ike_sa).is_some_and(|at| *at != remote) {
            self.forget_probes(ike_sa);
        }
    }

    /// The IKE SA has ended, or its peer is elsewhere. The result counts for a while longer, because the tunnel may come
    /// up again.
    fn forget_probes(&mut self, ike_sa: IkeSaId) {
        let remote = self.probed.of.get(&ike_sa).copied();
        let Some(remote) = remote else { return };
        let before = self.probed.lowest(remote);
        self.probed.remove(ike_sa);
        match self.probed.lowest(remote) {
            Some(_) => self.apply_probes(remote),
            None => {
                let now_ms = self.clock.now_ms();
                let found = before.map(|mtu| (mtu, now_ms.saturating_add(AGE_MS)));
                self.plane.set_probed(remote, found, now_ms);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_of_several_results_counts_as_long_as_its_ike_sa() {
        let peer = IpAddr::from([198, 51, 100, 1]);
        let mut probed = PathProbes::default();
        probed.set(IkeSaId(1), peer, 1400);
        probed.set(IkeSaId(2), peer, 1300);
        assert_eq!(probed.lowest(peer), Some(1300));
        probed.follow(IkeSaId(2), IkeSaId(3));
        probed.follow(IkeSaId(8), IkeSaId(9));
        assert_eq!(probed.lowest(peer), Some(1300));
        assert_eq!(probed.remove(IkeSaId(2)), None);
        assert_eq!(probed.remove(IkeSaId(3)), Some(peer));
        assert_eq!(probed.lowest(peer), Some(1400));
        assert_eq!(probed.remove(IkeSaId(1)), Some(peer));
        assert!(probed.by_remote.is_empty() && probed.of.is_empty());
    }
}
