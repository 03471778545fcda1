//! Committing: what was planned becomes true in the store, then in memory, and only then in the world.

use std::{collections::BTreeSet, sync::Arc, task::Poll};

use interlock_core::retry::FailureCategory;
use interlock_store::{Accepted, Change, Group, Refusal};
use interlock_trigger::{CancelFailure, StartFailure};

use crate::{
    aside::guarded,
    engine::{Engine, EngineError, Message, News, NewsOf},
    write::{Act, Planned},
};

/// Groups per commit: what one transaction of the smallest engine takes in one go.
const GROUPS_MAX: usize = 2_000;

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
    /// The next batch is handed in before the last one is looked at, so that the store writes while the engine
    /// takes over. What a batch does not yet know of the one before it, its preconditions do.
    pub(crate) async fn commit(&mut self, planned: Vec<Planned>) -> Result<(), EngineError> {
        let store = Arc::clone(&self.store);
        let planned = std::mem::take(&mut self.held).into_iter().chain(planned);
        let mut planned = planned.filter(|plan| !plan.group.changes.is_empty()).peekable();
        let mut under_way = None;
        loop {
            let mut next = None;
            if planned.peek().is_some() {
                let mut batch: Vec<_> = planned.by_ref().take(GROUPS_MAX).collect();
                self.tell(&mut batch).await?;
                let groups: Vec<Group> = batch.iter().map(|plan| plan.group.clone()).collect();
                next = Some((batch, store.commit(groups)));
            }
            match std::mem::replace(&mut under_way, next) {
                Some((batch, answer)) => {
                    let results = answer.await?;
                    self.take_results(batch, results).await?;
                    // A pass over very much, on a slow store, is no hang, and must not outlive its lease.
                    self.pulse().beat();
                    self.keep_the_lease().await?;
                }
                None if under_way.is_none() => return Ok(()),
                None => {}
            }
        }
    }

    async fn take_results(
        &mut self,
        batch: Vec<Planned>,
        results: Vec<Result<Accepted, Refusal>>,
    ) -> Result<(), EngineError> {
        let mut conflicts = BTreeSet::new();
        let (mut accepted, mut acts, mut is_deposed) = (vec![], vec![], false);
        for (plan, result) in batch.into_iter().zip(results) {
            match result {
                Ok(_) => {
                    self.take_over(&plan);
                    acts.extend(plan.acts);
                    accepted.push(plan.group);
                }
                Err(Refusal::Term { .. }) => {
                    is_deposed = true;
                    break;
                }
                Err(refusal) => {
                    self.vitals.groups_refused.add(1);
                    tracing::warn!(pipeline = %plan.group.pipeline, %refusal, "reloading");
                    conflicts.insert(plan.group.pipeline);
                }
            }
        }
        // A job waits for its start, nobody for the rest.
        acts.sort_by_key(|act| !act.is_start());
        let starts = acts.first().is_some_and(Act::is_start);
        for act in acts {
            self.act(act);
        }
        if starts {
            give_way().await;
        }
        for group in &accepted {
            log_events(group);
            self.progress.saw(group, self.world.now());
        }
        if is_deposed {
            return Err(EngineError::Deposed);
        }
        for pipeline in conflicts {
            if let Err(reason) = guarded(self.reload(&pipeline)).await? {
                self.poisoned.push((pipeline, reason));
            }
        }
        Ok(())
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
                let other =
                    request.host.clone().filter(|host| self.host.name.as_ref() != Some(host));
                let task = async move {
                    let asked = match other {
                        Some(host) => Err(out_of_reach(&host)),
                        None => triggers.cancel(&request).await,
                    };
                    if let Err(failure) = asked {
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
    let message = "the lease may have run out before it was started".to_owned();
    StartFailure { message, category: FailureCategory::Transient, may_have_started: true }
}

fn out_of_reach(host: &str) -> CancelFailure {
    let message = format!("it runs on {host}, and another host owns its pipeline now");
    CancelFailure { message, is_retryable: false }
}

/// Lets the tasks go first that wait for this thread: a start that was just asked for leaves now, not after
/// everything else that this pass does.
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

/// Every decision is an event; the log is their shadow.
fn log_events(group: &Group) {
    for change in &group.changes {
        if let Change::Append(event) = change {
            let (slot, run) = (event.slot.as_deref(), event.run_id.as_deref());
            let (pipeline, kind) = (group.pipeline.as_str(), event.kind.as_str());
            if kind == "PIPELINE_DECLARED" {
                // The first start would list every pipeline there is.
                tracing::debug!(event = kind, pipeline, "{}", event.message);
            } else {
                tracing::info!(event = kind, pipeline, slot, run, "{}", event.message);
            }
        }
    }
}
