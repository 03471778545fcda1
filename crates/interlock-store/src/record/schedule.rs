//! The stored twins of [`Schedule`]: recurrence, zone, calendars and bounds.

use std::{collections::BTreeSet, sync::Arc};

use interlock_core::{
    calendar::{Calendar, DayFilter, Weekdays},
    cron::{Cron, Seconds},
    id::ScheduleId,
    readiness::{Check, Operand, SensorRule},
    schedule::{Dst, Gap, Overlap, Period, Recurrence, Schedule, Timing},
    time_of_day::TimeOfDay,
};
use jiff::{SignedDuration, Timestamp, civil::Date};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Unreadable,
    agenda::{Shared, Zones, unreadable, zone},
};

/// See [`Schedule`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleRecord {
    /// Its id.
    pub id: String,
    /// Its rule.
    pub recurrence: RecurrenceRecord,
    /// The name of its zone.
    pub zone: String,
    /// `run_after` or `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<String>,
    /// `first`, `second` or `both`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    /// See [`DayFilter::exclude`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<CalendarRecord>,
    /// See [`DayFilter::include`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<CalendarRecord>,
    /// See [`Timing::from`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// See [`Timing::until`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// See [`Recurrence`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecurrenceRecord {
    /// The expression, of five fields or six.
    Cron(String),
    /// Seconds, and an instant to count from.
    Every(i64, Timestamp),
    /// Seconds.
    SinceLast(i64),
    /// The time, and the weekdays.
    At(String, Vec<String>),
    /// The instant.
    Once(Timestamp),
    /// The time, and the dates.
    Dates(String, BTreeSet<Date>),
    /// The condition, and `day` or `hour`.
    Sensor(SensorRuleRecord, String),
    /// Once per local date.
    Daily,
}

/// See [`SensorRule`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SensorRuleRecord {
    /// See [`SensorRule::key`].
    pub key: String,
    /// How to compare.
    pub check: String,
    /// See [`SensorRule::field`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// With which value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// With which age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<SignedDuration>,
}

/// See [`Calendar`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CalendarRecord {
    /// Its name.
    pub name: String,
    /// See [`Calendar::weekdays`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weekdays: Vec<String>,
    /// See [`Calendar::dates`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub dates: BTreeSet<Date>,
    /// See [`Calendar::yearly`].
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub yearly: BTreeSet<(i8, i8)>,
    /// See [`Calendar::ranges`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<(Date, Date)>,
}

impl ScheduleRecord {
    pub(super) fn from_core(schedule: &Schedule) -> Self {
        let Timing { zone, dst, days, from, until } = schedule.timing();
        let gap = dst.gap.map(|gap| match gap {
            Gap::RunAfter => "run_after",
            Gap::Skip => "skip",
        });
        let overlap = dst.overlap.map(|overlap| match overlap {
            Overlap::First => "first",
            Overlap::Second => "second",
            Overlap::Both => "both",
        });
        let calendars = |all: &[Arc<Calendar>]| {
            all.iter().map(|calendar| CalendarRecord::from_core(calendar)).collect()
        };
        Self {
            id: schedule.id().as_str().to_owned(),
            recurrence: RecurrenceRecord::from_core(schedule.recurrence()),
            zone: zone.name().to_owned(),
            gap: gap.map(str::to_owned),
            overlap: overlap.map(str::to_owned),
            exclude: calendars(&days.exclude),
            include: calendars(&days.include),
            from: *from,
            until: *until,
        }
    }

    pub(super) fn to_core(
        &self,
        shared: &mut Shared,
        zones: Zones<'_>,
    ) -> Result<Schedule, Unreadable> {
        let gap = match self.gap.as_deref() {
            None => None,
            Some("run_after") => Some(Gap::RunAfter),
            Some("skip") => Some(Gap::Skip),
            Some(word) => return Err(Unreadable::Word(word.to_owned())),
        };
        let overlap = match self.overlap.as_deref() {
            None => None,
            Some("first") => Some(Overlap::First),
            Some("second") => Some(Overlap::Second),
            Some("both") => Some(Overlap::Both),
            Some(word) => return Err(Unreadable::Word(word.to_owned())),
        };
        let mut calendars = |all: &[CalendarRecord]| -> Result<Vec<_>, Unreadable> {
            all.iter().map(|calendar| shared.calendar(calendar)).collect()
        };
        let timing = Timing {
            zone: zone(&self.zone, zones)?,
            dst: Dst { gap, overlap },
            days: DayFilter {
                exclude: calendars(&self.exclude)?,
                include: calendars(&self.include)?,
            },
            from: self.from,
            until: self.until,
        };
        let id = ScheduleId::any(&self.id).map_err(unreadable)?;
        Schedule::new(id, self.recurrence.to_core()?, timing)
            .map_err(|never| Unreadable::Word(never.to_string()))
    }
}

