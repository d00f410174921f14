//! Checks what runs the stages of `make test`: their bounds, and what the documents say of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use esplanade_testkit::program;

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
    let (_, calls) = script.split_once("\nrun() {").unwrap();
    let stages: Vec<&str> = calls
        .split("stage ")
        .skip(1)
        .chain(calls.split("if_drawn ").skip(1))
        .map(|rest| rest.split_whitespace().next().unwrap())
        .filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
        .chain(["rtl-lint", "rtl-test"])
        .collect();
    assert!(
        ["unit", "interop", "deny", "rtl-formal"]
            .iter()
            .all(|name| stages.contains(name))
    );
    for name in stages {
        assert!(budgets.contains(&name), "tools/budget.txt lacks {name}");
    }
}

/// A repository of 60 commits, of which the one before the last `back` changed `watched`. All machines give it the same
/// names of commits, so that they draw the same stages.
fn repository(back: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str], input: &str| {
        let mut git = Command::new("git");
        program::run_with(git.args(arguments).current_dir(folder.path()), input);
    };
    let commit = |at: usize| {
        let watched = if at == 0 || at + back == 59 {
            format!("M 644 inline watched\ndata <<END\n{at}\nEND\n")
        } else {
            String::new()
        };
        format!("commit refs/heads/main\ncommitter a <a@b> {at} +0000\ndata 0\n{watched}")
    };
    git(&["init", "-q", "-b", "main"], "");
    git(
        &["fast-import", "--quiet"],
        &(0..60).map(commit).collect::<String>(),
    );
    git(&["reset", "-q", "--hard"], "");
    let script = fs::read_to_string(root().join("tools/sampling.py")).unwrap();
    program::write(&folder.path().join("tools/sampling.py"), &script);
    folder
}

/// How many of `count` stages run that depend on `watched` alone.
fn that_run(repository: &tempfile::TempDir, count: usize) -> usize {
    let runs = |at: &usize| {
        let done = Command::new(repository.path().join("tools/sampling.py"))
            .args([&format!("stage{at}"), "watched"])
            .output()
            .unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        assert_eq!(said.is_empty(), done.status.success(), "{said}");
        done.status.success()
    };
    (0..count).filter(runs).count()
}

