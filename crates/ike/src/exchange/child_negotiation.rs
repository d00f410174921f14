//! The negotiation of a child SA: the same steps in IKE_AUTH, in CREATE_CHILD_SA and in the rekey of a child SA.

use std::sync::Arc;

use esplanade_crypto::iana::Group;

use super::error_reply::{ErrorReply, notify};
use super::key_exchange;
use super::payloads::ChildPayloads;
use crate::claims::SelectorPair;
use crate::config::{Child, Mode};
use crate::failure::{ChildFailure, ChildResponseFault, DownReason, Shortage, TransportFault};
use crate::id::ChildSaId;
use crate::negotiate;
use crate::refusal::Refusal;
use crate::sa::{
    AgreedChild, ChildRequest, ChildSa, Context, Established, IkeSaCommon, PendingChild,
};
use crate::suite::{Nonces, Secret};
use crate::ts;
use crate::wire::{NotifyType, Payload};

/// The exchange that negotiates a child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildExchange {
    /// The child SA has no key exchange of its own (RFC 7296 §1.2).
    IkeAuth,
    CreateChildSa,
}

impl ChildExchange {
    fn has_key_exchange(self) -> bool {
        self == Self::CreateChildSa
    }
}

/// The terms under which the responder negotiates a child SA.
pub(super) struct ChildTerms<'a> {
    pub(super) exchange: ChildExchange,
    /// The configured children that the peer can mean.
    pub(super) candidates: &'a [Arc<Child>],
    pub(super) nonces: Nonces<'a>,
    /// The child SA that is rekeyed.
    pub(super) replaces: Option<ChildSaId>,
}

/// The notifies for transport mode and for non-first fragments (RFC 7296 §1.3.1, RFC 4301 §7.3).
fn notifies(mode: Mode, non_first_fragments: bool) -> impl Iterator<Item = Payload> {
    let transport = (mode == Mode::Transport).then_some(NotifyType::USE_TRANSPORT_MODE);
    let fragments = non_first_fragments.then_some(NotifyType::NON_FIRST_FRAGMENTS_ALSO);
    let kinds = transport.into_iter().chain(fragments);
    kinds.map(|kind| notify(kind, Vec::new()))
}

impl PendingChild {
    pub(super) fn notifies(&self) -> impl Iterator<Item = Payload> + use<> {
        notifies(self.config().mode, self.config().non_first_fragments)
    }
}

impl IkeSaCommon {
    /// Reserves an SPI and makes a proposal. `method` is the key exchange method, where it is not the first configured
    /// one. `kept` is the child SA that is rekeyed, while that SA is there: its algorithms and its selectors come first.
    pub(super) fn propose_child(
        &self,
        ctx: &mut Context<'_>,
        exchange: ChildExchange,
        request: ChildRequest,
        method: Option<Group>,
        rekeys: Option<ChildSaId>,
        kept: Option<&ChildSa>,
    ) -> Result<PendingChild, ChildFailure> {
        let config = &request.config;
        let (mut local_ts, mut remote_ts) =
            self.selectors_to_propose(&request, rekeys.is_some())?;
        if let Some(old) = kept.map(ChildSa::selectors) {
            // A responder that narrows by the first selectors comes to the same ones (RFC 7296 §2.9.2).
            ts::put_all_first(&mut local_ts, &old.local);
            ts::put_all_first(&mut remote_ts, &old.remote);
        }
        if self.nat.udp_encap() && config.uses_ah() {
            return Err(ChildFailure::AhThroughNat);
        }
        let proposals = match kept {
            Some(old) => &negotiate::kept_first(&config.esp_proposals, old.esp),
            None => &config.esp_proposals,
        };
        let with_key_exchange = exchange.has_key_exchange();
        let configured = || {
            let mut proposals = proposals.iter();
            proposals.find_map(|proposal| proposal.groups.first().copied())
        };
        let method = method.or_else(configured).filter(|_| with_key_exchange);
        let key_exchange = method
            .map(|method| ctx.key_exchange.start(method))
            .transpose()
            .map_err(|_| ChildFailure::Resources(Shortage::KeyExchange))?;
        let Some(spi_in) = ctx.spis.allocate() else {
            ctx.counters.count(Refusal::SpiExhausted);
            return Err(ChildFailure::Resources(Shortage::Spi));
        };
        Ok(PendingChild {
            spi_in,
            nonce: ctx.nonce(),
            key_exchange,
            offer: negotiate::esp_offer(proposals, spi_in, with_key_exchange),
            local_ts,
            remote_ts,
            request,
            rekeys,
            simultaneous: None,
            deleted: Vec::new(),
            method_changed: false,
            withdrawn: false,
        })
    }
}

