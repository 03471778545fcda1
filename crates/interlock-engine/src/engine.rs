//! The loop of one shard's owner: scheduler and controller under one lease.
//!
//! A pass is: take what was reported and asked, open what is due, step the pipelines that something
//! happened to. Each of those loads what it needs, calls a pure plan, commits groups, absorbs what was
//! accepted, and only then acts. Nothing is remembered between passes that the store does not know, except
//! answers of evaluators; so a crash at any await is a restart, and a restart is a pass.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
    sync::Arc,
};

use interlock_core::{clock::ClockWatch, id::PipelineId, pipeline::Pipeline, readiness::TraitSpec};
use interlock_ports::trigger::{CancelFailure, LookUp, Report, StartFailure, Triggers, What};
use interlock_store::{
    Hint, Lease, Role, Shard, Store, StoreError, Writer,
    kept::Stretch,
    record::{Unreadable, VersionRecord},
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use crate::{
    asking::Answered,
    batch_size::BatchSize,
    declare::Changes,
    ending::StartsUnderWay,
    gap::Prefetched,
    host::{Host, Part, Trust},
    inbox::Heard,
    progress::{Progress, Said},
    quarantine::Aside,
    readiness_views::ReadinessViews,
    registers::{Active, Dependents, Restraint, Wakes},
    scheduler::plus,
    seam::{Evaluators, Specs, Task, World},
    solo::Scope,
    state::Pipelines,
    tell::Gaps,
    unfit::Unfit,
    upstreams::KnownStarts,
    vitals::{Begins, Counting, Pulse, Vitals},
    write::Planned,
};

/// How long the inbox is left alone while the store says by itself when something comes.
const INBOX_WITH_HINTS: SignedDuration = SignedDuration::from_secs(1);

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

/// What was read, or is shown, and is neither again until it changes; and what was learned of the store.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    /// How many groups one commit takes.
    pub(crate) batch_size: BatchSize,
    /// The misses that stand open.
    pub(crate) gaps: Gaps,
    /// The schedules of upstreams.
    pub(crate) starts: KnownStarts,
    /// What is shown of pipelines that wait.
    pub(crate) readiness: ReadinessViews,
    /// Times in which no report could arrive, as they were at an instant.
    pub(crate) outages: Option<(Timestamp, Arc<[Stretch]>)>,
    /// Up to when a recovered ledger does not know what ran.
    pub(crate) uncertain_until: Option<Timestamp>,
}

/// How much at once.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Runs at the same time, over all pipelines of the shard.
    pub runs_max: u32,
    /// Of those, runs of missed slots at the same time; live slots do not count and are not held up.
    pub catchup_runs_max: u32,
    /// Runs of missed slots that begin within a minute.
    pub catchup_per_minute: u32,
    /// How often a waiting slot is evaluated, where its pipeline does not say.
    pub evaluation_interval: SignedDuration,
    /// How long a run may take before the watchdog calls it stuck, where its pipeline does not say.
    pub stuck_after: SignedDuration,
}

impl Limits {
    /// How many places are not for the past, which catch-up and backfills work off: a live slot does not wait for the
    /// end of a long run of theirs. A tenth, and one at least if there are several.
    pub(crate) fn kept_free(&self) -> u32 {
        (self.runs_max / 10).max(u32::from(self.runs_max > 1))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            runs_max: 1_000,
            catchup_runs_max: 10,
            catchup_per_minute: 60_000,
            evaluation_interval: SignedDuration::from_mins(5),
            stuck_after: SignedDuration::from_mins(30),
        }
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
    /// What changed in the files, whenever something did.
    pub declarations: mpsc::Receiver<Changes>,
    /// Who this is, for the lease.
    pub holder: String,
    /// How often.
    pub pace: Pace,
    /// How much at once.
    pub limits: Limits,
    /// What it shares with the other engines of its process.
    pub host: Host,
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
    /// Rows of one pipeline cannot be read, however often they are asked for.
    #[error("{0}")]
    Damaged(String),
    /// A declaration cannot be had.
    #[error("cannot load the pipeline definition: {0}")]
    Declaration(String),
    /// Somebody else owns the shard now: stop at once (S9).
    #[error("another instance owns these pipelines now")]
    Deposed,
}

impl EngineError {
    /// What a read of one pipeline's rows failed with: what can never be read is that pipeline's alone (S21).
    pub(crate) fn of_one_pipeline(error: StoreError) -> Self {
        if error.is_retryable { Self::Store(error) } else { Self::Damaged(error.message) }
    }

    /// What the store failed with, if it did.
    pub fn of_the_store(&self) -> Option<StoreError> {
        match self {
            Self::Store(error) => Some(error.clone()),
            Self::Damaged(message) => Some(StoreError::permanent(message.as_str())),
            Self::Unreadable(_) | Self::Declaration(_) | Self::Deposed => None,
        }
    }
}

