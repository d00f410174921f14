//! IKE_AUTH (RFC 7296 sections 1.2, 2.15 and 2.21.2).

use std::sync::Arc;

use super::choice::{Caller, Said, candidates};
use super::create_child::{ChildPayloads, PendingChild, Refuse, refused};
use super::credentials::Peer;
use super::established::Task;
use super::init::{InitAnswered, InitDone};
use super::refused::auth_refused;
use super::{
    Channel, Context, Effect, Established, IkeSa, Phase, Received, Wanted, credentials, notify,
};
use crate::config::{Connection, Identity, RemoteMethod, Unique};
use crate::event::{ChildFailure, DownReason, Event, IkeSaUp};
use crate::peer::PeerKey;
use crate::refusal::Refusal;
use crate::suite::{Keys, Nonces, Role};
use crate::wire::{Auth, Cert, ExchangeType, Id, Message, NotifyType, Payload, PayloadType};

/// Initiator: our proof and our first child SA are out.
#[derive(Debug)]
pub(crate) struct AuthSent {
    pub(super) channel: Channel,
    done: InitDone,
    local_id: Identity,
    child: PendingChild,
    /// The other children, for CREATE_CHILD_SA.
    pub(crate) wanted: Vec<Wanted>,
    /// To be deleted as soon as it is up.
    pub(crate) doomed: Option<DownReason>,
    /// Nobody wants the first child any more.
    unwanted: bool,
}

impl AuthSent {
    pub(super) fn release(self, ctx: &mut Context<'_>) -> Channel {
        self.child.release(ctx);
        self.channel
    }

    pub(crate) fn unwant(&mut self, child: &str) {
        self.unwanted |= self.child.config.name == child;
    }

    pub(crate) fn wants(&self, child: &Wanted) -> bool {
        (child.is(&self.child.config) && !self.unwanted)
            || self.wanted.iter().any(|other| child.is(&other.config))
    }
}

/// The payloads that prove who the peer is.
struct Proof<'a> {
    id: &'a Id,
    auth: &'a Auth,
    certs: Vec<&'a Cert>,
    /// Initiator only: whom it wants to talk to.
    wanted: Option<&'a Id>,
}

impl<'a> Proof<'a> {
    fn find(message: &'a Message, from: Role) -> Option<Self> {
        let (mut id_i, mut id_r, mut auth, mut certs) = (None, None, None, Vec::new());
        for payload in &message.payloads {
            match payload {
                Payload::IdI(found) => id_i = Some(found),
                Payload::IdR(found) => id_r = Some(found),
                Payload::Auth(found) => auth = Some(found),
                Payload::Cert(found) => certs.push(found),
                _ => {}
            }
        }
        let (id, wanted) = match from {
            Role::Initiator => (id_i?, id_r),
            Role::Responder => (id_r?, None),
        };
        Some(Self {
            id,
            auth: auth?,
            certs,
            wanted,
        })
    }
}

impl InitDone {
    /// What the party with this role signs (section 2.15).
    fn signed_octets(&self, keys: &Keys, signer: Role, id: &Id) -> Vec<u8> {
        match signer {
            Role::Initiator => keys.signed_octets(signer, &self.request, &self.nonce_r, id),
            Role::Responder => keys.signed_octets(signer, &self.response, &self.nonce_i, id),
        }
    }

    fn nonces(&self) -> Nonces<'_> {
        Nonces {
            initiator: &self.nonce_i,
            responder: &self.nonce_r,
        }
    }
}

impl IkeSa {
    /// Initiator: proves who we are and proposes the first child SA.
    pub(super) fn send_auth(
        &mut self,
        ctx: &mut Context<'_>,
        channel: Channel,
        done: InitDone,
        mut wanted: Vec<Wanted>,
    ) {
        let connection = self.connection.clone();
        let local_id = credentials::local_id(&connection, self.local.ip());
        let mut child = Err(DownReason::Configuration(
            "no child to establish".to_owned(),
        ));
        // One that cannot be proposed, as transport mode through a NAT, keeps no other one down.
        while child.is_err() && !wanted.is_empty() {
            let first = wanted.remove(0);
            child = self
                .propose_child(ctx, &first, None, None)
                .map_err(|failure| {
                    let reason = match &failure {
                        ChildFailure::Resources(what) => DownReason::Resources(what),
                        other => DownReason::Configuration(other.to_string()),
                    };
                    self.child_failed(ctx, &first.config.name, failure);
                    reason
                });
        }
        let child = match child {
            Ok(child) => child,
            Err(reason) => return self.abandon(ctx, reason),
        };
        let payloads = self.auth_payloads(ctx, &channel, &done, &local_id, &child);
        match payloads {
            Ok(payloads) => {
                self.phase = Phase::AuthSent(Box::new(AuthSent {
                    channel,
                    done,
                    local_id,
                    child,
                    wanted,
                    doomed: None,
                    unwanted: false,
                }));
                self.log_keys(ctx);
                self.send_request(ctx, ExchangeType::IKE_AUTH, &payloads);
            }
            Err(reason) => {
                child.release(ctx);
                self.abandon(ctx, DownReason::Configuration(reason));
            }
        }
    }

