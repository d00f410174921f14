//! The traffic selectors of a child SA: what is proposed, what is granted (RFC 7296 §2.9), and to which peer.

use std::sync::Arc;

use super::error_reply::ErrorReply;
use super::payloads::ChildPayloads;
use crate::claims::{Claim, SelectorPair};
use crate::config::{Child, Mode};
use crate::failure::{ChildFailure, HeldTraffic, Shortage, TransportFault};
use crate::refusal::Refusal;
use crate::sa::{ChildRequest, ChildSa, Context, Effect, Established, IkeSaCommon};
use crate::ts;
use crate::wire::TrafficSelector;

/// A configured child that the peer can mean, with the selectors that both have in common.
pub(super) struct MatchingChild<'a> {
    pub(super) config: &'a Arc<Child>,
    pub(super) mode: Mode,
    pub(super) selectors: SelectorPair,
}

impl IkeSaCommon {
    pub(super) fn selectors_to_propose(
        &self,
        request: &ChildRequest,
        rekey: bool,
    ) -> Result<(Vec<TrafficSelector>, Vec<TrafficSelector>), ChildFailure> {
        let config = &request.config;
        let (local, remote) = self.hosts;
        let mut local_ts = ts::resolve(&config.local_ts, local);
        let mut remote_ts = ts::resolve(&config.remote_ts, remote);
        if config.mode == Mode::Transport {
            // A NAT changes addresses that checksums cover (RFC 3948 §3.1.2). A NAT at the peer's end that we have feigned
            // ourselves, or that a child SA has passed before, is no obstacle.
            if self.nat.local || (self.nat.remote && !self.nat.forced && !rekey) {
                return Err(ChildFailure::Transport(TransportFault::Nat));
            }
            local_ts = ts::of_host(&local_ts, local);
            remote_ts = ts::of_host(&remote_ts, remote);
            if local_ts.is_empty() || remote_ts.is_empty() {
                return Err(ChildFailure::Transport(
                    TransportFault::SelectorsWithoutGateways,
                ));
            }
        }
        if let Some((local, remote)) = request.packet {
            ts::put_packet_first(&mut local_ts, local);
            ts::put_packet_first(&mut remote_ts, remote);
        }
        Ok((local_ts, remote_ts))
    }
}

impl Established {
    /// Returns the children whose networks the peer can mean. Children of the requested mode come first, then children
    /// that take the packet that the peer names, then children that the peer's selectors name exactly. Children that are not up yet come next, since several children may have
    /// the same selectors. Equal children keep the order of the configuration.
    pub(super) fn matching_children<'a>(
        &self,
        sa: &IkeSaCommon,
        theirs: &ChildPayloads<'_>,
        candidates: &'a [Arc<Child>],
    ) -> Result<Vec<MatchingChild<'a>>, ErrorReply> {
        let (local, remote) = sa.hosts;
        let mut matches = Vec::new();
        let mut reply = ErrorReply::ts_unacceptable();
        for config in candidates {
            let mut own_local = ts::resolve(&config.local_ts, local);
            let mut own_remote = sa.connection.remote_ts(config, &self.remote_id, remote);
            // A child in transport mode makes no tunnel. A child in tunnel mode declines a request for transport mode, and
            // answers with a tunnel (RFC 7296 §1.3.1). A peer behind a NAT proposes an address that is not its own here, so
            // that no selector is left in transport mode.
            if config.mode == Mode::Transport {
                own_local = ts::of_host(&own_local, local);
                own_remote = ts::of_host(&own_remote, remote);
            }
            let mut local_ts = ts::narrow(theirs.ts_r, &own_local);
            let mut remote_ts = ts::narrow(theirs.ts_i, &own_remote);
            ts::bound_pairs(&mut local_ts, &mut remote_ts);
            if local_ts.is_empty() || remote_ts.is_empty() {
                continue;
            }
            if config.mode == Mode::Transport && !theirs.transport {
                reply = ErrorReply::no_proposal_chosen();
                continue;
            }
            let other_mode = (config.mode == Mode::Transport) != theirs.transport;
            let partial = local_ts != own_local || remote_ts != own_remote;
            // RFC 7296 §2.9: what the initiator names first is to be among what it gets.
            let without_packet =
                !takes_packet(theirs.ts_r, &local_ts) || !takes_packet(theirs.ts_i, &remote_ts);
            let rank = (
                other_mode,
                without_packet,
                partial,
                self.is_up(&config.name),
            );
            let matched = MatchingChild {
                config,
                mode: config.mode,
                selectors: SelectorPair {
                    local: local_ts,
                    remote: remote_ts,
                },
            };
            matches.push((rank, matched));
        }
        matches.sort_by_key(|(rank, _)| *rank);
        if matches.is_empty() {
            return Err(reply);
        }
        Ok(matches.into_iter().map(|(_, matched)| matched).collect())
    }

    /// Claims, as the responder, the traffic of a new child SA, unless another peer has some of it.
    pub(super) fn claim(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        config: &Arc<Child>,
        selectors: SelectorPair,
        replaced: Option<&ChildSa>,
    ) -> Result<Claim, ErrorReply> {
        self.check_selectors(ctx, &selectors, replaced)?;
        let claim = Claim::new(&sa.connection, config, &self.peer, sa.hosts, selectors);
        if let Some(held) = conflict(ctx, &claim) {
            return Err(ErrorReply::traffic_held(held));
        }
        match self.has_policy_room(ctx, &claim) {
            true => Ok(claim),
            false => Err(ErrorReply::no_policy_room()),
        }
    }

    /// Claims, as the initiator, the traffic that the peer has narrowed our selectors to.
    pub(super) fn claim_granted(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        config: &Arc<Child>,
        selectors: SelectorPair,
    ) -> Result<Claim, ChildFailure> {
        let claim = Claim::new(&sa.connection, config, &self.peer, sa.hosts, selectors);
        if !claim.is_within_entry(sa.hosts.1) {
            return Err(ChildFailure::NotItsTraffic);
        }
        if let Some(held) = conflict(ctx, &claim) {
            ctx.counters.count(Refusal::TrafficHeld);
            return Err(ChildFailure::TrafficHeld(Box::new(held)));
        }
        if !self.has_policy_room(ctx, &claim) {
            ctx.counters.count(Refusal::NoPolicyRoom);
            return Err(ChildFailure::Resources(Shortage::Policies));
        }
        Ok(claim)
    }
}

/// Says whether the granted selectors have the first one of the proposal, if that is a packet's: another one contains
/// it.
fn takes_packet(proposed: &[TrafficSelector], granted: &[TrafficSelector]) -> bool {
    let Some((first, others)) = proposed.split_first() else {
        return true;
    };
    !others.iter().any(|other| ts::contains(other, first))
        || granted.iter().any(|own| ts::contains(own, first))
}

/// The traffic of another peer that `claim` overlaps. That peer may be dead, so it is asked whether it is alive.
fn conflict(ctx: &mut Context<'_>, claim: &Claim) -> Option<HeldTraffic> {
    let (held, sa) = ctx.claims.conflict(claim)?;
    let held = HeldTraffic {
        peer: held.owner().clone(),
        connection: held.connection.name.clone(),
        child: held.config.name.clone(),
        local_ts: held.selectors.local.clone(),
        remote_ts: held.selectors.remote.clone(),
        sa,
    };
    let check = sa.map(|child| Effect::CheckLiveness { child });
    ctx.effects.extend(check);
    Some(held)
}
