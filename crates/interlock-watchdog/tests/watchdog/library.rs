//! The watchdog as functions: every shard, the caller's threshold, alert function and logger; leases; what passes cover.

use std::sync::{Arc, Mutex};

use interlock_store::{
    Role, Shard, block_on,
    coverage::deaf,
    kept::{COVERAGE_PREFIX, heard_value},
    record::SensorRecord,
};
use interlock_watchdog::{
    once::{AlertFn, CheckOptions, LogFn, all_shards, once},
    polling::{PollingWatchdog, check_missed_schedules, check_stuck_runs},
    seam::{Task, World},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    house::{EngineTelling, House, at, instant},
    wire::{check, silver},
};

const SHARDS: u16 = 12;
const MINUTES: fn(i64) -> SignedDuration = SignedDuration::from_mins;

/// One pipeline after the other, on all shards.
fn crowd() -> House {
    let files: Vec<String> = (0..30)
        .map(|number| {
            format!(
                "name: orders-{number}\nsla: {{evaluationDeadline: '10:00'}}\n\
                 trigger: {{type: command, command: 'true'}}\n"
            )
        })
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    House::with_shards(SHARDS, &files, at("00:00") - SignedDuration::from_secs(1))
}

/// A function that keeps what it is given.
fn keeping<T: Send + 'static>() -> (Arc<Mutex<Vec<T>>>, impl Fn(T)) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&kept);
    (kept, move |it| keeps.lock().unwrap().push(it))
}

fn alerting(answer: Result<(), &'static str>) -> (Arc<Mutex<Vec<Value>>>, AlertFn) {
    let (kept, keep) = keeping();
    let deliver: AlertFn = Arc::new(move |alert| {
        keep(alert.to_json());
        answer.map_err(str::to_owned)
    });
    (kept, deliver)
}

fn logging() -> (Arc<Mutex<Vec<String>>>, LogFn) {
    let (kept, keep) = keeping();
    (kept, Arc::new(move |line| keep(line.to_owned())))
}

/// A clock that never gets to the next scan.
struct Standing(Timestamp);

impl World for Standing {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn sleep_until(&self, _at: Timestamp) -> Task<()> {
        Box::pin(std::future::pending())
    }
}

#[test]
fn the_functions_and_the_wrapper_see_every_shard() {
    let house = crowd();
    let options = house.options(at("10:10"));
    assert_eq!(block_on(check_missed_schedules(&options)).unwrap().len(), 30);
    for number in 0..30 {
        let name = format!("orders-{number}");
        house.run(&name, ("daily", at("00:00")), ("RUNNING", at("09:00")), MINUTES(30));
    }
    let options = house.options(at("09:45"));
    assert_eq!(block_on(check_stuck_runs(&options)).unwrap().len(), 30);
    let house = crowd();
    for number in 0..5 {
        let name = format!("orders-{number}");
        house.run(&name, ("daily", at("00:00")), ("RUNNING", at("09:00")), MINUTES(30));
    }
    let (scans, keep) = keeping();
    let options = house.options(at("10:10")).telling(Arc::new(EngineTelling));
    let polling = PollingWatchdog::new(Arc::new(Standing(at("10:10"))), options, MINUTES(5));
    let (_polling, mut task) = polling.start(Arc::new(move |report| {
        let findings = report.unwrap().findings;
        let of = |kind| findings.iter().filter(|it| it.event == Some(kind)).count();
        keep((of("SCHEDULE_MISSED"), of("RUN_STUCK")));
    }));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_pending());
    assert_eq!(*scans.lock().unwrap(), [(25, 5)], "the wrapper runs both checks");
    assert_eq!(house.incidents().len(), 30);
}

