//! Stories of slots, and why there are none.

use std::collections::BTreeMap;

use interlock_answers::{
    StoryQuery,
    model::story::{AbsenceReason, StoryAnswer},
    prose::story_lines,
};
use interlock_store::{
    Key, Record, block_on,
    record::{EventRecord, IncidentRecord, OutboxRecord, WatermarkRecord},
};
use serde_json::{Value, json};

use super::house::*;

#[track_caller]
fn story(house: &House, instant: &str) -> StoryAnswer {
    let asked = StoryQuery { pipeline: orders(), schedule: Some(hourly()), at: at(instant) };
    let mut stories = block_on(house.reader().stories(&asked)).unwrap();
    assert_eq!(stories.len(), 1, "{stories:#?}");
    stories.remove(0)
}

#[track_caller]
fn check_absence(house: &House, instant: &str, reason: AbsenceReason, sentence: &str) {
    let absence = story(house, instant).absence.unwrap();
    assert_eq!(absence.reason, reason, "{absence:?}");
    assert!(absence.sentence.contains(sentence), "{absence:?}");
}

#[test]
fn each_instant_without_a_slot_has_its_reason() {
    use AbsenceReason::*;
    let mut house = House::new("2026-02-25T12:30:00Z");
    let check = |house: &House, instant, reason, sentence| {
        check_absence(house, instant, reason, sentence);
    };
    check(&house, "2026-02-25T12:00:00Z", NotSeen, "has not seen this pipeline");
    house.write(vec![seen("2026-02-24T00:00:00Z")]);
    check(&house, "2026-02-25T12:00:00Z", NothingRecorded, "no slot of this schedule was recorded");
    let mark = Record::Watermark(WatermarkRecord { at: at("2026-02-25T10:00:00Z") });
    house.write(vec![(Key::Watermark(hourly()), mark)]);
    check(&house, "2026-02-23T12:00:00Z", BeforeFirstSight, "first seen at 2026-02-24T00:00:00Z");
    check(&house, "2026-02-25T09:00:00Z", DeclaredDifferently, "declared differently");
    check(&house, "2026-02-25T09:10:00Z", NotASlot, "the nearest are 2026-02-25T09:00:00Z and");
    check(&house, "2026-02-25T12:00:00Z", NotRecordedYet, "only up to 2026-02-25T10:00:00Z");
    check(&house, "2026-02-25T13:00:00Z", NotDue, "not due yet");
    check(&house, "2026-02-28T13:00:00Z", Excluded, "2026-02-28 is excluded by exclusions");
    house.declare(&format!("{ORDERS}watch: {{enabled: false}}\n"));
    check(&house, "2026-02-25T12:00:00Z", Disabled, "`watch.enabled` is false");
}

#[test]
fn the_local_time_that_does_not_exist_is_said() {
    let mut house = House::new("2026-04-01T12:00:00Z");
    house.declare(
        "name: orders\nschedules:\n  - {id: hourly, cron: '30 2 * * *', timezone: Europe/Berlin, dst: {gap: skip}}\n\
         trigger: {type: command, command: 'true'}\n",
    );
    // 02:30 does not exist; the first instant after the gap is 03:00, 01:00 in UTC.
    check_absence(&house, "2026-03-29T01:00:00Z", AbsenceReason::DstGap, "02:30 does not exist");
}

#[test]
fn what_is_not_declared_any_more_says_so() {
    let mut house = House::new("2026-02-25T12:30:00Z");
    house.undeclare();
    check_absence(&house, "2026-02-25T12:00:00Z", AbsenceReason::Undeclared, "no longer declared");
}

/// An event about a slot.
fn event(kind: &'static str, slot: &str, details: Value) -> EventRecord {
    let details: BTreeMap<String, Value> = serde_json::from_value(details).unwrap();
    let (slot, message) = (Some(format!("hourly/{slot}")), "said".to_owned());
    EventRecord {
        kind: kind.into(),
        at: at("2026-02-25T10:05:00Z"),
        slot,
        run_id: None,
        message,
        details,
    }
}

#[test]
fn a_story_has_the_incidents_that_its_events_opened_and_their_alerts() {
    const KEY: &str = "failed:orders:hourly:2026-02-25";
    let house = House::new("2026-02-25T12:30:00Z");
    let told = format!("{KEY}~1~opened");
    let incident = IncidentRecord {
        state: "open".into(),
        kind: "RETRY_EXHAUSTED".into(),
        level: "error".into(),
        message: "it failed".to_owned(),
        details: BTreeMap::new(),
        opened_at: at("2026-02-25T10:05:00Z"),
        updated_at: at("2026-02-25T10:05:00Z"),
        count: 1,
        told: Some(told.clone()),
        acknowledged: None,
        resolved: None,
        openings: Box::new([]),
    };
    let alert = json!({ "details": { "state": "open", "incident": KEY } });
    let outbox = OutboxRecord {
        channel: String::new(),
        alert: alert.into(),
        tries: 0,
        not_before: at("2026-02-25T11:00:00Z"),
        claimed_until: None,
        last_error: None,
        dead: false,
        after: None,
        held: Some("a silence".to_owned()),
    };
    house.write(vec![
        seen("2026-02-01T00:00:00Z"),
        slot("2026-02-25T10:00:00Z", "failed"),
        slot("2026-02-25T11:00:00Z", "completed"),
        (Key::Incident(KEY.to_owned()), Record::Incident(incident.into())),
        (Key::Outbox(told), Record::Outbox(outbox.into())),
    ]);
    house.happen(vec![
        event("RETRY_EXHAUSTED", "2026-02-25T10:00:00Z", json!({})),
        event("JOB_COMPLETED", "2026-02-25T11:00:00Z", json!({})),
    ]);
    let failed = story(&house, "2026-02-25T10:00:00Z");
    assert_eq!(failed.events.len(), 1, "{failed:#?}");
    assert_eq!(failed.incidents.len(), 1, "{failed:#?}");
    let found = &failed.incidents[0];
    assert_eq!(
        (found.incident.key.as_str(), found.incident.held.as_deref()),
        (KEY, Some("a silence"))
    );
    assert_eq!((found.deliveries[0].state.as_str(), found.deliveries.len()), ("held", 1));
    let lines = story_lines(&failed).join("\n");
    assert!(lines.contains("held, next at 2026-02-25T11:00:00Z: a silence"), "{lines}");
    let completed = story(&house, "2026-02-25T11:00:00Z");
    assert_eq!(completed.incidents, [], "that it would end one is no reason to show it");
}
