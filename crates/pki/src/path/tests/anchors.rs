//! Which of the administrator's certificates are anchors, and what holds for the others.

use super::*;

fn trust(ders: &[Vec<u8>]) -> Anchors {
    Anchors::new(ders.iter().map(Vec::as_slice)).unwrap()
}

fn named(named: &[Vec<u8>], known: &[Vec<u8>]) -> Anchors {
    Anchors::named(
        named.iter().map(Vec::as_slice),
        known.iter().map(Vec::as_slice),
    )
    .unwrap()
}

fn verify(
    anchors: &Anchors,
    ders: &[Vec<u8>],
    now: UnixTime,
    policy: RevocationPolicy,
    store: &RevocationStore,
) -> Result<Vec<StatusSource>, PathError> {
    let revocation = Revocation {
        policy,
        store,
        asked: false,
    };
    let rules = PathRules::default();
    anchors.verify(&mut chain_of(ders, Vec::new()), now, &rules, &revocation)
}

/// The root's word on an intermediate authority counts, also if the administrator has the certificate of that.
#[test]
fn an_intermediate_beside_its_root_can_be_revoked() {
    use RevocationPolicy::{Relaxed, Strict};
    let (file, now) = revocation_file();
    let certificates = |labels: &[&str]| ders(&file, "certificates", labels);
    let both = certificates(&["ca", "root"]);
    for anchors in [trust(&both), named(&both[..1], &both[1..])] {
        assert_eq!(anchors.len(), 1);
        for chain in [certificates(&["leaf"]), certificates(&["leaf", "ca"])] {
            let verify = |policy, crls: &[&str]| {
                verify(&anchors, &chain, now, policy, &store_of(&file, crls))
            };
            assert_eq!(verify(Strict, &["root", "empty"]), Ok(vec![]));
            let revoked = verify(Relaxed, &["root-lists-ca", "empty"]).unwrap_err();
            let says = "\"O=Example, CN=ca\" (serial number 22) was revoked";
            assert!(revoked.to_string().contains(says), "{revoked}");
            let unknown = verify(Strict, &["empty"]).unwrap_err();
            let says = "whether certificate \"O=Example, CN=ca\" is revoked";
            assert!(unknown.to_string().contains(says), "{unknown}");
        }
    }
}

#[test]
fn the_limits_of_a_root_hold_for_an_intermediate_beside_it() {
    let (file, now) = openssl_file();
    let cases = file["cases"].as_array().unwrap();
    let mut tried = 0;
    for case in cases {
        let title = case["name"].as_str().unwrap();
        if !title.starts_with("root's pathLen") && !title.starts_with("root: ") {
            continue;
        }
        let labels = case["chain"].as_array().unwrap();
        let certificates = |label: &Value| der(&file, "certificates", label);
        let chain: Vec<_> = labels.iter().map(certificates).collect();
        let all = [&chain[1..], &[certificates(&case["root"])]].concat();
        let store = RevocationStore::default();
        let relaxed = RevocationPolicy::Relaxed;
        let verdict = verify(&trust(&all), &chain[..1], now, relaxed, &store);
        let expected = case.get("valid").unwrap_or(&case["openssl"]);
        assert_eq!(
            Some(verdict.is_ok()),
            expected.as_bool(),
            "{title}: {verdict:?}"
        );
        tried += 1;
    }
    assert!(tried > 40);
}

#[test]
fn authorities_that_certify_each_other_are_no_anchors() {
    let (file, now) = openssl_file();
    let chain = ders(
        &file,
        "certificates",
        &["loop-2-peer", "loop-2-0", "loop-2-1"],
    );
    for anchors in [trust(&chain[1..]), named(&chain[1..], &[])] {
        assert_eq!((anchors.len(), anchors.rootless().len()), (0, 2));
        let store = RevocationStore::default();
        let refused = verify(&anchors, &chain, now, RevocationPolicy::Relaxed, &store);
        assert_eq!(refused, Err(PathError::UnknownIssuer));
    }
    let with_root = ders(
        &file,
        "certificates",
        &["loop-2-0", "loop-2-1", "loop-2-root"],
    );
    let anchors = trust(&with_root);
    assert_eq!((anchors.len(), anchors.rootless().len()), (1, 2));
    let out = ders(
        &file,
        "certificates",
        &["loop-2-0", "loop-2-out", "loop-2-root"],
    );
    assert!(trust(&out).rootless().is_empty());
}

