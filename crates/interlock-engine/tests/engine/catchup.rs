//! Catch-up on virtual time. The tests are named after the sentences of its issue.

use std::ops::Range;

use interlock_core::{
    id::{PipelineId, ScheduleId},
    retry::FailureCategory,
    run::TriggerType,
    slot::{Disposition, Opening, Slot},
};
use interlock_engine::{Changes, Parts};
use interlock_ports::trigger::StartRequest;
use interlock_store::{
    Change, Expect, Group, Key, LedgerEntry, LedgerQuery, Record, Role, Shard, Store as _, Writer,
    block_on,
    record::{InboxRecord, SlotRecord, SpanRecord},
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use crate::{
    Files, Machine,
    stage::{Job, Stage, at},
    traps::{engine, hours, live},
};

/// `hourly` with a window of twelve hours.
fn hourly(overlap: &str) -> String {
    format!(
        "name: hourly\nschedule: \"0 * * * *\"\ncatchupWindow: 12h\noverlapPolicy: {overlap}\n\
         trigger: {{type: command, command: 'true'}}\n"
    )
}

fn hours_of(count: i64) -> SignedDuration {
    SignedDuration::from_hours(count)
}

/// The machine was off from 10:30 on, for six hours.
fn after_downtime(overlap: &str, job: impl Fn() -> Job + Send + Sync + 'static) -> Stage {
    after_downtime_with(0, overlap, job)
}

/// The same with so many others beside it.
fn after_downtime_with(
    others: usize,
    overlap: &str,
    job: impl Fn() -> Job + Send + Sync + 'static,
) -> Stage {
    let first = hourly(overlap);
    let other = |number| first.replace("name: hourly", &format!("name: other-{number}"));
    let files: Vec<_> = std::iter::once(first.clone()).chain((0..others).map(other)).collect();
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let mut stage = Stage::new(at("09:30"), &files, move |_| job());
    stage.until(at("10:30"));
    stage.crash();
    stage.world.pass(hours_of(6) - SignedDuration::from_mins(3));
    stage
}

/// When which slot's run began, by trigger type.
fn begun(stage: &Stage) -> Vec<String> {
    let line = |row: interlock_store::RunRow| {
        let (slot, began) = (row.key.nominal.strftime("%H"), row.record.created_at.strftime("%T"));
        format!("{slot} {} at {began}", row.record.trigger_type)
    };
    stage.run_rows().into_iter().map(line).collect()
}

/// Writes rows as the watchdog or an owner before would.
pub(crate) fn write(stage: &Stage, role: Role, changes: Vec<Change>) {
    let lease = block_on(stage.store.acquire(role, Shard(0), "test", hours_of(1))).unwrap();
    let writer: Writer = lease.unwrap().writer;
    let pipeline = PipelineId::parse("hourly").unwrap();
    let group = Group { pipeline, writer, changes };
    block_on(stage.store.commit(vec![group])).unwrap().pop().unwrap().unwrap();
}

pub(crate) fn row(nominal: Timestamp, disposition: Disposition) -> Change {
    let opening = Opening {
        opened_by: TriggerType::Scheduler,
        date: jiff::civil::date(2026, 2, 24),
        at: nominal,
        closes_at: nominal,
        version: 1,
    };
    let record = SlotRecord::from_core(&Slot::decided(disposition, opening));
    let key = Key::Slot(ScheduleId::parse("cron").unwrap(), nominal);
    Change::Put(key, Expect::Absent, Record::Slot(record.into()))
}

#[test]
fn skip_means_the_first_missed_slot_runs_and_the_others_are_skipped_however_short_the_runs_are() {
    for seconds in [1, 5, 50 * 60] {
        let mut stage = after_downtime("skip", move || Job::Succeeds(seconds));
        stage.until(at("16:59"));
        let expected = ["10 completed", "11 completed", "12 and on: 5 overlap"];
        // A live slot would be 17; the one of 16 was missed half an hour ago.
        let mut seen = hours(&stage, "hourly");
        if seconds > 1_700 {
            assert_eq!(seen[1], "11 open(running)");
            "11 completed".clone_into(&mut seen[1]);
        }
        assert_eq!(seen, expected, "{seconds}");
        assert_eq!(begun(&stage)[1], "11 catchup at 16:30:00");
    }
}

#[test]
fn all_starts_the_next_when_the_last_one_ends_not_at_the_next_minute() {
    let mut stage = after_downtime("all", || Job::Succeeds(5));
    stage.until(at("16:40"));
    let expected = [
        "10 scheduler at 10:00:00",
        "11 catchup at 16:30:00",
        "12 catchup at 16:30:05",
        "13 catchup at 16:30:10",
        "14 catchup at 16:30:15",
        "15 catchup at 16:30:20",
        "16 catchup at 16:30:25",
    ];
    assert_eq!(begun(&stage), expected);
    let planned = stage.told(&["CATCHUP_PLANNED"]);
    assert_eq!(planned, ["CATCHUP_PLANNED 6 slots were missed: 6 run (all); skipped: none"]);
}

#[test]
fn what_follows_a_run_is_foretold_as_it_is_then_asked_for() {
    let mut stage = after_downtime("all", || Job::Succeeds(5));
    stage.until(at("16:40"));
    let (started, foretold) = (stage.requests(), stage.foretold());
    let caught_up = &started[1..];
    assert_eq!(foretold.len(), caught_up.len() - 1, "{foretold:#?}");
    for (pair, (after, mut next)) in caught_up.windows(2).zip(foretold) {
        assert_eq!(after, pair[0].run_id);
        // When it really began could not be known.
        next.triggered_at = pair[1].triggered_at;
        assert_eq!(next, pair[1]);
    }
}

#[test]
fn latest_runs_only_the_newest_and_names_the_others_superseded() {
    let mut stage = after_downtime("latest", || Job::Succeeds(5));
    stage.until(at("16:40"));
    let expected = ["10 completed", "11 and on: 5 superseded", "16 completed"];
    assert_eq!(hours(&stage, "hourly"), expected);
}

#[test]
fn a_live_slot_due_during_catch_up_runs_under_all_and_latest_or_is_recorded_as_skipped_under_skip()
{
    // Each run takes 40 minutes, so that 17:00 falls into the first.
    for (overlap, fate) in
        [("skip", "skipped(overlap)"), ("all", "open(queued)"), ("latest", "open(queued)")]
    {
        let mut stage = after_downtime(overlap, || Job::Succeeds(40 * 60));
        stage.until(at("17:01"));
        let seen = hours(&stage, "hourly");
        assert_eq!(seen.last().unwrap(), &format!("17 {fate}"), "{overlap}");
        stage.until(at("21:59"));
        let seen = hours(&stage, "hourly");
        let live = seen.iter().find(|line| line.starts_with("17")).unwrap();
        let expected = if overlap == "skip" { "17 skipped(overlap)" } else { "17 completed" };
        assert_eq!(live, expected, "{overlap}");
    }
}

#[test]
fn a_catch_up_that_is_stopped_ends_what_runs_and_begins_nothing_more_of_it() {
    let mut stage = after_downtime("all", || Job::Succeeds(40 * 60));
    stage.until(at("16:31"));
    let stop = InboxRecord::StopCatchup { reason: "too much at once".to_owned() };
    let answer = stage.ask("hourly", &stop);
    assert!(answer.accepted, "{answer:?}");
    assert_eq!((&answer.result["cancelled"], &answer.result["left"]), (&5.into(), &0.into()));
    stage.until(at("18:30"));
    let seen = hours(&stage, "hourly");
    let cancelled = (12..=16).map(|hour| format!("{hour} cancelled"));
    let mut expected = vec!["10 completed".to_owned(), "11 completed".to_owned()];
    expected.extend(cancelled);
    expected.extend(["17 completed".to_owned(), "18 open(running)".to_owned()]);
    assert_eq!(seen, expected, "what is due goes on");
    assert_eq!(stage.ask("hourly", &stop).result["cancelled"], 0);
}

#[test]
fn a_second_crash_during_catch_up_loses_nothing() {
    let mut stage = after_downtime("all", || Job::Succeeds(10 * 60));
    stage.until(at("16:45"));
    assert_eq!(stage.started().len(), 3, "two of six have begun");
    stage.crash();
    stage.until(at("18:30"));
    let seen = hours(&stage, "hourly");
    assert_eq!(seen.len(), 9);
    assert!(seen.iter().all(|line| line.ends_with("completed")), "{seen:?}");
    // In order of time, each once.
    let slots: Vec<_> = stage.requests().iter().map(|request| request.slot).collect();
    assert!(slots.is_sorted() && stage.started().len() == 9, "{slots:?}");
}

#[test]
fn no_slot_runs_twice_when_the_crash_falls_between_dispatch_and_its_record() {
    for overlap in ["skip", "all", "latest"] {
        for dies_at in 0.. {
            let machine = Machine::new(&[&hourly(overlap)]);
            let start = machine.world.time();
            machine.live(u64::MAX, start + SignedDuration::from_mins(150));
            machine.world.pass(hours_of(6));
            let end = start + SignedDuration::from_mins(150 + 360 + 20);
            machine.live(dies_at, end);
            let outlived = machine.world.time() >= end;
            machine.live(u64::MAX, end + SignedDuration::from_mins(5));
            assert_eq!(machine.check_accounted(), 8, "{overlap}, death at wait {dies_at}");
            let starts = machine.jobs.starts();
            let expected = if overlap == "all" { 8 } else { 3 };
            assert_eq!(starts.len(), expected, "{overlap}, death at wait {dies_at}");
            assert!(starts.values().all(|count| *count == 1), "{overlap}, {dies_at}: doubled");
            if outlived {
                assert!(dies_at > 15, "catch-up has more waits than {dies_at}");
                break;
            }
        }
    }
}

#[test]
fn a_catch_up_run_that_failed_is_not_run_again_at_the_next_start() {
    let fails = || Job::Fails(FailureCategory::Permanent);
    let mut stage = after_downtime("all", fails);
    assert!(stage.until(at("16:50")).is_none());
    let first = stage.started();
    assert_eq!(first.len(), 7, "10:00, and six that were missed: {first:?}");
    stage.crash();
    assert!(stage.until(at("16:58")).is_none());
    assert_eq!(stage.started(), first);
    let failed = stage.slots().iter().filter(|slot| slot.ends_with(" failed")).count();
    assert_eq!(failed, 7, "{:?}", stage.slots());
}

#[test]
fn touching_or_editing_the_file_during_catch_up_loses_nothing() {
    let before = hourly("all");
    let stage = Stage::new(at("09:30"), &[&before], |_| Job::Succeeds(10 * 60));
    live(&stage, &mut engine(stage.parts("test"), &[&before]), at("10:30"));
    stage.world.pass(hours_of(6));
    let (sender, declarations) = mpsc::channel(2);
    let parts = Parts { declarations, ..stage.parts("test") };
    let mut life = engine(parts, &[&before]);
    live(&stage, &mut life, at("16:45"));
    // Touched, then edited: the same slots, another version.
    for text in [before.clone(), format!("{before}owner: somebody\n")] {
        let declared = Files::new(&[&text]).0.values().cloned().collect();
        sender.try_send(Changes { declared, removed: vec![] }).unwrap();
        let soon = stage.world.time() + SignedDuration::from_mins(1);
        live(&stage, &mut life, soon);
    }
    live(&stage, &mut life, at("18:30"));
    let seen = hours(&stage, "hourly");
    assert_eq!(seen.len(), 9);
    assert!(seen.iter().all(|line| line.ends_with("completed")), "{seen:?}");
}

#[test]
fn live_slots_come_before_the_past_of_other_pipelines() {
    let quick =
        "name: quick\nschedule: \"*/5 * * * *\"\ntrigger: {type: command, command: 'true'}\n";
    let past = |name: &str| hourly("all").replace("name: hourly", &format!("name: {name}"));
    let files = [quick.to_owned(), past("a-past"), past("b-past"), past("z-past")];
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let job = |request: &StartRequest| match request.pipeline.as_str() {
        "quick" => Job::Succeeds(5),
        _ => Job::Succeeds(3_000),
    };
    let mut stage = Stage::new(at("09:30"), &files, job);
    stage.limits.runs_max = 2;
    stage.until(at("10:30"));
    stage.crash();
    stage.world.pass(hours_of(6));
    stage.until(at("18:00"));
    let rows = stage.run_rows().into_iter().filter(|row| row.pipeline.as_str() == "quick");
    let late: Vec<_> = rows
        .filter(|row| row.key.nominal > at("16:30"))
        .map(|row| row.record.created_at.duration_since(row.key.nominal).as_secs())
        .collect();
    assert!(late.len() >= 17 && late.iter().all(|seconds| *seconds == 0), "{late:?}");
    // And the past goes on beside them.
    let caught_up = begun(&stage).iter().filter(|line| line.contains(" catchup ")).count();
    assert!(caught_up >= 1, "{:?}", begun(&stage));
}

#[test]
fn a_live_slot_does_not_overtake_missed_ones_that_the_limits_hold_up() {
    let mut stage = after_downtime_with(3, "all", || Job::Succeeds(300));
    stage.limits.catchup_runs_max = 1;
    stage.until(at("20:30"));
    for name in ["hourly", "other-0", "other-1", "other-2"] {
        let mut rows = stage.run_rows();
        rows.retain(|row| row.pipeline.as_str() == name);
        rows.sort_by_key(|row| row.record.created_at);
        let slots: Vec<_> = rows.iter().map(|row| row.key.nominal).collect();
        assert!(slots.is_sorted() && slots.len() == 11, "{name}: {slots:?}");
    }
}

#[test]
fn a_success_does_the_work_of_its_own_slot_and_of_no_other() {
    for others in [0, 30] {
        let text = format!("{}skipIfSuccessful: true\n", hourly("all"));
        let other = |number| text.replace("name: hourly", &format!("name: other-{number}"));
        let files: Vec<_> = std::iter::once(text.clone()).chain((0..others).map(other)).collect();
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        let mut stage = Stage::new(at("09:30"), &files, |_| Job::Succeeds(5));
        stage.until(at("10:30"));
        stage.crash();
        stage.world.pass(hours_of(6));
        stage.until(at("18:30"));
        let seen = hours(&stage, "hourly");
        assert_eq!(seen.len(), 9, "{seen:?}");
        assert!(seen.iter().all(|line| line.ends_with("completed")), "{seen:?}");
    }
}

#[test]
fn a_restart_of_a_few_seconds_over_a_slots_instant_loses_nothing_even_without_a_window() {
    let text = "name: hourly\nschedule: \"0 * * * *\"\ntrigger: {type: command, command: 'true'}\n";
    let stage = Stage::new(at("09:30"), &[text], |_| Job::Succeeds(5));
    let nearly = at("11:00") - SignedDuration::from_secs(5);
    live(&stage, &mut engine(stage.parts("test"), &[text]), nearly);
    stage.world.kill();
    stage.world.pass(SignedDuration::from_secs(20));
    live(&stage, &mut engine(stage.parts("test"), &[text]), at("11:30"));
    assert_eq!(begun(&stage), ["10 scheduler at 10:00:00", "11 scheduler at 11:00:15"]);
}

#[test]
fn a_slot_that_the_watchdog_had_already_called_missed_is_still_caught_up() {
    // Of one pipeline the ledger is asked by itself, of many in one question.
    for others in [0, 30] {
        check_called_missed(after_downtime_with(others, "all", || Job::Succeeds(5)));
    }
}

fn check_called_missed(mut stage: Stage) {
    let span = SpanRecord {
        last: at("16:00"),
        count: 3,
        disposition: "missed".into(),
        reason: None,
        version: "00".to_owned(),
        recorded_at: at("16:10"),
    };
    let key = Key::Span(ScheduleId::parse("cron").unwrap(), at("14:00"));
    write(&stage, Role::Engine, vec![Change::Put(key, Expect::Absent, Record::Span(span.into()))]);
    write(&stage, Role::Watchdog, vec![row(at("12:00"), Disposition::Missed)]);
    stage.until(at("16:40"));
    let completed: Vec<_> =
        hours(&stage, "hourly").into_iter().filter(|line| line.ends_with("completed")).collect();
    assert_eq!(completed.len(), 7, "{completed:?}");
    // The mark stays.
    let key = Key::Slot(ScheduleId::parse("cron").unwrap(), at("12:00"));
    let hourly = PipelineId::parse("hourly").unwrap();
    let rows = block_on(stage.store.read(&hourly, &[key])).unwrap();
    let Some(Record::Slot(slot)) = rows[0].clone().map(|row| row.record) else { panic!() };
    assert_eq!((slot.marks.missed_at, slot.opened_by.as_str()), (Some(at("12:00")), "catchup"));
}

#[test]
fn a_slot_that_was_called_missed_and_does_not_run_gets_its_reason() {
    let mut stage = after_downtime("skip", || Job::Succeeds(5));
    write(&stage, Role::Watchdog, vec![row(at("13:00"), Disposition::Missed)]);
    stage.until(at("16:40"));
    let expected = [
        "10 completed",
        "11 completed",
        "12 skipped(overlap)",
        "13 skipped(overlap)",
        "14 and on: 3 overlap",
    ];
    assert_eq!(hours(&stage, "hourly"), expected);
}

/// At its turn, that is: while it was queued nobody looked whether it was ready.
#[test]
fn a_caught_up_slot_that_is_not_ready_waits_for_its_evaluation_window() {
    for (more, minutes) in [("evaluation: {window: 5m}\n", 5), ("", 60)] {
        let rule = "validation: {rules: [{key: landed, check: exists}]}\n";
        let text = format!("{}{rule}{more}", hourly("all"));
        let off = || {
            let mut stage = Stage::new(at("09:30"), &[&text], |_| Job::Succeeds(5));
            stage.until(at("10:15"));
            stage.crash();
            stage.world.pass(hours_of(6));
            stage
        };
        let (mut stage, mut landed) = (off(), off());
        let over = stage.world.time() + SignedDuration::from_mins(minutes);
        let of_gap = |stage: &Stage| hours(stage, "hourly")[1..7].to_vec();
        let all = |word| ["11", "12", "13", "14", "15", "16"].map(|hour| format!("{hour} {word}"));
        stage.until(over - SignedDuration::from_secs(1));
        assert_eq!(of_gap(&stage), all("open(waiting)"));
        stage.until(over + SignedDuration::from_secs(1));
        assert_eq!(of_gap(&stage), all("skipped(not_ready)"));
        landed.until(over - SignedDuration::from_mins(3));
        landed.sensor("hourly", "landed", serde_json::json!(true));
        landed.until(over + SignedDuration::from_mins(1));
        assert_eq!(of_gap(&landed), all("completed"));
    }
}

#[test]
fn a_manual_or_backfilled_run_of_a_slot_is_not_repeated_by_catch_up() {
    let mut stage = after_downtime("all", || Job::Succeeds(5));
    write(&stage, Role::Engine, vec![row(at("12:00"), Disposition::Completed)]);
    stage.until(at("16:40"));
    let slots: Vec<_> =
        stage.requests().iter().map(|it| it.slot.strftime("%H").to_string()).collect();
    assert_eq!(slots, ["10", "11", "13", "14", "15", "16"]);
    let planned = stage.told(&["CATCHUP_PLANNED"]);
    assert!(planned[0].ends_with("; not run again, because recorded already: 1"), "{planned:?}");
}

#[test]
fn a_live_slot_that_somebody_recorded_first_is_passed_over_and_blocks_nothing() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("skip")], |_| Job::Succeeds(5));
    stage.until(at("10:30"));
    let lease = block_on(stage.store.acquire(Role::Watchdog, Shard(0), "w", hours_of(9))).unwrap();
    let pipeline = PipelineId::parse("hourly").unwrap();
    let missed = vec![row(at("11:00"), Disposition::Missed)];
    let group = Group { pipeline, writer: lease.unwrap().writer, changes: missed };
    block_on(stage.store.commit(vec![group])).unwrap().pop().unwrap().unwrap();
    stage.until(at("12:30"));
    // It was called missed too early: its time came, and it ran.
    assert_eq!(hours(&stage, "hourly"), ["10 completed", "11 completed", "12 completed"]);
}

