//! Filters against a plain reading of the same rows, page by page, with few and with too many rows.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::{
    Change, Expect, Group, Key, LedgerRow, ListOrder, Role, RunKey, RunRow, Shard, Store as _,
    block_on,
    memory::MemoryStore,
    record::{EventRecord, IncidentRecord, Record, RunRecord, SlotRecord},
};

const STATUSES: [&str; 4] = ["COMPLETED", "FAILED", "CANCELLED", "RUNNING"];
const KINDS: [&str; 3] = ["scheduler", "manual", "retry"];

fn minute(number: usize) -> Timestamp {
    let start: Timestamp = "2026-02-25T09:00:00Z".parse().unwrap();
    start + SignedDuration::from_mins(number as i64)
}

fn pipeline(name: &str) -> PipelineId {
    PipelineId::parse(name).unwrap()
}

fn daily() -> ScheduleId {
    ScheduleId::from_static("daily")
}

/// A store in which these changes were made to the pipelines `orders` and `stock` in turn.
fn store_of(changes: impl Iterator<Item = Change>) -> MemoryStore {
    let store = MemoryStore::new(1, Arc::new(|| minute(0)));
    let ttl = SignedDuration::from_hours(1);
    let lease = block_on(store.acquire(Role::Engine, Shard(0), "test", ttl)).unwrap().unwrap();
    let names = [pipeline("orders"), pipeline("stock")];
    let groups = changes.enumerate().map(|(number, change)| Group {
        pipeline: names[number % 2].clone(),
        writer: lease.writer,
        changes: vec![change],
    });
    let results = block_on(store.commit(groups.collect())).unwrap();
    assert!(results.iter().all(Result::is_ok));
    store
}

fn run(number: usize) -> Change {
    let key = RunKey { schedule: daily(), nominal: minute(number), generation: 1, attempt: 1 };
    // One in a hundred did not complete.
    let status =
        if number.is_multiple_of(100) { STATUSES[1 + number / 100 % 3] } else { STATUSES[0] };
    let record = RunRecord {
        status: status.into(),
        trigger_type: KINDS[number % 3].into(),
        created_at: minute(number),
        started_at: None,
        ended_at: None,
        message: None,
        category: None,
        metadata: BTreeMap::new(),
    };
    Change::Put(Key::Run(key), Expect::Absent, Record::Run(record.into()))
}