    /// Gives up an IKE SA of which the peer knows nothing that it would not forget by itself.
    fn abandon(&mut self, ctx: &mut Context<'_>, reason: DownReason) {
        self.phase = Phase::Closed;
        self.connect_failed(ctx, reason);
    }

    fn auth_payloads(
        &self,
        ctx: &Context<'_>,
        channel: &Channel,
        done: &InitDone,
        local_id: &Identity,
        child: &PendingChild,
    ) -> Result<Vec<Payload>, String> {
        let connection = &self.connection;
        let id = local_id.to_payload().ok_or("no local identity")?;
        let remote_id = match &connection.remote.id {
            Identity::Any => Identity::Ip(self.remote.ip()),
            other => other.clone(),
        };
        // A pattern names nobody.
        let exact = connection.remote.id.precision() == 2;
        let peer = if exact {
            Peer::Is(&remote_id)
        } else {
            Peer::MayBe(&remote_id)
        };
        let octets = done.signed_octets(&channel.keys, Role::Initiator, &id);
        let (certs, auth) = credentials::sign(
            ctx,
            connection,
            &channel.keys,
            &octets,
            (local_id, peer),
            &done.peer_hashes,
        )?;
        let mut payloads = vec![Payload::IdI(id)];
        payloads.extend(certs.into_iter().map(Payload::Cert));
        let known = ctx
            .peers
            .contains_key(&PeerKey::new(connection, local_id, &remote_id));
        if !known && connection.unique != Unique::Never {
            payloads.push(notify(NotifyType::INITIAL_CONTACT, Vec::new()));
        }
        if let RemoteMethod::Certificate { authorities, .. } = &connection.remote.method {
            payloads.push(Payload::CertReq(authorities.certreq()));
        }
        payloads.extend(
            connection
                .remote
                .id
                .to_payload()
                .filter(|_| exact)
                .map(Payload::IdR),
        );
        payloads.push(Payload::Auth(auth));
        payloads.extend(child.requests());
        payloads.push(Payload::Sa(child.offer.clone()));
        payloads.push(Payload::TsI(child.local_ts.clone()));
        payloads.push(Payload::TsR(child.remote_ts.clone()));
        Ok(payloads)
    }

    pub(super) fn handle_auth_response(&mut self, ctx: &mut Context<'_>, message: Message) {
        self.window.completed();
        let Phase::AuthSent(state) = std::mem::replace(&mut self.phase, Phase::Closed) else {
            return;
        };
        match self.check_responder(ctx, &state, &message) {
            Ok(remote_id) => self.initiator_up(ctx, *state, remote_id, &message),
            Err(reason) => {
                let told = matches!(reason, DownReason::PeerRefused(_));
                self.phase = Phase::AuthSent(state);
                if told {
                    return self.close(ctx, reason);
                }
                ctx.counters.refuse(Refusal::AuthenticationFailed);
                // The responder believes that all is well (section 2.21.2).
                self.close_with(
                    ctx,
                    reason,
                    &[notify(NotifyType::AUTHENTICATION_FAILED, Vec::new())],
                );
            }
        }
    }

    fn check_responder(
        &self,
        ctx: &Context<'_>,
        state: &AuthSent,
        message: &Message,
    ) -> Result<Identity, DownReason> {
        let failed = DownReason::AuthenticationFailed;
        let Some(proof) = Proof::find(message, Role::Responder) else {
            return Err(
                match message
                    .notifications()
                    .find(|notify| notify.kind.is_error())
                {
                    Some(error) => DownReason::PeerRefused(error.kind.to_string()),
                    None => failed("the peer gives no proof".to_owned()),
                },
            );
        };
        let id = Identity::from_payload(proof.id).map_err(|error| failed(error.to_string()))?;
        if !self.connection.remote.id.accepts(&id) {
            return Err(failed(format!(
                "the peer is {id}, not {}",
                self.connection.remote.id
            )));
        }
        let keys = &state.channel.keys;
        let octets = state.done.signed_octets(keys, Role::Responder, proof.id);
        let ids = (&state.local_id, &id);
        credentials::verify(
            ctx,
            &self.connection,
            keys,
            &octets,
            ids,
            &proof.certs,
            proof.auth,
        )
        .map_err(failed)?;
        Ok(id)
    }

