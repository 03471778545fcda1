//! The seed's matrix, what stands there already, bounds; and that a death anywhere changes no fate.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    calendar::{DayFilter, Weekdays},
    cron::{Cron, Seconds},
    id::ScheduleId,
    readiness::{Check, Operand, SensorRule},
    schedule::{Dst, Period, Schedule, Timing},
    sla::Deadline,
    time_of_day::TimeOfDay,
    zone::Zone,
};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn starts_at(schedule: Schedule) -> StartSchedule {
    StartSchedule {
        schedule,
        deadline: None,
        grace: SignedDuration::from_mins(5),
        start_grace: MINUTE,
        early: None,
        duration_max: SignedDuration::from_hours(24),
        jitter: SignedDuration::ZERO,
    }
}

fn timing(zone: Zone) -> Timing {
    Timing { zone, dst: Dst::default(), days: DayFilter::default(), from: None, until: None }
}

fn cron(id: &'static str, expression: &str) -> StartSchedule {
    let seconds =
        if expression.split(' ').count() == 6 { Seconds::Present } else { Seconds::Absent };
    let cron = Cron::parse(expression, seconds).unwrap().cron;
    let id = ScheduleId::from_static(id);
    starts_at(Schedule::new(id, Recurrence::Cron(cron), timing(Zone::utc())).unwrap())
}

fn at(text: &str) -> Timestamp {
    format!("2026-11-15T{text}Z").parse().unwrap()
}

fn owed(start: &StartSchedule, watermark: Timestamp) -> Owed<'_> {
    let recorded = Recorded::default();
    Owed { start, watermark, delay: SignedDuration::ZERO, recorded, claimed: vec![] }
}

fn policy(window_hours: i64, overlap: OverlapPolicy) -> Catchup {
    let window = (window_hours > 0).then(|| SignedDuration::from_hours(window_hours));
    Catchup { window, overlap, runs_max: 10_000 }
}

fn gap<'a>(owed: Vec<Owed<'a>>, catchup: &'a Catchup, now: &str) -> Gap<'a> {
    let (pauses, deaf, ran, now) = (vec![], vec![], vec![], at(now));
    let uncertain_until = None;
    Gap { owed, work: Work::Started, catchup, pauses, deaf, ran, uncertain_until, now }
}

/// All that is planned in words, in the order in which it is recorded.
fn words(gap: &Gap<'_>) -> Vec<String> {
    let mut gap = gap.clone();
    let mut words = Vec::new();
    while let next = plan(&gap)
        && next != Plan::default()
    {
        words.extend(words_of(&gap, &next));
        for portion in next.portions {
            let owed = &mut gap.owed[portion.owed];
            owed.watermark = portion.watermark.unwrap_or(owed.watermark);
        }
    }
    words
}

fn words_of(gap: &Gap<'_>, plan: &Plan) -> Vec<String> {
    let time = |slot: &Timestamp| slot.to_string()[11..16].to_owned();
    let list = |slots: &[Timestamp]| slots.iter().map(time).collect::<Vec<_>>().join(" ");
    let mut words = Vec::new();
    for portion in &plan.portions {
        let id = gap.owed[portion.owed].start.schedule.id();
        for step in &portion.steps {
            words.push(match step {
                Step::Live(slots) => format!("{id} live {}", list(slots)),
                Step::Open(slots) => format!("{id} run {}", list(slots)),
                Step::Skip(Stretch { first, last, count, fate }) => {
                    let (first, last) = (time(first), time(last));
                    format!("{id} {count} {} {first}-{last}", fate.as_str())
                }
                Step::Close(slot, reason) => {
                    format!("{id} close {} {}", reason.as_str(), time(slot))
                }
            });
        }
    }
    words
}

/// The rows of the seed's matrix: (window, policy) → what a restart after three hours of downtime does.
#[test]
fn the_behaviour_matrix_of_the_seed() {
    use OverlapPolicy::{All, Latest, Skip};
    let hourly = cron("h", "0 * * * *");
    for (window, overlap, expected) in [
        (0, Skip, &["h 3 no_catchup 10:00-12:00"][..]),
        (0, All, &["h 3 no_catchup 10:00-12:00"]),
        (6, Skip, &["h run 10:00", "h 2 overlap 11:00-12:00"]),
        (6, All, &["h run 10:00 11:00 12:00"]),
        (6, Latest, &["h 2 superseded 10:00-11:00", "h run 12:00"]),
        (2, Skip, &["h 1 expired 10:00-10:00", "h run 11:00", "h 1 overlap 12:00-12:00"]),
        (2, All, &["h 1 expired 10:00-10:00", "h run 11:00 12:00"]),
        (2, Latest, &["h 1 expired 10:00-10:00", "h 1 superseded 11:00-11:00", "h run 12:00"]),
    ] {
        let catchup = policy(window, overlap);
        // Restart after downtime.
        let gap = gap(vec![owed(&hourly, at("09:00:00"))], &catchup, "12:45:00");
        assert_eq!(words(&gap), expected, "{window} h, {overlap:?}");
        // First deploy: the watermark is now, and nothing from before is owed.
        let fresh = Gap { owed: vec![owed(&hourly, gap.now)], ..gap.clone() };
        assert_eq!(plan(&fresh), Plan::default());
        // Disabled or paused, then enabled again: the same slots run; the reason is the pause.
        let pause = Pause { since: at("09:10:00"), until: gap.now, wish: None };
        let paused = Gap { pauses: vec![pause], ..gap.clone() };
        assert_eq!(plan(&paused).counts().run, plan(&gap).counts().run);
        let reasons: BTreeSet<_> = plan(&paused).counts().skipped.into_keys().collect();
        assert!(reasons.iter().all(|reason| *reason == SkipReason::Paused), "{reasons:?}");
    }
}

