//! A second opinion: walk every minute of a few days, convert each with jiff, match it field by field.
//!
//! It shares no code with the evaluator. Expressions are made of items whose meaning is known when they
//! are made, so that the parser is judged too. `INTERLOCK_ORACLE_CASES` sets how many cases are drawn
//! (`cargo xtask soak` asks for a million); a failure prints the case's number, which replays it.

use std::fmt::Write as _;

use interlock_core::{
    schedule::{Dst, Gap, Overlap},
    zone::Zone,
};
use jiff::{
    SignedDuration, Timestamp,
    civil::{Date, DateTime},
    tz::TimeZone,
};

use crate::support::{cron, zone};

const ZONES: [&str; 16] = [
    "Europe/Riga",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Europe/Dublin",
    "Asia/Beirut",
    "America/Asuncion",
    "America/Nuuk",
    "America/Havana",
    "Africa/Cairo",
    "Pacific/Chatham",
    "Antarctica/Troll",
    "America/St_Johns",
    "Asia/Gaza",
    "UTC",
];
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const WALK_MINUTES: i64 = 3 * 24 * 60;

#[test]
fn oracle_agrees_minute_by_minute() {
    let cases = option_env_cases();
    let zones: Vec<_> = ZONES.iter().map(|name| zone(name)).collect();
    let mut slots = 0;
    let mut never = 0;
    for case in 0..cases {
        match check(case, &zones) {
            Some(found) => slots += found,
            None => never += 1,
        }
    }
    println!("{cases} cases agree on {slots} slots; {never} expressions can never fire");
    assert!(slots as u64 > cases, "the generator makes mostly empty cases: {slots} slots");
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one knob of a test that runs outside the product"
)]
fn option_env_cases() -> u64 {
    std::env::var("INTERLOCK_ORACLE_CASES").map_or(10_000, |text| text.parse().unwrap())
}

/// Checks one case; says how many slots it had, or nothing if the expression can never fire.
fn check(case: u64, zones: &[Zone]) -> Option<usize> {
    let mut random = Random(case.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995);
    let pattern = Pattern::draw(&mut random);
    let zone = &zones[random.below(zones.len() as u64) as usize];
    let dst = Dst {
        gap: [None, Some(Gap::RunAfter), Some(Gap::Skip)][random.below(3) as usize],
        overlap: [None, Some(Overlap::First), Some(Overlap::Second), Some(Overlap::Both)]
            [random.below(4) as usize],
    };
    let start = draw_start(&mut random, zone.time_zone());
    let end = start + MINUTE * WALK_MINUTES as i32;
    let Ok(schedule) = cron(&pattern.text, zone, dst) else {
        assert!(pattern.never(), "case {case}: `{}` was called impossible", pattern.text);
        return None;
    };
    let expected = pattern.walk(start, zone.time_zone(), dst);
    let context =
        format!("case {case}: `{}` in {} {dst:?} from {start}", pattern.text, zone.name());
    let found = schedule.slots(start, end, usize::MAX).found;
    assert_eq!(found, expected, "{context}");
    let mut backwards = Vec::new();
    let mut before = end;
    while let Some(slot) = schedule.previous(before).filter(|slot| *slot >= start) {
        backwards.push(slot);
        before = slot;
    }
    backwards.reverse();
    assert_eq!(backwards, expected, "{context}, backwards");
    Some(expected.len())
}

/// Mostly within a day and a half of a real transition, between 1975 and 2045.
fn draw_start(random: &mut Random, zone: &TimeZone) -> Timestamp {
    let anywhere = 157_766_400 + random.below(70 * 365 * 86_400) as i64;
    let anywhere = Timestamp::from_second(anywhere / 60 * 60).unwrap();
    match zone.following(anywhere).next() {
        Some(transition) if random.below(4) > 0 => {
            // Some databases end with a transition that is no change and not at a whole minute.
            let minute = transition.timestamp().as_second() / 60 * 60;
            Timestamp::from_second(minute).unwrap() - MINUTE * (random.below(36 * 60) as i32)
        }
        _ => anywhere,
    }
}

/// A cron expression and what each of its fields means.
struct Pattern {
    text: String,
    minutes: Vec<u32>,
    hours: Vec<u32>,
    months: Vec<u32>,
    days: Vec<DayItem>,
    weekdays: Vec<DayItem>,
    is_fixed: bool,
    either: bool,
}

#[derive(Clone, Copy)]
enum DayItem {
    Any,
    EveryNth(u32),
    Day(u32),
    LastMinus(i8),
    LastWorkday,
    NearestWorkday(i8),
    Weekday(u32),
    NthWeekday(u32, i8),
    LastWeekday(u32),
}

