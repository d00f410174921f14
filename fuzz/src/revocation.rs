//! Fuzzes CRLs and OCSP responses, and the status of a certificate that follows from them.

use std::sync::{Arc, OnceLock};

use esplanade_ike::auth::{
    CertificateRules, Credential, Identity, PeerAuthError, PeerCertificates,
};
use esplanade_ike::wire::{Cert, CertEncoding};
use esplanade_pki::{
    Authorities, Certificate, Crl, OcspAnswer, PathError, Revocation, RevocationPolicy,
    RevocationStore,
};

use crate::auth::{AUTHORITY, NOW, der, issue, issuer, signed, signed_part};

/// The most CRLs, or OCSP responses, of an input.
const CRLS_MAX: usize = 4;
/// id-pkix-ocsp-basic (RFC 6960 §4.2.1).
const BASIC_RESPONSE: &[u8] = b"\x06\x09\x2b\x06\x01\x05\x05\x07\x30\x01\x01";
/// The peer whose certificate is checked. Its serial number is 1.
const PEER: &str = "CN=peer";

pub(crate) struct World {
    authorities: Authorities,
    /// The credential that signs as the authority.
    issuer: Credential,
    peer: Cert,
    identity: Identity,
}

impl World {
    pub(crate) fn get() -> &'static Self {
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
    pub(crate) fn verify(&self, store: &RevocationStore, responses: &[Cert]) -> [bool; 3] {
        let accepted = [
            RevocationPolicy::Strict,
            RevocationPolicy::IfUri,
            RevocationPolicy::Relaxed,
        ]
        .map(|policy| {
            let revocation = Revocation {
                policy,
                store,
                asked: true,
            };
            let payloads: Vec<&Cert> = std::iter::once(&self.peer).chain(responses).collect();
            let mut sent = PeerCertificates::new(&payloads);
            let rules = CertificateRules::default();
            let peer = sent.verify(&self.authorities, &self.identity, NOW, &rules, &revocation);
            match peer {
                Ok(_) => true,
                Err(error) => {
                    let _ = error.to_string();
                    let is_final = matches!(
                        error,
                        PeerAuthError::Path(PathError::Revoked { .. } | PathError::TooMuchWork(_))
                    );
                    assert!(is_final || policy != RevocationPolicy::Relaxed, "{error}");
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
        let accepted = world.verify(&RevocationStore::new(crls.clone()), &[]);
        crls.reverse();
        let again = world.verify(&RevocationStore::new(crls), &[]);
        assert_eq!(again, accepted, "the order counts");
    }
}

/// OCSP responses, or the data that a responder signs, each behind two bytes of length. The peer sends them, and then
/// the gateway has them.
pub fn ocsp(data: &[u8]) {
    let world = World::get();
    let (mut rest, mut responses) = (data, Vec::new());
    while responses.len() < CRLS_MAX
        && let Some(piece) = crate::packets::next_packet(&mut rest)
    {
        let made = signed(&world.issuer, piece).map(|basic| response(&basic));
        responses.extend(made);
        responses.push(piece.to_vec());
    }
    let mut sent: Vec<Cert> = responses
        .into_iter()
        .map(|data| Cert {
            encoding: CertEncoding::OCSP,
            data,
        })
        .collect();
    let accepted = world.verify(&RevocationStore::default(), &sent);
    sent.reverse();
    let again = world.verify(&RevocationStore::default(), &sent);
    assert_eq!(again, accepted, "the order counts");
    let mut store = RevocationStore::default();
    for response in &sent {
        if let Ok(answer) = OcspAnswer::from_der(&response.data) {
            let _ = answer.usable_until();
            store.add_answer(Arc::new(answer));
        }
    }
    // An answer of the peer says for a shorter time that its certificate is good.
    let own = world.verify(&store, &[]);
    let mut pairs = accepted.iter().zip(own);
    assert!(
        pairs.all(|(sent, own)| own || !sent),
        "the peer's answers count for more: {accepted:?}, {own:?}"
    );
}

/// An OCSPResponse with a BasicOCSPResponse.
fn response(basic: &[u8]) -> Vec<u8> {
    let bytes = der(0x30, &[BASIC_RESPONSE, &der(4, &[basic])]);
    der(0x30, &[b"\x0a\x01\x00", &der(0xa0, &[&bytes])])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_responses_count() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/ocsp");
        for (seed, accepted) in [
            ("good", [true; 3]),
            ("no-end", [true; 3]),
            ("revoked", [false; 3]),
            ("revoked-since", [false; 3]),
            ("unknown", [false, true, true]),
        ] {
            let data = std::fs::read(folder.join(seed)).unwrap();
            let mut rest = data.as_slice();
            let mut store = RevocationStore::default();
            while let Some(piece) = crate::packets::next_packet(&mut rest) {
                let basic = signed(&World::get().issuer, piece).unwrap();
                let answer = OcspAnswer::from_der(&response(&basic)).unwrap();
                store.add_answer(Arc::new(answer));
            }
            assert_eq!(World::get().verify(&store, &[]), accepted, "{seed}");
        }
    }
}
