//! Committing: what was planned becomes true in the store, then in memory, and only then in the world.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    task::Poll,
};

use interlock_core::{id::PipelineId, retry::FailureCategory};
use interlock_ports::trigger::StartFailure;
use interlock_store::{Accepted, Change, Group, Refusal, record::EventRecord};
use serde_json::Value;

use crate::{
    batch_size::AnsweredCommit,
    engine::{Engine, EngineError, Message, News, NewsOf},
    recording::{CATCHUP_QUEUED, DRY_RUN, caught_up},
    unfit::Unfit,
    write::{Act, Planned},
};

/// Starts of one commit that are announced before it.
const ANNOUNCED_MAX: usize = 4;

impl Engine {
    /// Takes groups over in memory that are yet to be committed, so that what follows from them can be planned and
    /// committed with them: a run that ends and the next one that begins are one write to the disk. Whoever reads
    /// the store in between settles first.
    pub(crate) async fn hold(&mut self, mut planned: Vec<Planned>) -> Result<(), EngineError> {
        planned.retain(|plan| !plan.group.changes.is_empty());
        self.tell(&mut planned).await?;
        for mut plan in planned {
            self.absorb(&plan);
            plan.is_held = true;
            self.held.push(plan);
        }
        Ok(())
    }

    /// Commits what is held.
    pub(crate) async fn settle(&mut self) -> Result<(), EngineError> {
        if self.held.is_empty() { Ok(()) } else { self.commit(vec![]).await }
    }

    /// Commits what is held and these groups, absorbs what was accepted, and acts on it. A conflict reloads the pipeline, which is
    /// then planned again; a lost term ends everything.
    ///
    /// What the store can never take is that pipeline's alone (`unfit`): an entry of the inbox is then answered with why.
    pub(crate) async fn commit(&mut self, mut planned: Vec<Planned>) -> Result<(), EngineError> {
        loop {
            self.commit_batches(planned).await?;
            if self.unfit.is_empty() {
                return Ok(());
            }
            planned = self.answer_unfit().await?;
        }
    }

    /// The next batch is handed in before the last one is looked at, so that the store writes while the engine
    /// takes over. What a batch does not yet know of the one before it, its preconditions do.
    async fn commit_batches(&mut self, planned: Vec<Planned>) -> Result<(), EngineError> {
        let store = Arc::clone(&self.store);
        let planned = std::mem::take(&mut self.held).into_iter().chain(planned);
        let mut planned = planned.filter(|plan| !plan.group.changes.is_empty()).peekable();
        let mut under_way = None;
        loop {
            let mut next = None;
            if planned.peek().is_some() {
                let size = self.remembered.batch_size.groups(self.world.uptime());
                let mut batch: Vec<_> = planned.by_ref().take(size).collect();
                self.announce(&batch).await;
                self.tell(&mut batch).await?;
                let groups: Vec<Group> = batch.iter().map(|plan| plan.group.clone()).collect();
                next = Some((batch, self.world.uptime(), store.commit(groups)));
            }
            match std::mem::replace(&mut under_way, next) {
                Some((batch, asked_at, answer)) => {
                    let answered = answer.await;
                    let (groups, answered_at) = (batch.len(), self.world.uptime());
                    let commit = AnsweredCommit { groups, asked_at, answered_at };
                    self.remembered.batch_size.learn(commit);
                    match answered {
                        Ok(results) => self.take_results(batch, results).await?,
                        Err(error) => self.commit_what_is_fit(batch, error).await?,
                    }
                    // A pass over very much, on a slow store, is no hang, and must not outlive its lease.
                    self.pulse().beat();
                    self.keep_the_lease().await?;
                }
                None if under_way.is_none() => return Ok(()),
                None => {}
            }
        }
    }

    /// Says what will be started if the store takes these, so that the time until then is not lost. Many at once keep
    /// every core busy as it is.
    async fn announce(&mut self, batch: &[Planned]) {
        let starts = batch.iter().flat_map(Planned::starts);
        if starts.clone().count() > ANNOUNCED_MAX {
            return;
        }
        let mut is_of_use = false;
        for request in starts {
            if self.foretold.remove(&request.pipeline).as_ref() != Some(&request.run_id) {
                is_of_use |= self.triggers.prepare(request, None);
            }
        }
        if is_of_use {
            give_way().await;
        }
    }

