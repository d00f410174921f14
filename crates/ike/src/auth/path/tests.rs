//! The verdicts of OpenSSL on generated paths, and those of NIST on PKITS.

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};
use serde_json::Value;

use super::super::rules::KeyPurposes;
use super::*;

fn check(text: &str) -> usize {
    let file: Value = serde_json::from_str(text).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(file["now"].as_u64().unwrap()));
    let der = |label: &Value| {
        let text = &file["certificates"][label.as_str().unwrap()];
        let text = text.as_str().unwrap();
        let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    };
    let rules = CertificateRules {
        purposes: KeyPurposes::Ike,
        ..CertificateRules::default()
    };
    let cases = file["cases"].as_array().unwrap();
    let wrong: Vec<_> = cases
        .iter()
        .filter_map(|case| {
            let chain: Vec<_> = case["chain"].as_array().unwrap().iter().map(der).collect();
            let chain: Vec<_> = chain.iter().map(AsRef::as_ref).collect();
            let root = der(&case["root"]);
            let anchors = Anchors::new(std::iter::once(root.as_ref())).unwrap();
            let chain = Chain::new(chain[0], &chain[1..]).map_err(PeerAuthError::Malformed);
            let result = chain.and_then(|mut chain| anchors.verify(&mut chain, now, &rules));
            let valid = case.get("valid").unwrap_or(&case["openssl"]);
            (valid.as_bool() != Some(result.is_ok()))
                .then(|| format!("{}: {result:?}, {}", case["name"], case["openssl_says"]))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    cases.len()
}

#[test]
fn paths_are_judged_as_openssl_does() {
    let count = check(include_str!("../../../../../vectors/paths/openssl.json"));
    assert!(count > 200);
}

#[test]
fn paths_are_judged_as_nist_does() {
    let count = check(include_str!("../../../../../vectors/paths/pkits.json"));
    assert!(count > 100);
}
