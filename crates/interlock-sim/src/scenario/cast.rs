//! Whom the script directs: jobs that do what it says and outlive every instance, evaluators, and the phone of those who
//! are told.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_core::{
    id::PipelineId,
    incident::Alert,
    pipeline::TriggerKind,
    readiness::{TraitResult, TraitSpec, TraitStatus},
    retry::FailureCategory,
};
use interlock_engine::seam::{Evaluators, Task, World as _};
use interlock_ports::channel::{
    AlertMessage, ChannelPolicy, Channels, Delivery, DeliveryFuture, RouteFuture,
};
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, Outcome, Report, StartFailure, StartRequest,
    TriggerFuture, Triggers, What,
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use super::line::{Phone, Rule};
use crate::clockwork::{Clockwork, NATURE, Pid};

/// How long a job takes of which nothing else was said.
const USUAL: SignedDuration = SignedDuration::from_secs(10);

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    /// Ends well after so long.
    Takes(SignedDuration),
    /// Exits with 1.
    Fails,
    /// Fails, and would again.
    FailsForGood,
    /// Never ends.
    Hangs,
    /// Ends well, and its report is lost.
    TellsNobody,
    /// Ends well and says so twice.
    ReportsTwice,
    /// Does not begin, and says so.
    RefusesToStart,
    /// Begins, and the answer is lost.
    BeginsUnheard,
    /// Does not begin, and nobody knows.
    GivesNoAnswer,
}

impl Habit {
    const ALL: [(&'static str, Self); 8] = [
        ("fails", Self::Fails),
        ("fails for good", Self::FailsForGood),
        ("hangs", Self::Hangs),
        ("tells nobody", Self::TellsNobody),
        ("reports twice", Self::ReportsTwice),
        ("refuses to start", Self::RefusesToStart),
        ("begins unheard", Self::BeginsUnheard),
        ("gives no answer", Self::GivesNoAnswer),
    ];

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(words, _)| *words == text).map(|(_, habit)| *habit);
        let known: Vec<_> = Self::ALL.iter().map(|(words, _)| format!("`{words}`")).collect();
        found.ok_or_else(|| format!("a job `takes 5m`, {}; not `{text}`", known.join(", ")))
    }

    /// How long it takes, and how it ends; `None` if it never does.
    fn end(self) -> Option<(SignedDuration, Outcome)> {
        let metadata = BTreeMap::new();
        let failure = |message: &str, category| {
            let (message, metadata) = (message.to_owned(), BTreeMap::new());
            Outcome::Failure { message, category, metadata }
        };
        match self {
            Self::Takes(time) => Some((time, Outcome::Success { metadata })),
            Self::Fails => {
                Some((USUAL, failure("the job exited with 1", FailureCategory::Transient)))
            }
            Self::FailsForGood => {
                Some((USUAL, failure("its input is wrong", FailureCategory::Permanent)))
            }
            Self::Hangs => None,
            Self::TellsNobody
            | Self::ReportsTwice
            | Self::RefusesToStart
            | Self::BeginsUnheard
            | Self::GivesNoAnswer => Some((USUAL, Outcome::Success { metadata })),
        }
    }
}

/// The cast.
#[derive(Clone)]
pub(super) struct Cast(Arc<Shared>);

struct Shared {
    clockwork: Clockwork,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    rules: Vec<Rule>,
    jobs: BTreeMap<String, Job>,
    /// Where instances hear of jobs.
    ears: BTreeMap<Pid, mpsc::UnboundedSender<Report>>,
    traits: BTreeMap<(PipelineId, String), TraitStatus>,
    /// What people heard, and when.
    heard: Vec<(Timestamp, Alert)>,
    is_deaf: bool,
}

/// A job that really began.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) pipeline: String,
    /// When, each time.
    pub(super) began: Vec<Timestamp>,
    pub(super) ended: Option<(Timestamp, Outcome)>,
}

