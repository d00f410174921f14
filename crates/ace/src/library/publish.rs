//! Writes a library, so that readers see the old one or the new one.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use aws_lc_rs::signature::Ed25519KeyPair;

use super::manifest::{Manifest, Trust};
use super::pack::PackedDomain;
use super::{LibraryError, MANIFEST, MANIFEST_LEN_MAX, check, read};

/// Puts a library into a directory, in the place of the one that is there. Its serial number must be larger than that
/// one's. Every bitstream is merged once before a file is written. One program at a time may publish.
pub fn publish(
    folder: &Path,
    serial: u64,
    domains: &[PackedDomain],
    key: Option<&Ed25519KeyPair>,
) -> Result<(), LibraryError> {
    let entries = domains.iter().map(|packed| packed.domain.clone());
    let manifest = Manifest::new(serial, entries.collect());
    let text = manifest.text(key)?;
    for packed in domains {
        check(&packed.domain, &packed.file)?;
    }
    let path = folder.join(MANIFEST);
    match read(&path, MANIFEST_LEN_MAX) {
        Ok(old) => {
            let found = Manifest::parse(&old, &Trust::Directory)?.serial;
            if serial <= found {
                return Err(LibraryError::Serial {
                    found: serial,
                    wanted: found.saturating_add(1),
                });
            }
        }
        Err(LibraryError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    for packed in domains {
        write(folder, &packed.domain.file_name(), &packed.file)?;
    }
    write(folder, MANIFEST, text.as_bytes())?;
    let kept = domains.iter().map(|packed| packed.domain.file_name());
    remove_others(folder, &kept.collect())
}

/// Writes a file beside its place, and moves it there when it is on the disk.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), LibraryError> {
    let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
    let written = (|| {
        let mut file = File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(folder)?.sync_all()
    })();
    written.map_err(|error| LibraryError::Io { path, error })
}

/// Removes files of domains that the manifest no longer has, and what an interrupted update left.
fn remove_others(folder: &Path, kept: &BTreeSet<String>) -> Result<(), LibraryError> {
    let failed = |error| LibraryError::Io {
        path: folder.to_owned(),
        error,
    };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let ours = name.ends_with(".ace") || name.ends_with(".new");
        if ours && !kept.contains(&name) {
            fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}
