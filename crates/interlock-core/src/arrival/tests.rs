//! Which slot a report is about, and what follows from it, slot state by slot state.

use serde_json::json;

use super::*;
use crate::{
    calendar::DayFilter,
    cron::{Cron, Seconds},
    pipeline::OverlapPolicy,
    readiness::{Check, Operand, Outcome, SensorRule},
    run::TriggerType,
    sample,
    schedule::{Dst, Schedule, Timing},
    sla::Deadline,
    slot::Opening,
    zone::Zone,
};

const NOW: &str = "2026-03-03T08:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn rule(key: &str, check: Check) -> SensorRule {
    let operand = if check == Check::Exists { Operand::None } else { Operand::Value(json!(true)) };
    let field = (check != Check::Exists).then(|| "complete".to_owned());
    SensorRule { key: key.into(), check, field, operand }
}

fn start(id: &'static str, recurrence: Recurrence) -> StartSchedule {
    let timing = Timing {
        zone: Zone::utc(),
        dst: Dst::default(),
        days: DayFilter::default(),
        from: None,
        until: None,
    };
    StartSchedule {
        schedule: Schedule::new(ScheduleId::from_static(id), recurrence, timing).unwrap(),
        deadline: None::<Deadline>,
        grace: SignedDuration::from_mins(5),
        start_grace: SignedDuration::from_mins(1),
        early: None,
        duration_max: SignedDuration::from_hours(24),
        jitter: SignedDuration::ZERO,
    }
}

fn cron(text: &str) -> Recurrence {
    Recurrence::Cron(Cron::parse(text, Seconds::Absent).unwrap().cron)
}

fn streaming(period: Period) -> Pipeline {
    let rule = rule("orders", Check::Equals);
    let starts = vec![start("stream", Recurrence::Sensor { rule, period })];
    Pipeline { starts, ..sample::pipeline(OverlapPolicy::Skip) }
}

/// A daily job whose row count is checked afterwards.
fn checked() -> Pipeline {
    let post_run = PostRun {
        rules: vec![rule("orders-out", Check::Exists)],
        sensor_timeout: SignedDuration::from_hours(2),
        drift_field: "sensor_count".into(),
        drift_threshold: 10.0,
    };
    let starts = vec![start("cron", cron("0 6 * * *"))];
    Pipeline { starts, post_run: Some(post_run), ..sample::pipeline(OverlapPolicy::Skip) }
}

fn sensor(value: Value) -> Sensor {
    Sensor { value, at: at("2026-03-03T07:10:00Z") }
}

fn placed(pipeline: &Pipeline, key: &str, value: Value) -> Vec<Concern> {
    concerns(pipeline, key, &sensor(value), at(NOW))
}

fn one_slot(concerns: &[Concern]) -> (Timestamp, Means) {
    match concerns {
        [Concern::Slot { nominal, means, .. }] => (*nominal, *means),
        other => panic!("{other:?}"),
    }
}

fn slot(state: SlotState) -> Slot {
    let opening = Opening {
        opened_by: TriggerType::Sensor,
        date: Date::constant(2026, 3, 3),
        at: at(NOW),
        closes_at: at("2026-03-04T08:00:00Z"),
        version: 1,
    };
    Slot { state, ..Slot::open(OpenState::Waiting, opening) }
}

#[test]
fn s11_reports_are_told_apart_by_their_own_time() {
    let known = sensor(json!(1));
    assert_eq!(freshness(None, &known), Freshness::New);
    assert_eq!(freshness(Some(&known), &known.clone()), Freshness::Repeated);
    let later = Sensor { at: at(NOW), ..known.clone() };
    assert_eq!(freshness(Some(&known), &later), Freshness::Confirmed);
    assert_eq!(freshness(Some(&later), &known), Freshness::Outdated);
    assert_eq!(freshness(Some(&known), &sensor(json!(2))), Freshness::New);
}

#[test]
fn of_an_hour_that_is_there_twice_a_report_opens_the_one_that_its_time_lies_in() {
    let mut pipeline = streaming(Period::Hour);
    let riga = Zone::new("Europe/Riga", jiff::tz::TimeZone::get("Europe/Riga").unwrap());
    let schedule = &pipeline.starts[0].schedule;
    let timing = Timing { zone: riga, ..schedule.timing().clone() };
    let (id, recurrence) = (schedule.id().clone(), schedule.recurrence().clone());
    pipeline.starts[0].schedule = Schedule::new(id, recurrence, timing).unwrap();
    // On 25 October 2026 it is three o'clock at midnight UTC, and again an hour later.
    for (reported, opens) in [
        ("2026-10-25T00:10:00Z", "2026-10-25T00:00:00Z"),
        ("2026-10-25T01:10:00Z", "2026-10-25T01:00:00Z"),
    ] {
        for value in
            [json!({"complete": true}), json!({"complete": true, "date": "2026-10-25", "hour": 3})]
        {
            let sensor = Sensor { value, at: at(reported) };
            let found = concerns(&pipeline, "orders", &sensor, at(reported));
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(one_slot(&found).0, at(opens));
        }
    }
}