#[test]
fn a_pipeline_created_during_downtime_replays_nothing() {
    let text = hourly("all");
    let stage = Stage::new(at("09:30"), &[&text], |_| Job::Succeeds(5));
    live(&stage, &mut engine(stage.parts("test"), &[&text]), at("10:30"));
    stage.world.pass(hours_of(3));
    let newcomer = text.replace("name: hourly", "name: newcomer");
    live(&stage, &mut engine(stage.parts("test"), &[&text, &newcomer]), at("14:30"));
    assert_eq!(hours(&stage, "newcomer"), ["14 completed"]);
}

#[test]
fn a_missing_store_replays_nothing() {
    let mut stage = Stage::new(at("12:00"), &[&hourly("all")], |_| Job::Succeeds(5));
    stage.until(at("13:30"));
    assert_eq!(hours(&stage, "hourly"), ["13 completed"]);
}

#[test]
fn a_failed_dispatch_is_retried_and_keeps_its_order() {
    let text = format!("{}retry: {{maxAttempts: 3, backoffSeconds: 30}}\n", hourly("all"));
    let mut stage = Stage::new(at("09:30"), &[&text], |request| {
        let fails = request.slot == at("12:00") && request.attempt == 1;
        if fails { Job::Fails(FailureCategory::Transient) } else { Job::Succeeds(5) }
    });
    stage.until(at("10:30"));
    stage.crash();
    stage.world.pass(hours_of(4));
    stage.until(at("14:50"));
    let begun: Vec<_> = stage
        .requests()
        .iter()
        .map(|it| format!("{}#{}", it.slot.strftime("%H"), it.attempt))
        .collect();
    assert_eq!(begun, ["10#1", "11#1", "12#1", "12#2", "13#1", "14#1"]);
}

