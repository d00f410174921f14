//! The list of what a library has: a line with the signature, then JSON.

use std::collections::BTreeSet;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use super::{DOMAIN_LEN_MAX, LIBRARY_LEN_MAX, LibraryError, NAMES_MAX};
use crate::frames::{BITSTREAM_LEN_MAX, Part};

const VERSION: u32 = 1;
const UNSIGNED: &str = "unsigned";
const SIGNED: &str = "ed25519 ";
const NAME_LEN_MAX: usize = 64;

/// Who may have made a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The owner of an Ed25519 key.
    Key([u8; 32]),
    /// Everybody who can write to its directory.
    Directory,
}

/// The list of what a library has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    version: u32,
    /// The number of the library. Each update has a larger one.
    pub serial: u64,
    /// The domains.
    pub domains: Vec<Domain>,
}

/// An algorithm on a part, with its bitstreams in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// The name of the domain: small letters, digits and hyphens.
    pub name: String,
    /// The part that all its bitstreams are for.
    pub part: String,
    /// The bytes of its file.
    pub bytes: u64,
    /// The hash of its file.
    pub sha256: String,
    /// The variants, in the order of the file's parts.
    pub variants: Vec<Variant>,
}

/// A bitstream of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The name of the variant: small letters, digits and hyphens.
    pub name: String,
    /// The bytes of the bitstream.
    pub bytes: u64,
    /// The hash of the bitstream.
    pub sha256: String,
}

impl Domain {
    /// The name of the domain's file.
    pub fn file_name(&self) -> String {
        format!("{}.ace", self.sha256)
    }
}

impl Manifest {
    pub(super) fn new(serial: u64, domains: Vec<Domain>) -> Self {
        Self {
            version: VERSION,
            serial,
            domains,
        }
    }

    /// Reads a manifest. The signature is checked before anything else is looked at.
    pub(super) fn parse(text: &[u8], trust: &Trust) -> Result<Self, LibraryError> {
        let malformed = |what: &str| LibraryError::Manifest(what.to_owned());
        let end = text.iter().position(|&byte| byte == b'\n');
        let end = end.ok_or_else(|| malformed("no line with the signature"))?;
        let (line, json) = (&text[..end], &text[end + 1..]);
        match trust {
            Trust::Directory => {}
            Trust::Key(key) => {
                let signature = line
                    .strip_prefix(SIGNED.as_bytes())
                    .ok_or(LibraryError::Signature)?;
                let signature = hex::decode(signature).map_err(|_| LibraryError::Signature)?;
                UnparsedPublicKey::new(&ED25519, key)
                    .verify(json, &signature)
                    .map_err(|_| LibraryError::Signature)?;
            }
        }
        let manifest: Self = serde_json::from_slice(json)
            .map_err(|error| LibraryError::Manifest(error.to_string()))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The text of the manifest, signed if there is a key.
    pub(super) fn text(&self, key: Option<&Ed25519KeyPair>) -> Result<String, LibraryError> {
        self.check()?;
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| LibraryError::Manifest(error.to_string()))?;
        let line = match key {
            Some(key) => format!("{SIGNED}{}", hex::encode(key.sign(json.as_bytes()))),
            None => UNSIGNED.to_owned(),
        };
        Ok(format!("{line}\n{json}"))
    }

    fn check(&self) -> Result<(), LibraryError> {
        let refuse = |what: String| Err(LibraryError::Manifest(what));
        if self.version != VERSION {
            return refuse(format!(
                "version {}; this program reads {VERSION}",
                self.version
            ));
        }
        check_names(
            "the library",
            self.domains.iter().map(|domain| &domain.name),
        )?;
        let mut total = 0;
        for Domain {
            name,
            part,
            bytes,
            sha256,
            variants,
        } in &self.domains
        {
            if Part::named(part).is_none() {
                return refuse(format!("domain {name}: unknown part {part:?}"));
            }
            total += bytes.min(&LIBRARY_LEN_MAX);
            if *bytes > DOMAIN_LEN_MAX || total > LIBRARY_LEN_MAX {
                return refuse(format!(
                    "domain {name}: its file of {bytes} bytes is too large"
                ));
            }
            if variants.is_empty() {
                return refuse(format!("domain {name} has no variant"));
            }
            check_names(name, variants.iter().map(|variant| &variant.name))?;
            let hashes = variants
                .iter()
                .map(|variant| &variant.sha256)
                .chain([sha256]);
            if !hashes.into_iter().all(|hash| is_hash(hash)) {
                return refuse(format!(
                    "domain {name}: a hash is not 64 small hexadecimal digits"
                ));
            }
            if let Some(long) = variants
                .iter()
                .find(|each| each.bytes > BITSTREAM_LEN_MAX as u64)
            {
                return refuse(format!("domain {name}, variant {}: too long", long.name));
            }
        }
        Ok(())
    }
}

fn check_names<'a>(
    place: &str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), LibraryError> {
    let mut seen = BTreeSet::new();
    for name in names {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let length = 1..=NAME_LEN_MAX;
        if !length.contains(&name.len()) || !name.bytes().all(allowed) {
            let what = format!("{place}: {name:?} is no name of small letters, digits and hyphens");
            return Err(LibraryError::Manifest(what));
        }
        if !seen.insert(name) {
            return Err(LibraryError::Manifest(format!(
                "{place}: {name} is there twice"
            )));
        }
        if seen.len() > NAMES_MAX {
            let what = format!("{place}: more than {NAMES_MAX} names");
            return Err(LibraryError::Manifest(what));
        }
    }
    Ok(())
}

fn is_hash(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
