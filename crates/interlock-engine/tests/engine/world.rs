//! A world that can be replayed: virtual time, one thread, jobs that outlive the engine, and a store that
//! lets the engine be killed at every await.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use interlock_core::{
    id::PipelineId,
    readiness::{TraitResult, TraitSpec, TraitStatus},
};
use interlock_engine::seam::{Evaluators, Task, World};
use interlock_trigger::{
    CancelFailure, LookUp, LookUpFailure, Outcome, Report, StartFailure, StartRequest,
    TriggerFuture, Triggers, What,
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

/// Virtual time and the tasks that live in it.
#[derive(Clone)]
pub(crate) struct Virtual(Arc<Mutex<Inner>>);

struct Inner {
    now: Timestamp,
    timers: BTreeMap<(Timestamp, u64), Waker>,
    tasks: VecDeque<Task<()>>,
    count: u64,
}

/// Somebody has more to do at this instant.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Virtual {
    pub(crate) fn new(now: Timestamp) -> Self {
        let inner = Inner { now, timers: BTreeMap::new(), tasks: VecDeque::new(), count: 0 };
        Self(Arc::new(Mutex::new(inner)))
    }

    pub(crate) fn time(&self) -> Timestamp {
        self.0.lock().unwrap().now
    }

    /// Polls the main task and the spawned ones until the main one ends or time reaches `until`. Every poll
    /// of everything happens in one order, so that a run can be repeated.
    pub(crate) fn run<T>(
        &self,
        mut main: Pin<&mut (dyn Future<Output = T> + Send)>,
        until: Timestamp,
    ) -> Option<T> {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(value) = main.as_mut().poll(&mut context) {
                return Some(value);
            }
            let tasks = std::mem::take(&mut self.0.lock().unwrap().tasks);
            for mut task in tasks {
                // A task that panics is gone, as in a real runtime.
                let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context)));
                if polled.is_ok_and(|polled| polled.is_pending()) {
                    self.0.lock().unwrap().tasks.push_back(task);
                }
            }
            // Time moves only when nobody has anything left to do now.
            if woken.0.swap(false, Ordering::Relaxed) {
                continue;
            }
            let mut inner = self.0.lock().unwrap();
            let (&(at, _), _) = inner.timers.first_key_value()?;
            if at >= until {
                inner.now = until;
                return None;
            }
            let now = inner.now.max(at);
            inner.now = now;
            inner.timers.retain(|(at, _), _| *at > now);
        }
    }

    /// How often somebody went to sleep.
    pub(crate) fn timers_set(&self) -> u64 {
        self.0.lock().unwrap().count
    }

    /// The machine is off for a while.
    pub(crate) fn pass(&self, time: SignedDuration) {
        let mut inner = self.0.lock().unwrap();
        inner.now += time;
    }

    /// The process dies: its tasks and timers are gone.
    pub(crate) fn kill(&self) {
        let mut inner = self.0.lock().unwrap();
        inner.tasks.clear();
        inner.timers.clear();
    }
}

impl World for Virtual {
    fn now(&self) -> Timestamp {
        self.time()
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        let world = self.clone();
        let mut is_set = false;
        Box::pin(std::future::poll_fn(move |context| {
            let mut inner = world.0.lock().unwrap();
            if inner.now >= at {
                return Poll::Ready(());
            }
            if !is_set {
                inner.count += 1;
                let key = (at, inner.count);
                inner.timers.insert(key, context.waker().clone());
                is_set = true;
            }
            Poll::Pending
        }))
    }

    fn spawn(&self, _name: &'static str, task: Task<()>) {
        let mut inner = self.0.lock().unwrap();
        inner.tasks.push_back(task);
        // A new task is polled at this instant.
        let key = (inner.now, 0);
        inner.timers.insert(key, Waker::noop().clone());
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
