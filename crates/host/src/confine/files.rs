//! Restricts, with Landlock, the files that a thread can open, and forbids TCP connections.
//!
//! A thread restricts itself and the threads that it starts later. Open descriptors keep working.

use std::path::{Component, Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

/// The newest version of Landlock whose rights we use. An older kernel enforces what it knows.
const KNOWN: ABI = ABI::V6;

/// A panic reads these files to name functions and lines.
const OF_THE_PROGRAM: [&str; 2] = ["/proc/self/exe", "/proc/self/maps"];
const TUN: &str = "/dev/net/tun";
const RANDOM: &str = "/dev/urandom";
/// Files that the gateway reads while it runs.
const SYSTEM: [&str; 2] = ["/proc/sys/net", "/proc/sys/kernel/osrelease"];
/// The gateway writes here when it creates a TUN device while it runs. CAP_NET_ADMIN permits the
/// same in other ways.
const OWN_LINKS: [&str; 2] = ["/proc/sys/net/ipv6/conf", "/proc/sys/net/ipv4/conf"];

/// A folder with at most this many names below the root folder is too wide to open as a whole.
const WIDE: usize = 1;

/// A set of Landlock rules.
#[derive(Debug)]
pub(super) struct FileRules {
    ruleset: RulesetCreated,
    /// Open files in /proc that rules name. While nobody has such a file open, the kernel may drop
    /// and recreate it without its rule.
    open: Vec<PathFd>,
}

impl FileRules {
    /// Permits only what every thread may need: the device for a new TUN, and the files for a
    /// panic.
    pub fn few() -> Result<Self, RulesetError> {
        let mut ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(KNOWN))?
            .handle_access(AccessNet::from_all(KNOWN))?;
        if !manager_is_abstract() {
            ruleset = ruleset.scope(Scope::AbstractUnixSocket)?;
        }
        let ruleset = ruleset.scope(Scope::Signal)?.create()?;
        let open = Vec::new();
        let mut files = Self { ruleset, open };
        for path in OF_THE_PROGRAM.into_iter().chain([RANDOM]) {
            files = files.with(Path::new(path), AccessFs::ReadFile.into())?;
        }
        files.with(
            Path::new(TUN),
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
        )
    }

    /// Permits every file, and no signal to a process that was started before.
    pub fn all() -> Result<Self, RulesetError> {
        let ruleset = Ruleset::default().scope(Scope::Signal)?.create()?;
        let open = Vec::new();
        Ok(Self { ruleset, open })
    }

    /// Permits to read every file. Names are looked up by libraries and files that the system's administrator chooses.
    pub fn reading() -> Result<Self, RulesetError> {
        let ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(KNOWN))?
            .handle_access(AccessNet::BindTcp)?
            .scope(Scope::Signal)?
            .create()?;
        let open = Vec::new();
        let files = Self { ruleset, open };
        files.with(Path::new("/"), AccessFs::ReadFile | AccessFs::ReadDir)
    }

    /// Permits what the control thread uses: `read` for reloads, and the folder from which it
    /// removes `socket`.
    pub fn control(read: &[PathBuf], socket: &Path) -> Result<Self, RulesetError> {
        let mut files = Self::few()?;
        let system = SYSTEM.iter().map(PathBuf::from);
        for path in read.iter().cloned().chain(system) {
            files = files.with(&path, AccessFs::ReadFile | AccessFs::ReadDir)?;
        }
        for path in OWN_LINKS {
            files = files.with(Path::new(path), AccessFs::WriteFile | AccessFs::Truncate)?;
        }
        match socket.parent().filter(|folder| !is_wide(folder)) {
            Some(folder) => files.with(folder, AccessFs::RemoveFile.into()),
            None => Ok(files),
        }
    }

    /// Adds a rule for a file, or for a folder and everything below it. A path that does not exist
    /// is skipped.
    fn with(mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<Self, RulesetError> {
        let Ok(file) = PathFd::new(path) else {
            return Ok(self);
        };
        let access = match path.is_dir() {
            true => access,
            false => access & AccessFs::from_file(KNOWN),
        };
        self.ruleset = self.ruleset.add_rule(PathBeneath::new(&file, access))?;
        if path.starts_with("/proc") {
            self.open.push(file);
        }
        Ok(self)
    }

    /// Restricts the calling thread. Returns the version of Landlock, or `None` if the kernel has
    /// no Landlock.
    pub fn enter(self) -> Result<Option<u32>, RulesetError> {
        let status = self.ruleset.restrict_self()?;
        // Keep these files open until the process ends.
        std::mem::forget(self.open);
        Ok(match (status.ruleset, status.landlock) {
            (RulesetStatus::NotEnforced, _) => None,
            (_, LandlockStatus::Available { effective_abi, .. }) => {
                Some((effective_abi as u32).min(KNOWN as u32))
            }
            _ => None,
        })
    }
}