/// The last slots of a schedule that has none afterwards are as missed as any others.
#[test]
fn what_a_schedule_missed_before_its_end_is_not_live() {
    let timing = Timing { until: Some(at("12:00:00")), ..timing(Zone::utc()) };
    let hours = Recurrence::Cron(Cron::parse("0 * * * *", Seconds::Absent).unwrap().cron);
    let id = ScheduleId::from_static("h");
    let ended = starts_at(Schedule::new(id, hours, timing).unwrap());
    for (window, expected) in
        [(0, &["h 2 no_catchup 10:00-11:00"][..]), (6, &["h run 10:00 11:00"])]
    {
        let catchup = policy(window, OverlapPolicy::All);
        let gap = gap(vec![owed(&ended, at("09:00:00"))], &catchup, "12:45:00");
        assert_eq!(words(&gap), expected, "{window} h");
    }
}

#[test]
fn nothing_is_due_before_the_next_slot_or_when_the_clock_went_back() {
    let (minutely, catchup) = (cron("m", "* * * * *"), policy(0, OverlapPolicy::Skip));
    let plan_at = |now| plan(&gap(vec![owed(&minutely, at("09:00:00"))], &catchup, now));
    assert_eq!(plan_at("09:00:59"), Plan::default());
    assert_eq!(plan_at("08:00:00"), Plan::default());
}

#[test]
fn a_slot_is_due_at_its_instant_and_live_within_the_grace() {
    let (minutely, catchup) = (cron("m", "* * * * *"), policy(0, OverlapPolicy::Skip));
    let words_at = |now| words(&gap(vec![owed(&minutely, at("09:00:00"))], &catchup, now));
    assert_eq!(words_at("09:01:00"), ["m live 09:01"]);
    // Exactly one grace late is still live; a moment more is not.
    assert_eq!(words_at("09:02:00"), ["m live 09:01 09:02"]);
    assert_eq!(words_at("09:02:01"), ["m 1 no_catchup 09:01-09:01", "m live 09:02"]);
}

/// Case 28: `after` opens a window in Go; here it is the instant of a slot. Its garbage that counted as
/// active is an error when the file is read (`case_28_…` in `interlock-config`).
#[test]
fn case_28_a_time_of_day_is_due_from_its_instant_on_in_its_own_zone() {
    let new_york = "America/New_York";
    for (zone, now, expected) in [
        ("UTC", "2026-03-10T07:30:00Z", None),
        ("UTC", "2026-03-10T07:59:59.999Z", None),
        ("UTC", "2026-03-10T08:00:00Z", Some("2026-03-10T08:00:00Z")),
        ("UTC", "2026-03-10T08:30:00Z", Some("2026-03-10T08:00:00Z")),
        (new_york, "2026-03-10T11:00:00Z", None),
        (new_york, "2026-03-10T13:00:00Z", Some("2026-03-10T12:00:00Z")),
    ] {
        let zone = Zone::new(zone, jiff::tz::TimeZone::get(zone).unwrap());
        let time = TimeOfDay::parse("08:00").unwrap();
        let recurrence = Recurrence::At { time, weekdays: Weekdays::ALL };
        let id = ScheduleId::from_static("at");
        let mut start = starts_at(Schedule::new(id, recurrence, timing(zone)).unwrap());
        start.start_grace = SignedDuration::from_hours(2);
        let catchup = policy(0, OverlapPolicy::Skip);
        let midnight = "2026-03-10T00:00:00Z".parse().unwrap();
        let mut gap = gap(vec![owed(&start, midnight)], &catchup, "00:00:00");
        gap.now = now.parse().unwrap();
        let expected = expected.map(|at: &str| Step::Live(vec![at.parse().unwrap()]));
        let steps: Vec<_> = plan(&gap).portions.into_iter().flat_map(|it| it.steps).collect();
        assert_eq!(steps, Vec::from_iter(expected), "{now}");
    }
}

#[test]
fn schedules_are_merged_in_order_of_time() {
    let (hour, half) = (cron("h", "0 * * * *"), cron("m", "30 9,11 * * *"));
    let owed = || vec![owed(&hour, at("09:10:00")), owed(&half, at("09:10:00"))];
    let with = |overlap| {
        let catchup = policy(24, overlap);
        words(&gap(owed(), &catchup, "12:45:00"))
    };
    let skip = ["h 3 overlap 10:00-12:00", "m run 09:30", "m 1 overlap 11:30-11:30"];
    assert_eq!(with(OverlapPolicy::Skip), skip);
    assert_eq!(with(OverlapPolicy::All), ["h run 10:00 11:00 12:00", "m run 09:30 11:30"]);
    let latest = ["h 2 superseded 10:00-11:00", "m 2 superseded 09:30-11:30", "h run 12:00"];
    assert_eq!(with(OverlapPolicy::Latest), latest);
    // The cap cuts the oldest of all schedules, and all of what is cut comes first.
    let capped = Catchup { runs_max: 2, ..policy(24, OverlapPolicy::All) };
    let expected =
        ["h 2 capped 10:00-11:00", "m 1 capped 09:30-09:30", "h run 12:00", "m run 11:30"];
    assert_eq!(words(&gap(owed(), &capped, "12:45:00")), expected);
}

