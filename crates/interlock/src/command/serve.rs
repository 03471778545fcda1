//! `interlock serve`.

use std::path::Path;

use crate::{
    arguments::LogForm,
    exit::{FAILED, Failure, SUCCESS},
    output::Output,
};

pub(super) fn run(directory: &Path, log: LogForm, output: &mut Output) -> Result<u8, Failure> {
    let _ = (directory, log, output);
    Ok(SUCCESS)
}

/// Becomes the runner.
pub(super) fn run_runner(directory: &Path) -> u8 {
    if interlock_trigger::runner::main(directory) == std::process::ExitCode::SUCCESS {
        SUCCESS
    } else {
        FAILED
    }
}
