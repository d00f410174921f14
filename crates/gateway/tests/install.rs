//! Tests `make install` and `make uninstall`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use esplanade_ace::library::{Library, Trust};

/// Runs make with `root` as DESTDIR, as a packager does.
fn make(target: &str, root: &Path, prefix: &str) -> Output {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new("make")
        .arg("-C")
        .arg(project)
        .env_remove("MAKEFLAGS")
        .arg(target)
        .arg(format!("DESTDIR={}", root.display()))
        .arg(format!("PREFIX={prefix}"))
        .arg(format!("BINARY={}", env!("CARGO_BIN_EXE_esplanade")))
        .output()
        .unwrap()
}

fn succeed(output: &Output) {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

fn lines(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_is_installed_works_and_goes_again() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    succeed(&make("install", root, "/usr"));
    let at = |path: &str| root.join(path);
    let read = |path: &str| fs::read_to_string(at(path)).unwrap_or_else(|e| panic!("{path}: {e}"));

    let program = at("usr/sbin/esplanade");
    let version = Command::new(&program).arg("--version").output().unwrap();
    succeed(&version);
    assert!(lines(&version).starts_with("esplanade "));
    let sections = Command::new("readelf")
        .arg("-SW")
        .arg(&program)
        .output()
        .unwrap();
    assert!(lines(&sections).contains(".text") && !lines(&sections).contains(".symtab"));

    // Every command of the help has a manual page.
    let help = Command::new(&program).arg("--help").output().unwrap();
    let help = lines(&help);
    let listed = help
        .split("Commands:")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap();
    let commands = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let commands: Vec<&str> = commands.filter(|name| *name != "help").collect();
    assert!(
        commands.contains(&"explain") && commands.len() > 8,
        "{commands:?}"
    );
    for command in commands {
        let page = read(&format!("usr/share/man/man1/esplanade-{command}.1"));
        assert!(page.contains(".TH"), "{command}");
    }
    assert!(read("usr/share/man/man1/esplanade.1").contains(".TH"));
    for script in [
        "bash-completion/completions/esplanade",
        "zsh/site-functions/_esplanade",
        "fish/vendor_completions.d/esplanade.fish",
    ] {
        assert!(
            read(&format!("usr/share/{script}")).contains("export-keys"),
            "{script}"
        );
    }

    let unit = read("usr/lib/systemd/system/esplanade.service");
    assert!(unit.contains("\nExecStart=/usr/sbin/esplanade run\n") && !unit.contains("@SBINDIR@"));
    let user = read("usr/lib/sysusers.d/esplanade.conf");
    assert!(unit.contains("\nUser=esplanade\n") && user.starts_with("u esplanade "));
    assert!(at("etc/esplanade").is_dir());
    // docs/cli.md takes the rights of all others away.
    assert!(unit.contains("\nConfigurationDirectoryMode=0750\n"));

    check_library(root);

    let own = at("etc/esplanade/esplanade.conf");
    fs::write(&own, "connections { }\n").unwrap();
    succeed(&make("uninstall", root, "/usr"));
    let mut left = Vec::new();
    files(root, &mut left);
    assert!(!at("usr/share/esplanade").exists());
    assert_eq!(left, [own], "the configuration is the administrator's");
}

/// The library of FPGA configurations is the one of the repository. A file of an older library goes.
fn check_library(root: &Path) {
    let folder = root.join("usr/share/esplanade/ace");
    let key = fs::read_to_string(folder.join("public.key")).unwrap();
    let trust = Trust::Key(hex::decode(key.trim()).unwrap().try_into().unwrap());
    let library = Library::open(&folder, &trust, 1).unwrap();
    assert!(library.manifest().domains.len() >= 5);
    let older = folder.join("0000.ace");
    fs::write(&older, "").unwrap();
    succeed(&make("install", root, "/usr"));
    assert!(!older.exists());
    Library::open(&folder, &trust, 1).unwrap();
}

/// systemd knows every directive of the unit.
#[test]
fn systemd_takes_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().display().to_string();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = Command::new("make")
        .arg("-C")
        .arg(project)
        .env_remove("MAKEFLAGS")
        .arg("install")
        .arg(format!("PREFIX={prefix}"))
        .arg(format!("SYSCONFDIR={prefix}/etc"))
        .arg(format!("BINARY={}", env!("CARGO_BIN_EXE_esplanade")))
        .output()
        .unwrap();
    succeed(&installed);
    let unit = folder.path().join("lib/systemd/system/esplanade.service");
    let Ok(verified) = Command::new("systemd-analyze")
        .arg("verify")
        .arg("--man=no")
        .arg(&unit)
        .output()
    else {
        println!("SKIP systemd_takes_the_unit: no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    let about = said
        .lines()
        .filter(|line| line.contains("esplanade.service"));
    assert_eq!(about.collect::<Vec<_>>(), Vec::<&str>::new());
    // These calls are in no group of some versions of systemd. Without them, systemd would kill the
    // gateway when it confines itself.
    let unit = std::fs::read_to_string(unit).unwrap();
    let filters = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let calls: Vec<&str> = filters.flat_map(str::split_whitespace).collect();
    for call in ["create_ruleset", "add_rule", "restrict_self"] {
        assert!(
            calls.contains(&format!("landlock_{call}").as_str()),
            "{call}"
        );
    }
    assert!(calls.contains(&"seccomp"));
}
