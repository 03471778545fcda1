//! What a row says first, and why, in a few words.

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::{
    seen::OpenSlot,
    tallied::{TalliedIncident, TalliedPipeline},
};
use crate::model::fleet::{FleetPlace, FleetState, FleetStatesAnswer};

/// A pipeline that is paused for longer needs a person.
pub(super) const PAUSE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// Characters of a reason.
pub(super) const REASON_MAX: usize = 45;

/// What runs of a pipeline took.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownDurations {
    /// Usually, in seconds.
    pub(super) usual: Option<i64>,
    /// The last time.
    pub(super) last: Option<i64>,
    /// Why the last run failed.
    pub(super) failure: Option<String>,
}

impl TalliedPipeline {
    /// The worst that a person must know of it.
    pub(super) fn state(&self, now: Timestamp) -> FleetState {
        let told = self.incidents.iter().filter_map(|it| it.state);
        let open = self.open.iter().map(|slot| state_of_open(slot, now));
        let mut worst = told.chain(open).chain(self.last.map(|last| state_of_place(last.place)));
        let worst = worst.by_ref().min().unwrap_or(FleetState::NotDue);
        match self.pause(now) {
            Some(since) if now.duration_since(since) > PAUSE_MAX => {
                worst.min(FleetState::PausedLong)
            }
            Some(_) => worst.min(FleetState::Paused),
            None => worst,
        }
    }

    /// Since when it is paused.
    fn pause(&self, now: Timestamp) -> Option<Timestamp> {
        let pause = self.declared.pause.as_ref()?;
        (pause.since <= now && pause.is_in_force(now)).then_some(pause.since)
    }

    /// Why it is in its state, in a sentence.
    pub(super) fn reason(
        &self,
        state: FleetState,
        known: &KnownDurations,
        now: Timestamp,
        zone: &TimeZone,
    ) -> String {
        let at = |at: Timestamp| time(at, now, zone);
        match state {
            FleetState::Failed
            | FleetState::Missed
            | FleetState::Unknown
            | FleetState::NotReady
            | FleetState::AtRisk
            | FleetState::Late => self.trouble(state, known, now, zone),
            FleetState::CatchingUp => {
                let count = self.open.iter().filter(|slot| slot.is_catchup).count();
                let running = self.running();
                let runs = if running { ", one runs" } else { "" };
                format!("{} to catch up{runs}", slots(count))
            }
            FleetState::PausedLong | FleetState::Paused => {
                let pause = self.declared.pause.as_ref();
                let why = pause.map_or("", |pause| &pause.reason);
                let since = pause.map_or_else(String::new, |pause| at(pause.since));
                format!("since {since}: {why}")
            }
            FleetState::Running => {
                let since = self.open.iter().find(|slot| slot.place == FleetPlace::Running);
                let since = since.map_or_else(String::new, |slot| at(slot.at));
                let usual = known.usual.map(|usual| format!(", usually {}", duration(usual)));
                format!("the {since} slot runs{}", usual.unwrap_or_default())
            }
            FleetState::Waiting => {
                let since = self.open.first().map_or_else(String::new, |slot| at(slot.at));
                format!("the {since} slot waits")
            }
            FleetState::OnTime => self.well(known, now, zone),
            FleetState::NotDue => match self.next(now) {
                Some((next, _)) => format!("no slot until {}", at(next)),
                None => "no slot is due".to_owned(),
            },
        }
    }

    fn trouble(
        &self,
        state: FleetState,
        known: &KnownDurations,
        now: Timestamp,
        zone: &TimeZone,
    ) -> String {
        let at = |at: Timestamp| time(at, now, zone);
        let last = self.last.filter(|last| state_of_place(last.place) == state);
        match (state, last) {
            (FleetState::Failed, Some(last)) => match &known.failure {
                Some(failure) => failure.clone(),
                None => format!("the {} run failed", at(last.at)),
            },
            (FleetState::Missed, Some(last)) => match last.reason {
                Some(reason) => format!("{} missed: {}", at(last.at), words(reason.as_str())),
                None => format!("no run by {}", at(last.at)),
            },
            (FleetState::Unknown, Some(last)) => {
                format!("{} unknown: Interlock could not see", at(last.at))
            }
            (FleetState::Late, Some(last)) => format!("the {} run came late", at(last.at)),
            _ => {
                let open = self.open.iter().find(|slot| state_of_open(slot, now) == state);
                match (open, self.incident(state)) {
                    (_, Some(incident)) => without_subject(&incident.message).to_owned(),
                    (Some(open), None) => {
                        let deadline = open.breach_at.map_or_else(String::new, at);
                        format!("the {} slot is due by {deadline}", at(open.at))
                    }
                    (None, None) => String::new(),
                }
            }
        }
    }