#[test]
fn d1_12_a_report_belongs_to_its_own_period_not_to_today() {
    let daily = streaming(Period::Day);
    let place = |key, value| one_slot(&placed(&daily, key, value)).0;
    assert_eq!(place("orders", json!({ "complete": true })), at("2026-03-03T00:00:00Z"));
    let dated = json!({ "complete": true, "date": "2026-02-27" });
    assert_eq!(place("orders", dated), at("2026-02-27T00:00:00Z"));
    let keyed = place("orders#2026-02-26", json!({ "complete": true }));
    assert_eq!(keyed, at("2026-02-26T00:00:00Z"));

    let hourly = streaming(Period::Hour);
    let dated = json!({ "complete": true, "date": "20260303", "hour": "05" });
    assert_eq!(one_slot(&placed(&hourly, "orders", dated)).0, at("2026-03-03T05:00:00Z"));
    let found = placed(&hourly, "orders", json!({ "complete": true, "date": "20260303" }));
    assert!(matches!(found.as_slice(), [Concern::Unplaced { .. }]), "{found:?}");
}

#[test]
fn d2_15_keys_match_exactly_and_the_condition_must_hold() {
    let daily = streaming(Period::Day);
    assert_eq!(placed(&daily, "orders-eu", json!({ "complete": true })), []);
    assert_eq!(placed(&daily, "orders", json!({ "complete": false })), []);
    assert_eq!(placed(&daily, "other", json!({ "complete": true })), []);
}

#[test]
fn an_excluded_date_has_no_slot() {
    let mut daily = streaming(Period::Day);
    let mut timing = daily.starts[0].schedule.timing().clone();
    timing.until = Some(at("2026-03-01T00:00:00Z"));
    let recurrence = daily.starts[0].schedule.recurrence().clone();
    daily.starts[0].schedule =
        Schedule::new(ScheduleId::from_static("stream"), recurrence, timing).unwrap();
    let found = placed(&daily, "orders", json!({ "complete": true }));
    assert!(matches!(found.as_slice(), [Concern::Excluded { .. }]), "{found:?}");
}

#[test]
fn a_post_run_report_finds_the_slot_of_its_date_or_hour() {
    let (nominal, means) = one_slot(&placed(&checked(), "orders-out", json!({})));
    assert_eq!((nominal, means), (at("2026-03-03T06:00:00Z"), Means::PostRun));
    let mut hourly = checked();
    hourly.starts = vec![start("cron", cron("15 * * * *"))];
    let (nominal, _) = one_slot(&placed(&hourly, "orders-out#2026-03-03T04", json!({})));
    assert_eq!(nominal, at("2026-03-03T04:15:00Z"));
}

#[test]
fn late_data_is_data_after_the_job() {
    let daily = streaming(Period::Day);
    let follows = |state: Option<SlotState>| {
        let slot = state.map(slot);
        let sensors = Sensors::new();
        let period = SlotPeriod::day(Date::constant(2026, 3, 3));
        let known = Known {
            slot: slot.as_ref(),
            baseline: None,
            sensors: &sensors,
            period,
            completed_at: None,
            now: at(NOW),
        };
        consequence(&daily, Means::Data, "orders", &known)
    };
    assert_eq!(follows(None), Consequence::Opens);
    for open in [OpenState::Waiting, OpenState::Queued, OpenState::Running, OpenState::Backoff] {
        assert_eq!(follows(Some(SlotState::Open(open))), Consequence::Nothing);
    }
    // With a deadline the slot was open before its sensor came.
    let early = Slot { opened_by: TriggerType::Scheduler, ..slot(WAITING) };
    let sensors = Sensors::new();
    let period = SlotPeriod::day(Date::constant(2026, 3, 3));
    let known = Known {
        slot: Some(&early),
        baseline: None,
        sensors: &sensors,
        period,
        completed_at: None,
        now: at(NOW),
    };
    assert_eq!(consequence(&daily, Means::Data, "orders", &known), Consequence::Arrives);
    let done = SlotState::Closed(Disposition::Completed);
    assert_eq!(follows(Some(done)), Consequence::LateData);
    assert_eq!(follows(Some(DRY_RUN)), Consequence::LateData);
    assert_eq!(follows(Some(SlotState::Open(OpenState::Monitoring))), Consequence::LateData);
    assert_eq!(follows(Some(SlotState::Closed(Disposition::Failed))), Consequence::Nothing);
}

