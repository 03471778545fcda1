//! Open incidents, counted by what they have in common: what a person reads first when very many are open.

use std::io::Write as _;

use interlock_answers::{
    StoredIncident, group_incidents,
    model::incident::{IncidentGroupAnswer, IncidentGrouping},
};
use interlock_store::story::instant;
use serde_json::to_value;

use crate::{
    arguments::ListIncidents, exit::Failure, output::Output, project_summary::ProjectSummary,
};

/// So many groups of each sort are shown, the largest first.
const GROUPS_MAX: usize = 20;

/// What is counted.
pub(super) struct Groups<'a> {
    pub(super) project: &'a ProjectSummary,
    /// Invariant: newest first.
    pub(super) rows: &'a [StoredIncident],
    pub(super) asked: &'a ListIncidents,
}

impl Groups<'_> {
    pub(super) fn print(&self, output: &mut Output) -> Result<(), Failure> {
        use IncidentGrouping::{Kind, Owner, Pipeline, Upstream};
        let all = [Kind, Owner, Upstream, Pipeline];
        let whats = match &self.asked.group_by {
            Some(what) => all.into_iter().filter(|it| it.as_str() == what).collect(),
            None => vec![Kind, Owner, Upstream],
        };
        if self.asked.json {
            let all: Vec<_> = whats.into_iter().flat_map(|what| self.by(what)).collect();
            return output.json(&to_value(&all).unwrap_or_default());
        }
        if self.rows.is_empty() {
            writeln!(output.out, "no open incidents")?;
            return Ok(());
        }
        let count = self.rows.len();
        let (are, s) = if count == 1 { ("is", "") } else { ("are", "s") };
        writeln!(
            output.out,
            "{count} incident{s} {are} open; `interlock incidents --all` lists each"
        )?;
        for what in whats {
            let groups = self.by(what);
            // Where no pipeline says anything, there is nothing to be seen by it.
            if groups.iter().all(|group| group.value.is_none()) {
                continue;
            }
            writeln!(output.out)?;
            let lines: Vec<_> = groups.iter().take(GROUPS_MAX).map(group_row).collect();
            let what = what.as_str();
            let heading = what.to_ascii_uppercase();
            let headings = [&heading, "COUNT", "FIRST", "LAST", "EXAMPLE", "LISTED BY"];
            output.table(headings, &lines)?;
            if groups.len() > GROUPS_MAX {
                let more = groups.len() - GROUPS_MAX;
                writeln!(output.out, "and {more} more; `--group-by {what} --json` has all")?;
            }
        }
        Ok(())
    }

    /// The groups of a sort, the largest first.
    fn by(&self, by: IncidentGrouping) -> Vec<IncidentGroupAnswer> {
        group_incidents(by, self.rows, |row| self.values(by, row))
    }

    /// What an incident has of a sort: of upstreams several, else one or nothing.
    fn values(&self, by: IncidentGrouping, (name, _, row): &StoredIncident) -> Vec<Option<String>> {
        let declared = self.project.pipelines.get(name);
        match by {
            IncidentGrouping::Kind => vec![Some(row.record.kind.to_string())],
            IncidentGrouping::Pipeline => vec![Some(name.to_string())],
            IncidentGrouping::Owner => vec![declared.and_then(|declared| declared.owner.clone())],
            IncidentGrouping::Upstream => match declared.map(|declared| &declared.upstreams) {
                Some(upstreams) if !upstreams.is_empty() => {
                    upstreams.iter().cloned().map(Some).collect()
                }
                _ => vec![None],
            },
        }
    }
}

fn group_row(group: &IncidentGroupAnswer) -> [String; 6] {
    let command = group
        .value
        .as_ref()
        .map(|value| format!("interlock incidents --{} {}", group.by.as_str(), quoted(value)));
    [
        group.value.clone().unwrap_or_else(|| "-".to_owned()),
        group.count.to_string(),
        instant(group.first_opened_at),
        instant(group.last_opened_at),
        group.example.clone(),
        command.unwrap_or_default(),
    ]
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_-./@:+".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_word_is_one_word_to_a_shell() {
        assert_eq!(quoted("team-a@example.com"), "team-a@example.com");
        assert_eq!(quoted("data team"), "'data team'");
        assert_eq!(quoted("o'neill; rm"), r"'o'\''neill; rm'");
        assert_eq!(quoted(""), "''");
    }
}
