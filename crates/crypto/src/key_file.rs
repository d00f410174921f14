//! Files whose private keys a passphrase encrypts: PEM and PKCS#8 (RFC 7468, RFC 5958, RFC 8018), and PKCS#12 (RFC 7292).

use std::ffi::{CString, c_int, c_void};
use std::ptr::{self, NonNull};

use aws_lc_sys as lc;
use zeroize::Zeroize;

use crate::secret::Secret;

pub(crate) mod iterations;

/// The reason why a file gives no private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    #[error("the passphrase contains a zero byte")]
    Passphrase,
    #[error("the passphrase does not decrypt it, or its form is not supported")]
    NotDecrypted,
    /// The number stands in the file, so that a file could ask for hours.
    #[error(
        "its passphrase is to be hashed {wanted} times, and {left} times are left for all files"
    )]
    Iterations { wanted: u64, left: u64 },
    #[error("it contains no private key")]
    NoPrivateKey,
    #[error("memory is short")]
    Memory,
}

/// The content of a PKCS#12 file.
#[derive(Debug)]
pub struct Pkcs12 {
    /// PKCS#8 in DER.
    pub private_key: Secret,
    /// Certificates in DER, in the order of the file.
    pub certificates: Vec<Vec<u8>>,
}

/// The label of a private key in PEM that a passphrase encrypts as PKCS#8 has it.
const ENCRYPTED_LABEL: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";

/// Tells whether a file contains a private key that needs a passphrase: PEM that says so, or PKCS#8 in DER.
pub fn is_encrypted(file: &[u8]) -> bool {
    const MARKS: [&[u8]; 2] = [ENCRYPTED_LABEL, b"Proc-Type: 4,ENCRYPTED"];
    MARKS.into_iter().any(|mark| contains(file, mark)) || is_encrypted_der(file)
}

fn contains(file: &[u8], mark: &[u8]) -> bool {
    file.windows(mark.len()).any(|window| window == mark)
}

/// EncryptedPrivateKeyInfo begins with the sequence of an algorithm, every other form of a private key with a number
/// (RFC 5958 §3).
fn is_encrypted_der(file: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    let [SEQUENCE, len, rest @ ..] = file else {
        return false;
    };
    let long = usize::from(len.checked_sub(0x80).unwrap_or_default());
    rest.get(long) == Some(&SEQUENCE)
}

/// Decrypts a private key. Returns it as PKCS#8 in DER. `iterations_left` bounds how often passphrases are hashed for
/// several files together: a processor does that two to five million times in a second.
pub fn decrypt(
    file: &[u8],
    passphrase: &Secret,
    iterations_left: &mut u64,
) -> Result<Secret, KeyFileError> {
    if is_encrypted_der(file) {
        return decrypt_der(file, passphrase, iterations_left);
    }
    if contains(file, ENCRYPTED_LABEL) {
        let der = encrypted_der(file, passphrase)?.ok_or(KeyFileError::NotDecrypted)?;
        return decrypt_der(&der, passphrase, iterations_left);
    }
    // The older form hashes its passphrase once.
    let key = EvpKey::from_encrypted_pem(file, passphrase)?;
    key.ok_or(KeyFileError::NotDecrypted)?.to_pkcs8()
}

fn decrypt_der(
    file: &[u8],
    passphrase: &Secret,
    iterations_left: &mut u64,
) -> Result<Secret, KeyFileError> {
    take_iterations(file, iterations_left)?;
    let key = EvpKey::from_encrypted_der(file, passphrase);
    key.ok_or(KeyFileError::NotDecrypted)?.to_pkcs8()
}

/// Takes all that the file, in DER or BER, asks for from what is left. Returns an error, and takes nothing, if that is too
/// much.
fn take_iterations(file: &[u8], iterations_left: &mut u64) -> Result<(), KeyFileError> {
    let (wanted, left) = (iterations::iterations(file), *iterations_left);
    *iterations_left = left
        .checked_sub(wanted)
        .ok_or(KeyFileError::Iterations { wanted, left })?;
    Ok(())
}

