//! A stage for one case: a real engine on virtual time, watched step by step, whose jobs and evaluators do
//! what the case says.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
};

use interlock_core::{
    id::PipelineId,
    readiness::{TraitResult, TraitSpec, TraitStatus},
    retry::FailureCategory,
};
use interlock_engine::{
    Engine, EngineError, Limits, Pace, Parts,
    host::Host,
    seam::{Evaluators, Task, World as _},
};
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, Outcome, Report, StartFailure, StartRequest,
    TriggerFuture, Triggers, What,
};
use interlock_store::{
    EventRow, Key, LedgerEntry, LedgerQuery, Record, RunQuery, RunRow, Shard, Store as _, block_on,
    memory::MemoryStore,
    record::{AppliedRecord, InboxRecord, SlotRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{Files, world::Virtual};

/// A time on the day of the cases, a Tuesday, in UTC.
pub(crate) fn at(time: &str) -> Timestamp {
    format!("2026-02-24T{time}:00Z").parse().unwrap()
}

/// How a job ends, some seconds after its start.
#[derive(Clone, Copy)]
pub(crate) enum Job {
    /// Well, after this many seconds.
    Succeeds(i64),
    /// Badly, after five seconds.
    Fails(FailureCategory),
    /// Nobody can tell, for this many seconds; then it turns out to have succeeded.
    OutOfSight(i64),
    /// Nobody knows whether it began, and it never did.
    Unclear,
}

/// An engine is alive, or not.
type Life = Pin<Box<dyn Future<Output = Result<(), EngineError>> + Send>>;

/// The machine, what runs on it, and the engine.
pub(crate) struct Stage {
    pub(crate) world: Virtual,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) cast: Arc<Cast>,
    pub(crate) files: Files,
    life: Option<Life>,
    posted: u32,
    pub(crate) limits: Limits,
    /// What the process keeps beside its engine.
    host: Host,
}

/// What jobs and evaluators do, and what was asked of them.
pub(crate) struct Cast {
    world: Virtual,
    script: Box<dyn Fn(&StartRequest) -> Job + Send + Sync>,
    inner: Mutex<CastInner>,
}

#[derive(Default)]
struct CastInner {
    /// Every start that was really asked for.
    started: Vec<StartRequest>,
    /// What was said to follow which run.
    foretold: Vec<(String, StartRequest)>,
    sender: Option<mpsc::UnboundedSender<Report>>,
    answers: BTreeMap<String, Answer>,
    /// When which trait was asked for.
    asked: Vec<(Timestamp, String)>,
    /// When which job was asked to end; it ends a second later.
    cancelled: BTreeMap<String, Timestamp>,
    /// Whether no request to end gets through.
    is_deaf: bool,
}

/// What an evaluator does.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Answers at once.
    Is(TraitStatus),
    /// Passes after this many seconds.
    PassesAfter(i64),
    /// Never answers, which a real one cannot do for long.
    Hangs,
}

impl Stage {
    /// A machine with these files, off.
    pub(crate) fn new(
        now: Timestamp,
        files: &[&str],
        script: impl Fn(&StartRequest) -> Job + Send + Sync + 'static,
    ) -> Self {
        let world = Virtual::new(now);
        let clock = world.clone();
        let store = MemoryStore::new(1, Arc::new(move || clock.time()));
        let cast = Cast { world: world.clone(), script: Box::new(script), inner: Mutex::default() };
        let files = Files::new(files);
        Self {
            world,
            store: Arc::new(store),
            cast: Arc::new(cast),
            files,
            life: None,
            posted: 0,
            limits: Limits::default(),
            host: Host::default(),
        }
    }

