//! Reads certificates and private keys from the folders beside the configuration. It does not
//! validate chains; `ike` does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esplanade_ike::auth::{Certificate, Credential, CredentialError};
use zeroize::Zeroizing;

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::include::{expand, read_bytes};
use super::secret::readable_by_others;
use super::source::{Location, Spanned};

const FILE_BYTES_MAX: u64 = 1 << 20;
const FOLDER_FILES_MAX: usize = 10_000;

/// Finds credentials. All paths are relative to the folder of the configuration.
#[derive(Debug)]
pub(super) struct CredentialStore {
    base: PathBuf,
    named_keys: Vec<(&'static str, Spanned<PathBuf>)>,
    /// The private keys. They are read when a connection first needs one.
    keys: Option<Vec<KeyFile>>,
    authorities: Option<Vec<Certificate>>,
}

/// The content of one file with a private key.
struct KeyFile {
    path: PathBuf,
    content: Zeroizing<Vec<u8>>,
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeyFile").field(&self.path).finish()
    }
}

impl CredentialStore {
    pub fn new(base: &Path, named_keys: Vec<(&'static str, Spanned<PathBuf>)>) -> Self {
        Self {
            base: base.to_owned(),
            named_keys,
            keys: None,
            authorities: None,
        }
    }

    /// Reads the certificates of one file: PEM with one or more, or DER with one. Reports a file
    /// that it refuses, and returns an empty list.
    pub fn certificates(
        &self,
        folder: &str,
        file: &str,
        at: Location,
        d: &mut Diagnostics,
    ) -> Vec<Certificate> {
        let path = self.base.join(folder).join(file);
        d.sources.note_read(&path);
        match certificates_of(&path) {
            Ok(found) => found,
            Err((what, help)) => {
                let what = format!(
                    "certificate {}: {what}",
                    quoted(&path.display().to_string())
                );
                d.push(Diagnostic::error(what).at(at).help(help));
                Vec::new()
            }
        }
    }

    /// Reads all certificates in the folder `x509ca`. A file that holds no certificate causes a
    /// warning and is skipped.
    pub fn authorities(&mut self, d: &mut Diagnostics) -> Vec<Certificate> {
        if let Some(known) = &self.authorities {
            return known.clone();
        }
        let mut found = Vec::new();
        for path in all_in(&self.base, "x509ca", d) {
            d.sources.note_read(&path);
            match certificates_of(&path) {
                Ok(certificates) => found.extend(certificates),
                Err((what, help)) => {
                    let what = format!(
                        "certificate {}: {what}",
                        quoted(&path.display().to_string())
                    );
                    d.push(Diagnostic::warning(what).help(help));
                }
            }
        }
        self.authorities = Some(found.clone());
        found
    }

    /// Joins the end entity's certificate, the first of `chain`, with its private key. Returns
    /// `None` and reports the reason if no key fits.
    pub fn credential(
        &mut self,
        chain: Vec<Certificate>,
        at: Location,
        d: &mut Diagnostics,
    ) -> Option<Arc<Credential>> {
        let keys = match self.keys.take() {
            Some(keys) => keys,
            None => self.read_keys(d),
        };
        // A key of another type fails to parse, which is normal. Keep only the reasons that help
        // the user.
        let mut reasons = Vec::new();
        let mut found = None;
        for key in &keys {
            match Credential::new(&key.content, chain.clone()) {
                Ok(credential) => {
                    found = Some(Arc::new(credential));
                    break;
                }
                Err(error @ CredentialError::KeyType(_)) => {
                    d.push(
                        Diagnostic::error(format!("`certs`: {error}"))
                            .at(at)
                            .help("use another certificate"),
                    );
                    self.keys = Some(keys);
                    return None;
                }
                Err(CredentialError::Mismatch { .. }) => {}
                Err(error) => reasons.push(format!(
                    "{}: {error}",
                    quoted(&key.path.display().to_string())
                )),
            }
        }
        self.keys = Some(keys);
        if found.is_none() {
            let subject = chain
                .first()
                .map(|certificate| certificate.subject().to_string())
                .unwrap_or_default();
            let what = format!(
                "`certs`: no private key belongs to the certificate {}",
                quoted(&subject)
            );
            let mut help = "put the key into private/ beside the configuration, or name it in \
                            secrets { private { file = … } }"
                .to_owned();
            if !reasons.is_empty() {
                help += &format!("; looked at {}", reasons.join(", "));
            }
            d.push(Diagnostic::error(what).at(at).help(help));
        }
        found
    }

    /// Reads every private key. A key file that the secrets name must be readable; the folders of
    /// keys may hold other files.
    fn read_keys(&self, d: &mut Diagnostics) -> Vec<KeyFile> {
        let mut keys: Vec<KeyFile> = Vec::new();
        let mut add = |path: PathBuf, named: Option<Location>, d: &mut Diagnostics| {
            if keys.iter().any(|key| key.path == path) {
                return;
            }
            d.sources.note_read(&path);
            match key_of(&path) {
                Ok(content) => keys.push(KeyFile { path, content }),
                Err((what, help)) => {
                    let what = format!(
                        "private key {}: {what}",
                        quoted(&path.display().to_string())
                    );
                    d.push(match named {
                        Some(at) => Diagnostic::error(what).at(at).help(help).hide_source(),
                        None => Diagnostic::warning(what).help(help),
                    });
                }
            }
        };
        for (folder, file) in &self.named_keys {
            add(self.base.join(folder).join(&file.value), Some(file.at), d);
        }
        for folder in ["private", "rsa", "ecdsa", "pkcs8"] {
            for path in all_in(&self.base, folder, d) {
                add(path, None, d);
            }
        }
        for what in keys.iter().filter_map(|key| readable_by_others(&key.path)) {
            d.push(Diagnostic::warning(what).help("run `chmod o=` on it"));
        }
        keys
    }
}

/// Lists the files of a folder. The folder need not exist.
fn all_in(base: &Path, folder: &str, d: &mut Diagnostics) -> Vec<PathBuf> {
    expand(base, &format!("{folder}/*"), FOLDER_FILES_MAX).unwrap_or_else(|problem| {
        let what = format!("the folder {}: {}", quoted(folder), problem.what);
        d.push(Diagnostic::error(what).help(problem.help));
        Vec::new()
    })
}

type FileRefusal = (String, &'static str);

fn certificates_of(path: &Path) -> Result<Vec<Certificate>, FileRefusal> {
    let bytes = read_bytes(path, FILE_BYTES_MAX).map_err(|problem| (problem.what, problem.help))?;
    let help = "write the certificate in PEM (`-----BEGIN CERTIFICATE-----`) or DER";
    Certificate::from_file_content(&bytes).map_err(|error| (error.to_string(), help))
}

fn key_of(path: &Path) -> Result<Zeroizing<Vec<u8>>, FileRefusal> {
    let bytes = read_bytes(path, FILE_BYTES_MAX).map_err(|problem| (problem.what, problem.help))?;
    let marks = [
        &b"-----BEGIN ENCRYPTED PRIVATE KEY-----"[..],
        b"Proc-Type: 4,ENCRYPTED",
    ];
    if marks
        .iter()
        .any(|mark| bytes.windows(mark.len()).any(|window| window == *mark))
    {
        let what = "encrypted private keys are not supported yet".to_owned();
        return Err((
            what,
            "decrypt it with `openssl pkey` and protect the file by its mode",
        ));
    }
    Ok(bytes)
}
