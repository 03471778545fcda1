//! The resident watchdog: a loop over timers, with a sweep as the safety net.
//!
//! A pass is: follow what changed, take what is due (heap, due index, a page of the sweep), gather snapshots, judge,
//! commit, move the own watermark. It reads nothing about pipelines of which nothing is due.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use interlock_core::{clock::ClockWatch, id::PipelineId};
use interlock_store::{
    Change, DueRow, Expect, Group, Key, Record, Shard, Store, StoreError, Writer,
    coverage::deaf,
    record::{PipelineRecord, Shared},
};
use jiff::{SignedDuration, Timestamp};

mod opening;

pub use self::opening::{Hearers, Pace, Parts};
use crate::{
    check::Check,
    finding::CheckName,
    gather::{Agendas, Gatherer, Next, Question, Surroundings},
    judging::{
        COVERAGE, DUE_INDEX, Done, INBOX, Outcome, PreparedGroup, UsableChecks, commit_together,
        for_good, judge_all, none_can_be_done, prepare, unapplied,
    },
    load::{self, PAGE},
    owed::plus,
    plan::{Planned, Planner},
    scanning::Scanning,
    seam::{Task, Telling, World},
    sweep::Sweep,
    vitals::WatchdogVitals,
    watched::Watchlist,
};

/// Pipelines that are judged before their findings are committed.
const CHUNK: usize = 500;
/// Pipelines that are judged in one pass; the rest follows at once.
const PASS_MAX: usize = 20_000;
/// Due entries are read so many looks ahead: until then nothing need be read if nothing was written.
const LOOKS_AHEAD: i32 = 20;
/// A gap between two heartbeats that is longer than this is a time in which nobody watched.
const BLIND_AFTER: SignedDuration = SignedDuration::from_secs(60);
/// Who wakes up that much later than it meant to has slept.
const SLEPT: SignedDuration = SignedDuration::from_millis(4_500);
/// How long a pipeline that could not be judged is left alone.
const ASIDE_FOR: SignedDuration = SignedDuration::from_secs(60);
/// When what rests on a source that could not be read is looked at again.
const SOURCE_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// When a pipeline is judged again whose rows changed under the plan.
const AGAIN_AFTER: SignedDuration = SignedDuration::from_millis(200);

/// Why the watchdog cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WatchdogError {
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    /// Another watchdog has the lease now.
    #[error("another watchdog is at work now")]
    Deposed,
}

/// The watchdog of one shard.
pub struct Watchdog {
    pub(crate) world: Arc<dyn World>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) telling: Arc<dyn Telling>,
    pub(crate) checks: Vec<(CheckName, Check)>,
    pub(crate) vitals: Arc<WatchdogVitals>,
    came_round: Arc<dyn Fn() + Send + Sync>,
    failed: Arc<dyn Fn(&StoreError) + Send + Sync>,
    pub(crate) notified: Arc<dyn Fn() + Send + Sync>,
    pub(crate) pace: Pace,
    pub(crate) writer: Writer,
    pub(crate) list: Watchlist,
    /// Everything up to this was judged, as it is stored.
    pub(crate) judged: Timestamp,
    pub(crate) judged_revision: u64,
    pub(crate) blind: Vec<(Timestamp, Timestamp)>,
    /// The last event that was looked at.
    pub(crate) followed: u64,
    /// What the store said when events and due entries were last read.
    seen: Option<u64>,
    /// When the next of the due entries is due that were read then.
    pub(crate) due_at: Timestamp,
    /// Pipelines that could not be judged, until when they are left alone.
    pub(crate) aside: BTreeMap<PipelineId, Timestamp>,
    /// Pipelines whose agendas cannot be used, and why.
    pub(crate) unwatched: BTreeMap<PipelineId, String>,
    /// The checks that people were told of.
    pub(crate) told_failed: BTreeSet<CheckName>,
    /// Sources that could not be read when they were last asked, with the checks that rest on them.
    pub(crate) unreadable: BTreeMap<&'static str, BTreeMap<CheckName, String>>,
    /// Whether they were told that some pipelines are not watched.
    pub(crate) told_unwatched: bool,
    pub(crate) sweep: Sweep,
    pub(crate) renew_at: Timestamp,
    pub(crate) beat_at: Timestamp,
    /// Whether the wall clock can be believed.
    pub(crate) clock: ClockWatch,
    /// When the last pass ended.
    pub(crate) rested_at: Timestamp,
    pub(crate) hears: Hearers,
    /// When it is looked next whether a bark is due.
    pub(crate) bark_at: Timestamp,
    pub(crate) scanning: Scanning,
    pub(crate) agendas: Arc<Mutex<Agendas>>,
}