#[test]
fn the_threshold_replaces_that_of_the_pipelines_and_a_stuck_run_is_told_once_a_day() {
    let house = silver();
    let nominal = instant("2026-02-25T09:00:00Z");
    let began = instant("2026-02-25T12:00:00Z");
    house.run("earthquake-silver", ("daily", nominal), ("RUNNING", began), MINUTES(30));
    let stuck = |minute: i64, threshold: i64| {
        let options = house.options(began + MINUTES(minute)).stuck_after(MINUTES(threshold));
        block_on(check_stuck_runs(&options)).unwrap().len()
    };
    assert_eq!((stuck(45, 60), stuck(45, 30), stuck(15, 20), stuck(15, 10)), (0, 1, 0, 1));
    let (alerts, deliver) = alerting(Ok(()));
    let tell = |minute: i64| {
        let options = house.options(began + MINUTES(minute)).stuck_after(MINUTES(10));
        let options = options.alerting(Arc::clone(&deliver)).telling(Arc::new(EngineTelling));
        block_on(check_stuck_runs(&options)).unwrap().len()
    };
    assert_eq!((tell(15), tell(20), tell(45)), (1, 0, 0));
    assert_eq!(alerts.lock().unwrap().len(), 1);
}

#[test]
fn the_alert_function_gets_the_alert_once_it_is_durable_and_settles_it() {
    let house = silver();
    let now = instant("2026-02-25T09:25:00Z");
    let ((alerts, deliver), (lines, log)) = (alerting(Ok(())), logging());
    let options = house.options(now).alerting(deliver).logging(log);
    let options = options.telling(Arc::new(EngineTelling));
    assert_eq!(block_on(check_missed_schedules(&options)).unwrap().len(), 1);
    let alert = alerts.lock().unwrap().remove(0);
    check("alert-schedule-missed", &alert);
    assert_eq!(house.alerts(), Vec::<Value>::new(), "no notifier delivers it again");
    let lines = lines.lock().unwrap().clone();
    assert!(lines.len() == 1 && lines[0].contains("schedule daily missed"), "{lines:?}");
    assert_eq!(block_on(check_missed_schedules(&options)).unwrap(), [], "it is recorded");
    assert!(alerts.lock().unwrap().is_empty());
}

#[test]
fn an_alert_that_the_function_could_not_deliver_waits_for_a_notifier() {
    let house = silver();
    let now = instant("2026-02-25T09:25:00Z");
    let ((_, deliver), (lines, log)) = (alerting(Err("the pager is off")), logging());
    let options = house.options(now).alerting(deliver).logging(log);
    let report = block_on(all_shards(&options.telling(Arc::new(EngineTelling)))).unwrap();
    assert_eq!(report.notifications.len(), 1);
    assert_eq!(house.alerts().len(), 1, "it is in the outbox");
    let lines = lines.lock().unwrap().clone();
    assert!(lines.iter().any(|line| line.contains("the pager is off")), "{lines:?}");
}

#[test]
fn a_pass_that_writes_nothing_delivers_what_it_finds_each_time() {
    let house = silver();
    let (alerts, deliver) = alerting(Ok(()));
    let options = house.options(instant("2026-02-25T09:25:00Z")).alerting(deliver);
    for _ in 0..2 {
        assert_eq!(block_on(check_missed_schedules(&options)).unwrap().len(), 1);
    }
    let alerts = alerts.lock().unwrap().clone();
    assert_eq!(alerts.len(), 2);
    for key in ["level", "alertType", "pipelineId", "message", "timestamp"] {
        let golden = include_str!("../golden/alert-schedule-missed.json");
        let golden: Value = serde_json::from_str(golden).unwrap();
        assert_eq!(alerts[0][key], golden[key], "{key}");
    }
    assert!(house.incidents().is_empty());
}