impl Cast {
    pub(super) fn new(clockwork: Clockwork) -> Self {
        Self(Arc::new(Shared { clockwork, inner: Mutex::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn direct(&self, rule: Rule) {
        self.lock().rules.push(rule);
    }

    pub(super) fn answer(&self, pipeline: PipelineId, kind: String, status: TraitStatus) {
        self.lock().traits.insert((pipeline, kind), status);
    }

    pub(super) fn set_phone(&self, phone: Phone) {
        self.lock().is_deaf = phone == Phone::Down;
    }

    /// A new life of an instance listens.
    pub(super) fn connect(&self, pid: Pid) -> mpsc::UnboundedReceiver<Report> {
        let (ear, reports) = mpsc::unbounded_channel();
        self.lock().ears.insert(pid, ear);
        reports
    }

    /// What people heard since they were last asked.
    pub(super) fn take_heard(&self) -> Vec<(Timestamp, Alert)> {
        std::mem::take(&mut self.lock().heard)
    }

    /// The jobs that began, by their run ids.
    pub(super) fn jobs(&self) -> BTreeMap<String, Job> {
        self.lock().jobs.clone()
    }

    /// What the next job of a slot does: the last that was said of that slot, else of its pipeline.
    fn habit(&self, request: &StartRequest) -> Habit {
        let mut inner = self.lock();
        let meant = |rule: &Rule, slot: Option<Timestamp>| {
            rule.pipeline.as_str() == request.pipeline && rule.slot == slot
        };
        let found = [Some(request.slot), None]
            .into_iter()
            .find_map(|slot| inner.rules.iter().rposition(|rule| meant(rule, slot)));
        let Some(rule) =
            found.and_then(|index| inner.rules.get(index).map(|rule| (index, rule.clone())))
        else {
            return Habit::Takes(USUAL);
        };
        if rule.1.is_once {
            inner.rules.remove(rule.0);
        }
        rule.1.habit
    }

    /// A job begins; one that is known by its id does not begin again.
    fn begin(&self, request: &StartRequest, habit: Habit) {
        let now = self.0.clockwork.time();
        {
            let mut inner = self.lock();
            let job = inner.jobs.entry(request.run_id.clone()).or_insert_with(|| Job {
                pipeline: request.pipeline.clone(),
                began: vec![],
                ended: None,
            });
            if !job.began.is_empty() && knows_its_jobs(request) {
                return;
            }
            job.began.push(now);
        }
        // Who cannot be asked has no other way to tell than the answer that was lost.
        let is_unheard = habit == Habit::BeginsUnheard && !knows_its_jobs(request);
        let habit = if is_unheard { Habit::TellsNobody } else { habit };
        let (cast, run_id) = (self.clone(), request.run_id.clone());
        let nature = self.0.clockwork.process(NATURE);
        let world = nature.clone();
        let life = async move {
            if habit != Habit::TellsNobody {
                cast.tell(&run_id, &What::Started { metadata: BTreeMap::new() });
            }
            let Some((time, outcome)) = habit.end() else { return };
            world.sleep(time).await;
            cast.end(&run_id, &outcome, habit);
        };
        nature.spawn("a job", Box::pin(life));
    }

    fn end(&self, run_id: &str, outcome: &Outcome, habit: Habit) {
        let now = self.0.clockwork.time();
        {
            let mut inner = self.lock();
            let Some(job) = inner.jobs.get_mut(run_id).filter(|job| job.ended.is_none()) else {
                return;
            };
            job.ended = Some((now, outcome.clone()));
        }
        let reports = match habit {
            Habit::TellsNobody => 0,
            Habit::ReportsTwice => 2,
            Habit::Takes(_)
            | Habit::Fails
            | Habit::FailsForGood
            | Habit::Hangs
            | Habit::RefusesToStart
            | Habit::BeginsUnheard
            | Habit::GivesNoAnswer => 1,
        };
        for _ in 0..reports {
            self.tell(run_id, &What::Finished(outcome.clone()));
        }
    }

    fn tell(&self, run_id: &str, what: &What) {
        let at = self.0.clockwork.time();
        for ear in self.lock().ears.values() {
            let _is_gone = ear.send(Report { run_id: run_id.to_owned(), at, what: what.clone() });
        }
    }
}

impl fmt::Debug for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cast").finish_non_exhaustive()
    }
}

/// Whether what starts it starts each run once and can be asked about it.
fn knows_its_jobs(request: &StartRequest) -> bool {
    !matches!(request.kind, TriggerKind::Http(_))
}

impl Triggers for Cast {
    fn start(&self, request: StartRequest) -> TriggerFuture<'_, Result<(), StartFailure>> {
        Box::pin(async move {
            let failed = |message: &str, may_have_started| StartFailure {
                message: message.to_owned(),
                category: FailureCategory::Transient,
                may_have_started,
            };
            let habit = self.habit(&request);
            if habit == Habit::RefusesToStart {
                return Err(failed("it was refused", false));
            }
            if habit == Habit::GivesNoAnswer {
                return Err(failed("nobody answered", true));
            }
            self.begin(&request, habit);
            if habit == Habit::BeginsUnheard {
                return Err(failed("the answer was lost", true));
            }
            Ok(())
        })
    }

    fn look_up<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>> {
        Box::pin(async move {
            if !knows_its_jobs(request) {
                return Ok(LookUp::CannotTell { reason: "it cannot be asked".to_owned() });
            }
            Ok(match self.lock().jobs.get(&request.run_id) {
                None => LookUp::NeverStarted,
                Some(Job { ended: Some((_, outcome)), .. }) => LookUp::Finished(outcome.clone()),
                Some(_) => LookUp::Running { metadata: BTreeMap::new() },
            })
        })
    }

    fn cancel<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        Box::pin(async move {
            let nature = self.0.clockwork.process(NATURE);
            let (cast, run_id, world) = (self.clone(), request.run_id.clone(), nature.clone());
            let end = async move {
                world.sleep(SignedDuration::from_secs(1)).await;
                let message = "it was asked to end".to_owned();
                cast.end(&run_id, &Outcome::Cancelled { message }, Habit::Hangs);
            };
            nature.spawn("a job is asked to end", Box::pin(end));
            Ok(())
        })
    }

