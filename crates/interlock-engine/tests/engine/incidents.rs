//! Who is told: engine and notifier together on virtual time, killed at every await (S12, S13, L4).

use std::{
    collections::BTreeMap,
    future::Future as _,
    sync::{Arc, Mutex},
    task::Poll,
};

use interlock_core::{id::PipelineId, incident::Alert, retry::FailureCategory};
use interlock_engine::{
    Engine, Limits, Notifier, NotifierParts, Pace, Parts, Patience,
    seam::{Task, World as _},
    vitals::Pulse,
};
use interlock_ports::channel::{
    AlertMessage, ChannelPolicy, Channels, Delivery, DeliveryFuture, HoldFuture, HoldReason,
    RouteFuture,
};
use interlock_ports::trigger::{
    CancelFailure, LookUp, LookUpFailure, Outcome, Report, StartFailure, StartRequest,
    TriggerFuture, Triggers, What,
};
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Row, Shard, Store, block_on,
    memory::MemoryStore,
    record::{InboxRecord, IncidentRecord},
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use tokio::sync::mpsc;

use crate::{
    Files, START,
    crashing::{crashing, end_of},
    world::{JOB_TAKES, Passing, Virtual},
};

const ORDERS: &str = "name: orders\nschedule: {cron: \"*/10 * * * *\", id: often}\nretry: {maxAttempts: 1}\n\
    trigger: {type: command, command: 'true'}\n";

/// The minutes of the first hour whose jobs fail: two in a row, then one after a success.
const BAD_MINUTES: [i8; 3] = [10, 20, 40];

/// Jobs that fail at the bad minutes, and outlive the engine.
#[derive(Clone)]
struct Jobs {
    world: Virtual,
    started: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    reports: mpsc::UnboundedSender<Report>,
}

impl Jobs {
    fn outcome(request: &StartRequest) -> Outcome {
        let wall = request.slot.to_zoned(TimeZone::UTC);
        if wall.hour() == 0 && BAD_MINUTES.contains(&wall.minute()) {
            let (message, category) = ("exit 3".to_owned(), FailureCategory::Permanent);
            return Outcome::Failure { message, category, metadata: BTreeMap::new() };
        }
        Outcome::Success { metadata: BTreeMap::new() }
    }

    fn report_later(&self, request: &StartRequest, started: Timestamp) {
        let (reports, world) = (self.reports.clone(), self.world.clone());
        let (run_id, what) = (request.run_id.clone(), What::Finished(Self::outcome(request)));
        let sleep = world.sleep_until(started + JOB_TAKES);
        let task = async move {
            sleep.await;
            let _engine_is_gone = reports.send(Report { run_id, at: world.time(), what });
        };
        self.world.spawn("job", Box::pin(task));
    }
}

