//! The scanner: all of history in turn, and what it must find although it has just been started.

use interlock_core::{id::ScheduleId, slot::Disposition};
use interlock_store::{
    Change, Expect, Key, Record,
    record::{SpanRecord, version_text},
};
use interlock_watchdog::Scanner;
use jiff::{SignedDuration, Timestamp};

use crate::{
    house::{House, at, instant, waiting, zones},
    ourselves::{HOURLY, MINUTE, NOTHING, Resident, recorded, scanned},
};

const MINUTELY: &str =
    "name: orders\nschedule: '* * * * *'\ntrigger: {type: command, command: 'true'}\n";

fn span(first: Timestamp, last: Timestamp, count: u64) -> Change {
    let record = SpanRecord {
        last,
        count,
        disposition: "skipped".into(),
        reason: Some("no_catchup".into()),
        version: version_text(7),
        recorded_at: last,
    };
    let key = Key::Span(ScheduleId::any("cron").unwrap(), first);
    Change::Put(key, Expect::Absent, Record::Span(record.into()))
}

/// A day of minutes, all recorded in spans of an hour, except for one minute.
fn a_day_without(lost: Option<Timestamp>) -> House {
    let (start, end) = (at("00:00"), at("23:59"));
    let house = House::new(&[], start);
    house.declare(MINUTELY, start, start);
    for hour in 0..24 {
        // The first minute is the first sight's.
        let first =
            if hour == 0 { start + MINUTE } else { start + SignedDuration::from_hours(hour) };
        let last = start + SignedDuration::from_hours(hour) + MINUTE * 59;
        let minutes =
            |from: Timestamp, to: Timestamp| (to.duration_since(from).as_mins() + 1) as u64;
        match lost.filter(|lost| (first..=last).contains(lost)) {
            Some(lost) => {
                let (before, after) = (lost - MINUTE, lost + MINUTE);
                let spans = [(first, before), (after, last)];
                house.write(
                    "orders",
                    spans.map(|(from, to)| span(from, to, minutes(from, to))).into(),
                );
            }
            None => house.write("orders", vec![span(first, last, minutes(first, last))]),
        }
    }
    house.recorded("orders", "cron", end);
    house
}

#[test]
fn s3_a_slot_that_vanished_long_ago_is_found_as_the_scan_goes_round() {
    for lost in ["00:30", "07:13", "12:58", "22:01"] {
        let (house, mut scanner) = (a_day_without(Some(at(lost))), Scanner::new(zones()));
        // A hundred older slots at each visit: all of a day within fifteen, and one more for where it began.
        let looks = (0..16).map(|_| scanned(&house, &mut scanner, at("23:59")));
        let found: Vec<_> = looks.flatten().collect();
        let says = format!("S3 the slot of {} was due and is not recorded", at(lost));
        assert!(found.contains(&says), "{lost}: {found:?}");
    }
    let (house, mut scanner) = (a_day_without(None), Scanner::new(zones()));
    for _ in 0..40 {
        assert_eq!(scanned(&house, &mut scanner, at("23:59")), NOTHING);
    }
}

#[test]
fn s3_a_long_span_stands_for_as_many_slots_as_were_owed() {
    let start = at("00:00");
    for (count, is_wrong) in [(999, true), (1_000, false), (1_001, true)] {
        let house = House::new(&[], start);
        house.declare(MINUTELY, start, start);
        let last = start + MINUTE * 1_000;
        house.write("orders", vec![span(start + MINUTE, last, count)]);
        house.recorded("orders", "cron", last);
        let mut scanner = Scanner::new(zones());
        let looks = (0..12).map(|_| scanned(&house, &mut scanner, last));
        let found: Vec<_> = looks.flatten().collect();
        let says = format!("records {count} slots, but 1000 were due");
        assert_eq!(found.iter().any(|found| found.ends_with(&says)), is_wrong, "{found:?}");
        assert_eq!(found.is_empty(), !is_wrong, "{found:?}");
    }
}

