//! A panic is told in the log, and waits for nobody who reads it.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use esplanade::log;

const CHILD: &str = "ESPLANADE_TEST_PANIC";

/// What the tests below run in a process of its own: the log and the panic hook are the process's.
#[test]
fn a_worker_panics() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    log::start().unwrap();
    log::init(log::Format::Json, "info").unwrap();
    {
        let _flush = log::FlushAtEnd;
        let worker = std::thread::Builder::new().name("worker-0".to_owned());
        let thread = worker.spawn(|| panic!("by design, {}", 7)).unwrap();
        assert!(thread.join().is_err());
        tracing::warn!("the others go on");
    }
    // Not as the test harness would: it prints.
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

    // Nobody reads it, and it is full.
    let (reader, mut pipe) = std::io::pipe().unwrap();
    let sleeper = pipe.try_clone().unwrap();
    let filler = std::thread::spawn(move || pipe.write_all(&[0; 1 << 20]));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(child(sleeper.into()).0, Some(42));
    assert!(!filler.is_finished());
    drop(reader);
    assert!(filler.join().unwrap().is_err());
}
