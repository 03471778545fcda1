//! The loop of one shard's owner: scheduler and controller under one lease.
//!
//! A pass is: take what was reported and asked, open what is due, step the pipelines that something
//! happened to. Each of those loads what it needs, calls a pure plan, commits groups, absorbs what was
//! accepted, and only then acts. Nothing is remembered between passes that the store does not know, except
//! answers of evaluators; so a crash at any await is a restart, and a restart is a pass.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
    sync::Arc,
};

use interlock_core::{
    due::after,
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
    readiness::TraitResult,
};
use interlock_store::{
    Change, Group, Key, Lease, LedgerQuery, Refusal, Role, RunQuery, Shard, Store, StoreError,
    Writer,
    record::{Unreadable, VersionRecord},
};
use interlock_trigger::{LookUp, Report, StartFailure, StartRequest, Triggers, What};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use crate::{
    seam::{Evaluators, Specs, Task, World},
    state::{KnownRun, Pipelines, ScheduleState},
    write::{Act, Planned},
};

/// Rows per page when loading.
const PAGE: usize = 1_000;
/// Groups per commit: what one transaction of the smallest engine takes in one go.
const GROUPS_MAX: usize = 2_000;

/// How often the engine does what nothing else wakes it for.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// How long a lease is asked for; renewed at a third of it.
    pub lease: SignedDuration,
    /// How often the inbox is looked at.
    pub inbox: SignedDuration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { lease: SignedDuration::from_secs(15), inbox: SignedDuration::from_millis(100) }
    }
}

/// What an engine is made of.
pub struct Parts {
    /// Time and tasks.
    pub world: Arc<dyn World>,
    /// The ledger.
    pub store: Arc<dyn Store>,
    /// Declarations by version.
    pub specs: Arc<dyn Specs>,
    /// Starts jobs.
    pub triggers: Arc<dyn Triggers>,
    /// Answers for traits.
    pub evaluators: Arc<dyn Evaluators>,
    /// What jobs report.
    pub reports: mpsc::UnboundedReceiver<Report>,
    /// What the files say, whenever they change: all of them each time.
    pub declarations: mpsc::UnboundedReceiver<Vec<Declaration>>,
    /// Who this is, for the lease.
    pub holder: String,
    /// How often.
    pub pace: Pace,
}

/// A declared pipeline.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// What it declares.
    pub pipeline: Arc<Pipeline>,
    /// The hash of that.
    pub version: u64,
    /// Its sources, to decode it again later.
    pub source: VersionRecord,
}

/// Why the engine cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    /// The store holds something that this version cannot read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Somebody else owns the shard now: stop at once (S9).
    #[error("another instance owns the pipelines now")]
    Deposed,
}

/// What a task of the engine tells the loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// Something about a run.
    About(News),
    /// An evaluator answered.
    Answered(PipelineId, String, TraitResult),
}

/// Something new about a run, to be recorded.
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) run_id: String,
    pub(crate) at: Timestamp,
    pub(crate) what: NewsOf,
}

/// Where the news comes from.
#[derive(Debug)]
pub(crate) enum NewsOf {
    /// The job's adapter.
    Job(What),
    /// A start was refused, or may have happened.
    NotStarted(StartFailure),
    /// What became of a start that this process did not make, or is not sure of.
    LookedUp(LookUp),
}

