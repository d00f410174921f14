//! Loads configurations that use what strongSwan's test scenarios use, one file a feature, and prints what share of
//! them is accepted. The first lines of a file say what is expected:
//!
//! - `# strongSwan's scenarios: 24`: how many use the feature, or `not counted`;
//! - `# accepted`: the file loads, and the gateway does what it says;
//! - `# refused: TEXT`: an error has this text, and no error goes unmentioned;
//! - `# ignored: TEXT`: the file loads, but a warning says that a key has no effect;
//! - `# warning: TEXT`: another warning has this text.
//!
//! The numbers are from `testing/tests` of strongSwan at commit 3b902ea5: the 240 scenarios that configure IKEv2 in
//! swanctl.conf. A scenario counts for every feature that it uses, so the sum is larger.

mod certificates;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use certificates::{NEW_ECDSA, certify, folder, openssl};
use esplanade::config::{Diagnostic, Diagnostics, Loaded, Severity, load, load_text, schema};

/// Lower bound of the number of files, so that the test cannot go blind.
const FILES_MIN: u32 = 100;

/// Keys that change nothing because that is what they mean here.
const NOTHING_TO_DO: [&str; 2] = ["policies_fwd_out", "hw_offload"];

/// The first lines of a file.
#[derive(Debug, Default)]
struct Head<'a> {
    /// Zero means that nobody counted them.
    scenarios: u32,
    accepted: bool,
    refused: Vec<&'a str>,
    ignored: Vec<&'a str>,
    warned: Vec<&'a str>,
}

impl<'a> Head<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let mut lines = text.lines().map_while(|line| line.strip_prefix("# "));
        let count = lines
            .next()
            .and_then(|line| line.strip_prefix("strongSwan's scenarios: "))
            .ok_or("the first line does not count strongSwan's scenarios")?;
        let scenarios = match count {
            "not counted" => 0,
            _ => count
                .parse::<u32>()
                .map_err(|error| format!("`{count}`: {error}"))?,
        };
        let mut head = Self {
            scenarios,
            ..Self::default()
        };
        for line in lines {
            match line.split_once(": ") {
                Some(("refused", part)) => head.refused.push(part),
                Some(("ignored", part)) => head.ignored.push(part),
                Some(("warning", part)) => head.warned.push(part),
                _ if line == "accepted" => head.accepted = true,
                _ => return Err(format!("`{line}` is no expectation")),
            }
        }
        let outcomes = [
            head.accepted,
            !head.refused.is_empty(),
            !head.ignored.is_empty(),
        ];
        match outcomes.into_iter().filter(|outcome| *outcome).count() {
            1 => Ok(head),
            _ => Err("a file is either accepted, refused or ignored".to_owned()),
        }
    }
}

/// Returns all findings about a configuration.
fn findings(loaded: Result<Loaded, Diagnostics>) -> Vec<Diagnostic> {
    let diagnostics = match loaded {
        Ok(loaded) => loaded.warnings,
        Err(errors) => errors,
    };
    diagnostics.iter().cloned().collect()
}

/// Returns the keys of a file that the schema takes only with values that change nothing.
fn without_effect(text: &str) -> Vec<&str> {
    let obeyed = |key: &str| {
        let mut all = schema::ALL.iter();
        all.any(|(_, section)| section.keys.contains(&key))
    };
    let later = |key: &str| {
        let mut all = schema::ALL.iter().flat_map(|(_, section)| section.later);
        all.any(|(name, _)| *name == key)
    };
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, _)| key.trim())
        .filter(|&key| later(key) && !obeyed(key) && !NOTHING_TO_DO.contains(&key))
        .collect()
}

/// Returns what differs between the findings about a file and its first lines.
fn differences(head: &Head<'_>, text: &str, found: &[Diagnostic]) -> Vec<String> {
    let mut wrong = Vec::new();
    let warned: Vec<&str> = head.ignored.iter().chain(&head.warned).copied().collect();
    for (severity, parts) in [
        (Severity::Error, &head.refused),
        (Severity::Warning, &warned),
    ] {
        let of_kind: Vec<&Diagnostic> = found
            .iter()
            .filter(|one| one.severity == severity)
            .collect();
        for one in &of_kind {
            if !parts.iter().any(|part| one.what.contains(*part)) {
                wrong.push(format!("{severity:?} that is not expected: {}", one.what));
            }
            if one.help.is_none() {
                wrong.push(format!("{severity:?} without advice: {}", one.what));
            }
        }
        for part in parts {
            if !of_kind.iter().any(|one| one.what.contains(*part)) {
                wrong.push(format!("{severity:?} that is missing: {part}"));
            }
        }
    }
    if head.accepted {
        let keys = without_effect(text).into_iter();
        wrong.extend(keys.map(|key| format!("`{key}` changes nothing, which is not acceptance")));
    }
    wrong
}

