//! Reads certificates and private keys, made by openssl, from the folders beside the configuration.

mod certificates;
#[path = "config/every_key.rs"]
mod every_key;
mod program;

use std::fs;
use std::path::Path;

use certificates::{folder, openssl};
use esplanade::config::{Diagnostics, Loaded, load};
use esplanade_ike::auth::{Identity, certreq};
use esplanade_ike::config::{CertificateRules, LocalMethod, RemoteMethod};
use esplanade_pki::KeyPurposes;

fn read(folder: &Path, local: &str, remote: &str, secrets: &str) -> Result<Loaded, Diagnostics> {
    let path = folder.join("esplanade.conf");
    fs::write(
        &path,
        format!(
            "connections {{ site {{ remote_addrs = 198.51.100.1\n local {{ {local}\n }}\n remote {{ {remote}\n }} }} }}\n\
             secrets {{ {secrets} }}\n"
        ),
    )
    .unwrap();
    load(&path)
}

#[test]
fn keys_are_found_by_the_certificate() {
    let Some(folder) = folder() else { return };
    let loaded = read(
        folder.path(),
        "certs = moon.pem\n id = moon.example.org",
        "cacerts = ca.pem\n id = sun.example.org",
        "",
    )
    .unwrap_or_else(|errors| panic!("{errors}"));
    let connection = &loaded.ike.connections[0];
    assert!(matches!(connection.local.method, LocalMethod::Signature(_)));
    assert!(matches!(
        connection.remote.method,
        RemoteMethod::Certificate { .. }
    ));
    // A connection that names no authority trusts every authority of the folder.
    assert!(read(folder.path(), "certs = moon.pem", "id = %any", "").is_ok());
}

/// Encrypts the private key of the folder in each form that openssl knows.
#[test]
fn encrypted_keys_are_opened_by_their_passphrase() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    fs::rename(at.join("private/moon.pem"), at.join("plain.pem")).unwrap();
    for step in [
        "pkcs8 -topk8 -in plain.pem -out private/moon.key -passout pass:x -v2 aes-256-cbc",
        "pkcs8 -topk8 -in plain.pem -out private/moon.key -passout pass:x -v2 aes-128-cbc -v2prf hmacWithSHA256",
        "pkcs8 -topk8 -in plain.pem -out private/moon.key -passout pass:x -v2 des3",
        "pkcs8 -topk8 -in plain.pem -out private/moon.key -passout pass:x -outform DER -v2 aes-256-cbc",
        "ec -in plain.pem -out private/moon.key -passout pass:x -aes128",
        "ec -in plain.pem -out private/moon.key -passout pass:x -des3",
    ] {
        openssl(at, step);
        let secrets = "private-moon { file = moon.key\n secret = x\n }";
        let loaded = read(at, "certs = moon.pem", "cacerts = ca.pem", secrets);
        loaded.unwrap_or_else(|errors| panic!("{step}: {errors}"));
    }
}

/// How often a passphrase is hashed stands in the file. IKE would wait for it.
#[test]
fn passphrases_are_not_hashed_without_end() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    fs::create_dir(at.join("pkcs12")).unwrap();
    let key = "pkcs8 -topk8 -in private/other.pem -passout pass:x -out private/slow.key";
    let container = "pkcs12 -export -inkey private/moon.pem -in x509/moon.pem -passout pass:x -out pkcs12/slow.p12";
    for (step, secret, wanted) in [
        (
            format!("{key} -iter 2000001"),
            "private { file = slow.key",
            2_000_001,
        ),
        (
            format!("{key} -iter 2000001 -outform DER"),
            "private { file = slow.key",
            2_000_001,
        ),
        (
            format!("{container} -iter 700000"),
            "pkcs12 { file = slow.p12",
            2_100_000,
        ),
    ] {
        openssl(at, &step);
        let secrets = format!("{secret}\n secret = x\n }}");
        let refused = read(at, "certs = moon.pem", "cacerts = ca.pem", &secrets).unwrap_err();
        let shown = refused.render(false);
        let why =
            format!("its passphrase is to be hashed {wanted} times, and 2000000 times are left");
        assert!(
            shown.contains(&why) && shown.contains("with fewer iterations"),
            "{step}: {shown}"
        );
    }
    // The bound holds for all files together, and for the right passphrase as for a wrong one.
    openssl(at, &format!("{key} -iter 3"));
    openssl(at, &format!("{container} -iter 666666"));
    let both =
        "private { file = slow.key\n secret = x\n }\n pkcs12 { file = slow.p12\n secret = x\n }";
    let refused = read(at, "certs = moon.pem", "cacerts = ca.pem", both).unwrap_err();
    assert!(
        refused.render(false).contains("1999997 times are left"),
        "{refused}"
    );
}

