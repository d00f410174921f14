//! The check of a peer's signature and certificates in IKE_AUTH (RFC 7296 §2.15), as a job.

use std::sync::Arc;
use std::time::SystemTime;

use esplanade_pki::attributes::{
    AttributeStore, AttributeTerms, GroupName, Memberships, PeerAttributes,
};
use esplanade_pki::{
    Authorities, Certificate, PathError, PublicKey, Revocation, RevocationStore, SubjectName,
};

use crate::auth::{
    CertificateHash, PeerAuthError, PeerCertificates, VerifiedPeer, check_auth, check_scheme,
    unix_time,
};
use crate::config::{
    CertificateRules, Connection, Credential, Identity, LocalMethod, RemoteMethod, SchemeRules,
};
use crate::failure::AuthFailure;
use crate::wire::{Auth, Cert, CertEncoding};

/// Connections whose reasons are reported when none accepts a peer.
const REPORTED_MAX: usize = 8;
/// Public keys that the configuration has, and with which the signature of one proof is tried.
const KEYS_MAX: usize = 16;

/// A peer that has proved its identity.
#[derive(Clone, Debug)]
pub(crate) struct AuthenticatedPeer {
    pub(crate) identity: Identity,
    /// The groups of the connection that the peer is in.
    pub(crate) groups: Vec<GroupName>,
    /// The certificate of the key with which it has signed.
    pub(crate) certificate: Option<CertificateHash>,
}

/// The connection that has accepted a peer's proof, and our own identity there.
#[derive(Clone, Debug)]
pub(crate) struct CheckedPeer {
    pub(crate) connection: Arc<Connection>,
    pub(crate) local_id: Identity,
    pub(crate) peer: AuthenticatedPeer,
}

/// The outcome of a [`ProofCheck`].
#[derive(Debug)]
pub(crate) struct ProofVerdict {
    pub(crate) peer: Result<CheckedPeer, AuthFailure>,
    /// The certificate of the peer, if it is refused because that or one of its issuers is revoked.
    pub(crate) revoked: Option<CertificateHash>,
}

/// Why a connection does not accept a peer.
pub(crate) struct NotAccepted {
    why: AuthFailure,
    /// No other connection is tried.
    is_final: bool,
}

impl From<AuthFailure> for NotAccepted {
    fn from(why: AuthFailure) -> Self {
        Self {
            why,
            is_final: false,
        }
    }
}

/// Takes the first connection that accepts the peer. `candidates` have our own identities.
pub(crate) fn first_to_accept<'c>(
    candidates: &'c [(Arc<Connection>, Identity)],
    remote_id: &Identity,
    mut check: impl FnMut(&'c Connection, &'c Identity) -> Result<AuthenticatedPeer, NotAccepted>,
) -> Result<CheckedPeer, AuthFailure> {
    let mut refused = Vec::new();
    for (connection, local_id) in candidates {
        match check(connection, local_id) {
            Ok(peer) => {
                return Ok(CheckedPeer {
                    connection: connection.clone(),
                    local_id: local_id.clone(),
                    peer,
                });
            }
            Err(not) if not.is_final => return Err(not.why),
            Err(not) if not.why == AuthFailure::TooManyPsks => {
                // Nor are those that follow tried, which is to be told whatever came before.
                refused.push((connection.name.clone(), not.why));
                break;
            }
            Err(not) if refused.len() < REPORTED_MAX => {
                refused.push((connection.name.clone(), not.why));
            }
            Err(_) => {}
        }
    }
    Err(match <[_; 1]>::try_from(refused) {
        Ok([(_, why)]) => why,
        Err(none) if none.is_empty() => AuthFailure::NoConnection(Box::new(remote_id.clone())),
        Err(several) => AuthFailure::NoneAccepts(several),
    })
}

/// A signature of the peer, and all that is needed to check it. Its certificates are not parsed yet.
#[derive(Debug)]
pub(crate) struct ProofCheck {
    /// Connections that take signatures, the best first, with our own identity there.
    pub(crate) candidates: Vec<(Arc<Connection>, Identity)>,
    /// The identity in the peer's ID payload.
    pub(crate) identity: Identity,
    pub(crate) auth: Auth,
    pub(crate) certificates: Vec<Cert>,
    /// The octets that the peer has signed.
    pub(crate) octets: Vec<u8>,
    pub(crate) revocation: Arc<RevocationStore>,
    pub(crate) attributes: Arc<AttributeStore>,
    /// For the validity of certificates.
    pub(crate) wall_clock: SystemTime,
    /// A peer with our own identity is refused.
    pub(crate) refuses_own_identity: bool,
}

