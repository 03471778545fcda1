//! Which signals a program ignores and blocks when it starts.
//!
//! What a process ignores and blocks survives `execve`, so a program inherits that from its parent: SIGHUP ignored from `nohup`,
//! SIGINT and SIGQUIT ignored from a script's `&`. A supervisor keeps the two apart, and resets it ([`reset`]); a wrapper
//! acts for its caller, and hands it on ([`hand_on`], [`is_ignored`]).

use std::process::Command;

use crate::sys::dispositions;

/// Gives this process every signal's default action, and blocks none in this thread: a program that it starts afterwards ignores and
/// blocks nothing. SIGPIPE stays ignored here, as Rust's runtime has it; Rust's standard library resets that in the program.
pub fn reset() {
    dispositions::default_all(Some(libc::SIGPIPE));
    dispositions::unblock_all();
}

/// Blocks no signal in this thread and those that it starts, so that a process hears what it listens to.
pub fn unblock() {
    dispositions::unblock_all();
}

/// Lets this process wait for its children: while it ignores SIGCHLD, the kernel tells it of no exit code.
pub fn hear_of_children() {
    dispositions::default_one(libc::SIGCHLD);
}

/// Has a program ignore SIGPIPE if the caller of this process did. All else that this process inherited the program inherits as
/// well, unless this process changed it.
pub fn hand_on(command: &mut Command) {
    dispositions::hand_on_pipe(command);
}

/// Whether this process ignores a signal, by its number. Before this process says otherwise that is what it inherited.
pub fn is_ignored(signal: i32) -> bool {
    dispositions::is_ignored(signal)
}