impl Triggers for Jobs {
    fn start(&self, request: StartRequest) -> TriggerFuture<'_, Result<(), StartFailure>> {
        Box::pin(async move {
            let now = self.world.time();
            self.started.lock().unwrap().insert(request.run_id.clone(), now);
            self.report_later(&request, now);
            Ok(())
        })
    }

    fn look_up<'a>(
        &'a self,
        request: &'a StartRequest,
    ) -> TriggerFuture<'a, Result<LookUp, LookUpFailure>> {
        Box::pin(async move {
            let started = self.started.lock().unwrap().get(&request.run_id).copied();
            Ok(match started {
                None => LookUp::NeverStarted,
                Some(at) if self.world.time() >= at + JOB_TAKES => {
                    LookUp::Finished(Self::outcome(request))
                }
                Some(at) => {
                    self.report_later(request, at);
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

/// What a receiver does with the try of a number, from 0.
pub(crate) type Receiver = fn(&Virtual, usize) -> Task<Delivery>;

/// Receivers as the world sees them: they remember what reached them, whoever dies.
#[derive(Clone)]
pub(crate) struct Receivers {
    world: Virtual,
    channels: &'static [(&'static str, Receiver)],
    /// Channel, key and alert of each try that was delivered.
    pub(crate) got: Arc<Mutex<Vec<(String, String, Alert)>>>,
    tries: Arc<Mutex<BTreeMap<String, usize>>>,
    /// Nobody is told from here to there.
    pub(crate) quiet: Option<(Timestamp, Timestamp)>,
    pub(crate) manner: ChannelPolicy,
}

impl Receivers {
    /// What a channel got, in order: state and type, repetitions of a key left out.
    pub(crate) fn heard(&self, channel: &str) -> Vec<String> {
        let mut keys = Vec::new();
        let mut heard = Vec::new();
        for (to, key, alert) in self.got.lock().unwrap().iter() {
            if to == channel && !keys.contains(key) {
                keys.push(key.clone());
                let state = alert.details.get("state").and_then(|s| s.as_str()).unwrap_or("-");
                heard.push(format!("{state} {}", alert.alert_type));
            }
        }
        heard
    }
}

impl Channels for Receivers {
    fn route<'a>(&'a self, _: &'a Alert) -> RouteFuture<'a> {
        let names = self.channels.iter().map(|(name, _)| (*name).to_owned()).collect();
        Box::pin(std::future::ready(names))
    }

    fn instead_of<'a>(&'a self, channel: &'a str, _: &'a Alert) -> RouteFuture<'a> {
        let others = self.channels.iter().filter(|(name, _)| *name != channel);
        Box::pin(std::future::ready(others.map(|(name, _)| (*name).to_owned()).collect()))
    }

    fn hold<'a>(&'a self, _: &'a Alert, now: Timestamp) -> HoldFuture<'a> {
        let quiet = self.quiet.filter(|(from, until)| (*from..*until).contains(&now));
        let hold =
            quiet.map(|(_, until)| HoldReason { reason: "quiet".into(), until: Some(until) });
        Box::pin(std::future::ready(hold))
    }

    fn manner(&self, _: &str) -> ChannelPolicy {
        self.manner
    }

    fn deliver(&self, channel: &str, notice: AlertMessage) -> DeliveryFuture {
        let number = {
            let mut tries = self.tries.lock().unwrap();
            let count = tries.entry(channel.to_owned()).or_default();
            *count += 1;
            *count - 1
        };
        let (_, receiver) = self.channels.iter().find(|(name, _)| *name == channel).unwrap();
        let (answer, this, channel) =
            (receiver(&self.world, number), self.clone(), channel.to_owned());
        Box::pin(async move {
            let delivery = answer.await;
            if delivery == Delivery::Delivered {
                this.got.lock().unwrap().push((channel, notice.key, notice.alert));
            }
            delivery
        })
    }
}

pub(crate) fn takes(_: &Virtual, _: usize) -> Task<Delivery> {
    Box::pin(std::future::ready(Delivery::Delivered))
}

pub(crate) fn refuses(_: &Virtual, _: usize) -> Task<Delivery> {
    let reason = "410 Gone".to_owned();
    Box::pin(std::future::ready(Delivery::Refused { reason }))
}

pub(crate) fn fails(_: &Virtual, _: usize) -> Task<Delivery> {
    let reason = "503".to_owned();
    Box::pin(std::future::ready(Delivery::Failed { reason, retry_after: None }))
}

/// Answers after its time limit, in vain.
fn hangs(world: &Virtual, _: usize) -> Task<Delivery> {
    let sleep = world.sleep_until(world.time() + SignedDuration::from_secs(10));
    Box::pin(async move {
        sleep.await;
        Delivery::Failed { reason: "timed out".to_owned(), retry_after: None }
    })
}

/// A machine on which engines and notifiers live and die.
pub(crate) struct Stage {
    pub(crate) world: Virtual,
    pub(crate) store: Arc<MemoryStore>,
    files: Files,
    started: Arc<Mutex<BTreeMap<String, Timestamp>>>,
    pub(crate) receivers: Receivers,
    /// How often the notifier looks into the outbox.
    pub(crate) look: SignedDuration,
}

impl Stage {
    pub(crate) fn new(receivers: &'static [(&'static str, Receiver)]) -> Self {
        let world = Virtual::new(START.parse().unwrap());
        let clock = world.clone();
        let store = Arc::new(MemoryStore::new(1, Arc::new(move || clock.time())));
        let receivers = Receivers {
            world: world.clone(),
            channels: receivers,
            got: Arc::default(),
            tries: Arc::default(),
            quiet: None,
            manner: ChannelPolicy::default(),
        };
        Self {
            world,
            store,
            files: Files::new(&[ORDERS]),
            started: Arc::default(),
            receivers,
            look: SignedDuration::from_secs(30),
        }
    }

    /// Runs engine and notifier until they die at a wait for the store, or time is over.
    pub(crate) fn live(&self, dies_at: u64, until: Timestamp) {
        let store = Arc::new(crashing(Arc::clone(&self.store) as Arc<dyn Store>, dies_at));
        let (sender, reports) = mpsc::unbounded_channel();
        let triggers =
            Jobs { world: self.world.clone(), started: Arc::clone(&self.started), reports: sender };
        let parts = Parts {
            world: Arc::new(self.world.clone()),
            store: Arc::clone(&store) as Arc<dyn Store>,
            specs: Arc::new(self.files.clone()),
            triggers: Arc::new(triggers),
            evaluators: Arc::new(Passing),
            reports,
            declarations: mpsc::channel(1).1,
            holder: "test".to_owned(),
            limits: Limits::default(),
            pace: Pace {
                lease: SignedDuration::from_hours(24),
                inbox: SignedDuration::from_mins(5),
            },
            host: interlock_engine::host::Host::default(),
        };
        let notifier = Notifier::new(NotifierParts {
            world: Arc::new(self.world.clone()),
            store: Arc::clone(&store) as Arc<dyn Store>,
            channels: Arc::new(self.receivers.clone()),
            patience: Patience { look: self.look, ..Patience::default() },
            vitals: Arc::default(),
            pulse: Pulse::default(),
        });
        let files = self.files.clone();
        let mut engine = Box::pin(async move {
            let mut engine = Engine::open(parts, Shard(0)).await.unwrap().unwrap();
            let changes = files.changes(&engine);
            engine.declare(&changes).await.unwrap();
            engine.run(Box::pin(std::future::pending())).await.unwrap();
        });
        let mut notifier = Box::pin(notifier.run(Box::pin(std::future::pending())));
        let both = std::future::poll_fn(move |context| {
            let _running = engine.as_mut().poll(context);
            let _delivering = notifier.as_mut().poll(context);
            Poll::Pending
        });
        self.world.run(Box::pin(end_of(&store, both)).as_mut(), until);
        self.world.kill();
    }

    /// So many minutes after the start.
    pub(crate) fn end(minutes: i64) -> Timestamp {
        START.parse::<Timestamp>().unwrap() + SignedDuration::from_mins(minutes)
    }

    pub(crate) fn incidents(&self) -> Vec<(PipelineId, String, Row<IncidentRecord>)> {
        block_on(self.store.incidents(None, 100)).unwrap().items
    }

    /// Everything that was heard has its event, and nothing is left to be heard.
    pub(crate) fn check_told(&self, context: &str) {
        let events = block_on(self.store.events(None, 0, usize::MAX)).unwrap().items;
        for (_, key, alert) in self.receivers.got.lock().unwrap().iter() {
            let slot = alert.details.get("slot").and_then(|slot| slot.as_str());
            let found = events.iter().any(|event| {
                event.record.kind == "RETRY_EXHAUSTED" && event.record.slot.as_deref() == slot
            });
            assert!(found, "{context}: {key} was told and is no event");
        }
        let left = block_on(self.store.claim(100, SignedDuration::from_secs(1))).unwrap();
        assert_eq!(left, [], "{context}: not delivered");
    }
}