const PKCS12: &str = "pkcs12 -export -inkey private/moon.pem -in x509/moon.pem -certfile x509ca/ca.pem -out pkcs12/moon.p12 \
                      -passout pass:x";

#[test]
fn a_pkcs12_file_without_a_key_is_refused() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    fs::create_dir(at.join("pkcs12")).unwrap();
    let container = "pkcs12 -export -nokeys -in x509/moon.pem -passout pass:x -out pkcs12/moon.p12";
    openssl(at, container);
    let secrets = "pkcs12-moon { file = moon.p12\n secret = x\n }";
    let refused = read(at, "auth = pubkey", "cacerts = ca.pem", secrets).unwrap_err();
    let shown = refused.render(false);
    assert!(shown.contains("it contains no private key"), "{shown}");
}

#[test]
fn a_pkcs12_file_has_key_and_certificates() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    fs::create_dir(at.join("pkcs12")).unwrap();
    openssl(at, PKCS12);
    fs::remove_dir_all(at.join("private")).unwrap();
    fs::remove_dir_all(at.join("x509")).unwrap();
    let secrets = "pkcs12-moon { file = moon.p12\n secret = x\n }";
    for local in ["auth = pubkey", "id = moon.example.org"] {
        let loaded = read(at, local, "cacerts = ca.pem", secrets).unwrap();
        let method = &loaded.ike.connections[0].local.method;
        let LocalMethod::Signature(credentials) = method else {
            panic!("{method:?}")
        };
        let credential = &credentials[0];
        assert_eq!(credential.identity().to_string(), "O=Example, CN=moon");
        assert_eq!(credential.certificates(&[]).count(), 2, "the chain follows");
    }
    let refused = read(at, "id = sun.example.org", "cacerts = ca.pem", secrets).unwrap_err();
    assert!(
        refused
            .render(false)
            .contains("has no certificate of its own")
    );
}

#[test]
fn demands_on_the_peers_certificate_are_read() {
    let Some(folder) = folder() else { return };
    let rules = |local: &str, remote: &str| {
        let loaded = read(
            folder.path(),
            &format!("certs = moon.pem\n {local}"),
            remote,
            "",
        );
        let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}"));
        match &loaded.ike.connections[0].remote.method {
            RemoteMethod::Certificate { rules, .. } => (**rules).clone(),
            _ => panic!("not a certificate"),
        }
    };
    assert_eq!(rules("", ""), CertificateRules::default());
    assert_eq!(rules("", "auth = ecdsa"), CertificateRules::default());
    let expected = CertificateRules {
        purposes: KeyPurposes::Ike,
        signatures: "rsa-3072-sha384".parse().unwrap(),
        policies: vec!["1.2.3.4".parse().unwrap(), "1.2.3.5".parse().unwrap()],
        authority: Some("O=Example, CN=*".parse().unwrap()),
        groups: vec![],
        known_need_no_path: false,
    };
    let text = "auth = rsa-3072-sha384\n eku = strict\n cert_policy = 1.2.3.4, 1.2.3.5\n \
                ca_id = \"O=Example, CN=*\"";
    assert_eq!(rules("auth = ike:ecdsa-sha256", text), expected);
}

