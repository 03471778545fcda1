//! Days ahead on which a schedule has other slots than usual: a calendar leaves them out, or the clock is changed.

use interlock_core::{
    calendar::DayFilter,
    schedule::{Omission, Schedule, Timing},
};
use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};

use crate::{
    AnswerError, ErrorCode, Reader,
    model::next_slot::{MarkedDayAnswer, MarkedDaysAnswer, MarkedDaysQuery},
};

/// How far ahead is looked, at most.
const DAYS_MAX: u32 = 400;
/// Marked days that one answer has, at most.
const ITEMS_MAX: usize = 1_000;
/// Slots that are counted for one answer, at most; what is left then is not counted.
const COUNTED_MAX: usize = 200_000;
/// What happens to slots in the night of a change is named for so many of them.
const EFFECTS_NAMED: usize = 3;

impl Reader<'_> {
    /// The days ahead on which the schedules of a pipeline have other slots than usual.
    pub async fn marked_days(
        &self,
        name: &str,
        asked: MarkedDaysQuery,
    ) -> Result<MarkedDaysAnswer, AnswerError> {
        let reader = self.at(asked.at);
        let days = asked.days.unwrap_or(DAYS_MAX);
        if !(1..=DAYS_MAX).contains(&days) {
            return Err(AnswerError::question(
                ErrorCode::BadParameter,
                format!("`days` is {days}"),
                format!("It is 1 to {DAYS_MAX}."),
            ));
        }
        let declared = reader.declared_pipeline(name).await?;
        let ahead = SignedDuration::from_hours(i64::from(days) * 24);
        let until = reader.now.saturating_add(ahead).unwrap_or(Timestamp::MAX);
        let mut answer = MarkedDaysAnswer::default();
        let mut left = COUNTED_MAX;
        for start in &declared.starts {
            let schedule = MarkedSchedule::new(&start.schedule);
            schedule.add(reader.now, until, &mut left, &mut answer);
        }
        answer.items.sort_by(|one, other| {
            (one.date, &one.schedule, &one.kind).cmp(&(other.date, &other.schedule, &other.kind))
        });
        answer.more |= answer.items.len() > ITEMS_MAX;
        answer.items.truncate(ITEMS_MAX);
        Ok(answer)
    }
}

/// A schedule, and the same without its calendars.
struct MarkedSchedule<'a> {
    schedule: &'a Schedule,
    everything: Option<Schedule>,
    zone: &'a TimeZone,
}

impl<'a> MarkedSchedule<'a> {
    fn new(schedule: &'a Schedule) -> Self {
        let timing = Timing { days: DayFilter::default(), ..schedule.timing().clone() };
        let recurrence = schedule.recurrence().clone();
        let everything = Schedule::new(schedule.id().clone(), recurrence, timing).ok();
        Self { schedule, everything, zone: schedule.timing().zone.time_zone() }
    }

    fn add(
        &self,
        from: Timestamp,
        until: Timestamp,
        left: &mut usize,
        answer: &mut MarkedDaysAnswer,
    ) {
        let omissions = self.schedule.omissions(from, until, ITEMS_MAX + 1);
        answer.more |= omissions.len() > ITEMS_MAX;
        for omission in omissions {
            // A time that does not exist belongs to the night in which the clock is changed.
            if let Omission::Date { date, reason } = omission {
                answer.items.push(self.excluded(date, reason, left));
            }
        }
        let changes = self.zone.following(from).take_while(|it| it.timestamp() < until);
        for change in changes.take(ITEMS_MAX) {
            let before = change.timestamp().saturating_sub(SignedDuration::from_secs(1));
            let before = before.unwrap_or(Timestamp::MIN);
            let shift = change.offset().seconds() - self.zone.to_offset(before).seconds();
            if shift != 0 {
                answer.items.push(self.changed(change.timestamp(), shift, left));
            }
        }
    }

    /// A day that a calendar leaves out.
    fn excluded(&self, date: Date, reason: String, left: &mut usize) -> MarkedDayAnswer {
        let everything = self.everything.as_ref();
        let fall_away = everything.and_then(|it| self.slots_on(it, date, left));
        MarkedDayAnswer {
            date,
            schedule: self.schedule.id().to_string(),
            kind: "excluded".to_owned(),
            utc: None,
            shift_seconds: None,
            slots: Some(0),
            fall_away: fall_away.map(|slots| slots.len() as u64),
            is_affected: true,
            note: reason,
        }
    }

    /// A day on which the clock is changed.
    fn changed(&self, at: Timestamp, shift: i32, left: &mut usize) -> MarkedDayAnswer {
        let date = at.to_zoned(self.zone.clone()).date();
        let slots = self.slots_on(self.schedule, date, left);
        let found = slots.iter().flatten();
        let effects = found.filter_map(|slot| self.schedule.occurrence(*slot).dst);
        let effects: Vec<String> = effects.map(|effect| effect.to_string()).collect();
        let (begins, ends) = self.day(date);
        let lost = self.schedule.omissions(begins, ends, EFFECTS_NAMED);
        let lost = lost.iter().filter(|it| matches!(it, Omission::Gap { .. }));
        let lost: Vec<String> = lost.map(ToString::to_string).collect();
        let mut notes: Vec<&str> =
            lost.iter().chain(&effects).take(EFFECTS_NAMED).map(String::as_str).collect();
        notes.dedup();
        let hours = f64::from(shift) / 3600.0;
        let mut note = format!("the clock is changed by {hours:+} h");
        for effect in &notes {
            note.push_str("; ");
            note.push_str(effect);
        }
        MarkedDayAnswer {
            date,
            schedule: self.schedule.id().to_string(),
            kind: "dst".to_owned(),
            utc: Some(at),
            shift_seconds: Some(shift),
            slots: slots.map(|slots| slots.len() as u64),
            fall_away: Some(lost.len() as u64),
            is_affected: !notes.is_empty(),
            note,
        }
    }

    /// When a local day begins and ends.
    fn day(&self, date: Date) -> (Timestamp, Timestamp) {
        let begin = |date: Date| {
            date.to_zoned(self.zone.clone()).map_or(Timestamp::MAX, |begin| begin.timestamp())
        };
        (begin(date), date.tomorrow().map_or(Timestamp::MAX, begin))
    }

    /// The slots of a local day; none once too many were counted.
    fn slots_on(
        &self,
        schedule: &Schedule,
        date: Date,
        left: &mut usize,
    ) -> Option<Vec<Timestamp>> {
        let (begins, ends) = self.day(date);
        let found = schedule.slots(begins, ends, left.saturating_add(1)).found;
        let rest = left.checked_sub(found.len())?;
        *left = rest;
        Some(found)
    }
}
