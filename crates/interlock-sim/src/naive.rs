//! What a schedule owes, found by walking minute by minute.
//!
//! It shares no code with the evaluator: each quarter of an hour is converted to the wall clock of its zone, and its minutes are
//! compared with the numbers from which the schedule's text was written. Slow and obvious, on purpose.

use jiff::{
    SignedDuration, Timestamp,
    civil::{Date, DateTime},
    tz::TimeZone,
};

use crate::truth::{Pattern, Period, Truth};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// A quarter of an hour, in seconds.
const QUARTER: i64 = 15 * 60;

/// The slots of a pattern after one instant, up to and including another.
pub fn slots(
    truth: &Truth,
    pattern: &Pattern,
    after: Timestamp,
    until: Timestamp,
) -> Vec<Timestamp> {
    walk(truth, pattern, after, until).collect()
}

/// The same, each found when it is asked for.
pub fn walk(
    truth: &Truth,
    pattern: &Pattern,
    after: Timestamp,
    until: Timestamp,
) -> impl Iterator<Item = Timestamp> {
    let quarter = Timestamp::from_second(after.as_second().div_euclid(QUARTER) * QUARTER).ok();
    let quarters = std::iter::successors(quarter, |quarter| Some(*quarter + 15 * MINUTE));
    quarters
        .take_while(move |quarter| *quarter <= until)
        .flat_map(move |quarter| in_quarter(truth, pattern, quarter))
        .filter(move |minute| *minute > after && *minute <= until)
}

/// The slots in a quarter of an hour. No zone of today is off by another time than whole quarters, before a change of its clocks or
/// after: the wall clock of its first minute tells that of the others.
fn in_quarter(
    truth: &Truth,
    pattern: &Pattern,
    quarter: Timestamp,
) -> impl Iterator<Item = Timestamp> {
    let first = truth.time_zone.to_datetime(quarter);
    let may_be = move |into: &i8| match pattern {
        Pattern::Every(_) => true,
        Pattern::Arrival { .. } => *into == 0,
        // Before its first minute a clock may have been set forward.
        Pattern::Cron { minutes, .. } => {
            *into == 0 || minutes.contains(&((first.minute() + into) as u8))
        }
    };
    (0..15).filter(may_be).map(i64::from).map(SignedDuration::from_mins).filter_map(move |into| {
        let minute = quarter + into;
        is_owed(truth, pattern, (minute, || first + into)).then_some(minute)
    })
}

fn is_owed(
    truth: &Truth,
    pattern: &Pattern,
    (minute, wall): (Timestamp, impl Fn() -> DateTime),
) -> bool {
    match pattern {
        Pattern::Every(minutes) => {
            let is_time = (minute.as_second() / 60) % i64::from((*minutes).max(1)) == 0;
            is_time && has_slots(truth, wall())
        }
        Pattern::Arrival { period, .. } => begins(truth, *period, minute),
        Pattern::Cron { .. } => {
            let civil = wall();
            if matches(pattern, civil) && has_slots(truth, civil) {
                return !pattern.is_fixed() || is_first(&truth.time_zone, civil, minute);
            }
            pattern.is_fixed() && minute.as_second() % QUARTER == 0 && {
                let before = truth.time_zone.to_datetime(minute - MINUTE);
                lies_in_gap(truth, pattern, before, civil)
            }
        }
    }
}

/// Whether a period that has slots begins at a minute: its first, or the first after the one that a changed clock
/// passed over.
pub fn begins(truth: &Truth, period: Period, minute: Timestamp) -> bool {
    if minute.as_second() % QUARTER != 0 {
        return false;
    }
    let civil = truth.time_zone.to_datetime(minute);
    if !has_slots(truth, civil) {
        return false;
    }
    let before = truth.time_zone.to_datetime(minute - MINUTE);
    match period {
        Period::Day => civil.date() > before.date(),
        Period::Hour => civil.minute() == 0 || is_hour_passed_over(before, civil),
    }
}

/// Whether the wall clock went from one minute to the next over a full hour.
fn is_hour_passed_over(before: DateTime, after: DateTime) -> bool {
    let mut missing = before + MINUTE;
    while missing < after {
        if missing.minute() == 0 {
            return true;
        }
        missing += MINUTE;
    }
    false
}

/// What the wall clock shows in a period: its date, and its hour if it is one.
pub fn reading(truth: &Truth, period: Period, at: Timestamp) -> (Date, Option<u8>) {
    let civil = truth.time_zone.to_datetime(at);
    (civil.date(), (period == Period::Hour).then_some(civil.hour() as u8))
}

/// The beginnings of the periods that show a date, or an hour of it: two where a clock is set back.
pub fn beginnings(truth: &Truth, (date, hour): (Date, Option<u8>)) -> Vec<Timestamp> {
    let period = if hour.is_some() { Period::Hour } else { Period::Day };
    let civil = date.at(hour.unwrap_or(0) as i8, 0, 0, 0);
    let Ok(about) = truth.time_zone.to_ambiguous_timestamp(civil).compatible() else {
        return vec![];
    };
    // As far as a clock is ever changed, and one hour more.
    let around = SignedDuration::from_hours(3);
    let pattern = Pattern::Arrival { period, deadline_minutes: None };
    walk(truth, &pattern, about - around, about + around)
        .filter(|at| reading(truth, period, *at) == (date, hour))
        .collect()
}

