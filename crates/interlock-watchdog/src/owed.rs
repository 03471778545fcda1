//! Which slots are judged, and when.
//!
//! A slot is judged half a second after its deadline, else after its grace. The instants of a schedule's slots
//! and the instants at which they are judged come in the same order, so a cursor over the slots is enough.

use std::sync::Arc;

use interlock_core::{
    agenda::{Agenda, Work},
    id::PipelineId,
    pipeline::StartSchedule,
    schedule::Recurrence,
    sla::{self, Deadline},
};
use jiff::{SignedDuration, Timestamp, civil::Date};

/// How long after its time a slot is judged: what was reported in time may still be on its way into the store.
pub const SETTLE: SignedDuration = SignedDuration::from_millis(500);

/// Slots of one schedule that are judged in one go; the rest is judged right after. Those that are judged at the same
/// instant are judged together.
const OWED_MAX: usize = 500;
/// Slots that are looked at one by one for where the judged ones end.
const STEPS_MAX: usize = 16;

/// A slot that is to be judged.
#[derive(Debug, Clone)]
pub struct Owed {
    /// Of which schedule.
    pub start: Arc<StartSchedule>,
    /// Its instant.
    pub nominal: Timestamp,
    /// Its local date.
    pub date: Date,
    /// By when something must have been recorded.
    pub limit: Timestamp,
    /// The deadline as it was written, if there is one.
    pub deadline: Option<String>,
}

impl Owed {
    /// When it is judged.
    pub fn judged_at(&self) -> Timestamp {
        plus(self.limit, SETTLE)
    }
}

/// A pipeline's slots, as far as absence is concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expecting<'a> {
    pub(crate) pipeline: &'a PipelineId,
    pub(crate) agenda: &'a Agenda,
}

impl Expecting<'_> {
    /// The schedules whose slots are judged by the clock. `daily` without a deadline has no time at which it
    /// should have begun, and a dead-man's switch goes by its open slot.
    pub(crate) fn schedules(&self) -> impl Iterator<Item = &Arc<StartSchedule>> {
        self.agenda.owed().filter(|start| match start.schedule.recurrence() {
            Recurrence::Daily => self.deadline(start).is_some(),
            Recurrence::SinceLast { .. } => false,
            Recurrence::Sensor { .. } => start.deadline.is_some(),
            Recurrence::Cron(_)
            | Recurrence::Every { .. }
            | Recurrence::At { .. }
            | Recurrence::Once(_)
            | Recurrence::Dates { .. } => true,
        })
    }

    /// The schedule's own deadline, else the pipeline's for evaluation.
    fn deadline(&self, start: &StartSchedule) -> Option<Deadline> {
        start.deadline.or_else(|| self.agenda.sla.as_ref().and_then(|sla| sla.evaluation))
    }

    /// One slot, with the time at which it is judged.
    pub(crate) fn owed(&self, start: &Arc<StartSchedule>, nominal: Timestamp) -> Owed {
        let date = start.schedule.occurrence(nominal).date;
        let resolved = self.agenda.promise(start, nominal, sla::Opening::Live).evaluation_at;
        // What we start is not missed while it is live: the scheduler would still open it.
        let grace = match self.agenda.work {
            Work::Started => start.delay(self.pipeline) + start.grace.max(start.start_grace),
            Work::Watched | Work::Dormant => start.grace,
        };
        let limit = resolved.unwrap_or_else(|| plus(nominal, grace));
        let deadline = self.deadline(start).map(|deadline| deadline.to_string());
        Owed { start: Arc::clone(start), nominal, date, limit, deadline }
    }

    /// The last slot of a schedule that was judged by an instant; none from before it is looked at again.
    fn cursor(&self, start: &Arc<StartSchedule>, judged: Timestamp) -> Timestamp {
        let was_judged = |cursor: Timestamp| {
            let next = start.schedule.after(cursor).filter(|next| *next <= judged);
            next.filter(|next| self.owed(start, *next).judged_at() <= judged)
        };
        // No slot that old can be judged later.
        let mut cursor = plus(judged, -self.longest(start));
        for _ in 0..STEPS_MAX {
            match was_judged(cursor) {
                Some(next) => cursor = next,
                None => return cursor,
            }
        }
        // Many slots wait for one deadline: halving finds the place among them.
        let mut later = judged;
        while later.duration_since(cursor) > SignedDuration::from_millis(1) {
            let middle = plus(cursor, later.duration_since(cursor) / 2);
            if was_judged(middle).is_some() { cursor = middle } else { later = middle }
        }
        later
    }

    /// The slots that are to be judged from one instant until another, at most so many of each schedule, and until
    /// when that is all of them.
    pub(crate) fn between(&self, from: Timestamp, now: Timestamp) -> (Vec<Owed>, Timestamp) {
        let mut all = Vec::new();
        let mut until = now;
        for start in self.schedules() {
            let mut cursor = self.cursor(start, plus(from, -SignedDuration::from_millis(1)));
            let mut last = Timestamp::MIN;
            let mut count = 0;
            while let Some(owed) = self.next(start, cursor)
                && owed.judged_at() <= now
            {
                if count >= OWED_MAX && owed.judged_at() > last {
                    until = until.min(last);
                    break;
                }
                (cursor, last) = (owed.nominal, owed.judged_at());
                count += 1;
                all.push(owed);
            }
        }
        all.retain(|owed| owed.judged_at() <= until);
        (all, until)
    }

    /// When something is next to be judged after an instant.
    pub(crate) fn next_after(&self, judged: Timestamp) -> Option<Timestamp> {
        self.first_after(judged, Timestamp::MIN)
    }

    /// The same of a pipeline that was first seen at an instant. What came before it is not owed, and must not make
    /// the pipeline one that is late: of such the watchdog waits for the scheduler, and what follows would wait too.
    pub(crate) fn first_after(&self, judged: Timestamp, seen: Timestamp) -> Option<Timestamp> {
        let next = self.schedules().filter_map(|start| {
            let cursor = self.cursor(start, judged.max(plus(seen, SETTLE)));
            // The day on which it was declared, and a time that a report decides, may begin before.
            let begins_before = matches!(
                start.schedule.recurrence(),
                Recurrence::Daily | Recurrence::Sensor { .. }
            );
            let cursor = if begins_before { cursor } else { cursor.max(seen) };
            Some(self.next(start, cursor)?.judged_at())
        });
        next.min()
    }

    /// The next slot of a schedule to be judged.
    fn next(&self, start: &Arc<StartSchedule>, cursor: Timestamp) -> Option<Owed> {
        start.schedule.after(cursor).map(|nominal| self.owed(start, nominal))
    }

    /// At most so long after its instant is a slot judged.
    fn longest(&self, start: &StartSchedule) -> SignedDuration {
        const DAYS: SignedDuration = SignedDuration::from_hours(4 * 24);
        let wait = match self.deadline(start) {
            None => start.grace.max(start.start_grace) + start.jitter,
            Some(Deadline::TimeOfDay(_)) => DAYS,
            Some(Deadline::MinuteOfNextHour(_)) => SignedDuration::from_hours(3),
            Some(Deadline::After(duration)) => DAYS + duration,
            Some(Deadline::AfterSlot(duration)) => duration,
        };
        wait + SETTLE + SignedDuration::from_secs(1)
    }
}

pub(crate) fn plus(at: Timestamp, duration: SignedDuration) -> Timestamp {
    let edge = if duration.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    at.checked_add(duration).unwrap_or(edge)
}
