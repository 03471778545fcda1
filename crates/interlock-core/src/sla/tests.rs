//! Cases 30 to 34 of `facts/interlock-cases.md` that are about deadlines, and the deadlines of 53 to 55.
//!
//! Superseded, each with its reason:
//! - Case 30, case 55: a schedule's deadline is about evaluation only. In Go it also replaced the
//!   completion deadline, so that "evaluated by 10:00" silently meant "completed by 10:00". What is left
//!   of them is `cases_30_and_55_…`.
//! - Case 32 "bad zone": a zone is looked up when the file is read, so no deadline here can lack it.
//! - Case 34 "12:00 vs 10:00" is kept, but a deadline is the slot's, not today's; its "invalid format" is
//!   `case_32_mistakes_are_pointed_at`, and its validation timeout is the evaluation window of
//!   `case_47_…` in the engine.
//! - Cases 53, 54: that a breach is told, once, belongs to the watchdog (issue 5).
//! - B10: an `HH:MM` that has passed is not moved to tomorrow, and `:MM` is never about now.
//! - D1.7 is kept as `Moot`: a slot that closed as failed before its deadline breaches nothing.

use jiff::tz::TimeZone;

use super::*;

fn zone(name: &str) -> Zone {
    Zone::new(name, TimeZone::get(name).unwrap())
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

/// Resolves a deadline for the slot at `nominal` of a schedule in `zone`.
fn check(deadline: &str, zone: &Zone, nominal: &str, expected: &str) {
    let spec =
        SlaSpec { completion: Some(Deadline::parse(deadline).unwrap()), ..SlaSpec::default() };
    let resolved = resolve(&spec, &slot(at(nominal), zone), Opening::Live);
    let breach_at = resolved.completion.unwrap().breach_at;
    assert_eq!(breach_at, at(expected), "{deadline} for {nominal}: {breach_at}");
}

fn slot(nominal: Timestamp, zone: &Zone) -> SlotTimes<'_> {
    let date = nominal.to_zoned(zone.time_zone().clone()).date();
    SlotTimes { nominal, date, zone, deadline: None }
}

/// `marked` is the text with `[` and `]` around the characters that the error points at.
fn check_error(marked: &str, message: &str) {
    let start = marked.find('[').unwrap();
    let end = marked.find(']').unwrap() - 1;
    let error = Deadline::parse(&marked.replace(['[', ']'], "")).unwrap_err();
    assert_eq!(error.span, start..end, "{marked}: {error}");
    assert_eq!(error.message, message, "{marked}");
    assert!(!error.help.is_empty(), "{marked}");
}

#[test]
fn case_32_deadlines_are_resolved_from_the_slots_own_date() {
    let (utc, new_york) = (Zone::utc(), zone("America/New_York"));
    check("06:00", &utc, "2026-02-24T00:00:00Z", "2026-02-24T06:00:00Z");
    check("2h", &utc, "2026-02-24T00:00:00Z", "2026-02-24T02:00:00Z");
    check("06:00", &new_york, "2026-02-24T05:00:00Z", "2026-02-24T11:00:00Z");
    check("2h", &new_york, "2026-02-24T05:00:00Z", "2026-02-24T07:00:00Z");
    check("+20m", &utc, "2026-02-24T10:00:00Z", "2026-02-24T10:20:00Z");
    check("+20m", &utc, "2026-02-24T00:00:00Z", "2026-02-24T00:20:00Z");
    check("14:00", &utc, "2026-02-24T10:00:00Z", "2026-02-24T14:00:00Z");
    check("10:00:30", &utc, "2026-02-24T10:00:00Z", "2026-02-24T10:00:30Z");
}

