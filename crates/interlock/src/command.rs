//! The commands, one file each.

mod calendar;
mod completions;
mod explain;
mod init;
mod next;
mod schema;
mod serve;
mod validate;

use crate::{
    arguments::{Arguments, Command},
    exit::Failure,
    output::{Form, Output},
};

/// Runs what the command line asks for and answers with an exit code.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<u8, Failure> {
    let directory = arguments.directory();
    match &arguments.command {
        Command::Init { .. } => init::run(directory, output),
        Command::Validate { json, .. } => validate::run(directory, Form::asked(*json), output),
        Command::Serve { log, .. } => serve::run(directory, *log, output),
        Command::Runner { directory } => Ok(serve::run_runner(directory)),
        Command::Schema { kind } => schema::run(*kind, output),
        Command::Next(next) => next::run(directory, next, output),
        Command::Explain(explain) => explain::run(directory, explain, output),
        Command::Calendar { command } => calendar::run(directory, command, output),
        Command::Completions { shell } => Ok(completions::run(*shell, output)),
    }
}