    pub(crate) async fn take_results(
        &mut self,
        batch: Vec<Planned>,
        results: Vec<Result<Accepted, Refusal>>,
    ) -> Result<(), EngineError> {
        let (mut conflicts, mut first_conflict) = (BTreeSet::new(), None);
        let (mut accepted, mut acts, mut nexts, mut is_deposed) = (vec![], vec![], vec![], false);
        for (plan, result) in batch.into_iter().zip(results) {
            match result {
                Ok(_) => {
                    self.take_over(&plan);
                    let after = plan.starts().next().map(|request| request.run_id.clone());
                    nexts.extend(after.zip(plan.next));
                    acts.extend(plan.acts);
                    accepted.push(plan.group);
                }
                Err(Refusal::Term { .. }) => {
                    is_deposed = true;
                    break;
                }
                Err(
                    refusal @ (Refusal::TooLarge(_)
                    | Refusal::Twice { .. }
                    | Refusal::Forbidden { .. }),
                ) => self.unfit.push(Unfit { plan, reason: refusal.to_string() }),
                Err(refusal @ (Refusal::Conflict { .. } | Refusal::Behind)) => {
                    self.vitals.groups_refused.add(1);
                    tracing::debug!(pipeline = %plan.group.pipeline, %refusal, "refused");
                    first_conflict.get_or_insert_with(|| refusal.to_string());
                    conflicts.insert(plan.group.pipeline);
                }
            }
        }
        // A job waits for its start, nobody for the rest; what follows it comes behind it.
        acts.sort_by_key(|act| act.start().is_none());
        let starts = acts.first().is_some_and(|act| act.start().is_some());
        for act in acts {
            self.act(act);
        }
        if starts {
            give_way().await;
        }
        for (after, next) in nexts {
            if self.triggers.prepare(&next, Some(&after)) {
                self.foretold.insert(next.pipeline, next.run_id);
            }
        }
        log_events(&accepted);
        for group in &accepted {
            self.progress.saw(group);
        }
        if is_deposed {
            return Err(EngineError::Deposed);
        }
        self.absorb_conflicts(conflicts, first_conflict).await
    }

    /// Others wrote to these pipelines meanwhile: they are loaded again, and planned by what is there now.
    async fn absorb_conflicts(
        &mut self,
        conflicts: BTreeSet<PipelineId>,
        first_conflict: Option<String>,
    ) -> Result<(), EngineError> {
        let (Some(pipeline), Some(refusal)) = (conflicts.first(), first_conflict) else {
            return Ok(());
        };
        let pipelines = conflicts.len();
        tracing::warn!(
            pipelines, first = %pipeline, refusal,
            "other writers changed pipelines of this pass; loading them again"
        );
        self.reload_all(&conflicts).await
    }

    /// Absorbs a group that was accepted, if that is yet to be done.
    fn take_over(&mut self, plan: &Planned) {
        if !plan.is_held {
            self.absorb(plan);
        }
        if plan.ends_work() {
            self.dirty.extend(self.dependents.of(&plan.group.pipeline));
            // What ended makes room for the next of a backfill.
            self.dirty.extend(self.backfilling.get(&plan.group.pipeline).cloned());
        }
    }

    fn absorb(&mut self, plan: &Planned) {
        let pipeline = &plan.group.pipeline;
        self.vitals.count(&plan.group, &self.pipelines);
        self.remembered.gaps.absorb(&plan.group);
        if let Err(unreadable) = self.pipelines.absorb(&plan.group) {
            self.poisoned.push((pipeline.clone(), unreadable.to_string()));
        }
        self.active.count(pipeline, self.pipelines.get_mut(pipeline));
        if self.pipelines.get_mut(pipeline).backfills.is_empty() {
            self.backfilling.remove(pipeline);
        } else {
            self.backfilling.insert(pipeline.clone());
        }
    }