impl std::fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchdog").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl Watchdog {
    /// Runs until it is told to stop or the lease is lost; a store that fails is tried again.
    pub async fn run(mut self, mut stop: Task<()>) -> Result<(), WatchdogError> {
        loop {
            let wake = match self.pass().await {
                Ok(wake) => wake,
                Err(WatchdogError::Store(error)) if error.is_retryable => {
                    tracing::error!(%error, "the watchdog cannot read or write the store");
                    (self.failed)(&error);
                    plus(self.world.now(), SignedDuration::from_secs(1))
                }
                Err(error) => return Err(error),
            };
            let sleep = self.world.sleep_until(wake);
            tokio::select! {
                biased;
                () = &mut stop => {
                    self.store.release(self.writer).await?;
                    return Ok(());
                }
                () = sleep => {}
            }
        }
    }

    /// One pass; answers with the instant at which the next is due at the latest.
    pub async fn pass(&mut self) -> Result<Timestamp, WatchdogError> {
        let now = self.world.now();
        self.notice_a_step_back(now);
        self.keep_the_lease(now).await?;
        if !self.believes_the_clock(now).await? {
            self.rested_at = now;
            (self.came_round)();
            return Ok(plus(now, self.pace.look));
        }
        self.notice_a_sleep(now).await?;
        let moved = self.store.moved();
        if moved.is_none() || moved != self.seen {
            self.follow().await?;
            self.due_at = now;
            self.seen = moved;
        }
        let judged = self.judge_what_is_due(now).await;
        if judged.is_err() {
            // What was taken off the heap was not judged.
            self.list.settle(plus(now, AGAIN_AFTER), plus(now, AGAIN_AFTER));
            self.due_at = now;
        }
        judged?;
        self.tell_who_is_unwatched(now).await?;
        self.move_the_watermark(now).await?;
        self.bark(now).await?;
        self.scan(now).await?;
        self.vitals.came_round(now);
        (self.came_round)();
        self.rested_at = self.world.now();
        let soon = plus(now, self.pace.look);
        let soon = if self.due_at > now { soon.min(self.due_at) } else { soon };
        Ok(self.list.next_at().map_or(soon, |at| at.min(soon)))
    }

    async fn judge_what_is_due(&mut self, now: Timestamp) -> Result<(), WatchdogError> {
        let mut usable = UsableChecks::new(&self.checks);
        let mut asked = self.questions(now, &mut usable).await?;
        self.sweep_a_page(now, &mut asked, &mut usable).await?;
        self.look_at(asked, usable, now).await
    }

    async fn keep_the_lease(&mut self, now: Timestamp) -> Result<(), WatchdogError> {
        if now < self.renew_at {
            return Ok(());
        }
        let renewed = self.store.renew(self.writer, self.pace.lease).await?;
        renewed.ok_or(WatchdogError::Deposed)?;
        self.renew_at = plus(now, self.pace.lease / 3);
        Ok(())
    }

    /// A process or a machine that slept begins like one that was started: the scheduler slept too.
    async fn notice_a_sleep(&mut self, now: Timestamp) -> Result<(), WatchdogError> {
        let slept = now.duration_since(self.rested_at);
        if slept <= self.pace.look + SLEPT {
            return Ok(());
        }
        self.list.settle(now, plus(now, self.pace.settle));
        if slept <= BLIND_AFTER {
            return Ok(());
        }
        // The engine slept too: as after a start, it records for a while what passed meanwhile.
        self.scanning.be_patient_until(plus(now, self.pace.scan_after));
        self.blind.push((self.rested_at, now));
        let record = load::coverage_record(&self.blind, now);
        let changes = vec![Change::Put(load::coverage_key(self.writer.shard), Expect::Any, record)];
        let (pipeline, writer) = (PipelineId::system(), self.writer);
        let results = self.store.commit(vec![Group { pipeline, writer, changes }]).await?;
        let is_done = results.iter().all(Result::is_ok);
        if is_done { Ok(()) } else { Err(WatchdogError::Deposed) }
    }

    /// Takes up what changed: every change of a pipeline's row has its event.
    async fn follow(&mut self) -> Result<(), WatchdogError> {
        let mut changed = BTreeSet::new();
        loop {
            let page = self.store.events_for(self.writer.shard, self.followed, PAGE).await?;
            for row in page.items {
                self.followed = row.number;
                if row.pipeline == PipelineId::system() {
                    // The order to bark may be another.
                    self.bark_at = Timestamp::MIN;
                }
                match row.record.kind.as_str() {
                    "JOB_COMPLETED" => self.vitals.caught_up(&row.pipeline),
                    "SENSOR_REPORTED" if self.is_mine(&row.pipeline) => {
                        let mut agendas =
                            self.agendas.lock().unwrap_or_else(PoisonError::into_inner);
                        if let Some(settled) = agendas.settled(&row.pipeline) {
                            settled.hear();
                        }
                    }
                    kind if kind.starts_with("PIPELINE_") && self.is_mine(&row.pipeline) => {
                        changed.insert(row.pipeline);
                    }
                    _ => {}
                }
            }
            if !page.more {
                break;
            }
        }
        for pipeline in changed {
            self.read_again(&pipeline).await?;
        }
        Ok(())
    }

    /// Whether a pipeline is of this watchdog's shard; events are those of all of them.
    pub(crate) fn is_mine(&self, pipeline: &PipelineId) -> bool {
        Shard::of(pipeline, self.store.shard_count()) == self.writer.shard
    }

    pub(crate) async fn read_again(&mut self, pipeline: &PipelineId) -> Result<(), WatchdogError> {
        let rows = self.store.read(pipeline, &[Key::Pipeline]).await?;
        if let Some(row) = rows.into_iter().flatten().next()
            && let Record::Pipeline(record) = &row.record
        {
            self.take(pipeline, record, row.revision);
        }
        Ok(())
    }

    fn take(&mut self, pipeline: &PipelineId, record: &PipelineRecord, revision: u64) {
        let shared = &mut Shared::default();
        self.unwatched.remove(pipeline);
        if let Err(reason) = self.list.take(pipeline, (record, revision), self.judged, shared) {
            tracing::error!(%pipeline, %reason, "cannot read its schedule: the watchdog does not watch it");
            self.unwatched.insert(pipeline.clone(), reason.to_string());
        }
    }

    /// What is due now: by the heap, and by the due index.
    async fn questions(
        &mut self,
        now: Timestamp,
        usable: &mut UsableChecks,
    ) -> Result<BTreeMap<PipelineId, Question>, WatchdogError> {
        let mut asked: BTreeMap<PipelineId, Question> = BTreeMap::new();
        while asked.len() < PASS_MAX
            && let Some((pipeline, from)) = self.list.pop(now)
        {
            asked.entry(pipeline).or_default().from = Some(from);
        }
        self.aside.retain(|_, until| *until > now);
        if now < self.due_at {
            return Ok(asked);
        }
        let due = self.due_rows(now).await;
        for row in usable.read(DUE_INDEX, for_good(due)?) {
            if let Some(due) = row.obligation() {
                asked.entry(row.pipeline).or_default().due.push(due);
            }
        }
        Ok(asked)
    }

    /// Due entries, except of pipelines that are left alone: those must not fill the page.
    async fn due_rows(&mut self, now: Timestamp) -> Result<Vec<DueRow>, StoreError> {
        let (mut limit, ahead) = (PAGE, plus(now, self.pace.look * LOOKS_AHEAD));
        loop {
            let page = self.store.due(self.writer.shard, ahead, limit).await?;
            let all = page.items.len();
            let mut rows = page.items;
            // What is left alone, or is being handled, is asked for again by the clock.
            let is_any_due = rows.first().is_some_and(|row| row.at <= now);
            let next = rows.iter().map(|row| row.at).find(|at| *at > now);
            rows.retain(|row| row.at <= now && !self.aside.contains_key(&row.pipeline));
            if next.is_some() || !page.more || rows.len() * 2 > all || limit >= 64 * PAGE {
                let next = next.unwrap_or(ahead);
                self.due_at = if is_any_due { now } else { next };
                return Ok(rows);
            }
            limit *= 4;
        }
    }

    /// Judges what was asked, portion by portion.
    async fn look_at(
        &mut self,
        mut asked: BTreeMap<PipelineId, Question>,
        mut usable: UsableChecks,
        now: Timestamp,
    ) -> Result<(), WatchdogError> {
        for (pipeline, until) in &self.aside {
            if asked.remove(pipeline).is_some_and(|question| question.from.is_some()) {
                self.list.arm(pipeline, *until);
            }
        }
        if asked.is_empty() {
            // A source that could not be read is told of also when there is nothing else to do, and so is its end.
            return if self.note_sources(&mut usable) {
                self.tell_what_failed(&usable.failed, now).await
            } else {
                Ok(())
            };
        }
        let mut around = Surroundings {
            unapplied: BTreeSet::new(),
            blind: self.blind.clone(),
            late_after: self.pace.late_after,
            now,
        };
        if asked.values().any(|question| question.from.is_some()) {
            let (store, shard) = (self.store.as_ref(), self.writer.shard);
            let inbox = unapplied(store, shard).await;
            around.unapplied = usable.read(INBOX, for_good(inbox)?);
        }
        let is_reported = |(pipeline, question): (&PipelineId, &Question)| {
            question.from.is_some() && self.list.is_reported(pipeline)
        };
        if asked.iter().any(is_reported) {
            let deaf = deaf(self.store.as_ref(), &self.blind, now).await;
            around.blind = usable.read(COVERAGE, for_good(deaf)?);
        }
        if usable.failed.contains_key(&CheckName::MissedSchedules) {
            // What cannot be judged now must not count as judged.
            for (pipeline, question) in asked.iter_mut().filter(|(_, it)| it.from.is_some()) {
                question.from = None;
                self.list.arm(pipeline, plus(now, SOURCE_AGAIN));
            }
        }
        self.note_sources(&mut usable);
        self.judge_by_portions(asked, &around, &mut usable).await?;
        self.tell_what_failed(&usable.failed, now).await
    }

    /// Remembers which of the sources that were asked could not be read. One that was not asked now is as it was before: its
    /// checks are still failed. Answers whether anything changed.
    fn note_sources(&mut self, usable: &mut UsableChecks) -> bool {
        let before = self.unreadable.clone();
        for (source, failed) in std::mem::take(&mut usable.sources) {
            if failed.is_empty() {
                self.unreadable.remove(source);
            } else if !before.contains_key(source) {
                let reason = failed.values().next().map(String::as_str).unwrap_or_default();
                tracing::error!(reason, "the watchdog cannot read {source}");
                self.unreadable.insert(source, failed);
            }
        }
        for (name, reason) in self.unreadable.values().flatten() {
            usable.failed.entry(*name).or_insert_with(|| reason.clone());
        }
        !self.unreadable.keys().eq(before.keys())
    }

    /// While the store makes one portion durable the next is read, judged, and told of: the one waits for the disk, the other computes.
    async fn judge_by_portions(
        &mut self,
        asked: BTreeMap<PipelineId, Question>,
        around: &Surroundings,
        usable: &mut UsableChecks,
    ) -> Result<(), WatchdogError> {
        let store = Arc::clone(&self.store);
        let mut asked = asked.into_iter();
        let (mut portion, mut groups) = (Portion::default(), Vec::new());
        loop {
            let chunk: Vec<_> = asked.by_ref().take(CHUNK).collect();
            let is_last = chunk.is_empty();
            let (results, next) = tokio::join!(
                commit_together(store.as_ref(), std::mem::take(&mut groups)),
                self.prepare_portion(chunk, around, usable),
            );
            self.settle_portion(portion, results?, around.now, &mut usable.failed)?;
            // A pass over very much, on a slow store, is no hang, and must not outlive its lease.
            (self.came_round)();
            self.keep_the_lease(self.world.now()).await?;
            if is_last {
                return Ok(());
            }
            (portion, groups) = next?;
        }
    }

    /// Judges a portion; answers with the groups that are to be committed for it.
    async fn prepare_portion(
        &mut self,
        chunk: Vec<(PipelineId, Question)>,
        around: &Surroundings,
        usable: &mut UsableChecks,
    ) -> Result<(Portion, Vec<PreparedGroup>), StoreError> {
        let (store, telling) = (Arc::clone(&self.store), Arc::clone(&self.telling));
        let (agendas, zones) = (Arc::clone(&self.agendas), Arc::clone(&self.list.zones));
        let gatherer = Gatherer { store: store.as_ref(), around, zones: &zones, agendas: &agendas };
        let outcome = judge_all(&gatherer, &self.list, &usable.checks, chunk).await?;
        let mut portion = self.plan_portion(outcome, around, &mut usable.failed);
        let groups = prepare(store.as_ref(), telling.as_ref(), &mut portion.planned).await?;
        Ok((portion, groups))
    }

    fn plan_portion(
        &mut self,
        outcome: Outcome,
        around: &Surroundings,
        failed: &mut BTreeMap<CheckName, String>,
    ) -> Portion {
        for (pipeline, record, revision) in outcome.changed {
            self.take(&pipeline, &record, revision);
        }
        failed.extend(outcome.failed);
        let Surroundings { now, late_after, .. } = *around;
        let planner = Planner { writer: self.writer, now, late_after };
        let mut portion = Portion { aside: outcome.aside, ..Portion::default() };
        for judged in outcome.judged {
            portion.planned.extend(planner.plan(judged.findings));
            portion.until.extend(judged.next.map(|next| (judged.pipeline, next)));
        }
        portion
    }

    fn settle_portion(
        &mut self,
        portion: Portion,
        results: Done,
        now: Timestamp,
        failed: &mut BTreeMap<CheckName, String>,
    ) -> Result<(), WatchdogError> {
        let mut portion = portion;
        let left = self.say_what_was_found(portion.planned, results)?;
        for (pipeline, reason) in &left.impossible {
            none_can_be_done(&self.checks, &format!("{pipeline}: {reason}"), failed);
            portion.aside.push(pipeline.clone());
        }
        for (pipeline, next) in portion.until {
            if left.again.contains(&pipeline) {
                self.list.arm(&pipeline, plus(now, AGAIN_AFTER));
            } else if !portion.aside.contains(&pipeline) {
                self.list.judged(&pipeline, next);
            }
        }
        for pipeline in portion.aside {
            tracing::error!(%pipeline, "cannot judge this pipeline; trying again in a minute");
            self.list.arm(&pipeline, plus(now, ASIDE_FOR));
            self.aside.insert(pipeline, plus(now, ASIDE_FOR));
        }
        Ok(())
    }
}

/// What was judged and is not durable yet.
#[derive(Default)]
struct Portion {
    planned: Vec<Planned>,
    /// When there is something to be judged next of those who were judged by the clock.
    until: Vec<(PipelineId, Next)>,
    /// Pipelines for which something could not be done.
    aside: Vec<PipelineId>,
}