impl RecurrenceRecord {
    fn from_core(recurrence: &Recurrence) -> Self {
        match recurrence {
            Recurrence::Cron(cron) => Self::Cron(cron.as_str().to_owned()),
            Recurrence::Every { step, anchor } => Self::Every(*step, *anchor),
            Recurrence::SinceLast { step } => Self::SinceLast(*step),
            Recurrence::At { time, weekdays } => Self::At(time.to_string(), names(*weekdays)),
            Recurrence::Once(at) => Self::Once(*at),
            Recurrence::Dates { dates, time } => Self::Dates(time.to_string(), dates.clone()),
            Recurrence::Sensor { rule, period } => {
                let period = match period {
                    Period::Day => "day",
                    Period::Hour => "hour",
                };
                Self::Sensor(SensorRuleRecord::from_core(rule), period.to_owned())
            }
            Recurrence::Daily => Self::Daily,
        }
    }

    fn to_core(&self) -> Result<Recurrence, Unreadable> {
        Ok(match self {
            Self::Cron(text) => {
                let fields = text.split_whitespace().count();
                let seconds = if fields == 6 { Seconds::Present } else { Seconds::Absent };
                Recurrence::Cron(Cron::parse(text, seconds).map_err(unreadable)?.cron)
            }
            Self::Every(step, anchor) => Recurrence::Every { step: *step, anchor: *anchor },
            Self::SinceLast(step) => Recurrence::SinceLast { step: *step },
            Self::At(time, days) => {
                Recurrence::At { time: time_of_day(time)?, weekdays: weekdays(days)? }
            }
            Self::Once(at) => Recurrence::Once(*at),
            Self::Dates(time, dates) => {
                Recurrence::Dates { dates: dates.clone(), time: time_of_day(time)? }
            }
            Self::Sensor(rule, period) => {
                let period = match period.as_str() {
                    "day" => Period::Day,
                    "hour" => Period::Hour,
                    word => return Err(Unreadable::Word(word.to_owned())),
                };
                Recurrence::Sensor { rule: rule.to_core()?, period }
            }
            Self::Daily => Recurrence::Daily,
        })
    }
}

impl SensorRuleRecord {
    fn from_core(rule: &SensorRule) -> Self {
        let (value, age) = match &rule.operand {
            Operand::None => (None, None),
            Operand::Value(value) => (Some(value.clone()), None),
            Operand::Age(age) => (None, Some(*age)),
        };
        let (key, check) = (rule.key.clone(), rule.check.as_str().to_owned());
        Self { key, check, field: rule.field.clone(), value, age }
    }

    fn to_core(&self) -> Result<SensorRule, Unreadable> {
        let operand = match (&self.value, self.age) {
            (_, Some(age)) => Operand::Age(age),
            (Some(value), None) => Operand::Value(value.clone()),
            (None, None) => Operand::None,
        };
        let check = Check::parse(&self.check).map_err(unreadable)?;
        Ok(SensorRule { key: self.key.clone(), check, field: self.field.clone(), operand })
    }
}

impl CalendarRecord {
    fn from_core(calendar: &Calendar) -> Self {
        Self {
            name: calendar.name.clone(),
            weekdays: names(calendar.weekdays),
            dates: calendar.dates.clone(),
            yearly: calendar.yearly.clone(),
            ranges: calendar.ranges.clone(),
        }
    }

    pub(super) fn to_core(&self) -> Result<Calendar, Unreadable> {
        Ok(Calendar {
            name: self.name.clone(),
            weekdays: weekdays(&self.weekdays)?,
            dates: self.dates.clone(),
            yearly: self.yearly.clone(),
            ranges: self.ranges.clone(),
        })
    }
}

fn time_of_day(text: &str) -> Result<TimeOfDay, Unreadable> {
    TimeOfDay::parse(text).map_err(unreadable)
}

fn names(weekdays: Weekdays) -> Vec<String> {
    weekdays.names().map(str::to_owned).collect()
}

fn weekdays(names: &[String]) -> Result<Weekdays, Unreadable> {
    let mut days = names.iter().map(|name| Weekdays::parse_day(name).map_err(unreadable));
    days.try_fold(Weekdays::NONE, |all, day| Ok(all.union(day?)))
}