#[test]
fn case_32_mistakes_are_pointed_at() {
    check_error("[not-a-time]", "`not-a-time` is not a deadline");
    check_error("[]", "the deadline is empty");
    check_error("[25]:00", "there is no hour 25");
    check_error("[0830]", "`0830` is too long: a `:` is missing");
    check_error(":[61]", "there is no minute 61");
    check_error(":[5]", "the minute `5` needs two digits");
    check_error(":[]", "the minute is missing");
    check_error(":30[:00]", "`:30:00` goes on after the minute");
    check_error("+[]", "the duration is empty");
    check_error("+45[x]", "`x` is not a unit of time");
    check_error("2[x]", "`x` is not a unit of time");
    check_error("[-2h]", "`-2h` is not a deadline");
}

#[test]
fn a_deadline_earlier_in_the_day_than_its_slot_is_on_the_next_day() {
    let utc = Zone::utc();
    check("02:00", &utc, "2026-02-24T22:00:00Z", "2026-02-25T02:00:00Z");
    check("22:00", &utc, "2026-02-24T22:00:00Z", "2026-02-24T22:00:00Z");
    check("2h", &utc, "2026-02-24T10:00:00Z", "2026-02-25T02:00:00Z");
    check("12h", &utc, "2026-02-24T10:00:00Z", "2026-02-24T12:00:00Z");
    check("30h", &utc, "2026-02-24T10:00:00Z", "2026-02-25T06:00:00Z");
    check("21:59", &utc, "2026-02-24T22:00:00Z", "2026-02-25T21:59:00Z");
}

#[test]
fn b10_minutes_belong_to_the_hour_after_the_slots_hour() {
    let utc = Zone::utc();
    check(":30", &utc, "2026-03-03T10:00:00Z", "2026-03-03T11:30:00Z");
    check(":30", &utc, "2026-03-03T23:15:20Z", "2026-03-04T00:30:00Z");
    // The hour is the local one, also where it does not begin with the UTC hour.
    check(":05", &zone("Asia/Kolkata"), "2026-03-03T10:30:00Z", "2026-03-03T11:35:00Z");
    // 02:00 in Riga is followed by 04:00 that night; the next hour is the next real hour.
    check(":30", &zone("Europe/Riga"), "2026-03-29T00:00:00Z", "2026-03-29T01:30:00Z");
}

#[test]
fn daylight_saving_never_loses_a_deadline() {
    let riga = zone("Europe/Riga");
    // 03:30 does not exist on this date: the first instant after the gap.
    check("03:30", &riga, "2026-03-28T22:00:00Z", "2026-03-29T01:00:00Z");
    // 03:30 comes twice: the first one counts.
    check("03:30", &riga, "2026-10-24T21:00:00Z", "2026-10-25T00:30:00Z");
    // Unless the slot itself is the second 03:15; then the second 03:30 is meant.
    check("03:30", &riga, "2026-10-25T01:15:00Z", "2026-10-25T01:30:00Z");
    // Midnight is missing in Santiago: the day begins at 01:00 local time.
    check("2h", &zone("America/Santiago"), "2026-09-06T05:00:00Z", "2026-09-06T06:00:00Z");
}

#[test]
fn an_sla_may_have_a_zone_of_its_own() {
    let pago = zone("Pacific/Pago_Pago");
    // 23:30 on the 3rd in Pago Pago is 00:30 on the 5th in Kiritimati.
    let slot = slot(at("2026-03-04T10:30:00Z"), &pago);
    assert_eq!(slot.date, Date::constant(2026, 3, 3));
    for (deadline, expected) in [
        ("12:00", "2026-03-04T22:00:00Z"),
        ("00:15", "2026-03-05T10:15:00Z"),
        ("15m", "2026-03-05T10:15:00Z"),
    ] {
        let spec = SlaSpec {
            completion: Some(Deadline::parse(deadline).unwrap()),
            zone: Some(zone("Pacific/Kiritimati")),
            ..SlaSpec::default()
        };
        let resolved = resolve(&spec, &slot, Opening::Live);
        assert_eq!(resolved.completion.unwrap().breach_at, at(expected), "{deadline}");
    }
}