impl Established {
    /// Checks, as the initiator, the responder's choice against our proposal, and installs the child SA.
    pub(super) fn accept_child(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        pending: &PendingChild,
        theirs: &ChildPayloads<'_>,
        shared: Option<&Secret>,
        nonces: Nonces<'_>,
    ) -> Result<ChildSa, ChildFailure> {
        let misbehaved = ChildFailure::PeerMisbehaved;
        let config = pending.config();
        let chosen = negotiate::accept_esp(&pending.offer, theirs.proposals)
            .filter(|chosen| {
                let ours = pending
                    .key_exchange
                    .as_ref()
                    .map(|started| started.method());
                chosen.key_exchange.is_none() || (chosen.key_exchange == ours && shared.is_some())
            })
            .ok_or(misbehaved(ChildResponseFault::NotOffered))?;
        if !ts::is_narrowing(theirs.ts_i, &pending.local_ts)
            || !ts::is_narrowing(theirs.ts_r, &pending.remote_ts)
        {
            return Err(misbehaved(ChildResponseFault::SelectorsTooWide));
        }
        let mode = match (config.mode, theirs.transport) {
            (Mode::Transport, true) => Mode::Transport,
            // RFC 7296 §1.3.1 lets us delete the tunnel that the peer makes instead: it is not what is configured.
            (Mode::Transport, false) => {
                return Err(ChildFailure::Transport(TransportFault::DeclinedByPeer));
            }
            (Mode::Tunnel, false) => Mode::Tunnel,
            (Mode::Tunnel, true) => {
                return Err(misbehaved(ChildResponseFault::TransportNotRequested));
            }
        };
        let selectors = SelectorPair {
            local: theirs.ts_i.to_vec(),
            remote: theirs.ts_r.to_vec(),
        };
        let replaced = pending.rekeys.and_then(|old| self.child(old));
        if replaced.is_some_and(|old| !selectors.cover(&old.selectors())) {
            return Err(misbehaved(ChildResponseFault::SelectorsTooNarrow));
        }
        // A further SA is for the packet. Any other would leave as many SAs as the peer likes.
        let further = pending.rekeys.is_none() && self.is_up(&config.name);
        if further
            && !pending
                .request
                .is_met_by(&selectors.local, &selectors.remote)
        {
            return Err(ChildFailure::PacketLeftOut);
        }
        let agreed = AgreedChild {
            config,
            claim: self.claim_granted(sa, ctx, config, selectors)?,
            chosen: &chosen,
            mode,
            tfc: !theirs.no_tfc,
            non_first_fragments: theirs.non_first_fragments && config.non_first_fragments,
            spi_in: pending.spi_in,
            shared: shared.filter(|_| chosen.key_exchange.is_some()),
            nonces,
            initiator: true,
            replaces: pending.rekeys,
            succeeds: pending.request.succeeds,
        };
        ChildSa::install(ctx, sa, self, agreed).ok_or(ChildFailure::Resources(Shortage::ChildKeys))
    }

