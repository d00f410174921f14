//! The program as a user runs it: exit codes, help, and where things are printed.

mod program;

use std::fs;
use std::path::Path;
use std::process::Output;

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
    assert!(text(&good.stdout).contains("valid, 1 connections, 1 policies"));

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

#[test]
fn tiers_that_the_machine_lacks_are_five() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.conf");
    for tier in Tier::ALL {
        // Nothing else of it is looked at.
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
    // A stale socket is the same.
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
