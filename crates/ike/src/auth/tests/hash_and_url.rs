//! Certificates by hash and URL (RFC 7296 §3.6).

use esplanade_testkit::certificate_file as file;

use super::*;

fn base(authority: &[u8], base: &str) -> CertificateUriBase {
    CertificateUriBase::new(load(authority), base.to_owned())
}

#[test]
fn certificates_of_an_authority_are_named_by_their_hash() {
    let own = load(file!("moon-ecdsa256.pem"));
    let credential = credential("moon-ecdsa256", file!("moon-ecdsa256.key"));
    let sent = |bases: &[CertificateUriBase]| credential.certificates(bases).collect::<Vec<_>>();
    let whole = Cert {
        encoding: CertEncoding::X509_SIGNATURE,
        data: own.der().to_vec(),
    };
    let other = base(file!("other-root.pem"), "http://other.example.org/");
    assert_eq!(sent(&[]), std::slice::from_ref(&whole));
    assert_eq!(sent(std::slice::from_ref(&other)), [whole]);
    let digest = &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY;
    let hash = aws_lc_rs::digest::digest(digest, own.der());
    let hash = hash.as_ref();
    let uri = format!("http://ca.example.org/certs/{}", hex::encode(hash));
    let named = Cert {
        encoding: CertEncoding::HASH_AND_URL_X509,
        data: [hash, uri.as_bytes()].concat(),
    };
    let root = base(file!("root.pem"), "http://ca.example.org/certs/");
    assert_eq!(sent(&[other, root]), [named]);
}
