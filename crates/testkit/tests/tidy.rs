//! Checks house rules that a compiler does not check. Each failure names the file, the line and the
//! rule.

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use sources::{files_below, root};

const FILE_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 100;
/// How often a type's name may be given again: a name with many meanings helps nobody.
const SAME_NAME_MAX: usize = 3;

/// Crates whose callers pass in time and I/O.
const PURE_CRATES: &[&str] = &["crypto", "ipsec", "pki", "ike", "dataplane"];
const IMPURE: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "thread::sleep",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "UnixStream",
    "std::fs",
    "tokio",
];

/// The only places of the product that know the wall clock, which can jump. Certificates, CRLs and OCSP answers are valid
/// by it, and captures of the demo have its time. Whatever waits, backs off or caches takes [`std::time::Instant`].
const WALL_CLOCK_PLACES: &[&str] = &[
    "crates/demo/src/",
    "crates/gateway/src/cli/check.rs",
    "crates/gateway/src/daemon/certificates.rs",
    "crates/gateway/src/daemon/answers/control.rs",
    "crates/gateway/src/daemon/mod.rs",
    "crates/gateway/src/daemon/start.rs",
    "crates/helpers/src/fetch/status_fetcher.rs",
    "crates/ike/src/auth/date.rs",
    "crates/ike/src/endpoint/mod.rs",
    "crates/ike/src/exchange/authenticator.rs",
    "crates/ike/src/jobs/proof_check.rs",
    "crates/ike/src/sa/context.rs",
];

/// The only file of the product that decodes DER. It bounds the work of the decoders.
const DER_DOOR: &str = "crates/pki/src/der.rs";
/// What decodes DER past it: the traits of the `der` crate, and methods that use them.
const DER_DECODERS: &[&str] = &[
    "Decode",
    "DecodeOwned",
    "DecodePem",
    "DecodeValue",
    "SliceReader",
    "PemReader",
    "decode_as",
    "decode_implicit",
    "load_pem_chain",
    "tbs.get",
    "tbs_certificate.get",
];

/// The places where `unsafe` may appear.
const UNSAFE_PLACES: &[&str] = &[
    "crates/crypto/src/",
    "crates/crypto/benches/engine/limits.rs",
    "crates/crypto/benches/engine/peer.rs",
    "crates/crypto-c/src/",
    "crates/ace/src/simulated/pins.rs",
    "crates/fpga/src/simulated/pins.rs",
    "crates/gpu/src/device/",
    "crates/gpu/src/host_memory.rs",
    "crates/dataplane/src/checksum.rs",
    "crates/host/src/io/",
    "crates/testkit/src/counted.rs",
    "crates/testkit/src/freed.rs",
    "crates/testkit/src/guard.rs",
    "fuzz/examples/coverage.rs",
];

fn files(extension: &str) -> Vec<(String, String)> {
    let root = root();
    files_below(&root, &[extension])
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("UTF-8 text");
            let relative = path.strip_prefix(&root).expect("below the root");
            (relative.to_string_lossy().into_owned(), text)
        })
        .collect()
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n"));
}

/// Returns the text before a `//` comment. This is exact enough for code that rustfmt laid out.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

#[test]
fn files_and_functions_are_short() {
    let mut failures = Vec::new();
    for (file, text) in files("rs") {
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > FILE_LINES_MAX {
            failures.push(format!(
                "{file}: {} lines, split it (at most {FILE_LINES_MAX})",
                lines.len()
            ));
        }
        for (start, line) in lines.iter().enumerate() {
            if !code(line).contains("fn ") || line.trim_end().ends_with(';') {
                continue;
            }
            let indent = &line[..line.len() - line.trim_start().len()];
            let close = format!("{indent}}}");
            let Some(length) = lines[start..].iter().position(|line| *line == close) else {
                continue;
            };
            if length + 1 > FUNCTION_LINES_MAX {
                failures.push(format!(
                    "{file}:{}: function of {} lines, split it (at most {FUNCTION_LINES_MAX})",
                    start + 1,
                    length + 1
                ));
            }
        }
    }
    report(&failures);
}