/// Returns what a reload can read after the start read `files` and the configuration
/// `configuration`. These are the folders of the files, by name and after following links. If a
/// folder is directly below the root folder, such as /etc, it is only the file.
pub(super) fn within_reach(
    configuration: &Path,
    files: &[PathBuf],
    readable: &[PathBuf],
) -> Vec<PathBuf> {
    let mut reach = Vec::new();
    let mut add = |path: &Path| {
        let Ok(path) = path.canonicalize() else {
            return;
        };
        if !reach.contains(&path) {
            reach.push(path);
        }
    };
    // The administrator chose the folder of the configuration, so it may be wide.
    for path in [
        Some(configuration.to_owned()),
        configuration.canonicalize().ok(),
    ] {
        if let Some(folder) = path.as_deref().and_then(folder) {
            add(folder);
        }
    }
    for path in files {
        if path.is_dir() {
            add(path);
            continue;
        }
        for path in [Some(path.clone()), path.canonicalize().ok()]
            .into_iter()
            .flatten()
        {
            match folder(&path).filter(|folder| !is_wide(folder)) {
                Some(folder) => add(folder),
                None => add(&path),
            }
        }
    }
    readable.iter().for_each(|path| add(path));
    reach
}

/// Returns the folder of a file. A bare file name lies in the current folder.
fn folder(path: &Path) -> Option<&Path> {
    let folder = path.parent()?;
    Some(match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    })
}

fn is_wide(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else {
        return true;
    };
    let names = folder.components();
    names
        .filter(|part| matches!(part, Component::Normal(_)))
        .count()
        <= WIDE
}

/// A service manager that listens at an abstract socket lies outside any scope.
fn manager_is_abstract() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some_and(|name| name.as_encoded_bytes().starts_with(b"@"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn reloads_read_where_the_start_has_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let made = |name: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        made("stored/esplanade.conf");
        made("keys/new/key.pem");
        fs::create_dir_all(root.join("etc")).unwrap();
        let configuration = root.join("etc/esplanade.conf");
        symlink(root.join("stored/esplanade.conf"), &configuration).unwrap();
        symlink(root.join("keys/new/key.pem"), root.join("etc/key.pem")).unwrap();
        let pattern = root.join("etc/conf.d");
        fs::create_dir_all(&pattern).unwrap();
        let files = [
            configuration.clone(),
            root.join("etc/key.pem"),
            root.join("missing/key.pem"),
            // From a folder as wide as /etc, only the file is readable.
            "/etc/passwd".into(),
            pattern.clone(),
        ];
        let more = made("more/key.pem");
        let reach = within_reach(&configuration, &files, std::slice::from_ref(&more));
        let expected: Vec<PathBuf> = ["etc", "stored", "keys/new"]
            .iter()
            .map(|name| root.join(name))
            .chain(["/etc/passwd".into(), pattern, more])
            .collect();
        assert_eq!(reach, expected);
    }

    #[test]
    fn a_configuration_without_a_folder_is_in_that_of_the_process() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            within_reach(Path::new("esplanade.conf"), &[], &[]),
            std::slice::from_ref(&here)
        );
        assert!(is_wide(Path::new("/")) && is_wide(Path::new("/etc")));
        assert!(is_wide(Path::new("/nonexistent/folder")));
        assert!(!is_wide(&here) || here.components().count() < 3);
    }
}
