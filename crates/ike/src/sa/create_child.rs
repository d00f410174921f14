//! CREATE_CHILD_SA for a new child SA (RFC 7296 section 1.3.1), and what its rekey has in common with it.

use std::sync::Arc;
use std::time::Duration;

use esplanade_crypto::iana::Group;

use super::child::Agreement;
use super::established::{Exchange, Task};
use super::{ChildSa, Context, IkeSa, Received, Wanted, notify};
use crate::claims::Ends;
use crate::config::{Child, Mode};
use crate::event::{ChildFailure, ChildSaId, DownReason, Held};
use crate::negotiate;
use crate::refusal::Refusal;
use crate::suite::{EphemeralKey, Keys, Nonces, Secret};
use crate::ts;
use crate::wire::{
    ExchangeType, KeyExchange, Message, Notify, NotifyType, Payload, Proposal, ProtocolId,
    TrafficSelector,
};

/// Pause after TEMPORARY_FAILURE; the peer is busy with an exchange that collides with ours (section 2.25).
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A child SA that we have proposed.
#[derive(Debug)]
pub(crate) struct PendingChild {
    pub(crate) config: Arc<Child>,
    pub(super) spi_in: u32,
    pub(super) nonce: Vec<u8>,
    pub(super) key_pair: Option<Box<dyn EphemeralKey>>,
    pub(super) offer: Vec<Proposal>,
    pub(super) local_ts: Vec<TrafficSelector>,
    pub(super) remote_ts: Vec<TrafficSelector>,
    /// The packet that asks for it.
    packet: Option<(TrafficSelector, TrafficSelector)>,
    pub(crate) rekeys: Option<ChildSaId>,
    /// The peer has rekeyed the same child SA meanwhile.
    pub(super) rival: Option<Rival>,
    /// Unknown SPIs that the peer has deleted since: ours may be one of them, when its answer was lost.
    pub(super) deleted: Vec<u32>,
    /// INVALID_KE_PAYLOAD was obeyed once.
    pub(super) group_changed: bool,
    /// Nobody wants it any more.
    pub(crate) unwanted: bool,
}

/// What the peer has made of the child SA that we are rekeying.
#[derive(Debug)]
pub(super) struct Rival {
    pub(super) child: ChildSaId,
    /// The lower nonce of its exchange.
    pub(super) nonce: Vec<u8>,
}

impl PendingChild {
    pub(crate) fn release(&self, ctx: &mut Context<'_>) {
        ctx.spis.release(self.spi_in);
    }

    /// Of the proposals: a child has ESP or AH, not both.
    pub(super) fn protocol(&self) -> ProtocolId {
        self.offer
            .first()
            .map_or(ProtocolId::ESP, |proposal| proposal.protocol)
    }

    /// What asks for another mode than the tunnel's, and for later fragments (section 1.3.1).
    pub(super) fn requests(&self) -> impl Iterator<Item = Payload> + use<> {
        requests(self.config.mode, self.config.non_first_fragments)
    }
}

/// The payloads of a message that negotiates a child SA.
pub(super) struct ChildPayloads<'a> {
    pub(super) proposals: &'a [Proposal],
    pub(super) ts_i: &'a [TrafficSelector],
    pub(super) ts_r: &'a [TrafficSelector],
    pub(super) nonce: Option<&'a [u8]>,
    pub(super) ke: Option<&'a KeyExchange>,
    pub(super) transport: bool,
    /// TFC padding is taken.
    tfc: bool,
    /// Later fragments too (RFC 4301 section 7.3).
    non_first_fragments: bool,
}

fn requests(mode: Mode, non_first_fragments: bool) -> impl Iterator<Item = Payload> {
    let transport = (mode == Mode::Transport).then_some(NotifyType::USE_TRANSPORT_MODE);
    let fragments = non_first_fragments.then_some(NotifyType::NON_FIRST_FRAGMENTS_ALSO);
    let kinds = transport.into_iter().chain(fragments);
    kinds.map(|kind| notify(kind, Vec::new()))
}

