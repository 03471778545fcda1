//! Open incidents, counted by what they have in common: what a person reads first when very many are open.

use std::{cmp::Reverse, collections::BTreeMap, io::Write as _};

use interlock_answers::{
    StoredIncident, group_incidents,
    model::incident::{IncidentAnswer, IncidentGroupAnswer, IncidentGrouping},
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
        let groups = groupings(self.asked).into_iter().map(|what| (what, self.by(what)));
        print(self.rows.len(), &groups.collect::<Vec<_>>(), self.asked, output)
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

/// By what is counted.
pub(super) fn groupings(asked: &ListIncidents) -> Vec<IncidentGrouping> {
    use IncidentGrouping::{Kind, Owner, Pipeline, Upstream};
    let all = [Kind, Owner, Upstream, Pipeline];
    match &asked.group_by {
        Some(what) => all.into_iter().filter(|it| it.as_str() == what).collect(),
        None => vec![Kind, Owner, Upstream],
    }
}

/// The groups of what a server answered, where it could not count them itself because a filter was given.
pub(super) fn group_answers(
    by: IncidentGrouping,
    found: &[IncidentAnswer],
    values: impl Fn(&IncidentAnswer) -> Vec<Option<String>>,
) -> Vec<IncidentGroupAnswer> {
    let mut groups: BTreeMap<Option<String>, IncidentGroupAnswer> = BTreeMap::new();
    for incident in found {
        for value in values(incident) {
            let at = incident.opened_at;
            let group = groups.entry(value.clone()).or_insert_with(|| IncidentGroupAnswer {
                by,
                value,
                count: 0,
                first_opened_at: at,
                last_opened_at: at,
                example: incident.pipeline.clone(),
            });
            group.count += 1;
            group.first_opened_at = group.first_opened_at.min(at);
            group.last_opened_at = group.last_opened_at.max(at);
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| Reverse(group.count));
    groups
}

/// Prints so many open incidents in their groups, sort by sort.
pub(super) fn print(
    count: usize,
    all: &[(IncidentGrouping, Vec<IncidentGroupAnswer>)],
    asked: &ListIncidents,
    output: &mut Output,
) -> Result<(), Failure> {
    if asked.json {
        let all: Vec<_> = all.iter().flat_map(|(_, groups)| groups).collect();
        return output.json(&to_value(&all).unwrap_or_default());
    }
    if count == 0 {
        writeln!(output.out, "no open incidents")?;
        return Ok(());
    }
    let (are, s) = if count == 1 { ("is", "") } else { ("are", "s") };
    writeln!(output.out, "{count} incident{s} {are} open; `interlock incidents --all` lists each")?;
    for (what, groups) in all {
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
