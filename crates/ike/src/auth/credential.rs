//! Our private key, with its certificates, and the signatures that it makes.

use std::sync::Arc;

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, PqdsaKeyPair,
    PqdsaSigningAlgorithm, RsaEncoding, RsaKeyPair,
};
use esplanade_crypto::rsa_pkcs1::RsaSha1Key;
use esplanade_pki::attributes::AttributeCertificate;
use esplanade_pki::{
    Certificate, FileError, Hash, KeyType, OwnStatus, ParameterSet, PublicKey, RevocationStore,
    Scheme, StatusSource, UnixTime, ecdsa_signature,
};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

use super::error::CredentialError;
use super::external_key::{ExternalKey, ExternalKeys};
use super::identity::Identity;
use super::rules::SchemeRules;
use super::scheme::{announced_hash, choose};
use super::signature::check_auth;
use crate::wire::{Auth, AuthMethod, Cert, CertEncoding, CertReq, HashAlgorithm};

/// Authorities above a certificate. No sane path is longer.
const AUTHORITIES_MAX: usize = 9;
/// Attribute certificates that are sent, and their octets in all.
const ATTRIBUTES_MAX: usize = 8;
const ATTRIBUTE_OCTETS_MAX: usize = 16 << 10;

/// Where peers can fetch the certificates that an authority has issued (RFC 7296 §3.6).
#[derive(Clone, Debug)]
pub struct CertificateUriBase {
    authority: Certificate,
    base: String,
}

impl CertificateUriBase {
    /// The URI of a certificate is `base`, followed by the SHA-1 of the certificate in hexadecimal digits.
    pub fn new(authority: Certificate, base: String) -> Self {
        Self { authority, base }
    }

    /// The CERT payload for a certificate of the authority.
    fn cert(&self, certificate: &Certificate) -> Option<Cert> {
        if !self.authority.has_issued(certificate) {
            return None;
        }
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, certificate.der());
        let digits = hash.as_ref().iter().map(|octet| format!("{octet:02x}"));
        let uri = format!("{}{}", self.base, digits.collect::<String>());
        Some(Cert {
            encoding: CertEncoding::HASH_AND_URL_X509,
            data: [hash.as_ref(), uri.as_bytes()].concat(),
        })
    }
}

/// A private key with its certificate chain, our own certificate first, or with its raw public key.
pub struct Credential {
    key: PrivateKey,
    public: PublicKey,
    /// Empty if the key has no certificate.
    chain: Vec<Certificate>,
    /// The hashes of the keys of all authorities above our certificate, as CERTREQ has them.
    issuers: Vec<[u8; 20]>,
    /// Those whose holder our certificate is.
    attributes: Vec<Arc<AttributeCertificate>>,
    status: OwnStatus,
    /// Digital signatures (RFC 7427) that we make, best first. An empty list leaves the choice to the key.
    schemes: Vec<Scheme>,
}

enum PrivateKey {
    Rsa {
        pair: RsaKeyPair,
        /// For peers without RFC 7427.
        sha1: RsaSha1Key,
    },
    Ecdsa {
        kind: KeyType,
        /// For digital signatures (RFC 7427).
        asn1: EcdsaKeyPair,
        /// For the fixed-length values of RFC 4754.
        fixed: EcdsaKeyPair,
    },
    Ed25519(Ed25519KeyPair),
    MlDsa(ParameterSet, PqdsaKeyPair),
    /// The key is kept elsewhere.
    External(ExternalKeys),
}

impl Credential {
    /// `key` is a file in PEM (PKCS#8, PKCS#1 or SEC 1), or PKCS#8 in DER. The first certificate must be that of the
    /// key.
    pub fn new(key: &[u8], chain: Vec<Certificate>) -> Result<Self, CredentialError> {
        let end_entity = chain.first().ok_or(FileError::NoCertificate)?;
        let public = end_entity.public_key().clone();
        let key = PrivateKey::from_file_content(key, &public)?;
        let mismatch = || CredentialError::Mismatch {
            subject: end_entity.subject().to_string(),
        };
        let key = key.ok_or_else(mismatch)?;
        Ok(Self::with_key(key, public, chain))
    }

