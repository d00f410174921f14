//! Proofs of identity in IKE_AUTH (RFC 7296 §2.15): ours, and the check of the peer's.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use esplanade_pki::{RevocationStore, StatusSource};

use crate::auth::{PeerAuthError, unix_time};
use crate::config::{
    CertificateUriBase, Connection, Credential, Identity, LocalMethod, RemoteMethod, SendCert,
};
use crate::failure::AuthFailure;
use crate::jobs::{AuthenticatedPeer, ProofCheck, SignedAuth, Signing, Work};
use crate::sa::{Context, InitTranscript};
use crate::secret_choice::{ProofPeer, SecretTable};
use crate::suite::{IkeSaKeys, Role, Secret};
use crate::wire::{Auth, AuthMethod, Cert, CertEncoding, CertReq, Id, Payload};

/// The ID payload of the identity that we claim. One that is no identity stands for our address.
pub(super) fn local_payload(local_id: &Identity, local: IpAddr) -> Id {
    local_id
        .to_payload()
        .unwrap_or_else(|| Identity::address_payload(local))
}

/// Connections with pre-shared keys on which one proof is tried.
pub(super) const PSKS_MAX: usize = 16;

/// Why IKE_AUTH does not go on.
pub(super) enum Undecided {
    /// A job is to be done first.
    Needs(Work),
    Failed(AuthFailure),
}

impl From<AuthFailure> for Undecided {
    fn from(failure: AuthFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<PeerAuthError> for Undecided {
    fn from(error: PeerAuthError) -> Self {
        Self::Failed(AuthFailure::Certificate(Box::new(error)))
    }
}

/// Says whether the proof is of the kind that a connection asks for.
pub(super) fn is_of_method(auth: &Auth, expected: &RemoteMethod) -> bool {
    let is_psk = auth.method == AuthMethod::SHARED_KEY;
    is_psk == matches!(expected, RemoteMethod::Psk)
}

/// The check of a signature and of the certificates with it. `candidates` take signatures, and have our own identities.
pub(super) fn proof_check(
    ctx: &Context<'_>,
    candidates: Vec<(Arc<Connection>, Identity)>,
    identity: Identity,
    (auth, certificates, octets): (&Auth, &[&Cert], Vec<u8>),
    refuses_own_identity: bool,
) -> Work {
    Work::Check(Box::new(ProofCheck {
        candidates,
        identity,
        auth: auth.clone(),
        certificates: certificates.iter().copied().cloned().collect(),
        octets,
        revocation: ctx.config.revocation.clone(),
        attributes: ctx.config.attributes.clone(),
        wall_clock: ctx.wall_clock,
        refuses_own_identity,
    }))
}

/// Authenticates both ends of one IKE SA, under one connection.
pub(super) struct Authenticator<'a> {
    pub(super) secrets: &'a SecretTable,
    pub(super) revocation: &'a RevocationStore,
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
    /// Checks the peer's pre-shared key, or says why there is none to check. `identity` is what its ID payload says, and
    /// `octets` are what it has signed. `left` is the number of further keys that may be tried.
    pub(super) fn check_psk(
        &self,
        identity: &Identity,
        auth: &Auth,
        octets: &[u8],
        left: &mut usize,
    ) -> Result<AuthenticatedPeer, AuthFailure> {
        match (&self.connection.remote.method, auth.method) {
            (RemoteMethod::Psk, AuthMethod::SHARED_KEY) => {}
            (RemoteMethod::Psk, other) => return Err(AuthFailure::NotPsk(other)),
            (_, other) => {
                let error = PeerAuthError::Method(other);
                return Err(AuthFailure::Certificate(Box::new(error)));
            }
        }
        *left = left.checked_sub(1).ok_or(AuthFailure::TooManyPsks)?;
        let psk = self.psk(ProofPeer::Is(identity))?;
        match self.keys.psk_auth(psk, octets) == Secret::from(auth.data.as_slice()) {
            true => Ok(AuthenticatedPeer {
                identity: identity.clone(),
                groups: Vec::new(),
                certificate: None,
            }),
            false => Err(AuthFailure::PskMismatch),
        }
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
    /// are at `uri_bases`. `signed` is our signature, if a job has made it.
    pub(super) fn prove(
        &self,
        id: &Id,
        peer: ProofPeer<'_>,
        certreqs: &[&CertReq],
        uri_bases: &[CertificateUriBase],
        signed: Option<SignedAuth>,
    ) -> Result<(Vec<Payload>, Payload), Undecided> {
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
                let signing = || Box::new(self.signing(peer, credentials, certreqs, octets));
                let signed = match signed.map_or_else(|| Err(signing()), Ok) {
                    Ok(signed) => signed,
                    Err(signing) if signing.is_elsewhere() => signing.run(),
                    Err(signing) => return Err(Undecided::Needs(Work::Sign(signing))),
                };
                let (credential, auth) =
                    signed.map_err(|error| AuthFailure::Credential(Box::new(error)))?;
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
                        return Err(PeerAuthError::StatusNeeded(sources).into());
                    }
                    certificates.extend(credential.ocsp_answers(self.revocation, now));
                }
                let certificates = certificates.into_iter().map(Payload::Cert);
                Ok((certificates.collect(), Payload::Auth(auth)))
            }
        }
    }

    /// The signature of the first credential that the peer asks for, or else of the first that can sign for it.
    fn signing(
        &self,
        (ProofPeer::Is(peer) | ProofPeer::MayBe(peer)): ProofPeer<'_>,
        credentials: &[Arc<Credential>],
        certreqs: &[&CertReq],
        octets: Vec<u8>,
    ) -> Signing {
        let is_wanted = |own: &&Arc<Credential>| certreqs.iter().any(|one| own.satisfies(one));
        let (wanted, others): (Vec<_>, Vec<_>) = credentials.iter().partition(is_wanted);
        Signing {
            credentials: wanted.into_iter().chain(others).cloned().collect(),
            peer: peer.clone(),
            peer_hashes: self.init.peer_hashes.clone(),
            octets,
            legacy: self.connection.legacy,
        }
    }

    fn psk(&self, peer: ProofPeer<'_>) -> Result<&Secret, AuthFailure> {
        let key = self.secrets.choose(self.local_id, peer);
        let (ProofPeer::Is(remote) | ProofPeer::MayBe(remote)) = peer;
        key.ok_or_else(|| AuthFailure::NoSecret {
            local: Box::new(self.local_id.clone()),
            remote: Box::new(remote.clone()),
        })
    }
}
