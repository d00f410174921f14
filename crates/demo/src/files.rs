//! The output directory of the demo: it decides which files are created and which are kept.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::gateway::{GatewayFiles, GatewaySide, write_private};
use super::{DemoOptions, Error};

pub const WIRE_CAPTURE: &str = "wire.pcap";
pub const INSIDE_CAPTURE: &str = "inside.pcap";
/// A configuration directory for Wireshark, with the session keys.
pub const WIRESHARK: &str = "wireshark";
const DIRECTORY_LEN_MAX: usize = 90;
const WIRESHARK_TABLES: [&str; 2] = ["ikev2_decryption_table", "esp_sa"];

/// The output directory. A temporary directory is removed on drop, unless it shall be kept.
#[derive(Debug)]
pub struct OutputDirectory {
    path: PathBuf,
    temporary: bool,
    remove: bool,
}

impl OutputDirectory {
    pub fn create(options: &DemoOptions) -> Result<Self, Error> {
        let failed = |path: &Path| {
            let doing = format!("cannot use the output directory {}", path.display());
            move |source| Error::system(doing, source)
        };
        if let Some(path) = &options.output {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path)
                .map_err(failed(path))?;
            let path = path.canonicalize().map_err(failed(path))?;
            // The directory contains the control sockets, and unix(7) permits 107 bytes for their
            // paths.
            if path.as_os_str().len() > DIRECTORY_LEN_MAX {
                let reason = format!("its path has more than {DIRECTORY_LEN_MAX} bytes");
                return Err(failed(&path)(io::Error::other(reason)));
            }
            clear(&path).map_err(failed(&path))?;
            return Ok(Self {
                path,
                temporary: false,
                remove: false,
            });
        }
        let base = std::env::temp_dir();
        let mut attempt = 0;
        loop {
            let path = base.join(format!("esplanade-demo-{}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    return Ok(Self {
                        path,
                        temporary: !options.keep,
                        remove: !options.keep,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < 1000 => {
                    attempt += 1
                }
                Err(error) => return Err(failed(&path)(error)),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn keep_all(&mut self) {
        self.remove = false;
    }

    /// Keeps the files that the summary names. In a temporary directory, removes the logs and the
    /// raw key files.
    pub fn keep_results(&mut self) {
        self.remove = false;
        if self.temporary {
            for side in [GatewaySide::A, GatewaySide::B] {
                let files = GatewayFiles::of(side, &self.path);
                for path in [files.log, files.keys, files.socket] {
                    let _ = fs::remove_file(path);
                }
            }
        }
    }

    /// Writes the session keys of the gateways in Wireshark's format. Returns the command that uses
    /// them.
    pub fn write_wireshark_tables(&self) -> Result<String, Error> {
        let failed = |source| Error::system("cannot write the keys for Wireshark", source);
        let directory = self.file(WIRESHARK);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(failed)?;
        let mut lines = BTreeSet::new();
        for side in [GatewaySide::A, GatewaySide::B] {
            let keys =
                fs::read_to_string(GatewayFiles::of(side, &self.path).keys).map_err(failed)?;
            // Both gateways export the same keys, so keep each line once.
            lines.extend(keys.lines().map(str::to_owned));
        }
        for table in WIRESHARK_TABLES {
            let mut text = String::new();
            for entry in lines
                .iter()
                .filter_map(|line| line.strip_prefix(table)?.strip_prefix(':'))
            {
                text.push_str(entry);
                text.push('\n');
            }
            write_private(&directory.join(table), &text)?;
        }
        let preferences =
            "esp.enable_encryption_decode: TRUE\nesp.enable_authentication_check: TRUE\n";
        write_private(&directory.join("preferences"), preferences)?;
        Ok(format!(
            "WIRESHARK_CONFIG_DIR={} tshark -r {}",
            directory.display(),
            self.file(WIRE_CAPTURE).display()
        ))
    }
}

impl Drop for OutputDirectory {
    fn drop(&mut self) {
        if self.remove {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the files of an earlier run from a directory, and no other file.
fn clear(directory: &Path) -> io::Result<()> {
    let mut files = vec![directory.join(WIRE_CAPTURE), directory.join(INSIDE_CAPTURE)];
    for side in [GatewaySide::A, GatewaySide::B] {
        let GatewayFiles {
            config,
            keys,
            log,
            socket,
        } = GatewayFiles::of(side, directory);
        files.extend([config, keys, log, socket]);
    }
    for file in files {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
