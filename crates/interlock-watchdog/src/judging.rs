//! From questions to findings, and from findings to what is durable: what the loop and a single pass share.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::id::PipelineId;
use interlock_store::{
    Accepted, Group, InboxEntry, Key, Record, Refusal, Row, Shard, Store, StoreError,
    record::{InboxRecord, PipelineRecord},
};

use crate::{
    check::{Check, judge},
    finding::{CheckName, Finding},
    gather::{GatherError, Gathered, Gatherer, Next, Question},
    load::PAGE,
    plan::Planned,
    seam::{Incidents, Telling},
    watched::Watchlist,
};

/// What came of the questions about some pipelines.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) judged: Vec<JudgedPipeline>,
    /// Pipelines whose rows are newer than what is kept of them.
    pub(crate) changed: Vec<(PipelineId, PipelineRecord, u64)>,
    /// Pipelines for which something could not be done.
    pub(crate) aside: Vec<PipelineId>,
    pub(crate) failed: BTreeMap<CheckName, String>,
}

/// One pipeline that was judged.
#[derive(Debug)]
pub(crate) struct JudgedPipeline {
    pub(crate) pipeline: PipelineId,
    /// When there is something to be judged next, if it was asked about by the clock.
    pub(crate) next: Option<Next>,
    pub(crate) findings: Vec<Finding>,
}

/// Gathers and judges. Nothing of one pipeline stops another; only a store that fails stops all.
pub(crate) async fn judge_all(
    gatherer: &mut Gatherer<'_>,
    list: &Watchlist,
    checks: &[(CheckName, Check)],
    asked: Vec<(PipelineId, Question)>,
) -> Result<Outcome, StoreError> {
    let mut outcome = Outcome::default();
    for (pipeline, question) in asked {
        let Some(revision) = list.revision(&pipeline) else { continue };
        match gatherer.snapshot(&pipeline, revision, question).await {
            Ok(Gathered::Gone) => {}
            Ok(Gathered::Changed(record, revision)) => {
                outcome.changed.push((pipeline, *record, revision));
            }
            Ok(Gathered::Snapshot(snapshot, next)) => {
                let judged = judge(checks, &snapshot, gatherer.around.now);
                for (name, reason) in judged.failed {
                    let reason = format!("{pipeline}: {reason}");
                    outcome.failed.entry(name).or_insert(reason);
                    if outcome.aside.last() != Some(&pipeline) {
                        outcome.aside.push(pipeline.clone());
                    }
                }
                let findings = judged.findings;
                outcome.judged.push(JudgedPipeline { pipeline, next, findings });
            }
            Err(GatherError::Store(error)) => return Err(error),
            Err(GatherError::Unreadable(reason)) => {
                // Without a snapshot none of the checks can be done.
                for (name, _) in checks {
                    let reason = format!("{pipeline}: {reason}");
                    outcome.failed.entry(*name).or_insert(reason);
                }
                outcome.aside.push(pipeline);
            }
        }
    }
    Ok(outcome)
}

/// Asks what is to be asked, adds what follows for people, and commits; a result for each group.
pub(crate) async fn commit(
    store: &dyn Store,
    telling: &dyn Telling,
    planned: &mut [Planned],
) -> Result<Vec<Result<Accepted, Refusal>>, StoreError> {
    let mut incidents = Incidents::new();
    for plan in planned.iter_mut() {
        let pipeline = plan.group.pipeline.clone();
        for (key, record) in &plan.asks {
            store.post(&pipeline, key, record).await?;
        }
        know(store, &pipeline, telling.keys(&plan.group), &mut incidents).await?;
        telling.add(&mut plan.group, &mut incidents);
    }
    let groups: Vec<Group> = planned.iter().map(|plan| plan.group.clone()).collect();
    store.commit(groups).await
}

/// Reads the incidents that a group is about.
async fn know(
    store: &dyn Store,
    pipeline: &PipelineId,
    keys: Vec<String>,
    incidents: &mut Incidents,
) -> Result<(), StoreError> {
    let unknown = keys.into_iter().filter(|key| {
        let place = (pipeline.clone(), key.clone());
        !incidents.contains_key(&place)
    });
    let unknown: Vec<_> = unknown.map(Key::Incident).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let rows = store.read(pipeline, &unknown).await?;
    for (key, row) in unknown.into_iter().zip(rows) {
        if let (Key::Incident(key), Some(Row { record: Record::Incident(record), revision })) =
            (key, row)
        {
            incidents.insert((pipeline.clone(), key), (record, revision));
        }
    }
    Ok(())
}

/// The pipelines with reports in the inbox that nobody has applied.
pub(crate) async fn unapplied(
    store: &dyn Store,
    shard: Shard,
) -> Result<BTreeSet<PipelineId>, StoreError> {
    // All of them: one that is overlooked is a miss that is told and did not happen.
    let mut limit = PAGE;
    let mut page = store.inbox(shard, limit).await?;
    while page.more {
        limit = limit.saturating_mul(8);
        page = store.inbox(shard, limit).await?;
    }
    let reports = page.items.into_iter().filter(|entry| is_report(&entry.record));
    Ok(reports.map(|InboxEntry { pipeline, .. }| pipeline).collect())
}

fn is_report(record: &InboxRecord) -> bool {
    match record {
        InboxRecord::Sensor { .. } | InboxRecord::Complete { .. } | InboxRecord::Report(_) => true,
        InboxRecord::Run { .. }
        | InboxRecord::Rerun { .. }
        | InboxRecord::Cancel { .. }
        | InboxRecord::Pause { .. }
        | InboxRecord::Resume { .. }
        | InboxRecord::Catchup {}
        | InboxRecord::StartBackfill { .. }
        | InboxRecord::PauseBackfill { .. }
        | InboxRecord::ResumeBackfill { .. }
        | InboxRecord::CancelBackfill { .. }
        | InboxRecord::Incident { .. }
        | InboxRecord::Noticed { .. }
        | InboxRecord::Heard { .. }
        | InboxRecord::Keep { .. }
        | InboxRecord::Silence { .. }
        | InboxRecord::Bark { .. }
        | InboxRecord::Look {}
        | InboxRecord::File { .. } => false,
    }
}
