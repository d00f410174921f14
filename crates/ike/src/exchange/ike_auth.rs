//! IKE_AUTH (RFC 7296 §1.2, §2.15 and §2.21.2), with the first child SA.

use std::net::IpAddr;
use std::sync::Arc;

use super::authenticator::{self, Authenticator, PSKS_MAX, Undecided};
use super::child_negotiation::{ChildExchange, ChildTerms};
use super::error_reply::{child_failure, error_of, fatal_error, notify, refusal_of};
use super::payloads::{ChildPayloads, InitiatorProof, ResponderProof, looks_up_certificates};
use super::refusal_report::auth_refusal;
use esplanade_few::FewSet;

use crate::auth::{certreq, certreq_of_raw_key};
use crate::config::{CertificateUriBase, Childless, Connection, Identity, RemoteMethod, Unique};
use crate::connection_choice::AuthTraits;
use crate::crash_token;
use crate::event::{Event, IkeSaUp, PeerLimit};
use crate::failure::{
    AuthFailure, ChildFailure, ChildResponseFault, ConfigurationFault, DownReason, Shortage,
};
use crate::id::IkeSaId;
use crate::jobs::{
    AuthenticatedPeer, CheckedPeer, NotAccepted, Payer, QueueFull, SignedAuth, first_to_accept,
};
use crate::peer::PeerKey;
use crate::refusal::Refusal;
use crate::sa::{
    AuthDue, AuthSent, ChildRequest, Context, Effect, Ending, Established, IkeSaCommon,
    InitResponded, KnownProofs, PendingChild, Phase, Task,
};
use crate::secret_choice::ProofPeer;
use crate::suite::Role;
use crate::transport::ReceivedMessage;
use crate::wire::{
    AuthMethod, CertReq, ExchangeType, Id, Message, NotifyType, Payload, PayloadType,
};

impl IkeSaCommon {
    /// Proves, as the initiator, who we are, and proposes the first child SA, unless the IKE SA begins without one.
    /// `signed` is our signature, if a job has made it.
    pub(super) fn send_auth(
        &mut self,
        ctx: &mut Context<'_>,
        due: AuthDue,
        signed: Option<SignedAuth>,
    ) -> Phase {
        let connection = self.connection.clone();
        if connection.childless == Childless::Force && !due.init.childless {
            return self.abandon(ctx, DownReason::NotChildless);
        }
        let local_id = connection.local_id(self.local.ip());
        let authenticator = Authenticator {
            secrets: ctx.secrets,
            revocation: &ctx.config.revocation,
            wall_clock: ctx.wall_clock,
            connection: &connection,
            keys: due.channel.keys(),
            init: &due.init,
            role: Role::Initiator,
            local_id: &local_id,
        };
        let uri_bases = ctx.config.uri_bases_for(due.init.looks_up_certificates);
        let proof = match self.proof(&authenticator, uri_bases, signed) {
            Ok(proof) => proof,
            Err(Undecided::Needs(work)) => {
                return match self.submit(ctx, self.payer, work, due.init.response.len()) {
                    Ok(()) => Phase::AuthDue(Box::new(due)),
                    Err(QueueFull) => self.abandon(ctx, DownReason::Resources(Shortage::Jobs)),
                };
            }
            Err(Undecided::Failed(failure)) if failure.awaits_signature() => {
                ctx.effects.push(Effect::HoldAuth { ike_sa: self.id });
                return Phase::AuthDue(Box::new(due));
            }
            Err(Undecided::Failed(failure)) => {
                let fault = ConfigurationFault::Authentication(failure);
                return self.abandon(ctx, DownReason::Configuration(fault));
            }
        };
        let sources = authenticator.own_sources(&due.init.certreqs);
        if !sources.is_empty() {
            ctx.events.push_back(Event::StatusNeeded(sources));
        }
        self.send_proof(ctx, due, local_id, proof)
    }