/// A newcomer reads the map of the code in one go.
#[test]
fn the_architecture_is_short() {
    const BYTES_MAX: usize = 15_000;
    let bytes = fs::read(root().join("ARCHITECTURE.md")).unwrap().len();
    assert!(
        bytes <= BYTES_MAX,
        "ARCHITECTURE.md has {bytes} bytes (at most {BYTES_MAX}): a page of docs/ is the place for details"
    );
}

/// The same bound for hardware descriptions and scripts.
#[test]
fn other_sources_are_short() {
    let mut failures = Vec::new();
    for extension in ["sv", "py", "sh"] {
        for (file, text) in files(extension) {
            let lines = text.lines().count();
            if lines > FILE_LINES_MAX {
                failures.push(format!(
                    "{file}: {lines} lines, split it (at most {FILE_LINES_MAX})"
                ));
            }
        }
    }
    report(&failures);
}

/// The type that a line of code defines at the top of a module.
fn defined_type(line: &str) -> Option<&str> {
    let line = code(line);
    let item = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let (kind, name) = item.split_once(' ')?;
    let is_type = matches!(kind, "struct" | "enum" | "trait" | "type" | "union");
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    is_type.then(|| &name[..end.unwrap_or(name.len())])
}

/// A type's name says what it is when it is read alone.
#[test]
fn one_name_means_one_thing() {
    let mut places = BTreeMap::<String, Vec<String>>::new();
    for (file, text) in files("rs") {
        let is_product = file.starts_with("crates/") && file.contains("/src/");
        if !is_product || file.contains("tests") || file.starts_with("crates/testkit/") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = defined_type(line) {
                let place = format!("{file}:{}", number + 1);
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    let crowded = places
        .iter()
        .filter(|(_, places)| places.len() > SAME_NAME_MAX);
    let failures: Vec<_> = crowded
        .map(|(name, places)| {
            format!(
                "`{name}` names {} types: {}",
                places.len(),
                places.join(", ")
            )
        })
        .collect();
    report(&failures);
}

/// A comment that begins with one of these words is no sentence: its noun, or its verb, is elsewhere.
const FRAGMENTS: &[&str] = &["Of ", "Whether ", "What ", "Whom ", "Whose "];

#[test]
fn comments_name_their_nouns() {
    let mut failures = Vec::new();
    for (file, text) in files("rs") {
        // The generator of the register map copies the map's own words.
        let is_product = file.starts_with("crates/") && file.contains("/src/");
        if !is_product || file.ends_with("fpga/src/regs.rs") {
            continue;
        }
        let mut inside = false;
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("//");
            let words = comment.map(|text| text.trim_start_matches(['/', '!']).trim_start());
            let begins = words.is_some() && !inside;
            inside = words.is_some();
            if begins
                && words.is_some_and(|text| FRAGMENTS.iter().any(|word| text.starts_with(word)))
            {
                failures.push(format!(
                    "{file}:{}: name the noun, or use a verb",
                    number + 1
                ));
            }
        }
    }
    report(&failures);
}

#[test]
fn every_module_says_what_it_is() {
    let failures: Vec<_> = files("rs")
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(file, _)| format!("{file}:1: no `//!` line that says what this module is"))
        .collect();
    report(&failures);
}

#[test]
fn pure_crates_stay_pure() {
    let mut failures = Vec::new();
    for (file, text) in files("rs") {
        let pure = PURE_CRATES
            .iter()
            .any(|name| file.starts_with(&format!("crates/{name}/src/")));
        if !pure {
            continue;
        }
        // Unit tests come last and may read a clock.
        let product = text
            .lines()
            .take_while(|line| !line.starts_with("#[cfg(test)]"));
        for (number, line) in product.enumerate() {
            for word in IMPURE {
                if code(line).contains(word) {
                    failures.push(format!(
                        "{file}:{}: `{word}` in a pure crate; pass it in",
                        number + 1
                    ));
                }
            }
        }
    }
    report(&failures);
}

