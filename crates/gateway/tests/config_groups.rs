//! Reads groups, the authorities of attribute certificates, and attribute certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use esplanade::config::{Diagnostics, Loaded, load};
use esplanade_ike::config::{LocalMethod, RemoteMethod};
use esplanade_pki::UnixTime;

/// 2026-06-01.
const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_780_272_000));

fn vector(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/ike");
    folder.join(name)
}

/// A folder with a gateway's certificate, and with what attribute certificates take.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (file, place) in [
        ("certs/root.pem", "x509ca/root.pem"),
        ("certs/moon-ecdsa256.pem", "x509/moon.pem"),
        ("certs/moon-ecdsa256.key", "private/moon.key"),
        ("attributes/aa.pem", "x509aa/aa.pem"),
        ("attributes/research.pem", "x509ac/research.pem"),
        ("attributes/sun.pem", "x509ac/sun.pem"),
    ] {
        let place = folder.path().join(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(vector(file), &place).unwrap();
    }
    folder
}

fn read(at: &Path, remote: &str) -> Result<Loaded, Diagnostics> {
    let path = at.join("esplanade.conf");
    let text = format!(
        "connections {{ site {{\n remote_addrs = 192.0.2.9\n local {{ certs = moon.pem }}\n remote {{\n{remote}\n }}\n \
         children {{ net {{ remote_ts = 10.1.0.0/16 }} }}\n}} }}\nsecrets {{ ike {{ secret = 0s3q2+7w== }} }}\n"
    );
    fs::write(&path, text).unwrap();
    load(&path)
}

fn accepted(at: &Path, remote: &str) -> Loaded {
    read(at, remote).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The groups of the connection.
fn groups(loaded: &Loaded) -> Vec<String> {
    match &loaded.ike.connections[0].remote.method {
        RemoteMethod::Certificate { rules, .. } => {
            rules.groups.iter().map(ToString::to_string).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn warnings(loaded: &Loaded) -> Vec<String> {
    let about = |what: &&str| what.contains("ttribute") || what.contains("accepts nobody");
    let all = loaded.warnings.iter().map(|one| one.what.as_str());
    all.filter(about).map(str::to_owned).collect()
}

#[test]
fn groups_and_what_proves_them() {
    let folder = folder();
    let at = folder.path();
    let loaded = accepted(at, "groups = Research, Board of Directors");
    assert_eq!(groups(&loaded), ["Research", "Board of Directors"]);
    let store = &loaded.ike.attributes;
    assert_eq!(
        format!("{store:?}"),
        "AttributeStore(1 authorities, 2 known)"
    );
    assert_eq!(warnings(&loaded), [""; 0]);
    for file in ["x509aa/aa.pem", "x509ac/sun.pem"] {
        assert!(
            loaded.read.contains(&at.canonicalize().unwrap().join(file)),
            "{file}"
        );
    }
    // The gateway sends those of its own certificate, whatever its peers have to prove.
    let loaded = accepted(at, "");
    assert_eq!(
        format!("{:?}", loaded.ike.attributes),
        "AttributeStore(0 authorities, 2 known)"
    );
    let LocalMethod::Signature(own) = &loaded.ike.connections[0].local.method else {
        panic!("a certificate");
    };
    assert_eq!(own[0].attribute_certificates(NOW).len(), 1);
}

#[test]
fn groups_that_nobody_can_prove_are_refused() {
    let folder = folder();
    for (remote, expected) in [
        (
            "auth = psk\n groups = Research",
            "without a certificate cannot prove",
        ),
        (
            "pubkeys = /absent\n groups = Research",
            "without a certificate cannot prove",
        ),
        ("groups = Research, *", "a group is no pattern"),
        ("groups = %any", "a group is no pattern"),
    ] {
        let errors = read(folder.path(), remote).expect_err(remote).to_string();
        assert!(errors.contains(expected), "{remote}: {errors}");
    }
}

#[test]
fn files_that_cannot_be_used_are_told() {
    let folder = folder();
    let at = folder.path();
    let add = |file: &str, place: &str| fs::copy(vector(file), at.join(place)).unwrap();
    add("attributes/root.pem", "x509aa/aa.pem");
    add("attributes/aa.pem", "x509ac/sun.pem");
    fs::write(
        at.join("x509ac/long.der"),
        [b"\x30\x83\x01\x00\x00", [0; 1 << 16].as_slice()].concat(),
    )
    .unwrap();
    let told = warnings(&accepted(at, "groups = Research"));
    assert_eq!(told.len(), 4, "{told:#?}");
    for part in [
        "aa.pem`: an issuer of certificates must not issue attribute certificates (RFC 5755 §4.5)",
        "long.der`: malformed certificate: it is too long",
        "sun.pem`: no attribute certificate in the file",
        "connection `site` accepts nobody: no attribute authority is trusted",
    ] {
        assert!(
            told.iter().any(|told| told.contains(part)),
            "{part}: {told:#?}"
        );
    }
    fs::remove_dir_all(at.join("x509aa")).unwrap();
    let told = warnings(&accepted(at, "groups = Research"));
    assert!(told.iter().any(|told| told.contains("accepts nobody")));
}

#[test]
fn changes_are_noticed() {
    let folder = folder();
    let at = folder.path();
    let before = accepted(at, "groups = Research");
    assert!(before.diff(&accepted(at, "groups = Research")).is_empty());
    // Peers prove their groups when they authenticate.
    fs::remove_file(at.join("x509ac/sun.pem")).unwrap();
    let fewer = accepted(at, "groups = Research");
    let diff = before.diff(&fewer);
    assert!(diff.ended().next().is_none());
    assert!(diff.others().eq(["attributes"]));
    // An authority that is not trusted any more has proved nothing.
    fs::copy(vector("attributes/self.pem"), at.join("x509aa/aa.pem")).unwrap();
    let diff = fewer.diff(&accepted(at, "groups = Research"));
    assert_eq!(
        diff.ended().map(ToString::to_string).collect::<Vec<_>>(),
        ["site"]
    );
    assert!(diff.others().eq(["attributes"]));
    let diff = fewer.diff(&accepted(at, "groups = Sales"));
    assert_eq!(diff.ended().count(), 1);
}