    fn acknowledge(&self, _run_id: &str) {}
}

impl Evaluators for Cast {
    fn evaluate(&self, pipeline: &PipelineId, spec: &TraitSpec) -> Task<TraitResult> {
        let answered = self.lock().traits.get(&(pipeline.clone(), spec.kind.clone())).copied();
        let status = answered.unwrap_or(TraitStatus::Pass);
        let result = TraitResult { status, value: None, reason: None, category: None };
        Box::pin(std::future::ready(result))
    }
}

impl Channels for Cast {
    fn route<'a>(&'a self, _: &'a Alert) -> RouteFuture<'a> {
        Box::pin(std::future::ready(vec!["phone".to_owned()]))
    }

    fn instead_of<'a>(&'a self, _: &'a str, _: &'a Alert) -> RouteFuture<'a> {
        Box::pin(std::future::ready(vec![]))
    }

    fn manner(&self, _: &str) -> ChannelPolicy {
        ChannelPolicy { takes_digests: true, ..ChannelPolicy::default() }
    }

    fn deliver(&self, _: &str, notice: AlertMessage) -> DeliveryFuture {
        let now = self.0.clockwork.time();
        let mut inner = self.lock();
        let delivery = if inner.is_deaf {
            Delivery::Failed { reason: "nobody answers".to_owned(), retry_after: None }
        } else {
            inner.heard.push((now, notice.alert));
            Delivery::Delivered
        };
        Box::pin(std::future::ready(delivery))
    }
}