/// Says whether a line has a word, alone or as a path.
#[test]
fn only_validity_goes_by_the_wall_clock() {
    let mut failures = Vec::new();
    for (file, text) in files("rs") {
        let is_product = file.starts_with("crates/") && file.contains("/src/");
        let is_place = WALL_CLOCK_PLACES
            .iter()
            .any(|place| file.starts_with(place));
        for (number, line) in text.lines().enumerate() {
            if is_product && !is_place && has_word(code(line), "SystemTime") {
                failures.push(format!(
                    "{file}:{}: the wall clock can jump: take Instant, or add the file to the list",
                    number + 1
                ));
            }
        }
    }
    report(&failures);
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !is_part(before.chars().next_back()) && !is_part(after.chars().next())
    })
}

#[test]
fn der_comes_in_by_one_door() {
    let mut failures = Vec::new();
    for (file, text) in files("rs") {
        let is_product = ["pki", "ike", "config", "tokens", "helpers", "gateway"]
            .map(|name| format!("crates/{name}/src/"))
            .iter()
            .any(|place| file.starts_with(place));
        if !is_product || file == DER_DOOR || file.contains("tests") {
            continue;
        }
        let own = text.split("#[cfg(test)]\nmod tests {").next();
        for (number, line) in own.unwrap_or(&text).lines().enumerate() {
            for word in DER_DECODERS {
                if has_word(code(line), word) {
                    failures.push(format!(
                        "{file}:{}: `{word}` decodes DER past {DER_DOOR}",
                        number + 1
                    ));
                }
            }
        }
    }
    report(&failures);
}

#[test]
fn unsafe_stays_in_its_places() {
    let mut failures = Vec::new();
    for (file, text) in files("rs") {
        if UNSAFE_PLACES.iter().any(|place| file.starts_with(place))
            || file.ends_with("tests/tidy.rs")
        {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = code(line);
            if code.contains("unsafe {")
                || code.contains("unsafe fn")
                || code.contains("unsafe impl")
            {
                failures.push(format!(
                    "{file}:{}: `unsafe` outside {UNSAFE_PLACES:?}",
                    number + 1
                ));
            }
        }
    }
    report(&failures);
}

#[test]
fn crates_do_not_know_those_beside_or_above_them() {
    let root = root();
    let manifest = |name: &str| {
        fs::read_to_string(root.join(format!("crates/{name}/Cargo.toml"))).expect("manifest")
    };
    for (name, other) in [
        ("ike", "ipsec"),
        ("ipsec", "ike"),
        ("ipsec", "pki"),
        ("pki", "ipsec"),
        ("pki", "ike"),
    ] {
        assert!(
            !manifest(name).contains(&format!("esplanade-{other}")),
            "crates/{name} depends on {other}"
        );
    }
}

/// A source file that no `mod` line reaches is dead: the compiler never reads it.
#[test]
fn no_dead_files() {
    let all = files("rs");
    let mut failures = Vec::new();
    for (file, _) in &all {
        let Some((crate_dir, inner)) = file.split_once("/src/") else {
            continue;
        };
        let stem = inner.trim_end_matches(".rs");
        if matches!(stem, "lib" | "main") || stem.starts_with("bin/") {
            continue;
        }
        let path = stem.strip_suffix("/mod").unwrap_or(stem);
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parents: BTreeSet<String> = if parent.is_empty() {
            ["lib.rs", "main.rs"]
                .iter()
                .map(|name| format!("{crate_dir}/src/{name}"))
                .collect()
        } else {
            [
                format!("{crate_dir}/src/{parent}.rs"),
                format!("{crate_dir}/src/{parent}/mod.rs"),
            ]
            .into()
        };
        let declared = all.iter().any(|(candidate, text)| {
            parents.contains(candidate)
                && text
                    .lines()
                    .any(|line| code(line).trim_end().ends_with(&format!("mod {name};")))
        });
        if !declared {
            failures.push(format!("{file}: no `mod {name};` reaches this file"));
        }
    }
    report(&failures);
}

