//! Jobs as they really are: they outlive every process of ours, and they know how often they were started.
//!
//! What a job does is drawn from its run id, so that it does the same whoever starts it and whatever else happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_core::{pipeline::TriggerKind, retry::FailureCategory};
use interlock_engine::seam::World as _;
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, Outcome, Report, StartFailure, StartRequest,
    TriggerFuture, Triggers, What,
};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::{
    clockwork::{Clockwork, NATURE, Pid, ProcessWorld},
    luck::{Luck, seconds},
    random::Random,
    truth::Adapter,
};

/// Somebody who is told what jobs do.
pub trait JobWatcher: Send + Sync + fmt::Debug {
    /// A job began, for the so-manieth time under this id.
    fn began(&self, run_id: &str, times: u32, by: Pid);
}

/// All jobs there ever were.
#[derive(Clone)]
pub struct Jobs(Arc<Shared>);

struct Shared {
    clockwork: Clockwork,
    luck: Arc<Luck>,
    seed: u64,
    watcher: Arc<dyn JobWatcher>,
    /// Whether every start is made twice: a mistake, to see it caught.
    doubles_starts: bool,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: BTreeMap<String, Job>,
    /// Runs whose start was unclear, and is clear the next time.
    unclear: BTreeSet<String>,
    /// Where the lives of processes hear of jobs.
    ears: BTreeMap<Pid, mpsc::UnboundedSender<Report>>,
}

/// A job.
#[derive(Debug, Clone)]
struct Job {
    adapter: Adapter,
    began_at: Timestamp,
    times: u32,
    end: Option<(Timestamp, End)>,
    is_acknowledged: bool,
    /// Whose business it is.
    hosts: BTreeSet<Pid>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Well,
    Badly,
    /// It was asked to.
    Cancelled,
}

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Habit {
    Good,
    Fails,
    FailsForGood,
    Hangs,
    NeverReports,
    ReportsTwice,
    ReportsLate,
    EndsBeforeItBegins,
    GetsLost,
}

/// What becomes of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    Good,
    Refused,
    UnclearAndBegun,
    UnclearAndNot,
}

/// What is drawn for a run.
struct Nature {
    habit: Habit,
    beginning: Beginning,
    takes: u64,
    on_its_way: u64,
    answer_takes: u64,
    late_by: u64,
}

impl Jobs {
    /// No jobs yet.
    pub fn new(
        clockwork: Clockwork,
        luck: Arc<Luck>,
        seed: u64,
        watcher: Arc<dyn JobWatcher>,
    ) -> Self {
        let inner = Mutex::default();
        Self(Arc::new(Shared { clockwork, luck, seed, watcher, doubles_starts: false, inner }))
    }

    /// The same, but every start is made twice.
    #[must_use]
    pub fn doubling(self) -> Self {
        match Arc::try_unwrap(self.0) {
            Ok(shared) => Self(Arc::new(Shared { doubles_starts: true, ..shared })),
            Err(shared) => Self(shared),
        }
    }

    /// A new life of a process listens.
    pub fn connect(&self, pid: Pid) -> mpsc::UnboundedReceiver<Report> {
        let (ear, reports) = mpsc::unbounded_channel();
        self.lock().ears.insert(pid, ear);
        reports
    }

    /// Ends that a process did not acknowledge are told it again.
    pub fn tell_again(&self, pid: Pid) {
        let inner = self.lock();
        let Some(ear) = inner.ears.get(&pid) else { return };
        for (run_id, job) in &inner.jobs {
            let is_told =
                job.adapter == Adapter::Runner && !job.is_acknowledged && job.hosts.contains(&pid);
            if let Some((at, end)) = job.end.filter(|_| is_told) {
                let what = What::Finished(outcome(end));
                let _is_there = ear.send(Report { run_id: run_id.clone(), at, what });
            }
        }
    }

    /// How a job ended, if it did: whether well.
    pub fn ended_well(&self, run_id: &str) -> Option<bool> {
        self.lock().jobs.get(run_id).and_then(|job| job.end).map(|(_, end)| end == End::Well)
    }