    fn initiator_up(
        &mut self,
        ctx: &mut Context<'_>,
        state: AuthSent,
        remote_id: Identity,
        message: &Message,
    ) {
        let AuthSent {
            channel,
            done,
            local_id,
            child: pending,
            wanted,
            doomed,
            unwanted,
        } = state;
        let connection = self.connection.clone();
        let state = Established::new(ctx, &connection, channel, local_id, remote_id);
        self.phase = Phase::Established(Box::new(state));
        self.announce(ctx);
        ctx.effects.push(Effect::Established {
            ike_sa: self.id,
            initial_contact: false,
        });
        if let Some(reason) = doomed {
            self.queue(ctx, Task::DeleteIke(reason));
        }
        for child in wanted {
            self.queue(ctx, Task::CreateChild(child));
        }
        let error = message
            .notifications()
            .find(|notify| notify.kind.is_error());
        let child = match (ChildPayloads::find(message), error) {
            (Some(theirs), _) => {
                let Some(channel) = self.phase.channel() else {
                    return;
                };
                let made = self.accept_child_answer(
                    ctx,
                    &channel.keys,
                    &pending,
                    &theirs,
                    None,
                    done.nonces(),
                );
                made.map_err(|failure| (failure, true))
            }
            (None, Some(error)) => Err((refused(error), false)),
            (None, None) => Err((
                ChildFailure::PeerMisbehaved("it neither makes nor refuses the child SA"),
                false,
            )),
        };
        match child {
            Ok(mut child) => {
                child.use_outbound(ctx);
                let id = child.id;
                if let Some(state) = self.established_mut() {
                    state.children.push(child);
                }
                if unwanted {
                    self.end_child(ctx, id);
                }
            }
            Err((failure, peer_has_it)) => {
                if peer_has_it {
                    self.queue(ctx, Task::Disown(pending.protocol(), pending.spi_in));
                } else {
                    pending.release(ctx);
                }
                self.child_failed(ctx, &pending.config.name, failure);
            }
        }
    }

    fn announce(&self, ctx: &mut Context<'_>) {
        let Some(state) = self.established() else {
            return;
        };
        ctx.counters.ike_sas_established += 1;
        ctx.events.push_back(Event::IkeSaUp(IkeSaUp {
            ike_sa: self.id,
            connection: self.connection.name.clone(),
            initiator: self.role.is_initiator(),
            local: self.local,
            remote: self.remote,
            local_id: state.local_id.clone(),
            remote_id: state.remote_id.clone(),
            nat_local: self.nat.local,
            nat_remote: self.nat.remote,
            suite: state.channel.keys.suite().to_string(),
        }));
    }

    pub(super) fn handle_auth_request(
        &mut self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        message: Message,
    ) {
        // From IKE_AUTH on the initiator behind a NAT uses its NAT-T port (section 2.23); with MOBIKE it may do so
        // without a NAT too (RFC 4555 section 3.3).
        let same_hosts =
            (self.local.ip(), self.remote.ip()) == (received.local.ip(), received.remote.ip());
        if self.nat.udp_encap() || same_hosts {
            (self.local, self.remote) = (received.local, received.remote);
        }
        self.log_keys(ctx);
        let Phase::InitAnswered(state) = &self.phase else {
            return;
        };
        match self.check_initiator(ctx, state, received, &message) {
            Ok((connection, local_id, remote_id, own)) => {
                self.connection = connection;
                self.nat.forced |= self.connection.encap && self.nat.udp_encap();
                self.responder_up(ctx, received, &message, local_id, remote_id, own);
            }
            Err((refusal, kind, why)) => {
                ctx.counters.refuse(refusal);
                ctx.tell_refused(received, Some(self.hosts.1), refusal, |ctx| {
                    auth_refused(ctx, received, &message, &why)
                });
                self.send_response(ctx, received, &[notify(kind, Vec::new())]);
                self.close(ctx, DownReason::AuthenticationFailed(why));
            }
        }
    }

