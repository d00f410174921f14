//! Files with certificates and keys, and the names in them.

use crate::certificate::Certificate;
use crate::error::FileError;
use crate::public_key::PublicKey;
use crate::testing::load;
use esplanade_testkit::certificate_file as file;

mod sets;

#[test]
fn keys_of_unknown_kinds_are_refused_by_name() {
    // Made by OpenSSL 3.0.22: `openssl genpkey -algorithm ed448`.
    let ed448 = b"-----BEGIN PUBLIC KEY-----\n\
        MEMwBQYDK2VxAzoAx4MHU42Zqx7+O6KGT40cIcaPShAZl9dDKd+samiHcq2NDywp\n\
        NlEwIVTVaRICAmN2HT8Y2jj23bCA\n-----END PUBLIC KEY-----\n";
    let refused = PublicKey::from_file_content(ed448).unwrap_err();
    assert!(matches!(&refused, FileError::KeyType(kind) if kind == "Ed448"));
    assert!(
        refused
            .to_string()
            .starts_with("a Ed448 key is not supported: use RSA")
    );
}

#[test]
fn certificate_files_are_checked() {
    assert_eq!(
        Certificate::from_file_content(b"nothing").unwrap_err(),
        FileError::NoCertificate
    );
    let both = [file!("moon-rsa.pem"), file!("root.pem")].concat();
    assert_eq!(Certificate::from_file_content(&both).unwrap().len(), 2);
    let der = load(file!("root.pem")).der().to_vec();
    assert_eq!(load(&der).der(), der);
    for len in 1..der.len() {
        assert!(Certificate::from_file_content(&der[..len]).is_err());
    }
}
