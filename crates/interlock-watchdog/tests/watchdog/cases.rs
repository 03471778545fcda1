//! The cases of the Go watchdog (`facts/interlock-cases.md` C1), on one day: Tuesday, 2026-02-24. Cases 2, 3, 5 and 6
//! are asked at 10:10, where they can fail. Case 11 is departed from: what was not seen in time is found late and
//! says so, for a pipeline that was known before.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use interlock_core::slot::{Disposition, SlotState};
use interlock_store::Key;
use interlock_watchdog::{
    CheckName,
    polling::{PollingWatchdog, check_missed_schedules, check_stuck_runs},
    seam::{Task, World},
};
use jiff::{SignedDuration, Timestamp};

use crate::house::{EngineTelling, House, at, instant};

const DAILY: &str = "
name: orders
sla: {evaluationDeadline: '10:00'}
trigger: {type: command, command: 'true'}
";

const MINUTES: fn(i64) -> SignedDuration = SignedDuration::from_mins;

/// Yesterday is recorded; today is not.
fn house(file: &str) -> House {
    let house = House::new(&[file], instant("2026-02-23T23:00:00Z"));
    // Everything until this morning was judged.
    assert_eq!(house.found(at("00:30")), Vec::<String>::new());
    house
}

fn midnight() -> Timestamp {
    at("00:00")
}

#[test]
fn case_1_no_run_by_the_deadline_is_one_miss_and_one_alert() {
    let house = house(DAILY);
    assert_eq!(
        house.found(at("10:10")),
        ["missed-schedules SCHEDULE_MISSED daily/2026-02-24T00:00:00Z"]
    );
    let slot = house.state("orders", "daily", midnight()).unwrap();
    assert_eq!(slot.state, SlotState::Closed(Disposition::Missed));
    assert_eq!(slot.marks.missed_at, Some(at("10:10")));
    let alerts = house.alerts();
    assert_eq!(alerts.len(), 1, "{alerts:?}");
    assert_eq!(alerts[0]["level"], "error");
    assert_eq!(alerts[0]["alertType"], "schedule_missed");
}

#[test]
fn cases_2_and_3_a_run_of_any_status_is_no_absence() {
    for status in ["PENDING", "FAILED"] {
        let house = house(DAILY);
        house.run("orders", ("daily", midnight()), (status, at("09:50")), MINUTES(30));
        assert_eq!(house.found(at("10:10")), Vec::<String>::new(), "{status}");
    }
}

#[test]
fn case_4_a_deadline_that_has_not_passed_is_no_miss() {
    let house = house(&DAILY.replace("10:00", "15:00"));
    assert_eq!(house.found(at("10:30")), Vec::<String>::new());
    assert_eq!(house.found(at("15:00")), Vec::<String>::new(), "breach is strictly after");
    assert_eq!(house.found(at("15:01")).len(), 1);
}

#[test]
fn case_5_an_excluded_day_owes_nothing() {
    let house = house(&format!("{DAILY}exclusions: {{days: [tuesday]}}\n"));
    assert_eq!(house.found(at("10:10")), Vec::<String>::new());
}

#[test]
fn case_6_a_disabled_pipeline_is_not_watched() {
    let house = house(&format!("{DAILY}watch: {{enabled: false}}\n"));
    assert_eq!(house.found(at("10:10")), Vec::<String>::new());
}

#[test]
fn a_pipeline_without_a_trigger_is_not_watched() {
    let house = house("name: orders\nsla: {evaluationDeadline: '10:00'}\n");
    assert_eq!(house.found(at("10:10")), Vec::<String>::new());
}

#[test]
fn case_7_a_daily_pipeline_without_a_deadline_is_not_watched() {
    let house = house("name: orders\ntrigger: {type: command, command: 'true'}\n");
    assert_eq!(house.found(at("10:10")), Vec::<String>::new());
}

#[test]
fn case_8_the_schedules_own_deadline_wins() {
    let file = "
name: orders
schedules: [{name: morning, after: '08:00', deadline: '14:00'}]
sla: {evaluationDeadline: '10:00'}
trigger: {type: command, command: 'true'}
";
    let house = house(file);
    assert_eq!(house.found(at("12:00")), Vec::<String>::new());
    assert_eq!(
        house.found(at("14:10")),
        ["missed-schedules SCHEDULE_MISSED morning/2026-02-24T08:00:00Z"]
    );
}