/// Counts what the ledger has by how it stands.
fn rows_and_slots(stage: &Stage) -> (usize, u64) {
    let rows = block_on(stage.store.ledger(&LedgerQuery::everything(usize::MAX))).unwrap().items;
    let slots = rows.iter().map(|row| match &row.entry {
        LedgerEntry::Slot(_) => 1,
        LedgerEntry::Span(span) => span.count,
    });
    (rows.len(), slots.sum())
}

#[test]
fn a_month_of_missed_minutes_without_a_window_is_one_span() {
    let text = "name: mm\nschedule: \"* * * * *\"\ntrigger: {type: command, command: 'true'}\n";
    let mut stage = Stage::new(at("00:00"), &[text], |_| Job::Succeeds(5));
    stage.until(at("00:01") - SignedDuration::from_secs(1));
    stage.world.pass(hours_of(30 * 24));
    let soon = stage.world.time() + SignedDuration::from_secs(30);
    stage.until(soon);
    let (rows, slots) = rows_and_slots(&stage);
    assert!(rows <= 3, "{rows} rows");
    assert_eq!(slots, 30 * 24 * 60 + 1, "and the live one");
}

#[test]
fn a_hundred_thousand_missed_slots_are_capped_and_said() {
    let text = "name: mm\nschedule: \"* * * * *\"\ncatchupWindow: 90d\noverlapPolicy: all\n\
                trigger: {type: command, command: 'true'}\n";
    let mut stage = Stage::new(at("00:00"), &[text], |_| Job::Succeeds(5));
    stage.until(at("00:00") + SignedDuration::from_secs(10));
    stage.world.pass(SignedDuration::from_mins(100_001) + SignedDuration::from_secs(50));
    // The jobs are slow: few of ten thousand end before we look.
    let soon = stage.world.time() + SignedDuration::from_secs(58);
    stage.until(soon);
    let planned = stage.told(&["CATCHUP_PLANNED"]);
    let expected =
        "CATCHUP_PLANNED 100000 slots were missed: 10000 run (all); skipped: 90000 capped";
    assert_eq!(planned.first().map(String::as_str), Some(expected));
    let (rows, slots) = rows_and_slots(&stage);
    assert!((10_001..10_010).contains(&rows), "{rows}");
    assert!((100_001..100_005).contains(&slots), "{slots}");
    let slots: Vec<_> = stage.requests().iter().map(|request| request.slot).collect();
    assert!(slots.len() >= 10 && slots.is_sorted(), "{slots:?}");
}

