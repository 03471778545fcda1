//! `interlock completions`: prints a completion script.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{arguments::Arguments, exit::SUCCESS, output::Output};

pub(super) fn run(shell: Shell, output: &mut Output) -> u8 {
    clap_complete::generate(shell, &mut Arguments::command(), "interlock", &mut output.out);
    SUCCESS
}