#[test]
fn what_is_recorded_already_is_left_alone_unless_it_was_called_missed() {
    let hourly = cron("h", "0 * * * *");
    let catchup = policy(24, OverlapPolicy::Skip);
    let mut gap = gap(vec![owed(&hourly, at("03:10:00"))], &catchup, "09:45:00");
    let recorded = &mut gap.owed[0].recorded;
    recorded.rows.insert(at("04:00:00"), Standing::Settled);
    recorded.rows.insert(at("05:00:00"), Standing::Provisional);
    recorded.rows.insert(at("07:00:00"), Standing::Provisional);
    let expected = [
        "h close overlap 07:00",
        "h run 05:00",
        "h 1 overlap 06:00-06:00",
        "h 2 overlap 08:00-09:00",
    ];
    assert_eq!(words(&gap), expected);
    assert_eq!(plan(&gap).portions.last().unwrap().watermark, Some(at("09:00:00")));
    // A span that says missed stays; what runs of it gets a row.
    gap.owed[0].recorded.spans.push((at("06:00:00"), at("09:00:00"), Standing::Provisional));
    assert_eq!(words(&gap), ["h close overlap 07:00", "h run 05:00"]);
    let all = policy(24, OverlapPolicy::All);
    gap.catchup = &all;
    assert_eq!(words(&gap), ["h run 05:00 06:00 07:00 08:00 09:00"]);
}

#[test]
fn a_newer_slot_that_ran_supersedes_all_older_ones_under_latest() {
    let (hour, half) = (cron("h", "0 * * * *"), cron("m", "30 9,11 * * *"));
    let catchup = policy(24, OverlapPolicy::Latest);
    let both = vec![owed(&hour, at("09:10:00")), owed(&half, at("09:10:00"))];
    let mut gap = gap(both, &catchup, "12:45:00");
    // The newest of all ran by hand while no process served.
    gap.owed[0].recorded.rows.insert(at("12:00:00"), Standing::Ran);
    gap.ran.push(at("12:00:00"));
    let none = ["h 2 superseded 10:00-11:00", "m 2 superseded 09:30-11:30"];
    assert_eq!(words(&gap), none);
    assert_eq!(gap.owed[0].watermark, at("09:10:00"));
    // A process that dies after the first schedule, and plans again, finds the row behind its watermark.
    gap.owed[0].watermark = at("12:00:00");
    gap.owed[0].recorded = Recorded::default();
    assert_eq!(words(&gap), ["m 2 superseded 09:30-11:30"]);
    // One that ran supersedes what is older, not what is newer.
    gap.ran = vec![at("11:00:00")];
    assert_eq!(words(&gap), ["m 1 superseded 09:30-09:30", "m run 11:30"]);
    // One that was decided not to run supersedes nothing.
    let mut gap = Gap { owed: vec![owed(&hour, at("09:10:00"))], ran: vec![], ..gap };
    gap.owed[0].recorded.rows.insert(at("12:00:00"), Standing::Settled);
    assert_eq!(words(&gap), ["h 1 superseded 10:00-10:00", "h run 11:00"]);
}

#[test]
fn what_ran_after_a_pause_says_nothing_about_what_was_asked_for_of_the_pause() {
    let hourly = cron("h", "0 * * * *");
    let catchup = policy(0, OverlapPolicy::Skip);
    let mut gap = gap(vec![owed(&hourly, at("03:10:00"))], &catchup, "09:45:00");
    let pause = Pause { since: at("03:30:00"), until: at("06:30:00"), wish: Some(Wish::Latest) };
    gap.pauses = vec![pause];
    gap.owed[0].recorded.rows.insert(at("08:00:00"), Standing::Ran);
    gap.ran = vec![at("08:00:00")];
    let (seven, nine) = ("h 1 no_catchup 07:00-07:00", "h 1 no_catchup 09:00-09:00");
    assert_eq!(words(&gap), ["h 2 paused 04:00-05:00", "h run 06:00", seven, nine]);
    gap.owed[0].recorded.rows.insert(at("06:00:00"), Standing::Ran);
    gap.ran = vec![at("06:00:00"), at("08:00:00")];
    assert_eq!(words(&gap), ["h 2 paused 04:00-05:00", seven, nine]);
}

#[test]
fn what_a_running_backfill_has_still_to_come_to_is_left_to_it() {
    use OverlapPolicy::{All, Latest, Skip};
    let hourly = cron("h", "0 * * * *");
    for (window, overlap, expected) in [
        (
            0,
            Skip,
            &[
                "h 1 no_catchup 08:00-08:00",
                "h 2 superseded 09:00-10:00",
                "h 2 no_catchup 11:00-12:00",
            ][..],
        ),
        (9, Skip, &["h run 08:00", "h 2 superseded 09:00-10:00", "h 2 overlap 11:00-12:00"]),
        (9, All, &["h run 08:00", "h 2 superseded 09:00-10:00", "h run 11:00 12:00"]),
        (
            9,
            Latest,
            &[
                "h 1 superseded 08:00-08:00",
                "h 2 superseded 09:00-10:00",
                "h 1 superseded 11:00-11:00",
                "h run 12:00",
            ],
        ),
    ] {
        let catchup = policy(window, overlap);
        let mut gap = gap(vec![owed(&hourly, at("07:10:00"))], &catchup, "12:45:00");
        gap.owed[0].claimed = vec![(at("09:00:00"), at("11:00:00"))];
        let found = words(&gap);
        let joined: Vec<_> = expected.iter().map(|it| (*it).to_owned()).collect();
        assert_eq!(merged(&found), merged(&joined), "{window} h, {overlap:?}");
    }
    // What it is about to run is newer than all that is left.
    let catchup = policy(9, Latest);
    let mut gap = gap(vec![owed(&hourly, at("07:10:00"))], &catchup, "11:45:00");
    gap.owed[0].claimed = vec![(at("10:00:00"), at("12:00:00"))];
    assert_eq!(words(&gap), ["h 4 superseded 08:00-11:00"]);
    // What was called missed stays so until its backfill opens it.
    gap.owed[0].recorded.rows.insert(at("10:00:00"), Standing::Provisional);
    assert_eq!(words(&gap), ["h 2 superseded 08:00-09:00", "h 1 superseded 11:00-11:00"]);
}

