//! Who hears what jobs and files say: the engine of their shard, in this process or in another.
//!
//! The jobs of this host are told of here, whoever owns their pipelines by now. What the owner is somewhere else it gets by
//! letter, and may have to be asked for: when a shard comes into other hands, we look through its open runs for those of
//! this host and say what we know. Only we can. And only we can end them: that somebody wants that is in their rows, which we
//! look at while such jobs run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use interlock_core::{
    id::{PipelineId, ScheduleId},
    run::RunState,
};
use interlock_engine::{
    Changes, end_wanted,
    host::{Heard, Host, letter},
};
use interlock_store::{
    Key, LedgerEntry, Record, Row, RunKey, RunQuery, RunRow, Shard, Store, StoreError,
};
use interlock_trigger::{LocalTriggers, LookUp, Report, Triggers as _, What};
use jiff::Timestamp;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use crate::{clock, inbox::fresh_key};

/// Open slots that are read at once.
const PAGE: usize = 500;
/// When what could not be said is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How many portions of changed files may wait for an engine.
const PORTIONS: usize = 2;

/// The ways to the engines of this process.
#[derive(Debug, Clone)]
pub(crate) struct Ways {
    count: u16,
    ways: Arc<Mutex<BTreeMap<Shard, Way>>>,
}

/// The way to one engine.
#[derive(Debug, Clone)]
struct Way {
    reports: mpsc::UnboundedSender<Report>,
    declarations: mpsc::Sender<Changes>,
}

impl Ways {
    /// No engine yet, for a store with so many shards.
    pub(crate) fn new(count: u16) -> Self {
        Self { count, ways: Arc::default() }
    }

    /// A way to an engine that is about to begin, in place of the last one.
    pub(crate) fn open(
        &self,
        shard: Shard,
    ) -> (mpsc::UnboundedReceiver<Report>, mpsc::Receiver<Changes>) {
        let (reports, told) = mpsc::unbounded_channel();
        let (declarations, declared) = mpsc::channel(PORTIONS);
        self.lock().insert(shard, Way { reports, declarations });
        (told, declared)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Shard, Way>> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way to the engine of a shard, if that lives.
    fn to(&self, shard: Shard) -> Option<Way> {
        self.lock().get(&shard).filter(|way| !way.reports.is_closed()).cloned()
    }

    /// The shard of a run.
    fn of_run(&self, run_id: &str) -> Option<(PipelineId, Shard)> {
        let (pipeline, _) = RunKey::parse(run_id).ok()?;
        let shard = Shard::of(&pipeline, self.count);
        Some((pipeline, shard))
    }

    /// Changes, by the shards that they are about.
    pub(crate) fn sorted(&self, changes: Changes) -> BTreeMap<Shard, Changes> {
        let mut sorted: BTreeMap<Shard, Changes> = BTreeMap::new();
        let of = |name: &PipelineId| Shard::of(name, self.count);
        for new in changes.declared {
            sorted.entry(of(&new.pipeline.name)).or_default().declared.push(new);
        }
        for gone in changes.removed {
            sorted.entry(of(&gone)).or_default().removed.push(gone);
        }
        sorted
    }

    /// Tells the engines what changed in the files. Whoever takes a shard up compares them anyway.
    pub(crate) async fn declare(self, mut changes: mpsc::Receiver<Changes>) {
        while let Some(portion) = changes.recv().await {
            for (shard, changes) in self.sorted(portion) {
                if let Some(way) = self.to(shard) {
                    let _it_has_ended = way.declarations.send(changes).await;
                }
            }
        }
    }
}

/// Jobs that run here in shards that were found in other hands, by their runs.
type Ours = BTreeMap<String, (PipelineId, RunKey)>;

fn is_end(what: &What) -> bool {
    matches!(what, What::Finished(_) | What::Lost { .. })
}

/// Reports on their way, by shard.
type Lanes = BTreeMap<Shard, mpsc::UnboundedSender<Report>>;

/// Says what this host knows of its jobs.
pub(crate) struct Teller {
    pub(crate) ways: Ways,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) triggers: Arc<LocalTriggers>,
    pub(crate) host: Host,
}

impl Teller {
    /// Passes on what jobs say, and looks for them in shards that came into other hands, until the process ends.
    pub(crate) async fn tell(
        self,
        mut reports: mpsc::UnboundedReceiver<Report>,
        mut taken_over: mpsc::UnboundedReceiver<Shard>,
    ) {
        let this = Arc::new(self);
        let mut unread: BTreeSet<Shard> = BTreeSet::new();
        let (mut ours, mut lanes) = (Ours::new(), Lanes::new());
        let mut next = Instant::now();
        loop {
            tokio::select! {
                biased;
                // However much the jobs have to say.
                () = sleep_until(next), if !(unread.is_empty() && ours.is_empty()) => {
                    for shard in std::mem::take(&mut unread) {
                        if !this.look_through(shard, &mut ours).await {
                            unread.insert(shard);
                        }
                    }
                    this.end_what_is_to_end(&mut ours).await;
                    next = Instant::now() + AGAIN_AFTER;
                }
                Some(report) = reports.recv() => {
                    if is_end(&report.what) {
                        ours.remove(&report.run_id);
                    }
                    this.hand_in(report, &mut lanes);
                }
                Some(shard) = taken_over.recv() => { unread.insert(shard); }
                else => return,
            }
        }
    }