impl<'a> ChildPayloads<'a> {
    pub(super) fn find(message: &'a Message) -> Option<Self> {
        let (mut proposals, mut ts_i, mut ts_r, mut nonce, mut ke) = (None, None, None, None, None);
        for payload in &message.payloads {
            match payload {
                Payload::Sa(found) => proposals = Some(found.as_slice()),
                Payload::TsI(found) => ts_i = Some(found.as_slice()),
                Payload::TsR(found) => ts_r = Some(found.as_slice()),
                Payload::Nonce(found) => nonce = Some(found.as_slice()),
                Payload::Ke(found) => ke = Some(found),
                _ => {}
            }
        }
        Some(Self {
            proposals: proposals?,
            ts_i: ts_i?,
            ts_r: ts_r?,
            nonce,
            ke,
            transport: message
                .notification(NotifyType::USE_TRANSPORT_MODE)
                .is_some(),
            tfc: message
                .notification(NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED)
                .is_none(),
            non_first_fragments: message
                .notification(NotifyType::NON_FIRST_FRAGMENTS_ALSO)
                .is_some(),
        })
    }
}

/// Why a request is not granted, as the peer is told.
#[derive(Debug)]
pub(super) struct Refuse {
    pub(super) refusal: Refusal,
    pub(super) kind: NotifyType,
    pub(super) data: Vec<u8>,
    /// The child SA that it is about.
    pub(super) about: Option<(ProtocolId, u32)>,
    /// The traffic that another peer has.
    pub(super) held: Option<Box<Held>>,
}

impl Refuse {
    pub(super) fn new(refusal: Refusal, kind: NotifyType) -> Self {
        Self {
            refusal,
            kind,
            data: Vec::new(),
            about: None,
            held: None,
        }
    }

    pub(super) fn temporary() -> Self {
        Self::new(Refusal::TemporaryFailure, NotifyType::TEMPORARY_FAILURE)
    }

    pub(super) fn syntax() -> Self {
        Self::new(Refusal::InvalidSyntax, NotifyType::INVALID_SYNTAX)
    }

    pub(super) fn group(group: Group) -> Self {
        Self {
            data: group.number().to_be_bytes().to_vec(),
            ..Self::new(Refusal::InvalidKePayload, NotifyType::INVALID_KE_PAYLOAD)
        }
    }

    pub(super) fn payload(self, ctx: &mut Context<'_>) -> Payload {
        ctx.counters.refuse(self.refusal);
        Payload::Notify(match self.about {
            Some((protocol, spi)) => Notify::about_child(self.kind, protocol, spi),
            None => Notify::new(self.kind, self.data),
        })
    }
}

/// The peer's error instead of a child SA, as we tell it.
pub(super) fn refused(error: &Notify) -> ChildFailure {
    match error.kind {
        NotifyType::NO_PROPOSAL_CHOSEN => ChildFailure::NoProposalChosen,
        NotifyType::TS_UNACCEPTABLE => ChildFailure::TsUnacceptable,
        other => ChildFailure::PeerRefused(other.to_string()),
    }
}

/// The group that INVALID_KE_PAYLOAD asks for.
pub(super) fn wanted_group(notify: &Notify) -> Option<Group> {
    Group::from_number(u16::from_be_bytes(notify.data.as_slice().try_into().ok()?))
}

/// The answer to a child SA that the peer has proposed.
pub(super) struct Answer {
    pub(super) child: ChildSa,
    pub(super) payloads: Vec<Payload>,
    /// The lower nonce of the exchange (section 2.8.1).
    pub(super) lowest_nonce: Vec<u8>,
}

impl IkeSa {
    /// Reserves a SPI and makes up a proposal.
    pub(super) fn propose_child(
        &self,
        ctx: &mut Context<'_>,
        wanted: &Wanted,
        group: Option<Group>,
        rekeys: Option<ChildSaId>,
    ) -> Result<PendingChild, ChildFailure> {
        let config = &wanted.config;
        let (local_ts, remote_ts) = self.selectors_to_propose(wanted, rekeys.is_some())?;
        if self.nat.udp_encap() && config.uses_ah() {
            return Err(ChildFailure::AhThroughNat);
        }
        let in_auth = self.established().is_none();
        let group = group.or_else(|| {
            config
                .esp_proposals
                .iter()
                .find_map(|p| p.groups.first().copied())
        });
        let key_pair = match group
            .filter(|_| !in_auth)
            .map(|group| ctx.random.ephemeral_key(group))
        {
            None => None,
            Some(Ok(key_pair)) => Some(key_pair),
            Some(Err(_)) => return Err(ChildFailure::Resources("no key pair could be made")),
        };
        let Some(spi_in) = ctx.spis.allocate() else {
            ctx.counters.refuse(Refusal::SpiExhausted);
            return Err(ChildFailure::Resources("no SPI is left"));
        };
        Ok(PendingChild {
            config: config.clone(),
            spi_in,
            nonce: ctx.nonce(),
            key_pair,
            offer: negotiate::esp_offer(&config.esp_proposals, spi_in, !in_auth),
            local_ts,
            remote_ts,
            packet: wanted.packet,
            rekeys,
            rival: None,
            deleted: Vec::new(),
            group_changed: false,
            unwanted: false,
        })
    }