#[test]
fn a_certificate_that_others_refuse_for_its_purpose_is_told() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    fs::write(
        at.join("eku"),
        "subjectAltName=DNS:moon.example.org\nextendedKeyUsage=serverAuth\n",
    )
    .unwrap();
    let step = "x509 -req -in moon.csr -CA x509ca/ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile eku \
                -out x509/web.pem";
    assert!(openssl(at, step));
    for (certificate, told) in [("moon.pem", false), ("web.pem", true)] {
        let loaded = read(at, &format!("certs = {certificate}"), "", "").unwrap();
        let warnings = loaded.warnings.render(false);
        assert_eq!(
            warnings.contains("does not have ipsecIKE"),
            told,
            "{warnings}"
        );
    }
}

/// What `check` says about the configuration that was read last.
fn checked(folder: &Path) -> String {
    let path = folder.join("esplanade.conf");
    let output = program::esplanade(&["check", path.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    program::text(&output.stderr).to_owned()
}

/// Makes a CRL of the authority, which lists the gateway's certificate.
fn make_crl(folder: &Path, file: &str) {
    fs::write(
        folder.join("ca.conf"),
        "[ca]\ndefault_ca=d\n[d]\ndatabase=index\ndefault_md=sha256\ndefault_crl_days=30\ncrlnumber=crlnumber\n",
    )
    .unwrap();
    if !folder.join("index").exists() {
        fs::write(folder.join("index"), "").unwrap();
        fs::write(folder.join("crlnumber"), "0a\n").unwrap();
        let signer = "ca -config ca.conf -cert x509ca/ca.pem -keyfile ca.key";
        openssl(
            folder,
            &format!("{signer} -revoke x509/moon.pem -crl_reason superseded"),
        );
    }
    let signer = "ca -config ca.conf -cert x509ca/ca.pem -keyfile ca.key";
    openssl(folder, &format!("{signer} -gencrl -out {file}"));
}

#[test]
fn check_says_where_nothing_is_known_of_revocation() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    for (remote, warns) in [
        ("", true),
        ("revocation = relaxed", true),
        ("revocation = ifuri", false),
        ("revocation = strict", false),
    ] {
        read(at, "certs = moon.pem", remote, "").unwrap();
        let warned = checked(at).contains("revoked is still accepted");
        assert_eq!(warned, warns, "{remote}");
    }
    read(at, "certs = moon.pem", "", "").unwrap();
    fs::create_dir(at.join("x509crl")).unwrap();
    make_crl(at, "x509crl/ca.pem");
    assert!(!checked(at).contains("revo"));
    fs::write(at.join("x509crl/README"), "CRLs").unwrap();
    assert!(checked(at).contains("README`: no CRL in the file"));
}

#[test]
fn crls_come_from_the_folder_and_from_uris() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    let read = |authorities: &str| {
        read(at, "certs = moon.pem", "", "").unwrap();
        let path = at.join("esplanade.conf");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}authorities {{\n{authorities}\n}}\n")).unwrap();
        load(&path)
    };
    let numbers = |loaded: &Loaded| -> Vec<_> {
        let crls = loaded.ike.revocation.crls().iter();
        crls.map(|crl| (crl.number().unwrap(), crl.entries()))
            .collect()
    };
    fs::create_dir(at.join("x509crl")).unwrap();
    let before = read("").unwrap();
    assert!(before.ike.revocation.is_empty());
    make_crl(at, "x509crl/ca.pem");
    make_crl(at, "other.pem");
    openssl(at, "crl -in other.pem -outform DER -out other.crl");
    let uri = format!("file://{}/other.crl", at.display());
    let named = read(&format!("ca {{ cacert = ca.pem\n crl_uris = {uri}\n }}"));
    let named = named.unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(
        numbers(&named),
        [("0b".to_owned(), 1), ("0a".to_owned(), 1)]
    );
    let web = "crl_uris = http://ca/crl\n ocsp_uris = http://ocsp/, http://ocsp2/";
    let web = read(&format!("ca {{ cacert = ca.pem\n {web}\n }}")).unwrap();
    assert!(web.ike.revocation.fetches() && !web.ike.revocation.is_empty());
    let [listed] = &web.authorities[..] else {
        panic!("{:?}", web.authorities);
    };
    assert_eq!(
        (&*listed.name, &*listed.crl_uris),
        ("ca", &["http://ca/crl".to_owned()][..])
    );
    assert_eq!(listed.ocsp_uris, ["http://ocsp/", "http://ocsp2/"]);
    assert_eq!(named.authorities[0].crl_uris, [&*uri]);
    assert!(before.diff(&named).others().eq(["crls"]));
    assert!(
        named
            .diff(&read(&format!("ca {{ cacert = ca.pem\n crl_uris = {uri}\n }}")).unwrap())
            .is_empty()
    );
    for (authority, expected) in [
        ("crl_uris = file:///absent", "has no `cacert`"),
        (
            "cacert = ca.pem, ca.pem",
            "an authority has one certificate",
        ),
        (
            "cacert = ca.pem\n crl_uris = file:///absent",
            "`/absent`: it does not exist",
        ),
        ("cacert = ca.pem\n crl_uris = ca.crl", "is no URI"),
        (
            "cacert = ca.pem\n crl_uris = ldap://ca/crl",
            "has a scheme that is not supported",
        ),
        (
            "cacert = ca.pem\n crl_uris = file:///etc/passwd",
            "no CRL in the file",
        ),
        (
            "cacert = ca.pem\n ocsp_uris = https://ca/",
            "has a scheme that is not supported",
        ),
        (
            "cacert = ca.pem\n cert_uri_base = https://ca/",
            "has a scheme that is not supported",
        ),
        (
            "cacert = ca.pem\n handle = 1",
            "come from files in `cacert` only",
        ),
        (
            "cacert = ca.pem\n crl_uri = file:///x",
            "did you mean `crl_uris`?",
        ),
    ] {
        let errors = read(&format!("ca {{ {authority}\n }}")).expect_err(authority);
        let rendered = errors.render(false);
        assert!(rendered.contains(expected), "{expected}: {rendered}");
    }
}