#[test]
fn a_plan_that_is_recorded_in_portions_is_told_once() {
    let text = "name: mm\nschedule: \"* * * * *\"\ncatchupWindow: 90d\ncatchupMaxRuns: 50000\noverlapPolicy: all\n\
                trigger: {type: command, command: 'true'}\n";
    let mut stage = Stage::new(at("00:00"), &[text], |_| Job::Succeeds(500));
    stage.until(at("00:00") + SignedDuration::from_secs(10));
    stage.world.pass(SignedDuration::from_mins(35_001) + SignedDuration::from_secs(30));
    let soon = stage.world.time() + SignedDuration::from_secs(15);
    stage.until(soon);
    let told = stage.told(&["CATCHUP_PLANNED"]);
    assert_eq!(told, ["CATCHUP_PLANNED 35000 slots were missed: 35000 run (all); skipped: none"]);
    let (_, slots) = rows_and_slots(&stage);
    assert_eq!(slots, 35_001, "and the live one");
    // The next downtime is another one.
    stage.crash();
    stage.world.pass(hours_of(1));
    let soon = stage.world.time() + SignedDuration::from_secs(15);
    stage.until(soon);
    let told = stage.told(&["CATCHUP_PLANNED"]);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].starts_with("CATCHUP_PLANNED 6"), "{told:?}");
}