/// The owner of one shard.
pub struct Engine {
    pub(crate) world: Arc<dyn World>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) specs: Arc<dyn Specs>,
    pub(crate) triggers: Arc<dyn Triggers>,
    pub(crate) evaluators: Arc<dyn Evaluators>,
    pub(crate) writer: Writer,
    pub(crate) pipelines: Pipelines,
    /// When the next slot of a schedule is due.
    pub(crate) agenda: BinaryHeap<Reverse<(Timestamp, PipelineId, ScheduleId)>>,
    /// When a pipeline is to be looked at again.
    pub(crate) wakes: BTreeSet<(Timestamp, PipelineId)>,
    /// Pipelines that something happened to.
    pub(crate) dirty: BTreeSet<PipelineId>,
    /// What is new about runs, in the order it came.
    pub(crate) news: VecDeque<News>,
    pub(crate) sender: mpsc::UnboundedSender<Message>,
    messages: mpsc::UnboundedReceiver<Message>,
    reports: mpsc::UnboundedReceiver<Report>,
    declarations: mpsc::UnboundedReceiver<Vec<Declaration>>,
    renew_at: Timestamp,
    pace: Pace,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl Engine {
    /// Takes a shard's lease and loads what the store knows; `None` while somebody else holds it.
    pub async fn open(parts: Parts, shard: Shard) -> Result<Option<Self>, EngineError> {
        let Parts {
            world,
            store,
            specs,
            triggers,
            evaluators,
            reports,
            declarations,
            holder,
            pace,
        } = parts;
        let lease = store.acquire(Role::Engine, shard, &holder, pace.lease).await?;
        let Some(Lease { writer, .. }) = lease else { return Ok(None) };
        let (sender, messages) = mpsc::unbounded_channel();
        let renew_at = world.now() + pace.lease / 3;
        let mut engine = Self {
            world,
            store,
            specs,
            triggers,
            evaluators,
            writer,
            pipelines: Pipelines::default(),
            agenda: BinaryHeap::new(),
            wakes: BTreeSet::new(),
            dirty: BTreeSet::new(),
            news: VecDeque::new(),
            sender,
            messages,
            reports,
            declarations,
            renew_at,
            pace,
        };
        engine.load().await?;
        Ok(Some(engine))
    }

    async fn load(&mut self) -> Result<(), EngineError> {
        let shard = self.writer.shard;
        let mut last: Option<PipelineId> = None;
        loop {
            let page = self.store.agenda(shard, last.as_ref(), PAGE).await?;
            for row in page.items {
                last = Some(row.pipeline.clone());
                let state = self.pipelines.get_mut(&row.pipeline);
                state.row = Some((row.record.record, row.record.revision));
                let watermarks = row.watermarks.into_iter();
                state.watermarks =
                    watermarks.map(|(id, row)| (id, (row.record.at, row.revision))).collect();
            }
            if !page.more {
                break;
            }
        }
        let mut last = None;
        loop {
            let page = self.store.open_slots(shard, last.as_ref(), PAGE).await?;
            for row in &page.items {
                self.pipelines.get_mut(&row.pipeline).load_open(row)?;
                self.dirty.insert(row.pipeline.clone());
            }
            last = page
                .items
                .last()
                .map(|row| (row.pipeline.clone(), row.nominal, row.schedule.clone()));
            if !page.more {
                break;
            }
        }
        for pipeline in self.dirty.clone() {
            self.load_runs(&pipeline).await?;
        }
        self.load_incidents().await
    }

    /// Loads the runs of a pipeline's open slots.
    async fn load_runs(&mut self, pipeline: &PipelineId) -> Result<(), EngineError> {
        let places: Vec<_> = self.pipelines.get_mut(pipeline).open.keys().cloned().collect();
        for (nominal, schedule) in places {
            let slot = Some((schedule, nominal));
            let query = RunQuery {
                pipeline: Some(pipeline.clone()),
                slot,
                limit: 100,
                ..RunQuery::default()
            };
            let mut page = self.store.runs(&query).await?;
            // Newest first is how people read them; here the oldest comes first.
            page.items.reverse();
            let state = self.pipelines.get_mut(pipeline);
            for row in page.items {
                let place = (row.key.nominal, row.key.schedule.clone());
                let generation = state.open.get(&place).map(|open| open.slot.generation);
                if generation == Some(row.key.generation) {
                    state.put_run(KnownRun {
                        key: row.key,
                        record: row.record,
                        revision: row.revision,
                    });
                }
            }
        }
        Ok(())
    }

    /// Forgets what it thought of a pipeline and loads it again.
    pub(crate) async fn reload(&mut self, pipeline: &PipelineId) -> Result<(), EngineError> {
        let ids: Vec<_> = self.pipelines.get_mut(pipeline).watermarks.keys().cloned().collect();
        let mut keys = vec![Key::Pipeline];
        keys.extend(ids.iter().cloned().map(Key::Watermark));
        let rows = self.store.read(pipeline, &keys).await?;
        let query = LedgerQuery {
            pipeline: Some(pipeline.clone()),
            disposition: Some("open".to_owned()),
            ..LedgerQuery::everything(PAGE)
        };
        let open = self.store.ledger(&query).await?;
        let state = self.pipelines.get_mut(pipeline);
        for (key, row) in keys.iter().zip(rows) {
            if let Some(row) = row {
                state.put(key, &row.record, row.revision)?;
            }
        }
        state.open.clear();
        state.sensors = None;
        for row in &open.items {
            state.load_open(row)?;
        }
        self.load_runs(pipeline).await?;
        self.reload_incidents(pipeline).await?;
        // What was refused may have been a job's last word, which is not said twice: ask for it.
        let active = self.active_requests().into_iter();
        active.filter(|run| run.pipeline == pipeline.as_str()).for_each(|run| self.look_up(run));
        self.arm(pipeline);
        self.dirty.insert(pipeline.clone());
        Ok(())
    }

    /// Runs until it is told to stop, the lease is lost, or the store fails for good. Told to stop, it gives
    /// the lease back; jobs go on without it.
    pub async fn run(mut self, mut stop: Task<()>) -> Result<(), EngineError> {
        self.look_up_what_runs();
        loop {
            let wake = self.pass().await?;
            let sleep = self.world.sleep_until(wake);
            tokio::select! {
                biased;
                () = &mut stop => {
                    self.store.release(self.writer).await?;
                    return Ok(());
                }
                Some(report) = self.reports.recv() => self.take_report(report),
                Some(message) = self.messages.recv() => self.take_message(message),
                Some(files) = self.declarations.recv() => self.declare(&files).await?,
                () = sleep => {}
            }
        }
    }

    /// One pass; answers with the instant at which the next is due at the latest.
    pub async fn pass(&mut self) -> Result<Timestamp, EngineError> {
        self.keep_the_lease().await?;
        while let Ok(report) = self.reports.try_recv() {
            self.take_report(report);
        }
        while let Ok(message) = self.messages.try_recv() {
            self.take_message(message);
        }
        self.record_the_news().await?;
        self.apply_inbox().await?;
        self.open_what_is_due().await?;
        self.step_what_is_dirty().await?;
        Ok(self.next_wake())
    }

    async fn keep_the_lease(&mut self) -> Result<(), EngineError> {
        let now = self.world.now();
        if now < self.renew_at {
            return Ok(());
        }
        self.store.renew(self.writer, self.pace.lease).await?.ok_or(EngineError::Deposed)?;
        self.renew_at = now + self.pace.lease / 3;
        Ok(())
    }

    fn next_wake(&self) -> Timestamp {
        let now = self.world.now();
        let inbox = now + self.pace.inbox;
        let due = self.agenda.peek().map(|Reverse((at, ..))| *at);
        let wake = self.wakes.first().map(|(at, _)| *at);
        [Some(inbox), Some(self.renew_at), due, wake].into_iter().flatten().min().unwrap_or(inbox)
    }

    /// Commits groups, absorbs what was accepted, and acts on it. A conflict reloads the pipeline, which is
    /// then planned again; a lost term ends everything.
    pub(crate) async fn commit(&mut self, planned: Vec<Planned>) -> Result<(), EngineError> {
        let mut planned =
            planned.into_iter().filter(|plan| !plan.group.changes.is_empty()).peekable();
        while planned.peek().is_some() {
            let mut batch: Vec<_> = planned.by_ref().take(GROUPS_MAX).collect();
            self.tell(&mut batch).await?;
            let groups: Vec<Group> = batch.iter().map(|plan| plan.group.clone()).collect();
            let results = self.store.commit(groups).await?;
            let mut conflicts = BTreeSet::new();
            for (plan, result) in batch.into_iter().zip(results) {
                match result {
                    Ok(_) => {
                        log_events(&plan.group);
                        self.pipelines.absorb(&plan.group)?;
                        plan.acts.into_iter().for_each(|act| self.act(act));
                    }
                    Err(Refusal::Term { .. }) => return Err(EngineError::Deposed),
                    Err(refusal) => {
                        tracing::warn!(pipeline = %plan.group.pipeline, %refusal, "reloading");
                        conflicts.insert(plan.group.pipeline);
                    }
                }
            }
            for pipeline in conflicts {
                self.reload(&pipeline).await?;
            }
        }
        Ok(())
    }

    fn act(&self, act: Act) {
        let triggers = Arc::clone(&self.triggers);
        match act {
            Act::Acknowledge(run_id) => triggers.acknowledge(&run_id),
            Act::Start(request) => {
                let (sender, world) = (self.sender.clone(), Arc::clone(&self.world));
                let task = async move {
                    if let Err(failure) = triggers.start((*request).clone()).await {
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
                let task = async move {
                    if let Err(failure) = triggers.cancel(&request).await {
                        tracing::warn!(run = request.run_id, %failure, "could not ask the job to end");
                    }
                };
                self.world.spawn("end a job", Box::pin(task));
            }
        }
    }

    /// Finds out what became of the jobs that an earlier process started (S18).
    fn look_up_what_runs(&self) {
        for request in self.active_requests() {
            self.look_up(request);
        }
    }

    /// Asks what became of a start; the answer arrives as a message.
    pub(crate) fn look_up(&self, request: StartRequest) {
        let (triggers, sender) = (Arc::clone(&self.triggers), self.sender.clone());
        let world = Arc::clone(&self.world);
        let task = async move {
            let found = triggers.look_up(&request).await;
            let found =
                found.unwrap_or_else(|failure| LookUp::CannotTell { reason: failure.message });
            let what = NewsOf::LookedUp(found);
            let news = News { run_id: request.run_id, at: world.now(), what };
            let _loop_is_gone = sender.send(Message::About(news));
        };
        self.world.spawn("look a job up", Box::pin(task));
    }

    fn take_report(&mut self, Report { run_id, at, what }: Report) {
        self.news.push_back(News { run_id, at, what: NewsOf::Job(what) });
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Answered(pipeline, kind, result) => self.answered(&pipeline, kind, result),
            Message::About(news) => self.news.push_back(news),
        }
    }

    /// Puts a schedule's next slot on the agenda.
    pub(crate) fn arm(&mut self, pipeline: &PipelineId) {
        let Some(state) = self.pipelines.0.get(pipeline) else { return };
        if state.is_retired() {
            return;
        }
        for ScheduleState { schedule, .. } in &state.schedules {
            let watermark = state.watermark(schedule.id()).map(|(at, _)| at);
            if let Some(next) = watermark.and_then(|watermark| after(schedule, watermark)) {
                self.agenda.push(Reverse((next, pipeline.clone(), schedule.id().clone())));
            }
        }
    }

    /// Has a pipeline looked at again at an instant.
    pub(crate) fn wake_at(&mut self, pipeline: &PipelineId, at: Timestamp) {
        self.wakes.insert((at, pipeline.clone()));
    }
}

/// Every decision is an event; the log is their shadow.
fn log_events(group: &Group) {
    for change in &group.changes {
        if let Change::Append(event) = change {
            let (slot, run) = (event.slot.as_deref(), event.run_id.as_deref());
            tracing::info!(pipeline = %group.pipeline, slot, run, "{} {}", event.kind, event.message);
        }
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("holder", &self.holder).finish_non_exhaustive()
    }
}
