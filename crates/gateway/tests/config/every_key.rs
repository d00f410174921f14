//! For every key of the schema, in every branch in which it can stand: a value that is none is an error. So no branch ends
//! before it has read its keys, and no list of nothing demands nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use esplanade::config::{Diagnostic, Diagnostics, Loaded, Severity, load, schema};

use super::certificates::{folder, openssl};

/// No key takes this value, but those of [`FREE_TEXT`].
const GARBAGE: &str = "no such/value";

/// Keys that take any text, with the reason.
const FREE_TEXT: [(&str, &str); 5] = [
    ("gateway.gpu", "device"), // a part of a name that only the machine knows
    ("connections.<conn>.children.<child>", "updown"), // a command for the shell
    ("secrets.ike<suffix>", "secret"), // the key itself
    ("secrets.private<suffix>", "secret"), // a passphrase
    ("secrets.token<suffix>", "pin"), // a PIN
];

/// A list whose members are any text.
const FREE_LIST: (&str, &str) = ("connections.<conn>.remote<suffix>", "groups");

/// Where an empty text is an error.
const NO_EMPTY_TEXT: [&str; 4] = [
    "connections.<conn>.local<suffix>",
    "connections.<conn>.remote<suffix>",
    "connections.<conn>.peers.<peer>",
    "secrets.ike<suffix>",
];

/// A setting: the path of its section, its key and its value.
type Setting = (String, String, String);

fn settings(lines: &str) -> Vec<Setting> {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    let setting = |line: &str| {
        let (key, value) = line.split_once('=').unwrap();
        let (path, key) = key.trim().rsplit_once('.').unwrap();
        (path.to_owned(), key.to_owned(), value.trim().to_owned())
    };
    lines.map(setting).collect()
}

const PSK: &str = "
    connections.site.local.auth = psk
    connections.site.local.id = a.example.org
    connections.site.remote.auth = psk
    connections.site.remote.id = b.example.org";
const ADDRESS: &str = "connections.site.remote_addrs = 192.0.2.2";
const TUNNEL: &str = "
    connections.site.children.net.local_ts = 10.1.0.0/16
    connections.site.children.net.remote_ts = 10.2.0.0/16";
const SECRET: &str = "
    secrets.ike.id = b.example.org
    secrets.ike.secret = replace-this-with-32-random-characters";
const TOKEN: &str = "
    gateway.pkcs11.modules.soft.path = /usr/lib/libsoft.so
    secrets.token.handle = 02a7";