pub(crate) const TOLD: [&str; 4] =
    ["open job_failed", "resolved job_failed", "open job_failed", "resolved job_failed"];

#[test]
fn a_days_failures_are_told_once_their_end_once_and_what_comes_back_again() {
    let stage = Stage::new(&[("chat", takes), ("mail", takes)]);
    stage.live(u64::MAX, Stage::end(55));
    assert_eq!(stage.receivers.heard("chat"), TOLD);
    assert_eq!(stage.receivers.heard("mail"), TOLD);
    let incidents = stage.incidents();
    let [(pipeline, key, row)] = incidents.as_slice() else { panic!("{incidents:?}") };
    assert_eq!((pipeline.as_str(), key.as_str()), ("orders", "failed:orders:often:2026-03-20"));
    assert_eq!((row.record.state.as_str(), row.record.count), ("resolved", 1));
    assert!(
        row.record.message.ends_with(": exit 3; PERMANENT failures are not tried again"),
        "{}",
        row.record.message
    );
    stage.check_told("no death");
}

#[test]
fn a_death_at_every_await_loses_no_alert_and_invents_none() {
    let mut repeated = 0;
    for dies_at in 0.. {
        let stage = Stage::new(&[("chat", takes), ("mail", takes)]);
        let end = Stage::end(55);
        stage.live(dies_at, end);
        let outlived = stage.world.time() >= end;
        stage.live(u64::MAX, end + SignedDuration::from_mins(5));
        let context = format!("death at wait {dies_at}");
        assert_eq!(stage.receivers.heard("chat"), TOLD, "{context}");
        assert_eq!(stage.receivers.heard("mail"), TOLD, "{context}");
        stage.check_told(&context);
        repeated += stage.receivers.got.lock().unwrap().len() - 2 * TOLD.len();
        if outlived {
            // Some died between sending and saying so: those were sent again, under the same key.
            assert!(repeated > 4, "only {repeated} deaths between sending and settling");
            assert!(dies_at > 200, "an hour has more waits than {dies_at}");
            return;
        }
    }
}