/// Opens a PKCS#12 file. `iterations_left` is as for [`decrypt`].
pub fn open_pkcs12(
    file: &[u8],
    passphrase: &Secret,
    iterations_left: &mut u64,
) -> Result<Pkcs12, KeyFileError> {
    take_iterations(file, iterations_left)?;
    let passphrase = c_string(passphrase)?;
    let certificates = CertificateStack::new()?;
    let mut key = ptr::null_mut();
    let mut content = bytes_to_parse(file);
    // SAFETY: `content` names the bytes of `file`, the passphrase ends with a zero byte, and the stack is ours.
    let opened = unsafe {
        lc::PKCS12_get_key_and_certs(
            &mut key,
            certificates.0.as_ptr().cast(),
            &mut content,
            passphrase.0.as_ptr(),
        )
    };
    let key = EvpKey::owned(key);
    if opened != 1 {
        forget_errors();
        return Err(KeyFileError::NotDecrypted);
    }
    Ok(Pkcs12 {
        private_key: key.ok_or(KeyFileError::NoPrivateKey)?.to_pkcs8()?,
        certificates: certificates.to_der(),
    })
}

/// A passphrase that ends with a zero byte. It is overwritten when it is dropped.
struct Passphrase(CString);

impl Drop for Passphrase {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).into_bytes().zeroize();
    }
}

fn c_string(passphrase: &Secret) -> Result<Passphrase, KeyFileError> {
    if passphrase.expose().contains(&0) {
        return Err(KeyFileError::Passphrase);
    }
    let mut bytes = Vec::with_capacity(passphrase.len() + 1);
    bytes.extend_from_slice(passphrase.expose());
    CString::new(bytes)
        .map(Passphrase)
        .map_err(|_| KeyFileError::Passphrase)
}

/// Opens PEM in memory. `file` must outlive what this returns, which has to be freed.
fn open_pem(file: &[u8]) -> Result<NonNull<lc::BIO>, KeyFileError> {
    let len = isize::try_from(file.len()).map_err(|_| KeyFileError::Memory)?;
    // SAFETY: the bytes of `file` outlive the BIO, as the caller makes sure.
    let bio = unsafe { lc::BIO_new_mem_buf(file.as_ptr().cast(), len as lc::ossl_ssize_t) };
    NonNull::new(bio).ok_or(KeyFileError::Memory)
}

/// Returns the content, in DER, of the first PKCS#8 key in PEM that a passphrase encrypts.
fn encrypted_der(file: &[u8], passphrase: &Secret) -> Result<Option<Vec<u8>>, KeyFileError> {
    let passphrase = c_string(passphrase)?;
    let bio = open_pem(file)?;
    let text: *const c_void = passphrase.0.as_ptr().cast();
    let (mut data, mut len) = (ptr::null_mut(), 0);
    // SAFETY: the BIO is ours, and the label and the passphrase end with zero bytes. Without a callback the library only
    // reads the passphrase, which headers in front of the key may ask for.
    let found = unsafe {
        let found = lc::PEM_bytes_read_bio(
            &mut data,
            &mut len,
            ptr::null_mut(),
            c"ENCRYPTED PRIVATE KEY".as_ptr(),
            bio.as_ptr(),
            None,
            text.cast_mut(),
        );
        lc::BIO_free(bio.as_ptr());
        found
    };
    forget_errors();
    if found != 1 {
        return Ok(None);
    }
    // SAFETY: the library gave `len` bytes to us.
    unsafe {
        let content = std::slice::from_raw_parts(data, usize::try_from(len).unwrap_or_default());
        let content = content.to_vec();
        lc::OPENSSL_free(data.cast());
        Ok(Some(content))
    }
}

fn bytes_to_parse(bytes: &[u8]) -> lc::CBS {
    let mut cbs = lc::CBS {
        data: ptr::null(),
        len: 0,
    };
    // SAFETY: `bytes` is valid for its length.
    unsafe { lc::CBS_init(&mut cbs, bytes.as_ptr(), bytes.len()) };
    cbs
}

/// The library keeps a queue of errors for each thread.
fn forget_errors() {
    // SAFETY: the call has no preconditions.
    unsafe { lc::ERR_clear_error() };
}

/// A private key of the library.
struct EvpKey(NonNull<lc::EVP_PKEY>);

impl EvpKey {
    fn owned(key: *mut lc::EVP_PKEY) -> Option<Self> {
        NonNull::new(key).map(Self)
    }

