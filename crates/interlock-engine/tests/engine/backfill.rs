//! Backfills: what they run, what they leave alone, and what they leave behind.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{id::ScheduleId, retry::FailureCategory, run::TriggerType, slot::Disposition};
use interlock_engine::seam::World as _;
use interlock_ports::trigger::StartRequest;
use interlock_store::{
    BackfillQuery, Change, Expect, Key, LedgerEntry, LedgerQuery, Record, Role, Store as _,
    block_on,
    record::{BackfillRecord, InboxRecord, SlotRecord, SpanRecord, version_text},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    catchup::{row, write},
    stage::{Job, Stage, at},
    traps::hours,
};

pub(crate) fn hourly(more: &str) -> String {
    format!(
        "name: hourly\nschedule: \"0 * * * *\"\ntrigger: {{type: command, command: 'true'}}\n{more}"
    )
}

/// A request for the slots from one time to another of the day.
pub(crate) fn start(from: &str, to: &str) -> InboxRecord {
    start_at(at(from), at(to))
}

/// The same between two instants.
pub(crate) fn start_at(from: Timestamp, to: Timestamp) -> InboxRecord {
    InboxRecord::StartBackfill {
        from,
        to,
        schedules: vec![],
        reprocess: "missing".to_owned(),
        order: "asc".to_owned(),
        concurrency: 1,
        reason: "to see".to_owned(),
        by: "ann".to_owned(),
        total: 0,
        plan: String::new(),
    }
}

/// The same with other words.
pub(crate) fn with(asked: InboxRecord, words: [&str; 2], places: u32) -> InboxRecord {
    let InboxRecord::StartBackfill { from, to, schedules, reason, by, total, plan, .. } = asked
    else {
        panic!("it starts a backfill")
    };
    let [reprocess, order] = words.map(str::to_owned);
    let concurrency = places;
    InboxRecord::StartBackfill {
        from,
        to,
        schedules,
        reprocess,
        order,
        concurrency,
        reason,
        by,
        total,
        plan,
    }
}

/// The pipeline's backfills.
pub(crate) fn backfills(stage: &Stage) -> BTreeMap<u64, BackfillRecord> {
    let query = BackfillQuery { limit: 100, ..BackfillQuery::default() };
    let rows = block_on(stage.store.backfills(&query)).unwrap().items;
    rows.into_iter().map(|row| (row.number, row.record)).collect()
}

/// Its slots by hour and day.
fn slot(stage: &Stage, time: &str) -> SlotRecord {
    let query = LedgerQuery {
        from: at(time),
        until: at(time) + SignedDuration::from_secs(1),
        ..LedgerQuery::everything(10)
    };
    let rows = block_on(stage.store.ledger(&query)).unwrap().items;
    let found = rows.into_iter().find_map(|row| match row.entry {
        LedgerEntry::Slot(slot) => Some(slot),
        LedgerEntry::Span(_) => None,
    });
    Arc::unwrap_or_clone(found.unwrap_or_else(|| panic!("no row at {time}")))
}

pub(crate) fn five(_: &StartRequest) -> Job {
    Job::Succeeds(5)
}

/// The hours of the runs of a trigger type, in the order in which they began.
pub(crate) fn begun(stage: &Stage, kind: TriggerType) -> Vec<String> {
    let requests = stage.requests();
    let own = requests.iter().filter(|request| request.trigger_type == kind);
    own.map(|request| request.run_id.split('~').nth(2).unwrap()[9..11].to_owned()).collect()
}

#[test]
fn a_backfill_runs_what_is_missing_one_after_the_other_and_ends_with_counts() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], five);
    stage.until(at("10:30"));
    let answer = stage.ask("hourly", &start("05:00", "10:15"));
    assert_eq!(answer.result["backfill"], 1);
    stage.until(at("10:40"));
    assert_eq!(begun(&stage, TriggerType::Backfill), ["05", "06", "07", "08", "09"]);
    assert_eq!(hours(&stage, "hourly").len(), 6);
    let done = &backfills(&stage)[&1];
    assert_eq!((done.state.as_str(), done.open.len()), ("done", 0));
    assert_eq!((done.counts.opened, done.counts.completed, done.counts.passed), (5, 5, 1));
    assert_eq!(
        stage.told(&["BACKFILL_STARTED", "BACKFILL_DONE"]),
        [
            "BACKFILL_STARTED backfill 1: 0 slots from 2026-02-24T05:00:00Z to 2026-02-24T10:15:00Z, \
             missing (to see)",
            "BACKFILL_DONE backfill 1: 5 slots, 5 completed, 0 failed, 0 cancelled, 0 skipped; 0 were \
             planned",
        ]
    );
    // Each run says whose it is, and its slot promises nothing about time.
    let first = slot(&stage, "05:00");
    assert_eq!((first.opened_by.as_str(), first.generation), ("backfill", 1));
    assert_eq!(first.wish.unwrap().backfill, Some(1));
}