/// The configuration names an intermediate authority, and does not know who is above it.
#[test]
fn a_named_authority_ends_a_path_where_its_issuer_is_not_known() {
    let (file, now) = revocation_file();
    let certificates = |labels: &[&str]| ders(&file, "certificates", labels);
    let (ca, root) = (certificates(&["ca"]), certificates(&["root"]));
    let leaf = certificates(&["leaf"]);
    let crls = store_of(&file, &["root-lists-ca", "empty"]);
    let relaxed = RevocationPolicy::Relaxed;
    assert_eq!(
        verify(&named(&ca, &[]), &leaf, now, relaxed, &crls),
        Ok(vec![])
    );
    let unknown = verify(&trust(&ca), &leaf, now, relaxed, &crls);
    assert_eq!(unknown, Err(PathError::UnknownIssuer));
    assert_eq!(trust(&ca).rootless().len(), 1);
    // This path does not have it.
    let beside = certificates(&["ca-signer"]);
    assert!(verify(&trust(&root), &beside, now, relaxed, &crls).is_ok());
    let refused = verify(&named(&ca, &root), &beside, now, relaxed, &crls).unwrap_err();
    assert!(
        refused.to_string().contains("one of `cacerts`"),
        "{refused}"
    );
}

/// An authority of the same name is another one if it has another key.
#[test]
fn an_anchor_of_the_same_name_signs_no_crls() {
    use RevocationPolicy::{Relaxed, Strict};
    let (file, now) = revocation_file();
    let anchors = trust(&ders(&file, "certificates", &["root", "ca-twin"]));
    assert_eq!(anchors.len(), 2);
    let chain = ders(&file, "certificates", &["leaf", "ca", "ca-twin"]);
    let verify =
        |policy, crls: &[&str]| verify(&anchors, &chain, now, policy, &store_of(&file, crls));
    assert_eq!(verify(Relaxed, &["root", "by-twin-lists"]), Ok(vec![]));
    assert!(verify(Strict, &["root", "by-twin"]).is_err());
    assert!(verify(Strict, &["root", "by-twin", "empty"]).is_ok());
}

/// The administrator vouches for the certificate, and the issuer can take it back.
#[test]
fn a_certificate_without_a_path_can_be_revoked() {
    use RevocationPolicy::{Relaxed, Strict};
    let (file, now) = revocation_file();
    let anchors = trust(&ders(&file, "certificates", &["ca"]));
    let leaf = ders(&file, "certificates", &["leaf"]);
    let verify = |anchors: &Anchors, policy, crls: &[&str]| {
        let store = &store_of(&file, crls);
        let revocation = Revocation {
            policy,
            store,
            asked: false,
        };
        let rules = PathRules::default();
        chain_of(&leaf, Vec::new()).verify_alone(anchors, now, &rules, &revocation)
    };
    assert_eq!(verify(&anchors, Strict, &["empty"]), Ok(vec![]));
    assert_eq!(verify(&anchors, Relaxed, &[]), Ok(vec![]));
    assert!(verify(&anchors, Strict, &[]).is_err());
    let revoked = verify(&anchors, Relaxed, &["lists"]).unwrap_err();
    assert!(matches!(revoked, PathError::Revoked { .. }), "{revoked}");
    let nobody = Anchors::default();
    assert_eq!(verify(&nobody, Relaxed, &["lists"]), Ok(vec![]));
    assert!(verify(&nobody, Strict, &["empty"]).is_err());
}
