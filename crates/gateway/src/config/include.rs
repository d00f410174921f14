//! Files of an `include`: shell patterns and bounded reading.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};

use zeroize::Zeroizing;

/// What went wrong and what to do.
pub(super) struct Problem {
    pub what: String,
    pub help: &'static str,
}

/// Reads a whole file of at most `limit` bytes that is UTF-8 and a regular file.
pub(super) fn read_bounded(path: &Path, limit: u64) -> Result<Zeroizing<String>, Problem> {
    let bytes = read_bytes(path, limit)?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Zeroizing::new(text.to_owned())),
        Err(error) => {
            let line = bytes
                .iter()
                .take(error.valid_up_to())
                .filter(|&&byte| byte == b'\n')
                .count()
                + 1;
            Err(Problem {
                what: format!("line {line} is not UTF-8 text"),
                help: "save the file as UTF-8",
            })
        }
    }
}

/// Reads a whole file of at most `limit` bytes.
pub(super) fn read_bytes(path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, Problem> {
    // Opening a FIFO would wait for a writer, so look first.
    let metadata = fs::metadata(path).map_err(io_problem)?;
    if !metadata.is_file() {
        return Err(Problem {
            what: "it is not a file".to_owned(),
            help: "name a regular file",
        });
    }
    let file = fs::File::open(path).map_err(io_problem)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len().min(limit) as usize + 1));
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(io_problem)?;
    if bytes.len() as u64 > limit {
        return Err(Problem {
            what: format!("it is larger than {limit} bytes"),
            help: "split or shorten it",
        });
    }
    Ok(bytes)
}

fn io_problem(error: std::io::Error) -> Problem {
    let (what, help) = match error.kind() {
        ErrorKind::NotFound => ("it does not exist".to_owned(), "check the path"),
        ErrorKind::PermissionDenied => (
            "permission denied".to_owned(),
            "run as a user that may read it, or change its mode",
        ),
        _ => (error.to_string(), "check the path and the file system"),
    };
    Problem { what, help }
}

/// The files that match `pattern` (relative to `directory`), sorted. A name without wildcards must
/// exist; a pattern may match nothing.
pub(super) fn expand(
    directory: &Path,
    pattern: &str,
    files_max: usize,
) -> Result<Vec<PathBuf>, Problem> {
    let path = directory.join(pattern);
    if !pattern.contains(['*', '?', '[']) {
        return Ok(vec![path]);
    }
    let mut found = vec![PathBuf::new()];
    for component in path.components() {
        let part = component.as_os_str().to_string_lossy();
        let wild = matches!(component, Component::Normal(_)) && part.contains(['*', '?', '[']);
        let mut next = Vec::new();
        for base in found {
            if !wild {
                next.push(base.join(component));
                continue;
            }
            // A directory that is missing or closed to us matches nothing, as in a shell.
            let Ok(entries) = fs::read_dir(&base) else {
                continue;
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
                return Err(Problem {
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

/// Shell matching of one path component: `*`, `?`, `[a-z]`, `[!a-z]`, `\x`.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // Where to take up again when the last asterisk has to swallow one more character.
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

/// How many characters of the pattern `c` uses up, if it matches.
fn match_one(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == c).then_some(2),
        ['[', rest @ ..] => {
            // A bracket right after the opening one is a member.
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