/// The name of a branch, and its settings.
type Branch = (&'static str, &'static [&'static str]);

/// Valid configurations, one for each branch of the readers.
fn branches() -> Vec<(&'static str, Vec<Setting>)> {
    let mut branches: Vec<Branch> = vec![
        ("psk", &[PSK, ADDRESS, TUNNEL, SECRET]),
        (
            "transport",
            &[
                PSK,
                ADDRESS,
                TUNNEL,
                SECRET,
                "connections.site.children.net.mode = transport",
            ],
        ),
        (
            "ah",
            &[
                PSK,
                ADDRESS,
                TUNNEL,
                SECRET,
                "connections.site.children.net.ah_proposals = sha256",
            ],
        ),
        (
            "pass beside tunnel",
            &[
                PSK,
                ADDRESS,
                TUNNEL,
                SECRET,
                "connections.site.children.lan.mode = pass
                connections.site.children.lan.start_action = trap
                connections.site.children.lan.local_ts = 10.1.0.0/16
                connections.site.children.lan.remote_ts = 10.1.0.0/16",
            ],
        ),
        (
            "pass alone",
            &[ADDRESS, TUNNEL, "connections.site.children.net.mode = pass"],
        ),
        (
            "drop alone",
            &[TUNNEL, "connections.site.children.net.mode = drop"],
        ),
        ("no children", &[PSK, ADDRESS, SECRET]),
        (
            "peers",
            &[
                PSK,
                TUNNEL,
                SECRET,
                "connections.site.peers.b.id = b.example.org
                connections.site.peers.b.remote_ts = 10.2.1.0/24",
            ],
        ),
    ];
    branches.extend(branches_with_files());
    let read = |parts: &[&str]| parts.iter().flat_map(|part| settings(part)).collect();
    let branches = branches.into_iter();
    branches.map(|(name, parts)| (name, read(parts))).collect()
}

/// Those with certificates, keys and tokens, and those of the section `gateway`.
fn branches_with_files() -> Vec<Branch> {
    vec![
        (
            "certificates",
            &[
                TUNNEL,
                ADDRESS,
                "connections.site.local.certs = moon.pem
                connections.site.remote.cacerts = ca.pem
                authorities.ca.cacert = ca.pem",
            ],
        ),
        (
            "certificates of the folders",
            &[
                TUNNEL,
                ADDRESS,
                "connections.site.local.id = moon.example.org
                connections.site.remote.id = b.example.org",
            ],
        ),
        (
            "certificate sections",
            &[
                TUNNEL,
                ADDRESS,
                TOKEN,
                "connections.site.local.cert1.file = moon.pem
                connections.site.local.cert2.handle = 02a7
                connections.site.remote.id = b.example.org",
            ],
        ),
        (
            "public keys",
            &[
                TUNNEL,
                ADDRESS,
                "connections.site.local.pubkeys = moon.pub
                connections.site.local.id = moon.example.org
                connections.site.remote.pubkeys = moon.pub
                connections.site.remote.id = b.example.org",
            ],
        ),
        (
            "files of keys without a use",
            &[
                PSK,
                SECRET,
                "secrets.private.file = locked.pem
                secrets.private.secret = x
                secrets.rsa.file = locked.pem
                secrets.rsa.secret = x
                secrets.ecdsa.file = locked.pem
                secrets.ecdsa.secret = x
                secrets.pkcs8.file = locked.pem
                secrets.pkcs8.secret = x
                secrets.pkcs12.file = moon.p12
                secrets.pkcs12.secret = x",
            ],
        ),
        ("tokens", &[PSK, SECRET, TOKEN]),
        (
            "gateway",
            &["gateway.interfaces.i0.if_id = 7
            gateway.gpu.batch = 64
            gateway.ace.library = /usr/share/ace
            gateway.mtu = 1400"],
        ),
        (
            "one gateway among others",
            &["gateway.engine = pool", PSK, SECRET],
        ),
    ]
}

/// Writes each setting into a line of its own, in sections that are opened anew. Without a key the section stands alone.
fn text(settings: &[Setting]) -> String {
    let line = |(path, key, value): &Setting| {
        let open: String = path.split('.').map(|name| format!("{name} {{ ")).collect();
        let close = " }".repeat(path.split('.').count());
        // A value ends with its line. The braces stand on the next one.
        match key.as_str() {
            "" => format!(
                "{open}
{close}
"
            ),
            key => format!(
                "{open}{key} = {value}
{close}
"
            ),
        }
    };
    settings.iter().map(line).collect()
}

/// The line of a setting in [`text`].
fn line_of(at: usize) -> u32 {
    1 + 2 * at as u32
}

fn read(folder: &Path, settings: &[Setting]) -> Result<Loaded, Diagnostics> {
    let path = folder.join("esplanade.conf");
    fs::write(&path, text(settings)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    load(&path)
}

/// Returns the kind of section at a path, with the path that `schema::ALL` has.
fn kind_of(path: &str) -> Option<(&'static str, &'static schema::Schema)> {
    let is_like = |pattern: &str, name: &str| match pattern.split_once('<') {
        None => pattern == name,
        Some(("private", _)) => ["private", "rsa", "ecdsa", "pkcs8", "pkcs12"].contains(&name),
        Some((prefix, _)) => name.starts_with(prefix),
    };
    let fits = |(pattern, _): &&(&str, _)| {
        let (patterns, names) = (pattern.split('.'), path.split('.'));
        patterns.clone().count() == names.clone().count()
            && patterns
                .zip(names)
                .all(|(pattern, name)| is_like(pattern, name))
    };
    schema::ALL.iter().find(fits).copied()
}

/// Every section of a branch that has keys.
fn sections(settings: &[Setting]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, ..) in settings {
        let names: Vec<_> = path.split('.').collect();
        for len in 1..=names.len() {
            let path = names[..len].join(".");
            if kind_of(&path).is_some() && !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// Calls `visit` with each branch in which each key has the value: the name of the case, the kind of section, the key, the
/// settings, and the line of the key.
fn for_each_key(
    value: &str,
    mut visit: impl FnMut(&str, &'static str, &'static str, &[Setting], u32),
) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for (branch, settings) in branches() {
        for path in sections(&settings) {
            let (kind, schema) = kind_of(&path).unwrap();
            seen.push(kind);
            for key in schema.keys.iter().chain(schema.key_prefixes) {
                let mut settings = settings.clone();
                let has = |(at, name, _): &Setting| *at == path && name == key;
                let at = settings.iter().position(has).unwrap_or_else(|| {
                    settings.push((path.clone(), (*key).to_owned(), String::new()));
                    settings.len() - 1
                });
                settings[at].2 = value.to_owned();
                let case = format!("{branch}: {path}.{key} = {value}");
                visit(&case, kind, key, &settings, line_of(at));
            }
        }
    }
    seen
}

/// The folder of an authority, with the files that the branches name.
fn files() -> Option<tempfile::TempDir> {
    let folder = folder()?;
    let at = folder.path();
    for name in ["rsa", "ecdsa", "pkcs8", "pkcs12", "pubkey"] {
        fs::create_dir(at.join(name)).unwrap();
    }
    let lock = "pkcs8 -topk8 -in private/moon.pem -out private/locked.pem -passout pass:x -iter 2";
    openssl(at, lock);
    for name in ["rsa", "ecdsa", "pkcs8"] {
        fs::rename(
            at.join("private/locked.pem"),
            at.join(name).join("locked.pem"),
        )
        .unwrap();
        openssl(at, lock);
    }
    openssl(at, "pkey -in private/moon.pem -pubout -out pubkey/moon.pub");
    let container = "pkcs12 -export -inkey private/moon.pem -in x509/moon.pem -out pkcs12/moon.p12 \
                     -passout pass:x -iter 2";
    openssl(at, container);
    Some(folder)
}

fn has_error_at(found: &Diagnostics, line: u32) -> bool {
    let is_there = |one: &Diagnostic| {
        one.severity == Severity::Error && one.at.is_some_and(|at| at.line == line)
    };
    found.iter().any(is_there)
}

#[test]
fn the_branches_are_valid_and_have_every_kind_of_section() {
    let Some(folder) = files() else { return };
    for (branch, settings) in branches() {
        let loaded = read(folder.path(), &settings);
        loaded.unwrap_or_else(|errors| panic!("{branch}:\n{errors}"));
    }
    let seen = for_each_key("", |_, _, _, _, _| {});
    for (kind, _) in schema::ALL {
        assert!(seen.contains(kind), "no branch has {kind}");
    }
}

#[test]
fn a_value_that_is_none_is_an_error_in_every_branch() {
    let Some(folder) = files() else { return };
    let mut wrong = Vec::new();
    for value in [GARBAGE, ","] {
        for_each_key(value, |case, kind, key, settings, line| {
            let free = FREE_TEXT.contains(&(kind, key));
            if free || value == GARBAGE && FREE_LIST == (kind, key) {
                return;
            }
            match read(folder.path(), settings) {
                Ok(_) => wrong.push(format!("{case}: is taken")),
                Err(found) if !has_error_at(&found, line) => {
                    wrong.push(format!("{case}: the error is elsewhere:\n{found}"));
                }
                Err(_) => {}
            }
        });
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// An empty value is none: it has the effect that the key's absence has.
#[test]
fn an_empty_value_is_as_good_as_none_in_every_branch() {
    let Some(folder) = files() else { return };
    let verdict = |settings: &[Setting]| {
        let loaded = read(folder.path(), settings).ok()?;
        Some((loaded.ike.connections.len(), loaded.policies.len()))
    };
    let mut wrong = Vec::new();
    for value in ["", "\"\""] {
        for_each_key(value, |case, kind, key, settings, line| {
            let mut without = settings.to_vec();
            without[(line as usize - 1) / 2].1.clear();
            let expected = match (kind, key, value) {
                // A key whose owners are all empty is nobody's; one without any owner is everybody's.
                ("secrets.ike<suffix>", "id", _) => None,
                (kind, _, "\"\"") if NO_EMPTY_TEXT.contains(&kind) => None,
                _ => verdict(&without),
            };
            if verdict(settings) != expected {
                wrong.push(case.to_owned());
            }
        });
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