    /// A key without a certificate. The file is as for [`Self::new`].
    pub fn without_certificate(key: &[u8], public: PublicKey) -> Result<Self, CredentialError> {
        let loaded = PrivateKey::from_file_content(key, &public)?;
        let mismatch = || CredentialError::Mismatch {
            subject: Identity::of_key(&public).to_string(),
        };
        let key = loaded.ok_or_else(mismatch)?;
        Ok(Self::with_key(key, public, Vec::new()))
    }

    /// A certificate whose private key is kept elsewhere. The key is one of `keys`: the first whose signature is right.
    pub fn external(
        chain: Vec<Certificate>,
        keys: Vec<Arc<dyn ExternalKey>>,
    ) -> Result<Self, CredentialError> {
        let end_entity = chain.first().ok_or(FileError::NoCertificate)?;
        let public = end_entity.public_key().clone();
        let kind = public.kind();
        let kind = kind.ok_or_else(|| FileError::KeyType(public.describe()))?;
        if let KeyType::MlDsa(_) = kind {
            return Err(CredentialError::ExternalKeyType(kind.to_string()));
        }
        let key = PrivateKey::External(ExternalKeys::new(kind, keys));
        Ok(Self::with_key(key, public, chain))
    }

    fn with_key(key: PrivateKey, public: PublicKey, chain: Vec<Certificate>) -> Self {
        let credential = Self {
            key,
            public,
            chain,
            issuers: Vec::new(),
            attributes: Vec::new(),
            status: OwnStatus::default(),
            schemes: Vec::new(),
        };
        credential.with_authorities(&[])
    }

    /// Takes what lacks between our certificate and a root from these authorities. The root is not sent.
    pub fn with_authorities(mut self, authorities: &[Certificate]) -> Self {
        self.issuers.clear();
        let mut path: Vec<Certificate> = self.chain.first().cloned().into_iter().collect();
        let mut above = self.chain.first().cloned();
        while let Some(last) = above.take()
            && self.issuers.len() < AUTHORITIES_MAX
        {
            let mut known = self.chain.iter().skip(1).chain(authorities);
            let Some(issuer) = known.find(|one| one.has_issued(&last)).cloned() else {
                break;
            };
            self.issuers.push(issuer.key_hash());
            path.push(issuer.clone());
            if issuer.is_self_issued() {
                break;
            }
            if !self.chain.iter().any(|one| one.der() == issuer.der()) {
                self.chain.push(issuer.clone());
            }
            above = Some(issuer);
        }
        self.status = OwnStatus::new(path.iter().map(Certificate::der));
        self
    }

    /// Takes the attribute certificates whose holder our certificate is.
    pub fn with_attributes(mut self, known: &[Arc<AttributeCertificate>]) -> Self {
        let own = self.chain.first();
        let is_ours = |one: &&Arc<AttributeCertificate>| own.is_some_and(|own| one.is_of(own));
        self.attributes = known.iter().filter(is_ours).cloned().collect();
        self
    }

    /// The CERT payloads with our attribute certificates that are valid now. Not more are sent than a message holds beside
    /// all else.
    pub fn attribute_certificates(&self, now: UnixTime) -> Vec<Cert> {
        let valid = self.attributes.iter();
        let valid = valid.filter(|one| one.check_time(now).is_ok());
        let mut octets = 0;
        let sent = valid.take(ATTRIBUTES_MAX).take_while(|one| {
            octets += one.der().len();
            octets <= ATTRIBUTE_OCTETS_MAX
        });
        sent.map(|one| Cert {
            encoding: CertEncoding::X509_ATTRIBUTE,
            data: one.der().to_vec(),
        })
        .collect()
    }

    /// The CERT payloads with current answers of OCSP responders about our certificates (RFC 4806 §3.1).
    pub(crate) fn ocsp_answers(
        &self,
        store: &RevocationStore,
        now: UnixTime,
    ) -> impl Iterator<Item = Cert> {
        let answers = self.status.answers(store, now.as_secs());
        answers.into_iter().map(|data| Cert {
            encoding: CertEncoding::OCSP,
            data,
        })
    }

    /// The responders to ask about our certificates where there is no current answer.
    pub(crate) fn ocsp_sources(&self, store: &RevocationStore, now: UnixTime) -> Vec<StatusSource> {
        self.status.sources(store, now.as_secs())
    }