    pub(super) fn start_create_child(&mut self, ctx: &mut Context<'_>, wanted: &Wanted) {
        let name = &wanted.config.name;
        // The other children are bounded by the configuration.
        let up = self.established().map_or(0, |state| state.children.len());
        if wanted.config.from_packet && up >= ctx.config.limits.children_per_sa_max {
            let failure = ChildFailure::Resources("as many child SAs as an IKE SA may have");
            return self.child_failed(ctx, name, failure);
        }
        match self.propose_child(ctx, wanted, None, None) {
            Ok(pending) => self.send_create_child(ctx, pending),
            Err(failure) => self.child_failed(ctx, name, failure),
        }
    }

    pub(super) fn send_create_child(&mut self, ctx: &mut Context<'_>, pending: PendingChild) {
        let mut payloads = Vec::new();
        if let Some(old) = pending.rekeys {
            let Some(child) = self.established().and_then(|state| state.child(old)) else {
                return pending.release(ctx);
            };
            payloads.push(Payload::Notify(Notify::about_child(
                NotifyType::REKEY_SA,
                child.protocol,
                child.spi_in,
            )));
        }
        payloads.extend(pending.requests());
        payloads.push(Payload::Sa(pending.offer.clone()));
        payloads.push(Payload::Nonce(pending.nonce.clone()));
        if let Some(key_pair) = &pending.key_pair {
            payloads.push(ke_payload(&**key_pair));
        }
        payloads.push(Payload::TsI(pending.local_ts.clone()));
        payloads.push(Payload::TsR(pending.remote_ts.clone()));
        self.begin(Exchange::CreateChild(Box::new(pending)));
        self.send_request(ctx, ExchangeType::CREATE_CHILD_SA, &payloads);
    }

    pub(super) fn handle_create_child_response(
        &mut self,
        ctx: &mut Context<'_>,
        pending: PendingChild,
        message: &Message,
    ) {
        if let Some(error) = message
            .notifications()
            .find(|notify| notify.kind.is_error())
        {
            pending.release(ctx);
            return self.create_child_refused(ctx, pending, error);
        }
        match self.accept_child(ctx, &pending, message) {
            Ok((child, lowest_nonce)) => {
                let deleted = pending.deleted.contains(&child.spi_out).then_some(child.id);
                self.child_created(ctx, pending, child, lowest_nonce);
                if let Some(id) = deleted {
                    self.child_deleted_by_peer(ctx, id);
                }
            }
            Err(failure) => {
                // The peer has it; the SPI is free when the peer has confirmed the delete.
                self.queue(ctx, Task::Disown(pending.protocol(), pending.spi_in));
                self.child_failed(ctx, &pending.config.name, failure);
                self.rekey_gave_up(ctx, &pending);
            }
        }
    }

    fn accept_child(
        &self,
        ctx: &mut Context<'_>,
        pending: &PendingChild,
        message: &Message,
    ) -> Result<(ChildSa, Vec<u8>), ChildFailure> {
        let misbehaved = ChildFailure::PeerMisbehaved;
        let theirs =
            ChildPayloads::find(message).ok_or(misbehaved("a payload is missing in its answer"))?;
        let nonce = theirs.nonce.ok_or(misbehaved("no nonce in its answer"))?;
        let keys = &self
            .phase
            .channel()
            .ok_or(misbehaved("the IKE SA is gone"))?
            .keys;
        let shared = match (&pending.key_pair, theirs.ke) {
            // Without a public value it can only have chosen a proposal without a group.
            (None, _) | (_, None) => None,
            (Some(key_pair), Some(ke)) if ke.group == key_pair.group().number() => Some(
                key_pair
                    .agree(&ke.public)
                    .map_err(|_| misbehaved("invalid public value"))?,
            ),
            (Some(_), _) => return Err(misbehaved("no public value of the chosen group")),
        };
        let nonces = Nonces {
            initiator: &pending.nonce,
            responder: nonce,
        };
        let child =
            self.accept_child_answer(ctx, keys, pending, &theirs, shared.as_ref(), nonces)?;
        Ok((child, lowest(&pending.nonce, nonce)))
    }

