//! Tests that the log shows a panic, and that a panic does not wait for a reader of the log.

use std::fs::File;
use std::io::{ErrorKind, PipeWriter, Write};
use std::process::{Command, Stdio};

use esplanade::config::log_filter;
use esplanade::log;
use rustix::io::ioctl_fionbio;

const CHILD: &str = "ESPLANADE_TEST_PANIC";

/// The tests below run this in a separate process, because the log and the panic hook belong to the
/// process.
#[test]
fn a_worker_panics() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    log::start(log::Format::Json).unwrap();
    log::init(log::Format::Json, log_filter::parse("info").unwrap());
    {
        let _flush = log::FlushAtEnd;
        let worker = std::thread::Builder::new().name("worker-0".to_owned());
        let thread = worker.spawn(|| panic!("by design, {}", 7)).unwrap();
        assert!(thread.join().is_err());
        tracing::warn!("the others go on");
    }
    // Skip the test harness's end, which prints.
    std::process::exit(42);
}

fn child(stderr: Stdio) -> (Option<i32>, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["a_worker_panics", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env_remove("RUST_BACKTRACE")
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

#[test]
fn a_panic_is_a_line_of_the_log() {
    let (code, text) = child(Stdio::piped());
    assert_eq!(code, Some(42), "{text}");
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [panic, after] = lines.as_slice() else {
        panic!("{text}");
    };
    assert_eq!(panic["level"], "ERROR");
    assert_eq!(panic["thread"], "worker-0");
    assert_eq!(panic["message"], "panicked: by design, 7");
    assert!(panic["place"].as_str().unwrap().contains("panics.rs"));
    assert_eq!(after["message"], "the others go on");
}

#[test]
fn a_panic_outlives_a_log_that_takes_nothing() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(child(full.into()).0, Some(42));
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(child(closed.into()).0, Some(42));

    // The pipe is full and nobody reads it.
    let (_reader, mut pipe) = std::io::pipe().unwrap();
    fill(&mut pipe);
    assert_eq!(child(pipe.into()).0, Some(42));
}

/// Writes to a pipe until it takes no more.
fn fill(pipe: &mut PipeWriter) {
    ioctl_fionbio(&*pipe, true).unwrap();
    let error = loop {
        if let Err(error) = pipe.write(&[0; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    ioctl_fionbio(&*pipe, false).unwrap();
}
