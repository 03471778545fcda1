//! Open incidents, counted by what they have in common: what a person reads first when very many are open.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use interlock_core::id::PipelineId;
use interlock_store::Shard;

use super::{incident_list::StoredIncident, pipeline_facts::PipelineFacts};
use crate::{
    AnswerError, LIMIT_MAX, Reader,
    model::incident::{
        IncidentGroupAnswer, IncidentGrouping, IncidentGroupsAnswer, IncidentGroupsQuery,
    },
};

/// How many open incidents one question counts at most.
const COUNTED_MAX: usize = 20_000;

impl Reader<'_> {
    /// The open incidents, counted.
    pub async fn incident_groups(
        &self,
        asked: &IncidentGroupsQuery,
    ) -> Result<IncidentGroupsAnswer, AnswerError> {
        let by = asked.by;
        let (mut rows, mut is_cut) = (Vec::new(), false);
        for shard in (0..self.store.shard_count()).map(Shard) {
            let mut last: Option<(PipelineId, String)> = None;
            loop {
                let page = self.store.open_incidents(shard, last.as_ref(), LIMIT_MAX).await?;
                last = page.items.last().map(|(name, key, _)| (name.clone(), key.clone()));
                rows.extend(page.items);
                if !page.more || rows.len() >= COUNTED_MAX {
                    is_cut |= page.more;
                    break;
                }
            }
        }
        let pipelines: BTreeSet<_> = match by {
            IncidentGrouping::Owner | IncidentGrouping::Upstream => {
                rows.iter().map(|row| row.0.clone()).collect()
            }
            IncidentGrouping::Kind | IncidentGrouping::Pipeline => BTreeSet::new(),
        };
        let facts = self.pipeline_facts(pipelines).await?;
        let items = group_incidents(by, &rows, |row| values(by, row, &facts));
        Ok(IncidentGroupsAnswer { items, scanned: rows.len() as u64, is_cut })
    }
}

/// What an incident has of a sort: of upstreams several, else one or nothing.
fn values(
    by: IncidentGrouping,
    (pipeline, _, row): &StoredIncident,
    facts: &PipelineFacts,
) -> Vec<Option<String>> {
    match by {
        IncidentGrouping::Kind => vec![Some(row.record.kind.to_string())],
        IncidentGrouping::Pipeline => vec![Some(pipeline.to_string())],
        IncidentGrouping::Owner => vec![facts.owner(pipeline).map(str::to_owned)],
        IncidentGrouping::Upstream => match facts.upstreams(pipeline) {
            [] => vec![None],
            upstreams => upstreams.iter().cloned().map(Some).collect(),
        },
    }
}

/// The groups of incidents by the values that each has, the largest first.
pub fn group_incidents(
    by: IncidentGrouping,
    rows: &[StoredIncident],
    values: impl Fn(&StoredIncident) -> Vec<Option<String>>,
) -> Vec<IncidentGroupAnswer> {
    let mut groups: BTreeMap<Option<String>, IncidentGroupAnswer> = BTreeMap::new();
    for row in rows {
        for value in values(row) {
            let at = row.2.record.opened_at;
            let group = groups.entry(value.clone()).or_insert_with(|| IncidentGroupAnswer {
                by,
                value,
                count: 0,
                first_opened_at: at,
                last_opened_at: at,
                example: row.0.to_string(),
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