    /// Sends our proof with the proposal of the first child SA.
    fn send_proof(
        &mut self,
        ctx: &mut Context<'_>,
        due: AuthDue,
        local_id: Identity,
        proof: OwnProof,
    ) -> Phase {
        let AuthDue {
            channel,
            init,
            mut requests,
            deadline: _,
        } = due;
        let connection = self.connection.clone();
        let proposed = match (connection.childless, init.childless) {
            (Childless::Force | Childless::Prefer, true) => Ok(None),
            _ => self.propose_first_child(ctx, &mut requests).map(Some),
        };
        let child = match proposed {
            Ok(child) => child,
            Err(reason) => return self.abandon(ctx, reason),
        };
        let payloads = self.auth_payloads(ctx, &local_id, proof, child.as_ref());
        self.log_keys(ctx, channel.keys());
        let mut state = Box::new(AuthSent {
            channel,
            init,
            local_id,
            child,
            requests,
            delete_when_up: None,
            held: None,
        });
        let sent = self.send_request(ctx, &mut state.channel, ExchangeType::IKE_AUTH, &payloads);
        let phase = Phase::AuthSent(state);
        match sent {
            Ok(()) => phase,
            Err(ending) => phase.end(self, ctx, ending),
        }
    }

    /// Proposes the first child that can be proposed. A child that cannot, as transport mode through a NAT, does not
    /// keep the next one down. An IKE SA without a child to establish is not wanted any more.
    fn propose_first_child(
        &self,
        ctx: &mut Context<'_>,
        requests: &mut Vec<ChildRequest>,
    ) -> Result<PendingChild, DownReason> {
        let mut proposed = Err(DownReason::Terminated);
        while proposed.is_err() && !requests.is_empty() {
            let first = requests.remove(0);
            let name = first.config.name.clone();
            proposed = self
                .propose_child(ctx, ChildExchange::IkeAuth, first, None, None, None)
                .map_err(|failure| {
                    let reason = match &failure {
                        ChildFailure::Resources(shortage) => DownReason::Resources(*shortage),
                        other => DownReason::Configuration(ConfigurationFault::Child(Box::new(
                            other.clone(),
                        ))),
                    };
                    self.child_failed(ctx, &name, failure);
                    reason
                });
        }
        proposed
    }

    /// Gives the SA up. The peer forgets its half-open SA by itself.
    fn abandon(&mut self, ctx: &mut Context<'_>, reason: DownReason) -> Phase {
        self.connect_failed(ctx, reason);
        Phase::Closed
    }

    /// The identity of the peer, as far as the connection tells.
    fn expected_id(&self, connection: &Connection) -> Identity {
        match &connection.remote.id {
            Identity::Any => Identity::Ip(self.remote.ip()),
            other => other.clone(),
        }
    }

    /// Proves who we are.
    fn proof(
        &self,
        authenticator: &Authenticator<'_>,
        uri_bases: &[CertificateUriBase],
        signed: Option<SignedAuth>,
    ) -> Result<OwnProof, Undecided> {
        let connection = authenticator.connection;
        let id = authenticator::local_payload(authenticator.local_id, self.local.ip());
        let remote_id = self.expected_id(connection);
        // A pattern names no peer that we could ask for.
        let peer = match connection.names_one_peer() {
            true => ProofPeer::Is(&remote_id),
            false => ProofPeer::MayBe(&remote_id),
        };
        let certreqs: Vec<&CertReq> = authenticator.init.certreqs.iter().collect();
        let (certificates, auth) = authenticator.prove(&id, peer, &certreqs, uri_bases, signed)?;
        Ok(OwnProof {
            id,
            certificates,
            auth,
        })
    }