/// What a task of the engine tells the loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// Something about a run.
    About(News),
    /// An evaluator answered.
    Answered(PipelineId, Box<TraitSpec>, Answered),
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
    /// The job could not be asked to end.
    NotAsked(CancelFailure),
    /// What became of a start that this process did not make, or is not sure of.
    LookedUp(LookUp),
    /// Its job can be looked for on another host only.
    Elsewhere {
        /// Which.
        host: String,
        /// Whether anybody is there.
        is_present: bool,
    },
}

/// The owner of one shard.
pub struct Engine {
    pub(crate) world: Arc<dyn World>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) specs: Arc<dyn Specs>,
    pub(crate) triggers: Arc<dyn Triggers>,
    pub(crate) evaluators: Arc<dyn Evaluators>,
    pub(crate) writer: Writer,
    pub(crate) scope: Scope,
    pub(crate) pipelines: Pipelines,
    pub(crate) remembered: Remembered,
    /// When the next slot of a pipeline is due. An entry counts only if it is what the pipeline is armed
    /// for; others were overtaken.
    pub(crate) agenda: BinaryHeap<Reverse<(Timestamp, PipelineId)>>,
    /// When a pipeline is to be looked at again.
    pub(crate) wakes: Wakes,
    /// Pipelines that something happened to.
    pub(crate) dirty: BTreeSet<PipelineId>,
    /// Pipelines that found no room for a run.
    pub(crate) starved: BTreeSet<PipelineId>,
    /// Pipelines that found none for the past: what was left is kept free for live slots.
    pub(crate) starved_past: BTreeSet<PipelineId>,
    /// What the log says about catch-up.
    pub(crate) progress: Progress,
    /// What the limits on catch-up leave.
    pub(crate) restraint: Restraint,
    /// Pipelines whose due slots met rows that others wrote: those are read first.
    pub(crate) blocked: BTreeSet<PipelineId>,
    /// What stands in the ledger of pipelines that are opened together.
    pub(crate) prefetched: Prefetched,
    /// Pipelines with a backfill that is not finished.
    pub(crate) backfilling: BTreeSet<PipelineId>,
    /// Runs under way.
    pub(crate) active: Active,
    /// Who waits for whom.
    pub(crate) dependents: Dependents,
    pub(crate) limits: Limits,
    /// Starts that were asked for and not answered yet.
    pub(crate) starts: StartsUnderWay,
    /// The run of each pipeline that its triggers were told of ahead, as the next.
    pub(crate) foretold: BTreeMap<String, String>,
    /// Pipelines that are left alone for a while.
    pub(crate) aside: Aside,
    /// Pipelines whose rows turned out to be unreadable, and why.
    pub(crate) poisoned: Vec<(PipelineId, String)>,
    /// What is new about runs, in the order it came.
    pub(crate) news: VecDeque<News>,
    /// Taken over in memory and not yet committed; see [`Engine::hold`].
    pub(crate) held: Vec<Planned>,
    /// What the store can never take, until its pipeline is loaded again.
    pub(crate) unfit: Vec<Unfit>,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) host: Host,
    /// Whether the lease can be believed without asking.
    pub(crate) trust: Trust,
    part: Part,
    pub(crate) sender: mpsc::UnboundedSender<Message>,
    pub(crate) messages: mpsc::UnboundedReceiver<Message>,
    pub(crate) reports: mpsc::UnboundedReceiver<Report>,
    declarations: mpsc::Receiver<Changes>,
    /// Whether it began to act: from then on a change of the files is an edit.
    pub(crate) is_live: bool,
    /// Whether the wall clock can be believed.
    pub(crate) clock: ClockWatch,
    pub(crate) renew_at: Timestamp,
    /// When the inbox is looked at next; a pass that something else calls for need not ask again.
    pub(crate) inbox_at: Timestamp,
    /// How much of the inbox was applied.
    pub(crate) heard: Heard,
    /// When the reports of a pipeline are next looked through for old ones.
    pub(crate) old_reports_at: BTreeMap<PipelineId, Timestamp>,
    /// Whether the store says by itself when something comes.
    has_hints: bool,
    /// When the last pass was.
    pub(crate) passed_at: Timestamp,
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
        let Some(mut engine) = Self::take(parts, shard, Scope::Shard).await? else {
            return Ok(None);
        };
        let loaded = engine.load().await;
        engine.vitals.recount(&engine.pipelines, Begins::Yes);
        loaded?;
        Ok(Some(engine))
    }

    /// Takes a shard's lease, and knows nothing yet.
    pub(crate) async fn take(
        parts: Parts,
        shard: Shard,
        scope: Scope,
    ) -> Result<Option<Self>, EngineError> {
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
            limits,
            host,
        } = parts;
        let (trust, asked_at) = (Trust::default(), Trust::clock(world.as_ref()));
        let lease = store.acquire(Role::Engine, shard, &holder, pace.lease).await?;
        let Some(Lease { writer, .. }) = lease else { return Ok(None) };
        let (renew_at, vitals) = (world.now() + pace.lease / 3, Arc::clone(&host.vitals));
        trust.given(asked_at, pace.lease);
        let (part, (sender, messages)) = (Part::of(&host), mpsc::unbounded_channel());
        let evaluators = Arc::new(Counting { evaluators, vitals: Arc::clone(&vitals) });
        Ok(Some(Self {
            pipelines: Pipelines::new(Arc::clone(&specs), store.shard_count()),
            world,
            store,
            specs,
            triggers,
            evaluators,
            writer,
            scope,
            agenda: BinaryHeap::new(),
            wakes: Wakes::default(),
            dirty: BTreeSet::new(),
            starved: BTreeSet::new(),
            starved_past: BTreeSet::new(),
            progress: Progress::default(),
            restraint: Restraint::default(),
            blocked: BTreeSet::new(),
            prefetched: Prefetched::default(),
            backfilling: BTreeSet::new(),
            active: Active::among(Arc::clone(&host.busy)),
            dependents: Dependents::default(),
            limits,
            starts: host.starts.clone(),
            foretold: BTreeMap::new(),
            aside: Aside::new(),
            poisoned: vec![],
            remembered: Remembered::default(),
            news: VecDeque::new(),
            held: vec![],
            unfit: vec![],
            vitals,
            host,
            trust,
            part,
            sender,
            messages,
            reports,
            declarations,
            is_live: false,
            clock: ClockWatch::default(),
            renew_at,
            inbox_at: Timestamp::MIN,
            heard: Heard::default(),
            old_reports_at: BTreeMap::new(),
            has_hints: false,
            passed_at: Timestamp::MIN,
            pace,
        }))
    }

    /// Runs until it is told to stop, the lease is lost, or the store fails for good. Told to stop, it gives
    /// the lease back; jobs go on without it.
    pub async fn run(mut self, mut stop: Task<()>) -> Result<(), EngineError> {
        self.look_up_what_runs().await;
        let mut hint = None;
        loop {
            // Before the inbox is looked at: what comes in between is hinted at too.
            hint = hint.or_else(|| self.store.hint(self.writer.shard));
            self.has_hints = hint.is_some();
            let wake = self.pass().await?;
            let sleep = self.world.sleep_until(wake);
            tokio::select! {
                biased;
                () = &mut stop => return self.leave().await,
                Some(report) = self.reports.recv() => self.take_report(report),
                Some(message) = self.messages.recv() => self.take_message(message),
                Some(files) = self.declarations.recv() => self.declare(&files).await?,
                () = hinted(&mut hint) => {
                    hint = None;
                    self.inbox_at = Timestamp::MIN;
                }
                () = sleep => {}
            }
        }
    }

    /// One pass; answers with the instant at which the next is due at the latest.
    pub async fn pass(&mut self) -> Result<Timestamp, EngineError> {
        self.is_live = true;
        let began = self.world.uptime();
        self.notice_a_step_back();
        self.keep_the_lease().await?;
        self.set_poisoned_aside().await?;
        while let Ok(report) = self.reports.try_recv() {
            self.take_report(report);
        }
        while let Ok(message) = self.messages.try_recv() {
            self.take_message(message);
        }
        self.record_the_news().await?;
        let is_believed = self.believes_the_clock().await?;
        if self.world.now() >= self.inbox_at || !self.scope.is_shard() {
            let rest = if self.has_hints { INBOX_WITH_HINTS } else { self.pace.inbox };
            self.inbox_at = plus(self.world.now(), rest.max(self.pace.inbox));
            self.apply_inbox().await?;
        }
        if is_believed {
            self.plan_what_is_due().await?;
        } else {
            self.settle().await?;
        }
        self.tell_progress();
        self.vitals.pass_ended(self.world.uptime().saturating_sub(began));
        let kept = [
            self.agenda.len(),
            self.pipelines.0.len(),
            self.dirty.len(),
            self.news.len(),
            self.held.len(),
            self.reports.len() + self.messages.len(),
        ];
        self.part.counts(self.pipelines.declared(), kept);
        Ok(self.next_wake())
    }

    /// Everything that is decided by the time.
    async fn plan_what_is_due(&mut self) -> Result<(), EngineError> {
        if self.scope.is_shard() {
            self.open_what_is_due().await?;
        }
        self.advance_backfills().await?;
        self.step_what_is_dirty().await
    }

    /// Renews the lease if it is time to; a pass does so by itself.
    pub async fn keep_the_lease(&mut self) -> Result<(), EngineError> {
        let now = self.world.now();
        if now < self.renew_at {
            return Ok(());
        }
        let asked_at = Trust::clock(self.world.as_ref());
        self.store.renew(self.writer, self.pace.lease).await?.ok_or(EngineError::Deposed)?;
        self.trust.given(asked_at, self.pace.lease);
        self.renew_at = now + self.pace.lease / 3;
        Ok(())
    }

    /// Catch-up is summed up once nothing more is due.
    fn tell_progress(&mut self) {
        let now = self.world.now();
        if self.agenda.peek().is_none_or(|Reverse((at, _))| *at > now) {
            let pipelines = &self.pipelines.0;
            let is_pending = |name: &PipelineId| {
                pipelines.get(name).is_some_and(|state| state.is_caught_up_on())
            };
            for said in self.progress.tell(is_pending, now) {
                self.log_catchup(said, now);
            }
        } else if let Some(said) = self.progress.so_far(now) {
            self.log_catchup(said, now);
        }
        self.part.catchup.passed(now).iter().for_each(Said::log);
    }

    /// Logs what there is to say of a catch-up, together with the other engines of the process.
    pub(crate) fn log_catchup(&self, said: Said, now: Timestamp) {
        self.part.catchup.add(said, now).iter().for_each(Said::log);
    }

    fn next_wake(&self) -> Timestamp {
        let now = self.world.now();
        if self.clock.doubt().is_some() {
            return plus(now, self.pace.inbox);
        }
        if !self.dirty.is_empty() {
            // Something ended in the last commit of the pass that others wait for.
            return now;
        }
        let due = self.agenda.peek().map(|Reverse((at, ..))| *at);
        let wake = self.wakes.first();
        let held = self.restraint.wake();
        let others = [due, wake, held].into_iter().flatten();
        others.fold(self.inbox_at.min(self.renew_at), Ord::min)
    }

    pub(crate) fn take_report(&mut self, Report { run_id, at, what }: Report) {
        if !self.scope.is_about_run(&run_id) {
            // Not acknowledged either: the runner tells it again to the next owner.
            return;
        }
        self.news.push_back(News { run_id, at, what: NewsOf::Job(what) });
    }

    pub(crate) fn take_message(&mut self, message: Message) {
        match message {
            Message::Answered(pipeline, spec, said) => self.answered(&pipeline, &spec, said),
            Message::About(news) => self.news.push_back(news),
        }
    }

    /// Takes up what a pipeline's agenda says: when its next slot is, and whom it waits for.
    pub(crate) fn take_up(&mut self, pipeline: &PipelineId) {
        let upstreams = self.pipelines.get_mut(pipeline).agenda.upstreams.clone();
        self.dependents.set(pipeline, &upstreams);
        self.arm(pipeline);
    }

    /// Puts a pipeline's next slot on the agenda.
    pub(crate) fn arm(&mut self, pipeline: &PipelineId) {
        self.arm_from(pipeline, Timestamp::MIN);
    }

    /// The same, but not to be looked at before an instant. A paused pipeline has no next slot before the
    /// pause ends; one that ends by hand arms it again.
    pub(crate) fn arm_from(&mut self, pipeline: &PipelineId, soonest: Timestamp) {
        if !self.scope.is_shard() {
            return;
        }
        let now = self.world.now();
        let Some(state) = self.pipelines.0.get_mut(pipeline) else { return };
        let next = state.agenda.owed().filter_map(|start| {
            let (watermark, _) = state.watermark(start.schedule.id())?;
            Some(plus(start.schedule.after(watermark)?, start.delay(pipeline)))
        });
        let next = next.min().filter(|_| !state.is_retired());
        let next = match state.pause(now) {
            Some(pause) => next.zip(pause.until).map(|(next, until)| next.max(until)),
            None => next,
        };
        // Stops fire in a pause too.
        let controls = state.agenda.acting().filter_map(|control| {
            let (watermark, _) = state.watermark(control.schedule.id())?;
            control.schedule.after(watermark)
        });
        let controls = controls.min().filter(|_| !state.is_retired());
        let next = next.into_iter().chain(controls).min().map(|next| next.max(soonest));
        if state.armed_at != next {
            state.armed_at = next;
            self.agenda.extend(next.map(|at| Reverse((at, pipeline.clone()))));
        }
    }

    /// Moves once for each of its passes.
    pub fn pulse(&self) -> Pulse {
        self.part.pulse.clone()
    }

    /// Has a pipeline looked at again at an instant, or before.
    pub(crate) fn wake_at(&mut self, pipeline: &PipelineId, at: Timestamp) {
        self.wakes.set(pipeline, at);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.vitals.recount(&self.pipelines, Begins::No);
    }
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// Ends with the hint; never without one.
async fn hinted(hint: &mut Option<Hint>) {
    match hint {
        Some(hint) => hint.await,
        None => std::future::pending().await,
    }
}
