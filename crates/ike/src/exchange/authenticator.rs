//! Proofs of identity in IKE_AUTH (RFC 7296 §2.15): ours, and the check of the peer's.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::auth::{
    AttributeTerms, CredentialError, PeerAttributes, PeerAuthError, PeerCertificates, Revocation,
    RevocationStore, UnixTime, VerifiedPeer,
};
use crate::config::{
    self, AttributeStore, Authorities, CertificateRules, CertificateUriBase, Connection,
    Credential, GroupName, Identity, LocalMethod, PublicKey, RemoteMethod, SchemeRules, SendCert,
    StatusSource,
};
use crate::failure::AuthFailure;
use crate::sa::InitTranscript;
use crate::suite::{IkeSaKeys, Role, Secret};
use crate::wire::{Auth, AuthMethod, Cert, CertEncoding, CertReq, Id, Payload};

/// Returns the identity that we claim.
pub(super) fn local_id(connection: &Connection, local: IpAddr) -> Identity {
    let proved = match &connection.local.method {
        LocalMethod::Signature(credentials) => credentials.first().map(|own| own.identity()),
        LocalMethod::Psk => None,
    };
    match &connection.local.id {
        Identity::Any => proved.unwrap_or(Identity::Ip(local)),
        id => id.clone(),
    }
}

pub(super) fn unix_time(time: SystemTime) -> UnixTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    UnixTime::since_unix_epoch(since.unwrap_or(Duration::ZERO))
}

/// The peer that a pre-shared key is looked up for.
#[derive(Clone, Copy)]
pub(super) enum PskPeer<'a> {
    /// The peer has said who it is.
    Is(&'a Identity),
    /// The peer is yet to say who it is, and may have another identity.
    MayBe(&'a Identity),
}

/// The outcome of one round of IKE_AUTH. A pre-shared key and a signature need one round. A method with several rounds,
/// such as EAP (RFC 7296 §2.16), adds an outcome that goes on with another request.
pub(super) enum RoundOutcome {
    Authenticated(AuthenticatedPeer),
}

/// A peer that has proved its identity. Only an [`Authenticator`] makes one.
pub(super) struct AuthenticatedPeer {
    identity: Identity,
    groups: Vec<GroupName>,
}

impl AuthenticatedPeer {
    /// Returns the identity, and the groups of the connection that the peer is in.
    pub(super) fn into_parts(self) -> (Identity, Vec<GroupName>) {
        (self.identity, self.groups)
    }
}

/// Connections with pre-shared keys on which one proof is tried.
const PSKS_MAX: usize = 16;
/// Public keys that the configuration has, and with which the signature of one proof is tried.
const KEYS_MAX: usize = 16;

/// The payloads of a message that prove the peer's identity. A responder tries them on several connections, and the
/// proof bounds the work of all tries.
pub(super) struct Proof<'a> {
    auth: &'a Auth,
    /// The octets that the peer has signed.
    octets: Vec<u8>,
    certificates: PeerCertificates,
    attributes: PeerAttributes,
    /// The SubjectPublicKeyInfo that the peer sends instead of certificates (RFC 7670 §3).
    raw_key: Option<&'a [u8]>,
    /// The outcome for the key of the peer's own certificate, without `legacy` and with it.
    signature: [Option<Result<(), PeerAuthError>>; 2],
    /// The peer is refused whatever other connections it could mean.
    has_verdict: bool,
    psks_left: usize,
    keys_left: usize,
}

impl<'a> Proof<'a> {
    pub(super) fn new(auth: &'a Auth, certificates: &[&'a Cert], octets: Vec<u8>) -> Self {
        Self {
            auth,
            octets,
            certificates: PeerCertificates::new(certificates),
            attributes: PeerAttributes::new(certificates),
            raw_key: certificates
                .iter()
                .find(|cert| cert.encoding == CertEncoding::RAW_PUBLIC_KEY)
                .map(|cert| cert.data.as_slice()),
            signature: [None, None],
            has_verdict: false,
            psks_left: PSKS_MAX,
            keys_left: KEYS_MAX,
        }
    }

    /// Says whether the proof is of the kind that a connection asks for.
    pub(super) fn has_method_of(&self, expected: &RemoteMethod) -> bool {
        let is_psk = self.auth.method == AuthMethod::SHARED_KEY;
        is_psk == matches!(expected, RemoteMethod::Psk)
    }

    /// Says whether no other connection can accept the proof: the peer's certificate is revoked, or there is too much to
    /// check.
    pub(super) fn has_verdict(&self) -> bool {
        self.has_verdict
    }

    /// Checks the signature with the key of the peer's own certificate. It is the same for every connection.
    fn check_signature(&mut self, legacy: bool) -> Result<(), PeerAuthError> {
        let key = self.certificates.public_key()?;
        let (auth, octets) = (self.auth, &self.octets);
        self.signature[usize::from(legacy)]
            .get_or_insert_with(|| key.check_auth(auth, octets, legacy))
            .clone()
    }

    /// Checks the signature with a key that the configuration has.
    fn check_known_key(&mut self, key: &PublicKey, legacy: bool) -> Result<(), PeerAuthError> {
        let left = self.keys_left.checked_sub(1);
        self.keys_left = left.ok_or(PeerAuthError::TooManyKeys)?;
        key.check_auth(self.auth, &self.octets, legacy)
    }
}