impl Pattern {
    fn draw(random: &mut Random) -> Self {
        let (minute_text, minutes, minute_star) = draw_field(random, 0, 59);
        let (hour_text, hours, hour_star) = draw_field(random, 0, 23);
        let (month_text, months, _) = if random.below(3) > 0 {
            ("*".into(), (1..=12).collect(), true)
        } else {
            draw_field(random, 1, 12)
        };
        let (day_text, days, day_star) = draw_days(random);
        let (weekday_text, weekdays, weekday_star) = draw_weekdays(random);
        Self {
            text: format!("{minute_text} {hour_text} {day_text} {month_text} {weekday_text}"),
            minutes,
            hours,
            months,
            days,
            weekdays,
            is_fixed: !minute_star && !hour_star,
            either: !day_star && !weekday_star,
        }
    }

    fn matches(&self, civil: DateTime) -> bool {
        self.minutes.contains(&(civil.minute() as u32))
            && self.hours.contains(&(civil.hour() as u32))
            && self.matches_date(civil.date())
    }

    fn matches_date(&self, date: Date) -> bool {
        let day = self.days.iter().any(|item| item.matches(date));
        let weekday = self.weekdays.iter().any(|item| item.matches(date));
        self.months.contains(&(date.month() as u32))
            && (if self.either { day || weekday } else { day && weekday })
    }

    fn never(&self) -> bool {
        let mut date = Date::constant(1999, 1, 1);
        while date.year() < 2130 {
            if self.matches_date(date) {
                return false;
            }
            date = date.tomorrow().unwrap();
        }
        true
    }

    fn walk(&self, start: Timestamp, zone: &TimeZone, dst: Dst) -> Vec<Timestamp> {
        let gap = dst.gap.unwrap_or(if self.is_fixed { Gap::RunAfter } else { Gap::Skip });
        let overlap =
            dst.overlap.unwrap_or(if self.is_fixed { Overlap::First } else { Overlap::Both });
        let walk = Walk::new(start, zone);
        let owed = |index: &usize| {
            let civil = walk.civil[*index];
            let chosen = match overlap {
                Overlap::First => !walk.is_second[*index],
                Overlap::Second => !walk.is_first[*index],
                Overlap::Both => true,
            };
            (chosen && self.matches(civil))
                || (gap == Gap::RunAfter && self.in_gap(walk.civil[*index - 1], civil, zone))
        };
        let asked = MARGIN..MARGIN + WALK_MINUTES as usize;
        asked.filter(owed).map(|index| start + MINUTE * (index as i32 - MARGIN as i32)).collect()
    }

    /// Whether a matching minute lies strictly between two that follow each other in real time.
    fn in_gap(&self, before: DateTime, after: DateTime, zone: &TimeZone) -> bool {
        let mut missing = before + MINUTE;
        while missing < after {
            if self.matches(missing) && date_exists(missing.date(), zone) {
                return true;
            }
            missing += MINUTE;
        }
        false
    }
}

/// Minutes walked before and after the interval asked about, to see overlaps that reach into it.
const MARGIN: usize = 180;

/// What the wall clock shows at each minute, and which of those readings occur twice.
struct Walk {
    civil: Vec<DateTime>,
    is_first: Vec<bool>,
    is_second: Vec<bool>,
}

impl Walk {
    fn new(start: Timestamp, zone: &TimeZone) -> Self {
        let minutes = WALK_MINUTES as usize + 2 * MARGIN;
        let civil: Vec<_> = (0..minutes)
            .map(|index| zone.to_datetime(start + MINUTE * (index as i32 - MARGIN as i32)))
            .collect();
        let (mut is_first, mut is_second) = (vec![false; minutes], vec![false; minutes]);
        for index in 1..minutes {
            // The clock was set back here: so many minutes before are seen again after.
            let back = (civil[index - 1] + MINUTE).duration_since(civil[index]).as_mins();
            for minute in 0..usize::try_from(back).unwrap_or(0) {
                if let Some(first) = (index - 1).checked_sub(minute) {
                    is_first[first] = true;
                }
                if let Some(second) = is_second.get_mut(index + minute) {
                    *second = true;
                }
            }
        }
        Self { civil, is_first, is_second }
    }
}

/// Whether any instant shows this date.
fn date_exists(date: Date, zone: &TimeZone) -> bool {
    let noon = TimeZone::UTC.to_timestamp(date.at(12, 0, 0, 0)).unwrap();
    (-40 * 4..40 * 4).any(|quarter| zone.to_datetime(noon + MINUTE * 15 * quarter).date() == date)
}

