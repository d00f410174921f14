//! Runs `esplanade demo` as a user does.

use std::path::Path;
use std::process::{Command, Output};

const FORBIDDEN: i32 = 5;

fn demo(output: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_esplanade"))
        .args(["demo", "--plain", "--duration", "1", "--output"])
        .arg(output)
        .args(arguments)
        .output()
        .expect("the program starts")
}

/// Returns true, and prints the reason, if the system offers no namespaces or TUN device.
fn skipped(test: &str, output: &Output) -> bool {
    let skip = output.status.code() == Some(FORBIDDEN);
    if skip {
        println!(
            "SKIP {test}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    skip
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes))
        .concat()
}

#[test]
fn the_demo_passes_all_its_checks() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(directory.path(), &[]);
    if skipped("the_demo_passes_all_its_checks", &output) {
        return;
    }
    let text = text(&output);
    for line in [
        "IKE_SA_INIT request 0",
        "IKE_AUTH response 1",
        "chosen: ENCR_AES_GCM_16-128",
        "TSi(10.1.0.0-10.1.0.255)",
        "ok    4 of 4 pings from host-a answered",
        "ok    4 of 4 pings from host-b answered",
        "ok    TCP: ",
        "ok    UDP: ",
        "ok    child SA, by gw-a: replaced",
        "ok    IKE SA, by gw-a: replaced",
        "ok    child SA, by gw-b: replaced",
        "ok    IKE SA, by gw-b: replaced",
        "ok    UDP while rekeying: ",
        " 0 in clear",
        "All checks passed.",
    ] {
        assert!(text.contains(line), "`{line}` is missing in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "escape codes in plain output");
    assert!(output.status.success(), "{}:\n{text}", output.status);
    for file in [
        "wire.pcap",
        "inside.pcap",
        "wireshark/esp_sa",
        "wireshark/ikev2_decryption_table",
    ] {
        let len = std::fs::metadata(directory.path().join(file))
            .unwrap()
            .len();
        assert!(len > 24, "{file} is empty");
        assert!(len < 20 << 20, "{file} has {len} bytes");
    }
}

#[test]
fn the_wire_check_finds_packets_in_clear() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(directory.path(), &["--without-tunnel"]);
    if skipped("the_wire_check_finds_packets_in_clear", &output) {
        return;
    }
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for line in [
        "ok    4 of 4 pings from host-a answered",
        "FAIL  only ESP and IKE between the gateways",
        "in clear: 10.1.0.2 > 10.2.0.2  ICMP echo request, 84 bytes",
        "FAIL  the hosts' marker is in ",
    ] {
        assert!(text.contains(line), "`{line}` is missing in:\n{text}");
    }
}

#[test]
fn a_demo_that_nobody_could_read_is_no_success() {
    let directory = tempfile::tempdir().unwrap();
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_esplanade"))
        .args(["demo", "--duration", "1", "--output"])
        .arg(directory.path())
        .stdout(full)
        .output()
        .unwrap();
    if skipped("a_demo_that_nobody_could_read_is_no_success", &output) {
        return;
    }
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("cannot write to standard output: No space left"),
        "{text}"
    );
}
