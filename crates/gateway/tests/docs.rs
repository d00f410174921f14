//! Checks that every configuration, command, path, name and link in the documentation is valid. Nothing is run:
//! configurations are loaded, command lines are parsed, and names are looked up.

mod certificates;
#[path = "docs/commands.rs"]
mod commands;
#[path = "docs/keys.rs"]
mod keys;
#[path = "docs/modules.rs"]
mod modules;
#[path = "docs/pages.rs"]
mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use clap::CommandFactory;
use esplanade::cli::Cli;
use esplanade::config::load_text;

use commands::{check_line, is_ours, parses};
use pages::{Block, Page, anchors, blocks, links, pages, prose, read, root, spans};

fn shell_reads(text: &str) -> Result<(), String> {
    let output = Command::new("bash").args(["-n", "-c", text]).output();
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The files that configurations in the pages name. `None` without openssl.
static FILES: LazyLock<Option<tempfile::TempDir>> = LazyLock::new(|| {
    let folder = certificates::folder()?;
    let at = folder.path();
    fs::create_dir(at.join("pubkey")).unwrap();
    for (key, name) in [("moon", "moon"), ("other", "sun")] {
        let step = format!("pkey -in private/{key}.pem -pubout -out pubkey/{name}.pub");
        assert!(certificates::openssl(at, &step));
    }
    // Any certificate of the folder can stand for an attribute authority.
    fs::create_dir(at.join("x509aa")).unwrap();
    fs::copy(at.join("x509/moon.pem"), at.join("x509aa/aa.pem")).unwrap();
    Some(folder)
});

fn loads(text: &str) -> Result<(), String> {
    let names_files = ["certs = ", "pubkeys = ", "cacert = "];
    let folder = match names_files.iter().any(|key| text.contains(key)) {
        false => Path::new("/etc/esplanade"),
        true => match &*FILES {
            Some(folder) => folder.path(),
            None => return Ok(()),
        },
    };
    match load_text(&folder.join("esplanade.conf"), text) {
        Ok(loaded) if loaded.warnings.is_empty() => Ok(()),
        Ok(loaded) => Err(loaded.warnings.render(false)),
        Err(errors) => Err(errors.render(false)),
    }
}

fn check_block(block: &Block) -> Result<(), String> {
    match block.language.as_deref() {
        Some("swanctl") => loads(&block.text),
        // A configuration says that it is one, so that it is loaded.
        Some("text") if block.text.starts_with("connections {") => {
            Err("call the language swanctl".to_owned())
        }
        // A dollar sign introduces a command. The other lines are its output.
        Some("console") => block
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("$ "))
            .try_for_each(check_line),
        // `interop/test_systemd.py` starts the unit with these settings.
        Some("systemd") => Ok(()),
        Some("rust" | "text") => Ok(()),
        _ if block.is_commands() => {
            shell_reads(&block.text)?;
            let joined = block.text.replace("\\\n", " ");
            joined.lines().try_for_each(check_line)
        }
        language => Err(format!("nobody checks blocks of the language {language:?}")),
    }
}