#[test]
fn a_rehearsal_says_what_would_run() {
    let text = hourly("all") + "dryRun: true\n";
    let mut stage = Stage::new(at("09:30"), &[&text], |_| Job::Succeeds(5));
    stage.until(at("10:30"));
    stage.crash();
    stage.world.pass(hours_of(6));
    stage.until(at("16:40"));
    let told = stage.told(&["CATCHUP_PLANNED", "CATCHUP_QUEUED"]);
    let expected = [
        "CATCHUP_PLANNED 6 slots were missed: 6 would run (all); skipped: none",
        "CATCHUP_QUEUED 6 slots of cron from 2026-02-24T11:00:00Z to 2026-02-24T16:00:00Z were missed and would be \
         caught up (dry run)",
    ];
    assert_eq!(told, expected);
    assert!(stage.requests().is_empty());
}

/// The engine counts what is in the store, of which it keeps a share.
#[track_caller]
fn check_undecided(stage: &Stage, about: Range<usize>) {
    let (counted, open) = stage.undecided();
    assert!(about.contains(&open), "{open} are open");
    assert_eq!(counted, open as u64);
}

#[test]
fn a_long_queue_drains_in_order_though_only_its_beginning_is_kept() {
    let text = "name: mm\nschedule:\n  - {id: a, cron: \"*/2 * * * *\"}\n  - {id: b, cron: \"1-59/2 * * * *\"}\n\
                catchupWindow: 9d\noverlapPolicy: all\ntrigger: {type: command, command: 'true'}\n";
    let mut stage = Stage::new(at("00:00"), &[text], |_| Job::Succeeds(1));
    stage.until(at("00:00") + SignedDuration::from_secs(10));
    stage.world.pass(hours_of(20));
    let middle = stage.world.time() + SignedDuration::from_mins(10);
    stage.until(middle);
    check_undecided(&stage, 300..1_200);
    stage.crash();
    let begun = stage.world.time() + SignedDuration::from_mins(1);
    stage.until(begun);
    check_undecided(&stage, 300..1_000);
    let end = stage.world.time() + SignedDuration::from_mins(30);
    stage.until(end);
    check_undecided(&stage, 0..2);
    let slots: Vec<_> = stage.requests().iter().map(|request| request.slot).collect();
    assert!(slots.len() >= 1_200, "{}", slots.len());
    assert!(slots.is_sorted(), "merged in order of time");
    assert_eq!(stage.started().len(), slots.len());
}

