//! The cryptographic library: the bitstreams of all domains in a directory, and in memory.
//!
//! The directory has a signed [`Manifest`] and a file for each domain, named by its hash. An update writes new files
//! first, then puts the new manifest in the place of the old one: a reader sees the old library or the new one. All files
//! are hostile. Only when every bitstream was merged once and has its hash is a library open. From then on its bitstreams
//! are merged by reads of its memory.

mod manifest;
mod pack;
mod publish;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256, digest};

use crate::compress::CompressError;
use crate::decompress::{Packed, PackedError, Symbols};
use crate::frames::{BITSTREAM_LEN_MAX, BitstreamError, Merge, MergeError, SkeletonError};

pub use manifest::{Domain, Manifest, Trust, Variant};
pub use pack::{PackedDomain, pack};
pub use publish::publish;

/// The name of the manifest in its directory.
pub const MANIFEST: &str = "manifest";
/// The most bytes of a manifest.
pub const MANIFEST_LEN_MAX: u64 = 1 << 20;
/// The most bytes of a domain's file.
pub const DOMAIN_LEN_MAX: u64 = 64 << 20;
/// The most bytes of all domains' files.
pub const LIBRARY_LEN_MAX: u64 = 256 << 20;
/// The most domains of a library, and variants of a domain.
pub const NAMES_MAX: usize = 256;

/// The reason why a library is refused, or not written.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        error: io::Error,
    },
    /// A file is longer than any that is made.
    #[error("{}: more than {max} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound.
        max: u64,
    },
    /// The manifest cannot be understood.
    #[error("manifest: {0}")]
    Manifest(String),
    /// The manifest is not signed by the key that is trusted.
    #[error("manifest: the signature is not of the key that is trusted")]
    Signature,
    /// The manifest is not newer than it has to be.
    #[error("manifest: serial {found}, but {wanted} or more is wanted")]
    Serial {
        /// The serial number of the manifest.
        found: u64,
        /// The smallest that is accepted.
        wanted: u64,
    },
    /// A file is not the one that the manifest means.
    #[error("domain {domain}: its file has another length or hash than the manifest says")]
    DomainHash {
        /// The domain.
        domain: String,
    },
    /// A domain's file cannot be read.
    #[error("domain {domain}: {error}")]
    Packed {
        /// The domain.
        domain: String,
        /// The reason.
        error: PackedError,
    },
    /// A domain's file has another number of parts than the variants need.
    #[error("domain {domain}: {found} parts where {wanted} are needed")]
    Parts {
        /// The domain.
        domain: String,
        /// The parts that the variants need.
        wanted: usize,
        /// The parts of the file.
        found: usize,
    },
    /// A bitstream cannot be merged.
    #[error("domain {domain}, variant {variant}: {error}")]
    Merge {
        /// The domain.
        domain: String,
        /// The variant.
        variant: String,
        /// The reason.
        error: MergeError,
    },
    /// A merged bitstream is not the one that the manifest means.
    #[error(
        "domain {domain}, variant {variant}: the merged bitstream has another length or hash than the manifest says"
    )]
    VariantHash {
        /// The domain.
        domain: String,
        /// The variant.
        variant: String,
    },
    /// A bitstream that is to be stored is wrong.
    #[error("variant {variant}, byte {at}: {error}")]
    Bitstream {
        /// The variant.
        variant: String,
        /// The offset.
        at: usize,
        /// The reason.
        error: BitstreamError,
    },
    /// The bitstreams that are to be stored are too many, or too long.
    #[error("domain {domain}: {error}")]
    Compress {
        /// The domain.
        domain: String,
        /// The reason.
        error: CompressError,
    },
    /// Bitstreams that are to be stored do not belong together.
    #[error("domain {domain}: {error}")]
    Skeleton {
        /// The domain.
        domain: String,
        /// The reason.
        error: SkeletonError,
    },
}

/// A library in memory, checked.
#[derive(Debug)]
pub struct Library {
    manifest: Manifest,
    /// The file of each domain, by the domain's name.
    files: BTreeMap<String, Vec<u8>>,
}