/// Stretches of one reason that meet, as one: where they are cut is not what is asked.
fn merged(words: &[String]) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = vec![];
    for word in words {
        let parts: Vec<_> = word.split(' ').collect();
        let (what, count) = match parts[1].parse() {
            Ok(count) => (parts[2].to_owned(), count),
            Err(_) => (word.clone(), 1),
        };
        match all.last_mut() {
            Some((last, sum)) if *last == what => *sum += count,
            _ => all.push((what, count)),
        }
    }
    all
}

#[test]
fn what_a_recovered_ledger_does_not_know_is_unknown_and_never_runs() {
    use OverlapPolicy::{All, Latest, Skip};
    let hourly = cron("h", "0 * * * *");
    for (overlap, rest) in [
        (Skip, &["h run 12:00", "h 1 overlap 13:00-13:00"][..]),
        (All, &["h run 12:00 13:00"]),
        (Latest, &["h 1 superseded 12:00-12:00", "h run 13:00"]),
    ] {
        let catchup = policy(24, overlap);
        let mut gap = gap(vec![owed(&hourly, at("09:10:00"))], &catchup, "13:45:00");
        gap.uncertain_until = Some(at("11:00:00"));
        let expected = [&["h 2 unknown 10:00-11:00"][..], rest].concat();
        assert_eq!(words(&gap), expected, "{overlap:?}");
    }
    // A restart right after it: the slot of this minute may have run as well.
    let catchup = policy(24, All);
    let mut gap = gap(vec![owed(&hourly, at("09:10:00"))], &catchup, "10:00:20");
    gap.uncertain_until = Some(at("10:00:10"));
    assert!(gap.has_missed());
    assert_eq!(words(&gap), ["h 1 unknown 10:00-10:00"]);
    // What is recorded stays as it is.
    gap.owed[0].recorded.rows.insert(at("10:00:00"), Standing::Ran);
    assert_eq!(words(&gap), [] as [&str; 0]);
}

/// S7: a cancel of a backfill leaves nothing that is in the way.
#[test]
fn what_a_cancelled_backfill_had_not_begun_is_caught_up_as_if_it_were_not_recorded() {
    let hourly = cron("h", "0 * * * *");
    let all = policy(24, OverlapPolicy::All);
    let mut gap = gap(vec![owed(&hourly, at("09:10:00"))], &all, "12:45:00");
    gap.owed[0].recorded.rows.insert(at("11:00:00"), Standing::Withdrawn);
    assert_eq!(words(&gap), ["h run 10:00 11:00 12:00"]);
    let none = policy(0, OverlapPolicy::All);
    gap.catchup = &none;
    let expected = ["h 1 no_catchup 10:00-10:00", "h 1 no_catchup 12:00-12:00"];
    assert_eq!(words(&gap), expected, "it stays cancelled");
}

#[test]
fn whoever_ends_a_pause_may_ask_for_another_policy() {
    let hourly = cron("h", "0 * * * *");
    let none = policy(0, OverlapPolicy::Skip);
    let mut gap = gap(vec![owed(&hourly, at("03:00:00"))], &none, "09:45:00");
    let mut with = |wish| {
        let pause = Pause { since: at("05:30:00"), until: at("08:30:00"), wish };
        gap.pauses = vec![pause];
        words(&gap)
    };
    let before = "h 2 no_catchup 04:00-05:00";
    let after = "h 1 no_catchup 09:00-09:00";
    let paused = "h 3 paused 06:00-08:00";
    assert_eq!(with(None), [before, paused, after]);
    assert_eq!(with(Some(Wish::None)), [before, paused, after]);
    assert_eq!(with(Some(Wish::All)), [before, "h run 06:00 07:00 08:00", after]);
    let latest = ["h 2 paused 06:00-07:00", "h run 08:00"];
    assert_eq!(with(Some(Wish::Latest)), [before, latest[0], latest[1], after]);
    // It is about that pause, not about what is missed later.
    gap.owed[0].watermark = at("08:00:00");
    assert_eq!(words(&gap), [after]);
}