/// What follows for the checked job when its count was `before` at completion and is `after` now.
fn counted(state: SlotState, before: Option<Value>, after: &Value) -> Consequence {
    let slot = slot(state);
    let baseline = before
        .map(|count| BTreeMap::from([("orders-out".into(), json!({ "sensor_count": count }))]));
    let now = Sensor { value: json!({ "sensor_count": after }), at: at(NOW) };
    let sensors = Sensors::from([("orders-out".to_owned(), now)]);
    let known = Known {
        slot: Some(&slot),
        baseline: baseline.as_ref(),
        sensors: &sensors,
        period: SlotPeriod::day(Date::constant(2026, 3, 3)),
        completed_at: None,
        now: at(NOW),
    };
    consequence(&checked(), Means::PostRun, "orders-out#2026-03-03", &known)
}

#[test]
fn d1_23_drift_is_more_than_the_threshold_and_zero_is_a_number() {
    let done = SlotState::Closed(Disposition::Completed);
    let drifted =
        |before, after: Value| matches!(counted(done, before, &after), Consequence::Drift(_));
    assert!(drifted(Some(json!(100)), json!(111)));
    assert!(drifted(Some(json!(100)), json!("0")));
    assert!(drifted(Some(json!(0)), json!(11)));
    assert!(!drifted(Some(json!(100)), json!(110)));
    assert!(!drifted(None, json!(0)));
    let running = SlotState::Open(OpenState::Running);
    let inflight = counted(running, Some(json!(1)), &json!(100));
    assert!(matches!(inflight, Consequence::DriftInFlight(_)), "{inflight:?}");
    let failed = SlotState::Closed(Disposition::Failed);
    assert_eq!(counted(failed, Some(json!(1)), &json!(100)), Consequence::Nothing);
}

#[test]
fn the_rules_are_asked_when_nothing_drifted() {
    let done = SlotState::Closed(Disposition::Completed);
    let Consequence::PostRun(check) = counted(done, Some(json!(5)), &json!(6)) else {
        panic!("not judged");
    };
    assert_eq!((check.verdict.outcome, check.missing), (Outcome::Ready, vec![]));
}

#[test]
fn only_what_was_reported_after_the_job_is_judged() {
    let mut job = checked();
    job.post_run.as_mut().unwrap().rules.push(rule("refunds", Check::Exists));
    let slot = slot(SlotState::Closed(Disposition::Completed));
    let after = |minutes: i64| Sensor {
        value: json!({ "sensor_count": 5 }),
        at: at(NOW) + SignedDuration::from_mins(minutes),
    };
    let judge = |sensors: &Sensors| {
        let known = Known {
            slot: Some(&slot),
            baseline: None,
            sensors,
            period: SlotPeriod::day(Date::constant(2026, 3, 3)),
            completed_at: Some(at(NOW)),
            now: at(NOW),
        };
        consequence(&job, Means::PostRun, "orders-out", &known)
    };
    let both = |out: i64, refunds: i64| {
        let (out, refunds) = (after(out), after(refunds));
        Sensors::from([("orders-out".to_owned(), out), ("refunds".to_owned(), refunds)])
    };
    assert_eq!(judge(&both(0, -5)), Consequence::Nothing, "all of it is from before the end");
    let Consequence::PostRun(check) = judge(&both(1, -5)) else { panic!("not judged") };
    assert_eq!(check.missing, ["refunds"], "an old report is none");
    assert_eq!(check.verdict.outcome, Outcome::Ready, "what has not come is not judged");
    let Consequence::PostRun(check) = judge(&both(1, 2)) else { panic!("not judged") };
    assert_eq!(check.missing, Vec::<String>::new());
}

#[test]
fn d1_23_the_baseline_is_kept_by_rule() {
    let mut job = checked();
    let post_run = job.post_run.as_mut().unwrap();
    post_run.rules.push(rule("refunds", Check::Exists));
    let sensors = Sensors::from([
        ("orders-out#20260303".to_owned(), sensor(json!({ "sensor_count": 1 }))),
        ("orders-out".to_owned(), sensor(json!({ "sensor_count": 9 }))),
    ]);
    let period = SlotPeriod::day(Date::constant(2026, 3, 3));
    let found = baseline(job.post_run.as_ref().unwrap(), &sensors, Some(period));
    // The period's own report wins, and a sensor that was not reported leaves no hole.
    assert_eq!(found, BTreeMap::from([("orders-out".into(), json!({ "sensor_count": 1 }))]));
}