#[test]
fn cases_30_and_55_the_schedules_own_deadline_wins_for_evaluation_and_is_in_its_zone() {
    let new_york = zone("America/New_York");
    let spec = SlaSpec {
        evaluation: Some(Deadline::parse("10:00").unwrap()),
        completion: Some(Deadline::parse("12:00").unwrap()),
        zone: Some(Zone::utc()),
        ..SlaSpec::default()
    };
    let midnight = at("2026-02-24T05:00:00Z");
    let general = resolve(&spec, &slot(midnight, &new_york), Opening::Live);
    assert_eq!(general.evaluation_at, Some(at("2026-02-24T10:00:00Z")));
    let deadline = Some(Deadline::parse("09:00").unwrap());
    let own = SlotTimes { deadline, ..slot(midnight, &new_york) };
    let own = resolve(&spec, &own, Opening::Live);
    assert_eq!(own.evaluation_at, Some(at("2026-02-24T14:00:00Z")));
    assert_eq!(own.completion, general.completion);
}

#[test]
fn slots_opened_out_of_turn_promise_only_a_duration() {
    let spec = SlaSpec {
        evaluation: Some(Deadline::parse("10:00").unwrap()),
        completion: Some(Deadline::parse("12:00").unwrap()),
        expected_duration: Some(minutes(30)),
        duration_max: Some(minutes(120)),
        ..SlaSpec::default()
    };
    let utc = Zone::utc();
    let deadline = spec.evaluation;
    let times = SlotTimes { deadline, ..slot(at("2026-02-24T00:00:00Z"), &utc) };
    let resolved = resolve(&spec, &times, Opening::OutOfTurn);
    assert_eq!((resolved.evaluation_at, resolved.completion), (None, None));
    let relative = resolved.relative(at("2026-02-24T08:00:00Z")).unwrap();
    assert_eq!(relative.breach_at, at("2026-02-24T10:00:00Z"));
    assert_eq!(relative.warning_at, Some(at("2026-02-24T09:30:00Z")));
}

#[test]
fn b10_the_warning_comes_before_the_breach() {
    let utc = Zone::utc();
    let midnight = slot(at("2026-02-24T00:00:00Z"), &utc);
    let mut spec = SlaSpec {
        completion: Some(Deadline::parse("00:20").unwrap()),
        expected_duration: Some(minutes(30)),
        ..SlaSpec::default()
    };
    let limit = resolve(&spec, &midnight, Opening::Live).completion.unwrap();
    assert_eq!(limit.warning_at, Some(at("2026-02-23T23:50:00Z")), "may be the day before");
    spec.expected_duration = None;
    let limit = resolve(&spec, &midnight, Opening::Live).completion.unwrap();
    assert_eq!(limit.warning_at, None);
    spec.duration_max = Some(minutes(120));
    let resolved = resolve(&spec, &midnight, Opening::Live);
    let limit = resolved.relative(at("2026-02-24T08:00:00Z")).unwrap();
    assert_eq!(limit.warning_at, Some(at("2026-02-24T09:30:00Z")), "a quarter of the budget");
    assert_eq!(ResolvedSla::default().relative(at("2026-02-24T08:00:00Z")), None);
}

#[test]
fn case_33_breach_is_strictly_after_and_risk_lies_before() {
    let deadline = at("2026-02-24T10:00:00Z");
    for (now, breached, at_risk) in [
        ("2026-02-24T09:50:00Z", false, false),
        ("2026-02-24T09:54:59Z", false, false),
        ("2026-02-24T09:55:00Z", false, true),
        ("2026-02-24T09:56:00Z", false, true),
        ("2026-02-24T10:00:00Z", false, true),
        ("2026-02-24T10:00:00.001Z", true, false),
        ("2026-02-24T10:01:00Z", true, false),
    ] {
        assert_eq!(is_breached(deadline, at(now)), breached, "{now}");
        assert_eq!(is_at_risk(deadline, minutes(5), at(now)), at_risk, "{now}");
        assert!(!is_at_risk(deadline, SignedDuration::ZERO, at(now)), "{now}");
        assert!(!is_at_risk(deadline, minutes(-5), at(now)), "{now}");
    }
}

