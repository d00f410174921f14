//! Credentials, authorities and the status of certificates, from the vectors of the product's tests.

use std::sync::{Arc, LazyLock, Mutex};
use std::task::Poll;

use aws_lc_rs::signature::Ed25519KeyPair;
use esplanade_ike::auth::{ExternalKey, SigningRequest};
use esplanade_ike::config::{
    CertificateRules, CertificateUriBase, Credential, LocalMethod, RemoteMethod, SchemeRules,
};
use esplanade_pki::attributes::{AttributeAuthority, AttributeCertificate, AttributeStore};
use esplanade_pki::{
    Authorities, AuthoritySources, Certificate, Crl, OcspAnswer, RevocationPolicy, RevocationStore,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

macro_rules! file {
    ($name:expr) => {
        include_bytes!(concat!("../../../vectors/ike/", $name)).as_slice()
    };
}

pub const ROOT: &[u8] = file!("certs/root.pem");
pub const OTHER_ROOT: &[u8] = file!("certs/other-root.pem");
const ML_DSA_ROOT: &[u8] = file!("certs/ml-dsa-root.pem");
const ML_DSA_INTERMEDIATE: &[u8] = file!("certs/ml-dsa-intermediate.pem");

/// A way to prove an identity: a key, a chain, the root, and the identity.
type Chain = (
    &'static [u8],
    &'static [&'static [u8]],
    &'static [u8],
    &'static str,
);

const MOON: &str = "moon.example.org";
const CHAINS: &[Chain] = &[
    (
        file!("certs/moon-rsa.key"),
        &[file!("certs/moon-rsa.pem")],
        ROOT,
        MOON,
    ),
    (
        file!("certs/moon-ecdsa256.key"),
        &[file!("certs/moon-ecdsa256.pem")],
        ROOT,
        MOON,
    ),
    (
        file!("certs/moon-ecdsa384.key"),
        &[file!("certs/moon-ecdsa384.pem")],
        ROOT,
        "moon@example.org",
    ),
    (
        file!("certs/moon-ecdsa521.key"),
        &[file!("certs/moon-ecdsa521.pem")],
        ROOT,
        MOON,
    ),
    (
        file!("certs/moon-ed25519.key"),
        &[file!("certs/moon-ed25519.pem")],
        ROOT,
        MOON,
    ),
    (
        file!("certs/moon-mldsa44.key"),
        &[file!("certs/moon-mldsa44.pem"), ML_DSA_INTERMEDIATE],
        ML_DSA_ROOT,
        MOON,
    ),
    (
        file!("certs/moon-mldsa65.key"),
        &[file!("certs/moon-mldsa65.pem"), ML_DSA_INTERMEDIATE],
        ML_DSA_ROOT,
        MOON,
    ),
    (
        file!("certs/moon-mldsa87.key"),
        &[file!("certs/moon-mldsa87.pem"), ML_DSA_INTERMEDIATE],
        ML_DSA_ROOT,
        MOON,
    ),
];

/// Labels of leaves in `vectors/paths/revocation.json`.
const LEAVES: [&str; 4] = ["leaf", "leaf-crl", "leaf-ocsp", "leaf-reasons"];

/// What one end has, and what the other demands.
#[derive(Clone)]
pub struct Proof {
    pub local: LocalMethod,
    pub remote: RemoteMethod,
    pub id: &'static str,
}

pub struct Material {
    pub proofs: Vec<Proof>,
    /// Stores with CRLs and answers, as the administrator has them or as they are fetched.
    pub stores: Vec<Arc<RevocationStore>>,
    pub attributes: Vec<Arc<AttributeStore>>,
    pub uri_bases: Vec<CertificateUriBase>,
    pub certificates: Vec<Certificate>,
}

static MATERIAL: LazyLock<Material> = LazyLock::new(Material::new);

impl Material {
    pub fn get() -> &'static Self {
        &MATERIAL
    }

    fn new() -> Self {
        let revocation = Vectors::new(include_str!("../../../vectors/paths/revocation.json"));
        let ocsp = Vectors::new(include_str!("../../../vectors/paths/ocsp.json"));
        let mut proofs: Vec<Proof> = CHAINS.iter().map(chain_proof).collect();
        proofs.extend([1, 4, 0].map(|at| raw_key_proof(&CHAINS[at])));
        for leaf in LEAVES {
            let chain = revocation.certificates(&[leaf, "ca"]);
            proofs.push(leaf_proof(
                &revocation,
                chain,
                &revocation.certificates(&["root"]),
            ));
        }
        let chain = ocsp.certificates(&["leaf", "ca"]);
        proofs.push(leaf_proof(&ocsp, chain, &ocsp.certificates(&["root"])));
        proofs.push(member_proof());
        proofs.push(several_proof(&revocation));
        proofs.push(pinned_proof());
        Self {
            proofs,
            stores: stores(&revocation, &ocsp),
            attributes: attribute_stores(),
            uri_bases: [ROOT, OTHER_ROOT]
                .map(|root| {
                    let base = "http://ca.example.org/".to_owned();
                    CertificateUriBase::new(load(root).remove(0), base)
                })
                .into(),
            certificates: CHAINS
                .iter()
                .flat_map(|(_, chain, ..)| load(&chain.concat()))
                .collect(),
        }
    }
}