    fn incident(&self, state: FleetState) -> Option<&TalliedIncident> {
        let own = self.incidents.iter().filter(|it| it.state == Some(state));
        own.max_by_key(|it| it.opened_at)
    }

    fn well(&self, known: &KnownDurations, now: Timestamp, zone: &TimeZone) -> String {
        if let Some(last) = self.last
            && let Some(reason) = last.reason
        {
            return format!("{} skipped: {}", time(last.at, now, zone), words(reason.as_str()));
        }
        match (known.last, known.usual) {
            (Some(last), Some(usual)) if is_as_usual(last, usual) => {
                format!("{}, as usual", duration(last))
            }
            (Some(last), Some(usual)) => {
                format!("{}, usually {}", duration(last), duration(usual))
            }
            (Some(last), None) => format!("took {}", duration(last)),
            (None, _) => match self.last {
                Some(last) if last.place == FleetPlace::Cancelled => {
                    format!("{} was cancelled", time(last.at, now, zone))
                }
                Some(last) => format!("{} was well", time(last.at, now, zone)),
                None => String::new(),
            },
        }
    }

    fn running(&self) -> bool {
        self.open.iter().any(|slot| slot.place == FleetPlace::Running)
    }

    /// Its next slot, and of which schedule.
    pub(super) fn next(&self, now: Timestamp) -> Option<(Timestamp, &str)> {
        let each = self.declared.schedules.iter().filter_map(|it| {
            // Known without asking the schedule, as long as what is due is recorded.
            let next = match it.owed_from {
                Some(next) if next > now => next,
                Some(_) => it.start.schedule.after(now)?,
                None => return None,
            };
            Some((next, it.start.schedule.id().as_str()))
        });
        each.min()
    }
}

impl FleetStatesAnswer {
    /// Counts a pipeline in a state.
    pub(super) fn add(&mut self, state: FleetState) {
        self.pipelines += 1;
        self.attention += u64::from(state.needs_attention());
        *self.of_mut(state) += 1;
    }

    /// Counts a pipeline less in a state.
    pub(super) fn remove(&mut self, state: FleetState) {
        self.pipelines = self.pipelines.saturating_sub(1);
        self.attention = self.attention.saturating_sub(u64::from(state.needs_attention()));
        let count = self.of_mut(state);
        *count = count.saturating_sub(1);
    }

    /// How many are in a state.
    pub(super) fn of(mut self, state: FleetState) -> u64 {
        *self.of_mut(state)
    }

    fn of_mut(&mut self, state: FleetState) -> &mut u64 {
        match state {
            FleetState::Failed => &mut self.failed,
            FleetState::Missed => &mut self.missed,
            FleetState::Unknown => &mut self.unknown,
            FleetState::NotReady => &mut self.not_ready,
            FleetState::AtRisk => &mut self.at_risk,
            FleetState::Late => &mut self.late,
            FleetState::CatchingUp => &mut self.catching_up,
            FleetState::PausedLong => &mut self.paused_long,
            FleetState::Running => &mut self.running,
            FleetState::Waiting => &mut self.waiting,
            FleetState::Paused => &mut self.paused,
            FleetState::OnTime => &mut self.on_time,
            FleetState::NotDue => &mut self.not_due,
        }
    }

    /// What a group says of its pipelines: how many are in the worst state, and how many in others that need a person.
    pub(super) fn reason(self, worst: FleetState) -> String {
        let word = match worst {
            FleetState::Failed => "failed",
            FleetState::Missed => "missed",
            FleetState::Unknown => "unknown",
            FleetState::NotReady => "not ready",
            FleetState::AtRisk => "at risk",
            FleetState::Late => "late",
            FleetState::CatchingUp => "catching up",
            FleetState::PausedLong => "paused for long",
            FleetState::Running => return format!("all well, {} running", self.running),
            FleetState::Waiting => return format!("all well, {} waiting", self.waiting),
            FleetState::Paused => "paused",
            FleetState::OnTime => return "all on time".to_owned(),
            FleetState::NotDue => return "none is due".to_owned(),
        };
        let count = self.of(worst);
        match self.attention.saturating_sub(count) {
            others if others > 0 && worst.needs_attention() => {
                format!("{count} {word}, {others} need attention too")
            }
            _ => format!("{count} {word}"),
        }
    }
}

