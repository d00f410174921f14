//! `esplanade demo`: two sites and an internet between them, and the proof that only ESP crosses
//! it.
//!
//! Everything happens in network namespaces of this process. So the demo needs no other program,
//! does not touch the machine's own network, and leaves nothing behind when it ends.

#![forbid(unsafe_code)]

mod capture;
mod files;
mod frame;
mod gateway;
mod lab;
mod pcap;
mod ping;
mod sequence;
mod steps;
mod summary;
mod system;
mod traffic;
mod ui;

use std::io;
use std::path::PathBuf;

/// Options of the command line.
#[derive(Debug, Clone, clap::Args)]
pub struct DemoOptions {
    /// How long to move bulk TCP, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub duration: u64,

    /// Keep the logs too, and every file also when interrupted
    #[arg(long)]
    pub keep: bool,

    /// Write the files into DIR and keep them all, instead of a new directory under the temporary one
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

/// The reason why the demo failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system does not permit namespaces or a TUN device. The text says what is missing and
    /// what to do.
    #[error("{0}")]
    Forbidden(String),
    #[error("{doing}: {source}")]
    System { doing: String, source: io::Error },
    /// A gateway process failed. The text ends with the last lines of its log.
    #[error("{0}")]
    Gateway(String),
    #[error("interrupted")]
    Interrupted,
    /// The demo reached its end, and these checks failed.
    #[error("failed: {}", .0.join("\n        "))]
    Checks(Vec<String>),
}

impl Error {
    fn system(doing: impl Into<String>, source: io::Error) -> Self {
        Self::System {
            doing: doing.into(),
            source,
        }
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Self::system("a system call failed", source)
    }
}

/// Runs the demo. Returns `Ok` only if every check passed.
///
/// The process must have only one thread: the kernel refuses a user namespace to any other process.
pub fn run(options: DemoOptions) -> Result<(), Error> {
    let isolation = system::isolate(!options.without_tunnel)?;
    let interrupt = system::Interrupt::install()?;
    let mut output = files::OutputDirectory::create(&options)?;
    let mut ui = ui::Ui::new(options.plain);
    let result = steps::run(&options, isolation, &interrupt, &output, &mut ui);
    match &result {
        Ok(()) => {
            output.keep_results();
            ui.finish()
                .map_err(|source| Error::system("cannot write to standard output", source))?;
        }
        Err(Error::Interrupted | Error::Forbidden(_)) => {}
        // The summary has already named the files.
        Err(Error::Checks(_)) => output.keep_all(),
        Err(_) => {
            output.keep_all();
            ui.text(format_args!(
                "\nFiles for a closer look: {}",
                output.path().display()
            ));
        }
    }
    result
}