pub fn load(pem: &[u8]) -> Vec<Certificate> {
    Certificate::from_file_content(pem).expect("a good file")
}

pub fn trusts(roots: &[Certificate]) -> RemoteMethod {
    RemoteMethod::Certificate {
        authorities: Arc::new(Authorities::named(roots, &[]).expect("good roots")),
        pinned: vec![],
        rules: Arc::default(),
        revocation: RevocationPolicy::Relaxed,
    }
}

fn signs(credential: Credential) -> LocalMethod {
    LocalMethod::Signature(vec![Arc::new(credential)])
}

fn chain_proof((key, chain, root, id): &Chain) -> Proof {
    let credential = Credential::new(key, load(&chain.concat())).expect("they belong together");
    Proof {
        local: signs(credential.with_authorities(&load(root))),
        remote: trusts(&load(root)),
        id,
    }
}

fn raw_key_proof((key, chain, _, id): &Chain) -> Proof {
    let public = load(chain[0]).remove(0).public_key().clone();
    let credential = Credential::without_certificate(key, public.clone());
    Proof {
        local: signs(credential.expect("they belong together")),
        remote: RemoteMethod::PublicKey {
            keys: vec![public],
            signatures: SchemeRules::default(),
        },
        id,
    }
}

fn leaf_proof(vectors: &Vectors, chain: Vec<Certificate>, root: &[Certificate]) -> Proof {
    let credential = Credential::new(vectors.leaf_key().as_bytes(), chain);
    let credential = credential.expect("they belong together");
    Proof {
        local: signs(credential.with_authorities(root)),
        remote: trusts(root),
        id: MOON,
    }
}

/// A member of groups, by attribute certificates.
fn member_proof() -> Proof {
    let (key, chain, root, id) = &CHAINS[1];
    let credential = Credential::new(key, load(&chain.concat())).expect("they belong together");
    let known = attributes(&[
        file!("attributes/research.pem"),
        file!("attributes/sales.pem"),
    ]);
    let mut remote = trusts(&load(root));
    if let RemoteMethod::Certificate { rules, .. } = &mut remote {
        *rules = Arc::new(CertificateRules {
            groups: vec!["Research".parse().expect("a group")],
            ..CertificateRules::default()
        });
    }
    Proof {
        local: signs(credential.with_attributes(&known)),
        remote,
        id,
    }
}

/// Two credentials, of which the second is asked for.
fn several_proof(vectors: &Vectors) -> Proof {
    let LocalMethod::Signature(mut own) = chain_proof(&CHAINS[1]).local else {
        unreachable!("a signature");
    };
    let root = vectors.certificates(&["root"]);
    let second = leaf_proof(vectors, vectors.certificates(&["leaf"]), &root);
    let LocalMethod::Signature(other) = second.local else {
        unreachable!("a signature");
    };
    own.extend(other);
    Proof {
        local: LocalMethod::Signature(own),
        remote: second.remote,
        id: MOON,
    }
}

fn pinned_proof() -> Proof {
    let mut proof = chain_proof(&CHAINS[4]);
    if let RemoteMethod::Certificate { pinned, .. } = &mut proof.remote {
        *pinned = load(CHAINS[4].1[0]);
    }
    proof
}

fn attributes(pems: &[&[u8]]) -> Vec<Arc<AttributeCertificate>> {
    let read = |pem: &&[u8]| AttributeCertificate::from_file_content(pem).expect("a good file");
    pems.iter().map(read).map(Arc::new).collect()
}

/// Stores of what proves groups.
fn attribute_stores() -> Vec<Arc<AttributeStore>> {
    let authority = |pem| AttributeAuthority::new(load(pem).remove(0)).expect("no CA");
    let known: [&[&[u8]]; 3] = [
        &[],
        &[
            file!("attributes/research.pem"),
            file!("attributes/sun.pem"),
        ],
        &[
            file!("attributes/expired.pem"),
            file!("attributes/not-yet.pem"),
            file!("attributes/renewed.pem"),
            file!("attributes/pss.pem"),
        ],
    ];
    known
        .map(|known| {
            let authorities = [
                file!("attributes/aa.pem"),
                file!("attributes/self.pem"),
                file!("attributes/aa-expired.pem"),
            ];
            let roots = load(file!("attributes/root.pem"));
            let store =
                AttributeStore::new(authorities.map(authority).into(), &roots, attributes(known));
            Arc::new(store.expect("good roots"))
        })
        .into()
}