/// What becomes of a pause from 02:30:30 to 02:35:20, minutes before and after it included: by the policy, and by what
/// is asked for. 02:35 lies in the last minute of the pause, and 02:29 and 02:30 were missed before it.
#[test]
fn what_is_asked_for_covers_all_of_the_pause_and_nothing_else() {
    use OverlapPolicy::{All, Latest, Skip};
    let minutely = cron("m", "* * * * *");
    // What the policy makes of what came before, and of the pause.
    let policies: [(i64, OverlapPolicy, &[&str], &[&str]); 4] = [
        (0, Skip, &["m 2 no_catchup 02:29-02:30"], &["m 4 paused 02:31-02:34", "m live 02:35"]),
        (1, Skip, &["m run 02:29", "m 1 overlap 02:30-02:30"], &["m 5 paused 02:31-02:35"]),
        (1, All, &["m run 02:29 02:30"], &["m run 02:31 02:32 02:33 02:34 02:35"]),
        (1, Latest, &["m 1 superseded 02:29-02:29", "m run 02:30"], &["m run 02:35"]),
    ];
    let wishes: [(Wish, &[&str]); 3] = [
        (Wish::None, &["m 5 paused 02:31-02:35"]),
        (Wish::Latest, &["m 4 paused 02:31-02:34", "m run 02:35"]),
        (Wish::All, &["m run 02:31 02:32 02:33 02:34 02:35"]),
    ];
    for (window, overlap, before, _) in policies {
        let catchup = policy(window, overlap);
        for (wish, paused) in wishes {
            let (since, until) = (at("02:30:30"), at("02:35:20"));
            let mut gap = gap(vec![owed(&minutely, at("02:28:00"))], &catchup, "02:35:20");
            gap.pauses = vec![Pause { since, until, wish: Some(wish) }];
            assert_eq!(words(&gap), [before, paused].concat(), "{window} {overlap:?} {wish:?}");
            // What is found after it is nobody's wish.
            gap.now = at("02:36:10");
            let live = [before, paused, &["m live 02:36"]].concat();
            assert_eq!(words(&gap), live, "{window} {overlap:?} {wish:?}");
        }
    }
    // Without a wish it is one gap, of the pause's last minute too.
    for (window, overlap, before, paused) in policies {
        let catchup = policy(window, overlap);
        let mut gap = gap(vec![owed(&minutely, at("02:28:00"))], &catchup, "02:35:20");
        let (since, until) = (at("02:30:30"), at("02:35:20"));
        gap.pauses = vec![Pause { since, until, wish: None }];
        let expected = match overlap {
            Latest => vec!["m 2 superseded 02:29-02:30", "m 4 paused 02:31-02:34", "m run 02:35"],
            All => vec!["m run 02:29 02:30 02:31 02:32 02:33 02:34 02:35"],
            Skip => [before, paused].concat(),
        };
        assert_eq!(words(&gap), expected, "{window} {overlap:?}");
    }
}

/// A second pause does not forget what was asked for about the first.
#[test]
fn each_pause_is_caught_up_by_what_was_asked_for_about_it() {
    let minutely = cron("m", "* * * * *");
    let catchup = policy(1, OverlapPolicy::Skip);
    let pause = |since, until, wish| Pause { since: at(since), until: at(until), wish };
    let with = |first, second| {
        let mut gap = gap(vec![owed(&minutely, at("02:29:00"))], &catchup, "02:38:20");
        gap.pauses =
            vec![pause("02:30:30", "02:32:30", first), pause("02:35:30", "02:37:10", second)];
        words(&gap)
    };
    let (one, two) = ("m run 02:31 02:32", "m run 02:36 02:37");
    let (no_one, no_two) = ("m 2 paused 02:31-02:32", "m 2 paused 02:36-02:37");
    // In each stretch between them the policy takes the first.
    let (before, live) = ("m run 02:30", "m live 02:38");
    let between = ["m run 02:33", "m 2 overlap 02:34-02:35"];
    for (first, said) in [(Wish::All, one), (Wish::None, no_one)] {
        for (second, says) in [(Wish::All, two), (Wish::None, no_two)] {
            let expected = [before, said, between[0], between[1], says, live];
            assert_eq!(with(Some(first), Some(second)), expected);
        }
    }
    let rest = ["m 2 paused 02:31-02:32", "m 3 overlap 02:33-02:35"];
    assert_eq!(with(None, Some(Wish::All)), [before, rest[0], rest[1], two, live]);
    let rest = ["m run 02:33", "m 2 overlap 02:34-02:35", no_two, live];
    assert_eq!(with(Some(Wish::All), None), [&[before, one][..], &rest].concat());
}

/// A slot at the instant at which a pause ends is not in it; nor is one that a sensor or somebody else brings.
#[test]
fn what_is_due_when_a_pause_ends_is_live() {
    let minutely = cron("m", "* * * * *");
    let catchup = policy(1, OverlapPolicy::Skip);
    let mut gap = gap(vec![owed(&minutely, at("02:33:00"))], &catchup, "02:35:00");
    let (since, until) = (at("02:33:30"), at("02:35:00"));
    for wish in [None, Some(Wish::None)] {
        gap.pauses = vec![Pause { since, until, wish }];
        let paused = if wish.is_some() { "m 1 paused 02:34-02:34" } else { "m run 02:34" };
        assert_eq!(words(&gap), [paused, "m live 02:35"]);
        gap.work = Work::Watched;
        assert_eq!(words(&gap), ["m live 02:34 02:35"]);
        gap.work = Work::Started;
    }
}

