//! Reads certificates and private keys from the folders beside the configuration. It does not
//! validate chains; `ike` does.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esplanade_crypto::key_file::{self, KeyFileError};
use esplanade_crypto::secret::Secret;
use esplanade_ike::auth::{Credential, CredentialError, ExternalKey, Identity};
use esplanade_pki::attributes::{AttributeAuthority, AttributeCertificate};
use esplanade_pki::{Certificate, FileError, PublicKey};
use esplanade_tokens::{TokenKey, TokenPlace};
use zeroize::Zeroizing;

use super::diagnostics::{Diagnostic, Diagnostics, quoted};
use super::include::{expand, read_bytes};
use super::secret::{NamedKey, readable_by_others};
use super::source::Location;
use super::tokens::{self, Pkcs11Module};
use super::tree::SectionNode;

const FILE_BYTES_MAX: u64 = 1 << 20;
const FOLDER_FILES_MAX: usize = 10_000;
/// How often the passphrases of all files together are hashed. A reload waits for it, and IKE with it: less than a second.
/// Programs that ask for much write 600,000 iterations three times into a PKCS#12 file.
const ITERATIONS_MAX: u64 = 2_000_000;

/// Finds credentials. All paths are relative to the folder of the configuration.
#[derive(Debug)]
pub(crate) struct CredentialStore {
    base: PathBuf,
    named: NamedKeys,
    modules: Vec<Pkcs11Module>,
    /// Certificates on tokens that are not read yet.
    absent: Vec<TokenPlace>,
    /// The content of the PKCS#12 files that the secrets name.
    containers: Vec<Container>,
    /// The private keys that the secrets name.
    named_keys: Vec<KeyFile>,
    /// These and those in the folders, which are read when a connection first needs one.
    keys: Option<Vec<KeyFile>>,
    authorities: Option<Vec<Certificate>>,
    attribute_authorities: Option<Vec<AttributeAuthority>>,
    attribute_certificates: Option<Vec<Arc<AttributeCertificate>>>,
    /// Warnings about the folders, which each connection that uses them would repeat.
    warned: HashSet<String>,
}

/// The private keys that the secrets name.
#[derive(Debug)]
pub(crate) struct NamedKeys {
    pub files: Vec<NamedKey>,
    pub containers: Vec<NamedKey>,
    pub tokens: Vec<TokenKey>,
}

/// The content of one file with a private key.
struct KeyFile {
    path: PathBuf,
    content: Zeroizing<Vec<u8>>,
}

/// The content of one PKCS#12 file.
#[derive(Debug)]
struct Container {
    key: KeyFile,
    /// The certificate of the key comes first.
    chain: Vec<Certificate>,
}

impl std::fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeyFile").field(&self.path).finish()
    }
}

impl CredentialStore {
    pub fn new(base: &Path, named: NamedKeys, modules: Vec<Pkcs11Module>) -> Self {
        Self {
            base: base.to_owned(),
            named,
            modules,
            absent: Vec::new(),
            containers: Vec::new(),
            named_keys: Vec::new(),
            keys: None,
            authorities: None,
            attribute_authorities: None,
            attribute_certificates: None,
            warned: HashSet::new(),
        }
    }