#[test]
fn the_next_one_starts_when_the_last_one_ends() {
    let mut stage = Stage::new(at("10:30"), &[&hourly("")], five);
    stage.until(at("10:31"));
    stage.ask("hourly", &start("00:00", "10:00"));
    stage.until(at("10:33"));
    let began: Vec<_> = stage.requests().iter().map(|it| it.triggered_at).collect();
    assert_eq!(began.len(), 10);
    for pair in began.windows(2) {
        assert_eq!(pair[1].duration_since(pair[0]), SignedDuration::from_secs(5));
    }
}

#[test]
fn a_backfill_inside_a_recorded_span_works() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], five);
    stage.until(at("10:30"));
    stage.crash();
    stage.world.pass(SignedDuration::from_hours(5));
    stage.until(at("15:50"));
    assert_eq!(hours(&stage, "hourly"), ["10 completed", "11 and on: 5 no_catchup"]);
    stage.ask("hourly", &start("12:00", "14:00"));
    stage.until(at("15:59"));
    assert_eq!(
        hours(&stage, "hourly"),
        ["10 completed", "11 and on: 5 no_catchup", "12 completed", "13 completed"]
    );
    assert_eq!(begun(&stage, TriggerType::Backfill), ["12", "13"]);
    assert_eq!(slot(&stage, "12:00").generation, 1);
}

#[test]
fn a_backfill_never_makes_live_slots_skip() {
    for policy in ["skip", "all", "latest"] {
        let more = format!("catchupWindow: 1h\noverlapPolicy: {policy}\n");
        // A live run takes an hour less a minute, one of a backfill more than two.
        let mut stage = Stage::new(at("09:30"), &[&hourly(&more)], |request| {
            let is_live = request.trigger_type == TriggerType::Scheduler;
            Job::Succeeds(if is_live { 3_540 } else { 8_000 })
        });
        stage.until(at("09:31"));
        stage.ask("hourly", &start("03:00", "06:00"));
        stage.until(at("21:30"));
        let seen = hours(&stage, "hourly");
        let live: Vec<_> = seen.iter().filter(|line| line.as_str() >= "10").collect();
        assert!(live.iter().all(|line| !line.contains("overlap")), "{policy}: {live:?}");
        // The backfill waits for its turn, and has it once the live ones leave a place.
        let of_it = begun(&stage, TriggerType::Backfill);
        assert_eq!(of_it.first().map(String::as_str), Some("03"), "{policy}");
    }
}

#[test]
fn a_live_slot_blocked_only_by_a_backfill_queues_ahead_of_it() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], |_| Job::Succeeds(1_200));
    stage.until(at("09:45"));
    stage.ask("hourly", &start("03:00", "09:00"));
    stage.until(at("11:59"));
    let order: Vec<_> = stage
        .requests()
        .iter()
        .map(|it| {
            format!(
                "{} {}",
                it.run_id.split('~').nth(2).unwrap()[9..11].to_owned(),
                it.trigger_type.as_str()
            )
        })
        .collect();
    assert_eq!(
        order,
        [
            "03 backfill",
            "10 scheduler",
            "04 backfill",
            "05 backfill",
            "11 scheduler",
            "06 backfill",
            "07 backfill"
        ]
    );
}

