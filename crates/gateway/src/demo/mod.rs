//! `esplanade demo`: two sites, an internet between them, and the proof that only ESP crosses it.

use std::path::PathBuf;

/// What the command line offers.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// How long to move bulk TCP, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub duration: u64,

    /// Keep every file (logs, configuration, sockets), also when interrupted
    #[arg(long)]
    pub keep: bool,

    /// Write the files here instead of a new directory under the temporary directory
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Show the configurations and what the gateways log
    #[arg(long)]
    pub verbose: bool,

    /// No colours and no live line, as in a log file
    #[arg(long)]
    pub plain: bool,

    /// Route between the sites without gateways: shows that the wire check finds clear packets
    #[arg(long, hide = true)]
    pub without_tunnel: bool,
}

/// Why the demo ended without success.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system does not let us make namespaces or a TUN device; the text says what and the way out.
    #[error("{0}")]
    Forbidden(String),
    #[error("{doing}: {source}")]
    System {
        doing: String,
        source: std::io::Error,
    },
    /// A gateway process did not do its part; the text ends with its last log lines.
    #[error("{0}")]
    Gateway(String),
    #[error("interrupted")]
    Interrupted,
    /// The demo ran to its end and these checks failed.
    #[error("{} of the checks failed: {}", .0.len(), .0.join("; "))]
    Checks(Vec<String>),
}

/// Runs the demo; `Ok` only when every check passed.
///
/// Call it before the process has started any thread: a user namespace can only be entered by a
/// process with a single thread.
pub fn run(options: Options) -> Result<(), Error> {
    let _ = options;
    Err(Error::Forbidden("the demo is not built yet".into()))
}