#[test]
fn a_pass_gives_its_lease_back_and_one_that_died_holds_up_the_next_for_half_a_minute() {
    let house = silver();
    let now = instant("2026-02-25T08:10:00Z");
    let named = |holder: &str, now: Timestamp| {
        let options = house.options(now).telling(Arc::new(EngineTelling));
        CheckOptions { holder: holder.to_owned(), ..options }
    };
    assert!(block_on(once(&named("one", now), Shard(0))).unwrap().is_some());
    assert!(block_on(once(&named("two", now), Shard(0))).unwrap().is_some(), "given back");
    // One that dies in the middle: its lease is asked for and never given back.
    let died = named("three", now);
    let acquired = Arc::clone(&died.store);
    let mut dying = Box::pin(once(&died, Shard(0)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    // The memory engine answers at once, so a death is a lease that is taken again right after.
    assert!(dying.as_mut().poll(&mut context).is_ready());
    let lease = block_on(acquired.acquire(
        Role::Watchdog,
        Shard(0),
        "three",
        SignedDuration::from_secs(30),
    ));
    assert!(lease.unwrap().is_some());
    assert!(block_on(once(&named("four", now), Shard(0))).unwrap().is_none());
    let later = now + SignedDuration::from_secs(31);
    assert!(block_on(once(&named("four", later), Shard(0))).unwrap().is_some());
}

/// A job elsewhere reports by command; nobody listens any more.
const WATCHED: &str = "
name: backup
schedules: [{id: cron, cron: '*/10 * * * *', grace: 1m}]
trigger: {type: external}
";

/// A listener was there until 08:00, and then passes came.
fn left_alone() -> House {
    let house = House::new(&[WATCHED], at("07:59"));
    let value = heard_value(&[(at("00:00"), at("08:00"))]);
    let record = SensorRecord { value, at: at("08:00"), received_at: at("08:00"), unheeded: false };
    house.report("_system", &format!("{COVERAGE_PREFIX}box"), record);
    house
}

#[test]
fn s10_where_only_passes_come_a_silent_job_is_missed_and_where_none_came_it_is_unknown() {
    let house = left_alone();
    let mut kinds = Vec::new();
    for minute in 5..50 {
        // No pass from 08:20 to 08:29: the machine was off.
        if (20..30).contains(&minute) {
            continue;
        }
        let report = house.pass(at("08:00") + MINUTES(minute));
        for finding in report.findings {
            let nominal = finding.slot.unwrap().0.strftime("%H:%M").to_string();
            kinds.push((nominal, finding.event.unwrap()));
        }
    }
    let expected = [
        ("08:00", "SCHEDULE_UNKNOWN"),
        ("08:10", "SCHEDULE_MISSED"),
        ("08:20", "SCHEDULE_UNKNOWN"),
        // It may have been reported a minute early.
        ("08:30", "SCHEDULE_UNKNOWN"),
        ("08:40", "SCHEDULE_MISSED"),
    ];
    let expected = expected.map(|(slot, kind)| (slot.to_owned(), kind));
    assert_eq!(kinds, expected);
    let holes = block_on(deaf(house.store.as_ref(), &[], at("08:49"))).unwrap();
    let minutes = |(from, until): &(Timestamp, Timestamp)| {
        (from.strftime("%H:%M").to_string(), until.strftime("%H:%M").to_string())
    };
    let holes: Vec<_> = holes.iter().map(minutes).collect();
    assert_eq!(holes, [("08:00".into(), "08:05".into()), ("08:19".into(), "08:30".into())]);
}

#[test]
fn what_a_shard_could_not_do_is_over_when_a_whole_pass_can_do_all() {
    let house = crowd();
    let options = || house.options(at("09:00")).telling(Arc::new(EngineTelling));
    let mut broken = options();
    for (_, check) in &mut broken.checks {
        *check = |_, _| panic!("a fault in the check");
    }
    broken.now = at("10:10");
    let report = block_on(all_shards(&broken)).unwrap();
    assert_eq!(report.failed.len(), 10);
    assert_eq!(house.events().iter().filter(|kind| *kind == "WATCHDOG_RECOVERED").count(), 0);
    for _ in 0..2 {
        let mut whole = options();
        whole.now = at("10:15");
        assert!(block_on(all_shards(&whole)).unwrap().failed.is_empty());
    }
    assert_eq!(house.events().iter().filter(|kind| *kind == "WATCHDOG_RECOVERED").count(), 1);
}