impl ProofCheck {
    pub(crate) fn run(&self) -> ProofVerdict {
        let mut proof = Proof::new(&self.auth, &self.certificates, &self.octets);
        let peer = first_to_accept(&self.candidates, &self.identity, |connection, local_id| {
            if self.refuses_own_identity && *local_id == self.identity {
                return Err(AuthFailure::OwnIdentity(Box::new(local_id.clone())).into());
            }
            let checked = self.check(connection, local_id, &mut proof);
            checked.map_err(|error| {
                let why = AuthFailure::Certificate(Box::new(error));
                let is_final = why.status_needed().is_some() || proof.has_verdict;
                NotAccepted { why, is_final }
            })
        });
        let refused = peer.as_ref().err();
        let is_revoked = refused.is_some_and(AuthFailure::is_revocation);
        let revoked = proof.certificate().filter(|_| is_revoked);
        ProofVerdict { peer, revoked }
    }

    fn check(
        &self,
        connection: &Connection,
        local_id: &Identity,
        proof: &mut Proof<'_>,
    ) -> Result<AuthenticatedPeer, PeerAuthError> {
        let (mut groups, mut certificate) = (Vec::new(), None);
        match &connection.remote.method {
            RemoteMethod::Psk => return Err(PeerAuthError::Method(self.auth.method)),
            RemoteMethod::Certificate {
                authorities,
                pinned,
                rules,
                revocation,
            } => {
                let revocation = Revocation {
                    policy: *revocation,
                    store: &self.revocation,
                    // Answers of OCSP responders are asked for as a request for certificates is sent.
                    asked: connection.ocsp.request && connection.send_certreq,
                };
                let trusted = (&**authorities, pinned.as_slice(), &**rules);
                let peer =
                    self.check_certificate(proof, trusted, &revocation, connection.legacy)?;
                let ours = (&connection.local.method, local_id);
                groups = self.memberships(&peer, proof, &rules.groups, revocation, ours)?;
                certificate = Some(CertificateHash::of(peer.certificate()));
                peer.check_status()?;
            }
            RemoteMethod::PublicKey { keys, signatures } => {
                self.check_public_key(connection, proof, keys, signatures)?;
            }
        }
        let identity = self.identity.clone();
        Ok(AuthenticatedPeer {
            identity,
            groups,
            certificate,
        })
    }