/// All pages of a listing, how many those are, and the most rows that one of them looked at.
fn all_pages<T, P: Clone>(
    find: impl Fn(Option<P>) -> Result<ScanPage<T, P>, StoreError>,
) -> (Vec<T>, usize, usize) {
    let (mut items, mut after, mut pages, mut most) = (Vec::new(), None, 0, 0);
    loop {
        let page = find(after).unwrap();
        (pages, most) = (pages + 1, most.max(page.scanned));
        items.extend(page.items);
        after = page.next;
        assert!(pages < 10_000, "pages go on for ever");
        if after.is_none() {
            return (items, pages, most);
        }
    }
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn runs_that_are_asked_for_come_newest_first_and_each_once() {
    let store = store_of((0..1_000).map(run));
    let all = block_on(store.runs(&crate::RunQuery { limit: 2_000, ..Default::default() }));
    let all = all.unwrap().items;
    let filters = [
        RunFilter::default(),
        RunFilter { statuses: words(&["FAILED", "RUNNING"]), ..RunFilter::default() },
        RunFilter { statuses: words(&["FAILED", "FAILED", "COMPLETED"]), ..RunFilter::default() },
        RunFilter { trigger_types: words(&["manual", "retry"]), ..RunFilter::default() },
        RunFilter {
            statuses: words(&["FAILED", "CANCELLED"]),
            trigger_types: words(&["manual"]),
            ..RunFilter::default()
        },
        RunFilter { pipeline: Some(pipeline("stock")), ..RunFilter::default() },
        RunFilter {
            pipeline: Some(pipeline("orders")),
            statuses: words(&["FAILED"]),
            ..RunFilter::default()
        },
        RunFilter { schedule: Some(ScheduleId::from_static("hourly")), ..RunFilter::default() },
        RunFilter {
            from: Some(minute(100)),
            until: Some(minute(300)),
            trigger_types: words(&["retry", "scheduler"]),
            ..RunFilter::default()
        },
    ];
    for filter in &filters {
        let is_asked_for = |row: &&RunRow| {
            let at = row.record.created_at;
            filter.pipeline.as_ref().is_none_or(|name| row.pipeline == *name)
                && filter.schedule.as_ref().is_none_or(|id| row.key.schedule == *id)
                && is_among(&filter.statuses, &row.record.status)
                && is_among(&filter.trigger_types, &row.record.trigger_type)
                && filter.from.is_none_or(|from| at >= from)
                && filter.until.is_none_or(|until| at < until)
        };
        let expected: Vec<_> = all.iter().filter(is_asked_for).cloned().collect();
        for limit in [1, 7, 100, 1_000] {
            let find = |after| block_on(find_runs(&store, filter, after, limit));
            let (found, _, _) = all_pages(find);
            assert!(found == expected, "{filter:?} by {limit}: {} rows", found.len());
        }
    }
}

#[test]
fn what_is_rare_is_looked_for_in_bounded_work_and_the_page_says_where_to_go_on() {
    let store = store_of((0..12_000).map(run));
    let filter = RunFilter {
        pipeline: Some(pipeline("orders")),
        trigger_types: words(&["nothing"]),
        ..RunFilter::default()
    };
    let first = block_on(find_runs(&store, &filter, None, 100)).unwrap();
    assert_eq!((first.items.len(), first.scanned), (0, SCAN_MAX));
    let last_seen = first.next.expect("it goes on");
    assert_eq!(last_seen.created_at, minute(12_000 - 2 * SCAN_MAX));
    let find = |after| block_on(find_runs(&store, &filter, after, 100));
    assert_eq!(all_pages(find), (vec![], 2, SCAN_MAX));
}

#[test]
fn slots_that_are_asked_for_come_in_either_order_and_each_once() {
    let slot = |number: usize| {
        let words = [None, Some("completed"), Some("failed"), Some("missed")];
        let disposition = words[number % 7 % 4];
        let record = SlotRecord {
            state: if disposition.is_some() { "closed" } else { "waiting" }.into(),
            disposition: disposition.map(Into::into),
            reason: None,
            generation: 1,
            attempt: 0,
            opened_by: KINDS[number % 3].into(),
            date: "2026-02-25".parse().unwrap(),
            opened_at: minute(number),
            closes_at: minute(number + 10),
            retry_at: None,
            marks: crate::record::MarksRecord::default(),
            version: "0000000000000001".into(),
            wish: None,
            reruns: None,
            sla: None,
            evaluated: None,
        };
        // Pairs have one instant.
        let key = Key::Slot(daily(), minute(number / 2));
        Change::Put(key, Expect::Absent, Record::Slot(record.into()))
    };
    let store = store_of((0..400).map(slot));
    let all = block_on(store.ledger(&crate::LedgerQuery::everything(1_000))).unwrap().items;
    assert_eq!(all.len(), 400);
    let filters = [
        SlotFilter::default(),
        SlotFilter { dispositions: words(&["open"]), ..SlotFilter::default() },
        SlotFilter { dispositions: words(&["failed", "missed", "open"]), ..SlotFilter::default() },
        SlotFilter { dispositions: words(&["completed", "failed"]), ..SlotFilter::default() },
        SlotFilter {
            pipeline: Some(pipeline("stock")),
            dispositions: words(&["failed"]),
            opened_by: words(&["manual", "retry"]),
            from: minute(20),
            until: minute(150),
            ..SlotFilter::default()
        },
    ];
    for filter in filters {
        let is_asked_for = |row: &&LedgerRow| {
            let crate::LedgerEntry::Slot(slot) = &row.entry else { return false };
            let word = slot.disposition.as_deref().unwrap_or("open");
            filter.pipeline.as_ref().is_none_or(|name| row.pipeline == *name)
                && is_among(&filter.dispositions, word)
                && is_among(&filter.opened_by, &slot.opened_by)
                && (filter.from..filter.until).contains(&row.nominal)
        };
        let mut expected: Vec<_> = all.iter().filter(is_asked_for).cloned().collect();
        for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
            let filter = SlotFilter { order, ..filter.clone() };
            for limit in [1, 9, 1_000] {
                let find = |after| block_on(find_slots(&store, &filter, after, limit));
                let (found, _, _) = all_pages(find);
                assert!(found == expected, "{filter:?} by {limit}: {} rows", found.len());
            }
            expected.reverse();
        }
    }
}

