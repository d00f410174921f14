//! Attribute certificates that we send (RFC 5755).

use std::sync::Arc;

use esplanade_pki::attributes::AttributeCertificate;

use esplanade_testkit::certificate_file as file;

use super::*;

macro_rules! attributes_file {
    ($name:literal) => {
        include_bytes!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../vectors/ike/attributes/",
            $name
        ))
        .as_slice()
    };
}

#[test]
fn our_own_are_sent_while_they_are_valid() {
    let certificates = [
        attributes_file!("research.pem"),
        attributes_file!("expired.pem"),
        attributes_file!("sun.pem"),
        attributes_file!("sales.pem"),
    ];
    let known: Vec<_> = certificates
        .map(|pem| Arc::new(AttributeCertificate::from_file_content(pem).unwrap()))
        .into();
    let certificate = || load(file!("moon-ecdsa256.pem"));
    let own = || Credential::new(file!("moon-ecdsa256.key"), vec![certificate()]).unwrap();
    let sent = own().with_attributes(&known).attribute_certificates(now());
    let der = |at: usize| Cert {
        encoding: CertEncoding::X509_ATTRIBUTE,
        data: known[at].der().to_vec(),
    };
    assert_eq!(sent, [der(0), der(3)]);
    assert!(own().attribute_certificates(now()).is_empty());
    let many = vec![known[0].clone(); 100];
    let sent = own().with_attributes(&many).attribute_certificates(now());
    assert_eq!(sent.len(), 8);
}