#[test]
fn it_counts_in_max_active_runs_and_has_its_own_concurrency_below_that() {
    for (runs, places, expected) in [(1, 4, 1), (4, 2, 2), (3, 100, 3)] {
        let more = format!("maxActiveRuns: {runs}\n");
        let mut stage = Stage::new(at("09:30"), &[&hourly(&more)], |_| Job::Succeeds(60));
        stage.until(at("09:31"));
        stage.ask("hourly", &with(start("00:00", "09:00"), ["missing", "asc"], places));
        let mut most = (0, 0);
        for _ in 0..40 {
            stage.until(stage.world.now() + SignedDuration::from_secs(20));
            let open = backfills(&stage)[&1].open.len();
            let slots = stage.slots();
            let running = slots.iter().filter(|line| line.contains("running")).count();
            most = (most.0.max(running), most.1.max(open));
        }
        assert_eq!(most.0, expected);
        assert!(most.1 <= expected + 3, "{most:?}");
        assert_eq!(backfills(&stage)[&1].counts.completed, 9);
    }
}

#[test]
fn a_million_slots_are_never_open_at_once() {
    let file = hourly("").replace("0 * * * *", "* * * * *");
    let mut stage = Stage::new(at("09:30"), &[&file], |_| Job::Succeeds(86_400));
    stage.until(at("09:31"));
    let mut asked = start("00:00", "09:00");
    let InboxRecord::StartBackfill { from, concurrency, .. } = &mut asked else { panic!() };
    *from = at("00:00") - SignedDuration::from_hours(24 * 700);
    *concurrency = 5;
    stage.ask("hourly", &asked);
    stage.until(at("09:33"));
    let backfill = &backfills(&stage)[&1];
    assert_eq!((backfill.counts.opened, backfill.open.len()), (4, 4), "1 place and 3 ahead");
    assert!(stage.slots().len() < 20, "{:?}", stage.slots().len());
}

#[test]
fn failed_and_all_take_more_than_missing_and_each_run_is_the_next_generation() {
    let fails_at_six = |request: &StartRequest| {
        let is_six = request.run_id.contains("T060000Z~1~");
        if is_six { Job::Fails(FailureCategory::Permanent) } else { Job::Succeeds(5) }
    };
    for (reprocess, again, skipped) in
        [("missing", vec![], 0), ("failed", vec!["06"], 0), ("all", vec!["05", "06", "07"], 0)]
    {
        let mut stage = Stage::new(at("09:30"), &[&hourly("")], fails_at_six);
        stage.until(at("09:31"));
        stage.ask("hourly", &start("05:00", "08:00"));
        stage.until(at("09:40"));
        assert_eq!(backfills(&stage)[&1].counts.failed, 1);
        stage.ask("hourly", &with(start("05:00", "08:00"), [reprocess, "asc"], 1));
        stage.until(at("09:50"));
        let second = &backfills(&stage)[&2];
        assert_eq!(second.counts.completed, again.len() as u64, "{reprocess}");
        assert_eq!(second.counts.skipped, skipped);
        let six = slot(&stage, "06:00");
        assert_eq!(six.generation, if again.contains(&"06") { 2 } else { 1 });
        assert_eq!(stage.started().len(), 3 + again.len());
    }
}

#[test]
fn descending_order_begins_with_the_newest() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], five);
    stage.until(at("09:31"));
    stage.ask("hourly", &with(start("02:00", "09:00"), ["missing", "desc"], 1));
    stage.until(at("09:50"));
    let expected = ["08", "07", "06", "05", "04", "03", "02"];
    assert_eq!(begun(&stage, TriggerType::Backfill), expected);
}

#[test]
fn a_backfill_works_while_the_pipeline_is_paused_and_its_runs_are_not_repeated_by_catch_up() {
    let mut stage =
        Stage::new(at("09:30"), &[&hourly("catchupWindow: 12h\noverlapPolicy: all\n")], five);
    stage.until(at("10:30"));
    let pause = InboxRecord::Pause { reason: "to see".to_owned(), until: None };
    assert!(stage.ask("hourly", &pause).accepted);
    stage.until(at("14:30"));
    // Before the pause, and in it, where the watermark stands still.
    stage.ask("hourly", &start("08:00", "13:00"));
    stage.until(at("14:40"));
    assert_eq!(begun(&stage, TriggerType::Backfill), ["08", "09", "11", "12"]);
    assert_eq!(backfills(&stage)[&1].state, "done");
    assert!(stage.ask("hourly", &InboxRecord::Resume { catchup: None }).accepted);
    stage.until(at("15:30"));
    assert_eq!(begun(&stage, TriggerType::Catchup), ["13", "14"]);
    assert_eq!(begun(&stage, TriggerType::Scheduler), ["10", "15"]);
    assert_eq!(hours(&stage, "hourly").len(), 8);
}

