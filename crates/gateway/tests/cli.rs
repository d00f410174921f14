//! Runs the program as a user does, and checks exit codes, help, and where output goes.

mod program;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use esplanade_crypto::Tier;
use program::{esplanade, text};

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/config")
        .join(name);
    path.display().to_string()
}

#[test]
fn check_says_valid_or_all_that_is_wrong() {
    let good = esplanade(&["check", &fixture("good/site-to-site.conf")]);
    assert_eq!(code(&good), 0, "{}", text(&good.stderr));
    assert!(text(&good.stdout).contains("valid, 1 connection, 1 policy"));

    let bad = esplanade(&["check", &fixture("bad/many.conf")]);
    assert_eq!(code(&bad), 3);
    assert!(bad.stdout.is_empty());
    let errors = text(&bad.stderr);
    assert!(errors.contains("did you mean `remote_addrs`?") && errors.contains("errors in "));
    assert!(
        !errors.contains('\x1b'),
        "colours are for terminals: {errors}"
    );

    let missing = esplanade(&["run", "--config", "/nonexistent/esplanade.conf"]);
    assert_eq!(code(&missing), 3);
    assert!(text(&missing.stderr).contains("it does not exist"));
}

#[test]
fn usage_errors_are_two() {
    for arguments in [
        &["fly"][..],
        &[],
        &["up"],
        &["run", "--log-format", "xml"],
        &["run", "--cpu-tier", "sse9"],
        &["status", "--timeout", "0"],
        &["man", "fly"],
    ] {
        assert_eq!(code(&esplanade(arguments)), 2, "{arguments:?}");
    }
    let level = esplanade(&[
        "run",
        "--config",
        &fixture("good/site-to-site.conf"),
        "--log-level",
        "esplanade=loud",
    ]);
    assert_eq!(code(&level), 2, "{}", text(&level.stderr));
}

/// Runs the program with outputs that may refuse to be written. Returns the exit code, and the text
/// of standard error.
fn into(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_esplanade"))
        .args(arguments)
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    (output.status.code(), text(&output.stderr))
}

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

/// Returns a pipe whose reader is gone.
fn closed() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_no_panic() {
    let good = fixture("good/site-to-site.conf");
    for arguments in [
        &["man"][..],
        &["completions", "bash"],
        &["check", &good],
        &["--help"],
        &["run", "--help"],
        &["--version"],
    ] {
        let (code, errors) = into(arguments, full(), Stdio::piped());
        assert_eq!(code, Some(1), "{arguments:?}: {errors}");
        assert!(
            errors.contains("cannot write to standard output: No space left"),
            "{arguments:?}: {errors}"
        );
        // A reader such as `head` stops early.
        let (code, errors) = into(arguments, closed(), Stdio::piped());
        assert_eq!(code, Some(0), "{arguments:?}: {errors}");
        assert!(!errors.contains("error"), "{arguments:?}: {errors}");
    }
}

#[test]
fn errors_that_cannot_be_written_still_have_their_code() {
    let bad = fixture("bad/many.conf");
    for (arguments, code) in [
        (&["check", &bad][..], 3),
        (&["run", "--config", &bad], 3),
        (
            &["explain", "--config", &bad, "icmp 10.0.0.1 to 10.0.0.2"],
            3,
        ),
        (&["status", "--socket", "/nonexistent"], 4),
        (&["fly"], 2),
    ] {
        for stderr in [full, closed] {
            let ended = into(arguments, Stdio::null(), stderr());
            assert_eq!(ended.0, Some(code), "{arguments:?}");
        }
    }
}

/// Nobody reads the pipe. The program drops the remaining output and ends.
#[test]
fn run_ends_beside_a_reader_that_sleeps() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let occupied = std::thread::spawn({
        let mut writer = writer.try_clone().unwrap();
        move || writer.write_all(&[0; 1 << 20])
    });
    let bad = fixture("bad/many.conf");
    let (code, _) = into(
        &["run", "--config", &bad],
        Stdio::null(),
        writer.try_clone().unwrap().into(),
    );
    assert_eq!(code, Some(3));
    assert!(!occupied.is_finished(), "the pipe was full all the time");
    drop(reader);
    assert!(occupied.join().unwrap().is_err());
    assert!(writer.write_all(b"x").is_err());
}

#[test]
fn tiers_that_the_machine_lacks_are_five() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.conf");
    for tier in Tier::ALL {
        // The tier is refused before anything else is checked.
        let Some(feature) = tier.missing() else {
            continue;
        };
        fs::write(&file, format!("gateway {{\n cpu_tier = {tier}\n}}\n")).unwrap();
        let file = file.to_str().unwrap();
        for arguments in [
            &["run", "--config", file][..],
            &["run", "--config", file, "--cpu-tier", tier.name()],
        ] {
            let output = esplanade(arguments);
            let error = text(&output.stderr);
            assert_eq!(code(&output), 5, "{error}");
            assert!(error.contains(&format!("has no {feature}")), "{error}");
        }
    }
}

#[test]
fn no_gateway_is_four() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("vici");
    let socket = socket.to_str().unwrap();
    for command in [
        &["status"][..],
        &["status", "--json"],
        &["up", "x"],
        &["down", "x"],
        &["rekey"],
        &["reload"],
    ] {
        let output = esplanade(&[command, &["--socket", socket]].concat());
        assert_eq!(code(&output), 4, "{command:?}");
        assert!(text(&output.stderr).contains("= help: start one with `esplanade run`"));
    }
    // A socket file without a listener is the same.
    drop(std::os::unix::net::UnixListener::bind(socket).unwrap());
    assert_eq!(code(&esplanade(&["status", "--socket", socket])), 4);
    fs::remove_file(socket).unwrap();
}

#[test]
fn help_manual_and_completions_come_from_one_definition() {
    let help = text(&esplanade(&["--help"]).stdout);
    assert!(help.contains("Exit codes:"));
    for command in [
        "run", "check", "explain", "status", "up", "down", "rekey", "reload", "demo",
    ] {
        assert!(help.contains(command), "{command}");
        let page = esplanade(&["man", command]);
        assert_eq!(code(&page), 0);
        assert!(text(&page.stdout).contains(".SH SYNOPSIS"), "{command}");
    }
    assert!(text(&esplanade(&["man"]).stdout).contains(".TH esplanade"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&esplanade(&["completions", shell]).stdout).contains("esplanade"));
    }
    assert!(text(&esplanade(&["--version"]).stdout).starts_with("esplanade 0."));
}

/// The journal of systemd sets the variable to the numbers of the stream that it reads.
#[test]
fn the_journal_gets_priorities() {
    let told = |stream: fn(u64, u64) -> String| {
        let mut stderr = tempfile::tempfile().unwrap();
        let found = stderr.metadata().unwrap();
        let status = Command::new(env!("CARGO_BIN_EXE_esplanade"))
            .args(["check", &fixture("bad/many.conf")])
            .env("JOURNAL_STREAM", stream(found.dev(), found.ino()))
            .stderr(stderr.try_clone().unwrap())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(3));
        let mut text = String::new();
        stderr.seek(SeekFrom::Start(0)).unwrap();
        stderr.read_to_string(&mut text).unwrap();
        text
    };
    let journal = told(|device, inode| format!("{device}:{inode}"));
    assert!(journal.lines().count() > 3);
    assert!(
        journal.lines().all(|line| line.starts_with("<3>")),
        "{journal}"
    );
    // A parent's journal is not this one.
    let other = told(|device, inode| format!("{device}:{}", inode + 1));
    assert_eq!(journal.replace("<3>", ""), other);
}
