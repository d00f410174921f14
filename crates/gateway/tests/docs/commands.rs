//! Checks one line of commands without running it: the program, script or target exists and knows the options.

use std::fs;
use std::path::PathBuf;

use clap::Parser;
use esplanade::cli::Cli;

use super::pages::{read, root};

/// Splits a command line into words as a shell does, but without variables.
pub fn words(line: &str) -> Vec<String> {
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
pub fn parses(line: &str) -> Result<(), String> {
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

/// Programs that are not ours. The shell checks the syntax of their lines; nobody checks their options.
const OTHERS: [&str; 23] = [
    "cc",
    "cd",
    "chgrp",
    "chmod",
    "do",
    "done",
    "ethtool",
    "export",
    "for",
    "git",
    "go",
    "ip",
    "journalctl",
    "man",
    "modprobe",
    "read",
    "sed",
    "swanctl",
    "sysctl",
    "systemctl",
    "systemd-sysusers",
    "tshark",
    "while",
];

/// Returns true if inline code that begins with `program` is a command of the project, for [`check_line`].
pub fn is_ours(program: &str) -> bool {
    matches!(
        program,
        "cargo"
            | "make"
            | "interop/run"
            | "rtl/run"
            | "fuzz/run.sh"
            | "fuzz/coverage.sh"
            | ".venv/bin/python"
    ) || program.starts_with("tools/")
}

/// Checks all commands of one line. `&&` and `|` stand between commands.
pub fn check_line(line: &str) -> Result<(), String> {
    let line = line.replace(['(', ')'], " ");
    for command in line.split(" && ").flat_map(|part| part.split(" | ")) {
        // An array of bash is no command.
        if command.contains("=( ") || command.contains("+= ") || command.contains("= -o") {
            continue;
        }
        check_words(&words(command))?;
    }
    Ok(())
}

fn check_words(words: &[String]) -> Result<(), String> {
    let is_variable = |word: &&String| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    let variables: Vec<&String> = words.iter().take_while(is_variable).collect();
    let words: Vec<&str> = words[variables.len()..]
        .iter()
        .map(String::as_str)
        .filter(|word| *word != "sudo")
        .collect();
    let [program, rest @ ..] = words.as_slice() else {
        return Ok(());
    };
    let script = match *program {
        "esplanade" | "target/debug/esplanade" | "target/release/esplanade" => {
            let quoted = words.iter().map(|word| format!("'{word}'"));
            return parses(&quoted.collect::<Vec<_>>().join(" "));
        }
        "make" => return make(rest),
        "cargo" => return cargo(rest),
        "interop/run" => interop(rest)?,
        "rtl/run" => return rtl(rest),
        "fuzz/run.sh" => {
            for target in rest {
                exists(&format!("fuzz/corpus/{target}"))?;
            }
            read("fuzz/run.sh")
        }
        ".venv/bin/python" | "python" => python(rest)?,
        path if path.starts_with("tools/") || path == "fuzz/coverage.sh" => {
            let text = read(path);
            known(rest.iter().copied(), &text, path)?;
            text
        }
        other if OTHERS.contains(&other) => return Ok(()),
        other => {
            return Err(format!(
                "what is {other}? A command that is not known here needs a check in tests/docs/commands.rs; \
                 what is no command needs a fence with its language"
            ));
        }
    };
    for variable in variables {
        let name = variable.split('=').next().unwrap_or_default();
        if !script.contains(name) {
            return Err(format!("{program} does not look at the variable {name}"));
        }
    }
    Ok(())
}

fn exists(path: &str) -> Result<(), String> {
    match root().join(path).exists() {
        true => Ok(()),
        false => Err(format!("there is no {path}")),
    }
}

/// Refuses words that the script's text does not contain. Options count without their values.
fn known<'a>(words: impl Iterator<Item = &'a str>, script: &str, name: &str) -> Result<(), String> {
    for word in words {
        let word = word.split('=').next().unwrap_or_default();
        if !script.contains(word) {
            return Err(format!("{name} does not know {word}"));
        }
    }
    Ok(())
}

fn make(rest: &[&str]) -> Result<(), String> {
    let makefile = read("Makefile");
    for word in rest {
        let known = match word.split_once('=') {
            Some((variable, _)) => makefile.contains(&format!("({variable})")),
            None => {
                let rule = format!("{word}:");
                makefile.lines().any(|line| line.starts_with(&rule))
            }
        };
        if !known {
            return Err(format!("the Makefile has no {word}"));
        }
    }
    Ok(())
}

/// Returns the folder of one of our packages.
fn package(name: &str) -> Result<PathBuf, String> {
    let folder = match name.strip_prefix("esplanade-") {
        None => "crates/gateway".to_owned(),
        Some("fuzz") => "fuzz".to_owned(),
        Some(other) => format!("crates/{other}"),
    };
    let manifest = format!("{folder}/Cargo.toml");
    exists(&manifest)?;
    match read(&manifest).contains(&format!("name = \"{name}\"")) {
        true => Ok(root().join(folder)),
        false => Err(format!("there is no package {name}")),
    }
}

fn cargo(rest: &[&str]) -> Result<(), String> {
    if rest.first() == Some(&"install") {
        return Ok(());
    }
    let value = |option: &str| {
        let at = rest.iter().position(|word| *word == option)?;
        rest.get(at + 1).copied()
    };
    let mut folder = match value("-p") {
        Some(name) => package(name)?,
        None => root(),
    };
    if let Some(features) = value("--features") {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        if !manifest.contains(&format!("\n{features} = [")) {
            return Err(format!("there is no feature {features}"));
        }
    }
    for (option, below) in [
        ("--example", "examples"),
        ("--bench", "benches"),
        ("--test", "tests"),
    ] {
        let Some(name) = value(option) else { continue };
        folder.push(below);
        if !folder.join(format!("{name}.rs")).exists() && !folder.join(name).exists() {
            return Err(format!("there is no {below}/{name}"));
        }
        folder.pop();
    }
    Ok(())
}

/// Checks the arguments of `interop/run`, and returns the text of the scripts that read its variables.
fn interop(rest: &[&str]) -> Result<String, String> {
    let mut suite = read("interop/run") + &read("interop/conftest.py");
    for entry in fs::read_dir(root().join("interop")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with("test_") {
            suite += &name;
            suite += &read(&format!("interop/{name}"));
        }
    }
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match *word {
            "-k" => {
                let expression = words.next().copied().unwrap_or_default();
                let names = expression.split(' ');
                let names = names.filter(|name| !matches!(*name, "and" | "or" | "not"));
                known(names, &suite, "interop")?;
            }
            option if option.starts_with('-') => known([option].into_iter(), &suite, "interop")?,
            test => exists(&format!("interop/{test}"))?,
        }
    }
    Ok(suite)
}

