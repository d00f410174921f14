//! A limit that runs out refuses the peer. It never stands for an answer.

use super::*;
use crate::limit::Limit;

type Verdict = Result<Vec<StatusSource>, PathError>;

const KINDS: [fn(&mut Limits) -> &mut Limit; 4] = [
    |limits| &mut limits.signatures,
    |limits| &mut limits.own_signatures,
    |limits| &mut limits.steps,
    |limits| &mut limits.comparisons,
];

/// Checks with less and less of each kind of work. Returns how often a limit ran out. `verify` gets a chain and a store that
/// remember no signature.
fn check_limits(name: &str, verify: impl Fn(Option<&dyn Fn(&mut Limits)>) -> Verdict) -> usize {
    let full = verify(None);
    let mut exhausted = 0;
    for kind in KINDS {
        for left in 0.. {
            let verdict = verify(Some(&|limits: &mut Limits| {
                *kind(limits) = Limit::new(left, "tests");
            }));
            if verdict == full {
                break;
            }
            assert_eq!(verdict, Err(PathError::TooMuchWork("tests")), "{name}");
            assert!(left < 1000, "{name}");
            exhausted += 1;
        }
    }
    exhausted
}

#[test]
fn of_answers_of_responders() {
    let (file, now) = ocsp_file();
    let anchors = one_anchor(&der(&file, "certificates", &"root".into()));
    let mut exhausted = 0;
    for case in file["cases"].as_array().unwrap() {
        for sent in [true, false] {
            for policy in [RevocationPolicy::Strict, RevocationPolicy::Relaxed] {
                exhausted += check_limits(case["name"].as_str().unwrap(), |limit| {
                    let (store, mut chain) = ocsp_case(&file, case, sent);
                    if let Some(limit) = limit {
                        limit(&mut chain.limits);
                    }
                    let revocation = Revocation {
                        policy,
                        store: &store,
                        asked: true,
                    };
                    let rules = PathRules::default();
                    let verdict = anchors.verify(&mut chain, now, &rules, &revocation);
                    let is_final = matches!(verdict, Err(PathError::TooMuchWork(_)));
                    assert!(!is_final || chain.check_verdict().is_err());
                    verdict
                });
            }
        }
    }
    assert!(exhausted > 500, "{exhausted}");
}

#[test]
fn of_paths_and_name_constraints() {
    let (file, now) = openssl_file();
    let mut exhausted = 0;
    for case in file["cases"].as_array().unwrap().iter().step_by(3) {
        let certificate = |label: &Value| der(&file, "certificates", label);
        let chain: Vec<_> = case["chain"]
            .as_array()
            .unwrap()
            .iter()
            .map(certificate)
            .collect();
        let root = certificate(&case["root"]);
        exhausted += check_limits(case["name"].as_str().unwrap(), |limit| {
            let mut chain = chain_of(&chain, Vec::new());
            if let Some(limit) = limit {
                limit(&mut chain.limits);
            }
            let store = RevocationStore::default();
            let revocation = Revocation {
                policy: RevocationPolicy::Relaxed,
                store: &store,
                asked: false,
            };
            one_anchor(&root).verify(&mut chain, now, &PathRules::default(), &revocation)
        });
    }
    assert!(exhausted > 500, "{exhausted}");
}

#[test]
fn of_crls_that_another_key_has_signed() {
    let (file, now) = revocation_file();
    let chain = ders(&file, "certificates", &["leaf", "ca", "ca-signer"]);
    for (crl, accepted) in [("by-signer", true), ("by-signer-lists", false)] {
        let exhausted = check_limits(crl, |limit| {
            let mut chain = chain_of(&chain, Vec::new());
            if let Some(limit) = limit {
                limit(&mut chain.limits);
            }
            let store = store_of(&file, &["root", crl]);
            let revocation = Revocation {
                policy: RevocationPolicy::Relaxed,
                store: &store,
                asked: false,
            };
            let anchors = one_anchor(&der(&file, "certificates", &"root".into()));
            let rules = PathRules::default();
            let verdict = anchors.verify(&mut chain, now, &rules, &revocation);
            assert!(verdict.is_err() || accepted);
            verdict
        });
        assert!(exhausted >= 3);
    }
}