    fn auth_payloads(
        &self,
        ctx: &Context<'_>,
        local_id: &Identity,
        proof: OwnProof,
        child: Option<&PendingChild>,
    ) -> Vec<Payload> {
        let connection = &*self.connection;
        let remote_id = self.expected_id(connection);
        let exact = connection.names_one_peer();
        let mut payloads = vec![Payload::IdI(proof.id)];
        payloads.extend(proof.certificates);
        let known = ctx
            .peers
            .contains_key(&PeerKey::new(connection, local_id, &remote_id));
        // The peer is to keep the SA that this one replaces, unless that has ended here (RFC 7296 §2.8.3).
        let replaced = self.reauthenticates.as_ref();
        let known = known || replaced.is_some_and(|old| ctx.established.contains(old));
        if !known && connection.unique != Unique::Never {
            payloads.push(notify(NotifyType::INITIAL_CONTACT, Vec::new()));
        }
        let certreq = match &connection.remote.method {
            RemoteMethod::Certificate { authorities, .. } => Some(certreq(authorities)),
            RemoteMethod::PublicKey { .. } => Some(certreq_of_raw_key()),
            RemoteMethod::Psk => None,
        };
        let certreq = certreq.filter(|_| connection.send_certreq);
        let ocsp = certreq.as_ref().map(|_| CertReq::ocsp());
        payloads.extend(certreq.map(Payload::CertReq));
        payloads.extend(
            ocsp.filter(|_| connection.ocsp.request)
                .map(Payload::CertReq),
        );
        payloads.extend(
            connection
                .remote
                .id
                .to_payload()
                .filter(|_| exact)
                .map(Payload::IdR),
        );
        payloads.push(proof.auth);
        payloads.extend(self.token(ctx));
        if let Some(child) = child {
            payloads.extend(child.notifies());
            payloads.push(Payload::Sa(child.offer.clone()));
            payloads.push(Payload::TsI(child.local_ts.clone()));
            payloads.push(Payload::TsR(child.remote_ts.clone()));
        }
        payloads
    }

    /// Our crash token, which goes beside the AUTH payload (RFC 6290 §4.2).
    fn token(&self, ctx: &Context<'_>) -> Option<Payload> {
        let secret = ctx.config.tokens_from()?;
        Some(crash_token::payload(secret, self.spi_i, self.spi_r))
    }

    fn report_up(&self, ctx: &mut Context<'_>, state: &Established) {
        ctx.counters.ike_sas_established += 1;
        ctx.events.push_back(Event::IkeSaUp(IkeSaUp {
            ike_sa: self.id,
            connection: self.connection.name.clone(),
            initiator: self.role.is_initiator(),
            local: self.local,
            remote: self.remote,
            local_id: state.local_id.clone(),
            remote_id: state.remote_id.clone(),
            groups: state.groups.clone(),
            nat_local: self.nat.local,
            nat_remote: self.nat.remote,
            full_transcript: self.full_transcript,
            suite: state.channel.keys().suite().to_string(),
        }));
    }
}

