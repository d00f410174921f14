//! Reads the section `secrets`. Nothing that is read here ever enters a message or a log.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use esplanade_crypto::secret::Secret as SecretBytes;
use esplanade_ike::auth::Identity;
use esplanade_ike::config::Secret;
use esplanade_tokens::TokenKey;
use zeroize::Zeroizing;

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::identity::own_identity;
use super::schema;
use super::source::Spanned;
use super::tokens::{self, Pkcs11Module};
use super::tree::SectionNode;
use super::value::{empty_text, finding, given, hex};

/// The folder of PKCS#12 files.
const PKCS12: &str = "pkcs12";
/// A pre-shared key with fewer bytes causes a warning.
const SECRET_BYTES_MIN: usize = 16;

/// The content of the section.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    pub psk: Vec<Secret>,
    /// A pre-shared key was refused, so its owners are unknown.
    pub incomplete: bool,
    pub private: Vec<NamedKey>,
    pub pkcs12: Vec<NamedKey>,
    pub tokens: Vec<TokenKey>,
}

/// A file with a private key that the secrets name.
#[derive(Debug)]
pub(crate) struct NamedKey {
    /// The folder in which strongSwan looks for this kind of key.
    pub folder: &'static str,
    pub file: Spanned<PathBuf>,
    pub passphrase: Option<SecretBytes>,
}

/// The owners of all pre-shared keys. The sets make the look-up fast for many connections.
#[derive(Debug)]
pub(crate) struct KeyOwners<'a> {
    any_key: bool,
    /// A key names no owner, so everybody may use it.
    everybody: bool,
    named: HashSet<&'a Identity>,
    /// Identities that own a key alone.
    alone: HashSet<&'a Identity>,
}

impl<'a> KeyOwners<'a> {
    pub fn new(secrets: &'a [Secret]) -> Self {
        let alone = |secret: &'a Secret| {
            let (first, rest) = secret.owners.split_first()?;
            rest.iter().all(|other| other == first).then_some(first)
        };
        Self {
            any_key: !secrets.is_empty(),
            everybody: secrets.iter().any(|secret| secret.owners.is_empty()),
            named: secrets.iter().flat_map(|secret| &secret.owners).collect(),
            alone: secrets.iter().filter_map(alone).collect(),
        }
    }

    /// Tells whether some key may belong to these two ends.
    pub fn fit(&self, local: &Identity, remote: &Identity) -> bool {
        // An end without a configured identity identifies itself by its address, which is unknown
        // here.
        let unknown = remote.is_pattern() || *local == Identity::Any;
        self.everybody
            || unknown && self.any_key
            || self.named.contains(remote)
            // A key that names us and others is shared with those others only.
            || self.alone.contains(local)
    }
}

pub(crate) fn secrets(
    node: &SectionNode,
    modules: &[Pkcs11Module],
    diagnostics: &mut Diagnostics,
) -> Secrets {
    schema::check(node, &schema::SECRETS, true, diagnostics);
    let mut secrets = Secrets::default();
    for section in node.sections() {
        let name = section.name.value.as_str();
        if name.starts_with("ike") {
            schema::check(section, &schema::SECRET_IKE, true, diagnostics);
            match ike(section, diagnostics) {
                Some(secret) => secrets.psk.push(secret),
                None => secrets.incomplete = true,
            }
        } else if name.starts_with("token") {
            if let Some(pin) = given(section, "pin") {
                warn_if_readable(&pin.value, diagnostics);
            }
            secrets
                .tokens
                .extend(tokens::token(section, modules, diagnostics));
        } else if let Some(folder) = ["private", "rsa", "ecdsa", "pkcs8", PKCS12]
            .into_iter()
            .find(|kind| name.starts_with(kind))
        {
            schema::check(section, &schema::SECRET_PRIVATE, true, diagnostics);
            match given(section, "file") {
                Some(entry) => {
                    let passphrase = given(section, "secret");
                    if let Some(passphrase) = passphrase {
                        warn_if_readable(&passphrase.value, diagnostics);
                    }
                    let list = match folder {
                        PKCS12 => &mut secrets.pkcs12,
                        _ => &mut secrets.private,
                    };
                    list.push(NamedKey {
                        folder,
                        file: Spanned {
                            value: PathBuf::from(entry.value.value.obey()),
                            at: entry.value.at,
                        },
                        passphrase: passphrase
                            .map(|entry| SecretBytes::from(entry.value.value.obey().as_bytes())),
                    });
                }
                None => {
                    let what = format!("{} names no `file`", quoted(name));
                    let help =
                        format!("add `file = …`, relative to the folder {folder}/ or absolute");
                    diagnostics.push(
                        Diagnostic::error(what)
                            .at(section.name.at)
                            .help(help)
                            .hide_source(),
                    );
                }
            }
        }
    }
    secrets
}

fn ike(node: &SectionNode, diagnostics: &mut Diagnostics) -> Option<Secret> {
    let owners = owners(node, diagnostics);
    let Some(entry) = given(node, "secret") else {
        let what = format!("{} has no `secret`", quoted(&node.name.value));
        let help = "add `secret = …`: text, 0x and hex digits, or 0s and base64";
        diagnostics.push(
            Diagnostic::error(what)
                .at(node.name.at)
                .help(help)
                .hide_source(),
        );
        return None;
    };
    warn_if_readable(&entry.value, diagnostics);
    match decode(entry.value.value.obey()) {
        Some(key) if !key.is_empty() => {
            if key.len() < SECRET_BYTES_MIN {
                let what = format!("`secret`: it is shorter than {SECRET_BYTES_MIN} bytes");
                let help = "take 32 random characters: whoever answers in the peer's place can try guesses \
                            without asking anybody (RFC 7296 section 2.15)";
                let warning = Diagnostic::warning(what).at(entry.value.at).help(help);
                diagnostics.push(warning.hide_source());
            }
            Some(Secret {
                owners: owners?,
                key: Arc::new(SecretBytes::from(key.as_slice())),
            })
        }
        _ => {
            let what = "`secret`: the text after 0x or 0s cannot be decoded";
            let help = "0x takes an even number of hex digits, 0s takes base64; encode a text that begins so";
            diagnostics.push(
                Diagnostic::error(what)
                    .at(entry.value.at)
                    .help(help)
                    .hide_source(),
            );
            None
        }
    }
}