#[test]
fn incidents_and_events_are_found_by_what_they_say() {
    let incident = |number: usize| {
        let record = IncidentRecord {
            state: ["open", "acknowledged", "resolved"][number % 3].into(),
            kind: ["SCHEDULE_MISSED", "RUN_FAILED"][number / 2 % 2].into(),
            level: ["error", "warning"][number / 4 % 2].into(),
            message: String::new(),
            details: BTreeMap::new(),
            opened_at: minute(number),
            updated_at: minute(number),
            count: 1,
            told: None,
            acknowledged: None,
            resolved: None,
            openings: Box::default(),
        };
        let key = Key::Incident(format!("i-{number}"));
        Change::Put(key, Expect::Absent, Record::Incident(record.into()))
    };
    let event = |number: usize| {
        let record = EventRecord {
            kind: ["SLOT_OPENED", "RUN_STARTED", "RUN_ENDED"][number % 3].into(),
            at: minute(number),
            slot: Some(format!("daily/{}", number % 5)),
            run_id: None,
            message: String::new(),
            details: BTreeMap::new(),
        };
        Change::Append(record.into())
    };
    let store = store_of((0..60).map(incident).chain((0..60).map(event)));
    let unresolved = IncidentFilter {
        states: words(&["open", "acknowledged"]),
        levels: words(&["error"]),
        kinds: words(&["RUN_FAILED"]),
        until: Some(minute(50)),
        ..IncidentFilter::default()
    };
    let find = |after| block_on(find_incidents(&store, &unresolved, after, 2));
    let (found, _, _) = all_pages(find);
    let keys: Vec<_> = found.iter().map(|(_, key, _)| key.as_str()).collect();
    assert_eq!(keys, ["i-43", "i-42", "i-34", "i-27", "i-19", "i-18", "i-10", "i-3"]);
    for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
        let filter = EventFilter {
            kinds: words(&["RUN_ENDED", "SLOT_OPENED"]),
            slot: Some("daily/2".to_owned()),
            order,
            ..EventFilter::default()
        };
        let find = |after| block_on(find_events(&store, &filter, after, 3));
        let (found, _, _) = all_pages(find);
        let mut expected: Vec<_> = (0..60).filter(|n| n % 5 == 2 && n % 3 != 1).collect();
        if order == ListOrder::NewestFirst {
            expected.reverse();
        }
        let found: Vec<_> = found.iter().map(|row| row.record.at).collect();
        assert_eq!(found, expected.into_iter().map(minute).collect::<Vec<_>>(), "{order:?}");
    }
}

#[test]
fn the_usual_duration_is_that_of_the_last_completed_runs_of_the_schedule() {
    let run = |number: usize| {
        let (schedule, minutes, status) = match number % 6 {
            0 | 2 => ("daily", 10, "COMPLETED"),
            4 => ("daily", 999, "FAILED"),
            _ => ("hourly", 30, "COMPLETED"),
        };
        // What happened before the last twenty is of no account.
        let minutes = if number < 60 { 500 } else { minutes };
        let schedule = ScheduleId::from_static(schedule);
        let key = RunKey { schedule, nominal: minute(number), generation: 1, attempt: 1 };
        let record = RunRecord {
            status: status.into(),
            trigger_type: KINDS[0].into(),
            created_at: minute(number),
            started_at: (number.is_multiple_of(4)).then(|| minute(number + 1)),
            ended_at: Some(minute(number + minutes + usize::from(number.is_multiple_of(4)))),
            message: None,
            category: None,
            metadata: BTreeMap::new(),
        };
        Change::Put(Key::Run(key), Expect::Absent, Record::Run(record.into()))
    };
    let usual = |runs: usize, schedule: &'static str| {
        let store = store_of((0..runs).map(run));
        let (orders, schedule) = (pipeline("orders"), ScheduleId::from_static(schedule));
        let usual = crate::usual_duration_of(&store, &orders, &schedule);
        block_on(usual).unwrap().map(|usual| usual.as_mins())
    };
    assert_eq!(usual(180, "daily"), Some(10));
    assert_eq!(usual(50, "daily"), Some(500));
    assert_eq!(usual(12, "daily"), None, "four completed runs are too few");
    assert_eq!(usual(180, "hourly"), None, "those are of another pipeline");
}
