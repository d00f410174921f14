//! Finds the files of an `include` by shell pattern, and reads files with a bound on their size. It
//! does not parse them.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::reach;

const WILD: [char; 3] = ['*', '?', '['];

/// The problem with a file, and its remedy.
pub(crate) struct FileProblem {
    pub what: String,
    pub help: &'static str,
}

/// Reads a whole regular file of at most `limit` bytes. The content must be UTF-8.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Zeroizing<String>, FileProblem> {
    let mut bytes = read_bytes(path, limit)?;
    String::from_utf8(std::mem::take(&mut *bytes))
        .map(Zeroizing::new)
        .map_err(|error| {
            let valid_up_to = error.utf8_error().valid_up_to();
            let bytes = Zeroizing::new(error.into_bytes());
            let lines = bytes.iter().take(valid_up_to);
            let line = lines.filter(|&&byte| byte == b'\n').count() + 1;
            FileProblem {
                what: format!("line {line} is not UTF-8 text"),
                help: "save the file as UTF-8",
            }
        })
}

/// Reads a whole regular file of at most `limit` bytes. It never blocks, and it opens no device:
/// opening a device can have an effect.
pub(crate) fn read_bytes(path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, FileProblem> {
    // Check before the file is opened, and check the open file again: the name may point to another
    // file by then.
    require_regular(&fs::metadata(path).map_err(io_problem)?)?;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = fs::File::options()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .map_err(|error| match is_refused(&error, path) {
            true => out_of_reach("it"),
            false => io_problem(error),
        })?;
    let metadata = file.metadata().map_err(io_problem)?;
    require_regular(&metadata)?;
    require_stored(&file)?;
    // Allocate all the memory at once. A vector that grows would leave its old content, perhaps a
    // secret, in memory that is freed.
    let room = metadata.len().min(limit) as usize + 1;
    let mut bytes = Zeroizing::new(vec![0; room]);
    let mut len = 0;
    while len < room {
        match (&file).read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(count) => len += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(io_problem(error)),
        }
    }
    bytes.truncate(len);
    match len == room {
        false => Ok(bytes),
        true if metadata.len() >= limit => Err(FileProblem {
            what: format!("it is larger than {limit} bytes"),
            help: "split or shorten it",
        }),
        true => Err(FileProblem {
            what: "it grew while it was read".to_owned(),
            help: "try again when it is written",
        }),
    }
}

fn require_regular(metadata: &fs::Metadata) -> Result<(), FileProblem> {
    let kind = metadata.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "it is a directory"
    } else if kind.is_fifo() {
        "it is a FIFO"
    } else if kind.is_socket() {
        "it is a socket"
    } else {
        "it is a device"
    };
    Err(FileProblem {
        what: what.to_owned(),
        help: "name a regular file",
    })
}

/// File systems whose files the kernel generates. Reading such a file may block for ever, never
/// end, or consume the content.
const KERNEL_FILE_SYSTEMS: [(i64, &str); 12] = [
    (0x9fa0, "procfs"),
    (0x6265_6572, "sysfs"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x27_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6265_6570, "configfs"),
    (0xcafe_4a11, "bpf"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4, "efivarfs"),
    (0x1980_0202, "mqueue"),
];

/// Refuses a file that is not stored anywhere. Some of them, such as /proc/kmsg, claim to be
/// regular files.
fn require_stored(file: &fs::File) -> Result<(), FileProblem> {
    let system = rustix::fs::fstatfs(file)
        .map_err(|error| io_problem(error.into()))?
        .f_type;
    match KERNEL_FILE_SYSTEMS.iter().find(|known| known.0 == system) {
        None => Ok(()),
        Some((_, name)) => Err(FileProblem {
            what: format!("it is no stored file: the kernel makes it up ({name})"),
            help: "name a file on a disk or in memory",
        }),
    }
}

/// Returns true if the gateway's own confinement denied the access.
fn is_refused(error: &std::io::Error, path: &Path) -> bool {
    error.kind() == ErrorKind::PermissionDenied && reach::is_out(path)
}

/// Describes a file outside the confinement. A reload may read only what was read at the start.
fn out_of_reach(what: &str) -> FileProblem {
    FileProblem {
        what: format!("{what} is out of the confined gateway's reach"),
        help: "restart the gateway; to have reloads read it, name its folder in `readable` of the gateway section before",
    }
}