impl AuthSent {
    pub(super) fn handle(
        self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Phase {
        if received.header.exchange != ExchangeType::IKE_AUTH || !received.header.response {
            sa.refuse_exchange(ctx, received, "IKE_AUTH sent");
            return Phase::AuthSent(self);
        }
        if self.held.is_some() {
            // The same response again.
            return Phase::AuthSent(self);
        }
        self.decide(sa, ctx, (received, message), KnownProofs::default())
    }

    pub(super) fn decide(
        mut self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        (received, message): (&ReceivedMessage<'_>, &Message),
        known: KnownProofs,
    ) -> Phase {
        let outcome = match self.authenticate(sa, ctx, message, known.peer) {
            Ok(peer) => Ok(peer),
            Err(ResponderFault::Proof(Undecided::Needs(work))) => {
                let job = (work, KnownProofs::default());
                self.held = sa.hold_for_job(ctx, received, message, job);
                return Phase::AuthSent(self);
            }
            Err(ResponderFault::Proof(Undecided::Failed(failure))) => {
                if let Some(sources) = failure.status_needed() {
                    let wait = (sources, KnownProofs::default());
                    self.held = Some(sa.hold(ctx, received, message, wait));
                    return Phase::AuthSent(self);
                }
                Err(DownReason::AuthenticationFailed(failure))
            }
            Err(ResponderFault::Refuses(kind)) => Err(DownReason::PeerRefused(kind)),
        };
        sa.window.response_accepted();
        match outcome {
            Ok(peer) => match fatal_error(message) {
                // The responder has ended the SA, although it proves who it is (RFC 7296 §2.21.2).
                Some(reason) => Phase::AuthSent(self).close(sa, ctx, reason),
                None => self.complete(sa, ctx, peer, message),
            },
            Err(reason @ DownReason::PeerRefused(_)) => {
                Phase::AuthSent(self).close(sa, ctx, reason)
            }
            Err(reason) => {
                ctx.counters.count(Refusal::AuthenticationFailed);
                // The responder takes the SA for established, so it is told (RFC 7296 §2.21.2).
                let error = notify(NotifyType::AUTHENTICATION_FAILED, Vec::new());
                let ending = Ending::Announced(reason, vec![error]);
                Phase::AuthSent(self).end(sa, ctx, ending)
            }
        }
    }

    /// Checks the responder's proof. `known` is what a job has said about its signature.
    fn authenticate(
        &self,
        sa: &IkeSaCommon,
        ctx: &Context<'_>,
        message: &Message,
        known: Option<Result<CheckedPeer, AuthFailure>>,
    ) -> Result<AuthenticatedPeer, ResponderFault> {
        let Some(theirs) = ResponderProof::find(message) else {
            return Err(match error_of(message) {
                Some(error) => ResponderFault::Refuses(error.kind),
                None => AuthFailure::NoProof.into(),
            });
        };
        let identity = Identity::from_payload(theirs.id).map_err(AuthFailure::InvalidIdentity)?;
        let connection = &sa.connection;
        if !connection.remote.id.accepts(&identity) {
            return Err(ResponderFault::from(AuthFailure::OtherPeer {
                actual: Box::new(identity),
                expected: Box::new(connection.remote.id.clone()),
            }));
        }
        let keys = self.channel.keys();
        let octets = self.init.signed_octets(keys, Role::Responder, theirs.id);
        let is_signature = theirs.auth.method != AuthMethod::SHARED_KEY;
        if is_signature && authenticator::is_of_method(theirs.auth, &connection.remote.method) {
            if let Some(known) = known {
                return Ok(known?.peer);
            }
            let candidates = vec![(connection.clone(), self.local_id.clone())];
            let certificates = &theirs.certificates;
            let proof = (theirs.auth, certificates.as_slice(), octets);
            let check = authenticator::proof_check(ctx, candidates, identity, proof, false);
            return Err(ResponderFault::Proof(Undecided::Needs(check)));
        }
        let authenticator = Authenticator {
            secrets: ctx.secrets,
            revocation: &ctx.config.revocation,
            wall_clock: ctx.wall_clock,
            connection,
            keys,
            init: &self.init,
            role: Role::Initiator,
            local_id: &self.local_id,
        };
        Ok(authenticator.check_psk(&identity, theirs.auth, &octets, &mut 1)?)
    }

    /// The responder is authenticated. The IKE SA is established with the first child SA or without it.
    fn complete(
        self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        peer: AuthenticatedPeer,
        message: &Message,
    ) -> Phase {
        let connection = sa.connection.clone();
        let init = self.init;
        let established = Established::new(ctx, &connection, self.channel, self.local_id, peer);
        let mut established = Box::new(established);
        established.keep_token(ctx, message);
        established.keep_lifetime(ctx, message);
        sa.full_transcript = init.full_transcript;
        sa.report_up(ctx, &established);
        ctx.effects.push(Effect::Established {
            ike_sa: sa.id,
            initial_contact: false,
        });
        if let Some(reason) = self.delete_when_up {
            established.queue(ctx, Task::DeleteIke(reason));
        }
        for request in self.requests {
            established.queue(ctx, Task::CreateChild(request));
        }
        let Some(pending) = self.child else {
            return Phase::Established(established);
        };
        match (ChildPayloads::find(message), error_of(message)) {
            (Some(theirs), _) => {
                let accepted =
                    established.accept_child(sa, ctx, &pending, &theirs, None, init.nonces());
                match accepted {
                    Ok(child) => established.add_child(sa, ctx, child, pending.withdrawn),
                    Err(failure) => {
                        let task = Task::DeleteUnaccepted(pending.protocol(), pending.spi_in);
                        established.queue(ctx, task);
                        sa.child_failed(ctx, &pending.config().name, failure);
                    }
                }
            }
            (None, error) => {
                ctx.spis.release(pending.spi_in);
                if error.is_some_and(|error| error.kind == NotifyType::SINGLE_PAIR_REQUIRED)
                    && let Some(request) = pending.request.single_pair()
                {
                    established.queue(ctx, Task::CreateChild(request));
                    return Phase::Established(established);
                }
                let failure = error.map_or(
                    ChildFailure::PeerMisbehaved(ChildResponseFault::NeitherMadeNorRefused),
                    |error| child_failure(error, &pending.offer, pending.selectors()),
                );
                sa.child_failed(ctx, &pending.config().name, failure);
            }
        }
        Phase::Established(established)
    }
}

/// Why the responder is not authenticated, or not yet.
enum ResponderFault {
    /// It refuses IKE_AUTH.
    Refuses(NotifyType),
    Proof(Undecided),
}

impl From<AuthFailure> for ResponderFault {
    fn from(failure: AuthFailure) -> Self {
        Self::Proof(Undecided::Failed(failure))
    }
}

/// Our own ID payload, and what proves it.
struct OwnProof {
    id: Id,
    certificates: Vec<Payload>,
    auth: Payload,
}

/// An initiator that the responder accepts.
struct AcceptedInitiator<'a> {
    connection: Arc<Connection>,
    local_id: Identity,
    peer: AuthenticatedPeer,
    /// Our own ID, CERT and AUTH payloads.
    proof: Vec<Payload>,
    /// `None` if the IKE SA begins without a child SA (RFC 6023).
    child: Option<ChildPayloads<'a>>,
}

impl InitResponded {
    pub(super) fn handle(
        self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
    ) -> Phase {
        if received.header.exchange != ExchangeType::IKE_AUTH || received.header.response {
            sa.refuse_exchange(ctx, received, "IKE_SA_INIT answered");
            return Phase::InitResponded(self);
        }
        if self.held.is_some() {
            // The same request again. Whoever saw it can send it from elsewhere, so that it moves nothing before the
            // initiator is authenticated.
            return Phase::InitResponded(self);
        }
        // From IKE_AUTH on an initiator behind a NAT uses its NAT-T port (RFC 7296 §2.23). With MOBIKE it may do so without
        // a NAT too (RFC 4555 §3.3).
        let same_hosts =
            (sa.local.ip(), sa.remote.ip()) == (received.local.ip(), received.remote.ip());
        if sa.nat.udp_encap() || same_hosts {
            (sa.local, sa.remote) = (received.local, received.remote);
        }
        sa.log_keys(ctx, self.channel.keys());
        self.decide(sa, ctx, (received, message), KnownProofs::default())
    }