    /// Reads the files that the secrets name, whether or not a connection needs them now. Reports those that it cannot read
    /// or open.
    pub fn read_named(&mut self, d: &mut Diagnostics) {
        let mut iterations_left = ITERATIONS_MAX;
        for named in &self.named.files {
            let path = self.base.join(named.folder).join(&named.file.value);
            if self.named_keys.iter().any(|known| known.path == path) {
                continue;
            }
            d.sources.note_read(&path);
            match key_of(&path, Some((named, &mut iterations_left)), d) {
                Ok(content) => self.named_keys.push(KeyFile { path, content }),
                Err(refusal) => d.push(refused("private key", &path, named, refusal)),
            }
        }
        for named in &self.named.containers {
            let path = self.base.join(named.folder).join(&named.file.value);
            d.sources.note_read(&path);
            match container_of(&path, named.passphrase.as_ref(), &mut iterations_left) {
                Ok(container) => self.containers.push(container),
                Err(refusal) => d.push(refused("PKCS#12 file", &path, named, refusal)),
            }
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

    /// Reads the public key of a file in the folder `pubkey`. Reports a file that it refuses.
    pub fn public_key(&self, file: &str, at: Location, d: &mut Diagnostics) -> Option<PublicKey> {
        let path = self.base.join("pubkey").join(file);
        d.sources.note_read(&path);
        match public_key_of(&path) {
            Ok(key) => Some(key),
            Err((what, help)) => {
                let what = format!("public key {}: {what}", quoted(&path.display().to_string()));
                d.push(Diagnostic::error(what).at(at).help(help));
                None
            }
        }
    }

    /// Reads all certificates in the folder `x509ca`.
    pub fn authorities(&mut self, d: &mut Diagnostics) -> Vec<Certificate> {
        let base = &self.base;
        let known = self
            .authorities
            .get_or_insert_with(|| all_of(base, "x509ca", "certificate", certificates_of, d));
        known.clone()
    }

    /// Reports a warning about a folder, unless it was reported before.
    pub fn warn_once(&mut self, what: String, help: &str, d: &mut Diagnostics) {
        if self.warned.insert(what.clone()) {
            d.push(Diagnostic::warning(what).help(help));
        }
    }

    /// Reads the certificates of attribute authorities, in the folder `x509aa`.
    pub fn attribute_authorities(&mut self, d: &mut Diagnostics) -> Vec<AttributeAuthority> {
        let base = &self.base;
        let known = self.attribute_authorities.get_or_insert_with(|| {
            let what = "attribute authority";
            all_of(base, "x509aa", what, attribute_authorities_of, d)
        });
        known.clone()
    }

    /// Reads all attribute certificates in the folder `x509ac`.
    pub fn attribute_certificates(
        &mut self,
        d: &mut Diagnostics,
    ) -> Vec<Arc<AttributeCertificate>> {
        let base = &self.base;
        let known = self.attribute_certificates.get_or_insert_with(|| {
            let what = "attribute certificate";
            all_of(base, "x509ac", what, attribute_certificate_of, d)
        });
        known.clone()
    }

    /// Returns the certificates of the files in the folder `x509` that are for `id`, and have a private key here. The first
    /// certificate of a file is the own one.
    pub fn own_in_folder(&mut self, id: &Identity, d: &mut Diagnostics) -> Vec<Vec<Certificate>> {
        let mut found = Vec::new();
        for path in all_in(&self.base, "x509", d) {
            let Ok(chain) = certificates_of(&path) else {
                continue;
            };
            let is_for = |own: &Certificate| *id != Identity::Any && id.is_named_by(own);
            if chain.first().is_some_and(is_for) && self.has_key(&chain, d) {
                d.sources.note_read(&path);
                found.push(chain);
            }
        }
        found
    }

    fn has_key(&mut self, chain: &[Certificate], d: &mut Diagnostics) -> bool {
        // Nobody knows yet which certificate a key on a token belongs to.
        self.has_file(chain, d) || !self.named.tokens.is_empty()
    }

    /// Tells whether a file has the private key of the certificate.
    fn has_file(&mut self, chain: &[Certificate], d: &mut Diagnostics) -> bool {
        let keys = match self.keys.take() {
            Some(keys) => keys,
            None => self.read_keys(d),
        };
        let fits = |key: &KeyFile| Credential::new(&key.content, chain.to_vec()).is_ok();
        let mut contained = self.containers.iter().map(|one| &one.key);
        let has = keys.iter().any(fits) || contained.any(fits);
        self.keys = Some(keys);
        has
    }

    /// Returns the certificate of a token. Returns `None` if it is not read yet.
    pub fn on_token(
        &mut self,
        section: &SectionNode,
        d: &mut Diagnostics,
    ) -> Option<(TokenPlace, Certificate)> {
        let place = tokens::place(section, &self.modules, d)?;
        let Some(der) = esplanade_tokens::certificate(&place) else {
            self.absent.push(place);
            return None;
        };
        match Certificate::from_der(&der) {
            Ok(certificate) => Some((place, certificate)),
            Err(error) => {
                let what = format!("the certificate on the token: {error}");
                let help = "put an X.509 certificate there";
                d.push(Diagnostic::error(what).at(section.name.at).help(help));
                None
            }
        }
    }

    /// Returns the certificates that were not read yet.
    pub fn take_absent(&mut self) -> Vec<TokenPlace> {
        std::mem::take(&mut self.absent)
    }

    /// Returns the certificates of the PKCS#12 file that is for `id`, its own certificate first.
    /// With [`Identity::Any`] it is the first file.
    pub fn contained(&self, id: &Identity) -> Option<Vec<Certificate>> {
        let is_for = |container: &&Container| {
            let own = container.chain.first();
            *id == Identity::Any || own.is_some_and(|certificate| id.is_named_by(certificate))
        };
        let found = self.containers.iter().find(is_for);
        found.map(|container| container.chain.clone())
    }

    /// Joins the end entity's certificate, the first of `chain`, with its private key. A key on a token may be any of the
    /// secrets, and first that at the `place` of the certificate. Returns `None` and reports the reason if no key fits.
    pub fn credential(
        &mut self,
        chain: Vec<Certificate>,
        place: Option<&TokenPlace>,
        at: Location,
        d: &mut Diagnostics,
    ) -> Option<Credential> {
        let subject = chain.first()?.subject().to_string();
        if !self.named.tokens.is_empty() && !self.has_file(&chain, d) {
            let mut keys = self.named.tokens.clone();
            keys.sort_by_key(|key| place != Some(&key.place));
            let keys = keys
                .into_iter()
                .map(|key| Arc::new(key) as Arc<dyn ExternalKey>);
            return match Credential::external(chain, keys.collect()) {
                Ok(credential) => Some(credential),
                Err(error) => {
                    let error = Diagnostic::error(format!("`certs`: {error}"));
                    d.push(error.at(at).help("use another one"));
                    None
                }
            };
        }
        let of = format!(
            "`certs`: no private key belongs to the certificate {}",
            quoted(&subject)
        );
        self.find_key(
            |key| Credential::new(key, chain.clone()),
            "certs",
            of,
            at,
            d,
        )
    }

    /// Joins a public key with its private key, as [`Self::credential`] does.
    pub fn credential_of_key(
        &mut self,
        public: PublicKey,
        at: Location,
        d: &mut Diagnostics,
    ) -> Option<Credential> {
        let of = format!(
            "`pubkeys`: no private key belongs to {}",
            Identity::of_key(&public)
        );
        let join = |key: &[u8]| Credential::without_certificate(key, public.clone());
        self.find_key(join, "pubkeys", of, at, d)
    }

    /// Returns what `join` makes of the first private key that it takes. If none fits, it reports `missing`.
    fn find_key(
        &mut self,
        join: impl Fn(&[u8]) -> Result<Credential, CredentialError>,
        setting: &str,
        missing: String,
        at: Location,
        d: &mut Diagnostics,
    ) -> Option<Credential> {
        let keys = match self.keys.take() {
            Some(keys) => keys,
            None => self.read_keys(d),
        };
        // A key of another type fails to parse, which is normal. Keep only the reasons that help
        // the user.
        let mut reasons = Vec::new();
        let mut found = None;
        let contained = self.containers.iter().map(|container| &container.key);
        for key in keys.iter().chain(contained) {
            match join(&key.content) {
                Ok(credential) => {
                    found = Some(credential);
                    break;
                }
                Err(error @ CredentialError::File(FileError::KeyType(_))) => {
                    d.push(
                        Diagnostic::error(format!("`{setting}`: {error}"))
                            .at(at)
                            .help("use another one"),
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
            let mut help = "put the key into private/ beside the configuration, or name it in \
                            secrets { private { file = … } }"
                .to_owned();
            if !reasons.is_empty() {
                help += &format!("; looked at {}", reasons.join(", "));
            }
            d.push(Diagnostic::error(missing).at(at).help(help));
        }
        found
    }

    /// Returns the private keys that the secrets name, and those in the folders, which may hold other files.
    fn read_keys(&mut self, d: &mut Diagnostics) -> Vec<KeyFile> {
        let mut keys = std::mem::take(&mut self.named_keys);
        for folder in ["private", "rsa", "ecdsa", "pkcs8"] {
            for path in all_in(&self.base, folder, d) {
                if keys.iter().any(|key| key.path == path) {
                    continue;
                }
                d.sources.note_read(&path);
                match key_of(&path, None, d) {
                    Ok(content) => keys.push(KeyFile { path, content }),
                    Err((what, help)) => {
                        let path = quoted(&path.display().to_string());
                        let what = format!("private key {path}: {what}");
                        d.push(Diagnostic::warning(what).help(help));
                    }
                }
            }
        }
        for what in keys.iter().filter_map(|key| readable_by_others(&key.path)) {
            d.push(Diagnostic::warning(what).help("run `chmod o=` on it"));
        }
        keys
    }
}

/// Reports a file of the secrets that was not taken.
fn refused(kind: &str, path: &Path, named: &NamedKey, (what, help): FileRefusal) -> Diagnostic {
    let what = format!("{kind} {}: {what}", quoted(&path.display().to_string()));
    let error = Diagnostic::error(what).at(named.file.at);
    error.help(help).hide_source()
}

/// Lists the files of a folder. The folder need not exist.
pub(crate) fn all_in(base: &Path, folder: &str, d: &mut Diagnostics) -> Vec<PathBuf> {
    expand(base, &format!("{folder}/*"), FOLDER_FILES_MAX).unwrap_or_else(|problem| {
        let what = format!("the folder {}: {}", quoted(folder), problem.what);
        d.push(Diagnostic::error(what).help(problem.help));
        Vec::new()
    })
}

type FileRefusal = (String, &'static str);

/// Reads all files of a folder. A file that `read` refuses causes a warning and is skipped.
fn all_of<T>(
    base: &Path,
    folder: &str,
    what: &str,
    read: impl Fn(&Path) -> Result<Vec<T>, FileRefusal>,
    d: &mut Diagnostics,
) -> Vec<T> {
    let mut found = Vec::new();
    for path in all_in(base, folder, d) {
        d.sources.note_read(&path);
        match read(&path) {
            Ok(content) => found.extend(content),
            Err((why, help)) => {
                let what = format!("{what} {}: {why}", quoted(&path.display().to_string()));
                d.push(Diagnostic::warning(what).help(help));
            }
        }
    }
    found
}

pub(crate) fn certificates_of(path: &Path) -> Result<Vec<Certificate>, FileRefusal> {
    let bytes = read_bytes(path, FILE_BYTES_MAX).map_err(|problem| (problem.what, problem.help))?;
    let help = "write the certificate in PEM (`-----BEGIN CERTIFICATE-----`) or DER";
    Certificate::from_file_content(&bytes).map_err(|error| (error.to_string(), help))
}

/// The authority is that of the first certificate of the file.
fn attribute_authorities_of(path: &Path) -> Result<Vec<AttributeAuthority>, FileRefusal> {
    let certificate = certificates_of(path)?.into_iter().next();
    let authority = certificate.map(AttributeAuthority::new).transpose();
    let authority = authority.map_err(|error| {
        let help = "make a certificate of its own for it, without `cA` and with `digitalSignature`";
        (error.to_string(), help)
    });
    Ok(authority?.into_iter().collect())
}

fn attribute_certificate_of(path: &Path) -> Result<Vec<Arc<AttributeCertificate>>, FileRefusal> {
    let bytes = read_bytes(path, FILE_BYTES_MAX).map_err(|problem| (problem.what, problem.help))?;
    let help =
        "write it in PEM (`-----BEGIN ATTRIBUTE CERTIFICATE-----`) or DER, as `pki --acert` does";
    let found = AttributeCertificate::from_file_content(&bytes);
    let found = found.map_err(|error| (error.to_string(), help))?;
    Ok(vec![Arc::new(found)])
}

fn public_key_of(path: &Path) -> Result<PublicKey, FileRefusal> {
    let bytes = read_bytes(path, FILE_BYTES_MAX).map_err(|problem| (problem.what, problem.help))?;
    let help = "write it in PEM (`-----BEGIN PUBLIC KEY-----`) or DER; `openssl pkey -in KEY -pubout` does";
    PublicKey::from_file_content(&bytes).map_err(|error| (error.to_string(), help))
}

/// Reads a private key. A file that the secrets name may have a passphrase.
fn key_of(
    path: &Path,
    named: Option<(&NamedKey, &mut u64)>,
    d: &mut Diagnostics,
) -> Result<Zeroizing<Vec<u8>>, FileRefusal> {
    let bytes = read_bytes(path, FILE_BYTES_MAX).map_err(|problem| (problem.what, problem.help))?;
    if !key_file::is_encrypted(&bytes) {
        if let Some((named, _)) = named
            && named.passphrase.is_some()
        {
            let path = quoted(&path.display().to_string());
            let what =
                format!("private key {path}: nothing encrypts it, so `secret` protects nothing");
            let help = "encrypt it (`openssl pkcs8 -topk8`), or remove `secret`";
            let warning = Diagnostic::warning(what).at(named.file.at);
            d.push(warning.help(help).hide_source());
        }
        return Ok(bytes);
    }
    let with_passphrase = named.and_then(|(named, left)| Some((named.passphrase.as_ref()?, left)));
    let Some((passphrase, iterations_left)) = with_passphrase else {
        return Err((
            "it is encrypted, and no passphrase is given".to_owned(),
            "add `secrets { private { file = …, secret = … } }`, each setting on a line of its own",
        ));
    };
    match key_file::decrypt(&bytes, passphrase, iterations_left) {
        Ok(key) => Ok(Zeroizing::new(key.expose().to_vec())),
        Err(error) => Err(not_opened(
            error,
            "check `secret`; `openssl pkey -in FILE` tells whether it is right",
        )),
    }
}

fn not_opened(error: KeyFileError, help: &'static str) -> FileRefusal {
    let help = match error {
        KeyFileError::Iterations { .. } => {
            "encrypt it anew with fewer iterations, such as by `openssl pkcs8 -topk8 -iter 100000`"
        }
        _ => help,
    };
    (error.to_string(), help)
}

fn container_of(
    path: &Path,
    passphrase: Option<&Secret>,
    iterations_left: &mut u64,
) -> Result<Container, FileRefusal> {
    let bytes = read_bytes(path, FILE_BYTES_MAX).map_err(|problem| (problem.what, problem.help))?;
    let none = Secret::default();
    let passphrase = passphrase.unwrap_or(&none);
    let opened = key_file::open_pkcs12(&bytes, passphrase, iterations_left).map_err(|error| {
        let help = "check `secret`; `openssl pkcs12 -in FILE` tells whether it is right";
        not_opened(error, help)
    })?;
    let help = "make it anew with the private key and its certificate";
    let certificates = opened
        .certificates
        .iter()
        .map(|der| Certificate::from_der(der))
        .collect::<Result<Vec<_>, _>>();
    let mut chain = certificates.map_err(|error| (error.to_string(), help))?;
    let key = opened.private_key.expose();
    let own = chain
        .iter()
        .position(|one| Credential::new(key, vec![one.clone()]).is_ok())
        .ok_or_else(|| {
            (
                "no certificate in it belongs to its private key".to_owned(),
                help,
            )
        })?;
    chain.swap(0, own);
    Ok(Container {
        key: KeyFile {
            path: path.to_owned(),
            content: Zeroizing::new(key.to_vec()),
        },
        chain,
    })
}