/// Whether the wall clock's time is one of the pattern's.
fn matches(pattern: &Pattern, civil: DateTime) -> bool {
    let Pattern::Cron { minutes, hours, weekdays, days, .. } = pattern else { return false };
    let weekday = civil.date().weekday().to_sunday_zero_offset() as u8;
    minutes.contains(&(civil.minute() as u8))
        && hours.as_ref().is_none_or(|hours| hours.contains(&(civil.hour() as u8)))
        && weekdays.as_ref().is_none_or(|weekdays| weekdays.contains(&weekday))
        && days.as_ref().is_none_or(|days| days.contains(&(civil.day() as u8)))
}

/// Whether a day has slots at all.
fn has_slots(truth: &Truth, civil: DateTime) -> bool {
    let weekday = civil.date().weekday().to_sunday_zero_offset();
    (!truth.skips_weekends || (1..=5).contains(&weekday))
        && truth.holidays.as_ref().is_none_or(|days| !days.contains(&civil.date()))
}

/// Whether an instant is the first that shows its wall-clock time.
fn is_first(zone: &TimeZone, civil: DateTime, minute: Timestamp) -> bool {
    zone.to_ambiguous_timestamp(civil).earlier().is_ok_and(|first| first == minute)
}

/// Whether a time of the pattern was passed over between two minutes that follow each other.
fn lies_in_gap(truth: &Truth, pattern: &Pattern, before: DateTime, after: DateTime) -> bool {
    let mut missing = before + MINUTE;
    while missing < after {
        if matches(pattern, missing) && has_slots(truth, missing) {
            return true;
        }
        missing += MINUTE;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn found(zone: &'static str, pattern: &Pattern, day: &str) -> Vec<String> {
        let mut truth = Truth::draw(&mut Random::new(1), "a".to_owned(), None);
        truth.time_zone = TimeZone::get(zone).unwrap();
        (truth.skips_weekends, truth.holidays) = (false, None);
        let start: Timestamp = format!("{day}T00:00:00Z").parse().unwrap();
        let end = start + SignedDuration::from_hours(24);
        walk(&truth, pattern, start - MINUTE, end - MINUTE)
            .map(|slot| slot.strftime("%H:%M").to_string())
            .collect()
    }

    fn at(hour: u8, minute: u8) -> Pattern {
        let (minutes, hours) = (vec![minute], Some(vec![hour]));
        Pattern::Cron { minutes, hours, weekdays: None, days: None, step: None }
    }

    #[test]
    fn a_fixed_time_is_once_a_day_also_when_the_clock_is_changed() {
        // Riga: 03:00 to 04:00 is missing on 29 March 2026, and is there twice on 25 October.
        assert_eq!(found("Europe/Riga", &at(3, 30), "2026-03-29"), ["01:00"]);
        assert_eq!(found("Europe/Riga", &at(3, 30), "2026-10-25"), ["00:30"]);
        assert_eq!(found("Europe/Riga", &at(3, 30), "2026-06-01"), ["00:30"]);
    }

    #[test]
    fn periods_begin_once_and_the_rest_of_an_hour_is_one_too() {
        let of = |period| Pattern::Arrival { period, deadline_minutes: None };
        // Havana: midnight is missing on 8 March 2026. Lord Howe: half an hour from two o'clock is, on 4 October.
        assert_eq!(found("America/Havana", &of(Period::Day), "2026-03-08"), ["05:00"]);
        assert_eq!(found("Europe/Riga", &of(Period::Day), "2026-10-25"), ["22:00"]);
        let hours = found("Australia/Lord_Howe", &of(Period::Hour), "2026-10-03");
        assert_eq!(hours.len(), 24);
        assert!(hours.contains(&"15:30".to_owned()), "{hours:?}");
        assert_eq!(found("Europe/Riga", &of(Period::Hour), "2026-10-25").len(), 24);
    }

    #[test]
    fn an_hour_that_is_there_twice_begins_twice() {
        let mut truth = Truth::draw(&mut Random::new(1), "a".to_owned(), None);
        truth.time_zone = TimeZone::get("Europe/Riga").unwrap();
        (truth.skips_weekends, truth.holidays) = (false, None);
        let date = jiff::civil::date(2026, 10, 25);
        let found = |hour| beginnings(&truth, (date, hour)).len();
        assert_eq!([found(None), found(Some(2)), found(Some(3))], [1, 1, 2]);
    }

    #[test]
    fn stars_follow_real_time() {
        let minutes = vec![0];
        let hourly = Pattern::Cron { minutes, hours: None, weekdays: None, days: None, step: None };
        for day in ["2026-03-29", "2026-10-25"] {
            assert_eq!(found("Europe/Riga", &hourly, day).len(), 24);
        }
    }
}