impl DayItem {
    fn matches(self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset() as u32;
        match self {
            Self::Any => true,
            Self::EveryNth(n) => (date.day() as u32 - 1).is_multiple_of(n),
            Self::Day(day) => date.day() as u32 == day,
            Self::LastMinus(n) => date.day() + n == date.days_in_month(),
            Self::LastWorkday => {
                is_workday(date)
                    && (date.day() + 1..=date.days_in_month())
                        .all(|day| !is_workday(Date::constant(date.year(), date.month(), day)))
            }
            Self::NearestWorkday(n) => nearest_workday(date, n) == Some(date),
            Self::Weekday(day) => weekday == day,
            Self::NthWeekday(day, n) => weekday == day && (date.day() - 1) / 7 + 1 == n,
            Self::LastWeekday(day) => weekday == day && date.day() + 7 > date.days_in_month(),
        }
    }
}

fn is_workday(date: Date) -> bool {
    (1..=5).contains(&date.weekday().to_monday_one_offset())
}

/// The workday of the month closest to its n-th; Friday wins over Monday for a Saturday.
fn nearest_workday(month_of: Date, n: i8) -> Option<Date> {
    let target = Date::new(month_of.year(), month_of.month(), n).ok()?;
    (1..=target.days_in_month())
        .map(|day| Date::constant(target.year(), target.month(), day))
        .filter(|date| is_workday(*date))
        .min_by_key(|date| {
            let distance = i32::from(date.day()) - i32::from(n);
            (distance.abs(), distance)
        })
}

/// A field's text, the values it means, and whether it contains a star.
fn draw_field(random: &mut Random, min: u32, max: u32) -> (String, Vec<u32>, bool) {
    let span = u64::from(max - min);
    let step = 1 + random.below(span.min(20)) as u32;
    let first = min + random.below(span + 1) as u32;
    let last = first + random.below(u64::from(max - first) + 1) as u32;
    match random.below(6) {
        0 => ("*".into(), (min..=max).collect(), true),
        1 => (format!("*/{step}"), (min..=max).step_by(step as usize).collect(), true),
        2 => (format!("{first}-{last}"), (first..=last).collect(), false),
        3 => (
            format!("{first}-{last}/{step}"),
            (first..=last).step_by(step as usize).collect(),
            false,
        ),
        4 => (format!("{first}/{step}"), (first..=max).step_by(step as usize).collect(), false),
        _ => {
            let mut text = first.to_string();
            let mut values = vec![first];
            for _ in 0..random.below(3) {
                let value = min + random.below(span + 1) as u32;
                write!(text, ",{value}").unwrap();
                values.push(value);
            }
            (text, values, false)
        }
    }
}

fn draw_days(random: &mut Random) -> (String, Vec<DayItem>, bool) {
    let n = 1 + random.below(28) as u32;
    match random.below(12) {
        0 => ("L".into(), vec![DayItem::LastMinus(0)], false),
        1 => (format!("L-{n}"), vec![DayItem::LastMinus(n as i8)], false),
        2 => ("LW".into(), vec![DayItem::LastWorkday], false),
        3 => {
            let n = 1 + random.below(31) as u32;
            (format!("{n}W,{n}"), vec![DayItem::NearestWorkday(n as i8), DayItem::Day(n)], false)
        }
        4 => (format!("*/{n}"), vec![DayItem::EveryNth(n)], true),
        5 => {
            let (text, days, star) = draw_field(random, 1, 31);
            (text, days.into_iter().map(DayItem::Day).collect(), star)
        }
        _ => ("*".into(), vec![DayItem::Any], true),
    }
}

fn draw_weekdays(random: &mut Random) -> (String, Vec<DayItem>, bool) {
    const NAMES: [&str; 7] = ["sun", "MON", "tue", "Wed", "thu", "fri", "sat"];
    let day = random.below(7) as u32;
    let n = 1 + random.below(5) as i8;
    match random.below(10) {
        0 => (format!("{day}#{n}"), vec![DayItem::NthWeekday(day, n)], false),
        1 => (format!("{}L", NAMES[day as usize]), vec![DayItem::LastWeekday(day)], false),
        2 => (
            format!("{},7", NAMES[day as usize]),
            vec![DayItem::Weekday(day), DayItem::Weekday(0)],
            false,
        ),
        3 => ("mon-fri".into(), (1..=5).map(DayItem::Weekday).collect(), false),
        4 => ("fri-sun".into(), [5, 6, 0].map(DayItem::Weekday).into(), false),
        _ => ("*".into(), vec![DayItem::Any], true),
    }
}

/// A tiny generator, so that a case is its number (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