fn rtl(rest: &[&str]) -> Result<(), String> {
    let [command, rest @ ..] = rest else {
        return exists("rtl/run");
    };
    match *command {
        "lint" => rest
            .iter()
            .try_for_each(|module| in_rtl(&format!("{module}.sv"))),
        "formal" => rest
            .iter()
            .try_for_each(|proof| in_rtl(&format!("formal/{proof}.sby"))),
        "test" | "coverage" => rest
            .iter()
            .filter(|word| !word.starts_with('-'))
            .try_for_each(|bench| in_rtl(&format!("tb/{bench}"))),
        "python" => python(rest).map(drop),
        tool => match read("rtl/requirements.txt").contains(tool) {
            true => Ok(()),
            false => Err(format!("the environment of rtl/ has no {tool}")),
        },
    }
}

/// Looks for a file in the folders of the modules and in `rtl/` itself.
fn in_rtl(file: &str) -> Result<(), String> {
    let folders = read("rtl/folders");
    let mut places = folders.lines().map(|folder| format!("rtl/{folder}/{file}"));
    match places.any(|place| exists(&place).is_ok()) {
        true => Ok(()),
        false => exists(&format!("rtl/{file}")),
    }
}

/// Returns the text of a script and of what takes a part of its arguments: modules beside it, a bench of a crate.
pub fn python_text(path: &str) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut text = read(path);
    for line in text.clone().lines() {
        let mut words = line.split_whitespace();
        if matches!(words.next(), Some("import" | "from")) {
            let module = format!("{folder}/{}.py", words.next().unwrap_or_default());
            if root().join(&module).exists() {
                text += &read(&module);
            }
        }
        // `Bench("esplanade-crypto", "engine", …)` starts that bench with the remaining arguments.
        if let Some((_, names)) = line.split_once("Bench(\"esplanade-") {
            let names: Vec<&str> = names.split('"').collect();
            let bench = format!("crates/{}/benches/{}", names[0], names[2]);
            for file in [format!("{bench}.rs"), format!("{bench}/main.rs")] {
                if root().join(&file).exists() {
                    text += &read(&file);
                }
            }
        }
    }
    text
}

/// Checks that a script exists and has the options, and returns its text.
fn python(rest: &[&str]) -> Result<String, String> {
    let [script, rest @ ..] = rest else {
        return Err("which script?".to_owned());
    };
    exists(script)?;
    let text = python_text(script);
    for word in rest.iter().filter(|word| word.starts_with("--")) {
        let option = word.split('=').next().unwrap_or_default();
        if !text.contains(&format!("\"{option}\"")) {
            return Err(format!("{script} has no option {option}"));
        }
    }
    Ok(text)
}
