//! Exit codes, which scripts may rely on, and the failure that carries one.

use std::{io, path::Path};

/// Everything was done.
pub(crate) const SUCCESS: u8 = 0;
/// It was done, and there is something to mend (problems in the files), or it was refused with a reason.
pub(crate) const PROBLEMS: u8 = 1;
/// The command line makes no sense. (clap uses the same code.)
pub(crate) const USAGE: u8 = 2;
/// It could not be done: a file cannot be read or written.
pub(crate) const FAILED: u8 = 3;

/// It was accepted, and what came of it is not known yet.
pub(crate) const ACCEPTED: u8 = 4;

/// For `evaluate`: whether it may run cannot be told.
pub(crate) const CANNOT_TELL: u8 = 5;

/// What could be read was shown, and part of the store cannot be reached.
pub(crate) const INCOMPLETE: u8 = 6;

/// Why a command could not do its work, as a sentence, and what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    pub(crate) message: String,
    pub(crate) help: String,
    closed_pipe: bool,
}

impl Failure {
    /// The command line is to blame.
    pub(crate) fn usage(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code: USAGE, message: message.into(), help: help.into(), closed_pipe: false }
    }

    /// The world is to blame.
    pub(crate) fn failed(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code: FAILED, message: message.into(), help: help.into(), closed_pipe: false }
    }

    /// What was asked for was refused, for a reason.
    pub(crate) fn refused(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code: PROBLEMS, message: message.into(), help: help.into(), closed_pipe: false }
    }

    /// A file is to blame.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        Self::failed(format!("cannot {doing} {}: {error}", path.display()), "")
    }

    /// The same, with what to do next.
    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: help.into(), ..self }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.code
    }

    /// Whether the reader of our output went away (`interlock next | head`), which is no failure.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        self.closed_pipe
    }
}

impl From<io::Error> for Failure {
    /// Only output is written without naming a file.
    fn from(error: io::Error) -> Self {
        let closed_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self { closed_pipe, ..Self::failed(format!("cannot write the output: {error}"), "") }
    }
}
