//! The limits on what one peer may take of what all peers share.

use super::error_reply::ErrorReply;
use super::payloads::ChildPayloads;
use crate::claims::{Claim, SelectorPair};
use crate::event::{Event, PeerLimit};
use crate::host::WantedPolicy;
use crate::peer::PeerKey;
use crate::refusal::Refusal;
use crate::sa::{ChildSa, Context, Established};
use crate::wire::NotifyType;

impl Established {
    /// Refuses a request for a new child SA, or for the rekey of one, if the peer has taken its share already.
    pub(super) fn check_share(
        &self,
        ctx: &mut Context<'_>,
        theirs: &ChildPayloads<'_>,
        is_rekey: bool,
    ) -> Result<(), ErrorReply> {
        let limits = &ctx.config.limits;
        // During a rekey there are two SAs for one, until the old one is deleted.
        let most = match is_rekey {
            false => limits.children_per_peer_max,
            true => limits.children_per_peer_max.saturating_mul(2),
        };
        if ctx.claims.shares.of(&self.peer).children >= most {
            return Err(ErrorReply::new(
                Refusal::ChildSaPerPeer,
                NotifyType::NO_ADDITIONAL_SAS,
            ));
        }
        let pairs = theirs.ts_i.len().saturating_mul(theirs.ts_r.len());
        self.charge_work(ctx, pairs)
    }

    /// Charges the peer for a request with this many pairs of selectors, or refuses it.
    pub(super) fn charge_work(
        &self,
        ctx: &mut Context<'_>,
        pairs: usize,
    ) -> Result<(), ErrorReply> {
        let rate = ctx.config.limits.child_requests_per_second;
        match ctx.claims.shares.charge(ctx.now, &self.peer, pairs, rate) {
            true => Ok(()),
            false => Err(ErrorReply::new(
                Refusal::WorkPerPeer,
                NotifyType::TEMPORARY_FAILURE,
            )),
        }
    }

    /// Says whether the peer has a share of work left, before there is a job for its request.
    pub(super) fn has_work_left(&self, ctx: &Context<'_>) -> bool {
        let rate = ctx.config.limits.child_requests_per_second;
        ctx.claims.shares.has_left(ctx.now, &self.peer, rate)
    }

    /// Refuses selectors that are more than the peer's share. Those of the child SA that is rekeyed count no more.
    pub(super) fn check_selectors(
        &self,
        ctx: &Context<'_>,
        selectors: &SelectorPair,
        replaced: Option<&ChildSa>,
    ) -> Result<(), ErrorReply> {
        let freed = replaced.map_or(0, |old| old.selectors().pairs());
        let used = ctx.claims.shares.of(&self.peer).pairs.saturating_sub(freed);
        match used + selectors.pairs() <= ctx.config.limits.selectors_per_peer_max {
            true => Ok(()),
            false => Err(ErrorReply::new(
                Refusal::SelectorsPerPeer,
                NotifyType::TS_UNACCEPTABLE,
            )),
        }
    }

    /// Says whether the embedder has room for the policy of a child SA.
    pub(super) fn has_policy_room(&self, ctx: &mut Context<'_>, claim: &Claim) -> bool {
        ctx.policies.has_room(&WantedPolicy {
            connection: &claim.connection.name,
            child: &claim.config.name,
            peer: self.peer.remote(),
            local_ts: &claim.selectors.local,
            remote_ts: &claim.selectors.remote,
        })
    }
}

impl Context<'_> {
    /// Tells of limits that a peer comes near with its child SAs.
    pub(crate) fn tell_of_child_limits(&mut self, peer: &PeerKey) {
        let share = self.claims.shares.of(peer);
        let limits = &self.config.limits;
        let (children, selectors) = (limits.children_per_peer_max, limits.selectors_per_peer_max);
        self.tell_of_limit(peer, PeerLimit::ChildSas, share.children, children);
        self.tell_of_limit(peer, PeerLimit::Selectors, share.pairs, selectors);
    }

    /// Tells that a peer comes near a limit, once for each approach.
    pub(crate) fn tell_of_limit(
        &mut self,
        peer: &PeerKey,
        limit: PeerLimit,
        used: usize,
        most: usize,
    ) {
        if self.claims.shares.nears(peer, limit, used, most) {
            self.events.push_back(Event::LimitNear {
                peer: peer.remote().clone(),
                limit,
                used,
                most,
            });
        }
    }
}