    pub(crate) fn act(&self, act: Act) {
        let triggers = Arc::clone(&self.triggers);
        match act {
            Act::Acknowledge(run_id) => triggers.acknowledge(&run_id),
            Act::Start(request) => {
                let (sender, world) = (self.sender.clone(), Arc::clone(&self.world));
                let under_way = self.starts.begin(&request.run_id);
                let trust = self.trust.clone();
                let task = async move {
                    let _under_way = under_way;
                    // Step down first, ask later: who may have been followed starts nothing.
                    let started = if trust.holds(world.as_ref()) {
                        triggers.start((*request).clone()).await
                    } else {
                        Err(not_trusted())
                    };
                    if let Err(failure) = started {
                        let _loop_is_gone = sender.send(Message::About(News {
                            run_id: request.run_id,
                            at: world.now(),
                            what: NewsOf::NotStarted(failure),
                        }));
                    }
                };
                self.world.spawn("start a job", Box::pin(task));
            }
            Act::Cancel(request) => {
                let (sender, world) = (self.sender.clone(), Arc::clone(&self.world));
                // The wish is in the run's row, where the host of the job finds it.
                if request.host.is_some() && request.host != self.host.name {
                    return;
                }
                let task = async move {
                    if let Err(failure) = triggers.cancel(&request).await {
                        tracing::warn!(run = request.run_id, %failure, "could not ask the job to end");
                        let _loop_is_gone = sender.send(Message::About(News {
                            run_id: request.run_id,
                            at: world.now(),
                            what: NewsOf::NotAsked(failure),
                        }));
                    }
                };
                self.world.spawn("end a job", Box::pin(task));
            }
        }
    }
}

/// Nothing was started; what becomes of it is found out when the lease is sure again.
fn not_trusted() -> StartFailure {
    let message = "the lease may have ended before the job started".to_owned();
    StartFailure { message, category: FailureCategory::Transient, may_have_started: true }
}

/// Lets the tasks go first that wait for this thread: a start that was just asked for, or announced, leaves now, not
/// after everything else that this pass does.
async fn give_way() {
    let mut has_waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Every decision is an event; the log is their shadow. Slots that are queued in many groups are one line of it.
fn log_events(groups: &[Group]) {
    let mut queued: Option<Queued<'_>> = None;
    for group in groups {
        for change in &group.changes {
            let Change::Append(event) = change else { continue };
            let next = Queued::of(group, event);
            if let (Some(so_far), Some(more)) = (&mut queued, &next)
                && so_far.goes_on(more)
            {
                continue;
            }
            if let Some(whole) = std::mem::replace(&mut queued, next) {
                whole.log();
            }
            if queued.is_none() {
                log_event(group, event);
            }
        }
    }
    if let Some(whole) = queued {
        whole.log();
    }
}

fn log_event(group: &Group, event: &EventRecord) {
    let (slot, run) = (event.slot.as_deref(), event.run_id.as_deref());
    let (pipeline, kind) = (group.pipeline.as_str(), event.kind.as_str());
    if kind == "PIPELINE_DECLARED" {
        // The first start would list every pipeline there is.
        tracing::debug!(event = kind, pipeline, "{}", event.message);
    } else {
        let details = Details(&event.details);
        tracing::info!(event = kind, pipeline, slot, run, %details, "{}", event.message);
    }
}

/// What an event carries beside its sentence, as JSON; the log takes it apart for machines.
struct Details<'a>(&'a BTreeMap<String, Value>);

impl std::fmt::Display for Details<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self.0).unwrap_or_default())
    }
}

/// Slots of one schedule that were queued one group after the other.
struct Queued<'a> {
    group: &'a Group,
    event: &'a EventRecord,
    schedule: &'a str,
    first: &'a str,
    last: &'a str,
    count: u64,
    is_bundle: bool,
}

impl<'a> Queued<'a> {
    fn of(group: &'a Group, event: &'a EventRecord) -> Option<Self> {
        if event.kind != CATCHUP_QUEUED {
            return None;
        }
        let text = |name| event.details.get(name).and_then(Value::as_str);
        let (schedule, first, last) = (text("schedule")?, text("first")?, text("last")?);
        let count = event.details.get("count").and_then(Value::as_u64)?;
        Some(Self { group, event, schedule, first, last, count, is_bundle: false })
    }

    /// Takes the next ones in, if they are of the same schedule.
    fn goes_on(&mut self, more: &Self) -> bool {
        let is_same =
            (&self.group.pipeline, self.schedule) == (&more.group.pipeline, more.schedule);
        if is_same {
            (self.last, self.count, self.is_bundle) = (more.last, self.count + more.count, true);
        }
        is_same
    }

    fn log(self) {
        let Self { group, event, schedule, first, last, count, is_bundle } = self;
        if !is_bundle {
            return log_event(group, event);
        }
        let is_rehearsal = event.details.contains_key(DRY_RUN);
        let mut details = serde_json::json!({
            "schedule": schedule, "first": first, "last": last, "count": count,
        });
        if is_rehearsal {
            details[DRY_RUN] = true.into();
        }
        let message = caught_up(schedule, (first, last), (count, is_rehearsal));
        let pipeline = group.pipeline.as_str();
        tracing::info!(event = event.kind.as_str(), pipeline, %details, "{message}");
    }
}
