//! The real binary, as a user meets it: output, files and exit codes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod alone;
mod backfill;
mod calendar;
mod catchup;
mod explain;
mod incidents;
mod init;
mod ledger;
mod mail;
mod next;
#[path = "../serve/process.rs"]
mod process;
mod readiness;
mod recorded;
mod requests;
mod silence;
mod supervise;
mod validate;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use interlock_wait::{BOUND, CommandWithin as _};

/// What a command did.
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    /// The output as JSON.
    #[track_caller]
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }
}

/// Runs `interlock` beside a copy of the examples. A newcomer who has tried the quickstart has a ledger in the repository's own.
fn interlock(arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    copy_without_ledger(&repository().join("examples"), &folder.path().join("examples"));
    let mut interlock = Command::new(env!("CARGO_BIN_EXE_interlock"));
    run(interlock.args(arguments).current_dir(folder.path()).env_clear())
}

fn copy_without_ledger(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_file() {
            fs::copy(from, to).unwrap();
        } else if entry.file_name() != ".interlock" {
            copy_without_ledger(&from, &to);
        }
    }
}

/// Runs a program.
fn run(command: &mut Command) -> Ran {
    let output = command.output_within(BOUND);
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", command.get_program().display()));
    output.into()
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A project directory with these files, removed at the end.
fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

#[test]
fn completions_are_printed_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = interlock(&["completions", shell]);
        assert!(ran.code == 0 && ran.stdout.contains("interlock"), "{shell}: {}", ran.stderr);
    }
}

#[test]
fn schemas_are_printed_for_every_kind_of_file() {
    for kind in ["pipeline", "config", "archetype", "calendar"] {
        let schema = interlock(&["schema", kind]).json();
        assert_eq!(schema["additionalProperties"], false, "{kind}");
    }
}

#[test]
fn a_command_line_that_makes_no_sense_exits_with_2() {
    for arguments in [
        &["nonsense"][..],
        &["next", "--count", "0"],
        &["next", "--tz", "UTC"],
        &["next", "--cron", "* * * * *", "--dst", "gap=maybe"],
        &["next", "--from", "soon"],
        &["next", "orders", "--cron", "* * * * *"],
    ] {
        let ran = interlock(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}");
        assert!(ran.stderr.starts_with("error: "), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn a_project_that_is_not_there_exits_with_3_and_says_what_to_do() {
    let ran = interlock(&["validate", "no/such/place"]);
    assert_eq!(ran.code, 3);
    assert_eq!(
        ran.stderr,
        "error: there is no directory no/such/place\n\
         help: Name the project with `-C DIR`, or write a new one with `interlock init DIR`.\n"
    );
}
