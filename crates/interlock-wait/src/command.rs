//! Runs of a program that ends by itself.

use std::{
    io,
    process::{Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use crate::child::ChildWithin as _;

/// `output` and `status` with a bound. What is waited for is the command as it would be typed.
pub trait CommandWithin {
    /// Runs it to its end and returns what it printed; its input is empty. Only a program that cannot be started is an error:
    /// one that does not end is killed and fails the test, with what it printed.
    #[track_caller]
    fn output_within(&mut self, bound: Duration) -> io::Result<Output>;

    /// Runs it to its end; what it prints goes where the command says, else where the test's output goes.
    #[track_caller]
    fn status_within(&mut self, bound: Duration) -> io::Result<ExitStatus>;
}

impl CommandWithin for Command {
    #[track_caller]
    fn output_within(&mut self, bound: Duration) -> io::Result<Output> {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.spawn()?;
        Ok(child.output_within(&end_of(self), bound))
    }

    #[track_caller]
    fn status_within(&mut self, bound: Duration) -> io::Result<ExitStatus> {
        let mut child = self.spawn()?;
        Ok(child.wait_within(&end_of(self), bound))
    }
}

fn end_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("the end of `{}`", line.join(" "))
}
