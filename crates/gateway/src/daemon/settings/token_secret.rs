//! The secret that crash tokens are made from (RFC 6290). It outlives the gateway in a file of its own, so that a
//! gateway that has crashed can show what it gave its peers before.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esplanade_crypto::secret::Secret;
use esplanade_ike::{Random, SystemRandom};

use crate::config::GatewayConfig;
use crate::private;

const FILE: &str = "crash-token-secret";
const LEN: usize = 32;

/// Returns the secret, which is made at the first start. Without a folder that outlives the gateway there is none.
pub(in crate::daemon) fn load(config: &GatewayConfig) -> Option<Arc<Secret>> {
    if !config.quick_crash_detection {
        return None;
    }
    let folder = config.state_directory.clone().or_else(of_service)?;
    match read_or_make(&folder) {
        Ok(secret) => Some(Arc::new(secret)),
        Err(error) => {
            let folder = folder.display();
            tracing::warn!(%folder, "peers will not notice a crash quickly: {FILE}: {error}");
            None
        }
    }
}

/// The folder that the service manager gives us (systemd's `StateDirectory`).
fn of_service() -> Option<PathBuf> {
    let folders = std::env::var_os("STATE_DIRECTORY")?;
    std::env::split_paths(&folders)
        .next()
        .filter(|folder| folder.is_absolute())
}

fn read_or_make(folder: &Path) -> io::Result<Secret> {
    let path = folder.join(FILE);
    match private::read(&path) {
        Ok(file) => {
            let mut bytes = Secret::with_capacity(LEN + 1);
            let mut buffer = zeroize::Zeroizing::new([0; LEN + 1]);
            let mut file = file.take(buffer.len() as u64);
            loop {
                match file.read(&mut *buffer)? {
                    0 => break,
                    read => bytes.extend(&buffer[..read]),
                }
            }
            if bytes.len() == LEN {
                return Ok(bytes);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    make(folder, &path)
}

/// Makes a new secret. A crash leaves the whole file or none.
fn make(folder: &Path, path: &Path) -> io::Result<Secret> {
    let mut bytes = zeroize::Zeroizing::new([0; LEN]);
    SystemRandom.fill(&mut *bytes);
    let new = folder.join(format!("{FILE}.new"));
    let mut file = private::create(&new)?;
    file.write_all(&*bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    fs::File::open(folder)?.sync_all()?;
    Ok(Secret::from(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn gateway(folder: &Path) -> GatewayConfig {
        GatewayConfig {
            state_directory: Some(folder.to_owned()),
            ..GatewayConfig::default()
        }
    }

    // RFC 6290 R14
    #[test]
    fn the_secret_outlives_the_gateway_and_nobody_else_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let config = gateway(folder.path());
        let first = load(&config).unwrap();
        assert_eq!(first.len(), LEN);
        assert_eq!(load(&config), Some(first.clone()));
        let file = folder.path().join(FILE);
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // A file that is damaged is replaced.
        for bytes in [&b"short"[..], &[7; LEN + 1], b""] {
            fs::write(&file, bytes).unwrap();
            let other = load(&config).unwrap();
            assert_ne!(other, first);
            assert_eq!(load(&config), Some(other));
        }
    }

    #[test]
    fn without_a_safe_file_there_are_no_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = gateway(&folder.path().join("absent"));
        assert_eq!(load(&config), None);
        config.state_directory = Some(folder.path().to_owned());
        let file = folder.path().join(FILE);
        symlink("/dev/zero", &file).unwrap();
        assert_eq!(load(&config), None);
        fs::remove_file(&file).unwrap();
        load(&config).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(load(&config), None, "others have read it");
        config.quick_crash_detection = false;
        fs::remove_file(&file).unwrap();
        assert_eq!(load(&config), None);
        assert!(!file.exists());
    }
}
