//! Checks what runs the stages of `make test`: their bounds, and what the documents say of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

struct Ran {
    code: Option<i32>,
    log: String,
    processor_seconds: u64,
}

fn bounded(cpu: u64, wall: u64, script: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let status = Command::new(root().join("tools/bounded.sh"))
        .args([&cpu.to_string(), &wall.to_string()])
        .arg(&log)
        .args(["bash", "-c", script])
        .status()
        .unwrap();
    let used = fs::read_to_string(folder.path().join("log.cpu")).unwrap();
    Ran {
        code: status.code(),
        log: fs::read_to_string(log).unwrap(),
        processor_seconds: used.trim().parse().unwrap(),
    }
}

#[test]
fn a_stage_that_ends_by_itself_keeps_its_code_and_output() {
    let ran = bounded(60, 60, "echo said; echo told >&2; exit 7");
    assert_eq!(ran.code, Some(7));
    assert_eq!(ran.log, "said\ntold\n");
}

#[test]
fn the_time_of_processors_is_that_of_all_descendants() {
    let ran = bounded(
        60,
        600,
        "bash -c 'ulimit -t 1; while :; do :; done'; exit 0",
    );
    assert_eq!(ran.code, Some(0));
    assert!(ran.processor_seconds >= 1, "{}", ran.processor_seconds);
}

/// The one that works is a grandchild, and in a session of its own.
#[test]
fn a_stage_past_its_bound_ends_with_all_that_it_has_started() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!(
        "setsid bash -c 'echo $$ >{}; while :; do :; done' & wait",
        pid.display()
    );
    let ran = bounded(1, 600, &script);
    assert_eq!(ran.code, Some(124));
    assert!(
        ran.log.contains("ENDED: it has used more than 1 s"),
        "{}",
        ran.log
    );
    let pid = fs::read_to_string(pid).unwrap();
    // It is there until the system's first process has noticed its end.
    let deadline = Instant::now() + Duration::from_secs(10);
    while Path::new("/proc").join(pid.trim()).exists() {
        assert!(Instant::now() < deadline, "process {pid} goes on");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_stage_that_waits_for_ever_ends() {
    let ran = bounded(60, 1, "sleep 1000");
    assert_eq!(ran.code, Some(124));
    assert!(
        ran.log.contains("ENDED: it has taken more than 1 s"),
        "{}",
        ran.log
    );
}

#[test]
fn each_stage_has_a_budget() {
    let script = fs::read_to_string(root().join("tools/test.sh")).unwrap();
    let budgets = fs::read_to_string(root().join("tools/budget.txt")).unwrap();
    let budgets: Vec<&str> = budgets
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let (_, calls) = script.split_once("\nfor name in ").unwrap();
    let stages: Vec<&str> = calls
        .split("stage ")
        .skip(1)
        .map(|rest| rest.split_whitespace().next().unwrap())
        .filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
        .chain(["rtl-lint", "rtl-test", "rtl-formal"])
        .collect();
    assert!(stages.contains(&"unit") && stages.contains(&"interop"));
    for name in stages {
        assert!(budgets.contains(&name), "tools/budget.txt lacks {name}");
    }
}

/// README, CONTRIBUTING and CI speak of the same two commands.
#[test]
fn the_documents_name_the_commands_that_there_are() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let readme = read("README.md");
    for command in ["make demo", "make test"] {
        assert!(
            readme.contains(&format!("\n    {command}\n")),
            "README: {command}"
        );
    }
    assert!(read("CONTRIBUTING.md").contains("`make test`"));
    assert!(read(".ci/run").contains("exec make test"));
    let makefile = read("Makefile");
    for target in ["demo:", "test:"] {
        assert!(
            makefile.lines().any(|line| line.starts_with(target)),
            "Makefile: {target}"
        );
    }
    assert!(makefile.contains("@tools/test.sh\n"));
}
