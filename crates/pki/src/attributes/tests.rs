//! Attribute certificates that strongSwan's `pki` has made (`vectors/generate_attributes.sh`), and others that are made
//! here of parts that `pki` does not write.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, SHA512, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, UnixTime};
use x509_cert::der::{Decode, Encode};

use super::*;
use crate::certificate::Certificate;
use crate::error::{FileError, PathError};
use crate::name::DistinguishedName;
use crate::revocation::{Revocation, RevocationPolicy, RevocationStore};
use crate::subject_name::SubjectName;
use crate::testing::load;

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../vectors/ike/",
            $name
        ))
        .as_slice()
    };
}

mod parts;

/// 2026-06-01.
const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_780_272_000));

static NOTHING_KNOWN: LazyLock<RevocationStore> = LazyLock::new(RevocationStore::default);

fn authority(pem: &[u8]) -> AttributeAuthority {
    AttributeAuthority::new(load(pem)).unwrap()
}

fn attributes(pem: &[u8]) -> AttributeCertificate {
    AttributeCertificate::from_file_content(pem).unwrap()
}

fn moon() -> Certificate {
    load(file!("certs/moon-ecdsa256.pem"))
}

/// A store with all authorities, and the authority above some of them.
fn store() -> AttributeStore {
    let authorities = vec![
        authority(file!("attributes/aa-renewed.pem")),
        authority(file!("attributes/aa.pem")),
        authority(file!("attributes/self.pem")),
    ];
    AttributeStore::new(authorities, &[load(file!("attributes/root.pem"))], vec![]).unwrap()
}

fn sent(all: &[&AttributeCertificate]) -> PeerAttributes {
    PeerAttributes::new(all.iter().map(|one| one.der()))
}

fn groups(names: &[&str]) -> Vec<GroupName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn is_gateway(name: &SubjectName<'_>) -> bool {
    *name == SubjectName::domain("gw.example.org")
}

fn terms(policy: RevocationPolicy) -> AttributeTerms<'static> {
    AttributeTerms {
        now: NOW,
        revocation: Revocation {
            policy,
            store: &NOTHING_KNOWN,
            asked: true,
        },
        is_ours: &is_gateway,
    }
}

type Proved = Result<Vec<GroupName>, Box<MembershipError>>;

/// Nobody is to be asked here.
fn proved(outcome: Result<Memberships, Box<MembershipError>>) -> Proved {
    outcome.map(|memberships| match memberships {
        Memberships::Proved(groups) => groups,
        Memberships::Needs(sources) => panic!("{sources:?}"),
    })
}

fn prove(store: &AttributeStore, all: &[&AttributeCertificate], wanted: &[&str]) -> Proved {
    let relaxed = terms(RevocationPolicy::Relaxed);
    proved(store.memberships(&mut sent(all), &moon(), &groups(wanted), &relaxed))
}

/// The reasons why attribute certificates do not prove that their holder does research.
fn refused(store: &AttributeStore, all: &[&AttributeCertificate]) -> Vec<AttributeError> {
    match prove(store, all, &["Research"]) {
        Err(error) => error.refused,
        Ok(proved) => panic!("{proved:?}"),
    }
}

#[test]
fn an_authority_proves_memberships() {
    for pem in [
        file!("attributes/research.pem"),
        file!("attributes/renewed.pem"),
        file!("attributes/pkcs1.pem"),
        file!("attributes/pss.pem"),
    ] {
        let proved = prove(&store(), &[&attributes(pem)], &["Sales", "research"]);
        assert_eq!(proved, Ok(groups(&["Research"])));
    }
    let both = [
        attributes(file!("attributes/research.pem")),
        attributes(file!("attributes/sales.pem")),
    ];
    let proved = prove(
        &store(),
        &[&both[0], &both[1]],
        &["Sales", "Development", "x"],
    );
    assert_eq!(proved, Ok(groups(&["Sales", "Development"])));
    assert_eq!(both[0].groups(), groups(&["Research", "Development"]));
}