    pub(crate) fn parts(&self, holder: &str) -> Parts {
        let (sender, reports) = mpsc::unbounded_channel();
        self.cast.inner.lock().unwrap().sender = Some(sender);
        Parts {
            world: Arc::new(self.world.clone()),
            store: Arc::clone(&self.store) as Arc<dyn interlock_store::Store>,
            specs: Arc::new(self.files.clone()),
            triggers: Arc::new(Actor(Arc::clone(&self.cast))),
            evaluators: Arc::new(Actor(Arc::clone(&self.cast))),
            reports,
            declarations: mpsc::channel(1).1,
            holder: holder.to_owned(),
            limits: self.limits,
            pace: Pace {
                lease: SignedDuration::from_mins(3),
                // Less than a job takes to fail, so that it can be asked to end before.
                inbox: SignedDuration::from_secs(4),
            },
            host: self.host.clone(),
        }
    }

    /// How many slots are not decided: by the engine's numbers, and by the store.
    pub(crate) fn undecided(&self) -> (u64, usize) {
        let open = block_on(self.store.open_slots(Shard(0), None, 100_000)).unwrap().items;
        (self.host.vitals.open_slots.get(), open.len())
    }

    /// How many groups the store refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.host.vitals.groups_refused.get()
    }

    /// Runs an engine until this instant; it lives on, and the next call continues. `None` while it lives.
    pub(crate) fn until(&mut self, at: Timestamp) -> Option<Result<(), EngineError>> {
        if self.life.is_none() {
            let (parts, files) = (self.parts("test"), self.files.clone());
            self.life = Some(Box::pin(async move {
                let mut engine = Engine::open(parts, Shard(0)).await?.unwrap();
                let changes = files.changes(&engine);
                engine.declare(&changes).await?;
                engine.run(Box::pin(std::future::pending())).await
            }));
        }
        let life = self.life.as_mut().unwrap();
        self.world.run(life.as_mut(), at)
    }

    /// The process dies, and a lease that it held is over; its jobs go on.
    pub(crate) fn crash(&mut self) {
        self.life = None;
        self.host = Host::default();
        self.world.kill();
        self.world.pass(SignedDuration::from_mins(3));
    }

    /// Posts to the inbox and lets the engine apply it.
    pub(crate) fn ask(&mut self, pipeline: &str, record: &InboxRecord) -> AppliedRecord {
        self.posted += 1;
        let (name, key) = (PipelineId::parse(pipeline).unwrap(), format!("key-{}", self.posted));
        block_on(self.store.post(&name, &key, record)).unwrap();
        let soon = self.world.now() + SignedDuration::from_secs(11);
        assert!(self.until(soon).is_none(), "the engine lives");
        let rows = block_on(self.store.read(&name, &[Key::Applied(key)])).unwrap();
        let Some(Record::Applied(applied)) = rows[0].clone().map(|row| row.record) else {
            panic!("nothing came of {record:?}")
        };
        Arc::unwrap_or_clone(applied)
    }

    /// Reports a sensor.
    pub(crate) fn sensor(&mut self, pipeline: &str, key: &str, value: Value) {
        let at = self.world.now();
        let record = InboxRecord::Sensor { key: key.to_owned(), value, at };
        assert!(self.ask(pipeline, &record).accepted);
    }

    /// The ledger's slots, as `schedule/instant state`.
    pub(crate) fn slots(&self) -> Vec<String> {
        let rows = block_on(self.store.ledger(&LedgerQuery::everything(1_000))).unwrap().items;
        rows.iter()
            .map(|row| match &row.entry {
                LedgerEntry::Slot(slot) => {
                    format!("{}/{} {}", row.schedule, row.nominal, slot.to_core().unwrap().state)
                }
                LedgerEntry::Span(span) => format!("{} times {}", span.count, span.disposition),
            })
            .collect()
    }

    /// One of the ledger's slots.
    pub(crate) fn any_slot(&self) -> SlotRecord {
        let rows = block_on(self.store.ledger(&LedgerQuery::everything(1))).unwrap().items;
        match &rows[0].entry {
            LedgerEntry::Slot(slot) => slot.as_ref().clone(),
            LedgerEntry::Span(_) => panic!("a span: {rows:?}"),
        }
    }

    /// The only slot of the ledger.
    pub(crate) fn slot(&self) -> SlotRecord {
        let rows = block_on(self.store.ledger(&LedgerQuery::everything(1_000))).unwrap().items;
        match rows.as_slice() {
            [row] => match &row.entry {
                LedgerEntry::Slot(slot) => slot.as_ref().clone(),
                LedgerEntry::Span(_) => panic!("a span: {row:?}"),
            },
            rows => panic!("not one slot: {rows:?}"),
        }
    }

    /// All runs, oldest first.
    pub(crate) fn run_rows(&self) -> Vec<RunRow> {
        let query = RunQuery { limit: 1_000, ..RunQuery::default() };
        let mut rows = block_on(self.store.runs(&query)).unwrap().items;
        rows.reverse();
        rows
    }

    /// All runs, oldest first, as `id STATUS triggerType`.
    pub(crate) fn runs(&self) -> Vec<String> {
        let line = |row: RunRow| {
            let (id, record) = (row.key.id(&row.pipeline), row.record);
            format!("{id} {} {}", record.status, record.trigger_type)
        };
        self.run_rows().into_iter().map(line).collect()
    }

    pub(crate) fn events(&self) -> Vec<EventRow> {
        block_on(self.store.events(None, 0, 100_000)).unwrap().items
    }

    /// The events of these kinds, as `KIND message`.
    pub(crate) fn told(&self, kinds: &[&str]) -> Vec<String> {
        let told =
            self.events().into_iter().filter(|row| kinds.contains(&row.record.kind.as_str()));
        told.map(|row| format!("{} {}", row.record.kind, row.record.message)).collect()
    }

    /// The ids of the runs that were really started, each once.
    pub(crate) fn started(&self) -> Vec<String> {
        let ids: Vec<_> = self.requests().into_iter().map(|request| request.run_id).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "a run started twice");
        ids
    }

    /// What was said to follow which run.
    pub(crate) fn foretold(&self) -> Vec<(String, StartRequest)> {
        self.cast.inner.lock().unwrap().foretold.clone()
    }

    /// What the adapters were asked.
    pub(crate) fn requests(&self) -> Vec<StartRequest> {
        self.cast.inner.lock().unwrap().started.clone()
    }
}

