//! Makes certificates and keys with openssl, in the folders that a configuration reads them from.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Options of `openssl req` for a new ECDSA key.
pub const NEW_ECDSA: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

/// Runs openssl in a folder. Returns false without openssl.
pub fn openssl(folder: &Path, arguments: &str) -> bool {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "openssl {arguments}: {output:?}");
            true
        }
        Err(_) => false,
    }
}

/// Writes a certificate for NAME.example.org, which the authority of the folder signs. `key` are options of
/// `openssl req`: an existing key, or a new one and its file. Returns false without openssl.
pub fn certify(folder: &Path, name: &str, key: &str, certificate: &str) -> bool {
    fs::write(
        folder.join("san"),
        format!("subjectAltName=DNS:{name}.example.org\nbasicConstraints=CA:FALSE\n"),
    )
    .unwrap();
    // The file of serial numbers lies outside of x509ca/, where only certificates belong.
    [
        format!("req {key} -out {name}.csr -subj /O=Example/CN={name}"),
        format!(
            "x509 -req -in {name}.csr -CA x509ca/ca.pem -CAkey ca.key -CAserial serial -CAcreateserial -days 30 \
             -extfile san -out {certificate}"
        ),
    ]
    .iter()
    .all(|step| openssl(folder, step))
}

/// Makes a folder with an authority, a gateway's certificate and its key. Returns `None` without
/// openssl.
pub fn folder() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for name in ["x509", "x509ca", "private"] {
        fs::create_dir(at.join(name)).unwrap();
    }
    let authority = format!(
        "req -x509 {NEW_ECDSA} -keyout ca.key -out x509ca/ca.pem -days 30 -subj /O=Example/CN=ca"
    );
    let key = format!("{NEW_ECDSA} -keyout private/moon.pem");
    let made = openssl(at, &authority)
        && certify(at, "moon", &key, "x509/moon.pem")
        && openssl(at, "genpkey -algorithm ed25519 -out private/other.pem");
    if !made {
        println!(
            "SKIP {}: openssl is not installed",
            env!("CARGO_CRATE_NAME")
        );
        return None;
    }
    Some(folder)
}