    pub(super) fn decide(
        mut self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        (received, message): (&ReceivedMessage<'_>, &Message),
        mut known: KnownProofs,
    ) -> Phase {
        match self.authenticate(sa, ctx, message, &mut known) {
            Ok(accepted) => self.complete(sa, ctx, received, message, accepted),
            Err(Undecided::Needs(work)) => {
                self.held = sa.hold_for_job(ctx, received, message, (work, known));
                Phase::InitResponded(self)
            }
            Err(Undecided::Failed(failure)) => match failure.held_for() {
                Some(sources) => {
                    self.held = Some(sa.hold(ctx, received, message, (sources, known)));
                    Phase::InitResponded(self)
                }
                None => self.refuse(sa, ctx, received, message, failure),
            },
        }
    }

    fn refuse(
        mut self: Box<Self>,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
        failure: AuthFailure,
    ) -> Phase {
        let (refusal, kind) = refusal_of(&failure);
        ctx.counters.count(refusal);
        ctx.jobs.charge_refusal(ctx.now, sa.payer);
        ctx.report_refusal(received, Some(sa.hosts.1), refusal, |ctx| {
            auth_refusal(ctx, sa.hosts, message, &failure)
        });
        let error = notify(kind, Vec::new());
        let sent = sa.send_response(ctx, &mut self.channel, received, &[error]);
        let ending = match sent {
            Ok(()) => Ending::Silent(DownReason::AuthenticationFailed(failure)),
            Err(ending) => ending,
        };
        Phase::InitResponded(self).end(sa, ctx, ending)
    }

    /// Finds the connection that the initiator's identities mean, checks the initiator's proof, and makes ours. `known` is
    /// what jobs have found out.
    fn authenticate<'a>(
        &self,
        sa: &IkeSaCommon,
        ctx: &Context<'_>,
        message: &'a Message,
        known: &mut KnownProofs,
    ) -> Result<AcceptedInitiator<'a>, Undecided> {
        let Some(theirs) = InitiatorProof::find(message) else {
            let has = |kind| message.payloads.iter().any(|p| p.kind() == kind);
            return Err(Undecided::Failed(
                match has(PayloadType::IDI) && !has(PayloadType::AUTH) {
                    true => AuthFailure::EapRequested,
                    false => AuthFailure::MissingPayload,
                },
            ));
        };
        let child = self.proposed_child(message)?;
        let identity = |id| Identity::from_payload(id).map_err(AuthFailure::InvalidIdentity);
        let remote_id = identity(theirs.id)?;
        let responder_id = theirs.responder_id.map(identity).transpose()?;
        let suite = self.channel.keys().suite();
        let checked = match known.peer.take() {
            Some(checked) => checked?,
            None => {
                let auth = AuthTraits {
                    id_i: &remote_id,
                    id_r: responder_id.as_ref(),
                    suite: &suite,
                };
                let candidates = ctx.connections.candidates(sa.hosts, auth);
                self.check(ctx, candidates, sa.hosts.0, remote_id, &theirs)?
            }
        };
        known.peer = Some(Ok(checked.clone()));
        let CheckedPeer {
            connection,
            local_id,
            peer,
        } = checked;
        match (connection.childless, &child) {
            (Childless::Never, None) => return Err(AuthFailure::NoChildSa.into()),
            (Childless::Force, Some(_)) => return Err(AuthFailure::ChildSaProposed.into()),
            _ => {}
        }
        // Another connection that accepts the same proof does not take the peer: an attacker would choose the weaker one.
        if connection.full_transcript_required && !self.init.full_transcript {
            return Err(AuthFailure::NoFullTranscript.into());
        }
        let initial_contact = message.notification(NotifyType::INITIAL_CONTACT).is_some();
        let key = PeerKey::new(&connection, &local_id, &peer.identity);
        let others = ctx.peers.get(&key);
        let count = others.map_or(0, FewSet::len);
        let mut others = others.into_iter().flat_map(FewSet::iter);
        if count >= ctx.config.limits.ike_sas_per_peer_max {
            return Err(AuthFailure::TooManyIkeSas.into());
        }
        // A peer that comes again from its address may authenticate again, and then deletes its old IKE SA.
        let near = ctx.by_remote.get(&sa.hosts.1);
        let elsewhere = |id: &IkeSaId| !near.is_some_and(|near| near.contains(id));
        if connection.unique == Unique::Keep && !initial_contact && others.any(elsewhere) {
            return Err(AuthFailure::AlreadyConnected.into());
        }
        let id = authenticator::local_payload(&local_id, sa.hosts.0);
        let authenticator = self.authenticator(ctx, &connection, &local_id);
        let uri_bases = ctx.config.uri_bases_for(looks_up_certificates(message));
        let asked = ProofPeer::Is(&peer.identity);
        let own = known.own.take();
        let (certificates, auth) =
            authenticator.prove(&id, asked, &theirs.certreqs, uri_bases, own)?;
        let mut proof = vec![Payload::IdR(id)];
        proof.extend(certificates);
        proof.push(auth);
        Ok(AcceptedInitiator {
            connection,
            local_id,
            peer,
            proof,
            child,
        })
    }

