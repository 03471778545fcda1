//! What a preview says about a slot besides its instant: which date it stands for, what daylight
//! saving did to it, and which slots a calendar or a gap took away.

use std::fmt;

use jiff::{
    Timestamp,
    civil::{Date, DateTime},
};

use super::{Evaluator, Gap, Schedule, Timing, second_at_or_after};
use crate::{
    calendar::DayFilter,
    civil::{SECONDS_PER_DAY, date_of_day},
    zone::timestamp,
};

/// A slot as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// The slot's instant.
    pub at: Timestamp,
    /// The local date it stands for. For a slot that moved out of a gap this is the date of the
    /// missing time, which may be the day before.
    pub date: Date,
    /// What daylight saving did.
    pub dst: Option<DstEffect>,
}

/// What daylight saving did to a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DstEffect {
    /// The wall-clock time does not exist that night; the slot is at the first instant after.
    Moved {
        /// The missing time.
        missing: DateTime,
    },
    /// The wall-clock time occurs twice, this is the first.
    FirstOfTwo,
    /// The wall-clock time occurs twice, this is the second.
    SecondOfTwo,
}

impl fmt::Display for DstEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Moved { missing } => {
                let time = missing.strftime("%H:%M");
                write!(f, "DST: {time} does not exist on {}, moved past the gap", missing.date())
            }
            Self::FirstOfTwo => write!(f, "DST: first of two, the clock is set back"),
            Self::SecondOfTwo => write!(f, "DST: second of two, the clock was set back"),
        }
    }
}

/// A date or time that would have been a slot and is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Omission {
    /// A calendar leaves the date out.
    Date {
        /// Which.
        date: Date,
        /// Which calendar and how.
        reason: String,
    },
    /// The time does not exist and the schedule skips it.
    Gap {
        /// Which.
        missing: DateTime,
    },
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Date { date, reason } => write!(f, "{date} {reason}"),
            Self::Gap { missing } => {
                let time = missing.strftime("%H:%M");
                write!(f, "DST: {time} does not exist on {}, skipped", missing.date())
            }
        }
    }
}

impl Schedule {
    /// Describes one of its slots.
    pub fn occurrence(&self, at: Timestamp) -> Occurrence {
        let second = at.as_second();
        let segment = self.timing.zone.segment_at(second);
        let civil = second + segment.offset;
        let mut date = date_of_day(civil.div_euclid(SECONDS_PER_DAY));
        let mut dst = None;
        if let Evaluator::Wall(wall) = &self.evaluator {
            if segment.offset_before > segment.offset
                && civil < segment.start + segment.offset_before
            {
                dst = Some(DstEffect::SecondOfTwo);
            } else if segment.offset_after < segment.offset
                && civil >= segment.end + segment.offset_after
            {
                dst = Some(DstEffect::FirstOfTwo);
            } else if second == segment.start
                && !wall.matches(civil, &self.timing)
                && let Some(missing) = wall.owes_for_gap(&segment, &self.timing)
            {
                date = date_of_day(missing.div_euclid(SECONDS_PER_DAY));
                dst = Some(DstEffect::Moved { missing: civil_time(missing) });
            }
        }
        Occurrence { at, date, dst }
    }

    /// What would have been a slot in `[from, until)` but for calendars and skipped gaps, in order,
    /// one entry per date or gap, at most `limit`.
    pub fn omissions(&self, from: Timestamp, until: Timestamp, limit: usize) -> Vec<Omission> {
        let (from, until) = (second_at_or_after(from), second_at_or_after(until));
        let mut omissions = self.left_out_by_calendars(from, until, limit);
        omissions.extend(self.lost_in_gaps(from, until, limit));
        omissions.sort_by_key(|(second, _)| *second);
        omissions.into_iter().take(limit).map(|(_, omission)| omission).collect()
    }

    fn left_out_by_calendars(&self, from: i64, until: i64, limit: usize) -> Vec<(i64, Omission)> {
        let mut found = Vec::new();
        if self.timing.days.is_empty() {
            return found;
        }
        let timing = Timing { days: DayFilter::default(), ..self.timing.clone() };
        let everything = Self { timing, ..self.clone() };
        let mut next = everything.first_second(from);
        while let Some(second) = next.filter(|second| *second < until && found.len() < limit) {
            let date = everything.occurrence(timestamp(second)).date;
            if let Some(reason) = self.timing.days.reason(date) {
                found.push((second, Omission::Date { date, reason }));
            }
            // One entry per date: go on with the next one.
            let rest_of_day = self.rest_of_day(second);
            next = everything.first_second(second + rest_of_day);
        }
        found
    }

    fn rest_of_day(&self, second: i64) -> i64 {
        let civil = second + self.timing.zone.segment_at(second).offset;
        SECONDS_PER_DAY - civil.rem_euclid(SECONDS_PER_DAY)
    }

    fn lost_in_gaps(&self, from: i64, until: i64, limit: usize) -> Vec<(i64, Omission)> {
        let mut found = Vec::new();
        let Evaluator::Wall(wall) = &self.evaluator else { return found };
        // A wildcard that follows real time loses nothing in a gap: no real time passed there.
        if wall.gap != Gap::Skip || !self.asked_to_skip() {
            return found;
        }
        let mut segment = Some(self.timing.zone.segment_at(from));
        while let Some(current) = segment
            && current.start < until
            && found.len() < limit
        {
            if current.start >= from
                && let Some(missing) = wall.first_missing(&current, &self.timing)
            {
                let missing = civil_time(missing);
                found.push((current.start, Omission::Gap { missing }));
            }
            segment = self.timing.zone.segment_after(current);
        }
        found
    }

    fn asked_to_skip(&self) -> bool {
        self.timing.dst.gap == Some(Gap::Skip)
    }
}

fn civil_time(civil: i64) -> DateTime {
    let date = date_of_day(civil.div_euclid(SECONDS_PER_DAY));
    let second = civil.rem_euclid(SECONDS_PER_DAY) as i32;
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    date.at(h as i8, m as i8, s as i8, 0)
}