#[test]
fn case_9_schedules_are_judged_apart() {
    let file = "
name: orders
schedules:
  - {name: h10, after: '10:00', deadline: '10:30'}
  - {name: h14, after: '14:00', deadline: '14:30'}
trigger: {type: command, command: 'true'}
";
    let house = house(file);
    house.run("orders", ("h10", at("10:00")), ("COMPLETED", at("10:01")), MINUTES(30));
    assert_eq!(
        house.found(at("14:40")),
        ["missed-schedules SCHEDULE_MISSED h14/2026-02-24T14:00:00Z"]
    );
}

#[test]
fn case_10_a_second_pass_finds_nothing_and_tells_nothing() {
    let house = house(DAILY);
    assert_eq!(house.found(at("10:10")).len(), 1);
    assert_eq!(house.found(at("10:11")), Vec::<String>::new());
    assert_eq!(house.alerts().len(), 1);
    assert_eq!(house.incidents()["watchdog:orders:daily:2026-02-24"].count, 1);
}

#[test]
fn case_11_what_nobody_saw_in_time_is_found_late_and_says_so() {
    let house = house(DAILY);
    let report = house.pass(at("12:00"));
    let [finding] = report.findings.as_slice() else { panic!("{:?}", report.findings) };
    assert_eq!(finding.details["foundLate"], "2h0m0s");
    let alerts = house.alerts();
    let message = alerts[0]["message"].as_str().unwrap();
    assert!(message.ends_with(" (found 2h0m0s late)"), "{message}");
    assert_eq!(alerts[0]["details"]["foundLate"], "2h0m0s");
}

#[test]
fn case_11_nothing_is_said_of_a_deadline_before_the_first_sight() {
    let house = House::new(&[], at("11:00"));
    // Today's slot is owed at first sight, and its deadline is over.
    house.declare(DAILY, at("11:00"), instant("2026-02-23T23:59:59.999Z"));
    assert_eq!(house.found(at("12:00")), Vec::<String>::new());
}

#[test]
fn case_12_a_run_past_the_threshold_is_stuck() {
    let house = house(DAILY);
    house.run("orders", ("daily", midnight()), ("RUNNING", at("09:00")), MINUTES(30));
    assert_eq!(house.found(at("09:45")), ["stuck-runs RUN_STUCK daily/2026-02-24T00:00:00Z"]);
    let alerts = house.alerts();
    assert_eq!(alerts[0]["alertType"], "stuck_run");
    assert_eq!(alerts[0]["details"]["duration"], "45m0s");
}

#[test]
fn case_13_a_young_run_is_not_stuck() {
    let house = house(DAILY);
    house.run("orders", ("daily", midnight()), ("RUNNING", at("09:00")), MINUTES(30));
    assert_eq!(house.found(at("09:10")), Vec::<String>::new());
}

#[test]
fn case_14_a_completed_run_is_not_stuck() {
    let house = house(DAILY);
    house.run("orders", ("daily", midnight()), ("COMPLETED", at("09:00")), MINUTES(30));
    assert_eq!(house.found(at("10:00")), Vec::<String>::new());
}

#[test]
fn a_run_that_is_only_monitored_is_not_stuck() {
    let house = house(DAILY);
    house.run("orders", ("daily", midnight()), ("COMPLETED_MONITORING", at("09:00")), MINUTES(30));
    assert_eq!(house.found(at("10:00")), Vec::<String>::new());
}

#[test]
fn case_15_without_a_run_nothing_is_stuck() {
    let house = house(DAILY);
    assert_eq!(house.found(at("09:45")), Vec::<String>::new());
}

#[test]
fn case_16_a_stuck_run_is_told_once() {
    let house = house(DAILY);
    house.run("orders", ("daily", midnight()), ("RUNNING", at("09:00")), MINUTES(30));
    assert_eq!(house.found(at("09:45")).len(), 1);
    assert_eq!(house.found(at("09:50")), Vec::<String>::new());
    assert_eq!(house.alerts().len(), 1);
}

