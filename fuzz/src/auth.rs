//! Fuzzes the proofs of a peer's identity: identities, certificates, signatures.

use std::collections::HashSet;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use esplanade_ike::auth::{
    CertificateRules, Credential, Identity, PeerAuthError, PeerCertificates, VerifiedPeer, certreq,
};
use esplanade_ike::wire::{
    Auth, AuthMethod, Cert, CertEncoding, CertReq, HashAlgorithm, Id, IdType,
};
use esplanade_pki::{
    Authorities, Certificate, DistinguishedName, PublicKey, Revocation, RevocationPolicy,
    RevocationStore, UnixTime,
};

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../vectors/ike/certs/", $name)).as_slice()
    };
}

/// The time of the checks: 2026-06-01.
pub(crate) const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_780_272_000));
static NOTHING_KNOWN: LazyLock<RevocationStore> = LazyLock::new(RevocationStore::default);

fn relaxed() -> Revocation<'static> {
    Revocation {
        policy: RevocationPolicy::Relaxed,
        store: &NOTHING_KNOWN,
        asked: true,
    }
}

/// The most certificates of an input. No order of so few certificates needs more signature checks than the validator
/// allows.
const CERTIFICATES_MAX: usize = 4;
const ED25519: &[u8] = b"\x30\x05\x06\x03\x2b\x65\x70";
/// The number of bytes of an Ed25519 public key with its algorithm (RFC 8410 §4).
const KEY_LEN: usize = 44;

/// Byte 0 is the type of an ID payload, and byte 1 is the length of its data. The rest is the text of a
/// configuration.
pub fn identity(data: &[u8]) {
    let Some((&[kind, len], rest)) = data.split_first_chunk::<2>() else {
        return;
    };
    let (data, text) = rest.split_at(rest.len().min(len.into()));
    let payload = Id::new(IdType(kind), data.to_vec());
    let presented = Identity::from_payload(&payload).ok();
    if let Some(presented) = &presented {
        assert_eq!(presented.to_payload(), Some(payload));
        check_identity(presented);
    }
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    if let Some(name) = DistinguishedName::parse(text) {
        assert_eq!(
            DistinguishedName::from_der(name.der()).as_ref(),
            Some(&name)
        );
        assert_eq!(
            DistinguishedName::parse(&name.to_string()).as_ref(),
            Some(&name)
        );
    }
    let Ok(configured) = text.parse::<Identity>() else {
        return;
    };
    check_identity(&configured);
    if let Some(payload) = configured.to_payload()
        && payload.data.len() <= usize::from(u16::MAX)
    {
        assert_eq!(Identity::from_payload(&payload).as_ref(), Ok(&configured));
    }
    if let Some(presented) = &presented {
        check_two(&configured, presented);
        check_two(presented, &configured);
    }
}

fn check_identity(identity: &Identity) {
    let shown = identity.to_string();
    assert!(
        !shown.chars().any(char::is_control),
        "a log line cannot show {shown:?}"
    );
    let again: Result<Identity, _> = shown.parse();
    assert_eq!(again.as_ref(), Ok(identity), "shown as {shown:?}");
    check_two(identity, identity);
    check_two(identity, &again.expect("equal to one"));
    let any = *identity == Identity::Any;
    assert_eq!(identity.accepts(identity), !any);
    assert_eq!(Identity::Any.accepts(identity), !any);
    assert!(!identity.accepts(&Identity::Any));
}

/// Checks that equality is that of the canonical form, and that an exact pattern accepts only an equal identity.
fn check_two(a: &Identity, b: &Identity) {
    let (there, back) = (a == b, b == a);
    assert_eq!(there, back, "{a} and {b}");
    let set: HashSet<&Identity> = [a, b].into();
    assert_eq!(set.len(), if a == b { 1 } else { 2 });
    if a == b {
        assert_eq!(a.precision(), b.precision());
        assert_eq!(a.accepts(b), b.accepts(a));
    } else if a.precision() == 2 {
        assert!(!a.accepts(b), "{a} accepts {b}");
    }
}

