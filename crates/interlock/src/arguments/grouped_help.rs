//! `interlock --help`: the commands in groups, by what people want to do.

use clap::Command;

/// The groups, each with its commands in the order in which people meet them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run and watch", &["init", "validate", "serve", "exec", "supervise", "watchdog", "heartbeat"]),
    (
        "Look",
        &[
            "status",
            "list",
            "show",
            "next",
            "slots",
            "runs",
            "why",
            "explain",
            "evaluate",
            "events",
            "logs",
            "wait",
            "watermark",
        ],
    ),
    (
        "Act",
        &["run", "rerun", "cancel", "complete", "pause", "resume", "catchup", "backfill", "sensor"],
    ),
    ("Alerts", &["incidents", "silence", "bark"]),
    (
        "Operate",
        &[
            "doctor",
            "store",
            "archive",
            "token",
            "context",
            "calendar",
            "schema",
            "completions",
            "version",
        ],
    ),
];

/// The command line with its commands in groups.
pub(super) fn with_groups(command: Command) -> Command {
    let groups = GROUPS.map(|(heading, names)| group(&command, heading, names)).concat();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

fn group(command: &Command, heading: &str, names: &[&str]) -> String {
    let lines = names.iter().map(|name| {
        let about = command.find_subcommand(name).and_then(Command::get_about);
        format!("  {name:12} {}\n", about.map(ToString::to_string).unwrap_or_default())
    });
    format!("{heading}:\n{}\n", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn each_command_is_in_one_group_and_says_in_one_line_what_it_does() {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in GROUPS.iter().flat_map(|(_, names)| *names) {
            *counts.entry(name).or_default() += 1;
        }
        let command = Arguments::command();
        let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
        let expected: BTreeMap<&str, usize> =
            visible.map(|command| (command.get_name(), 1)).collect();
        assert_eq!(counts, expected);
        let help = with_groups(command).render_help().to_string();
        for line in help.lines().take_while(|line| *line != "Options:") {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(
            help.contains("Alerts:\n  incidents    List, acknowledge and resolve incidents\n"),
            "{help}"
        );
    }
}