#[test]
fn what_is_wrong_with_credentials_is_said() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    let refusal = |local: &str, remote: &str, secrets: &str| {
        read(at, local, remote, secrets)
            .expect_err("it should be refused")
            .render(false)
    };
    let ok = "certs = moon.pem";
    let locked = "genpkey -algorithm ed25519 -aes256 -pass pass:x -out private/locked.pem";
    openssl(at, locked);
    fs::create_dir(at.join("pkcs12")).unwrap();
    openssl(at, PKCS12);
    for (local, remote, secrets, expected) in [
        ("certs = mars.pem", "", "", "mars.pem`: it does not exist"),
        ("certs = ../san", "", "", "no certificate in the file"),
        ("auth = pubkey", "", "", "has no certificate of its own"),
        (
            "certs = moon.pem\n id = venus.example.org",
            "",
            "",
            "does not name venus.example.org",
        ),
        (
            ok,
            "cacerts = absent.pem",
            "",
            "absent.pem`: it does not exist",
        ),
        (ok, "auth = eap-tls", "", "is not supported yet"),
        (ok, "auth = rsa-sha1", "", "`sha1` is no hash"),
        (ok, "auth = ed448", "", "`ed448` is no kind of key"),
        (
            "certs = moon.pem\n auth = rsa-sha256",
            "",
            "",
            "ECDSA P-256",
        ),
        (
            ok,
            "eku = ipsec",
            "",
            "it takes `ike-or-tls`, `strict`, `any`",
        ),
        (ok, "cert_policy = 1.2.3.x", "", "no object identifier"),
        (ok, "revocation = always", "", "`revocation`"),
        (
            ok,
            "",
            "private-1 { file = absent.pem\n }",
            "absent.pem`: it does not exist",
        ),
        (
            ok,
            "",
            "private-1 { file = locked.pem\n secret = hunter2\n }",
            "the passphrase does not decrypt it",
        ),
        (
            ok,
            "",
            "private-1 { file = locked.pem\n }",
            "no passphrase is given",
        ),
        (
            "auth = pubkey",
            "",
            "pkcs12-1 { file = moon.p12\n secret = hunter2\n }",
            "the passphrase does not decrypt it",
        ),
    ] {
        let rendered = refusal(local, remote, secrets);
        assert!(rendered.contains(expected), "{expected}: {rendered}");
        assert!(!rendered.contains("hunter2"), "{rendered}");
    }
    fs::remove_file(at.join("private/moon.pem")).unwrap();
    let rendered = refusal(ok, "", "");
    assert!(rendered.contains("no private key belongs to"), "{rendered}");
    assert!(rendered.contains("no passphrase is given"), "{rendered}");
    fs::remove_dir_all(at.join("x509ca")).unwrap();
    assert!(refusal(ok, "", "").contains("trusts no certificate authority"));
}

