//! The `interlock` command: arguments in, exit code out.

mod alone;
mod arguments;
mod clock;
mod command;
mod declarations;
mod doctor;
mod environment;
mod exec;
mod exit;
mod inbox;
mod interrupts;
mod ledger;
mod moment;
mod narrator;
mod output;
mod owners;
mod place;
mod progress;
mod project;
mod project_summary;
#[cfg(feature = "redis")]
mod redis_beat;
mod remote;
mod serve;
mod served_files;
mod slot_name;
mod source;
mod target;
mod writer;

use std::process::ExitCode;

use interlock_liveness::signals;

use crate::{arguments::Arguments, output::Output};

fn main() -> ExitCode {
    // Any command may start a process and ask how it ended.
    signals::hear_of_children();
    let arguments = Arguments::read();
    let mut output = Output::new();
    let result = command::run(&arguments, &mut output);
    let code = match result {
        Ok(code) => code,
        Err(failure) if failure.is_closed_pipe() => exit::SUCCESS,
        Err(failure) => {
            output.error(&failure);
            failure.exit_code()
        }
    };
    ExitCode::from(code)
}
