//! The resident loop and a single pass find the same: over random ledgers, the loop living through a day minute by
//! minute, and one who looks once at its end.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use interlock_core::slot::{Disposition, OpenState};
use interlock_store::{DueKind, Obligation, Shard, Store as _, Subject, block_on};
use interlock_watchdog::{
    Parts, Watchdog,
    seam::{Task, World, ZoneBook},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::house::{EngineTelling, House, at, instant, waiting, zones};

struct Clock(Arc<Mutex<Timestamp>>);

impl World for Clock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    fn sleep_until(&self, _: Timestamp) -> Task<()> {
        Box::pin(std::future::pending())
    }
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const EVE: &str = "2026-02-23T23:00:00Z";

/// A house as the dice want it: the same for the same seed.
fn house(seed: u64) -> House {
    let mut dice = Dice(seed);
    let house = House::new(&[], instant(EVE));
    for number in 0..8 {
        let name = format!("p{number}");
        let hour = 1 + dice.below(18);
        let schedule = match dice.below(5) {
            0 => format!("schedule: '{} * * * *'\n", dice.below(60)),
            1 => format!("schedules: [{{name: cron, cron: '0 {hour} * * *', deadline: '+40m'}}]\n"),
            2 => format!("schedule: '0 {hour} * * *'\nsla: {{evaluationDeadline: '{:02}:30'}}\n", hour + 1),
            3 => "schedules: [{name: cron, sensor: {key: ready, check: exists, period: day}, deadline: '10:00'}]\n"
                .to_owned(),
            _ => format!("schedule: '0 {hour} * * *'\n"),
        };
        let trigger = if dice.below(4) == 0 {
            "{type: external}"
        } else {
            "{type: command, command: 'true'}"
        };
        let trigger =
            if schedule.contains("sensor") { "{type: command, command: 'true'}" } else { trigger };
        let file = format!("name: {name}\n{schedule}trigger: {trigger}\n");
        house.declare(&file, instant("2026-02-20T00:00:00Z"), instant(EVE));
        fill(&house, &name, &file, &mut dice);
    }
    house
}

/// What happened to a pipeline that day, all of it known beforehand.
fn fill(house: &House, name: &str, file: &str, dice: &mut Dice) {
    if dice.below(6) == 0 {
        house.pause(name, at("05:00"), Some(at("11:00")));
    }
    let sensor = file.contains("sensor");
    for hour in 0..20_u64 {
        let nominal = at(&format!("{hour:02}:00"));
        let is_slot = !sensor && file.contains(&format!("0 {hour} * * *"));
        match dice.below(4) {
            0 if is_slot => {
                let began = nominal + SignedDuration::from_mins(1);
                house.run(
                    name,
                    ("cron", nominal),
                    ("RUNNING", began),
                    SignedDuration::from_mins(30),
                );
            }
            1 if is_slot => {
                let done = waiting(nominal).advance(OpenState::Running, at("23:00")).unwrap();
                let done = done.close(Disposition::Completed, nominal).unwrap();
                house.slot(name, ("cron", nominal), &done);
                let id = interlock_core::id::ScheduleId::any("cron").unwrap();
                let due = Obligation::new(
                    nominal + SignedDuration::from_hours(2),
                    DueKind::PostRun,
                    Subject::Slot(id, nominal),
                );
                let due = due.detail("completedAt", nominal.to_string());
                house.due(name, due.detail("ruleKeys", json!(["rows"])));
            }
            2 if is_slot => house.slot(name, ("cron", nominal), &waiting(nominal)),
            _ => {}
        }
    }
}

/// What was told: kind, pipeline and slot.
fn told(house: &House) -> BTreeSet<String> {
    let page = block_on(house.store.events(None, 0, 100_000)).unwrap();
    let rows = page.items.into_iter().filter(|row| !row.record.kind.starts_with("WATCHDOG_"));
    rows.map(|row| format!("{} {} {:?}", row.record.kind, row.pipeline, row.record.slot)).collect()
}

fn watchdog(house: &House, zones: ZoneBook) -> Watchdog {
    let world = Arc::new(Clock(Arc::clone(&house.clock)));
    let store = Arc::clone(&house.store) as _;
    let mut parts = Parts::new(world, store, Arc::new(EngineTelling), zones);
    // These ledgers are made up, so promises are broken in them; that is the scanner's, not a check's.
    parts.pace.scan_after = SignedDuration::from_hours(1_000);
    block_on(Watchdog::open(parts, Shard(0))).unwrap().unwrap()
}

fn live(house: &House, until: Timestamp) {
    live_on(house, &mut watchdog(house, zones()), until);
}

fn live_on(house: &House, watchdog: &mut Watchdog, until: Timestamp) {
    // Shorter steps than a sleep, so that it never counts as one.
    let step = SignedDuration::from_secs(5);
    while *house.clock.lock().unwrap() < until {
        block_on(watchdog.pass()).unwrap();
        *house.clock.lock().unwrap() += step;
    }
    block_on(watchdog.pass()).unwrap();
}

#[test]
fn a_pipeline_that_cannot_be_watched_is_told_of() {
    let file = "name: far\ntimezone: Pacific/Chatham\nschedule: '0 9 * * *'\n\
                trigger: {type: command, command: 'true'}\n";
    let house = House::new(&[file], at("08:00"));
    let all = zones();
    let fewer: ZoneBook = Arc::new(move |name| all(name).filter(|_| name != "Pacific/Chatham"));
    let system = || {
        let page = block_on(house.store.events(None, 0, 1_000)).unwrap();
        let told = page.items.into_iter().filter(|row| row.record.kind.starts_with("WATCHDOG_"));
        told.map(|row| row.record).collect::<Vec<_>>()
    };
    let mut watchdog = watchdog(&house, fewer);
    let step = SignedDuration::from_millis(500);
    for _ in 0..3 {
        block_on(watchdog.pass()).unwrap();
        *house.clock.lock().unwrap() += step;
    }
    let told = system();
    let kinds: Vec<_> = told.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["WATCHDOG_STARTED", "WATCHDOG_DEGRADED"], "said once");
    let why = told[1].details["missed-schedules"].as_str().unwrap().to_owned();
    assert!(why.starts_with("far: ") && why.contains("Pacific/Chatham"), "{why}");
    assert!(house.incidents().contains_key("watchdog-degraded:_system"));
    // The file is mended: a schedule in a zone that is known.
    house.redeclare(&file.replace("Pacific/Chatham", "UTC"));
    for _ in 0..3 {
        block_on(watchdog.pass()).unwrap();
        *house.clock.lock().unwrap() += step;
    }
    assert_eq!(system().last().unwrap().kind, "WATCHDOG_RECOVERED");
}