    /// Makes only digital signatures that the rules name, in their order.
    pub fn with_signatures(mut self, rules: &SchemeRules) -> Result<Self, CredentialError> {
        self.schemes = rules.of_key(self.key.kind());
        match self.schemes.is_empty() && !rules.is_free() {
            true => Err(CredentialError::Scheme(self.key.kind().to_string())),
            false => Ok(self),
        }
    }

    /// The private key is kept elsewhere.
    pub(crate) fn is_external(&self) -> bool {
        matches!(self.key, PrivateKey::External(_))
    }

    /// The identity that the credential proves where no other is configured: the subject of the certificate, or the
    /// identifier of the key.
    pub fn identity(&self) -> Identity {
        match self.chain.first() {
            Some(own) => Identity::Dn(own.subject().clone()),
            None => Identity::of_key(&self.public),
        }
    }

    /// The certificates that are sent. They are none if the key has no certificate.
    pub fn chain(&self) -> &[Certificate] {
        &self.chain
    }

    /// The CERT payloads to send: our own certificate first, or the raw public key (RFC 7670 §3). A certificate is sent
    /// as hash and URL if its authority has one of these bases.
    pub fn certificates(&self, bases: &[CertificateUriBase]) -> impl Iterator<Item = Cert> {
        let x509 = self.chain.iter().map(|certificate| {
            let by_uri = bases.iter().find_map(|base| base.cert(certificate));
            by_uri.unwrap_or_else(|| Cert {
                encoding: CertEncoding::X509_SIGNATURE,
                data: certificate.der().to_vec(),
            })
        });
        let raw = self.chain.is_empty().then(|| Cert {
            encoding: CertEncoding::RAW_PUBLIC_KEY,
            data: self.public.der().to_vec(),
        });
        x509.chain(raw)
    }

    /// Says whether the peer asks for our kind of CERT payloads, below whatever authority.
    pub fn is_asked_for(&self, request: &CertReq) -> bool {
        match self.chain.is_empty() {
            true => request.encoding == CertEncoding::RAW_PUBLIC_KEY,
            // As in strongSwan, a request for certificates in another form is a request for ours too.
            false => request.encoding != CertEncoding::OCSP,
        }
    }

    /// Says whether the peer asks for a certificate below an authority of ours (RFC 7296 §3.7), or for a raw key where
    /// we have one.
    pub fn satisfies(&self, request: &CertReq) -> bool {
        match request.encoding {
            CertEncoding::X509_SIGNATURE => {
                let mut hashes = request.ca_key_hashes();
                hashes.any(|hash| self.issuers.iter().any(|ours| ours == hash))
            }
            CertEncoding::RAW_PUBLIC_KEY => self.chain.is_empty(),
            _ => false,
        }
    }

    /// As [`Self::sign_for`], with a key for which it makes no difference who the peer is.
    pub fn sign(
        &self,
        announced: &[HashAlgorithm],
        signed_octets: &[u8],
        legacy: bool,
    ) -> Result<Auth, CredentialError> {
        self.sign_for(&Identity::Any, announced, signed_octets, legacy)
    }

