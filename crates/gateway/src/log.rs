//! Logging: one subscriber, text or JSON, on standard error.

mod filter;

use std::io::IsTerminal;

pub use filter::Refused;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One readable line an event.
    #[default]
    Text,
    /// One JSON object an event.
    Json,
}

/// Installs the subscriber for the whole process. `filter` is a level (`info`) or a list of
/// directives (`info,esplanade_ike=debug`).
///
/// Fails on a filter that does not parse. A second call in one process changes nothing.
pub fn init(format: Format, filter: &str) -> Result<(), Refused> {
    let filter = filter::parse(filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // An embedding test may have installed its own subscriber; that one stays.
    let _ = match format {
        Format::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        Format::Json => builder
            .json()
            .flatten_event(true)
            .with_ansi(false)
            .try_init(),
    };
    Ok(())
}

/// Whether [`init`] would take `filter`.
pub fn check_filter(filter: &str) -> Result<(), Refused> {
    filter::parse(filter).map(drop)
}
