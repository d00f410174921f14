//! Answers of OCSP responders that the peer sends, and what else it sends to hide a revocation.

use rustls_pki_types::UnixTime;

use super::*;

fn answers(file: &Value, labels: &[&str]) -> Vec<OcspAnswer> {
    let ders = ders(file, "answers", labels).into_iter();
    ders.map(|der| OcspAnswer::from_der(&der).unwrap())
        .collect()
}

fn store(file: &Value, own: &[&str]) -> RevocationStore {
    let mut store = store_of(file, &["root"]);
    for answer in answers(file, own) {
        store.add_answer(Arc::new(answer));
    }
    store
}

fn verify(
    file: &Value,
    now: UnixTime,
    chain: &mut Chain,
    policy: RevocationPolicy,
    store: &RevocationStore,
    asked: bool,
) -> Result<Vec<StatusSource>, PathError> {
    let anchors = one_anchor(&der(file, "certificates", &"root".into()));
    let revocation = Revocation {
        policy,
        store,
        asked,
    };
    anchors.verify(chain, now, &PathRules::default(), &revocation)
}

#[test]
fn unasked_answers_only_revoke() {
    use RevocationPolicy::{Relaxed, Strict};
    let (file, now) = ocsp_file();
    let chain = || ders(&file, "certificates", &["leaf", "ca"]);
    for (sent, revokes) in [
        (&["good"][..], false),
        (&["delegated"], false),
        (&["good-newest"], false),
        (&["lists"], true),
        (&["delegated-lists"], true),
        (&["lists-old"], true),
        (&["lists", "good-newest"], true),
        (&["stranger-lists"], false),
    ] {
        let mut store = store(&file, &[]);
        let verify = |store: &RevocationStore, policy| {
            let mut chain = chain_of(&chain(), answers(&file, sent));
            verify(&file, now, &mut chain, policy, store, false)
        };
        assert!(verify(&store, Strict).is_err(), "{sent:?}");
        assert_eq!(verify(&store, Relaxed).is_err(), revokes, "{sent:?}");
        // The gateway asks all the same.
        store.set_fetches();
        match verify(&store, Relaxed) {
            Ok(sources) => assert!(!sources.is_empty() && !revokes, "{sent:?}"),
            Err(error) => assert!(revokes, "{sent:?}: {error}"),
        }
    }
}

#[test]
fn an_answer_of_the_peer_takes_no_revocation_back() {
    let (file, now) = ocsp_file();
    let chain = ders(&file, "certificates", &["leaf", "ca"]);
    for (own, sent, revoked) in [
        ("lists", "good-newest", true),
        ("delegated-lists", "good-newest", true),
        ("good", "lists", true),
        ("good-older", "delegated-lists", true),
        // The gateway knows a later word.
        ("good-newest", "lists", false),
        ("good-newest", "lists-old", false),
    ] {
        let store = store(&file, &[own]);
        let mut chain = chain_of(&chain, answers(&file, &[sent]));
        let relaxed = RevocationPolicy::Relaxed;
        let verdict = verify(&file, now, &mut chain, relaxed, &store, true);
        assert_eq!(verdict.is_err(), revoked, "{own}, {sent}: {verdict:?}");
        assert_eq!(chain.check_verdict().is_err(), revoked);
    }
}

/// The peer sends a second way to the root, authorities of its issuer's name and answers that nobody has signed.
#[test]
fn no_number_of_made_up_certificates_hides_a_revocation() {
    let (file, now) = ocsp_file();
    let flood = |kind: &str| -> Vec<Vec<u8>> {
        let labels = file["flood"][kind].as_array().unwrap().iter();
        let wrapped = labels.map(|text| serde_json::json!({"flood": {"one": text}}));
        wrapped
            .map(|file| der(&file, "flood", &"one".into()))
            .collect()
    };
    let real = ders(&file, "certificates", &["leaf", "ca", "root"]);
    let behind = [real.clone(), flood("certificates")].concat();
    let in_front = [&real[..1], &flood("certificates"), &real[1..]].concat();
    for own in ["lists", "delegated-lists"] {
        for ders in [&behind, &in_front] {
            for asked in [true, false] {
                let answers = flood("answers").into_iter();
                let answers = answers.map(|der| OcspAnswer::from_der(&der).unwrap());
                let mut chain = chain_of(ders, answers.collect());
                let policy = RevocationPolicy::Relaxed;
                let refused = verify(&file, now, &mut chain, policy, &store(&file, &[own]), asked);
                match refused.unwrap_err() {
                    PathError::Revoked { .. } => {}
                    other => assert!(ders == &in_front, "{other}"),
                }
                // Whatever the next connection knows.
                let again = verify(&file, now, &mut chain, policy, &store(&file, &[]), asked);
                assert!(again.is_err());
            }
        }
    }
}