#[test]
fn what_a_sensor_opens_waits_until_its_deadline_however_late_we_come_to_it() {
    let rule = SensorRule {
        key: "orders".into(),
        check: Check::Exists,
        field: None,
        operand: Operand::None,
    };
    let recurrence = Recurrence::Sensor { rule, period: Period::Hour };
    let id = ScheduleId::from_static("s");
    let mut stream = starts_at(Schedule::new(id, recurrence, timing(Zone::utc())).unwrap());
    stream.deadline = Some(Deadline::parse("+90m").unwrap());
    let catchup = policy(24, OverlapPolicy::All);
    let mut gap = gap(vec![owed(&stream, at("03:00:00"))], &catchup, "07:10:00");
    assert_eq!(words(&gap), ["s 2 no_sensor 04:00-05:00", "s live 06:00 07:00"]);
    // What lies in a pause is the pause's.
    gap.pauses = vec![Pause { since: at("05:30:00"), until: at("06:30:00"), wish: None }];
    assert_eq!(
        words(&gap),
        ["s 2 no_sensor 04:00-05:00", "s 1 paused 06:00-06:00", "s live 07:00"]
    );
}

#[test]
fn s10_watch_only_pipelines_have_no_catch_up_and_what_nobody_could_hear_of_is_unknown() {
    let hourly = cron("h", "0 * * * *");
    let catchup = policy(24, OverlapPolicy::All);
    let mut gap = gap(vec![owed(&hourly, at("03:00:00"))], &catchup, "09:45:00");
    gap.work = Work::Watched;
    assert_eq!(words(&gap), ["h 6 missed 04:00-09:00"], "somebody could hear all the time");
    gap.deaf = vec![(at("05:30:00"), at("09:45:00"))];
    assert_eq!(words(&gap), ["h 2 missed 04:00-05:00", "h 4 unknown 06:00-09:00"]);
    // A report may come six minutes before its hour, and five after it.
    gap.deaf = vec![(at("05:05:00"), at("05:54:00"))];
    assert_eq!(words(&gap), ["h 6 missed 04:00-09:00"]);
    gap.deaf = vec![(at("05:04:59"), at("05:54:01"))];
    let unknown = "h 2 unknown 05:00-06:00";
    assert_eq!(words(&gap), ["h 1 missed 04:00-04:00", unknown, "h 3 missed 07:00-09:00"]);
    // What the watchdog said stays, and what lies in a pause is the pause's.
    let recorded = &mut gap.owed[0].recorded;
    recorded.rows.insert(at("04:00:00"), Standing::Provisional);
    let (since, until) = (at("06:30:00"), at("08:30:00"));
    gap.pauses = vec![Pause { since, until, wish: None }];
    let paused = "h 2 paused 07:00-08:00";
    assert_eq!(words(&gap), [unknown, paused, "h 1 missed 09:00-09:00"]);
}

#[test]
fn a_month_of_missed_minutes_without_a_window_is_one_span() {
    let minutely = cron("m", "* * * * *");
    let catchup = policy(0, OverlapPolicy::All);
    let watermark = at("00:00:00") - SignedDuration::from_hours(30 * 24);
    let gap = gap(vec![owed(&minutely, watermark)], &catchup, "00:01:01");
    let plan = plan(&gap);
    let [Step::Skip(stretch)] = plan.portions[0].steps[..] else { panic!("not one stretch") };
    assert_eq!((stretch.count, stretch.fate), (43_200, Fate::Skipped(SkipReason::NoCatchup)));
}

#[test]
fn a_hundred_thousand_missed_slots_are_capped_and_said() {
    let minutely = cron("m", "* * * * *");
    let catchup = policy(24 * 365, OverlapPolicy::All);
    let watermark = at("00:00:00") - SignedDuration::from_mins(100_000);
    let gap = gap(vec![owed(&minutely, watermark)], &catchup, "00:01:01");
    let counts = plan(&gap).counts();
    assert_eq!((counts.run, counts.missed()), (10_000, 100_000));
    assert_eq!(counts.skipped, [(SkipReason::Capped, 90_000)].into());
}

#[test]
fn a_plan_is_bounded_and_continues_where_it_was_cut() {
    let secondly = cron("s", "* * * * * *");
    let catchup = policy(1, OverlapPolicy::Skip);
    let watermark = at("00:00:00") - SignedDuration::from_hours(24 * 20);
    let mut gap = gap(vec![owed(&secondly, watermark)], &catchup, "00:00:00");
    let mut counts = vec![];
    loop {
        let plan = plan(&gap);
        counts.push(plan.counts());
        let Some(last) = plan.portions.last() else { break };
        gap.owed[0].watermark = last.watermark.unwrap();
    }
    let missed: u64 = counts.iter().map(Counts::missed).sum();
    let live: u64 = counts.iter().map(|count| count.live).sum();
    assert_eq!(missed + live, 24 * 20 * 3600);
    assert_eq!(counts[0].skipped, [(SkipReason::Expired, MISSED_MAX)].into());
    assert_eq!(counts.iter().map(|count| count.run).sum::<u64>(), 1, "one is the first");
    assert_eq!(live, 61);
}