    /// Passes on a report, after those of its shard that wait and beside those of others: a shard that cannot be told, because its server
    /// is away, holds up nobody else's.
    fn hand_in(self: &Arc<Self>, report: Report, lanes: &mut Lanes) {
        let Some((_, shard)) = self.ways.of_run(&report.run_id) else { return };
        let lane = lanes.entry(shard).or_insert_with(|| {
            let (lane, mut waiting) = mpsc::unbounded_channel();
            let this = Arc::clone(self);
            tokio::spawn(async move {
                while let Some(report) = waiting.recv().await {
                    this.pass_on(report).await;
                }
            });
            lane
        });
        let _the_process_ends = lane.send(report);
    }

    async fn pass_on(&self, report: Report) {
        let Some((pipeline, shard)) = self.ways.of_run(&report.run_id) else { return };
        let mut report = report;
        let Report { run_id, what, .. } = loop {
            // Its owner may be here by now.
            if let Some(way) = self.ways.to(shard) {
                match way.reports.send(report) {
                    Ok(()) => return,
                    Err(back) => report = back.0,
                }
            }
            let told = Heard::Told(report.what.clone());
            match self.post(&pipeline, (&report.run_id, report.at), told).await {
                Ok(()) => break report,
                Err(error) if error.is_retryable => sleep(AGAIN_AFTER).await,
                // Not acknowledged: it is told again to the next process.
                Err(_) => return,
            }
        };
        if is_end(&what) {
            self.triggers.acknowledge(&run_id);
        }
    }

    /// Asks those of our jobs to end of which that is wanted, where their owner is somewhere else.
    async fn end_what_is_to_end(&self, ours: &mut Ours) {
        for (run_id, (pipeline, key)) in std::mem::take(ours) {
            // Its owner is here by now, and asks by itself.
            if self.ways.to(Shard::of(&pipeline, self.ways.count)).is_some() {
                continue;
            }
            let rows = self.store.read(&pipeline, &[Key::Run(key.clone())]).await;
            let row = rows.map(|rows| rows.into_iter().next().flatten());
            let is_wanted = match row {
                Ok(Some(Row { record: Record::Run(run), .. })) => end_wanted(&run).is_some(),
                Ok(_) => continue,
                // What the store cannot say now it says later.
                Err(_) => false,
            };
            if is_wanted {
                match self.triggers.cancel_here(&run_id).await {
                    Ok(()) => continue,
                    Err(failure) => {
                        tracing::warn!(run = run_id, %failure, "could not ask the job to end");
                    }
                }
            }
            ours.insert(run_id, (pipeline, key));
        }
    }

    /// Posts a letter, where there is anybody else to write to.
    async fn post(
        &self,
        pipeline: &PipelineId,
        (run_id, at): (&str, Timestamp),
        heard: Heard,
    ) -> Result<(), StoreError> {
        let Some(host) = &self.host.name else { return Ok(()) };
        let Some(record) = letter(host, run_id, at, heard) else { return Ok(()) };
        let posted = self.store.post(pipeline, &fresh_key(), &record).await;
        posted.inspect_err(
            |error| tracing::warn!(%error, run = run_id, "the state of a job is reported later"),
        )
    }

    /// Says what became of this host's runs in a shard; whether all was said.
    async fn look_through(&self, shard: Shard, ours: &mut Ours) -> bool {
        match self.runs_here(shard).await {
            Ok(runs) => {
                let mut is_done = true;
                for run in runs {
                    is_done &= self.say(run, ours).await;
                }
                is_done
            }
            Err(error) => {
                tracing::warn!(%error, shard = shard.0, "cannot read its open runs yet");
                false
            }
        }
    }

    /// The runs of a shard that are under way here, as far as is recorded.
    async fn runs_here(&self, shard: Shard) -> Result<Vec<RunRow>, StoreError> {
        let (mut last, mut found) = (None, Vec::new());
        loop {
            let page = self.store.open_slots(shard, last.as_ref(), PAGE).await?;
            for row in &page.items {
                if let LedgerEntry::Slot(slot) = &row.entry
                    && slot.state == "running"
                {
                    let place = (row.schedule.clone(), row.nominal);
                    found.extend(self.run_here(&row.pipeline, place).await?);
                }
            }
            last = page
                .items
                .last()
                .map(|row| (row.pipeline.clone(), row.nominal, row.schedule.clone()));
            if !page.more {
                return Ok(found);
            }
        }
    }

    async fn run_here(
        &self,
        pipeline: &PipelineId,
        slot: (ScheduleId, Timestamp),
    ) -> Result<Option<RunRow>, StoreError> {
        let (pipeline, slot) = (Some(pipeline.clone()), Some(slot));
        let query = RunQuery { pipeline, slot, limit: 1, ..RunQuery::default() };
        let newest = self.store.runs(&query).await?.items.into_iter().next();
        Ok(newest.filter(|run| {
            let is_active =
                matches!(run.record.state(), Ok(RunState::Triggering | RunState::Running));
            is_active && self.host.has(&run.record.metadata)
        }))
    }

    /// Says what is known of one run; whether it could be said.
    async fn say(&self, run: RunRow, ours: &mut Ours) -> bool {
        let run_id = run.key.id(&run.pipeline);
        // A start that is on its way may arrive after we have looked.
        if self.host.is_starting(&run_id) {
            return false;
        }
        let found = match self.triggers.look_up_here(&run_id, run.record.created_at).await {
            Ok(found) => found,
            Err(failure) => LookUp::CannotTell { reason: failure.message },
        };
        if let LookUp::Running { .. } = found {
            ours.insert(run_id.clone(), (run.pipeline.clone(), run.key.clone()));
            if let Ok(RunState::Running) = run.record.state() {
                return true;
            }
        }
        let is_end = matches!(found, LookUp::Finished(_));
        let heard = Heard::Found(found);
        let is_said = self.post(&run.pipeline, (&run_id, clock::now()), heard).await.is_ok();
        if is_said && is_end {
            self.triggers.acknowledge(&run_id);
        }
        is_said
    }
}