    /// Checks the peer's choice against our proposal, and installs it.
    pub(super) fn accept_child_answer(
        &self,
        ctx: &mut Context<'_>,
        keys: &Keys,
        pending: &PendingChild,
        theirs: &ChildPayloads<'_>,
        shared: Option<&Secret>,
        nonces: Nonces<'_>,
    ) -> Result<ChildSa, ChildFailure> {
        let chosen = negotiate::accept_esp(&pending.offer, theirs.proposals)
            .filter(|chosen| {
                let ours = pending.key_pair.as_ref().map(|key_pair| key_pair.group());
                chosen.group.is_none() || (chosen.group == ours && shared.is_some())
            })
            .ok_or(ChildFailure::PeerMisbehaved(
                "it chose what we did not offer",
            ))?;
        if !ts::is_narrowing(theirs.ts_i, &pending.local_ts)
            || !ts::is_narrowing(theirs.ts_r, &pending.remote_ts)
        {
            return Err(ChildFailure::PeerMisbehaved(
                "its traffic selectors are wider than ours",
            ));
        }
        let mode = match (pending.config.mode, theirs.transport) {
            (Mode::Transport, true) => Mode::Transport,
            // The tunnel that the peer offers instead is not what was configured: section 1.3.1 lets us delete it.
            (Mode::Transport, false) => {
                return Err(ChildFailure::Transport("the peer declines it"));
            }
            (Mode::Tunnel, false) => Mode::Tunnel,
            (Mode::Tunnel, true) => {
                let why = "it answers with transport mode, which we did not ask for";
                return Err(ChildFailure::PeerMisbehaved(why));
            }
        };
        let ends = Ends {
            local: theirs.ts_i.to_vec(),
            remote: theirs.ts_r.to_vec(),
        };
        let claim = self.claim_of_answer(ctx, &pending.config, ends)?;
        let agreement = Agreement {
            config: &pending.config,
            claim,
            chosen: &chosen,
            mode,
            tfc: theirs.tfc,
            non_first_fragments: theirs.non_first_fragments && pending.config.non_first_fragments,
            spi_in: pending.spi_in,
            shared: shared.filter(|_| chosen.group.is_some()),
            nonces,
            initiator: true,
            replaces: pending.rekeys,
        };
        ChildSa::install(ctx, self, keys, agreement)
            .ok_or(ChildFailure::Resources("no keys could be derived"))
    }

    fn child_created(
        &mut self,
        ctx: &mut Context<'_>,
        pending: PendingChild,
        mut child: ChildSa,
        lowest: Vec<u8>,
    ) {
        if let Some(old) = pending.rekeys {
            return self.child_rekeyed(ctx, pending, old, child, &lowest);
        }
        child.use_outbound(ctx);
        let id = child.id;
        if let Some(state) = self.established_mut() {
            state.children.push(child);
        }
        if pending.unwanted {
            self.end_child(ctx, id);
        }
    }