    /// Signs for a peer that has announced these hashes with SIGNATURE_HASH_ALGORITHMS. A peer that has announced no
    /// hash knows one signature for each kind of key. They are ECDSA by RFC 4754, and RSA with SHA-1 (RFC 7296 §3.8),
    /// which needs `legacy`.
    pub fn sign_for(
        &self,
        peer: &Identity,
        announced: &[HashAlgorithm],
        signed_octets: &[u8],
        legacy: bool,
    ) -> Result<Auth, CredentialError> {
        let of_our_key = |auth: Auth| {
            let checked = check_auth(&self.public, &auth, signed_octets, false);
            checked.is_ok().then_some(auth)
        };
        match (&self.key, announced) {
            (PrivateKey::Ecdsa { kind, fixed, .. }, []) => {
                let (method, _) = rfc4754_method(*kind);
                let value = fixed
                    .sign(&SystemRandom::new(), signed_octets)
                    .map_err(|_| CredentialError::Signing)?;
                return Ok(Auth {
                    method,
                    data: value.as_ref().to_vec(),
                });
            }
            (PrivateKey::External(keys), []) if keys.kind() != KeyType::Ed25519 => {
                if keys.kind() == KeyType::Rsa {
                    return Err(match legacy {
                        true => CredentialError::ExternalSha1,
                        false => CredentialError::Sha1,
                    });
                }
                let (method, scheme) = rfc4754_method(keys.kind());
                let auth = |data| of_our_key(Auth { method, data });
                return keys.sign(peer, scheme, signed_octets, auth);
            }
            (PrivateKey::Rsa { .. }, []) if !legacy => return Err(CredentialError::Sha1),
            (PrivateKey::Rsa { sha1, .. }, []) => {
                let data = sha1.sign(signed_octets).ok_or(CredentialError::Signing)?;
                return Ok(Auth {
                    method: AuthMethod::RSA_SIGNATURE,
                    data,
                });
            }
            _ => {}
        }
        let mut configured = self.schemes.iter().copied();
        let scheme = match self.schemes.is_empty() {
            true => choose(self.key.kind(), announced),
            false => configured.find(|scheme| announced.contains(&announced_hash(*scheme))),
        };
        let scheme = scheme.ok_or_else(|| CredentialError::NoCommonHash {
            announced: announced.to_vec(),
        })?;
        let identifier = scheme.identifier();
        let len = u8::try_from(identifier.len()).map_err(|_| CredentialError::Signing)?;
        let auth = |value: &[u8]| Auth {
            method: AuthMethod::DIGITAL_SIGNATURE,
            data: [&[len], identifier, value].concat(),
        };
        match &self.key {
            PrivateKey::External(keys) => keys.sign(peer, scheme, signed_octets, |value| {
                of_our_key(match scheme {
                    Scheme::Ecdsa(_) => auth(&ecdsa_signature(&value)?),
                    _ => auth(&value),
                })
            }),
            key => Ok(auth(&key.sign(scheme, signed_octets)?)),
        }
    }
}

/// The method of ECDSA without RFC 7427, and the scheme whose hash it has (RFC 4754 §3).
fn rfc4754_method(kind: KeyType) -> (AuthMethod, Scheme) {
    match kind {
        KeyType::P521 => (AuthMethod::ECDSA_SHA2_512_P521, Scheme::Ecdsa(Hash::Sha512)),
        KeyType::P384 => (AuthMethod::ECDSA_SHA2_384_P384, Scheme::Ecdsa(Hash::Sha384)),
        _ => (AuthMethod::ECDSA_SHA2_256_P256, Scheme::Ecdsa(Hash::Sha256)),
    }
}

fn signing(set: ParameterSet) -> &'static PqdsaSigningAlgorithm {
    match set {
        ParameterSet::MlDsa44 => &signature::ML_DSA_44_SIGNING,
        ParameterSet::MlDsa65 => &signature::ML_DSA_65_SIGNING,
        ParameterSet::MlDsa87 => &signature::ML_DSA_87_SIGNING,
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({})", self.identity())
    }
}

impl PrivateKey {
    /// Loads the private key of a file. Returns `None` if the key is usable, but is not that of the public key.
    fn from_file_content(
        content: &[u8],
        public: &PublicKey,
    ) -> Result<Option<Self>, CredentialError> {
        let kind = public
            .kind()
            .ok_or_else(|| FileError::KeyType(public.describe()))?;
        let der = if content.first() == Some(&0x30) {
            PrivateKeyDer::Pkcs8(content.into())
        } else {
            PrivateKeyDer::from_pem_slice(content).map_err(|error| match error {
                rustls_pki_types::pem::Error::NoItemsFound => CredentialError::NoPrivateKey,
                error => FileError::Pem(error.to_string()).into(),
            })?
        };
        Self::load(kind, &der, public.bytes())
    }