    /// What is known of a job, for people.
    pub fn story(&self, run_id: &str) -> String {
        let inner = self.lock();
        let Some(job) = inner.jobs.get(run_id) else { return format!("{run_id}: never began") };
        let end = job
            .end
            .map_or_else(|| "still runs".to_owned(), |(at, end)| format!("ended {end:?} at {at}"));
        let (times, began) = (job.times, job.began_at);
        format!("{run_id}: {:?}, began {times} times, first at {began}; {end}", job.adapter)
    }

    /// Forgets jobs that nobody can ask about any more.
    pub fn forget_before(&self, before: Timestamp) {
        let mut inner = self.lock();
        inner.jobs.retain(|_, job| job.began_at >= before);
        let jobs = std::mem::take(&mut inner.unclear);
        inner.unclear = jobs.into_iter().filter(|run| inner.jobs.contains_key(run)).collect();
    }

    /// What one process sees of them.
    pub fn seen_by(&self, world: ProcessWorld) -> SeenJobs {
        SeenJobs { jobs: self.clone(), world }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn nature(&self, run_id: &str) -> Nature {
        let mut random = Random::of(self.0.seed, run_id);
        let calm = self.0.luck.is_calm();
        let is_bad = random.chance(self.0.luck.profile().jobs_per_mille) && !calm;
        let habits = [
            Habit::Fails,
            Habit::Fails,
            Habit::FailsForGood,
            Habit::Hangs,
            Habit::NeverReports,
            Habit::ReportsTwice,
            Habit::ReportsTwice,
            Habit::ReportsLate,
            Habit::EndsBeforeItBegins,
            Habit::GetsLost,
        ];
        let drawn = if is_bad { habits[random.below(10) as usize] } else { Habit::Good };
        let do_all_fail = self.0.luck.do_all_fail(self.0.clockwork.time());
        let habit = if do_all_fail { Habit::Fails } else { drawn };
        let starts_badly = random.chance(self.0.luck.profile().jobs_per_mille / 4) && !calm;
        let beginnings = [Beginning::Refused, Beginning::UnclearAndBegun, Beginning::UnclearAndNot];
        let takes_most = if random.chance(50) { 3 * 3_600 } else { 300 };
        let mut nature = Nature {
            habit,
            beginning: if starts_badly {
                beginnings[random.below(3) as usize]
            } else {
                Beginning::Good
            },
            takes: random.between(1, takes_most),
            on_its_way: if random.chance(100) { random.between(1, 20) } else { 0 },
            answer_takes: if random.chance(100) { random.between(1, 20) } else { 0 },
            late_by: random.between(60, 7_200),
        };
        // Longer than it takes the next owner to look for it, and shorter than it looks.
        if random.chance(60) && !calm {
            nature.on_its_way = random.between(20, 58);
        }
        nature
    }

    /// A job begins, or is there already. Whose it is hears of it, whoever has to answer for the start.
    fn begin(&self, request: &StartRequest, adapter: Adapter, (host, by): (Pid, Pid)) {
        let now = self.0.clockwork.time();
        let run_id = &request.run_id;
        let times = {
            let mut inner = self.lock();
            let job = inner.jobs.entry(run_id.clone()).or_insert_with(|| Job {
                adapter,
                began_at: now,
                times: 0,
                end: None,
                is_acknowledged: false,
                hosts: BTreeSet::new(),
            });
            job.hosts.insert(host);
            if adapter == Adapter::Runner && job.times > 0 {
                // It knows the id and does nothing.
                drop(inner);
                self.0.luck.saw("start repeated");
                return;
            }
            job.times += 1;
            job.times
        };
        self.0.watcher.began(run_id, times, by);
        let nature = self.nature(run_id);
        let (jobs, run_id) = (self.clone(), run_id.clone());
        let world = self.0.clockwork.process(NATURE);
        let live = world.clone();
        let task = async move { jobs.lead(&run_id, nature, &live).await };
        world.spawn("a job", Box::pin(task));
    }

    /// The life of a job.
    async fn lead(&self, run_id: &str, nature: Nature, world: &ProcessWorld) {
        let habit = nature.habit;
        if habit == Habit::GetsLost {
            self.0.luck.saw("job lost, then found");
            self.tell(run_id, &What::Lost { reason: "its host does not answer".to_owned() });
        } else if habit != Habit::EndsBeforeItBegins {
            self.tell(run_id, &What::Started { metadata: BTreeMap::new() });
        }
        if habit == Habit::Hangs {
            self.0.luck.saw("job hung");
            return;
        }
        world.sleep(seconds(nature.takes)).await;
        let fails = matches!(habit, Habit::Fails | Habit::FailsForGood);
        if !self.end(run_id, if fails { End::Badly } else { End::Well }) {
            return;
        }
        let told = What::Finished(self.end_of(run_id, habit));
        match habit {
            Habit::NeverReports => self.0.luck.saw("job's end never reported"),
            Habit::ReportsTwice => {
                self.0.luck.saw("job reported twice");
                self.tell(run_id, &told);
                world.sleep(seconds(nature.late_by / 60)).await;
                self.tell(run_id, &told);
            }
            Habit::ReportsLate => {
                self.0.luck.saw("job reported late");
                world.sleep(seconds(nature.late_by)).await;
                self.tell(run_id, &told);
            }
            Habit::EndsBeforeItBegins => {
                self.0.luck.saw("job's end before its beginning");
                self.tell(run_id, &told);
                self.tell(run_id, &What::Started { metadata: BTreeMap::new() });
            }
            Habit::Fails | Habit::FailsForGood => {
                self.0.luck.saw("job failed");
                self.tell(run_id, &told);
            }
            Habit::Good | Habit::GetsLost | Habit::Hangs => self.tell(run_id, &told),
        }
    }

    /// A job ends, unless it has; says whether it did now.
    fn end(&self, run_id: &str, end: End) -> bool {
        let now = self.0.clockwork.time();
        let mut inner = self.lock();
        let Some(job) = inner.jobs.get_mut(run_id).filter(|job| job.end.is_none()) else {
            return false;
        };
        job.end = Some((now, end));
        true
    }

    fn end_of(&self, run_id: &str, habit: Habit) -> Outcome {
        if habit == Habit::FailsForGood {
            let message = "its input is wrong".to_owned();
            let category = FailureCategory::Permanent;
            return Outcome::Failure { message, category, metadata: BTreeMap::new() };
        }
        let end = self.lock().jobs.get(run_id).and_then(|job| job.end);
        outcome(end.map_or(End::Badly, |(_, end)| end))
    }

    /// Tells whose business it is.
    fn tell(&self, run_id: &str, what: &What) {
        let at = self.0.clockwork.time();
        let inner = self.lock();
        let Some(job) = inner.jobs.get(run_id) else { return };
        for ear in job.hosts.iter().filter_map(|pid| inner.ears.get(pid)) {
            let _is_gone = ear.send(Report { run_id: run_id.to_owned(), at, what: what.clone() });
        }
    }
}

fn outcome(end: End) -> Outcome {
    let metadata = BTreeMap::new();
    match end {
        End::Cancelled => Outcome::Cancelled { message: "it was asked to end".to_owned() },
        End::Well => Outcome::Success { metadata },
        End::Badly => {
            let (message, category) =
                ("the job exited with 1".to_owned(), FailureCategory::Transient);
            Outcome::Failure { message, category, metadata }
        }
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}

impl SeenJobs {
    /// A request that has left is on its way whatever becomes of whoever sent it: it arrives after its sender died too, and
    /// after the next owner has found nothing and asked again.
    async fn arrive_later(
        &self,
        request: StartRequest,
        nature: &Nature,
    ) -> Result<(), StartFailure> {
        let (jobs, pid) = (self.jobs.clone(), self.world.pid());
        let life = jobs.0.clockwork.life(pid);
        let (arrived, answer) = oneshot::channel();
        let (on_its_way, nature_world) = (nature.on_its_way, jobs.0.clockwork.process(NATURE));
        let way = nature_world.clone();
        let task = async move {
            way.sleep(seconds(on_its_way)).await;
            // For what a dead process sent nobody answers.
            let by = if jobs.0.clockwork.life(pid) == life { pid } else { NATURE };
            jobs.begin(&request, adapter_of(&request), (pid, by));
            if jobs.0.doubles_starts {
                jobs.begin(&request, Adapter::Blind, (pid, by));
            }
            let _sender_is_gone = arrived.send(());
        };
        nature_world.spawn("a start on its way", Box::pin(task));
        let _always_arrives = answer.await;
        if nature.answer_takes > 0 {
            self.world.sleep(seconds(nature.answer_takes)).await;
        }
        Ok(())
    }
}

/// Jobs, as one process sees them.
#[derive(Debug)]
pub struct SeenJobs {
    jobs: Jobs,
    world: ProcessWorld,
}

fn adapter_of(request: &StartRequest) -> Adapter {
    match &request.kind {
        TriggerKind::Http(_) => Adapter::Blind,
        TriggerKind::Command(_)
        | TriggerKind::Steps(_)
        | TriggerKind::Airflow(_)
        | TriggerKind::External
        | TriggerKind::Other { .. } => Adapter::Runner,
    }
}

impl Triggers for SeenJobs {
    fn start(&self, request: StartRequest) -> TriggerFuture<'_, Result<(), StartFailure>> {
        Box::pin(async move {
            let nature = self.jobs.nature(&request.run_id);
            let luck = &self.jobs.0.luck;
            let failed = |message: &str, may_have_started| StartFailure {
                message: message.to_owned(),
                category: FailureCategory::Transient,
                may_have_started,
            };
            if nature.on_its_way > 0 && nature.beginning == Beginning::Good {
                return self.arrive_later(request, &nature).await;
            }
            if nature.on_its_way > 0 {
                self.world.sleep(seconds(nature.on_its_way)).await;
            }
            match nature.beginning {
                Beginning::Refused => {
                    luck.saw("start refused");
                    return Err(failed("it was refused", false));
                }
                Beginning::UnclearAndNot
                    if self.jobs.lock().unclear.insert(request.run_id.clone()) =>
                {
                    luck.saw("start unclear");
                    return Err(failed("nobody answered", true));
                }
                Beginning::Good | Beginning::UnclearAndBegun | Beginning::UnclearAndNot => {}
            }
            let (adapter, pid) = (adapter_of(&request), self.world.pid());
            self.jobs.begin(&request, adapter, (pid, pid));
            if self.jobs.0.doubles_starts {
                self.jobs.begin(&request, Adapter::Blind, (pid, pid));
            }
            if nature.answer_takes > 0 {
                self.world.sleep(seconds(nature.answer_takes)).await;
            }
            if nature.beginning == Beginning::UnclearAndBegun {
                luck.saw("start unclear");
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
            let mut inner = self.jobs.lock();
            if adapter_of(request) == Adapter::Blind {
                return Ok(LookUp::CannotTell { reason: "nobody knows".to_owned() });
            }
            let Some(job) = inner.jobs.get_mut(&request.run_id) else {
                return Ok(LookUp::NeverStarted);
            };
            job.hosts.insert(self.world.pid());
            Ok(match job.end {
                Some((_, end)) => LookUp::Finished(outcome(end)),
                None => LookUp::Running { metadata: BTreeMap::new() },
            })
        })
    }

    fn cancel<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<(), CancelFailure>> {
        Box::pin(async move {
            let world = self.jobs.0.clockwork.process(NATURE);
            let (jobs, run_id, live) = (self.jobs.clone(), request.run_id.clone(), world.clone());
            let task = async move {
                live.sleep(seconds(1)).await;
                if jobs.end(&run_id, End::Cancelled) {
                    jobs.tell(&run_id, &What::Finished(outcome(End::Cancelled)));
                }
            };
            world.spawn("a job is asked to end", Box::pin(task));
            Ok(())
        })
    }

    fn acknowledge(&self, run_id: &str) {
        if let Some(job) = self.jobs.lock().jobs.get_mut(run_id) {
            job.is_acknowledged = true;
        }
    }
}
