//! The end of the program: exit codes and the one style of errors.

use std::fmt;
use std::process::ExitCode;

use esplanade_engines::StartError;

/// The exit codes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Success = 0,
    /// Something failed while running.
    Failure = 1,
    /// The command line is wrong (clap's own code as well).
    Usage = 2,
    /// The configuration has errors.
    Configuration = 3,
    /// No gateway answers at the control socket.
    Unreachable = 4,
    /// The system forbids or lacks what is needed: a capability, a namespace, a device, instructions of the processor.
    Forbidden = 5,
    /// An interrupt from the keyboard ended the program.
    Interrupted = 130,
}

impl Exit {
    /// The code with this number. A number of another version counts as [`Self::Failure`].
    pub fn numbered(number: &str) -> Self {
        let mut all = [Self::Usage, Self::Configuration, Self::Forbidden].into_iter();
        let found = all.find(|exit| (*exit as u8).to_string() == number);
        found.unwrap_or(Self::Failure)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error for the administrator: what, and what to do.
#[derive(Clone, Debug)]
pub struct Failure {
    pub exit: Exit,
    pub what: String,
    pub help: Option<String>,
}

impl Failure {
    pub fn new(exit: Exit, what: impl fmt::Display) -> Self {
        Self {
            exit,
            what: what.to_string(),
            help: None,
        }
    }

    /// Makes a failure with [`Exit::Failure`].
    pub fn runtime(what: impl fmt::Display) -> Self {
        Self::new(Exit::Failure, what)
    }

    /// Makes a failure with [`Exit::Forbidden`].
    pub fn forbidden(what: impl fmt::Display) -> Self {
        Self::new(Exit::Forbidden, what)
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.help {
            Some(help) => write!(f, "\n  = help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failure {}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let failure = Self::runtime(&error);
        match error.help {
            Some(help) => failure.help(help),
            None => failure,
        }
    }
}