/// Byte 0 chooses the identity to prove. Certificates follow, each behind two bytes of length; the end entity's is
/// the first. They are checked unchanged, and once more with a signature of an authority whose key is known here.
pub fn certificates(data: &[u8]) {
    let Some((&pick, mut rest)) = data.split_first() else {
        return;
    };
    let world = World::get();
    let identity = &world.identities[usize::from(pick) % world.identities.len()];
    check_file(data);
    let mut certificates = Vec::new();
    while certificates.len() < CERTIFICATES_MAX
        && let Some(data) = crate::packets::next_packet(&mut rest)
    {
        check_file(data);
        let request = cert_request(data);
        let hashes: Vec<&[u8]> = data.chunks_exact(20).collect();
        assert_eq!(request.ca_key_hashes().collect::<Vec<_>>(), hashes);
        let named = hashes.iter().any(|hash| world.root == *hash);
        assert_eq!(world.issuer.satisfies(&request), named);
        certificates.push(Cert {
            encoding: CertEncoding::X509_SIGNATURE,
            data: data.to_vec(),
        });
    }
    if let Some(peer) = world.verify(&certificates, identity) {
        let signed = signed_part(peer.certificate().der());
        assert!(
            world.issued.iter().any(|issued| Some(*issued) == signed),
            "nobody issued {:?}",
            peer.certificate()
        );
    }
    let mut resigned = false;
    for certificate in &mut certificates {
        if let Some(signed) = world.sign(&certificate.data) {
            certificate.data = signed;
            resigned = true;
        }
    }
    if !resigned {
        return;
    }
    let peer = world.verify(&certificates, identity);
    if let Some(peer) = &peer {
        // The input chose the key, so nothing is known about the result.
        let _ = peer.check_auth(&world.auth, b"octets", false);
    }
    if let Some((_, intermediates)) = certificates.split_first_mut() {
        intermediates.reverse();
        let other_order = world.verify(&certificates, identity);
        assert_eq!(peer.is_some(), other_order.is_some(), "the order counts");
    }
}

fn cert_request(data: &[u8]) -> CertReq {
    CertReq {
        encoding: CertEncoding::X509_SIGNATURE,
        data: data.to_vec(),
    }
}

/// Reads a certificate in DER, or a file of certificates or with a public key.
fn check_file(content: &[u8]) {
    match PublicKey::from_file_content(content) {
        Ok(key) => {
            let again = PublicKey::from_file_content(key.der()).expect("it was read before");
            assert_eq!(Identity::of_key(&again), Identity::of_key(&key));
        }
        Err(error) => drop(error.to_string()),
    }
    let one = Certificate::from_der(content);
    let several = match Certificate::from_file_content(content) {
        Ok(certificates) => certificates,
        Err(error) => {
            let _ = error.to_string();
            Vec::new()
        }
    };
    for certificate in one.iter().chain(&several) {
        let again = Certificate::from_der(certificate.der()).expect("it was read before");
        assert_eq!(again.subject(), certificate.subject());
        assert_eq!(again.key_hash(), certificate.key_hash());
        let subject = Identity::Dn(certificate.subject().clone());
        assert!(subject.is_named_by(certificate));
        let shown = subject.to_string();
        // A subject may be empty (RFC 5280 §4.1.2.6). No configuration can name it.
        if certificate.subject().der() != b"\x30\x00" {
            assert_eq!(shown.parse().as_ref(), Ok(&subject), "shown as {shown:?}");
        }
        assert!(!Identity::Any.is_named_by(certificate));
        if let Ok(authorities) = Authorities::new(std::slice::from_ref(certificate)) {
            let request = certreq(&authorities);
            assert_eq!(request.data, certificate.key_hash());
        }
    }
}

/// Byte 0 chooses the peer's certificate, and byte 1 is the method. The rest is the data of an AUTH payload. A
/// signature over other octets must never be accepted. The option `legacy` may add RSA with SHA-1 only.
pub fn auth_signature(data: &[u8]) {
    let Some((&[pick, method], data)) = data.split_first_chunk::<2>() else {
        return;
    };
    let world = World::get();
    let peer = &world.peers[usize::from(pick) % world.peers.len()];
    let auth = Auth {
        method: AuthMethod(method),
        data: data.to_vec(),
    };
    let refused = peer.check_auth(&auth, b"other octets than were signed", true);
    let refused = refused.expect_err("nobody signed that");
    assert!(!refused.to_string().chars().any(char::is_control));
    // The seeds have signatures of these octets.
    let legacy = peer.check_auth(&auth, OCTETS, true);
    if legacy.is_ok() {
        assert!(matches!(
            auth.method,
            AuthMethod::RSA_SIGNATURE
                | AuthMethod::DIGITAL_SIGNATURE
                | AuthMethod::ECDSA_SHA2_256_P256
                | AuthMethod::ECDSA_SHA2_384_P384
                | AuthMethod::ECDSA_SHA2_512_P521
        ));
    }
    match peer.check_auth(&auth, OCTETS, false) {
        Err(PeerAuthError::Sha1) => {
            assert_eq!((auth.method, legacy), (AuthMethod::RSA_SIGNATURE, Ok(())));
        }
        other => assert_eq!(other, legacy),
    }
}

/// The octets that the seeds of [`auth_signature`] sign.
pub const OCTETS: &[u8] = b"what both sides saw";