    fn load(
        kind: KeyType,
        der: &PrivateKeyDer<'_>,
        public: &[u8],
    ) -> Result<Option<Self>, CredentialError> {
        let rejected =
            |error: aws_lc_rs::error::KeyRejected| CredentialError::PrivateKey(error.to_string());
        let key = match kind {
            KeyType::Rsa => {
                let pair = match der {
                    PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
                    der => RsaKeyPair::from_pkcs8(der.secret_der()),
                };
                let pair = pair.map_err(rejected)?;
                let sha1 = RsaSha1Key::from_der(der.secret_der())
                    .ok_or_else(|| CredentialError::PrivateKey("malformed RSA key".to_owned()))?;
                Self::Rsa { pair, sha1 }
            }
            KeyType::P256 => Self::load_ecdsa(
                kind,
                der.secret_der(),
                &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
                &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
            )?,
            KeyType::P384 => Self::load_ecdsa(
                kind,
                der.secret_der(),
                &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
                &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            )?,
            KeyType::P521 => Self::load_ecdsa(
                kind,
                der.secret_der(),
                &signature::ECDSA_P521_SHA512_ASN1_SIGNING,
                &signature::ECDSA_P521_SHA512_FIXED_SIGNING,
            )?,
            KeyType::Ed25519 => Self::Ed25519(
                Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_der()).map_err(rejected)?,
            ),
            KeyType::MlDsa(set) => Self::MlDsa(
                set,
                PqdsaKeyPair::from_pkcs8(signing(set), der.secret_der()).map_err(rejected)?,
            ),
        };
        let ours = match &key {
            Self::Rsa { pair, .. } => pair.public_key().as_ref(),
            Self::Ecdsa { asn1, .. } => asn1.public_key().as_ref(),
            Self::Ed25519(pair) => pair.public_key().as_ref(),
            Self::MlDsa(_, pair) => pair.public_key().as_ref(),
            // No file gives such a key.
            Self::External(_) => return Ok(None),
        };
        let belongs = ours == public;
        Ok(belongs.then_some(key))
    }

    fn load_ecdsa(
        kind: KeyType,
        der: &[u8],
        asn1: &'static EcdsaSigningAlgorithm,
        fixed: &'static EcdsaSigningAlgorithm,
    ) -> Result<Self, CredentialError> {
        let load = |algorithm| {
            EcdsaKeyPair::from_private_key_der(algorithm, der)
                .map_err(|error| CredentialError::PrivateKey(error.to_string()))
        };
        Ok(Self::Ecdsa {
            kind,
            asn1: load(asn1)?,
            fixed: load(fixed)?,
        })
    }

    fn kind(&self) -> KeyType {
        match self {
            Self::Rsa { .. } => KeyType::Rsa,
            Self::Ecdsa { kind, .. } => *kind,
            Self::Ed25519(_) => KeyType::Ed25519,
            Self::MlDsa(set, _) => KeyType::MlDsa(*set),
            Self::External(keys) => keys.kind(),
        }
    }

    fn sign(&self, scheme: Scheme, message: &[u8]) -> Result<Vec<u8>, CredentialError> {
        let failed = |_| CredentialError::Signing;
        match (self, scheme) {
            (Self::Rsa { pair, .. }, Scheme::RsaPss(_) | Scheme::RsaPkcs1(_)) => {
                let encoding: &dyn RsaEncoding = match scheme {
                    Scheme::RsaPss(Hash::Sha256) => &signature::RSA_PSS_SHA256,
                    Scheme::RsaPss(Hash::Sha384) => &signature::RSA_PSS_SHA384,
                    Scheme::RsaPss(Hash::Sha512) => &signature::RSA_PSS_SHA512,
                    Scheme::RsaPkcs1(Hash::Sha256) => &signature::RSA_PKCS1_SHA256,
                    Scheme::RsaPkcs1(Hash::Sha384) => &signature::RSA_PKCS1_SHA384,
                    _ => &signature::RSA_PKCS1_SHA512,
                };
                let mut value = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &SystemRandom::new(), message, &mut value)
                    .map_err(failed)?;
                Ok(value)
            }
            (Self::Ecdsa { asn1, .. }, Scheme::Ecdsa(_)) => {
                let value = asn1.sign(&SystemRandom::new(), message).map_err(failed)?;
                Ok(value.as_ref().to_vec())
            }
            (Self::Ed25519(pair), Scheme::Ed25519) => {
                Ok(pair.try_sign(message).map_err(failed)?.as_ref().to_vec())
            }
            (Self::MlDsa(set, pair), Scheme::MlDsa(_)) => {
                let mut value = vec![0; signing(*set).signature_len()];
                pair.sign(message, &mut value).map_err(failed)?;
                Ok(value)
            }
            _ => Err(CredentialError::Signing),
        }
    }
}