/// Reads the identities that a key belongs to. An empty list stands for everybody. Returns `None` if nobody can say whose
/// it is.
fn owners(node: &SectionNode, diagnostics: &mut Diagnostics) -> Option<Vec<Identity>> {
    let ids = || (node.values().iter()).filter(|entry| entry.key.value.starts_with("id"));
    let mut owners = Vec::new();
    let mut everybody = ids().next().is_none();
    let mut refused = false;
    for entry in ids() {
        let bad = match empty_text(entry) {
            Some(bad) => bad,
            // This clears an identity that another section has.
            None if entry.value.value.is_empty() => continue,
            None => match own_identity(entry.value.value.obey()) {
                Ok(Identity::Any) => {
                    everybody = true;
                    continue;
                }
                Ok(owner) => {
                    owners.push(owner);
                    continue;
                }
                Err(bad) => bad,
            },
        };
        refused = true;
        diagnostics.push(finding(&entry.key.value, bad, entry.value.at).hide_source());
    }
    if everybody {
        owners.clear();
    } else if owners.is_empty() && !refused {
        let what = format!(
            "all identities of {} are empty, so nobody owns its key",
            quoted(&node.name.value)
        );
        let help = "write whom the key belongs to, or `id = %any` if it is everybody's";
        let error = Diagnostic::error(what).at(node.name.at).help(help);
        diagnostics.push(error.hide_source());
        refused = true;
    }
    (!refused).then_some(owners)
}

fn warn_if_readable<T>(place: &Spanned<T>, diagnostics: &mut Diagnostics) {
    let path = diagnostics.sources.path(&place.at).to_owned();
    if let Some(what) = readable_by_others(&path) {
        // Warn once per file: the permissions belong to the file.
        if !diagnostics.iter().any(|known| known.what == what) {
            let help = format!("run `chmod o= {}`", path.display());
            diagnostics.push(
                Diagnostic::warning(what)
                    .at(place.at)
                    .help(help)
                    .hide_source(),
            );
        }
    }
}

/// Returns a finding if every user of the machine may read a file that contains secrets.
pub(crate) fn readable_by_others(path: &std::path::Path) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o004 != 0).then(|| {
        format!(
            "{} holds secrets and every user may read it",
            quoted(&path.display().to_string())
        )
    })
}

/// Decodes a secret as swanctl.conf writes it: text, `0x` and hex, or `0s` and base64.
fn decode(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        hex(digits)
    } else if let Some(letters) = text.strip_prefix("0s").or_else(|| text.strip_prefix("0S")) {
        base64(letters)
    } else {
        Some(Zeroizing::new(text.as_bytes().to_vec()))
    }
}

/// Decodes base64, with or without padding.
fn base64(letters: &str) -> Option<Zeroizing<Vec<u8>>> {
    let letters = letters.trim_end_matches('=').as_bytes();
    if letters.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(letters.len() / 4 * 3 + 2));
    for group in letters.chunks(4) {
        let mut word = 0u32;
        for &letter in group {
            let value = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            word = word << 6 | u32::from(value);
        }
        word <<= 6 * (4 - group.len());
        // Four letters encode three bytes, three letters two, and two letters one.
        bytes.extend_from_slice(&word.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_for_whom_they_name() {
        let id = |name: &str| name.parse::<Identity>().unwrap();
        let key = |owners: &[&str]| Secret {
            owners: owners.iter().map(|name| id(name)).collect(),
            key: Arc::default(),
        };
        let keys = [
            key(&["a.example", "b.example"]),
            key(&["own.example", "OWN.example"]),
        ];
        for (local, remote, fits) in [
            ("a.example", "b.example", true),
            ("c.example", "B.Example", true),
            ("a.example", "c.example", false),
            ("Own.example", "c.example", true),
            ("c.example", "%any", true),
            ("c.example", "*.example", true),
            ("%any", "c.example", true),
        ] {
            let owners = KeyOwners::new(&keys);
            assert_eq!(
                owners.fit(&id(local), &id(remote)),
                fits,
                "{local} {remote}"
            );
            assert!(KeyOwners::new(&[key(&[])]).fit(&id(local), &id(remote)));
            assert!(!KeyOwners::new(&[]).fit(&id(local), &id(remote)));
        }
    }

    // RFC 7296 R133
    #[test]
    fn encodings() {
        let plain = |text: &str| decode(text).map(|bytes| bytes.to_vec());
        assert_eq!(plain("hello"), Some(b"hello".to_vec()));
        assert_eq!(plain("0x68656c6C6f"), Some(b"hello".to_vec()));
        assert_eq!(plain("0saGVsbG8="), Some(b"hello".to_vec()));
        assert_eq!(plain("0saGVsbA"), Some(b"hell".to_vec()));
        assert_eq!(plain("0sAQID"), Some(vec![1, 2, 3]));
        assert_eq!(plain("0x123"), None);
        assert_eq!(plain("0xzz"), None);
        assert_eq!(plain("0sa"), None);
        assert_eq!(plain("0sa!=="), None);
    }
}