#[test]
fn a_stage_runs_where_its_files_were_changed_lately_or_the_commit_draws_it() {
    assert_eq!(that_run(&repository(49), 4), 4);
    let unchanged = repository(50);
    assert!((1..8).contains(&that_run(&unchanged, 12)));
    fs::write(unchanged.path().join("watched"), "not committed").unwrap();
    assert_eq!(that_run(&unchanged, 4), 4);
    fs::remove_dir_all(unchanged.path().join(".git")).unwrap();
    assert_eq!(that_run(&unchanged, 4), 4);
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

/// `tools/deps.sh` in a folder of its own, with an apt that knows the packages of `sources`.
struct Machine(tempfile::TempDir);

impl Machine {
    fn with(sources: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("sources", sources);
        machine.write("installed", "");
        machine.program("id", "echo 0");
        machine.program(
            "dpkg-query",
            r#"grep -qx -- "${!#}" $ROOT/installed && printf installed"#,
        );
        machine.program(
            "apt-cache",
            r#"shift; for name in "$@"; do grep -qx -- "$name" $ROOT/sources && printf '%s:\n  Candidate: 1\n' "$name"; done"#,
        );
        // As apt: a name that it does not know, or a package that it cannot install, keeps it from the others.
        machine.program(
            "apt-get",
            r#"[ "$1" = install ] || exit 0
            names=$(printf '%s\n' "${@:2}" | grep -v '^-')
            for name in $names; do
              grep -qx -- "$name" $ROOT/sources && [ "$name" != ethtool ] || exit 100
            done
            echo "$names" >>$ROOT/installed"#,
        );
        let script = fs::read_to_string(root().join("tools/deps.sh")).unwrap();
        program::write(&machine.0.path().join("tools/deps.sh"), &script);
        // Only the packages are looked at: the rest is there.
        machine.program("target/tools/libreswan/usr/libexec/ipsec/pluto", "");
        machine.program("target/tools/openiked/usr/sbin/iked", "");
        machine.write("target/tools/debian13/.complete", "");
        for (folder, requirements) in [
            (".venv", "interop/requirements.txt"),
            ("rtl/.venv", "rtl/requirements.txt"),
            ("target/tools/gpu-kernels", "tools/gpu-kernels.txt"),
            ("target/tools/gpu-intel", "tools/gpu-intel.txt"),
        ] {
            machine.write(requirements, "");
            machine.write(&format!("{folder}/.requirements"), "");
        }
        machine
    }

    fn write(&self, name: &str, text: &str) {
        let file = self.0.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn program(&self, name: &str, text: &str) {
        let folder = self.0.path();
        let name = if name.contains('/') {
            name.into()
        } else {
            format!("bin/{name}")
        };
        let text = format!("#!/bin/bash\nROOT={}\n{text}\n", folder.display());
        program::write(&folder.join(name), &text);
    }

    /// What the script says.
    fn deps(&self, arguments: &[&str]) -> String {
        let folders = format!("{}/bin:/usr/bin:/bin", self.0.path().display());
        let done = Command::new(self.0.path().join("tools/deps.sh"))
            .args(arguments)
            .env("PATH", folders)
            .output()
            .unwrap();
        assert!(done.status.success());
        String::from_utf8([done.stdout, done.stderr].concat()).unwrap()
    }

    fn installed(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join("installed")).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

/// The names of packages in the list of `tools/deps.sh`, of all releases.
fn packages() -> Vec<Vec<String>> {
    let listed = Machine::with("").deps(&["--list"]);
    let lines = listed.lines().map(|line| line.split_once(' ').unwrap());
    lines
        .map(|(names, reason)| {
            assert!(
                reason.ends_with(" (no package source of this machine has it)"),
                "{reason}"
            );
            let names: Vec<String> = names.split('|').map(str::to_owned).collect();
            for name in &names {
                assert!(
                    name.chars()
                        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c)),
                    "{name}"
                );
            }
            names
        })
        .collect()
}

#[test]
fn each_package_is_listed_once() {
    let mut names = packages().concat();
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(all > 30, "{names:?}");
}

/// Releases have other names for a package. `--list` and the installation take those of the machine's release.
#[test]
fn the_packages_are_those_of_the_release() {
    let renamed: Vec<Vec<String>> = packages()
        .into_iter()
        .filter(|names| names.len() > 1)
        .collect();
    assert!(!renamed.is_empty());
    for (of, others) in [(0, 1), (1, 0)] {
        let sources: Vec<&str> = renamed.iter().map(|names| names[of].as_str()).collect();
        let machine = Machine::with(&(sources.join("\n") + "\n"));
        let listed = machine.deps(&["--list"]);
        machine.deps(&[]);
        let words: Vec<&str> = listed.split_whitespace().collect();
        for names in &renamed {
            assert!(words.contains(&names[of].as_str()), "{listed}");
            assert!(!words.contains(&names[others].as_str()), "{listed}");
            assert!(machine.installed().contains(&names[of]));
        }
    }
}

#[test]
fn a_package_that_cannot_be_installed_keeps_no_other_away() {
    let machine = Machine::with("ethtool\nopenssl\niperf3\n");
    let said = machine.deps(&[]);
    assert_eq!(machine.installed(), ["iperf3", "openssl"]);
    for name in ["ethtool", "tshark"] {
        assert!(
            said.contains(&format!("could not install {name} ")),
            "{said}"
        );
    }
    assert!(!said.contains("could not install openssl"), "{said}");
}

/// A test that one release cannot run is no excuse for another release.
#[test]
fn each_expected_skip_has_a_reason() {
    let list = fs::read_to_string(root().join("tools/expected-skips.txt")).unwrap();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (name, reason) = line.split_once(" # ").unwrap();
        assert!(!reason.is_empty());
        let words: Vec<&str> = name.split(' ').collect();
        assert!(
            words.len() == 1 || words.len() == 2 && words[1].starts_with("debian-"),
            "{line}"
        );
    }
}