/// Makes an intermediate authority, and a certificate for moon below it.
fn add_intermediate(at: &Path) {
    fs::write(at.join("authority"), "basicConstraints=critical,CA:TRUE\n").unwrap();
    for step in [
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout between.key -out between.csr \
         -subj /O=Example/CN=between",
        "x509 -req -in between.csr -CA x509ca/ca.pem -CAkey ca.key -CAserial serial -days 30 -extfile authority \
         -out x509ca/between.pem",
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -keyout private/moon-384.pem -out moon-384.csr \
         -subj /O=Example/CN=moon-384",
        "x509 -req -in moon-384.csr -CA x509ca/between.pem -CAkey between.key -CAserial serial -days 30 \
         -extfile san -out x509/moon-384.pem",
    ] {
        assert!(openssl(at, step));
    }
}

fn own_credentials(loaded: &Loaded) -> &[std::sync::Arc<esplanade_ike::config::Credential>] {
    match &loaded.ike.connections[0].local.method {
        LocalMethod::Signature(credentials) => credentials,
        LocalMethod::Psk => panic!("no signature"),
    }
}

#[test]
fn several_certificates_have_their_keys_and_authorities() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    add_intermediate(at);
    let local = "certs = moon.pem, moon-384.pem\n id = moon.example.org";
    let loaded = read(at, local, "", "").unwrap_or_else(|errors| panic!("{errors}"));
    let credentials = own_credentials(&loaded);
    assert_eq!(credentials[0].chain().len(), 1, "the root is not sent");
    assert_eq!(credentials[1].chain().len(), 2);
    let RemoteMethod::Certificate { authorities, .. } = &loaded.ike.connections[0].remote.method
    else {
        panic!("no certificate")
    };
    for credential in credentials {
        assert!(credential.satisfies(&certreq(authorities)));
    }
    // The authorities of the peer are known too.
    fs::rename(at.join("x509ca"), at.join("elsewhere")).unwrap();
    let remote = format!("cacerts = {}", at.join("elsewhere/ca.pem").display());
    let loaded = read(at, local, &remote, "").unwrap();
    let credentials = own_credentials(&loaded);
    assert_eq!(credentials[1].chain().len(), 1, "nobody knows the issuer");
    let satisfied: Vec<bool> = match &loaded.ike.connections[0].remote.method {
        RemoteMethod::Certificate { authorities, .. } => credentials
            .iter()
            .map(|own| own.satisfies(&certreq(authorities)))
            .collect(),
        _ => panic!("no certificate"),
    };
    assert_eq!(satisfied, [true, false]);
}