/// DST: what was missed over a night is what the clock would have run.
#[test]
fn dst_nights_replay_exactly_the_slots_that_the_live_clock_would_have_run() {
    let zone = Zone::new("America/New_York", jiff::tz::TimeZone::get("America/New_York").unwrap());
    for (expression, night) in [
        ("30 1 * * *", "2026-11-01"),
        ("30 2 * * *", "2026-03-08"),
        ("*/30 * * * *", "2026-11-01"),
        ("*/30 * * * *", "2026-03-08"),
    ] {
        let parsed = Cron::parse(expression, Seconds::Absent).unwrap().cron;
        let id = ScheduleId::from_static("c");
        let schedule = Schedule::new(id, Recurrence::Cron(parsed), timing(zone.clone())).unwrap();
        let start = starts_at(schedule);
        let from: Timestamp = format!("{night}T00:00:00Z").parse().unwrap();
        let until = from + SignedDuration::from_hours(36);
        let mut watched = from;
        let catchup = policy(48, OverlapPolicy::All);
        let mut live = vec![];
        // A clock that looks every minute.
        let mut now = from;
        while now < until {
            now += MINUTE;
            let gap = Gap { now, ..gap(vec![owed(&start, watched)], &catchup, "00:00:00") };
            for portion in plan(&gap).portions {
                watched = portion.watermark.unwrap();
                for step in portion.steps {
                    if let Step::Live(slots) = step {
                        live.extend(slots);
                    }
                }
            }
        }
        let later = until + SignedDuration::from_secs(61);
        let gap = Gap { now: later, ..gap(vec![owed(&start, from)], &catchup, "00:00:00") };
        let steps = plan(&gap).portions.into_iter().flat_map(|portion| portion.steps);
        let replayed: Vec<_> = steps
            .filter_map(|step| match step {
                Step::Open(slots) => Some(slots),
                Step::Live(_) | Step::Skip(_) | Step::Close(..) => None,
            })
            .flatten()
            .collect();
        assert_eq!(replayed, live, "{expression} on {night}");
        assert!(!live.is_empty());
    }
}

/// What recording a plan up to somewhere leaves: the fate of every slot, and new watermarks.
fn record(
    gap: &mut Gap<'_>,
    plan: &Plan,
    groups: usize,
    fates: &mut BTreeSet<(usize, Timestamp, String)>,
) {
    for portion in plan.portions.iter().take(groups) {
        let schedule = &gap.owed[portion.owed].start.schedule;
        let mut put = |slot: Timestamp, fate: &str| {
            assert!(fates.insert((portion.owed, slot, fate.to_owned())), "{slot} {fate} twice");
        };
        for step in &portion.steps {
            match step {
                Step::Live(slots) => slots.iter().for_each(|slot| put(*slot, "live")),
                Step::Open(slots) => {
                    for slot in slots {
                        put(*slot, "run");
                        gap.ran.push(*slot);
                    }
                    gap.ran.sort_unstable();
                }
                Step::Skip(Stretch { first, last, count, fate }) => {
                    let end = *last + SignedDuration::from_nanos(1);
                    let slots = schedule.slots(*first, end, usize::MAX).found;
                    assert_eq!(slots.len() as u64, *count);
                    for slot in slots {
                        put(slot, fate.as_str());
                    }
                }
                Step::Close(slot, reason) => {
                    put(*slot, reason.as_str());
                    gap.owed[portion.owed].recorded.rows.insert(*slot, Standing::Settled);
                }
            }
        }
        if let Some(watermark) = portion.watermark {
            assert!(watermark > gap.owed[portion.owed].watermark, "S4");
            gap.owed[portion.owed].watermark = watermark;
        }
    }
}