fn io_problem(error: std::io::Error) -> FileProblem {
    let (what, help) = match error.kind() {
        ErrorKind::NotFound => ("it does not exist".to_owned(), "check the path"),
        ErrorKind::PermissionDenied => (
            "permission denied".to_owned(),
            "run as a user that may read it, or change its mode",
        ),
        _ => (error.to_string(), "check the path and the file system"),
    };
    FileProblem { what, help }
}

/// Returns the folder below which `pattern` (relative to `directory`) is searched. Returns `None`
/// if the pattern names one file.
pub(crate) fn searched(directory: &Path, pattern: &str) -> Option<PathBuf> {
    let path = directory.join(pattern);
    let wild = |part: &Component<'_>| part.as_os_str().to_string_lossy().contains(WILD);
    let steady: PathBuf = path.components().take_while(|part| !wild(part)).collect();
    (steady != path).then_some(steady)
}

/// Lists the files that match `pattern` (relative to `directory`), sorted. A name without wildcards
/// is returned as it is; a pattern may match nothing.
pub(crate) fn expand(
    directory: &Path,
    pattern: &str,
    files_max: usize,
) -> Result<Vec<PathBuf>, FileProblem> {
    let path = directory.join(pattern);
    if !pattern.contains(WILD) {
        return Ok(vec![path]);
    }
    let mut found = vec![PathBuf::new()];
    for component in path.components() {
        let part = component.as_os_str().to_string_lossy();
        let wild = matches!(component, Component::Normal(_)) && part.contains(WILD);
        let mut next = Vec::new();
        for base in found {
            if !wild {
                next.push(base.join(component));
                continue;
            }
            let entries = match fs::read_dir(&base) {
                Ok(entries) => entries,
                Err(error) if is_refused(&error, &base) => {
                    return Err(out_of_reach(&base.display().to_string()));
                }
                // As in a shell, a directory that is missing or unreadable matches nothing.
                Err(_) => continue,
            };
            let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
            names.sort();
            for name in names {
                let text = name.to_string_lossy();
                if (!text.starts_with('.') || part.starts_with('.')) && matches(&part, &text) {
                    next.push(base.join(&name));
                }
            }
            if next.len() > files_max {
                let what = format!("the pattern matches more than {files_max} files");
                return Err(FileProblem {
                    what,
                    help: "use a narrower pattern",
                });
            }
        }
        found = next;
    }
    found.retain(|path| path.exists());
    Ok(found)
}

/// Matches one path component against a shell pattern: `*`, `?`, `[a-z]`, `[!a-z]`, `\x`.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // The place to resume at when the last asterisk must consume one more character.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some(_) => match_one(&pattern[p..], name[n]),
            None => None,
        };
        match (step, retry) {
            (Some(used), _) => {
                p += used;
                n += 1;
            }
            (None, Some((after, from))) => {
                retry = Some((after, from + 1));
                p = after;
                n = from + 1;
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

/// Returns how many characters of the pattern match `c`, or `None` if they do not match.
fn match_one(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == c).then_some(2),
        ['[', rest @ ..] => {
            // A closing bracket right after the opening bracket is a member of the set.
            let negated = matches!(rest.first(), Some('!' | '^'));
            let from = usize::from(negated);
            let Some(len) = rest
                .iter()
                .skip(from + 1)
                .position(|&c| c == ']')
                .map(|at| at + from + 1)
            else {
                return (c == '[').then_some(1);
            };
            let set = &rest[from..len];
            let mut inside = false;
            let mut at = 0;
            while at < set.len() {
                if at + 2 < set.len() && set[at + 1] == '-' {
                    inside |= set[at] <= c && c <= set[at + 2];
                    at += 3;
                } else {
                    inside |= set[at] == c;
                    at += 1;
                }
            }
            (inside != negated).then_some(len + 2)
        }
        [literal, ..] => (*literal == c).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_patterns() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("a*b*c", "aXXbYYc", true),
            ("a*b*c", "aXXcYYb", false),
            ("?.conf", "é.conf", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]x", "]x", true),
            ("[", "[", true),
            ("**", "", true),
            ("a", "", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