/// Labels of CRLs of `revocation.json` that are known together.
const CRLS: &[&[&str]] = &[
    &["root", "empty"],
    &["root", "lists"],
    &["root-lists-ca"],
    &["root", "stale"],
    &["root", "hold", "delta-removes"],
    &["root", "users", "authorities"],
    &["root", "by-signer", "by-twin"],
    &["root", "critical", "unknown", "forged"],
    &["root", "point", "rest", "some"],
    &["root", "early", "older-lists", "newest"],
];
/// Labels of answers of `ocsp.json` that are known together.
const ANSWERS: &[&[&str]] = &[
    &["good"],
    &["lists"],
    &["delegated", "by-name"],
    &["unknown", "expired"],
    &["forged", "stranger", "skewed"],
    &["sha256", "about-other", "no-end"],
];

/// The first is empty, and the second fetches.
fn stores(revocation: &Vectors, ocsp: &Vectors) -> Vec<Arc<RevocationStore>> {
    let mut fetches = RevocationStore::default();
    fetches.set_fetches();
    let mut stores = vec![RevocationStore::default(), fetches];
    for labels in CRLS {
        let crls = labels.iter().flat_map(|label| revocation.crls(label));
        stores.push(RevocationStore::new(crls.collect()));
    }
    for labels in ANSWERS {
        let mut store = RevocationStore::new(ocsp.crls("root"));
        for label in *labels {
            store.add_answer(Arc::new(ocsp.answer(label)));
        }
        stores.push(store);
    }
    let mut expects = RevocationStore::default();
    expects.set_fetches();
    for vectors in [revocation, ocsp] {
        for label in ["root", "ca"] {
            expects.expect(AuthoritySources {
                authority: vectors.certificates(&[label])[0].subject().clone(),
                crls: vec!["http://crl.example.org/all".to_owned()],
                responders: vec!["http://ocsp.example.org/".to_owned()],
            });
        }
    }
    let responder = ocsp.certificates(&["delegate"]);
    expects
        .trust_responder(responder[0].der())
        .expect("a certificate");
    stores.push(expects);
    stores.into_iter().map(Arc::new).collect()
}

/// A file of `vectors/paths`.
struct Vectors(serde_json::Value);

impl Vectors {
    fn new(text: &str) -> Self {
        Self(serde_json::from_str(text).expect("good vectors"))
    }

    fn leaf_key(&self) -> &str {
        self.0["leaf_key"].as_str().expect("a key")
    }

    fn pem(&self, kind: &str, label: &str, word: &str) -> Vec<u8> {
        let base64 = self.0[kind][label].as_str().expect("a label");
        format!("-----BEGIN {word}-----\n{base64}\n-----END {word}-----\n").into_bytes()
    }

    fn certificates(&self, labels: &[&str]) -> Vec<Certificate> {
        let files = labels
            .iter()
            .map(|label| self.pem("certificates", label, "CERTIFICATE"));
        load(&files.collect::<Vec<_>>().concat())
    }

    fn crls(&self, label: &str) -> Vec<Arc<Crl>> {
        let crls = Crl::from_file_content(&self.pem("crls", label, "X509 CRL"));
        crls.expect("CRLs").into_iter().map(Arc::new).collect()
    }

    fn answer(&self, label: &str) -> OcspAnswer {
        let der = der_of(&self.0["answers"][label]).expect("a good file");
        OcspAnswer::from_der(&der).expect("an answer")
    }
}

/// The bytes of a string in Base64.
pub fn der_of(text: &serde_json::Value) -> Option<Vec<u8>> {
    let text = text.as_str()?;
    // The label says nothing about what is inside.
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    Some(der.to_vec())
}

/// Moon's Ed25519 key, which signs when it is told to.
#[derive(Debug)]
pub struct SlowKey {
    pair: Ed25519KeyPair,
    answers: Mutex<Poll<Result<(), String>>>,
}

impl SlowKey {
    pub fn new() -> Arc<Self> {
        let key = PrivateKeyDer::from_pem_slice(file!("certs/moon-ed25519.key")).expect("a key");
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_der()).expect("a key");
        let answers = Mutex::new(Poll::Pending);
        Arc::new(Self { pair, answers })
    }

    /// A credential with this key.
    pub fn proof(self: &Arc<Self>) -> Proof {
        let keys = vec![self.clone() as Arc<dyn ExternalKey>];
        let chain = load(file!("certs/moon-ed25519.pem"));
        Proof {
            local: signs(Credential::external(chain, keys).expect("a key that signs")),
            remote: trusts(&load(ROOT)),
            id: MOON,
        }
    }

    pub fn set(&self, choice: u8) {
        *self.answers.lock().expect("no panic before") = match choice % 3 {
            0 => Poll::Ready(Ok(())),
            1 => Poll::Ready(Err("the token is gone".to_owned())),
            _ => Poll::Pending,
        };
    }
}

impl ExternalKey for SlowKey {
    fn poll_sign(&self, request: &SigningRequest) -> Poll<Result<Vec<u8>, String>> {
        let answer = self.answers.lock().expect("no panic before").clone();
        answer.map(|result| result.map(|()| self.pair.sign(&request.input).as_ref().to_vec()))
    }
}
