//! The watchdog and Interlock itself: barks, what must always be true, the clock, and who could hear when.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use interlock_core::slot::{Disposition, SlotState};
use interlock_store::{
    Change, Expect, Key, Record, Shard, Store as _, block_on,
    record::{EventRecord, InboxRecord, SpanRecord, version_text},
};
use interlock_watchdog::{
    CHECKS, Check, CheckName, Parts, Scanner, Watchdog,
    seam::{Task, World},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::house::{EngineTelling, House, at, instant, waiting, zones};

pub(crate) const HOURLY: &str =
    "name: orders\nschedule: '0 * * * *'\ntrigger: {type: command, command: 'true'}\n";

/// The house's clock, and another one that may disagree with it.
#[derive(Clone)]
struct Clocks {
    wall: Arc<Mutex<Timestamp>>,
    boot: Arc<Mutex<Duration>>,
}

impl World for Clocks {
    fn now(&self) -> Timestamp {
        *self.wall.lock().unwrap()
    }

    fn boot(&self) -> Option<Duration> {
        Some(*self.boot.lock().unwrap())
    }

    fn sleep_until(&self, _: Timestamp) -> Task<()> {
        Box::pin(std::future::ready(()))
    }
}

/// A resident watchdog that is let pass by hand.
pub(crate) struct Resident {
    pub(crate) house: House,
    clocks: Clocks,
    watchdog: Watchdog,
}

impl Resident {
    pub(crate) fn new(house: House) -> Self {
        Self::with_checks(house, CHECKS.to_vec())
    }

    pub(crate) fn with_checks(house: House, checks: Vec<(CheckName, Check)>) -> Self {
        let clocks = Clocks { wall: Arc::clone(&house.clock), boot: Arc::default() };
        let store = Arc::clone(&house.store) as _;
        let mut parts =
            Parts::new(Arc::new(clocks.clone()), store, Arc::new(EngineTelling), zones());
        parts.checks = checks;
        parts.hears = Arc::new(|| vec!["hook".to_owned()]);
        let watchdog = block_on(Watchdog::open(parts, Shard(0))).unwrap().unwrap();
        Self { house, clocks, watchdog }
    }

    /// So much time passes, and it comes round once.
    pub(crate) fn after(&mut self, time: SignedDuration) {
        *self.clocks.boot.lock().unwrap() += Duration::try_from(time).unwrap();
        self.jump(time);
    }

    /// The wall clock is set, and it comes round once.
    pub(crate) fn jump(&mut self, by: SignedDuration) {
        *self.clocks.wall.lock().unwrap() += by;
        block_on(self.watchdog.pass()).unwrap();
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.house.events().iter().filter(|event| *event == kind).count()
    }

    /// Somebody orders a bark every hour: the row and its event, as the engine writes them.
    fn order_barks(&self, at: Timestamp) {
        self.house.sensor("_system", "barks/standing", json!({"seconds": 3600}), at);
        let event = EventRecord {
            kind: "BARKS_ORDERED".into(),
            at,
            slot: None,
            run_id: None,
            message: "every hour".to_owned(),
            details: std::collections::BTreeMap::new(),
        };
        self.house.write("_system", vec![Change::Append(event.into())]);
    }

    /// Delivers what is in the outbox.
    fn deliver(&self) -> usize {
        let rows = block_on(self.house.store.claim(100, SignedDuration::from_mins(1))).unwrap();
        for row in &rows {
            block_on(self.house.store.settle(row, vec![])).unwrap();
        }
        rows.len()
    }
}

const SECOND: SignedDuration = SignedDuration::from_secs(1);
pub(crate) const MINUTE: SignedDuration = SignedDuration::from_mins(1);

#[test]
fn a_bark_comes_as_often_as_it_was_ordered_and_is_known_to_be_heard() {
    let mut resident = Resident::new(House::new(&[], at("08:00")));
    resident.after(MINUTE);
    assert_eq!(resident.count("BARK"), 0, "nobody ordered one");
    resident.order_barks(at("08:01"));
    resident.after(MINUTE);
    assert_eq!((resident.count("BARK"), resident.count("BARK_HEARD")), (1, 0));
    resident.after(MINUTE);
    assert_eq!(resident.count("BARK_HEARD"), 0, "it is still in the outbox");
    assert_eq!(resident.deliver(), 1);
    resident.after(SECOND * 2);
    assert_eq!((resident.count("BARK"), resident.count("BARK_HEARD")), (1, 1));
    assert!(resident.house.incidents().values().all(|incident| incident.state == "resolved"));
    resident.after(MINUTE * 50);
    assert_eq!(resident.count("BARK"), 1);
    resident.after(MINUTE * 10);
    assert_eq!(resident.count("BARK"), 2);
}

#[test]
fn a_bark_that_nobody_heard_is_an_incident_until_one_is_heard_again() {
    let mut resident = Resident::new(House::new(&[], at("08:00")));
    resident.order_barks(at("08:00"));
    resident.after(MINUTE);
    resident.after(MINUTE * 4);
    assert_eq!(resident.count("BARK_LOST"), 0);
    resident.after(MINUTE + SECOND);
    assert_eq!(resident.count("BARK_LOST"), 1);
    let lost = resident.house.incidents()["bark-lost:_system"].clone();
    assert_eq!((lost.state.as_str(), lost.level.as_str()), ("open", "error"));
    // A watchdog that starts again knows that it barked.
    let Resident { house, .. } = resident;
    let mut resident = Resident::new(house);
    resident.after(MINUTE);
    assert_eq!(resident.count("BARK"), 1);
    resident.after(MINUTE * 60);
    resident.deliver();
    resident.after(SECOND * 2);
    assert_eq!((resident.count("BARK"), resident.count("BARK_HEARD")), (2, 1));
    assert_eq!(resident.house.incidents()["bark-lost:_system"].state, "resolved");
}

#[test]
fn s15_nothing_is_judged_by_a_clock_that_jumped_until_it_has_held() {
    let mut resident = Resident::new(House::new(&[HOURLY], at("08:30")));
    resident.after(SECOND);
    // By this clock nine, ten and eleven were missed.
    resident.jump(SignedDuration::from_hours(3));
    for _ in 0..4 {
        resident.after(MINUTE);
    }
    assert_eq!(resident.count("SCHEDULE_MISSED"), 0);
    resident.after(MINUTE + SECOND);
    // It is believed; then the scheduler gets its ten seconds, as after a sleep.
    for _ in 0..12 {
        resident.after(SECOND);
    }
    assert_eq!(resident.count("SCHEDULE_MISSED"), 3);
}

/// What a scan of everything finds, as `INVARIANT sentence`.
pub(crate) fn scanned(house: &House, scanner: &mut Scanner, now: Timestamp) -> Vec<String> {
    let page = block_on(scanner.page(house.store.as_ref(), (Shard(0), 100), now)).unwrap();
    assert!(page.is_last);
    page.violations.iter().map(|found| format!("{} {}", found.invariant, found.says)).collect()
}

/// Recorded from eight to eleven: a row each for nine and eleven, and a span for ten.
pub(crate) fn recorded() -> House {
    let house = House::new(&[], at("08:30"));
    house.declare(HOURLY, at("08:30"), at("08:30"));
    for time in ["09:00", "11:00"] {
        let slot = waiting(at(time)).close(Disposition::Completed, at(time)).unwrap();
        house.slot("orders", ("cron", at(time)), &slot);
    }
    house.write("orders", vec![span("10:00", "10:00", 1)]);
    house.recorded("orders", "cron", at("11:00"));
    house
}

fn span(first: &str, last: &str, count: u64) -> Change {
    let record = SpanRecord {
        last: at(last),
        count,
        disposition: "skipped".into(),
        reason: Some("no_catchup".into()),
        version: version_text(7),
        recorded_at: at("11:00"),
    };
    let key = Key::Span(interlock_core::id::ScheduleId::any("cron").unwrap(), at(first));
    Change::Put(key, Expect::Absent, Record::Span(record.into()))
}

pub(crate) const NOTHING: [&str; 0] = [];

#[test]
fn what_is_as_it_must_be_is_not_complained_of() {
    let (house, mut scanner) = (recorded(), Scanner::new(zones()));
    assert_eq!(scanned(&house, &mut scanner, at("11:30")), NOTHING);
    assert_eq!(scanned(&house, &mut scanner, at("11:59")), NOTHING, "again");
}

#[test]
fn s3_a_slot_that_vanished_and_a_slot_with_two_spans_are_found() {
    let (house, mut scanner) = (recorded(), Scanner::new(zones()));
    house.recorded("orders", "cron", at("13:00"));
    house.write("orders", vec![span("13:00", "13:00", 1)]);
    let found = scanned(&house, &mut scanner, at("13:30"));
    assert_eq!(found, ["S3 the slot of 2026-02-24T12:00:00Z was due and is not recorded"]);
    house.write("orders", vec![span("12:00", "13:00", 2)]);
    let found = scanned(&house, &mut scanner, at("13:30"));
    assert_eq!(found, ["S3 2 spans record the slot of 2026-02-24T13:00:00Z"]);
    house.recorded("orders", "cron", at("16:00"));
    house.write("orders", vec![span("14:00", "16:00", 2)]);
    let found = scanned(&house, &mut scanner, at("16:30"));
    assert!(found.iter().any(|says| says.contains("records 2 slots, but 3 were due")), "{found:?}");
}

#[test]
fn s4_a_watermark_that_went_back_is_found() {
    let (house, mut scanner) = (recorded(), Scanner::new(zones()));
    assert_eq!(scanned(&house, &mut scanner, at("11:05")), NOTHING);
    house.recorded("orders", "cron", at("10:00"));
    let found = scanned(&house, &mut scanner, at("11:05"));
    assert_eq!(
        found,
        ["S4 its watermark went back from 2026-02-24T11:00:00Z to 2026-02-24T10:00:00Z"]
    );
}

#[test]
fn a_schedule_that_stands_still_is_found_unless_somebody_paused_it() {
    let (house, mut scanner) = (recorded(), Scanner::new(zones()));
    // Five minutes of grace are the watchdog's, and ten more are nobody's.
    assert_eq!(scanned(&house, &mut scanner, at("12:15")), NOTHING);
    let found = scanned(&house, &mut scanner, at("12:16"));
    assert_eq!(found, ["frozen the slot of 2026-02-24T12:00:00Z was due and is not recorded"]);
    house.pause("orders", at("11:30"), None);
    assert_eq!(scanned(&house, &mut scanner, at("15:00")), NOTHING);
    // What lay in a pause is planned when it is over, which takes a moment.
    house.pause("orders", at("11:30"), Some(at("15:00")));
    assert_eq!(scanned(&house, &mut scanner, at("15:09")), NOTHING);
    assert_eq!(scanned(&house, &mut scanner, at("15:11")).len(), 1, "noon is long ago");
}

#[test]
fn s19_a_slot_that_nobody_closes_is_found_told_once_and_over_when_it_is_closed() {
    let house = recorded();
    let mut slot = waiting(at("11:00"));
    slot.closes_at = at("11:20");
    house.slot("orders", ("cron", at("11:00")), &slot);
    *house.clock.lock().unwrap() = at("11:20");
    let mut resident = Resident::new(house);
    // It scans five minutes after its start, and then every minute.
    for _ in 0..20 {
        resident.after(MINUTE);
    }
    assert_eq!(resident.count("INVARIANT_BROKEN"), 1);
    let key = "invariant:S19 orders/cron";
    assert_eq!(resident.house.incidents()[key].state, "open");
    let slot = slot.close(Disposition::Completed, at("11:40")).unwrap();
    resident.house.slot("orders", ("cron", at("11:00")), &slot);
    resident.after(MINUTE * 2);
    assert_eq!(resident.house.incidents()[key].state, "resolved");
}

fn watched(heard: &[[&str; 2]]) -> House {
    let file = "name: orders\nschedule: '0 9 * * *'\ntrigger: {type: external}\n";
    let house = House::new(&[file], at("08:00"));
    assert_eq!(house.found(at("08:00")), NOTHING);
    let heard: Vec<_> =
        heard.iter().map(|[since, until]| [at(since).to_string(), at(until).to_string()]).collect();
    house.sensor("_system", "coverage/box", json!({ "heard": heard }), at("09:06"));
    house
}

#[test]
fn s10_only_if_somebody_could_hear_all_the_time_a_slot_is_missed() {
    let house = watched(&[["07:00", "08:30"], ["08:30", "09:06"]]);
    assert_eq!(
        house.found(at("09:06")),
        ["missed-schedules SCHEDULE_MISSED cron/2026-02-24T09:00:00Z"]
    );
    // For half an hour nobody could: it may have been reported then, early.
    let house = watched(&[["07:00", "08:10"], ["08:40", "09:06"]]);
    let report = house.pass(at("09:06"));
    let [finding] = report.findings.as_slice() else { panic!("{:?}", report.findings) };
    assert_eq!(finding.event, Some("SCHEDULE_UNKNOWN"));
    let window = "from 2026-02-24T08:10:00Z to 2026-02-24T08:40:00Z";
    assert!(finding.message.contains(window), "{}", finding.message);
    assert!(finding.alert.as_ref().unwrap().contains(window), "{:?}", finding.alert);
    assert_eq!(finding.details["deafFrom"], "2026-02-24T08:10:00Z");
    let slot = house.state("orders", "cron", at("09:00")).unwrap();
    assert_eq!(slot.state, SlotState::Closed(Disposition::Unknown));
}

#[test]
fn s10_what_listeners_say_counts_before_the_engine_has_written_it_down() {
    let house = watched(&[["07:00", "08:10"]]);
    let (since, until) = (at("08:10"), at("09:06"));
    let instance = "other".to_owned();
    let record = InboxRecord::Heard { instance, since, until, after: None };
    let system = interlock_core::id::PipelineId::system();
    block_on(house.store.post(&system, "k", &record)).unwrap();
    assert_eq!(
        house.found(at("09:06")),
        ["missed-schedules SCHEDULE_MISSED cron/2026-02-24T09:00:00Z"]
    );
    // And when they all fell silent, nothing more is known.
    let late = instant("2026-02-25T09:06:00Z");
    assert_eq!(house.found(late), ["missed-schedules SCHEDULE_UNKNOWN cron/2026-02-25T09:00:00Z"]);
}