    /// The peer's error instead of a child SA. Our SPI was given back.
    fn create_child_refused(
        &mut self,
        ctx: &mut Context<'_>,
        pending: PendingChild,
        error: &Notify,
    ) {
        let again = ctx.now + TRY_AGAIN + ctx.jitter(2 * TRY_AGAIN);
        let failure = match error.kind {
            _ if pending.unwanted && error.kind != NotifyType::INVALID_SYNTAX => return,
            // The peer's own rekey holds (section 2.25.1).
            other if pending.rival.is_some() && other != NotifyType::INVALID_SYNTAX => return,
            NotifyType::INVALID_KE_PAYLOAD if !pending.group_changed => {
                let offered = |group: &Group| {
                    pending
                        .config
                        .esp_proposals
                        .iter()
                        .any(|proposal| proposal.groups.contains(group))
                };
                let Some(group) = wanted_group(error).filter(offered) else {
                    self.rekey_gave_up(ctx, &pending);
                    let failure =
                        ChildFailure::PeerMisbehaved("it wants a group that we did not offer");
                    return self.child_failed(ctx, &pending.config.name, failure);
                };
                return self.retry_with_group(ctx, &pending, group);
            }
            NotifyType::TEMPORARY_FAILURE => {
                let task = match pending.rekeys {
                    None => Task::CreateChild(Wanted {
                        config: pending.config,
                        packet: pending.packet,
                    }),
                    Some(old) => Task::RekeyChild(old),
                };
                self.queue_later(ctx, task, again);
                return;
            }
            NotifyType::CHILD_SA_NOT_FOUND if pending.rekeys.is_some() => {
                return self.rekeyed_child_not_found(ctx, &pending);
            }
            _ => refused(error),
        };
        self.rekey_gave_up(ctx, &pending);
        self.child_failed(ctx, &pending.config.name, failure);
        if error.kind == NotifyType::INVALID_SYNTAX {
            // Fatal at both ends (section 2.21.3).
            self.close(ctx, DownReason::PeerRefused(error.kind.to_string()));
        }
    }

    fn rekey_gave_up(&mut self, ctx: &mut Context<'_>, pending: &PendingChild) {
        if pending.rival.is_none() && pending.rekeys.is_some() {
            self.rekey_failed(ctx, pending.rekeys);
        }
    }

    fn retry_with_group(&mut self, ctx: &mut Context<'_>, pending: &PendingChild, group: Group) {
        let wanted = Wanted {
            config: pending.config.clone(),
            packet: pending.packet,
        };
        match self.propose_child(ctx, &wanted, Some(group), pending.rekeys) {
            Ok(mut again) => {
                again.group_changed = true;
                self.send_create_child(ctx, again);
            }
            Err(failure) => {
                self.rekey_gave_up(ctx, pending);
                self.child_failed(ctx, &pending.config.name, failure);
            }
        }
    }

    /// A CREATE_CHILD_SA request: a new child SA, or the rekey of one, or of the IKE SA.
    pub(super) fn handle_create_child_request(
        &mut self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        message: &Message,
    ) {
        let rekeys_ike = message.payloads.iter().any(
            |payload| matches!(payload, Payload::Sa(p) if p.first().is_some_and(|p| p.protocol == ProtocolId::IKE)),
        );
        if rekeys_ike {
            return self.handle_rekey_ike_request(ctx, received, message);
        }
        if let Some(notify) = message.notification(NotifyType::REKEY_SA) {
            return self.handle_rekey_child_request(ctx, received, message, notify);
        }
        let candidates = self.connection.children.clone();
        match self.grant_child(ctx, message, &candidates, None) {
            Ok(mut answer) => {
                answer.child.use_outbound(ctx);
                if let Some(state) = self.established_mut() {
                    state.children.push(answer.child);
                }
                self.send_response(ctx, received, &answer.payloads);
            }
            Err(refuse) => self.refuse_request(ctx, received, message, refuse),
        }
    }

    /// Answers with an error notify; the syntax error is fatal.
    pub(super) fn refuse_request(
        &mut self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        message: &Message,
        refuse: Refuse,
    ) {
        self.tell_refused(ctx, received, message, &refuse);
        let fatal = refuse.kind == NotifyType::INVALID_SYNTAX;
        let payload = refuse.payload(ctx);
        self.send_response(ctx, received, &[payload]);
        if fatal {
            self.close(
                ctx,
                DownReason::PeerMisbehaved("malformed request".to_owned()),
            );
        }
    }