#[test]
fn every_certificate_names_the_identity_and_has_a_key() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    add_intermediate(at);
    let refusal = |local: &str| read(at, local, "", "").unwrap_err().render(false);
    let both = "certs = moon.pem, moon-384.pem";
    // Without an identity, the first certificate gives it.
    let text = refusal(both);
    assert!(
        text.contains("O=Example, CN=moon-384 does not name O=Example, CN=moon"),
        "{text}"
    );
    let text = refusal(&format!("{both}\n id = sun.example.org"));
    assert_eq!(
        text.matches("does not name sun.example.org").count(),
        2,
        "{text}"
    );
    let text = refusal(&format!("{both}, none.pem\n id = moon.example.org"));
    assert!(
        text.contains("none.pem") && text.contains("it does not exist"),
        "{text}"
    );
    let text = refusal(&format!(
        "{both}\n id = moon.example.org\n auth = ike:ecdsa-sha384"
    ));
    assert!(text.contains("`auth`"), "{text}");
    fs::remove_file(at.join("private/moon-384.pem")).unwrap();
    let text = refusal(&format!("{both}\n id = moon.example.org"));
    assert!(
        text.contains("no private key belongs to the certificate `O=Example, CN=moon-384`"),
        "{text}"
    );
}

#[test]
fn public_keys_stand_in_for_certificates() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    fs::create_dir(at.join("pubkey")).unwrap();
    for step in [
        "pkey -in private/moon.pem -pubout -out pubkey/moon.pub",
        "pkey -in private/other.pem -pubout -outform DER -out pubkey/other.der",
        "genpkey -algorithm ed25519 -out sun.key",
        "pkey -in sun.key -pubout -out pubkey/sun.pub",
        "genpkey -algorithm x25519 -out agreement.key",
        "pkey -in agreement.key -pubout -out pubkey/agreement.pub",
    ] {
        assert!(openssl(at, step));
    }
    let sun = "pubkeys = sun.pub\n id = sun.example.org";
    let loaded = read(at, "pubkeys = moon.pub, other.der", sun, "");
    let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}"));
    let credentials = own_credentials(&loaded);
    assert!(credentials.iter().all(|own| own.chain().is_empty()));
    assert!(matches!(credentials[0].identity(), Identity::KeyId(id) if id.len() == 20));
    let RemoteMethod::PublicKey { keys, .. } = &loaded.ike.connections[0].remote.method else {
        panic!("no key")
    };
    assert_eq!(keys.len(), 1);
    let both = read(at, "pubkeys = moon.pub\n certs = moon.pem", sun, "").unwrap();
    let chains = own_credentials(&both).iter().map(|own| own.chain().len());
    assert_eq!(
        chains.collect::<Vec<_>>(),
        [1, 0],
        "certificates come first"
    );

    for (local, remote, expected) in [
        (
            "pubkeys = sun.pub",
            sun,
            "`pubkeys`: no private key belongs to",
        ),
        ("pubkeys = none.pub", sun, "it does not exist"),
        (
            "pubkeys = ../x509/moon.pem",
            sun,
            "no public key in the file",
        ),
        ("pubkeys = agreement.pub", sun, "is not supported: use RSA"),
        (
            "pubkeys = moon.pub",
            "pubkeys = sun.pub\n id = *.example.org",
            "`id`: *.example.org is a pattern",
        ),
        (
            "pubkeys = moon.pub",
            "pubkeys = sun.pub\n cacerts = ca.pem",
            "`cacerts`: a peer with a key",
        ),
        (
            "pubkeys = moon.pub",
            "pubkeys = sun.pub\n certs = moon.pem",
            "`certs`: a peer with a key",
        ),
    ] {
        let text = read(at, local, remote, "").unwrap_err().render(false);
        assert!(text.contains(expected), "{text}");
    }
}