#[test]
fn case_34_a_limit_is_judged_by_what_became_of_the_slot() {
    let limit = Limit::new(at("2026-02-24T10:00:00Z"), Some(minutes(5)));
    let (early, late) = (at("2026-02-24T09:00:00Z"), at("2026-02-24T11:00:00Z"));
    for (progress, now, expected) in [
        (Progress::Unfinished, early, SlaVerdict::NotDue),
        (Progress::Unfinished, at("2026-02-24T09:57:00Z"), SlaVerdict::AtRisk),
        (Progress::Unfinished, limit.warning_at.unwrap(), SlaVerdict::AtRisk),
        (Progress::Unfinished, limit.breach_at, SlaVerdict::AtRisk),
        (Progress::Unfinished, late, SlaVerdict::Breached),
        (Progress::Completed(early), early, SlaVerdict::Met),
        (Progress::Completed(limit.breach_at), late, SlaVerdict::Met),
        (Progress::Completed(early), late, SlaVerdict::Met),
        (Progress::Completed(late), late, SlaVerdict::Breached),
        // Tomorrow it is still late: nothing is rolled forward.
        (Progress::Completed(late), at("2026-02-25T09:00:00Z"), SlaVerdict::Breached),
        (Progress::Ended(early), early, SlaVerdict::Moot),
        (Progress::Ended(early), late, SlaVerdict::Moot),
        (Progress::Ended(late), late, SlaVerdict::Breached),
    ] {
        assert_eq!(judge(limit, progress, now), expected, "{progress:?} at {now}");
    }
    let silent = Limit::new(limit.breach_at, None);
    assert_eq!(judge(silent, Progress::Unfinished, limit.breach_at), SlaVerdict::NotDue);
}

#[test]
fn case_34_what_promises_nothing_has_no_deadline() {
    let utc = Zone::utc();
    let midnight = slot(at("2026-02-24T00:00:00Z"), &utc);
    let resolved = resolve(&SlaSpec::default(), &midnight, Opening::Live);
    assert_eq!(resolved, ResolvedSla::default());
    assert_eq!(resolved.relative(midnight.nominal), None);
}

#[test]
fn cases_53_to_55_deadlines_a_minute_after_midnight_are_broken_a_moment_later() {
    let utc = Zone::utc();
    let (minute, moment_later) = (at("2026-02-24T00:01:00Z"), at("2026-02-24T00:01:00.001Z"));
    let early = Some(Deadline::parse("00:01").unwrap());
    let noon = Some(Deadline::parse("12:00").unwrap());
    let midnight = slot(at("2026-02-24T00:00:00Z"), &utc);
    let spec = SlaSpec { evaluation: early, completion: early, ..SlaSpec::default() };
    let resolved = resolve(&spec, &midnight, Opening::Live);
    assert_eq!(resolved.evaluation_at, Some(minute));
    let running = |now| judge(resolved.completion.unwrap(), Progress::Unfinished, now);
    assert_eq!(running(minute), SlaVerdict::NotDue);
    assert_eq!(running(moment_later), SlaVerdict::Breached);
    // The schedule's own deadline is used instead of the pipeline's.
    let spec = SlaSpec { evaluation: noon, completion: noon, ..SlaSpec::default() };
    let own = SlotTimes { deadline: early, ..midnight };
    let resolved = resolve(&spec, &own, Opening::Live);
    assert_eq!(resolved.evaluation_at, Some(minute));
    assert!(is_breached(minute, moment_later));
}

#[test]
fn the_edge_of_time_does_not_overflow() {
    let limit = Limit::new(Timestamp::MIN, Some(minutes(5)));
    assert_eq!(limit.warning_at, Some(Timestamp::MIN));
    let sla = ResolvedSla { duration_max: Some(minutes(5)), ..ResolvedSla::default() };
    assert_eq!(sla.relative(Timestamp::MAX).unwrap().breach_at, Timestamp::MAX);
}
