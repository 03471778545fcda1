//! What a schedule owes since its watermark: the scheduler's plan.
//!
//! A slot is **live** while now − nominal ≤ `startGrace`: it opens whatever the catch-up window says, so
//! that a restart of a few seconds over a slot's instant loses nothing. Older and unrecorded slots were
//! **missed**; they go through catch-up. The plan names every slot between the old watermark and the new
//! one exactly once (S3), and is bounded (S17): what was cut off is continued by the next pass.

use jiff::{SignedDuration, Timestamp};

use crate::schedule::Schedule;

/// What is to be recorded for one schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Slots that open now, in order.
    pub live: Vec<Timestamp>,
    /// Slots that were missed, in order and before the live ones.
    pub missed: Option<Missed>,
    /// Where the watermark goes: every slot at or before it is in this plan or was recorded before.
    pub watermark: Timestamp,
    /// Whether there is more to plan right away.
    pub is_cut_off: bool,
}

/// A stretch of slots that were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many.
    pub count: u64,
}

/// The most live slots that one plan opens.
pub const LIVE_MAX: usize = 1_000;

/// The most missed slots that one plan counts.
pub const MISSED_MAX: u64 = 1_000_000;

/// Plans one schedule. `None` when nothing is due and the watermark may stay where it is.
///
/// A watermark in the future (the clock was set back) owes nothing (S15).
pub fn plan_due(
    schedule: &Schedule,
    watermark: Timestamp,
    now: Timestamp,
    start_grace: SignedDuration,
) -> Option<Due> {
    let mut next = after(schedule, watermark).filter(|slot| *slot <= now)?;
    let live_from = now.saturating_sub(start_grace).unwrap_or(Timestamp::MIN);
    let mut due = Due { live: vec![], missed: None, watermark, is_cut_off: false };
    loop {
        if due.live.len() >= LIVE_MAX || due.missed.is_some_and(|m| m.count >= MISSED_MAX) {
            due.is_cut_off = true;
            return Some(due);
        }
        due.record(next, live_from);
        match after(schedule, next).filter(|slot| *slot <= now) {
            Some(slot) => next = slot,
            None => return Some(due),
        }
    }
}

impl Due {
    fn record(&mut self, slot: Timestamp, live_from: Timestamp) {
        self.watermark = slot;
        if slot >= live_from {
            self.live.push(slot);
            return;
        }
        let missed = self.missed.get_or_insert(Missed { first: slot, last: slot, count: 0 });
        missed.last = slot;
        missed.count += 1;
    }
}

/// The first slot after an instant.
pub fn after(schedule: &Schedule, instant: Timestamp) -> Option<Timestamp> {
    schedule.next(instant.saturating_add(SignedDuration::from_nanos(1)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        calendar::{DayFilter, Weekdays},
        cron::{Cron, Seconds},
        id::ScheduleId,
        schedule::{Dst, Recurrence, Timing},
        time_of_day::TimeOfDay,
        zone::Zone,
    };

    const MINUTE: SignedDuration = SignedDuration::from_mins(1);

    fn minutely() -> Schedule {
        let cron = Cron::parse("* * * * *", Seconds::Absent).unwrap().cron;
        let timing = Timing {
            zone: Zone::utc(),
            dst: Dst::default(),
            days: DayFilter::default(),
            from: None,
            until: None,
        };
        Schedule::new(ScheduleId::from_static("cron"), Recurrence::Cron(cron), timing).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        format!("2026-11-15T{text}Z").parse().unwrap()
    }

    #[test]
    fn nothing_is_due_before_the_next_slot_or_when_the_clock_went_back() {
        let schedule = minutely();
        assert_eq!(plan_due(&schedule, at("09:00:00"), at("09:00:59"), MINUTE), None);
        assert_eq!(plan_due(&schedule, at("09:00:00"), at("08:00:00"), MINUTE), None);
    }

    #[test]
    fn a_slot_is_due_at_its_instant_and_live_within_the_grace() {
        let schedule = minutely();
        let due = plan_due(&schedule, at("09:00:00"), at("09:01:00"), MINUTE).unwrap();
        assert_eq!((due.live, due.missed), (vec![at("09:01:00")], None));
        // Exactly one grace late is still live; a moment more is not.
        let due = plan_due(&schedule, at("09:00:00"), at("09:02:00"), MINUTE).unwrap();
        assert_eq!(due.live, [at("09:01:00"), at("09:02:00")]);
        let due = plan_due(&schedule, at("09:00:00"), at("09:02:01"), MINUTE).unwrap();
        assert_eq!(due.live, [at("09:02:00")]);
        let missed = Missed { first: at("09:01:00"), last: at("09:01:00"), count: 1 };
        assert_eq!(due.missed, Some(missed));
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
            let timing = Timing { zone, ..minutely().timing().clone() };
            let schedule =
                Schedule::new(ScheduleId::from_static("at"), recurrence, timing).unwrap();
            let (watermark, now): (Timestamp, Timestamp) =
                ("2026-03-10T00:00:00Z".parse().unwrap(), now.parse().unwrap());
            let due = plan_due(&schedule, watermark, now, SignedDuration::from_hours(2));
            let live = due.map(|due| due.live).unwrap_or_default();
            let expected: Vec<Timestamp> = expected.iter().map(|at| at.parse().unwrap()).collect();
            assert_eq!(live, expected, "{now}");
        }
    }

    #[test]
    fn downtime_is_one_stretch_and_the_watermark_covers_it() {
        let schedule = minutely();
        let due = plan_due(&schedule, at("03:00:00"), at("09:00:30"), MINUTE).unwrap();
        let missed = Missed { first: at("03:01:00"), last: at("08:59:00"), count: 359 };
        assert_eq!((due.missed, due.live.as_slice()), (Some(missed), &[at("09:00:00")][..]));
        assert_eq!(due.watermark, at("09:00:00"));
        assert!(!due.is_cut_off);
    }

    #[test]
    fn a_plan_is_bounded_and_continues_where_it_was_cut() {
        let cron = Cron::parse("* * * * * *", Seconds::Present).unwrap().cron;
        let schedule = minutely();
        let secondly =
            Schedule::new(schedule.id().clone(), Recurrence::Cron(cron), schedule.timing().clone());
        let secondly = secondly.unwrap();
        let (start, now) = (at("00:00:00"), at("01:00:00"));
        let hour = SignedDuration::from_hours(1);
        let mut watermark = start;
        let mut all = vec![];
        while let Some(due) = plan_due(&secondly, watermark, now, hour) {
            watermark = due.watermark;
            all.extend(due.live);
        }
        assert_eq!(all.len(), 3600);
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
