//! Engine and watchdog on one store: one hangs, the other tells; one comes back and lives with what was written; both
//! die at every wait.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
};

use interlock_config::{SystemZones, ZoneSource as _};
use interlock_core::incident::Alert;
use interlock_engine::{
    Notifier, NotifierParts, Patience, add_incidents, incident_keys, seam::World as _,
    vitals::Pulse,
};
use interlock_ports::channel::{AlertMessage, Channels, Delivery, DeliveryFuture, RouteFuture};
use interlock_store::{
    DueKind, Group, Key, Record, Shard, Store, block_on,
    record::{InboxRecord, IncidentRecord},
};
use interlock_watchdog::{
    Pace, Parts, Watchdog,
    once::{CheckOptions, once},
    seam::{Incidents, Task, Telling, World},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{
    crashing::{crashing, end_of},
    stage::{Job, Stage, at},
    world::Virtual,
};

impl World for Virtual {
    fn now(&self) -> Timestamp {
        self.time()
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        interlock_engine::seam::World::sleep_until(self, at)
    }
}

struct EngineTelling;

impl Telling for EngineTelling {
    fn keys(&self, group: &Group) -> Vec<String> {
        incident_keys(group)
    }

    fn add(&self, group: &mut Group, incidents: &mut Incidents) {
        add_incidents(group, incidents);
    }
}

fn parts(world: &Virtual, store: Arc<dyn Store>, holder: &str) -> Parts {
    let zones = SystemZones::new();
    let zones = Arc::new(move |name: &str| zones.zone(name));
    let mut parts = Parts::new(Arc::new(world.clone()), store, Arc::new(EngineTelling), zones);
    holder.clone_into(&mut parts.holder);
    parts.pace = Pace { interval: SignedDuration::from_mins(1), ..Pace::default() };
    parts
}

/// Everything that reached somebody, and when.
#[derive(Clone)]
pub(crate) struct Heard(Virtual, Arc<Mutex<Vec<(Timestamp, Alert)>>>);

impl Channels for Heard {
    fn route<'a>(&'a self, _: &'a Alert) -> RouteFuture<'a> {
        Box::pin(std::future::ready(vec!["phone".to_owned()]))
    }

    fn instead_of<'a>(&'a self, _: &'a str, _: &'a Alert) -> RouteFuture<'a> {
        Box::pin(std::future::ready(vec![]))
    }

    fn manner(&self, _: &str) -> interlock_ports::channel::ChannelPolicy {
        interlock_ports::channel::ChannelPolicy {
            takes_digests: true,
            ..interlock_ports::channel::ChannelPolicy::default()
        }
    }

    fn deliver(&self, _: &str, notice: AlertMessage) -> DeliveryFuture {
        self.1.lock().unwrap().push((self.0.time(), notice.alert));
        Box::pin(std::future::ready(Delivery::Delivered))
    }
}

impl Heard {
    /// As `HH:MM:SS type state`.
    pub(crate) fn lines(&self) -> Vec<String> {
        let heard = self.1.lock().unwrap();
        let line = |(at, alert): &(Timestamp, Alert)| {
            let state = alert.details.get("state").and_then(|state| state.as_str()).unwrap_or("-");
            format!("{} {} {state}", at.strftime("%H:%M:%S"), alert.alert_type)
        };
        heard.iter().map(line).collect()
    }
}

/// Lets a watchdog and a notifier live beside the engine.
pub(crate) fn watch(stage: &Stage) -> Heard {
    watch_through(stage, Arc::clone(&stage.store) as _)
}

/// The same, through a store that may count.
pub(crate) fn watch_through(stage: &Stage, store: Arc<dyn Store>) -> Heard {
    let heard = Heard(stage.world.clone(), Arc::default());
    let (watchdog, notifier) = watchers(stage, store, &heard);
    stage.world.spawn("watchdog", watchdog);
    stage.world.spawn("notifier", notifier);
    heard
}

/// The lives of both, on a store of their own.
fn watchers(stage: &Stage, store: Arc<dyn Store>, heard: &Heard) -> (Task<()>, Task<()>) {
    let parts = parts(&stage.world, Arc::clone(&store), "watchdog");
    let watchdog = async move {
        let watchdog = Watchdog::open(parts, Shard(0)).await.unwrap().unwrap();
        watchdog.run(Box::pin(std::future::pending())).await.unwrap();
    };
    let notifier = Notifier::new(NotifierParts {
        world: Arc::new(stage.world.clone()),
        store,
        channels: Arc::new(heard.clone()),
        patience: Patience::default(),
        vitals: Arc::default(),
        pulse: Pulse::default(),
    });
    let notifier = async move {
        notifier.run(Box::pin(std::future::pending())).await.unwrap();
    };
    (Box::pin(watchdog), Box::pin(notifier))
}

