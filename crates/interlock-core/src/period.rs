//! Which slot of an upstream a slot waits for.
//!
//! The last that the upstream owed on the slot's date up to the slot's instant; where it owed none by then, the
//! first of that date. So a day waits for the same day, an hour for the same hour, a minute for its hour, and an
//! hour for the day's only slot, whether that lies before or after it. It follows from the upstream's schedules
//! and not from what is recorded: a slot that is not recorded yet is waited for all the same
//! (`docs/adr/0039-the-same-period.md`).

use jiff::{SignedDuration, Timestamp, civil::Date};

use crate::{
    id::ScheduleId, pipeline::StartSchedule, schedule::Recurrence, time_of_day::TimeOfDay,
    zone::Zone,
};

/// The slot that waits.
#[derive(Debug, Clone, Copy)]
pub struct Waiting<'a> {
    /// Its instant.
    pub nominal: Timestamp,
    /// Its local date.
    pub date: Date,
    /// Its schedule, if that is one of its pipeline's own.
    pub start: Option<&'a StartSchedule>,
}

/// What it waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Awaited {
    /// The instant of the upstream's slot.
    pub nominal: Timestamp,
    /// The schedules that have a slot then: all of them are waited for.
    pub schedules: Vec<ScheduleId>,
    /// Up to here what else the upstream ran, by hand or by a restart, stands for that slot.
    pub until: Timestamp,
}

impl Waiting<'_> {
    /// The slot of an upstream that it waits for, by the schedules that are asked about; nothing if they owe none
    /// on that date.
    pub fn awaits<'b>(&self, upstream: impl Iterator<Item = &'b StartSchedule>) -> Option<Awaited> {
        let upstream: Vec<_> = upstream.filter(|start| has_instants(start)).collect();
        let (mut before, mut after) = (None, None);
        let mut until = Timestamp::MIN;
        for start in &upstream {
            let (begin, end) = self.bounds(start);
            let schedule = &start.schedule;
            let last = schedule.previous(just_after(self.nominal).min(end));
            if let Some(last) = last.filter(|last| *last >= begin) {
                before = before.max(Some(last));
            } else if let Some(first) = schedule.next(begin).filter(|first| *first < end) {
                after = after.into_iter().chain([first]).min();
            }
            until = until.max(end);
        }
        let nominal = before.or(after)?;
        let all = || upstream.iter().map(|start| &start.schedule);
        let next = all().filter_map(|schedule| schedule.after(nominal)).min();
        let at_once = all().filter(|schedule| schedule.is_slot(nominal));
        Some(Awaited {
            nominal,
            schedules: at_once.map(|schedule| schedule.id().clone()).collect(),
            until: next.map_or(until, |next| next.min(until)),
        })
    }

    /// The slot's date: by the upstream's own wall clock, unless both have several slots on one date. Then they mean
    /// instants, and a date has one beginning for both.
    fn bounds(&self, upstream: &StartSchedule) -> (Timestamp, Timestamp) {
        let near = upstream.schedule.previous(just_after(self.nominal));
        let is_finer = near.is_some_and(|near| upstream.period_of(near).is_hour());
        let own = self.start.filter(|own| is_finer && own.period_of(self.nominal).is_hour());
        let zone = &own.unwrap_or(upstream).schedule.timing().zone;
        (
            midnight(self.date, zone),
            self.date.tomorrow().map_or(Timestamp::MAX, |it| midnight(it, zone)),
        )
    }
}

/// Whether the instants of a schedule can be told; a dead-man's switch goes by the last success.
fn has_instants(start: &StartSchedule) -> bool {
    !matches!(start.schedule.recurrence(), Recurrence::SinceLast { .. })
}

fn midnight(date: Date, zone: &Zone) -> Timestamp {
    TimeOfDay::MIDNIGHT.first_on(date, zone)
}

fn just_after(at: Timestamp) -> Timestamp {
    at.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(Timestamp::MAX)
}