/// What came before a pipeline was declared is not owed: it must not make the watchdog wait for the scheduler, as after a start it waits for whatever is late.
#[test]
fn l3_what_a_new_pipeline_misses_first_is_told_in_time_however_late_the_watchdog_begins() {
    let file = "name: orders\ntrigger: {type: external}\n\
                schedule: {cron: '*/5 * * * * *', seconds: true, grace: 1s}\n";
    // Before and after the grace of the slot at 08:00:10 is over.
    for seen in ["10.3", "10.9", "11", "11.2"] {
        let seen = instant(&format!("2026-02-24T08:00:{seen}Z"));
        let house = House::new(&[], seen);
        house.declare(file, seen, seen);
        *house.clock.lock().unwrap() = instant("2026-02-24T08:00:11.6Z");
        let mut watchdog = watchdog(&house, zones());
        while *house.clock.lock().unwrap() < instant("2026-02-24T08:00:17Z") {
            block_on(watchdog.pass()).unwrap();
            *house.clock.lock().unwrap() += SignedDuration::from_millis(100);
        }
        let alerts = house.alerts();
        let said: Vec<_> =
            alerts.iter().map(|it| (&it["details"]["expectedTime"], &it["timestamp"])).collect();
        assert_eq!(
            said,
            [(&json!("2026-02-24T08:00:15Z"), &json!("2026-02-24T08:00:16.5Z"))],
            "{seen}"
        );
    }
}

#[test]
fn a_report_is_asked_about_again_when_it_or_its_pipeline_changes() {
    let file = "name: orders\ntrigger: {type: command, command: 'true'}\n\
                schedules: [{name: stream, sensor: {key: ready, check: exists, period: day}}]\n";
    let house = House::new(&[file], at("08:00"));
    let mut watchdog = watchdog(&house, zones());
    let mut recovered_by = |time: &str| {
        live_on(&house, &mut watchdog, at(time));
        let recovered = told(&house).into_iter().filter(|it| it.starts_with("TRIGGER_RECOVERED"));
        recovered.count()
    };
    let ready = |date: &str, time: &str| {
        house.sensor("orders", "ready", json!({ "date": date }), at(time));
    };
    house.slot("orders", ("stream", at("00:00")), &waiting(at("00:00")));
    assert_eq!(recovered_by("08:10"), 0);
    ready("2026-02-24", "08:10");
    assert_eq!(recovered_by("08:30"), 1, "its slot waited for it");
    ready("2026-02-23", "08:30");
    assert_eq!(recovered_by("08:50"), 2, "it has no slot");
    // About a date that has none by now.
    let excluded = "exclusions: {dates: [2026-02-22]}\n";
    house.redeclare(&format!("{file}{excluded}"));
    ready("2026-02-22", "08:51");
    assert_eq!(recovered_by("09:10"), 2, "nothing is owed");
    house.redeclare(file);
    assert_eq!(recovered_by("09:30"), 3, "now it is");
}

#[test]
fn the_loop_and_a_single_pass_find_the_same() {
    let mut all = BTreeSet::new();
    for seed in 0..40 {
        let (looped, once) = (house(seed), house(seed));
        assert!(once.pass(instant(EVE)).findings.is_empty(), "seed {seed}");
        live(&looped, at("20:00"));
        once.pass(at("20:00"));
        let (by_loop, by_pass) = (told(&looped), told(&once));
        assert_eq!(by_loop, by_pass, "seed {seed}");
        let counts = |house: &House| -> Vec<(String, u64)> {
            house.incidents().into_iter().map(|(key, it)| (key, it.count)).collect()
        };
        assert_eq!(counts(&looped), counts(&once), "seed {seed}");
        all.extend(by_loop.into_iter().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())));
    }
    for kind in
        ["SCHEDULE_MISSED", "RUN_STUCK", "POST_RUN_SENSOR_MISSING", "SENSOR_DEADLINE_EXPIRED"]
    {
        assert!(all.contains(kind), "no seed has a {kind}: {all:?}");
    }
}