/// Authenticates both ends of one IKE SA, under one connection.
pub(super) struct Authenticator<'a> {
    pub(super) secrets: &'a [config::Secret],
    pub(super) revocation: &'a RevocationStore,
    pub(super) attributes: &'a AttributeStore,
    /// For the validity of certificates.
    pub(super) wall_clock: SystemTime,
    pub(super) connection: &'a Connection,
    pub(super) keys: &'a IkeSaKeys,
    pub(super) init: &'a InitTranscript,
    /// Our role in the IKE SA.
    pub(super) role: Role,
    pub(super) local_id: &'a Identity,
}

impl Authenticator<'_> {
    /// Takes the peer's next proof. `identity` is what its ID payload says.
    pub(super) fn round(
        &self,
        identity: Identity,
        proof: &mut Proof<'_>,
    ) -> Result<RoundOutcome, AuthFailure> {
        let mut groups = Vec::new();
        match &self.connection.remote.method {
            RemoteMethod::Psk => {
                if proof.auth.method != AuthMethod::SHARED_KEY {
                    return Err(AuthFailure::NotPsk(proof.auth.method));
                }
                let left = proof.psks_left.checked_sub(1);
                proof.psks_left = left.ok_or(AuthFailure::TooManyPsks)?;
                let psk = self.psk(PskPeer::Is(&identity))?;
                let expected = self.keys.psk_auth(psk, &proof.octets);
                if expected != Secret::from(proof.auth.data.as_slice()) {
                    return Err(AuthFailure::PskMismatch);
                }
            }
            RemoteMethod::Certificate {
                authorities,
                pinned,
                rules,
                revocation,
            } => {
                let revocation = Revocation {
                    policy: *revocation,
                    store: self.revocation,
                    asked: self.asks_for_ocsp(),
                };
                let peer = self
                    .check_certificate(&identity, proof, (authorities, pinned, rules), &revocation)
                    .and_then(|peer| {
                        groups = self.memberships(&peer, proof, &rules.groups, revocation)?;
                        peer.check_status()
                    });
                peer.map_err(|error| AuthFailure::Certificate(Box::new(error)))?;
            }
            RemoteMethod::PublicKey { keys, signatures } => {
                self.check_public_key(&identity, proof, keys, signatures)
                    .map_err(|error| AuthFailure::Certificate(Box::new(error)))?;
            }
        }
        let peer = AuthenticatedPeer { identity, groups };
        Ok(RoundOutcome::Authenticated(peer))
    }

    /// Returns those of the groups that the peer is in. There must be one, if there are groups.
    fn memberships(
        &self,
        peer: &VerifiedPeer,
        proof: &mut Proof<'_>,
        wanted: &[GroupName],
        revocation: Revocation<'_>,
    ) -> Result<Vec<GroupName>, PeerAuthError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let own = match &self.connection.local.method {
            LocalMethod::Signature(credentials) => credentials.as_slice(),
            LocalMethod::Psk => &[],
        };
        let certifies = |own: &Arc<Credential>, name: &Identity| {
            own.chain().first().is_some_and(|own| own.names(name))
        };
        let is_ours =
            |name: &Identity| name == self.local_id || own.iter().any(|own| certifies(own, name));
        let terms = AttributeTerms {
            now: unix_time(self.wall_clock),
            revocation,
            is_ours: &is_ours,
        };
        let sent = &mut proof.attributes;
        let holder = peer.certificate();
        self.attributes.memberships(sent, holder, wanted, &terms)
    }

    /// Checks a certificate and the signature with its key. The status of the certificates is left to be checked.
    fn check_certificate(
        &self,
        identity: &Identity,
        proof: &mut Proof<'_>,
        (authorities, pinned, rules): (&Authorities, &[config::Certificate], &CertificateRules),
        revocation: &Revocation<'_>,
    ) -> Result<VerifiedPeer, PeerAuthError> {
        if proof.auth.method == AuthMethod::SHARED_KEY {
            return Err(PeerAuthError::Method(proof.auth.method));
        }
        let now = unix_time(self.wall_clock);
        let verify = |sent: &mut PeerCertificates| {
            let checked = authorities.verify(sent, identity, now, rules, revocation);
            match checked {
                Err(PeerAuthError::UnknownIssuer)
                    if rules.known_need_no_path && sent.are_of_one_of(pinned) =>
                {
                    sent.verify_alone(authorities, identity, now, rules, revocation)
                }
                checked => checked,
            }
        };
        if proof.certificates.are_missing() && !pinned.is_empty() {
            let pin = self.find_unsent(identity, proof, pinned)?;
            let mut known = PeerCertificates::known(pin, pinned);
            let checked = verify(&mut known);
            proof.has_verdict |= known.have_verdict();
            let peer = checked?;
            peer.check_scheme(proof.auth, &rules.signatures)?;
            return Ok(peer);
        }
        let legacy = self.connection.legacy;
        // One signature costs less than a path. Where it was checked before, it costs nothing.
        if proof.certificates.may_be_issued_by(authorities) {
            proof.check_signature(legacy)?;
        }
        let checked = verify(&mut proof.certificates);
        proof.has_verdict |= proof.certificates.have_verdict();
        let peer = checked?;
        if !pinned.is_empty() && !proof.certificates.are_of_one_of(pinned) {
            return Err(PeerAuthError::NotPinned);
        }
        peer.check_scheme(proof.auth, &rules.signatures)?;
        proof.check_signature(legacy)?;
        Ok(peer)
    }

    /// Finds the certificate of a peer that sends none, by its signature.
    fn find_unsent<'c>(
        &self,
        identity: &Identity,
        proof: &mut Proof<'_>,
        pinned: &'c [config::Certificate],
    ) -> Result<&'c config::Certificate, PeerAuthError> {
        let mut failure = PeerAuthError::NoCertificate;
        for pin in pinned.iter().filter(|pin| pin.names(identity)) {
            match proof.check_known_key(pin.public_key(), self.connection.legacy) {
                Ok(()) => return Ok(pin),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Checks a signature with a key that the configuration has for the peer. CERT payloads with certificates say
    /// nothing about it.
    fn check_public_key(
        &self,
        identity: &Identity,
        proof: &mut Proof<'_>,
        keys: &[PublicKey],
        signatures: &SchemeRules,
    ) -> Result<(), PeerAuthError> {
        let sent = proof.raw_key;
        let mut failure = PeerAuthError::UnknownKey;
        for key in keys
            .iter()
            .filter(|key| sent.is_none_or(|sent| sent == key.der()))
        {
            let checked = proof
                .check_known_key(key, self.connection.legacy)
                .and_then(|()| key.check_scheme(proof.auth, signatures));
            match checked {
                // Under a pattern one peer could pass for another.
                Ok(()) if self.connection.remote.id == *identity => return Ok(()),
                Ok(()) if *identity == key.identity() => return Ok(()),
                Ok(()) => failure = PeerAuthError::NotKeyIdentity(identity.clone()),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Says whether the peer is asked for the answers of OCSP responders, as a request for certificates is sent.
    fn asks_for_ocsp(&self) -> bool {
        self.connection.ocsp.request && self.connection.send_certreq
    }

    fn is_asked_for_ocsp<'c>(&self, mut certreqs: impl Iterator<Item = &'c CertReq>) -> bool {
        self.connection.ocsp.reply && certreqs.any(|one| one.encoding == CertEncoding::OCSP)
    }

    /// Returns the responders to ask about the certificates that this end sends, if the peer asks for their status. An
    /// initiator does not wait for the answers: it has them the next time.
    pub(super) fn own_sources(&self, certreqs: &[CertReq]) -> Vec<StatusSource> {
        let LocalMethod::Signature(credentials) = &self.connection.local.method else {
            return Vec::new();
        };
        if !self.is_asked_for_ocsp(certreqs.iter()) {
            return Vec::new();
        }
        let now = unix_time(self.wall_clock);
        let sources = credentials
            .iter()
            .flat_map(|own| own.ocsp_sources(self.revocation, now));
        sources.collect()
    }

    /// Returns our proof: the certificates, and the AUTH payload over our ID payload `id`. `certreqs` are the peer's. A
    /// responder first asks for the status of its certificates, if the peer wants it. The peer fetches certificates that
    /// are at `uri_bases`.
    pub(super) fn prove(
        &self,
        id: &Id,
        peer: PskPeer<'_>,
        certreqs: &[&CertReq],
        uri_bases: &[CertificateUriBase],
    ) -> Result<(Vec<Payload>, Payload), AuthFailure> {
        let octets = self.init.signed_octets(self.keys, self.role, id);
        match &self.connection.local.method {
            LocalMethod::Psk => {
                let data = self.keys.psk_auth(self.psk(peer)?, &octets);
                let auth = Auth {
                    method: AuthMethod::SHARED_KEY,
                    data: data.expose().to_vec(),
                };
                Ok((Vec::new(), Payload::Auth(auth)))
            }
            LocalMethod::Signature(credentials) => {
                let (credential, auth) = self
                    .sign(credentials, certreqs, &octets)
                    .map_err(|error| AuthFailure::Credential(Box::new(error)))?;
                let sent = match self.connection.send_cert {
                    SendCert::Always => true,
                    SendCert::IfAsked => certreqs.iter().any(|one| credential.is_asked_for(one)),
                    SendCert::Never => false,
                };
                let certificates = sent.then(|| credential.certificates(uri_bases));
                let mut certificates: Vec<Cert> = certificates.into_iter().flatten().collect();
                if sent {
                    let now = unix_time(self.wall_clock);
                    certificates.extend(credential.attribute_certificates(now));
                }
                if sent && self.is_asked_for_ocsp(certreqs.iter().copied()) {
                    let now = unix_time(self.wall_clock);
                    let sources = credential.ocsp_sources(self.revocation, now);
                    if self.role == Role::Responder && !sources.is_empty() {
                        let needed = PeerAuthError::StatusNeeded(sources);
                        return Err(AuthFailure::Certificate(Box::new(needed)));
                    }
                    certificates.extend(credential.ocsp_answers(self.revocation, now));
                }
                let certificates = certificates.into_iter().map(Payload::Cert);
                Ok((certificates.collect(), Payload::Auth(auth)))
            }
        }
    }

    /// Signs with the first credential that the peer asks for, or else with the first that can sign for it.
    fn sign<'c>(
        &self,
        credentials: &'c [Arc<Credential>],
        certreqs: &[&CertReq],
        octets: &[u8],
    ) -> Result<(&'c Credential, Auth), CredentialError> {
        let is_wanted = |own: &Credential| certreqs.iter().any(|one| own.satisfies(one));
        let (wanted, others): (Vec<_>, Vec<_>) = credentials.iter().partition(|own| is_wanted(own));
        let mut failure = None;
        for own in wanted.into_iter().chain(others) {
            match own.sign(&self.init.peer_hashes, octets, self.connection.legacy) {
                Ok(auth) => return Ok((own, auth)),
                Err(error @ CredentialError::SignatureAwaited) => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(CredentialError::NoCredential))
    }

    /// Returns the pre-shared key of the two identities. If several keys fit, a key that names the peer is preferred,
    /// and then a key that names us.
    ///
    /// A key that names others beside us is not for a peer that it does not name. Each of the others could pass itself
    /// off as that peer.
    fn psk(&self, peer: PskPeer<'_>) -> Result<&Secret, AuthFailure> {
        let local = self.local_id;
        let (PskPeer::Is(remote) | PskPeer::MayBe(remote)) = peer;
        let score = |owners: &[Identity]| {
            let names = |id: &Identity| owners.iter().any(|owner| owner.accepts(id));
            match (owners.is_empty(), names(remote), names(local)) {
                (true, ..) => Some(0),
                (_, false, false) => None,
                (_, false, true)
                    if matches!(peer, PskPeer::Is(_))
                        && !owners.iter().all(|o| o.accepts(local)) =>
                {
                    None
                }
                (_, theirs, ours) => Some(2 * u8::from(theirs) + u8::from(ours)),
            }
        };
        let secrets = self.secrets.iter();
        let usable = secrets.filter_map(|secret| Some((score(&secret.owners)?, secret)));
        // Among secrets of equal score, the first one in the configuration wins.
        usable
            .rev()
            .max_by_key(|(score, _)| *score)
            .map(|(_, secret)| &*secret.key)
            .ok_or_else(|| AuthFailure::NoSecret {
                local: Box::new(local.clone()),
                remote: Box::new(remote.clone()),
            })
    }
}