/// Adds the certificates and keys that the files name to the folder of an authority.
fn add_credentials(at: &Path) {
    for name in ["rsa", "locked", "pkcs12", "pubkey", "x509aa"] {
        fs::create_dir(at.join(name)).unwrap();
    }
    fs::copy(at.join("san"), at.join("moon.san")).unwrap();
    let authority = format!(
        "req -x509 {NEW_ECDSA} -keyout other.key -out x509ca/other.pem -days 30 -subj /O=Example/CN=other"
    );
    openssl(at, &authority);
    openssl(
        at,
        "genpkey -algorithm ed25519 -aes256 -pass pass:sesame -out locked/venus.pem",
    );
    for (name, key, certificate) in [
        (
            "sun",
            format!("{NEW_ECDSA} -keyout sun.key"),
            "x509/sun.pem",
        ),
        (
            "mars",
            "-newkey rsa:2048 -nodes -keyout rsa/mars.pem".to_owned(),
            "x509/mars.pem",
        ),
        (
            "venus",
            "-new -key locked/venus.pem -passin pass:sesame".to_owned(),
            "x509/venus.pem",
        ),
        (
            "jupiter",
            format!("{NEW_ECDSA} -keyout jupiter.key"),
            "jupiter.pem",
        ),
        (
            "attributes",
            format!("{NEW_ECDSA} -keyout attributes.key"),
            "x509aa/attributes.pem",
        ),
    ] {
        certify(at, name, &key, certificate);
    }
    // The gateway has a second certificate of its name, with a key of another kind.
    for step in [
        "req -newkey rsa:2048 -nodes -keyout rsa/moon.pem -out moon-rsa.csr -subj /O=Example/CN=moon-rsa",
        "x509 -req -in moon-rsa.csr -CA x509ca/other.pem -CAkey other.key -CAserial serial -days 30 \
         -extfile moon.san -out x509/moon-rsa.pem",
        "pkey -in private/moon.pem -pubout -out pubkey/moon.pub",
        "pkey -in sun.key -pubout -out pubkey/sun.pub",
    ] {
        openssl(at, step);
    }
    openssl(
        at,
        "pkcs12 -export -inkey jupiter.key -in jupiter.pem -certfile x509ca/ca.pem -out pkcs12/jupiter.p12 \
         -passout pass:sesame",
    );
}

/// Returns the names and texts of the files.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compat");
    let mut files: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// A number of features, and the sum of their numbers of scenarios.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    features: u32,
    /// Features that at least one scenario uses.
    used: u32,
    scenarios: u32,
}

impl Tally {
    fn add(&mut self, scenarios: u32) {
        self.features += 1;
        self.used += u32::from(scenarios > 0);
        self.scenarios += scenarios;
    }
}

#[test]
fn features_are_accepted_or_refused_as_expected() {
    let Some(folder) = folder() else { return };
    let at = folder.path();
    add_credentials(at);
    let (mut all, mut accepted) = (Tally::default(), Tally::default());
    let mut wrong = Vec::new();
    for (name, text) in files() {
        let head = match Head::read(&text) {
            Ok(head) => head,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        let path = at.join(&name);
        fs::write(&path, &text).unwrap();
        // The file has secrets, and a warning says so if others may read it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let differ = differences(&head, &text, &findings(load(&path)));
        all.add(head.scenarios);
        if head.accepted && differ.is_empty() {
            accepted.add(head.scenarios);
        }
        wrong.extend(differ.iter().map(|what| format!("{name}: {what}")));
    }
    println!(
        "accepted {} of {} features; weighted by strongSwan's scenarios {} of {}",
        accepted.features, all.features, accepted.scenarios, all.scenarios
    );
    println!(
        "features that strongSwan's scenarios were counted for: accepted {} of {}",
        accepted.used, all.used
    );
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert!(all.features >= FILES_MIN, "only {} files", all.features);
}

#[test]
fn wrong_first_lines_are_found() {
    for (text, expected) in [
        ("connections { }\n", "does not count"),
        ("# strongSwan's scenarios: many\n# accepted\n", "`many`"),
        (
            "# strongSwan's scenarios: 1\n# refuse: x\n",
            "is no expectation",
        ),
        ("# strongSwan's scenarios: 1\n", "either accepted"),
        (
            "# strongSwan's scenarios: 1\n# accepted\n# refused: x\n",
            "either accepted",
        ),
    ] {
        let error = Head::read(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn differences_are_found() {
    let differ = |head: &str, keys: &str| {
        let text = format!(
            "# strongSwan's scenarios: 1\n{head}\n\nconnections {{ site {{\nremote_addrs = 198.51.100.1\n{keys}\n\
             local {{ auth = psk }}\nremote {{ auth = psk }} }} }}\n\
             secrets {{ ike {{ secret = \"replace this with 32 random characters\" }} }}\n"
        );
        let found = findings(load_text(Path::new("test.conf"), &text));
        differences(&Head::read(&text).unwrap(), &text, &found).join("\n")
    };
    let weak = "legacy = yes\nproposals = aes128-sha256-modp1024";
    for (head, keys) in [
        ("# accepted", "version = 2"),
        ("# refused: `version`", "version = 1"),
        ("# accepted\n# warning: MODP_1024 is weak", weak),
        ("# ignored: MODP_1024 is weak", weak),
    ] {
        assert_eq!(differ(head, keys), "", "{head}");
    }
    for (head, keys, expected) in [
        (
            "# accepted",
            "version = 1",
            "Error that is not expected: `version`",
        ),
        (
            "# refused: `version`",
            "version = 1\nunique = x",
            "Error that is not expected: `unique`",
        ),
        (
            "# refused: `version`",
            "version = 2",
            "Error that is missing: `version`",
        ),
        (
            "# accepted",
            weak,
            "Warning that is not expected: `proposals`",
        ),
        (
            "# ignored: `proposals`",
            "version = 2",
            "Warning that is missing: `proposals`",
        ),
        (
            "# accepted",
            "aggressive = no",
            "`aggressive` changes nothing",
        ),
    ] {
        let found = differ(head, keys);
        assert!(found.contains(expected), "{head}: {found}");
    }
}