    fn from_encrypted_der(file: &[u8], passphrase: &Secret) -> Option<Self> {
        let mut content = bytes_to_parse(file);
        let passphrase = passphrase.expose();
        // SAFETY: `content` names the bytes of `file`, and the passphrase is valid for its length.
        let key = unsafe {
            lc::PKCS8_parse_encrypted_private_key(
                &mut content,
                passphrase.as_ptr().cast(),
                passphrase.len(),
            )
        };
        forget_errors();
        Self::owned(key)
    }

    fn from_encrypted_pem(file: &[u8], passphrase: &Secret) -> Result<Option<Self>, KeyFileError> {
        let passphrase = c_string(passphrase)?;
        let bio = open_pem(file)?;
        let text: *const c_void = passphrase.0.as_ptr().cast();
        // SAFETY: without a callback the library takes the argument for a passphrase that ends with a zero byte, and
        // only reads it.
        let key = unsafe {
            let key =
                lc::PEM_read_bio_PrivateKey(bio.as_ptr(), ptr::null_mut(), None, text.cast_mut());
            lc::BIO_free(bio.as_ptr());
            key
        };
        forget_errors();
        Ok(Self::owned(key))
    }

    fn to_pkcs8(&self) -> Result<Secret, KeyFileError> {
        // SAFETY: `CBB_zero` makes the struct valid, whatever is in it.
        let mut builder = unsafe {
            let mut builder = std::mem::MaybeUninit::<lc::CBB>::zeroed();
            lc::CBB_zero(builder.as_mut_ptr());
            builder.assume_init()
        };
        let (mut out, mut len) = (ptr::null_mut(), 0);
        // SAFETY: the builder is valid, the key is ours, and a builder that is finished gives its bytes away.
        let made = unsafe {
            lc::CBB_init(&mut builder, 0) == 1
                && lc::EVP_marshal_private_key(&mut builder, self.0.as_ptr()) == 1
                && lc::CBB_finish(&mut builder, &mut out, &mut len) == 1
        };
        if !made {
            // SAFETY: the builder is valid, and was not finished.
            unsafe { lc::CBB_cleanup(&mut builder) };
            forget_errors();
            return Err(KeyFileError::NoPrivateKey);
        }
        // SAFETY: `out` has `len` bytes that are ours. They are overwritten before they are freed.
        unsafe {
            let secret = Secret::from(std::slice::from_raw_parts(out, len));
            lc::OPENSSL_cleanse(out.cast(), len);
            lc::OPENSSL_free(out.cast());
            Ok(secret)
        }
    }
}

impl Drop for EvpKey {
    fn drop(&mut self) {
        // SAFETY: we own the key. The library overwrites it.
        unsafe { lc::EVP_PKEY_free(self.0.as_ptr()) };
    }
}

/// Certificates of the library.
struct CertificateStack(NonNull<lc::OPENSSL_STACK>);

impl CertificateStack {
    fn new() -> Result<Self, KeyFileError> {
        // SAFETY: the call has no preconditions.
        let stack = unsafe { lc::OPENSSL_sk_new_null() };
        NonNull::new(stack).map(Self).ok_or(KeyFileError::Memory)
    }

    fn certificates(&self) -> impl Iterator<Item = *mut lc::X509> {
        // SAFETY: the stack is ours.
        let len = unsafe { lc::OPENSSL_sk_num(self.0.as_ptr()) };
        (0..len).map(|at| {
            // SAFETY: the index is below the length.
            unsafe { lc::OPENSSL_sk_value(self.0.as_ptr(), at) }.cast()
        })
    }

    fn to_der(&self) -> Vec<Vec<u8>> {
        self.certificates().filter_map(der).collect()
    }
}

fn der(certificate: *mut lc::X509) -> Option<Vec<u8>> {
    // SAFETY: the certificate is valid, and a null argument asks for the length only.
    let len: c_int = unsafe { lc::i2d_X509(certificate, ptr::null_mut()) };
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    let mut at = bytes.as_mut_ptr();
    // SAFETY: `bytes` has room for the length that the library gave.
    let written = unsafe { lc::i2d_X509(certificate, &mut at) };
    (written == len && len > 0).then_some(bytes)
}

impl Drop for CertificateStack {
    fn drop(&mut self) {
        for certificate in self.certificates() {
            // SAFETY: the stack owns its certificates.
            unsafe { lc::X509_free(certificate) };
        }
        // SAFETY: we own the stack.
        unsafe { lc::OPENSSL_sk_free(self.0.as_ptr()) };
    }
}