/// The subject of the authority whose key is known.
pub const AUTHORITY: &str = "CN=authority";

pub(crate) struct World {
    pub(crate) authorities: Authorities,
    /// The hash of the key that has issued the certificate of `issuer`.
    root: [u8; 20],
    identities: Vec<Identity>,
    /// The signed part of every certificate below the authorities.
    issued: Vec<&'static [u8]>,
    /// The credential that signs as an authority.
    issuer: Credential,
    /// One peer with a key of each kind.
    peers: Vec<VerifiedPeer>,
    auth: Auth,
}

/// PEM files with certificates below the authority.
const ISSUED: &[&[u8]] = &[
    file!("moon-rsa.pem"),
    file!("moon-ecdsa256.pem"),
    file!("moon-ecdsa384.pem"),
    file!("moon-ed25519.pem"),
    file!("moon-ecdsa521.pem"),
    file!("sun.pem"),
    file!("intermediate.pem"),
    file!("eku-any.pem"),
    file!("eku-ike.pem"),
    file!("eku-intermediate.pem"),
    file!("eku-server.pem"),
    file!("expired.pem"),
    file!("not-yet.pem"),
    file!("ca-as-peer.pem"),
    file!("root.pem"),
];
/// The number of those files that belong to peers with a key of each kind.
const PEERS: usize = 5;

/// The first certificate of a file.
pub fn certificate(pem: &[u8]) -> Certificate {
    let mut certificates = Certificate::from_file_content(pem).expect("a good file");
    certificates.remove(0)
}

/// A credential whose key serves both sides: the authority, and the peers that it certifies.
pub fn issuer() -> Credential {
    let certificate = certificate(file!("moon-ed25519.pem"));
    Credential::new(file!("moon-ed25519.key"), vec![certificate]).expect("they belong together")
}

/// Makes a certificate for the issuer's key. Without `extensions` its version is 1.
pub fn issue(by: &Credential, issuer: &str, subject: &str, extensions: &[u8]) -> Vec<u8> {
    let [issuer, subject] =
        [issuer, subject].map(|name| DistinguishedName::parse(name).expect("a name"));
    let own = by.chain()[0].der();
    let is_key = |at: &[u8]| at.starts_with(b"\x30\x2a") && at[2..].starts_with(ED25519);
    let key = own.windows(KEY_LEN).find(|at| is_key(at)).expect("a key");
    let (version, extensions) = match extensions {
        [] => (&b""[..], Vec::new()),
        some => (
            &b"\xa0\x03\x02\x01\x02"[..],
            der(0xa3, &[&der(0x30, &[some])]),
        ),
    };
    let validity = b"\x30\x1e\x17\x0d250101000000Z\x17\x0d350101000000Z";
    let parts = [
        version,
        b"\x02\x01\x01",
        ED25519,
        issuer.der(),
        validity,
        subject.der(),
        key,
        &extensions,
    ];
    signed(by, &der(0x30, &parts)).expect("an Ed25519 key")
}

pub fn signed(by: &Credential, content: &[u8]) -> Option<Vec<u8>> {
    let auth = by.sign(&[HashAlgorithm::IDENTITY], content, false).ok()?;
    // The length and the algorithm come first (RFC 7427 §3).
    let signature = &auth.data[1 + ED25519.len()..];
    Some(der(0x30, &[content, ED25519, b"\x03\x41\x00", signature]))
}

pub fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let [.., high, low] = content.len().to_be_bytes();
    let header = match content.len() {
        ..=0x7f => vec![tag, low],
        0x80..=0xff => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [header, content].concat()
}