impl Library {
    /// Reads a library. Its serial number must be `serial_min` or more, so that nobody brings an old library back.
    pub fn open(folder: &Path, trust: &Trust, serial_min: u64) -> Result<Self, LibraryError> {
        let mut attempts = 3;
        loop {
            attempts -= 1;
            let text = read(&folder.join(MANIFEST), MANIFEST_LEN_MAX)?;
            let manifest = Manifest::parse(&text, trust)?;
            if manifest.serial < serial_min {
                let (found, wanted) = (manifest.serial, serial_min);
                return Err(LibraryError::Serial { found, wanted });
            }
            match Self::load(folder, manifest) {
                // An update may have removed a file since its manifest was read. Its serial number is a new one.
                Err(LibraryError::Io { .. })
                    if attempts > 0 && read(&folder.join(MANIFEST), MANIFEST_LEN_MAX)? != text => {}
                loaded => return loaded,
            }
        }
    }

    fn load(folder: &Path, manifest: Manifest) -> Result<Self, LibraryError> {
        let mut files = BTreeMap::new();
        for domain in &manifest.domains {
            let path = folder.join(domain.file_name());
            let file = read(&path, DOMAIN_LEN_MAX)?;
            if file.len() as u64 != domain.bytes || hash(&file) != domain.sha256 {
                let domain = domain.name.clone();
                return Err(LibraryError::DomainHash { domain });
            }
            check(domain, &file)?;
            files.insert(domain.name.clone(), file);
        }
        Ok(Self { manifest, files })
    }

    /// The list of what the library has.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Begins to merge a bitstream. None if there is no such variant.
    pub fn bitstream(&self, domain: &str, variant: &str) -> Option<Merge<'_>> {
        let file = self.files.get(domain)?;
        let domain = self
            .manifest
            .domains
            .iter()
            .find(|each| each.name == domain)?;
        let at = domain
            .variants
            .iter()
            .position(|each| each.name == variant)?;
        // Checked when the library was opened.
        Packed::parse(file).ok().map(|packed| merge(&packed, at))
    }
}

/// A domain's parts: the skeleton, its mask, and for each variant its difference and its envelope.
fn merge<'a>(packed: &Packed<'a>, variant: usize) -> Merge<'a> {
    let part =
        |number: usize| -> Symbols<'a> { packed.part(u16::try_from(number).unwrap_or(u16::MAX)) };
    Merge::new(
        part(0),
        part(1),
        part(2 + 2 * variant),
        part(3 + 2 * variant),
    )
}

/// Merges all bitstreams of a domain once.
fn check(domain: &Domain, file: &[u8]) -> Result<(), LibraryError> {
    let name = || domain.name.clone();
    let packed = Packed::parse(file).map_err(|error| LibraryError::Packed {
        domain: name(),
        error,
    })?;
    let (wanted, found) = (2 + 2 * domain.variants.len(), usize::from(packed.parts()));
    if found != wanted {
        return Err(LibraryError::Parts {
            domain: name(),
            wanted,
            found,
        });
    }
    for (at, variant) in domain.variants.iter().enumerate() {
        let mut merging = merge(&packed, at);
        let (mut context, mut bytes) = (Context::new(&SHA256), 0);
        let mut piece = [0; 4096];
        loop {
            let read = merging
                .read(&mut piece)
                .map_err(|error| LibraryError::Merge {
                    domain: name(),
                    variant: variant.name.clone(),
                    error,
                })?;
            context.update(&piece[..read]);
            bytes += read;
            if read < piece.len() || bytes > BITSTREAM_LEN_MAX {
                break;
            }
        }
        let part = merging.part().map(|part| part.name);
        let right = bytes as u64 == variant.bytes
            && part == Some(&domain.part)
            && hex::encode(context.finish()) == variant.sha256;
        if !right {
            let variant = variant.name.clone();
            return Err(LibraryError::VariantHash {
                domain: name(),
                variant,
            });
        }
    }
    Ok(())
}

/// SHA-256 in hexadecimal digits.
fn hash(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes))
}

/// Reads a file of bounded length.
fn read(path: &Path, max: u64) -> Result<Vec<u8>, LibraryError> {
    let failed = |error| LibraryError::Io {
        path: path.to_owned(),
        error,
    };
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > max {
        return Err(LibraryError::TooLarge {
            path: path.to_owned(),
            max,
        });
    }
    Ok(bytes)
}