impl Cast {
    /// What the evaluator of a trait does from now on; unless told, all pass.
    pub(crate) fn answer(&self, kind: &str, answer: Answer) {
        self.inner.lock().unwrap().answers.insert(kind.to_owned(), answer);
    }

    /// When which trait was asked for.
    pub(crate) fn asked(&self) -> Vec<(Timestamp, String)> {
        self.inner.lock().unwrap().asked.clone()
    }

    /// The runs whose jobs were asked to end.
    pub(crate) fn cancelled(&self) -> Vec<String> {
        self.inner.lock().unwrap().cancelled.keys().cloned().collect()
    }

    /// From now on requests to end do not get through.
    pub(crate) fn deafen(&self) {
        self.inner.lock().unwrap().is_deaf = true;
    }

    /// From now on they get through again.
    pub(crate) fn listen(&self) {
        self.inner.lock().unwrap().is_deaf = false;
    }

    fn end_of(&self, request: &StartRequest) -> (Timestamp, Outcome) {
        let (at, outcome) = self.natural_end_of(request);
        match self.inner.lock().unwrap().cancelled.get(&request.run_id) {
            Some(asked) if *asked < at => {
                let message = "it was cancelled".to_owned();
                (*asked + SignedDuration::from_secs(1), Outcome::Cancelled { message })
            }
            _ => (at, outcome),
        }
    }

    fn natural_end_of(&self, request: &StartRequest) -> (Timestamp, Outcome) {
        let metadata = BTreeMap::new();
        let (seconds, outcome) = match (self.script)(request) {
            Job::Succeeds(seconds) | Job::OutOfSight(seconds) => {
                (seconds, Outcome::Success { metadata })
            }
            Job::Unclear => (0, Outcome::Success { metadata }),
            Job::Fails(category) => {
                let message = "the job exited with 1".to_owned();
                (5, Outcome::Failure { message, category, metadata })
            }
        };
        (request.triggered_at + SignedDuration::from_secs(seconds), outcome)
    }

