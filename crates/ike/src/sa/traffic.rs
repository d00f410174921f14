//! Follows the traffic of child SAs. Tells of traffic that goes one way, and tries UDP encapsulation.

use std::time::Duration;

use super::child_sa::{ChildSa, ChildState};
use super::context::{Context, Effect};
use super::established::Established;
use super::ike_sa::{IkeSa, IkeSaCommon};
use super::one_way::{TrafficPast, may_be_one_way};
use crate::config::Mode;
use crate::event::{Event, OneWayChange, OneWayTold};
use crate::id::ChildSaId;
use crate::nat::UdpTrial;
use crate::silence::OneWay;
use crate::wire::ProtocolId;

/// The time that a trial of UDP encapsulation has.
const TRIAL: Duration = Duration::from_secs(10);

impl ChildSa {
    /// One-way traffic of this SA. `esp_passes`: another child SA of the same IKE SA has brought packets.
    fn one_way(&self, sa: &IkeSaCommon, siblings: &[Self]) -> Option<OneWay> {
        let current = self.state.is_current();
        let since = self.past.one_way_since().filter(|_| current)?;
        let brings = |other: &Self| other.id != self.id && other.past.has_received_since(since);
        Some(OneWay {
            since,
            answered_before: self.past.answered_before(),
            by_nature: self.config.sends_dummies || may_be_one_way(&self.local_ts, &self.remote_ts),
            esp_passes: siblings.iter().any(brings),
            udp_trial: sa.udp_trial,
        })
    }
}

impl IkeSa {
    /// A child SA goes on for one of another IKE SA.
    pub(crate) fn inherit_past(&mut self, child: ChildSaId, past: TrafficPast) {
        if let Some((state, _)) = self.established_mut()
            && let Some(child) = state.child_mut(child)
        {
            child.past = past;
        }
    }
}

impl Established {
    pub(crate) fn one_way(&self, sa: &IkeSaCommon, child: &ChildSa) -> Option<OneWay> {
        child.one_way(sa, &self.children)
    }

    /// Packets have come in on a child SA. The SAs of one child have one past: a peer may answer on another SA than the
    /// one that asks, if both ends have made one, or if SAs differ by DSCP (RFC 4301 §4.1). `elsewhere`: the SA is of
    /// another IKE SA, whose packets may have another form.
    pub(crate) fn traffic_received(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        name: &str,
        elsewhere: bool,
    ) {
        let mut ended = None;
        let same = |child: &&mut ChildSa| child.config.name == name;
        for child in self.children.iter_mut().filter(same) {
            let since = child.past.one_way_since();
            let current = child.state.is_current();
            if child.past.received(ctx.now) && current {
                ended = since.map(|since| (child.id, since));
            }
        }
        let helped = sa.udp_trial == UdpTrial::UnderWay && !elsewhere;
        // A packet of any child shows that ESP passes in its present form.
        sa.udp_trial = match sa.udp_trial {
            UdpTrial::UnderWay if helped => UdpTrial::Helped,
            UdpTrial::Wanted => UdpTrial::Untried,
            other => other,
        };
        let Some((id, since)) = ended else { return };
        let lasted = ctx.now.saturating_duration_since(since);
        let by_udp = helped;
        self.tell_one_way(sa, ctx, id, OneWayChange::Ended { lasted, by_udp });
    }

    /// Packets have gone out on the child SA.
    pub(crate) fn traffic_sent(
        &mut self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        id: ChildSaId,
    ) {
        self.ask_for_path(sa, ctx);
        let alive_at = self.liveness.alive_at();
        let current = |child: &&mut ChildSa| child.state.is_current();
        let Some(child) = self.child_mut(id).filter(current) else {
            return;
        };
        let begins = child.past.sent(ctx.now, alive_at);
        let in_vain = child.past.one_way_since().is_some()
            && ctx.now.saturating_duration_since(child.installed) >= TRIAL;
        if begins {
            let Some(one_way) = self.child(id).and_then(|child| self.one_way(sa, child)) else {
                return;
            };
            // Where ESP has passed before, a trial would cost IKE SAs for traffic that may need no answer.
            let doubtful = one_way.by_nature || one_way.esp_passes || one_way.answered_before;
            let tries_udp = !doubtful && self.can_try_udp(sa);
            if tries_udp {
                sa.udp_trial = UdpTrial::Wanted;
                ctx.effects.push(Effect::Reauthenticate { ike_sa: sa.id });
            }
            let udp_trial = sa.udp_trial;
            let one_way = OneWay {
                udp_trial,
                ..one_way
            };
            let began = OneWayChange::Began(one_way);
            self.tell_one_way(sa, ctx, id, began);
        } else if in_vain && sa.udp_trial == UdpTrial::UnderWay {
            sa.udp_trial = UdpTrial::Failed;
            ctx.effects.push(Effect::Reauthenticate { ike_sa: sa.id });
            self.tell_one_way(sa, ctx, id, OneWayChange::UdpInVain);
        }
    }

    /// Either end may send ESP in UDP once both support NAT traversal (RFC 7296 §2.23). But kernels take it only where
    /// both ends have agreed on it, so that a new IKE SA is made for it. One end does that, the initiator.
    fn can_try_udp(&self, sa: &IkeSaCommon) -> bool {
        let carries = |child: &ChildSa| {
            child.protocol == ProtocolId::ESP && child.mode == Mode::Tunnel
                || child.state != ChildState::Installed
        };
        sa.role.is_initiator()
            && sa.udp_trial == UdpTrial::Untried
            && sa.nat.supported
            && !sa.nat.udp_encap()
            && sa.is_with_initiation_peer()
            && self.reauthentication.is_none()
            && self.children.iter().all(carries)
    }

    /// Forgets one-way traffic that has paused for long.
    pub(crate) fn lapse_one_way(&mut self, sa: &IkeSaCommon, ctx: &mut Context<'_>) {
        let mut lapsed = Vec::new();
        for child in &mut self.children {
            if child.past.lapse(ctx.now) && child.state.is_current() {
                lapsed.push(child.id);
            }
        }
        for id in lapsed {
            self.tell_one_way(sa, ctx, id, OneWayChange::Paused);
        }
    }

    fn tell_one_way(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        id: ChildSaId,
        change: OneWayChange,
    ) {
        let Some(child) = self.child(id) else { return };
        ctx.events.push_back(Event::OneWay(Box::new(OneWayTold {
            ike_sa: sa.id,
            connection: sa.connection.name.clone(),
            child: id,
            name: child.config.name.clone(),
            udp_encap: sa.nat.udp_encap(),
            protocol: child.esp.transform.protocol(),
            change,
        })));
    }
}
