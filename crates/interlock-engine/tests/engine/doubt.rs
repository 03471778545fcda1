//! S15: a wall clock that jumps while no time passes.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use interlock_core::id::PipelineId;
use interlock_engine::{
    Engine, EngineError,
    seam::{Task, World},
};
use interlock_store::{
    Shard, Store as _, block_on,
    memory::MemoryStore,
    record::{InboxRecord, ReportRecord},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    stage::{Job, Stage, at},
    world::Virtual,
};

const MINUTELY: &str =
    "name: orders\nschedule: '* * * * *'\ntrigger: {type: command, command: 'true'}\n";

/// Time passes as in the other world, and the wall clock may be ahead of it.
#[derive(Clone)]
struct Jumping {
    world: Virtual,
    ahead: Arc<Mutex<SignedDuration>>,
}

impl World for Jumping {
    fn now(&self) -> Timestamp {
        self.world.time() + *self.ahead.lock().unwrap()
    }

    fn boot(&self) -> Option<Duration> {
        Duration::try_from(self.world.time().duration_since(Timestamp::UNIX_EPOCH)).ok()
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        self.world.sleep_until(at - *self.ahead.lock().unwrap())
    }

    fn spawn(&self, name: &'static str, task: Task<()>) {
        self.world.spawn(name, task);
    }
}

struct House {
    stage: Stage,
    ahead: Arc<Mutex<SignedDuration>>,
    life: Pin<Box<dyn Future<Output = Result<(), EngineError>> + Send>>,
}

impl House {
    fn new() -> Self {
        Self::of(MINUTELY)
    }

    fn of(file: &str) -> Self {
        let mut stage = Stage::new(at("10:00"), &[file], |_| Job::Succeeds(1));
        let ahead = Arc::new(Mutex::new(SignedDuration::ZERO));
        // The store reads the same clock.
        let (world, by) = (stage.world.clone(), Arc::clone(&ahead));
        let clock = move || world.time() + *by.lock().unwrap();
        stage.store = Arc::new(MemoryStore::new(1, Arc::new(clock)));
        let mut parts = stage.parts("test");
        let world = Jumping { world: stage.world.clone(), ahead: Arc::clone(&ahead) };
        parts.world = Arc::new(world);
        let files = stage.files.clone();
        let life = Box::pin(async move {
            let mut engine = Engine::open(parts, Shard(0)).await?.unwrap();
            let changes = files.changes(&engine);
            engine.declare(&changes).await?;
            engine.run(Box::pin(std::future::pending())).await
        });
        Self { stage, ahead, life }
    }

    /// Runs until half a minute later than that, in truth.
    fn until(&mut self, time: &str) {
        let time = at(time) + SignedDuration::from_secs(30);
        let ended = self.stage.world.run(self.life.as_mut(), time);
        assert!(ended.is_none(), "{ended:?}");
    }

    /// A ping: its time is the wall clock's.
    fn ping(&self, key: &str) {
        let now = self.stage.world.time() + *self.ahead.lock().unwrap();
        let report = ReportRecord::of("success", now, None);
        let backup = PipelineId::parse("backup").unwrap();
        let record = InboxRecord::Report(Box::new(report));
        block_on(self.stage.store.post(&backup, key, &record)).unwrap();
    }

    fn told(&self) -> Vec<String> {
        let kinds = ["CLOCK_JUMP", "CLOCK_STEADY"];
        let told = self.stage.told(&kinds).into_iter();
        told.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }
}

#[test]
fn s15_a_jump_plans_nothing_until_the_clock_has_held_for_five_minutes() {
    let mut house = House::new();
    house.until("10:03");
    let before = house.stage.slots();
    assert_eq!(before.len(), 3, "{before:?}");
    *house.ahead.lock().unwrap() = SignedDuration::from_hours(24);
    house.until("10:07");
    assert_eq!(house.stage.slots(), before, "a day of slots was not opened");
    assert_eq!(house.told(), ["CLOCK_JUMP"]);
    house.until("10:10");
    assert_eq!(house.told(), ["CLOCK_JUMP", "CLOCK_STEADY"]);
    assert!(
        house.stage.slots().len() > before.len(),
        "it is believed, and what it owes is planned"
    );
}

#[test]
fn s15_a_jump_that_was_a_mistake_leaves_no_trace_but_its_incident() {
    let mut house = House::new();
    house.until("10:03");
    *house.ahead.lock().unwrap() = SignedDuration::from_hours(24);
    house.until("10:04");
    *house.ahead.lock().unwrap() = SignedDuration::ZERO;
    house.until("10:06");
    assert_eq!(house.told(), ["CLOCK_JUMP", "CLOCK_STEADY"]);
    let slots = house.stage.slots();
    assert_eq!(slots.len(), 6, "one a minute: {slots:?}");
}

#[test]
fn s15_who_acknowledges_the_incident_says_that_the_clock_is_right() {
    let mut house = House::new();
    house.until("10:03");
    let before = house.stage.slots();
    *house.ahead.lock().unwrap() = SignedDuration::from_hours(24);
    house.until("10:04");
    let record = InboxRecord::Incident {
        key: "clock:the clock".into(),
        hand: "acknowledge".into(),
        by: "ann".into(),
        note: None,
    };
    block_on(house.stage.store.post(&PipelineId::system(), "k", &record)).unwrap();
    house.until("10:05");
    assert_eq!(house.told(), ["CLOCK_JUMP", "CLOCK_STEADY"]);
    assert!(house.stage.slots().len() > before.len());
}

const WATCHED: &str = "
name: backup
schedules: [{name: h, cron: '0 * * * *'}]
trigger: {type: external}
";

#[test]
fn s15_a_report_while_the_clock_is_doubted_decides_no_slot_of_tomorrow() {
    let mut house = House::of(WATCHED);
    house.until("11:01");
    assert_eq!(house.stage.slots(), ["h/2026-02-24T11:00:00Z open(waiting)"]);
    *house.ahead.lock().unwrap() = SignedDuration::from_hours(24);
    house.ping("k");
    house.until("11:02");
    assert_eq!(house.told(), ["CLOCK_JUMP"]);
    assert_eq!(house.stage.slots(), ["h/2026-02-24T11:00:00Z open(waiting)"], "it waits");
    *house.ahead.lock().unwrap() = SignedDuration::ZERO;
    house.until("11:03");
    assert_eq!(house.stage.slots(), ["h/2026-02-24T11:00:00Z completed"]);
    let ended = house.stage.run_rows().remove(0).record.ended_at.unwrap();
    assert!((at("11:02")..=at("11:04")).contains(&ended), "{ended}");
}

#[test]
fn s15_a_report_while_a_clock_is_doubted_that_proves_right_stands_at_its_time() {
    let mut house = House::of(WATCHED);
    house.until("10:30");
    // It was a day behind all the time.
    *house.ahead.lock().unwrap() = SignedDuration::from_hours(24) + SignedDuration::from_mins(30);
    house.ping("k");
    house.until("10:40");
    assert_eq!(house.told(), ["CLOCK_JUMP", "CLOCK_STEADY"]);
    let slots = house.stage.slots();
    assert!(slots.contains(&"h/2026-02-25T11:00:00Z completed".to_owned()), "{slots:?}");
}