proptest! {
    /// S3, S4, S5: whatever the schedules, the policy and what stands there already, every slot has exactly
    /// one fate; and whoever dies after any portion and plans again comes to the same fates.
    #[test]
    fn a_plan_names_every_slot_once_and_survives_a_death_after_any_portion(
        expressions in prop::collection::vec(prop::sample::select(vec![
            "0 * * * *", "*/7 * * * *", "30 9 * * *", "15,45 */3 * * *", "0 0 30 2 *",
        ]), 1..4),
        back in prop::collection::vec(0_i64..3_000, 4),
        window in prop::sample::select(vec![0_i64, 1, 6, 48]),
        overlap in prop::sample::select(OverlapPolicy::ALL.to_vec()),
        runs_max in prop::sample::select(vec![1_u32, 3, 20, 10_000]),
        recorded in prop::collection::vec((0_usize..4, 0_usize..60, prop::sample::select(vec![
            Standing::Ran, Standing::Settled, Standing::Provisional, Standing::Withdrawn,
        ])), 0..6),
        uncertain in prop::option::of(0_i64..3_000),
        claimed in prop::collection::vec((0_usize..4, 0_i64..3_000, 1_i64..600), 0..2),
        pauses in prop::collection::vec((0_i64..3_000, prop::option::of(prop::sample::select(Wish::ALL.to_vec()))), 0..3),
        dies_after in 0_usize..8,
    ) {
        let names = ["a", "b", "c"];
        let starts: Vec<_> = expressions
            .iter()
            .zip(names)
            .filter_map(|(expression, name)| {
                let parsed = Cron::parse(expression, Seconds::Absent).unwrap().cron;
                let id = ScheduleId::from_static(name);
                // An impossible cron is no schedule at all.
                Schedule::new(id, Recurrence::Cron(parsed), timing(Zone::utc())).ok().map(starts_at)
            })
            .collect();
        let now = at("12:00:30");
        let before = |minutes| now - SignedDuration::from_mins(minutes);
        let mut all: Vec<_> =
            starts.iter().zip(&back).map(|(start, back)| owed(start, before(*back))).collect();
        for (index, begins, length) in claimed {
            let Some(owed) = all.get_mut(index) else { continue };
            owed.claimed.push((before(begins), before(begins - length)));
        }
        let mut ran = vec![];
        for (index, nth, standing) in recorded {
            let Some(owed) = all.get_mut(index) else { continue };
            let slots = owed.start.schedule.slots(owed.watermark, now, 100).found;
            let Some(slot) = slots.get(nth).filter(|slot| **slot > owed.watermark) else { continue };
            if owed.recorded.rows.contains_key(slot) {
                continue;
            }
            ran.extend((standing == Standing::Ran).then_some(*slot));
            owed.recorded.rows.insert(*slot, standing);
        }
        let catchup = Catchup { runs_max, ..policy(window, overlap) };
        // One after the other; of two the first ends where the second begins, or before it.
        let mut back = 4_000;
        let pauses = pauses.into_iter().map(|(length, wish)| {
            let since = back.min(length);
            back = since / 3;
            Pause { since: before(since), until: before(since / 2), wish }
        });
        let pauses: Vec<_> = pauses.collect();
        ran.sort_unstable();
        let uncertain_until = uncertain.map(before);
        let mut gap = Gap { owed: all, work: Work::Started, catchup: &catchup, pauses, deaf: vec![], ran, uncertain_until, now };
        let first = gap.clone();
        // What stays as it stands if it does not run is named by no plan.
        let stays = |index: usize, slot: Timestamp| {
            let owed: &Owed<'_> = &first.owed[index];
            match owed.recorded.rows.get(&slot) {
                Some(Standing::Withdrawn) => true,
                Some(Standing::Provisional) => owed.is_claimed(slot) || first.is_uncertain(slot),
                Some(Standing::Ran | Standing::Settled) | None => false,
            }
        };

        // Everything between the watermarks is named once, and nothing else.
        let mut fates = BTreeSet::new();
        let mut plans = 0;
        while let whole = plan(&gap) && whole != Plan::default() {
            record(&mut gap, &whole, usize::MAX, &mut fates);
            plans += 1;
            prop_assert!(plans <= 5);
        }
        let named = fates.iter().map(|(index, slot, _)| (*index, *slot));
        let named: Vec<_> = named.filter(|(index, slot)| !stays(*index, *slot)).collect();
        let mut expected = vec![];
        for (index, owed) in first.owed.iter().enumerate() {
            let from = owed.watermark + SignedDuration::from_nanos(1);
            let end = now + SignedDuration::from_nanos(1);
            let slots = owed.start.schedule.slots(from, end, usize::MAX).found;
            expected.extend(slots.into_iter().filter(|slot| !owed.recorded.is_settled(*slot)).map(|slot| (index, slot)));
        }
        expected.retain(|(index, slot)| !stays(*index, *slot));
        prop_assert_eq!(named, expected);
        if overlap == OverlapPolicy::Latest && first.pauses.iter().all(|pause| pause.wish.is_none()) {
            // Nothing that is caught up is older than what ran before.
            let newest = first.ran.last().copied().unwrap_or(Timestamp::MIN);
            let runs = fates.iter().filter(|(.., fate)| fate == "run");
            prop_assert!(runs.clone().all(|(_, slot, _)| *slot >= newest), "{:?}", fates);
        }

        let is_sure = |(_, slot, fate): &(usize, Timestamp, String)| {
            !first.is_uncertain(*slot) || matches!(fate.as_str(), "unknown")
        };
        prop_assert!(fates.iter().all(is_sure), "what may have run does not run: {:?}", fates);

        // Deaths after some of it, and a plan each.
        let mut gap = first.clone();
        let mut again = BTreeSet::new();
        for portions in [dies_after, 1, 2].into_iter().chain([usize::MAX; 5]) {
            let rest = plan(&gap);
            record(&mut gap, &rest, portions, &mut again);
        }
        prop_assert_eq!(again, fates);
    }
}

#[test]
fn a_time_in_which_a_schedule_was_not_declared_is_one_stretch_around_what_stands_there() {
    let hourly = cron("hourly", "0 * * * *");
    let mut gap = owed(&hourly, at("02:00:00"));
    let says = |owed: &Owed<'_>, until| {
        let plan = plan_away(owed, at(until));
        assert!(!plan.is_cut_off);
        plan.portions.into_iter().next()
    };
    assert_eq!(says(&gap, "02:59:59"), None, "nothing is owed");
    let retired = |first, last, count| {
        let fate = Fate::Skipped(SkipReason::Retired);
        Step::Skip(Stretch { first: at(first), last: at(last), count, fate })
    };
    let whole = says(&gap, "06:00:00").unwrap();
    assert_eq!(whole.steps, [retired("03:00:00", "06:00:00", 4)]);
    assert_eq!(whole.watermark, Some(at("06:00:00")));
    // What was called missed was told, and stays.
    gap.recorded.rows.insert(at("04:00:00"), Standing::Provisional);
    let around = says(&gap, "06:30:00").unwrap();
    let steps = [retired("03:00:00", "03:00:00", 1), retired("05:00:00", "06:00:00", 2)];
    assert_eq!((&*around.steps, around.watermark), (&steps[..], Some(at("06:30:00"))));
}

#[test]
fn a_very_long_time_away_is_recorded_in_parts() {
    let secondly = cron("secondly", "* * * * * *");
    let until = at("00:00:00");
    let mut owed = owed(&secondly, until - SignedDuration::from_secs(MISSED_MAX as i64 + 5));
    let first = plan_away(&owed, until);
    assert!(first.is_cut_off);
    owed.watermark = first.portions[0].watermark.unwrap();
    let second = plan_away(&owed, until);
    assert!(!second.is_cut_off);
    let count = |plan: &Plan| plan.counts().skipped[&SkipReason::Retired];
    assert_eq!((count(&first), count(&second)), (MISSED_MAX, 5));
}