#[test]
fn the_administrator_can_have_the_certificate() {
    let known = vec![
        Arc::new(attributes(file!("attributes/sun.pem"))),
        Arc::new(attributes(file!("attributes/research.pem"))),
    ];
    let authorities = vec![authority(file!("attributes/aa.pem"))];
    let store = AttributeStore::new(authorities, &[], known).unwrap();
    assert_eq!(prove(&store, &[], &["Research"]), Ok(groups(&["Research"])));
    let told = prove(&store, &[], &["Sales"]).unwrap_err().to_string();
    assert_eq!(
        told,
        "it takes one of the groups Sales, and those proved are Research, Development"
    );
}

#[test]
fn former_certificates_hide_no_valid_one() {
    let former = Arc::new(attributes(file!("attributes/expired.pem")));
    let mut known: Vec<_> = std::iter::repeat_n(former, 20).collect();
    known.push(Arc::new(attributes(file!("attributes/research.pem"))));
    let authorities = vec![authority(file!("attributes/aa.pem"))];
    let store = AttributeStore::new(authorities, &[], known).unwrap();
    assert_eq!(prove(&store, &[], &["Research"]), Ok(groups(&["Research"])));
}

#[test]
fn each_reason_is_told() {
    let research = attributes(file!("attributes/research.pem"));
    assert_eq!(refused(&store(), &[]), []);
    let told = prove(&store(), &[], &["Research", "Sales"]).unwrap_err();
    assert_eq!(
        told.to_string(),
        "it takes one of the groups Research, Sales, and the peer has no attribute certificate"
    );
    let reason = |pem| refused(&store(), &[&attributes(pem)]);
    assert_eq!(
        reason(file!("attributes/expired.pem")),
        [AttributeError::Expired("2026-02-01T00:00:00Z".into())]
    );
    assert_eq!(
        reason(file!("attributes/not-yet.pem")),
        [AttributeError::NotYetValid("2036-01-01T00:00:00Z".into())]
    );
    assert_eq!(
        reason(file!("attributes/sun.pem")),
        [AttributeError::OtherHolder]
    );
    let name = "O=Example, CN=attribute authority";
    // The issuer's certificate is known, but not as that of an attribute authority.
    let roots = [file!("attributes/root.pem"), file!("attributes/aa.pem")].map(load);
    let others = AttributeStore::new(
        vec![authority(file!("attributes/self.pem"))],
        &roots,
        vec![],
    );
    let unknown = AttributeError::UnknownIssuer(name.into());
    assert_eq!(
        refused(&others.unwrap(), &[&research]),
        std::slice::from_ref(&unknown)
    );
    // An authority of the same name has another key.
    let other_key = vec![authority(file!("attributes/aa-renewed.pem"))];
    let other_key = AttributeStore::new(other_key, &roots, vec![]).unwrap();
    assert_eq!(refused(&other_key, &[&research]), [unknown]);
    let mut changed = research.der().to_vec();
    let at = changed
        .windows(8)
        .position(|part| part == b"Research")
        .unwrap();
    changed[at..at + 8].copy_from_slice(b"Accounts");
    let changed = AttributeCertificate::from_der(&changed).unwrap();
    let forged = AttributeError::Signature {
        issuer: name.into(),
        why: "its signature does not verify",
    };
    assert_eq!(refused(&store(), &[&changed]), [forged]);
    let told = prove(&store(), &[&changed], &["Accounts"]).unwrap_err();
    assert!(
        told.to_string().ends_with("its signature does not verify"),
        "{told}"
    );
}

#[test]
fn the_issuer_has_a_valid_path_or_is_trusted_by_itself() {
    let research = attributes(file!("attributes/research.pem"));
    let wanted = groups(&["Research"]);
    let root = load(file!("attributes/root.pem"));
    let prove = |authority: &[u8], anchors: &[Certificate], pem: &[u8], policy| {
        let authorities = vec![AttributeAuthority::new(load(authority)).unwrap()];
        let store = AttributeStore::new(authorities, anchors, vec![]).unwrap();
        proved(store.memberships(
            &mut sent(&[&attributes(pem)]),
            &moon(),
            &wanted,
            &terms(policy),
        ))
    };
    let pem = file!("attributes/research.pem");
    for policy in [RevocationPolicy::Strict, RevocationPolicy::Relaxed] {
        let anchors = std::slice::from_ref(&root);
        let below = prove(file!("attributes/aa.pem"), anchors, pem, policy);
        assert_eq!(
            below.is_ok(),
            policy == RevocationPolicy::Relaxed,
            "{below:?}"
        );
        assert!(prove(file!("attributes/aa.pem"), &[], pem, policy).is_ok());
        let own = prove(
            file!("attributes/self.pem"),
            anchors,
            file!("attributes/pss.pem"),
            policy,
        );
        assert_eq!(own.as_ref(), Ok(&wanted));
        for anchors in [anchors, &[]] {
            match prove(file!("attributes/aa-expired.pem"), anchors, pem, policy) {
                Err(error) => assert!(
                    matches!(&error.refused[..], [AttributeError::Issuer(why)]
                        if matches!(**why, PathError::Expired { .. })),
                    "{error}"
                ),
                Ok(proved) => panic!("{proved:?}"),
            }
        }
    }
    assert!(research.is_of(&moon()));
}