/// In a crate that names its test targets, a file that no target reaches would never run.
#[test]
fn no_dead_tests() {
    let all = files("rs");
    let mut failures = Vec::new();
    for (manifest, text) in files("toml") {
        let Some(crate_dir) = manifest.strip_suffix("/Cargo.toml") else {
            continue;
        };
        if !text.contains("\nautotests = false\n") {
            continue;
        }
        let folder = format!("{crate_dir}/tests/");
        let modules = all
            .iter()
            .find(|(file, _)| *file == format!("{folder}all.rs"));
        for (file, _) in all.iter().filter(|(file, _)| file.starts_with(&folder)) {
            let name = file[folder.len()..].trim_end_matches(".rs");
            let name = name.strip_suffix("/main").unwrap_or(name);
            let is_module = modules
                .is_some_and(|(_, text)| text.lines().any(|line| line == format!("mod {name};")));
            let is_target = text.contains(&format!("[[test]]\nname = \"{name}\"\n"));
            if !name.contains('/') && !is_module && !is_target {
                failures.push(format!(
                    "{file}: neither a module of all.rs nor a target of {manifest}"
                ));
            }
        }
    }
    report(&failures);
}

/// In a crate whose library is not built as a test, a test in it would never run.
#[test]
fn no_dead_unit_tests() {
    let all = files("rs");
    let mut failures = Vec::new();
    for (manifest, text) in files("toml") {
        let Some(crate_dir) = manifest.strip_suffix("/Cargo.toml") else {
            continue;
        };
        if !text.contains("\n[lib]\ntest = false\n") {
            continue;
        }
        let sources = format!("{crate_dir}/src/");
        for (file, text) in all.iter().filter(|(file, _)| file.starts_with(&sources)) {
            if text.contains("#[test]") || text.contains("cfg(test)") {
                failures.push(format!(
                    "{file}: {manifest} says that the library has no tests; they belong into tests/"
                ));
            }
        }
    }
    report(&failures);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let root = root();
    let mut failures = Vec::new();
    for (file, text) in files("md") {
        let folder = root.join(&file).parent().expect("parent").to_path_buf();
        for (number, line) in text.lines().enumerate() {
            for link in line.split("](").skip(1) {
                let target = link.split(')').next().unwrap_or_default();
                let path = target.split('#').next().unwrap_or_default();
                if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                if !folder.join(path).exists() {
                    failures.push(format!("{file}:{}: `{target}` leads nowhere", number + 1));
                }
            }
        }
    }
    report(&failures);
}

/// See [`esplanade_testkit::program::write`]: another way to write a program fails now and then.
#[test]
fn tests_write_programs_by_one_door() {
    let mut failures = Vec::new();
    for (file, text) in files("rs") {
        if file == "crates/testkit/tests/tidy.rs" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if line.contains("from_mode(0o7") {
                let at = number + 1;
                failures.push(format!(
                    "{file}:{at}: `testkit::program::write` writes a program"
                ));
            }
        }
    }
    report(&failures);
}

#[test]
fn text_is_clean() {
    let mut failures = Vec::new();
    for extension in ["rs", "md", "py", "sh", "toml"] {
        for (file, text) in files(extension) {
            for (number, line) in text.lines().enumerate() {
                if line.ends_with(' ') || line.ends_with('\t') {
                    failures.push(format!(
                        "{file}:{}: white space at the end of the line",
                        number + 1
                    ));
                }
            }
            if !text.is_empty() && !text.ends_with('\n') {
                failures.push(format!("{file}: no newline at the end"));
            }
        }
    }
    report(&failures);
}
