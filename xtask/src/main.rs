//! The project's automation: `cargo xtask COMMAND`.
//!
//! Everything that CI does is a command here, so that it runs the same on any machine; `.ci/run`
//! only calls `cargo xtask test`. The standard library and `serde_json` are all it is built from,
//! because it is compiled before anything else can be checked.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing to the terminal is what these commands are for"
)]

mod bench;
mod browser;
mod deny;
mod fuzz;
mod metadata;
mod mutants;
mod nightly;
mod progress;
mod shell;
mod sim;
mod soak;
mod step;
mod test;
mod tidy;
mod tools;

use std::process::ExitCode;

/// One command of `cargo xtask`.
struct Command {
    name: &'static str,
    arguments: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

/// The commands, in the order in which `help` lists them.
const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        arguments: "[--without PROGRAM,…]",
        help: "everything that must hold before a change lands",
        run: test::run,
    },
    Command {
        name: "nightly",
        arguments: "",
        help: "what is too long for every change: soaks, swarms, mutants, fuzzing; about two hours",
        run: nightly::run,
    },
    Command {
        name: "tidy",
        arguments: "",
        help: "the repository's own rules: rooms, module docs, leftovers",
        run: tidy::run,
    },
    Command {
        name: "bench",
        arguments: "[FILTER]",
        help: "all benchmarks, then one table of figures against their limits",
        run: bench::run,
    },
    Command {
        name: "browser",
        arguments: "[FILTER]",
        help: "the pages in a real browser: flows of a bad night, accessibility; a part of `test`",
        run: browser::run,
    },
    Command {
        name: "soak",
        arguments: "[--cases N | --instances MINUTES | --liveness MINUTES | --mass [--store NAME] [--pipelines N] [--only NAMES] [--stay MINUTES] | --stream [MINUTES]]",
        help: "schedules against the brute-force walker, a million cases; or three instances in trouble; or watches on a full machine; or ten thousand pipelines at once; or a thousand readers of the stream",
        run: soak::run,
    },
    Command {
        name: "sim",
        arguments: "--seed N [--days D] | --swarm [--minutes M] | --scenario NAME",
        help: "the engine in a world of bad luck, from a seed; see docs/simulator.md",
        run: sim::run,
    },
    Command {
        name: "mutants",
        arguments: "[FILTER]",
        help: "the watchdog's checks, one at a time made to find nothing: its tests must notice",
        run: mutants::run,
    },
    Command {
        name: "fuzz",
        arguments: "[TARGET] [--seconds N] [--replay FILE]",
        help: "coverage-guided fuzzing on the pinned toolchain, 60 s per target",
        run: fuzz::run,
    },
    Command {
        name: "deny",
        arguments: "",
        help: "licences, bans and advisories of what is built in",
        run: deny::run,
    },
    Command { name: "help", arguments: "", help: "this list", run: help },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<(), String> {
    let (name, rest) = match arguments.split_first() {
        None => ("help", arguments),
        Some((first, rest)) => (first.as_str(), rest),
    };
    let name = if matches!(name, "-h" | "--help") { "help" } else { name };
    let command = COMMANDS
        .iter()
        .find(|command| command.name == name)
        .ok_or_else(|| format!("there is no command {name:?}; `cargo xtask help` lists them"))?;
    (command.run)(rest)
}

fn help(arguments: &[String]) -> Result<(), String> {
    shell::no_arguments(arguments)?;
    println!("cargo xtask COMMAND\n");
    for Command { name, arguments, help, run: _ } in COMMANDS {
        println!("  {:<46} {help}", format!("{name} {arguments}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_command_names_the_way_to_the_list() {
        let reason = dispatch(&["tset".to_owned()]).unwrap_err();
        assert!(reason.contains("tset") && reason.contains("cargo xtask help"), "{reason}");
    }

    #[test]
    fn command_without_arguments_refuses_one() {
        let reason = dispatch(&["tidy".to_owned(), "--fix".to_owned()]).unwrap_err();
        assert!(reason.contains("--fix"), "{reason}");
    }
}