impl World {
    pub(crate) fn get() -> &'static Self {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(Self::new)
    }

    fn new() -> Self {
        let issuer = issuer();
        let authority = issue(&issuer, AUTHORITY, AUTHORITY, b"");
        let anchors = [
            certificate(file!("root.pem")),
            Certificate::from_der(&authority).expect("well-formed"),
        ];
        let moon = Identity::Fqdn("moon.example.org".to_owned());
        let authorities = Authorities::new(&anchors).expect("good certificates");
        let issued: Vec<Certificate> = ISSUED.iter().map(|pem| certificate(pem)).collect();
        let verify = |certificate: &Certificate| {
            let cert = Cert {
                encoding: CertEncoding::X509_SIGNATURE,
                data: certificate.der().to_vec(),
            };
            let mut sent = PeerCertificates::new(&[&cert]);
            sent.verify(
                &authorities,
                &moon,
                NOW,
                &CertificateRules::default(),
                &relaxed(),
            )
            .expect("moon's")
        };
        Self {
            root: anchors[0].key_hash(),
            identities: vec![
                moon.clone(),
                Identity::Email("moon@example.org".to_owned()),
                Identity::Ip([192, 0, 2, 1].into()),
                Identity::Dn(issued[1].subject().clone()),
                Identity::Fqdn("sun.example.org".to_owned()),
                Identity::KeyId(vec![1]),
                Identity::Any,
            ],
            peers: issued[..PEERS].iter().map(verify).collect(),
            issued: (issued.into_iter())
                .map(|certificate| &*certificate.der().to_vec().leak())
                .map(|der| signed_part(der).expect("a certificate"))
                .collect(),
            auth: issuer
                .sign(&[HashAlgorithm::IDENTITY], b"octets", false)
                .expect("signs"),
            authorities,
            issuer: issuer.with_authorities(&anchors),
        }
    }

    pub(crate) fn verify(
        &self,
        certificates: &[Cert],
        identity: &Identity,
    ) -> Option<VerifiedPeer> {
        let payloads: Vec<&Cert> = certificates.iter().collect();
        let mut sent = PeerCertificates::new(&payloads);
        match sent.verify(
            &self.authorities,
            identity,
            NOW,
            &CertificateRules::default(),
            &relaxed(),
        ) {
            Ok(peer) => {
                assert!(!matches!(identity, Identity::Any | Identity::KeyId(_)));
                assert!(identity.is_named_by(peer.certificate()));
                assert_eq!(peer.certificate().der(), payloads[0].data);
                Some(peer)
            }
            Err(error) => {
                let _ = error.to_string();
                None
            }
        }
    }

    /// Replaces the signature of a certificate with one of `issuer`. Returns the signed certificate.
    fn sign(&self, certificate: &[u8]) -> Option<Vec<u8>> {
        Certificate::from_der(certificate).ok()?;
        signed(&self.issuer, signed_part(certificate)?)
    }
}

/// The TBSCertificate with its header (RFC 5280 §4.1).
pub(crate) fn signed_part(certificate: &[u8]) -> Option<&[u8]> {
    let (content, _) = der_header(certificate)?;
    let (start, len) = der_header(&certificate[content..])?;
    certificate.get(content..content + start + len)
}

/// The lengths of the header and of the content.
pub(crate) fn der_header(der: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*der.get(1)?);
    let bytes = match first {
        ..=0x7f => return Some((2, first)),
        0x81..=0x83 => first - 0x80,
        _ => return None,
    };
    let digits = der.get(2..2 + bytes)?;
    let len = digits
        .iter()
        .fold(0, |len, byte| len << 8 | usize::from(*byte));
    Some((2 + bytes, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeds have certificates behind byte 0 that verify only with the signature that the target adds.
    #[test]
    fn the_seed_that_is_signed_here_verifies() {
        let seed = include_bytes!("../corpus/certificates/signed-here");
        let (mut rest, mut certs) = (&seed[1..], Vec::new());
        while let Some(data) = crate::packets::next_packet(&mut rest) {
            let encoding = CertEncoding::X509_SIGNATURE;
            let data = World::get().sign(data).expect("a certificate");
            certs.push(Cert { encoding, data });
        }
        let world = World::get();
        let peer = world.verify(&certs, &world.identities[0]).expect("valid");
        assert!(peer.check_auth(&world.auth, b"octets", false).is_ok());
        assert!(world.verify(&certs[..1], &world.identities[0]).is_none());
    }

    /// No seed's signature may be valid over other octets, or from another peer.
    #[test]
    fn the_seeds_of_signatures_are_good() {
        let sha1 = &include_bytes!("../corpus/auth_signature/rsa-sha1")[..];
        for seed in [
            sha1,
            include_bytes!("../corpus/auth_signature/rsa-sha256"),
            include_bytes!("../corpus/auth_signature/rsa-pkcs1"),
            include_bytes!("../corpus/auth_signature/rsa-pss"),
            include_bytes!("../corpus/auth_signature/ecdsa"),
            include_bytes!("../corpus/auth_signature/ecdsa-p521"),
            include_bytes!("../corpus/auth_signature/ecdsa-fixed"),
            include_bytes!("../corpus/auth_signature/ecdsa-fixed-p521"),
            include_bytes!("../corpus/auth_signature/ed25519"),
        ] {
            let auth = Auth {
                method: AuthMethod(seed[1]),
                data: seed[2..].to_vec(),
            };
            for (index, peer) in World::get().peers.iter().enumerate() {
                let own = index == usize::from(seed[0]);
                assert_eq!(peer.check_auth(&auth, OCTETS, true).is_ok(), own);
                let strict = peer.check_auth(&auth, OCTETS, false);
                match own && seed == sha1 {
                    true => assert_eq!(strict, Err(PeerAuthError::Sha1)),
                    false => assert_eq!(strict.is_ok(), own),
                }
            }
        }
    }
}
