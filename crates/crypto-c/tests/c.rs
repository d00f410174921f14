//! Checks the header, and builds and runs a C program that uses it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Finds the library in the folder where cargo puts what it builds for this test, or in the folder above.
fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("a path");
    let deps = exe.parent().expect("a folder");
    let folders = [deps, deps.parent().expect("a folder")];
    let mut found: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.filter_map(Result::ok))
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            name.starts_with("libesplanade_crypto_c") && name.ends_with(".a")
        })
        .collect();
    found.sort_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    found.pop().expect("cargo has built the static library")
}

#[test]
fn a_c_program_seals_and_opens() {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    if Command::new(&cc).arg("--version").output().is_err() {
        println!("SKIP c_compiler: there is no {cc}");
        return;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lookaside");
    let built = Command::new(&cc)
        .args([
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-I",
        ])
        .arg(here().join("include"))
        .arg(here().join("examples/lookaside.c"))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .expect("the compiler runs");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let run = Command::new(&program).output().expect("the program runs");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert!(said.starts_with("ok with the tier "), "{said}");
}

/// To make the header again: install cbindgen 0.29 (`cargo install cbindgen --version 0.29.4`), then in crates/crypto-c
/// `cbindgen --config cbindgen.toml --output include/esplanade_crypto.h src/lib.rs`.
#[test]
fn the_header_is_current() {
    let header = here().join("include/esplanade_crypto.h");
    let checked_in = std::fs::read_to_string(&header).expect("the header");
    every_function_is_declared(&checked_in);
    // The crates here may not be built with code under the license of cbindgen, MPL-2.0. As a tool it may be used.
    let made = Command::new("cbindgen")
        .current_dir(here())
        .args(["--quiet", "--config", "cbindgen.toml", "src/lib.rs"])
        .output();
    match made {
        Ok(made) if made.status.success() && !made.stdout.is_empty() => {
            let made = String::from_utf8_lossy(&made.stdout).into_owned();
            assert!(
                made == checked_in,
                "{} is not what cbindgen makes",
                header.display()
            );
        }
        Ok(made) => println!(
            "SKIP cbindgen: it does not understand the source: {}",
            String::from_utf8_lossy(&made.stderr)
                .lines()
                .next()
                .unwrap_or_default()
        ),
        Err(error) => println!("SKIP cbindgen: {error}"),
    }
}

/// Checks names and numbers without cbindgen.
fn every_function_is_declared(header: &str) {
    let source = include_str!("../src/lib.rs");
    let mut functions = 0;
    for line in source.lines() {
        if let Some((_, rest)) = line.split_once("extern \"C\" fn ") {
            let name = rest.split('(').next().unwrap_or_default();
            assert!(header.contains(&format!("{name}(")), "{name}");
            functions += 1;
        }
        if let Some(rest) = line.strip_prefix("pub const ESPLANADE_") {
            let mut words = rest
                .split([':', '=', ';', ' '])
                .filter(|word| !word.is_empty());
            let (name, value) = (
                words.next().unwrap_or_default(),
                words.nth(1).unwrap_or_default(),
            );
            assert!(
                header.contains(&format!("#define ESPLANADE_{name} {value}\n")),
                "{name}"
            );
        }
    }
    assert_eq!(functions, 10);
}
