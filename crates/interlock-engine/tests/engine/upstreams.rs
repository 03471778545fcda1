//! Which slot of an upstream a slot waits for: of the same period, neither an older nor a newer one (S8).

use interlock_core::retry::FailureCategory;
use interlock_ports::trigger::StartRequest;
use interlock_store::{LedgerEntry, LedgerQuery, Store as _, block_on, record::InboxRecord};
use jiff::SignedDuration;

use crate::{
    backfill::{start, with},
    stage::{Job, Stage, at},
};

const COMMAND: &str = "trigger: {type: command, command: 'true'}\n";

fn upstream(schedule: &str) -> String {
    format!(
        "name: raw\nschedule: {schedule}\nmaxActiveRuns: 9\nretry: {{maxAttempts: 1}}\n{COMMAND}"
    )
}

/// One that waits for hours.
fn downstream(schedule: &str) -> String {
    format!(
        "name: report\nschedule: {schedule}\nmaxActiveRuns: 9\ndependsOn: raw\n\
         evaluation: {{window: 4h, interval: 10s}}\n{COMMAND}"
    )
}

/// When the slots were due of which the report ran, as `HHMM`.
fn ran(stage: &Stage) -> Vec<String> {
    let runs = stage.started().into_iter().filter(|run| run.starts_with("report~"));
    runs.map(|run| run.split('~').nth(2).unwrap()[9..13].to_owned()).collect()
}

/// Raw's slots of these times fail.
fn failing(times: &'static [&str]) -> impl Fn(&StartRequest) -> Job + Send + Sync {
    move |request| {
        let is_bad = times.iter().any(|time| request.run_id.contains(&format!("T{time}00Z")));
        if is_bad && request.run_id.starts_with("raw~") {
            Job::Fails(FailureCategory::Permanent)
        } else {
            Job::Succeeds(5)
        }
    }
}

#[test]
fn a_minute_waits_for_the_same_minute() {
    let files = [upstream("{every: 1m}"), downstream("{every: 1m}")];
    let mut stage =
        Stage::new(at("13:03"), &[&files[0], &files[1]], failing(&["1305", "1307", "1308"]));
    stage.until(at("13:09") + SignedDuration::from_secs(30));
    assert_eq!(ran(&stage), ["1304", "1306", "1309"], "{:?}", stage.slots());
}

#[test]
fn a_newer_slot_that_is_under_way_holds_nobody_back() {
    let files = [upstream("{every: 1m}"), downstream("{every: 1m}")];
    let slow_later = |request: &StartRequest| {
        let is_slow = request.run_id.starts_with("raw~") && !request.run_id.contains("T1304");
        Job::Succeeds(if is_slow { 3_600 } else { 70 })
    };
    let mut stage = Stage::new(at("13:03"), &[&files[0], &files[1]], slow_later);
    stage.until(at("13:07"));
    assert_eq!(ran(&stage), ["1304"], "{:?}", stage.slots());
}

#[test]
fn finer_and_coarser_upstreams_are_asked_about_the_slot_that_covers_the_instant() {
    for (raw, report, bad, expected) in [
        // An hour waits for the minute in which it begins.
        ("{every: 1m}", "'0 * * * *'", &["1300", "1359", "1501"][..], &["1400", "1500"][..]),
        // A minute waits for its hour.
        ("'0 * * * *'", "'*/30 * * * *'", &["1300"], &["1400", "1430", "1500"]),
        // Once a day is for the whole day, whether it lies before or after.
        ("'10 14 * * *'", "'0 * * * *'", &[], &["1300", "1400", "1500"]),
        ("'10 14 * * *'", "'0 * * * *'", &["1410"], &[]),
        // Several times a day: the last before.
        ("'10 11,14 * * *'", "'0 * * * *'", &["1410"], &[]),
        ("'10 13,15 * * *'", "'0 * * * *'", &["1510"], &["1300", "1400", "1500"]),
    ] {
        let files = [upstream(raw), downstream(report)];
        let mut stage = Stage::new(at("12:59"), &[&files[0], &files[1]], failing(bad));
        stage.until(at("15:20"));
        let mut seen = ran(&stage);
        seen.sort();
        seen.dedup();
        let expected: Vec<_> = expected.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(seen, expected, "{report} on {raw}: {:?}", stage.slots());
    }
}