#[test]
fn deaths_over_and_over_lose_no_alert() {
    let stage = Stage::new(&[("chat", takes)]);
    let end = Stage::end(55);
    for dies_at in (1..40).cycle().take(20_000) {
        if stage.world.time() >= end {
            break;
        }
        stage.live(dies_at, end);
    }
    stage.live(u64::MAX, end + SignedDuration::from_mins(5));
    assert_eq!(stage.receivers.heard("chat"), TOLD);
    stage.check_told("many deaths");
}

#[test]
fn what_is_refused_is_a_dead_letter_that_the_others_hear_of_and_its_end_is_not_sent() {
    let stage = Stage::new(&[("chat", takes), ("mail", refuses)]);
    stage.live(u64::MAX, Stage::end(55));
    let dead = block_on(stage.store.dead_letters(10)).unwrap().items;
    let names: Vec<&str> = dead.iter().map(|row| row.name.as_str()).collect();
    let key = "failed:orders:often:2026-03-20";
    assert_eq!(names, [format!("{key}~1~opened@mail"), format!("{key}~4~opened@mail")]);
    assert!(dead.iter().all(|row| row.record.last_error.as_deref() == Some("410 Gone")));
    assert_eq!(stage.receivers.tries.lock().unwrap()["mail"], 2, "no end without a beginning");
    let mut heard = stage.receivers.heard("chat");
    heard.retain(|line| line != "- alert_undelivered");
    assert_eq!(
        (heard.as_slice(), stage.receivers.heard("chat").len()),
        (&TOLD.map(str::to_owned)[..], 6)
    );
}

#[test]
fn a_channel_that_fails_or_hangs_is_given_up_in_time_and_holds_nobody_up() {
    for bad in [fails as Receiver, hangs] {
        // Leaked: a test's own table must live as long as the others.
        let receivers: &'static [(&'static str, Receiver)] =
            Box::leak(Box::new([("chat", takes as Receiver), ("mail", bad)]));
        let stage = Stage::new(receivers);
        stage.live(u64::MAX, Stage::end(11));
        assert_eq!(stage.receivers.heard("chat"), ["open job_failed"], "not held up");
        stage.live(u64::MAX, Stage::end(20 * 60));
        let dead = block_on(stage.store.dead_letters(10)).unwrap().items;
        assert_eq!(dead.len(), 2, "both beginnings: {dead:?}");
        assert!(dead.iter().all(|row| row.record.tries == Patience::default().tries_max));
        let undelivered = stage.receivers.heard("chat");
        assert_eq!(undelivered.iter().filter(|l| l.ends_with("alert_undelivered")).count(), 2);
        let left = block_on(stage.store.claim(100, SignedDuration::from_secs(1))).unwrap();
        assert_eq!(left, []);
    }
}