#[test]
fn an_authority_issues_no_certificates() {
    let error = |pem| AttributeAuthority::new(load(pem)).unwrap_err();
    assert_eq!(
        error(file!("attributes/root.pem")),
        FileError::AttributesOfAuthority
    );
    assert_eq!(
        error(file!("certs/usage-key-encipherment.pem")),
        FileError::KeyUsage
    );
}

#[test]
fn several_connections_have_one_check_of_each_signature() {
    let store = store();
    let mut peer = sent(&[&attributes(file!("attributes/research.pem"))]);
    let relaxed = terms(RevocationPolicy::Relaxed);
    for _ in 0..1000 {
        let other = store.memberships(&mut peer, &moon(), &groups(&["Sales"]), &relaxed);
        assert!(other.is_err());
    }
    let own = store.memberships(&mut peer, &moon(), &groups(&["Research"]), &relaxed);
    assert_eq!(proved(own), Ok(groups(&["Research"])));
    // Another certificate of a peer is judged anew.
    let sun = load(file!("certs/sun.pem"));
    assert!(
        store
            .memberships(&mut peer, &sun, &groups(&["Research"]), &relaxed)
            .is_err()
    );
    assert!(
        store
            .memberships(&mut peer, &moon(), &groups(&["Research"]), &relaxed)
            .is_ok()
    );
}

#[test]
fn the_number_of_certificates_is_bounded() {
    let (other, right) = (
        attributes(file!("attributes/sales.pem")),
        attributes(file!("attributes/research.pem")),
    );
    let mut all = vec![&other; 7];
    all.push(&right);
    assert!(prove(&store(), &all, &["Research"]).is_ok());
    all.insert(0, &other);
    assert_eq!(refused(&store(), &all), [AttributeError::TooMany]);
}

#[test]
fn changed_bytes_prove_nothing() {
    let right = attributes(file!("attributes/research.pem"));
    for at in 0..right.der().len() {
        for bit in 0..8 {
            let mut der = right.der().to_vec();
            der[at] ^= 1 << bit;
            if let Ok(changed) = AttributeCertificate::from_der(&der) {
                let proved = prove(&store(), &[&changed], &["Research"]);
                assert!(proved.is_err(), "byte {at} bit {bit}");
            }
        }
        assert!(AttributeCertificate::from_der(&right.der()[..at]).is_err());
    }
}

#[test]
fn files_have_one_certificate() {
    let right = attributes(file!("attributes/research.pem"));
    assert_eq!(attributes(right.der()).der(), right.der());
    let read = |content: &[u8]| AttributeCertificate::from_file_content(content).unwrap_err();
    assert_eq!(
        read(file!("attributes/aa.pem")),
        FileError::NoAttributeCertificate
    );
    assert_eq!(read(b"\xff"), FileError::NoAttributeCertificate);
    assert!(matches!(read(b"nothing"), FileError::Pem(_)));
    assert!(matches!(read(moon().der()), FileError::Certificate(_)));
}

#[test]
fn names_of_groups() {
    let name = |text: &str| text.parse::<GroupName>();
    for text in ["", "*", "Re*", "%any", &"a".repeat(257)] {
        assert!(name(text).is_err(), "{text}");
    }
    assert_eq!(name("Research"), name("rESEARCH"));
    assert_ne!(name("Research"), name("Research "));
    assert_ne!(name("é"), name("É"));
    let all = vec!["a"; 100];
    let told = prove(&store(), &[], &all).unwrap_err().to_string();
    assert!(told.contains("a, a and 92 more, and the peer"), "{told}");
}
