//! Stop and restart schedules: what is due of them, and what they do to open slots.
//!
//! They act on what runs *now*, so that a late one has lost its meaning: one that is more than
//! [`FIRING_GRACE`] late is recorded as expired and never made up for. Of several that are due at once the
//! newest fires, because ending the same run twice is ending it once; the others are superseded.
//! The plan names every slot between the old watermark and the new one exactly once (S3).

use jiff::{SignedDuration, Timestamp};

use crate::{schedule::Schedule, slot::OpenState};

/// How late a stop or restart may fire: enough for a restart of Interlock itself, or a change of owner.
pub const FIRING_GRACE: SignedDuration = SignedDuration::from_mins(1);

/// What is to be recorded for one stop or restart schedule; oldest first: expired, superseded, fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Firing {
    /// Those that are too late.
    pub expired: Option<Stretch>,
    /// Those that a newer one makes unnecessary.
    pub superseded: Option<Stretch>,
    /// The one that acts now.
    pub fires: Option<Timestamp>,
}

/// Slots in a row with the same fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many.
    pub count: u64,
}

/// The most slots that one plan looks at (S17); the next one continues.
const SLOTS_MAX: u32 = 1_000_000;

/// Plans one stop or restart schedule; `None` when nothing is due.
pub fn plan_firing(schedule: &Schedule, watermark: Timestamp, now: Timestamp) -> Option<Firing> {
    let live_from = now.saturating_sub(FIRING_GRACE).unwrap_or(Timestamp::MIN);
    let mut next = Some(schedule.after(watermark).filter(|slot| *slot <= now)?);
    let mut firing = Firing { expired: None, superseded: None, fires: None };
    for _ in 0..SLOTS_MAX {
        let Some(slot) = next else { break };
        if slot < live_from {
            lengthen(&mut firing.expired, slot);
        } else if let Some(older) = firing.fires.replace(slot) {
            lengthen(&mut firing.superseded, older);
        }
        next = schedule.after(slot).filter(|slot| *slot <= now);
    }
    Some(firing)
}

fn lengthen(stretch: &mut Option<Stretch>, slot: Timestamp) {
    let stretch = stretch.get_or_insert(Stretch { first: slot, last: slot, count: 0 });
    stretch.last = slot;
    stretch.count += 1;
}

/// How a slot is ended that a stop meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its job is asked to end, and its own report closes the slot.
    AskTheJob,
    /// Nothing runs: the slot is closed.
    Close,
}

/// How a stop ends a slot, if it does. What waits or queues is owed by its own schedule and stays: a stop
/// ends what runs, it does not say that nothing may run afterwards. A monitored slot's job is over.
pub fn ending_of(state: OpenState) -> Option<Ending> {
    match state {
        OpenState::Running => Some(Ending::AskTheJob),
        OpenState::Backoff => Some(Ending::Close),
        OpenState::Waiting | OpenState::Queued | OpenState::Monitoring => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        calendar::DayFilter,
        cron::{Cron, Seconds},
        id::ScheduleId,
        schedule::{Dst, Recurrence, Timing},
        zone::Zone,
    };

    fn every(cron: &str) -> Schedule {
        let cron = Cron::parse(cron, Seconds::Present).unwrap().cron;
        let timing = Timing {
            zone: Zone::utc(),
            dst: Dst::default(),
            days: DayFilter::default(),
            from: None,
            until: None,
        };
        Schedule::new(ScheduleId::from_static("stop"), Recurrence::Cron(cron), timing).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        format!("2026-11-15T{text}Z").parse().unwrap()
    }

    #[track_caller]
    fn check(cron: &str, watermark: &str, now: &str, expected: &str) {
        let found = plan_firing(&every(cron), at(watermark), at(now));
        let stretch = |m: Stretch| format!("{}..{}={}", time(m.first), time(m.last), m.count);
        let found = found.map_or("nothing".to_owned(), |firing| {
            format!(
                "expired {} superseded {} fires {}",
                firing.expired.map_or("-".into(), stretch),
                firing.superseded.map_or("-".into(), stretch),
                firing.fires.map_or("-".into(), time),
            )
        });
        assert_eq!(found, expected, "{cron} from {watermark} at {now}");
    }

    fn time(at: Timestamp) -> String {
        at.strftime("%H:%M:%S").to_string()
    }

    #[test]
    fn one_fires_within_its_grace_and_expires_after_it() {
        let hourly = "0 0 * * * *";
        check(hourly, "08:30:00", "08:59:59", "nothing");
        check(hourly, "08:30:00", "09:00:00", "expired - superseded - fires 09:00:00");
        check(hourly, "08:30:00", "09:01:00", "expired - superseded - fires 09:00:00");
        check(hourly, "08:30:00", "09:01:01", "expired 09:00:00..09:00:00=1 superseded - fires -");
        // The clock was set back: nothing fires twice (S15).
        check(hourly, "09:00:00", "08:00:00", "nothing");
        check(hourly, "09:00:00", "09:00:30", "nothing");
    }

    #[test]
    fn of_several_the_newest_fires_and_old_ones_are_never_replayed() {
        check(
            "*/20 * * * * *",
            "09:00:00",
            "09:10:00",
            "expired 09:00:20..09:08:40=26 superseded 09:09:00..09:09:40=3 fires 09:10:00",
        );
    }

    #[test]
    fn a_stop_ends_what_runs_and_leaves_what_waits() {
        let ended = OpenState::ALL.map(|state| (state.as_str(), ending_of(state)));
        assert_eq!(
            ended,
            [
                ("waiting", None),
                ("queued", None),
                ("running", Some(Ending::AskTheJob)),
                ("backoff", Some(Ending::Close)),
                ("monitoring", None),
            ]
        );
    }
}