#[test]
fn s4_a_watermark_that_went_back_before_anybody_looked_is_found_by_what_it_left_behind() {
    let house = recorded();
    house.recorded("orders", "cron", at("10:00"));
    let found = scanned(&house, &mut Scanner::new(zones()), at("11:05"));
    let says = "S4 the slot of 2026-02-24T11:00:00Z is recorded, but its watermark went back to 2026-02-24T10:00:00Z";
    assert_eq!(found, [says]);
    // What the watchdog, a report or a person wrote ahead of the scheduler says nothing of the kind.
    let house = recorded();
    let missed = interlock_core::slot::Slot::decided(
        Disposition::Missed,
        interlock_core::slot::Opening {
            opened_by: interlock_core::run::TriggerType::Scheduler,
            date: "2026-02-24".parse().unwrap(),
            at: at("12:05"),
            closes_at: at("12:05"),
            version: 7,
        },
    );
    house.slot("orders", ("cron", at("12:00")), &missed);
    let mut early = waiting(at("13:00"));
    early.opened_by = interlock_core::run::TriggerType::External;
    house.slot("orders", ("cron", at("13:00")), &early);
    assert_eq!(scanned(&house, &mut Scanner::new(zones()), at("12:10")), NOTHING);
}

#[test]
fn a_schedule_that_nobody_took_up_is_found() {
    let house = House::new(&[], at("08:30"));
    house.declare(HOURLY, at("08:30"), at("08:30"));
    let key = Key::Watermark(ScheduleId::any("cron").unwrap());
    house.write("orders", vec![Change::Delete(key, Expect::Any)]);
    let mut scanner = Scanner::new(zones());
    assert_eq!(scanned(&house, &mut scanner, at("08:39")), NOTHING, "that takes a moment");
    let found = scanned(&house, &mut scanner, at("08:41"));
    assert_eq!(found, ["frozen no engine has taken it up: it has no watermark"]);
}

#[test]
fn a_switch_without_its_slot_is_found() {
    let file =
        "name: orders\nschedules: [{name: s, every: 1h, from: last}]\ntrigger: {type: external}\n";
    let house = House::new(&[], at("08:30"));
    house.declare(file, at("08:30"), at("09:30"));
    let mut scanner = Scanner::new(zones());
    let found = scanned(&house, &mut scanner, at("08:41"));
    assert_eq!(found, ["S3 the slot of 2026-02-24T09:30:00Z was due and is not recorded"]);
    house.slot("orders", ("s", at("09:30")), &waiting(at("09:30")));
    assert_eq!(scanned(&house, &mut scanner, at("08:41")), NOTHING);
}

#[test]
fn s19_what_a_process_before_this_one_told_of_is_over_when_it_is() {
    let house = recorded();
    let mut slot = waiting(at("11:00"));
    slot.closes_at = at("11:20");
    house.slot("orders", ("cron", at("11:00")), &slot);
    *house.clock.lock().unwrap() = at("11:20");
    let mut resident = Resident::new(house);
    for _ in 0..15 {
        resident.after(MINUTE);
    }
    let key = "invariant:S19 orders/cron";
    assert_eq!(resident.house.incidents()[key].state, "open");
    // It dies, and the slot is closed meanwhile.
    let house = resident.house;
    let slot = slot.close(Disposition::Completed, at("11:40")).unwrap();
    house.slot("orders", ("cron", at("11:00")), &slot);
    *house.clock.lock().unwrap() = instant("2026-02-24T11:50:00Z");
    let mut next = Resident::new(house);
    for _ in 0..8 {
        next.after(MINUTE);
    }
    assert_eq!(next.house.incidents()[key].state, "resolved");
    assert_eq!(next.count("INVARIANT_BROKEN"), 1, "told once");
}

#[test]
fn s15_a_clock_that_is_set_back_does_not_stop_what_is_done_every_minute() {
    let house = recorded();
    *house.clock.lock().unwrap() = at("11:20");
    let mut resident = Resident::new(house);
    for _ in 0..10 {
        resident.after(MINUTE);
    }
    resident.jump(MINUTE * -60);
    let mut slot = waiting(at("09:00"));
    slot.closes_at = at("09:20");
    resident.house.slot("orders", ("cron", at("09:00")), &slot);
    for _ in 0..15 {
        resident.after(MINUTE);
    }
    assert_eq!(resident.count("INVARIANT_BROKEN"), 1, "at 10:45, not at 11:31");
}