    /// Chooses, as the responder, a child and a proposal, and installs the child SA. Returns the payloads of the
    /// response too: SA, then KE if there is one, notifies, TSi and TSr.
    pub(super) fn answer_child(
        &self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        theirs: &ChildPayloads<'_>,
        terms: &ChildTerms<'_>,
    ) -> Result<(ChildSa, Vec<Payload>), ErrorReply> {
        self.check_share(ctx, theirs, terms.replaces.is_some())?;
        let sent_method = theirs.key_exchange.map(|ke| ke.method);
        let with_key_exchange = terms.exchange.has_key_exchange();
        let replaced = terms.replaces.and_then(|old| self.child(old));
        let choose = |child: &Child| {
            if sa.nat.udp_encap() && child.uses_ah() {
                return None;
            }
            let own = match replaced {
                Some(old) => &negotiate::kept_first(&child.esp_proposals, old.esp),
                None => &child.esp_proposals,
            };
            negotiate::choose_esp(own, theirs.proposals, sent_method, with_key_exchange)
        };
        let mut reply = ErrorReply::no_proposal_chosen();
        let mut usable = None;
        for matched in self.matching_children(sa, theirs, terms.candidates)? {
            // The new SA carries at least the traffic of the old one (RFC 7296 §2.9.2).
            if replaced.is_some_and(|old| !matched.selectors.cover(&old.selectors())) {
                reply = ErrorReply::ts_unacceptable();
                continue;
            }
            let Some(chosen) = choose(matched.config) else {
                continue;
            };
            match self.claim(sa, ctx, matched.config, matched.selectors, replaced) {
                Ok(claim) => {
                    usable = Some((matched.config, matched.mode, chosen, claim));
                    break;
                }
                Err(held) => reply = held,
            }
        }
        let (config, mode, mut chosen, claim) = usable.ok_or(reply)?;
        let answer = chosen
            .key_exchange
            .map(|method| key_exchange::answer(ctx, method, theirs.key_exchange))
            .transpose()?;
        let (ke_payload, shared) = answer.unzip();
        let Some(spi_in) = ctx.spis.allocate() else {
            return Err(ErrorReply::new(
                Refusal::SpiExhausted,
                NotifyType::NO_ADDITIONAL_SAS,
            ));
        };
        let non_first_fragments = theirs.non_first_fragments && config.non_first_fragments;
        let SelectorPair {
            local: local_ts,
            remote: remote_ts,
        } = SelectorPair::clone(&claim.selectors);
        let agreed = AgreedChild {
            config,
            claim,
            chosen: &chosen,
            mode,
            tfc: !theirs.no_tfc,
            non_first_fragments,
            spi_in,
            shared: shared.as_ref(),
            nonces: terms.nonces,
            initiator: false,
            replaces: terms.replaces,
            succeeds: None,
        };
        let Some(child) = ChildSa::install(ctx, sa, self, agreed) else {
            ctx.spis.release(spi_in);
            return Err(ErrorReply::temporary_failure());
        };
        chosen.proposal.spi = spi_in.to_be_bytes().to_vec();
        let mut payloads = vec![Payload::Sa(vec![chosen.proposal])];
        payloads.extend(ke_payload);
        payloads.extend(notifies(mode, non_first_fragments));
        payloads.push(Payload::TsI(remote_ts));
        payloads.push(Payload::TsR(local_ts));
        Ok((child, payloads))
    }

    /// Puts a new child SA into use. A child SA that was withdrawn meanwhile ends at once.
    pub(super) fn add_child(
        &mut self,
        sa: &IkeSaCommon,
        ctx: &mut Context<'_>,
        mut child: ChildSa,
        withdrawn: bool,
    ) {
        child.use_outbound(ctx);
        let id = child.id;
        // Most SAs have one child for life.
        self.children.reserve_exact(1);
        self.children.push(child);
        if withdrawn {
            self.end_child(sa, ctx, id, DownReason::Terminated);
        }
    }
}

/// The lower of two nonces, compared as octet strings. It decides simultaneous rekeys (RFC 7296 §2.8.1).
pub(super) fn lowest(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.min(b).to_vec()
}