    /// Decides on a child SA that the peer proposes in CREATE_CHILD_SA, and installs it.
    pub(super) fn grant_child(
        &self,
        ctx: &mut Context<'_>,
        message: &Message,
        candidates: &[Arc<Child>],
        replaces: Option<ChildSaId>,
    ) -> Result<Answer, Refuse> {
        let state = self.established().ok_or_else(Refuse::temporary)?;
        // Section 2.25.1.
        if state.is_rekeying_ike() || state.is_ending() {
            return Err(Refuse::temporary());
        }
        // A rekey holds two for one until the old one is deleted.
        let limit = match replaces {
            None => ctx.config.limits.children_per_sa_max,
            Some(_) => 2 * ctx.config.limits.children_per_sa_max,
        };
        if state.children.len() >= limit {
            return Err(Refuse::new(
                Refusal::ChildSaLimit,
                NotifyType::NO_ADDITIONAL_SAS,
            ));
        }
        let theirs = ChildPayloads::find(message).ok_or_else(Refuse::syntax)?;
        let nonce_i = theirs.nonce.ok_or_else(Refuse::syntax)?;
        let nonce_r = ctx.nonce();
        let nonces = Nonces {
            initiator: nonce_i,
            responder: &nonce_r,
        };
        let lowest_nonce = lowest(nonce_i, &nonce_r);
        let (child, mut payloads) = self.answer_child(
            ctx,
            &state.channel.keys,
            &theirs,
            candidates,
            nonces,
            false,
            replaces,
        )?;
        payloads.insert(1, Payload::Nonce(nonce_r));
        Ok(Answer {
            child,
            payloads,
            lowest_nonce,
        })
    }

    /// The responder's half of a child SA negotiation: SA, then KE if there is one, TSi and TSr.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn answer_child(
        &self,
        ctx: &mut Context<'_>,
        keys: &Keys,
        theirs: &ChildPayloads<'_>,
        candidates: &[Arc<Child>],
        nonces: Nonces<'_>,
        in_auth: bool,
        replaces: Option<ChildSaId>,
    ) -> Result<(ChildSa, Vec<Payload>), Refuse> {
        let matches = self.matching_children(theirs, candidates)?;
        let ke_group = theirs.ke.map(|ke| ke.group);
        let choose = |child: &Child| {
            if self.nat.udp_encap() && child.uses_ah() {
                return None;
            }
            negotiate::choose_esp(&child.esp_proposals, theirs.proposals, ke_group, !in_auth)
        };
        let mut refuse = Refuse::new(Refusal::NoProposalChosen, NotifyType::NO_PROPOSAL_CHOSEN);
        let mut usable = None;
        for matched in matches {
            let Some(chosen) = choose(matched.config) else {
                continue;
            };
            match self.claim(ctx, matched.config, matched.ends) {
                Ok(claim) => {
                    usable = Some((matched.config, matched.mode, chosen, claim));
                    break;
                }
                Err(held) => refuse = held,
            }
        }
        let (config, mode, mut chosen, claim) = usable.ok_or(refuse)?;
        let mut public = None;
        let mut shared = None;
        if let Some(group) = chosen.group {
            let ke = theirs
                .ke
                .filter(|ke| ke.group == group.number())
                .ok_or_else(|| Refuse::group(group))?;
            let key_pair = ctx
                .random
                .ephemeral_key(group)
                .map_err(|_| Refuse::temporary())?;
            shared = Some(key_pair.agree(&ke.public).map_err(|_| Refuse::syntax())?);
            public = Some(ke_payload(&*key_pair));
        }
        let Some(spi_in) = ctx.spis.allocate() else {
            return Err(Refuse::new(
                Refusal::SpiExhausted,
                NotifyType::NO_ADDITIONAL_SAS,
            ));
        };
        let non_first_fragments = theirs.non_first_fragments && config.non_first_fragments;
        let Ends {
            local: local_ts,
            remote: remote_ts,
        } = claim.ends.clone();
        let agreement = Agreement {
            config,
            claim,
            chosen: &chosen,
            mode,
            tfc: theirs.tfc,
            non_first_fragments,
            spi_in,
            shared: shared.as_ref(),
            nonces,
            initiator: false,
            replaces,
        };
        let Some(child) = ChildSa::install(ctx, self, keys, agreement) else {
            ctx.spis.release(spi_in);
            return Err(Refuse::temporary());
        };
        chosen.answer.spi = spi_in.to_be_bytes().to_vec();
        let mut payloads = vec![Payload::Sa(vec![chosen.answer])];
        payloads.extend(public);
        payloads.extend(requests(mode, non_first_fragments));
        payloads.push(Payload::TsI(remote_ts));
        payloads.push(Payload::TsR(local_ts));
        Ok((child, payloads))
    }
}

pub(super) fn ke_payload(key_pair: &dyn EphemeralKey) -> Payload {
    Payload::Ke(KeyExchange {
        group: key_pair.group().number(),
        public: key_pair.public().to_vec(),
    })
}

/// The lower of two nonces, compared as octet strings (section 2.8.1).
pub(super) fn lowest(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.min(b).to_vec()
}