    /// The child SA that the initiator proposes. It may propose none where we have announced that.
    fn proposed_child<'a>(
        &self,
        message: &'a Message,
    ) -> Result<Option<ChildPayloads<'a>>, AuthFailure> {
        let mut kinds = message.payloads.iter().map(Payload::kind);
        let of_child = [PayloadType::SA, PayloadType::TSI, PayloadType::TSR];
        match ChildPayloads::find(message) {
            None if kinds.any(|kind| of_child.contains(&kind)) => Err(AuthFailure::MissingPayload),
            None if !self.init.childless => Err(AuthFailure::NoChildSa),
            child => Ok(child),
        }
    }

    fn authenticator<'a>(
        &'a self,
        ctx: &'a Context<'_>,
        connection: &'a Connection,
        local_id: &'a Identity,
    ) -> Authenticator<'a> {
        Authenticator {
            secrets: ctx.secrets,
            revocation: &ctx.config.revocation,
            wall_clock: ctx.wall_clock,
            connection,
            keys: self.channel.keys(),
            init: &self.init,
            role: Role::Responder,
            local_id,
        }
    }

    /// Takes the first connection that accepts the initiator's proof, and our own identity there. Connections for
    /// another authentication method are not tried, unless there is no other. Only a job parses certificates.
    fn check(
        &self,
        ctx: &Context<'_>,
        mut connections: Vec<Arc<Connection>>,
        local: IpAddr,
        remote_id: Identity,
        theirs: &InitiatorProof<'_>,
    ) -> Result<CheckedPeer, Undecided> {
        let takes = |connection: &Arc<Connection>| {
            authenticator::is_of_method(theirs.auth, &connection.remote.method)
        };
        let any = connections.iter().any(takes);
        if any {
            connections.retain(takes);
        }
        let candidates: Vec<_> = connections
            .into_iter()
            .map(|connection| {
                let local_id = connection.local_id(local);
                (connection, local_id)
            })
            .collect();
        let keys = self.channel.keys();
        let octets = self.init.signed_octets(keys, Role::Initiator, theirs.id);
        if any && theirs.auth.method != AuthMethod::SHARED_KEY {
            let proof = (theirs.auth, theirs.certificates.as_slice(), octets);
            let check = authenticator::proof_check(ctx, candidates, remote_id, proof, true);
            return Err(Undecided::Needs(check));
        }
        let mut left = PSKS_MAX;
        let checked = first_to_accept(&candidates, &remote_id, |connection, local_id| {
            if *local_id == remote_id {
                return Err(AuthFailure::OwnIdentity(Box::new(local_id.clone())).into());
            }
            let authenticator = self.authenticator(ctx, connection, local_id);
            let checked = authenticator.check_psk(&remote_id, theirs.auth, &octets, &mut left);
            checked.map_err(NotAccepted::from)
        });
        Ok(checked?)
    }

    /// The initiator is authenticated. The IKE SA stands without the child SA if that is refused (RFC 7296 §1.2), or not
    /// proposed.
    fn complete(
        self,
        sa: &mut IkeSaCommon,
        ctx: &mut Context<'_>,
        received: &ReceivedMessage<'_>,
        message: &Message,
        accepted: AcceptedInitiator<'_>,
    ) -> Phase {
        let AcceptedInitiator {
            connection,
            local_id,
            peer,
            proof: mut payloads,
            child: theirs,
        } = accepted;
        sa.connection = connection.clone();
        sa.payer = Payer::proven(sa.hosts.1);
        sa.nat.forced |= connection.encap && sa.nat.udp_encap();
        let established = Established::new(ctx, &connection, self.channel, local_id, peer);
        let mut established = Box::new(established);
        established.keep_token(ctx, message);
        payloads.extend(sa.token(ctx));
        sa.full_transcript = self.init.full_transcript;
        sa.report_up(ctx, &established);
        let ike_sas = ctx.peers.get(&established.peer).map_or(0, FewSet::len) + 1;
        let most = ctx.config.limits.ike_sas_per_peer_max;
        ctx.tell_of_limit(&established.peer, PeerLimit::IkeSas, ike_sas, most);
        let initial_contact = connection.unique != Unique::Never
            && message.notification(NotifyType::INITIAL_CONTACT).is_some();
        ctx.effects.push(Effect::Established {
            ike_sa: sa.id,
            initial_contact,
        });
        let terms = ChildTerms {
            exchange: ChildExchange::IkeAuth,
            candidates: &connection.children,
            nonces: self.init.nonces(),
            replaces: None,
        };
        let answer = theirs.map(|theirs| established.answer_child(sa, ctx, &theirs, &terms));
        match answer {
            None => {}
            Some(Ok((child, answer))) => {
                established.add_child(sa, ctx, child, false);
                payloads.extend(answer);
            }
            Some(Err(reply)) => {
                established.report_refusal(sa, ctx, received, message, &reply);
                payloads.push(reply.into_payload(ctx.counters));
            }
        }
        let sent = sa.send_response(ctx, &mut established.channel, received, &payloads);
        established.settle(sa, ctx, sent)
    }
}
