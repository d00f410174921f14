//! Fuzzes CRLs, and the status of a certificate that follows from them.

use std::sync::{Arc, OnceLock};

use esplanade_ike::auth::{
    Authorities, Certificate, CertificateRules, Credential, Crl, CrlStore, Identity, PeerAuthError,
    PeerCertificates, Revocation, RevocationPolicy,
};
use esplanade_ike::wire::{Cert, CertEncoding};

use crate::auth::{AUTHORITY, NOW, issue, issuer, signed, signed_part};

/// The most CRLs of an input.
const CRLS_MAX: usize = 4;
/// The peer whose certificate is checked. Its serial number is 1.
const PEER: &str = "CN=peer";

struct World {
    authorities: Authorities,
    /// The credential that signs as the authority.
    issuer: Credential,
    peer: Cert,
    identity: Identity,
}

impl World {
    fn get() -> &'static Self {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(|| {
            let issuer = issuer();
            let authority = issue(&issuer, AUTHORITY, AUTHORITY, b"");
            let authority = Certificate::from_der(&authority).expect("well-formed");
            Self {
                authorities: Authorities::new(&[authority]).expect("a good certificate"),
                peer: Cert {
                    encoding: CertEncoding::X509_SIGNATURE,
                    data: issue(&issuer, AUTHORITY, PEER, b""),
                },
                identity: PEER.parse().expect("an identity"),
                issuer,
            }
        })
    }

    /// Checks the peer under each policy. Says which of them accept it: `strict`, `ifuri`, `relaxed`.
    fn verify(&self, crls: &[Arc<Crl>]) -> [bool; 3] {
        let store = CrlStore::new(crls.to_vec());
        let accepted = [
            RevocationPolicy::Strict,
            RevocationPolicy::IfUri,
            RevocationPolicy::Relaxed,
        ]
        .map(|policy| {
            let crls = &store;
            let revocation = Revocation { policy, crls };
            let mut sent = PeerCertificates::new(&[&self.peer]);
            let rules = CertificateRules::default();
            let peer =
                (self.authorities).verify(&mut sent, &self.identity, NOW, &rules, &revocation);
            match peer {
                Ok(_) => true,
                Err(error) => {
                    let _ = error.to_string();
                    let is_revoked = matches!(error, PeerAuthError::Revoked { .. });
                    assert!(is_revoked || policy != RevocationPolicy::Relaxed, "{error}");
                    false
                }
            }
        });
        assert!(
            accepted.is_sorted(),
            "a stricter policy accepts more: {accepted:?}"
        );
        accepted
    }
}

/// CRLs, each behind two bytes of length. They are checked unchanged, and once more with a signature of the authority.
pub fn revocation(data: &[u8]) {
    let world = World::get();
    let _ = Crl::from_file_content(data);
    let (mut rest, mut given, mut made) = (data, Vec::new(), Vec::new());
    while given.len() < CRLS_MAX
        && let Some(der) = crate::packets::next_packet(&mut rest)
    {
        let Ok(crl) = Crl::from_der(der) else {
            continue;
        };
        let _ = (crl.made(), crl.expires(), crl.number(), crl.unusable());
        given.push(Arc::new(crl));
        let resigned = signed_part(der).and_then(|content| signed(&world.issuer, content));
        // The content can name another algorithm.
        if let Some(Ok(crl)) = resigned.map(|der| Crl::from_der(&der)) {
            made.push(Arc::new(crl));
        }
    }
    for mut crls in [given, made] {
        let accepted = world.verify(&crls);
        crls.reverse();
        assert_eq!(world.verify(&crls), accepted, "the order counts");
    }
}