#[test]
fn global_limits_hold_catch_up_back_and_no_live_slot() {
    let texts: Vec<_> =
        (0..6).map(|n| hourly("all").replace("name: hourly", &format!("name: p{n}"))).collect();
    let texts: Vec<_> = texts.iter().map(String::as_str).collect();
    let mut stage = Stage::new(at("09:30"), &texts, |_| Job::Succeeds(90));
    stage.limits.catchup_runs_max = 2;
    stage.limits.catchup_per_minute = 3;
    stage.until(at("10:30"));
    stage.crash();
    stage.world.pass(hours_of(2));
    stage.until(at("12:34"));
    let catchup = || {
        let rows = stage.run_rows();
        rows.into_iter().filter(|row| row.record.trigger_type == "catchup").collect::<Vec<_>>()
    };
    assert_eq!(catchup().len(), 2, "two at once");
    stage.until(at("13:10"));
    let rows = stage.run_rows();
    let live = rows.iter().filter(|row| row.key.nominal == at("13:00"));
    assert_eq!(live.filter(|row| row.record.created_at == at("13:00")).count(), 6);
    let caught: Vec<_> = rows.iter().filter(|row| row.record.trigger_type == "catchup").collect();
    assert_eq!(caught.len(), 12, "all of them in the end");
    for one in &caught {
        let began = one.record.created_at;
        let during = caught.iter().filter(|other| {
            other.record.created_at <= began && other.record.ended_at.is_some_and(|end| end > began)
        });
        assert!(during.count() <= 2, "more than two at {began}");
        let minute = caught.iter().filter(|other| {
            let since = other.record.created_at.duration_since(began);
            (SignedDuration::ZERO..SignedDuration::from_mins(1)).contains(&since)
        });
        assert!(minute.count() <= 3, "more than three in the minute from {began}");
    }
}

#[test]
fn a_clock_that_is_set_forward_is_a_gap_and_one_that_is_set_back_fires_nothing_again() {
    let mut stage = Stage::new(at("09:30"), &[&hourly("all")], |_| Job::Succeeds(5));
    stage.until(at("10:30"));
    // The process is stopped, or the clock set, over three hours.
    stage.world.pass(hours_of(3));
    stage.until(at("13:40"));
    assert_eq!(hours(&stage, "hourly").len(), 4);
    let begun = stage.started().len();
    stage.world.pass(hours_of(-2));
    stage.until(at("13:39"));
    assert_eq!(stage.started().len(), begun, "11, 12 and 13 are not due again");
    stage.until(at("14:30"));
    assert_eq!(hours(&stage, "hourly").last().unwrap(), "14 completed");
    assert_eq!(stage.started().len(), begun + 1);
}
