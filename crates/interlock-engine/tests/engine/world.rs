//! A world that can be replayed: the simulator's clock, jobs that outlive the engine, and a store that
//! lets the engine be killed at every await.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
};

use interlock_core::{
    id::PipelineId,
    readiness::{TraitResult, TraitSpec, TraitStatus},
};
use interlock_engine::seam::{Evaluators, Task, World};
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, Outcome, Report, StartFailure, StartRequest,
    TriggerFuture, Triggers, What,
};
use interlock_sim::clockwork::Clockwork;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

/// The process whose engine is tested.
const PROCESS: u32 = 1;

/// The simulator's clock, with one process in it.
#[derive(Clone)]
pub(crate) struct Virtual(Clockwork);

impl Virtual {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self(Clockwork::new(now))
    }

    pub(crate) fn time(&self) -> Timestamp {
        self.0.time()
    }

    /// Runs the main task and the spawned ones until the main one ends or time reaches `until`.
    pub(crate) fn run<T>(
        &self,
        main: Pin<&mut (dyn Future<Output = T> + Send)>,
        until: Timestamp,
    ) -> Option<T> {
        let ended = self.0.run(main, until);
        assert_eq!(self.0.restless(), None, "somebody never sleeps at {}", self.time());
        ended
    }

    /// How often somebody went to sleep.
    pub(crate) fn timers_set(&self) -> u64 {
        self.0.timers_set()
    }

    /// The machine is off for a while.
    pub(crate) fn pass(&self, time: SignedDuration) {
        self.0.pass(time);
    }

    /// The process dies: its tasks and timers are gone.
    pub(crate) fn kill(&self) {
        self.0.kill(PROCESS);
    }
}

impl World for Virtual {
    fn now(&self) -> Timestamp {
        self.time()
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        self.0.process(PROCESS).sleep_until(at)
    }

    fn spawn(&self, name: &'static str, task: Task<()>) {
        self.0.process(PROCESS).spawn(name, task);
    }
}

/// Jobs as the outside world sees them: they outlive the engine, and they count how often they were started.
#[derive(Clone, Default)]
pub(crate) struct Jobs(Arc<Mutex<JobsInner>>);

#[derive(Default)]
struct JobsInner {
    /// Started at, by run id.
    started: BTreeMap<String, (Timestamp, u32)>,
    sender: Option<mpsc::UnboundedSender<Report>>,
}

pub(crate) const JOB_TAKES: SignedDuration = SignedDuration::from_secs(5);

impl Jobs {
    /// A new engine listens.
    pub(crate) fn connect(&self) -> mpsc::UnboundedReceiver<Report> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.lock().unwrap().sender = Some(sender);
        receiver
    }

    /// How often each run was really started.
    pub(crate) fn starts(&self) -> BTreeMap<String, u32> {
        self.0.lock().unwrap().started.iter().map(|(id, (_, count))| (id.clone(), *count)).collect()
    }
}

/// Jobs as the engine sees them.
pub(crate) struct FakeTriggers {
    pub(crate) jobs: Jobs,
    pub(crate) world: Virtual,
}

impl FakeTriggers {
    fn report_later(&self, run_id: String, started: Timestamp) {
        let (jobs, world) = (self.jobs.clone(), self.world.clone());
        let sleep = world.sleep_until(started + JOB_TAKES);
        let task = async move {
            sleep.await;
            let what = What::Finished(Outcome::Success { metadata: BTreeMap::new() });
            let report = Report { run_id, at: world.time(), what };
            if let Some(sender) = &jobs.0.lock().unwrap().sender {
                let _gone = sender.send(report);
            }
        };
        self.world.spawn("job", Box::pin(task));
    }
}

impl Triggers for FakeTriggers {
    fn start(&self, request: StartRequest) -> TriggerFuture<'_, Result<(), StartFailure>> {
        Box::pin(async move {
            let now = self.world.time();
            let mut inner = self.jobs.0.lock().unwrap();
            let entry = inner.started.entry(request.run_id.clone()).or_insert((now, 0));
            entry.1 += 1;
            let started = entry.0;
            drop(inner);
            self.report_later(request.run_id, started);
            Ok(())
        })
    }

    fn look_up<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>> {
        Box::pin(async move {
            let started = self.jobs.0.lock().unwrap().started.get(&request.run_id).copied();
            Ok(match started {
                None => LookUp::NeverStarted,
                Some((at, _)) if self.world.time() >= at + JOB_TAKES => {
                    LookUp::Finished(Outcome::Success { metadata: BTreeMap::new() })
                }
                Some((at, _)) => {
                    self.report_later(request.run_id.clone(), at);
                    LookUp::Running { metadata: BTreeMap::new() }
                }
            })
        })
    }

    fn cancel<'a>(&'a self, _: &'a StartRequest) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        Box::pin(async { Ok(()) })
    }

    fn acknowledge(&self, _run_id: &str) {}
}

/// Evaluators that always pass.
pub(crate) struct Passing;

impl Evaluators for Passing {
    fn evaluate(&self, _: &PipelineId, _: &TraitSpec) -> Task<TraitResult> {
        let result =
            TraitResult { status: TraitStatus::Pass, value: None, reason: None, category: None };
        Box::pin(std::future::ready(result))
    }
}