#[test]
fn case_17_a_pending_run_can_be_stuck() {
    let house = house(DAILY);
    house.run("orders", ("daily", midnight()), ("PENDING", at("09:00")), MINUTES(30));
    assert_eq!(house.found(at("09:40")).len(), 1);
    let alert = &house.alerts()[0];
    assert!(alert["details"]["actionHint"].as_str().unwrap().contains("trigger"), "{alert}");
}

#[test]
fn case_18_the_threshold_is_the_pipelines() {
    for (threshold, count) in [(30, 0), (15, 1)] {
        let house = house(DAILY);
        let run = ("RUNNING", at("09:00"));
        house.run("orders", ("daily", midnight()), run, MINUTES(threshold));
        assert_eq!(house.found(at("09:20")).len(), count, "{threshold} minutes");
    }
}

#[test]
fn case_19_a_disabled_pipelines_run_is_not_told() {
    let house = house(&format!("{DAILY}watch: {{enabled: false}}\n"));
    house.run("orders", ("daily", midnight()), ("RUNNING", at("09:00")), MINUTES(30));
    assert_eq!(house.found(at("09:45")), Vec::<String>::new());
}

/// A clock that moves when somebody waits, and lets others go on in between.
struct Ticking {
    now: Arc<Mutex<Timestamp>>,
    waited: AtomicUsize,
}

impl World for Ticking {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap()
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        self.waited.fetch_add(1, Ordering::Relaxed);
        let now = Arc::clone(&self.now);
        let mut polls = 0;
        Box::pin(std::future::poll_fn(move |context| {
            polls += 1;
            if polls < 3 {
                context.waker().wake_by_ref();
                return std::task::Poll::Pending;
            }
            *now.lock().unwrap() = at;
            std::task::Poll::Ready(())
        }))
    }
}

#[test]
fn case_27_the_wrapper_scans_at_once_then_on_each_interval_and_stops() {
    let house = house(DAILY);
    *house.clock.lock().unwrap() = at("10:10");
    let world = Arc::new(Ticking { now: Arc::clone(&house.clock), waited: AtomicUsize::new(0) });
    let polling = PollingWatchdog::new(
        Arc::clone(&world) as _,
        house.options(at("10:10")).telling(Arc::new(EngineTelling)),
        MINUTES(5),
    );
    let scans = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&scans);
    let (polling, mut task) = polling.start(Arc::new(move |report| {
        heard.lock().unwrap().push(report.unwrap().findings.len());
    }));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_pending());
    assert_eq!(*scans.lock().unwrap(), [1], "it scans before it waits");
    while scans.lock().unwrap().len() < 3 {
        assert!(task.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(*house.clock.lock().unwrap(), at("10:20"), "two intervals later");
    let mut stopping = Box::pin(polling.stop());
    assert!(stopping.as_mut().poll(&mut context).is_pending(), "it waits for the end");
    assert!(task.as_mut().poll(&mut context).is_ready());
    assert!(stopping.as_mut().poll(&mut context).is_ready());
    assert_eq!(*scans.lock().unwrap(), [1, 0, 0]);
}

#[test]
fn the_seeds_functions_answer_with_the_seeds_results() {
    let house = house(DAILY);
    let options = house.options(at("10:10"));
    let missed = interlock_store::block_on(check_missed_schedules(&options)).unwrap();
    let [missed] = missed.as_slice() else { panic!("{missed:?}") };
    assert_eq!((missed.pipeline.as_str(), missed.schedule.as_str()), ("orders", "daily"));
    assert_eq!(
        (missed.date.to_string().as_str(), missed.deadline.as_deref()),
        ("2026-02-24", Some("10:00"))
    );
    house.run("orders", ("daily", midnight()), ("RUNNING", at("09:00")), MINUTES(30));
    let options = house.options(at("09:45"));
    let stuck = interlock_store::block_on(check_stuck_runs(&options)).unwrap();
    let [stuck] = stuck.as_slice() else { panic!("{stuck:?}") };
    assert_eq!((stuck.status.as_str(), stuck.duration.as_str()), ("RUNNING", "45m0s"));
    // Without somebody to tell nothing is written.
    assert!(house.incidents().is_empty());
    assert!(
        house.row("orders", &Key::Incident("watchdog:orders:daily:2026-02-24".into())).is_none()
    );
    let only = house.would_find(CheckName::StuckRuns, at("10:10")).unwrap();
    assert!(only.findings.iter().all(|finding| finding.check == CheckName::StuckRuns));
}