#[test]
fn a_broken_file_is_an_incident_until_it_is_mended() {
    let stage = Stage::new(&[("chat", takes)]);
    let system = PipelineId::system();
    let say = |key: &str, problem: Option<&str>| {
        let problem = problem.map(str::to_owned);
        let record = InboxRecord::File { file: "interlock.yaml".into(), problem };
        block_on(stage.store.post(&system, key, &record)).unwrap();
    };
    say("1", Some("line 3: `alert` is unknown"));
    stage.live(u64::MAX, Stage::end(4));
    say("2", None);
    say("3", None);
    stage.live(u64::MAX, Stage::end(8));
    assert_eq!(stage.receivers.heard("chat"), ["open config_broken", "resolved config_broken"]);
    let incidents = stage.incidents();
    let [(pipeline, key, row)] = incidents.as_slice() else { panic!("{incidents:?}") };
    assert_eq!((pipeline, key.as_str()), (&system, "config:interlock.yaml"));
    assert_eq!(
        row.record.message,
        "interlock.yaml is broken; the last good version stays in force: line 3: `alert` is unknown"
    );
}

/// Tells that so many files are broken: as many alerts.
pub(crate) fn break_files(stage: &Stage, count: usize) {
    for number in 0..count {
        let (file, problem) = (format!("{number}.yaml"), Some("gone".to_owned()));
        let record = InboxRecord::File { file: file.clone(), problem };
        block_on(stage.store.post(&PipelineId::system(), &file, &record)).unwrap();
    }
}

#[test]
fn a_channel_that_fails_is_left_alone_while_the_others_get_everything() {
    let stage = Stage::new(&[("chat", takes), ("mail", fails)]);
    break_files(&stage, 60);
    stage.live(u64::MAX, Stage::end(4));
    assert_eq!(stage.receivers.heard("chat").len(), 60);
    let tries = stage.receivers.tries.lock().unwrap()["mail"];
    // A few before anybody knew, then one at a time to find out.
    assert!((3..=12).contains(&tries), "{tries} tries at a channel that is down");
}

/// Wants to be left alone for a while, and then takes everything.
fn comes_back(_: &Virtual, number: usize) -> Task<Delivery> {
    let reason = "429".to_owned();
    let retry_after = Some(SignedDuration::from_mins(7));
    Box::pin(std::future::ready(match number {
        0 => Delivery::Failed { reason, retry_after },
        _ => Delivery::Delivered,
    }))
}

#[test]
fn a_channel_that_asks_to_be_left_alone_is_left_alone_and_then_gets_everything() {
    let stage = Stage::new(&[("mail", comes_back)]);
    break_files(&stage, 1);
    stage.live(u64::MAX, Stage::end(3));
    break_files(&stage, 3);
    stage.live(u64::MAX, Stage::end(5));
    // The second life did not know, so it tried the new ones; the first alert still waits.
    assert_eq!(stage.receivers.heard("mail").len(), 2);
    stage.live(u64::MAX, Stage::end(6));
    assert_eq!(stage.receivers.heard("mail").len(), 2, "too early");
    stage.live(u64::MAX, Stage::end(9));
    assert_eq!(stage.receivers.heard("mail").len(), 3);
}

#[test]
fn an_incident_that_somebody_else_changed_is_read_again_and_nothing_is_lost() {
    let stage = Stage::new(&[("chat", takes)]);
    let (world, store) = (stage.world.clone(), Arc::clone(&stage.store));
    let acknowledge = async move {
        world.sleep_until(Stage::end(15)).await;
        let (pipeline, key, row) = store.incidents(None, 1).await.unwrap().items.remove(0);
        let day = SignedDuration::from_hours(24);
        let lease = store.acquire(Role::Watchdog, Shard(0), "other", day).await.unwrap().unwrap();
        let record = IncidentRecord { state: "acknowledged".into(), ..row.record };
        let expect = Expect::Revision(row.revision);
        let change = Change::Put(Key::Incident(key), expect, Record::Incident(record.into()));
        let group = Group { pipeline, writer: lease.writer, changes: vec![change] };
        assert!(store.commit(vec![group]).await.unwrap().remove(0).is_ok());
    };
    stage.world.spawn("acknowledge", Box::pin(acknowledge));
    stage.live(u64::MAX, Stage::end(55));
    assert_eq!(stage.receivers.heard("chat"), TOLD);
    stage.check_told("a conflict");
}