    /// Returns those of the groups that the peer is in. There must be one, if there are groups.
    fn memberships(
        &self,
        peer: &VerifiedPeer,
        proof: &mut Proof<'_>,
        wanted: &[GroupName],
        revocation: Revocation<'_>,
        (method, local_id): (&LocalMethod, &Identity),
    ) -> Result<Vec<GroupName>, PeerAuthError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let own = match method {
            LocalMethod::Signature(credentials) => credentials.as_slice(),
            LocalMethod::Psk => &[],
        };
        let certifies = |own: &Arc<Credential>, name: &SubjectName<'_>| {
            own.chain().first().is_some_and(|own| own.names(name))
        };
        let is_ours = |name: &SubjectName<'_>| {
            local_id.subject_name().as_ref() == Some(name)
                || own.iter().any(|own| certifies(own, name))
        };
        let terms = AttributeTerms {
            now: unix_time(self.wall_clock),
            revocation,
            is_ours: &is_ours,
        };
        let sent = &mut proof.attributes;
        let holder = peer.certificate();
        match self.attributes.memberships(sent, holder, wanted, &terms) {
            Ok(Memberships::Proved(groups)) => Ok(groups),
            Ok(Memberships::Needs(sources)) => Err(PeerAuthError::StatusNeeded(sources)),
            Err(error) => Err(PeerAuthError::NotMember(error)),
        }
    }

    /// Checks a certificate and the signature with its key. The status of the certificates is left to be checked.
    fn check_certificate(
        &self,
        proof: &mut Proof<'_>,
        (authorities, pinned, rules): (&Authorities, &[Certificate], &CertificateRules),
        revocation: &Revocation<'_>,
        legacy: bool,
    ) -> Result<VerifiedPeer, PeerAuthError> {
        let (identity, now) = (&self.identity, unix_time(self.wall_clock));
        let verify = |sent: &mut PeerCertificates| {
            let checked = sent.verify(authorities, identity, now, rules, revocation);
            match checked {
                Err(PeerAuthError::Path(PathError::UnknownIssuer))
                    if rules.known_need_no_path && sent.are_of_one_of(pinned) =>
                {
                    sent.verify_alone(authorities, identity, now, rules, revocation)
                }
                checked => checked,
            }
        };
        if proof.certificates.are_missing() && !pinned.is_empty() {
            let pin = self.find_unsent(proof, pinned, legacy)?;
            proof.unsent = Some(CertificateHash::of(pin));
            let mut known = PeerCertificates::known(pin, pinned);
            let checked = verify(&mut known);
            proof.has_verdict |= known.have_verdict();
            let peer = checked?;
            check_scheme(proof.auth, &rules.signatures)?;
            return Ok(peer);
        }
        // One signature costs less than a path.
        if proof.certificates.may_be_issued_by(authorities) {
            proof.check_signature(legacy)?;
        }
        let checked = verify(&mut proof.certificates);
        proof.has_verdict |= proof.certificates.have_verdict();
        let peer = checked?;
        if !pinned.is_empty() && !proof.certificates.are_of_one_of(pinned) {
            return Err(PeerAuthError::NotPinned);
        }
        check_scheme(proof.auth, &rules.signatures)?;
        proof.check_signature(legacy)?;
        Ok(peer)
    }

    /// Finds the certificate of a peer that sends none, by its signature.
    fn find_unsent<'c>(
        &self,
        proof: &mut Proof<'_>,
        pinned: &'c [Certificate],
        legacy: bool,
    ) -> Result<&'c Certificate, PeerAuthError> {
        let mut failure = PeerAuthError::NoCertificate;
        for pin in pinned.iter().filter(|pin| self.identity.is_named_by(pin)) {
            match proof.check_known_key(pin.public_key(), legacy) {
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
        connection: &Connection,
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
                .check_known_key(key, connection.legacy)
                .and_then(|()| check_scheme(proof.auth, signatures));
            match checked {
                // Under a pattern one peer could pass for another.
                Ok(()) if connection.remote.id == self.identity => return Ok(()),
                Ok(()) if self.identity == Identity::of_key(key) => return Ok(()),
                Ok(()) => failure = PeerAuthError::NotKeyIdentity(self.identity.clone()),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// The payloads of a message that prove the peer's identity. They are tried on several connections, and the proof bounds
/// the work of all tries.
struct Proof<'a> {
    auth: &'a Auth,
    octets: &'a [u8],
    certificates: PeerCertificates,
    attributes: PeerAttributes,
    /// The SubjectPublicKeyInfo that the peer sends instead of certificates (RFC 7670 §3).
    raw_key: Option<&'a [u8]>,
    /// The outcome for the key of the peer's own certificate, without `legacy` and with it.
    signature: [Option<Result<(), PeerAuthError>>; 2],
    /// The peer is refused whatever other connections it could mean: its certificate is revoked, or there is too much to
    /// check.
    has_verdict: bool,
    /// The certificate that the peer has not sent and whose key it has.
    unsent: Option<CertificateHash>,
    keys_left: usize,
}

impl<'a> Proof<'a> {
    fn new(auth: &'a Auth, certificates: &'a [Cert], octets: &'a [u8]) -> Self {
        let certificates: Vec<&Cert> = certificates.iter().collect();
        Self {
            auth,
            octets,
            certificates: PeerCertificates::new(&certificates),
            attributes: PeerAttributes::new(
                (certificates.iter())
                    .filter(|cert| cert.encoding == CertEncoding::X509_ATTRIBUTE)
                    .map(|cert| cert.data.as_slice()),
            ),
            raw_key: certificates
                .iter()
                .find(|cert| cert.encoding == CertEncoding::RAW_PUBLIC_KEY)
                .map(|cert| cert.data.as_slice()),
            signature: [None, None],
            has_verdict: false,
            unsent: None,
            keys_left: KEYS_MAX,
        }
    }

    /// The peer's own certificate.
    fn certificate(&self) -> Option<CertificateHash> {
        self.unsent.or_else(|| self.certificates.own())
    }

    /// Checks the signature with the key of the peer's own certificate. It is the same for every connection.
    fn check_signature(&mut self, legacy: bool) -> Result<(), PeerAuthError> {
        let key = self.certificates.public_key()?;
        let (auth, octets) = (self.auth, self.octets);
        self.signature[usize::from(legacy)]
            .get_or_insert_with(|| check_auth(key, auth, octets, legacy))
            .clone()
    }

    /// Checks the signature with a key that the configuration has.
    fn check_known_key(&mut self, key: &PublicKey, legacy: bool) -> Result<(), PeerAuthError> {
        let left = self.keys_left.checked_sub(1);
        self.keys_left = left.ok_or(PeerAuthError::TooManyKeys)?;
        check_auth(key, self.auth, self.octets, legacy)
    }
}
