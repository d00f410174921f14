//! Parses log filters: a level for everything, and levels for parts of the program.

use std::fmt;

use tracing_subscriber::EnvFilter;

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// The parts that log: the crates, and the audit events under their own target.
const PARTS: [&str; 10] = [
    "esplanade",
    "esplanade_dataplane",
    "esplanade_engines",
    "esplanade_helpers",
    "esplanade_host",
    "esplanade_ike",
    "esplanade_tokens",
    "esplanade_vici",
    "esplanade_worker",
    "audit",
];

/// The reason why a filter is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError(String);

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FilterError {}

/// Parses `info`, or `info,esplanade_ike=debug`. Parts without a level log at `info`.
///
/// `EnvFilter` alone would take any word as the name of a part, and then log nothing else.
pub fn parse(text: &str) -> Result<EnvFilter, FilterError> {
    let mut general = None;
    let mut parts = Vec::new();
    for directive in text.split(',').map(str::trim) {
        let (part, level) = match directive.split_once('=') {
            Some((part, level)) => (Some(part.trim()), level.trim()),
            None => (None, directive),
        };
        let Some(level) = LEVELS
            .into_iter()
            .find(|known| known.eq_ignore_ascii_case(level))
        else {
            return Err(FilterError(format!(
                "`{}` is no level; the levels are {}",
                shown(level),
                LEVELS.join(", ")
            )));
        };
        match part {
            None if general.is_some() => {
                return Err(FilterError("two levels for everything".to_owned()));
            }
            None => general = Some(level),
            Some(part) if is_part(part) => parts.push(format!("{part}={level}")),
            Some(part) => {
                return Err(FilterError(format!(
                    "nothing that logs is called `{}`; the parts are {}",
                    shown(part),
                    PARTS.join(", ")
                )));
            }
        }
    }
    parts.insert(0, general.unwrap_or("info").to_owned());
    let filter = EnvFilter::builder().parse(parts.join(","));
    filter.map_err(|error| FilterError(error.to_string()))
}

/// Shortens a word from outside and makes it safe for a terminal.
fn shown(text: &str) -> String {
    const SHOWN_MAX: usize = 40;
    text.chars()
        .take(SHOWN_MAX)
        .flat_map(char::escape_debug)
        .collect()
}

/// Tells whether the name is a known crate, or a module of one.
fn is_part(name: &str) -> bool {
    let mut path = name.split("::");
    path.next().is_some_and(|first| PARTS.contains(&first))
        && path.all(|module| {
            !module.is_empty()
                && module
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn levels_and_parts_are_read() {
        let shown = |text: &str| parse(text).unwrap().to_string();
        assert_eq!(shown("warn"), "warn");
        assert_eq!(shown("Debug"), "debug");
        assert_eq!(shown("off"), "off");
        for text in [
            "info,esplanade_ike=debug",
            "esplanade_ike=debug",
            " esplanade_ike = debug , info",
        ] {
            let filter = shown(text);
            assert!(filter.contains("esplanade_ike=debug"), "{filter}");
            assert!(filter.split(',').any(|part| part == "info"), "{filter}");
        }
        assert!(parse("esplanade_worker::run=trace,audit=off").is_ok());
    }

    /// Whoever sets a level for a part sees its events.
    #[test]
    fn the_parts_are_the_crates_that_log() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let logs = |crate_: &Path| {
            let manifest = fs::read_to_string(crate_.join("Cargo.toml")).unwrap();
            let name = manifest.split('"').nth(1).unwrap().replace('-', "_");
            manifest.contains("\ntracing.workspace").then_some(name)
        };
        let entries = fs::read_dir(crates).unwrap();
        let mut parts: Vec<_> = entries
            .filter_map(|one| logs(&one.unwrap().path()))
            .collect();
        parts.sort();
        parts.push("audit".to_owned());
        assert_eq!(PARTS[..], parts);
    }

    #[test]
    fn what_would_log_nothing_is_refused() {
        for (text, why) in [
            ("loud", "`loud` is no level; the levels are error, warn"),
            ("", "`` is no level"),
            ("info,", "`` is no level"),
            ("3", "`3` is no level"),
            ("esplanade_ike", "`esplanade_ike` is no level"),
            ("esplanade_ike=loud", "`loud` is no level"),
            ("charon=debug", "nothing that logs is called `charon`"),
            ("esplanade_ipsec=debug", "nothing that logs is called"),
            ("esplanade::=debug", "nothing that logs is called"),
            ("info,debug", "two levels"),
            ("[span]=debug", "nothing that logs is called"),
        ] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
