//! Starting other programs from the repository's root.

use std::{
    ffi::OsStr,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The repository's root folder.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A call of the cargo that started this program, else of the one on the path.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// A call of a program, in the repository's root.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// Runs a command to its end, its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", line(command))) }
}

/// Runs a command to its end and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| cannot_start(command, &error))?;
    if !output.status.success() {
        return Err(format!("{} ended with {}", line(command), output.status));
    }
    String::from_utf8(output.stdout)
        .map_err(|error| format!("{} printed what is not UTF-8: {error}", line(command)))
}

/// Whether a command can be started and ends well, whatever it prints.
pub(crate) fn works(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// A command as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Refuses arguments to a command that takes none.
pub(crate) fn no_arguments(arguments: &[String]) -> Result<(), String> {
    match arguments.first() {
        None => Ok(()),
        Some(first) => Err(format!("unexpected argument {first:?}; see `cargo xtask help`")),
    }
}

/// Reads the value of an option that is a number of at least 1.
pub(crate) fn count(option: &str, value: Option<&String>) -> Result<u64, String> {
    let value = value.ok_or_else(|| format!("{option} needs a number after it"))?;
    match value.replace('_', "").parse() {
        Ok(0) | Err(_) => Err(format!("{option} needs a number of at least 1, not {value:?}")),
        Ok(number) => Ok(number),
    }
}

/// Why a command could not be started, with a hint where the reason has a usual cause.
pub(crate) fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    let hint = if error.kind() == ErrorKind::NotFound { " (is it installed?)" } else { "" };
    format!("cannot start {}: {error}{hint}", line(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_shows_the_name_without_its_folder() {
        assert_eq!(line(Command::new("/usr/bin/cargo").args(["fmt", "--all"])), "cargo fmt --all");
    }

    #[test]
    fn counts_are_numbers_of_at_least_one() {
        assert_eq!(count("--cases", Some(&"1_000_000".to_owned())), Ok(1_000_000));
        for bad in [None, Some("0"), Some("-1"), Some("ten")] {
            let reason = count("--cases", bad.map(str::to_owned).as_ref()).unwrap_err();
            assert!(reason.starts_with("--cases needs a number"), "{reason}");
        }
    }

    #[test]
    fn missing_program_is_named() {
        let reason = run(&mut program("no-such-program")).unwrap_err();
        assert!(reason.contains("no-such-program") && reason.contains("installed"), "{reason}");
    }
}
