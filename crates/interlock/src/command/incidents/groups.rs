//! Open incidents, counted by what they have in common: what a person reads first when very many are open.

use std::{collections::BTreeMap, io::Write as _};

use interlock_core::id::PipelineId;
use interlock_store::story::instant;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    arguments::ListIncidents, exit::Failure, ledger::IncidentRow, output::Output,
    project_summary::ProjectSummary,
};

/// So many groups of each sort are shown, the largest first.
const GROUPS_MAX: usize = 20;

/// What is counted.
pub(super) struct Groups<'a> {
    pub(super) project: &'a ProjectSummary,
    /// Invariant: newest first.
    pub(super) rows: &'a [IncidentRow],
    pub(super) asked: &'a ListIncidents,
}

/// Incidents that have something in common.
struct Group<'a> {
    value: Option<String>,
    count: usize,
    first: Timestamp,
    last: Timestamp,
    example: &'a PipelineId,
}

impl<'a> Groups<'a> {
    pub(super) fn print(&self, output: &mut Output) -> Result<(), Failure> {
        let whats = match &self.asked.group_by {
            Some(what) => vec![what.as_str()],
            None => vec!["kind", "owner", "upstream"],
        };
        if self.asked.json {
            let all = whats.iter().flat_map(|what| {
                self.by(what).into_iter().map(|group| group.to_json(what)).collect::<Vec<_>>()
            });
            return output.json(&Value::Array(all.collect()));
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
            let lines: Vec<_> =
                groups.iter().take(GROUPS_MAX).map(|group| group.to_row(what)).collect();
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
    fn by(&self, what: &str) -> Vec<Group<'a>> {
        let mut groups: BTreeMap<Option<String>, Group<'a>> = BTreeMap::new();
        for row in self.rows {
            for value in self.values(what, row) {
                let at = row.2.record.opened_at;
                let group = groups.entry(value.clone()).or_insert_with(|| Group {
                    value,
                    count: 0,
                    first: at,
                    last: at,
                    example: &row.0,
                });
                group.count += 1;
                group.first = group.first.min(at);
                group.last = group.last.max(at);
            }
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        groups
    }

    /// What an incident has of a sort: of upstreams several, else one or nothing.
    fn values(&self, what: &str, (name, _, row): &IncidentRow) -> Vec<Option<String>> {
        let declared = self.project.pipelines.get(name);
        match what {
            "kind" => vec![Some(row.record.kind.to_string())],
            "owner" => vec![declared.and_then(|declared| declared.owner.clone())],
            "upstream" => match declared.map(|declared| &declared.upstreams) {
                Some(upstreams) if !upstreams.is_empty() => {
                    upstreams.iter().cloned().map(Some).collect()
                }
                _ => vec![None],
            },
            _ => vec![Some(name.to_string())],
        }
    }
}

impl Group<'_> {
    fn to_json(&self, what: &str) -> Value {
        json!({
            "by": what,
            "value": self.value,
            "count": self.count,
            "firstOpenedAt": self.first.to_string(),
            "lastOpenedAt": self.last.to_string(),
            "example": self.example.as_str(),
        })
    }

    fn to_row(&self, what: &str) -> [String; 6] {
        let command = self
            .value
            .as_ref()
            .map(|value| format!("interlock incidents --{what} {}", quoted(value)));
        [
            self.value.clone().unwrap_or_else(|| "-".to_owned()),
            self.count.to_string(),
            instant(self.first),
            instant(self.last),
            self.example.to_string(),
            command.unwrap_or_default(),
        ]
    }
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