    fn report(&self, run_id: &str, what: What) {
        let report = Report { run_id: run_id.to_owned(), at: self.world.time(), what };
        if let Some(sender) = &self.inner.lock().unwrap().sender {
            let _engine_is_gone = sender.send(report);
        }
    }
}

/// The cast, as the engine sees it.
struct Actor(Arc<Cast>);

impl Actor {
    fn report_the_end(&self, request: &StartRequest) {
        let (cast, run_id) = (Arc::clone(&self.0), request.run_id.clone());
        let (at, outcome) = cast.end_of(request);
        let sleep = cast.world.sleep_until(at);
        let task = async move {
            sleep.await;
            cast.report(&run_id, What::Finished(outcome));
        };
        self.0.world.spawn("job", Box::pin(task));
    }
}

impl Triggers for Actor {
    fn start(&self, request: StartRequest) -> TriggerFuture<'_, Result<(), StartFailure>> {
        Box::pin(async move {
            if matches!((self.0.script)(&request), Job::Unclear) {
                return Err(StartFailure {
                    message: "nobody answered".to_owned(),
                    category: FailureCategory::Transient,
                    may_have_started: true,
                });
            }
            self.0.inner.lock().unwrap().started.push(request.clone());
            self.0.report(&request.run_id, What::Started { metadata: BTreeMap::new() });
            match (self.0.script)(&request) {
                Job::Succeeds(_) | Job::Fails(_) | Job::Unclear => self.report_the_end(&request),
                Job::OutOfSight(_) => {
                    let reason = "its host does not answer".to_owned();
                    self.0.report(&request.run_id, What::Lost { reason });
                }
            }
            Ok(())
        })
    }

    fn prepare(&self, request: &StartRequest, after: Option<&str>) -> bool {
        let foretold = after.map(|after| (after.to_owned(), request.clone()));
        self.0.inner.lock().unwrap().foretold.extend(foretold);
        false
    }

    fn look_up<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>> {
        Box::pin(async move {
            let known = self.0.inner.lock().unwrap().started.contains(request);
            let (at, outcome) = self.0.end_of(request);
            Ok(match known {
                false => LookUp::NeverStarted,
                true if self.0.world.time() >= at => LookUp::Finished(outcome),
                true if matches!((self.0.script)(request), Job::OutOfSight(_)) => {
                    LookUp::CannotTell { reason: "its host does not answer".to_owned() }
                }
                true => {
                    self.report_the_end(request);
                    LookUp::Running { metadata: BTreeMap::new() }
                }
            })
        })
    }

    fn cancel<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        Box::pin(async move {
            let now = self.0.world.time();
            {
                let mut inner = self.0.inner.lock().unwrap();
                if inner.is_deaf {
                    let message = "its host does not answer".to_owned();
                    return Err(CancelFailure { message, is_retryable: true });
                }
                // One that was never started is left as it is.
                if !inner.started.iter().any(|started| started.run_id == request.run_id) {
                    return Ok(());
                }
                inner.cancelled.entry(request.run_id.clone()).or_insert(now);
            }
            self.report_the_end(request);
            Ok(())
        })
    }

    fn acknowledge(&self, _run_id: &str) {}
}

impl Evaluators for Actor {
    fn evaluate(&self, _: &PipelineId, trait_spec: &TraitSpec) -> Task<TraitResult> {
        let now = self.0.world.time();
        let mut inner = self.0.inner.lock().unwrap();
        inner.asked.push((now, trait_spec.kind.clone()));
        let answer = inner.answers.get(&trait_spec.kind).cloned();
        let result = |status| TraitResult { status, value: None, reason: None, category: None };
        match answer.unwrap_or(Answer::Is(TraitStatus::Pass)) {
            Answer::Is(status) => Box::pin(std::future::ready(result(status))),
            Answer::PassesAfter(seconds) => {
                let sleep = self.0.world.sleep_until(now + SignedDuration::from_secs(seconds));
                Box::pin(async move {
                    sleep.await;
                    result(TraitStatus::Pass)
                })
            }
            Answer::Hangs => Box::pin(std::future::pending()),
        }
    }
}
