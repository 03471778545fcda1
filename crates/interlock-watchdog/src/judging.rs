//! From questions to findings, and from findings to what is durable: what the loop and a single pass share.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::id::PipelineId;
use interlock_store::{
    Accepted, Change, FoundRows, Group, InboxEntry, Key, READ_MAX, Record, Refusal, Row, RowsQuery,
    Shard, Store, StoreError, for_each, read_apart, read_batches,
    record::{InboxRecord, PipelineRecord},
};
use jiff::Timestamp;

use crate::{
    check::{Check, judge},
    finding::{CheckName, Finding},
    gather::{Begun, GatherError, Gathered, Gatherer, Next, Question, SnapshotRequest},
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

/// Gathers and judges. Nothing of one pipeline stops another; only a store that fails stops all. What is read of every
/// pipeline is read of many by one call, so that ten thousand at one instant are a few dozen calls.
pub(crate) async fn judge_all(
    gatherer: &Gatherer<'_>,
    list: &Watchlist,
    checks: &[(CheckName, Check)],
    asked: Vec<(PipelineId, Question)>,
) -> Result<Outcome, StoreError> {
    let asked = asked.into_iter().filter_map(|(pipeline, question)| {
        let revision = list.revision(&pipeline)?;
        Some(SnapshotRequest { pipeline, revision, question })
    });
    let mut asked: Vec<SnapshotRequest> = asked.collect();
    let mut outcome = Outcome::default();
    // So many at once that what is read first is not old when the rest is.
    while !asked.is_empty() {
        let portion: Vec<_> = asked.drain(..asked.len().min(READ_MAX)).collect();
        for (pipeline, gathered) in gather_portion(gatherer, portion).await? {
            outcome.take(pipeline, gathered, (checks, gatherer.around.now));
        }
    }
    Ok(outcome)
}

/// What is known of a pipeline, or why it cannot be: that is this pipeline's alone (S21).
type GatheredPipeline = (PipelineId, Result<Gathered, String>);

/// Reads the pipelines' own rows, then the rows that those ask for, and then what few of them need besides.
async fn gather_portion(
    gatherer: &Gatherer<'_>,
    portion: Vec<SnapshotRequest>,
) -> Result<Vec<GatheredPipeline>, StoreError> {
    let own = |request: &SnapshotRequest| RowsQuery {
        pipeline: request.pipeline.clone(),
        keys: vec![Key::Pipeline],
    };
    let found = read_all(gatherer.store, portion.iter().map(own).collect()).await?;
    let (mut drafts, mut gathered) = (Vec::new(), Vec::new());
    for (request, rows) in portion.into_iter().zip(found) {
        let pipeline = request.pipeline.clone();
        match rows.and_then(|rows| gatherer.begin(request, rows).map_err(|it| it.to_string())) {
            Ok(Begun::Draft(draft)) => drafts.push((pipeline, draft)),
            Ok(Begun::Ended(ended)) => gathered.push((pipeline, Ok(ended))),
            Err(reason) => gathered.push((pipeline, Err(reason))),
        }
    }
    let queries = drafts.iter().map(|(_, draft)| draft.query()).collect();
    let found = read_all(gatherer.store, queries).await?;
    let completed = for_each(drafts.into_iter().zip(found).collect(), |(draft, rows)| async {
        let (pipeline, draft) = draft;
        let rows = match rows {
            Ok(rows) => rows,
            Err(reason) => return Ok((pipeline, Err(reason))),
        };
        match gatherer.complete(*draft, rows).await {
            Err(GatherError::Store(error)) if error.is_retryable => Err(error),
            completed => Ok((pipeline, completed.map_err(|error| error.to_string()))),
        }
    });
    gathered.extend(completed.await?);
    Ok(gathered)
}

/// Reads rows of many pipelines by few calls; why those of one cannot be read is its result.
async fn read_all(
    store: &dyn Store,
    queries: Vec<RowsQuery>,
) -> Result<Vec<Result<FoundRows, String>>, StoreError> {
    let mut found = Vec::with_capacity(queries.len());
    for batch in read_batches(&queries) {
        let rows = read_apart(store, batch).await?;
        found.extend(rows.into_iter().map(|rows| rows.map_err(|error| error.to_string())));
    }
    Ok(found)
}

impl Outcome {
    fn take(
        &mut self,
        pipeline: PipelineId,
        gathered: Result<Gathered, String>,
        (checks, now): (&[(CheckName, Check)], Timestamp),
    ) {
        match gathered {
            Ok(Gathered::Gone) => {}
            Ok(Gathered::Changed(record, revision)) => {
                self.changed.push((pipeline, *record, revision));
            }
            Ok(Gathered::Snapshot(snapshot, next)) => {
                let judged = judge(checks, &snapshot, now);
                for (name, reason) in judged.failed {
                    let reason = format!("{pipeline}: {reason}");
                    self.failed.entry(name).or_insert(reason);
                    if self.aside.last() != Some(&pipeline) {
                        self.aside.push(pipeline.clone());
                    }
                }
                let findings = judged.findings;
                self.judged.push(JudgedPipeline { pipeline, next, findings });
            }
            Err(reason) => {
                none_can_be_done(checks, &format!("{pipeline}: {reason}"), &mut self.failed);
                self.aside.push(pipeline);
            }
        }
    }
}

/// None of the checks can be done: for a pipeline without its agenda or a snapshot, for a shard that cannot be read.
pub(crate) fn none_can_be_done(
    checks: &[(CheckName, Check)],
    reason: &str,
    failed: &mut BTreeMap<CheckName, String>,
) {
    for (name, _) in checks {
        failed.entry(*name).or_insert_with(|| reason.to_owned());
    }
}

/// Checks whose sources could be read so far. A source that cannot be read fails the checks that rest on it, and no other.
#[derive(Debug)]
pub(crate) struct UsableChecks {
    pub(crate) checks: Vec<(CheckName, Check)>,
    /// The others, and why.
    pub(crate) failed: BTreeMap<CheckName, String>,
    /// The sources that were asked: what rests on each that could not be read, and why.
    pub(crate) sources: BTreeMap<&'static str, BTreeMap<CheckName, String>>,
}

impl UsableChecks {
    pub(crate) fn new(checks: &[(CheckName, Check)]) -> Self {
        Self { checks: checks.to_vec(), failed: BTreeMap::new(), sources: BTreeMap::new() }
    }

    /// What was read of a source that feeds these checks; nothing if it could not be.
    pub(crate) fn read<T: Default>(
        &mut self,
        (source, feeds): (&'static str, &[CheckName]),
        read: Result<T, StoreError>,
    ) -> T {
        let failed = self.sources.entry(source).or_default();
        read.unwrap_or_else(|error| {
            let reason = format!("{source}: {error}");
            failed.extend(feeds.iter().map(|name| (*name, reason.clone())));
            for (name, _) in self.checks.extract_if(.., |(name, _)| feeds.contains(name)) {
                self.failed.insert(name, reason.clone());
            }
            T::default()
        })
    }
}

/// What a loop that comes round again makes of a read: a store that is away is asked again, what can never be read is a
/// source that failed.
pub(crate) fn for_good<T>(
    read: Result<T, StoreError>,
) -> Result<Result<T, StoreError>, StoreError> {
    match read {
        Err(error) if error.is_retryable => Err(error),
        read => Ok(read),
    }
}

/// What rests on the due index.
pub(crate) const DUE_INDEX: (&str, &[CheckName]) = (
    "the due index",
    &[
        CheckName::StuckRuns,
        CheckName::StaleTriggers,
        CheckName::SlaScheduling,
        CheckName::TriggerDeadlines,
        CheckName::PostRunSensors,
        CheckName::RelativeSlaBreaches,
        CheckName::PausedTooLong,
    ],
);
/// What rests on the open slots.
pub(crate) const OPEN_SLOTS: (&str, &[CheckName]) =
    ("the open slots", &[CheckName::StuckRuns, CheckName::StaleTriggers, CheckName::SlaScheduling]);
/// Nothing is called absent while a report may wait in the inbox.
pub(crate) const INBOX: (&str, &[CheckName]) = (
    "the inbox",
    &[
        CheckName::MissedSchedules,
        CheckName::MissedInclusionSchedules,
        CheckName::StaleTriggers,
        CheckName::TriggerDeadlines,
    ],
);
/// Nor while it is not known whether a report could have come.
pub(crate) const COVERAGE: (&str, &[CheckName]) =
    ("when reports could come", &[CheckName::MissedSchedules, CheckName::MissedInclusionSchedules]);

/// Why a plan is not durable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDone {
    /// What it was planned on has changed, or the lease is another's.
    #[error(transparent)]
    Refused(Refusal),
    /// The store cannot take it, however often it is tried.
    #[error(transparent)]
    Impossible(StoreError),
}

/// What came of plans: a result for each.
pub(crate) type Done = Vec<Result<Accepted, NotDone>>;

/// Asks what is to be asked, adds what follows for people, and commits; a result for each group.
pub(crate) async fn commit(
    store: &dyn Store,
    telling: &dyn Telling,
    planned: &mut [Planned],
) -> Result<Done, StoreError> {
    let groups = prepare(store, telling, planned).await?;
    commit_together(store, groups).await
}

/// The group of a plan, or why it cannot be made: what its incidents hold cannot be read.
pub(crate) type PreparedGroup = Result<Group, StoreError>;

/// Asks what is to be asked, and adds what follows for people. The groups are taken out: what is left of a plan is whose it was and
/// what is said.
pub(crate) async fn prepare(
    store: &dyn Store,
    telling: &dyn Telling,
    planned: &mut [Planned],
) -> Result<Vec<PreparedGroup>, StoreError> {
    for plan in planned.iter_mut() {
        for (key, record) in std::mem::take(&mut plan.asks) {
            match store.post(&plan.group.pipeline, &key, &record).await {
                // It is asked for again with the next finding; what was found must not wait for it.
                Err(error) if !error.is_retryable => {
                    let pipeline = &plan.group.pipeline;
                    tracing::error!(%pipeline, key, %error, "the engine could not be asked");
                }
                posted => posted?,
            }
        }
    }
    let KnownIncidents { mut incidents, unreadable } = known(store, telling, planned).await?;
    let groups = planned.iter_mut().map(|plan| {
        if let Some(error) = unreadable.get(&plan.group.pipeline) {
            return Err(error.clone());
        }
        telling.add(&mut plan.group, &mut incidents);
        plan.notifications = notifications(&plan.group);
        let Group { pipeline, writer, changes } = &mut plan.group;
        let changes = std::mem::take(changes);
        Ok(Group { pipeline: pipeline.clone(), writer: *writer, changes })
    });
    Ok(groups.collect())
}

/// The names of the notifications in a group.
fn notifications(group: &Group) -> Vec<String> {
    let names = group.changes.iter().filter_map(|change| match change {
        Change::Put(Key::Outbox(name), ..) => Some(name.clone()),
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => None,
    });
    names.collect()
}

/// Commits what could be prepared; a result for each, in their order.
pub(crate) async fn commit_together(
    store: &dyn Store,
    prepared: Vec<PreparedGroup>,
) -> Result<Done, StoreError> {
    let mut groups = Vec::with_capacity(prepared.len());
    let is_prepared: Vec<Result<(), StoreError>> =
        prepared.into_iter().map(|group| group.map(|group| groups.push(group))).collect();
    let mut done = commit_groups(store, groups).await?.into_iter();
    let results = is_prepared.into_iter().filter_map(|prepared| match prepared {
        Ok(()) => done.next(),
        Err(error) => Some(Err(NotDone::Impossible(error))),
    });
    Ok(results.collect())
}

/// One call for all; only if that cannot be done one for each pipeline, so that it is known whose fault it is: what the store cannot
/// take of one pipeline is that pipeline's alone.
async fn commit_groups(store: &dyn Store, groups: Vec<Group>) -> Result<Done, StoreError> {
    if groups.is_empty() {
        return Ok(Vec::new());
    }
    match store.commit(groups.clone()).await {
        Err(error) if !error.is_retryable => {}
        results => {
            return Ok(results?.into_iter().map(|it| it.map_err(NotDone::Refused)).collect());
        }
    }
    let mut done = Vec::with_capacity(groups.len());
    for of_one in groups.chunk_by(|one, other| one.pipeline == other.pipeline) {
        match store.commit(of_one.to_vec()).await {
            Ok(results) => done.extend(results.into_iter().map(|it| it.map_err(NotDone::Refused))),
            Err(error) if error.is_retryable => return Err(error),
            Err(error) => {
                done.extend(of_one.iter().map(|_| Err(NotDone::Impossible(error.clone()))));
            }
        }
    }
    Ok(done)
}

/// The incidents that groups are about, as far as they can be read.
struct KnownIncidents {
    incidents: Incidents,
    /// Pipelines of which one cannot, and why.
    unreadable: BTreeMap<PipelineId, StoreError>,
}

/// Reads the incidents that groups are about.
async fn known(
    store: &dyn Store,
    telling: &dyn Telling,
    planned: &[Planned],
) -> Result<KnownIncidents, StoreError> {
    let mut keys: BTreeMap<&PipelineId, BTreeSet<String>> = BTreeMap::new();
    for plan in planned {
        keys.entry(&plan.group.pipeline).or_default().extend(telling.keys(&plan.group));
    }
    keys.retain(|_, keys| !keys.is_empty());
    let query = |(pipeline, keys): (&PipelineId, BTreeSet<String>)| RowsQuery {
        pipeline: pipeline.clone(),
        keys: keys.into_iter().map(Key::Incident).collect(),
    };
    let queries: Vec<RowsQuery> = keys.into_iter().map(query).collect();
    let batches = for_each(read_batches(&queries), |batch| read_apart(store, batch)).await?;
    let (mut incidents, mut unreadable) = (Incidents::new(), BTreeMap::new());
    for (query, rows) in queries.iter().zip(batches.into_iter().flatten()) {
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                unreadable.insert(query.pipeline.clone(), error);
                continue;
            }
        };
        for (key, row) in query.keys.iter().zip(rows) {
            if let (Key::Incident(key), Some(Row { record: Record::Incident(record), revision })) =
                (key, row)
            {
                incidents.insert((query.pipeline.clone(), key.clone()), (record, revision));
            }
        }
    }
    Ok(KnownIncidents { incidents, unreadable })
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
        InboxRecord::Sensor { .. }
        | InboxRecord::Complete { .. }
        | InboxRecord::Job { .. }
        | InboxRecord::Report(_) => true,
        InboxRecord::Asked { what, .. } => is_report(what),
        InboxRecord::Run { .. }
        | InboxRecord::Rerun { .. }
        | InboxRecord::Cancel { .. }
        | InboxRecord::Pause { .. }
        | InboxRecord::Resume { .. }
        | InboxRecord::Catchup {}
        | InboxRecord::StopCatchup { .. }
        | InboxRecord::SendAgain { .. }
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
        | InboxRecord::Unreadable { .. }
        | InboxRecord::File { .. } => false,
    }
}
