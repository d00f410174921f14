//! Checks that every configuration and every command in README.md and docs/ is valid.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{CommandFactory, Parser};
use esplanade::cli::Cli;
use esplanade::config::load_text;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns README.md and every hand-written page of docs/.
fn pages() -> Vec<(String, String)> {
    let mut paths = vec![root().join("README.md")];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "md") {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    paths.iter().map(read).collect()
}

/// A fenced block with its language, or an indented block without a language.
struct Block {
    line: usize,
    language: Option<String>,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    let mut blank = true;
    for (at, line) in page.lines().enumerate() {
        let fence = line.strip_prefix("```");
        let indented = line.strip_prefix("    ").filter(|_| fence.is_none());
        match (&mut open, fence, indented) {
            (Some(block), Some(_), _) if block.language.is_some() => found.extend(open.take()),
            (Some(block), None, _) if block.language.is_some() => {
                block.text += line;
                block.text.push('\n');
            }
            (Some(block), None, Some(code)) => {
                block.text += code;
                block.text.push('\n');
            }
            (_, Some(language), _) => {
                found.extend(open.take());
                open = Some(Block {
                    line: at + 1,
                    language: Some(language.trim().to_owned()),
                    text: String::new(),
                });
            }
            (None, None, Some(code)) if blank => {
                open = Some(Block {
                    line: at + 1,
                    language: None,
                    text: format!("{code}\n"),
                });
            }
            (Some(_), None, None) => found.extend(open.take()),
            (None, ..) => {}
        }
        blank = line.trim().is_empty();
    }
    found.extend(open);
    found
}

