//! What is asked for and can never be done: it is answered, kept for people, and in nobody's way.

use interlock_core::id::PipelineId;
use interlock_store::{
    Key, Record, Store as _, block_on,
    record::{InboxRecord, ReportRecord},
};
use jiff::SignedDuration;
use serde_json::json;

use crate::{
    Files,
    heard::{HOURLY, stage},
    stage::{Job, Stage, at},
    watched::watch,
};

const OTHER: &str = "
name: orders
schedule: '0 * * * *'
trigger: {type: command, command: 'true'}
";

fn post(stage: &Stage, pipeline: &str, key: &str, record: &InboxRecord) {
    let name = PipelineId::parse(pipeline).unwrap();
    block_on(stage.store.post(&name, key, record)).unwrap();
}

fn is_accepted(stage: &Stage, pipeline: &str, key: &str) -> Option<bool> {
    let name = PipelineId::parse(pipeline).unwrap();
    let rows = block_on(stage.store.read(&name, &[Key::Applied(key.to_owned())])).unwrap();
    rows.into_iter().flatten().find_map(|row| {
        let Record::Applied(applied) = row.record else { return None };
        Some(applied.accepted)
    })
}

fn report(said: &str, stage: &Stage) -> InboxRecord {
    InboxRecord::Report(Box::new(ReportRecord::of(said, stage.world.time(), None)))
}

fn sensor(key: &str) -> InboxRecord {
    InboxRecord::Sensor { key: key.to_owned(), value: json!({"rows": 3}), at: at("09:00") }
}

#[test]
fn what_the_store_can_never_take_is_answered_and_what_was_asked_with_it_is_done() {
    let mut stage = Stage::new(at("08:30"), &[HOURLY, OTHER], |_| Job::Succeeds(5));
    stage.goes_on("09:01");
    // In one write: a report that is held, what no engine can keep, and two that come after it.
    post(&stage, "backup", "before", &report("success", &stage));
    post(&stage, "orders", "bad", &sensor("a\0b"));
    post(&stage, "orders", "good", &sensor("ab"));
    post(&stage, "backup", "after", &report("log", &stage));
    stage.goes_on("09:02");
    assert_eq!(is_accepted(&stage, "backup", "before"), Some(true));
    assert_eq!(is_accepted(&stage, "orders", "bad"), Some(false));
    assert_eq!(is_accepted(&stage, "orders", "good"), Some(true));
    assert_eq!(is_accepted(&stage, "backup", "after"), Some(true));
    let told = stage.told(&["REQUEST_REJECTED", "PIPELINE_SET_ASIDE"]);
    assert_eq!(told, [r#"REQUEST_REJECTED a key cannot hold a NUL: "a\0b""#]);
    let events = stage.events();
    let kept = &events.iter().find(|row| row.record.kind == "REQUEST_REJECTED").unwrap().record;
    assert_eq!(kept.details["request"], "sensor");
    assert!(kept.details["body"].as_str().unwrap().contains(r#""rows":3"#), "{kept:?}");
    stage.goes_on("10:30");
    assert!(stage.slots().iter().any(|slot| slot == "cron/2026-02-24T10:00:00Z completed"));
}

#[test]
fn an_entry_that_cannot_be_read_is_kept_and_stops_nobody() {
    let mut stage = stage(HOURLY);
    let text = r#"{"v":1,"request":"teleport","to":"the moon"}"#;
    let odd = InboxRecord::read(text);
    assert_eq!(odd.encode(), text, "it is kept as it was found");
    post(&stage, "backup", "odd", &odd);
    stage.goes_on("09:01");
    post(&stage, "backup", "plain", &report("success", &stage));
    stage.goes_on("09:02");
    assert_eq!(is_accepted(&stage, "backup", "odd"), Some(false));
    assert_eq!(is_accepted(&stage, "backup", "plain"), Some(true));
    let events = stage.events();
    let kept = &events.iter().find(|row| row.record.kind == "REQUEST_REJECTED").unwrap().record;
    assert!(kept.message.contains("teleport"), "{kept:?}");
    assert_eq!(
        (&kept.details["request"], &kept.details["body"]),
        (&"teleport".into(), &text.into())
    );
    let newer = InboxRecord::read(r#"{"v":999,"request":"report","said":"success"}"#);
    let InboxRecord::Unreadable { reason, .. } = newer else { panic!("{newer:?}") };
    assert!(reason.contains("a later version"), "{reason}");
}

#[test]
fn what_is_refused_is_kept_also_when_nobody_waited_for_the_answer() {
    let mut stage = stage(HOURLY);
    post(&stage, "nowhere", "k", &sensor("ab"));
    post(
        &stage,
        "backup",
        "run",
        &InboxRecord::Run { slot: None, force: false, params: [].into(), webhook: false },
    );
    post(&stage, "backup", "look", &InboxRecord::Look {});
    post(&stage, "nowhere", "look", &InboxRecord::Look {});
    stage.goes_on("08:36");
    assert_eq!(
        stage.told(&["REQUEST_REJECTED"]),
        [
            "REQUEST_REJECTED there is no pipeline `nowhere`",
            "REQUEST_REJECTED backup is watch-only: Interlock does not run its jobs",
        ],
        "what parts of Interlock tell each other is no request"
    );
}

#[test]
fn whose_reports_nothing_watches_is_an_incident_until_something_does() {
    let mut stage = Stage::new(at("08:30"), &[OTHER], |_| Job::Succeeds(5));
    let heard = watch(&stage);
    stage.goes_on("08:35");
    // A name that is spelt wrong in somebody's crontab, twice.
    post(&stage, "backup", "start", &report("start", &stage));
    post(&stage, "backup", "end", &report("success", &stage));
    // And one that Interlock runs itself.
    post(&stage, "orders", "own", &report("success", &stage));
    stage.goes_on("08:40");
    assert_eq!(stage.told(&["REPORT_REJECTED"]).len(), 3);
    let lines = heard.lines();
    assert_eq!(lines.len(), 2, "one for each name: {lines:?}");
    assert!(lines.iter().all(|line| line.ends_with("job_not_watched open")), "{lines:?}");
    stage.crash();
    stage.files = Files::new(&[OTHER, HOURLY]);
    let heard = watch(&stage);
    stage.goes_on("08:50");
    let lines = heard.lines();
    assert_eq!(lines.len(), 1, "the other still is not: {lines:?}");
    assert!(lines[0].ends_with("job_not_watched resolved"), "{lines:?}");
}

/// Whoever made it by a first ping has reported: its first slot is not left waiting.
#[test]
fn the_report_that_makes_a_switch_closes_its_first_slot() {
    const SWITCH: &str = "
name: backup
schedules: [{name: s, every: 1h, from: last, grace: 10m}]
trigger: {type: external}
";
    for said in ["success", "fail"] {
        let mut stage = Stage::new(at("08:30"), &[SWITCH], |_| Job::Succeeds(5));
        let mut record = ReportRecord::of(said, stage.world.time(), None);
        record.create = true;
        post(&stage, "backup", "first", &InboxRecord::Report(Box::new(record)));
        // Its file is read a little later.
        stage.world.pass(SignedDuration::from_secs(2));
        stage.goes_on("08:31");
        assert_eq!(is_accepted(&stage, "backup", "first"), Some(true));
        let slots = stage.slots();
        assert_eq!(slots.len(), 2, "{slots:?}");
        let state = if said == "success" { " completed" } else { " failed" };
        assert!(slots[0].ends_with(state) && slots[1].ends_with(" open(waiting)"), "{slots:?}");
    }
}