/// A reload must see that another key or certificate is in a file.
#[test]
fn a_new_key_in_a_file_changes_the_connection() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    fs::create_dir(at.join("pubkey")).unwrap();
    let make = |file: &str| {
        openssl(at, "genpkey -algorithm ed25519 -out peer.key");
        openssl(at, &format!("pkey -in peer.key -pubout -out pubkey/{file}"));
    };
    make("sun.pub");
    let load = || {
        read(
            at,
            "certs = moon.pem",
            "pubkeys = sun.pub\n id = sun.example.org",
            "",
        )
        .unwrap()
    };
    let before = load();
    assert!(before.diff(&load()).is_empty());
    make("sun.pub");
    assert!(!before.diff(&load()).is_empty());
}

#[test]
fn a_certificate_that_is_named_needs_an_authority_only_if_one_is_demanded() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    let step = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout sun.key -out x509/sun.pem -days 30 \
                -subj /CN=sun -addext subjectAltName=DNS:sun.example.org";
    assert!(openssl(at, step));
    let needs_none = |remote: &str| {
        let loaded = read(at, "certs = moon.pem", remote, "").unwrap();
        match &loaded.ike.connections[0].remote.method {
            RemoteMethod::Certificate { rules, .. } => rules.known_need_no_path,
            _ => panic!("not a certificate"),
        }
    };
    assert!(needs_none("certs = sun.pem"));
    assert!(!needs_none(""));
    for demand in ["cacerts = ca.pem", "ca_id = CN=ca", "cert_policy = 1.2.3.4"] {
        assert!(!needs_none(&format!("certs = sun.pem\n {demand}")));
    }
    fs::remove_dir_all(at.join("x509ca")).unwrap();
    assert!(needs_none("certs = sun.pem"));
}

#[test]
fn an_authority_that_another_has_certified_anchors_nothing() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    add_intermediate(at);
    let authorities = |remote: &str| {
        let loaded = read(at, "certs = moon.pem", remote, "").unwrap();
        match &loaded.ike.connections[0].remote.method {
            RemoteMethod::Certificate { authorities, .. } => authorities.clone(),
            _ => panic!("not a certificate"),
        }
    };
    const SAYS: &str = "no path ends at the authority `O=Example, CN=between`";
    for remote in ["", "cacerts = ca.pem", "cacerts = between.pem"] {
        assert!(!authorities(remote).are_without_anchor(), "{remote}");
        assert!(!checked(at).contains("no path ends"), "{remote}");
    }
    fs::rename(at.join("x509ca/ca.pem"), at.join("x509ca.pem")).unwrap();
    assert!(authorities("").are_without_anchor());
    let said = checked(at);
    assert_eq!(said.matches(SAYS).count(), 1, "{said}");
    assert!(said.contains("put the certificate of the authority at the top into x509ca/"));
    // The file names it, and nobody above it is known.
    assert!(!authorities("cacerts = between.pem").are_without_anchor());
    assert!(!checked(at).contains("no path ends"));
}

#[test]
fn a_crl_that_is_too_large_stops_the_gateway() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    fs::create_dir(at.join("x509crl")).unwrap();
    let file = fs::File::create(at.join("x509crl/large.crl")).unwrap();
    file.set_len((16 << 20) + 1).unwrap();
    let refused = read(at, "certs = moon.pem", "", "").unwrap_err();
    assert!(refused.to_string().contains("large.crl"), "{refused}");
    fs::write(at.join("x509crl/large.crl"), "no CRL").unwrap();
    assert!(read(at, "certs = moon.pem", "", "").is_ok());
}

#[test]
fn check_names_signatures_that_no_gateway_of_this_kind_checks() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    let sign = |hash: &str| {
        openssl(
            at,
            &format!(
                "x509 -req -{hash} -in moon.csr -CA x509ca/ca.pem -CAkey ca.key -CAserial serial -days 30 -extfile san \
                 -out x509/moon.pem"
            ),
        );
        read(at, "certs = moon.pem", "", "").unwrap();
        checked(at).contains("has a signature with the algorithm 1.2.840.10045.4.1")
    };
    assert!(!sign("sha256"));
    assert!(sign("sha1"));
}