/// Runs a check over all pages and fails with all that the check found. The check returns what is wrong, by line, and
/// counts what it looked at. That count must reach `least`, so that the check itself cannot go blind.
fn over_pages(least: usize, check: impl Fn(&Page, &mut usize) -> Vec<(usize, String)>) {
    let mut wrong = String::new();
    let mut seen = 0;
    for page in pages() {
        for (line, error) in check(&page, &mut seen) {
            wrong += &format!("{}:{line}: {error}\n", page.name);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(seen >= least, "only {seen} found, {least} or more expected");
}

#[test]
fn every_block_is_a_configuration_that_loads_or_a_command_that_parses() {
    let wrong = |page: &Page, counts: fn(&Block) -> bool, seen: &mut usize| {
        let found = blocks(&page.text);
        *seen += found.iter().filter(|block| counts(block)).count();
        let wrong = found.iter().filter_map(|block| {
            let error = check_block(block).err()?;
            Some((block.line, error))
        });
        wrong.collect()
    };
    over_pages(20, |page, seen| {
        wrong(
            page,
            |block| block.language.as_deref() == Some("swanctl"),
            seen,
        )
    });
    over_pages(20, |page, seen| wrong(page, Block::is_commands, seen));
}

#[test]
fn every_key_has_one_row() {
    let mut reference = pages();
    assert_eq!(keys::problems(&reference), [""; 0]);
    // What is wrong is found.
    let at = reference
        .iter()
        .position(|page| page.name == "docs/configuration/children.md")
        .unwrap();
    let text = reference[at].text.clone();
    let row = text.lines().find(|l| l.starts_with("| `ttl` |")).unwrap();
    for (old, new, why) in [
        (row, "", "ttl: 0 rows"),
        (row, &*format!("{row}\n{row}"), "ttl: 2 rows"),
        ("| `ttl` |", "| `ttls` |", "has no key ttls"),
        ("`hw_offload` (no)", "", "does not mention hw_offload"),
        ("## connections", "## connection", "0 headings"),
    ] {
        reference[at].text = text.replace(old, new);
        let found = keys::problems(&reference).join("\n");
        assert!(found.contains(why), "{why}: {found}");
    }
}

#[test]
fn cells_of_the_reference_are_short() {
    over_pages(200, |page, seen| {
        *seen += page.text.lines().filter(|l| l.starts_with('|')).count();
        keys::long_cells(page)
    });
}

/// The checks above find what they are for.
#[test]
fn wrong_commands_are_found() {
    for (line, why) in [
        ("esplanade check --fast FILE", "--fast"),
        ("make everything", "everything"),
        ("make install ROOT=/tmp", "ROOT"),
        ("tools/test.sh unit integration", "integration"),
        ("interop/run test_nothing.py", "test_nothing.py"),
        ("interop/run -k nothing_like_this", "nothing_like_this"),
        ("interop/run --fast", "--fast"),
        ("rtl/run lint esp_nothing", "esp_nothing"),
        ("rtl/run vivado", "vivado"),
        ("FAST=1 fuzz/run.sh", "FAST"),
        ("fuzz/run.sh nothing", "nothing"),
        (".venv/bin/python bench/tunnel.py --fast", "--fast"),
        (".venv/bin/python bench/nothing.py", "bench/nothing.py"),
        ("cargo test -p esplanade-nothing", "nothing"),
        ("cargo run -p esplanade-crypto --example nothing", "nothing"),
        ("cargo build -p esplanade --features nothing", "nothing"),
        ("make build && make everything", "everything"),
        ("frobnicate", "frobnicate"),
    ] {
        let error = check_line(line).expect_err(line);
        assert!(error.contains(why), "{line}: {error}");
    }
    for line in [
        "esplanade status --json",
        "sudo make install PREFIX=/usr",
        "SECONDS_EACH=900 fuzz/run.sh identity certificates",
        ".venv/bin/python bench/engine.py --suites GCM_16_256 --cpu 1",
        "cargo run --release -p esplanade-crypto --example tls_records",
    ] {
        assert_eq!(check_line(line), Ok(()), "{line}");
    }
}

#[test]
fn wrong_names_and_headings_are_found() {
    let all = modules::modules();
    for name in [
        "ike::Endpoint",
        "Engine::arena",
        "ipsec::sad",
        "ReplayWindow::commit",
    ] {
        assert!(
            modules::is_name(name) && modules::exists(&all, name),
            "{name}"
        );
    }
    for name in [
        "ike::Nothing",
        "Engine::nothing",
        "ipsec::nothing",
        "nothing::sad",
    ] {
        assert!(!modules::exists(&all, name), "{name}");
    }
    let page = "# The `xdp` key\n\n## peers.&lt;peer&gt;\n\n```text\n# none\n```\n";
    assert_eq!(anchors(page), ["the-xdp-key", "peerspeer"]);
}

/// Options in the text that belong to docker, cargo and swanctl.
const OF_OTHERS: [&str; 7] = [
    "--cap-add",
    "--device",
    "--features",
    "--privileged",
    "--security-opt",
    "--uri",
    "--without-tunnel",
];

/// Returns the text of the scripts in a page's folder, which may take the options that the page names.
fn scripts_beside(page: &Page) -> String {
    let mut text = String::new();
    if page.folder().is_empty() || page.folder() == "docs" {
        return text;
    }
    for entry in root().join(page.folder()).read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("{}/{name}", page.folder());
        if name.ends_with(".py") {
            text += &commands::python_text(&path);
        } else if name == "run" || name.ends_with(".sh") {
            text += &read(&path);
        }
    }
    text
}

#[test]
fn commands_and_options_in_the_text_exist() {
    let program = Cli::command();
    let names: BTreeSet<&str> = program
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    let mut options: BTreeSet<String> = ["--help", "--version"].map(str::to_owned).into();
    for command in program.get_subcommands() {
        let long = command.get_arguments().filter_map(clap::Arg::get_long);
        options.extend(long.map(|long| format!("--{long}")));
    }
    over_pages(60, |page, seen| {
        let scripts = scripts_beside(page);
        let mut wrong = Vec::new();
        for (line, span) in spans(&page.text) {
            let first = span.split(' ').next().unwrap_or_default();
            let named = span.strip_prefix("esplanade ");
            let checked = if named.is_some_and(|name| names.contains(name)) {
                Ok(())
            } else if named.is_some() {
                parses(&span)
            } else if names.contains(first) && span.contains(" --") {
                parses(&format!("esplanade {span}"))
            } else if is_ours(first) && span.contains(' ') {
                check_line(&span)
            } else if first.starts_with("--") && !OF_OTHERS.contains(&first) {
                let option = first.split('=').next().unwrap_or_default();
                let known = options.contains(option) || scripts.contains(option);
                known
                    .then_some(())
                    .ok_or("no command has this option".to_owned())
            } else {
                continue;
            };
            *seen += 1;
            if let Err(error) = checked {
                wrong.push((line, format!("`{span}`: {error}")));
            }
        }
        wrong
    });
}

/// Folders of the repository with files that pages name.
const FOLDERS: [&str; 9] = [
    "bench/", "crates/", "dist/", "docs/", "fuzz/", "interop/", "rtl/", "tools/", "vectors/",
];

/// Paths that exist only after something was built or run.
const MADE: [&str; 3] = ["fuzz/target", "fuzz/artifacts", "rtl/.venv"];

#[test]
fn paths_in_the_text_exist() {
    over_pages(40, |page, seen| {
        let mut wrong = Vec::new();
        for (line, span) in spans(&page.text) {
            let path = span.split([' ', ':']).next().unwrap_or_default();
            let path = path.trim_end_matches('/');
            let ours = FOLDERS.iter().any(|folder| span.starts_with(folder));
            if !ours || path.contains(['*', '<', '{', '…']) {
                continue;
            }
            *seen += 1;
            let made = MADE.iter().any(|made| path.starts_with(made));
            let beside = root().join(page.folder()).join(path);
            if !made && !root().join(path).exists() && !beside.exists() {
                wrong.push((line, format!("there is no `{path}`")));
            }
        }
        wrong
    });
}

#[test]
fn pages_that_the_sources_name_exist() {
    let mut named = modules::pages_named(&modules::modules());
    assert!(named.contains(&"docs/configuration.md".to_owned()));
    named.retain(|page| !root().join(page).exists());
    assert_eq!(named, [""; 0], "the sources name pages that do not exist");
}

#[test]
fn every_file_of_interop_cases_is_listed() {
    let folder = root().join("interop");
    let page = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let entries = std::fs::read_dir(&folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut cases: Vec<_> = names.filter(|name| name.starts_with("test_")).collect();
    assert!(cases.len() > 30);
    cases.retain(|name| !page.contains(&format!("`{name}`")));
    assert_eq!(cases, [""; 0], "interop/README.md has no row for these");
}

#[test]
fn modules_and_items_in_the_text_exist() {
    let all = modules::modules();
    over_pages(50, |page, seen| {
        let mut wrong = Vec::new();
        for (line, span) in spans(&page.text) {
            let name = span.trim_end_matches("()");
            // The changelog may name what no longer exists.
            if !modules::is_name(name) || page.name == "CHANGELOG.md" {
                continue;
            }
            *seen += 1;
            if !modules::exists(&all, name) {
                wrong.push((line, format!("no module or item is called `{name}`")));
            }
        }
        wrong
    });
}

#[test]
fn links_lead_to_pages_and_headings() {
    over_pages(100, |page, seen| {
        let mut wrong = Vec::new();
        for (line, link) in links(&page.text) {
            if link.contains("://") {
                continue;
            }
            *seen += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let path = match file {
                "" => root().join(&page.name),
                file => root().join(page.folder()).join(file),
            };
            if !path.exists() {
                wrong.push((line, format!("`{link}` leads nowhere")));
            } else if !anchor.is_empty() {
                let text = std::fs::read_to_string(path).unwrap();
                if !anchors(&text).iter().any(|found| found == anchor) {
                    wrong.push((line, format!("`{link}`: the page has no such heading")));
                }
            }
        }
        wrong
    });
}

/// Pages that programs write.
const GENERATED: [&str; 4] = [
    "docs/fpga-registers.md",
    "docs/fpga-sections-registers.md",
    "docs/papers.md",
    "docs/rfc-coverage.md",
];

/// Columns of a line of text. Tables and words that cannot be broken may be wider.
const COLUMNS_MAX: usize = 110;

#[test]
fn lines_of_text_are_short() {
    over_pages(1000, |page, seen| {
        let mut wrong = Vec::new();
        for (number, line) in prose(&page.text) {
            let generated = GENERATED.contains(&page.name.as_str());
            if generated || line.starts_with('|') || line.starts_with("    ") {
                continue;
            }
            *seen += 1;
            let width = line.chars().count();
            let breaks = line.trim().contains(' ');
            if width > COLUMNS_MAX && breaks {
                wrong.push((number, format!("{width} columns, {COLUMNS_MAX} at most")));
            }
        }
        wrong
    });
}

#[test]
fn sections_of_rfcs_are_cited_in_one_form() {
    over_pages(50, |page, seen| {
        let mut wrong = Vec::new();
        if GENERATED.contains(&page.name.as_str()) {
            return wrong;
        }
        for (number, line) in prose(&page.text) {
            for (at, _) in line.match_indices("RFC ") {
                let rest = line[at + 4..].trim_start_matches(|c: char| c.is_ascii_digit());
                *seen += 1;
                let other = [" section ", ", section ", " chapter ", " Section "];
                let figure = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
                let bare = [", ", " ("].iter().any(|before| {
                    let number = rest.strip_prefix(before).unwrap_or_default();
                    figure(number)
                        && number
                            .split([' ', ')', ','])
                            .next()
                            .is_some_and(|number| number.contains('.'))
                });
                if bare || other.iter().any(|form| rest.starts_with(form)) {
                    wrong.push((number, format!("`{}`: write RFC 7296 §2.8", &line[at..])));
                }
            }
        }
        wrong
    });
}

#[test]
fn the_error_in_the_documentation_is_what_is_printed() {
    let text = "\nconnections {\n  site {\n\n\n    rekey_time = 4w\n    local { auth = psk }\n    remote { auth = psk }\n  }\n}\n";
    let path = Path::new("/etc/esplanade/esplanade.conf");
    let printed = load_text(path, text).unwrap_err().render(false);
    let shown = blocks(&read("docs/cli.md"))
        .into_iter()
        .find(|block| block.text.starts_with("error: "))
        .expect("an error is shown");
    assert!(printed.contains(shown.text.trim_end()), "{printed}");
}