#[test]
fn hours_of_two_zones_are_the_same_hours() {
    let raw = format!("timezone: America/Los_Angeles\n{}", upstream("'0 * * * *'"));
    let mut stage =
        Stage::new(at("02:59"), &[&raw, &downstream("'0 * * * *'")], failing(&["0400"]));
    stage.until(at("05:20"));
    assert_eq!(ran(&stage), ["0300", "0500"], "{:?}", stage.slots());
}

#[test]
fn an_upstream_with_thousands_of_slots_is_asked_about_the_right_one() {
    // More than a thousand within two days, and more than a thousand on the day itself.
    let files = [upstream("{every: 1m}"), downstream("'0 * * * *'")];
    let since_two = |request: &StartRequest| {
        let at = request.run_id.split('~').nth(2).unwrap_or_default().to_owned();
        if request.run_id.starts_with("raw~") && at.as_str() >= "20260226T0200" {
            Job::Fails(FailureCategory::Permanent)
        } else {
            Job::Succeeds(5)
        }
    };
    let mut stage = Stage::new(at("00:30"), &[&files[0], &files[1]], since_two);
    stage.until(at("00:30") + SignedDuration::from_hours(53));
    let seen = ran(&stage);
    // Every hour of two days and two hours of the third; none since the upstream fails.
    assert_eq!(seen.len(), 23 + 24 + 2, "{seen:?}");
    assert_eq!(seen.last().map(String::as_str), Some("0100"));
}

#[test]
fn what_lies_in_a_span_is_not_completed() {
    let raw = upstream("{every: 1m}");
    let mut stage = Stage::new(at("12:58"), &[&raw, &downstream("'0 * * * *'")], failing(&[]));
    stage.until(at("12:59") + SignedDuration::from_secs(30));
    stage.crash();
    // The upstream's minutes from 13:00 on are given up together; the report's hour is a backfill's.
    stage.world.pass(SignedDuration::from_mins(90));
    stage.until(at("14:40"));
    let rows = block_on(stage.store.ledger(&LedgerQuery::everything(1_000))).unwrap().items;
    let spans = rows.iter().filter(|row| matches!(row.entry, LedgerEntry::Span(_))).count();
    assert!(spans > 0, "{:?}", stage.slots());
    assert!(stage.ask("report", &start("13:00", "14:00")).accepted);
    stage.until(at("14:50"));
    assert_eq!(ran(&stage), [] as [&str; 0], "{:?}", stage.slots());
}

#[test]
fn history_under_another_schedule_counts_by_its_date() {
    let raw = upstream("'0 9 * * *'");
    let mut stage = Stage::new(at("08:59"), &[&raw, &downstream("'0 23 * * *'")], failing(&[]));
    stage.until(at("09:30"));
    stage.crash();
    stage.files = crate::Files::new(&[&upstream("'0 7 * * *'"), &downstream("'0 23 * * *'")]);
    stage.until(at("23:05"));
    assert_eq!(ran(&stage), ["2300"], "{:?}", stage.slots());
}

#[test]
fn what_a_cancelled_backfill_only_opened_again_is_still_completed() {
    let first_is_short = |request: &StartRequest| {
        let is_again = request.run_id.starts_with("raw~") && !request.run_id.ends_with("~1~1");
        Job::Succeeds(if is_again { 3_600 } else { 5 })
    };
    let raw = upstream("'0 * * * *'").replace("maxActiveRuns: 9\n", "");
    let mut stage = Stage::new(at("09:30"), &[&raw, &downstream("'0 * * * *'")], first_is_short);
    stage.until(at("09:31"));
    stage.ask("raw", &start("00:00", "03:00"));
    stage.until(at("09:32"));
    stage.ask("raw", &with(start("00:00", "03:00"), ["all", "asc"], 1));
    stage.until(at("09:33"));
    let cancel =
        InboxRecord::CancelBackfill { backfill: 2, reason: "enough".to_owned(), ends_runs: true };
    assert!(stage.ask("raw", &cancel).accepted);
    stage.until(at("09:40"));
    assert_eq!(
        stage.slots(),
        ["00", "01", "02"].map(|hour| format!("cron/2026-02-24T{hour}:00:00Z cancelled"))
    );
    // The first had begun again and was ended; the others are as they were.
    assert!(stage.ask("report", &with(start("00:00", "03:00"), ["missing", "asc"], 3)).accepted);
    stage.until(at("09:50"));
    assert_eq!(ran(&stage), ["0100", "0200"], "{:?}", stage.slots());
}