    /// The connection that the initiator's identities mean, and whether it is who it says it is. Also gives our own
    /// proof.
    #[allow(clippy::type_complexity)]
    fn check_initiator(
        &self,
        ctx: &Context<'_>,
        state: &InitAnswered,
        received: &Received<'_>,
        message: &Message,
    ) -> Result<(Arc<Connection>, Identity, Identity, Vec<Payload>), (Refusal, NotifyType, String)>
    {
        let failed = |why: String| {
            (
                Refusal::AuthenticationFailed,
                NotifyType::AUTHENTICATION_FAILED,
                why,
            )
        };
        let keys = &state.channel.keys;
        let proof = Proof::find(message, Role::Initiator).ok_or_else(|| {
            // Who leaves out only AUTH asks for EAP (section 2.16).
            let has = |kind| message.payloads.iter().any(|p| p.kind() == kind);
            if has(PayloadType::IDI) && !has(PayloadType::AUTH) {
                return failed("the peer wants EAP".to_owned());
            }
            (
                Refusal::InvalidSyntax,
                NotifyType::INVALID_SYNTAX,
                "a payload is missing".to_owned(),
            )
        })?;
        if ChildPayloads::find(message).is_none() {
            let why = "no child SA is proposed".to_owned();
            return Err((Refusal::InvalidSyntax, NotifyType::INVALID_SYNTAX, why));
        }
        let remote_id =
            Identity::from_payload(proof.id).map_err(|error| failed(error.to_string()))?;
        let wanted = proof
            .wanted
            .map(Identity::from_payload)
            .transpose()
            .map_err(|error| failed(error.to_string()))?;
        let suite = keys.suite();
        let said = Said {
            id_i: &remote_id,
            id_r: wanted.as_ref(),
            suite: &suite,
        };
        let caller = Caller {
            said: Some(said),
            ..Caller::of(received)
        };
        let candidates = candidates(&ctx.config.connections, caller);
        let connection = candidates.first().ok_or_else(|| {
            (
                Refusal::NoConnection,
                NotifyType::AUTHENTICATION_FAILED,
                format!("no connection for {remote_id}"),
            )
        })?;
        let local_id = credentials::local_id(connection, received.local.ip());
        if local_id == remote_id {
            return Err(failed(format!("the peer has our own identity, {local_id}")));
        }
        let octets = state.done.signed_octets(keys, Role::Initiator, proof.id);
        let ids = (&local_id, &remote_id);
        credentials::verify(
            ctx,
            connection,
            keys,
            &octets,
            ids,
            &proof.certs,
            proof.auth,
        )
        .map_err(failed)?;
        let initial_contact = message.notification(NotifyType::INITIAL_CONTACT).is_some();
        let others = ctx
            .peers
            .get(&PeerKey::new(connection, &local_id, &remote_id))
            .map_or(0, Vec::len);
        if others >= ctx.config.limits.ike_sas_per_peer_max {
            let why = "the peer has too many IKE SAs".to_owned();
            return Err((Refusal::IkeSaLimit, NotifyType::AUTHENTICATION_FAILED, why));
        }
        if connection.unique == Unique::Keep && !initial_contact && others > 0 {
            let why = "the peer is connected already".to_owned();
            return Err((Refusal::Duplicate, NotifyType::AUTHENTICATION_FAILED, why));
        }
        let id = local_id
            .to_payload()
            .ok_or_else(|| failed("no local identity".to_owned()))?;
        let octets = state.done.signed_octets(keys, Role::Responder, &id);
        let own = (&local_id, Peer::Is(&remote_id));
        let (certs, auth) =
            credentials::sign(ctx, connection, keys, &octets, own, &state.done.peer_hashes)
                .map_err(failed)?;
        let mut own = vec![Payload::IdR(id)];
        own.extend(certs.into_iter().map(Payload::Cert));
        own.push(Payload::Auth(auth));
        Ok((connection.clone(), local_id, remote_id, own))
    }

    fn responder_up(
        &mut self,
        ctx: &mut Context<'_>,
        received: &Received<'_>,
        message: &Message,
        local_id: Identity,
        remote_id: Identity,
        mut payloads: Vec<Payload>,
    ) {
        let Phase::InitAnswered(state) = std::mem::replace(&mut self.phase, Phase::Closed) else {
            return;
        };
        let InitAnswered { channel, done, .. } = *state;
        let connection = self.connection.clone();
        let state = Established::new(ctx, &connection, channel, local_id, remote_id);
        self.phase = Phase::Established(Box::new(state));
        self.announce(ctx);
        let initial_contact = connection.unique != Unique::Never
            && message.notification(NotifyType::INITIAL_CONTACT).is_some();
        ctx.effects.push(Effect::Established {
            ike_sa: self.id,
            initial_contact,
        });
        let Some(channel) = self.phase.channel() else {
            return;
        };
        let answer = match ChildPayloads::find(message) {
            Some(theirs) => self.answer_child(
                ctx,
                &channel.keys,
                &theirs,
                &connection.children,
                done.nonces(),
                true,
                None,
            ),
            None => Err(Refuse::syntax()),
        };
        match answer {
            Ok((mut child, answer)) => {
                child.use_outbound(ctx);
                if let Some(state) = self.established_mut() {
                    state.children.push(child);
                }
                payloads.extend(answer);
            }
            // The IKE SA stands without the child SA (section 1.2).
            Err(refuse) => {
                self.tell_refused(ctx, received, message, &refuse);
                payloads.push(refuse.payload(ctx));
            }
        }
        self.send_response(ctx, received, &payloads);
    }
}
