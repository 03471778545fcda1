//! Which commands a server can answer, and which need this machine.

/// What a command needs to do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Neither files nor a store: it is the same everywhere.
    Nothing,
    /// What is recorded and declared: a project here, or a server elsewhere.
    Answers,
    /// This machine, for this reason.
    ThisMachine(&'static str),
}

/// The commands that ask neither files nor a server.
const ASK_NOTHING: [&str; 3] = ["completions", "context", "schema"];

/// The commands that need the files or this machine, each with its reason: "`serve` …". At most twelve.
const THIS_MACHINE: [(&str, &str); 11] = [
    ("init", "writes files of a project into a directory of this machine"),
    (
        "validate",
        "reads the files of a project; `interlock --url URL doctor` tells what a server found in its own",
    ),
    ("serve", "is the server itself"),
    ("exec", "runs a job on this machine, and reports to the server that `--server URL` names"),
    ("supervise", "keeps a program running on this machine"),
    ("heartbeat", "reads the heartbeat of a program on this machine"),
    ("calendar", "writes a calendar into the files of a project"),
    (
        "watchdog",
        "judges and writes the store itself, once; a server does so by itself all the time",
    ),
    (
        "archive",
        "copies the store itself to the archive; a server with the role `archiver` does so by itself",
    ),
    ("store", "looks after the store itself, which no server may do to another"),
    (
        "incidents test",
        "sends from this machine; `interlock --url URL bark` tests the channels of a server",
    ),
];

/// What a command needs, by its words: `incidents test`.
pub(crate) fn needs(words: &[&str]) -> Needs {
    let first = words.first().copied().unwrap_or_default();
    if ASK_NOTHING.contains(&first) {
        return Needs::Nothing;
    }
    let path = words.join(" ");
    let found = THIS_MACHINE.iter().find(|(name, _)| {
        path == *name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with(' '))
    });
    found.map_or(Needs::Answers, |(_, why)| Needs::ThisMachine(why))
}

/// The words of the command that was typed, as clap found them.
pub(crate) fn words(matches: &clap::ArgMatches) -> Vec<&str> {
    let mut words = Vec::new();
    let mut inner = matches.subcommand();
    while let Some((name, matches)) = inner {
        words.push(name);
        inner = matches.subcommand();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Command as Described, CommandFactory as _, Parser as _};

    use super::*;
    use crate::arguments::Arguments;

    /// The words of every command that does something, hidden ones left out.
    fn every(command: &Described) -> Vec<Vec<String>> {
        let mut all = Vec::new();
        for inner in command.get_subcommands().filter(|it| !it.is_hide_set()) {
            let own = inner.get_name().to_owned();
            if own == "help" {
                continue;
            }
            let below = every(inner);
            if below.is_empty() || !inner.is_subcommand_required_set() {
                all.push(vec![own.clone()]);
            }
            all.extend(below.into_iter().map(|rest| [vec![own.clone()], rest].concat()));
        }
        all
    }

    fn commands() -> BTreeSet<String> {
        let mut command = Arguments::command();
        command.build();
        every(&command).into_iter().map(|words| words.join(" ")).collect()
    }

    fn needs_of(path: &str) -> Needs {
        needs(&path.split(' ').collect::<Vec<_>>())
    }

    /// A line for each command that a server answers; `tests/serve/api/anywhere.rs` runs them.
    const LINES: &str = include_str!("../../tests/serve/api/anywhere.txt");

    #[test]
    fn every_command_can_be_asked_elsewhere_or_says_why_not() {
        let typed = LINES.lines().map(|line| line.trim_start_matches("= "));
        let typed = typed.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let tried: BTreeSet<String> = typed
            .map(|line| {
                // What stands for a number is none.
                let line = line.replace("NUMBER", "1");
                let line = std::iter::once("interlock").chain(line.split(' '));
                let matches = Arguments::command().try_get_matches_from(line);
                let matches = matches.unwrap_or_else(|error| panic!("{error}"));
                words(&matches).join(" ")
            })
            .collect();
        let commands = commands();
        assert!(commands.len() > 50, "{commands:?}");
        let untried: Vec<_> = commands
            .iter()
            .filter(|path| needs_of(path) == Needs::Answers && !tried.contains(*path))
            .collect();
        assert!(untried.is_empty(), "write a line into tests/serve/api/anywhere.txt: {untried:?}");
    }

    #[test]
    fn the_commands_that_need_this_machine_are_few_and_there() {
        assert!(THIS_MACHINE.len() <= 12);
        let commands = commands();
        let is_there = |name: &str| {
            commands.iter().any(|path| path == name || path.starts_with(&format!("{name} ")))
        };
        for (name, why) in THIS_MACHINE {
            assert!(is_there(name), "there is no `{name}`");
            assert!(why.len() > 15 && !why.ends_with('.'), "{name}: {why}");
        }
        assert!(ASK_NOTHING.into_iter().all(is_there));
        assert_eq!(needs_of("incidents"), Needs::Answers);
        assert!(matches!(needs_of("store copy"), Needs::ThisMachine(_)));
        assert!(Arguments::try_parse_from(["interlock", "status"]).is_ok());
    }
}
