//! What is added to groups.

use std::sync::Arc;

use interlock_core::{
    run::TriggerType,
    slot::{Disposition, Opening, Slot},
};
use interlock_store::{Role, Shard, Term, Writer};
use serde_json::json;

use super::*;

const NINE: &str = "2026-02-25T09:00:00Z";

fn orders() -> PipelineId {
    PipelineId::parse("orders").unwrap()
}

/// A group of `orders/hourly` at an hour of 25 February, with events and the slot they are about.
fn group(hour: i8, events: &[(&'static str, &str)]) -> Group {
    let writer = Writer { role: Role::Engine, shard: Shard(0), term: Term(1) };
    let nominal: Timestamp = format!("2026-02-25T{hour:02}:00:00Z").parse().unwrap();
    let place = (nominal, ScheduleId::from_static("hourly"));
    let opening = Opening {
        opened_by: TriggerType::Scheduler,
        date: jiff::civil::date(2026, 2, 25),
        at: nominal,
        closes_at: nominal,
        version: 1,
    };
    let mut plan = Planned::new(&orders(), writer);
    plan.slot(&place, 0, &Slot::decided(Disposition::Failed, opening));
    for (kind, message) in events {
        plan.event(Event::of(kind, nominal, *message).about(&place).run("run".into()));
    }
    plan.group
}

/// What was added to a group: incidents as `key state count @expect`, notifications as `name after`.
fn added(group: &Group) -> Vec<String> {
    let rows = group.changes.iter().filter_map(|change| match change {
        Change::Put(Key::Incident(key), expect, Record::Incident(record)) => {
            Some(format!("{key} {} {} @{expect:?}", record.state, record.count))
        }
        Change::Put(Key::Outbox(name), Expect::Absent, Record::Outbox(record)) => {
            Some(format!("{name} after {:?}", record.after))
        }
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => None,
    });
    rows.collect()
}

fn follow(known: &mut Known, hour: i8, events: &[(&'static str, &str)]) -> Vec<String> {
    let mut group = group(hour, events);
    add_what_follows(&mut group, known, (&OpenSlots::new(), &BTreeSet::new()));
    added(&group)
}

#[test]
fn a_days_failures_are_one_incident_told_once() {
    let mut known = Known::new();
    let key = "failed:orders:hourly:2026-02-25";
    assert_eq!(
        follow(&mut known, 9, &[("RETRY_EXHAUSTED", "")]),
        [format!("{key} open 1 @Absent"), format!("{key}~1~opened after None")]
    );
    assert_eq!(
        follow(&mut known, 10, &[("RETRY_EXHAUSTED", "")]),
        [format!("{key} open 2 @Revision(1)")]
    );
    assert_eq!(
        follow(&mut known, 11, &[("JOB_COMPLETED", "")]),
        [
            format!("{key} resolved 2 @Revision(2)"),
            format!("{key}~3~resolved after Some(\"{key}~1~opened\")")
        ]
    );
    assert_eq!(follow(&mut known, 12, &[("JOB_COMPLETED", "")]), Vec::<String>::new());
    assert_eq!(
        follow(&mut known, 13, &[("RETRY_EXHAUSTED", "")]),
        [format!("{key} open 1 @Revision(3)"), format!("{key}~4~opened after None")],
        "it came back and is told again"
    );
}

#[test]
fn an_uncertain_run_is_told_and_so_is_that_it_was_found() {
    let mut known = Known::new();
    let key = "uncertain:orders:hourly:2026-02-25";
    assert_eq!(
        follow(&mut known, 9, &[("RUN_UNCERTAIN", "gone")]),
        [format!("{key} open 1 @Absent"), format!("{key}~1~opened after None")]
    );
    // The group that says so leaves the slot as it is: its day is that of the open slot.
    let mut found = group(9, &[("RUN_FOUND", "its job was found running")]);
    let Change::Put(Key::Slot(schedule, nominal), _, Record::Slot(record)) =
        found.changes.remove(0)
    else {
        panic!("the slot comes first")
    };
    let slot = record.to_core().unwrap();
    let open =
        OpenSlots::from([((nominal, schedule), OpenSlot { slot, revision: 1, runs: vec![] })]);
    add_what_follows(&mut found, &mut known, (&open, &BTreeSet::new()));
    assert_eq!(
        added(&found),
        [
            format!("{key} resolved 1 @Revision(1)"),
            format!("{key}~2~resolved after Some(\"{key}~1~opened\")")
        ]
    );
}

#[test]
fn several_findings_of_one_group_are_one_incident() {
    let mut known = Known::new();
    let key = "failed:orders:hourly:2026-02-25";
    assert_eq!(
        follow(&mut known, 9, &[("SFN_TIMEOUT", ""), ("RETRY_EXHAUSTED", "none left")]),
        [format!("{key} open 2 @Absent"), format!("{key}~1~opened after None")]
    );
}

#[test]
fn a_resolve_is_not_told_if_the_opening_was_not() {
    let mut known = Known::new();
    follow(&mut known, 9, &[("RETRY_EXHAUSTED", "")]);
    for (record, _) in known.values_mut() {
        Arc::make_mut(record).told = None;
    }
    let key = "failed:orders:hourly:2026-02-25";
    assert_eq!(
        follow(&mut known, 10, &[("JOB_COMPLETED", "")]),
        [format!("{key} resolved 1 @Revision(1)")]
    );
}

#[test]
fn an_alert_says_what_happened_and_why() {
    let mut group =
        group(9, &[("JOB_FAILED", "exit 3"), ("RETRY_EXHAUSTED", "no attempt is left")]);
    add_what_follows(&mut group, &mut Known::new(), (&OpenSlots::new(), &BTreeSet::new()));
    let alert = group.changes.iter().find_map(|change| match change {
        Change::Put(Key::Outbox(_), _, Record::Outbox(record)) => Some(record.alert.clone()),
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => None,
    });
    let expected = json!({
        "level": "error",
        "alertType": "job_failed",
        "pipelineId": "orders",
        "message": "Pipeline orders schedule hourly failed on 2026-02-25: exit 3; no attempt is left",
        "details": {
            "actionHint": "Read the job's log (`interlock logs`), mend the cause, then run the slot again with `interlock rerun`.",
            "runbook": "docs/messages.md#retry_exhausted",
            "scheduleId": "hourly",
            "date": "2026-02-25",
            "event": "RETRY_EXHAUSTED",
            "eventMessage": "no attempt is left",
            "incident": "failed:orders:hourly:2026-02-25",
            "slot": "hourly/2026-02-25T09:00:00Z",
            "runId": "run",
            "state": "open",
            "type": "job_failed",
        },
        "timestamp": NINE,
    });
    assert_eq!(alert.as_deref(), Some(&expected));
}

#[test]
fn a_good_slot_ends_older_days_as_far_as_the_group_has_room() {
    let mut known = Known::new();
    let telling = follow(&mut known, 9, &[("RETRY_EXHAUSTED", "no")]);
    assert_eq!(telling.len(), 2);
    let record = known[&(orders(), "failed:orders:hourly:2026-02-25".to_owned())].0.clone();
    let day = |day: u8| (orders(), format!("failed:orders:hourly:2026-02-{day:02}"));
    for older in 1..=24 {
        known.insert(day(older), (record.clone(), 1));
    }
    // Of another schedule, and of a later day: not over.
    let other = (orders(), "failed:orders:daily:2026-02-20".to_owned());
    known.insert(other.clone(), (record.clone(), 1));
    known.insert(day(26), (record.clone(), 1));
    let mut group = group(10, &[("JOB_COMPLETED", "")]);
    add_what_follows(&mut group, &mut known, (&OpenSlots::new(), &BTreeSet::new()));
    assert!(group.changes.len() <= CHANGES_MAX, "{}", group.changes.len());
    let is_over = |key: &(PipelineId, String)| !known[key].0.is_open();
    assert!(is_over(&day(25)) && is_over(&day(1)) && is_over(&day(9)));
    assert!(!is_over(&day(26)) && !is_over(&other) && !is_over(&day(24)), "no room");
}