#[test]
fn what_the_schedule_owes_is_recorded_by_it_before_the_backfill_looks() {
    let file = hourly("").replace("\"0 * * * *\"", "{cron: '0 * * * *', jitter: 50m}");
    // Live slots open up to fifty minutes late; the backfill must not take them for missing.
    let mut stage = Stage::new(at("09:30"), &[&file], five);
    stage.until(at("10:01"));
    stage.ask("hourly", &start("08:00", "10:01"));
    stage.until(at("11:00"));
    assert_eq!(begun(&stage, TriggerType::Scheduler), ["10"], "{:?}", stage.slots());
    assert_eq!(begun(&stage, TriggerType::Backfill), ["08", "09"]);
    assert_eq!(backfills(&stage)[&1].state, "done");
}

#[test]
fn slots_that_are_not_ready_wait_and_hold_only_a_few_back() {
    let file = hourly(
        "validation: {rules: [{key: landed, check: exists}]}\nevaluation: {window: 10m, interval: 1m}\n",
    );
    let mut stage = Stage::new(at("09:30"), &[&file], five);
    stage.until(at("09:31"));
    stage.ask("hourly", &start("00:00", "09:00"));
    stage.until(at("09:35"));
    assert_eq!(stage.slots().len(), 4, "1 place and 3 ahead");
    stage.until(at("09:43"));
    assert_eq!(backfills(&stage)[&1].counts.skipped, 4);
    stage.sensor("hourly", "landed", serde_json::json!(true));
    stage.until(at("09:59"));
    let done = &backfills(&stage)[&1];
    assert_eq!((done.state.as_str(), done.counts.completed, done.counts.skipped), ("done", 5, 4));
}

#[test]
fn it_arms_no_absolute_sla() {
    let file = hourly("sla: {completionDeadline: ':20', maxDuration: 2h}\n");
    let mut stage = Stage::new(at("09:30"), &[&file], |_| Job::Succeeds(600));
    stage.until(at("09:31"));
    stage.ask("hourly", &start("08:00", "09:00"));
    let sla = slot(&stage, "08:00").sla.unwrap();
    assert_eq!((sla.breach_at, sla.evaluation_at), (None, None));
    assert_eq!(sla.duration_max, Some(SignedDuration::from_hours(2)));
}

#[test]
fn a_missed_slot_that_a_backfill_runs_keeps_the_mark_of_its_miss() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], five);
    stage.until(at("09:31"));
    stage.crash();
    // Two of a span, and one with a row of its own.
    write(&stage, Role::Watchdog, vec![row(at("08:00"), Disposition::Missed)]);
    let span = SpanRecord {
        last: at("06:00"),
        count: 2,
        disposition: "missed".into(),
        reason: None,
        version: version_text(1),
        recorded_at: at("06:30"),
    };
    let key = Key::Span(ScheduleId::parse("cron").unwrap(), at("05:00"));
    write(&stage, Role::Engine, vec![Change::Put(key, Expect::Absent, Record::Span(span.into()))]);
    stage.crash();
    stage.world.pass(SignedDuration::from_hours(1));
    stage.until(at("10:45"));
    stage.ask("hourly", &start("04:00", "09:00"));
    stage.until(at("10:55"));
    let seen = ["04:00", "05:00", "06:00", "07:00", "08:00"].map(|time| {
        let slot = slot(&stage, time);
        assert_eq!(slot.disposition.as_deref(), Some("completed"), "{time}");
        (slot.marks.missed_at, slot.generation)
    });
    let (in_span, by_row) = (Some(at("06:30")), Some(at("08:00")));
    assert_eq!(seen, [(None, 1), (in_span, 1), (in_span, 1), (None, 1), (by_row, 1)]);
}

#[test]
fn a_backfill_works_while_the_pipeline_is_disabled() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("watch: {enabled: false}\n")], five);
    stage.until(at("09:31"));
    stage.ask("hourly", &start("05:00", "09:00"));
    stage.until(at("10:30"));
    assert_eq!(begun(&stage, TriggerType::Backfill), ["05", "06", "07", "08"]);
    assert_eq!(hours(&stage, "hourly").len(), 4, "nothing else runs");
}