/// Time passes, and the engine does nothing: it hangs, it is not dead.
fn hang(stage: &Stage, until: Timestamp) {
    let hung = pin!(std::future::pending::<()>());
    assert!(stage.world.run(hung, until).is_none());
    // Nobody at all may be waiting for anything.
    stage.world.pass(until.duration_since(stage.world.time()));
}

fn incident(stage: &Stage, key: &str) -> IncidentRecord {
    let page = block_on(stage.store.incidents(None, 100)).unwrap();
    let found = page.items.into_iter().find(|(_, known, _)| known == key);
    found.unwrap_or_else(|| panic!("no incident {key}")).2.record
}

const DEADLINE: &str = "
name: orders
schedules: [{name: nine, cron: '0 9 * * *', deadline: '09:30'}]
catchupWindow: 6h
trigger: {type: command, command: 'true'}
";

#[test]
fn while_the_engine_hangs_people_hear_within_a_second_and_again_when_it_runs_late() {
    let mut stage = Stage::new(at("08:00"), &[DEADLINE], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    let heard = watch(&stage);
    hang(&stage, at("09:40"));
    // Judged half a second after the deadline, and told at that instant.
    assert_eq!(heard.lines(), ["09:30:00 schedule_missed open"]);
    assert_eq!(stage.slots(), ["nine/2026-02-24T09:00:00Z missed"]);
    // It comes back, and catches up what was called missed.
    assert!(stage.until(at("09:45")).is_none());
    assert_eq!(stage.slots(), ["nine/2026-02-24T09:00:00Z completed"]);
    let slot = stage.slot().to_core().unwrap();
    assert!(slot.marks.late && slot.marks.missed_at.is_some(), "{slot:?}");
    assert_eq!(stage.started().len(), 1);
    let resolved = &heard.lines()[1];
    assert!(resolved.ends_with("schedule_missed resolved"), "{resolved}");
    assert_eq!(incident(&stage, "watchdog:orders:nine:2026-02-24").count, 1);
}

#[test]
fn a_healthy_engine_is_not_spoken_of() {
    let mut stage = Stage::new(at("08:00"), &[DEADLINE], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    let heard = watch(&stage);
    assert!(stage.until(at("23:00")).is_none());
    assert_eq!(heard.lines(), Vec::<String>::new());
    assert_eq!(stage.slots(), ["nine/2026-02-24T09:00:00Z completed"]);
}

#[test]
fn a_slot_that_finds_no_room_breaks_its_sla_and_keeps_its_chance() {
    let mut stage = Stage::new(at("08:00"), &[DEADLINE], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    stage.limits.runs_max = 0;
    stage.crash();
    let heard = watch(&stage);
    assert!(stage.until(at("09:40")).is_none());
    assert_eq!(stage.slots(), ["nine/2026-02-24T09:00:00Z open(waiting)"]);
    assert_eq!(heard.lines(), ["09:30:00 sla_breach open"]);
    let breach = incident(&stage, "sla:orders:nine:2026-02-24");
    assert!(
        breach.message.ends_with("the limit of runs at once was reached"),
        "{}",
        breach.message
    );
    stage.limits.runs_max = 10;
    stage.crash();
    assert!(stage.until(at("09:50")).is_none());
    assert_eq!(stage.slots(), ["nine/2026-02-24T09:00:00Z completed"]);
}

const PLAIN: &str = "
name: orders
schedules: [{name: nine, cron: '0 9 * * *'}]
trigger: {type: command, command: 'true'}
";

#[test]
fn a_run_that_does_not_end_is_stuck_then_failed_once_and_its_job_is_asked_to_end() {
    let mut stage = Stage::new(at("08:00"), &[PLAIN], |_| Job::Succeeds(1_000_000));
    assert!(stage.until(at("08:05")).is_none());
    let heard = watch(&stage);
    assert!(stage.until(at("10:00")).is_none());
    assert_eq!(heard.lines(), ["09:30:00 stuck_run open"]);
    let next_day = at("09:00") + SignedDuration::from_hours(24) + SignedDuration::from_mins(3);
    assert!(stage.until(next_day).is_none());
    let timeouts = stage.told(&["SFN_TIMEOUT"]);
    assert_eq!(timeouts, ["SFN_TIMEOUT step function timed out for orders/nine/2026-02-24"]);
    assert!(stage.slots().contains(&"nine/2026-02-24T09:00:00Z failed".to_owned()));
    assert_eq!(stage.run_rows()[0].record.status, "FAILED");
    assert_eq!(stage.cast.cancelled(), ["orders~nine~20260224T090000Z~1~1"]);
}

#[test]
fn a_run_that_ends_leaves_nothing_in_the_due_index() {
    let mut stage = Stage::new(at("08:00"), &[PLAIN], |_| Job::Succeeds(5));
    assert!(stage.until(at("09:10")).is_none());
    let later = at("23:00") + SignedDuration::from_hours(48);
    let due = block_on(stage.store.due(Shard(0), later, 10)).unwrap().items;
    assert!(due.is_empty(), "{due:?}");
}

const PROMISE: &str = "
name: orders
schedules: [{name: nine, cron: '0 9 * * *'}]
sla: {completionDeadline: '09:20', expectedDuration: 5m, maxDuration: 30m}
postRun: {sensorTimeout: 1h, rules: [{key: rows, check: exists}]}
trigger: {type: command, command: 'true'}
";

#[test]
fn promises_are_watched_by_the_rows_that_the_engine_wrote() {
    let mut stage = Stage::new(at("08:00"), &[PROMISE], |_| Job::Succeeds(3_000));
    assert!(stage.until(at("08:05")).is_none());
    let heard = watch(&stage);
    assert!(stage.until(at("12:00")).is_none());
    let types: Vec<_> =
        heard.lines().iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    for expected in [
        "sla_warning open",
        "sla_breach open",
        "relative_sla_warning open",
        "relative_sla_breach open",
        "stuck_run open",
        "sla_breach resolved",
        "stuck_run resolved",
        "post_run_sensor_missing open",
    ] {
        let count = types.iter().filter(|line| *line == expected).count();
        assert_eq!(count, 1, "{expected} in {types:?}");
    }
    assert_eq!(stage.slots(), ["nine/2026-02-24T09:00:00Z completed"]);
}

#[test]
fn a_slot_that_was_looked_at_in_time_breaks_its_sla_instead_of_being_missed() {
    let file = "
name: orders
schedules: [{name: nine, cron: '0 9 * * *', deadline: '09:30'}]
validation: {trigger: ALL, rules: [{key: ready, check: exists}]}
trigger: {type: command, command: 'true'}
";
    let mut stage = Stage::new(at("08:00"), &[file], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    let heard = watch(&stage);
    assert!(stage.until(at("09:40")).is_none());
    assert_eq!(heard.lines(), ["09:30:00 sla_breach open"]);
    let breach = incident(&stage, "sla:orders:nine:2026-02-24");
    assert!(breach.message.contains("ready"), "{}", breach.message);
    stage.sensor("orders", "ready", json!(true));
    assert!(stage.until(at("09:50")).is_none());
    assert_eq!(stage.slots(), ["nine/2026-02-24T09:00:00Z completed"]);
    assert!(heard.lines()[1].ends_with("sla_breach resolved"), "{:?}", heard.lines());
}

#[test]
fn a_watched_slot_is_closed_by_the_watchdog_and_the_owner_finds_out() {
    let file = "name: orders\nschedule: '0 9 * * *'\ntrigger: {type: external}\n";
    let mut stage = Stage::new(at("08:00"), &[file], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    let heard = watch(&stage);
    assert!(stage.until(at("09:30")).is_none());
    assert_eq!(heard.lines(), ["09:05:00 schedule_missed open"]);
    assert_eq!(stage.told(&["SCHEDULE_MISSED"]).len(), 1, "the owner says nothing more");
    assert_eq!(stage.slots(), ["cron/2026-02-24T09:00:00Z missed"]);
}

const HOURLY: &str = "
name: hourly
schedule: '0 * * * *'
trigger: {type: command, command: 'true'}
";

/// Everything is off from half past nine to half past two; what was heard of that by a quarter to three.
fn after_five_hours_off() -> (Stage, Heard) {
    let mut stage = Stage::new(at("08:30"), &[HOURLY], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:31")).is_none());
    watch(&stage);
    assert!(stage.until(at("09:30")).is_none());
    stage.crash();
    stage.world.pass(SignedDuration::from_hours(5));
    let heard = watch(&stage);
    assert!(stage.until(at("14:45")).is_none());
    let lines = heard.lines();
    assert!(lines.len() == 1 && lines[0].ends_with("schedule_missed open"), "{lines:?}");
    (stage, heard)
}

#[test]
fn a_gap_that_was_given_up_stays_an_incident_until_its_slots_have_run() {
    let state = |stage: &Stage| incident(stage, "watchdog:hourly:cron:2026-02-24").state;
    for is_restarted in [false, true] {
        let (mut stage, mut heard) = after_five_hours_off();
        // Good live slots say nothing of the gap, and neither does a restart.
        assert!(stage.until(at("15:30")).is_none());
        if is_restarted {
            stage.crash();
            heard = watch(&stage);
        }
        assert!(stage.until(at("16:30")).is_none());
        stage.ask("hourly", &crate::backfill::start("10:00", "13:00"));
        assert!(stage.until(at("16:40")).is_none());
        assert_eq!(state(&stage), "open", "only some of it ran: {:?}", stage.slots());
        stage.ask("hourly", &crate::backfill::start("10:00", "15:00"));
        assert!(stage.until(at("16:50")).is_none());
        assert_eq!(state(&stage), "resolved", "{is_restarted} {:?}", stage.slots());
        let lines = heard.lines();
        let told = lines.iter().filter(|line| line.ends_with("schedule_missed resolved")).count();
        assert_eq!(told, 1, "{lines:?}");
    }
}

#[test]
fn slots_that_the_watchdog_called_missed_are_over_when_the_last_of_them_was_caught_up() {
    let file = "
name: minutely
schedules: [{name: tick, cron: '* * * * *', grace: 1m}]
catchupWindow: 1h
overlapPolicy: all
trigger: {type: command, command: 'true'}
";
    let mut stage = Stage::new(at("08:30"), &[file], |_| Job::Succeeds(10));
    assert!(stage.until(at("08:31")).is_none());
    let heard = watch(&stage);
    hang(&stage, at("08:36"));
    assert_eq!(heard.lines().len(), 1, "{:?}", heard.lines());
    assert!(stage.until(at("08:45")).is_none());
    let resolved = stage.told(&["JOB_COMPLETED"]).len();
    assert!(resolved > 5);
    let lines = heard.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    // Ten seconds each, one at a time: the last of five is caught up 50 seconds after the engine came back.
    assert!(lines[1].starts_with("08:36:") && lines[1].ends_with("resolved"), "{lines:?}");
    assert!(lines[1].as_str() >= "08:36:40", "{lines:?}");
}

const STREAM: &str = "
name: orders
schedules: [{name: stream, sensor: {key: ready, check: exists, period: day}}]
trigger: {type: command, command: 'true'}
";

/// A stage on which a sensor is known and its slot is not: the engine was not asked.
fn unopened() -> Stage {
    let mut stage = Stage::new(at("08:00"), &[STREAM], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    let orders = interlock_core::id::PipelineId::parse("orders").unwrap();
    let lease = block_on(stage.store.acquire(
        interlock_store::Role::Engine,
        Shard(0),
        "test",
        SignedDuration::from_mins(3),
    ));
    let now = stage.world.time();
    let record = interlock_store::record::SensorRecord {
        value: json!({"date": "2026-02-24"}),
        at: now,
        received_at: now,
        unheeded: false,
    };
    let change = interlock_store::Change::Put(
        Key::Sensor("ready".into()),
        interlock_store::Expect::Any,
        Record::Sensor(record.into()),
    );
    let writer = lease.unwrap().unwrap().writer;
    let group = Group { pipeline: orders, writer, changes: vec![change] };
    assert!(block_on(stage.store.commit(vec![group])).unwrap()[0].is_ok());
    stage.crash();
    stage
}

#[test]
fn a_recovered_slot_is_taken_up_by_the_engine_and_runs_once() {
    let mut stage = unopened();
    assert!(stage.until(at("08:20")).is_none());
    assert_eq!(stage.slots(), Vec::<String>::new(), "nobody opened it");
    let heard = watch(&stage);
    assert!(stage.until(at("08:30")).is_none());
    assert_eq!(stage.slots(), ["stream/2026-02-24T00:00:00Z completed"]);
    assert_eq!(stage.started().len(), 1);
    assert_eq!(stage.told(&["TRIGGER_RECOVERED"]).len(), 1);
    assert!(heard.lines()[0].ends_with("trigger_recovered open"), "{:?}", heard.lines());
}

#[test]
fn two_watchdogs_open_and_tell_once() {
    let stage = unopened();
    // The second is not let in while the first lives.
    let first = parts(&stage.world, Arc::clone(&stage.store) as _, "one");
    let first = block_on(Watchdog::open(first, Shard(0))).unwrap();
    let second = parts(&stage.world, Arc::clone(&stage.store) as _, "two");
    assert!(first.is_some() && block_on(Watchdog::open(second, Shard(0))).unwrap().is_none());
    drop(first);
    stage.world.pass(SignedDuration::from_mins(1));
    // Two that take the lease from each other judge step by step beside each other.
    let store = Arc::new(crashing(Arc::clone(&stage.store) as _, u64::MAX));
    let now = stage.world.time();
    let zones = SystemZones::new();
    let zones = Arc::new(move |name: &str| zones.zone(name));
    let mut options = CheckOptions::new(store, zones, now).telling(Arc::new(EngineTelling));
    "the same".clone_into(&mut options.holder);
    let mut lives = [Box::pin(once(&options, Shard(0))), Box::pin(once(&options, Shard(0)))];
    let mut context = Context::from_waker(Waker::noop());
    let mut ended = [false, false];
    while ended != [true, true] {
        for (life, ended) in lives.iter_mut().zip(&mut ended) {
            *ended = *ended || life.as_mut().poll(&mut context).is_ready();
        }
    }
    assert_eq!(stage.told(&["TRIGGER_RECOVERED"]).len(), 1);
    assert_eq!(stage.slots(), ["stream/2026-02-24T00:00:00Z open(waiting)"]);
    assert_eq!(incident(&stage, "recovered:orders:stream:2026-02-24").count, 1);
}

/// Everything that a watchdog left: events, incidents, notifications, each with how often.
fn left(stage: &Stage) -> BTreeMap<String, usize> {
    let mut left = BTreeMap::new();
    for kind in stage.events().iter().map(|row| row.record.kind.clone()) {
        if ["SCHEDULE_MISSED", "RUN_STUCK", "TRIGGER_RECOVERED"].contains(&kind.as_str()) {
            *left.entry(kind.to_string()).or_default() += 1;
        }
    }
    for (_, key, row) in block_on(stage.store.incidents(None, 100)).unwrap().items {
        left.insert(format!("{key} count"), row.record.count as usize);
    }
    let claimed = block_on(stage.store.claim(100, SignedDuration::from_mins(1))).unwrap();
    for row in claimed {
        *left.entry(row.name).or_default() += 1;
    }
    left
}

#[test]
fn s12_a_watchdog_that_dies_at_any_wait_tells_each_finding_once() {
    let lives = |dies_at: u64| {
        let mut stage =
            Stage::new(at("08:00"), &[DEADLINE, &STREAM.replace("orders", "clicks")], |_| {
                Job::Succeeds(5)
            });
        assert!(stage.until(at("08:05")).is_none());
        let second = SignedDuration::from_secs(1);
        hang(&stage, at("09:30") - second * 2);
        let mut has_died = false;
        for (dies_at, until) in [(dies_at, at("09:30") + second * 20), (u64::MAX, at("09:31"))] {
            let store = Arc::new(crashing(Arc::clone(&stage.store) as _, dies_at));
            let parts = parts(&stage.world, Arc::clone(&store) as _, "watchdog");
            let life = async {
                let watchdog = Watchdog::open(parts, Shard(0)).await.unwrap().unwrap();
                watchdog.run(Box::pin(std::future::pending())).await.unwrap();
            };
            has_died |= stage.world.run(pin!(end_of(&store, life)), until).is_some();
            stage.world.kill();
        }
        (left(&stage), has_died)
    };
    let (expected, _) = lives(u64::MAX);
    assert_eq!(expected["SCHEDULE_MISSED"], 1, "{expected:?}");
    let mut dies_at = 0;
    loop {
        let (found, has_died) = lives(dies_at);
        assert_eq!(found, expected, "it died at wait {dies_at}");
        if !has_died {
            break;
        }
        dies_at += 1;
    }
    assert!(dies_at > 50, "{dies_at} waits");
}

#[test]
fn a_pause_without_an_end_is_told_and_resolved_by_a_resume() {
    let mut stage = Stage::new(at("08:00"), &[PLAIN], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    let heard = watch(&stage);
    let pause = InboxRecord::Pause { reason: "deploy".into(), until: None };
    assert!(stage.ask("orders", &pause).accepted);
    stage.world.pass(SignedDuration::from_hours(24));
    assert!(stage.until(at("08:30") + SignedDuration::from_hours(24)).is_none());
    assert_eq!(heard.lines().len(), 1, "{:?}", heard.lines());
    assert!(heard.lines()[0].ends_with("pipeline_paused open"), "{:?}", heard.lines());
    assert!(stage.ask("orders", &InboxRecord::Resume { catchup: None }).accepted);
    assert!(stage.until(at("08:40") + SignedDuration::from_hours(24)).is_none());
    assert!(heard.lines().iter().any(|line| line.ends_with("pipeline_paused resolved")));
    let due = block_on(stage.store.due(Shard(0), Timestamp::MAX, 10)).unwrap().items;
    assert!(due.iter().all(|row| row.kind != DueKind::Pause || row.name == "coverage"), "{due:?}");
}

/// A watchdog alone, on a store, until an instant.
fn alone(stage: &Stage, store: Arc<dyn Store>, until: Timestamp) {
    let parts = parts(&stage.world, store, "watchdog");
    let life = async {
        let watchdog = Watchdog::open(parts, Shard(0)).await.unwrap().unwrap();
        watchdog.run(Box::pin(std::future::pending())).await.unwrap();
    };
    assert!(stage.world.run(pin!(life), until).is_none());
    stage.world.kill();
}

#[test]
fn what_waits_for_the_scheduler_is_not_called_judged() {
    let mut stage = Stage::new(at("08:00"), &[DEADLINE], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    hang(&stage, at("09:40"));
    // It starts after the deadline, gives the scheduler its ten seconds, and dies within them.
    let store = Arc::clone(&stage.store) as Arc<dyn Store>;
    alone(&stage, Arc::clone(&store), at("09:40") + SignedDuration::from_secs(5));
    assert_eq!(stage.told(&["SCHEDULE_MISSED"]).len(), 0);
    hang(&stage, at("09:41"));
    alone(&stage, store, at("09:42"));
    assert_eq!(stage.told(&["SCHEDULE_MISSED"]).len(), 1, "the next one finds it, late");
    let missed = incident(&stage, "watchdog:orders:nine:2026-02-24");
    assert!(missed.message.contains("late"), "{}", missed.message);
}

/// For some seconds a store answers no question about rows.
struct Failing(Virtual, Timestamp, Timestamp);

impl std::fmt::Debug for Failing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "failing from {} until {}", self.1, self.2)
    }
}

impl interlock_sim::gated::Gate for Failing {
    fn enter(&self, verb: &'static str) -> Option<interlock_sim::gated::Passage<'_>> {
        let fails = verb == "read" && (self.1..self.2).contains(&self.0.time());
        let error = interlock_store::StoreError::retryable("it does not answer");
        Some(Box::pin(std::future::ready(if fails { Err(error) } else { Ok(()) })))
    }

    fn leave(&self, _: &'static str) -> Option<interlock_sim::gated::Passage<'_>> {
        None
    }
}

/// For some time one kind of question cannot be answered, however often it is asked.
struct Damaged {
    world: Virtual,
    verb: &'static str,
    until: Timestamp,
}

impl std::fmt::Debug for Damaged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} cannot be answered until {}", self.verb, self.until)
    }
}

impl interlock_sim::gated::Gate for Damaged {
    fn enter(&self, verb: &'static str) -> Option<interlock_sim::gated::Passage<'_>> {
        let fails = verb == self.verb && self.world.time() < self.until;
        let error = interlock_store::StoreError::permanent("a row cannot be read");
        Some(Box::pin(std::future::ready(if fails { Err(error) } else { Ok(()) })))
    }

    fn leave(&self, _: &'static str) -> Option<interlock_sim::gated::Passage<'_>> {
        None
    }
}

/// What is told when one kind of question cannot be answered until 09:35, and a deadline passes at 09:30.
fn with_a_damaged(verb: &'static str) -> Vec<(String, String)> {
    let mut stage = Stage::new(at("08:00"), &[DEADLINE], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    let gate = Damaged { world: stage.world.clone(), verb, until: at("09:35") };
    let store = interlock_sim::gated::Gated::new(Arc::clone(&stage.store) as _, gate);
    alone(&stage, Arc::new(store), at("09:40"));
    let kinds = ["SCHEDULE_MISSED", "WATCHDOG_DEGRADED", "WATCHDOG_RECOVERED"];
    let told = stage.events().into_iter().filter(|row| kinds.contains(&row.record.kind.as_str()));
    told.map(|row| (row.record.kind.to_string(), row.record.message.clone())).collect()
}

#[test]
fn a_source_that_cannot_be_read_fails_the_checks_that_rest_on_it_and_no_other() {
    for (verb, failed) in [
        (
            "due",
            "stuck-runs, stale-triggers, sla-scheduling, trigger-deadlines, post-run-sensors, relative-sla-breaches, paused-too-long",
        ),
        ("open_slots", "stuck-runs, stale-triggers, sla-scheduling"),
    ] {
        let told = with_a_damaged(verb);
        let kinds: Vec<&str> = told.iter().map(|(kind, _)| kind.as_str()).collect();
        let expected = ["WATCHDOG_DEGRADED", "SCHEDULE_MISSED", "WATCHDOG_RECOVERED"];
        assert_eq!(kinds, expected, "{verb}: the miss is told all the same");
        assert_eq!(told[0].1, format!("watchdog checks failed: {failed}"));
    }
}

#[test]
fn what_rests_on_an_unreadable_inbox_is_not_called_judged() {
    let told = with_a_damaged("inbox");
    let kinds: Vec<&str> = told.iter().map(|(kind, _)| kind.as_str()).collect();
    // A report may be in it: nothing is missed until it can be read.
    assert_eq!(kinds, ["WATCHDOG_DEGRADED", "SCHEDULE_MISSED", "WATCHDOG_RECOVERED"], "{told:?}");
    assert!(told[0].1.contains("missed-schedules"), "{told:?}");
    assert!(told[1].1.contains("nine") || told[1].1.contains("orders"), "{told:?}");
}

#[test]
fn a_single_pass_with_an_unreadable_source_judges_the_rest_and_says_what_failed() {
    let mut stage = Stage::new(at("08:00"), &[DEADLINE], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    hang(&stage, at("09:31"));
    let gate = Damaged { world: stage.world.clone(), verb: "due", until: at("09:35") };
    let store = interlock_sim::gated::Gated::new(Arc::clone(&stage.store) as _, gate);
    let zones = SystemZones::new();
    let zones = Arc::new(move |name: &str| zones.zone(name));
    let options = CheckOptions::new(Arc::new(store), zones, stage.world.time());
    let options = options.telling(Arc::new(EngineTelling));
    let report = block_on(interlock_watchdog::once::all_shards(&options)).unwrap();
    assert_eq!((report.findings.len(), report.failed.len()), (1, 7));
    assert_eq!(report.notifications.len(), 2, "the miss, and which checks failed");
    assert_eq!(stage.told(&["SCHEDULE_MISSED", "WATCHDOG_DEGRADED"]).len(), 2);
}

#[test]
fn what_a_failing_store_kept_from_being_judged_is_judged_when_it_answers() {
    let mut stage = Stage::new(at("08:00"), &[DEADLINE], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    let second = SignedDuration::from_secs(1);
    let gate = Failing(stage.world.clone(), at("09:30"), at("09:30") + second * 3);
    let store = interlock_sim::gated::Gated::new(Arc::clone(&stage.store) as _, gate);
    alone(&stage, Arc::new(store), at("09:30") + second * 6);
    assert_eq!(stage.told(&["SCHEDULE_MISSED"]).len(), 1);
}

#[test]
fn s13_a_death_at_any_wait_between_finding_and_delivery_tells_at_least_once_of_one_incident() {
    let lives = |dies_at: u64| {
        let mut stage = Stage::new(at("08:00"), &[DEADLINE], |_| Job::Succeeds(5));
        assert!(stage.until(at("08:05")).is_none());
        let second = SignedDuration::from_secs(1);
        hang(&stage, at("09:30") - second);
        let heard = Heard(stage.world.clone(), Arc::default());
        let mut has_died = false;
        for (dies_at, until) in [(dies_at, at("09:30") + second * 3), (u64::MAX, at("09:32"))] {
            let store = Arc::new(crashing(Arc::clone(&stage.store) as _, dies_at));
            let (watchdog, notifier) = watchers(&stage, Arc::clone(&store) as _, &heard);
            let life = async {
                tokio::join!(watchdog, notifier);
            };
            has_died |= stage.world.run(pin!(end_of(&store, life)), until).is_some();
            stage.world.kill();
        }
        (stage, heard, has_died)
    };
    let mut dies_at = 0;
    loop {
        let (stage, heard, has_died) = lives(dies_at);
        let told = heard.lines();
        let context = format!("it died at wait {dies_at}: {told:?}");
        assert!((1..=2).contains(&told.len()), "{context}");
        assert!(told.iter().all(|line| line.ends_with("schedule_missed open")), "{context}");
        assert_eq!(stage.told(&["SCHEDULE_MISSED"]).len(), 1, "{context}");
        assert_eq!(incident(&stage, "watchdog:orders:nine:2026-02-24").count, 1, "{context}");
        let left = block_on(stage.store.claim(10, SignedDuration::from_mins(1))).unwrap();
        assert!(left.is_empty(), "{context}");
        if !has_died {
            assert_eq!(told.len(), 1, "nobody died, so it is told once");
            break;
        }
        dies_at += 1;
    }
    assert!(dies_at > 30, "{dies_at} waits");
}

#[test]
fn many_that_were_missed_while_nobody_watched_are_one_digest_that_says_so() {
    let files: Vec<String> =
        (0..12).map(|number| DEADLINE.replace("orders", &format!("p{number}"))).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let mut stage = Stage::new(at("08:00"), &files, |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    hang(&stage, at("11:00"));
    let heard = watch(&stage);
    hang(&stage, at("11:05"));
    let told = heard.1.lock().unwrap().clone();
    let [(_, digest)] = told.as_slice() else { panic!("{:?}", heard.lines()) };
    assert_eq!(digest.alert_type, "digest");
    assert_eq!((&digest.details["count"], &digest.details["foundLate"]), (&json!(12), &json!(12)));
    let said = "12 alerts came at once (12 schedule_missed), 12 of them found late";
    assert!(digest.message.starts_with(said), "{}", digest.message);
    assert!(digest.message.contains("(found 1h30m"), "{}", digest.message);
}

/// Counts the questions about single pipelines.
#[derive(Debug, Default)]
struct Counting(std::sync::atomic::AtomicUsize);

impl interlock_sim::gated::Gate for Counting {
    fn enter(&self, verb: &'static str) -> Option<interlock_sim::gated::Passage<'_>> {
        if ["read", "ledger", "runs", "sensors", "agenda"].contains(&verb) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        None
    }

    fn leave(&self, _: &'static str) -> Option<interlock_sim::gated::Passage<'_>> {
        None
    }
}

/// How often a watchdog of so many pipelines asks in more than an hour in which nothing is due.
fn questions(pipelines: usize) -> usize {
    let files: Vec<String> =
        (0..pipelines).map(|number| DEADLINE.replace("orders", &format!("p{number}"))).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let mut stage = Stage::new(at("08:00"), &files, |_| Job::Succeeds(5));
    assert!(stage.until(at("08:05")).is_none());
    let store = Arc::new(interlock_sim::gated::Gated::new(
        Arc::clone(&stage.store) as _,
        Counting::default(),
    ));
    let mut parts = parts(&stage.world, Arc::clone(&store) as _, "watchdog");
    // The scanner does read what nobody needs, slowly.
    parts.pace.scan_after = SignedDuration::from_hours(24);
    let watchdog = block_on(Watchdog::open(parts, Shard(0))).unwrap().unwrap();
    let count = || store.gate().0.load(std::sync::atomic::Ordering::Relaxed);
    let opened = count();
    let life = watchdog.run(Box::pin(std::future::pending()));
    assert!(stage.world.run(pin!(life), at("09:29")).is_none());
    count() - opened
}

#[test]
fn nothing_is_read_about_pipelines_of_which_nothing_is_due() {
    assert_eq!((questions(1), questions(50)), (0, 0), "nothing was due for more than an hour");
}
