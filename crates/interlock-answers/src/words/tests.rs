//! Each sentence, as people read it.

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::*;
use crate::model::{slot::SpanAnswer, story::AbsenceReason};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

const NINE: &str = "2026-02-25T09:00:00Z";

/// A slot of nine o'clock, with nothing known of it but its end.
fn ended(disposition: &'static str) -> SlotFacts<'static> {
    SlotFacts {
        nominal: at(NINE),
        state: "closed",
        disposition: Some(disposition),
        reason: None,
        opened_by: Some("scheduler"),
        missed_at: None,
        is_late: false,
        is_uncertain: false,
        attempt: 1,
        started_at: None,
        ended_at: None,
        message: None,
        retry_at: None,
        waits_until: None,
        breach_at: None,
        blocking: vec![],
        blind: None,
        usual: None,
    }
}

fn ran(from: &str, until: &str) -> SlotFacts<'static> {
    let (started_at, ended_at) = (Some(at(from)), Some(at(until)));
    SlotFacts { started_at, ended_at, ..ended("completed") }
}

fn skipped(reason: &'static str) -> SlotFacts<'static> {
    SlotFacts { reason: Some(reason), ..ended("skipped") }
}

fn open(state: &'static str) -> SlotFacts<'static> {
    SlotFacts { state, disposition: None, ..ended("") }
}

#[track_caller]
fn check(facts: &SlotFacts<'_>, sentence: &str, cell: &str) {
    let times = ShownTimes::utc(at("2026-02-25T12:00:00Z"));
    assert_eq!(headline(facts, &times), sentence);
    let short = short_reason(facts, &times);
    assert_eq!(short, cell);
    assert!(short.chars().count() <= SHORT_MAX, "{short}");
}

#[test]
fn completed_slots_say_when_and_how_long() {
    let in_time = ran("2026-02-25T09:00:01Z", "2026-02-25T09:04:30Z");
    check(&in_time, "Ran on time, took 4 min.", "4 min");
    let usual = Some(SignedDuration::from_mins(4));
    let as_usual = SlotFacts { usual, ..in_time.clone() };
    check(&as_usual, "Ran on time, took 4 min, as usual.", "4 min, as usual");
    let usual = Some(SignedDuration::from_mins(48));
    let longer = SlotFacts { usual, ..ran("2026-02-25T09:41:00Z", "2026-02-25T10:17:00Z") };
    check(&longer, "Ran at 09:41 UTC, took 36 min, usually 48.", "36 min, usually 48");
    let missed = SlotFacts {
        is_late: true,
        missed_at: Some(at("2026-02-25T09:03:00Z")),
        ..ran("2026-02-25T09:04:00Z", "2026-02-25T09:04:40Z")
    };
    check(&missed, "Ran 4 min late, took 40 s.", "ran 4 min late; 40 s");
    let caught_up = SlotFacts {
        opened_by: Some("catchup"),
        breach_at: Some(at("2026-02-25T09:30:00Z")),
        ..ran("2026-02-25T10:49:00Z", "2026-02-25T10:50:00Z")
    };
    check(
        &caught_up,
        "Caught up 1 h 49 late, took 1 min. It ended 1 h 20 past its limit.",
        "caught up 1 h 49 late; 1 min",
    );
    check(&ended("completed"), "Ran on time.", "completed");
}

#[test]
fn failed_slots_say_why_and_how_often_they_were_tried() {
    let message = Some("exit code 1");
    let failed = SlotFacts { message, attempt: 3, ..ended("failed") };
    check(&failed, "Failed after 3 attempts: exit code 1.", "exit code 1, 3 attempts");
    check(&ended("failed"), "Failed.", "the job failed");
    let long = "the warehouse refused the connection because its certificate expired yesterday";
    let failed = SlotFacts { message: Some(long), ..ended("failed") };
    check(&failed, &format!("Failed: {long}."), "the warehouse refused the connection because…");
}

#[test]
fn absence_says_until_when_the_slot_had_time() {
    let waits_until = Some(at("2026-02-25T09:20:00Z"));
    let missed = SlotFacts { waits_until, ..ended("missed") };
    check(&missed, "Missed: it did not run by 09:20 UTC.", "did not run by 09:20");
    check(
        &ended("unknown"),
        "Unknown: Interlock could not see whether it ran.",
        "Interlock could not see it",
    );
    let blind = Some((at("2026-02-25T08:10:00Z"), at("2026-02-25T09:02:00Z")));
    let unknown = SlotFacts { blind, ..ended("unknown") };
    check(
        &unknown,
        "Unknown: Interlock could not see from 08:10 to 09:02 UTC.",
        "Interlock was blind 08:10–09:02",
    );
}

#[test]
fn skipped_slots_say_which_rule_skipped_them() {
    let waits_until = Some(at("2026-02-25T09:20:00Z"));
    let blocking = vec!["sensor `orders-ready` has not been reported"];
    let unreported = SlotFacts { waits_until, blocking, ..skipped("not_ready") };
    check(
        &unreported,
        "Skipped: orders-ready was not reported by 09:20 UTC.",
        "orders-ready not reported by 09:20",
    );
    let blocking = vec!["trait `fresh`: fail: 3 h old", "orders: its slot is still open"];
    let two = SlotFacts { blocking, ..unreported.clone() };
    check(
        &two,
        "Skipped: it was not ready by 09:20 UTC: trait `fresh`: fail: 3 h old, and 1 more.",
        "not ready by 09:20",
    );
    let long = vec!["sensor `a-very-long-sensor-name-that-fills-the-cell` has not been reported"];
    let long = SlotFacts { blocking: long, ..unreported };
    check(
        &long,
        "Skipped: a-very-long-sensor-name-that-fills-the-cell was not reported by 09:20 UTC.",
        "a-very-long-sensor-nam… not reported by 09:20",
    );
    for (reason, sentence, cell) in [
        ("overlap", "the run before it was still going", "the run before it was still going"),
        ("superseded", "a newer slot took its place", "a newer slot took its place"),
        (
            "expired",
            "it was too old by the time that it could run",
            "too old by the time that it could run",
        ),
        (
            "no_catchup",
            "it was missed, and the pipeline does not catch up on missed slots",
            "missed, and no catch-up is set",
        ),
        (
            "capped",
            "it was missed, and more were missed than catch-up may run",
            "missed, and beyond the catch-up limit",
        ),
        ("paused", "the pipeline was paused", "the pipeline was paused"),
        ("no_sensor", "its sensor was not reported", "its sensor was not reported"),
        (
            "retired",
            "the pipeline or its schedule was removed",
            "the pipeline or schedule was removed",
        ),
        (
            "dry_run",
            "the pipeline is in dry run, which starts nothing",
            "dry run: nothing is started",
        ),
    ] {
        check(&skipped(reason), &format!("Skipped: {sentence}."), cell);
    }
}

#[test]
fn open_slots_say_what_they_wait_for() {
    let waits_until = Some(at("2026-02-25T13:30:00Z"));
    let waiting = SlotFacts { waits_until, ..open("waiting") };
    check(
        &waiting,
        "Waiting until it is ready; it gives up at 13:30 UTC.",
        "not ready yet; gives up 13:30",
    );
    let blocking = vec!["sensor `acquirer-file` has not been reported"];
    let waiting = SlotFacts { blocking, ..waiting };
    check(
        &waiting,
        "Waiting: acquirer-file has not been reported; it gives up at 13:30 UTC.",
        "acquirer-file missing; gives up 13:30",
    );
    let catchup = SlotFacts { opened_by: Some("catchup"), ..open("queued") };
    check(&catchup, "Queued for catch-up.", "queued for catch-up");
    check(&open("queued"), "Queued: other runs come first.", "waits for its turn");
    let running = SlotFacts {
        started_at: Some(at("2026-02-25T11:24:00Z")),
        usual: Some(SignedDuration::from_mins(48)),
        ..open("running")
    };
    check(&running, "Running for 36 min, usually 48.", "36 min, usually 48");
    let retry_at = Some(at("2026-02-25T12:04:00Z"));
    let backoff =
        SlotFacts { retry_at, message: Some("exit code 1"), attempt: 2, ..open("backoff") };
    check(
        &backoff,
        "Attempt 2 failed: exit code 1. The next attempt starts at 12:04 UTC.",
        "attempt 2 failed; next at 12:04: exit code 1",
    );
}

#[test]
fn times_are_those_of_the_zone_and_other_days_are_named() {
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let times = ShownTimes::new(&berlin, at("2026-10-25T12:00:00Z"));
    let today = at("2026-10-25T07:30:00Z");
    assert_eq!(times.time(today, times.now()), "08:30 CET");
    assert_eq!(times.without_zone().time(today, times.now()), "08:30");
    assert_eq!(times.exact(at("2026-10-25T07:30:01Z"), times.now()), "08:30:01 CET");
    // Before the clocks were set back, and on another day.
    assert_eq!(times.time(at("2026-10-24T20:00:00Z"), times.now()), "Sat 24 Oct 22:00 CEST");
    assert_eq!(times.time(at("2025-10-24T20:00:00Z"), times.now()), "24 Oct 2025 22:00 CEST");
    let blind = times.stretch(at("2026-10-25T03:10:00Z"), at("2026-10-25T04:02:00Z"), today);
    assert_eq!(blind, "04:10–05:02 CET");
}

#[test]
fn spans_and_instants_without_a_slot_have_headlines() {
    let span = SpanAnswer {
        pipeline: "orders".to_owned(),
        schedule: "hourly".to_owned(),
        first: at("2026-02-24T22:00:00Z"),
        last: at("2026-02-25T06:00:00Z"),
        count: 9,
        state: "closed".to_owned(),
        disposition: "unknown".to_owned(),
        reason: None,
        status: "UNKNOWN".to_owned(),
        version: String::new(),
        recorded_at: at(NINE),
        headline: String::new(),
    };
    let times = ShownTimes::utc(at("2026-02-25T12:00:00Z"));
    assert_eq!(
        span_headline(&span, &times),
        "9 slots, Tue 24 Feb 22:00–Wed 25 Feb 06:00 UTC: unknown: Interlock could not see them."
    );
    let span = SpanAnswer {
        disposition: "skipped".to_owned(),
        reason: Some("capped".to_owned()),
        first: at("2026-02-25T01:00:00Z"),
        ..span
    };
    assert_eq!(
        span_headline(&span, &times),
        "9 slots, 01:00–06:00 UTC: skipped: missed, and more than catch-up may run."
    );
    assert_eq!(
        absence_headline(AbsenceReason::Excluded, "2026-12-25 is excluded by `de-holidays`."),
        "No slot: 2026-12-25 is excluded by `de-holidays`."
    );
}

#[test]
fn rows_without_a_slot_in_question_have_reasons_too() {
    let now = at("2026-02-25T12:00:00Z");
    let times = ShownTimes::utc(now);
    let since = at("2026-02-24T10:00:00Z");
    assert_eq!(paused_reason("jonas", since, None, &times), "by jonas, 26 h; no end is set");
    let until = Some(at("2026-02-25T18:00:00Z"));
    assert_eq!(paused_reason("jonas", since, until, &times), "by jonas, 26 h; ends 18:00");
    let long = "a-person-with-a-name-that-is-too-long-for-a-cell";
    let reason = paused_reason(long, since, until, &times);
    assert_eq!(reason, "by a-person-with-a-name-th…, 26 h; ends 18:00");
    assert!(reason.chars().count() <= SHORT_MAX);
    let left = Some(SignedDuration::from_mins(14));
    assert_eq!(
        at_risk_reason(at("2026-02-25T12:09:00Z"), left, &times),
        "due 12:09, 9 min left, needs about 14 min"
    );
    assert_eq!(at_risk_reason(at("2026-02-25T11:50:00Z"), None, &times), "due 11:50, 10 min ago");
    assert_eq!(not_due_reason(Some(at("2026-02-26T06:00:00Z")), &times), "next Thu 26 Feb 06:00");
    assert_eq!(not_due_reason(None, &times), "no slot ahead");
}

#[test]
fn what_a_job_wrote_stays_in_one_line() {
    let failed = SlotFacts { message: Some("first\nsecond\u{1b}[31m"), ..ended("failed") };
    check(&failed, "Failed: first second [31m.", "first second [31m");
    assert_eq!(shorten("äöü€", 3), "äö…");
}
