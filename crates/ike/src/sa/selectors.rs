//! The traffic selectors of a child SA: what is proposed, what is granted (RFC 7296 section 2.9), and to whom.

use std::sync::Arc;

use super::create_child::{ChildPayloads, Refuse};
use super::{Context, Effect, IkeSa, Wanted};
use crate::claims::{Claim, Ends};
use crate::config::{Child, Mode};
use crate::event::{ChildFailure, Held};
use crate::refusal::Refusal;
use crate::ts;
use crate::wire::{NotifyType, TrafficSelector};

/// A configured child, and what it has in common with the peer's selectors.
pub(super) struct ChildMatch<'a> {
    pub(super) config: &'a Arc<Child>,
    pub(super) mode: Mode,
    pub(super) ends: Ends,
}

impl IkeSa {
    pub(super) fn selectors_to_propose(
        &self,
        wanted: &Wanted,
        rekey: bool,
    ) -> Result<(Vec<TrafficSelector>, Vec<TrafficSelector>), ChildFailure> {
        let config = &wanted.config;
        let (local, remote) = self.hosts;
        let mut local_ts = ts::resolve(&config.local_ts, local);
        let mut remote_ts = ts::resolve(&config.remote_ts, remote);
        if config.mode == Mode::Transport {
            // Checksums cover addresses that a NAT has changed (RFC 3948 section 3.1.2). One that we have feigned
            // ourselves to be encapsulated, or that was no obstacle before, is none.
            if self.nat.local || (self.nat.remote && !self.nat.forced && !rekey) {
                return Err(ChildFailure::Transport("it does not pass a NAT"));
            }
            local_ts = ts::of_host(&local_ts, local);
            remote_ts = ts::of_host(&remote_ts, remote);
            if local_ts.is_empty() || remote_ts.is_empty() {
                let why = "the traffic selectors do not include both gateways themselves";
                return Err(ChildFailure::Transport(why));
            }
        }
        if let Some((local, remote)) = wanted.packet {
            ts::put_first(&mut local_ts, local);
            ts::put_first(&mut remote_ts, remote);
        }
        Ok((local_ts, remote_ts))
    }

    /// The children whose networks the peer can mean. First those of the mode that it asks for, then those that it names
    /// exactly, then those that are not up yet (several may have the same selectors), each in the order of the
    /// configuration.
    pub(super) fn matching_children<'a>(
        &self,
        theirs: &ChildPayloads<'_>,
        candidates: &'a [Arc<Child>],
    ) -> Result<Vec<ChildMatch<'a>>, Refuse> {
        let state = self.established().ok_or_else(Refuse::temporary)?;
        let (local, remote) = self.hosts;
        let mut matches = Vec::new();
        let mut refuse = Refuse::new(Refusal::TsUnacceptable, NotifyType::TS_UNACCEPTABLE);
        for config in candidates {
            let mut own_local = ts::resolve(&config.local_ts, local);
            let mut own_remote = self.connection.remote_ts(config, &state.remote_id, remote);
            // Who is configured for transport mode makes no tunnel; who is not declines the request for it and
            // answers with a tunnel (section 1.3.1). Behind a NAT the peer proposes an address that is not its own
            // here, so that nothing is left of the selectors.
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
                refuse = Refuse::new(Refusal::NoProposalChosen, NotifyType::NO_PROPOSAL_CHOSEN);
                continue;
            }
            let other_mode = (config.mode == Mode::Transport) != theirs.transport;
            let partial = local_ts != own_local || remote_ts != own_remote;
            let rank = (other_mode, partial, state.is_up(&config.name));
            let matched = ChildMatch {
                config,
                mode: config.mode,
                ends: Ends {
                    local: local_ts,
                    remote: remote_ts,
                },
            };
            matches.push((rank, matched));
        }
        matches.sort_by_key(|(rank, _)| *rank);
        if matches.is_empty() {
            return Err(refuse);
        }
        Ok(matches.into_iter().map(|(_, matched)| matched).collect())
    }

    /// As the responder: the traffic of a child SA to come, unless another peer has some of it.
    pub(super) fn claim(
        &self,
        ctx: &mut Context<'_>,
        config: &Arc<Child>,
        ends: Ends,
    ) -> Result<Claim, Refuse> {
        let state = self.established().ok_or_else(Refuse::temporary)?;
        let claim = Claim::new(&self.connection, config, &state.peer, self.hosts, ends);
        let Some(held) = self.rival(ctx, &claim) else {
            return Ok(claim);
        };
        Err(Refuse {
            held: Some(Box::new(held)),
            ..Refuse::new(Refusal::TrafficHeld, NotifyType::TS_UNACCEPTABLE)
        })
    }

    /// As the initiator, with the selectors that the peer has narrowed ours to.
    pub(super) fn claim_of_answer(
        &self,
        ctx: &mut Context<'_>,
        config: &Arc<Child>,
        ends: Ends,
    ) -> Result<Claim, ChildFailure> {
        let gone = ChildFailure::PeerMisbehaved("the IKE SA is gone");
        let state = self.established().ok_or(gone)?;
        let claim = Claim::new(&self.connection, config, &state.peer, self.hosts, ends);
        if !claim.is_within_its_whole(self.hosts.1) {
            return Err(ChildFailure::NotItsTraffic);
        }
        match self.rival(ctx, &claim) {
            None => Ok(claim),
            Some(held) => {
                ctx.counters.refuse(Refusal::TrafficHeld);
                Err(ChildFailure::TrafficHeld(Box::new(held)))
            }
        }
    }

    /// Who has some of the traffic already. Where that peer may be dead, it is asked.
    fn rival(&self, ctx: &mut Context<'_>, claim: &Claim) -> Option<Held> {
        let (held, sa) = ctx.claims.rival(claim)?;
        let held = Held {
            peer: held.owner().clone(),
            connection: held.connection.name.clone(),
            child: held.config.name.clone(),
            local_ts: held.ends.local.clone(),
            remote_ts: held.ends.remote.clone(),
            sa,
        };
        ctx.effects.extend(sa.map(|child| Effect::Doubt { child }));
        Some(held)
    }
}