fn state_of_open(slot: &OpenSlot, now: Timestamp) -> FleetState {
    if slot.breach_at.is_some_and(|breach_at| now > breach_at) {
        FleetState::Late
    } else if slot.warning_at.is_some_and(|warning_at| now >= warning_at) {
        FleetState::AtRisk
    } else if slot.is_catchup {
        FleetState::CatchingUp
    } else if slot.place == FleetPlace::Running {
        FleetState::Running
    } else {
        FleetState::Waiting
    }
}

fn state_of_place(place: FleetPlace) -> FleetState {
    match place {
        FleetPlace::Failed => FleetState::Failed,
        FleetPlace::Missed => FleetState::Missed,
        FleetPlace::Unknown => FleetState::Unknown,
        FleetPlace::Late => FleetState::Late,
        FleetPlace::Running => FleetState::Running,
        FleetPlace::Waiting => FleetState::Waiting,
        FleetPlace::OnTime
        | FleetPlace::CaughtUp
        | FleetPlace::Skipped
        | FleetPlace::Cancelled
        | FleetPlace::Planned => FleetState::OnTime,
    }
}

/// What an incident says behind the name of its pipeline, which the row has already.
fn without_subject(message: &str) -> &str {
    let about = message.starts_with("Pipeline ").then(|| message.split_once(": ")).flatten();
    about.map_or(message, |(_subject, what)| what)
}

/// A reason that fits into a cell of a table.
pub(super) fn short(reason: &str) -> String {
    let reason = reason.lines().next().unwrap_or_default().trim();
    if reason.chars().count() <= REASON_MAX {
        return reason.to_owned();
    }
    let kept: String = reason.chars().take(REASON_MAX - 1).collect();
    format!("{}…", kept.trim_end())
}

/// The time of an instant: with its day where that is not today.
pub(super) fn time(at: Timestamp, now: Timestamp, zone: &TimeZone) -> String {
    let (local, today) = (at.to_zoned(zone.clone()), now.to_zoned(zone.clone()));
    let days = local.date().since(today.date()).map_or(0, |span| span.get_days());
    let how = match days {
        0 => "%H:%M %Z",
        -6..=6 => "%a %H:%M %Z",
        _ => "%-d %b %H:%M %Z",
    };
    local.strftime(how).to_string()
}

/// A duration as pages say it: `40 s`, `19 min`, `1 h 49`, `6 d`.
pub(super) fn duration(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..36_000 => format!("{} h {:02}", seconds / 3_600, seconds / 60 % 60),
        36_000..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn is_as_usual(last: i64, usual: i64) -> bool {
    (last - usual).abs() <= (usual / 4).max(30)
}

fn slots(count: usize) -> String {
    if count == 1 { "1 slot".to_owned() } else { format!("{count} slots") }
}

/// The word of a reason, to be read.
fn words(reason: &str) -> String {
    reason.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_45_characters_at_most_and_says_where_it_was_cut() {
        assert_eq!(short("exit code 1"), "exit code 1");
        let cut = short(&"ä ".repeat(40));
        assert!(cut.chars().count() <= REASON_MAX && cut.ends_with('…'), "{cut}");
        assert_eq!(short(&"x".repeat(45)).chars().count(), 45);
        assert_eq!(short("first\nsecond"), "first");
    }

    #[test]
    fn an_incident_is_said_without_the_pipeline_that_the_row_names() {
        let message = "Pipeline orders schedule daily was not ready in time on 2026-02-25: `landed` has not been reported";
        assert_eq!(without_subject(message), "`landed` has not been reported");
        assert_eq!(without_subject("The clock: it jumped"), "The clock: it jumped");
        assert_eq!(without_subject("Pipeline orders failed"), "Pipeline orders failed");
    }

    #[test]
    fn durations_and_times_are_said_as_pages_say_them() {
        for (seconds, said) in
            [(40, "40 s"), (1_140, "19 min"), (6_540, "1 h 49"), (72_000, "20 h"), (518_400, "6 d")]
        {
            assert_eq!(duration(seconds), said);
        }
        let now: Timestamp = "2026-10-25T08:41:00Z".parse().unwrap();
        let before: Timestamp = "2026-10-23T08:41:00Z".parse().unwrap();
        assert_eq!(time(now, now, &TimeZone::UTC), "08:41 UTC");
        assert_eq!(time(before, now, &TimeZone::UTC), "Fri 08:41 UTC");
    }
}
