//! Opens files that only their owner may read: session keys, captures, and configurations with
//! secrets.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::io::sys::effective_uid;

const MODE: u32 = 0o600;
const OTHERS: u32 = 0o077;

/// Opens `path` for appending, and creates it if necessary.
pub fn append(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().append(true).create(true))
}

/// Opens `path` and empties it.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open(path, OpenOptions::new().write(true).create(true))?;
    // O_TRUNC would empty a foreign file before it is checked.
    file.set_len(0)?;
    Ok(file)
}

/// Opens `path` for reading.
pub fn read(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true))
}

/// Opens a file. Refuses a file that somebody else may have placed there, or may have open.
fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options
        .mode(MODE)
        // Opening a FIFO without a reader would block.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => refused("it is a symbolic link"),
            Some(libc::ENXIO) => refused("it is no regular file"),
            _ => error,
        })?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refused("it is no regular file"));
    }
    if metadata.uid() != effective_uid() {
        return Err(refused("it belongs to another user"));
    }
    if metadata.nlink() != 1 {
        return Err(refused("it has more than one name (hard links)"));
    }
    if metadata.mode() & OTHERS != 0 {
        return Err(refused(
            "others may read or write it (its mode is not 0600)",
        ));
    }
    Ok(file)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn why(result: io::Result<File>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn new_files_are_private_and_own_files_are_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        append(&path).unwrap().write_all(b"one").unwrap();
        append(&path).unwrap().write_all(b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"onetwo");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        create(&path).unwrap().write_all(b"3").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"3");
    }

    #[test]
    fn what_leads_elsewhere_is_left_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "mine").unwrap();
        fs::set_permissions(&victim, Permissions::from_mode(MODE)).unwrap();
        let (link, name) = (folder.path().join("link"), folder.path().join("name"));
        symlink(&victim, &link).unwrap();
        symlink(folder.path().join("absent"), folder.path().join("dangling")).unwrap();
        for link in [&link, &folder.path().join("dangling")] {
            assert!(why(append(link)).contains("symbolic link"));
            assert!(why(create(link)).contains("symbolic link"));
        }
        assert!(!folder.path().join("absent").exists());
        fs::hard_link(&victim, &name).unwrap();
        assert!(why(create(&name)).contains("more than one name"));
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
    }

    #[test]
    fn what_others_may_have_open_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        for mode in [0o640, 0o604, 0o620] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(why(append(&path)).contains("others may"), "{mode:o}");
            assert!(why(create(&path)).contains("others may"), "{mode:o}");
            assert_eq!(fs::read(&path).unwrap(), b"old");
        }
        assert!(why(append(Path::new("/dev/null"))).contains("no regular file"));
        assert!(append(folder.path()).is_err());
    }
}