/// Splits a command line into words as a shell does, but without variables.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '#') if word.is_none() => break,
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Parses a command line of Esplanade. Names in capitals stand for values.
fn parses(line: &str) -> Result<(), String> {
    // Parse optional parts, which are in brackets, as if they were given.
    let line = line.replace(['[', ']'], "");
    let line = line.split('|').next().unwrap_or_default();
    let words = words(line).into_iter().map(|word| match word.as_str() {
        "SHELL" => "bash".to_owned(),
        "TIER" => "portable".to_owned(),
        "BYTES" | "SECONDS" => "100".to_owned(),
        _ => word,
    });
    match Cli::try_parse_from(words) {
        Ok(_) => Ok(()),
        Err(error) if !error.use_stderr() => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks one line of a block of commands.
fn check_command(line: &str) -> Result<(), String> {
    let words = words(line);
    let Some(program) = words.first() else {
        return Ok(());
    };
    let exists = |path: &str| match root().join(path).exists() {
        true => Ok(()),
        false => Err(format!("there is no {path}")),
    };
    match program.as_str() {
        "esplanade" | "target/debug/esplanade" | "target/release/esplanade" => parses(line),
        "make" => {
            let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
            let target = words.get(1).cloned().unwrap_or_default();
            let has = makefile
                .lines()
                .any(|line| line.starts_with(&format!("{target}:")));
            has.then_some(())
                .ok_or(format!("the Makefile has no target {target}"))
        }
        "interop/run" => words[1..]
            .iter()
            .filter(|word| word.ends_with(".py"))
            .try_for_each(|test| exists(&format!("interop/{test}")))
            .and_then(|()| exists(program)),
        path if path.starts_with("tools/") => exists(path),
        // These programs are not ours. Their syntax is checked with the syntax of the block.
        "cargo" | "cc" | "tshark" | "swanctl" | "sysctl" | "systemctl" | "journalctl" | "ip"
        | "sudo" | "for" | "while" | "done" | "sed" => Ok(()),
        assignment if assignment.contains("=(") => Ok(()),
        other => Err(format!(
            "what is {other}? Commands that are not known here need a check; what is no command needs a fence with its language"
        )),
    }
}

fn shell_reads(text: &str) -> Result<(), String> {
    let output = Command::new("bash").args(["-n", "-c", text]).output();
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn check_block(block: &Block) -> Result<(), String> {
    match block.language.as_deref() {
        Some("swanctl") => match load_text(Path::new("/etc/esplanade/esplanade.conf"), &block.text)
        {
            Ok(loaded) if loaded.warnings.is_empty() => Ok(()),
            Ok(loaded) => Err(loaded.warnings.render(false)),
            Err(errors) => Err(errors.render(false)),
        },
        // A dollar sign introduces a command. The other lines are its output.
        Some("console") => block
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("$ "))
            .try_for_each(check_command),
        // `interop/test_systemd.py` starts the unit with these settings.
        Some("systemd") => Ok(()),
        Some("rust" | "text") => Ok(()),
        None => {
            shell_reads(&block.text)?;
            block.text.lines().try_for_each(check_command)
        }
        Some(language) => Err(format!("nobody checks blocks of the language {language:?}")),
    }
}

#[test]
fn every_block_is_a_configuration_that_loads_or_a_command_that_parses() {
    let mut wrong = String::new();
    let (mut configurations, mut commands) = (0, 0);
    for (name, page) in pages() {
        for block in blocks(&page) {
            match block.language.as_deref() {
                Some("swanctl") => configurations += 1,
                None => commands += 1,
                _ => {}
            }
            if let Err(error) = check_block(&block) {
                wrong += &format!("{name}:{}: {error}\n", block.line);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(
        configurations >= 3 && commands >= 6,
        "{configurations} {commands}"
    );
}

/// Options in the text that belong to docker, cargo and swanctl.
const OF_OTHERS: [&str; 6] = [
    "--cap-add",
    "--device",
    "--features",
    "--privileged",
    "--security-opt",
    "--uri",
];

/// Returns the texts between back quotes.
fn spans(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            found.extend(
                line.split('`')
                    .skip(1)
                    .step_by(2)
                    .map(|span| span.replace("\\|", "|")),
            );
        }
    }
    found
}

#[test]
fn commands_and_options_in_the_text_exist() {
    let program = Cli::command();
    let names: Vec<&str> = program
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    let mut options: Vec<String> = vec!["--help".to_owned(), "--version".to_owned()];
    for command in program.get_subcommands() {
        let long = command.get_arguments().filter_map(clap::Arg::get_long);
        options.extend(long.map(|long| format!("--{long}")));
    }
    let mut wrong = String::new();
    let mut seen = 0;
    for (name, page) in pages() {
        for span in spans(&page) {
            let first = span.split(' ').next().unwrap_or_default();
            let named = span.strip_prefix("esplanade ");
            let checked = if named.is_some_and(|name| names.contains(&name)) {
                Ok(())
            } else if named.is_some() {
                parses(&span)
            } else if names.contains(&first) && span.contains(" --") {
                parses(&format!("esplanade {span}"))
            } else if first.starts_with("--") && !OF_OTHERS.contains(&first) {
                let known = options.iter().any(|option| option == first);
                known
                    .then_some(())
                    .ok_or("no command has this option".to_owned())
            } else {
                continue;
            };
            seen += 1;
            if let Err(error) = checked {
                wrong += &format!("{name}: `{span}`: {error}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(seen > 20, "{seen}");
}

#[test]
fn the_error_in_the_documentation_is_what_is_printed() {
    let text = "\nconnections {\n  site {\n\n\n    rekey_time = 4w\n    local { auth = psk }\n    remote { auth = psk }\n  }\n}\n";
    let path = Path::new("/etc/esplanade/esplanade.conf");
    let printed = load_text(path, text).unwrap_err().render(false);
    let page = fs::read_to_string(root().join("docs/cli.md")).unwrap();
    let shown = blocks(&page)
        .into_iter()
        .find(|block| block.text.starts_with("error: "))
        .expect("an error is shown");
    assert!(printed.contains(shown.text.trim_end()), "{printed}");
}
